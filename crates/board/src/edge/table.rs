//! Streams and sockets by number, and the indications that they get from the protocols.

use super::completion::{Completion, Consumer, StreamId, Upper};
use super::intercepted::{INTERCEPTED_MAX, Intercepted};
use super::memory_waiters::MemoryWaiters;
use super::partial_pages::PartialPages;
use super::stream::{DatagramInfo, Inbox, NicDatagram, Stream};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use kiban_base::{Copies, Memory, PagePool, Pdu, Slice};
use kiban_tcpip::icmp::IcmpError;
use kiban_tcpip::tcp::{self, SessionId};
use kiban_tcpip::udp::SocketId;

/// Received segments of up to this length in bytes are packed together while they wait for the host.
const CRUMB_BYTES: usize = 256;
/// Echo replies and reported errors are dropped while this number of completions waits.
const COMPLETIONS_FOR_REPLIES: usize = 1024;

/// The host edge's own records of streams and sockets.
pub(crate) struct Edge {
    pub(super) streams: Vec<(u32, Option<Stream>)>,
    pub(super) free: Vec<u32>,
    /// The stream of each session, indexed by the small number that identifies the session.
    pub(super) by_session: Vec<Option<(SessionId, u32)>>,
    pub(crate) page_line: MemoryWaiters,
    pub(crate) inboxes: Vec<Inbox>,
    /// The groups that sockets have joined: the socket, the port, and the group.
    pub(crate) memberships: Vec<(SocketId, usize, IpAddr)>,
    pub(super) datagrams_max: usize,
    pub(crate) datagrams_dropped: u64,
    pub(crate) replies_dropped: u64,
    completions: VecDeque<(Consumer, Completion)>,
    /// The consumers that get the events of the VI NIC and of the RDMA NIC.
    vi_users: Vec<Consumer>,
    rdma_users: Vec<Consumer>,
    /// The consumer that sent the pings with a given identifier, or the last loopback cell on a circuit.
    pub(crate) pings: BTreeMap<u16, Consumer>,
    pub(crate) loopbacks: BTreeMap<(usize, u32), Consumer>,
    /// Events of the RDMA NIC's streams and listeners.
    rdma_events: VecDeque<Completion>,
    /// The RDMA NIC's sockets, and their datagrams of this burst; the PDU pool bounds their number.
    nic_sockets: Vec<SocketId>,
    nic_datagrams: VecDeque<NicDatagram>,
    /// The listener that intercepts, and the packets that wait for its consumer.
    pub(crate) interceptor: Option<u32>,
    pub(crate) intercepted: VecDeque<Intercepted>,
    /// The consumer of the streams that a listener accepts.
    pub(crate) listeners: BTreeMap<u32, Upper>,
    pub(crate) loose: PartialPages,
}

impl Edge {
    pub(crate) fn new(datagrams_max: usize, full_bytes: usize) -> Edge {
        Edge {
            streams: Vec::new(),
            free: Vec::new(),
            by_session: Vec::new(),
            page_line: MemoryWaiters::default(),
            inboxes: Vec::new(),
            memberships: Vec::new(),
            datagrams_max,
            datagrams_dropped: 0,
            replies_dropped: 0,
            completions: VecDeque::new(),
            vi_users: Vec::new(),
            rdma_users: Vec::new(),
            pings: BTreeMap::new(),
            loopbacks: BTreeMap::new(),
            rdma_events: VecDeque::new(),
            nic_sockets: Vec::new(),
            nic_datagrams: VecDeque::new(),
            interceptor: None,
            intercepted: VecDeque::new(),
            listeners: BTreeMap::new(),
            loose: PartialPages::new(full_bytes),
        }
    }

