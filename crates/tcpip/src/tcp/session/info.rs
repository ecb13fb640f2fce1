//! Figures of one session.

use super::tcb::Session;
use crate::tcp::config::Config;
use crate::tcp::interface::info::{Info, Limit};
use core::time::Duration;
use kiban_base::Instant;

impl Session {
    /// Records what limits the session, after it has sent what it may.
    #[inline]
    pub(super) fn note_limit(&mut self, waits: bool, config: &Config, now: Instant) {
        let unsent = self.send_queue.bytes().saturating_sub(self.snd_una.distance(self.snd_nxt));
        let limit = if !waits {
            Limit::Idle
        } else if unsent > 0 && self.snd_una.distance(self.snd_nxt) + unsent.min(self.mss) > self.snd_wnd {
            Limit::Window
        } else if unsent == 0 && self.send_queue.bytes() >= self.send_most(config) {
            Limit::Buffer
        } else {
            Limit::Path
        };
        self.tally.spent.change(limit, now);
    }

    /// Returns the statistics of this session.
    pub(in crate::tcp) fn info(&self, config: &Config) -> Info {
        let tally = &self.tally;
        let info = Info {
            state: self.state,
            local: self.local,
            remote: self.remote,
            mss: self.mss,
            round_trip: self.rtt.srtt().unwrap_or(Duration::ZERO),
            round_trip_variation: self.rtt.rttvar(),
            least_round_trip: self.rtt.min_rtt(),
            retransmission_timeout: self.rtt.rto(config),
            slow_start_threshold_bytes: self.congestion.ssthresh(),
            retransmitted_bytes: self.retransmitted_bytes,
            congestion_window_bytes: self.congestion.cwnd(),
            send_window_bytes: self.snd_wnd,
            outstanding_bytes: self.snd_una.distance(self.snd_max),
            queued_bytes: self.send_queue.bytes(),
            send_buffer_bytes: self.send_most(config),
            timestamps: self.timestamps.is_some(),
            sack: self.sack,
            ecn: self.ecn.is_on,
            dscp: self.traffic_class >> 2,
            received_traffic_class: self.received_traffic_class,
            window_shifts: (self.snd_wind_shift, self.rcv_wind_shift),
            icmp_error: self.icmp_error,
            segments_in: tally.segments_in,
            segments_out: tally.segments_out,
            bytes_in: tally.bytes_in,
            bytes_acknowledged: tally.bytes_acknowledged,
            out_of_order_segments: tally.early,
            duplicate_segments: tally.duplicates,
            duplicate_sacks: tally.duplicate_sacks,
            peer_segment_bytes: self.rcv_mss,
            receive_window_bytes: self.rcv_nxt.distance(self.rcv_adv),
            receive_buffer_bytes: self.receive_most(config),
            spent: tally.spent,
            busy: Duration::ZERO,
            window_limited: Duration::ZERO,
            buffer_limited: Duration::ZERO,
            data_sent_at: self.data_sent_at,
            data_received_at: tally.received_at,
            last_received_at: self.watch.heard_at(),
        };
        info.until(tally.spent.since)
    }
}
