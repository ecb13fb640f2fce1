//! References to something shared: the last one out is told so.
//!
//! Proof     `crates/model` runs this very code in every order that the memory model allows, within bounds.

use crate::atomic::{AtomicU32, Ordering};

/// A count of references. An overflow would need 2^32 of them.
pub(crate) struct References(AtomicU32);

impl References {
    /// Counts none.
    pub(crate) fn none() -> References {
        References(AtomicU32::new(0))
    }

    /// Counts one, where nobody else can refer to the thing.
    #[inline]
    pub(crate) fn begin(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Counts one more. Relaxed: the new reference comes from one that exists.
    #[inline]
    pub(crate) fn hold(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the caller's reference is the only one. Acquire: what other holders did happened before what follows.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Counts one less: whether it was the last, so that the thing is the caller's alone.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // A sole holder cannot race with anybody: one load instead of a locked subtraction.
        if self.is_sole() {
            return true;
        }
        let is_last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if is_last {
            // What other holders did happened before the next use. A load and no fence: ThreadSanitizer does not see fences.
            self.0.load(Ordering::Acquire);
        }
        is_last
    }
}