    /// Returns the size of the stream table: the maximum number of streams that were open at the same time.
    pub(crate) fn streams_made(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn add(&mut self, upper: Upper, session: SessionId, open: bool) -> StreamId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.streams.push((0, None));
            self.streams.len() as u32 - 1
        });
        let slot = &mut self.streams[index as usize];
        slot.1 = Some(Stream {
            upper,
            session,
            received: VecDeque::new(),
            received_bytes: 0,
            crumbs: None,
            dense: 0,
            is_loose: false,
            page: None,
            grain_filled: 0,
            urgent: None,
            urgent_ahead: 0,
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
                self.loose.release_page();
            }
            if self.by_session[stream.session.index()] == Some((stream.session, id.index)) {
                self.by_session[stream.session.index()] = None;
            }
        }
    }

    /// Returns a stream unless the host has closed it.
    pub(crate) fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        match self.streams.get_mut(id.index as usize) {
            Some((generation, Some(stream))) if *generation == id.generation && !stream.closed => {
                Some(stream)
            }
            _ => None,
        }
    }

    /// Returns the stream of a session, and its number.
    #[inline]
    fn of_session(&mut self, session: SessionId) -> Option<(StreamId, &mut Stream)> {
        let (known, index) = (*self.by_session.get(session.index())?)?;
        if known != session {
            return None;
        }
        let (generation, stream) = &mut self.streams[index as usize];
        Some((StreamId { index, generation: *generation }, stream.as_mut()?))
    }

    /// Returns the next completion and its consumer.
    pub(crate) fn completion(&mut self) -> Option<(Consumer, Completion)> {
        let (consumer, mut next) = self.completions.pop_front()?;
        if let Completion::Urgent { stream, bytes } = &mut next
            && let Some(state) = self.stream(*stream)
        {
            *bytes = state.urgent.take().unwrap_or(*bytes);
        }
        Some((consumer, next))
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Records that a consumer uses the VI NIC: it receives the NIC's events from now on.
    pub(crate) fn vi_used_by(&mut self, consumer: Consumer) {
        if !self.vi_users.contains(&consumer) {
            self.vi_users.push(consumer);
        }
    }

    /// Records that a consumer uses the RDMA NIC: it receives the NIC's events from now on.
    pub(crate) fn rdma_used_by(&mut self, consumer: Consumer) {
        if !self.rdma_users.contains(&consumer) {
            self.rdma_users.push(consumer);
        }
    }

    /// Queues a completion for the users of the VI NIC.
    pub(crate) fn on_vi(&mut self) {
        self.completions.extend(self.vi_users.iter().map(|user| (*user, Completion::Vi)));
    }

    /// Queues a completion for the users of the RDMA NIC. Returns whether any was queued.
    pub(crate) fn on_rdma(&mut self) -> bool {
        let before = self.completions.len();
        for user in &self.rdma_users {
            let completion = (*user, Completion::Rdma);
            if !self.completions.contains(&completion) {
                self.completions.push_back(completion);
            }
        }
        self.completions.len() > before
    }

    /// Returns the next event of the RDMA NIC's streams and listeners.
    pub(crate) fn rdma_event(&mut self) -> Option<Completion> {
        self.rdma_events.pop_front()
    }

    pub(crate) fn has_rdma_events(&self) -> bool {
        !(self.rdma_events.is_empty() && self.nic_datagrams.is_empty())
    }

    /// Passes the datagrams of a socket to the RDMA NIC.
    pub(crate) fn add_nic_socket(&mut self, socket: SocketId) {
        self.nic_sockets.push(socket);
    }

    pub(crate) fn is_of_nic(&self, socket: SocketId) -> bool {
        self.nic_sockets.contains(&socket)
    }

    pub(crate) fn on_nic_datagram(&mut self, datagram: NicDatagram) {
        self.nic_datagrams.push_back(datagram);
    }

    /// Returns the next datagram for the RDMA NIC.
    pub(crate) fn nic_datagram(&mut self) -> Option<NicDatagram> {
        self.nic_datagrams.pop_front()
    }

    /// Queues a completion for its consumer.
    pub(super) fn push_completion(&mut self, upper: Upper, completion: Completion) {
        match upper {
            Upper::Host(consumer) => self.completions.push_back((consumer, completion)),
            Upper::Rdma => self.rdma_events.push_back(completion),
        }
    }

    // ---- indications of TCP, UDP and ICMP

    /// Handles an indication from TCP. Returns the session, and the number of bytes that belong to no stream.
    /// The caller must consume those bytes.
    pub(crate) fn on_tcp(
        &mut self,
        indication: tcp::Indication,
        memory: &mut Memory,
        copies: &mut Copies,
    ) -> Option<(SessionId, u32)> {
        use tcp::Indication::{
            Accepted, Data, Finished, Gone, Opened, Piece, Requested, Sent, Starved, Urgent, Writable,
        };
        match indication {
            Opened { session, .. } => {
                let (stream, state) = self.of_session(session)?;
                state.open = true;
                let upper = state.upper;
                if !state.closed {
                    self.push_completion(upper, Completion::Opened { stream });
                }
            }
            Accepted { session, listener, remote } => {
                let upper =
                    self.listeners.get(&listener).copied().unwrap_or(Upper::Host(Consumer::default()));
                let stream = self.add(upper, session, true);
                self.push_completion(upper, Completion::Accepted { stream, listener, remote });
            }
            Requested { listener, local, remote } => {
                if let Some(upper) = self.listeners.get(&listener).copied() {
                    self.push_completion(upper, Completion::Requested { listener, local, remote });
                }
            }
            Data { session, mut pdu } => {
                let bytes = pdu.body_len();
                let unwanted = self.on_bytes(session, pdu.drain_body(), bytes, &mut memory.receive, copies);
                memory.pdus.give(pdu);
                return unwanted;
            }
            Piece { session, slice } => {
                let bytes = slice.len();
                return self.on_bytes(session, core::iter::once(slice), bytes, &mut memory.receive, copies);
            }
            Sent { session, left: 0, .. } => {
                let (_, state) = self.of_session(session)?;
                // A stream with nothing in flight returns its partly filled page, so that others can use it.
                if state.page.as_ref().is_some_and(|page| page.filled() > 0) {
                    state.page = None;
                    state.grain_filled = 0;
                }
            }
            Sent { .. } => {}
            Writable { session } => {
                let (stream, state) = self.of_session(session)?;
                let upper = state.upper;
                if state.may_write() {
                    self.push_completion(upper, Completion::Writable { stream });
                }
            }
            Starved { session } => {
                let (stream, state) = self.of_session(session)?;
                if state.may_write() && !state.waits_for_page {
                    state.waits_for_page = true;
                    self.page_line.push(stream);
                }
            }
            Urgent { session, bytes } => {
                let (stream, state) = self.of_session(session)?;
                let upper = state.upper;
                state.urgent_ahead = state.received_bytes + bytes as usize;
                if !state.closed && state.urgent.replace(bytes).is_none() {
                    self.push_completion(upper, Completion::Urgent { stream, bytes });
                }
            }
            // The wiring has passed this indication to IP already.
            tcp::Indication::NegativeAdvice { .. } => {}
            Finished { session } => {
                let (stream, state) = self.of_session(session)?;
                let upper = state.upper;
                if !state.closed {
                    self.push_completion(upper, Completion::PeerFinished { stream });
                }
            }
            Gone { session, reason } => {
                let (stream, state) = self.of_session(session)?;
                state.ended = true;
                state.page = None;
                let upper = state.upper;
                if state.closed {
                    self.remove(stream);
                } else {
                    self.push_completion(upper, Completion::Ended { stream, reason });
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
        pool: &mut PagePool,
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
            slices.for_each(|slice| state.append_small(slice, pool, copies));
        } else {
            state.received.extend(slices);
        }
        let (pages, is_known) = ((state.received.len() - before).max(1), state.is_loose);
        let upper = state.upper;
        if was_empty && bytes > 0 {
            self.push_completion(upper, Completion::Readable { stream });
        }
        if bytes < pages * self.loose.full_bytes && (!is_known || self.loose.needs_compaction(pool)) {
            self.on_loose(stream, pool, copies);
        }
        None
    }

    /// Handles a received datagram.
    pub(crate) fn on_datagram(
        &mut self,
        socket: SocketId,
        info: DatagramInfo,
        pdu: Pdu,
        memory: &mut Memory,
    ) {
        let Some(inbox) = self.inboxes.iter_mut().find(|inbox| inbox.socket == socket) else { return };
        if is_scarce(memory) || inbox.datagrams.len() >= self.datagrams_max {
            self.datagrams_dropped += 1;
            return;
        }
        if inbox.datagrams.is_empty() {
            self.completions.push_back((inbox.consumer, Completion::Datagram { socket }));
        }
        inbox.datagrams.push_back((info, pdu));
    }

    /// Returns whether a layer is the one that intercepts.
    pub(crate) fn is_interceptor(&self, upper: Upper) -> bool {
        self.interceptor_upper() == Some(upper)
    }

    fn interceptor_upper(&self) -> Option<Upper> {
        self.interceptor.and_then(|listener| self.listeners.get(&listener).copied())
    }

    /// Handles an intercepted packet.
    pub(crate) fn on_intercepted(&mut self, packet: Intercepted, memory: &mut Memory) {
        let Some(upper) = self.interceptor_upper() else { return };
        if self.intercepted.len() >= INTERCEPTED_MAX || is_scarce(memory) {
            self.datagrams_dropped += 1;
            return;
        }
        if self.intercepted.is_empty() {
            self.push_completion(upper, Completion::Intercepted);
        }
        self.intercepted.push_back(packet);
    }

    /// Handles an echo reply.
    pub(crate) fn on_reply(&mut self, source: IpAddr, identifier: u16, sequence: u16, bytes: usize) {
        // A reply whose identifier is unknown goes to the first program.
        let consumer = self.pings.get(&identifier).copied().unwrap_or_default();
        self.push_rate_limited(consumer, Completion::EchoReply { source, identifier, sequence, bytes });
    }

    /// Handles an ICMP error about a ping.
    pub(crate) fn on_echo_error(&mut self, error: &IcmpError, identifier: u16, sequence: u16) {
        let Some(consumer) = self.pings.get(&identifier).copied() else { return };
        let IcmpError { reporter, target, kind, .. } = *error;
        let completion = Completion::EchoError { reporter, target, identifier, sequence, kind };
        self.push_rate_limited(consumer, completion);
    }

    /// Handles an ICMP error about a datagram.
    pub(crate) fn on_icmp_error(&mut self, socket: SocketId, error: &IcmpError) {
        let Some(inbox) = self.inboxes.iter().find(|inbox| inbox.socket == socket) else { return };
        let (remote, IcmpError { reporter, kind, .. }) = (error.remote(), *error);
        self.push_rate_limited(inbox.consumer, Completion::DatagramError { socket, remote, reporter, kind });
    }

    /// Queues a completion of a kind that peers can cause at will, unless too many completions wait.
    fn push_rate_limited(&mut self, consumer: Consumer, completion: Completion) {
        if self.completions.len() >= COMPLETIONS_FOR_REPLIES {
            self.replies_dropped += 1;
        } else {
            self.completions.push_back((consumer, completion));
        }
    }

    /// Handles the reply to an ATM loopback cell.
    pub(crate) fn on_cell_loopback(&mut self, port: usize, circuit: u32, tag: u32, round_trip: Duration) {
        let consumer = self.loopbacks.get(&(port, circuit)).copied().unwrap_or_default();
        self.completions.push_back((consumer, Completion::CellLoopback { port, circuit, tag, round_trip }));
    }
}

/// Returns whether memory is so short that streams have priority, so that unread datagrams do not delay them.
fn is_scarce(memory: &mut Memory) -> bool {
    memory.receive.available() * 4 < memory.receive.capacity()
        || memory.pdus.available() * 4 < memory.pdus.capacity()
}
