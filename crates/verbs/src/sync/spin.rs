//! A lock that can be taken in one C call and released in another.
//!
//! Purpose   replaces `std::sync::Mutex`, which ties the lock to a guard that cannot be kept between two
//!           calls from a program.
//! Proof     `crates/model` model-checks this code under the memory model, within bounds.

use crate::atomic::{AtomicBool, Ordering, yield_now};

/// A spin lock: true while it is held.
pub(crate) struct SpinLock(AtomicBool);

impl SpinLock {
    /// Creates an unlocked lock.
    pub(crate) fn new() -> SpinLock {
        SpinLock(AtomicBool::new(false))
    }

    /// Waits until the lock is free and takes it. Acquire: the writes of the last holder are visible. A
    /// failed attempt stores nothing, because the model checker could otherwise not see the holder's store.
    #[inline]
    pub(crate) fn lock(&self) {
        while self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_now();
        }
    }

    /// Releases the lock, which the caller holds. Release: its writes are visible to the next holder.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
