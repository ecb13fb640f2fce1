//! A lock that is taken in one C call and released in another.
//!
//! Purpose   `std::sync::Mutex` ties the lock to a guard, which cannot live between two calls of a program.
//! Proof     `crates/model` runs this very code in every order that the memory model allows, within bounds.

use crate::atomic::{AtomicBool, Ordering, yield_now};

/// A spin lock; whether it is held.
pub(crate) struct SpinLock(AtomicBool);

impl SpinLock {
    /// Creates an unlocked lock.
    pub(crate) fn new() -> SpinLock {
        SpinLock(AtomicBool::new(false))
    }

    /// Waits until the lock is free and takes it. Acquire: everything that its last holder did happened
    /// before. A failed attempt writes nothing, so that it cannot hide the holder's store from the model
    /// checker.
    #[inline]
    pub(crate) fn lock(&self) {
        while self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_now();
        }
    }

    /// Gives back the lock, which the caller holds. Release: what it did happens before the next holder's
    /// work.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
