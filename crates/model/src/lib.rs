//! Lock-free structures under a model checker (loom): files of `base`, `os` and `verbs` are compiled here
//! unchanged, with the checker's atomics instead of the processor's.
//!
//! Purpose   check every interleaving, and every reordering that the memory model allows, of short runs with
//!           two or three threads.
//! Payload   is kept in cells that the checker watches. If a thread accesses a cell while another may write
//!           it, the structure has broken its promise of exclusive access.
//! Canaries  [`weaken`] turns one ordering into `Relaxed` everywhere. Each model must then fail, which proves
//!           that it can detect the bug.
//! Bounds    each run has at most two preemptions. If a location is loaded twice without a write in between,
//!           the checker does not consider that another thread could have run before the first load; models
//!           yield where this matters. Elsewhere the doorbell, which is generic over its atomics, is checked
//!           in `base/tests/bell_model.rs`.
//! Not here  hostile memory (a peer that breaks the rules on purpose); structures with locks; the code that
//!           uses `os/src/flag.rs` (the models contain only its two usage patterns); and:
//!           - `sandbox/src/threads.rs`: a counter shared by a thread and its own signal handlers. The
//!             checker has no signals.
//!           - `link/src/frames/xsk.rs`: the rings of AF_XDP, whose other side is the kernel.
//!           - counters that are Relaxed everywhere, and do not order other accesses.

// The structures' own tests run in their crates, which have the dependencies that they need.
#![cfg(not(test))]

extern crate alloc;

mod atomic;
#[allow(dead_code, unreachable_pub, reason = "only the code that threads share is run here")]
#[path = "../../os/src/flag.rs"]
mod flag;
#[path = "../../os/src/turn/followers.rs"]
mod followers;
#[allow(
    dead_code,
    missing_docs,
    unused_unsafe,
    unreachable_pub,
    reason = "only the code that threads share is run here; freeing memory does not matter in a model"
)]
#[path = "../../base/src/pipe.rs"]
mod pipe;
#[allow(dead_code, reason = "as above")]
#[path = "../../verbs/src/sync/published.rs"]
mod published;
#[allow(dead_code, reason = "as above")]
#[path = "../../base/src/memory/references.rs"]
mod references;
mod region;
#[allow(dead_code, missing_docs, unused_unsafe, unreachable_pub, reason = "as above")]
#[path = "../../base/src/ring.rs"]
mod ring;
#[path = "../../verbs/src/rsocket/sleepers.rs"]
mod sleepers;
#[allow(dead_code, missing_docs, reason = "as above")]
#[path = "../../base/src/memory/slot_pool.rs"]
mod slot_pool;
#[path = "../../verbs/src/sync/spin.rs"]
mod spin;

pub use atomic::weaken;

use flag::Flag;
use followers::Followers;
use loom::thread;
use published::Published;
use references::References;
use region::{Region, SharedBytes};
use sleepers::Waiters;
use slot_pool::{Slot, SlotPool};
use spin::SpinLock;
use std::ptr::NonNull;
use std::sync::Arc;

/// Runs a model in every order of execution, within the bounds.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// A slot that is passed to another thread.
struct Out(NonNull<Slot<u32>>);
// SAFETY: the pool gives a slot to one thread at a time, which is the property that the model checks.
unsafe impl Send for Out {}

impl Out {
    fn write(&self, value: u32) {
        // SAFETY: this thread owns the taken slot; the checker would report a concurrent access to its cell.
        unsafe { *self.0.as_ref().value() = value };
    }

    fn release(self) {
        // SAFETY: the slot came from this pool's `take`, and is not used after this call.
        unsafe { Slot::release(self.0) };
    }
}

/// Two slots are passed to two threads, which write to them and return them while the owner takes slots and
/// writes to them.
pub fn slots_are_returned_by_two_threads_while_the_owner_takes_them() {
    check(|| {
        let mut depot = SlotPool::new(2, |_| 0);
        let slots = [(); 2].map(|()| Out(depot.take().expect("two are free")));
        let threads = slots.map(|slot| {
            thread::spawn(move || {
                slot.write(1);
                slot.release();
            })
        });
        for _ in 0..2 {
            thread::yield_now();
            if let Some(slot) = depot.take() {
                let slot = Out(slot);
                slot.write(2);
                slot.release();
            }
        }
        threads.into_iter().for_each(|thread| thread.join().expect("it returned its slot"));
        assert_eq!(depot.available(), 2);
    });
}

