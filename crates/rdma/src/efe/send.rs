//! The sending half of a flow: segments that are queued, in flight, or lost.
//!
//! Slots    a ring of slots, one for each frame of the window. A segment's sequence number determines the
//!          slot that holds it from `send` until it is acknowledged.
//! Frames   the slots' memory is one array. Each has room for a whole frame: the header is written in front
//!          of the segment whenever it is sent, so full frames in neighbouring slots form a train that one
//!          system call can send without a copy.
//! Loss     every time a frame is sent it gets a new number, its *transmission*. A frame is considered lost
//!          once `reorder_frames` frames sent after it have arrived. This also works for retransmitted
//!          frames, because the receiver echoes the number of the transmission that arrived (like QUIC's
//!          packet numbers, RFC 9002 §2).
//! Timer    the retransmission timer covers the last frames of a burst. At the first timeout the oldest
//!          frame is retransmitted, as a probe; at the second, every frame not known to have arrived is
//!          retransmitted, and the window restarts.
//! Credit   frames are sent up to the limit that the receiver has granted. If the limit is reached and
//!          nothing is in flight, the receiver is probed from time to time, because the frame that raised
//!          the limit may have been lost.

use super::config::Config;
use super::congestion::{Congestion, Gate};
use super::counters::EfeCounters;
use super::path::PathLoad;
use crate::wire::efe::{CHECK_BYTES, HEADER_BYTES, HELD_LONG, HELD_NANOS, Header, TRANSMISSIONS, flag};
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not in flight. A slot outside `base..tail` is free.
    Waiting,
    InFlight,
    Lost,
    /// The receiver has it.
    Acked,
}

#[derive(Debug)]
struct Slot {
    bytes: usize,
    is_end: bool,
    state: State,
    /// The number of its latest transmission.
    transmission: u32,
    left: Instant,
    is_retransmitted: bool,
}

/// The next frame to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Frame(u32),
    At(Instant),
    Nothing,
    /// Other flows to the peer use the path.
    Blocked,
}

/// An acknowledgement covers something never sent, or grants more credit than possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Impossible;

#[derive(Debug)]
pub(super) struct Sender {
    slots: Vec<Slot>,
    /// The frames of all slots, each in `stride` bytes; empty until the first segment is queued.
    frames: Vec<u8>,
    stride: usize,
    /// The oldest unacknowledged sequence number, the first that was never sent, and the one that the next
    /// queued segment will get.
    snd_una: u32,
    snd_nxt: u32,
    tail: u32,
    /// The end of the credit: the first sequence number for which the receiver has no room.
    limit: u32,
    in_flight: u32,
    lost: u32,
    /// The number of the next transmission, and the latest one known to have arrived.
    transmission: u32,
    delivered: u32,
    /// The current round ends when this transmission is known to have arrived.
    round_end: u32,
    /// The time at which the last frame was sent, and the time at which the retransmission timer expires.
    left: Instant,
    pub(super) rto_deadline: Instant,
    /// Consecutive timeouts without progress.
    pub(super) timeouts: u32,
    srtt: Duration,
    rttvar: Duration,
    pub(super) congestion: Congestion,
}

