//! Connections over EFE: an endpoint's flows as streams of segments.
//!
//! Setup          the flow's greetings carry MPA's start frames, so depths, extensions and private data are
//!                negotiated as over TCP.
//! Transmit path  a segment is copied into the endpoint's ring, so the host's memory is released at once.
//! Receive path   a segment that is next in order is placed from the link's buffer, any other from the
//!                endpoint's. A segment that waits for a receive stays there and keeps its credit.

use super::connection::{CmEvent, ConnectError, OpenError, Request};
use super::device::Nic;
use super::end::{End, FlowPhase, Transport};
use crate::efe::{self, Endpoint, FlowNumber, Peer};
use crate::iwarp::mpa::{self, Answer, Initiator, Responder};
use crate::rnic::{Payload, SegmentResult, StreamAction, StreamTraits, ToLlp};
use alloc::vec::Vec;
use kiban_base::Instant;

/// Minimum segment length that an endpoint must support.
const SEGMENT_BYTES_MIN: usize = 128;

impl Nic {
    /// Begins a connection over EFE, and returns its end.
    ///
    /// # Errors
    /// The queue pair cannot be connected; the private data is too long; there are too many ends or flows.
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
        self.check_free(qp)?;
        let initiator = Initiator::new(config, ird, ord, private_data).map_err(OpenError::PrivateData)?;
        let flow =
            endpoint.connect(peer, service, initiator.request(), now).map_err(|_| OpenError::TooMany)?;
        let below = Transport::Flow { flow, phase: FlowPhase::Initiating(initiator) };
        let Some(end) = self.add(below, Some(qp), None, now) else {
            // Release the flow again: nothing has been sent yet.
            let _ = endpoint.abort(flow, now);
            return Err(OpenError::TooMany);
        };
        self.of_flow.insert(flow, end);
        Ok(end)
    }

    /// Takes a frame received from `peer`. A segment that is next in order is placed at once.
    pub fn take_frame(&mut self, endpoint: &mut Endpoint, peer: Peer, frame: &[u8], now: Instant) {
        endpoint.arrive_with(peer, frame, now, |flow, segment| {
            let end = self.of_flow.get(&flow).and_then(|&end| self.ends.get(end));
            // Nobody waits for what arrives on a flow that was parted from its end.
            if end.is_none() {
                return true;
            }
            let Some(End {
                below: Transport::Flow { phase: FlowPhase::Up { .. }, .. }, qp: Some(qp), ..
            }) = end
            else {
                return false;
            };
            self.core.take(*qp, segment) != SegmentResult::Dry
        });
    }

    /// Moves segments and events between the core and an endpoint. `config` determines the responses to
    /// connection requests.
    pub fn pump(&mut self, endpoint: &mut Endpoint, config: &mpa::Config, now: Instant) {
        while let Some(event) = endpoint.poll() {
            self.on_flow_event(endpoint, event, config, now);
        }
        // A segment that waited for a receive may request a response, which the code below sends.
        let mut woken = Vec::new();
        while let Some(end) = self.next_resumed() {
            match self.flow_of(end) {
                Some(flow) => self.take_from_flow(endpoint, end, flow, now),
                None => woken.push(end),
            }
        }
        self.resumable = woken;
        let mut later = Vec::new();
        while let Some(end) = self.next_to_serve() {
            if self.flow_of(end).is_some() {
                self.serve_flow(endpoint, end, now);
            } else {
                later.push(end);
            }
        }
        later.into_iter().for_each(|end| self.schedule(end));
    }

    /// Returns the flow of an end.
    pub fn flow_of(&self, end: u32) -> Option<FlowNumber> {
        match self.ends.get(end)?.below {
            Transport::Flow { flow, .. } => Some(flow),
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
            efe::Event::ConnectRequest { flow, service, greeting, .. } => {
                let mut responder = Responder::new(config);
                let request = match responder.take(&greeting) {
                    Ok(Some(request)) => request,
                    // The greeting is not a complete, valid MPA request.
                    Ok(None) | Err(_) => {
                        let _ = endpoint.reject(flow, &[], now);
                        return;
                    }
                };
                self.make_room();
                let below = Transport::Flow { flow, phase: FlowPhase::Responding(responder) };
                let Some(number) = self.add(below, None, Some(service.into()), now) else {
                    let _ = endpoint.reject(flow, &[], now);
                    return;
                };
                self.waiting.ask(number);
                self.of_flow.insert(flow, number);
                let mpa::PeerRequest { private_data, ird, ord, extensions, .. } = request;
                let (listener, depths) = (service.into(), (ird, ord));
                let request = Request { end: number, listener, private_data, depths, extensions };
                self.events.push_back(CmEvent::ConnectRequest(request));
            }
            efe::Event::Connected { flow, greeting } => {
                let Some(&number) = self.of_flow.get(&flow) else { return };
                self.on_flow_connected(endpoint, number, flow, &greeting, now);
            }
            efe::Event::Rejected { flow, greeting, .. } => {
                let Some(number) = self.of_flow.remove(&flow) else { return };
                let Some(End { below: below @ Transport::Flow { .. }, .. }) = self.ends.get_mut(number)
                else {
                    return;
                };
                let was = core::mem::replace(below, Transport::Nothing);
                let error = match was {
                    Transport::Flow { phase: FlowPhase::Initiating(mut initiator), .. } => {
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
            efe::Event::Readable { flow } => match self.of_flow.get(&flow) {
                Some(&end) => self.take_from_flow(endpoint, end, flow, now),
                None => while endpoint.skip(flow, now) {},
            },
            efe::Event::Writable { flow } => {
                if let Some(&end) = self.of_flow.get(&flow) {
                    self.schedule(end);
                }
            }
            efe::Event::Finished { flow } => {
                // The peer has finished sending. Finish our side too; the flow ends once our end has been
                // sent.
                let Some(&number) = self.of_flow.get(&flow) else { return };
                if let Some(qp) = self.qp_of(number) {
                    self.core.on_stream_closed(qp, true);
                }
                self.finish_flow(endpoint, number, flow);
            }
            efe::Event::Ended { flow, why } => {
                let Some(number) = self.of_flow.remove(&flow) else { return };
                let Some(end) = self.ends.get_mut(number) else { return };
                end.below = Transport::Nothing;
                if let Some(qp) = end.qp {
                    self.core.on_stream_closed(qp, why == efe::EndReason::Finished);
                }
                if end.is_established {
                    self.events.push_back(CmEvent::Gone { end: number });
                } else {
                    let error = match why {
                        efe::EndReason::NoAnswer => ConnectError::Timeout,
                        efe::EndReason::Unreachable => ConnectError::Unreachable,
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
        let is_narrow = endpoint.segment_bytes(flow).is_none_or(|most| most < SEGMENT_BYTES_MIN);
        let Some(end) = self.ends.get_mut(number) else { return };
        let Transport::Flow { phase, .. } = &mut end.below else { return };
        match core::mem::replace(phase, FlowPhase::Up { finished: false }) {
            FlowPhase::Initiating(mut initiator) => {
                let error = match initiator.take(greeting) {
                    // The peer's segments are too short for a header.
                    Ok(Answer::Agreed(_)) if is_narrow => ConnectError::Lost,
                    Ok(Answer::Agreed(agreed)) => {
                        let mpa::Agreed { ird, ord, extensions, private_data, .. } = agreed;
                        let traits = StreamTraits { ird, ord, extensions, kiban: extensions, may_send: true };
                        match end.qp.map(|qp| self.core.connect(qp, traits)) {
                            Some(Ok(())) => {
                                end.is_established = true;
                                self.events.push_back(CmEvent::Connected { end: number, private_data });
                                return;
                            }
                            _ => ConnectError::Lost,
                        }
                    }
                    Ok(Answer::Rejected(rejected)) => ConnectError::Rejected(rejected.private_data),
                    Ok(Answer::NeedMore) => ConnectError::Lost,
                    Err(fault) => ConnectError::Fault(fault),
                };
                self.abort_flow(endpoint, number, flow, now);
                self.fail(number, error);
            }
            FlowPhase::Accepted if is_narrow => self.abort_flow(endpoint, number, flow, now),
            // Our accept is confirmed: queued segments may be sent.
            FlowPhase::Accepted => self.schedule(number),
            before => *phase = before,
        }
    }

    /// Takes the segments that an endpoint has received for an end.
    fn take_from_flow(&mut self, endpoint: &mut Endpoint, end: u32, flow: FlowNumber, now: Instant) {
        let Some(qp) = self.qp_of(end) else { return };
        // A segment that waits for a receive stays in the endpoint and keeps its credit, so the peer must
        // wait. After a fault, the remaining segments are taken and dropped.
        while let Some(front) = endpoint.peek(flow)
            && self.core.take(qp, front) != SegmentResult::Dry
        {
            endpoint.skip(flow, now);
        }
    }

    /// Sends an end's segments through an endpoint, as long as there is room.
    fn serve_flow(&mut self, endpoint: &mut Endpoint, number: u32, now: Instant) {
        let Some(flow) = self.flow_of(number) else { return };
        let Some(qp) = self.qp_of(number) else {
            // The queue pair was reset or the connection was given up, so end the flow. An end that waits
            // for the host's answer has no queue pair yet; keep it.
            let failed = self.ends.get(number).is_some_and(|end| end.failed);
            if failed || self.is_established(number) {
                self.abort_flow(endpoint, number, flow, now);
            }
            return;
        };
        let mut all_left = true;
        if let Some(most) = endpoint.segment_bytes(flow) {
            all_left = false;
            while endpoint.room(flow) > 0 {
                if !self.core.next_segment(qp, &mut FlowOut { endpoint, flow, most, now }) {
                    all_left = true;
                    break;
                }
                // The segment was copied, so the host's memory is released.
                self.core.confirm(qp, self.core.segments_made(qp));
            }
            if endpoint.room(flow) == 0 {
                // An event reports when there is room.
                endpoint.want_room(flow);
            }
        }
        match self.core.stream_action(qp) {
            StreamAction::Open => {}
            // Queued segments go first.
            StreamAction::Finish if !all_left => {}
            StreamAction::Finish => self.finish_flow(endpoint, number, flow),
            StreamAction::Abort => self.abort_flow(endpoint, number, flow, now),
        }
    }

    fn finish_flow(&mut self, endpoint: &mut Endpoint, number: u32, flow: FlowNumber) {
        if let Some(End { below: Transport::Flow { phase: FlowPhase::Up { finished }, .. }, .. }) =
            self.ends.get_mut(number)
            && !core::mem::replace(finished, true)
        {
            let _ = endpoint.finish(flow);
        }
    }

    /// Removes an end whose queue pair is gone, but lets its flow deliver the queued segments and then end.
    /// The flow, which is returned, is to be aborted if that takes too long.
    pub fn part_flow(&mut self, endpoint: &mut Endpoint, number: u32, now: Instant) -> Option<FlowNumber> {
        let flow = self.flow_of(number).filter(|_| self.is_established(number))?;
        self.finish_flow(endpoint, number, flow);
        let end = self.ends.get_mut(number)?;
        // A flow whose accept is not confirmed has nothing to deliver.
        if !matches!(end.below, Transport::Flow { phase: FlowPhase::Up { finished: true }, .. }) {
            return None;
        }
        end.below = Transport::Nothing;
        if let Some(qp) = end.qp.filter(|qp| self.of_qp.get(qp) == Some(&number)) {
            self.core.on_stream_closed(qp, false);
        }
        self.of_flow.remove(&flow);
        while endpoint.skip(flow, now) {}
        Some(flow)
    }

    /// Aborts a flow.
    fn abort_flow(&mut self, endpoint: &mut Endpoint, number: u32, flow: FlowNumber, now: Instant) {
        // If the flow has already ended, there is nothing to abort.
        let _ = endpoint.abort(flow, now);
        self.of_flow.remove(&flow);
        let Some(end) = self.ends.get_mut(number) else { return };
        end.below = Transport::Nothing;
        if let Some(qp) = end.qp {
            self.core.on_stream_closed(qp, false);
        }
        if end.is_established {
            self.events.push_back(CmEvent::Gone { end: number });
        }
    }
}

/// Puts segments into an endpoint's ring, which has room for one.
struct FlowOut<'a> {
    endpoint: &'a mut Endpoint,
    flow: FlowNumber,
    most: usize,
    now: Instant,
}

impl ToLlp for FlowOut<'_> {
    fn segment_bytes(&self) -> usize {
        self.most
    }

    fn segment(&mut self, header: &[u8], payload: Payload<'_>) {
        let length = header.len() + payload.len();
        // If the flow is closing, the segment is lost with it.
        let _ = self.endpoint.send_with(self.flow, length, self.now, |room| {
            let (front, rest) = room.split_at_mut(header.len());
            front.copy_from_slice(header);
            payload.copy_to(rest);
        });
    }
}
