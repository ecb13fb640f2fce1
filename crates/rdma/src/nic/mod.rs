//! The NIC: the core, its connections, and the connection manager.
//!
//! Purpose    one NIC type for every driver: the driver provides byte streams or an EFE endpoint, and the
//!            same code sets up and closes connections in real and in virtual time.
//! Streams    the driver owns the byte stream (a socket, a TCP session) and moves bytes between it and the
//!            [`Stream`] of an *end*. [`Nic::open`] and [`Nic::incoming`] create an end,
//!            [`Nic::next_to_serve`] returns one with something to send, and [`Nic::on_stream_closed`]
//!            reports the end of its byte stream.
//! EFE        [`Nic::pump`] moves segments between the core and an endpoint. The endpoint's greetings carry
//!            MPA's start frames, so depths, extensions and private data are negotiated in the same way.
//! Host side  calls [`Nic::connect_flow`], [`Nic::accept`] and [`Nic::reject`], and polls [`Nic::poll`].
//! Limits     an end that does not complete its start frames in time is given up. The number of incoming ends
//!            that have not sent a request or have not been answered is bounded; when full, the oldest is
//!            dropped, first among those that have not sent a request.

mod flows;

use crate::efe::{Endpoint, FlowNumber};
use crate::iwarp::mpa::{self, Initiator, Responder};
use crate::iwarp::stream::{self, Stream};
use crate::rnic::{Config, QpState, RequestError, Rnic, StreamAction, StreamTraits};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;
use kiban_base::{Instant, Region, RngKey, SecureRng, Slab};

/// How long a responder waits for the initiator to send first, once its reply has arrived. After that, the
/// responder may send. The wait is needed because siw may read the reply and any data after it in one call,
/// so data must not follow the reply too closely.
pub const HOLD: Duration = Duration::from_millis(1);

/// How long an initiator that has sent data and received nothing waits before it nudges its peer.
pub const NUDGE: Duration = Duration::from_millis(5);
/// Maximum number of nudges. Each wait is twice the previous one, and all together take a third of a second.
pub const NUDGES_MAX: u32 = 6;

/// Why a connection could not be established.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer refused. Contains its private data.
    Rejected(Vec<u8>),
    /// There is no listener at the address, or no route to it.
    Unreachable,
    /// The peer did not answer in time.
    Timeout,
    /// The peer's start frame breaks a rule.
    Fault(mpa::SetupFault),
    /// The connection was lost before it was established.
    Lost,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Rejected(_) => f.write_str("the peer refused the connection"),
            ConnectError::Unreachable => f.write_str("connection refused, or no route to that address"),
            ConnectError::Timeout => f.write_str("the peer did not answer in time"),
            ConnectError::Fault(fault) => write!(f, "MPA connection setup failed: {fault}"),
            ConnectError::Lost => f.write_str("the connection was lost before it was established"),
        }
    }
}

impl core::error::Error for ConnectError {}

/// A connection request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The end that received it.
    pub end: u32,
    /// The listener's number, or the EFE service.
    pub listener: u32,
    /// The peer's private data.
    pub private_data: Vec<u8>,
    /// The maximum number of reads that the peer wants to have outstanding, and the maximum that it accepts.
    /// [`Nic::accept`] can agree on at most these values for (`ird`, `ord`).
    pub depths: (u16, u16),
    /// Whether the peer supports RFC 7306.
    pub extensions: bool,
}

/// Connection events for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection.
    ConnectRequest(Request),
    /// A connection is established. On the initiating side, the event contains the peer's private data.
    Connected {
        /// The end.
        end: u32,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// A connection could not be established.
    Failed {
        /// The end.
        end: u32,
        /// The reason.
        error: ConnectError,
    },
    /// A connection request is no longer valid, although the host may not have answered it yet. The host can
    /// discard its end.
    Withdrawn {
        /// The end.
        end: u32,
    },
    /// An established connection has ended.
    Gone {
        /// The end.
        end: u32,
    },
}

