//! The host edge: what an application asks of the board, and what it is told.
//!
//! Goal      streams, datagrams and pings for whoever stands above the board, one copy of the payload at the most.
//! Down      `write` copies into content pages and forms the sum on the way (paper \[1\]: during the DMA from the
//!           host); slices end where segments will end. It takes what there is room for and says how much.
//! Up        `read` copies out of the pages that cells were gathered into; `take` hands a page's slice over as it is.
//!           Taking is what opens the window.
//! Told      [`Completion`]s, each once: `Readable` when bytes came to an empty stream, `Writable` when there is room
//!           after a `write` that was cut short.
//! Memory    who finds no page waits in a line and is told in its turn, so that nobody starves. Short payload that the
//!           host leaves lying is moved together, so that crumbs do not hold whole pages.
//! Refused   every call on something that is not there, or not any more, says why ([`Refused`]).

use crate::board::Board;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use kiban_ground::{Copies, Memory, Page, Pdu, Pool, Slice};
use kiban_stack::icmp;
use kiban_stack::tcp::{self, Reason, SessionId, Tcp};
use kiban_stack::udp::{self, SocketId};

/// Received segments up to this long are moved together while they wait for the host, bytes.
const CRUMB_BYTES: usize = 256;
/// A writer is woken when this much room has opened again, or half of its buffer.
const WRITABLE_BYTES: usize = 16 << 10;

/// The number of a stream. It carries a generation: the number of a closed stream names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StreamId {
    index: u32,
    generation: u32,
}

impl StreamId {
    /// A small number, unique among open streams, for tables of the caller's own.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why the board did not do what the host asked. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No such stream: never opened, or closed.
    UnknownStream,
    /// The stream is not open yet, or has ended.
    NotOpen,
    /// No such listener.
    UnknownListener,
    /// There is no route to that address.
    NoRoute,
    /// The payload does not fit the smallest packet on the way.
    TooLong,
    /// There is no memory now: try again after a completion.
    NoMemory,
    /// TCP refused, and why.
    Tcp(tcp::Refusal),
    /// UDP refused, and why.
    Udp(udp::Refusal),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::UnknownStream => f.write_str("no such stream: it was never opened, or has been closed"),
            Refused::NotOpen => {
                f.write_str("the stream is not open: wait for its completion, or open another")
            }
            Refused::UnknownListener => {
                f.write_str("no such listener: it was never made, or has been closed")
            }
            Refused::NoRoute => f.write_str("there is no route to that address: add one to the board"),
            Refused::TooLong => {
                f.write_str("the payload does not fit a packet on that route: send less at once")
            }
            Refused::NoMemory => {
                f.write_str("no packet memory is free now: try again after the next completion")
            }
            Refused::Tcp(refusal) => refusal.fmt(f),
            Refused::Udp(refusal) => refusal.fmt(f),
        }
    }
}

impl core::error::Error for Refused {}

impl From<tcp::Refusal> for Refused {
    fn from(refusal: tcp::Refusal) -> Refused {
        Refused::Tcp(refusal)
    }
}

impl From<udp::Refusal> for Refused {
    fn from(refusal: udp::Refusal) -> Refused {
        Refused::Udp(refusal)
    }
}

