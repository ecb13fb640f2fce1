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
//! Limits    an end that does not get through its start frames in time is given up; those that have not spoken or been
//!           answered are bounded, and the oldest makes room, of those that have not spoken first.

mod flows;

use super::mpa::{self, Initiator, Responder};
use super::rnic::{Config, QpState, Refusal, Rnic, StreamTraits, StreamWish};
use super::stream::{self, Stream};
use crate::efe::{Endpoint, FlowNumber};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;
use kiban_ground::{Instant, Region, RngKey, SecureRng, Slab};

/// A responder whose reply has arrived may speak so much later, if the initiator has not spoken: a peer that reads the
/// reply and what follows in one go (siw) must not find them together.
pub const HOLD: Duration = Duration::from_millis(1);

/// An initiator that has spoken and heard nothing looks after its peer so much later.
pub const NUDGE: Duration = Duration::from_millis(5);
/// So many times at most, each after twice as long: a third of a second in all.
pub const NUDGES_MAX: u32 = 6;

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

/// Ends that peers began and that do not stand yet, oldest first; some of them may have failed by now.
#[derive(Default, Debug)]
struct Waiting {
    /// They have not spoken.
    silent: VecDeque<u32>,
    /// They wait for the host's answer.
    asked: VecDeque<u32>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.silent.len() + self.asked.len()
    }

    /// An end has asked.
    fn ask(&mut self, end: u32) {
        self.leave(end);
        self.asked.push_back(end);
    }

    fn leave(&mut self, end: u32) {
        for line in [&mut self.silent, &mut self.asked] {
            if let Some(at) = line.iter().position(|&waits| waits == end) {
                line.remove(at);
            }
        }
    }

    /// Who makes room: a crowd that says nothing must not drive out whoever knows how to ask.
    fn oldest(&mut self) -> Option<u32> {
        self.silent.pop_front().or_else(|| self.asked.pop_front())
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
    alarms: BinaryHeap<Reverse<(Instant, u32)>>,
    stirred: VecDeque<u32>,
    news: VecDeque<News>,
    start_timeout: Duration,
    answer_timeout: Duration,
    waiting_max: usize,
    /// Ends over byte streams that go on, found while flows were looked for.
    woken: Vec<u32>,
    /// A segment on its way to an endpoint.
    segment: Vec<u8>,
}

impl Nic {
    /// A NIC, whose keys come from a generator under `key`.
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
            alarms: BinaryHeap::new(),
            stirred: VecDeque::new(),
            news: VecDeque::new(),
            start_timeout,
            answer_timeout,
            waiting_max,
            woken: Vec::new(),
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

    /// A queue pair has one connection at a time, and begins it as new; one for datagrams has none.
    fn check_free(&self, qp: u32) -> Result<(), OpenError> {
        let end = self.end_of(qp).and_then(|end| self.ends.get(end));
        let is_idle = matches!(self.core.query_qp(qp), Ok((_, QpState::Idle, _)));
        let has_streams = self.core.datagram_state(qp) == Err(Refusal::OtherKind);
        match is_idle && has_streams && end.is_none_or(|end| matches!(end.below, Below::Nothing)) {
            true => Ok(()),
            false => Err(OpenError::InUse),
        }
    }

    /// A queue pair is as new again; what is left of its connection goes on without it, to its end.
    ///
    /// # Errors
    /// As [`Rnic::reset`].
    pub fn reset(&mut self, qp: u32) -> Result<(), Refusal> {
        self.core.reset(qp)?;
        if let Some(number) = self.of_qp.remove(&qp)
            && let Some(end) = self.ends.get_mut(number)
        {
            end.qp = None;
            if let Below::Stream(stream) = &mut end.below {
                stream.detach();
            }
            self.stir(number);
        }
        Ok(())
    }

    fn add(&mut self, below: Below, qp: Option<u32>, listener: Option<u32>, now: Instant) -> Option<u32> {
        let until = now + self.start_timeout;
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
        self.check_free(qp)?;
        let stream = Stream::initiate(config, qp, depths, private_data).map_err(OpenError::PrivateData)?;
        let end = self.add(Below::Stream(Box::new(stream)), Some(qp), None, now).ok_or(OpenError::TooMany)?;
        self.stir(end);
        Ok(end)
    }

    /// A byte stream came to a listener: its end. `None`: there are too many.
    pub fn incoming(&mut self, config: &mpa::Config, listener: u32, now: Instant) -> Option<u32> {
        self.make_room();
        let end = self.add(Below::Stream(Box::new(Stream::respond(config))), None, Some(listener), now)?;
        self.waiting.silent.push_back(end);
        Some(end)
    }

    /// The oldest makes room for another.
    fn make_room(&mut self) {
        while self.waiting.len() >= self.waiting_max.max(1) && self.give_up_oldest() {}
    }

