//! Decides on the causes of one direction.
//!
//! Method           each cause has a rule that asks for its mechanism, not only for its symptom, and returns
//!                  the time that it cost. The causes are ordered by this time, after two preferences: a
//!                  cause that explains another (a policer the losses, silly windows the full window)
//!                  replaces it.
//! Thresholds       a cause must cost a tenth of the direction's time; waiting for a window or for the
//!                  application, which is normal to some extent, more.

use super::capacity;
use super::connection::Connection;
use super::policing;
use super::queue;
use super::timeline::{Repair, Segment, Timeline};
use super::waits::{Account, Wait, account};
use crate::cause::Cause;
use crate::figures::{MILLISECOND, percentile};
use crate::figures::{bytes, millis, plural, rate, seconds, time, times};
use crate::finding::{Evidence, Finding};
use crate::place::Place;
use crate::waited::Waited;
use kiban_tcpip::wire::tcp::SackBlock;

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
/// Answers that take less time in total are prompt.
const THINK_MIN: u64 = 50 * MILLISECOND;
/// The shortest time for which segments are missing rather than late.
const MISSING_MIN: u64 = 1000 * MILLISECOND;
/// How many segments are searched for one of full size that arrived.
const LARGE_MAX: usize = 1000;
/// How much more than was delivered the window of a limiting receiver allows. Linux enlarges windows
/// meanwhile.
const GROWN_MAX: f64 = 8.0;
/// Fewer round trips may all have met one packet that was delayed.
const ROUND_TRIPS_MIN: usize = 10;
/// The share of what the path can carry of a connection that fills it, percent; and of one that no policer
/// holds back.
const FULL_MIN: f64 = 90.0;
const POLICED_MAX: f64 = 95.0;
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

    fn timeouts(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Timeout);
        let because = format!(
            "The sender fell silent until its timer expired, {} for {} in total; no acknowledgements had \
             reported the losses.",
            times(self.account.timeouts as usize),
            time(lost)
        );
        let evidence = self.longest(Waited::Timeout, |wait| {
            match self.account.retransmissions {
                // The segments that were lost are not in the capture.
                0 => format!("a segment after {} of silence, as long as a timer takes", time(wait.nanos)),
                _ => format!("retransmission after {} without any packet", time(wait.nanos)),
            }
        });
        self.is_much(lost, 10).then(|| self.finding(Cause::RetransmissionTimeout, lost, because, evidence))
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
        let mss = self.timeline.mss_offered;
        let is_tiny = window_max < mss;
        let because = match is_tiny {
            true => format!(
                "The receiver's window never had room for a full segment of {mss} bytes: the largest window was \
                 {window_max} bytes."
            ),
            false => format!(
                "{silly} of {segments} segments were shorter than half of the MSS ({mss} bytes) and filled the \
                 window exactly; the largest window was {window_max} bytes."
            ),
        };
        let evidence = self.longest(Waited::ReceiveWindow, |wait| {
            format!("a small window opened after {}, and a small segment filled it", time(wait.nanos))
        });
        let is_found = self.timeline.knows_windows
            && segments >= SEGMENTS_MIN
            && (is_tiny || silly * 5 >= segments * 2)
            && self.is_much(lost, 10);
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
                let as_seen = Timeline::of(self.connection, self.sender, Some(0));
                let unscaled = super::waits::account(&as_seen);
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

    /// Returns the rate of the direction and the one that the largest window allows, bits per second; the
    /// latter is `None` if the window or the round trip is not known.
    fn rates(&self) -> (f64, Option<f64>) {
        let own = self.account.rate();
        let trip = self.timeline.known_round_trip().filter(|_| self.timeline.knows_windows);
        (own, trip.map(|trip| self.account.window_max as f64 * 8e9 / trip as f64))
    }

    /// Returns a closed window, or a full one of a receiver whose program, not whose buffer, is why it is
    /// full: window updates open it, and it allows more than was delivered.
    fn slow_reader(&self) -> Option<Finding> {
        let closed = self.account.sum(Waited::ZeroWindow);
        if self.is_much(closed, 15) {
            let because = format!(
                "The receiver closed its window {}, for {} in total: its program did not read.",
                times(self.account.count(Waited::ZeroWindow)),
                time(closed)
            );
            let evidence = self.longest(Waited::ZeroWindow, |wait| {
                format!("the window stayed closed for {}", time(wait.nanos))
            });
            return Some(self.finding(Cause::SlowReader, closed, because, evidence));
        }
        let lost = self.window_wait();
        let (own, allowed) = self.rates();
        let allowed = allowed?;
        let because = format!(
            "The receiver's window was full for {} and opened as its program read. The connection got {}; the \
             largest window, {}, would allow {}.",
            time(lost),
            rate(own),
            plural(self.account.window_max as usize, "byte"),
            rate(allowed)
        );
        let evidence = self.longest(Waited::ReceiveWindow, |wait| {
            format!("the window was full until this packet opened it, {} later", time(wait.nanos))
        });
        let is_reading = own * 2.0 < allowed && self.account.unread * 2 >= lost;
        (is_reading && self.is_bound(lost)).then(|| self.finding(Cause::SlowReader, lost, because, evidence))
    }

    fn receiver_limited(&self) -> Option<Finding> {
        let lost = self.window_wait();
        let trip = self.timeline.shortest_round_trip();
        let (own, allowed) = self.rates();
        // A window that allows less than was delivered cannot be the limit, nor one that was full before it
        // grew to a multiple.
        let allowed = allowed.filter(|allowed| (own * 0.9..own * GROWN_MAX).contains(allowed))?;
        let because = format!(
            "The receiver's window of at most {} bytes was full for {}; with a round trip of {}, it allows {}.",
            self.account.window_max,
            time(lost),
            time(trip),
            rate(allowed)
        );
        let evidence = self.longest(Waited::ReceiveWindow, |wait| {
            format!("the window was full until this acknowledgement, {} later", time(wait.nanos))
        });
        let is_found = self.is_bound(lost) && self.has_spare_capacity();
        is_found.then(|| self.finding(Cause::ReceiverLimited, lost, because, evidence))
    }

    fn think_time(&self) -> Option<Finding> {
        let (lost, count) = (self.account.sum(Waited::ThinkTime), self.account.count(Waited::ThinkTime));
        let longest = self.account.waits.iter().filter(|wait| wait.waited == Waited::ThinkTime);
        let because = match count {
            1 => format!("The server took {} to answer.", time(lost)),
            _ => format!(
                "The server took {} to answer, in {count} answers; the slowest took {}.",
                time(lost),
                time(longest.map(|wait| wait.nanos).max().unwrap_or(0))
            ),
        };
        let evidence = self.longest(Waited::ThinkTime, |wait| {
            format!("the answer began {} after the request had arrived", time(wait.nanos))
        });
        let is_found = lost >= THINK_MIN && self.is_much(lost, 30);
        is_found.then(|| self.finding(Cause::ThinkTime, lost, because, evidence))
    }

    fn sender_limited(&self) -> Option<Finding> {
        let lost = self.account.sum(Waited::Application);
        let count = self.account.count(Waited::Application);
        let own_end = [Place::Client, Place::Server][self.sender];
        let who = match self.timeline.place(self.sender) == own_end {
            true => "The sending application paused",
            // Elsewhere, a program that pauses looks like a small send buffer or a path that stalls.
            false => "The sender paused (its program, or a small send buffer: only a capture there can tell)",
        };
        let because =
            format!("{who} {}, for {} in total, while the window was open.", times(count), time(lost));
        let evidence = self.longest(Waited::Application, |wait| {
            format!("nothing was sent for {} although the window was open", time(wait.nanos))
        });
        self.is_much(lost, 50).then(|| self.finding(Cause::SenderLimited, lost, because, evidence))
    }

    /// Returns a path that drops full segments and passes short ones.
    fn path_mtu(&self) -> Option<Finding> {
        if let Some(finding) = self.missing_large() {
            return Some(finding);
        }
        let sends = &self.timeline.sends;
        let is_full = |send: &&Segment| send.bytes() * 10 >= self.timeline.mss * 9;
        let lost = sends.iter().find(is_full)?;
        // A network card cuts larger ones, which are sent again one by one.
        let full = lost.bytes().min(self.timeline.mss);
        let is_passed = |send: &Segment| {
            let acked = self.timeline.acks.iter().find(|ack| ack.acknowledged >= send.end);
            acked.is_some_and(|ack| {
                // Not if it was cut into smaller segments before it passed.
                let repeats = |other: &&Segment| other.start == send.start && other.at < ack.captured;
                sends.iter().rfind(repeats).is_some_and(|last| last.bytes() >= send.bytes())
            })
        };
        let large = || sends.iter().filter(|send| send.bytes() >= full);
        let tries = large().filter(|send| send.start == lost.start).count();
        // The receiver is there: it reports short segments, or sends data.
        let last = large().rfind(|send| send.start == lost.start)?;
        let is_alive = self.connection.packets.iter().any(|packet| {
            packet.end != self.sender && packet.at > lost.at + self.timeline.shortest_round_trip()
        });
        let is_large = |block: &SackBlock| i64::from(block.right.0.wrapping_sub(block.left.0)) >= full;
        let mut packets = self.connection.packets.iter().filter(|packet| packet.end != self.sender);
        let is_reported = packets.any(|packet| packet.sack.as_slice().iter().any(is_large));
        if tries < 3 || !is_alive || is_reported || large().take(LARGE_MAX).any(is_passed) {
            return None;
        }
        let silence = last.at - lost.at;
        let because = format!(
            "None of {} with {} bytes or more arrived, although the first of them was sent {}; shorter packets \
             pass.",
            plural(large().count(), "segment"),
            full,
            times(tries)
        );
        let packets =
            large().filter(|send| send.start == lost.start).map(|send| send.number).take(4).collect();
        let evidence = vec![Evidence {
            packets,
            at_s: self.seconds(lost.at),
            lost_ms: millis(silence),
            what: format!("a segment of {full} bytes and its retransmissions, never acknowledged"),
        }];
        self.is_much(silence, 10).then(|| self.finding(Cause::PathMtu, silence, because, evidence))
    }

    /// Returns the same, captured behind the path: only short segments arrive, above a hole.
    fn missing_large(&self) -> Option<Finding> {
        let sends = &self.timeline.sends;
        let (first, last) = (sends.first()?, self.connection.packets.last()?);
        let missing = first.start;
        let silence = last.at - first.at;
        let is_hole = self.connection.syn[self.sender].is_some() && missing > 0;
        let is_large = |send: &Segment| send.bytes() * 10 >= self.timeline.mss * 9 || send.start < missing;
        if !is_hole || silence < MISSING_MIN || sends.iter().any(is_large) {
            return None;
        }
        let because = format!(
            "A segment of {} arrived, and the {} before it never did, for {}: segments of full size are lost.",
            plural(first.bytes() as usize, "byte"),
            plural(missing as usize, "byte"),
            time(silence)
        );
        let evidence = vec![Evidence {
            packets: vec![first.number],
            at_s: self.seconds(first.at),
            lost_ms: millis(silence),
            what: "this segment is above a hole that nothing fills".to_owned(),
        }];
        let lost_percent = 100.0;
        Some(Finding { lost_percent, ..self.finding(Cause::PathMtu, silence, because, evidence) })
    }

    /// Returns a path whose queue never empties, or whose rate is used all the time, so that losses do not
    /// cost throughput.
    fn path_full(&self) -> Option<Finding> {
        let congestion = self.congestion()?;
        let least = self.timeline.shortest_round_trip();
        let low = self.timeline.least_loaded_round_trip().unwrap_or(0);
        let packet_time = self.timeline.packet_time(50);
        let queue = low.saturating_sub(least);
        let why = if queue > least / 6 + 2 * MILLISECOND + 2 * packet_time {
            format!(
                "The path is full at about {}: packets always waited in a queue (the round trip was {} at least, \
                 and {} without load)",
                rate(self.rates().0),
                time(low),
                time(least)
            )
        } else {
            let used = self.capacity.filter(|used| used.percent >= FULL_MIN)?;
            format!("The path is full: {}, {:.0} % of the time", rate(used.bits_per_second), used.percent)
        };
        let because = format!(
            "{why}. {} were lost; they show TCP the rate of the path, or its share of it, and cost no throughput.",
            plural(self.account.losses.len(), "segment")
        );
        Some(self.finding(Cause::PathFull, 0, because, congestion.evidence))
    }

    fn policing(&self) -> Option<Finding> {
        if self.capacity.is_some_and(|used| used.percent >= POLICED_MAX) {
            return None;
        }
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
        let losses = &self.account.losses;
        // In segments of full size, because network cards cut larger ones.
        let whole = |bytes: i64| (bytes / self.timeline.mss).max(1);
        let lost_segments: i64 = losses.iter().map(|loss| whole(loss.bytes)).sum();
        let unseen: i64 = losses.iter().filter(|loss| loss.is_hole).map(|loss| whole(loss.bytes)).sum();
        let segments = unseen + self.timeline.sends.iter().map(|send| whole(send.bytes())).sum::<i64>();
        let recovery = self.account.sum(Waited::Recovery);
        // If timers repaired most losses, they also are why the window is small.
        let is_often = self.account.timeouts as usize * 2 >= self.account.episodes(self.timeline);
        let is_timed = is_often && self.account.sum(Waited::Timeout) > recovery;
        let lost = recovery + if is_timed { 0 } else { self.account.sum(Waited::Network) };
        let because = format!(
            "{lost_segments} of {segments} segments were lost ({:.1} %); after each loss the congestion window \
             shrinks.",
            lost_segments as f64 * 100.0 / segments.max(1) as f64
        );
        // Rare losses are how TCP finds the rate of a link.
        let is_found = losses.len() >= 3 && lost_segments * 2000 >= segments && self.is_much(lost, 10);
        is_found.then(|| self.finding(Cause::Congestion, lost, because, self.losses()))
    }

    /// Returns the first losses as evidence.
    fn losses(&self) -> Vec<Evidence> {
        let piece = |loss: &super::waits::Loss| {
            let send = &self.timeline.sends[loss.send];
            Evidence {
                packets: vec![send.number, loss.retransmission],
                at_s: self.seconds(send.at),
                lost_ms: 0.0,
                what: format!("{} bytes lost at this packet, and their retransmission", loss.bytes),
            }
        };
        self.account.losses.iter().take(EVIDENCE_MAX).map(piece).collect()
    }

    fn bufferbloat(&self) -> Option<Finding> {
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
    fn full_queue(&self, least: u64) -> Option<(u64, String, Vec<Evidence>)> {
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
    fn may_hide_queue(&self) -> bool {
        // Both the window and the round trip have to be known.
        let (Some(_), true) = (self.rates().1, self.account.segments >= SEGMENTS_MIN) else { return false };
        let shortest = self.timeline.shortest_round_trip();
        queue::find(self.timeline, self.account)
            .is_some_and(|least| least >= BLOAT_MIN && least >= 2 * shortest)
    }

    fn small_mss(&self) -> Option<Finding> {
        let Account { segments, bytes, .. } = *self.account;
        let mss = self.timeline.mss;
        let full =
            self.timeline.sends.iter().filter(|send| send.bytes() >= mss).count().min(segments as usize);
        // RFC 9293 §3.7.1; headers take 40 bytes, 52 with timestamps.
        let share = 52.0 / (mss + 52) as f64 - 52.0 / 1500.0;
        let lost = (self.account.active() as f64 * share) as u64;
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
