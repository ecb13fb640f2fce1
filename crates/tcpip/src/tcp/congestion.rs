//! Congestion control: how many bytes may be in flight (RFC 5681).
//!
//! Phases           *open*: the window grows by the bytes acknowledged in slow start, and by the chosen rule
//!                  afterwards. *Recovery*: a loss was detected, and the window follows proportional rate
//!                  reduction until all data that was outstanding at that time is acknowledged. *Loss*: the
//!                  retransmission timer fired, and slow start begins at one segment.
//! Rules            Reno (RFC 5681 §3.1) or CUBIC (RFC 9438).
//! Bytes            one acknowledgement may cover a whole burst, so windows grow by bytes, not by
//!                  acknowledgements (RFC 3465).
//! Idle             a window that is not fully used is not validated and does not grow (RFC 7661). After an
//!                  idle time longer than the RTO, it is reset to the restart window (RFC 5681 §4.1).

use super::config::{Config, CongestionControl};
use super::cubic::Cubic;
use crate::wire::tcp::Sequence;
use core::time::Duration;
use kiban_base::Instant;

#[derive(Clone, Debug)]
enum Rule {
    Reno {
        /// Bytes acknowledged since the window last grew.
        acked: u32,
    },
    Cubic(Cubic),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// A recovery, which ends when this byte is acknowledged.
    Recovery(Sequence),
    Loss(Sequence),
}

/// The facts about an acknowledgement that congestion control needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckSample {
    /// The cumulative acknowledgement.
    pub(super) una: Sequence,
    /// Bytes acknowledged in order.
    pub(super) acked: u32,
    /// Bytes newly known to have arrived, in order or not.
    pub(super) delivered: u32,
    /// Bytes outstanding before this acknowledgement: sent and not acknowledged.
    pub(super) outstanding: u32,
    /// Estimate of the bytes in flight now.
    pub(super) flight: u32,
    /// Whether lost bytes wait for retransmission.
    pub(super) waits: bool,
    /// Whether the acknowledgement reports an ECN mark.
    pub(super) ecn_echo: bool,
    pub(super) mss: u32,
    pub(super) round_trip: Duration,
    pub(super) now: Instant,
}

/// The congestion window before a reduction.
#[derive(Debug)]
pub(super) struct PriorWindow {
    cwnd: u32,
    ssthresh: u32,
    rule: Rule,
}

/// The congestion control of one session.
#[derive(Debug)]
pub(super) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    phase: Phase,
    rule: Rule,
    /// Whether a recovery sends at the rate of proportional rate reduction (RFC 6937).
    reduces: bool,
    /// Bytes outstanding when the recovery began (RecoverFS).
    out_before: u32,
    /// Bytes delivered since the recovery began (prr_delivered).
    delivered: u32,
    /// Bytes sent since the recovery began (prr_out).
    sent: u32,
    /// When the last acknowledgement arrived that could grow the window.
    grown_at: Instant,
}

impl Congestion {
    pub(super) fn new(config: &Config, mss: u32) -> Congestion {
        // RFC 6928: min(10 MSS, max(2 MSS, 14600)).
        let cwnd = (config.initial_window_segments * mss).min((2 * mss).max(14_600));
        Congestion {
            cwnd,
            ssthresh: u32::MAX,
            phase: Phase::Open,
            rule: match config.congestion {
                CongestionControl::Reno => Rule::Reno { acked: 0 },
                CongestionControl::Cubic => Rule::Cubic(Cubic::default()),
            },
            reduces: config.proportional_rate_reduction,
            out_before: 0,
            delivered: 0,
            sent: 0,
            grown_at: Instant::ZERO,
        }
    }

    /// Sets a smaller initial window, bytes.
    pub(super) fn begin_with(&mut self, window: u32) {
        self.cwnd = window;
    }

    /// Returns the congestion window, bytes.
    #[inline]
    pub(super) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Returns the slow start threshold, bytes; `None` before the first loss.
    pub(super) fn ssthresh(&self) -> Option<u32> {
        (self.ssthresh != u32::MAX).then_some(self.ssthresh)
    }

