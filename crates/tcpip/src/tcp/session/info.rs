//! Figures of one session.

use super::tcb::Session;
use crate::tcp::config::Config;
use crate::tcp::info::{Info, Limit};
use core::time::Duration;
use kiban_base::Instant;

impl Session {
    /// Records what limits the session, after it has sent what it may.
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

    /// Returns the figures of this session.
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
