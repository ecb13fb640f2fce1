//! A depot: a fixed number of slots, handed out and taken home again.
//!
//! Goal      pages and PDU blocks come from memory sized at start, in a few nanoseconds, and a lost one is a bug
//!           that a test sees.
//! Out       only the owner of the depot takes slots, from a private list: no atomics.
//! Home      the owner puts a slot back on its list. Any other thread may bring one home too: it is pushed on the *return stack*, which the owner takes whole
//!           when its list is empty, and now and then before, so that what has just been used, and is in the cache, goes out
//!           first. Pushing onto a stack that is only ever taken whole knows no ABA problem.
//! End       the depot may be dropped while slots are out. It then marks the stack, and the last slot to come
//!           home frees the memory: `owed` reaches zero exactly once, on whichever side comes last.
//! Proof     `crates/model` runs this very code in every order that the memory model allows, within bounds.
//! Limits    `capacity` slots, at most 2^31; `take` returns nothing when all are out.

use crate::atomic::{AtomicI64, AtomicU32, Ordering, UnsafeCell};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

const EMPTY: u32 = u32::MAX;
/// After so many takes the return stack is looked at.
const COLLECT_EVERY: u64 = 32;
/// The head of the return stack once the depot itself has gone.
const ORPHANED: u32 = u32::MAX - 1;

/// One slot: its value, its place in the return stack and the way home.
pub(crate) struct Slot<T> {
    value: UnsafeCell<T>,
    next: AtomicU32,
    index: u32,
    home: NonNull<Home<T>>,
}

struct Home<T> {
    slots: Box<[Slot<T>]>,
    returned: AtomicU32,
    owed: AtomicI64,
}

/// The owner's side: the only one that takes.
pub(crate) struct Depot<T> {
    home: NonNull<Home<T>>,
    free: Vec<u32>,
    /// Takes until one is refused, for starvation tests.
    patience: u64,
}

// SAFETY: values move between threads with the slots, so they must be `Send`; everything shared is atomic.
unsafe impl<T: Send> Send for Depot<T> {}

impl<T> Depot<T> {
    /// A depot of `capacity` slots, each filled by `fill(index)`.
    pub(crate) fn new(capacity: usize, mut fill: impl FnMut(usize) -> T) -> Depot<T> {
        assert!(capacity < 1 << 31, "a depot holds fewer than 2^31 slots");
        let home = NonNull::from(Box::leak(Box::new(Home {
            slots: Box::new([]),
            returned: AtomicU32::new(EMPTY),
            owed: AtomicI64::new(0),
        })));
        let slots = (0..capacity)
            .map(|index| Slot {
                value: UnsafeCell::new(fill(index)),
                next: AtomicU32::new(EMPTY),
                index: index as u32,
                home,
            })
            .collect();
        // SAFETY: nobody else has the home yet. It is written through the pointer that the slots keep: a write through the
        // reference of which the pointer was made would end the pointer's right to the place (Stacked Borrows).
        unsafe { (*home.as_ptr()).slots = slots };
        // The lowest index leaves first.
        Depot { home, free: (0..capacity as u32).rev().collect(), patience: u64::MAX }
    }

    #[inline]
    fn home(&self) -> &Home<T> {
        // SAFETY: the home is freed only once the depot has been dropped (see `Drop`).
        unsafe { self.home.as_ref() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.home().slots.len()
    }

    /// How many slots are at home. Exact when no other thread is bringing one.
    pub(crate) fn at_home(&mut self) -> usize {
        self.collect();
        self.free.len()
    }

    /// Refuses the `n`-th take from now (1: the next), once, as if all slots were out.
    pub(crate) fn refuse(&mut self, n: u64) {
        self.patience = n.max(1);
    }

    /// Takes a slot out. The caller owns its value until [`Slot::bring_home`].
    #[inline]
    pub(crate) fn take(&mut self) -> Option<NonNull<Slot<T>>> {
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = u64::MAX;
            return None;
        }
        if self.free.is_empty() || self.patience.is_multiple_of(COLLECT_EVERY) {
            self.collect();
        }
        let index = self.free.pop()?;
        Some(NonNull::from(&self.home().slots[index as usize]))
    }

    /// Takes a slot home on the owner's side: no atomics. A stranger's slot goes its own way.
    ///
    /// # Safety
    /// As for [`Slot::bring_home`].
    #[inline]
    pub(crate) unsafe fn give(&mut self, slot: NonNull<Slot<T>>) {
        // SAFETY: a slot that is out keeps its home alive.
        let (index, home) = unsafe { (slot.as_ref().index, slot.as_ref().home) };
        if home == self.home {
            self.free.push(index);
        } else {
            // SAFETY: the caller's promise.
            unsafe { Slot::bring_home(slot) };
        }
    }

