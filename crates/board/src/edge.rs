//! The host edge's memory: streams and sockets between the protocols and the application.
//!
//! Up        what TCP, UDP and ICMP say is kept here until the host takes it, and told as [`Completion`]s, each once:
//!           `Readable` when bytes came to an empty stream, `Writable` when there is room after a `write` cut short.
//! Memory    a writer that finds no memory, and whose own acknowledgements will not bring it any, waits in a line ([`line`](self)).
//!           Short segments that the host leaves lying are moved together, so that crumbs do not hold whole pages.
//! Numbers   streams carry generations: the number of a closed stream names nothing.

mod dense;
mod line;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use dense::Loose;
use kiban_ground::{Copies, Memory, Page, Pdu, Pool, Slice};
use kiban_stack::ip::TroubleKind;
use kiban_stack::tcp::{self, Reason, SessionId, Tcp};
use kiban_stack::udp::SocketId;
pub(crate) use line::{NEXT_TURN, PageLine};

/// Received segments up to this long are moved together while they wait for the host, bytes.
const CRUMB_BYTES: usize = 256;
/// With so many completions waiting, echo replies and reported errors are dropped.
const COMPLETIONS_FOR_REPLIES: usize = 1024;

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

/// What has happened. Every completion is told once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Something has happened in the VI NIC: descriptors are done, a request has come, an event ([`Host::vi`](crate::Host::vi)).
    Vi,
    /// Something has happened in the RDMA NIC: work is done, a connection has news, an event ([`Host::rdma`](crate::Host::rdma)).
    Rdma,
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
    /// The peer has marked bytes as urgent: the last of them stands so many bytes ahead of what has come (RFC 9293 §3.8.5).
    Urgent {
        /// Which.
        stream: StreamId,
        /// Bytes.
        bytes: u32,
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
    /// Somebody reports an error about a datagram (RFC 1122 §4.1.3.3). Anybody can claim one: it ends nothing.
    DatagramTrouble {
        /// The socket that may have sent it.
        socket: SocketId,
        /// To whom it was sent.
        remote: SocketAddr,
        /// What is wrong.
        kind: TroubleKind,
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
        round_trip: Duration,
    },
}

/// The host's side of one stream.
pub(crate) struct Stream {
    pub(crate) session: SessionId,
    pub(crate) received: VecDeque<Slice>,
    pub(crate) received_bytes: usize,
    pub(crate) crumbs: Option<Page>,
    /// So many of the received slices need not be looked at again when memory is short.
    pub(crate) dense: usize,
    /// Whether it stands among those to be looked at.
    pub(crate) is_loose: bool,
    pub(crate) page: Option<Page>,
    /// Bytes written since the last boundary of a segment.
    pub(crate) grain_filled: usize,
    pub(crate) wants_room: bool,
    /// The urgent mark that the host is to be told of: one completion, however often the peer moves it.
    pub(crate) urgent: Option<u32>,
    pub(crate) waits_for_page: bool,
    pub(crate) open: bool,
    /// The host writes no more.
    pub(crate) finished: bool,
    pub(crate) ended: bool,
    /// The host has closed: what still comes is dropped.
    pub(crate) closed: bool,
}

pub(crate) struct Inbox {
    pub(crate) socket: SocketId,
    pub(crate) datagrams: VecDeque<(SocketAddr, Pdu)>,
}

/// The host edge's own memory of streams and sockets.
pub(crate) struct Edge {
    streams: Vec<(u32, Option<Stream>)>,
    free: Vec<u32>,
    /// Stream by session, found by the session's small number.
    by_session: Vec<Option<(SessionId, u32)>>,
    pub(crate) page_line: PageLine,
    pub(crate) inboxes: Vec<Inbox>,
    datagrams_max: usize,
    pub(crate) datagrams_dropped: u64,
    pub(crate) replies_dropped: u64,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) loose: Loose,
}

impl Edge {
    pub(crate) fn new(datagrams_max: usize, full_bytes: usize) -> Edge {
        Edge {
            streams: Vec::new(),
            free: Vec::new(),
            by_session: Vec::new(),
            page_line: PageLine::default(),
            inboxes: Vec::new(),
            datagrams_max,
            datagrams_dropped: 0,
            replies_dropped: 0,
            completions: VecDeque::new(),
            loose: Loose::new(full_bytes),
        }
    }

