//! What a client knows of its board: slots, listeners, and who waits for what.
//!
//! Goal      one reading of what the board tells, whoever reads it: tasks of a runtime, which leave their wakers here, or drivers,
//!           which leave none and look themselves.

use super::{error, gone};
use crate::clock::machine_nanos;
use crate::link::channel::Channel;
use kiban_board::streams::{Ask, Client, LISTENERS_MAX, Layout, Read, Told, Why};
use kiban_ground::ring::Condemned;
use kiban_ground::{Region, SharedBytes};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// Slots that a listener offers beforehand.
const OFFERED: usize = 16;

/// No slot: the board may give it to somebody else by now.
pub(super) const GIVEN_BACK: u32 = u32::MAX;

/// A stream that has come.
#[derive(Clone, Copy)]
pub(super) struct Accepted {
    pub(super) slot: u32,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// What is known of a slot.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) is_open: bool,
    pub(super) local: Option<SocketAddr>,
    pub(super) ended: Option<Why>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Slot {
    pub(super) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// A listener's.
#[derive(Default)]
pub(super) struct Waiting {
    /// Where the board listens; none: it has not said.
    result: Option<Result<SocketAddr, Why>>,
    offered: usize,
    pub(super) arrived: VecDeque<Accepted>,
    pub(super) waker: Option<Waker>,
}

/// What is behind the lock.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) slots: Vec<Slot>,
    pub(super) listeners: BTreeMap<u16, Waiting>,
    pub(super) is_gone: bool,
    /// Who waits for a free slot.
    pub(super) claimers: Vec<Waker>,
    /// The number of the next listener: one that has gone may still be told of.
    next: u16,
}

impl Core {
    fn new(memory: &Region, layout: Layout) -> Core {
        Core {
            client: Client::new(memory, layout),
            slots: (0..layout.slots()).map(|_| Slot::default()).collect(),
            listeners: BTreeMap::new(),
            is_gone: false,
            claimers: Vec::new(),
            next: 0,
        }
    }

    /// Passes on what the board has told.
    pub(super) fn hear(&mut self) {
        loop {
            match self.client.told() {
                Ok(Some(told)) => self.on_told(told),
                Ok(None) => break,
                Err(Condemned) => return self.end(),
            }
        }
    }

