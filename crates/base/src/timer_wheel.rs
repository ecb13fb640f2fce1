//! A hierarchical timer wheel for deadlines that usually move before they expire.
//!
//! Purpose          make moving a deadline cost one store, and finding the next a few bit operations.
//! Method           the *true* deadline is a field of the owner. The wheel holds an *early* entry for it:
//!                  moving the deadline later does not touch the entry. When the entry expires, the owner
//!                  checks its field and sets the timer again. The wheel is never late and may be early.
//! Wheel            levels of 64 slots; a slot of level n spans 64^n ticks of 1024 ns (Varghese and Lauck
//!                  1987, hierarchical). An entry is stored at the level of the highest digit in which its
//!                  tick differs from the wheel's, and moves to lower levels as the wheel advances.
//! Limits           limited only by memory; one entry per owner if owners use [`Timer`].

use crate::time::Instant;
use alloc::vec::Vec;

const SLOTS: usize = 64;
const DIGIT_BITS: u32 = 6;
const TICK_BITS: u32 = 10;
const LEVELS: usize = 9;

/// The owner's side of a timer: the expiry time of its entry in the wheel, if it has one.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    entry: Instant,
}

impl Default for Timer {
    fn default() -> Timer {
        Timer { entry: Instant::NEVER }
    }
}

/// A timer wheel; each entry is a time and the key of its owner.
#[derive(Debug)]
pub struct TimerWheel {
    tick: u64,
    occupied: [u64; LEVELS],
    slots: Vec<Vec<(Instant, u32)>>,
    due: Vec<(Instant, u32)>,
}

impl Default for TimerWheel {
    fn default() -> TimerWheel {
        TimerWheel::new()
    }
}

const fn tick_of(moment: Instant) -> u64 {
    moment.as_nanos() >> TICK_BITS
}

const fn digit(tick: u64, level: usize) -> usize {
    ((tick >> (DIGIT_BITS * level as u32)) & (SLOTS as u64 - 1)) as usize
}

impl TimerWheel {
    /// Creates a wheel at time zero.
    pub fn new() -> TimerWheel {
        let slots = (0..LEVELS * SLOTS).map(|_| Vec::new()).collect();
        TimerWheel { tick: 0, occupied: [0; LEVELS], slots, due: Vec::new() }
    }

    /// Ensures that `key` expires no later than `deadline`. Does nothing if its entry is early enough.
    #[inline]
    pub fn set(&mut self, alarm: &mut Timer, key: u32, deadline: Instant) {
        if deadline < alarm.entry {
            alarm.entry = deadline;
            self.insert(deadline, key);
        }
    }

    fn insert(&mut self, moment: Instant, key: u32) {
        let tick = tick_of(moment);
        if tick < self.tick {
            self.due.push((moment, key));
            return;
        }
        let differs = tick ^ self.tick;
        let level = if differs == 0 { 0 } else { ((63 - differs.leading_zeros()) / DIGIT_BITS) as usize };
        let slot = digit(tick, level);
        self.occupied[level] |= 1 << slot;
        self.slots[level * SLOTS + slot].push((moment, key));
    }

    /// Returns the level and slot that expire first, and the tick at which they do.
    fn first(&self) -> Option<(usize, usize, u64)> {
        (0..LEVELS).find_map(|level| {
            let here = digit(self.tick, level);
            let ahead = self.occupied[level] & (u64::MAX << here);
            (ahead != 0).then(|| {
                let slot = ahead.trailing_zeros() as usize;
                let shift = DIGIT_BITS * level as u32;
                let above = self.tick.checked_shr(shift + DIGIT_BITS).unwrap_or(0) << DIGIT_BITS;
                (level, slot, (above | slot as u64) << shift)
            })
        })
    }

    /// Returns the next time at which to call [`TimerWheel::pop_expired`]. The time may be early, but is
    /// never late.
    pub fn next_deadline(&self) -> Instant {
        if let Some(due) = self.due.iter().map(|entry| entry.0).min() {
            return due;
        }
        match self.first() {
            None => Instant::NEVER,
            Some((0, slot, _)) => {
                self.slots[slot].iter().map(|entry| entry.0).min().expect("an occupied slot has an entry")
            }
            Some((_, _, tick)) => Instant::from_nanos(tick << TICK_BITS),
        }
    }

