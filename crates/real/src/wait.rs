//! Waiting in real time: the driver of [`kiban_ground::Waiter`].
//!
//! Goal      the latency of spinning where something comes soon, the CPU time of sleeping where it does not.
//! Sleepers  [`EventSleeper`] sleeps on an eventfd; [`FutexSleeper`] on the bell's
//!           own word, also when the bell lies in memory that two processes share.
//! Order     arm the bell, look again, sleep, disarm, look ([`kiban_ground::Bell`]): no wake-up is lost.
//! Core      a jump of the tick counter inside the spin loop is a lost core if the thread has been switched away
//!           against its will meanwhile ([`switched_away`]): the decision code is told, and nothing is asked while all
//!           is well.
//! Sharing   who spins without end or for a set time offers its processor to others now and then ([`Offers`]): whoever is waited for
//!           may be among them. The adaptive policy spins shortly, and learns from losing the core.
//! Costs     [`costs`](crate::costs) are measured once a process (some ms); every wake-up goes on teaching the waiter.
//! Limits    one thread waits with one [`Waiting`]; it may move to another thread between two waits.
//! Left out  processors that wait on a cache line (UMWAIT, MONITORX): not for guests, and the price is a syscall less.

use crate::calibrate::{Calibration, calibration};
use crate::clock::{Clock, machine_nanos, ticks};
use kiban_ground::{Bell, Costs, Evidence, Instant, Report, Step, Wait, Waiter};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::futex;
use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A jump of the clock inside the spin loop beyond this is looked into. An interrupt takes less; a switch to another
/// thread and back takes more.
const JUMP: Duration = Duration::from_micros(5);

/// A spin is long when it has found nothing for this time.
pub(crate) const LONG: Duration = Duration::from_micros(5);
/// How often a long spin offers its processor. With nobody there it costs a third of that.
const OFFER: Duration = Duration::from_micros(1);
/// Who was away for longer than this has given a time slice to somebody that it does not wait for.
const SLICE: Duration = Duration::from_millis(1);
/// What such slices take from a spinner stays below one part in this many.
const PAUSE: u64 = 16;
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Offers of the processor to others, in the midst of a long spin.
///
/// Whoever is waited for may be one of them: it would come after the spinner's time slice, milliseconds later, and so comes at
/// once. Somebody else would keep the processor for a slice of its own; so after an offer that lasted long there is none for
/// sixteen times as long, and for twice as long again each time that trying it again soon ends like that.
///
/// For one thread at a time; where several use it, one goes by what another has seen.
#[derive(Debug, Default)]
pub struct Offers {
    /// The next offer is not before this moment of the machine, nanoseconds.
    next: AtomicU64,
    /// When the last pause ended, and how long it was.
    paused_until: AtomicU64,
    pause: AtomicU64,
}

impl Offers {
    /// Offers the processor, if that is due: whether it was.
    pub fn offer(&self) -> bool {
        let began = machine_nanos();
        let is_due = began >= self.next.load(Relaxed);
        if is_due {
            std::thread::yield_now();
            self.learn(began, machine_nanos());
        }
        is_due
    }

    /// Others had the processor between two moments.
    fn learn(&self, began: u64, ended: u64) {
        let away = ended - began;
        if u128::from(away) < SLICE.as_nanos() {
            return self.next.store(ended + OFFER.as_nanos() as u64, Relaxed);
        }
        let before = self.pause.load(Relaxed);
        // Soon after the last: the others are still there.
        let again = began.saturating_sub(self.paused_until.load(Relaxed)) < before;
        let longer = if again { 2 * before } else { 0 };
        let pause = (PAUSE * away).max(longer).min(PAUSE_MAX.as_nanos() as u64);
        self.pause.store(pause, Relaxed);
        self.paused_until.store(ended + pause, Relaxed);
        self.next.store(ended + pause, Relaxed);
    }
}

