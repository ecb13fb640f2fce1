//! The board's side of an attached client: its streams and listeners.

use super::tcp_info::TCP_INFO_BYTES;
use super::{Chunk, Provider};
use crate::{Completion, HostError, Reason, StreamId};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use kiban_attach::{
    BACKLOG_MAX, CLIENT_BELL, ENTRY_BYTES, EndReason, Indication, LISTENERS_MAX, Layout, Request,
    STATISTICS_BYTES,
};
use kiban_base::pipe::{Reader, Writer};
use kiban_base::ring::{Consumer, Poisoned, Producer};
use kiban_base::{Bell, Region, Slice};
use kiban_tcpip::tcp::Owner;

/// Maximum number of bytes moved from a pipe to a stream at a time.
const PIECE_BYTES: usize = 64 << 10;

kiban_base::counters! {
    /// Counters of one client.
    pub struct ClientCounters {
        /// Streams that the client opened.
        opened,
        /// Connections accepted by its listeners.
        accepted,
        /// Connections refused because there was neither a slot nor room in the backlog.
        refused,
        /// Streams that closed in order.
        ended,
        /// Streams that were reset or aborted.
        reset,
        /// Bytes received for the client.
        bytes_in,
        /// Bytes sent by the client.
        bytes_out,
        /// Requests that are not valid.
        invalid_requests,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Offered(u16),
    Opening,
    Open,
    /// Whether the client has closed the stream; the data that it wrote is still being sent.
    Closing,
}

/// A slot: one stream of the client, and the pipes that belong to it.
struct Slot<C> {
    state: State,
    /// Set until the stream has ended and all received data is in the pipe.
    stream: Option<StreamId>,
    out: Reader,
    into: Writer,
    /// Data that the stream did not accept at once, and the number of its bytes that have been sent since.
    outward: Vec<u8>,
    outward_sent: usize,
    /// Data that the pipe did not accept at once, and the number of its bytes that have been written since.
    inward: Option<(C, usize)>,
    client_finished: bool,
    peer_finished: bool,
    /// Whether all of the peer's data is in the pipe and the client has been notified of its end.
    into_ended: bool,
    ended: Option<EndReason>,
}

/// A listener of the client.
struct Listener {
    /// The listener's number on the board.
    number: u32,
    offered: VecDeque<u32>,
    callers: VecDeque<PendingConnection>,
}

/// A connection for which the client has not offered a slot yet.
struct PendingConnection {
    stream: StreamId,
    remote: SocketAddr,
    peer_finished: bool,
}

/// Where a stream is recorded.
#[derive(Clone, Copy)]
enum Location {
    Slot(u32),
    Caller(u16),
}

/// The streams of one client. `C` is the type of received bytes ([`Provider::Chunk`]).
pub struct ClientStreams<C = Slice> {
    layout: Layout,
    region: Region,
    /// The owner of the client's streams, assigned at its first request.
    owner: Option<Owner>,
    requests: Consumer,
    indications: Producer,
    slots: Vec<Option<Slot<C>>>,
    listeners: BTreeMap<u16, Listener>,
    locations: BTreeMap<StreamId, Location>,
    /// Indications for which the ring had no room.
    pending_indications: VecDeque<Indication>,
    counters: ClientCounters,
    /// Requests taken since the client was last woken to use the freed room in the ring.
    requests_taken: usize,
    /// Whether the client has gone and receives no further indications.
    gone: bool,
}

impl<C> fmt::Debug for ClientStreams<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientStreams({:?})", self.layout)
    }
}

impl<C: Chunk> ClientStreams<C> {
    /// Creates the state of a client that has just attached with fresh memory.
    ///
    /// # Panics
    /// If the memory is shorter than the layout.
    pub fn new(memory: &Region, layout: Layout) -> ClientStreams<C> {
        let region = memory.clone().with_address(0);
        let shape = layout.shape();
        assert!(region.len() >= layout.bytes(), "memory of {} bytes for {layout:?}", region.len());
        ClientStreams {
            requests: Consumer::new(&region, layout.work_at(), shape),
            indications: Producer::new(&region, layout.done_at(), shape),
            slots: (0..layout.slots()).map(|_| None).collect(),
            listeners: BTreeMap::new(),
            owner: None,
            locations: BTreeMap::new(),
            pending_indications: VecDeque::new(),
            counters: ClientCounters::default(),
            requests_taken: 0,
            gone: false,
            layout,
            region,
        }
    }