    /// Returns whether a recovery is in progress, after fast retransmit or a timeout.
    #[inline]
    pub(super) fn in_recovery(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Returns whether a recovery after a timeout is in progress.
    pub(super) fn in_timeout_recovery(&self) -> bool {
        matches!(self.phase, Phase::Loss(_))
    }

    /// Returns whether the session is in slow start.
    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Processes an acknowledgement. Returns true if it ends a recovery.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, heard: &AckSample) -> bool {
        match self.phase {
            Phase::Open => {
                // RFC 3168 §6.1.2: an ACK with ECE does not increase the window.
                if heard.acked > 0 && heard.outstanding + heard.mss >= self.cwnd && !heard.ecn_echo {
                    self.grow(heard.acked, heard);
                } else if let (1.., Rule::Cubic(cubic)) = (heard.acked, &mut self.rule) {
                    cubic.pause(heard.now.since(self.grown_at));
                }
                self.grown_at = heard.now;
                false
            }
            Phase::Recovery(until) if until.le(heard.una) => {
                self.phase = Phase::Open;
                // At the end of recovery, RFC 6937 §3 applies. Without PRR, RFC 6582 §3.2 step 3 applies,
                // which avoids a burst.
                self.cwnd = match self.reduces {
                    true => self.ssthresh,
                    false => self.ssthresh.min(heard.flight.max(heard.mss) + heard.mss),
                };
                true
            }
            Phase::Recovery(_) => {
                self.proportional_rate_reduction(heard);
                false
            }
            Phase::Loss(until) => {
                self.grow(heard.delivered, heard);
                if until.le(heard.una) {
                    self.phase = Phase::Open;
                    return true;
                }
                false
            }
        }
    }

    fn grow(&mut self, bytes: u32, heard: &AckSample) {
        let grown = if self.cwnd < self.ssthresh {
            // Slow start ends at the threshold, not beyond it.
            bytes.min(self.ssthresh - self.cwnd)
        } else {
            match &mut self.rule {
                Rule::Reno { acked } => {
                    *acked = acked.saturating_add(bytes);
                    if *acked < self.cwnd {
                        return;
                    }
                    *acked -= self.cwnd;
                    heard.mss
                }
                Rule::Cubic(cubic) => cubic.grow(bytes, self.cwnd, heard.mss, heard.now, heard.round_trip),
            }
        };
        self.cwnd = self.cwnd.saturating_add(grown).min(1 << 30);
    }

    /// RFC 6937 §3: send in proportion to the bytes delivered, so that the data in flight shrinks smoothly to
    /// the threshold.
    fn proportional_rate_reduction(&mut self, heard: &AckSample) {
        if !self.reduces {
            return;
        }
        self.delivered = self.delivered.saturating_add(heard.delivered);
        let first = self.sent == 0 && heard.waits;
        let count = if heard.flight > self.ssthresh {
            let due = u64::from(self.delivered) * u64::from(self.ssthresh);
            (due.div_ceil(u64::from(self.out_before.max(1))) as u32).saturating_sub(self.sent)
        } else {
            // Slow start reduction bound (PRR-SSRB).
            let bound = self.delivered.saturating_sub(self.sent).max(heard.delivered) + heard.mss;
            (self.ssthresh - heard.flight).min(bound)
        };
        self.cwnd = heard.flight + count.max(if first { heard.mss } else { 0 });
    }

    /// Records that `bytes` were sent.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Reacts to a loss detected while `outstanding` bytes up to `next` were outstanding (RFC 5681 §3.2, RFC
    /// 6675 §5). With `is_reduced`, an ECN mark has already reduced the window for this data (RFC 3168
    /// §6.1.2).
    pub(super) fn on_loss(&mut self, next: Sequence, heard: &AckSample, is_reduced: bool) {
        if self.in_recovery() {
            return;
        }
        self.phase = Phase::Recovery(next);
        if !is_reduced {
            self.ssthresh = self.reduced(heard.outstanding, heard.mss);
        }
        (self.out_before, self.delivered, self.sent) = (heard.outstanding, 0, 0);
        self.cwnd = self.ssthresh;
        self.proportional_rate_reduction(heard);
    }

