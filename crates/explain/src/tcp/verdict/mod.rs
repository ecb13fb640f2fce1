//! Decides on the causes of one direction.
//!
//! Method           each cause has a rule that asks for its mechanism, not only for its symptom, and returns
//!                  the time that it cost. The causes are ordered by this time, after two preferences: a
//!                  cause that explains another (a policer the losses, silly windows the full window)
//!                  replaces it.
//! Thresholds       a cause must cost a tenth of the direction's time; waiting for a window or for the
//!                  application, which is normal to some extent, more.
//! Rules            by what they look at: `window`, `ends`, `loss`, `delay`.

mod delay;
mod ends;
mod loss;
mod window;

use crate::cause::Cause;
use crate::figures::{MILLISECOND, millis, seconds};
use crate::finding::{Evidence, Finding};
use crate::tcp::capacity;
use crate::tcp::connection::Connection;
use crate::tcp::timeline::Timeline;
use crate::tcp::waits::{Account, Wait, account};
use crate::waited::Waited;

/// Below this time, nothing is worth a verdict.
const LOST_MIN: u64 = 20 * MILLISECOND;
/// Fewer segments do not show a pattern of a bulk transfer.
const SEGMENTS_MIN: u32 = 20;
/// The pieces of evidence of a finding.
const EVIDENCE_MAX: usize = 3;

/// One direction: what the sender waited for, and the causes, the most expensive first.
pub(crate) struct Direction {
    pub(crate) timeline: Timeline,
    pub(crate) account: Account,
    pub(crate) findings: Vec<Finding>,
    /// Whether packets may have waited in a queue that the capture does not show.
    pub(crate) may_hide_queue: bool,
}

struct Case<'a> {
    connection: &'a Connection,
    sender: usize,
    timeline: &'a Timeline,
    account: &'a Account,
    /// How much of the path was used, if it is known.
    capacity: Option<capacity::Use>,
}

/// Analyses the direction from `sender`.
pub(crate) fn direction(connection: &Connection, sender: usize) -> Direction {
    let timeline = Timeline::of(connection, sender, connection.shift(1 - sender));
    let account = account(&timeline);
    let capacity = capacity::find(&timeline);
    let case = Case { connection, sender, timeline: &timeline, account: &account, capacity };
    let (findings, may_hide_queue) = (case.findings(), case.may_hide_queue());
    Direction { timeline, account, findings, may_hide_queue }
}

impl Case<'_> {
    fn findings(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = [
            self.timeouts(),
            self.nagle(),
            self.silly_window(),
            self.lost_scaling(),
            self.slow_reader(),
            self.receiver_limited(),
            self.think_time(),
            self.sender_limited(),
            self.policing(),
            self.path_mtu(),
            self.path_full(),
            self.congestion(),
            self.bufferbloat(),
            self.small_mss(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let has = |found: &[Finding], cause| found.iter().any(|finding| finding.cause == cause);
        for (stronger, weaker) in [
            (Cause::Policing, &[Cause::Congestion, Cause::RetransmissionTimeout, Cause::PathFull][..]),
            (Cause::PathMtu, &[Cause::Congestion, Cause::RetransmissionTimeout, Cause::SenderLimited]),
            // A queue that is never empty keeps the path busy: losses only limit it.
            (Cause::Bufferbloat, &[Cause::PathFull, Cause::Congestion]),
            (Cause::PathFull, &[Cause::Congestion]),
            (Cause::SillyWindow, &[Cause::ReceiverLimited, Cause::SlowReader, Cause::SmallMss]),
            (Cause::LostWindowScaling, &[Cause::ReceiverLimited, Cause::SlowReader]),
            // Small segments waste the receiver's buffer.
            (Cause::SmallMss, &[Cause::SlowReader]),
            (Cause::SlowReader, &[Cause::ReceiverLimited]),
        ] {
            if has(&found, stronger) {
                found.retain(|finding| !weaker.contains(&finding.cause));
            }
        }
        let has_losses = |finding: &Finding| {
            use Cause::{Bufferbloat, Congestion, PathFull, PathMtu, Policing};
            matches!(finding.cause, Bufferbloat | Congestion | PathFull | PathMtu | Policing)
        };
        if !found.is_empty() && !found.iter().any(has_losses) {
            found.extend(self.many_losses());
        }
        found.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
        found
    }

    fn finding(&self, cause: Cause, lost: u64, because: String, evidence: Vec<Evidence>) -> Finding {
        Finding {
            cause,
            sender: self.sender,
            lost_ms: millis(lost),
            lost_percent: (lost as f64 * 1000.0 / self.account.active() as f64).round().min(1000.0) / 10.0,
            because,
            advice: cause.advice(),
            evidence,
        }
    }

    /// Returns the longest waits of a kind as evidence.
    fn longest(&self, waited: Waited, what: impl Fn(&Wait) -> String) -> Vec<Evidence> {
        let mut waits: Vec<&Wait> = self.account.waits.iter().filter(|wait| wait.waited == waited).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.nanos));
        let piece = |wait: &&Wait| {
            let mut packets: Vec<u32> = wait.packets.iter().flatten().copied().collect();
            packets.sort_unstable();
            packets.dedup();
            let (at_s, lost_ms) = (self.seconds(wait.at), millis(wait.nanos));
            Evidence { packets, at_s, lost_ms, what: what(wait) }
        };
        waits.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    /// Returns the time since the first packet of the connection, seconds.
    fn seconds(&self, at: u64) -> f64 {
        let begin = self.connection.packets.first().map_or(0, |packet| packet.at);
        seconds(at.saturating_sub(begin))
    }

    /// Returns whether `lost` is at least `percent` of the direction's time in use, and worth mentioning.
    fn is_much(&self, lost: u64, percent: u64) -> bool {
        lost >= LOST_MIN && lost * 100 >= self.account.active() * percent
    }

    /// Returns the rate of the direction and the one that the largest window allows, bits per second; the
    /// latter is `None` if the window or the round trip is not known.
    fn rates(&self) -> (f64, Option<f64>) {
        let own = self.account.rate();
        let trip = self.timeline.known_round_trip().filter(|_| self.timeline.knows_windows);
        (own, trip.map(|trip| self.account.window_max as f64 * 8e9 / trip as f64))
    }
}
