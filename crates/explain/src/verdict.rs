//! Decides on the causes of one direction.
//!
//! Method           each cause has a rule that asks for its mechanism, not only for its symptom, and returns
//!                  the time that it cost. The causes are ordered by this time, after two preferences: a
//!                  cause that explains another (a policer the losses, silly windows the full window)
//!                  replaces it.
//! Thresholds       a cause must cost a tenth of the direction's time; waiting for a window or for the
//!                  application, which is normal to some extent, more.

use crate::cause::Cause;
use crate::connection::Connection;
use crate::finding::{Evidence, Finding, bytes, rate, time};
use crate::policing;
use crate::timeline::{MILLISECOND, Timeline};
use crate::waits::{Account, Wait, Waited, account};

/// Below this time, nothing is worth a verdict.
const LOST_MIN: u64 = 20 * MILLISECOND;
/// Fewer segments do not show a pattern of a bulk transfer.
const SEGMENTS_MIN: u32 = 20;
/// An MSS below this value is small: Ethernet gives 1460, tunnels 1300 and more, IPv6 at least 1220.
const MSS_SMALL: i64 = 1000;
/// A window that the 16 bits of the field limit to 65,535 bytes.
const WINDOW_FULL: i64 = 60_000;
/// The queueing delay of a bloated buffer.
const BLOAT_MIN: u64 = 80 * MILLISECOND;
/// The pieces of evidence of a finding.
const EVIDENCE_MAX: usize = 3;

/// One direction: what the sender waited for, and the causes, the most expensive first.
pub(crate) struct Direction {
    pub(crate) timeline: Timeline,
    pub(crate) account: Account,
    pub(crate) findings: Vec<Finding>,
}

struct Case<'a> {
    connection: &'a Connection,
    sender: usize,
    timeline: &'a Timeline,
    account: &'a Account,
}

/// Analyses the direction from `sender`.
pub(crate) fn direction(connection: &Connection, sender: usize) -> Direction {
    let shift = connection.shift(1 - sender).unwrap_or(0);
    let timeline = Timeline::of(connection, sender, shift);
    let account = account(&timeline);
    let case = Case { connection, sender, timeline: &timeline, account: &account };
    let findings = case.findings();
    Direction { timeline, account, findings }
}

