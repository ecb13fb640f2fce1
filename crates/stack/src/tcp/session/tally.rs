//! What one session has done, for whoever asks: the figures of Linux's `tcp_info`.
//!
//! Busy      the time in which bytes waited for their acknowledgement, and what held them back: the peer's window (more
//!           is ready than it admits), the send buffer (all is sent and the host has no room for more), or the path.

use super::Session;
use crate::tcp::{Config, Info};
use core::time::Duration;
use kiban_ground::Instant;

/// What holds a session's bytes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    /// Nothing is to be sent.
    Idle,
    Path,
    Window,
    Buffer,
}

/// The time in which bytes waited, by what held them back.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Spent {
    limit: Limit,
    since: Instant,
    /// Behind the path, the window, the buffer.
    times: [Duration; 3],
}

impl Spent {
    #[inline]
    fn change(&mut self, limit: Limit, now: Instant) {
        if limit != self.limit {
            if self.limit != Limit::Idle {
                self.times[self.limit as usize - 1] += now.since(self.since);
            }
            (self.limit, self.since) = (limit, now);
        }
    }
}

/// What is counted of one session.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) segments_in: u64,
    pub(super) segments_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_acknowledged: u64,
    /// When payload last came.
    pub(super) received_at: Instant,
    /// Segments that came early, and that came again.
    pub(super) early: u32,
    pub(super) again: u32,
    /// Of these the peer told us (RFC 2883).
    pub(super) duplicate_sacks: u32,
    pub(super) spent: Spent,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            segments_in: 0,
            segments_out: 0,
            bytes_in: 0,
            bytes_acknowledged: 0,
            received_at: Instant::ZERO,
            early: 0,
            again: 0,
            duplicate_sacks: 0,
            spent: Spent { limit: Limit::Idle, since: Instant::ZERO, times: [Duration::ZERO; 3] },
        }
    }
}

impl Info {
    /// The same with the time that is still running at `now` counted in: [`Info::busy`] and its two parts.
    #[must_use]
    pub fn until(mut self, now: Instant) -> Info {
        let mut spent = self.spent;
        spent.change(Limit::Idle, now);
        let [path, window, buffer] = spent.times;
        (self.busy, self.window_limited, self.buffer_limited) = (path + window + buffer, window, buffer);
        self
    }
}

impl Session {
    /// The session has sent what it may: what holds the rest back?
    #[inline]
    pub(super) fn note_limit(&mut self, waits: bool, config: &Config, now: Instant) {
        let unsent = self.queue.bytes().saturating_sub(self.una.distance(self.next));
        let limit = if !waits {
            Limit::Idle
        } else if unsent > 0 && self.una.distance(self.next) + unsent.min(self.mss) > self.window {
            Limit::Window
        } else if unsent == 0 && self.queue.bytes() >= self.send_most(config) {
            Limit::Buffer
        } else {
            Limit::Path
        };
        self.tally.spent.change(limit, now);
    }

    /// What a caller may know about a session.
    pub(in crate::tcp) fn info(&self, config: &Config) -> Info {
        let tally = &self.tally;
        let info = Info {
            state: self.state,
            local: self.local,
            remote: self.remote,
            mss: self.mss,
            round_trip: self.rtt.smoothed().unwrap_or(Duration::ZERO),
            round_trip_variation: self.rtt.variation(),
            least_round_trip: self.rtt.least(),
            retransmission_timeout: self.rtt.timeout(config),
            slow_start_threshold_bytes: self.congestion.threshold(),
            retransmitted_bytes: self.retransmitted,
            congestion_window_bytes: self.congestion.window(),
            send_window_bytes: self.window,
            outstanding_bytes: self.una.distance(self.max),
            queued_bytes: self.queue.bytes(),
            send_buffer_bytes: self.send_most(config),
            timestamps: self.stamps.is_some(),
            sack: self.sack,
            dscp: self.traffic_class >> 2,
            heard_traffic_class: self.heard_class,
            window_shifts: (self.send_shift, self.receive_shift),
            trouble: self.trouble,
            segments_in: tally.segments_in,
            segments_out: tally.segments_out,
            bytes_in: tally.bytes_in,
            bytes_acknowledged: tally.bytes_acknowledged,
            early_segments: tally.early,
            repeated_segments: tally.again,
            duplicate_sacks: tally.duplicate_sacks,
            peer_segment_bytes: self.peer_segment,
            receive_window_bytes: self.expected.distance(self.edge),
            receive_buffer_bytes: self.receive_most(config),
            spent: tally.spent,
            busy: Duration::ZERO,
            window_limited: Duration::ZERO,
            buffer_limited: Duration::ZERO,
            data_sent_at: self.sent_at,
            data_received_at: tally.received_at,
            heard_at: self.watch.heard_at(),
        };
        info.until(tally.spent.since)
    }
}