    /// Moves the return stack into the private list.
    fn collect(&mut self) {
        // SAFETY: see `home`; the reference is made apart from `self` so that the list can grow meanwhile.
        let home = unsafe { self.home.as_ref() };
        let mut head = home.returned.load(Ordering::Relaxed);
        if head == EMPTY {
            return;
        }
        // Acquire: what the last users wrote into the slots happened before their next use.
        head = home.returned.swap(EMPTY, Ordering::Acquire);
        while head != EMPTY {
            self.free.push(head);
            head = home.slots[head as usize].next.load(Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Depot<T> {
    fn drop(&mut self) {
        let home = self.home();
        let mut head = home.returned.swap(ORPHANED, Ordering::AcqRel);
        let mut at_home = self.free.len() as i64;
        while head != EMPTY {
            at_home += 1;
            head = home.slots[head as usize].next.load(Ordering::Relaxed);
        }
        let out = home.slots.len() as i64 - at_home;
        if home.owed.fetch_add(out, Ordering::AcqRel) + out == 0 {
            // SAFETY: every slot is at home and the depot is going: nobody else can reach the home.
            drop(unsafe { Box::from_raw(self.home.as_ptr()) });
        }
    }
}

impl<T> Slot<T> {
    /// The value of a slot that is out.
    #[inline]
    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }

    /// Gives a slot back to its depot.
    ///
    /// # Safety
    /// `slot` came from [`Depot::take`], has not been brought home since, and is not used afterwards.
    #[inline]
    pub(crate) unsafe fn bring_home(slot: NonNull<Slot<T>>) {
        // SAFETY: a slot that is out keeps its home alive.
        let (this, home_pointer) = unsafe { (slot.as_ref(), slot.as_ref().home) };
        // SAFETY: as above.
        let home = unsafe { home_pointer.as_ref() };
        let mut head = home.returned.load(Ordering::Relaxed);
        loop {
            if head == ORPHANED {
                if home.owed.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // SAFETY: the depot has gone and this was the last slot out.
                    drop(unsafe { Box::from_raw(home_pointer.as_ptr()) });
                }
                return;
            }
            this.next.store(head, Ordering::Relaxed);
            // Release: what we did with the slot happened before its next use.
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

    fn witnesses(capacity: usize) -> (Depot<Witness>, Arc<AtomicUsize>) {
        let dropped = Arc::new(AtomicUsize::new(0));
        (Depot::new(capacity, |_| Witness(dropped.clone())), dropped)
    }

    #[test]
    fn what_was_just_brought_home_goes_out_again_before_what_was_never_used() {
        let mut depot = Depot::new(4096, |index| index);
        let mut used = std::collections::BTreeSet::new();
        for _ in 0..if cfg!(miri) { 200 } else { 4096 } {
            let slot = depot.take().unwrap();
            used.insert(slot.as_ptr() as usize);
            // SAFETY: it was taken above and is not used again.
            unsafe { Slot::bring_home(slot) };
        }
        assert!(used.len() <= 2 * COLLECT_EVERY as usize, "{} slots", used.len());
        assert_eq!(depot.at_home(), 4096);
    }

    #[test]
    fn an_empty_depot_hands_out_nothing_until_a_slot_comes_home() {
        let (mut depot, _) = witnesses(2);
        let (first, second) = (depot.take().unwrap(), depot.take().unwrap());
        assert!(depot.take().is_none());
        // SAFETY: both were taken above and are not used again.
        unsafe {
            Slot::bring_home(first);
            assert_eq!(depot.at_home(), 1);
            Slot::bring_home(second);
        }
        assert_eq!(depot.at_home(), depot.capacity());
    }

    #[test]
    fn the_last_slot_home_frees_a_depot_that_has_gone() {
        let (mut depot, dropped) = witnesses(3);
        let (first, second) = (depot.take().unwrap(), depot.take().unwrap());
        drop(depot);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // SAFETY: both were taken above and are not used again.
        unsafe {
            Slot::bring_home(first);
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            Slot::bring_home(second);
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is about another thread")]
    fn slots_come_home_from_other_threads() {
        struct Out(NonNull<Slot<Witness>>);
        // SAFETY: the value is `Send` and the slot is used by one thread at a time.
        unsafe impl Send for Out {}
        let (mut depot, dropped) = witnesses(64);
        let (sender, receiver) = std::sync::mpsc::channel::<Out>();
        let home = std::thread::spawn(move || {
            for out in receiver {
                // SAFETY: each slot is sent here once.
                unsafe { Slot::bring_home(out.0) };
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
        assert_eq!(depot.at_home(), 64);
        drop(depot);
        assert_eq!(dropped.load(Ordering::SeqCst), 64);
    }
}
