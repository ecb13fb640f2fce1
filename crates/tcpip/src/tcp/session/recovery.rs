//! Loss recovery, driven by acknowledgements and timers.
//!
//! Every acknowledgement is processed in the same order: the scoreboard records what has arrived, loss
//! detection marks what is lost, congestion control adjusts the window, and the timers are set again. With
//! SACK, the peer reports the ranges that it holds. Without SACK, duplicate ACKs are counted instead;
//! everything else is the same (RFC 5681, RFC 6582, RFC 6675, RFC 8985).

use super::tcb::{Session, SessionContext};
use crate::tcp::config::LossDetection;
use crate::tcp::congestion::AckSample;
use crate::tcp::listen::timestamps::TimestampState;
use crate::tcp::loss::scoreboard::Delivery;
use crate::tcp::loss::undo::{Episode, Evidence};
use crate::wire::tcp::{Header, SackBlock, SackBlocks};
use alloc::boxed::Box;
use core::time::Duration;
use kiban_base::Instant;

/// Duplicate ACKs that indicate a loss (RFC 5681 §3.2).
const THRESHOLD: u8 = 3;
/// The second timeout within this time, with fewer segments outstanding than this, makes segments shorter.
const SHORTEN_PERIOD: Duration = Duration::from_secs(10);
const SHORTEN_BELOW: u32 = 10;
/// Tail probe timeout before the first RTT sample (RFC 8985 §7.2).
const TAIL_UNMEASURED: Duration = Duration::from_secs(1);

/// An acknowledgement, as loss recovery sees it.
pub(super) struct AckReport {
    /// Bytes newly acknowledged, and bytes that were outstanding before.
    pub(super) acked: u32,
    pub(super) outstanding: u32,
    /// Whether the acknowledgement is a duplicate ACK: nothing new, no data, no window update (RFC 5681 §2).
    pub(super) duplicate: bool,
    pub(super) delivery: Delivery,
}

impl Session {
    /// Processes an acceptable acknowledgement; SND.UNA has already advanced.
    #[inline]
    pub(super) fn on_report(
        &mut self,
        header: &Header,
        mut report: AckReport,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        if self.zero_window_probe {
            return;
        }
        let now = ctx.cx.now;
        let (mut twice, mut undoes, dsack_before) = (false, false, self.tally.duplicate_sacks > 0);
        if self.sack && !header.options.sack.is_empty() {
            let duplicate = self.on_sack(&header.options.sack, &mut report.delivery, ctx);
            twice = duplicate.is_some();
            // While other segments are known to be lost, the reduction was right.
            undoes =
                duplicate.is_some_and(|block| self.completes_episode(&block)) && self.scoreboard.lost() == 0;
        } else if !self.sack && report.outstanding > 0 {
            self.count_duplicates(&mut report);
        }
        let ecn_echo = self.is_ecn_echo(header);
        if ecn_echo {
            // RFC 4015 §3.2: the path is congested, so the reduction is not undone.
            (self.episode, undoes) = (None, false);
        }
        // RFC 8985 §7.2: a cumulative acknowledgement restarts the tail probe timer, and SACKed segments stop
        // it. Other acknowledgements, such as the SACK of part of a segment, leave it running.
        self.tlp_rearm |= report.acked > 0 || self.scoreboard.sacked() > 0;
        if report.outstanding == 0 {
            // Nothing was outstanding, but a D-SACK may still end a tail probe (RFC 8985 §7.4.2).
            if twice {
                self.rack.on_tlp_ack(self.snd_una, true, false);
            }
            if undoes {
                self.undo(false, ctx);
            }
            return;
        }
        let delivery = &report.delivery;
        if delivery.bytes == 0 && !report.duplicate && !twice && !ecn_echo {
            return;
        }
        if let (Some((left, _)), false) = (delivery.rtt_sample, delivery.acks_retransmission) {
            self.rtt.on_delivered(left, now, ctx.config);
        } else if report.acked > 0 {
            self.measure_by_echo(header, ctx);
        }
        let echo = header.options.timestamps.map(|stamps| stamps.echo);
        let by_ack = self.proves_spurious(&report, echo, (twice, dsack_before));
        if by_ack || undoes {
            self.undo(by_ack, ctx);
        }
        let newly_lost = self.detect(&report, echo, ctx);
        let heard = AckSample { ecn_echo, ..self.heard(&report, now) };
        if !(by_ack || undoes) && self.congestion.on_acknowledged(&heard) {
            self.rack.on_recovered();
            if let Some(episode) = &mut self.episode {
                episode.on_recovered(self.snd_max);
            }
        }
        if self.episode.as_ref().is_some_and(|episode| episode.is_over(self.snd_una)) {
            self.episode = None;
        }
        if newly_lost {
            self.begin_recovery(&heard, ctx);
        } else if ecn_echo {
            self.on_ecn_echo(&heard, ctx);
        }
        if self.rack.tlp_outstanding() && self.rack.on_tlp_ack(self.snd_una, twice, report.duplicate) {
            self.congestion.on_repaired(self.mss);
        }
    }

