//! A flag that threads set and read without a lock.
//!
//! Wake-up          the producer sets the flag, then rings the sleeper. The sleeper reads the flag before it
//!                  sleeps and after each ring, so it misses no wake-up.
//! Mirror           the flag says whether a locked value is present, so that checking for the value takes no
//!                  lock. The flag is set while the lock is held. If it were set later, it could overwrite
//!                  the state that another thread has set in the meantime.
//! Ordering         setting is Release, reading is Acquire: a thread that sees the flag set also sees all
//!                  earlier writes.
//! Proof            `crates/model` runs this code in every order that the memory model allows, within bounds,
//!                  in both uses.

use crate::atomic::{AtomicBool, Ordering};

/// A flag, initially false.
#[derive(Debug)]
pub struct Flag(AtomicBool);

impl Default for Flag {
    fn default() -> Flag {
        Flag(AtomicBool::new(false))
    }
}

impl Flag {
    /// Sets the flag to `value`.
    #[inline]
    pub fn set(&self, value: bool) {
        self.0.store(value, Ordering::Release);
    }

    /// Returns whether the flag is set.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Clears the flag and returns whether it was set. If several threads take the flag at once, one of them
    /// gets `true`. Does not write to a flag that is not set.
    #[inline]
    pub fn take(&self) -> bool {
        self.get() && self.0.swap(false, Ordering::AcqRel)
    }
}
