//! An endpoint: dispatches frames and calls to flows, and schedules the flows.

use super::config::Config;
use super::counters::EfeCounters;
use super::drain_epochs::DrainEpochs;
use super::flow::{Context, Flow, Stage};
use super::host::{EndReason, Event, FlowNumber, Padding, Peer, RequestError, Train, TrainLimits};
use super::path::Paths;
use super::transmit::{TrainPlace, seal};
use crate::wire::efe::{
    self as wire, CHECK_BYTES, GREETING_BYTES_MAX, HEADER_BYTES, Header, Kind, SEGMENT_BYTES_MAX,
    SETUP_FIXED_BYTES, flag,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use kiban_base::{Instant, RngKey, SecureRng, Slab, TimerWheel};

/// Limits of a link that sends frames one by one.
const ONE_FRAME: TrainLimits =
    TrainLimits { frames: 1, bytes: usize::MAX, waits_for: 0, padding: Padding::Never };

/// Identifies a request: the peer, and its flow number and key.
type Asker = (Peer, u32, u32);

/// One end of the transport: many flows to many peers.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) config: Config,
    pub(super) flows: Slab<Flow>,
    pub(super) flow_of_request: BTreeMap<Asker, u32>,
    pub(super) paths: Paths,
    pub(super) half_open: usize,
    pub(super) services: Vec<u16>,
    pub(super) events: VecDeque<Event>,
    pub(super) control_frames: VecDeque<(Peer, [u8; HEADER_BYTES])>,
    /// The TX queue, which lists the flows that may have something to send, each at most once; and the
    /// flows whose acknowledgement is pending.
    ready: VecDeque<u32>,
    pending_acks: Vec<u32>,
    timers: TimerWheel,
    drain_epochs: DrainEpochs,
    pub(super) counters: EfeCounters,
    pub(super) rng: SecureRng,
}

/// Borrows what all flows of an endpoint share, for one call.
macro_rules! context {
    ($endpoint:expr) => {
        Context {
            config: &$endpoint.config,
            counters: &mut $endpoint.counters,
            events: &mut $endpoint.events,
            drain_epochs: &mut $endpoint.drain_epochs,
            rng: &mut $endpoint.rng,
        }
    };
}

impl Endpoint {
    /// Creates an endpoint. `key` seeds the random number generator for flow keys and sequence numbers.
    pub fn new(config: Config, key: RngKey) -> Endpoint {
        let config = config.bounded();
        let mut rng = SecureRng::new(key);
        Endpoint {
            flows: Slab::new(config.flows_max, rng.draw_u32()),
            flow_of_request: BTreeMap::new(),
            paths: Paths::new(config.flows_max, rng.draw_u32()),
            half_open: 0,
            services: Vec::new(),
            events: VecDeque::new(),
            control_frames: VecDeque::new(),
            ready: VecDeque::new(),
            pending_acks: Vec::new(),
            timers: TimerWheel::new(),
            drain_epochs: DrainEpochs::new(),
            counters: EfeCounters::default(),
            rng,
            config,
        }
    }

