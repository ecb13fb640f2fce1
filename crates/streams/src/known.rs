//! A client's state for one channel of an attachment: slots, listeners, and the tasks that wait for them.
//!
//! Purpose          process the board's indications, both for a runtime's tasks, which store their wakers
//!                  here, and for drivers, which poll.

use super::{board_gone_error, end_error};
use kiban_attach::{Client, EndReason, Indication, LISTENERS_MAX, Layout, Read, Request, STATISTICS_BYTES};
use kiban_base::ring::Poisoned;
use kiban_base::{Region, SharedBytes};
use kiban_os::channel::Channel;
use kiban_os::clock::machine_nanos;
use kiban_os::lock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::task::Waker;

/// The number of slots that each listener offers to the board in advance, on all shards together.
const SLOTS_OFFERED: usize = 16;

/// Marks a slot that was returned to the board. The board may have reassigned the slot since.
pub const GIVEN_BACK: u32 = u32::MAX;

/// An accepted stream.
#[derive(Clone, Copy)]
pub struct Accepted {
    /// Its slot.
    pub slot: u32,
    /// The board's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// State of a slot.
#[derive(Default)]
pub struct Slot {
    /// Whether the stream is established.
    pub is_open: bool,
    /// The board's address and port, once known.
    pub local: Option<SocketAddr>,
    /// Why the stream has ended.
    pub ended: Option<EndReason>,
    /// The shard that must open the stream, if that is another one.
    pub other_shard: Option<u16>,
    /// The pieces of the requested statistics so far; `None` if they were not requested.
    statistics: Option<Result<Vec<u8>, EndReason>>,
    /// The task that waits for bytes to read.
    pub reader: Option<Waker>,
    /// The task that waits for room to write.
    pub writer: Option<Waker>,
}

impl Slot {
    /// Wakes the tasks that wait for this stream.
    pub fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// State of a listener.
#[derive(Default)]
pub struct ListenerState {
    /// The board's answer to the listen request, or `None` until it arrives.
    result: Option<Result<SocketAddr, EndReason>>,
    /// Whether the board only checks whether it could listen.
    only_checks: bool,
    offered: usize,
    /// Streams that the program has not accepted yet.
    pub arrived: VecDeque<Accepted>,
    /// The task that waits for a stream.
    pub waker: Option<Waker>,
}

/// The state behind the lock.
pub struct Core {
    /// The client's side of the rings and pipes.
    pub client: Client,
    /// Slots by number.
    pub slots: Vec<Slot>,
    /// Listeners by number.
    pub listeners: BTreeMap<u16, ListenerState>,
    /// Whether the board has exited.
    pub is_gone: bool,
    /// Tasks that wait for a free slot.
    pub slot_waiters: Vec<Waker>,
    /// The number of slots that each listener offers to the board in advance.
    offered_max: usize,
    /// The number of the next listener. Numbers are not reused immediately, because indications for a closed
    /// listener may still arrive.
    next: u16,
}

impl Core {
    fn new(memory: &Region, layout: Layout, shards: usize) -> Core {
        Core {
            client: Client::new(memory, layout),
            slots: (0..layout.slots()).map(|_| Slot::default()).collect(),
            listeners: BTreeMap::new(),
            is_gone: false,
            slot_waiters: Vec::new(),
            offered_max: SLOTS_OFFERED.div_ceil(shards),
            next: 0,
        }
    }

    /// Processes the board's indications.
    pub fn process_indications(&mut self) {
        loop {
            match self.client.next_indication() {
                Ok(Some(indication)) => self.on_indication(indication),
                Ok(None) => break,
                Err(Poisoned) => return self.end(),
            }
        }
    }

