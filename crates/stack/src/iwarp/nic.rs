//! The NIC: the core, its connections, and the connection manager.
//!
//! Goal      one value for every driver: whoever has byte streams or an EFE endpoint lends them, and the same code sets
//!           connections up and takes them down in real and in virtual time.
//! Streams   the driver owns the byte stream (a socket, a TCP session) and moves bytes between it and the [`Stream`] of an
//!           *end*: [`Nic::open`] and [`Nic::incoming`] make one, [`Nic::next_to_serve`] says which has something to send,
//!           [`Nic::stream_gone`] that its byte stream has ended.
//! EFE       [`Nic::pump`] moves segments between the core and an endpoint; greetings are MPA's start frames, so that depths,
//!           extensions and private data are agreed on in one way.
//! Host      asks and answers by [`Nic::connect_flow`], [`Nic::accept`], [`Nic::reject`], and hears by [`Nic::news`].
//! Limits    an end that does not get through its start frames in time is given up; those that have not spoken are bounded,
//!           and the oldest makes room.

use super::mpa::{self, Answer, Initiator, Responder};
use super::rnic::{Config, Judged, Payload, Rnic, StreamTraits, StreamWish, ToLlp};
use super::stream::{self, Stream};
use crate::efe::{self, Endpoint, FlowNumber, Peer};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;
use kiban_ground::{Chance, Instant, Region, SharedBytes, Slab};

/// How long a connection may take to be set up.
const START_MAX: Duration = Duration::from_secs(10);
/// How long the host may take to answer a request.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Connections that have not spoken, or wait for the host's answer, at most.
const WAITING_MAX: usize = 1024;
/// A responder whose reply has arrived may speak so much later, if the initiator has not spoken: a peer that reads the
/// reply and what follows in one go (siw) must not find them together.
pub const HOLD: Duration = Duration::from_millis(1);

/// Why a connection did not come to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The peer refused, and says something.
    Rejected(Vec<u8>),
    /// Nobody listens there, or there is no way.
    Unreachable,
    /// The peer did not answer in time.
    Timeout,
    /// The peer's start frame breaks a rule.
    Fault(mpa::SetupFault),
    /// The connection was lost before it stood.
    Lost,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Rejected(_) => f.write_str("the peer refused the connection"),
            ConnectError::Unreachable => {
                f.write_str("nobody listens at that address, or there is no way to it")
            }
            ConnectError::Timeout => f.write_str("the peer did not answer in time"),
            ConnectError::Fault(fault) => write!(f, "the peer does not begin as it should: {fault}"),
            ConnectError::Lost => f.write_str("the connection was lost before it stood"),
        }
    }
}

impl core::error::Error for ConnectError {}

/// A request to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The end that it is at.
    pub end: u32,
    /// Whom it came to: the listener's number, or the service of EFE.
    pub listener: u32,
    /// What the peer says.
    pub private_data: Vec<u8>,
    /// Reads that it takes and wants under way: the most that [`Nic::accept`] can agree on for (`ird`, `ord`).
    pub depths: (u16, u16),
    /// Whether it knows RFC 7306.
    pub extensions: bool,
}

/// What the host is told about connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A peer asks.
    Asked(Request),
    /// A connection stands; with what the peer answered, on the side that asked.
    Connected {
        /// Which end.
        end: u32,
        /// What the peer says.
        private_data: Vec<u8>,
    },
    /// A connection did not come to be.
    Failed {
        /// Which end.
        end: u32,
        /// Why.
        error: ConnectError,
    },
    /// A request that the host may not have seen yet has gone: its end can be forgotten.
    Withdrawn {
        /// Which end.
        end: u32,
    },
    /// A connection is over.
    Gone {
        /// Which end.
        end: u32,
    },
}

/// What carries an end's segments.
#[derive(Debug)]
enum Below {
    Stream(Box<Stream>),
    Flow {
        flow: FlowNumber,
        phase: FlowPhase,
    },
    /// It has gone.
    Nothing,
}