/// A value for which being dropped counts as an access.
struct Watched(
    loom::cell::UnsafeCell<u32>,
    #[expect(dead_code, reason = "the checker counts it")] loom::sync::Arc<()>,
);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}

/// The pool is dropped while two slots are returned. The last of them frees the memory, exactly once, when it
/// is no longer used.
pub fn the_last_returned_slot_frees_a_dropped_pool() {
    struct Out(NonNull<Slot<Watched>>);
    // SAFETY: the pool gives a slot to one thread at a time, which is the property that the model checks.
    unsafe impl Send for Out {}
    check(|| {
        // The checker reports an `Arc` that is leaked, or freed twice.
        let witness = loom::sync::Arc::new(());
        let mut depot = SlotPool::new(2, |_| Watched(loom::cell::UnsafeCell::new(0), witness.clone()));
        drop(witness);
        let slots = [(); 2].map(|()| Out(depot.take().expect("two are free")));
        let threads = slots.map(|slot| {
            thread::spawn(move || {
                let Out(slot) = { slot };
                // SAFETY: this thread owns the taken slot.
                unsafe { (*slot.as_ref().value()).0.with_mut(|value| *value = 1) };
                // SAFETY: the slot came from this pool's `take`, and is not used after this call.
                unsafe { Slot::release(slot) };
            })
        });
        thread::yield_now();
        drop(depot);
        threads.into_iter().for_each(|thread| thread.join().expect("it returned its slot"));
    });
}

