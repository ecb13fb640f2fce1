//! Threads that sleep until there is an event of a socket.
//!
//! Purpose   the thread that takes an event need not be the one that waits for it; the others must be woken.
//! Sleeper   looks at the socket under its lock; before it unlocks, it increments `count` and reads `taken`.
//!           One sleeper at a time waits in the NIC, and only if `taken` has not changed since.
//! Taker     takes the event and increments `taken` under the socket's lock, unlocks, and wakes the others if
//!           `count` says that any sleep.
//! Proof     the lock orders the two: a taker that locks later sees the sleeper in `count`; what an earlier
//!           taker took, the sleeper has already seen. `crates/model` runs this code in every order that the
//!           memory model allows, within bounds.

use crate::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of sleeping threads, and of events taken.
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

    /// Counts a thread out.
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

    /// Returns whether any sleep beside `own` of the caller's.
    pub(crate) fn are_more_than(&self, own: usize) -> bool {
        self.count.load(Ordering::SeqCst) > own
    }
}