#[derive(Debug)]
enum FlowPhase {
    Initiating(Initiator),
    Responding(Responder),
    /// Accepted, and not confirmed.
    Accepted,
    Up {
        finished: bool,
    },
}

#[derive(Debug)]
struct End {
    below: Below,
    qp: Option<u32>,
    /// Whom it came to.
    listener: Option<u32>,
    /// It is given up then, if it does not stand.
    until: Instant,
    stands: bool,
    /// The host was told that it will not.
    failed: bool,
    /// Something may have to be sent that the core does not know of.
    stirred: bool,
}

/// An RDMA NIC with connections.
#[derive(Debug)]
pub struct Nic {
    /// The core: memory, queues, work.
    pub core: Rnic,
    ends: Slab<End>,
    of_qp: BTreeMap<u32, u32>,
    of_flow: BTreeMap<FlowNumber, u32>,
    /// Ends that have not spoken or been answered, oldest first; some of them may be further by now.
    waiting: VecDeque<u32>,
    alarms: BinaryHeap<Reverse<(Instant, u32)>>,
    stirred: VecDeque<u32>,
    news: VecDeque<News>,
    /// A segment on its way to or from an endpoint.
    segment: Vec<u8>,
}

impl Nic {
    /// A NIC. `seed` makes its keys: a driver takes it from the operating system's chance.
    pub fn new(config: Config, seed: u64) -> Nic {
        let most = config.qps_max.saturating_mul(2);
        let mut chance = Chance::from_seed(seed);
        let salt = chance.draw() as u32;
        Nic {
            core: Rnic::new(config, chance.draw()),
            ends: Slab::new(most, salt),
            of_qp: BTreeMap::new(),
            of_flow: BTreeMap::new(),
            waiting: VecDeque::new(),
            alarms: BinaryHeap::new(),
            stirred: VecDeque::new(),
            news: VecDeque::new(),
            segment: Vec::new(),
        }
    }

    /// What has happened to connections.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Whether there is such news.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Ends that there are.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }

    /// The queue pair of an end.
    pub fn qp_of(&self, end: u32) -> Option<u32> {
        self.ends.get(end)?.qp
    }

    /// The end of a queue pair.
    pub fn end_of(&self, qp: u32) -> Option<u32> {
        self.of_qp.get(&qp).copied()
    }

    /// Whether an end's start frames are exchanged, and it has not gone.
    pub fn stands(&self, end: u32) -> bool {
        self.ends.get(end).is_some_and(|end| end.stands && !matches!(end.below, Below::Nothing))
    }

    fn add(&mut self, below: Below, qp: Option<u32>, listener: Option<u32>, now: Instant) -> Option<u32> {
        let until = now + START_MAX;
        let end = End { below, qp, listener, until, stands: false, failed: false, stirred: false };
        let number = self.ends.insert(end)?;
        if let Some(qp) = qp {
            self.of_qp.insert(qp, number);
        }
        self.alarms.push(Reverse((until, number)));
        Some(number)
    }

    // ---- byte streams

