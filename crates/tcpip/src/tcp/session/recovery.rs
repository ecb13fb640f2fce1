//! Loss recovery, driven by acknowledgements and timers.
//!
//! Every acknowledgement is processed in the same order: the scoreboard records what has arrived, loss
//! detection marks what is lost, congestion control adjusts the window, and the timers are set again. With
//! SACK the peer names what it holds; without it duplicate ACKs are counted, and the rest is the same (RFC
//! 5681, RFC 6582, RFC 6675, RFC 8985).

use super::tcb::{Desk, Session};
use crate::tcp::config::LossDetection;
use crate::tcp::congestion::Heard;
use crate::tcp::loss::scoreboard::Delivery;
use crate::wire::tcp::{Header, SackBlock, SackBlocks};
use core::time::Duration;
use kiban_base::Instant;

/// Duplicate ACKs that indicate a loss (RFC 5681 §3.2).
const THRESHOLD: u8 = 3;
/// Tail probe timeout before the first RTT sample (RFC 8985 §7.2).
const TAIL_UNMEASURED: Duration = Duration::from_secs(1);

/// An acknowledgement, as loss recovery sees it.
pub(super) struct Report {
    /// Bytes newly acknowledged, and bytes outstanding before.
    pub(super) acked: u32,
    pub(super) outstanding: u32,
    /// Whether it is a duplicate ACK: nothing new, no data, no window update (RFC 5681 §2).
    pub(super) duplicate: bool,
    pub(super) delivery: Delivery,
}

impl Session {
    /// Processes an acceptable acknowledgement; SND.UNA has already advanced.
    #[inline]
    pub(super) fn on_report(&mut self, header: &Header, mut report: Report, desk: &mut Desk<'_, '_>) {
        if self.probe {
            return;
        }
        let now = desk.cx.now;
        self.tail_moves = true;
        let mut twice = false;
        if self.sack && !header.options.sack.is_empty() {
            twice = self.on_sack(&header.options.sack, &mut report.delivery, desk);
        } else if !self.sack && report.outstanding > 0 {
            self.count_duplicates(&mut report);
        }
        if report.outstanding == 0 {
            // Nothing was outstanding, but a D-SACK may still end a tail probe (RFC 8985 §7.4.2).
            if twice {
                self.rack.on_probe_answer(self.una, true, false);
            }
            return;
        }
        let delivery = &report.delivery;
        if delivery.bytes == 0 && !report.duplicate && !twice {
            return;
        }
        if let (Some((left, _)), false) = (delivery.measured, delivery.waited) {
            self.rtt.on_delivered(left, now, desk.config);
        } else if report.acked > 0 {
            self.measure_by_echo(header, desk);
        }
        let newly_lost = self.detect(&report, desk);
        let heard = self.heard(&report, now);
        if self.congestion.on_acknowledged(&heard) {
            self.rack.on_recovered();
        }
        if newly_lost {
            self.begin_recovery(&heard, desk);
        }
        if self.rack.probes() && self.rack.on_probe_answer(self.una, twice, report.duplicate) {
            self.congestion.on_repaired(self.mss);
        }
    }

    fn heard(&self, report: &Report, now: Instant) -> Heard {
        Heard {
            una: self.una,
            acked: report.acked,
            delivered: report.delivery.bytes,
            outstanding: report.outstanding,
            flight: self.board.flight(),
            waits: self.board.lost() > 0,
            mss: self.mss,
            round_trip: self.rtt.smoothed().unwrap_or_default(),
            now,
        }
    }

    /// Processes the peer's SACK blocks. Returns whether the first one is a D-SACK (RFC 2883).
    fn on_sack(&mut self, blocks: &SackBlocks, delivery: &mut Delivery, desk: &mut Desk<'_, '_>) -> bool {
        let mut good = [SackBlock::default(); crate::wire::tcp::SACK_BLOCKS_MAX];
        let mut count = 0;
        let all = blocks.as_slice();
        let within =
            |block: &SackBlock, outer: &SackBlock| outer.left.le(block.left) && block.right.le(outer.right);
        let twice = match all {
            // RFC 2883 §4: below the cumulative ACK, or within the second block.
            [first, rest @ ..] => {
                first.right.le(self.una) || rest.first().is_some_and(|second| within(first, second))
            }
            [] => false,
        };
        for block in &all[usize::from(twice)..] {
            // Empty blocks, and blocks of data never sent or already acknowledged, are ignored.
            if self.una.le(block.left) && block.left.lt(block.right) && block.right.le(self.next) {
                good[count] = *block;
                count += 1;
            } else if !block.right.le(self.una) {
                desk.counters.sack_unbelieved += 1;
            }
        }
        self.board.on_sack(&good[..count], delivery);
        if twice {
            desk.counters.duplicate_sacks += 1;
            self.tally.duplicate_sacks += 1;
            self.rack.on_duplicate_sack(self.una, self.max);
        }
        twice
    }

    /// Counts duplicate ACKs without SACK: each means that one segment has arrived; an advance covers some of
    /// those.
    fn count_duplicates(&mut self, report: &mut Report) {
        if report.acked > 0 {
            let before = self.board.sacked();
            if self.congestion.recovers() {
                self.board.on_named(report.acked, self.mss);
            } else {
                self.board.forget_nameless();
            }
            let named = before.saturating_sub(self.board.sacked());
            report.delivery.bytes = report.acked.saturating_sub(named);
            self.repeats = 0;
        } else if report.duplicate && !self.congestion.starts_over() {
            // After a timeout, duplicate ACKs may answer segments sent twice (RFC 6582 §3.2 step 1).
            if self.repeats == 0 {
                self.nameless_left = report.outstanding;
            }
            self.repeats = self.repeats.saturating_add(1);
            // RFC 5681 §3.2 step 4: duplicate ACKs beyond the segments that were outstanding indicate no
            // arrival.
            if self.nameless_left > 0 {
                self.nameless_left = self.nameless_left.saturating_sub(self.mss);
                self.board.on_nameless(self.mss);
                report.delivery.bytes += self.mss;
            }
        }
    }

