//! A reference count that reports when the last reference is released.
//!
//! Proof     `crates/model` runs this code in every order that the memory model allows, within bounds.

use crate::atomic::{AtomicU32, Ordering};

/// A reference count; it holds fewer than 2^32 references.
pub(crate) struct References(AtomicU32);

impl References {
    /// Creates a count of zero.
    pub(crate) fn none() -> References {
        References(AtomicU32::new(0))
    }

    /// Sets the count to one. The object must not be shared yet.
    #[inline]
    pub(crate) fn begin(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Adds a reference. Relaxed ordering suffices, because the new reference is made from an existing one.
    #[inline]
    pub(crate) fn hold(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the caller's reference is the only one. Acquire ordering: the accesses of former
    /// holders happen before what follows.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Drops a reference. Returns whether it was the last, in which case the caller owns the object alone.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // The only holder cannot race with another thread, so a load suffices instead of an atomic
        // subtraction.
        if self.is_sole() {
            return true;
        }
        let is_last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if is_last {
            // Former holders' accesses happen before the next use. This is a load rather than a fence,
            // because ThreadSanitizer does not support fences.
            self.0.load(Ordering::Acquire);
        }
        is_last
    }
}