    /// Returns the counters.
    pub const fn counters(&self) -> ClientCounters {
        self.counters
    }

    /// Returns the maximum number of streams at a time.
    pub const fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.locations.len()
    }

    /// Returns whether the client has posted a request; reads one word of shared memory.
    pub fn is_ready(&self) -> bool {
        self.requests.is_ready() && !self.ignores_indications()
    }

    /// Returns whether so many indications are unread that the client's requests are not processed until it
    /// reads some.
    fn ignores_indications(&self) -> bool {
        self.pending_indications.len() > 2 * self.layout.slots() + LISTENERS_MAX
    }

    /// Returns whether the client has gone and has no streams left.
    pub fn is_finished(&self) -> bool {
        self.gone && self.locations.is_empty()
    }

    /// Executes the client's requests and writes pending indications. Returns whether the client must be
    /// woken.
    ///
    /// # Errors
    /// The client corrupted its shared memory: call [`ClientStreams::disconnect`].
    pub fn process_requests(&mut self, host: &mut impl Provider<Chunk = C>) -> Result<bool, Poisoned> {
        let shape = self.layout.shape();
        for _ in 0..shape.slots() {
            if self.ignores_indications() {
                break;
            }
            let mut entry = [0; ENTRY_BYTES];
            // Copy the entry once and validate the copy, because the client can change the original in the
            // meantime.
            match self.requests.peek()? {
                None => break,
                Some(bytes) if bytes.len() == ENTRY_BYTES => bytes.copy_to(0, &mut entry),
                Some(_) => return Err(Poisoned),
            };
            self.requests.release();
            self.requests_taken += 1;
            let ask = Request::read(&entry).ok_or(Poisoned)?;
            if !self.execute(ask, host)? {
                self.counters.invalid_requests += 1;
            }
        }
        // A client that waits because the request ring was full is woken once a quarter of the ring is free.
        let frees = self.requests_taken >= shape.slots() / 4;
        if frees {
            self.requests_taken = 0;
        }
        Ok(self.flush_indications()? | frees)
    }

    /// Writes pending indications into the ring. Returns whether any were written.
    ///
    /// # Errors
    /// Same as for [`ClientStreams::process_requests`].
    pub fn flush_indications(&mut self) -> Result<bool, Poisoned> {
        let mut announced = false;
        if self.gone {
            self.pending_indications.clear();
        }
        while let Some(next) = self.pending_indications.front() {
            if !self.indications.push(&next.bytes())? {
                break;
            }
            self.pending_indications.pop_front();
            announced = true;
        }
        Ok(announced)
    }

    /// Handles a completion from the board. Returns whether the completion concerns one of this client's
    /// streams. Call [`ClientStreams::flush_indications`] afterwards.
    ///
    /// # Errors
    /// Same as for [`ClientStreams::process_requests`].
    pub fn on_completion(
        &mut self,
        completion: Completion,
        host: &mut impl Provider<Chunk = C>,
    ) -> Result<bool, Poisoned> {
        let stream = match completion {
            Completion::Accepted { stream, listener, remote } => {
                let own = self.listeners.iter().find(|(_, own)| own.number == listener);
                let Some((&own, _)) = own else { return Ok(false) };
                self.on_connection(own, PendingConnection { stream, remote, peer_finished: false }, host)?;
                return Ok(true);
            }
            Completion::Opened { stream }
            | Completion::Readable { stream }
            | Completion::Writable { stream }
            | Completion::PeerFinished { stream }
            | Completion::Ended { stream, .. } => stream,
            _ => return Ok(false),
        };
        let slot = match self.locations.get(&stream) {
            None => return Ok(false),
            Some(Location::Slot(slot)) => *slot,
            Some(&Location::Caller(listener)) => {
                self.on_pending(listener, stream, completion, host);
                return Ok(true);
            }
        };
        let Some(state) = &mut self.slots[slot as usize] else { return Ok(true) };
        match completion {
            Completion::Opened { .. } if state.state == State::Opening => {
                state.state = State::Open;
                self.counters.opened += 1;
                match host.local(stream) {
                    Some(local) => self.pending_indications.push_back(Indication::Opened { slot, local }),
                    // The stream has just ended; the next completion reports it.
                    None => return Ok(true),
                }
            }
            Completion::PeerFinished { .. } => state.peer_finished = true,
            Completion::Ended { reason, .. } => state.ended = Some(why(reason)),
            _ => {}
        }
        self.pump(slot, host)?;
        Ok(true)
    }

    /// Handles a completion of a connection that waits for a slot.
    fn on_pending(
        &mut self,
        listener: u16,
        stream: StreamId,
        completion: Completion,
        host: &mut impl Provider<Chunk = C>,
    ) {
        let Some(listener) = self.listeners.get_mut(&listener) else { return };
        match completion {
            Completion::PeerFinished { .. } => {
                let caller = listener.callers.iter_mut().find(|caller| caller.stream == stream);
                caller.into_iter().for_each(|caller| caller.peer_finished = true);
            }
            Completion::Ended { .. } => {
                listener.callers.retain(|caller| caller.stream != stream);
                self.locations.remove(&stream);
                self.counters.reset += 1;
                host.close(stream);
            }
            _ => {}
        }
    }

    fn on_connection(
        &mut self,
        listener: u16,
        caller: PendingConnection,
        host: &mut impl Provider<Chunk = C>,
    ) -> Result<(), Poisoned> {
        let Some(state) = self.listeners.get_mut(&listener) else { return Ok(()) };
        if let Some(slot) = state.offered.pop_front() {
            return self.accept(listener, slot, &caller, host);
        }
        if state.callers.len() >= BACKLOG_MAX {
            self.counters.refused += 1;
            host.abort(caller.stream);
            return Ok(());
        }
        self.locations.insert(caller.stream, Location::Caller(listener));
        state.callers.push_back(caller);
        Ok(())
    }

    fn accept(
        &mut self,
        listener: u16,
        slot: u32,
        caller: &PendingConnection,
        host: &mut impl Provider<Chunk = C>,
    ) -> Result<(), Poisoned> {
        let Some(state) = &mut self.slots[slot as usize] else { return Ok(()) };
        state.state = State::Open;
        state.stream = Some(caller.stream);
        state.peer_finished = caller.peer_finished;
        self.locations.insert(caller.stream, Location::Slot(slot));
        self.counters.accepted += 1;
        // If the connection has just ended, its local address is unknown; the next completion reports the
        // end.
        let local = host.local(caller.stream).unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        self.pending_indications.push_back(Indication::Accepted {
            listener,
            slot,
            local,
            remote: caller.remote,
        });
        self.pump(slot, host)
    }

    /// Takes a slot that the client may use, and resets it.
    fn take(&mut self, slot: u32, state: State) -> Option<&mut Slot<C>> {
        let place = self.slots.get_mut(slot as usize).filter(|place| place.is_none())?;
        let (out, into) = self.layout.pipes_at(slot as usize);
        let room = self.layout.room();
        Some(place.insert(Slot {
            state,
            stream: None,
            out: Reader::new(&self.region, out, room),
            into: Writer::new(&self.region, into, room),
            outward: Vec::new(),
            outward_sent: 0,
            inward: None,
            client_finished: false,
            peer_finished: false,
            into_ended: false,
            ended: None,
        }))
    }

    /// Executes a request. Returns whether it was valid.
    fn execute(&mut self, ask: Request, host: &mut impl Provider<Chunk = C>) -> Result<bool, Poisoned> {
        let owner = *self.owner.get_or_insert_with(|| host.new_owner());
        match ask {
            Request::Connect { slot, local, remote, .. } => {
                let Some(state) = self.take(slot, State::Opening) else { return Ok(false) };
                if let Some(shard) = host.other_shard(local, remote) {
                    state.ended = Some(EndReason::InUse);
                    self.pending_indications.push_back(Indication::OtherShard { slot, shard });
                    return Ok(true);
                }
                match host.open(owner, local, remote) {
                    Ok(stream) => {
                        state.stream = Some(stream);
                        self.locations.insert(stream, Location::Slot(slot));
                    }
                    Err(refused) => {
                        state.ended = Some(refused.into());
                        self.pending_indications.push_back(Indication::Ended { slot, why: refused.into() });
                    }
                }
            }
            Request::Listen { listener, local, .. } => {
                if self.listeners.contains_key(&listener) || self.listeners.len() >= LISTENERS_MAX {
                    return Ok(false);
                }
                let result = host.listen(owner, local).map(|(number, local)| {
                    let (offered, callers) = (VecDeque::new(), VecDeque::new());
                    self.listeners.insert(listener, Listener { number, offered, callers });
                    local
                });
                self.pending_indications.push_back(Indication::Listening { listener, result });
            }
            Request::CheckListen { listener, local } => {
                let result = host.listen(owner, local).map(|(number, local)| {
                    host.unlisten(number);
                    local
                });
                self.pending_indications.push_back(Indication::Listening { listener, result });
            }
            // The answer is in the slot's own fields, without an indication.
            Request::QueryEnd { .. }
            | Request::SetOption { .. }
            | Request::QueryOption { .. }
            | Request::QueryInfo { .. }
            | Request::Bind { .. }
            | Request::SetRemote { .. }
            | Request::QueryRemote { .. }
            | Request::Member { .. }
            | Request::Channel
            | Request::ConnectFast { .. } => return Ok(false),
            Request::Unlisten { listener } => return Ok(self.unlisten(listener, host)),
            Request::Offer { listener, slot } => {
                if !self.listeners.contains_key(&listener)
                    || self.take(slot, State::Offered(listener)).is_none()
                {
                    return Ok(false);
                }
                let Some(state) = self.listeners.get_mut(&listener) else { return Ok(false) };
                match state.callers.pop_front() {
                    Some(caller) => self.accept(listener, slot, &caller, host)?,
                    None => state.offered.push_back(slot),
                }
            }
            Request::Notify { slot } => {
                if self.slots.get(slot as usize).is_none_or(Option::is_none) {
                    return Ok(false);
                }
                self.pump(slot, host)?;
            }
            Request::Close { slot } => {
                let Some(state) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
                    return Ok(false);
                };
                if let State::Offered(listener) = state.state {
                    self.withdraw(listener, slot);
                    self.free(slot);
                    return Ok(true);
                }
                // A stream that is not open yet has no data to send.
                if state.state == State::Opening {
                    self.abort(slot, host);
                    return Ok(true);
                }
                state.state = State::Closing;
                self.pump(slot, host)?;
            }
            Request::Abort { slot } => {
                match self.slots.get(slot as usize).and_then(Option::as_ref).map(|slot| slot.state) {
                    None => return Ok(false),
                    Some(State::Offered(listener)) => self.withdraw(listener, slot),
                    Some(_) => {}
                }
                self.abort(slot, host);
            }
            Request::QueryStatistics { slot } => {
                let Some(state) = self.slots.get(slot as usize).and_then(Option::as_ref) else {
                    return Ok(false);
                };
                let statistics = state.stream.and_then(|stream| host.statistics(stream));
                let Some(statistics) = statistics else {
                    self.pending_indications.push_back(Indication::Statistics { slot, piece: None });
                    return Ok(true);
                };
                let mut whole = [0; STATISTICS_BYTES];
                whole[..TCP_INFO_BYTES].copy_from_slice(&statistics);
                let (pieces, _) = whole.as_chunks();
                let pieces = pieces.iter().map(|piece| Indication::Statistics { slot, piece: Some(*piece) });
                self.pending_indications.extend(pieces);
            }
            Request::Nagle { slot, is_on } => {
                let state = self.slots.get(slot as usize).and_then(Option::as_ref);
                let Some(stream) = state.and_then(|state| state.stream) else { return Ok(false) };
                // A stream that has just ended has no segments to send.
                host.set_no_delay(stream, !is_on);
            }
        }
        Ok(true)
    }

    fn unlisten(&mut self, listener: u16, host: &mut impl Provider<Chunk = C>) -> bool {
        let Some(state) = self.listeners.remove(&listener) else { return false };
        host.unlisten(state.number);
        for caller in state.callers {
            self.locations.remove(&caller.stream);
            self.counters.reset += 1;
            host.abort(caller.stream);
        }
        state.offered.into_iter().for_each(|slot| self.free(slot));
        true
    }

    fn withdraw(&mut self, listener: u16, slot: u32) {
        if let Some(listener) = self.listeners.get_mut(&listener) {
            listener.offered.retain(|offered| *offered != slot);
        }
    }

    fn free(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
        self.pending_indications.push_back(Indication::Free { slot });
    }

    fn abort(&mut self, slot: u32, host: &mut impl Provider<Chunk = C>) {
        if let Some(stream) = self.slots[slot as usize].as_mut().and_then(|state| state.stream.take()) {
            self.locations.remove(&stream);
            self.counters.reset += 1;
            host.abort(stream);
        }
        self.free(slot);
    }

    fn bell(&self, slot: u32, at: usize) -> &Bell {
        self.region.bell(self.layout.slot_at(slot as usize) + at).expect("a slot has room for its bells")
    }

    /// Moves as many bytes as possible in both directions.
    fn pump(&mut self, slot: u32, host: &mut impl Provider<Chunk = C>) -> Result<(), Poisoned> {
        // Arm the bell before looking, so that any later event rings it.
        self.bell(slot, 0).arm();
        let ClientStreams { slots, counters, locations: places, .. } = self;
        let Some(state) = &mut slots[slot as usize] else { return Ok(()) };
        if matches!(state.state, State::Offered(_)) {
            return Ok(());
        }
        // Wake a writer that waits for room only when half of the pipe is free, not after every piece,
        // because a wake-up may cost more than copying a piece.
        let mut moved = false;
        let room = self.layout.room();
        if let Some(stream) = state.stream {
            if state.state != State::Opening && state.ended.is_none() {
                let went = state.pump_out(stream, host, counters)?;
                moved |= went && state.out.readable()? <= room / 2;
            }
            if state.state == State::Closing {
                let is_empty = state.outward.is_empty()
                    && (state.client_finished || state.out.readable()? == 0)
                    && host.drain(stream);
                if is_empty || state.ended.is_some() {
                    let in_order = is_empty && state.ended.is_none_or(|why| why == EndReason::Closed);
                    *(if in_order { &mut counters.ended } else { &mut counters.reset }) += 1;
                    places.remove(&stream);
                    state.stream = None;
                    // The stream may have just ended.
                    host.close(stream);
                }
            } else {
                moved |= state.pump_in(stream, host, counters)?;
                let is_read = state.inward.is_none() && host.readable(stream) == 0;
                if let (Some(why), true) = (state.ended, is_read) {
                    *(if why == EndReason::Closed { &mut counters.ended } else { &mut counters.reset }) += 1;
                    places.remove(&stream);
                    state.stream = None;
                    host.close(stream);
                    self.pending_indications.push_back(Indication::Ended { slot, why });
                }
            }
        }
        let is_free = state.state == State::Closing && state.stream.is_none();
        if is_free {
            self.free(slot);
        } else if moved && self.bell(slot, CLIENT_BELL).ring(|| 0) {
            self.pending_indications.push_back(Indication::Notify { slot });
        }
        Ok(())
    }

    /// Drops all pending indications and connections.
    fn close_all(&mut self, host: &mut impl Provider<Chunk = C>) {
        self.gone = true;
        let listeners: Vec<u16> = self.listeners.keys().copied().collect();
        listeners.into_iter().for_each(|listener| {
            self.unlisten(listener, host);
        });
    }

    /// Handles the departure of a client: the data that it wrote is still sent; everything else is closed.
    pub fn detach(&mut self, host: &mut impl Provider<Chunk = C>) {
        self.close_all(host);
        for slot in 0..self.slots.len() as u32 {
            let known = self.slots[slot as usize].is_some();
            if known && self.execute(Request::Close { slot }, host).is_err() {
                self.abort(slot, host);
            }
        }
        self.pending_indications.clear();
    }

    /// Closes everything at once, because the client corrupted its memory or its grace period is over.
    pub fn disconnect(&mut self, host: &mut impl Provider<Chunk = C>) {
        self.close_all(host);
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].is_some() {
                self.abort(slot, host);
            }
        }
        self.pending_indications.clear();
    }
}

