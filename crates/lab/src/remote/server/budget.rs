//! The rate limit of a measurement, in bytes per second.

use kiban_base::Instant;
use kiban_measure::pause::pace;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How far a burst may run ahead of the permitted rate.
const BURST: Duration = Duration::from_millis(250);

/// The number of bytes that the threads of a measurement have read and written, and the limit on their rate.
pub(super) struct Budget {
    per_second: u64,
    begin: Instant,
    bytes: AtomicU64,
    limited: AtomicBool,
}

impl Budget {
    pub(super) fn new(per_second: u64, begin: Instant) -> Budget {
        Budget { per_second, begin, bytes: AtomicU64::new(0), limited: AtomicBool::new(false) }
    }

    /// Returns when the measurement began.
    pub(super) fn begin(&self) -> Instant {
        self.begin
    }

    /// Returns the bytes counted so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns whether the rate has been exceeded.
    pub(super) fn was_limited(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    /// Counts bytes; returns how long to wait until they conform to the rate. A burst as long as [`BURST`]
    /// does not wait.
    pub(super) fn count(&self, bytes: u64, now: Instant) -> Duration {
        let bytes = self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let due = Duration::from_secs_f64(bytes as f64 / self.per_second.max(1) as f64);
        let excess = due.saturating_sub(now.since(self.begin)).saturating_sub(BURST);
        if !excess.is_zero() {
            self.limited.store(true, Ordering::Release);
        }
        excess
    }

    /// Counts bytes, and waits for at most `pause_max` if the rate is exceeded.
    pub(super) fn spend(&self, bytes: u64, now: Instant, pause_max: Duration) {
        let excess = self.count(bytes, now);
        if !excess.is_zero() {
            pace(excess.min(pause_max));
        }
    }
}
