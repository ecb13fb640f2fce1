//! A pool: a fixed number of slots that are taken and returned.
//!
//! Purpose          provide pages and PDU blocks within a few nanoseconds from memory sized at start; a
//!                  leaked slot is a bug that tests detect.
//! Take             only the owner of the pool takes slots, from a private free list without atomics.
//! Return           the owner puts a slot back on its free list. Any other thread pushes it on the *return
//!                  stack*. The owner takes the whole stack when its list is empty, and also every
//!                  [`COLLECT_EVERY`] takes, so that recently used slots, which are still in the CPU cache,
//!                  are reused first. A stack that is only taken as a whole has no ABA problem.
//! Drop             the pool may be dropped while slots are in use. It then marks the stack, and the last
//!                  slot to be returned frees the memory: the count of slots in use reaches zero exactly
//!                  once, on whichever side returns last.
//! Proof            `crates/model` runs this code in every order that the memory model allows, within bounds.
//! Limits           `capacity` slots, fewer than 2^31; `take` returns `None` when all are in use.

use crate::atomic::{AtomicI64, AtomicU32, Ordering, UnsafeCell};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

const EMPTY: u32 = u32::MAX;
/// The return stack is collected once per this number of takes.
const COLLECT_EVERY: u64 = 32;
/// The head of the return stack once the pool has been dropped.
const ORPHANED: u32 = u32::MAX - 1;

/// One slot: its value, its link in the return stack, and a pointer to the shared state.
pub(crate) struct Slot<T> {
    value: UnsafeCell<T>,
    next: AtomicU32,
    index: u32,
    home: NonNull<Shared<T>>,
}

struct Shared<T> {
    slots: Box<[Slot<T>]>,
    returned: AtomicU32,
    outstanding: AtomicI64,
}

/// The owner's side; only the owner takes slots.
pub(crate) struct SlotPool<T> {
    home: NonNull<Shared<T>>,
    free: Vec<u32>,
    /// Number of takes until one fails, for exhaustion tests.
    takes_until_failure: u64,
}

// SAFETY: values move between threads with the slots, so they must be `Send`; all shared state is atomic.
unsafe impl<T: Send> Send for SlotPool<T> {}

impl<T> SlotPool<T> {
    /// Creates a pool of `capacity` slots whose values come from `fill(index)`.
    pub(crate) fn new(capacity: usize, mut fill: impl FnMut(usize) -> T) -> SlotPool<T> {
        assert!(capacity < 1 << 31, "a pool holds fewer than 2^31 slots");
        let home = NonNull::from(Box::leak(Box::new(Shared {
            slots: Box::new([]),
            returned: AtomicU32::new(EMPTY),
            outstanding: AtomicI64::new(0),
        })));
        let slots = (0..capacity)
            .map(|index| Slot {
                value: UnsafeCell::new(fill(index)),
                next: AtomicU32::new(EMPTY),
                index: index as u32,
                home,
            })
            .collect();
        // SAFETY: `home` is not shared yet. The write goes through the pointer that the slots keep, because a
        // write through the original reference would invalidate that pointer (Stacked Borrows).
        unsafe { (*home.as_ptr()).slots = slots };
        // The slot with the lowest index is taken first.
        SlotPool { home, free: (0..capacity as u32).rev().collect(), takes_until_failure: u64::MAX }
    }

    #[inline]
    fn home(&self) -> &Shared<T> {
        // SAFETY: `home` is freed only after the pool has been dropped (see `Drop`).
        unsafe { self.home.as_ref() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.home().slots.len()
    }

    /// Returns the number of free slots. The number is exact if no other thread is returning a slot.
    pub(crate) fn available(&mut self) -> usize {
        self.collect();
        self.free.len()
    }

    /// Makes the `n`-th take from now (1 means the next) fail once, as if all slots were in use.
    pub(crate) fn fail_nth_take(&mut self, n: u64) {
        self.takes_until_failure = n.max(1);
    }

    /// Takes a slot. The caller owns its value until [`Slot::release`].
    #[inline]
    pub(crate) fn take(&mut self) -> Option<NonNull<Slot<T>>> {
        self.takes_until_failure -= 1;
        if self.takes_until_failure == 0 {
            self.takes_until_failure = u64::MAX;
            return None;
        }
        if self.free.is_empty() || self.takes_until_failure.is_multiple_of(COLLECT_EVERY) {
            self.collect();
        }
        let index = self.free.pop()?;
        Some(NonNull::from(&self.home().slots[index as usize]))
    }

    /// Returns a slot on the owner's side without atomics. A slot of another pool goes back to that pool.
    ///
    /// # Safety
    /// Same as for [`Slot::release`].
    #[inline]
    pub(crate) unsafe fn give(&mut self, slot: NonNull<Slot<T>>) {
        // SAFETY: a slot in use keeps its `home` alive.
        let (index, home) = unsafe { (slot.as_ref().index, slot.as_ref().home) };
        if home == self.home {
            self.free.push(index);
        } else {
            // SAFETY: the caller guarantees what `release` requires.
            unsafe { Slot::release(slot) };
        }
    }

    /// Moves the return stack into the private free list.
    fn collect(&mut self) {
        // SAFETY: see `home`. The reference is not derived from `self`, so that the list can grow while the
        // reference is held.
        let home = unsafe { self.home.as_ref() };
        let mut head = home.returned.load(Ordering::Relaxed);
        if head == EMPTY {
            return;
        }
        // Acquire ordering: the previous users' writes to the slots happen before the next use.
        head = home.returned.swap(EMPTY, Ordering::Acquire);
        while head != EMPTY {
            self.free.push(head);
            head = home.slots[head as usize].next.load(Ordering::Relaxed);
        }
    }
}

impl<T> Drop for SlotPool<T> {
    fn drop(&mut self) {
        let home = self.home();
        let mut head = home.returned.swap(ORPHANED, Ordering::AcqRel);
        let mut at_home = self.free.len() as i64;
        while head != EMPTY {
            at_home += 1;
            head = home.slots[head as usize].next.load(Ordering::Relaxed);
        }
        let out = home.slots.len() as i64 - at_home;
        if home.outstanding.fetch_add(out, Ordering::AcqRel) + out == 0 {
            // SAFETY: all slots have been returned and the pool is being dropped, so no other pointer to
            // `home` is used any more.
            drop(unsafe { Box::from_raw(self.home.as_ptr()) });
        }
    }
}

impl<T> Slot<T> {
    /// Returns a pointer to the value of a slot in use.
    #[inline]
    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }

