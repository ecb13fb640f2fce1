//! When to send RTCP (RFC 3550 §6.3, A.7).
//!
//! Rate             all members together use a fraction of the session's bandwidth, of which a quarter
//!                  belongs to the senders as long as they are few. The interval therefore grows with the
//!                  number of members; it has a minimum, half as long before the first report.
//! Randomness       each interval is multiplied by a random factor between 0.5 and 1.5, so that members do
//!                  not synchronise, and divided by e - 1.5, which compensates for the reconsideration.
//! Reconsideration  when the timer expires, the interval is drawn again for the members known by then, and
//!                  the report is sent only if that is over, too (§6.3.6). When members leave, the next
//!                  report is moved forward in proportion (§6.3.4).
//! Not implemented  the reduced minimum (§6.2).

use core::time::Duration;
use kiban_base::Instant;

/// The minimum interval, s.
const MINIMUM: f64 = 5.0;
/// The senders' part of RTCP's bandwidth, and the fraction of senders among members up to which they have it.
const SENDERS_PART: f64 = 0.25;
/// e - 1.5.
const COMPENSATION: f64 = core::f64::consts::E - 1.5;

/// The members of a session, including the participant itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Members {
    /// All members.
    pub all: u32,
    /// Those that send.
    pub senders: u32,
    /// Whether the participant itself sends.
    pub is_sender: bool,
}

/// The timing of one participant's reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    /// RTCP's bandwidth, bytes per second.
    bandwidth: f64,
    /// The mean length of compound packets, with the headers of UDP and IP.
    average_bytes: f64,
    is_initial: bool,
    /// When the last report was sent, and when the next is due.
    last: Instant,
    next: Instant,
    /// The number of members when `next` was determined.
    members_before: u32,
}

impl Interval {
    /// Begins a session whose RTCP may use this many bytes per second. `unit` is a random number from 0 to 1,
    /// and `expected_bytes` the probable length of a compound packet.
    pub fn new(bandwidth: f64, expected_bytes: usize, now: Instant, members: Members, unit: f64) -> Interval {
        let mut interval = Interval {
            bandwidth: bandwidth.max(1.0),
            average_bytes: expected_bytes as f64,
            is_initial: true,
            last: now,
            next: now,
            members_before: members.all,
        };
        interval.next = now + interval.drawn(members, unit);
        interval
    }

    /// Returns the interval without its random factor (§6.3.1).
    pub fn calculated(&self, members: Members) -> Duration {
        let (mut bandwidth, mut count) = (self.bandwidth, members.all);
        if f64::from(members.senders) <= f64::from(members.all) * SENDERS_PART {
            let part = if members.is_sender { SENDERS_PART } else { 1.0 - SENDERS_PART };
            bandwidth *= part;
            count = if members.is_sender { members.senders } else { members.all - members.senders };
        }
        let minimum = if self.is_initial { MINIMUM / 2.0 } else { MINIMUM };
        Duration::from_secs_f64((self.average_bytes * f64::from(count) / bandwidth).clamp(minimum, 1e6))
    }

    fn drawn(&self, members: Members, unit: f64) -> Duration {
        self.calculated(members).mul_f64((unit.clamp(0.0, 1.0) + 0.5) / COMPENSATION)
    }

    /// Returns when [`Interval::on_timer`] must be called.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Handles the timer; returns whether a report must be sent now. If so, call [`Interval::on_sent`].
    pub fn on_timer(&mut self, members: Members, unit: f64, now: Instant) -> bool {
        let next = self.last + self.drawn(members, unit);
        self.members_before = members.all;
        if next > now {
            self.next = next;
        }
        next <= now
    }

    /// Records that a compound packet was sent, and schedules the next.
    pub fn on_sent(&mut self, bytes: usize, members: Members, unit: f64, now: Instant) {
        self.on_packet(bytes);
        (self.last, self.is_initial) = (now, false);
        self.next = now + self.drawn(members, unit);
    }

    /// Records the length of a compound packet that was received, with the headers of UDP and IP.
    pub fn on_packet(&mut self, bytes: usize) {
        self.average_bytes += (bytes as f64 - self.average_bytes) / 16.0;
    }

    /// Moves the next report forward after members have left (§6.3.4).
    pub fn on_departure(&mut self, members: Members, now: Instant) {
        if members.all < self.members_before {
            let part = f64::from(members.all) / f64::from(self.members_before);
            self.next = now + self.next.since(now).mul_f64(part);
            self.last = now - now.since(self.last).mul_f64(part);
            self.members_before = members.all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn members(all: u32, senders: u32, is_sender: bool) -> Members {
        Members { all, senders, is_sender }
    }

    fn later(interval: &Interval) -> f64 {
        interval.deadline().since(NOW).as_secs_f64()
    }

    #[test]
    fn the_interval_grows_with_the_members_and_has_a_minimum() {
        // 100 bytes each at 50 bytes/s.
        for (count, is_initial, seconds) in [
            (members(2, 1, true), true, 4.0),
            (members(2, 1, true), false, 5.0),
            (members(100, 50, false), false, 200.0),
            // Few senders share a quarter of the bandwidth, the receivers the rest.
            (members(100, 10, true), false, 80.0),
            (members(100, 10, false), false, 240.0),
            (members(100, 0, false), false, 266.7),
        ] {
            let mut interval = Interval::new(50.0, 100, NOW, count, 0.5);
            interval.is_initial = is_initial;
            let is = interval.calculated(count).as_secs_f64();
            assert!((is - seconds).abs() < 0.1, "{count:?}: {is}");
        }
    }

    #[test]
    fn the_random_factor_is_between_a_half_and_one_and_a_half_before_compensation() {
        let two = members(2, 1, true);
        for (unit, factor) in [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)] {
            let interval = Interval::new(1e6, 100, NOW, two, unit);
            assert!((later(&interval) - 2.5 * factor / 1.218_28).abs() < 1e-3, "{}", later(&interval));
        }
    }

    #[test]
    fn a_report_waits_if_members_have_joined_and_comes_earlier_if_they_have_left() {
        let few = members(10, 5, true);
        let mut interval = Interval::new(100.0, 100, NOW, few, 0.5);
        let due = interval.deadline();
        // A hundred members are known by now, so the report is not sent yet.
        let many = members(100, 50, true);
        assert!(!interval.on_timer(many, 0.5, due));
        assert!((later(&interval) - 100.0 / 1.218_28).abs() < 0.01, "{}", later(&interval));
        // All but ten leave, so the rest of the interval shrinks to a tenth.
        let left = interval.deadline().since(due).as_secs_f64();
        interval.on_departure(few, due);
        let now_left = interval.deadline().since(due).as_secs_f64();
        assert!((now_left - left / 10.0).abs() < 0.01, "{left} {now_left}");
        // Nobody has joined since: the report is sent, and the next is scheduled.
        let due = interval.deadline();
        assert!(interval.on_timer(few, 0.0, due));
        interval.on_sent(100, few, 0.5, due);
        assert!(interval.deadline() > due);
    }
}
