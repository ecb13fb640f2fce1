//! RACK-TLP: loss detection by time, and tail loss probes (RFC 8985).
//!
//! Loss detection   if a segment was delivered, all segments sent before it should have been delivered too.
//!                  Such an earlier segment counts as lost once it has been outstanding for one RTT plus the
//!                  reordering window.
//! Reordering       the window is zero until reordering is observed. It is then a quarter of the minimum RTT,
//!                  and grows by another quarter, up to the smoothed RTT, whenever a DSACK reveals a
//!                  spurious retransmission.
//! Tail probes      if the last segments of a flight are lost, no later segment reveals it. Therefore, if no
//!                  acknowledgement arrives for about two RTTs, one more segment is sent as a probe. The SACK
//!                  for the probe reveals the loss before the retransmission timeout, after which sending
//!                  would restart with a window of one segment.
//! Tests            the packet scripts `talks/rack` and `talks/tail`; `crates/talk/tests/tcp/recovery.rs`.

use super::scoreboard::{Delivery, Scoreboard};
use crate::wire::tcp::Sequence;
use core::time::Duration;
use kiban_base::Instant;

/// Recoveries for which a widened reordering window persists (RFC 8985 §6.2, step 4).
const PERSISTENCE: u8 = 16;
/// SACKed segments that indicate a loss while no reordering has been seen (RFC 8985 §6.2, DupThresh).
const THRESHOLD_SEGMENTS: u32 = 3;

/// An outstanding tail probe (RFC 8985 §7).
#[derive(Clone, Copy, Debug)]
struct Probe {
    end: Sequence,
    /// Whether it was a retransmission.
    again: bool,
}

/// The RACK state of one session.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// The latest transmission that has arrived: its send time and end.
    latest: Option<(Instant, Sequence)>,
    round_trip: Duration,
    /// The highest byte that has arrived.
    fack: Option<Sequence>,
    reordering_seen: bool,
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    /// DSACKs below this byte belong to a round that was already counted.
    dsack_round: Option<Sequence>,
    probe: Option<Probe>,
}

impl Rack {
    /// Processes the segments that an acknowledgement reports as delivered; `una` is its SND.UNA, and `least`
    /// the minimum RTT. `echoes_before` says whether it echoes a timestamp from before a moment.
    pub(crate) fn on_delivery(
        &mut self,
        delivery: &Delivery,
        una: Sequence,
        highest_sacked: Option<Sequence>,
        least: Duration,
        now: Instant,
        echoes_before: impl Fn(Instant) -> bool,
    ) {
        // §6.2 step 2: if the acknowledgement echoes a timestamp from before the retransmission, or if the
        // round trip is shorter than the minimum RTT, the acknowledgement is for the original transmission.
        let latest = match delivery.latest {
            Some((moment, _, true)) if now.since(moment) < least || echoes_before(moment) => {
                delivery.rtt_sample
            }
            Some((moment, end, _)) => Some((moment, end)),
            None => None,
        };
        if let Some((moment, end)) = latest {
            self.round_trip = now.since(moment);
            if self
                .latest
                .is_none_or(|(before, its_end)| before < moment || before == moment && its_end.lt(end))
            {
                self.latest = Some((moment, end));
            }
        }
        // Step 3.
        let forward = self.fack.unwrap_or(una);
        self.reordering_seen |=
            delivery.lowest_first.is_some_and(|lowest| lowest.lt(forward)) && self.fack.is_some();
        let highest = highest_sacked.map_or(una, |highest| highest.max(una));
        self.fack = Some(forward.max(highest));
    }

    /// Ends the DSACK round once SND.UNA has passed its end.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, una: Sequence) {
        self.dsack_round = self.dsack_round.filter(|end| una.lt(*end));
    }

    /// Widens the reordering window, because a DSACK reveals a spurious retransmission (§6.2 step 4).
    pub(crate) fn on_duplicate_sack(&mut self, una: Sequence, next: Sequence) {
        if self.dsack_round.is_none_or(|end| end.le(una)) {
            self.dsack_round = Some(next);
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = PERSISTENCE;
        }
    }

    /// Records that a segment arrived late although it had been marked as lost.
    pub(crate) fn on_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// Records the end of a recovery.
    pub(crate) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 0;
        }
    }

    /// Returns whether DSACKs belong to a round that was already counted.
    #[cfg(test)]
    pub(crate) fn counts_a_round(&self) -> bool {
        self.dsack_round.is_some()
    }

    /// Returns the latest round trip.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Marks overdue segments as lost. Returns whether anything was newly lost, and when to check again.
    pub(crate) fn detect(
        &mut self,
        board: &mut Scoreboard,
        recovering: bool,
        mss: u32,
        (least, smoothed): (Duration, Duration),
        now: Instant,
    ) -> (bool, Instant) {
        let Some(latest) = self.latest else { return (false, Instant::NEVER) };
        let hasty = !self.reordering_seen && (recovering || board.sacked() >= THRESHOLD_SEGMENTS * mss);
        let window = match hasty {
            true => Duration::ZERO,
            false => (least * (u32::from(self.reo_wnd_mult) + 1) / 4).min(smoothed),
        };
        board.mark_overdue_lost(latest, self.round_trip + window, now)
    }

    // ---- Tail probes ----

    /// Returns whether a tail probe is outstanding.
    pub(crate) fn tlp_outstanding(&self) -> bool {
        self.probe.is_some()
    }

    /// Records that a tail probe was sent, which ends before `end` (§7.3).
    pub(crate) fn on_tlp_sent(&mut self, end: Sequence, again: bool) {
        self.probe = Some(Probe { end, again });
    }

    /// Processes an acknowledgement while a tail probe may be outstanding (§7.4.2). Returns whether the probe
    /// has repaired a loss, to which congestion control must react.
    pub(crate) fn on_tlp_ack(&mut self, ack: Sequence, duplicate_sack: bool, pure_duplicate: bool) -> bool {
        let Some(probe) = self.probe.filter(|probe| probe.end.le(ack)) else { return false };
        let repaired = probe.again && !duplicate_sack && probe.end.lt(ack);
        if !probe.again || duplicate_sack || repaired || pure_duplicate {
            self.probe = None;
        }
        repaired
    }

    /// Forgets the tail probe after a timeout.
    pub(crate) fn on_timeout(&mut self) {
        self.probe = None;
    }
}
