//! Causes that show in the receiver's window.

use super::{Case, SEGMENTS_MIN};
use crate::cause::Cause;
use crate::figures::{MILLISECOND, plural, rate, time, times};
use crate::finding::{Evidence, Finding};
use crate::tcp::timeline::Timeline;
use crate::tcp::waits::{self, Account};
use crate::waited::Waited;

/// A window that the 16 bits of the field limit to 65,535 bytes.
const WINDOW_FULL: i64 = 60_000;
/// How much more than was delivered the window of a limiting receiver allows. Linux enlarges windows
/// meanwhile.
const GROWN_MAX: f64 = 8.0;

impl Case<'_> {
    pub(super) fn silly_window(&self) -> Option<Finding> {
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

    pub(super) fn lost_scaling(&self) -> Option<Finding> {
        let receiver = 1 - self.sender;
        let [own, peer] = [self.connection.syn[self.sender]?, self.connection.syn[receiver]?];
        let account = self.account;
        let (lost, because) = match (own.window_shift, peer.window_shift) {
            // Both offered it, but the sender never sends beyond the unscaled window: it does not know of the
            // scaling. A window below 64 KB that is scaled by 0 is the same either way.
            (Some(_), Some(shift @ 1..)) if account.beyond_field * 50 <= account.segments => {
                let as_seen = Timeline::of(self.connection, self.sender, Some(0));
                let unscaled = waits::account(&as_seen);
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

    /// Returns a closed window, or a full one of a receiver whose program, not whose buffer, is why it is
    /// full: window updates open it, and it allows more than was delivered.
    pub(super) fn slow_reader(&self) -> Option<Finding> {
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

    pub(super) fn receiver_limited(&self) -> Option<Finding> {
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

    /// Returns the time that the sender waited for the receiver's window.
    pub(super) fn window_wait(&self) -> u64 {
        self.account.sum(Waited::ReceiveWindow)
    }

    /// Returns whether the time that was lost to a full window is much. A sender that paces its segments
    /// spreads the window over the round trip, so that it is full for a shorter time.
    pub(super) fn is_bound(&self, lost: u64) -> bool {
        let paced = self.account.sum(Waited::Sending);
        self.is_much(lost, 30) || self.is_much(lost, 15) && self.is_much(lost + paced, 40)
    }

    /// Returns whether a larger window would have carried more: packets did not queue on the path, or queued
    /// so briefly that the clocks of the hosts may be why, and the narrowest link was not busy.
    pub(super) fn has_spare_capacity(&self) -> bool {
        let least = self.timeline.shortest_round_trip();
        let queueing = self.timeline.round_trip(50).saturating_sub(least);
        let packet_time = self.timeline.packet_time(25);
        let surely = least / 10 + 2 * packet_time;
        queueing <= surely || queueing <= surely + MILLISECOND && self.busy(packet_time) < 0.85
    }

    /// Returns the share of the narrowest link's capacity that was used while there was something to send.
    pub(super) fn busy(&self, packet_time: u64) -> f64 {
        let active = [Waited::Sending, Waited::Network, Waited::ReceiveWindow];
        let active: u64 = active.iter().map(|waited| self.account.sum(*waited)).sum();
        self.account.bytes as f64 / self.timeline.mss as f64 * packet_time as f64 / active.max(1) as f64
    }
}
