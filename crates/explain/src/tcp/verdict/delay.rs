//! A queue on the path that delays everything: as round trips show it, or the repairs of losses.

use super::{Case, EVIDENCE_MAX, SEGMENTS_MIN};
use crate::cause::Cause;
use crate::figures::{MILLISECOND, millis, percentile, time};
use crate::finding::{Evidence, Finding};
use crate::tcp::queue;
use crate::tcp::timeline::Repair;

/// The queueing delay of a bloated buffer.
const BLOAT_MIN: u64 = 80 * MILLISECOND;
/// Fewer round trips may all have met one packet that was delayed.
const ROUND_TRIPS_MIN: usize = 10;

impl Case<'_> {
    pub(super) fn bufferbloat(&self) -> Option<Finding> {
        let least = self.timeline.shortest_round_trip();
        let is_bloat = |trip: u64| trip.saturating_sub(least) >= BLOAT_MIN && trip >= 3 * least;
        if self.account.segments < SEGMENTS_MIN {
            return None;
        }
        let (median, worst) = (self.timeline.round_trip(50), self.timeline.round_trip(95));
        let (trip, because, evidence) = if self.timeline.round_trips.len() >= ROUND_TRIPS_MIN
            && is_bloat(median)
        {
            let because = format!(
                "Under load the round trip grew from {} to {} (median; 95 % below {}): packets wait in a \
                     queue.",
                time(least),
                time(median),
                time(worst)
            );
            let longest = self.timeline.round_trips.iter().max_by_key(|(_, trip)| *trip);
            let ack = longest.and_then(|(at, _)| self.timeline.acks.iter().find(|ack| ack.captured == *at));
            let evidence = longest.zip(ack).map(|((at, trip), ack)| Evidence {
                packets: vec![ack.number],
                at_s: self.seconds(*at),
                lost_ms: millis(trip.saturating_sub(least)),
                what: format!("this acknowledgement took {}", time(*trip)),
            });
            (median, because, evidence.into_iter().collect())
        } else {
            self.full_queue(least).filter(|(trip, ..)| is_bloat(*trip))?
        };
        let lost = (self.account.active() as f64 * (trip - least) as f64 / trip as f64) as u64;
        Some(self.finding(Cause::Bufferbloat, lost, because, evidence))
    }

    /// Returns the round trip that the repairs of losses show, ns, which is that of a full queue, in words,
    /// and its evidence.
    pub(super) fn full_queue(&self, least: u64) -> Option<(u64, String, Vec<Evidence>)> {
        let repairs = &self.timeline.repairs;
        let lag = percentile(repairs.iter().map(|repair| repair.lag).collect(), 50)?;
        let trip = self.timeline.near + lag;
        let because = format!(
            "When segments were lost, their retransmissions came after a round trip of {}, which had been {} \
             without load: packets wait in a queue until it overflows.",
            time(trip),
            time(least)
        );
        let piece = |repair: &Repair| Evidence {
            packets: repair.packets.to_vec(),
            at_s: self.seconds(repair.asked),
            lost_ms: millis(repair.lag.saturating_sub(self.timeline.far)),
            what: format!("the retransmission came {} after it was asked for", time(repair.lag)),
        };
        Some((trip, because, repairs.iter().take(EVIDENCE_MAX).map(piece).collect()))
    }

    /// Returns whether a congestion window that grows as in TCP's standards has filled a long queue behind
    /// which the capture was made. Senders that keep the queue short by themselves look the same, so this is
    /// no verdict.
    pub(super) fn may_hide_queue(&self) -> bool {
        // Both the window and the round trip have to be known.
        let (Some(_), true) = (self.rates().1, self.account.segments >= SEGMENTS_MIN) else { return false };
        let shortest = self.timeline.shortest_round_trip();
        queue::find(self.timeline, self.account)
            .is_some_and(|least| least >= BLOAT_MIN && least >= 2 * shortest)
    }
}