/// Three threads drop three references to one value, each after reading the value. The last of them writes to
/// it.
#[expect(clippy::arc_with_non_send_sync, reason = "the checker runs its threads on one OS thread")]
pub fn the_last_reference_is_exclusive() {
    check(|| {
        let shared = Arc::new((
            References::none(),
            loom::cell::UnsafeCell::new(0),
            loom::sync::atomic::AtomicU32::new(0),
        ));
        shared.0.begin();
        let user = |shared: Arc<(References, loom::cell::UnsafeCell<i32>, loom::sync::atomic::AtomicU32)>| {
            let (references, thing, lasts) = &*shared;
            // SAFETY: a reference is held, and no thread writes while one is held.
            thing.with(|thing| assert_eq!(unsafe { *thing }, 0));
            thread::yield_now();
            if references.release() {
                // SAFETY: this was the last reference, so no other thread accesses the value.
                thing.with_mut(|thing| unsafe { *thing = 1 });
                lasts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let threads = [(); 2].map(|()| {
            shared.0.hold();
            let shared = shared.clone();
            thread::spawn(move || user(shared))
        });
        user(shared.clone());
        threads.into_iter().for_each(|thread| thread.join().expect("it gave its reference up"));
        assert_eq!(shared.2.load(std::sync::atomic::Ordering::Relaxed), 1, "one was the last");
    });
}

/// Three entries pass through a ring of two slots, so that a slot is reused.
pub fn entries_cross_a_ring_in_order_and_exclusively() {
    check(|| {
        let shape = ring::Shape::new(2, 1);
        let memory = Region::watched(shape.bytes(), &[0, 64, 68, 128, 132], &[72, 136]);
        let mut producer = ring::Producer::new(&memory, 0, shape);
        let mut consumer = ring::Consumer::new(&memory, 0, shape);
        let sender = thread::spawn(move || {
            for entry in 1..=3_u8 {
                while !producer.push(&[entry]).expect("a decent consumer") {
                    thread::yield_now();
                }
            }
        });
        for expected in 1..=3 {
            loop {
                if let Some(entry) = consumer.peek().expect("a decent producer") {
                    let mut copy = [0];
                    assert_eq!(entry.copy_to(0, &mut copy), 1);
                    assert_eq!(copy, [expected]);
                    break;
                }
                thread::yield_now();
            }
            consumer.release();
        }
        sender.join().expect("it sent");
    });
}

/// Five bytes pass through a pipe with room for two. Then the reader sees the end.
pub fn bytes_cross_a_pipe_in_order_and_exclusively() {
    check(|| {
        let memory = Region::watched(pipe::bytes(2), &[0, 4, 64], &[128, 129]);
        let mut writer = pipe::Writer::new(&memory, 0, 2);
        let mut reader = pipe::Reader::new(&memory, 0, 2);
        let sender = thread::spawn(move || {
            let mut left: &[u8] = &[1, 2, 3];
            while !left.is_empty() {
                let count = writer.write(SharedBytes::from(left)).expect("a correct reader");
                writer.publish();
                left = &left[count..];
                if count == 0 {
                    thread::yield_now();
                }
            }
            writer.end();
        });
        let mut got = Vec::new();
        loop {
            let has_ended = reader.has_ended();
            let here = reader.readable().expect("a correct writer");
            reader.take(here, |bytes| bytes.append_to(&mut got));
            if has_ended {
                break;
            }
            if here == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(got, [1, 2, 3]);
        sender.join().expect("it sent");
    });
}

/// Two threads take a spin lock, each twice, and write to the value that it guards.
#[expect(clippy::arc_with_non_send_sync, reason = "the checker runs its threads on one OS thread")]
pub fn the_holder_of_a_spin_lock_has_exclusive_access() {
    check(|| {
        let shared = Arc::new((SpinLock::new(), loom::cell::UnsafeCell::new(0)));
        let user = |shared: Arc<(SpinLock, loom::cell::UnsafeCell<u32>)>| {
            for _ in 0..2 {
                shared.0.lock();
                // SAFETY: this thread holds the lock that guards the cell.
                shared.1.with_mut(|guarded| unsafe { *guarded += 1 });
                shared.0.unlock();
            }
        };
        let other = thread::spawn({
            let shared = shared.clone();
            move || user(shared)
        });
        user(shared.clone());
        other.join().expect("it gave the lock back");
        shared.0.lock();
        // SAFETY: this thread holds the lock that guards the cell.
        shared.1.with(|guarded| assert_eq!(unsafe { *guarded }, 4));
    });
}

/// A driver's lock, and the threads that wait for it.
struct Turn {
    driver: loom::sync::Mutex<()>,
    /// The machine that is driven.
    machine: loom::sync::Mutex<()>,
    followers: Followers,
    call: (loom::sync::Mutex<u64>, loom::sync::Condvar),
}

impl Turn {
    fn is_free(&self) -> bool {
        self.driver.try_lock().is_ok()
    }

    fn last_call(&self) -> u64 {
        *self.call.0.lock().expect("no thread panics")
    }

    /// Drives if no other thread does. Returns whether it did.
    fn drive(&self) -> bool {
        let Ok(driver) = self.driver.try_lock() else { return false };
        drop(self.machine.lock().expect("no thread panics"));
        drop(driver);
        if self.followers.any_after_driving() {
            *self.call.0.lock().expect("no thread panics") += 1;
            self.call.1.notify_all();
        }
        true
    }
}

/// Two threads drive or follow until each has driven. The model checks that neither sleeps while no thread
/// drives. With `notes_late`, the number of the last call is recorded after the lock was tried, which is a
/// bug.
pub fn no_thread_sleeps_while_none_drives(notes_late: bool) {
    check(move || {
        let turn = Arc::new(Turn {
            driver: loom::sync::Mutex::new(()),
            machine: loom::sync::Mutex::new(()),
            followers: Followers::new(),
            call: (loom::sync::Mutex::new(0), loom::sync::Condvar::new()),
        });
        let user = move |turn: Arc<Turn>| {
            while !turn.drive() {
                let Some(mut seen) = turn.followers.enter(|| turn.last_call(), || turn.is_free()) else {
                    continue;
                };
                if notes_late {
                    seen = turn.last_call();
                }
                let mut call = turn.call.0.lock().expect("no thread panics");
                while *call == seen {
                    call = turn.call.1.wait(call).expect("no thread panics");
                }
                drop(call);
                turn.followers.leave();
            }
        };
        let other = thread::spawn({
            let turn = turn.clone();
            move || user(turn)
        });
        user(turn.clone());
        other.join().expect("it has driven");
    });
}

/// An rsocket that waits for a single event, and its channel.
struct Waited {
    has_happened: loom::sync::Mutex<bool>,
    sleeping: loom::sync::Mutex<()>,
    sleepers: Waiters,
    /// Whether there was an event, and the number of events not taken.
    channel: (loom::sync::Mutex<(bool, u32)>, loom::sync::Condvar),
}

impl Waited {
    fn tell(&self, happens: bool) {
        let mut channel = self.channel.0.lock().expect("no thread panics");
        channel.0 |= happens;
        channel.1 += 1;
        drop(channel);
        self.channel.1.notify_one();
    }

    /// As `Socket::until` does.
    fn wait(&self, enters_late: bool) {
        loop {
            let mut has_happened = self.has_happened.lock().expect("no thread panics");
            let mut channel = self.channel.0.lock().expect("no thread panics");
            let (is_there, events) = (channel.0, std::mem::take(&mut channel.1));
            drop(channel);
            let is_new = is_there && !*has_happened;
            if is_new {
                *has_happened = true;
                self.sleepers.note_taken();
            }
            let waits = !*has_happened;
            let mut seen = 0;
            if waits && !enters_late {
                seen = self.sleepers.enter();
            }
            drop(has_happened);
            if (is_new || events > 0) && self.sleepers.are_more_than(usize::from(waits && !enters_late)) {
                self.tell(false);
            }
            if !waits {
                return;
            }
            if enters_late {
                seen = self.sleepers.enter();
            }
            let sleeping = self.sleeping.lock().expect("no thread panics");
            if self.sleepers.taken() == seen {
                let mut channel = self.channel.0.lock().expect("no thread panics");
                while channel.1 == 0 {
                    channel = self.channel.1.wait(channel).expect("no thread panics");
                }
                channel.1 -= 1;
                drop(channel);
                self.sleepers.note_taken();
            }
            drop(sleeping);
            self.sleepers.leave();
        }
    }
}

/// Two threads wait for an event that a third announces once. Neither must keep sleeping after the other has
/// taken the event. With `enters_late`, a thread counts itself only after releasing the socket's lock, which
/// is a bug.
pub fn taking_an_event_wakes_the_other_sleepers(enters_late: bool) {
    check(move || {
        let socket = Arc::new(Waited {
            has_happened: loom::sync::Mutex::new(false),
            sleeping: loom::sync::Mutex::new(()),
            sleepers: Waiters::new(),
            channel: (loom::sync::Mutex::new((false, 0)), loom::sync::Condvar::new()),
        });
        let threads = [(); 2].map(|()| {
            let socket = socket.clone();
            thread::spawn(move || socket.wait(enters_late))
        });
        socket.tell(true);
        threads.into_iter().for_each(|thread| thread.join().expect("it has seen the event"));
    });
}

/// A published value, and the one before it. Dropping it counts as an access.
struct Link {
    value: Watched,
    before: Option<&'static Link>,
}

// SAFETY: a published value is only read, which is the property that the model checks.
unsafe impl Sync for Link {}

impl Link {
    /// Creates a value whose content is written after its cell was created.
    fn new(before: Option<&'static Link>, witness: &loom::sync::Arc<()>) -> Link {
        let value = Watched(loom::cell::UnsafeCell::new(0), witness.clone());
        // SAFETY: the value is not published yet, so no other thread can access it.
        value.0.with_mut(|value| unsafe { *value = 1 });
        Link { value, before }
    }

    /// Reads this value and all earlier ones, and counts them.
    fn read(&self) -> usize {
        core::iter::successors(Some(self), |link| link.before)
            // SAFETY: no thread writes to a published value.
            .map(|link| link.value.0.with(|value| assert_eq!(unsafe { *value }, 1)))
            .count()
    }
}

/// A location at which links are published. When it is dropped, all links are freed, unlike the links in a
/// real process.
struct Links(Published<Link>);

impl Links {
    fn new() -> (Arc<Links>, loom::sync::Arc<()>) {
        let none = atomic::AtomicPtr::new(core::ptr::null_mut());
        // The checker uses the count of references to the witness to detect values that are leaked or freed
        // twice.
        (Arc::new(Links(Published(none))), loom::sync::Arc::new(()))
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The checker has already reported a failure, so do not report the values' drops as well.
            return;
        }
        let mut next = self.0.get().map(core::ptr::from_ref);
        while let Some(link) = next {
            // SAFETY: `publish` boxed the value, and no thread uses it any more, because it is being dropped.
            next = unsafe { Box::from_raw(link.cast_mut()) }.before.map(core::ptr::from_ref);
        }
    }
}

/// Two threads create a value on first use. Both use the same value, and the other one is dropped.
pub fn concurrent_first_users_of_a_published_value_share_it() {
    check(|| {
        let (links, witness) = Links::new();
        let user = |links: Arc<Links>, witness: loom::sync::Arc<()>| {
            let made = links.0.get_or_make(|_| true, || Ok::<_, ()>(Link::new(None, &witness)));
            let made = made.expect("it can be made");
            assert_eq!(made.read(), 1);
            core::ptr::from_ref(made).addr()
        };
        let other = thread::spawn({
            let (links, witness) = (links.clone(), witness.clone());
            move || user(links, witness)
        });
        let mine = user(links.clone(), witness);
        assert_eq!(mine, other.join().expect("it has used the value"));
    });
}

/// Two threads each try once to prepend a link to a list, while a third reads the list. Every link that the
/// reader finds must be complete.
pub fn readers_of_a_published_list_see_each_link_whole() {
    check(|| {
        let (links, witness) = Links::new();
        let threads = [(); 2].map(|()| {
            let (links, witness) = (links.clone(), witness.clone());
            thread::spawn(move || {
                let newest = links.0.get();
                assert!(links.0.publish(newest, Link::new(newest, &witness)).read() > 0);
            })
        });
        thread::yield_now();
        assert!(links.0.get().map_or(0, Link::read) <= 2);
        threads.into_iter().for_each(|thread| thread.join().expect("it has published"));
        assert!(links.0.get().map_or(0, Link::read) >= 1);
    });
}

/// A sleeper's event. It stays set until the sleeper takes it.
struct Event(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Event {
    fn new() -> Event {
        Event(loom::sync::Mutex::new(false), loom::sync::Condvar::new())
    }

    fn ring(&self) {
        *self.0.lock().expect("no thread panics") = true;
        self.1.notify_one();
    }

    fn sleep(&self) {
        let mut is_set = self.0.lock().expect("no thread panics");
        while !std::mem::take(&mut *is_set) {
            is_set = self.1.wait(is_set).expect("no thread panics");
        }
    }
}

/// Two threads each write a value, set their own flag and ring. A third sleeps until it has seen both flags,
/// and then reads the values. With `rings_first`, a thread rings before it sets its flag, which is a bug.
#[expect(clippy::arc_with_non_send_sync, reason = "the checker runs its threads on one OS thread")]
pub fn a_sleeper_sees_each_flag_and_what_was_written_before(rings_first: bool) {
    check(move || {
        let shared =
            Arc::new(([(); 2].map(|()| (Flag::default(), loom::cell::UnsafeCell::new(0))), Event::new()));
        let threads = [0, 1].map(|number| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (flag, value) = &shared.0[number];
                // SAFETY: no other thread accesses the value before the flag is set.
                value.with_mut(|value| unsafe { *value = 1 });
                if rings_first {
                    shared.1.ring();
                    flag.set(true);
                } else {
                    flag.set(true);
                    shared.1.ring();
                }
            })
        });
        let mut left = vec![0, 1];
        loop {
            left.retain(|number: &usize| {
                let (flag, value) = &shared.0[*number];
                let is_set = flag.take();
                if is_set {
                    // SAFETY: the flag was set, so its thread no longer writes.
                    value.with(|value| assert_eq!(unsafe { *value }, 1));
                }
                !is_set
            });
            if left.is_empty() {
                break;
            }
            shared.1.sleep();
        }
        threads.into_iter().for_each(|thread| thread.join().expect("it has rung"));
    });
}

/// Two entries are added to a locked queue, with a ring after each; the consumer locks the queue only if the
/// flag says that it has entries. With `sets_late`, the consumer sets the flag after releasing the lock,
/// which is a bug.
pub fn a_flag_that_mirrors_a_locked_queue_hides_no_entry(sets_late: bool) {
    check(move || {
        let shared = Arc::new((loom::sync::Mutex::new(0), Flag::default(), Event::new()));
        let producer = thread::spawn({
            let shared = shared.clone();
            move || {
                for _ in 0..2 {
                    let mut entries = shared.0.lock().expect("no thread panics");
                    *entries += 1;
                    shared.1.set(true);
                    drop(entries);
                    shared.2.ring();
                }
            }
        });
        let mut taken = 0;
        while taken < 2 {
            if !shared.1.get() {
                shared.2.sleep();
                continue;
            }
            let mut entries = shared.0.lock().expect("no thread panics");
            taken += usize::from(*entries > 0);
            *entries -= usize::from(*entries > 0);
            let has_entries = *entries > 0;
            if !sets_late {
                shared.1.set(has_entries);
            }
            drop(entries);
            if sets_late {
                shared.1.set(has_entries);
            }
        }
        producer.join().expect("it has added both");
    });
}
