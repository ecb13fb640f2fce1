//! A connection between two VIs: what both sides of it keep.
//!
//! Flights   a message that has begun to leave is a flight of packets with running numbers (sequences). A cursor says which
//!           packet is next; going back to the first that is missing is moving the cursor. Flights of an unreliable VI are
//!           forgotten as they leave.
//! Window    of packets that the far end has not acknowledged. On a path that may lose packets it halves at a loss and
//!           grows by one in a round trip.
//! Dry       a peer that finds no receive descriptor says so; the sender waits until it is told, or asks again.

use super::endpoint::{Vi, letter};
use super::{Config, Desk, Letter, PathTraits, Reliability};
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::vi::{Kind, Place, fault};

/// What a flight carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    /// A descriptor of the send queue, by its number.
    Work(u64),
    /// What a peer's RDMA Read asked for.
    Response(Place),
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub first_sequence: u32,
    pub packets: u32,
    pub cargo: Cargo,
}

/// An RDMA Read of ours that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub work: u64,
    pub received: u32,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub path: u32,
    pub traits: PathTraits,
    /// What packets to us carry, and packets to the peer.
    pub key: u32,
    pub peer_vi: u32,
    pub peer_key: u32,
    /// Whether the peer knows that we are connected.
    pub confirmed: bool,

    // Sending.
    pub flights: VecDeque<Flight>,
    /// The flight and the packet in it that leave next.
    pub cursor: (usize, u32),
    /// The sequence of the next flight's first packet.
    pub next_sequence: u32,
    /// Everything before has been acknowledged; everything from `emitted` on has never left.
    pub acknowledged: u32,
    pub emitted: u32,
    /// The next descriptor to begin.
    pub next_work: u64,
    pub responses: VecDeque<Place>,
    pub reads: VecDeque<Reading>,
    pub window: u32,
    window_max: u32,
    /// Packets acknowledged since the window grew.
    grown: u32,
    /// The peer's receive queue is dry since.
    pub held_since: Option<Instant>,

    // Receiving.
    pub expected: u32,
    /// Bytes of the message that is arriving.
    pub message: Option<u32>,
    /// The same of an RDMA Write.
    pub writing: Option<u32>,
    /// Packets taken and not acknowledged.
    pub owed: u32,
    pub owes_now: bool,
    pub told_gap: bool,
    pub told_dry: bool,

    // Time.
    pub heard_at: Instant,
    resend_at: Instant,
    resend_after: Duration,
    resends: u32,
    round_trip: Option<Duration>,
    /// A packet whose acknowledgement is awaited for its time, and when it left.
    timed: Option<(u32, Instant)>,
    /// Signs of life asked for in vain.
    probes: u32,
    probe_at: Instant,
    /// The next packet asks for an acknowledgement, and leaves although the peer is dry.
    pub asks: bool,
}

impl Connection {
    /// A letter to the peer.
    pub(super) fn letter(&self, kind: Kind, sequence: u32, code: u32) -> Letter {
        letter(kind, self.peer_vi, self.peer_key, sequence, self.expected, code)
    }

    pub(super) fn new(
        (path, traits): (u32, PathTraits),
        key: u32,
        (peer_vi, peer_key): (u32, u32),
        next_work: u64,
        config: &Config,
        now: Instant,
    ) -> Connection {
        let window_max =
            if traits.loses_nothing { config.window_packets } else { config.lossy_window_packets };
        let window_max = window_max.max(1);
        Connection {
            path,
            traits,
            key,
            peer_vi,
            peer_key,
            confirmed: false,
            flights: VecDeque::new(),
            cursor: (0, 0),
            next_sequence: 0,
            acknowledged: 0,
            emitted: 0,
            next_work,
            responses: VecDeque::new(),
            reads: VecDeque::new(),
            window: window_max,
            window_max,
            grown: 0,
            held_since: None,
            expected: 0,
            message: None,
            writing: None,
            owed: 0,
            owes_now: false,
            told_gap: false,
            told_dry: false,
            heard_at: now,
            resend_at: Instant::NEVER,
            resend_after: config.resend_after,
            resends: 0,
            round_trip: None,
            timed: None,
            probes: 0,
            probe_at: now + config.probe_after,
            asks: false,
        }
    }

    /// Whether descriptors complete when their data has left, since nothing will be sent again.
    pub(super) fn completes_at_departure(&self, reliability: Reliability, config: &Config) -> bool {
        match reliability {
            Reliability::Unreliable => true,
            Reliability::Delivery => self.traits.loses_nothing && config.dry_patience.is_zero(),
            Reliability::Reception => false,
        }
    }

    /// Everything unacknowledged leaves again.
    pub(super) fn go_back(&mut self, desk: &mut Desk) {
        if self.emitted != self.acknowledged {
            let first = self.flights.front().map_or(self.acknowledged, |flight| flight.first_sequence);
            self.cursor = (0, self.acknowledged.wrapping_sub(first));
            self.timed = None;
            desk.counters.resends += 1;
        }
    }

    pub(super) fn halve_window(&mut self) {
        if !self.traits.loses_nothing {
            self.window = (self.window / 2).max(2).min(self.window_max);
            self.grown = 0;
        }
    }

    /// A packet with a sequence leaves.
    #[inline]
    pub(super) fn on_departure(&mut self, sequence: u32, desk: &mut Desk, now: Instant) {
        if sequence == self.emitted {
            self.emitted = sequence.wrapping_add(1);
            if !self.traits.loses_nothing && self.timed.is_none() {
                self.timed = Some((sequence, now));
            }
        }
        if !self.traits.loses_nothing && self.resend_at == Instant::NEVER {
            self.resend_at = now + self.resend_after;
            desk.due_at(self.resend_at);
        }
    }