/// The transport of an end's segments.
#[derive(Debug)]
enum Transport {
    Stream(Box<Stream>),
    Flow {
        flow: FlowNumber,
        phase: FlowPhase,
    },
    /// The transport has ended.
    Nothing,
}

#[derive(Debug)]
enum FlowPhase {
    Initiating(Initiator),
    Responding(Responder),
    /// Accepted, but not confirmed.
    Accepted,
    Up {
        finished: bool,
    },
}

#[derive(Debug)]
struct End {
    below: Transport,
    qp: Option<u32>,
    /// The listener at which the connection arrived.
    listener: Option<u32>,
    /// Deadline for establishing the connection.
    until: Instant,
    is_established: bool,
    /// The failure has been reported to the host.
    failed: bool,
    /// The end is queued for service: it may have something to send that the core does not know about.
    is_scheduled: bool,
}

/// Incoming ends that were not established when queued, oldest first; some may have failed since.
#[derive(Default, Debug)]
struct Waiting {
    /// Ends without a request.
    silent: VecDeque<u32>,
    /// Ends whose request waits for the host's answer.
    requested: VecDeque<u32>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.silent.len() + self.requested.len()
    }

    /// Records that an end has received a request.
    fn ask(&mut self, end: u32) {
        self.leave(end);
        self.requested.push_back(end);
    }

    fn leave(&mut self, end: u32) {
        for line in [&mut self.silent, &mut self.requested] {
            if let Some(at) = line.iter().position(|&waits| waits == end) {
                line.remove(at);
            }
        }
    }

    /// Removes and returns the end to be dropped. Ends that have received nothing are dropped first, so that
    /// they cannot displace real requests.
    fn oldest(&mut self) -> Option<u32> {
        self.silent.pop_front().or_else(|| self.requested.pop_front())
    }
}

/// An RDMA NIC with connections.
#[derive(Debug)]
pub struct Nic {
    /// The core: memory, queues, work.
    pub core: Rnic,
    ends: Slab<End>,
    of_qp: BTreeMap<u32, u32>,
    of_flow: BTreeMap<FlowNumber, u32>,
    waiting: Waiting,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    tx_queue: VecDeque<u32>,
    events: VecDeque<CmEvent>,
    start_timeout: Duration,
    answer_timeout: Duration,
    waiting_max: usize,
    /// Byte-stream ends to be resumed, found while EFE flows were processed.
    resumable: Vec<u32>,
    /// Buffer for a segment to be sent through an endpoint.
    segment: Vec<u8>,
}

impl Nic {
    /// Creates a NIC. `key` seeds the random number generator for its steering tags and numbers.
    pub fn new(config: Config, key: RngKey) -> Nic {
        let most = config.qps_max.saturating_mul(2);
        let mut rng = SecureRng::new(key);
        let salt = rng.draw_u32();
        let Config { start_timeout, answer_timeout, waiting_max, .. } = config;
        Nic {
            core: Rnic::new(config, rng.draw_key()),
            ends: Slab::new(most, salt),
            of_qp: BTreeMap::new(),
            of_flow: BTreeMap::new(),
            waiting: Waiting::default(),
            timers: BinaryHeap::new(),
            tx_queue: VecDeque::new(),
            events: VecDeque::new(),
            start_timeout,
            answer_timeout,
            waiting_max,
            resumable: Vec::new(),
            segment: Vec::new(),
        }
    }

    /// Returns the next connection event.
    pub fn poll(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns whether a connection event is pending.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the number of ends.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }

    /// Returns the queue pair that belongs to an end.
    pub fn qp_of(&self, end: u32) -> Option<u32> {
        self.ends.get(end)?.qp
    }

    /// Returns the end that belongs to a queue pair.
    pub fn end_of(&self, qp: u32) -> Option<u32> {
        self.of_qp.get(&qp).copied()
    }