    fn on_indication(&mut self, indication: Indication) {
        match indication {
            Indication::Listening { listener, result } => {
                if let Some(waiting) = self.listeners.get_mut(&listener) {
                    waiting.result = Some(result);
                    waiting.waker.take().into_iter().for_each(Waker::wake);
                }
            }
            Indication::Accepted { listener, slot, local, remote } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot { is_open: true, local: Some(local), ..Slot::default() };
                }
                match self.listeners.get_mut(&listener) {
                    Some(waiting) => {
                        waiting.offered = waiting.offered.saturating_sub(1);
                        waiting.arrived.push_back(Accepted { slot, local, remote });
                        waiting.waker.take().into_iter().for_each(Waker::wake);
                    }
                    // The listener was closed in the meantime.
                    None => self.give_up(slot),
                }
                self.offer();
            }
            Indication::Opened { slot, local } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    (state.is_open, state.local) = (true, Some(local));
                    state.wake();
                }
            }
            Indication::Notify { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.wake();
                }
            }
            Indication::Ended { slot, why } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.ended = Some(why);
                    state.wake();
                }
            }
            Indication::OtherShard { slot, shard } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    (state.other_shard, state.ended) = (Some(shard), Some(EndReason::InUse));
                    state.wake();
                }
            }
            Indication::Statistics { slot, piece } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    match (piece, &mut state.statistics) {
                        (Some(piece), Some(Ok(bytes))) if bytes.len() < STATISTICS_BYTES => {
                            bytes.extend(piece)
                        }
                        (None, Some(statistics)) => *statistics = Err(EndReason::Closed),
                        // Nothing was requested, or everything has arrived.
                        _ => {}
                    }
                    state.wake();
                }
            }
            // Only answers to requests of clients without slots.
            Indication::Option { .. } => {}
            Indication::Free { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot::default();
                }
                self.slot_waiters.drain(..).for_each(Waker::wake);
                self.offer();
            }
        }
    }

    /// Starts to connect. Returns the slot, or `None` if all slots are in use.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn connect(&mut self, local: Option<SocketAddr>, remote: SocketAddr) -> Option<io::Result<u32>> {
        if self.is_gone {
            return Some(Err(board_gone_error()));
        }
        let slot = self.client.claim()?;
        self.request(Request::Connect { slot, local, remote, traffic_class: 0 });
        Some(Ok(slot))
    }

    /// Returns the local address of a stream once it is established.
    ///
    /// # Errors
    /// If the stream ended before it was established, or the board has exited.
    pub fn opened(&self, slot: u32) -> Option<io::Result<SocketAddr>> {
        let state = &self.slots[slot as usize];
        match (state.local.filter(|_| state.is_open), state.ended) {
            (Some(local), _) => Some(Ok(local)),
            (None, Some(why)) => Some(Err(end_error(why))),
            (None, None) => self.is_gone.then(|| Err(board_gone_error())),
        }
    }

    /// Requests the statistics of a stream.
    pub fn query_statistics(&mut self, slot: u32) {
        self.slots[slot as usize].statistics = Some(Ok(Vec::new()));
        self.request(Request::QueryStatistics { slot });
    }

    /// Returns the requested statistics once they have arrived, in the layout of Linux's `struct tcp_info`.
    ///
    /// # Errors
    /// `NotConnected` if the stream has ended; if the board has exited.
    pub fn statistics(&mut self, slot: u32) -> Option<io::Result<Vec<u8>>> {
        let statistics = &mut self.slots[slot as usize].statistics;
        match statistics {
            Some(Ok(bytes)) if bytes.len() >= STATISTICS_BYTES => {
                let bytes = std::mem::take(bytes);
                *statistics = None;
                Some(Ok(bytes))
            }
            Some(Ok(_)) => self.is_gone.then(|| Err(board_gone_error())),
            Some(Err(_)) | None => Some(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Starts to listen, and returns the listener's number.
    ///
    /// # Errors
    /// If there are already [`LISTENERS_MAX`] listeners.
    pub fn listen(&mut self, local: SocketAddr) -> io::Result<u16> {
        let listen = |listener| Request::Listen { listener, local, shares: false, v6_only: false };
        self.begin_to_listen(ListenerState::default(), listen)
    }

    /// Has the board check whether it could listen, without doing so, and choose the port. Returns the number
    /// under which [`Core::listening`] reports the result.
    ///
    /// # Errors
    /// Same as for [`Core::listen`].
    pub fn check_listen(&mut self, local: SocketAddr) -> io::Result<u16> {
        let state = ListenerState { only_checks: true, ..ListenerState::default() };
        self.begin_to_listen(state, |listener| Request::CheckListen { listener, local })
    }

    fn begin_to_listen(
        &mut self,
        state: ListenerState,
        request: impl FnOnce(u16) -> Request,
    ) -> io::Result<u16> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        if self.listeners.len() >= LISTENERS_MAX || self.listeners.contains_key(&number) {
            return Err(end_error(EndReason::TooMany));
        }
        self.listeners.insert(number, state);
        self.request(request(number));
        Ok(number)
    }

    /// Returns the address on which the board listens, including the port that the board has chosen; `None`
    /// until the board has answered.
    ///
    /// # Errors
    /// If the board rejected the request to listen, or has exited.
    pub fn listening(&mut self, listener: u16) -> Option<io::Result<SocketAddr>> {
        match self.listeners.get(&listener)?.result {
            Some(result) => {
                self.offer();
                Some(result.map_err(end_error))
            }
            None => self.is_gone.then(|| Err(board_gone_error())),
        }
    }

    /// Returns a listener's next stream.
    ///
    /// # Errors
    /// If the board has exited and no accepted stream is left.
    pub fn accept(&mut self, listener: u16) -> Option<io::Result<Accepted>> {
        match self.listeners.get_mut(&listener)?.arrived.pop_front() {
            Some(accepted) => {
                self.offer();
                Some(Ok(accepted))
            }
            None => self.is_gone.then(|| Err(board_gone_error())),
        }
    }

    /// Stops listening, and closes streams that the program has not accepted.
    pub fn unlisten(&mut self, listener: u16) {
        if let Some(waiting) = self.listeners.remove(&listener) {
            if !waiting.only_checks && !matches!(waiting.result, Some(Err(_))) {
                self.request(Request::Unlisten { listener });
            }
            waiting.arrived.into_iter().for_each(|accepted| self.give_up(accepted.slot));
        }
    }

    /// Reads at most `most` bytes from a stream, and passes them in runs to `take`. Returns the number of
    /// bytes read. The result is zero at the end of the stream, and `None` if no data is available.
    ///
    /// # Errors
    /// If no data is left and the stream has ended other than by a close, or the board has exited. A board
    /// that violates the ring's protocol counts as exited.
    pub fn read(
        &mut self,
        slot: u32,
        most: usize,
        take: impl FnMut(SharedBytes<'_>),
    ) -> Option<io::Result<usize>> {
        match self.client.take(slot, most, take) {
            Ok(Read::Bytes(count)) => Some(Ok(count)),
            Ok(Read::End) => Some(Ok(0)),
            Ok(Read::Nothing) => match self.slots[slot as usize].ended {
                None => self.is_gone.then(|| Err(board_gone_error())),
                Some(EndReason::Closed) => Some(Ok(0)),
                Some(why) => Some(Err(end_error(why))),
            },
            Err(Poisoned) => {
                self.end();
                Some(Err(board_gone_error()))
            }
        }
    }

    /// Writes to a stream. Returns the number of bytes written, or `None` if there is no room.
    ///
    /// # Errors
    /// If the stream has ended, the board has exited and there is no room, or the board violates the ring's
    /// protocol.
    pub fn write(&mut self, slot: u32, bytes: SharedBytes<'_>) -> Option<io::Result<usize>> {
        if let Some(why) = self.slots[slot as usize].ended {
            return Some(Err(end_error(why)));
        }
        let is_empty = bytes.is_empty();
        match self.client.write(slot, bytes) {
            Ok(0) if !is_empty => self.is_gone.then(|| Err(board_gone_error())),
            Ok(count) => Some(Ok(count)),
            Err(Poisoned) => {
                self.end();
                Some(Err(board_gone_error()))
            }
        }
    }

    /// Writes as many bytes from several runs as there is room for, and returns their number.
    ///
    /// # Errors
    /// If the stream has ended, or the board has exited.
    pub fn write_runs<'a>(
        &mut self,
        slot: u32,
        runs: impl IntoIterator<Item = SharedBytes<'a>>,
    ) -> io::Result<usize> {
        if let Some(why) = self.slots[slot as usize].ended {
            return Err(end_error(why));
        }
        match self.client.write_runs(slot, runs) {
            Ok(0) if self.is_gone => Err(board_gone_error()),
            Ok(count) => Ok(count),
            Err(Poisoned) => {
                self.end();
                Err(board_gone_error())
            }
        }
    }

    /// Offers free slots to listeners.
    pub fn offer(&mut self) {
        for (&listener, waiting) in &mut self.listeners {
            while matches!(waiting.result, Some(Ok(_)))
                && !waiting.only_checks
                && waiting.offered + waiting.arrived.len() < self.offered_max
            {
                let Some(slot) = self.client.claim() else { return };
                if self.client.request(Request::Offer { listener, slot }).is_err() {
                    return;
                }
                waiting.offered += 1;
            }
        }
    }

    /// Sends a request. If the board has exited, discards the request and wakes the waiting tasks.
    pub fn request(&mut self, ask: Request) {
        if self.client.request(ask).is_err() {
            self.end();
        }
    }

    /// Closes a stream whose reader has been dropped.
    pub fn give_up(&mut self, slot: u32) {
        self.request(Request::Close { slot });
    }

    /// Records that the board has exited.
    pub fn end(&mut self) {
        self.is_gone = true;
        self.slots.iter_mut().for_each(Slot::wake);
        self.listeners.values_mut().for_each(|waiting| {
            waiting.waker.take().into_iter().for_each(Waker::wake);
        });
        self.slot_waiters.drain(..).for_each(Waker::wake);
    }
}

/// The state of one channel to the board.
pub struct Shared {
    core: Mutex<Core>,
    /// The shared memory, and the socket that belongs to it.
    pub channel: Channel,
}

impl Shared {
    /// Returns the initial state.
    /// On a board with `shards` shards, this is one of as many channels.
    pub fn new(channel: Channel, layout: Layout, shards: usize) -> Shared {
        Shared { core: Mutex::new(Core::new(channel.region(), layout, shards)), channel }
    }

    /// Runs `work` on the state, and then wakes the board if it must handle a request.
    pub fn with<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = lock(&self.core);
        if core.client.has_indication() {
            core.process_indications();
        }
        let result = work(&mut core);
        let rings = core.client.take_ring_pending();
        drop(core);
        if rings {
            self.channel.ring(machine_nanos);
        }
        result
    }
}
