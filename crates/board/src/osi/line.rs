//! The lower module of paper \[5\]: a switched call of X.25, over LAPB, on a line to one peer.
//!
//! Goal      transport sees the network service of X.213; who drives sees frames that come and frames that leave.
//! Down      a unit waits until the module has room ([`Below::push`]); there it becomes packets, each of them a frame. Payload is
//!           referred to, never copied.
//! Up        a unit stays in the packet layer until the board takes it ([`Below::poll`]): its last packet is acknowledged
//!           then, so that a board that is slow stops its peer by the window.
//! Begin     a connection that is asked for sets the link up, waits for the restart and then calls; a call that comes in for
//!           transport is told, one that comes while there is a connection is refused.
//! End       a disconnect waits for what was asked to be sent, then clears. The link stays up for the next call.
//! Two       [`Line::receive`] and [`Line::poll_frame`] are the module's work, the rest is its host's: a driver may run them on
//!           two processors.
//! Limits    the packet layer's `outgoing_bytes_max` is the module's memory; what waits before it is bounded by who asks
//!           ([`Below::waiting_bytes`]).
//! Left out  a second circuit at a time, permanent circuits; addresses: the call that is configured has them.

use super::below::Below;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_ground::{Instant, Rope, counters};
use kiban_stack::lapb::{self, Link, Role};
use kiban_stack::osi::network::{Indication, Origin, Reason, Request};
use kiban_stack::osi::transport::TPDU_BYTES_MAX_X25;
use kiban_stack::x25::network::{Network, is_for_transport};
use kiban_stack::x25::{self, Call, Cause, Layer, Sizes};
use kiban_wire::x25::diagnostic;

counters! {
    /// What a line's host saw.
    pub struct LineCounters {
        /// Calls that were refused: not for transport, or a second one.
        calls_refused,
        /// Requests that the packet layer did not take any more.
        requests_lost,
    }
}

/// How a line is to be.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// The link.
    pub link: lapb::Config,
    /// The packet layer.
    pub layer: x25::Config,
    /// What is said when this end calls.
    pub call: Call,
}

impl LineConfig {
    /// As paper \[5\] had it: packets of 2048 octets, windows of 7, 7 frames under way; memory for a window of packets.
    pub fn new(role: Role) -> LineConfig {
        const PACKET_BYTES: u16 = 2048;
        const WINDOW: u8 = 7;
        let layer = x25::Config {
            default: Sizes::same(PACKET_BYTES, WINDOW),
            outgoing_bytes_max: usize::from(PACKET_BYTES) * usize::from(WINDOW),
            ..x25::Config::new(role)
        };
        LineConfig { link: lapb::Config::new(role), layer, call: Call::default() }
    }
}

/// One end of a line, and the one connection that it has.
#[derive(Debug)]
pub struct Line {
    link: Link,
    layer: Layer,
    call: Call,
    /// A connection is asked for, and the packet layer cannot call yet.
    wants_call: bool,
    circuit: Option<(u16, Network)>,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    /// What this end has to say by itself.
    up: VecDeque<Indication>,
    counters: LineCounters,
}

impl Line {
    /// A line whose link is down.
    ///
    /// # Panics
    /// When the module has no room for a single unit.
    pub fn new(config: LineConfig) -> Line {
        assert!(config.layer.outgoing_bytes_max >= TPDU_BYTES_MAX_X25, "no room for a unit");
        Line {
            link: Link::new(config.link),
            layer: Layer::new(config.layer),
            call: config.call,
            wants_call: false,
            circuit: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            up: VecDeque::new(),
            counters: LineCounters::default(),
        }
    }

    /// Sets the link up, though nobody has asked for a connection.
    pub fn start(&mut self) {
        // It is under way, or there, when it is not taken.
        let _ = self.link.request(lapb::Request::Connect);
    }

    /// A frame has come, without flags and FCS.
    pub fn receive(&mut self, frame: Rope, now: Instant) {
        self.link.indicate(frame, now);
        self.carry_up(now);
    }