    /// Returns whether an end's connection is established and has not ended.
    pub fn is_established(&self, end: u32) -> bool {
        self.ends.get(end).is_some_and(|end| end.is_established && !matches!(end.below, Transport::Nothing))
    }

    /// Checks that a queue pair can be connected: it has no connection, is in its initial state and is not
    /// for datagrams.
    fn check_free(&self, qp: u32) -> Result<(), OpenError> {
        let end = self.end_of(qp).and_then(|end| self.ends.get(end));
        let is_idle = matches!(self.core.query_qp(qp), Ok((_, QpState::Idle, _)));
        let has_streams = self.core.datagram_state(qp) == Err(RequestError::OtherKind);
        match is_idle && has_streams && end.is_none_or(|end| matches!(end.below, Transport::Nothing)) {
            true => Ok(()),
            false => Err(OpenError::InUse),
        }
    }

    /// Resets a queue pair and detaches it from its connection, which then closes.
    pub fn reset(&mut self, qp: u32) -> Result<(), RequestError> {
        self.core.reset(qp)?;
        if let Some(number) = self.of_qp.remove(&qp)
            && let Some(end) = self.ends.get_mut(number)
        {
            end.qp = None;
            if let Transport::Stream(stream) = &mut end.below {
                stream.detach();
            }
            self.schedule(number);
        }
        Ok(())
    }

    fn add(&mut self, below: Transport, qp: Option<u32>, listener: Option<u32>, now: Instant) -> Option<u32> {
        let until = now + self.start_timeout;
        let end =
            End { below, qp, listener, until, is_established: false, failed: false, is_scheduled: false };
        let number = self.ends.insert(end)?;
        if let Some(qp) = qp {
            self.of_qp.insert(qp, number);
        }
        self.timers.push(Reverse((until, number)));
        Some(number)
    }

    // ---- byte streams