    /// Returns whether a D-SACK block is the last of an episode: every retransmission was unnecessary.
    fn completes_episode(&mut self, block: &SackBlock) -> bool {
        self.episode.as_mut().is_some_and(|episode| episode.on_duplicate_sack(block))
    }

    /// Returns whether an acknowledgement proves that the last reduction of the window was spurious.
    fn proves_spurious(
        &mut self,
        report: &AckReport,
        echo: Option<u32>,
        (dsack, dsack_before): (bool, bool),
    ) -> bool {
        let Some(episode) = &mut self.episode else { return false };
        let evidence = Evidence {
            una: self.snd_una,
            snd_max: self.snd_max,
            advances: report.acked > 0,
            duplicate: report.duplicate,
            sack: self.sack,
            delivery: &report.delivery,
            dsack,
            dsack_before,
        };
        let stamps = &self.timestamps;
        let by_echo = episode.acks_original(&evidence, |moment| echoes_before(stamps, echo, moment));
        let by_frto = episode.frto_on_ack(&evidence);
        if by_frto == Some(false) {
            self.congestion.on_timeout_confirmed(self.scoreboard.flight(), self.mss);
        }
        by_echo || by_frto == Some(true)
    }

    /// Undoes the last reduction of the window (RFC 4015). If an ACK proved it spurious, `none_lost`, what is
    /// marked as lost is only late.
    fn undo(&mut self, none_lost: bool, ctx: &mut SessionContext<'_, '_>) {
        let Some(episode) = self.episode.take() else { return };
        if episode.by_timeout {
            ctx.counters.spurious_timeouts += 1;
            self.rtt.on_spurious_timeout(ctx.cx.now);
        } else {
            ctx.counters.spurious_fast_retransmits += 1;
            self.rack.on_reordering();
        }
        if self.congestion.in_recovery() {
            self.rack.on_recovered();
        }
        self.congestion.restore(episode.prior);
        // The next loss reduces the window again.
        self.ecn.echo_reduced_at = None;
        if none_lost {
            self.scoreboard.unmark_lost();
        }
        self.tlp_rearm = true;
    }

    fn heard(&self, report: &AckReport, now: Instant) -> AckSample {
        AckSample {
            una: self.snd_una,
            acked: report.acked,
            delivered: report.delivery.bytes,
            outstanding: report.outstanding,
            flight: self.scoreboard.flight(),
            waits: self.scoreboard.lost() > 0,
            ecn_echo: false,
            mss: self.mss,
            round_trip: self.rtt.srtt().unwrap_or_default(),
            now,
        }
    }

    /// Processes the peer's SACK blocks. Returns the first one if it is a D-SACK (RFC 2883).
    fn on_sack(
        &mut self,
        blocks: &SackBlocks,
        delivery: &mut Delivery,
        ctx: &mut SessionContext<'_, '_>,
    ) -> Option<SackBlock> {
        let mut good = [SackBlock::default(); crate::wire::tcp::SACK_BLOCKS_MAX];
        let mut count = 0;
        let all = blocks.as_slice();
        let within =
            |block: &SackBlock, outer: &SackBlock| outer.left.le(block.left) && block.right.le(outer.right);
        let twice = match all {
            // RFC 2883 §4: a D-SACK lies below the cumulative ACK, or within the second block.
            [first, rest @ ..] => {
                first.right.le(self.snd_una) || rest.first().is_some_and(|second| within(first, second))
            }
            [] => false,
        };
        for block in &all[usize::from(twice)..] {
            // Empty blocks, and blocks of data never sent or already acknowledged, are ignored.
            if self.snd_una.le(block.left) && block.left.lt(block.right) && block.right.le(self.snd_nxt) {
                good[count] = *block;
                count += 1;
            } else if !block.right.le(self.snd_una) {
                ctx.counters.sack_blocks_invalid += 1;
            }
        }
        self.scoreboard.on_sack(&good[..count], delivery);
        if twice {
            ctx.counters.dsacks_in += 1;
            self.tally.duplicate_sacks += 1;
            self.rack.on_duplicate_sack(self.snd_una, self.snd_max);
        }
        twice.then(|| all[0])
    }