    /// Begins a connection over a byte stream for a queue pair: its end. Its request waits in the stream.
    ///
    /// # Errors
    /// The private data is too long; there are too many ends.
    pub fn open(
        &mut self,
        config: &mpa::Config,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<u32, OpenError> {
        let stream = Stream::initiate(config, qp, depths, private_data).map_err(OpenError::PrivateData)?;
        let end = self.add(Below::Stream(Box::new(stream)), Some(qp), None, now).ok_or(OpenError::TooMany)?;
        self.stir(end);
        Ok(end)
    }

    /// A byte stream came to a listener: its end. `None`: there are too many.
    pub fn incoming(&mut self, config: &mpa::Config, listener: u32, now: Instant) -> Option<u32> {
        self.make_room();
        let end = self.add(Below::Stream(Box::new(Stream::respond(config))), None, Some(listener), now)?;
        self.waiting.push_back(end);
        Some(end)
    }

    /// The oldest that has not spoken makes room for another.
    fn make_room(&mut self) {
        while self.waiting.len() >= WAITING_MAX {
            let Some(oldest) = self.waiting.pop_front() else { return };
            if self.ends.get(oldest).is_some_and(|end| !end.stands && end.qp.is_none()) {
                self.fail(oldest, ConnectError::Timeout);
            }
        }
    }

    /// The stream of an end, and the core: a driver moves bytes with both.
    #[inline]
    pub fn stream(&mut self, end: u32) -> Option<(&mut Stream, &mut Rnic)> {
        match &mut self.ends.get_mut(end)?.below {
            Below::Stream(stream) => Some((stream, &mut self.core)),
            _ => None,
        }
    }

    /// Bytes came for an end.
    pub fn receive(&mut self, end: u32, bytes: &[u8], now: Instant) {
        let Some((stream, core)) = self.stream(end) else { return };
        stream.receive(core, bytes);
        if let Some(news) = stream.news() {
            self.on_stream_news(end, news, now);
        }
    }

    fn on_stream_news(&mut self, number: u32, news: stream::News, now: Instant) {
        let Some(end) = self.ends.get_mut(number) else { return };
        match news {
            stream::News::Asked { private_data, depths, extensions } => {
                end.until = now + ANSWER_MAX;
                self.alarms.push(Reverse((end.until, number)));
                let listener = end.listener.unwrap_or(0);
                let asked = Request { end: number, listener, private_data, depths, extensions };
                self.news.push_back(News::Asked(asked));
            }
            stream::News::Connected { private_data, .. } => {
                end.stands = true;
                self.news.push_back(News::Connected { end: number, private_data });
            }
            stream::News::Rejected { private_data } => {
                self.fail(number, ConnectError::Rejected(private_data))
            }
            stream::News::Failed(fault) => self.fail(number, ConnectError::Fault(fault)),
        }
    }

    /// A connection did not come to be: the host is told once, and what is below it ends, after its last word if it has one.
    pub fn fail(&mut self, number: u32, error: ConnectError) {
        let Some(end) = self.ends.get_mut(number) else { return };
        if !core::mem::replace(&mut end.failed, true) {
            self.news.push_back(match end.listener {
                None => News::Failed { end: number, error },
                Some(_) => News::Withdrawn { end: number },
            });
        }
        if let Below::Stream(stream) = &mut end.below {
            stream.give_up();
        }
        self.stir(number);
    }

    /// The byte stream of an end has ended: in order, or not.
    pub fn stream_gone(&mut self, number: u32, in_order: bool) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let stood = end.stands;
        if let Below::Stream(stream) = &mut end.below {
            stream.gone(&mut self.core, in_order);
        }
        if !matches!(core::mem::replace(&mut end.below, Below::Nothing), Below::Nothing) {
            match stood {
                true => self.news.push_back(News::Gone { end: number }),
                false => self.fail(number, ConnectError::Lost),
            }
        }
    }

    /// The next end with something to send, or to be looked at.
    #[inline]
    pub fn next_to_serve(&mut self) -> Option<u32> {
        if let Some(end) = self.stirred.pop_front() {
            if let Some(end) = self.ends.get_mut(end) {
                end.stirred = false;
            }
            return Some(end);
        }
        while let Some(qp) = self.core.next_in_line() {
            if let Some(&end) = self.of_qp.get(&qp) {
                return Some(end);
            }
        }
        None
    }

    /// The next end whose stream stood for want of a receive, and need not.
    pub fn next_resumed(&mut self) -> Option<u32> {
        while let Some(qp) = self.core.resumed() {
            let Some(&end) = self.of_qp.get(&qp) else { continue };
            if let Some((stream, core)) = self.stream(end) {
                stream.resume(core);
            }
            return Some(end);
        }
        None
    }

