//! Causes that show as losses: congestion, timers, policers, the path MTU; and losses that cost nothing.

use super::{Case, EVIDENCE_MAX};
use crate::cause::Cause;
use crate::figures::{MILLISECOND, bytes, millis, plural, rate, time, times};
use crate::finding::{Evidence, Finding};
use crate::tcp::policing;
use crate::tcp::timeline::Segment;
use crate::tcp::waits::Loss;
use crate::waited::Waited;
use kiban_tcpip::wire::tcp::SackBlock;

/// The shortest time for which segments are missing rather than late.
const MISSING_MIN: u64 = 1000 * MILLISECOND;
/// Fewer losses may have come at once.
const LOSSES_MIN: usize = 3;
/// The least share of the segments that are lost in congestion, and in losses that are worth mentioning
/// whatever they cost.
const CONGESTION_MIN: f64 = 0.0005;
const MANY_MIN: f64 = 0.05;
/// How many segments are searched for one of full size that arrived.
const LARGE_MAX: usize = 1000;
/// The share of what the path can carry of a connection that fills it, percent; and of one that no policer
/// holds back.
const FULL_MIN: f64 = 90.0;
const POLICED_MAX: f64 = 95.0;

impl Case<'_> {
    pub(super) fn timeouts(&self) -> Option<Finding> {
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

    pub(super) fn congestion(&self) -> Option<Finding> {
        // Rare losses are how TCP finds the rate of a link.
        self.lost_segments(CONGESTION_MIN)
            .filter(|(_, lost)| self.is_much(*lost, 10))
            .map(|(finding, _)| finding)
    }

    /// Returns losses that are many, although their repair cost little.
    pub(super) fn many_losses(&self) -> Option<Finding> {
        let is_repaired = self.account.count(Waited::Recovery) >= LOSSES_MIN;
        self.lost_segments(MANY_MIN).filter(|_| is_repaired).map(|(finding, _)| finding)
    }

    /// Returns what losses cost, and the time, ns, if at least `share` of the segments were lost.
    fn lost_segments(&self, share: f64) -> Option<(Finding, u64)> {
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
        let is_found = losses.len() >= LOSSES_MIN && lost_segments as f64 >= segments as f64 * share;
        is_found.then(|| (self.finding(Cause::Congestion, lost, because, self.losses()), lost))
    }

    /// Returns the first losses as evidence.
    pub(super) fn losses(&self) -> Vec<Evidence> {
        let piece = |loss: &Loss| {
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

    pub(super) fn policing(&self) -> Option<Finding> {
        if self.capacity.is_some_and(|used| used.percent >= POLICED_MAX) {
            return None;
        }
        let policer = policing::find(self.timeline, self.account, self.connection.header_bytes())?;
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

    /// Returns a path whose queue never empties, or whose rate is used all the time, so that losses do not
    /// cost throughput.
    pub(super) fn path_full(&self) -> Option<Finding> {
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

    /// Returns a path that drops full segments and passes short ones.
    pub(super) fn path_mtu(&self) -> Option<Finding> {
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
    pub(super) fn missing_large(&self) -> Option<Finding> {
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
}