/// What has happened. Every completion is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A stream that the host opened is established.
    Opened {
        /// Which.
        stream: StreamId,
    },
    /// A listener has a new stream.
    Accepted {
        /// Which.
        stream: StreamId,
        /// Of which listener.
        listener: u32,
        /// From whom.
        remote: SocketAddr,
    },
    /// Bytes came to a stream that had none.
    Readable {
        /// Which.
        stream: StreamId,
    },
    /// There is room again after a `write` that was cut short.
    Writable {
        /// Which.
        stream: StreamId,
    },
    /// The peer sends no more; what has come can still be read.
    PeerFinished {
        /// Which.
        stream: StreamId,
    },
    /// The stream is over; what has come can still be read, then it is to be closed.
    Ended {
        /// Which.
        stream: StreamId,
        /// Why.
        reason: Reason,
    },
    /// A datagram came to a socket that had none.
    Datagram {
        /// Which.
        socket: SocketId,
    },
    /// The answer to a ping.
    EchoReply {
        /// From whom.
        source: IpAddr,
        /// As in the ping.
        identifier: u16,
        /// As in the ping.
        sequence: u16,
        /// Payload bytes that came back.
        bytes: usize,
    },
    /// The answer to an ATM ping (F5 OAM loopback, I.610).
    CellLoopback {
        /// On which port.
        port: usize,
        /// On which circuit.
        circuit: u32,
        /// The tag of the request.
        tag: u32,
        /// How long it took.
        round_trip: core::time::Duration,
    },
}

/// The host's side of one stream.
struct Stream {
    session: SessionId,
    received: VecDeque<Slice>,
    received_bytes: usize,
    crumbs: Option<Page>,
    page: Option<Page>,
    /// Bytes written since the last boundary of a segment.
    grain_filled: usize,
    wants_room: bool,
    waits_for_page: bool,
    open: bool,
    /// The host writes no more.
    finished: bool,
    ended: bool,
    /// The host has closed: what still comes is dropped.
    closed: bool,
}

struct Inbox {
    socket: SocketId,
    datagrams: VecDeque<(SocketAddr, Pdu)>,
}

/// The host edge's own memory of streams and sockets.
pub(crate) struct Edge {
    streams: Vec<(u32, Option<Stream>)>,
    free: Vec<u32>,
    /// Stream by session, found by the session's small number.
    by_session: Vec<Option<(SessionId, u32)>>,
    page_line: VecDeque<StreamId>,
    inboxes: Vec<Inbox>,
    datagrams_max: usize,
    pub(crate) datagrams_dropped: u64,
    pub(crate) completions: VecDeque<Completion>,
}

impl Edge {
    pub(crate) fn new(datagrams_max: usize) -> Edge {
        Edge {
            streams: Vec::new(),
            free: Vec::new(),
            by_session: Vec::new(),
            page_line: VecDeque::new(),
            inboxes: Vec::new(),
            datagrams_max,
            datagrams_dropped: 0,
            completions: VecDeque::new(),
        }
    }