/// How a thread sleeps until its bell is rung, and how it is woken.
///
/// A sleep may end early; it must not go on once the bell has been rung and [`Sleeper::wake`] was called.
pub trait Sleeper<B: Doorbell = Bell> {
    /// Sleeps while `bell` is armed, at most for `timeout`.
    fn sleep(&self, bell: &B, timeout: Option<Duration>);
    /// Wakes the sleeper. Only who was told so by [`Bell::ring`] calls it.
    fn wake(&self, bell: &B);
}

/// Rings a bell through its sleeper: what there is to see has been made visible, and a sleeper learns of it.
#[inline]
pub fn ring(sleeper: &impl Sleeper, bell: &Bell) {
    if bell.ring(machine_nanos) {
        sleeper.wake(bell);
    }
}

/// What a sleeper arms before it sleeps: a bell, or several that ring for one sleeper.
pub trait Doorbell {
    /// As [`Bell::arm`].
    fn arm(&self);
    /// As [`Bell::disarm`]; of several bells, when the first was rung.
    fn disarm(&self) -> Option<u64>;
}

impl Doorbell for Bell {
    #[inline]
    fn arm(&self) {
        Bell::arm(self);
    }
    #[inline]
    fn disarm(&self) -> Option<u64> {
        Bell::disarm(self)
    }
}

/// Sleeps on an eventfd: a file descriptor that others may poll too.
#[derive(Debug)]
pub struct EventSleeper {
    event: OwnedFd,
}