impl<C: Chunk> Slot<C> {
    /// Moves bytes from the client's pipe to the stream. Returns whether it moved any.
    fn pump_out(
        &mut self,
        stream: StreamId,
        host: &mut impl Provider<Chunk = C>,
        counters: &mut ClientCounters,
    ) -> Result<bool, Poisoned> {
        let mut moved = false;
        loop {
            if self.outward_sent < self.outward.len() {
                // A stream that has just ended accepts no data; the next completion reports it.
                let count = host.write(stream, &self.outward[self.outward_sent..]);
                counters.bytes_out += count as u64;
                self.outward_sent += count;
                if self.outward_sent < self.outward.len() {
                    return Ok(moved);
                }
                self.outward = Vec::new();
                self.outward_sent = 0;
            }
            if self.client_finished {
                return Ok(moved);
            }
            let is_last = self.out.has_ended();
            let here = self.out.readable()?;
            if here == 0 {
                if is_last && host.drain(stream) {
                    self.client_finished = true;
                    host.finish(stream);
                }
                return Ok(moved);
            }
            // Data for which the stream has no room stays in the pipe. An exception is the first piece, which
            // is written so that the board reports when there is room.
            let room = host.room(stream);
            let most = here.min(PIECE_BYTES).min(if room == 0 { 1 } else { room });
            let outward = &mut self.outward;
            self.out.take(most, |bytes| {
                let taken = if outward.is_empty() { host.write_shared(stream, bytes) } else { 0 };
                counters.bytes_out += taken as u64;
                bytes.after(taken).append_to(outward);
            });
            moved = true;
        }
    }

