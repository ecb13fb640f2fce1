//! The doorbell between producers and a sleeping consumer.
//!
//! Purpose   no lost wake-ups, and no wake-ups of a consumer that is awake.
//! Sleeper   calls [`Bell::arm`], checks its queue again, sleeps while the bell is armed, calls
//!           [`Bell::disarm`].
//! Ringer    publishes its message, then calls [`Bell::ring`]; if that returns true, wakes the sleeper.
//! Proof     each side writes, fences, and reads: the sleeper writes the bell and reads the queue; the ringer
//!           writes the queue and reads the bell. Of two sequentially consistent fences, one comes first, so
//!           at least one side sees what the other wrote (Dekker): the sleeper finds the message, or the
//!           ringer finds the bell armed. `tests/bell_model.rs` checks this code with every interleaving and
//!           every reordering that the memory model allows.
//! Time      only a ringer that has to wake the sleeper records the time of its ring. From that time the
//!           sleeper learns when the message arrived and how long waking took.
//! Trust     the structure may be in memory that two processes share. Nothing in it is trusted: an unknown
//!           word counts as "not armed", so a process that writes garbage only causes a spurious wake-up or
//!           misses a wake-up of its own. The recorded time is used only if it lies within the wait
//!           ([`Waiter`](crate::Waiter)).
//! Limits    a bell has one sleeper and any number of ringers.

use core::fmt;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The operations of an atomic number that a bell needs.
pub trait Atomic<T> {
    /// Creates an atomic with this value.
    fn new(value: T) -> Self;
    /// Loads the value.
    fn load(&self, order: Ordering) -> T;
    /// Stores a value.
    fn store(&self, value: T, order: Ordering);
    /// Stores `new` if the value is `current`, and returns whether it did.
    fn exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> bool;
}

/// The set of atomics to use: the processor's, or those of a model checker.
pub trait Atomics {
    /// A 32-bit atomic.
    type Word: Atomic<u32>;
    /// A 64-bit atomic.
    type Moment: Atomic<u64>;
    /// Executes a sequentially consistent fence.
    fn fence();
}

/// The processor's atomics.
#[derive(Clone, Copy, Debug)]
pub enum Processor {}

macro_rules! atomic {
    ($($atomic:ty, $number:ty);*) => {$(
        impl Atomic<$number> for $atomic {
            #[inline]
            fn new(value: $number) -> Self {
                Self::new(value)
            }
            #[inline]
            fn load(&self, order: Ordering) -> $number {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $number, order: Ordering) {
                self.store(value, order);
            }
            #[inline]
            fn exchange(&self, current: $number, new: $number, success: Ordering, failure: Ordering) -> bool {
                self.compare_exchange(current, new, success, failure).is_ok()
            }
        }
    )*};
}
atomic!(AtomicU32, u32; AtomicU64, u64);

impl Atomics for Processor {
    type Word = AtomicU32;
    type Moment = AtomicU64;
    #[inline]
    fn fence() {
        fence(SeqCst);
    }
}

/// The value of [`Bell::word`] while the sleeper is awake.
const AWAKE: u32 = 0;
/// The value while the sleeper sleeps or is about to sleep.
const ARMED: u32 = 1;
/// The value after a ringer has rung the bell and is about to wake the sleeper.
const RUNG: u32 = 2;

/// A doorbell: 16 bytes, all zero when new. See the top of `bell.rs` for the protocol.
#[repr(C, align(8))]
pub struct Bell<A: Atomics = Processor> {
    word: A::Word,
    /// Padding. It is atomic, because another process may write here while references to the bell exist.
    _unused: AtomicU32,
    rung_at: A::Moment,
}

impl Bell {
    /// Creates a bell in the awake state.
    pub const fn new() -> Bell {
        Bell { word: AtomicU32::new(AWAKE), _unused: AtomicU32::new(0), rung_at: AtomicU64::new(0) }
    }
}

impl<A: Atomics> Default for Bell<A> {
    fn default() -> Self {
        Self { word: A::Word::new(AWAKE), _unused: AtomicU32::new(0), rung_at: A::Moment::new(0) }
    }
}

impl<A: Atomics> Bell<A> {
    /// The value of the [word](Bell::word) while a sleeper may sleep on it (futex).
    pub const SLEEP_WHILE: u32 = ARMED;

    /// Returns the word that a sleeper may sleep on.
    pub fn word(&self) -> &A::Word {
        &self.word
    }

    /// Arms the bell before sleeping. The sleeper must check its queue once more after this.
    #[inline]
    pub fn arm(&self) {
        self.word.store(ARMED, Relaxed);
        A::fence();
    }

    /// Returns whether the bell is armed and has not been rung since it was armed.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.word.load(Acquire) == ARMED
    }

    /// Marks the sleeper as awake. Returns the time that the ringer recorded, or `None` if the bell was not
    /// rung.
    #[inline]
    pub fn disarm(&self) -> Option<u64> {
        if self.word.exchange(ARMED, AWAKE, AcqRel, Acquire) {
            return None;
        }
        if self.word.load(Relaxed) == AWAKE {
            return None;
        }
        // Any other value, including garbage, is reset at the end of this wait.
        let at = self.rung_at.load(Relaxed);
        self.word.store(AWAKE, Relaxed);
        Some(at)
    }

    /// Rings the bell after publishing a message. Returns true if the caller must wake the sleeper; at most
    /// one caller gets true.
    ///
    /// `now` is called only if the bell is armed. Without a sleeper this costs a fence, about ten
    /// nanoseconds.
    #[inline]
    #[must_use = "if true, the caller must wake the sleeper"]
    pub fn ring(&self, now: impl FnOnce() -> u64) -> bool {
        A::fence();
        self.word.load(Relaxed) == ARMED && self.ring_armed(now())
    }

    #[cold]
    fn ring_armed(&self, now: u64) -> bool {
        // If several ringers race, one of them wins. Any of their times would do.
        self.rung_at.store(now, Relaxed);
        self.word.exchange(ARMED, RUNG, Release, Relaxed)
    }
}

impl<A: Atomics> fmt::Debug for Bell<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.word.load(Relaxed) {
            AWAKE => "Bell(awake)",
            ARMED => "Bell(armed)",
            RUNG => "Bell(rung)",
            _ => "Bell(garbage)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let bell = Bell::new();
        assert!(!bell.ring(|| unreachable!("nobody sleeps: the time is not asked")));
        bell.arm();
        assert!(bell.is_armed());
        assert!(bell.ring(|| 7));
        assert!(!bell.ring(|| unreachable!("it has been rung")));
        assert_eq!(bell.disarm(), Some(7));
        assert_eq!(bell.disarm(), None, "it has been told");
        bell.arm();
        assert_eq!(bell.disarm(), None);
        assert!(!bell.ring(|| unreachable!("nobody sleeps")));
    }

    #[test]
    fn garbage_in_the_bell_wakes_the_sleeper_once() {
        let bell = Bell::new();
        bell.arm();
        bell.word().store(0xdead_beef, Relaxed);
        bell.rung_at.store(u64::MAX, Relaxed);
        assert!(!bell.is_armed(), "the sleeper does not sleep");
        assert!(!bell.ring(|| 1), "who wrote garbage is not noticed");
        assert_eq!(bell.disarm(), Some(u64::MAX));
        bell.arm();
        assert!(bell.ring(|| 2));
    }

    #[test]
    fn a_bell_is_sixteen_bytes_and_valid_when_zeroed() {
        assert_eq!(size_of::<Bell>(), 16);
        assert_eq!(core::mem::offset_of!(Bell, rung_at), 8);
    }
}