/// Returns whether `a` is before `b`.
#[inline]
pub(super) const fn precedes(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Returns how many transmissions `b` is after `a`; negative if it is before.
#[inline]
const fn transmissions_between(a: u32, b: u32) -> i32 {
    ((b.wrapping_sub(a) << 8) as i32) >> 8
}

impl Sender {
    /// Creates the sending half of one of `flows` flows on a path, with a window of `window_frames`, a power
    /// of two, and segments of at most `segment_bytes`. `checks` says whether its frames carry
    /// a CRC, `is_local` whether the peer is on this host.
    pub(super) fn new(
        initial: u32,
        window_frames: u32,
        segment_bytes: usize,
        flows: u32,
        checks: bool,
        is_local: bool,
    ) -> Sender {
        let slot = || Slot {
            bytes: 0,
            is_end: false,
            state: State::Waiting,
            transmission: 0,
            left: Instant::ZERO,
            is_retransmitted: false,
        };
        Sender {
            slots: (0..window_frames).map(|_| slot()).collect(),
            frames: Vec::new(),
            stride: HEADER_BYTES + segment_bytes + if checks { CHECK_BYTES } else { 0 },
            snd_una: initial,
            snd_nxt: initial,
            tail: initial,
            limit: initial,
            in_flight: 0,
            lost: 0,
            transmission: 1,
            delivered: 0,
            round_end: 0,
            left: Instant::ZERO,
            rto_deadline: Instant::NEVER,
            timeouts: 0,
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            congestion: match is_local {
                true => Congestion::local(window_frames),
                false => Congestion::new(window_frames, flows),
            },
        }
    }

    #[inline]
    fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    /// Returns the number of free slots.
    pub(super) fn room(&self) -> usize {
        self.slots.len() - self.tail.wrapping_sub(self.snd_una) as usize
    }

    /// Returns whether everything queued has been acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.tail == self.snd_una
    }

    /// Returns the number of segments that are queued and not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        self.tail.wrapping_sub(self.snd_una) as usize
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the next sequence number that was never sent.
    pub(super) fn next(&self) -> u32 {
        self.snd_nxt
    }

    /// Adds a slot for a segment, or for the end of the flow, and returns its `length` bytes, which have
    /// arbitrary values.
    ///
    /// # Panics
    /// If there is no free slot.
    #[inline]
    pub(super) fn push(&mut self, length: usize, is_end: bool) -> &mut [u8] {
        assert!(self.room() > 0, "the caller looks for room first");
        if self.frames.is_empty() {
            self.frames.resize(self.slots.len() * self.stride, 0);
        }
        let index = self.index(self.tail);
        let slot = &mut self.slots[index];
        slot.bytes = length;
        (slot.is_end, slot.state, slot.is_retransmitted) = (is_end, State::Waiting, false);
        self.tail = self.tail.wrapping_add(1);
        &mut self.frames[index * self.stride + HEADER_BYTES..][..length]
    }

    /// Returns the retransmission timeout (RFC 6298 §2) plus the receiver's ACK delay, doubled after each
    /// timeout.
    fn rto(&self, config: &Config) -> Duration {
        let once = if self.srtt.is_zero() {
            config.resend_after
        } else {
            let measured = self.srtt + (self.rttvar * 4).max(self.srtt);
            (measured + config.ack_after * 2).max(config.resend_after_min)
        };
        once.saturating_mul(1 << self.timeouts.min(16)).min(config.resend_after_max)
    }

    /// Returns whether to wait for further segments, so that they form a longer train
    /// ([`TrainLimits::waits_for`](super::TrainLimits::waits_for)).
    #[inline]
    pub(super) fn awaits_train(&self, frames: usize) -> bool {
        let frames = frames.min(self.slots.len() / 4);
        let waiting = self.tail.wrapping_sub(self.snd_nxt) as usize;
        waiting < frames && self.in_flight as usize >= frames && self.lost == 0 && self.room() == 0
    }

    /// Returns what to send next, if the window allows it.
    #[inline]
    pub(super) fn next_to_send(&mut self, path: &PathLoad, now: Instant) -> Next {
        let may_be_new = self.snd_nxt != self.tail && precedes(self.snd_nxt, self.limit);
        if self.lost == 0 && !may_be_new {
            return Next::Nothing;
        }
        match self.congestion.gate(self.in_flight, self.left, path, now) {
            Gate::Open => {}
            Gate::At(at) => return Next::At(at),
            Gate::Shut => return Next::Nothing,
            Gate::Blocked => return Next::Blocked,
        }
        if self.lost > 0 {
            let mut sequence = self.snd_una;
            while sequence != self.snd_nxt {
                if self.slots[self.index(sequence)].state == State::Lost {
                    return Next::Frame(sequence);
                }
                sequence = sequence.wrapping_add(1);
            }
        }
        Next::Frame(self.snd_nxt)
    }

    /// Returns the memory of a frame, and its length without the CRC.
    pub(super) fn frame(&mut self, sequence: u32) -> (&mut [u8], usize) {
        let index = self.index(sequence);
        let length = HEADER_BYTES + self.slots[index].bytes;
        (&mut self.frames[index * self.stride..][..self.stride], length)
    }

    /// Returns the memory of `count` frames from `sequence` on, which are in neighbouring slots.
    pub(super) fn train(&self, sequence: u32, count: usize) -> &[u8] {
        &self.frames[self.index(sequence) * self.stride..][..count * self.stride]
    }

    /// Returns how many bytes of memory a frame has.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns whether the slot after this one's is next to it in memory.
    pub(super) fn is_followed(&self, sequence: u32) -> bool {
        self.index(sequence) + 1 < self.slots.len()
    }

    /// Records that `sequence` is sent. Returns whether it is the end of the flow, its transmission number,
    /// and whether to request an immediate acknowledgement because no later frame would trigger one.
    pub(super) fn transmit(
        &mut self,
        sequence: u32,
        config: &Config,
        counters: &mut EfeCounters,
        now: Instant,
    ) -> (bool, u32, bool) {
        let transmission = self.transmission;
        self.transmission = (transmission + 1) % TRANSMISSIONS;
        let index = self.index(sequence);
        let slot = &mut self.slots[index];
        if slot.state == State::Lost {
            self.lost -= 1;
            slot.is_retransmitted = true;
            counters.retransmits += 1;
        } else {
            self.snd_nxt = sequence.wrapping_add(1);
        }
        (slot.state, slot.transmission, slot.left) = (State::InFlight, transmission, now);
        self.in_flight += 1;
        self.left = now;
        if self.rto_deadline == Instant::NEVER {
            self.rto_deadline = now + self.rto(config);
        }
        let nothing_follows = self.lost == 0 && (self.snd_nxt == self.tail || self.snd_nxt == self.limit);
        let asks = nothing_follows || self.congestion.window() < 4.0;
        (self.slots[index].is_end, transmission, asks)
    }

    /// Processes the acknowledgement fields of a frame: everything before `acknowledged` has arrived, `map`
    /// shows which later frames have arrived, and the credit sets a new limit. Returns whether slots were
    /// freed.
    ///
    /// # Errors
    /// The frame acknowledges something never sent, or grants more credit than possible. In that case,
    /// nothing has changed.
    #[inline]
    pub(super) fn on_acknowledgement(
        &mut self,
        header: &Header,
        map: u128,
        config: &Config,
        counters: &mut EfeCounters,
        now: Instant,
    ) -> Result<bool, Impossible> {
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        let advance = header.acknowledged.wrapping_sub(self.snd_una);
        if advance > outstanding {
            // The acknowledgement is old and was reordered, or it covers a sequence number that was never
            // sent.
            return if (advance as i32) < 0 && advance.wrapping_neg() <= 1 << 16 {
                Ok(false)
            } else {
                Err(Impossible)
            };
        }
        // Bit n of the map is `acknowledged` + 1 + n, which has to be before `next`.
        let mappable = (outstanding - advance).saturating_sub(1);
        let impossible = if mappable >= u128::BITS { 0 } else { u128::MAX << mappable };
        if map & impossible != 0 || usize::from(header.credit) > self.slots.len() {
            return Err(Impossible);
        }
        let limit = header.acknowledged.wrapping_add(u32::from(header.credit));
        if precedes(self.limit, limit) {
            self.limit = limit;
        }
        let echo = if header.has(flag::ECHO) { Some(header.echo) } else { None };
        let mut progress = false;
        while self.snd_una != header.acknowledged {
            progress |= self.take(self.snd_una, echo, header.held, config, now);
            let index = self.index(self.snd_una);
            self.slots[index].state = State::Waiting;
            self.snd_una = self.snd_una.wrapping_add(1);
        }
        let mut rest = map;
        while rest != 0 {
            let sequence = header.acknowledged.wrapping_add(1 + rest.trailing_zeros());
            progress |= self.take(sequence, echo, header.held, config, now);
            rest &= rest - 1;
        }
        if progress {
            self.timeouts = 0;
            self.rto_deadline =
                if self.snd_una == self.snd_nxt { Instant::NEVER } else { now + self.rto(config) };
            if map != 0 || self.is_overtaken() {
                self.find_lost(config, counters);
            }
            if transmissions_between(self.round_end, self.delivered) >= 0 {
                self.round_end = self.transmission;
                self.congestion.on_round(config, now);
            }
        }
        Ok(advance > 0)
    }

    /// Marks a frame as arrived. Returns whether this was not known before.
    #[inline]
    fn take(&mut self, sequence: u32, echo: Option<u32>, held: u16, config: &Config, now: Instant) -> bool {
        let index = self.index(sequence);
        let slot = &mut self.slots[index];
        match slot.state {
            State::InFlight => self.in_flight -= 1,
            State::Lost => self.lost -= 1,
            State::Acked | State::Waiting => return false,
        }
        slot.state = State::Acked;
        let (transmission, is_echoed) = (slot.transmission, echo == Some(slot.transmission));
        if is_echoed && held != HELD_LONG {
            let held = Duration::from_nanos(u64::from(held) * HELD_NANOS);
            let trip = now.since(slot.left + held);
            let bytes = slot.bytes;
            self.congestion.on_sample(trip.as_nanos() as u64, bytes, config, now);
            self.on_rtt_sample(trip);
        }
        // For a retransmitted frame, only the echo shows which transmission arrived.
        if (is_echoed || !self.slots[index].is_retransmitted)
            && transmissions_between(self.delivered, transmission) > 0
        {
            self.delivered = transmission;
        }
        true
    }

    /// Predicts round trips from the time that the connection request took. A full queue may delay the first
    /// frames.
    pub(super) fn predict(&mut self, short_trip: Duration, config: &Config, now: Instant) {
        self.congestion.predict(short_trip.as_nanos() as u64, config, now);
        let variation = (config.queue_delay_max / 2).min(config.resend_after / 4);
        (self.srtt, self.rttvar) = (short_trip.max(Duration::from_nanos(1)), variation.max(short_trip / 2));
    }

    /// Updates the smoothed RTT and its variation (RFC 6298 §2).
    fn on_rtt_sample(&mut self, trip: Duration) {
        if self.srtt.is_zero() {
            (self.srtt, self.rttvar) = (trip.max(Duration::from_nanos(1)), trip / 2);
        } else {
            self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(trip)) / 4;
            self.srtt = (self.srtt * 7 + trip) / 8;
        }
    }

    /// Returns whether a frame sent after the oldest one in flight has arrived.
    fn is_overtaken(&self) -> bool {
        let slot = &self.slots[self.index(self.snd_una)];
        slot.state == State::InFlight && transmissions_between(slot.transmission, self.delivered) > 0
    }

    fn find_lost(&mut self, config: &Config, counters: &mut EfeCounters) {
        let mut sequence = self.snd_una;
        let before = self.lost;
        while sequence != self.snd_nxt {
            let (index, delivered) = (self.index(sequence), self.delivered);
            let slot = &mut self.slots[index];
            if slot.state == State::InFlight
                && transmissions_between(slot.transmission, delivered) >= config.reorder_frames as i32
            {
                slot.state = State::Lost;
                self.in_flight -= 1;
                self.lost += 1;
            }
            sequence = sequence.wrapping_add(1);
        }
        if self.lost > before {
            counters.lost += u64::from(self.lost - before);
            self.congestion.on_loss(config);
        }
    }

    /// Handles the retransmission timer. Returns whether to give up the flow.
    pub(super) fn on_time(&mut self, config: &Config, counters: &mut EfeCounters, now: Instant) -> bool {
        if now < self.rto_deadline {
            return false;
        }
        self.timeouts += 1;
        counters.timeouts += 1;
        if self.timeouts > config.resends_max {
            return true;
        }
        let mut sequence = self.snd_una;
        while sequence != self.snd_nxt {
            let index = self.index(sequence);
            if self.slots[index].state == State::InFlight {
                self.slots[index].state = State::Lost;
                self.in_flight -= 1;
                self.lost += 1;
                if self.timeouts == 1 {
                    break;
                }
            }
            sequence = sequence.wrapping_add(1);
        }
        if self.timeouts > 1 {
            self.congestion.on_timeout();
        }
        self.round_end = self.transmission;
        self.rto_deadline = now + self.rto(config);
        false
    }

    /// Returns whether the sender is stuck without credit: everything sent has been acknowledged, more is
    /// queued, and the receiver has granted no credit.
    pub(super) fn waits_for_credit(&self) -> bool {
        self.snd_una == self.snd_nxt && self.snd_nxt != self.tail && !precedes(self.snd_nxt, self.limit)
    }

    /// Returns how long to wait before the next credit probe.
    pub(super) fn credit_probe_interval(&self, probes: u32, config: &Config) -> Duration {
        let once = (self.srtt * 4).max(config.resend_after_min);
        once.saturating_mul(1 << probes.min(16)).min(config.resend_after_max)
    }

    /// Handles the receiver's request to pause.
    pub(super) fn on_drain_epoch(&mut self, spread: f64, config: &Config, now: Instant) {
        self.congestion.on_drain_epoch(spread, config, now);
    }

    /// Returns a transmission number for a frame that has no sequence number.
    pub(super) fn stamp(&self) -> u32 {
        self.transmission % TRANSMISSIONS
    }

    /// Sets the credit that the peer granted at setup.
    pub(super) fn allow(&mut self, credit: u8) {
        self.limit = self.snd_una.wrapping_add(u32::from(credit).min(self.slots.len() as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::super::receive::Receiver;
    use super::*;
    use crate::wire::efe::Kind;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    fn ack() -> Header {
        Header {
            kind: Kind::Ack,
            flags: 0,
            credit: 0,
            payload_bytes: 8,
            flow: 0,
            key: 0,
            sequence: 0,
            acknowledged: 0,
            transmission: 0,
            echo: 0,
            held: 0,
        }
    }

    fn sender(initial: u32, config: &Config) -> Sender {
        Sender::new(initial, 64, config.segment_bytes, 1, config.checked, false)
    }

    /// Runs a sender and a receiver over a path that loses every `lose_every`-th frame.
    fn transfer(initial: u32, transmission: u32, segments: u32, lose_every: u64) -> (Vec<u32>, EfeCounters) {
        let (config, mut counters) = (Config::default(), EfeCounters::default());
        let (mut sender, mut receiver) = (sender(initial, &config), Receiver::new(initial, 64));
        sender.allow(64);
        (sender.transmission, sender.delivered, sender.round_end) =
            (transmission, (transmission + TRANSMISSIONS - 1) % TRANSMISSIONS, transmission);
        let (mut handed, mut read, mut frames) = (0, Vec::new(), 0u64);
        let mut under_way: VecDeque<(Instant, Header, Vec<u8>)> = VecDeque::new();
        let mut out = Vec::new();
        let mut now = Instant::ZERO;
        while read.len() < segments as usize {
            now += Duration::from_micros(1);
            assert!(now < Instant::from_nanos(10_000_000_000), "{} of {segments} came", read.len());
            while handed < segments && sender.room() > 0 {
                sender.push(4, false).copy_from_slice(&handed.to_be_bytes());
                handed += 1;
            }
            assert!(!sender.on_time(&config, &mut counters, now), "the peer is alive");
            while let Next::Frame(sequence) = sender.next_to_send(&PathLoad::default(), now) {
                let (_, transmission, asks) = sender.transmit(sequence, &config, &mut counters, now);
                let (frame, length) = sender.frame(sequence);
                let bytes = frame[HEADER_BYTES..length].to_vec();
                frames += 1;
                if lose_every == 0 || !frames.is_multiple_of(lose_every) {
                    let flags = if asks { flag::ACK_REQUEST } else { 0 };
                    let header = Header { kind: Kind::Data, flags, sequence, transmission, ..ack() };
                    under_way.push_back((now + Duration::from_micros(8), header, bytes));
                }
            }
            while under_way.front().is_some_and(|frame| frame.0 <= now) {
                let (_, header, bytes) = under_way.pop_front().expect("just seen");
                receiver.on_frame(&header, &bytes, false, None, &config, &mut counters, now);
                while receiver.pop(Some(&mut out), &config, now) {
                    read.push(u32::from_be_bytes(out[..].try_into().expect("four bytes")));
                }
            }
            receiver.on_time(now);
            if core::mem::take(&mut receiver.ack_now) {
                let mut header = ack();
                let map = receiver.fill_ack(&mut header, now);
                let advance = sender.on_acknowledgement(&header, map, &config, &mut counters, now);
                assert!(advance.is_ok(), "the receiver's acknowledgement is possible");
            }
        }
        (read, counters)
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        for lose_every in [0, 7, 2] {
            for (initial, transmission) in [(0, 1), (u32::MAX - 20, TRANSMISSIONS - 30), (1 << 31, 1 << 23)] {
                let (read, counters) = transfer(initial, transmission, 300, lose_every);
                assert!(read.iter().copied().eq(0..300), "{initial:#x} {lose_every}");
                assert_eq!(counters.sent_beyond_credit, 0);
                assert_eq!(counters.retransmits == 0, lose_every == 0, "{counters:?}");
                // Later arrivals reveal every loss except those at the very end.
                assert!(lose_every != 7 || counters.timeouts <= 1, "{counters:?}");
            }
        }
    }

    #[test]
    fn an_acknowledgement_of_an_unsent_segment_changes_nothing() {
        let (config, mut counters) = (Config::default(), EfeCounters::default());
        let now = Instant::ZERO;
        let mut sender = sender(100, &config);
        sender.allow(64);
        (0..4).for_each(|_| sender.push(1, false).fill(1));
        for sequence in 100..102 {
            assert_eq!(sender.next_to_send(&PathLoad::default(), now), Next::Frame(sequence));
            sender.transmit(sequence, &config, &mut counters, now);
        }
        // Rows: acknowledged, credit, map, and the expected result. Sequence numbers 100 and 101 have been
        // sent.
        let rows = [
            (103, 64, 0, Err(Impossible)),
            (100u32.wrapping_sub(1 << 17), 64, 0, Err(Impossible)),
            (100 + (1 << 31), 64, 0, Err(Impossible)),
            (100, 65, 0, Err(Impossible)),
            (100, 64, 0b10, Err(Impossible)),
            (101, 64, 0b1, Err(Impossible)),
            (102, 64, 0b1, Err(Impossible)),
            (100, 64, 1 << 63, Err(Impossible)),
            (99, 64, u128::MAX, Ok(false)),
            (100, 64, 0, Ok(false)),
            (100, 64, 0b1, Ok(false)),
            (101, 64, 0, Ok(true)),
        ];
        for (acknowledged, credit, map, expected) in rows {
            let before = (sender.unacknowledged(), sender.in_flight, sender.limit);
            let header = Header { acknowledged, credit, ..ack() };
            let verdict = sender.on_acknowledgement(&header, map, &config, &mut counters, now);
            assert_eq!(verdict, expected, "{acknowledged} {credit} {map:#b}");
            if verdict == Err(Impossible) {
                assert_eq!((sender.unacknowledged(), sender.in_flight, sender.limit), before);
            }
        }
        assert_eq!((sender.unacknowledged(), sender.in_flight), (3, 0), "101 came by the map, 100 after it");
    }

    #[test]
    fn an_acknowledgement_of_the_original_does_not_time_its_retransmission() {
        let (config, mut counters) = (Config::default(), EfeCounters::default());
        let (mut now, mut sender) = (Instant::ZERO, sender(0, &config));
        sender.allow(64);
        sender.push(1, false);
        sender.next_to_send(&PathLoad::default(), now);
        sender.transmit(0, &config, &mut counters, now);
        // The acknowledgement of frame 0 is late, so the frame is retransmitted, after frames 1 to 4.
        now = sender.rto_deadline;
        sender.on_time(&config, &mut counters, now);
        for sequence in 1..5 {
            sender.push(1, false);
            sender.transmit(sequence, &config, &mut counters, now);
        }
        sender.transmit(0, &config, &mut counters, now);
        let header = Header { flags: flag::ECHO, acknowledged: 1, credit: 64, echo: 1, ..ack() };
        assert_eq!(sender.on_acknowledgement(&header, 0, &config, &mut counters, now), Ok(true));
        assert_eq!(
            (counters.lost, sender.in_flight),
            (0, 4),
            "four left before the second, and are not overtaken"
        );
    }

    #[test]
    fn a_frame_that_was_never_sent_gives_no_round_trip() {
        let (config, mut counters) = (Config::default(), EfeCounters::default());
        let mut sender = sender(0, &config);
        sender.allow(64);
        sender.push(1, false);
        sender.next_to_send(&PathLoad::default(), Instant::ZERO);
        sender.transmit(0, &config, &mut counters, Instant::ZERO);
        let header = Header { flags: flag::ECHO, acknowledged: 1, credit: 64, echo: 77, ..ack() };
        let now = Instant::from_nanos(10);
        assert_eq!(sender.on_acknowledgement(&header, 0, &config, &mut counters, now), Ok(true));
        assert_eq!((sender.congestion.base(), sender.srtt), (None, Duration::ZERO));
    }
}
