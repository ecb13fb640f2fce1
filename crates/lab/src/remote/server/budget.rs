//! The rate limit of a session: a token bucket for each direction.
//!
//! Promise   in any interval, a session reads, and writes, no more than the rate permits, plus one [`BURST`].
//! Slices    a writer pays for each slice before it writes it. A reader pays for what it has read before it
//!           reads again, so each connection may be one slice ahead, and a control connection one line.
//! Slots     the buckets belong to a session's slot and outlive the session, so that neither a new trial nor
//!           a new session has another burst. A session's debt is paid before its slot is free, so that the
//!           next session has none.

use super::limits::LOOK;
use kiban_base::Instant;
use kiban_measure::pause::pace;
use kiban_os::{Clock, lock};
use std::sync::Mutex;
use std::time::Duration;

/// How far a burst may run ahead of the permitted rate.
const BURST: Duration = Duration::from_millis(250);

/// The token buckets of both directions.
pub(super) struct Rate {
    pub(super) received: Bucket,
    pub(super) sent: Bucket,
}

impl Rate {
    pub(super) fn new(per_second: u64) -> Rate {
        Rate { received: Bucket::new(per_second), sent: Bucket::new(per_second) }
    }

    /// Returns when everything charged so far conforms to the rate.
    pub(super) fn conforms_at(&self, now: Instant) -> Instant {
        self.received.charge(0, now).max(self.sent.charge(0, now))
    }
}

/// Whether bytes had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Payment {
    /// They conformed to the rate at once.
    Immediate,
    /// They conform now.
    Delayed,
    /// The caller stopped waiting. They stay charged.
    Abandoned,
}

/// A token bucket, shared by all threads of a session.
pub(super) struct Bucket {
    per_second: u64,
    /// When the bucket is full again.
    full: Mutex<Instant>,
}

impl Bucket {
    fn new(per_second: u64) -> Bucket {
        Bucket { per_second: per_second.max(1), full: Mutex::new(Instant::ZERO) }
    }

    /// Returns the number of bytes to read or write at once: the shorter of 1/16 s and 64 KiB.
    pub(super) fn slice_bytes(&self) -> usize {
        (self.per_second / 16).clamp(1 << 10, 64 << 10) as usize
    }

    fn refill(&self, full: Instant, bytes: u64, now: Instant) -> Instant {
        full.max(now) + Duration::from_secs_f64(bytes as f64 / self.per_second as f64)
    }

    /// Charges bytes, whether or not they conform to the rate; returns when they do. Bytes that other threads
    /// charge later do not change that.
    #[must_use = "nothing more may be read or written until then"]
    pub(super) fn charge(&self, bytes: u64, now: Instant) -> Instant {
        let mut full = lock(&self.full);
        *full = self.refill(*full, bytes, now);
        *full - BURST
    }

    /// Charges bytes if they conform to the rate; returns whether they do.
    pub(super) fn take(&self, bytes: u64, now: Instant) -> bool {
        let mut full = lock(&self.full);
        let next = self.refill(*full, bytes, now);
        let conforms = next.since(now) <= BURST;
        if conforms {
            *full = next;
        }
        conforms
    }

    /// Charges bytes and waits until they conform to the rate, or until `gives_up` returns true.
    pub(super) fn pay(&self, bytes: u64, clock: Clock, gives_up: impl Fn(Instant) -> bool) -> Payment {
        wait(self.charge(bytes, clock.now()), clock, gives_up)
    }

    /// Charges bytes like [`Bucket::pay`], but waits until some of the burst is left for
    /// [`Bucket::take`].
    pub(super) fn pay_leaving(
        &self,
        reserve: Duration,
        bytes: u64,
        clock: Clock,
        gives_up: impl Fn(Instant) -> bool,
    ) -> Payment {
        wait(self.charge(bytes, clock.now()) + reserve, clock, gives_up)
    }
}

fn wait(conforms_at: Instant, clock: Clock, gives_up: impl Fn(Instant) -> bool) -> Payment {
    let mut payment = Payment::Immediate;
    loop {
        let now = clock.now();
        let wait = conforms_at.since(now);
        if wait.is_zero() {
            return payment;
        }
        payment = Payment::Delayed;
        if gives_up(now) {
            return Payment::Abandoned;
        }
        pace(wait.min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_permits_its_rate_and_one_burst() {
        let bucket = Bucket::new(1000);
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        for (millis, bytes, conforms) in [
            (0, 200, true),
            (0, 50, true),
            (0, 1, false),
            // What was refused is not charged.
            (10, 11, false),
            (10, 10, true),
            // However long it was idle, only one burst is saved.
            (9000, 251, false),
            (9000, 250, true),
            (9100, 100, true),
            (9100, 1, false),
        ] {
            assert_eq!(bucket.take(bytes, at(millis)), conforms, "{bytes} bytes at {millis} ms");
        }
        assert_eq!(bucket.charge(1000, at(9100)), at(10_100));
        assert!(!bucket.take(1, at(10_100)) && bucket.take(1, at(10_101)), "the debt is paid first");
    }

    #[test]
    fn a_payment_that_is_abandoned_stays_charged() {
        let (bucket, clock) = (Bucket::new(1000), Clock::new());
        assert_eq!(bucket.pay(250, clock, |_| true), Payment::Immediate);
        assert_eq!(bucket.pay(1 << 30, clock, |_| true), Payment::Abandoned);
        assert!(!bucket.take(1, clock.now()));
    }
}
