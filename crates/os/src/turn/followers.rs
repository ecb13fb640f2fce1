//! Followers: threads that wait without driving.
//!
//! Purpose          a thread that releases the driver's lock wakes the followers, so that one of them drives
//!                  next. All threads never sleep while none drives.
//! Follower         increments the count, issues a SeqCst fence, reads the number of the last call, tries the
//!                  driver's lock, and, if it fails, sleeps until the number changes.
//! Driver           releases its lock, issues a SeqCst fence, reads the count, and makes a call if there are
//!                  followers.
//! Proof            one of the two fences comes first (Dekker): either the driver sees the follower, or the
//!                  follower finds the lock free. The number is read before the lock is tried, so a call in
//!                  between is not missed. `crates/model` runs this code in every order that the memory model
//!                  allows, within bounds.

use crate::atomic::{AtomicUsize, Ordering, fence};

/// The number of followers.
pub(crate) struct Followers(AtomicUsize);

impl Followers {
    pub(crate) fn new() -> Followers {
        Followers(AtomicUsize::new(0))
    }

    /// Adds a follower, and returns the number of the last `call`. The thread then sleeps until the number
    /// changes, and [leaves](Followers::leave). If the driver's lock `is_free`, no follower is added and the
    /// result is `None`.
    pub(crate) fn enter(&self, call: impl FnOnce() -> u64, is_free: impl FnOnce() -> bool) -> Option<u64> {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = call();
        if is_free() {
            self.leave();
            return None;
        }
        Some(seen)
    }

    /// Removes a follower.
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether there are followers that checked the machine before the caller last held the machine's
    /// lock. That lock orders the follower's increment before this read, so no fence is needed.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Returns whether there are followers. Called after the caller has released the driver's lock.
    pub(crate) fn any_after_driving(&self) -> bool {
        fence(Ordering::SeqCst);
        self.any()
    }
}
