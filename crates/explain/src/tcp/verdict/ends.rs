//! Causes at the ends: their programs, Nagle's algorithm, the MSS.

use super::{Case, SEGMENTS_MIN};
use crate::cause::Cause;
use crate::figures::{MILLISECOND, time, times};
use crate::finding::{Evidence, Finding};
use crate::place::Place;
use crate::tcp::waits::Account;
use crate::waited::Waited;

/// An MSS below this value is small: Ethernet gives 1460, tunnels 1300 and more, IPv6 at least 1220.
const MSS_SMALL: i64 = 1000;
/// Answers that take less time in total are prompt.
const THINK_MIN: u64 = 50 * MILLISECOND;

impl Case<'_> {
    pub(super) fn nagle(&self) -> Option<Finding> {
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

    pub(super) fn think_time(&self) -> Option<Finding> {
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

    pub(super) fn sender_limited(&self) -> Option<Finding> {
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

    pub(super) fn small_mss(&self) -> Option<Finding> {
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