    fn on_told(&mut self, told: Told) {
        match told {
            Told::Listening { listener, result } => {
                if let Some(waiting) = self.listeners.get_mut(&listener) {
                    waiting.result = Some(result);
                    waiting.waker.take().into_iter().for_each(Waker::wake);
                }
            }
            Told::Accepted { listener, slot, local, remote } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot { is_open: true, local: Some(local), ..Slot::default() };
                }
                match self.listeners.get_mut(&listener) {
                    Some(waiting) => {
                        waiting.offered = waiting.offered.saturating_sub(1);
                        waiting.arrived.push_back(Accepted { slot, local, remote });
                        waiting.waker.take().into_iter().for_each(Waker::wake);
                    }
                    // Its listener has gone meanwhile.
                    None => self.give_up(slot),
                }
                self.offer();
            }
            Told::Opened { slot, local } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    (state.is_open, state.local) = (true, Some(local));
                    state.wake();
                }
            }
            Told::Look { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.wake();
                }
            }
            Told::Ended { slot, why } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    state.ended = Some(why);
                    state.wake();
                }
            }
            Told::Free { slot } => {
                if let Some(state) = self.slots.get_mut(slot as usize) {
                    *state = Slot::default();
                }
                self.claimers.drain(..).for_each(Waker::wake);
                self.offer();
            }
        }
    }

    /// Begins to connect: the slot. None: all are in use.
    pub(super) fn connect(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Option<io::Result<u32>> {
        if self.is_gone {
            return Some(Err(gone()));
        }
        let slot = self.client.claim()?;
        self.ask(Ask::Connect { slot, local, remote });
        Some(Ok(slot))
    }

    /// Our end of a stream that has come to be.
    pub(super) fn opened(&self, slot: u32) -> Option<io::Result<SocketAddr>> {
        let state = &self.slots[slot as usize];
        match (state.local.filter(|_| state.is_open), state.ended) {
            (Some(local), _) => Some(Ok(local)),
            (None, Some(why)) => Some(Err(error(why))),
            (None, None) => self.is_gone.then(|| Err(gone())),
        }
    }

    /// Begins to listen: the listener's number.
    pub(super) fn listen(&mut self, local: SocketAddr) -> io::Result<u16> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        if self.listeners.len() >= LISTENERS_MAX || self.listeners.contains_key(&number) {
            return Err(error(Why::TooMany));
        }
        self.listeners.insert(number, Waiting::default());
        self.ask(Ask::Listen { listener: number, local });
        Ok(number)
    }

    /// Where the board listens, with the port that it has chosen.
    pub(super) fn listening(&mut self, listener: u16) -> Option<io::Result<SocketAddr>> {
        match self.listeners.get(&listener)?.result {
            Some(result) => {
                self.offer();
                Some(result.map_err(error))
            }
            None => self.is_gone.then(|| Err(gone())),
        }
    }

    /// The next that a listener has.
    pub(super) fn accept(&mut self, listener: u16) -> Option<io::Result<Accepted>> {
        match self.listeners.get_mut(&listener)?.arrived.pop_front() {
            Some(accepted) => {
                self.offer();
                Some(Ok(accepted))
            }
            None => self.is_gone.then(|| Err(gone())),
        }
    }

    /// Listens no more; who has arrived and was not taken goes.
    pub(super) fn unlisten(&mut self, listener: u16) {
        if let Some(waiting) = self.listeners.remove(&listener) {
            self.ask(Ask::Unlisten { listener });
            waiting.arrived.into_iter().for_each(|accepted| self.give_up(accepted.slot));
        }
    }

    /// What reading a stream came to, zero bytes being its end; none: nothing is here. `take` is given runs of bytes, `most` of
    /// them at most.
    pub(super) fn read(
        &mut self,
        slot: u32,
        most: usize,
        take: impl FnMut(SharedBytes<'_>),
    ) -> Option<io::Result<usize>> {
        match self.client.take(slot, most, take) {
            Ok(Read::Bytes(count)) => Some(Ok(count)),
            Ok(Read::End) => Some(Ok(0)),
            Ok(Read::Nothing) => match self.slots[slot as usize].ended {
                None => self.is_gone.then(|| Err(gone())),
                Some(Why::Closed) => Some(Ok(0)),
                Some(why) => Some(Err(error(why))),
            },
            Err(Condemned) => {
                self.end();
                Some(Err(gone()))
            }
        }
    }

    /// What writing came to; none: there is no room.
    pub(super) fn write(&mut self, slot: u32, bytes: SharedBytes<'_>) -> Option<io::Result<usize>> {
        if let Some(why) = self.slots[slot as usize].ended {
            return Some(Err(error(why)));
        }
        let is_empty = bytes.is_empty();
        match self.client.write(slot, bytes) {
            Ok(0) if !is_empty => self.is_gone.then(|| Err(gone())),
            Ok(count) => Some(Ok(count)),
            Err(Condemned) => {
                self.end();
                Some(Err(gone()))
            }
        }
    }

    /// Writes runs of bytes, as much as there is room for: how many bytes.
    pub(super) fn write_runs<'a>(
        &mut self,
        slot: u32,
        runs: impl IntoIterator<Item = SharedBytes<'a>>,
    ) -> io::Result<usize> {
        if let Some(why) = self.slots[slot as usize].ended {
            return Err(error(why));
        }
        match self.client.write_runs(slot, runs) {
            Ok(0) if self.is_gone => Err(gone()),
            Ok(count) => Ok(count),
            Err(Condemned) => {
                self.end();
                Err(gone())
            }
        }
    }

    /// Free slots for those who will call.
    pub(super) fn offer(&mut self) {
        for (&listener, waiting) in &mut self.listeners {
            while matches!(waiting.result, Some(Ok(_))) && waiting.offered + waiting.arrived.len() < OFFERED {
                let Some(slot) = self.client.claim() else { return };
                if self.client.ask(Ask::Offer { listener, slot }).is_err() {
                    return;
                }
                waiting.offered += 1;
            }
        }
    }

    /// Asks; a board that has gone hears nothing, and whoever waits for it learns of that.
    pub(super) fn ask(&mut self, ask: Ask) {
        if self.client.ask(ask).is_err() {
            self.end();
        }
    }

    /// A stream that nobody reads any more.
    pub(super) fn give_up(&mut self, slot: u32) {
        self.ask(Ask::Close { slot });
    }

    /// The board has gone.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
        self.slots.iter_mut().for_each(Slot::wake);
        self.listeners.values_mut().for_each(|waiting| {
            waiting.waker.take().into_iter().for_each(Waker::wake);
        });
        self.claimers.drain(..).for_each(Waker::wake);
    }
}

/// What is known, and the way to the board.
pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) channel: Channel,
}

impl Shared {
    pub(super) fn new(channel: Channel, layout: Layout) -> Shared {
        Shared { core: Mutex::new(Core::new(channel.region(), layout)), channel }
    }

    /// Works with the board's memory; then the board is told if there is anything for it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Core) -> T) -> T {
        // Nobody panics in the midst of a change.
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if core.client.has_news() {
            core.hear();
        }
        let result = work(&mut core);
        let rings = core.client.take_ring();
        drop(core);
        if rings {
            self.channel.ring(machine_nanos);
        }
        result
    }
}
