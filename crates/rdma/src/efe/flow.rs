//! A flow: its states, its frames in both directions, and its timers.
//!
//! ```text
//!                  connect                       a new request
//!   asking ──────────────────┐             ┌────────────── asked ── reject ──▶ refused
//!      │ Accept              ▼             ▼                 │ accept
//!      └─────────────────▶ open ◀── any frame with our key ── accepted
//!                            │ both ends acknowledged, or abort
//!                            ▼
//!                          over (answers for a while, then is removed)
//! ```
//!
//! Control   the control frames that set up and end a flow are built from the flow's state, and retransmitted
//!           until they are answered.
//! Probes    a peer that is silent for `probe_after` is probed; a peer that has granted no more credit is
//!           probed sooner.

use super::config::{Config, window_of};
use super::counters::EfeCounters;
use super::host::{EndReason, Event, Peer};
use super::path::PathLoad;
use super::receive::{Direct, Receiver};
use super::send::{Impossible, Sender};
use crate::wire::efe::{self as wire, Header, Kind, SACK_MAP_BYTES, Setup, flag, reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, SecureRng, Timer};

/// Maximum number of times that the timer retransmits an accept. A real initiator repeats its request,
/// which triggers another accept; a forged request must not cause more traffic than this.
const ACCEPTS_MAX: u32 = 4;

/// The state of a flow.
#[derive(Debug)]
pub(super) enum Stage {
    /// We have sent a request.
    Connecting { greeting: Vec<u8> },
    /// The peer's request waits for our host's answer.
    RequestReceived { until: Instant },
    /// Our host has accepted the request; the peer may not know it yet.
    Accepted { greeting: Vec<u8>, until: Instant },
    /// Our host has rejected the request; the peer may not know it yet.
    Refused { greeting: Vec<u8>, until: Instant },
    /// Connected.
    Open,
    /// The flow has ended and is kept for a while: a peer that missed the end receives `answer`.
    Lingering { until: Instant, answer: Header },
}

/// Both directions of an accepted flow.
#[derive(Debug)]
pub(super) struct Halves {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
}

/// The state that the flows of an endpoint share, for one call.
pub(super) struct Context<'a> {
    pub(super) config: &'a Config,
    pub(super) counters: &'a mut EfeCounters,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) drain_epochs: &'a mut super::drain_epochs::DrainEpochs,
    pub(super) rng: &'a mut SecureRng,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) number: u32,
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    pub(super) service: u16,
    pub(super) segment_bytes: usize,
    /// The key that frames to us must carry, and our initial sequence number.
    pub(super) key: u32,
    pub(super) initial: u32,
    /// The peer's flow number, key, initial sequence number and credit.
    pub(super) peer_flow: u32,
    pub(super) peer_key: u32,
    pub(super) peer_initial: u32,
    pub(super) peer_credit: u8,
    /// The number of the path to the peer, what the path carried when the flow was called, this flow's part
    /// of it, whether the flow has to wait for room on it, and whether it is in the path's queue.
    pub(super) path: u32,
    pub(super) path_load: PathLoad,
    pub(super) counted: (u32, f64),
    pub(super) is_blocked: bool,
    pub(super) in_path_queue: bool,
    /// The round trip of the connection request, until the path knows it.
    pub(super) short_trip: Option<Duration>,
    pub(super) halves: Option<Halves>,

    /// Whether the control frame for this state is to be sent now, and the time at which it is
    /// retransmitted.
    pub(super) control_frame_due: bool,
    control_frame_at: Instant,
    control_frames_sent: u32,
    /// When the control frame was sent first.
    control_frame_since: Instant,
    /// Whether the host has finished sending, and whether the end of the flow still waits for a slot.
    pub(super) is_finishing: bool,
    end_waits: bool,
    told_finished: bool,
    told_readable: bool,
    pub(super) wants_room: bool,
    /// The drain flag of the peer's latest frames.
    pub(super) peer_drain_flag: bool,

    /// The number of unanswered probes, the time at which the next is due, and whether that one is for
    /// credit.
    probes: u32,
    probe_at: Instant,
    probes_credit: bool,
    /// The number of credit probes since the receiver last granted credit, and whether a probe is to be sent
    /// now.
    credit_probes: u32,
    pub(super) probe_now: bool,
    /// The time at which the congestion window allows the next frame.
    pub(super) pace_at: Instant,

    pub(super) timer: Timer,
    /// Whether the flow is in the TX queue, whether it is in the list of pending acknowledgements, and
    /// whether it may send an acknowledgement without a segment.
    pub(super) is_queued: bool,
    pub(super) in_ack_list: bool,
    pub(super) may_send_ack: bool,
}