    /// Places of streams that were ever made.
    pub(crate) fn streams_made(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn add(&mut self, session: SessionId, open: bool) -> StreamId {
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
            dense: 0,
            is_loose: false,
            page: None,
            grain_filled: 0,
            wants_room: false,
            urgent: None,
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

    pub(crate) fn remove(&mut self, id: StreamId) {
        let slot = &mut self.streams[id.index as usize];
        if let Some(stream) = slot.1.take() {
            slot.0 = slot.0.wrapping_add(1);
            self.free.push(id.index);
            if self.free.len() == self.streams.len() {
                self.loose.relax();
            }
            if self.by_session[stream.session.index()] == Some((stream.session, id.index)) {
                self.by_session[stream.session.index()] = None;
            }
        }
    }

    /// A stream that the host has not closed.
    pub(crate) fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        match self.streams.get_mut(id.index as usize) {
            Some((generation, Some(stream))) if *generation == id.generation && !stream.closed => {
                Some(stream)
            }
            _ => None,
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

    /// The next completion for the host.
    pub(crate) fn completion(&mut self) -> Option<Completion> {
        let mut next = self.completions.pop_front()?;
        if let Completion::Urgent { stream, bytes } = &mut next
            && let Some(state) = self.stream(*stream)
        {
            *bytes = state.urgent.take().unwrap_or(*bytes);
        }
        Some(next)
    }

    // ---- Up: what TCP, UDP and ICMP say -----------------------------------------------------------------------

    /// Something came up from TCP. Bytes that nobody wants any more are to be consumed by the caller: how many.
    pub(crate) fn on_tcp(
        &mut self,
        indication: tcp::Indication,
        tcp: &Tcp,
        memory: &mut Memory,
        copies: &mut Copies,
    ) -> Option<(SessionId, u32)> {
        use tcp::Indication::{Accepted, Data, Finished, Gone, Opened, Piece, Sent, Urgent};
        match indication {
            Opened { session } => {
                let (stream, state) = self.of_session(session)?;
                state.open = true;
                if !state.closed {
                    self.completions.push_back(Completion::Opened { stream });
                }
            }
            Accepted { session, listener, remote } => {
                let stream = self.add(session, true);
                self.completions.push_back(Completion::Accepted { stream, listener, remote });
            }
            Data { session, mut pdu } => {
                let bytes = pdu.body_len();
                let unwanted = self.on_bytes(session, pdu.drain_body(), bytes, &mut memory.receive, copies);
                memory.blocks.give(pdu);
                return unwanted;
            }
            Piece { session, slice } => {
                let bytes = slice.len();
                return self.on_bytes(session, core::iter::once(slice), bytes, &mut memory.receive, copies);
            }
            Sent { session, .. } => {
                let (stream, state) = self.of_session(session)?;
                // Who has nothing under way keeps no page from others.
                if state.page.as_ref().is_some_and(|page| page.filled() > 0) && tcp.is_empty(session) {
                    state.page = None;
                    state.grain_filled = 0;
                }
                if state.wants_room && state.may_write() {
                    if tcp.wakes_writer(session) {
                        state.wants_room = false;
                        self.completions.push_back(Completion::Writable { stream });
                    } else if tcp.is_empty(session) && !state.waits_for_page {
                        state.waits_for_page = true;
                        self.page_line.push(stream);
                    }
                }
            }
            Urgent { session, bytes } => {
                let (stream, state) = self.of_session(session)?;
                if !state.closed && state.urgent.replace(bytes).is_none() {
                    self.completions.push_back(Completion::Urgent { stream, bytes });
                }
            }
            // For IP: the wiring has told it.
            tcp::Indication::Doubtful { .. } => {}
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
                    self.remove(stream);
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
        let before = state.received.len();
        if bytes <= CRUMB_BYTES && !was_empty {
            slices.for_each(|slice| state.keep_crumb(slice, pool, copies));
        } else {
            state.received.extend(slices);
        }
        let (pages, is_known) = ((state.received.len() - before).max(1), state.is_loose);
        if was_empty && bytes > 0 {
            self.completions.push_back(Completion::Readable { stream });
        }
        if bytes < pages * self.loose.full_bytes && (!is_known || self.loose.is_wanted(pool)) {
            self.on_loose(stream, pool, copies);
        }
        None
    }

    /// A datagram for a socket.
    pub(crate) fn on_datagram(
        &mut self,
        socket: SocketId,
        remote: SocketAddr,
        pdu: Pdu,
        memory: &mut Memory,
    ) {
        let Some(inbox) = self.inboxes.iter_mut().find(|inbox| inbox.socket == socket) else { return };
        // Streams come first when memory runs short: what a datagram's reader leaves lying is nobody's to wait for.
        let scarce = memory.receive.at_home() * 4 < memory.receive.capacity()
            || memory.blocks.at_home() * 4 < memory.blocks.capacity();
        if scarce || inbox.datagrams.len() >= self.datagrams_max {
            self.datagrams_dropped += 1;
            return;
        }
        if inbox.datagrams.is_empty() {
            self.completions.push_back(Completion::Datagram { socket });
        }
        inbox.datagrams.push_back((remote, pdu));
    }

    /// The answer to a ping.
    pub(crate) fn on_reply(&mut self, source: IpAddr, identifier: u16, sequence: u16, bytes: usize) {
        self.tell_of_strangers(Completion::EchoReply { source, identifier, sequence, bytes });
    }

    /// Somebody reports an error about a datagram.
    pub(crate) fn on_trouble(&mut self, socket: SocketId, remote: SocketAddr, kind: TroubleKind) {
        self.tell_of_strangers(Completion::DatagramTrouble { socket, remote, kind });
    }

    /// Anybody may send what nobody asked for, as much as the host leaves lying.
    fn tell_of_strangers(&mut self, completion: Completion) {
        if self.completions.len() >= COMPLETIONS_FOR_REPLIES {
            self.replies_dropped += 1;
        } else {
            self.completions.push_back(completion);
        }
    }

    /// The answer to an ATM ping.
    pub(crate) fn on_cell_loopback(&mut self, port: usize, circuit: u32, tag: u32, round_trip: Duration) {
        self.completions.push_back(Completion::CellLoopback { port, circuit, tag, round_trip });
    }
}

impl Stream {
    /// Whether the host may still write.
    fn may_write(&self) -> bool {
        self.open && !self.finished && !self.ended && !self.closed
    }

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