    /// An end is to be served.
    pub fn stir(&mut self, number: u32) {
        if let Some(end) = self.ends.get_mut(number)
            && !end.stirred
        {
            end.stirred = true;
            self.stirred.push_back(number);
        }
    }

    /// What an end's byte stream is to do when its burst has left.
    #[inline]
    pub fn wish(&self, end: u32) -> StreamWish {
        match self.ends.get(end).map(|end| &end.below) {
            Some(Below::Stream(stream)) => stream.wish(&self.core),
            _ => StreamWish::Abort,
        }
    }

    // ---- EFE

    /// Begins a connection over EFE.
    ///
    /// # Errors
    /// The private data is too long; there are too many ends or flows.
    #[expect(clippy::too_many_arguments, reason = "what a connection is made of")]
    pub fn connect_flow(
        &mut self,
        endpoint: &mut Endpoint,
        (peer, service): (Peer, u16),
        config: &mpa::Config,
        qp: u32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<u32, OpenError> {
        let initiator = Initiator::new(config, ird, ord, private_data).map_err(OpenError::PrivateData)?;
        let flow =
            endpoint.connect(peer, service, initiator.request(), now).map_err(|_| OpenError::TooMany)?;
        let below = Below::Flow { flow, phase: FlowPhase::Initiating(initiator) };
        let Some(end) = self.add(below, Some(qp), None, now) else {
            // It has not been asked for yet.
            let _ = endpoint.abort(flow, now);
            return Err(OpenError::TooMany);
        };
        self.of_flow.insert(flow, end);
        Ok(end)
    }

    /// Moves what there is to move between the core and an endpoint. `config` is how its requests are answered.
    pub fn pump(&mut self, endpoint: &mut Endpoint, config: &mpa::Config, now: Instant) {
        while let Some(event) = endpoint.next_event() {
            self.on_flow_event(endpoint, event, config, now);
        }
        let mut later = Vec::new();
        while let Some(end) = self.next_to_serve() {
            if self.flow_of(end).is_some() {
                self.serve_flow(endpoint, end, now);
            } else {
                later.push(end);
            }
        }
        later.into_iter().for_each(|end| self.stir(end));
        while let Some(end) = self.next_resumed() {
            if let Some(flow) = self.flow_of(end) {
                self.take_from_flow(endpoint, end, flow, now);
            }
        }
    }

    fn flow_of(&self, end: u32) -> Option<FlowNumber> {
        match self.ends.get(end)?.below {
            Below::Flow { flow, .. } => Some(flow),
            _ => None,
        }
    }

    fn on_flow_event(
        &mut self,
        endpoint: &mut Endpoint,
        event: efe::Event,
        config: &mpa::Config,
        now: Instant,
    ) {
        match event {
            efe::Event::Asked { flow, service, greeting, .. } => {
                let mut responder = Responder::new(config);
                let asked = match responder.take(&greeting) {
                    Ok(Some(asked)) => asked,
                    // It is not even a greeting.
                    Ok(None) | Err(_) => {
                        let _ = endpoint.reject(flow, &[], now);
                        return;
                    }
                };
                self.make_room();
                let below = Below::Flow { flow, phase: FlowPhase::Responding(responder) };
                let Some(number) = self.add(below, None, Some(service.into()), now) else {
                    let _ = endpoint.reject(flow, &[], now);
                    return;
                };
                self.waiting.push_back(number);
                self.of_flow.insert(flow, number);
                let mpa::Asked { private_data, ird, ord, extensions, .. } = asked;
                let (listener, depths) = (service.into(), (ird, ord));
                let asked = Request { end: number, listener, private_data, depths, extensions };
                self.news.push_back(News::Asked(asked));
            }
            efe::Event::Connected { flow, greeting } => {
                let Some(&number) = self.of_flow.get(&flow) else { return };
                self.on_flow_connected(endpoint, number, flow, &greeting, now);
            }
            efe::Event::Rejected { flow, greeting, .. } => {
                let Some(number) = self.of_flow.remove(&flow) else { return };
                let Some(End { below: below @ Below::Flow { .. }, .. }) = self.ends.get_mut(number) else {
                    return;
                };
                let was = core::mem::replace(below, Below::Nothing);
                let error = match was {
                    Below::Flow { phase: FlowPhase::Initiating(mut initiator), .. } => {
                        match initiator.take(&greeting) {
                            Ok(Answer::Rejected(rejected)) => ConnectError::Rejected(rejected.private_data),
                            Ok(_) => ConnectError::Unreachable,
                            Err(_) if greeting.is_empty() => ConnectError::Unreachable,
                            Err(fault) => ConnectError::Fault(fault),
                        }
                    }
                    _ => ConnectError::Lost,
                };
                self.fail(number, error);
            }
            efe::Event::Readable { flow } => {
                if let Some(&end) = self.of_flow.get(&flow) {
                    self.take_from_flow(endpoint, end, flow, now);
                }
            }
            efe::Event::Writable { flow } => {
                if let Some(&end) = self.of_flow.get(&flow) {
                    self.stir(end);
                }
            }
            efe::Event::Finished { flow } => {
                // The peer sends no more: nor do we, and the flow is over when we have said so.
                let Some(&number) = self.of_flow.get(&flow) else { return };
                if let Some(qp) = self.qp_of(number) {
                    self.core.stream_gone(qp, true);
                }
                self.finish_flow(endpoint, number, flow);
            }
            efe::Event::Ended { flow, why } => {
                let Some(number) = self.of_flow.remove(&flow) else { return };
                let Some(end) = self.ends.get_mut(number) else { return };
                end.below = Below::Nothing;
                if let Some(qp) = end.qp {
                    self.core.stream_gone(qp, why == efe::Why::Finished);
                }
                if end.stands {
                    self.news.push_back(News::Gone { end: number });
                } else {
                    let error = match why {
                        efe::Why::NoAnswer => ConnectError::Timeout,
                        _ => ConnectError::Lost,
                    };
                    self.fail(number, error);
                }
            }
        }
    }

    fn on_flow_connected(
        &mut self,
        endpoint: &mut Endpoint,
        number: u32,
        flow: FlowNumber,
        greeting: &[u8],
        now: Instant,
    ) {
        let Some(end) = self.ends.get_mut(number) else { return };
        let Below::Flow { phase, .. } = &mut end.below else { return };
        match core::mem::replace(phase, FlowPhase::Up { finished: false }) {
            FlowPhase::Initiating(mut initiator) => {
                let error = match initiator.take(greeting) {
                    Ok(Answer::Agreed(agreed)) => {
                        let mpa::Agreed { ird, ord, extensions, private_data, .. } = agreed;
                        let traits = StreamTraits { ird, ord, extensions, may_send: true };
                        match end.qp.map(|qp| self.core.connect(qp, traits)) {
                            Some(Ok(())) => {
                                end.stands = true;
                                self.news.push_back(News::Connected { end: number, private_data });
                                return;
                            }
                            _ => ConnectError::Lost,
                        }
                    }
                    Ok(Answer::Rejected(rejected)) => ConnectError::Rejected(rejected.private_data),
                    Ok(Answer::Wants) => ConnectError::Lost,
                    Err(fault) => ConnectError::Fault(fault),
                };
                let _ = endpoint.abort(flow, now);
                self.of_flow.remove(&flow);
                end.below = Below::Nothing;
                self.fail(number, error);
            }
            // What we accepted is confirmed: what waited for it may go.
            FlowPhase::Accepted => self.stir(number),
            before => *phase = before,
        }
    }

    /// Takes the segments that an endpoint has for an end.
    fn take_from_flow(&mut self, endpoint: &mut Endpoint, end: u32, flow: FlowNumber, now: Instant) {
        let Some(qp) = self.qp_of(end) else { return };
        while let Some(front) = endpoint.peek(flow) {
            match self.core.judge(qp, front, front.len()) {
                Ok(Judged::Place(mut placement)) => {
                    let payload = SharedBytes::from(&front[placement.header_bytes()..]);
                    let placed = self.core.place(qp, &mut placement, payload);
                    // A fault has ended the queue pair; the rest of the segments is taken and forgotten.
                    let _ = placed.and_then(|()| self.core.finish(qp, &placement));
                }
                // It stays, and so does its credit: the peer waits.
                Ok(Judged::Dry) => break,
                // A segment is whole: what wants more is too short, and was a fault.
                Ok(Judged::Done | Judged::Wants(_)) | Err(_) => {}
            }
            endpoint.skip(flow, now);
        }
    }

    /// Hands an endpoint what an end has to send, as far as it has room.
    fn serve_flow(&mut self, endpoint: &mut Endpoint, number: u32, now: Instant) {
        let (Some(flow), Some(qp)) = (self.flow_of(number), self.qp_of(number)) else { return };
        let most = endpoint.segment_bytes(flow).unwrap_or(0);
        if most >= SEGMENT_BYTES_MIN {
            let mut out = FlowOut { segment: core::mem::take(&mut self.segment), most };
            while endpoint.room(flow) > 0 {
                out.segment.clear();
                if !self.core.next_segment(qp, &mut out) {
                    break;
                }
                if endpoint.send(flow, &out.segment, now).is_err() {
                    break;
                }
                // It is copied: the host's memory is free again.
                self.core.confirm(qp, self.core.segments_made(qp));
            }
            self.segment = out.segment;
            if endpoint.room(flow) == 0 {
                // An event will say when there is room.
                endpoint.want_room(flow);
            }
        }
        match self.core.stream_wish(qp) {
            StreamWish::Open => {}
            StreamWish::Finish => self.finish_flow(endpoint, number, flow),
            StreamWish::Abort => {
                let _ = endpoint.abort(flow, now);
                self.of_flow.remove(&flow);
                self.flow_gone(number);
            }
        }
    }

    fn finish_flow(&mut self, endpoint: &mut Endpoint, number: u32, flow: FlowNumber) {
        if let Some(End { below: Below::Flow { phase: FlowPhase::Up { finished }, .. }, .. }) =
            self.ends.get_mut(number)
            && !core::mem::replace(finished, true)
        {
            let _ = endpoint.finish(flow);
        }
    }

    fn flow_gone(&mut self, number: u32) {
        let Some(end) = self.ends.get_mut(number) else { return };
        end.below = Below::Nothing;
        if let Some(qp) = end.qp {
            self.core.stream_gone(qp, false);
        }
        if end.stands {
            self.news.push_back(News::Gone { end: number });
        }
    }

    // ---- the host's answers

    /// Accepts a request for a queue pair that is not connected. `endpoint` is needed where the request came by EFE.
    ///
    /// # Errors
    /// The private data is too long; the request has gone.
    pub fn accept(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        qp: u32,
        depths: (u16, u16),
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        match &mut end.below {
            Below::Stream(stream) => {
                stream.accept(&mut self.core, qp, depths, private_data).map_err(OpenError::PrivateData)?;
            }
            Below::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let (reply, agreed) =
                    responder.accept(private_data, depths.0, depths.1).map_err(OpenError::PrivateData)?;
                endpoint.accept(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                let mpa::Agreed { ird, ord, extensions, .. } = agreed;
                let traits = StreamTraits { ird, ord, extensions, may_send: true };
                self.core.connect(qp, traits).map_err(|_| OpenError::Gone)?;
                *phase = FlowPhase::Accepted;
            }
            Below::Nothing => return Err(OpenError::Gone),
        }
        end.qp = Some(qp);
        end.stands = true;
        self.of_qp.insert(qp, number);
        self.waiting.retain(|&waits| waits != number);
        self.news.push_back(News::Connected { end: number, private_data: Vec::new() });
        self.stir(number);
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// The private data is too long; the request has gone.
    pub fn reject(
        &mut self,
        endpoint: Option<&mut Endpoint>,
        number: u32,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none()).ok_or(OpenError::Gone)?;
        match &mut end.below {
            Below::Stream(stream) => stream.reject(private_data).map_err(OpenError::PrivateData)?,
            Below::Flow { flow, phase } => {
                let (Some(endpoint), FlowPhase::Responding(responder)) = (endpoint, &*phase) else {
                    return Err(OpenError::Gone);
                };
                let reply = responder.reject(private_data).map_err(OpenError::PrivateData)?;
                endpoint.reject(*flow, &reply, now).map_err(|_| OpenError::Gone)?;
                self.of_flow.remove(flow);
                end.below = Below::Nothing;
            }
            Below::Nothing => return Err(OpenError::Gone),
        }
        self.waiting.retain(|&waits| waits != number);
        self.stir(number);
        Ok(())
    }

    /// Forgets an end: nobody asks for it any more. What it still has below is the driver's to end; the queue pair's work is
    /// flushed if it was connected.
    pub fn forget(&mut self, endpoint: Option<&mut Endpoint>, number: u32, now: Instant) {
        let Some(end) = self.ends.remove(number) else { return };
        if let Some(qp) = end.qp
            && self.of_qp.get(&qp) == Some(&number)
        {
            self.of_qp.remove(&qp);
            if !matches!(end.below, Below::Nothing) {
                self.core.stream_gone(qp, false);
            }
        }
        self.waiting.retain(|&waits| waits != number);
        if let Below::Flow { flow, .. } = end.below {
            self.of_flow.remove(&flow);
            if let Some(endpoint) = endpoint {
                let _ = endpoint.abort(flow, now);
            }
        }
    }

    /// Memory is taken back: streams let go of it first, then its steering tag names nothing.
    ///
    /// # Errors
    /// There is no such tag, or windows are bound to it.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, super::rnic::Refusal> {
        let blocks = self.core.deregister(stag)?;
        for (_, end) in self.ends.iter_mut() {
            if let Below::Stream(stream) = &mut end.below {
                blocks.iter().for_each(|block| stream.let_go(block));
            }
        }
        Ok(blocks)
    }