impl EventSleeper {
    /// A new eventfd.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<EventSleeper> {
        Ok(EventSleeper { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// It was woken: the next sleep is another one.
    pub(crate) fn hear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Sleeper for EventSleeper {
    fn sleep(&self, _: &Bell, timeout: Option<Duration>) {
        let mut files = [PollFd::new(&self.event, PollFlags::IN)];
        // Errors are early ends.
        if poll(&mut files, timeout.map(timespec).as_ref()).is_ok_and(|ready| ready > 0) {
            self.hear();
        }
    }
    fn wake(&self, _: &Bell) {
        // Fails only when the counter is full, and then the sleeper is awake.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for EventSleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Sleeps on the word of the bell: nothing to open, and one system call each for sleeping and waking.
#[derive(Clone, Copy, Debug, Default)]
pub struct FutexSleeper;

impl Sleeper for FutexSleeper {
    fn sleep(&self, bell: &Bell, timeout: Option<Duration>) {
        // Not private: the bell may lie in memory shared by two processes. Errors are early ends.
        let flags = futex::Flags::empty();
        let _ = futex::wait(bell.word(), flags, <Bell>::SLEEP_WHILE, timeout.map(timespec).as_ref());
    }
    fn wake(&self, bell: &Bell) {
        let _ = futex::wake(bell.word(), futex::Flags::empty(), 1);
    }
}

pub(crate) fn timespec(length: Duration) -> Timespec {
    // Longer than the machine will run is as good as for ever.
    Timespec { tv_sec: length.as_secs().min(1 << 40) as i64, tv_nsec: length.subsec_nanos().into() }
}

/// One waiting place in real time.
#[derive(Debug)]
pub struct Waiting {
    clock: Clock,
    waiter: Waiter,
    ticks_per_nano: f64,
    jump_ticks: u64,
    long_ticks: u64,
    offer_ticks: u64,
    offers: Offers,
    switches: u64,
}

impl Waiting {
    /// A waiting place that knows what sleeping costs on this machine; the first of a process measures it (some ms).
    pub fn new(wait: Wait, clock: Clock) -> Waiting {
        Self::with_costs(wait, clock, calibration().costs)
    }

    /// A waiting place with costs of the caller's choice, for example another price of latency.
    pub fn with_costs(wait: Wait, clock: Clock, costs: Costs) -> Waiting {
        let Calibration { scale, .. } = calibration();
        let ticks_per_nano = 1.0 / scale.nanos_per_tick();
        let in_ticks = |length: Duration| (length.as_nanos() as f64 * ticks_per_nano) as u64;
        Waiting {
            clock,
            waiter: Waiter::new(wait, costs),
            ticks_per_nano,
            jump_ticks: in_ticks(JUMP),
            long_ticks: in_ticks(LONG),
            offer_ticks: in_ticks(OFFER),
            offers: Offers::default(),
            switches: switched_away(),
        }
    }

    /// What has happened here.
    pub fn report(&self) -> &Report {
        self.waiter.report()
    }

    /// The decision code, to look at.
    pub fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Looks until something is found, or `deadline` passes ([`Instant::NEVER`]: until something is found).
    ///
    /// Whoever makes something visible to `look` must ring `bell` through the same kind of `sleeper`. The deadline is a
    /// moment of this place's clock. `look` is called again after it at least once.
    #[inline]
    pub fn wait<T, B: Doorbell>(
        &mut self,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            self.waiter.at_once();
            return Some(found);
        }
        self.wait_long(bell, sleeper, deadline, look)
    }

    fn wait_long<T, B: Doorbell>(
        &mut self,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut now = self.clock.now();
        self.waiter.begin(now);
        loop {
            let (found, evidence) = match self.waiter.step(now) {
                Step::Spin { until } => (self.spin(now, until.min(deadline), &mut look), Evidence::Spinning),
                Step::Sleep { until } => self.sleep(now, until.min(deadline), bell, sleeper, &mut look),
            };
            now = self.clock.now();
            if found.is_some() {
                self.waiter.found(now, evidence);
                return found;
            }
            if now >= deadline {
                self.waiter.gave_up(now);
                return None;
            }
        }
    }

    /// Looks again and again, until a moment or until the core is lost.
    fn spin<T>(&mut self, now: Instant, until: Instant, look: &mut impl FnMut() -> Option<T>) -> Option<T> {
        let start = ticks();
        let length = (until.since(now).as_nanos() as f64 * self.ticks_per_nano) as u64;
        let mut last = start;
        let mut offered = false;
        let mut offer_at = if self.waiter.policy() == Wait::Adaptive { u64::MAX } else { self.long_ticks };
        loop {
            let found = look();
            let spun = last.wrapping_sub(start);
            if found.is_none() && spun >= offer_at {
                offer_at = spun + self.offer_ticks;
                if self.offers.offer() {
                    offered = true;
                    last = ticks();
                }
            } else if found.is_none() {
                std::hint::spin_loop();
            }
            let tick = ticks();
            let passed = tick.wrapping_sub(last);
            last = tick;
            if passed > self.jump_ticks && offered {
                // It was away by its own wish, too: what is counted from now on is not.
                offered = false;
                self.switches = switched_away();
            }
            // Who comes back to a lost core usually finds something: this is asked first.
            else if passed > self.jump_ticks && self.core_was_taken() {
                let lost = Duration::from_nanos((passed as f64 / self.ticks_per_nano) as u64);
                self.waiter.disturbed(self.clock.now(), lost);
                return found.or_else(look);
            }
            if found.is_some() {
                return found;
            }
            if tick.wrapping_sub(start) >= length {
                return look();
            }
        }
    }

    /// Whether the thread was switched away against its will since this was last asked.
    #[cold]
    fn core_was_taken(&mut self) -> bool {
        let before = std::mem::replace(&mut self.switches, switched_away());
        self.switches > before
    }

    fn sleep<T, B: Doorbell>(
        &mut self,
        now: Instant,
        until: Instant,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        look: &mut impl FnMut() -> Option<T>,
    ) -> (Option<T>, Evidence) {
        bell.arm();
        if let found @ Some(_) = look() {
            bell.disarm();
            return (found, Evidence::Spinning);
        }
        let timeout = (until != Instant::NEVER).then(|| until.since(now));
        if timeout.is_some() {
            wake_on_time();
        }
        sleeper.sleep(bell, timeout);
        let evidence = bell.disarm().map_or(Evidence::Unrung, |at| Evidence::Rung { at: self.clock.at(at) });
        let found = look();
        // Switches until here were no fault of a spinner.
        self.switches = switched_away();
        (found, evidence)
    }
}

/// How often the calling thread was switched away although it could have gone on.
pub fn switched_away() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage writes a whole rusage to the place it is given, which is large enough, and the structure of
    // integers is valid whatever it holds; it fails only for an unknown `who` or a bad address.
    let usage = unsafe {
        let result = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        debug_assert_eq!(result, 0);
        usage.assume_init()
    };
    usage.ru_nivcsw as u64
}

/// Timed sleeps of the calling thread end when they should, not up to 50 us later (timer slack, prctl(2)).
pub(crate) fn wake_on_time() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Where it is refused, sleeps end later, and the waiter learns that.
        let _: Result<(), Errno> = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{allowed_cpus, pin_thread};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

    const POLICIES: [Wait; 4] =
        [Wait::Poll, Wait::Interrupt, Wait::Hybrid { spin: Duration::from_micros(20) }, Wait::Adaptive];

    /// A message there and one back, again and again: a lost wake-up would be the end of it.
    fn every_message_is_seen(wait: Wait, sleepers: [impl Sleeper + Sync; 2]) {
        let messages = 2_000;
        let clock = Clock::new();
        let places = [(AtomicU64::new(0), Bell::new()), (AtomicU64::new(0), Bell::new())];
        let next = |waiting: &mut Waiting, place: usize, seen: u64| {
            let (count, bell) = &places[place];
            let look = || Some(count.load(Acquire)).filter(|&count| count > seen);
            waiting.wait(bell, &sleepers[place], Instant::NEVER, look).expect("there is no deadline")
        };
        let send = |place: usize| {
            places[place].0.fetch_add(1, Release);
            ring(&sleepers[place], &places[place].1);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut waiting = Waiting::new(wait, clock);
                for message in 0..messages {
                    assert_eq!(next(&mut waiting, 1, message), message + 1);
                    send(0);
                }
            });
            let mut waiting = Waiting::new(wait, clock);
            for message in 0..messages {
                send(1);
                assert_eq!(next(&mut waiting, 0, message), message + 1);
            }
            let report = waiting.report();
            assert_eq!(report.waits + report.at_once, messages, "{wait}: {report:?}");
        });
    }

    #[test]
    fn every_policy_sees_every_message_on_an_eventfd() {
        for wait in POLICIES {
            let sleepers =
                [EventSleeper::new(), EventSleeper::new()].map(|new| new.expect("a few files may be opened"));
            every_message_is_seen(wait, sleepers);
        }
    }

    #[test]
    fn every_policy_sees_every_message_on_a_futex() {
        for wait in POLICIES {
            every_message_is_seen(wait, [FutexSleeper; 2]);
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let clock = Clock::new();
        let event = EventSleeper::new().expect("a file may be opened");
        for wait in POLICIES {
            let mut waiting = Waiting::new(wait, clock);
            let mut looks = 0;
            let mut look = || -> Option<()> {
                looks += 1;
                None
            };
            let deadline = clock.now() + Duration::from_millis(2);
            assert_eq!(waiting.wait(&Bell::new(), &event, deadline, &mut look), None);
            assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, deadline, &mut look), None);
            assert!(clock.now() >= deadline, "{wait}");
            assert!(looks >= 4, "{wait} looked before and after");
            assert_eq!(waiting.report().waits, 0);
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_though_each_look_takes_long() {
        let clock = Clock::new();
        let slow = || -> Option<()> {
            let began = clock.now();
            while clock.now().since(began) < Duration::from_micros(3) {}
            None
        };
        for wait in [Wait::Poll, Wait::Hybrid { spin: Duration::from_millis(1) }] {
            let mut waiting = Waiting::new(wait, clock);
            let deadline = clock.now() + Duration::from_millis(2);
            assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, deadline, slow), None);
            assert!(clock.now() >= deadline, "{wait}");
        }
    }

    #[test]
    fn what_came_before_the_wait_is_found_whatever_the_deadline() {
        let mut waiting = Waiting::new(Wait::Interrupt, Clock::new());
        assert_eq!(waiting.wait(&Bell::new(), &FutexSleeper, Instant::ZERO, || Some(7)), Some(7));
        assert_eq!(waiting.report().at_once, 1);
    }

    #[test]
    fn a_wake_up_that_came_too_late_for_one_sleep_does_no_harm_to_the_next() {
        let (event, bell) = (EventSleeper::new().expect("a file may be opened"), Bell::new());
        event.wake(&bell); // as if rung, and found at the last look before the sleep
        let clock = Clock::new();
        let deadline = clock.now() + Duration::from_millis(1);
        let mut waiting = Waiting::new(Wait::Interrupt, clock);
        assert_eq!(waiting.wait(&bell, &event, deadline, || None::<()>), None);
        assert!(clock.now() >= deadline, "it looked once more and slept on");
    }

    /// Two threads of one processor ask and answer: how often the one that looked more often did, in the middle.
    fn looks_for_an_answer(cpu: usize) -> u64 {
        const MESSAGES: usize = 100;
        let clock = Clock::new();
        let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let side = |own: &AtomicU64, other: &AtomicU64, asks: bool| {
            pin_thread(cpu).expect("this CPU was allowed");
            let mut waiting = Waiting::new(Wait::Poll, clock);
            let mut looks: Vec<u64> = (1..=MESSAGES as u64)
                .map(|message| {
                    let mut count = 0;
                    if asks {
                        own.store(message, Release);
                    }
                    waiting.wait(&Bell::new(), &FutexSleeper, Instant::NEVER, || {
                        count += 1;
                        Some(()).filter(|()| other.load(Acquire) >= message)
                    });
                    own.store(message, Release);
                    count
                })
                .collect();
            looks.sort_unstable();
            looks[MESSAGES / 2]
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| side(&answered, &asked, false));
            side(&asked, &answered, true).max(other.join().expect("it was asked"))
        })
    }

    #[test]
    fn who_spins_on_the_processor_of_the_one_it_waits_for_lets_it_work() {
        let cpus = allowed_cpus().expect("a thread may ask for its own CPUs");
        let cpu = *cpus.last().expect("it has one");
        // A time slice of looking is more than ten thousand looks. Others may disturb it for a while.
        let looks = || (0..20).map(|_| looks_for_an_answer(cpu));
        assert!(looks().any(|looks| looks < 3000), "{:?}", looks().collect::<Vec<_>>());
    }

    #[test]
    fn offers_pause_after_slices_that_others_kept() {
        const MS: u64 = 1_000_000;
        let offers = Offers::default();
        let mut now = 1000 * MS;
        // Somebody had it for so long: when it is offered again, from then.
        let mut away = |pass: u64, length: u64| {
            let began = now.max(offers.next.load(Relaxed)) + pass;
            now = began + length;
            offers.learn(began, now);
            offers.next.load(Relaxed) - now
        };
        assert_eq!([away(0, 300), away(0, MS / 2)], [1000; 2], "whoever was waited for");
        // Somebody else: sixteen times as long, and longer while that goes on, whatever is between.
        assert_eq!([away(0, 3 * MS), away(5 * MS, 3 * MS)], [48 * MS, 96 * MS]);
        assert_eq!([away(MS, 300), away(MS, 300), away(MS, 3 * MS)], [1000, 1000, 192 * MS]);
        // Who has stayed away for as long as the pause was is forgiven, though it was asked all the time.
        (0..200).for_each(|_| assert_eq!(away(MS, 300), 1000));
        assert_eq!(away(0, 3 * MS), 48 * MS);
        assert_eq!(away(0, 900_000 * MS), 10_000 * MS, "no longer than that");
    }

    #[test]
    fn a_thread_that_shares_its_core_notices_that_it_was_switched_away() {
        let cpu = allowed_cpus().expect("a thread may ask for its own CPUs")[0];
        let noticed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_thread(cpu).expect("this CPU was allowed");
                while !noticed.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            pin_thread(cpu).expect("this CPU was allowed");
            let before = switched_away();
            while switched_away() == before {
                std::hint::spin_loop();
            }
            noticed.store(true, Relaxed);
        });
    }
}
