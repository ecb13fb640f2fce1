//! State of a connection between two VIs, for both directions.
//!
//! Flights       a message whose transmission has started is a flight of packets with sequence numbers. A
//!               cursor marks the next packet to send. To go back to the first missing packet, the cursor is
//!               moved back. Flights on an unreliable VI are dropped once they have been sent.
//! Window        limits the number of unacknowledged packets. On a path that may lose packets, it is halved
//!               on each loss and grows by one packet per round trip.
//! Flow control  a peer whose receive queue is empty reports it; the sender waits for a report that a
//!               descriptor was posted, or probes.

use crate::config::Config;
use crate::traits::{PathTraits, Reliability};
use crate::transfer::outputs::{ControlPacket, Outputs, control_packet};
use crate::wire::{Kind, RemoteRange};
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_base::Instant;

/// The contents of a flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlightContents {
    /// A descriptor in the send queue, identified by its number.
    Work(u64),
    /// The response to a peer's RDMA Read.
    Response(RemoteRange),
}

/// A message in transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub first_sequence: u32,
    pub packets: u32,
    pub cargo: FlightContents,
}

/// An outstanding RDMA Read requested by this side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutstandingRead {
    pub work: u64,
    pub received: u32,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub path: u32,
    pub traits: PathTraits,
    /// The key in packets from the peer. `peer_key` is the key in packets to the peer.
    pub key: u32,
    pub peer_vi: u32,
    pub peer_key: u32,
    /// Whether the peer is known to be connected too.
    pub confirmed: bool,

    // Sending.
    pub flights: VecDeque<Flight>,
    /// The next packet to send: the index of its flight, and its index within the flight.
    pub cursor: (usize, u32),
    /// The sequence number of the next flight's first packet.
    pub next_sequence: u32,
    /// Every packet before `acknowledged` has been acknowledged; packets from `snd_max` on have never been
    /// sent.
    pub acknowledged: u32,
    pub snd_max: u32,
    /// The next descriptor to start.
    pub next_work: u64,
    pub responses: VecDeque<RemoteRange>,
    pub reads: VecDeque<OutstandingRead>,
    pub window: u32,
    window_max: u32,
    /// Packets acknowledged since the window last grew.
    grown: u32,
    /// The time at which the peer's receive queue was first reported empty.
    pub peer_queue_empty_since: Option<Instant>,

    // Receiving.
    pub rcv_nxt: u32,
    /// Bytes received so far of the current message.
    pub message: Option<u32>,
    /// Bytes received so far of the current RDMA Write.
    pub writing: Option<u32>,
    /// Number of packets accepted but not yet acknowledged.
    pub unacked_packets: u32,
    pub ack_now: bool,
    pub gap_reported: bool,
    pub queue_empty_reported: bool,

    // Time.
    pub last_received_at: Instant,
    pub(crate) rto_deadline: Instant,
    pub(crate) rto: Duration,
    pub(crate) retransmits: u32,
    round_trip: Option<Duration>,
    /// The packet used for the current RTT sample, and the time at which it was sent.
    timed: Option<(u32, Instant)>,
    /// Unanswered probes.
    pub(crate) probes: u32,
    pub(crate) probe_at: Instant,
    /// Set if the next packet requests an acknowledgement and is sent even though the peer's queue is empty.
    pub ack_request_due: bool,
}

impl Connection {
    /// Builds a control packet to the peer.
    pub(crate) fn control_packet(&self, kind: Kind, sequence: u32, code: u32) -> ControlPacket {
        control_packet(kind, self.peer_vi, self.peer_key, sequence, self.rcv_nxt, code)
    }