    /// Begins to connect a queue pair over a byte stream, and returns the connection's end. The request is
    /// queued in the stream.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; there are too many ends.
    pub fn open(
        &mut self,
        config: &mpa::Config,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<u32, OpenError> {
        self.check_free(qp)?;
        let stream = Stream::initiate(config, qp, depths, private_data).map_err(OpenError::PrivateData)?;
        let end =
            self.add(Transport::Stream(Box::new(stream)), Some(qp), None, now).ok_or(OpenError::TooMany)?;
        self.schedule(end);
        Ok(end)
    }

    /// Creates an end for a byte stream accepted by a listener. Returns `None` if there are too many.
    pub fn incoming(&mut self, config: &mpa::Config, listener: u32, now: Instant) -> Option<u32> {
        self.make_room();
        let end =
            self.add(Transport::Stream(Box::new(Stream::respond(config))), None, Some(listener), now)?;
        self.waiting.silent.push_back(end);
        Some(end)
    }

    /// Drops waiting ends, oldest first, until there is room for another.
    fn make_room(&mut self) {
        while self.waiting.len() >= self.waiting_max.max(1) && self.evict_oldest() {}
    }

    /// Gives up one waiting end because another resource is scarce. Returns whether there was one.
    pub fn evict_oldest(&mut self) -> bool {
        while let Some(oldest) = self.waiting.oldest() {
            if self.ends.get(oldest).is_some_and(|end| !end.is_established && end.qp.is_none()) {
                self.fail(oldest, ConnectError::Timeout);
                return true;
            }
        }
        false
    }

    /// Returns an end's stream and the core, which a driver needs to move bytes.
    #[inline]
    pub fn stream(&mut self, end: u32) -> Option<(&mut Stream, &mut Rnic)> {
        match &mut self.ends.get_mut(end)?.below {
            Transport::Stream(stream) => Some((stream, &mut self.core)),
            _ => None,
        }
    }

    /// Takes bytes received for an end.
    pub fn arrive(&mut self, end: u32, bytes: &[u8], now: Instant) {
        let Some((stream, core)) = self.stream(end) else { return };
        stream.arrive(core, bytes);
        if let Some(event) = stream.poll() {
            self.on_stream_event(end, event, now);
        }
    }

    fn on_stream_event(&mut self, number: u32, event: stream::StreamEvent, now: Instant) {
        let Some(end) = self.ends.get_mut(number) else { return };
        match event {
            stream::StreamEvent::Asked { private_data, depths, extensions } => {
                end.until = now + self.answer_timeout;
                self.waiting.ask(number);
                self.timers.push(Reverse((end.until, number)));
                let listener = end.listener.unwrap_or(0);
                let requested = Request { end: number, listener, private_data, depths, extensions };
                self.events.push_back(CmEvent::ConnectRequest(requested));
            }
            stream::StreamEvent::Connected { private_data } => {
                end.is_established = true;
                self.events.push_back(CmEvent::Connected { end: number, private_data });
            }
            stream::StreamEvent::Rejected { private_data } => {
                self.fail(number, ConnectError::Rejected(private_data))
            }
            stream::StreamEvent::Failed(fault) => self.fail(number, ConnectError::Fault(fault)),
            stream::StreamEvent::Lost => self.fail(number, ConnectError::Lost),
        }
    }

    /// Fails a connection that is not established: the host gets one event, and the transport ends after its
    /// last message, if there is one.
    pub fn fail(&mut self, number: u32, error: ConnectError) {
        let Some(end) = self.ends.get_mut(number) else { return };
        if !core::mem::replace(&mut end.failed, true) {
            self.events.push_back(match end.listener {
                None => CmEvent::Failed { end: number, error },
                Some(_) => CmEvent::Withdrawn { end: number },
            });
        }
        if let Transport::Stream(stream) = &mut end.below {
            stream.give_up();
        }
        self.schedule(number);
    }

    /// Handles the close of an end's byte stream. `in_order`: the close was orderly.
    pub fn on_stream_closed(&mut self, number: u32, in_order: bool) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let stood = end.is_established;
        if let Transport::Stream(stream) = &mut end.below {
            stream.on_closed(&mut self.core, in_order);
        }
        if !matches!(core::mem::replace(&mut end.below, Transport::Nothing), Transport::Nothing) {
            match stood {
                true => self.events.push_back(CmEvent::Gone { end: number }),
                false => self.fail(number, ConnectError::Lost),
            }
        }
    }

    /// Returns the next end that may have something to send.
    #[inline]
    pub fn next_to_serve(&mut self) -> Option<u32> {
        if let Some(end) = self.tx_queue.pop_front() {
            if let Some(end) = self.ends.get_mut(end) {
                end.is_scheduled = false;
            }
            return Some(end);
        }
        while let Some(qp) = self.core.pop_tx_queue() {
            if let Some(&end) = self.of_qp.get(&qp) {
                return Some(end);
            }
        }
        None
    }

    /// Returns the next end whose stream had stopped for lack of a posted receive and can now continue.
    pub fn next_resumed(&mut self) -> Option<u32> {
        if let Some(end) = self.resumable.pop() {
            return Some(end);
        }
        while let Some(qp) = self.core.next_resumable() {
            let Some(&end) = self.of_qp.get(&qp) else { continue };
            if let Some((stream, core)) = self.stream(end) {
                stream.resume(core);
            }
            return Some(end);
        }
        None
    }

    /// Queues an end for service.
    pub fn schedule(&mut self, number: u32) {
        if let Some(end) = self.ends.get_mut(number)
            && !end.is_scheduled
        {
            end.is_scheduled = true;
            self.tx_queue.push_back(number);
        }
    }

    /// Returns what the byte stream must do after the current burst has been sent.
    #[inline]
    pub fn stream_action(&self, end: u32) -> StreamAction {
        match self.ends.get(end).map(|end| &end.below) {
            Some(Transport::Stream(stream)) => stream.action(&self.core),
            _ => StreamAction::Abort,
        }
    }

    // ---- the host's answers