impl Flow {
    pub(super) fn new(peer: Peer, stage: Stage, service: u16, key: u32, initial: u32) -> Flow {
        Flow {
            number: 0,
            peer,
            stage,
            service,
            segment_bytes: 0,
            key,
            initial,
            peer_flow: 0,
            peer_key: 0,
            peer_initial: 0,
            peer_credit: 0,
            path: 0,
            path_load: PathLoad::default(),
            counted: (0, 0.0),
            is_blocked: false,
            in_path_queue: false,
            short_trip: None,
            halves: None,
            control_frame_due: false,
            control_frame_at: Instant::NEVER,
            control_frames_sent: 0,
            control_frame_since: Instant::ZERO,
            is_finishing: false,
            end_waits: false,
            told_finished: false,
            told_readable: false,
            wants_room: false,
            peer_drain_flag: false,
            probes: 0,
            probe_at: Instant::NEVER,
            probes_credit: false,
            credit_probes: 0,
            probe_now: false,
            pace_at: Instant::NEVER,
            timer: Timer::default(),
            is_queued: false,
            in_ack_list: false,
            may_send_ack: false,
        }
    }

    /// Returns whether this is an incoming request that the peer has not confirmed yet, whether unanswered,
    /// accepted or rejected.
    pub(super) fn is_half_open(&self) -> bool {
        matches!(self.stage, Stage::RequestReceived { .. } | Stage::Accepted { .. } | Stage::Refused { .. })
    }

    /// Adopts the values in the peer's setup frame.
    pub(super) fn learn(&mut self, header: &Header, setup: &Setup<'_>, config: &Config) {
        (self.peer_flow, self.peer_key) = (setup.flow, setup.key);
        (self.peer_initial, self.peer_credit) = (header.sequence, header.credit);
        self.segment_bytes = config.segment_bytes_to(self.peer).min(usize::from(setup.segment_bytes));
        self.peer_drain_flag = header.has(flag::DRAIN);
    }

    /// Creates the sender and the receiver, once the peer's values are known.
    pub(super) fn make_halves(&mut self, config: &Config) {
        // At setup, the credit is the peer's window.
        let window = window_of(config.window_frames.min(self.peer_credit.into()));
        let flows = self.path_load.flows;
        let (checks, is_local) = (config.checks(self.peer), self.peer.is_local());
        let mut sender = Sender::new(self.initial, window, self.segment_bytes, flows, checks, is_local);
        sender.allow(self.peer_credit);
        self.halves = Some(Halves { sender, receiver: Receiver::new(self.peer_initial, window) });
    }

    /// Sends the control frame of a new state, and starts its retransmission.
    pub(super) fn start_control_frames(&mut self, config: &Config, rng: &mut SecureRng, now: Instant) {
        (self.control_frame_due, self.control_frames_sent) = (true, 0);
        self.control_frame_at = now + shortened(config.resend_after, rng);
        self.control_frame_since = now;
    }