    /// Gives up one of those that wait, where something else is scarce: whether there was one.
    pub fn give_up_oldest(&mut self) -> bool {
        while let Some(oldest) = self.waiting.oldest() {
            if self.ends.get(oldest).is_some_and(|end| !end.stands && end.qp.is_none()) {
                self.fail(oldest, ConnectError::Timeout);
                return true;
            }
        }
        false
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
                end.until = now + self.answer_timeout;
                self.waiting.ask(number);
                self.alarms.push(Reverse((end.until, number)));
                let listener = end.listener.unwrap_or(0);
                let asked = Request { end: number, listener, private_data, depths, extensions };
                self.news.push_back(News::Asked(asked));
            }
            stream::News::Connected { private_data } => {
                end.stands = true;
                self.news.push_back(News::Connected { end: number, private_data });
            }
            stream::News::Rejected { private_data } => {
                self.fail(number, ConnectError::Rejected(private_data))
            }
            stream::News::Failed(fault) => self.fail(number, ConnectError::Fault(fault)),
            stream::News::Lost => self.fail(number, ConnectError::Lost),
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
        if let Some(end) = self.woken.pop() {
            return Some(end);
        }
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
        self.check_free(qp)?;
        let end = self.ends.get_mut(number).filter(|end| end.qp.is_none() && !end.stands);
        let end = end.ok_or(OpenError::Gone)?;
        match &mut end.below {
            Below::Stream(stream) => {
                if !stream.is_asked() {
                    return Err(OpenError::Gone);
                }
                let accepted = stream.accept(&mut self.core, qp, depths, private_data);
                if !accepted.map_err(OpenError::PrivateData)? {
                    return Err(OpenError::InUse);
                }
            }
            Below::Flow { flow, phase } => {
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
            Below::Nothing => return Err(OpenError::Gone),
        }
        end.qp = Some(qp);
        end.stands = true;
        self.of_qp.insert(qp, number);
        self.waiting.leave(number);
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
        self.waiting.leave(number);
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
        self.waiting.leave(number);
        if let Below::Flow { flow, .. } = end.below {
            self.of_flow.remove(&flow);
            if let Some(endpoint) = endpoint {
                let _ = endpoint.abort(flow, now);
            }
        }
    }

    /// Memory is taken back: its steering tag names nothing from now on, and streams let go of it.
    ///
    /// # Errors
    /// There is no such tag, or windows are bound to it.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, Refusal> {
        let blocks = self.core.deregister(stag)?;
        Ok(self.let_go_all(blocks))
    }

    /// The same though windows are bound to it: they show nothing any more.
    ///
    /// # Errors
    /// There is no such tag.
    pub fn withdraw(&mut self, stag: u32) -> Result<Vec<Region>, Refusal> {
        let blocks = self.core.withdraw(stag)?;
        Ok(self.let_go_all(blocks))
    }

    fn let_go_all(&mut self, blocks: Vec<Region>) -> Vec<Region> {
        blocks.iter().for_each(|block| self.let_go(block));
        self.let_go_withdrawn();
        blocks
    }

    fn let_go(&mut self, memory: &Region) {
        for (_, end) in self.ends.iter_mut() {
            if let Below::Stream(stream) = &mut end.below {
                stream.let_go(memory);
            }
        }
    }

    /// Streams let go of what was invalidated. A driver calls it after all work, before its host looks.
    #[inline]
    pub fn let_go_withdrawn(&mut self) {
        while let Some(memory) = self.core.withdrawn() {
            self.let_go(&memory);
        }
    }

    /// Whether a connection is on its way to an end in order: what it has to say still leaves.
    pub fn is_ending(&self, number: u32) -> bool {
        let Some(end) = self.ends.get(number) else { return false };
        let closes = end.qp.is_some_and(|qp| matches!(self.core.query_qp(qp), Ok((_, QpState::Closing, _))));
        match &end.below {
            Below::Nothing => false,
            Below::Stream(stream) => closes || stream.wish(&self.core) == StreamWish::Finish,
            Below::Flow { .. } => {
                closes || end.qp.is_some_and(|qp| self.core.stream_wish(qp) == StreamWish::Finish)
            }
        }
    }

    /// Whether an end's queue pair, or its set-up, is over: nothing more is to be said but why.
    pub fn is_over(&self, number: u32) -> bool {
        self.ends.get(number).is_some_and(|end| {
            end.failed
                || end.qp.is_some_and(|qp| {
                    matches!(self.core.query_qp(qp), Ok((_, QpState::Terminate | QpState::Error, _)))
                })
        })
    }

    /// Whether a responder may speak when its reply has arrived, though the initiator has not yet spoken: unless both agreed
    /// on a message that says so (RFC 6581 §9).
    pub fn may_go_first(&mut self, end: u32) -> bool {
        self.stream(end).is_some_and(|(stream, _)| !stream.waits_for_rtr())
    }

    /// Whether a peer that this side connected to, over a byte stream, may be one that sleeps ([`Nic::nudge`]): those that agreed
    /// on RFC 7306 are kiban's, and do not.
    pub fn peer_may_sleep(&self, end: u32) -> bool {
        let Some(end) = self.ends.get(end) else { return false };
        let initiated = end.listener.is_none() && matches!(end.below, Below::Stream(_));
        let traits = end.qp.and_then(|qp| self.core.query_qp(qp).ok()).map(|(.., traits)| traits);
        initiated && traits.is_some_and(|traits| !traits.extensions)
    }

    /// An initiator's peer that may have slept through its first words is woken ([`Stream::nudge`]): whether to look again
    /// later. Call it [`NUDGE`] after the reply, and then after twice as long each time, [`NUDGES_MAX`] times at most.
    pub fn nudge(&mut self, end: u32) -> bool {
        let again = self.stream(end).is_some_and(|(stream, core)| stream.nudge(core));
        if again {
            self.stir(end);
        }
        again
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

/// Why a connection was not begun, or not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The private data is too long.
    PrivateData(mpa::PrivateDataTooLong),
    /// There are too many connections.
    TooMany,
    /// The request was answered, withdrawn or given up.
    Gone,
    /// The queue pair has a connection, or one on the way, or had one and was not reset; or it is for datagrams.
    InUse,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PrivateData(error) => error.fmt(f),
            OpenError::TooMany => f.write_str("there are too many connections: end some first"),
            OpenError::Gone => f.write_str("the request is answered, withdrawn or given up"),
            OpenError::InUse => f.write_str(
                "the queue pair has a connection, or had one: end it and reset the queue pair, or take another",
            ),
        }
    }
}

impl core::error::Error for OpenError {}