    /// Returns a slot to its pool.
    ///
    /// # Safety
    /// `slot` came from [`SlotPool::take`], has not been returned since, and is not used afterwards.
    #[inline]
    pub(crate) unsafe fn release(slot: NonNull<Slot<T>>) {
        // SAFETY: the caller guarantees that the slot is in use, so its memory, which `home` owns, is alive.
        let (this, home_pointer) = unsafe { (slot.as_ref(), slot.as_ref().home) };
        // SAFETY: `home` is freed only after its last slot in use, and this one has not been returned yet.
        let home = unsafe { home_pointer.as_ref() };
        let mut head = home.returned.load(Ordering::Relaxed);
        loop {
            if head == ORPHANED {
                if home.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // SAFETY: the pool has been dropped and this was the last slot in use.
                    drop(unsafe { Box::from_raw(home_pointer.as_ptr()) });
                }
                return;
            }
            this.next.store(head, Ordering::Relaxed);
            // Release ordering: this user's accesses to the slot happen before its next use.
            match home.returned.compare_exchange_weak(head, this.index, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Witness(Arc<AtomicUsize>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn witnesses(capacity: usize) -> (SlotPool<Witness>, Arc<AtomicUsize>) {
        let dropped = Arc::new(AtomicUsize::new(0));
        (SlotPool::new(capacity, |_| Witness(dropped.clone())), dropped)
    }

    #[test]
    fn recently_returned_slots_are_reused_before_unused_ones() {
        let mut depot = SlotPool::new(4096, |index| index);
        let mut used = std::collections::BTreeSet::new();
        for _ in 0..if cfg!(miri) { 200 } else { 4096 } {
            let slot = depot.take().unwrap();
            used.insert(slot.as_ptr() as usize);
            // SAFETY: the slot was taken above and is not used again.
            unsafe { Slot::release(slot) };
        }
        assert!(used.len() <= 2 * COLLECT_EVERY as usize, "{} slots", used.len());
        assert_eq!(depot.available(), 4096);
    }

    #[test]
    fn an_empty_pool_returns_none_until_a_slot_is_returned() {
        let (mut depot, _) = witnesses(2);
        let (first, second) = (depot.take().unwrap(), depot.take().unwrap());
        assert!(depot.take().is_none());
        // SAFETY: both slots were taken above and are not used again.
        unsafe {
            Slot::release(first);
            assert_eq!(depot.available(), 1);
            Slot::release(second);
        }
        assert_eq!(depot.available(), depot.capacity());
    }

    #[test]
    fn the_last_returned_slot_frees_a_dropped_pool() {
        let (mut depot, dropped) = witnesses(3);
        let (first, second) = (depot.take().unwrap(), depot.take().unwrap());
        drop(depot);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // SAFETY: both slots were taken above and are not used again.
        unsafe {
            Slot::release(first);
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            Slot::release(second);
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is about another thread")]
    fn slots_are_returned_from_other_threads() {
        struct Out(NonNull<Slot<Witness>>);
        // SAFETY: the value is `Send` and one thread at a time uses the slot.
        unsafe impl Send for Out {}
        let (mut depot, dropped) = witnesses(64);
        let (sender, receiver) = std::sync::mpsc::channel::<Out>();
        let home = std::thread::spawn(move || {
            for out in receiver {
                // SAFETY: each slot is sent here exactly once.
                unsafe { Slot::release(out.0) };
            }
        });
        let rounds = if cfg!(miri) { 300 } else { 20_000 };
        let mut taken = 0;
        while taken < rounds {
            if let Some(slot) = depot.take() {
                sender.send(Out(slot)).unwrap();
                taken += 1;
            }
        }
        drop(sender);
        home.join().unwrap();
        assert_eq!(depot.available(), 64);
        drop(depot);
        assert_eq!(dropped.load(Ordering::SeqCst), 64);
    }
}