    /// Counts duplicate ACKs without SACK: each means that one segment has arrived. When the cumulative ACK
    /// advances, it covers some of those segments.
    fn count_duplicates(&mut self, report: &mut AckReport) {
        if report.acked > 0 {
            let before = self.scoreboard.sacked();
            if self.congestion.in_recovery() {
                self.scoreboard.deduct_dup_acked(report.acked, self.mss);
            } else {
                self.scoreboard.clear_dup_acked();
            }
            let named = before.saturating_sub(self.scoreboard.sacked());
            report.delivery.bytes = report.acked.saturating_sub(named);
            self.dup_acks = 0;
        } else if report.duplicate && !self.congestion.in_timeout_recovery() {
            // After a timeout, duplicate ACKs may answer segments sent twice (RFC 6582 §3.2 step 1).
            if self.dup_acks == 0 {
                self.dup_acked_max = report.outstanding;
            }
            self.dup_acks = self.dup_acks.saturating_add(1);
            // RFC 5681 §3.2 step 4: duplicate ACKs in excess of the segments that were outstanding do not
            // indicate arrivals.
            if self.dup_acked_max > 0 {
                self.dup_acked_max = self.dup_acked_max.saturating_sub(self.mss);
                self.scoreboard.on_dup_ack(self.mss);
                report.delivery.bytes += self.mss;
            }
        }
    }

    /// Runs loss detection. Returns whether anything was newly marked as lost.
    fn detect(&mut self, report: &AckReport, echo: Option<u32>, ctx: &mut SessionContext<'_, '_>) -> bool {
        let now = ctx.cx.now;
        if !self.sack || ctx.config.loss_detection == LossDetection::NewReno {
            let before = self.scoreboard.lost();
            if report.acked > 0 && self.congestion.in_recovery() && self.snd_una.lt(self.recover) {
                // RFC 6582 §3.2 step 3: a partial ACK reveals the next lost segment.
                self.scoreboard.mark_first_lost();
            } else if self.dup_acks == THRESHOLD && report.duplicate && self.recover.lt(self.snd_una) {
                self.scoreboard.mark_first_lost();
            }
            return self.scoreboard.lost() > before;
        }
        if ctx.config.loss_detection == LossDetection::Sack {
            let beyond = (u32::from(THRESHOLD) - 1) * self.mss + 1;
            return report.delivery.sacked_bytes > 0 && self.scoreboard.mark_lost_below(beyond);
        }
        let highest = self.scoreboard.highest_sacked();
        let (least, stamps) = (self.rtt.min_rtt(), &self.timestamps);
        let echoes = |moment| echoes_before(stamps, echo, moment) == Some(true);
        self.rack.on_delivery(&report.delivery, self.snd_una, highest, least, now, echoes);
        if self.scoreboard.sacked() == 0
            && !self.congestion.in_recovery()
            && self.rack_reorder_deadline == Instant::NEVER
        {
            // Everything has arrived in order, so nothing can be overdue.
            return false;
        }
        self.detect_overdue(ctx)
    }

    fn detect_overdue(&mut self, ctx: &mut SessionContext<'_, '_>) -> bool {
        let times = (self.rtt.min_rtt(), self.rtt.srtt().unwrap_or_default());
        let (recovers, now) = (self.congestion.in_recovery(), ctx.cx.now);
        let (found, again_at) = self.rack.detect(&mut self.scoreboard, recovers, self.mss, times, now);
        self.rack_reorder_deadline = again_at;
        found
    }

    /// Handles the RACK reordering timer: overdue segments are now lost (RFC 8985 §6.2, step 5).
    pub(super) fn on_reorder_timer(&mut self, ctx: &mut SessionContext<'_, '_>) {
        let outstanding = self.snd_una.distance(self.snd_max);
        if !self.detect_overdue(ctx) {
            return;
        }
        let report = AckReport { acked: 0, outstanding, duplicate: false, delivery: Delivery::default() };
        let heard = self.heard(&report, ctx.cx.now);
        self.begin_recovery(&heard, ctx);
    }

    /// Enters recovery after a loss; the first lost segment is resent at once (RFC 5681 §3.2, RFC 6582 §3.2,
    /// RFC 6675 §5).
    fn begin_recovery(&mut self, heard: &AckSample, ctx: &mut SessionContext<'_, '_>) {
        let begins = !self.congestion.in_recovery();
        if begins {
            ctx.counters.fast_retransmits += 1;
            self.recover = self.snd_max;
            self.begin_episode(false, heard.outstanding, ctx);
        }
        self.congestion.on_loss(self.snd_max, heard, self.is_reduced_by_echo());
        if begins {
            self.on_loss_reduction();
        }
        self.force_retransmit |= begins || !self.sack;
    }

