//! The doorbell between producers and a sleeper.
//!
//! Goal      nobody sleeps while there is something to see, and nobody wakes who does not sleep.
//! Sleeper   [`Bell::arm`], look again, sleep while the bell is armed, [`Bell::disarm`].
//! Ringer    makes visible what there is to see, then [`Bell::ring`]; if that says so, wakes the sleeper.
//! Proof     both sides write, fence, read: the sleeper the bell and then the queue, the ringer the queue and then the
//!           bell. Of two sequentially consistent fences one comes first, so one of them sees what the other wrote
//!           (Dekker): the sleeper finds the message, or the ringer finds the bell armed. `tests/bell_model.rs` checks
//!           this very code with every interleaving and every reordering that the memory model allows.
//! Moment    a ringer who has to wake somebody, and only then, writes when it did: the sleeper learns when that came
//!           which it found, and how long waking took.
//! Shared    the structure may lie in memory that two processes share. Nothing in it is trusted: a word that means
//!           nothing counts as "not armed", so whoever writes garbage wakes the sleeper for nothing or is not noticed
//!           himself; the moment is believed by nobody unless it lies within the wait ([`Waiter`](crate::Waiter)).
//! Limits    one sleeper a bell, any number of ringers.

use core::fmt;
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

/// An atomic number, as far as a bell needs it.
pub trait Atomic<T> {
    /// With this value.
    fn new(value: T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> T;
    /// Writes.
    fn store(&self, value: T, order: Ordering);
    /// Writes `new` if it holds `current`; tells whether it did.
    fn exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> bool;
}

/// Whose atomics: those of the processor, or those of a model checker.
pub trait Atomics {
    /// 32 bits.
    type Word: Atomic<u32>;
    /// 64 bits.
    type Moment: Atomic<u64>;
    /// A sequentially consistent fence.
    fn fence();
}

/// The atomics of the processor.
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

/// What [`Bell::word`] holds while the sleeper is awake.
const AWAKE: u32 = 0;
/// While the sleeper sleeps or is about to.
const ARMED: u32 = 1;
/// After a ringer has taken it upon itself to wake the sleeper.
const RUNG: u32 = 2;

/// A doorbell: 16 bytes, all zero when new. See the top of `bell.rs` for the protocol.
#[repr(C, align(8))]
pub struct Bell<A: Atomics = Processor> {
    word: A::Word,
    /// An atomic too: whoever shares the memory may write here while there are references to the bell.
    _unused: AtomicU32,
    rung_at: A::Moment,
}

impl Bell {
    /// A bell that nobody listens to yet.
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
    /// While the [word](Bell::word) holds this, a sleeper may sleep on it (futex).
    pub const SLEEP_WHILE: u32 = ARMED;

    /// The word that a sleeper may sleep on.
    pub fn word(&self) -> &A::Word {
        &self.word
    }

    /// The sleeper is about to sleep. It must look once more after this.
    #[inline]
    pub fn arm(&self) {
        self.word.store(ARMED, Relaxed);
        A::fence();
    }

    /// Whether nobody has rung since the bell was armed.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.word.load(Acquire) == ARMED
    }

    /// The sleeper is awake. Returns when the bell was rung, if it was, as the ringer wrote it.
    #[inline]
    pub fn disarm(&self) -> Option<u64> {
        if self.word.exchange(ARMED, AWAKE, AcqRel, Acquire) {
            return None;
        }
        if self.word.load(Relaxed) == AWAKE {
            return None;
        }
        // Whatever stands here, garbage included, ends with this wait.
        let at = self.rung_at.load(Relaxed);
        self.word.store(AWAKE, Relaxed);
        Some(at)
    }

    /// Something has been made visible. True: the sleeper must be woken, by the caller and nobody else.
    ///
    /// `now` is asked only then. Costs a fence, some ten nanoseconds, if nobody sleeps.
    #[inline]
    #[must_use = "a sleeper that is not woken sleeps on"]
    pub fn ring(&self, now: impl FnOnce() -> u64) -> bool {
        A::fence();
        self.word.load(Relaxed) == ARMED && self.ring_armed(now())
    }

    #[cold]
    fn ring_armed(&self, now: u64) -> bool {
        // Of several ringers one wins. The losers' moments are as good as the winner's.
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
    fn garbage_in_the_bell_wakes_the_sleeper_and_is_gone_then() {
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
    fn a_bell_is_sixteen_bytes_that_may_begin_as_zeros() {
        assert_eq!(size_of::<Bell>(), 16);
        assert_eq!(core::mem::offset_of!(Bell, rung_at), 8);
    }
}