    // ---- time

    /// When something is due.
    pub fn deadline(&self) -> Instant {
        self.alarms.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Does what is due: ends that have not come to stand are given up.
    pub fn advance(&mut self, now: Instant) {
        while let Some(&Reverse((at, number))) = self.alarms.peek()
            && at <= now
        {
            self.alarms.pop();
            let Some(end) = self.ends.get(number) else { continue };
            if !end.stands && end.until <= now {
                self.fail(number, ConnectError::Timeout);
            }
        }
    }
}

/// The shortest segment that an endpoint must take.
const SEGMENT_BYTES_MIN: usize = 128;

/// Why a connection was not begun, or not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The private data is too long.
    PrivateData(mpa::PrivateDataTooLong),
    /// There are too many connections.
    TooMany,
    /// The request was answered, withdrawn or given up.
    Gone,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PrivateData(error) => error.fmt(f),
            OpenError::TooMany => f.write_str("there are too many connections: end some first"),
            OpenError::Gone => f.write_str("the request is answered, withdrawn or given up"),
        }
    }
}

impl core::error::Error for OpenError {}

/// A segment on its way to an endpoint.
struct FlowOut {
    segment: Vec<u8>,
    most: usize,
}

impl ToLlp for FlowOut {
    fn segment_bytes(&self) -> usize {
        self.most
    }

    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        self.segment.extend_from_slice(header);
        payload.append_to(&mut self.segment);
    }
}
