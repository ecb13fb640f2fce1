//! Connection requests of an endpoint, its own and those of peers.
//!
//! Half open  a peer's request occupies one of `asked_max` slots until the host has answered and the peer has
//!            confirmed the answer.
//! Refusals   a request for a service that nobody offers is answered without a flow.

use super::endpoint::Endpoint;
use super::flow::{Flow, Stage};
use super::host::{EndReason, Event, FlowNumber, Peer, RequestError};
use super::transmit::control_frame;
use crate::wire::efe::{GREETING_BYTES_MAX, HEADER_BYTES, Header, Kind, Quoted, Setup, reason};
use kiban_base::{Instant, Slab};

/// Maximum number of queued replies to peers without a flow; more are dropped.
const LETTERS_MAX: usize = 64;

impl Endpoint {
    /// Requests a service from `peer`. Returns the number of the new flow.
    ///
    /// # Errors
    /// `Greeting`, `TooMany`.
    pub fn connect(
        &mut self,
        peer: Peer,
        service: u16,
        greeting: &[u8],
        now: Instant,
    ) -> Result<FlowNumber, RequestError> {
        if greeting.len() > GREETING_BYTES_MAX {
            return Err(RequestError::Greeting);
        }
        let (key, initial) = self.draw_key();
        let stage = Stage::Connecting { greeting: greeting.to_vec() };
        let mut flow = Flow::new(peer, stage, service, key, initial);
        flow.start_control_frames(&self.config, &mut self.rng, now);
        let number = self.insert(flow).ok_or(RequestError::TooMany)?;
        self.schedule(number);
        Ok(number)
    }

    /// Accepts a peer's request.
    ///
    /// # Errors
    /// `UnknownFlow`, `NotRequested`, `Greeting`.
    pub fn accept(&mut self, flow: FlowNumber, greeting: &[u8], now: Instant) -> Result<(), RequestError> {
        let until = now + self.config.asked_for;
        let requested_flow = Self::requested_flow(&mut self.flows, flow, greeting)?;
        requested_flow.path_load = self.paths.load(requested_flow.path);
        requested_flow.make_halves(&self.config);
        requested_flow.stage = Stage::Accepted { greeting: greeting.to_vec(), until };
        requested_flow.start_control_frames(&self.config, &mut self.rng, now);
        self.schedule(flow);
        Ok(())
    }

    /// Rejects a peer's request.
    ///
    /// # Errors
    /// `UnknownFlow`, `NotRequested`, `Greeting`.
    pub fn reject(&mut self, flow: FlowNumber, greeting: &[u8], now: Instant) -> Result<(), RequestError> {
        let until = now + self.config.linger;
        let requested_flow = Self::requested_flow(&mut self.flows, flow, greeting)?;
        requested_flow.stage = Stage::Refused { greeting: greeting.to_vec(), until };
        requested_flow.control_frame_due = true;
        self.schedule(flow);
        Ok(())
    }

    fn requested_flow<'a>(
        flows: &'a mut Slab<Flow>,
        flow: FlowNumber,
        greeting: &[u8],
    ) -> Result<&'a mut Flow, RequestError> {
        if greeting.len() > GREETING_BYTES_MAX {
            return Err(RequestError::Greeting);
        }
        let flow = flows.get_mut(flow).ok_or(RequestError::UnknownFlow)?;
        if matches!(flow.stage, Stage::RequestReceived { .. }) {
            Ok(flow)
        } else {
            Err(RequestError::NotRequested)
        }
    }

    pub(super) fn on_request(&mut self, peer: Peer, header: &Header, payload: &[u8], now: Instant) {
        let Ok((setup, _)) = Setup::read(payload) else {
            self.counters.malformed += 1;
            return;
        };
        let request = (peer, setup.flow, setup.key);
        if let Some(&number) = self.flow_of_request.get(&request) {
            // The peer has repeated its request because our answer was lost or the host has not decided
            // yet.
            let flow = self.flows.get_mut(number).expect("askers are those of flows");
            if matches!(flow.stage, Stage::Accepted { .. } | Stage::Refused { .. }) {
                flow.control_frame_due = true;
                self.schedule(number);
            }
            return;
        }
        if !self.services.contains(&setup.service) || setup.segment_bytes == 0 {
            let refusal = control_frame(Kind::Reject, setup.flow, setup.key, reason::NO_SERVICE);
            return self.post(peer, refusal);
        }
        // Do not let events accumulate for a host that does not poll them.
        if self.half_open >= self.config.asked_max || self.events.len() >= self.config.flows_max {
            self.counters.requests_dropped += 1;
            return;
        }
        let (key, initial) = self.draw_key();
        let stage = Stage::RequestReceived { until: now + self.config.asked_for };
        let mut flow = Flow::new(peer, stage, setup.service, key, initial);
        flow.learn(header, &setup, &self.config);
        let Some(number) = self.insert(flow) else {
            self.counters.requests_dropped += 1;
            return;
        };
        self.half_open += 1;
        self.flow_of_request.insert(request, number);
        let (service, greeting) = (setup.service, setup.greeting.to_vec());
        self.events.push_back(Event::ConnectRequest { flow: number, peer, service, greeting });
        self.set_alarm(number);
    }

    /// Handles the report that no endpoint receives at the address of `peer` (ICMP port unreachable), which
    /// quotes the beginning of a frame. Anyone can forge a report, so a flow ends only if the frame carries
    /// the keys of that flow.
    pub fn on_unreachable(&mut self, peer: Peer, frame: &[u8], now: Instant) {
        let Ok(quoted) = Quoted::read(frame) else { return };
        let is_meant = |flow: &Flow| {
            flow.peer == peer
                && match quoted {
                    Quoted::Ask { key } => flow.key == key && matches!(flow.stage, Stage::Connecting { .. }),
                    Quoted::Other { flow: number, key } => {
                        (flow.peer_flow, flow.peer_key) == (number, key) && matches!(flow.stage, Stage::Open)
                    }
                }
        };
        let found = self.flows.iter().find(|(_, flow)| is_meant(flow)).map(|(number, _)| number);
        if let Some(number) = found {
            self.end(number, EndReason::Unreachable, now);
        }
    }

    /// Aborts a flow that the peer accepted after we had given it up; otherwise the peer would keep
    /// waiting.
    pub(super) fn refuse_answer(&mut self, peer: Peer, payload: &[u8]) {
        if let Ok((setup, _)) = Setup::read(payload) {
            self.post(peer, control_frame(Kind::Abort, setup.flow, setup.key, reason::NO_FLOW));
        }
    }

    fn post(&mut self, peer: Peer, letter: [u8; HEADER_BYTES]) {
        if self.control_frames.len() < LETTERS_MAX {
            self.control_frames.push_back((peer, letter));
        }
    }
}
