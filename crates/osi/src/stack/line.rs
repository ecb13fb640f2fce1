//! The lower module of paper \[5\] (docs/reproduce-osi-board.md): an X.25 virtual call over LAPB, on a line
//! to one peer.
//!
//! Purpose          the transport layer sees the network service of X.213; the driver sees frames received
//!                  and frames to send.
//! Transmit path    an NSDU waits until the module has room ([`NetworkService::push`]); then it is cut into
//!                  packets, one per frame. Payload is shared, never copied.
//! Receive path     an NSDU stays in the packet layer until the board takes it ([`NetworkService::poll`]).
//!                  Its last packet is not acknowledged before that, so that the window slows down the peer
//!                  of a slow board.
//! Connecting       a connect request sets the link up, waits for the restart and then calls. An incoming
//!                  call for the transport layer is indicated; a second call is refused.
//! Disconnecting    a disconnect waits until all pending data is sent, then clears the call. The link stays
//!                  up for the next call.
//! Two processors   [`Line::arrive`] and [`Line::poll_frame`] belong to the lower module, and the other
//!                  methods to its host. A driver may run the two parts on two processors.
//! Limits           the packet layer's `outgoing_bytes_max` models the module's memory; the caller limits the
//!                  data that waits in front of it ([`NetworkService::waiting_bytes`]).
//! Not implemented  a second circuit at the same time; permanent circuits; addresses other than those in the
//!                  configured call.

use super::below::NetworkService;
use crate::lapb;
use crate::lapb::{Link, Role};
use crate::network::{Indication, Origin, Reason, Request};
use crate::transport::TPDU_BYTES_MAX_X25;
use crate::wire::x25::diagnostic;
use crate::x25;
use crate::x25::network::{Network, is_for_transport};
use crate::x25::{Call, Cause, Interface, Layer, Sizes};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::{Instant, Rope, counters};

counters! {
    /// Counters of a line.
    pub struct LineCounters {
        /// Calls refused because they were not for the transport layer, or there was a call already.
        calls_refused,
        /// Requests that came too late for the packet layer to accept them.
        requests_lost,
    }
}

/// Configuration of a line.
#[derive(Clone, Debug)]
pub struct LineConfig {
    /// Configuration of the link.
    pub link: lapb::Config,
    /// Configuration of the packet layer.
    pub layer: x25::Config,
    /// Parameters of calls made by this end.
    pub call: Call,
}

impl LineConfig {
    /// Returns the configuration used in paper \[5\]: packets of 2048 octets, windows of 7, 7 outstanding
    /// frames, and memory for one window of packets.
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

/// One end of a line, which carries at most one connection.
#[derive(Debug)]
pub struct Line {
    interface: Interface,
    call: Call,
    /// A connection was requested, but the packet layer is not yet ready for a call.
    wants_call: bool,
    circuit: Option<(u16, Network)>,
    waiting: VecDeque<Request>,
    waiting_bytes: usize,
    /// Indications that the line itself generates, not the packet layer.
    up: VecDeque<Indication>,
    counters: LineCounters,
}

impl Line {
    /// Creates a line whose link is down.
    ///
    /// # Panics
    /// If the module does not have room for one unit.
    pub fn new(config: LineConfig) -> Line {
        assert!(config.layer.outgoing_bytes_max >= TPDU_BYTES_MAX_X25, "no room for a unit");
        Line {
            interface: Interface::new(config.link, config.layer),
            call: config.call,
            wants_call: false,
            circuit: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            up: VecDeque::new(),
            counters: LineCounters::default(),
        }
    }

    /// Sets the link up without a connect request.
    pub fn start(&mut self) {
        self.interface.start();
    }

    /// Handles a received frame, without flags and FCS.
    pub fn arrive(&mut self, frame: Rope, now: Instant) {
        self.interface.arrive(frame, now);
        self.clear_when_quiet(now);
    }

    /// Returns the next frame to send; call it when the line has room for one.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Rope> {
        self.interface.poll_frame(now)
    }

    /// Returns the link, for inspection.
    pub fn link(&self) -> &Link {
        self.interface.link().expect("the interface was created with a link")
    }

    /// Returns the packet layer, for inspection.
    pub fn layer(&self) -> &Layer {
        self.interface.layer()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &LineCounters {
        &self.counters
    }

    fn try_call(&mut self, now: Instant) {
        if !self.wants_call {
            return;
        }
        let Some(channel) = self.interface.layer().free_channel() else { return };
        let mut network = Network::calling(channel, self.call.clone());
        let call = network.request(Request::Connect);
        if call.is_some_and(|call| self.interface.layer_mut().request(call, now).is_ok()) {
            self.wants_call = false;
            self.circuit = Some((channel, network));
        }
    }

    /// Returns whether there is a connection, or a request for one.
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
        let told = network.arrive(x25::Indication::Incoming { channel, call });
        self.circuit = Some((channel, network));
        told
    }

    fn ask(&mut self, request: x25::Request, now: Instant) -> bool {
        let taken = self.interface.layer_mut().request(request, now).is_ok();
        self.counters.requests_lost += u64::from(!taken);
        taken
    }

    /// Drops a connection that has ended, and all requests that wait for it.
    fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn clear_when_quiet(&mut self, now: Instant) {
        if !self.waiting.is_empty() {
            return;
        }
        let Some((channel, network)) = &mut self.circuit else { return };
        if let Some(clear) = network.poll(self.interface.layer().is_quiet(*channel)) {
            self.ask(clear, now);
        }
    }

    /// Passes the oldest waiting request on; returns whether it was accepted.
    fn push_one(&mut self, now: Instant) -> bool {
        let Some((channel, network)) = &mut self.circuit else { return false };
        match self.waiting.front() {
            None => return false,
            Some(Request::Data(unit)) if self.interface.layer().room(*channel) < unit.len() => return false,
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
            // The caller has cleared the call in the meantime, or has requested an unsupported facility. The
            // caller's clear or a timeout will end the call.
            let (origin, reason) = (Origin::Provider, Reason::Abnormal);
            self.up.push_back(Indication::Disconnected { origin, reason });
        }
        true
    }
}

impl NetworkService for Line {
    fn request(&mut self, request: Request, now: Instant) {
        if matches!(request, Request::Connect) {
            self.wants_call = true;
            self.start();
            return self.try_call(now);
        }
        if self.wants_call {
            // Until the call is made, only a disconnect is possible.
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
        while let Some(indication) = self.interface.layer_mut().poll_up() {
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
                other => self.circuit.as_mut().and_then(|(_, network)| network.arrive(other)),
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

    fn deadline(&self) -> Instant {
        self.interface.deadline()
    }

    fn settle(&mut self, now: Instant) {
        self.interface.settle(now);
        self.clear_when_quiet(now);
    }
}

fn bytes_of(request: &Request) -> usize {
    if let Request::Data(unit) = request { unit.len() } else { 0 }
}