    /// Reacts to an ECN mark (RFC 3168 §6.1.2), by less than to a loss if `alternative` (RFC 8511 §3).
    pub(super) fn on_ecn_echo(&mut self, heard: &AckSample, alternative: bool) {
        let borne = heard.outstanding.min(self.cwnd.max(heard.mss));
        self.ssthresh = match &mut self.rule {
            _ if !alternative => self.reduced(heard.outstanding, heard.mss),
            Rule::Reno { acked } => {
                *acked = 0;
                (borne / 5 * 4).max(2 * heard.mss)
            }
            Rule::Cubic(cubic) => cubic.reduce_for_ecn(borne, heard.mss),
        };
        self.cwnd = self.cwnd.min(self.ssthresh);
    }

    /// Reduces the window after a loss that a tail probe repaired before it was detected (RFC 8985 §7.4.2).
    pub(super) fn on_repaired(&mut self, mss: u32) {
        if !self.in_recovery() {
            self.ssthresh = self.reduced(self.cwnd, mss);
            self.cwnd = self.cwnd.min(self.ssthresh);
        }
    }

    fn reduced(&mut self, outstanding: u32, mss: u32) -> u32 {
        // Use the outstanding bytes, which the network has carried; an unused window proves nothing.
        let borne = outstanding.min(self.cwnd.max(mss));
        match &mut self.rule {
            Rule::Reno { acked } => {
                *acked = 0;
                (borne / 2).max(2 * mss)
            }
            Rule::Cubic(cubic) => cubic.reduce(borne, mss),
        }
    }

    /// Reacts to a retransmission timeout (RFC 5681 §3.1, equation 4). `first` is set for the first timeout
    /// of a series.
    pub(super) fn on_timeout(&mut self, next: Sequence, outstanding: u32, mss: u32, first: bool) {
        if first && !matches!(self.phase, Phase::Loss(_)) {
            self.ssthresh = self.reduced(outstanding, mss);
        }
        self.cwnd = mss;
        self.phase = Phase::Loss(next);
    }

    /// Returns the window before a reduction, with `outstanding` bytes outstanding. The network has carried
    /// only those bytes, so that neither a larger window nor a larger threshold is restored: slow start must
    /// not go on from a window that was in doubt (RFC 4015 §3.3 would allow it).
    pub(super) fn prior_window(&self, outstanding: u32) -> PriorWindow {
        PriorWindow {
            cwnd: self.cwnd.min(outstanding),
            ssthresh: self.ssthresh.min(outstanding),
            rule: self.rule.clone(),
        }
    }

    /// Undoes a reduction that was spurious, and ends its recovery (RFC 4015 §3.3, RFC 9438 §4.9).
    pub(super) fn restore(&mut self, prior: PriorWindow) {
        self.cwnd = self.cwnd.max(prior.cwnd);
        self.ssthresh = self.ssthresh.max(prior.ssthresh);
        self.rule = prior.rule;
        self.phase = Phase::Open;
    }

    /// Continues the recovery after a timeout that was not spurious (RFC 5682 §3.1, step 3a: at most three
    /// segments).
    pub(super) fn on_timeout_confirmed(&mut self, flight: u32, mss: u32) {
        self.cwnd = self.cwnd.max(flight + mss).min(3 * mss);
    }

    /// Restarts the window after an idle time longer than the RTO (RFC 5681 §4.1).
    pub(super) fn on_idle(&mut self, config: &Config, mss: u32) {
        if !self.in_recovery() {
            let initial = Congestion::new(config, mss).cwnd;
            self.cwnd = self.cwnd.min(initial);
        }
    }
}