    /// Advances the wheel to `now` and returns one expired entry, or `None` when none is left.
    ///
    /// The caller passes its time to [`Timer::take_if_current`] of the owner and sets the timer again if the
    /// true deadline is later.
    pub fn pop_expired(&mut self, now: Instant) -> Option<(Instant, u32)> {
        loop {
            if let Some(at) = self.due.iter().position(|entry| entry.0 <= now) {
                return Some(self.due.swap_remove(at));
            }
            let first = self.first();
            let Some((level, slot, tick)) = first.filter(|(_, _, tick)| *tick <= tick_of(now)) else {
                // No entry expires before `now`, so the wheel can advance without moving any entry to a lower
                // level.
                self.tick = self.tick.max(tick_of(now));
                return None;
            };
            if level == 0 {
                let entries = &mut self.slots[slot];
                let at = entries.iter().position(|entry| entry.0 <= now)?;
                let entry = entries.swap_remove(at);
                if entries.is_empty() {
                    self.occupied[0] &= !(1 << slot);
                }
                self.tick = tick;
                return Some(entry);
            }
            self.tick = tick;
            self.occupied[level] &= !(1 << slot);
            let mut falling = core::mem::take(&mut self.slots[level * SLOTS + slot]);
            for (moment, key) in falling.drain(..) {
                self.insert(moment, key);
            }
            // The slot keeps its allocation.
            self.slots[level * SLOTS + slot] = falling;
        }
    }
}

impl Timer {
    /// Clears the timer and returns true if `moment` is its current entry. Returns false for an entry that
    /// was superseded by an earlier one.
    pub fn take_if_current(&mut self, moment: Instant) -> bool {
        let mine = self.entry == moment;
        if mine {
            self.entry = Instant::NEVER;
        }
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn a_timer_moved_later_keeps_its_early_entry() {
        let (mut alarms, mut alarm) = (TimerWheel::new(), Timer::default());
        let at = Instant::from_nanos;
        alarms.set(&mut alarm, 7, at(5_000_000));
        alarms.set(&mut alarm, 7, at(9_000_000));
        assert!(alarms.next_deadline() <= at(5_000_000));
        assert_eq!(alarms.pop_expired(at(4_999_999)), None);
        let (moment, key) = alarms.pop_expired(at(5_000_000)).unwrap();
        assert_eq!(key, 7);
        assert!(alarm.take_if_current(moment));
        alarms.set(&mut alarm, 7, at(9_000_000));
        assert_eq!(alarms.pop_expired(at(8_999_999)), None);
        assert_eq!(alarms.pop_expired(at(9_000_000)), Some((at(9_000_000), 7)));
        assert_eq!(alarms.next_deadline(), Instant::NEVER);
    }

    proptest! {
        /// Compares the wheel with an ordered set: it is never late, and a caller that advances it at every
        /// deadline gets every entry on time.
        #[test]
        fn a_wheel_behaves_like_an_ordered_set(steps in prop::collection::vec((0u8..3, 0u64..200_000_000_000), 1..80)) {
            let mut alarms = TimerWheel::new();
            let mut model = BTreeSet::new();
            let mut now = Instant::ZERO;
            for (key, (what, amount)) in steps.into_iter().enumerate() {
                let amount = if what == 1 { amount % 3000 } else { amount };
                let key = key as u32;
                if what < 2 {
                    let moment = Instant::from_nanos(now.as_nanos() + amount);
                    alarms.set(&mut Timer::default(), key, moment);
                    model.insert((moment, key));
                } else {
                    let target = Instant::from_nanos(now.as_nanos() + amount / 50);
                    loop {
                        let first = model.first().map_or(Instant::NEVER, |entry: &(Instant, u32)| entry.0);
                        prop_assert!(alarms.next_deadline() <= first, "never late");
                        let next = alarms.next_deadline();
                        if next > target { break; }
                        now = now.max(next);
                        while let Some((moment, key)) = alarms.pop_expired(now) {
                            prop_assert!(moment <= now);
                            prop_assert!(model.remove(&(moment, key)));
                        }
                    }
                    now = target;
                    prop_assert!(model.first().is_none_or(|entry| entry.0 > now), "all that was due came up");
                }
            }
        }
    }
}