    /// The peer expects `sequence` next. Nothing, if that cannot be; else whether it is news.
    #[inline]
    pub(super) fn on_acknowledged(
        &mut self,
        sequence: u32,
        config: &Config,
        finished: &mut dyn FnMut(Cargo),
        now: Instant,
    ) -> Option<bool> {
        let news = sequence.wrapping_sub(self.acknowledged);
        if news == 0 {
            return Some(false);
        }
        if news > self.emitted.wrapping_sub(self.acknowledged) {
            // Late, or never sent.
            return if (news as i32) < 0 { Some(false) } else { None };
        }
        self.acknowledged = sequence;
        while let Some(flight) = self.flights.front() {
            let into = sequence.wrapping_sub(flight.first_sequence);
            if into < flight.packets {
                if self.cursor.0 == 0 {
                    self.cursor.1 = self.cursor.1.max(into);
                }
                break;
            }
            let flight = self.flights.pop_front().expect("it was there");
            self.cursor = match self.cursor {
                (0, _) => (0, 0),
                (flight, packet) => (flight - 1, packet),
            };
            finished(flight.cargo);
        }
        self.resends = 0;
        if self.traits.loses_nothing {
            return Some(true);
        }
        if let Some((timed, at)) = self.timed
            && (sequence.wrapping_sub(timed) as i32) > 0
        {
            self.timed = None;
            let sample = now.since(at);
            // RFC 6298 without the variance: twice the smoothed round trip.
            let smooth = self.round_trip.map_or(sample, |before| (before * 7 + sample) / 8);
            self.round_trip = Some(smooth);
            self.resend_after = (smooth * 2).max(config.resend_after_min);
        }
        self.grown += news;
        if self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + 1).min(self.window_max);
        }
        self.resend_at = if self.emitted == sequence { Instant::NEVER } else { now + self.resend_after };
        Some(true)
    }

    /// A sign of life.
    #[inline]
    pub(super) fn on_heard(&mut self, config: &Config, now: Instant) {
        self.heard_at = now;
        self.probes = 0;
        self.probe_at = now + config.probe_after;
    }

    /// When packets are sent again.
    pub(super) fn resend_at(&self) -> Instant {
        self.resend_at
    }

    /// The peer has room again. Whether that was waited for.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        let waited = self.held_since.take().is_some();
        if waited {
            self.resend_at = if self.traits.loses_nothing { Instant::NEVER } else { now + self.resend_after };
        }
        waited
    }
}

impl Vi {
    /// What time asks of a connection.
    pub(super) fn advance_connection(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        let reliability = self.attributes.reliability;
        let Some(connection) = &mut self.connection else { return };
        if let Some(since) = connection.held_since {
            if reliability == Reliability::Delivery && now >= since + config.dry_patience {
                return self.break_off(number, fault::DRY, true, desk);
            }
            if now >= connection.resend_at {
                // One packet asks whether there is room by now.
                connection.resend_at = now + config.dry_retry;
                connection.go_back(desk);
                connection.asks = true;
                desk.ready.push(number);
            }
            desk.due_at(connection.resend_at);
            if reliability == Reliability::Delivery {
                desk.due_at(since + config.dry_patience);
            }
        }
        if connection.traits.loses_nothing {
            return;
        }
        if connection.held_since.is_none() && now >= connection.resend_at {
            if connection.emitted == connection.acknowledged || reliability == Reliability::Unreliable {
                connection.resend_at = Instant::NEVER;
            } else if connection.resends >= config.resends_max {
                return self.break_off(number, fault::TRANSPORT, true, desk);
            } else {
                connection.resends += 1;
                connection.halve_window();
                connection.go_back(desk);
                let after = connection.resend_after * (1 << connection.resends.min(6));
                connection.resend_at = now + after.min(config.probe_after);
                desk.ready.push(number);
            }
        }
        // One sign of life may be lost: after the first in vain they are asked for more often.
        if now >= connection.probe_at {
            if connection.probes >= config.probes_max {
                return self.break_off(number, fault::TRANSPORT, true, desk);
            }
            connection.probes += 1;
            connection.probe_at = now + config.probe_after / 4;
            connection.owes_now = true;
            connection.asks = true;
            desk.ready.push(number);
        }
        desk.due_at(connection.resend_at);
        desk.due_at(connection.probe_at);
    }

    /// Sets the clock of a connection that has just begun.
    pub(super) fn start_clock(&mut self, desk: &mut Desk) {
        if let Some(connection) = &self.connection
            && !connection.traits.loses_nothing
        {
            desk.due_at(connection.probe_at);
        }
    }

    /// The peer's receive queue is dry: what it refused waits. Of a reliable delivery only for so long.
    pub(super) fn on_peer_dry(&mut self, number: u32, config: &Config, desk: &mut Desk, now: Instant) {
        if self.attributes.reliability == Reliability::Delivery && config.dry_patience.is_zero() {
            return self.break_off(number, fault::DRY, true, desk);
        }
        let Some(connection) = &mut self.connection else { return };
        connection.go_back(desk);
        connection.asks = false;
        connection.held_since.get_or_insert(now);
        connection.resend_at = now + config.dry_retry;
        desk.due_at(connection.resend_at);
        if self.attributes.reliability == Reliability::Delivery {
            desk.due_at(now + config.dry_patience);
        }
    }
}