    /// Accepts a request on a queue pair that is not connected. `endpoint` is required for a request that
    /// came through EFE.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; the request is no longer valid.
    pub fn accept(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        self.check_free(qp)?;
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none() && !end.is_established);
        let end = end.ok_or(OpenError::Gone)?;
        match &mut end.below {
            Transport::Stream(stream) => {
                if !stream.awaits_answer() {
                    return Err(OpenError::Gone);
                }
                let accepted = stream.accept(&mut self.core, qp, depths, private_data);
                if !accepted.map_err(OpenError::PrivateData)? {
                    return Err(OpenError::InUse);
                }
            }
            Transport::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let (reply, agreed) =
                    responder.accept(private_data, depths.0, depths.1).map_err(OpenError::PrivateData)?;
                endpoint.accept(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                let mpa::Agreed { ird, ord, extensions, .. } = agreed;
                let traits = StreamTraits { ird, ord, extensions, kiban: extensions, may_send: true };
                self.core.connect(qp, traits).map_err(|_| OpenError::Gone)?;
                *phase = FlowPhase::Accepted;
            }
            Transport::Nothing => return Err(OpenError::Gone),
        }
        end.qp = Some(qp);
        end.is_established = true;
        self.of_qp.insert(qp, number);
        self.waiting.leave(number);
        self.events.push_back(CmEvent::Connected { end: number, private_data: Vec::new() });
        self.schedule(number);
        Ok(())
    }

    /// Rejects a request.
    ///
    /// # Errors
    /// The private data is too long; the request is no longer valid.
    pub fn reject(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        match &mut end.below {
            Transport::Stream(stream) => stream.reject(private_data).map_err(OpenError::PrivateData)?,
            Transport::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let reply = responder.reject(private_data).map_err(OpenError::PrivateData)?;
                endpoint.reject(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                self.of_flow.remove(flow);
                end.below = Transport::Nothing;
            }
            Transport::Nothing => return Err(OpenError::Gone),
        }
        self.waiting.leave(number);
        self.schedule(number);
        Ok(())
    }

    /// Removes an end. The driver must close its byte stream; a flow is aborted. If the end was connected,
    /// the queue pair's work is flushed.
    pub fn forget(&mut self, endpoint: Option<&mut Endpoint>, number: u32, now: Instant) {
        let Some(end) = self.ends.remove(number) else { return };
        if let Some(qp) = end.qp
            && self.of_qp.get(&qp) == Some(&number)
        {
            self.of_qp.remove(&qp);
            if !matches!(end.below, Transport::Nothing) {
                self.core.on_stream_closed(qp, false);
            }
        }
        self.waiting.leave(number);
        if let Transport::Flow { flow, .. } = end.below {
            self.of_flow.remove(&flow);
            if let Some(endpoint) = endpoint {
                let _ = endpoint.abort(flow, now);
            }
        }
    }

    /// Deregisters memory: its steering tag becomes invalid, and streams drop their references to it.
    ///
    /// # Errors
    /// The tag is unknown, or windows are bound to the memory.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        let blocks = self.core.deregister(stag)?;
        Ok(self.let_go_all(blocks))
    }

    /// Deregisters like [`Nic::deregister`], but first unbinds all windows bound to the memory.
    ///
    /// # Errors
    /// The tag is unknown.
    pub fn deregister_with_windows(&mut self, stag: u32) -> Result<Vec<Region>, RequestError> {
        let blocks = self.core.deregister_with_windows(stag)?;
        Ok(self.let_go_all(blocks))
    }

    fn let_go_all(&mut self, blocks: Vec<Region>) -> Vec<Region> {
        blocks.iter().for_each(|block| self.release_memory(block));
        self.release_invalidated();
        blocks
    }

    fn release_memory(&mut self, memory: &Region) {
        for (_, end) in self.ends.iter_mut() {
            if let Transport::Stream(stream) = &mut end.below {
                stream.release_memory(memory);
            }
        }
    }

    /// Makes streams drop their references to invalidated memory. A driver calls it after each round of work,
    /// before its host polls.
    #[inline]
    pub fn release_invalidated(&mut self) {
        while let Some(memory) = self.core.next_invalidated() {
            self.release_memory(&memory);
        }
    }

    /// Returns whether an end's connection is closing in order, so that queued data is still sent.
    pub fn is_ending(&self, number: u32) -> bool {
        let Some(end) = self.ends.get(number) else { return false };
        let closes = end.qp.is_some_and(|qp| matches!(self.core.query_qp(qp), Ok((_, QpState::Closing, _))));
        match &end.below {
            Transport::Nothing => false,
            Transport::Stream(stream) => closes || stream.action(&self.core) == StreamAction::Finish,
            Transport::Flow { .. } => {
                closes || end.qp.is_some_and(|qp| self.core.stream_action(qp) == StreamAction::Finish)
            }
        }
    }

    /// Returns whether an end's queue pair or setup has failed or ended, so that at most a Terminate is
    /// still sent.
    pub fn is_over(&self, number: u32) -> bool {
        self.ends.get(number).is_some_and(|end| {
            end.failed
                || end.qp.is_some_and(|qp| {
                    matches!(self.core.query_qp(qp), Ok((_, QpState::Terminate | QpState::Error, _)))
                })
        })
    }

    /// Returns whether a responder may send once its reply has arrived, even if the initiator has sent
    /// nothing. It may, unless both ends agreed on a ready-to-receive message (RFC 6581 §9).
    pub fn may_responder_send_first(&mut self, end: u32) -> bool {
        self.stream(end).is_some_and(|(stream, _)| !stream.waits_for_rtr())
    }

    /// Returns whether the peer of an outgoing connection over a byte stream may be an implementation that
    /// misses data ([`Nic::nudge`]). Peers that agreed on RFC 7306 are kiban NICs, which do not miss data.
    pub fn peer_may_sleep(&self, end: u32) -> bool {
        let Some(end) = self.ends.get(end) else { return false };
        let initiated = end.listener.is_none() && matches!(end.below, Transport::Stream(_));
        let traits = end.qp.and_then(|qp| self.core.query_qp(qp).ok()).map(|(.., traits)| traits);
        initiated && traits.is_some_and(|traits| !traits.extensions)
    }

    /// Nudges a peer that may have missed the initiator's first message ([`Stream::nudge`]). Returns whether
    /// to try again. Call it [`NUDGE`] after the reply and then at intervals that double each time, at most
    /// [`NUDGES_MAX`] times.
    pub fn nudge(&mut self, end: u32) -> bool {
        let again = self.stream(end).is_some_and(|(stream, core)| stream.nudge(core));
        if again {
            self.schedule(end);
        }
        again
    }

    // ---- time

    /// Returns the next deadline.
    pub fn deadline(&self) -> Instant {
        self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Gives up connections that were not established in time.
    pub fn settle(&mut self, now: Instant) {
        while let Some(&Reverse((at, number))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(end) = self.ends.get(number) else { continue };
            if !end.is_established && end.until <= now {
                self.fail(number, ConnectError::Timeout);
            }
        }
    }
}

/// Why a connection could not be begun or answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The private data is too long.
    PrivateData(mpa::PrivateDataTooLong),
    /// There are too many connections.
    TooMany,
    /// The request has already been answered, withdrawn or given up.
    Gone,
    /// The queue pair is connected or connecting, was connected and has not been reset, or is for datagrams.
    InUse,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PrivateData(error) => error.fmt(f),
            OpenError::TooMany => f.write_str("too many connections: close some first"),
            OpenError::Gone => f.write_str("the connection request was answered, withdrawn or timed out"),
            OpenError::InUse => f.write_str(
                "the queue pair is or was connected: disconnect and reset it, or use another queue pair",
            ),
        }
    }
}

impl core::error::Error for OpenError {}