    /// Moves bytes from the stream to the client's pipe. Returns whether it moved any.
    fn pump_in(
        &mut self,
        stream: StreamId,
        host: &mut impl Provider<Chunk = C>,
        counters: &mut ClientCounters,
    ) -> Result<bool, Poisoned> {
        let mut moved = false;
        loop {
            let next = self.inward.take().or_else(|| host.take(stream).map(|chunk| (chunk, 0)));
            let Some((chunk, sent)) = next else { break };
            let bytes = chunk.bytes();
            let count = self.into.write(bytes[sent..].into())?;
            counters.bytes_in += count as u64;
            moved |= count > 0;
            if sent + count < bytes.len() {
                self.inward = Some((chunk, sent + count));
                break;
            }
        }
        self.into.publish();
        let is_last = self.peer_finished || self.ended == Some(EndReason::Closed);
        if is_last && self.inward.is_none() && !self.into_ended {
            self.into_ended = true;
            self.into.end();
            moved = true;
        }
        Ok(moved)
    }
}

/// Maps the reason for a stream's end to the reason reported to its client.
pub const fn why(reason: Reason) -> EndReason {
    match reason {
        Reason::Closed => EndReason::Closed,
        Reason::Refused => EndReason::Refused,
        Reason::Reset => EndReason::Reset,
        Reason::TimedOut => EndReason::TimedOut,
        Reason::Unreachable => EndReason::Unreachable,
        Reason::Aborted => EndReason::Aborted,
    }
}

impl From<HostError> for EndReason {
    fn from(refused: HostError) -> EndReason {
        use kiban_tcpip::tcp::Refusal;
        use kiban_tcpip::udp;
        match refused {
            HostError::NoRoute => EndReason::NoRoute,
            HostError::Tcp(Refusal::AddressInUse) | HostError::Udp(udp::Refusal::AddressInUse) => {
                EndReason::InUse
            }
            HostError::Tcp(Refusal::BadAddress) | HostError::Udp(udp::Refusal::BadAddress) => {
                EndReason::BadAddress
            }
            _ => EndReason::TooMany,
        }
    }
}
