//! Yields a spinning thread's processor to other threads.

use crate::clock::machine_nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A spin counts as long after it has found nothing for this time.
pub const LONG: Duration = Duration::from_micros(5);
/// Interval between offers during a long spin. If no other thread wants the processor, an offer takes a third
/// of this interval.
pub(super) const OFFER: Duration = Duration::from_micros(1);
/// If an offer took longer than this, it gave a time slice to a thread that the spinner does not wait for.
const SLICE: Duration = Duration::from_millis(1);
/// The spinner loses at most 1/`PAUSE` of its time to such slices.
const PAUSE: u64 = 16;
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Offers of the processor to other threads during a long spin.
///
/// The thread that is waited for may want this processor. Without an offer, that thread would run only after
/// the spinner's time slice, milliseconds later; with one, it runs at once. But an unrelated thread would
/// keep the processor for a whole time slice. So after an offer that took that long, no offers are made for
/// sixteen times as long. If a retry soon after this pause has the same result, the next pause is twice as
/// long.
///
/// For use by one thread at a time. Threads that share one value use each other's measurements.
#[derive(Debug, Default)]
pub struct YieldLimiter {
    /// Earliest time of the next offer, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) next: AtomicU64,
    /// End of the last pause, in nanoseconds of CLOCK_MONOTONIC; `pause` is the pause's length in
    /// nanoseconds.
    paused_until: AtomicU64,
    pause: AtomicU64,
}

impl YieldLimiter {
    /// Yields the processor if an offer is due, and returns whether it was.
    pub fn yield_if_due(&self) -> bool {
        let began = machine_nanos();
        let is_due = began >= self.next.load(Relaxed);
        if is_due {
            std::thread::yield_now();
            self.on_yielded(began, machine_nanos());
        }
        is_due
    }

    /// Records that other threads had the processor from `began` to `ended`.
    pub(super) fn on_yielded(&self, began: u64, ended: u64) {
        let away = ended - began;
        if u128::from(away) < SLICE.as_nanos() {
            return self.next.store(ended + OFFER.as_nanos() as u64, Relaxed);
        }
        let before = self.pause.load(Relaxed);
        // If other threads get a slice soon after the last pause, the same threads are still running.
        let again = began.saturating_sub(self.paused_until.load(Relaxed)) < before;
        let longer = if again { 2 * before } else { 0 };
        let pause = (PAUSE * away).max(longer).min(PAUSE_MAX.as_nanos() as u64);
        self.pause.store(pause, Relaxed);
        self.paused_until.store(ended + pause, Relaxed);
        self.next.store(ended + pause, Relaxed);
    }
}