    /// Enters the connected state.
    pub(super) fn open(&mut self, greeting: Vec<u8>, cx: &mut Context<'_>, now: Instant) {
        self.stage = Stage::Open;
        (self.control_frame_due, self.control_frame_at) = (false, Instant::NEVER);
        // An answer to a retransmitted control frame shows no round trip (Karn's algorithm).
        if self.control_frames_sent == 0 {
            self.short_trip = Some(now.since(self.control_frame_since));
        }
        if let Some(trip) = self.short_trip.into_iter().chain(self.path_load.short_trip).min() {
            let sender = &mut self.halves.as_mut().expect("they were made").sender;
            sender.predict(trip, cx.config, now);
        }
        self.on_peer_heard(cx.config, now);
        cx.counters.connected += 1;
        cx.events.push_back(Event::Connected { flow: self.number, greeting });
    }

    /// Records that a frame from the peer has arrived, and restarts the probe timer.
    fn on_peer_heard(&mut self, config: &Config, now: Instant) {
        self.probes = 0;
        self.probes_credit = false;
        self.probe_at = if config.probe_after.is_zero() { Instant::NEVER } else { now + config.probe_after };
    }

    /// Returns the next deadline, which is never late.
    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        match &self.stage {
            Stage::Connecting { .. } => self.control_frame_at,
            Stage::RequestReceived { until }
            | Stage::Refused { until, .. }
            | Stage::Lingering { until, .. } => *until,
            Stage::Accepted { until, .. } => self.control_frame_at.min(*until),
            Stage::Open => {
                let halves = self.halves.as_ref().expect("an open flow has both halves");
                let own = halves.sender.rto_deadline.min(halves.receiver.ack_at);
                own.min(self.probe_at).min(self.pace_at)
            }
        }
    }

    /// Returns the flow's part of its path's load: frames in flight, and the window.
    #[inline]
    pub(super) fn load(&self) -> (u32, f64) {
        let sender = self.halves.as_ref().map(|halves| &halves.sender);
        sender.map_or((0, 0.0), |sender| (sender.in_flight(), sender.congestion.window()))
    }

    // ---- receive path

    /// Handles a frame that carries our flow number and key. If the flow has ended, returns the reason.
    pub(super) fn on_frame(
        &mut self,
        header: &Header,
        payload: &[u8],
        direct: Direct<'_>,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<EndReason> {
        if header.kind == Kind::Abort {
            return match self.stage {
                Stage::Open | Stage::Connecting { .. } | Stage::Accepted { .. } => {
                    Some(EndReason::PeerAborted)
                }
                _ => None,
            };
        }
        match &mut self.stage {
            Stage::Connecting { .. } => self.on_answer(header, payload, cx, now),
            Stage::Accepted { .. } if header.kind.is_sequenced() || header.kind == Kind::Ack => {
                self.open(Vec::new(), cx, now);
                self.on_traffic(header, payload, None, cx, now)
            }
            Stage::Open if header.kind.is_sequenced() || header.kind == Kind::Ack => {
                self.on_traffic(header, payload, direct, cx, now)
            }
            Stage::Open if header.kind == Kind::Accept => {
                // The accept was repeated: our first acknowledgement was lost.
                self.halves.as_mut().expect("an open flow has both halves").receiver.ack_now = true;
                None
            }
            Stage::Lingering { .. } => {
                self.control_frame_due |= header.kind.is_sequenced() || header.has(flag::ACK_REQUEST);
                None
            }
            _ => {
                cx.counters.unexpected += 1;
                None
            }
        }
    }

    fn on_answer(
        &mut self,
        header: &Header,
        payload: &[u8],
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<EndReason> {
        match header.kind {
            Kind::Reject => {
                let event = Event::Rejected {
                    flow: self.number,
                    reason: header.sequence,
                    greeting: payload.to_vec(),
                };
                cx.events.push_back(event);
                Some(EndReason::Rejected)
            }
            Kind::Accept if header.acknowledged == self.initial => {
                let Ok((setup, _)) = Setup::read(payload) else {
                    cx.counters.malformed += 1;
                    return None;
                };
                self.learn(header, &setup, cx.config);
                self.make_halves(cx.config);
                self.open(setup.greeting.to_vec(), cx, now);
                self.halves.as_mut().expect("just made").receiver.ack_now = true;
                None
            }
            _ => {
                cx.counters.unexpected += 1;
                None
            }
        }
    }

    fn on_traffic(
        &mut self,
        header: &Header,
        payload: &[u8],
        direct: Direct<'_>,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<EndReason> {
        let Context { config, counters, drain_epochs, rng, .. } = cx;
        let Halves { sender, receiver } = self.halves.as_mut().expect("traffic is of open flows");
        if payload.len() > self.segment_bytes && header.kind == Kind::Data {
            counters.malformed += 1;
            return None;
        }
        let map = if header.kind == Kind::Ack { wire::read_sack_map(payload) } else { 0 };
        let has_room = match sender.on_acknowledgement(header, map, config, counters, now) {
            Ok(has_room) => has_room,
            Err(Impossible) => {
                counters.acks_invalid += 1;
                return None;
            }
        };
        if header.has(flag::DRAIN) != self.peer_drain_flag {
            self.peer_drain_flag = !self.peer_drain_flag;
            counters.pause_requests += 1;
            sender.on_drain_epoch(rng.unit(), config, now);
        }
        let is_new = header.kind.is_sequenced() && {
            let is_end = header.kind == Kind::End;
            receiver.on_frame(header, payload, is_end, direct, config, counters, now)
        };
        if is_new {
            counters.segments_in += u64::from(header.kind == Kind::Data);
            drain_epochs.on_busy(&mut receiver.drain_epoch, config, now);
        } else if header.kind == Kind::Ack && header.has(flag::ACK_REQUEST) {
            receiver.ack_now = true;
        }
        self.on_peer_heard(config, now);
        if has_room {
            self.on_room(cx);
        }
        self.look_for_credit(cx.config, now);
        self.report(cx);
        self.is_done().then_some(EndReason::Finished)
    }

    /// Queues a waiting end of the flow in a free slot, or else reports to the host that there is room.
    fn on_room(&mut self, cx: &mut Context<'_>) {
        let sender = &mut self.halves.as_mut().expect("an open flow").sender;
        if self.end_waits {
            self.end_waits = false;
            sender.push(0, true);
        } else if core::mem::take(&mut self.wants_room) && !self.is_finishing {
            cx.events.push_back(Event::Writable { flow: self.number });
        }
    }

    /// Reports received data and the peer's end to the host.
    fn report(&mut self, cx: &mut Context<'_>) {
        let receiver = &self.halves.as_ref().expect("an open flow").receiver;
        if receiver.readable() > 0 && !self.told_readable {
            self.told_readable = true;
            cx.events.push_back(Event::Readable { flow: self.number });
        }
        if receiver.is_finished && !self.told_finished {
            self.told_finished = true;
            cx.events.push_back(Event::Finished { flow: self.number });
        }
    }

    /// Returns whether both directions are finished and acknowledged.
    pub(super) fn is_done(&self) -> bool {
        let Some(Halves { sender, receiver }) = &self.halves else { return false };
        self.is_finishing && !self.end_waits && sender.is_empty() && receiver.is_finished
    }

    /// Schedules the next probe sooner while the receiver grants no credit.
    fn look_for_credit(&mut self, config: &Config, now: Instant) {
        let sender = &self.halves.as_ref().expect("an open flow").sender;
        if !sender.waits_for_credit() {
            self.credit_probes = 0;
        } else if !self.probes_credit {
            self.probes_credit = true;
            self.probe_at = self.probe_at.min(now + sender.credit_probe_interval(self.credit_probes, config));
        }
    }

    // ---- the host

    /// Takes the next segment. Once all have been taken, the next segment to arrive raises a new event.
    pub(super) fn pop(&mut self, out: Option<&mut Vec<u8>>, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(halves) = &mut self.halves else { return false };
        let popped = halves.receiver.pop(out, cx.config, now);
        if halves.receiver.readable() == 0 {
            self.told_readable = false;
        }
        if popped && matches!(self.stage, Stage::Open) {
            self.report(cx);
        }
        popped
    }

    pub(super) fn finish(&mut self) {
        let sender = &mut self.halves.as_mut().expect("an open flow").sender;
        if !core::mem::replace(&mut self.is_finishing, true) {
            if sender.room() > 0 {
                sender.push(0, true);
            } else {
                self.end_waits = true;
            }
        }
    }

    /// Ends the flow, keeping only the answer for peers that missed the end.
    pub(super) fn linger(&mut self, aborts: bool, config: &Config, now: Instant) {
        let mut answer = self.header(if aborts { Kind::Abort } else { Kind::Ack });
        if aborts {
            answer.sequence = reason::HOST;
        } else if let Some(Halves { sender, receiver }) = &mut self.halves {
            answer.sequence = sender.next();
            answer.payload_bytes = SACK_MAP_BYTES as u16;
            receiver.fill_ack(&mut answer, now);
        }
        self.halves = None;
        self.control_frame_due = true;
        self.stage = Stage::Lingering { until: now + config.linger, answer };
    }

    // ---- time

    /// Fires due timers. If the flow has ended, returns the reason.
    pub(super) fn on_time(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<EndReason> {
        let config = cx.config;
        match &self.stage {
            Stage::RequestReceived { until }
            | Stage::Refused { until, .. }
            | Stage::Lingering { until, .. } => {
                return (now >= *until).then_some(EndReason::Forgotten);
            }
            Stage::Accepted { until, .. } if now >= *until => return Some(EndReason::NoAnswer),
            Stage::Connecting { .. } | Stage::Accepted { .. } => {
                if now >= self.control_frame_at {
                    self.control_frames_sent += 1;
                    if self.control_frames_sent > config.resends_max {
                        return Some(EndReason::NoAnswer);
                    }
                    cx.counters.retransmits += 1;
                    self.control_frame_due = true;
                    if self.control_frames_sent >= ACCEPTS_MAX && matches!(self.stage, Stage::Accepted { .. })
                    {
                        self.control_frame_at = Instant::NEVER;
                        return None;
                    }
                    let patience = config.resend_after.saturating_mul(1 << self.control_frames_sent.min(16));
                    let patience = patience.min(config.resend_after_max.max(config.resend_after));
                    self.control_frame_at = now + shortened(patience, cx.rng);
                }
                return None;
            }
            Stage::Open => {}
        }
        let Halves { sender, receiver } = self.halves.as_mut().expect("an open flow has both halves");
        if sender.on_time(config, cx.counters, now) {
            return Some(EndReason::PeerTimeout);
        }
        receiver.on_time(now);
        if now >= self.pace_at {
            self.pace_at = Instant::NEVER;
        }
        if now >= self.probe_at {
            // While frames are in flight, the retransmission timer replaces the probe timer.
            let (probes, waits) = (self.probes, sender.in_flight() > 0);
            self.probes += u32::from(!waits);
            if probes >= if self.probes_credit { config.resends_max } else { config.probes_max } {
                return Some(EndReason::PeerTimeout);
            }
            self.probe_now = !waits;
            cx.counters.probes += u64::from(!waits);
            self.credit_probes += u32::from(self.probes_credit);
            let often = config.probe_after / 4;
            self.probe_at = now
                + if self.probes_credit {
                    sender.credit_probe_interval(self.credit_probes, config)
                } else {
                    often.max(config.resend_after_min)
                };
        }
        None
    }

    /// Returns whether an acknowledgement is pending.
    pub(super) fn ack_pending(&self) -> bool {
        self.halves.as_ref().is_some_and(|halves| halves.receiver.ack_now)
    }

    /// Updates the probe timer after the host queued segments.
    pub(super) fn on_pushed(&mut self, config: &Config, now: Instant) {
        self.look_for_credit(config, now);
    }
}

/// Shortens a time by up to a half at random.
fn shortened(time: Duration, rng: &mut SecureRng) -> Duration {
    time.mul_f64(1.0 - rng.unit() / 2.0)
}