    fn add(&mut self, session: SessionId, open: bool) -> StreamId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.streams.push((0, None));
            self.streams.len() as u32 - 1
        });
        let slot = &mut self.streams[index as usize];
        slot.1 = Some(Stream {
            session,
            received: VecDeque::new(),
            received_bytes: 0,
            crumbs: None,
            page: None,
            grain_filled: 0,
            wants_room: false,
            waits_for_page: false,
            open,
            finished: false,
            ended: false,
            closed: false,
        });
        if self.by_session.len() <= session.index() {
            self.by_session.resize(session.index() + 1, None);
        }
        self.by_session[session.index()] = Some((session, index));
        StreamId { index, generation: slot.0 }
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.streams[index as usize];
        if let Some(stream) = slot.1.take() {
            slot.0 = slot.0.wrapping_add(1);
            self.free.push(index);
            if self.by_session[stream.session.index()] == Some((stream.session, index)) {
                self.by_session[stream.session.index()] = None;
            }
        }
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, Refused> {
        match self.streams.get_mut(id.index as usize) {
            Some((generation, Some(stream))) if *generation == id.generation && !stream.closed => Ok(stream),
            _ => Err(Refused::UnknownStream),
        }
    }

    /// The stream of a session, with its number.
    #[inline]
    fn of_session(&mut self, session: SessionId) -> Option<(StreamId, &mut Stream)> {
        let (known, index) = (*self.by_session.get(session.index())?)?;
        if known != session {
            return None;
        }
        let (generation, stream) = &mut self.streams[index as usize];
        Some((StreamId { index, generation: *generation }, stream.as_mut()?))
    }

    // ---- Up: what TCP, UDP and ICMP say -----------------------------------------------------------------------

    /// Something came up from TCP. Bytes that nobody wants any more are to be consumed by the caller: how many.
    pub(crate) fn on_tcp(
        &mut self,
        indication: tcp::Indication,
        tcp: &Tcp,
        pool: &mut Pool,
        copies: &mut Copies,
    ) -> Option<(SessionId, u32)> {
        use tcp::Indication::{Accepted, Data, Finished, Gone, Opened, Piece, Sent};
        match indication {
            Opened { session } => {
                let (stream, state) = self.of_session(session)?;
                state.open = true;
                self.completions.push_back(Completion::Opened { stream });
            }
            Accepted { session, listener, remote } => {
                let stream = self.add(session, true);
                self.completions.push_back(Completion::Accepted { stream, listener, remote });
            }
            Data { session, mut pdu } => {
                let bytes = pdu.body_len();
                return self.on_bytes(session, pdu.drain_body(), bytes, pool, copies);
            }
            Piece { session, slice } => {
                let bytes = slice.len();
                return self.on_bytes(session, core::iter::once(slice), bytes, pool, copies);
            }
            Sent { session, .. } => {
                let (stream, state) = self.of_session(session)?;
                if state.wants_room
                    && tcp.room(session) >= WRITABLE_BYTES.min(tcp.config().send_buffer_bytes as usize / 2)
                {
                    state.wants_room = false;
                    self.completions.push_back(Completion::Writable { stream });
                }
            }
            Finished { session } => {
                let (stream, state) = self.of_session(session)?;
                if !state.closed {
                    self.completions.push_back(Completion::PeerFinished { stream });
                }
            }
            Gone { session, reason } => {
                let (stream, state) = self.of_session(session)?;
                state.ended = true;
                state.page = None;
                if state.closed {
                    self.remove(stream.index);
                } else {
                    self.completions.push_back(Completion::Ended { stream, reason });
                }
            }
        }
        None
    }

    fn on_bytes(
        &mut self,
        session: SessionId,
        slices: impl Iterator<Item = Slice>,
        bytes: usize,
        pool: &mut Pool,
        copies: &mut Copies,
    ) -> Option<(SessionId, u32)> {
        let (stream, state) = self.of_session(session)?;
        if state.closed {
            return Some((session, bytes as u32));
        }
        let was_empty = state.received.is_empty();
        state.received_bytes += bytes;
        if bytes <= CRUMB_BYTES && !was_empty {
            slices.for_each(|slice| state.keep_crumb(slice, pool, copies));
        } else {
            state.received.extend(slices);
        }
        if was_empty && bytes > 0 {
            self.completions.push_back(Completion::Readable { stream });
        }
        None
    }

    /// A datagram for a socket.
    pub(crate) fn on_datagram(&mut self, socket: SocketId, remote: SocketAddr, pdu: Pdu) {
        let Some(inbox) = self.inboxes.iter_mut().find(|inbox| inbox.socket == socket) else { return };
        if inbox.datagrams.len() >= self.datagrams_max {
            self.datagrams_dropped += 1;
            return;
        }
        if inbox.datagrams.is_empty() {
            self.completions.push_back(Completion::Datagram { socket });
        }
        inbox.datagrams.push_back((remote, pdu));
    }

    /// Answers to pings.
    pub(crate) fn on_replies(&mut self, replies: &mut VecDeque<icmp::Indication>) {
        while let Some(icmp::Indication::EchoReply { source, identifier, sequence, bytes }) =
            replies.pop_front()
        {
            self.completions.push_back(Completion::EchoReply { source, identifier, sequence, bytes });
        }
    }

    /// The answer to an ATM ping.
    pub(crate) fn on_cell_loopback(
        &mut self,
        port: usize,
        circuit: u32,
        tag: u32,
        round_trip: core::time::Duration,
    ) {
        self.completions.push_back(Completion::CellLoopback { port, circuit, tag, round_trip });
    }

    /// Pages have come home: those who wait are given one each and told, the first in line first.
    pub(crate) fn on_memory(&mut self, memory: &mut Memory) {
        while !self.page_line.is_empty() {
            let Some(page) = memory.transmit.take() else { return };
            let stream = self.page_line.pop_front().expect("the line is not empty");
            if let Ok(state) = self.stream(stream) {
                state.page = Some(page);
                state.waits_for_page = false;
                state.wants_room = false;
                self.completions.push_back(Completion::Writable { stream });
            }
        }
    }
}

