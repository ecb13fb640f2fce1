//! Counts the threads that sleep until a socket has an event.
//!
//! Purpose   wakes the right threads: a thread that takes an event for which another thread may be waiting
//!           must wake the others.
//! Sleeper   checks the socket under its lock; before it unlocks, it increments `count` and reads `taken`.
//!           One sleeper at a time waits in the NIC, and only if `taken` has not changed since.
//! Taker     takes the event and increments `taken` under the socket's lock, unlocks, and wakes the others if
//!           `count` is greater than its own share.
//! Proof     the lock orders the two: a taker that locks later sees the sleeper in `count`; the sleeper has
//!           seen everything that an earlier taker took. `crates/model` model-checks this code, within
//!           bounds.

use crate::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of sleeping threads, and the number of events taken.
pub(crate) struct Waiters {
    count: AtomicUsize,
    taken: AtomicU64,
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters { count: AtomicUsize::new(0), taken: AtomicU64::new(0) }
    }

    /// Adds the calling thread to `count`, and returns `taken`. A thread that will wait in the NIC must hold
    /// the socket's lock here.
    pub(crate) fn enter(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.taken()
    }

    /// Removes the calling thread from `count`.
    pub(crate) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts an event that was taken, or a change.
    pub(crate) fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many events were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// Returns whether other threads sleep; the caller is counted `own` times.
    pub(crate) fn are_more_than(&self, own: usize) -> bool {
        self.count.load(Ordering::SeqCst) > own
    }
}