    /// Returns the settings in effect, clamped to their limits.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &EfeCounters {
        &self.counters
    }

    /// Returns the number of flows, including those being set up and those lingering.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the maximum frame length in bytes: the buffer that `fetch` needs.
    pub fn frame_bytes_max(&self) -> usize {
        let set_up = SETUP_FIXED_BYTES + GREETING_BYTES_MAX;
        HEADER_BYTES + set_up.max(SEGMENT_BYTES_MAX) + CHECK_BYTES
    }

    // ---- life cycle of a flow

    /// Starts listening: requests for `service` are reported to the host.
    pub fn listen(&mut self, service: u16) {
        if !self.services.contains(&service) {
            self.services.push(service);
        }
    }

    /// Returns whether requests for `service` are reported.
    pub fn listens(&self, service: u16) -> bool {
        self.services.contains(&service)
    }

    /// Stops listening for all services: requests are rejected.
    pub fn unlisten_all(&mut self) {
        self.services.clear();
    }

    /// Returns the peers of all flows, including those being set up and those lingering.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.flows.iter().map(|(_, flow)| flow.peer)
    }

    /// Stops listening: requests for `service` are rejected.
    pub fn unlisten(&mut self, service: u16) {
        self.services.retain(|known| *known != service);
    }

    /// Finishes sending: after all queued segments, the peer is notified that no more will follow. The peer
    /// may continue to send; the flow ends once both sides have finished.
    ///
    /// # Errors
    /// `UnknownFlow`, `NotConnected`, `Finished`.
    pub fn finish(&mut self, flow: FlowNumber) -> Result<(), RequestError> {
        let open = Self::open_flow(&mut self.flows, flow)?;
        if open.is_finishing {
            return Err(RequestError::Finished);
        }
        open.finish();
        self.schedule(flow);
        Ok(())
    }

    /// Aborts a flow in any state: the peer is notified, queued data is lost, and no event follows.
    ///
    /// # Errors
    /// `UnknownFlow`.
    pub fn abort(&mut self, flow: FlowNumber, now: Instant) -> Result<(), RequestError> {
        let aborted = self.flows.get_mut(flow).ok_or(RequestError::UnknownFlow)?;
        match aborted.stage {
            Stage::Lingering { .. } => return Err(RequestError::UnknownFlow),
            // The peer does not know our flow number yet. Its reply will match no flow, and we will answer
            // it with an abort.
            Stage::Connecting { .. } => self.forget(flow),
            Stage::RequestReceived { .. } | Stage::Refused { .. } => return self.reject(flow, &[], now),
            Stage::Open | Stage::Accepted { .. } => self.linger(flow, true, now),
        }
        Ok(())
    }

    /// Returns the oldest pending event.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- segments

    fn open_flow(flows: &mut Slab<Flow>, flow: FlowNumber) -> Result<&mut Flow, RequestError> {
        let flow = flows.get_mut(flow).ok_or(RequestError::UnknownFlow)?;
        match flow.stage {
            Stage::Open => Ok(flow),
            Stage::Lingering { .. } => Err(RequestError::UnknownFlow),
            _ => Err(RequestError::NotConnected),
        }
    }

    /// Returns the maximum segment length of a connected flow, in bytes.
    pub fn segment_bytes(&self, flow: FlowNumber) -> Option<usize> {
        self.flows.get(flow).filter(|flow| flow.halves.is_some()).map(|flow| flow.segment_bytes)
    }

    /// Returns the peer of a flow.
    pub fn peer(&self, flow: FlowNumber) -> Option<Peer> {
        self.flows.get(flow).map(|flow| flow.peer)
    }

    /// Returns the number of segments that `send` can accept now.
    pub fn room(&self, flow: FlowNumber) -> usize {
        match self.flows.get(flow) {
            Some(Flow { stage: Stage::Open, halves: Some(halves), is_finishing: false, .. }) => {
                halves.sender.room()
            }
            _ => 0,
        }
    }

    /// Returns the number of queued segments that are not acknowledged. The end of the flow counts as one.
    pub fn unacknowledged(&self, flow: FlowNumber) -> usize {
        let halves = self.flows.get(flow).and_then(|flow| flow.halves.as_ref());
        halves.map_or(0, |halves| halves.sender.unacknowledged())
    }

    /// Returns the flow's congestion window in frames, and its minimum RTT in nanoseconds.
    pub fn window(&self, flow: FlowNumber) -> Option<(f64, Option<u64>)> {
        let halves = self.flows.get(flow)?.halves.as_ref()?;
        Some((halves.sender.congestion.window(), halves.sender.congestion.base()))
    }

    /// Returns the number of received segments that wait for the host.
    pub fn readable(&self, flow: FlowNumber) -> usize {
        let halves = self.flows.get(flow).and_then(|flow| flow.halves.as_ref());
        halves.map_or(0, |halves| halves.receiver.readable())
    }

    /// Queues a copy of a segment, which is retransmitted until it is acknowledged.
    ///
    /// # Errors
    /// `UnknownFlow`, `NotConnected`, `Finished`, `TooLong`; or `Full`, after which an event reports when
    /// there is room.
    #[inline]
    pub fn send(&mut self, flow: FlowNumber, segment: &[u8], now: Instant) -> Result<(), RequestError> {
        self.send_with(flow, segment.len(), now, |room| room.copy_from_slice(segment))
    }

    /// Like [`Endpoint::send`], but `fill` writes the segment in place, into `length` bytes with arbitrary
    /// values.
    ///
    /// # Errors
    /// As for `send`. On error, `fill` is not called.
    #[inline]
    pub fn send_with(
        &mut self,
        flow: FlowNumber,
        length: usize,
        now: Instant,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), RequestError> {
        let open = Self::open_flow(&mut self.flows, flow)?;
        if open.is_finishing {
            return Err(RequestError::Finished);
        }
        if length > open.segment_bytes {
            return Err(RequestError::TooLong);
        }
        let sender = &mut open.halves.as_mut().expect("an open flow has both halves").sender;
        if sender.room() == 0 {
            open.wants_room = true;
            return Err(RequestError::Full);
        }
        fill(sender.push(length, false));
        open.on_pushed(&self.config, now);
        self.counters.segments_out += 1;
        self.schedule(flow);
        Ok(())
    }

    /// Requests [`Event::Writable`] for when there is room again.
    pub fn want_room(&mut self, flow: FlowNumber) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.wants_room = true;
        }
    }

    /// Returns the next segment without taking it.
    pub fn peek(&self, flow: FlowNumber) -> Option<&[u8]> {
        self.flows.get(flow)?.halves.as_ref()?.receiver.peek()
    }

    /// Moves the next segment into `out` and reuses the old buffer of `out`. Returns whether there was a
    /// segment. Taking a segment grants the peer new credit.
    #[inline]
    pub fn receive(&mut self, flow: FlowNumber, out: &mut Vec<u8>, now: Instant) -> bool {
        self.take(flow, Some(out), now)
    }

    /// Discards the next segment, which the host has processed through `peek`. Returns whether there was one.
    #[inline]
    pub fn skip(&mut self, flow: FlowNumber, now: Instant) -> bool {
        self.take(flow, None, now)
    }

    #[inline]
    fn take(&mut self, flow: FlowNumber, out: Option<&mut Vec<u8>>, now: Instant) -> bool {
        let Some(open) = self.flows.get_mut(flow) else { return false };
        let taken = open.pop(out, &mut context!(self), now);
        if taken {
            if open.is_done() {
                self.end(flow, EndReason::Finished, now);
            } else {
                self.after(flow);
            }
        }
        taken
    }

    // ---- the link

    /// Takes a frame received from `peer`.
    pub fn arrive(&mut self, peer: Peer, frame: &[u8], now: Instant) {
        self.arrive_with(peer, frame, now, |_, _| false);
    }

    /// Like [`Endpoint::arrive`], but offers a segment to `take` if it is the next one for the host.
    /// If `take` returns false, the segment waits for [`Endpoint::receive`].
    #[inline]
    pub fn arrive_with(
        &mut self,
        peer: Peer,
        frame: &[u8],
        now: Instant,
        mut take: impl FnMut(FlowNumber, &[u8]) -> bool,
    ) {
        self.counters.frames_in += 1;
        let Ok((header, _)) = Header::read(frame) else {
            self.counters.malformed += 1;
            return;
        };
        if (self.config.checks(peer) || header.has(flag::CHECKED)) && wire::verify(&header, frame).is_err() {
            self.counters.malformed += 1;
            return;
        }
        let payload = header.payload(frame);
        if header.kind == Kind::Ask {
            return self.on_request(peer, &header, payload, now);
        }
        let Some(flow) = self.flows.get_mut(header.flow) else {
            self.counters.no_flow += 1;
            if header.kind == Kind::Accept {
                self.refuse_answer(peer, payload);
            }
            return;
        };
        if flow.peer != peer || flow.key != header.key {
            self.counters.wrong_sender += 1;
            return;
        }
        flow.path_load = self.paths.load(flow.path);
        let was_half_open = flow.is_half_open();
        let mut take = |segment: &[u8]| take(header.flow, segment);
        let over = flow.on_frame(&header, payload, Some(&mut take), &mut context!(self), now);
        if let Some(trip) = flow.short_trip.take() {
            self.paths.on_short_trip(flow.path, trip);
        }
        if was_half_open && !flow.is_half_open() {
            self.half_open -= 1;
        }
        match over {
            Some(why) => self.end(header.flow, why, now),
            None => self.after(header.flow),
        }
    }

    /// Writes the next frame for the link into `room`. Returns the peer to send it to, and its length.
    /// Control frames that belong to no flow are sent first; after them, flows take turns.
    ///
    /// # Panics
    /// If `room` is shorter than [`Endpoint::frame_bytes_max`].
    #[inline]
    pub fn fetch(&mut self, room: &mut [u8], now: Instant) -> Option<(Peer, usize)> {
        let (peer, number, place) = self.next_frames(room, &ONE_FRAME, now)?;
        if let Some(frame) = self.in_slots(number, &place) {
            room[..place.bytes].copy_from_slice(frame);
        }
        Some((peer, place.bytes))
    }

    /// Returns the next frames for the link, all to one peer, in the endpoint's memory or in `room`. Frames
    /// are sent in the same order as by [`Endpoint::fetch`].
    ///
    /// # Panics
    /// If `room` is shorter than [`Endpoint::frame_bytes_max`].
    pub fn fetch_train<'a>(
        &'a mut self,
        room: &'a mut [u8],
        limits: &TrainLimits,
        now: Instant,
    ) -> Option<Train<'a>> {
        let (peer, number, place) = self.next_frames(room, limits, now)?;
        let bytes = match self.in_slots(number, &place) {
            Some(frames) => frames,
            None => &room[..place.bytes],
        };
        Some(Train { peer, bytes, each: place.each })
    }

    /// Makes the next frames, all to one peer. Returns the peer, the flow, and the place of the frames.
    #[inline]
    fn next_frames(
        &mut self,
        room: &mut [u8],
        limits: &TrainLimits,
        now: Instant,
    ) -> Option<(Peer, u32, TrainPlace)> {
        assert!(room.len() >= self.frame_bytes_max(), "the link lends room for the longest frame");
        if let Some((peer, letter)) = self.control_frames.pop_front() {
            room[..HEADER_BYTES].copy_from_slice(&letter);
            self.counters.frames_out += 1;
            return Some((peer, 0, TrainPlace::single(seal(room, HEADER_BYTES, self.config.checks(peer)))));
        }
        let (number, place) = self.next_ready(|flow, cx| flow.emit_train(room, limits, cx, now))?;
        self.counters.frames_out += place.frames as u64;
        Some((self.flows.get(number).expect("it has just sent").peer, number, place))
    }

    /// Returns the frames of a flow that are in its slots.
    #[inline]
    fn in_slots(&self, number: u32, place: &TrainPlace) -> Option<&[u8]> {
        let halves = self.flows.get(number)?.halves.as_ref()?;
        Some(&halves.sender.train(place.first?, place.frames)[..place.bytes])
    }

    /// Calls `emit` on the flows of the TX queue until one has something to send.
    #[inline]
    fn next_ready<T>(
        &mut self,
        mut emit: impl FnMut(&mut Flow, &mut Context<'_>) -> Option<T>,
    ) -> Option<(u32, T)> {
        while let Some(number) = self.ready.pop_front() {
            let Some(flow) = self.flows.get_mut(number) else { continue };
            flow.path_load = self.paths.load(flow.path);
            let emitted = emit(flow, &mut context!(self));
            let path = flow.path;
            if core::mem::take(&mut flow.is_blocked) && !core::mem::replace(&mut flow.in_path_queue, true) {
                self.paths.block(path, number);
            }
            if emitted.is_some() {
                self.ready.push_back(number);
            } else {
                flow.is_queued = false;
            }
            self.set_alarm(number);
            match emitted {
                Some(emitted) => return Some((number, emitted)),
                // The flow may have been woken for room that it does not use.
                None => self.unblock(path),
            }
        }
        None
    }

    // ---- time

    /// Returns the next deadline. It may be early, never late.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.timers.next_deadline()
    }

    /// Fires due timers and releases pending acknowledgements. Call it after the host has had the
    /// opportunity to send data that carries them.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        while let Some((moment, number)) = self.timers.pop_expired(now) {
            self.on_timer(moment, number, now);
        }
        while let Some(number) = self.pending_acks.pop() {
            let Some(flow) = self.flows.get_mut(number) else { continue };
            flow.in_ack_list = false;
            if flow.ack_pending() {
                flow.may_send_ack = true;
                self.schedule(number);
            }
        }
    }

    fn on_timer(&mut self, moment: Instant, number: u32, now: Instant) {
        let Some(flow) = self.flows.get_mut(number) else { return };
        if !flow.timer.take_if_current(moment) {
            return;
        }
        if now < flow.deadline() {
            return self.set_alarm(number);
        }
        match flow.on_time(&mut context!(self), now) {
            Some(why) => self.end(number, why, now),
            None => self.after(number),
        }
    }

    // ---- closing flows

    /// Ends a flow and reports it to the host, unless the host already knows.
    pub(super) fn end(&mut self, number: u32, why: EndReason, now: Instant) {
        match why {
            EndReason::Rejected | EndReason::Forgotten => return self.forget(number),
            EndReason::Finished
            | EndReason::PeerAborted
            | EndReason::PeerTimeout
            | EndReason::NoAnswer
            | EndReason::Unreachable => {}
        }
        self.counters.peers_lost += u64::from(why == EndReason::PeerTimeout);
        self.events.push_back(Event::Ended { flow: number, why });
        if why == EndReason::Finished {
            self.linger(number, false, now);
        } else {
            self.forget(number);
        }
    }

    /// Keeps an ended flow for a while, to answer a peer that missed the end.
    pub(super) fn linger(&mut self, number: u32, aborts: bool, now: Instant) {
        let flow = self.flows.get_mut(number).expect("the caller has looked");
        self.half_open -= usize::from(flow.is_half_open());
        flow.linger(aborts, &self.config, now);
        self.schedule(number);
    }

    pub(super) fn forget(&mut self, number: u32) {
        let Some(flow) = self.flows.remove(number) else { return };
        self.paths.update(flow.path, flow.counted, (0, 0.0));
        self.unblock(flow.path);
        self.paths.leave(flow.path);
        self.half_open -= usize::from(flow.is_half_open());
        let request = (flow.peer, flow.peer_flow, flow.peer_key);
        if self.flow_of_request.get(&request) == Some(&number) {
            self.flow_of_request.remove(&request);
        }
    }

    // ---- scheduling

    /// Reschedules a flow after a change such as pending data, a pending acknowledgement or a new deadline.
    #[inline]
    fn after(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number) else { return };
        if flow.ack_pending() && !flow.in_ack_list {
            flow.in_ack_list = true;
            self.pending_acks.push(number);
        }
        self.schedule(number);
    }

    /// Appends a flow to the TX queue, unless it is already there.
    #[inline]
    pub(super) fn schedule(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number) else { return };
        if !flow.is_queued {
            flow.is_queued = true;
            self.ready.push_back(number);
        }
        self.set_alarm(number);
    }

    /// Sets a flow's timer, and brings the load of its path up to date.
    #[inline]
    pub(super) fn set_alarm(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number) else { return };
        let deadline = flow.deadline();
        if deadline != Instant::NEVER {
            self.timers.set(&mut flow.timer, number, deadline);
        }
        let (load, path) = (flow.load(), flow.path);
        let before = core::mem::replace(&mut flow.counted, load);
        if before != load {
            self.paths.update(path, before, load);
            self.unblock(path);
        }
    }

    /// If a path has room, puts the next flow that has waited for it into the TX queue. Once it has sent, or
    /// sends nothing, the one after it follows.
    #[inline]
    fn unblock(&mut self, path: u32) {
        while let Some(number) = self.paths.next_unblocked(path) {
            let Some(flow) = self.flows.get_mut(number) else { continue };
            flow.in_path_queue = false;
            if !core::mem::replace(&mut flow.is_queued, true) {
                self.ready.push_back(number);
            }
            return;
        }
    }

    /// Inserts a flow, and adds it to its path.
    pub(super) fn insert(&mut self, flow: Flow) -> Option<u32> {
        let peer = flow.peer;
        let number = self.flows.insert(flow)?;
        let flow = self.flows.get_mut(number).expect("just inserted");
        flow.path = self.paths.join(peer).expect("there are no more paths than flows");
        flow.number = number;
        Some(number)
    }

    /// Draws a random key and a random initial sequence number.
    pub(super) fn draw_key(&mut self) -> (u32, u32) {
        (self.rng.draw_u32(), self.rng.draw_u32())
    }
}