impl Stream {
    /// Keeps a short slice for the host with the crumbs that wait already; where there is no page, as it is.
    fn keep_crumb(&mut self, slice: Slice, pool: &mut Pool, copies: &mut Copies) {
        if self.crumbs.as_ref().is_none_or(|page| page.room() < slice.len()) {
            self.crumbs = pool.take();
        }
        let moved = self.crumbs.as_mut().filter(|page| page.room() >= slice.len());
        let Some(moved) = moved.and_then(|page| page.append(slice.bytes())) else {
            self.received.push_back(slice);
            return;
        };
        copies.gather_bytes += moved.len() as u64;
        let apart = match self.received.back_mut() {
            Some(last) => last.join(moved).err(),
            None => Some(moved),
        };
        self.received.extend(apart);
    }
}

/// The board as its host sees it, at one moment.
pub struct Host<'a> {
    pub(crate) board: &'a mut Board,
}

impl Host<'_> {
    /// The next thing that has happened.
    pub fn completion(&mut self) -> Option<Completion> {
        self.board.edge.completions.pop_front()
    }

    /// Listens on `local`; an unspecified address stands for every address of the board. The listener's number.
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, Refused> {
        Ok(self.board.ip.tcp.listen(local)?)
    }

    /// Listens no more. Streams that the listener made stay.
    pub fn unlisten(&mut self, listener: u32) -> Result<(), Refused> {
        if self.board.ip.tcp.unlisten(listener) { Ok(()) } else { Err(Refused::UnknownListener) }
    }

    /// Opens a stream to `remote`. [`Completion::Opened`] or [`Completion::Ended`] tells how it went.
    pub fn open(&mut self, remote: SocketAddr) -> Result<StreamId, Refused> {
        let source = self.board.ip.ip.source_for(remote.ip()).ok_or(Refused::NoRoute)?;
        let session =
            self.board.with_context(|ip, cx| ip.tcp.open(SocketAddr::new(source, 0), remote, cx))?;
        Ok(self.board.edge.add(session, false))
    }

    /// Writes as much of `bytes` as there is room for: how many. After fewer than all, [`Completion::Writable`] comes.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, Refused> {
        let Board { edge, memory, copies, ip, unsettled, .. } = &mut *self.board;
        let others_wait = !edge.page_line.is_empty();
        let stream = edge.stream(id)?;
        if !stream.open || stream.ended {
            return Err(Refused::NotOpen);
        }
        if stream.finished {
            return Err(Refused::Tcp(tcp::Refusal::Finished));
        }
        let (session, grain) = (stream.session, ip.tcp.grain(stream.session));
        let room = ip.tcp.room(session).min(bytes.len());
        let mut written = 0;
        let mut out_of_pages = false;
        while written < room {
            if stream.page.as_ref().is_none_or(|page| page.room() == 0) {
                // Who waits for a page goes before who comes by: under pressure pages go round one by one.
                stream.page = if others_wait { None } else { memory.transmit.take() };
            }
            let Some(page) = stream.page.as_mut() else {
                out_of_pages = true;
                break;
            };
            if stream.grain_filled >= grain {
                stream.grain_filled = 0;
            }
            let count = (room - written).min(grain - stream.grain_filled);
            let slice = page.append(&bytes[written..written + count]).expect("the page has room");
            written += slice.len();
            stream.grain_filled += slice.len();
            copies.host_in_bytes += slice.len() as u64;
            if let Err((_, refusal)) = ip.tcp.send(session, slice) {
                return Err(refusal.into());
            }
        }
        // A full page goes home with the last of its slices.
        if stream.page.as_ref().is_some_and(|page| page.room() == 0) {
            stream.page = None;
        }
        if written < bytes.len() {
            stream.wants_room = true;
            if out_of_pages && !stream.waits_for_page {
                stream.waits_for_page = true;
                edge.page_line.push_back(id);
            }
        }
        *unsettled |= written > 0 || out_of_pages;
        Ok(written)
    }

    /// Bytes that a `write` would take now, if pages are free.
    pub fn room(&mut self, id: StreamId) -> Result<usize, Refused> {
        let session = self.board.edge.stream(id)?.session;
        Ok(self.board.ip.tcp.room(session))
    }

    /// Bytes that wait to be read.
    pub fn readable(&mut self, id: StreamId) -> Result<usize, Refused> {
        Ok(self.board.edge.stream(id)?.received_bytes)
    }

    /// Copies received bytes into `target`: how many. Zero: nothing is here now.
    pub fn read(&mut self, id: StreamId, target: &mut [u8]) -> Result<usize, Refused> {
        let stream = self.board.edge.stream(id)?;
        let mut count = 0;
        while count < target.len() {
            let Some(front) = stream.received.front_mut() else { break };
            let part = front.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&front.bytes()[..part]);
            count += part;
            if part == front.len() {
                stream.received.pop_front();
            } else {
                front.skip(part);
            }
        }
        self.board.copies.host_out_bytes += count as u64;
        self.taken(id, count);
        Ok(count)
    }

    /// Hands over the next received bytes as they lie in the board's pages; dropping the slice gives them back.
    pub fn take(&mut self, id: StreamId) -> Result<Option<Slice>, Refused> {
        let slice = self.board.edge.stream(id)?.received.pop_front();
        self.taken(id, slice.as_ref().map_or(0, Slice::len));
        Ok(slice)
    }

    /// Bytes left the stream: the window may open.
    fn taken(&mut self, id: StreamId, count: usize) {
        if count == 0 {
            return;
        }
        let Ok(stream) = self.board.edge.stream(id) else { return };
        stream.received_bytes -= count;
        if stream.received.is_empty() {
            stream.crumbs = None;
        }
        let session = stream.session;
        self.board.consume(session, count as u32);
    }

    /// Sends no more on this stream; reading goes on.
    pub fn finish(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id)?;
        stream.page = None;
        stream.finished = true;
        if stream.ended {
            return Ok(());
        }
        let session = stream.session;
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.finish(session)?)
    }

    /// Closes a stream: what is written is still sent, what comes is dropped, the number is forgotten.
    pub fn close(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id)?;
        let (session, ended, held) = (stream.session, stream.ended, stream.received_bytes);
        stream.received.clear();
        stream.crumbs = None;
        stream.page = None;
        stream.closed = true;
        if ended {
            self.board.edge.remove(id.index);
            return Ok(());
        }
        self.board.consume(session, held as u32);
        self.board.unsettled = true;
        Ok(self.board.ip.tcp.finish(session)?)
    }

    /// Ends a stream at once: the peer is reset.
    pub fn abort(&mut self, id: StreamId) -> Result<(), Refused> {
        let stream = self.board.edge.stream(id)?;
        let (session, ended) = (stream.session, stream.ended);
        stream.closed = true;
        if ended {
            self.board.edge.remove(id.index);
            return Ok(());
        }
        self.board.abort(session);
        Ok(())
    }

    /// What TCP knows about a stream, while it lives.
    pub fn info(&mut self, id: StreamId) -> Result<tcp::Info, Refused> {
        let session = self.board.edge.stream(id)?.session;
        self.board.ip.tcp.info(session).ok_or(Refused::NotOpen)
    }

    // ---- Datagrams and pings ----------------------------------------------------------------------------------

    /// A UDP socket on `local`; an unspecified address stands for every address of the board.
    pub fn bind(&mut self, local: SocketAddr) -> Result<SocketId, Refused> {
        let socket = self.board.ip.udp.bind(local)?;
        self.board.edge.inboxes.push(Inbox { socket, datagrams: VecDeque::new() });
        Ok(socket)
    }

    /// Closes a socket; what waits in it is dropped.
    pub fn unbind(&mut self, socket: SocketId) -> Result<(), Refused> {
        self.board.ip.udp.close(socket)?;
        self.board.edge.inboxes.retain(|inbox| inbox.socket != socket);
        Ok(())
    }

    /// Sends a datagram.
    pub fn send_to(&mut self, socket: SocketId, remote: SocketAddr, bytes: &[u8]) -> Result<(), Refused> {
        self.board.ip.udp.local(socket)?;
        let source = self.board.ip.ip.source_for(remote.ip()).ok_or(Refused::NoRoute)?;
        let pdu = self.payload(remote.ip(), bytes, 28)?;
        let datagram = self.board.ip.udp.send(socket, source, remote, pdu).map_err(|(_, refusal)| refusal)?;
        self.board.ip.datagrams.push_back(datagram);
        self.board.unsettled = true;
        Ok(())
    }

    /// Takes the next datagram of a socket: its sender, and how many bytes went into `target` (the rest is dropped).
    pub fn receive_from(
        &mut self,
        socket: SocketId,
        target: &mut [u8],
    ) -> Result<Option<(SocketAddr, usize)>, Refused> {
        self.board.ip.udp.local(socket)?;
        let inbox = self.board.edge.inboxes.iter_mut().find(|inbox| inbox.socket == socket);
        let Some((remote, pdu)) = inbox.and_then(|inbox| inbox.datagrams.pop_front()) else {
            return Ok(None);
        };
        let mut count = 0;
        for run in pdu.runs() {
            let part = run.len().min(target.len() - count);
            target[count..count + part].copy_from_slice(&run[..part]);
            count += part;
        }
        self.board.copies.host_out_bytes += count as u64;
        Ok(Some((remote, count)))
    }

    /// Sends an ICMP echo request with `bytes` of payload. [`Completion::EchoReply`] tells of the answer.
    pub fn ping(
        &mut self,
        target: IpAddr,
        identifier: u16,
        sequence: u16,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let source = self.board.ip.ip.source_for(target).ok_or(Refused::NoRoute)?;
        let pdu = self.payload(target, bytes, 28)?;
        let message = self.board.ip.icmp.ping(source, target, identifier, sequence, pdu);
        self.board.ip.messages.push_back(message);
        self.board.unsettled = true;
        Ok(())
    }

    /// Sends an ATM ping: a loopback cell on a circuit of a port (F5 OAM, end to end). Its tag.
    pub fn cell_loopback(&mut self, port: usize, circuit: u32) -> Result<u32, Refused> {
        self.board.unsettled = true;
        self.board.cell_loopback(port, circuit).ok_or(Refused::NoRoute)
    }

    /// A PDU with `bytes` copied into content pages, if it fits a packet with `headers` bytes of headers.
    fn payload(&mut self, target: IpAddr, bytes: &[u8], headers: usize) -> Result<Pdu, Refused> {
        let mtu = self.board.ip.ip.mtu_for(target).ok_or(Refused::NoRoute)?;
        if bytes.len() + headers > mtu {
            return Err(Refused::TooLong);
        }
        let Board { memory, copies, .. } = &mut *self.board;
        let mut pdu = memory.blocks.take().ok_or(Refused::NoMemory)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let slice =
                memory.transmit.take().and_then(|mut page| page.append(rest)).ok_or(Refused::NoMemory)?;
            rest = &rest[slice.len()..];
            pdu.push_body(slice).map_err(|_| Refused::TooLong)?;
        }
        copies.host_in_bytes += bytes.len() as u64;
        Ok(pdu)
    }
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}