impl Case<'_> {
    fn findings(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = [
            self.timeouts(),
            self.zero_window(),
            self.nagle(),
            self.silly_window(),
            self.lost_scaling(),
            self.receiver_limited(),
            self.sender_limited(),
            self.policing(),
            self.congestion(),
            self.bufferbloat(),
            self.small_mss(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let has = |found: &[Finding], cause| found.iter().any(|finding| finding.cause == cause);
        for (stronger, weaker) in [
            (Cause::Policing, &[Cause::Congestion, Cause::RetransmissionTimeout][..]),
            (Cause::SillyWindow, &[Cause::ReceiverLimited, Cause::ZeroWindow, Cause::SmallMss]),
            (Cause::LostWindowScaling, &[Cause::ReceiverLimited]),
        ] {
            if has(&found, stronger) {
                found.retain(|finding| !weaker.contains(&finding.cause));
            }
        }
        found.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
        found
    }

    fn finding(&self, cause: Cause, lost: u64, because: String, evidence: Vec<Evidence>) -> Finding {
        Finding {
            cause,
            sender: self.sender,
            lost_ms: lost as f64 * 1e-6,
            lost_percent: (lost as f64 * 100.0 / self.account.duration() as f64).min(100.0),
            because,
            advice: cause.advice(),
            evidence,
        }
    }

    /// Returns the longest waits of a kind as evidence.
    fn longest(&self, waited: Waited, what: impl Fn(&Wait) -> String) -> Vec<Evidence> {
        let mut waits: Vec<&Wait> = self.account.waits.iter().filter(|wait| wait.waited == waited).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.nanos));
        let begin = self.connection.packets.first().map_or(0, |packet| packet.at);
        let piece = |wait: &&Wait| Evidence {
            packets: wait.packets.iter().flatten().copied().collect(),
            at_s: wait.at.saturating_sub(begin) as f64 * 1e-9,
            lost_ms: wait.nanos as f64 * 1e-6,
            what: what(wait),
        };
        waits.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    /// Returns whether `lost` is at least `percent` of the direction's time, and worth mentioning.
    fn is_much(&self, lost: u64, percent: u64) -> bool {
        lost >= LOST_MIN && lost * 100 >= self.account.duration() * percent
    }

    fn timeouts(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Timeout);
        let because = format!(
            "The sender fell silent until its timer expired, {} times for {} in total; no acknowledgements \
             had reported the losses.",
            self.account.timeouts,
            time(lost)
        );
        let evidence = self.longest(Waited::Timeout, |wait| {
            format!("retransmission after {} without any packet", time(wait.nanos))
        });
        self.is_much(lost, 10).then(|| self.finding(Cause::RetransmissionTimeout, lost, because, evidence))
    }

    fn zero_window(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::ZeroWindow);
        let because = format!(
            "The receiver closed its window {} times, for {} in total: its program did not read.",
            self.account.count(Waited::ZeroWindow),
            time(lost)
        );
        let evidence = self
            .longest(Waited::ZeroWindow, |wait| format!("the window stayed closed for {}", time(wait.nanos)));
        self.is_much(lost, 15).then(|| self.finding(Cause::ZeroWindow, lost, because, evidence))
    }

    fn nagle(&self) -> Option<Finding> {
        let (lost, count) = (self.account.sum(Waited::DelayedAck), self.account.count(Waited::DelayedAck));
        let because = format!(
            "{count} times the sender held a short segment until the previous one was acknowledged (Nagle's \
             algorithm), and the receiver delayed that acknowledgement, by {} on average.",
            time(lost / count.max(1) as u64)
        );
        let evidence = self.longest(Waited::DelayedAck, |wait| {
            format!(
                "data, its acknowledgement {} late, and the short segment that had waited",
                time(wait.nanos)
            )
        });
        let is_found = count >= 3 && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::NagleDelayedAck, lost, because, evidence))
    }

    /// Returns the time that the sender waited for the receiver's window.
    fn window_wait(&self) -> u64 {
        self.account.sum(Waited::ReceiveWindow)
    }

    /// Returns whether the time that was lost to a full window is much. A sender that paces its segments
    /// spreads the window over the round trip, so that it is full for a shorter time.
    fn is_bound(&self, lost: u64) -> bool {
        let paced = self.account.sum(Waited::Sending);
        self.is_much(lost, 30) || self.is_much(lost, 15) && self.is_much(lost + paced, 40)
    }

    fn silly_window(&self) -> Option<Finding> {
        let Account { silly, segments, window_max, .. } = *self.account;
        let lost = self.window_wait() + self.account.sum(Waited::ZeroWindow);
        let because = format!(
            "{silly} of {segments} segments were shorter than half of the MSS ({} bytes) and filled the window \
             exactly; the largest window was {window_max} bytes.",
            self.timeline.mss
        );
        let evidence = self.longest(Waited::ReceiveWindow, |wait| {
            format!("a small window opened after {}, and a small segment filled it", time(wait.nanos))
        });
        let is_found = segments >= SEGMENTS_MIN && silly * 2 >= segments && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::SillyWindow, lost, because, evidence))
    }

    /// Returns whether a larger window would have carried more: packets did not queue on the path, or queued
    /// so briefly that the clocks of the hosts may be why, and the narrowest link was not busy.
    fn has_spare_capacity(&self) -> bool {
        let least = self.timeline.shortest_round_trip();
        let queueing = self.timeline.round_trip(50).saturating_sub(least);
        let packet_time = self.timeline.packet_time(25);
        let surely = least / 10 + 2 * packet_time;
        queueing <= surely || queueing <= surely + MILLISECOND && self.busy(packet_time) < 0.85
    }

    /// Returns the share of the narrowest link's capacity that was used while there was something to send.
    fn busy(&self, packet_time: u64) -> f64 {
        let active = [Waited::Sending, Waited::Network, Waited::ReceiveWindow];
        let active: u64 = active.iter().map(|waited| self.account.sum(*waited)).sum();
        self.account.bytes as f64 / self.timeline.mss as f64 * packet_time as f64 / active.max(1) as f64
    }

    fn lost_scaling(&self) -> Option<Finding> {
        let receiver = 1 - self.sender;
        let [own, peer] = [self.connection.syn[self.sender]?, self.connection.syn[receiver]?];
        let account = self.account;
        let (lost, because) = match (own.window_shift, peer.window_shift) {
            // Both offered it, but the sender never sends beyond the unscaled window: it does not know of the
            // scaling. A window below 64 KB that is scaled by 0 is the same either way.
            (Some(_), Some(shift @ 1..)) if account.beyond_field * 50 <= account.segments => {
                let as_seen = Timeline::of(self.connection, self.sender, 0);
                let unscaled = crate::waits::account(&as_seen);
                let because = format!(
                    "The receiver scales its windows by 2^{shift}, but the sender never sent more than the \
                     unscaled window field allows: something on the path hides the option from it."
                );
                (unscaled.sum(Waited::ReceiveWindow) + unscaled.sum(Waited::ZeroWindow), because)
            }
            // The 16 bits limit the window, or they hold a scaled window: after the SYN it is much smaller.
            (Some(_), None) | (None, Some(_))
                if account.window_max >= WINDOW_FULL
                    || i64::from(peer.window) * 10 > account.window_max * 11 =>
            {
                let which = if own.window_shift.is_some() == (self.sender == 0) { "SYN-ACK" } else { "SYN" };
                let because = format!(
                    "The {which} has no window scale option although the other end offers it, so windows \
                     cannot exceed 65,535 bytes; the largest was {}.",
                    account.window_max
                );
                (self.window_wait(), because)
            }
            (None, None) if account.window_max >= WINDOW_FULL => (
                (self.window_wait()),
                "Neither end offers window scaling, and the window of at most 65,535 bytes \
                 is full."
                    .to_owned(),
            ),
            _ => return None,
        };
        let mut evidence = vec![Evidence {
            packets: vec![own.number.min(peer.number), own.number.max(peer.number)],
            at_s: 0.0,
            lost_ms: 0.0,
            what: "the handshake, with the options of both ends".to_owned(),
        }];
        evidence.extend(
            self.longest(Waited::ReceiveWindow, |wait| {
                format!("the window was full for {}", time(wait.nanos))
            }),
        );
        // An exchange of small messages fits into any window.
        let is_exchange = (account.sum(Waited::DelayedAck) + account.sum(Waited::Peer)) * 2 > lost;
        let is_found = self.is_bound(lost) && !is_exchange && self.has_spare_capacity();
        is_found.then(|| self.finding(Cause::LostWindowScaling, lost, because, evidence))
    }

    fn receiver_limited(&self) -> Option<Finding> {
        let lost = self.window_wait();
        let trip = self.timeline.shortest_round_trip();
        let because = format!(
            "The receiver's window of at most {} bytes was full for {}; with a round trip of {}, it allows {}.",
            self.account.window_max,
            time(lost),
            time(trip),
            rate(self.account.window_max as f64 * 8e9 / trip.max(1) as f64)
        );
        let evidence = self.longest(Waited::ReceiveWindow, |wait| {
            format!("the window was full until this acknowledgement, {} later", time(wait.nanos))
        });
        let is_found = self.is_bound(lost) && self.has_spare_capacity();
        is_found.then(|| self.finding(Cause::ReceiverLimited, lost, because, evidence))
    }

    fn sender_limited(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Application);
        let because = format!(
            "The sending application paused {} times, for {} in total, while the window was open.",
            self.account.count(Waited::Application),
            time(lost)
        );
        let evidence = self.longest(Waited::Application, |wait| {
            format!("nothing was sent for {} although the window was open", time(wait.nanos))
        });
        self.is_much(lost, 50).then(|| self.finding(Cause::SenderLimited, lost, because, evidence))
    }

    fn policing(&self) -> Option<Finding> {
        let policer = policing::find(self.timeline, self.account)?;
        let lost = self.account.sum(Waited::Recovery)
            + self.account.sum(Waited::Timeout)
            + self.account.sum(Waited::Network);
        let because = format!(
            "{} segments were lost whenever the sender was {} ahead of {}, although the round trip had not \
             grown: a token bucket, not a queue.",
            policer.segments,
            bytes(policer.bucket_bytes),
            rate(policer.bits_per_second)
        );
        Some(self.finding(Cause::Policing, lost, because, self.losses()))
    }

    fn congestion(&self) -> Option<Finding> {
        let Account { losses, segments, .. } = self.account;
        let recovery = self.account.sum(Waited::Recovery);
        // If timers repaired the losses, they also are why the window is small.
        let is_timed = self.account.sum(Waited::Timeout) > recovery;
        let lost = recovery + if is_timed { 0 } else { self.account.sum(Waited::Network) };
        let because = format!(
            "{} of {segments} segments were lost ({:.1} %); after each loss the congestion window shrinks.",
            losses.len(),
            losses.len() as f64 * 100.0 / f64::from((*segments).max(1))
        );
        // Rare losses are how TCP finds the rate of a link.
        let is_found =
            losses.len() >= 3 && losses.len() * 2000 >= *segments as usize && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::Congestion, lost, because, self.losses()))
    }

    /// Returns the first losses as evidence.
    fn losses(&self) -> Vec<Evidence> {
        let begin = self.connection.packets.first().map_or(0, |packet| packet.at);
        let piece = |loss: &crate::waits::Loss| {
            let send = &self.timeline.sends[loss.send];
            Evidence {
                packets: vec![send.number, loss.retransmission],
                at_s: send.at.saturating_sub(begin) as f64 * 1e-9,
                lost_ms: 0.0,
                what: format!("{} bytes lost at this packet, and their retransmission", loss.bytes),
            }
        };
        self.account.losses.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    fn bufferbloat(&self) -> Option<Finding> {
        let least = self.timeline.shortest_round_trip();
        let (median, worst) = (self.timeline.round_trip(50), self.timeline.round_trip(95));
        let extra = median.saturating_sub(least);
        if extra < BLOAT_MIN || median < 3 * least || self.account.segments < SEGMENTS_MIN {
            return None;
        }
        let lost = (self.account.duration() as f64 * extra as f64 / median as f64) as u64;
        let because = format!(
            "Under load the round trip grew from {} to {} (median; 95 % below {}): packets wait in a queue.",
            time(least),
            time(median),
            time(worst)
        );
        let begin = self.connection.packets.first().map_or(0, |packet| packet.at);
        let longest = self.timeline.round_trips.iter().max_by_key(|(_, trip)| *trip);
        let ack = longest.and_then(|(at, _)| self.timeline.acks.iter().find(|ack| ack.captured == *at));
        let evidence = longest.zip(ack).map(|((at, trip), ack)| Evidence {
            packets: vec![ack.number],
            at_s: at.saturating_sub(begin) as f64 * 1e-9,
            lost_ms: trip.saturating_sub(least) as f64 * 1e-6,
            what: format!("this acknowledgement took {}", time(*trip)),
        });
        Some(self.finding(Cause::Bufferbloat, lost, because, evidence.into_iter().collect()))
    }

    fn small_mss(&self) -> Option<Finding> {
        let Account { segments, bytes, .. } = *self.account;
        let mss = self.timeline.mss;
        let full = self.timeline.sends.iter().filter(|send| send.bytes() >= mss).count();
        // RFC 9293 §3.7.1; headers take 40 bytes, 52 with timestamps.
        let share = 52.0 / (mss + 52) as f64 - 52.0 / 1500.0;
        let lost = (self.account.duration() as f64 * share) as u64;
        let because = format!(
            "{full} of {segments} segments were full and had only {mss} bytes, so {bytes} bytes took {:.1} times \
             as many packets as with 1448.",
            1448.0 / mss as f64
        );
        let first = self.timeline.sends.iter().find(|send| send.bytes() >= mss);
        let mut packets: Vec<u32> = self.connection.syn.iter().flatten().map(|syn| syn.number).collect();
        packets.extend(first.map(|send| send.number));
        let what = "the handshake, and the first full segment".to_owned();
        let evidence = vec![Evidence { packets, at_s: 0.0, lost_ms: 0.0, what }];
        let is_found = mss < MSS_SMALL && segments >= SEGMENTS_MIN && full * 2 > segments as usize;
        is_found.then(|| self.finding(Cause::SmallMss, lost, because, evidence))
    }
}
