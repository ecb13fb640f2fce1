//! RACK-TLP: losses are found by time, and the tail of a flight is asked about (RFC 8985).
//!
//! Theory    a segment that left before another one which has arrived is late; when it is later than a reordering
//!           window, it is lost. The window is nothing until reordering is seen, then a quarter of the least round
//!           trip, and more where the peer's DSACKs show that we were too hasty.
//! Tail      when nothing has been heard for two round trips, one segment more is sent: its SACK shows what is lost,
//!           where a timeout would have started from nothing.

use super::scoreboard::{Delivery, Scoreboard};
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::tcp::Sequence;

/// Recoveries that a widened reordering window outlives (RFC 8985 §6.2, step 4).
const PERSISTENCE: u8 = 16;
/// SACKed segments that stand for a loss as long as no reordering was seen (RFC 8985 §6.2, DupThresh).
const THRESHOLD_SEGMENTS: u32 = 3;

/// A probe of the tail that is out (RFC 8985 §7).
#[derive(Clone, Copy, Debug)]
struct Probe {
    end: Sequence,
    /// Whether it carried old bytes.
    again: bool,
}

/// What one session remembers.
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// The latest transmission that has arrived: when it left and where it ends.
    latest: Option<(Instant, Sequence)>,
    round_trip: Duration,
    /// The highest byte that has arrived.
    forward: Option<Sequence>,
    reordering: bool,
    multiplier: u8,
    persistence: u8,
    /// DSACKs before this byte belong to a round that has been counted.
    round_end: Option<Sequence>,
    probe: Option<Probe>,
}

impl Rack {
    /// What an acknowledgement told: `una` and `next` as they are now, `least` the least round trip.
    pub(super) fn on_delivery(
        &mut self,
        delivery: &Delivery,
        una: Sequence,
        highest_sacked: Option<Sequence>,
        least: Duration,
        now: Instant,
    ) {
        // §6.2 step 2: a round trip shorter than any is an answer to the first transmission, not the second.
        let latest = match delivery.latest {
            Some((moment, _, true)) if now.since(moment) < least => delivery.measured,
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
        let forward = self.forward.unwrap_or(una);
        self.reordering |=
            delivery.lowest_first.is_some_and(|lowest| lowest.lt(forward)) && self.forward.is_some();
        let highest = highest_sacked.map_or(una, |highest| highest.max(una));
        self.forward = Some(forward.max(highest));
    }

    /// A round that everything before `una` ends is over.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, una: Sequence) {
        self.round_end = self.round_end.filter(|end| una.lt(*end));
    }

    /// A DSACK says that something was sent again in vain (§6.2 step 4).
    pub(super) fn on_duplicate_sack(&mut self, una: Sequence, next: Sequence) {
        if self.round_end.is_none_or(|end| end.le(una)) {
            self.round_end = Some(next);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persistence = PERSISTENCE;
        }
    }

    /// A recovery is over.
    pub(super) fn on_recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.multiplier = 0;
        }
    }

    /// Whether DSACKs belong to a round that has been counted.
    #[cfg(test)]
    pub(super) fn counts_a_round(&self) -> bool {
        self.round_end.is_some()
    }

    /// The last round trip.
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Finds what is overdue. Whether anything is newly lost, and when to look again.
    pub(super) fn detect(
        &mut self,
        board: &mut Scoreboard,
        recovering: bool,
        mss: u32,
        (least, smoothed): (Duration, Duration),
        now: Instant,
    ) -> (bool, Instant) {
        let Some(latest) = self.latest else { return (false, Instant::NEVER) };
        let hasty = !self.reordering && (recovering || board.sacked() >= THRESHOLD_SEGMENTS * mss);
        let window = match hasty {
            true => Duration::ZERO,
            false => (least * (u32::from(self.multiplier) + 1) / 4).min(smoothed),
        };
        board.lose_overdue(latest, self.round_trip + window, now)
    }

    // ---- The tail ---------------------------------------------------------------------------------------------

    /// Whether a probe is out.
    pub(super) fn probes(&self) -> bool {
        self.probe.is_some()
    }

    /// A probe has left, which ends before `end` (§7.3).
    pub(super) fn on_probe(&mut self, end: Sequence, again: bool) {
        self.probe = Some(Probe { end, again });
    }

    /// An acknowledgement has come while a probe may be out (§7.4.2). Whether the probe has repaired a loss, which
    /// the congestion control is to know.
    pub(super) fn on_probe_answer(
        &mut self,
        ack: Sequence,
        duplicate_sack: bool,
        pure_duplicate: bool,
    ) -> bool {
        let Some(probe) = self.probe.filter(|probe| probe.end.le(ack)) else { return false };
        let repaired = probe.again && !duplicate_sack && probe.end.lt(ack);
        if !probe.again || duplicate_sack || repaired || pure_duplicate {
            self.probe = None;
        }
        repaired
    }

    /// A timeout: the probe has not helped.
    pub(super) fn on_timeout(&mut self) {
        self.probe = None;
    }
}