    /// The next frame for the line, which has room for it now.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Rope> {
        // One packet ahead and no more: its P(R) is then of now.
        while self.link.unsent() == 0 && self.link.room() > 0 {
            let Some(packet) = self.layer.poll_down() else { break };
            if self.link.request(lapb::Request::Data(packet)).is_err() {
                self.counters.requests_lost += 1;
            }
        }
        self.link.poll_down(now)
    }

    /// The link, to look at.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The packet layer, to look at.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// What it counted.
    pub fn counters(&self) -> &LineCounters {
        &self.counters
    }

    fn carry_up(&mut self, now: Instant) {
        while let Some(indication) = self.link.poll_up() {
            let below = match indication {
                lapb::Indication::Connected | lapb::Indication::Reset => x25::Below::Up,
                lapb::Indication::Data(packet) => x25::Below::Data(packet),
                lapb::Indication::Disconnected(_) => x25::Below::Down,
            };
            self.layer.indicate(below, now);
        }
        self.clear_when_quiet(now);
    }

    fn try_call(&mut self, now: Instant) {
        if !self.wants_call {
            return;
        }
        let Some(channel) = self.layer.free_channel() else { return };
        let mut network = Network::calling(channel, self.call.clone());
        let call = network.request(Request::Connect);
        if call.is_some_and(|call| self.layer.request(call, now).is_ok()) {
            self.wants_call = false;
            self.circuit = Some((channel, network));
        }
    }

    /// Whether a connection is there or asked for.
    fn is_taken(&self) -> bool {
        self.wants_call || self.circuit.as_ref().is_some_and(|(_, network)| !network.is_over())
    }

    fn on_incoming(&mut self, channel: u16, call: Call, now: Instant) -> Option<Indication> {
        if self.is_taken() || !is_for_transport(&call) {
            self.counters.calls_refused += 1;
            let cause = Cause { cause: 0, diagnostic: Some(diagnostic::ABNORMAL) };
            let clear = x25::Request::Clear { channel, cause, user_data: Vec::new() };
            self.ask(clear, now);
            return None;
        }
        let mut network = Network::called(channel);
        let told = network.indicate(x25::Indication::Incoming { channel, call });
        self.circuit = Some((channel, network));
        told
    }

    fn ask(&mut self, request: x25::Request, now: Instant) -> bool {
        let taken = self.layer.request(request, now).is_ok();
        self.counters.requests_lost += u64::from(!taken);
        taken
    }

    /// The connection is gone: what waits for it is as well.
    fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn clear_when_quiet(&mut self, now: Instant) {
        if !self.waiting.is_empty() {
            return;
        }
        let Some((channel, network)) = &mut self.circuit else { return };
        if let Some(clear) = network.poll(self.layer.is_quiet(*channel)) {
            self.ask(clear, now);
        }
    }

    /// The oldest request that waits: whether it was taken.
    fn push_one(&mut self, now: Instant) -> bool {
        let Some((channel, network)) = &mut self.circuit else { return false };
        match self.waiting.front() {
            None => return false,
            Some(Request::Data(unit)) if self.layer.room(*channel) < unit.len() => return false,
            Some(_) => {}
        }
        let Some(request) = self.waiting.pop_front() else { return false };
        let bytes = bytes_of(&request);
        self.waiting_bytes -= bytes;
        let is_answer = matches!(request, Request::Accept);
        if let Some(request) = network.request(request)
            && !self.ask(request, now)
            && is_answer
        {
            // The caller has gone, or wants what this end has not: its clear is on the way, or its time will run out.
            let (origin, reason) = (Origin::Provider, Reason::Abnormal);
            self.up.push_back(Indication::Disconnected { origin, reason });
        }
        true
    }
}

impl Below for Line {
    fn request(&mut self, request: Request, now: Instant) {
        if matches!(request, Request::Connect) {
            self.wants_call = true;
            self.start();
            return self.try_call(now);
        }
        if self.wants_call {
            // Nothing but an end can be asked of a call that was not made yet.
            self.wants_call = false;
            return;
        }
        if self.is_taken() {
            self.waiting_bytes += bytes_of(&request);
            self.waiting.push_back(request);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Indication> {
        if let Some(indication) = self.up.pop_front() {
            return Some(indication);
        }
        while let Some(indication) = self.layer.poll_up() {
            let told = match indication {
                x25::Indication::Ready => {
                    self.try_call(now);
                    None
                }
                x25::Indication::Incoming { channel, call } => self.on_incoming(channel, call, now),
                x25::Indication::Down if self.wants_call => {
                    self.wants_call = false;
                    let (origin, reason) = (Origin::Provider, Reason::Unreachable);
                    Some(Indication::Disconnected { origin, reason })
                }
                other => self.circuit.as_mut().and_then(|(_, network)| network.indicate(other)),
            };
            if let Some(Indication::Disconnected { .. }) = told {
                self.forget();
                self.clear_when_quiet(now);
            }
            if told.is_some() {
                return told;
            }
        }
        None
    }

    fn push(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while self.push_one(now) {
            moved = true;
        }
        self.clear_when_quiet(now);
        moved
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn deadline(&self) -> Option<Instant> {
        [self.link.deadline(), self.layer.deadline()].into_iter().flatten().min()
    }

    fn timeout(&mut self, now: Instant) {
        self.link.timeout(now);
        self.layer.timeout(now);
        self.carry_up(now);
    }
}

fn bytes_of(request: &Request) -> usize {
    if let Request::Data(unit) = request { unit.len() } else { 0 }
}