    /// Runs loss detection. Returns whether anything was newly marked as lost.
    fn detect(&mut self, report: &Report, desk: &mut Desk<'_, '_>) -> bool {
        let now = desk.cx.now;
        if !self.sack || desk.config.loss_detection == LossDetection::NewReno {
            let before = self.board.lost();
            if report.acked > 0 && self.congestion.recovers() && self.una.lt(self.recover) {
                // RFC 6582 §3.2 step 3: a partial ACK reveals the next lost segment.
                self.board.lose_first();
            } else if self.repeats == THRESHOLD && report.duplicate && self.recover.lt(self.una) {
                self.board.lose_first();
            }
            return self.board.lost() > before;
        }
        if desk.config.loss_detection == LossDetection::Sack {
            let beyond = (u32::from(THRESHOLD) - 1) * self.mss + 1;
            return report.delivery.sacked_bytes > 0 && self.board.lose_below(beyond);
        }
        let highest = self.board.highest_sacked();
        self.rack.on_delivery(&report.delivery, self.una, highest, self.rtt.least(), now);
        if self.board.sacked() == 0 && !self.congestion.recovers() && self.reorder_at == Instant::NEVER {
            // Everything arrives in order: nothing can be overdue.
            return false;
        }
        self.look_for_late(desk)
    }

    fn look_for_late(&mut self, desk: &mut Desk<'_, '_>) -> bool {
        let times = (self.rtt.least(), self.rtt.smoothed().unwrap_or_default());
        let (recovers, now) = (self.congestion.recovers(), desk.cx.now);
        let (found, again_at) = self.rack.detect(&mut self.board, recovers, self.mss, times, now);
        self.reorder_at = again_at;
        found
    }

    /// Handles the RACK reordering timer: overdue segments are now lost (RFC 8985 §6.2, step 5).
    pub(super) fn on_reorder_timer(&mut self, desk: &mut Desk<'_, '_>) {
        let outstanding = self.una.distance(self.max);
        if !self.look_for_late(desk) {
            return;
        }
        let report = Report { acked: 0, outstanding, duplicate: false, delivery: Delivery::default() };
        let heard = self.heard(&report, desk.cx.now);
        self.begin_recovery(&heard, desk);
    }

    /// Enters recovery after a loss; the first lost segment is resent at once (RFC 5681 §3.2, RFC 6582 §3.2,
    /// RFC 6675 §5).
    fn begin_recovery(&mut self, heard: &Heard, desk: &mut Desk<'_, '_>) {
        let begins = !self.congestion.recovers();
        if begins {
            desk.counters.fast_retransmits += 1;
            self.recover = self.max;
        }
        self.congestion.on_loss(self.max, heard);
        self.at_once |= begins || !self.sack;
    }

    /// Handles a retransmission timeout with `outstanding` bytes outstanding: everything not SACKed is lost
    /// (RFC 6298 §5.4, RFC 6675 §5.1).
    pub(super) fn on_retransmission_timeout(&mut self, outstanding: u32) {
        if self.board.is_reneged() {
            // RFC 2018 §8: the peer may have discarded data that it SACKed.
            self.board.renege();
        }
        self.board.lose_all();
        self.rack.on_timeout();
        (self.tail_at, self.tail_due, self.reorder_at) = (Instant::NEVER, false, Instant::NEVER);
        self.repeats = 0;
        self.recover = self.max;
        self.congestion.on_timeout(self.max, outstanding, self.mss, self.silence == 1);
    }

    /// Continues sending at the first unacknowledged byte, and clears the scoreboard.
    pub(super) fn start_over(&mut self) {
        self.next = self.una;
        self.board.clear();
        (self.tail_at, self.tail_due, self.reorder_at) = (Instant::NEVER, false, Instant::NEVER);
    }

    /// Sets the tail probe timer (RFC 8985 §7.2), after a burst of ACKs and data.
    #[inline]
    pub(super) fn arm_tail(&mut self, desk: &Desk<'_, '_>) {
        let config = desk.config;
        let flight = self.board.flight();
        let fit = config.tail_probe
            && config.loss_detection == LossDetection::Rack
            && self.sack
            && flight > 0
            && !self.rack.probes()
            && !self.congestion.recovers()
            && self.board.sacked() == 0;
        if !fit {
            self.tail_at = Instant::NEVER;
            return;
        }
        let wait = match self.rtt.smoothed() {
            None => TAIL_UNMEASURED,
            Some(smoothed) if flight <= self.mss => smoothed * 2 + config.peer_ack_delay,
            // RFC 8985 §7.2: twice the smoothed RTT; while a queue builds up, the latest RTT exceeds the
            // mean, so take the greater.
            Some(smoothed) => smoothed.max(self.rack.round_trip()) * 2 + config.tail_probe_least,
        };
        // RFC 8985 §7.2: not later than the RTO, which the probe replaces if both would fire together.
        self.tail_at = (desk.cx.now + wait).min(self.resend_at);
    }

    /// Stops the timers that wait for the peer.
    pub(super) fn stop_timers(&mut self) {
        (self.resend_at, self.tail_at, self.tail_due) = (Instant::NEVER, Instant::NEVER, false);
        (self.reorder_at, self.pace_at) = (Instant::NEVER, Instant::NEVER);
    }
}
