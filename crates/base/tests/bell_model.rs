//! Runs the doorbell's production code under a model checker, in every interleaving and every reordering that
//! the memory model allows. For each step of the protocol, a test leaves out the step and must fail: a
//! sleeper then sleeps forever (loom reports a deadlock).

use kiban_base::{Atomic, Atomics, Bell};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};

struct Word(AtomicU32);
struct Moment(AtomicU64);

macro_rules! modelled {
    ($($name:ident, $atomic:ident, $number:ty);*) => {$(
        impl Atomic<$number> for $name {
            fn new(value: $number) -> Self {
                Self($atomic::new(value))
            }
            fn load(&self, order: Ordering) -> $number {
                self.0.load(order)
            }
            fn store(&self, value: $number, order: Ordering) {
                self.0.store(value, order);
            }
            fn exchange(&self, current: $number, new: $number, success: Ordering, failure: Ordering) -> bool {
                self.0.compare_exchange(current, new, success, failure).is_ok()
            }
        }
    )*};
}
modelled!(Word, AtomicU32, u32; Moment, AtomicU64, u64);

/// The model's atomics.
struct Modelled;
impl Atomics for Modelled {
    type Word = Word;
    type Moment = Moment;
    fn fence() {
        fence(SeqCst);
    }
}

/// The model's atomics, with the fence left out.
struct WithoutFence;
impl Atomics for WithoutFence {
    type Word = Word;
    type Moment = Moment;
    fn fence() {}
}

/// How a sleeper sleeps and is woken.
trait Sleeper<A: Atomics>: Send + Sync + 'static {
    fn new() -> Self;
    fn sleep(&self, bell: &Bell<A>);
    fn wake(&self);
}

/// Like an eventfd, which keeps a wake-up that comes before the sleep.
struct Event<A>(Mutex<bool>, Condvar, PhantomData<fn() -> A>);
impl<A: Atomics + 'static> Sleeper<A> for Event<A> {
    fn new() -> Self {
        Event(Mutex::new(false), Condvar::new(), PhantomData)
    }
    fn sleep(&self, _: &Bell<A>) {
        let mut set = self.0.lock().unwrap();
        while !*set {
            set = self.1.wait(set).unwrap();
        }
        *set = false;
    }
    fn wake(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

/// Like a futex, which compares the word under the kernel's lock and loses a wake-up that comes before the
/// sleep.
struct Futex<A>(Mutex<()>, Condvar, PhantomData<fn() -> A>);
impl<A: Atomics + 'static> Sleeper<A> for Futex<A> {
    fn new() -> Self {
        Futex(Mutex::new(()), Condvar::new(), PhantomData)
    }
    fn sleep(&self, bell: &Bell<A>) {
        let lock = self.0.lock().unwrap();
        if bell.word().load(Acquire) == Bell::<A>::SLEEP_WHILE {
            drop(self.1.wait(lock).unwrap());
        }
    }
    fn wake(&self) {
        drop(self.0.lock().unwrap());
        self.1.notify_one();
    }
}

/// Each of the `ringers` puts one message into a queue (a count) and rings. The sleeper takes all messages.
fn nobody_sleeps_for_ever<A: Atomics + 'static, S: Sleeper<A>>(ringers: u32, second_look: bool)
where
    Bell<A>: Send + Sync,
{
    let mut model = loom::model::Builder::new();
    // Two threads are checked in every schedule. For three threads the search is limited, but still finds all
    // known mistakes.
    model.preemption_bound = (ringers > 1).then_some(2);
    model.check(move || {
        let place = Arc::new((AtomicU32::new(0), Bell::<A>::default(), S::new()));
        let threads: Vec<_> = (0..ringers)
            .map(|number| {
                let place = place.clone();
                loom::thread::spawn(move || {
                    let (queue, bell, sleeper) = &*place;
                    queue.fetch_add(1, Release);
                    if bell.ring(|| 10 + u64::from(number)) {
                        sleeper.wake();
                    }
                })
            })
            .collect();
        let (queue, bell, sleeper) = &*place;
        let mut taken = 0;
        while taken < ringers {
            let waiting = queue.load(Acquire);
            if waiting > taken {
                taken = waiting;
                continue;
            }
            bell.arm();
            if !second_look || queue.load(Acquire) == taken {
                sleeper.sleep(bell);
            }
            if let Some(at) = bell.disarm() {
                assert!((10..10 + u64::from(ringers)).contains(&at), "the moment is a ringer's: {at}");
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(queue.load(Relaxed), ringers);
    });
}

#[test]
fn no_wake_up_is_lost_between_a_ringer_and_a_sleeper_on_an_eventfd() {
    nobody_sleeps_for_ever::<Modelled, Event<_>>(1, true);
}

#[test]
fn no_wake_up_is_lost_between_a_ringer_and_a_sleeper_on_a_futex() {
    nobody_sleeps_for_ever::<Modelled, Futex<_>>(1, true);
}

#[test]
fn no_wake_up_is_lost_between_two_ringers_and_a_sleeper() {
    nobody_sleeps_for_ever::<Modelled, Event<_>>(2, true);
    nobody_sleeps_for_ever::<Modelled, Futex<_>>(2, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_second_check_the_model_finds_a_lost_wake_up() {
    nobody_sleeps_for_ever::<Modelled, Event<_>>(1, false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_the_model_finds_a_lost_wake_up() {
    nobody_sleeps_for_ever::<WithoutFence, Event<_>>(1, true);
}