    pub(crate) fn new(
        (path, traits): (u32, PathTraits),
        key: u32,
        (peer_vi, peer_key): (u32, u32),
        next_work: u64,
        config: &Config,
        now: Instant,
    ) -> Connection {
        let window_max = if traits.lossless { config.window_packets } else { config.lossy_window_packets };
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
            snd_max: 0,
            next_work,
            responses: VecDeque::new(),
            reads: VecDeque::new(),
            window: window_max,
            window_max,
            grown: 0,
            peer_queue_empty_since: None,
            rcv_nxt: 0,
            message: None,
            writing: None,
            unacked_packets: 0,
            ack_now: false,
            gap_reported: false,
            queue_empty_reported: false,
            last_received_at: now,
            rto_deadline: Instant::NEVER,
            rto: config.resend_after,
            retransmits: 0,
            round_trip: None,
            timed: None,
            probes: 0,
            probe_at: now + config.probe_after,
            ack_request_due: false,
        }
    }

    /// Returns whether descriptors complete when their data has been sent, because nothing will be
    /// retransmitted.
    pub(crate) fn completes_at_departure(&self, reliability: Reliability, config: &Config) -> bool {
        match reliability {
            Reliability::Unreliable => true,
            Reliability::Delivery => self.traits.lossless && config.dry_patience.is_zero(),
            Reliability::Reception => false,
        }
    }

    /// Moves the cursor back so that everything unacknowledged is retransmitted.
    pub(crate) fn go_back(&mut self, outputs: &mut Outputs) {
        if self.snd_max != self.acknowledged {
            let first = self.flights.front().map_or(self.acknowledged, |flight| flight.first_sequence);
            self.cursor = (0, self.acknowledged.wrapping_sub(first));
            self.timed = None;
            outputs.counters.retransmits += 1;
        }
    }

    pub(crate) fn halve_window(&mut self) {
        if !self.traits.lossless {
            self.window = (self.window / 2).max(2).min(self.window_max);
            self.grown = 0;
        }
    }

    /// Records that a packet with a sequence number has been sent.
    #[inline]
    pub(crate) fn on_departure(&mut self, sequence: u32, outputs: &mut Outputs, now: Instant) {
        if sequence == self.snd_max {
            self.snd_max = sequence.wrapping_add(1);
            if !self.traits.lossless && self.timed.is_none() {
                self.timed = Some((sequence, now));
            }
        }
        if !self.traits.lossless && self.rto_deadline == Instant::NEVER {
            self.rto_deadline = now + self.rto;
            outputs.due_at(self.rto_deadline);
        }
    }

    /// Handles an acknowledgement of every packet before `sequence`. Returns whether the acknowledgement is
    /// new, or `None` if it is invalid.
    #[inline]
    pub(crate) fn on_acknowledged(
        &mut self,
        sequence: u32,
        config: &Config,
        finished: &mut dyn FnMut(FlightContents),
        now: Instant,
    ) -> Option<bool> {
        let advance = sequence.wrapping_sub(self.acknowledged);
        if advance == 0 {
            return Some(false);
        }
        if advance > self.snd_max.wrapping_sub(self.acknowledged) {
            // The acknowledgement is old, or covers a packet that was never sent.
            return if (advance as i32) < 0 { Some(false) } else { None };
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
        self.retransmits = 0;
        if self.traits.lossless {
            return Some(true);
        }
        if let Some((timed, at)) = self.timed
            && (sequence.wrapping_sub(timed) as i32) > 0
        {
            self.timed = None;
            let sample = now.since(at);
            // RFC 6298 without the variance: the RTO is twice the smoothed RTT.
            let smooth = self.round_trip.map_or(sample, |before| (before * 7 + sample) / 8);
            self.round_trip = Some(smooth);
            self.rto = (smooth * 2).max(config.resend_after_min);
        }
        self.grown += advance;
        if self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + 1).min(self.window_max);
        }
        self.rto_deadline = if self.snd_max == sequence { Instant::NEVER } else { now + self.rto };
        Some(true)
    }

    /// Records that a packet from the peer has arrived.
    #[inline]
    pub(crate) fn on_heard(&mut self, config: &Config, now: Instant) {
        self.last_received_at = now;
        self.probes = 0;
        self.probe_at = now + config.probe_after;
    }

    /// Returns the retransmission deadline.
    pub(crate) fn retransmit_deadline(&self) -> Instant {
        self.rto_deadline
    }

    /// Resumes sending once the peer again has a receive descriptor. Returns whether sending was blocked.
    pub(crate) fn release(&mut self, now: Instant) -> bool {
        let waited = self.peer_queue_empty_since.take().is_some();
        if waited {
            self.rto_deadline = if self.traits.lossless { Instant::NEVER } else { now + self.rto };
        }
        waited
    }
}