    /// Keeps the window before a reduction, in case that it proves to be spurious.
    fn begin_episode(&mut self, by_timeout: bool, outstanding: u32, ctx: &SessionContext<'_, '_>) {
        self.episode = ctx.config.undo_spurious.then(|| {
            let with_frto = by_timeout && self.snd_nxt == self.snd_max;
            let prior = self.congestion.prior_window(outstanding);
            Box::new(Episode::new(prior, by_timeout, self.snd_max, with_frto))
        });
    }

    /// Handles a retransmission timeout with `outstanding` bytes outstanding: everything not SACKed is lost
    /// (RFC 6298 §5.4, RFC 6675 §5.1).
    pub(super) fn on_retransmission_timeout(&mut self, outstanding: u32, ctx: &mut SessionContext<'_, '_>) {
        match &mut self.episode {
            // RFC 5682 §2.1 step 1: data outstanding at the first timeout is still unacknowledged.
            Some(episode) if self.congestion.in_recovery() => episode.on_further_timeout(),
            _ => self.begin_episode(true, outstanding, ctx),
        }
        if self.scoreboard.is_reneged() {
            // RFC 2018 §8: the peer may have discarded data that it SACKed.
            self.scoreboard.renege();
        }
        self.shorten_segments(outstanding, ctx);
        self.scoreboard.mark_all_lost();
        self.rack.on_timeout();
        (self.tlp_deadline, self.tlp_due, self.rack_reorder_deadline) =
            (Instant::NEVER, false, Instant::NEVER);
        self.dup_acks = 0;
        self.recover = self.snd_max;
        self.congestion.on_timeout(self.snd_max, outstanding, self.mss, self.consecutive_timeouts == 1);
        self.on_loss_reduction();
    }

    /// Makes segments shorter at the second timeout within `SHORTEN_PERIOD` at which few of them were
    /// outstanding. The path may lose long packets, or its queues may hold too few of them for a loss to be
    /// repaired without a timeout.
    fn shorten_segments(&mut self, outstanding: u32, ctx: &mut SessionContext<'_, '_>) {
        let Some(mtu) = ctx.config.timeout_mtu else { return };
        if outstanding >= SHORTEN_BELOW * self.mss {
            return;
        }
        let now = ctx.cx.now;
        let before = self.few_segments_timeout_at.replace(now);
        if before.is_some_and(|before| before + SHORTEN_PERIOD > now) {
            self.set_path_mtu(mtu, ctx);
        }
    }

    /// Continues sending at the first unacknowledged byte, and clears the scoreboard.
    pub(super) fn restart_from_snd_una(&mut self) {
        self.snd_nxt = self.snd_una;
        self.scoreboard.clear();
        self.episode = None;
        (self.tlp_deadline, self.tlp_due, self.rack_reorder_deadline) =
            (Instant::NEVER, false, Instant::NEVER);
    }

    /// Sets the tail probe timer (RFC 8985 §7.2), after a burst of ACKs and data.
    #[inline]
    pub(super) fn arm_tlp_timer(&mut self, ctx: &SessionContext<'_, '_>) {
        let config = ctx.config;
        let flight = self.scoreboard.flight();
        let fit = config.tail_loss_probe
            && config.loss_detection == LossDetection::Rack
            && self.sack
            && flight > 0
            && !self.rack.tlp_outstanding()
            && !self.congestion.in_recovery()
            && self.scoreboard.sacked() == 0;
        if !fit {
            self.tlp_deadline = Instant::NEVER;
            return;
        }
        let wait = match self.rtt.srtt() {
            None => TAIL_UNMEASURED,
            Some(smoothed) if flight <= self.mss => smoothed * 2 + config.peer_ack_delay,
            // RFC 8985 §7.2: twice the smoothed RTT; while a queue builds up, the latest RTT exceeds the
            // mean, so take the greater.
            Some(smoothed) => smoothed.max(self.rack.round_trip()) * 2 + config.tail_loss_probe_min,
        };
        // RFC 8985 §7.2: the probe is due no later than the RTO. If both would fire at the same time, the
        // probe replaces the timeout.
        self.tlp_deadline = (ctx.cx.now + wait).min(self.rto_deadline);
    }

    /// Stops the timers that are waiting for the peer.
    pub(super) fn stop_timers(&mut self) {
        (self.rto_deadline, self.tlp_deadline, self.tlp_due) = (Instant::NEVER, Instant::NEVER, false);
        (self.rack_reorder_deadline, self.pacing_deadline) = (Instant::NEVER, Instant::NEVER);
    }
}

/// Returns whether an ACK that echoes `echo` answers a segment sent before the time `moment`; `None` without
/// timestamps.
fn echoes_before(stamps: &Option<TimestampState>, echo: Option<u32>, moment: Instant) -> Option<bool> {
    stamps.as_ref().zip(echo).map(|(stamps, echo)| stamps.is_echo_before(echo, moment))
}
