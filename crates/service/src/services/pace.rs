//! The minimum rate at which a peer must read data.

use super::service::MINIMUM_RATE;
use kiban_base::Instant;
use std::time::Duration;

/// Measures how fast a peer reads data.
pub(super) struct Pace {
    since: Instant,
    /// The number of bytes that the peer had read at `since`.
    taken: u64,
}

impl Pace {
    /// Starts measuring when the peer has read `taken` bytes.
    pub(super) const fn new(taken: u64, now: Instant) -> Pace {
        Pace { since: now, taken }
    }

    /// Returns whether the peer has been slower than `MINIMUM_RATE` for `time`. `taken` is the total number
    /// of bytes that the peer has read. Must be called once a second.
    pub(super) fn is_slow(&mut self, taken: u64, time: Duration, now: Instant) -> bool {
        if taken - self.taken >= (time.as_secs_f64() * MINIMUM_RATE as f64) as u64 {
            *self = Pace::new(taken, now);
        }
        self.since + time <= now
    }
}
