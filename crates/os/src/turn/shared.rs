//! State shared by the callers of a turn, and how they drive the machine.

use super::followers::Followers;
use super::machine::{HelperPolicy, Machine, QueueKey, WaitError};
use super::polling::{Contention, NAP};
use super::queue_waiters::QueueWaiters;
use super::signals;
use crate::clock::{Clock, ticks};
use crate::wait::{Doorbell, Sleeper, WaitSet, Waiting};
use crate::{Flag, lock, try_lock};
use kiban_base::Instant;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A clock reading is reused for this many ticks, which is about ten microseconds and less than the precision
/// of any deadline.
const RECENT_TICKS: u64 = 30_000;

/// After this many consecutive looks that find nothing, the program is assumed to keep polling.
const IDLE_LOOKS_MAX: u32 = 8;

/// A thread that spins indefinitely lets signals in after this many looks: a few hundred microseconds.
const SIGNAL_LOOKS: u32 = 1024;

pub(super) struct Shared<M, Q> {
    /// A panic inside the machine may leave it partly changed. The other threads continue with that state.
    pub(super) held: Mutex<Held<M>>,
    pub(super) clock: Clock,
    /// Held by the thread that sleeps on the wait set.
    pub(super) driver: Mutex<()>,
    /// The driver's wait set: `epoll`, and wake-ups by other threads.
    pub(super) wait_set: Arc<WaitSet>,
    /// Watches the machine's files.
    pub(super) epoll: OwnedFd,
    /// Threads that wait without driving.
    pub(super) followers: Followers,
    pub(super) progress: (Mutex<u64>, Condvar),
    pub(super) waiters: Mutex<QueueWaiters<Q>>,
    /// When a thread last drove the machine, in nanoseconds of the clock.
    pub(super) driven_at: AtomicU64,
    pub(super) helping: HelperPolicy,
    /// Set while the helper drives.
    pub(super) helper_drives: Flag,
    /// Consecutive looks that found nothing.
    pub(super) idle_looks: AtomicU32,
    pub(super) contention: Contention,
    pub(super) closed: Flag,
}

/// The state behind the machine's lock.
pub(super) struct Held<M> {
    pub(super) machine: M,
    /// The time at which the driver's sleep will end by itself; zero while the driver is awake.
    pub(super) sleeps_until: Instant,
    /// The last clock reading, and the tick counter at that time.
    pub(super) recent: (Instant, u64),
}

impl<M: Machine> Held<M> {
    /// Returns the time, exact to a few microseconds: the tick counter determines when the clock must be read
    /// again.
    #[inline]
    pub(super) fn now(&mut self, clock: Clock) -> Instant {
        if ticks().wrapping_sub(self.recent.1) >= RECENT_TICKS {
            self.recent = (clock.now(), ticks());
        }
        self.recent.0
    }

    /// Returns whether a sleeping driver must look again, because a new bell was added or work is left over.
    #[inline]
    pub(super) fn is_overtaken(&self) -> bool {
        self.sleeps_until != Instant::ZERO && self.machine.has_more()
    }

    /// Returns whether a sleeping driver must be woken, for an earlier deadline or for work that is left
    /// over.
    #[inline]
    pub(super) fn wakes_sleeper(&self) -> bool {
        self.machine.deadline() < self.sleeps_until || self.is_overtaken()
    }
}

impl<M: Machine, Q: QueueKey> Shared<M, Q> {
    /// Records that the program drives the machine, and stops the helper's driving.
    #[inline]
    pub(super) fn note(&self, now: Instant) {
        self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
        if self.helper_drives.take() {
            self.wait_set.ring();
        }
    }

    /// Records that the program has looked and driven the machine. A program that keeps polling needs no
    /// helper.
    #[inline]
    pub(super) fn note_look(&self, now: Instant, found: bool) {
        let vain = if found { 0 } else { self.idle_looks.load(Ordering::Relaxed).saturating_add(1) };
        self.idle_looks.store(vain, Ordering::Relaxed);
        if found || vain >= IDLE_LOOKS_MAX {
            self.note(now);
        }
    }

    /// Looks; if nothing is found, drives the machine and looks again. Also returns whether a sleeping driver
    /// must be woken, for an event or for remaining work. `drives` is true for the driver, which does nothing
    /// else; a call by another thread shows that the program is active.
    #[inline]
    pub(super) fn look<T>(
        &self,
        drives: bool,
        look: &mut impl FnMut(&mut M) -> Option<T>,
    ) -> (Option<T>, bool) {
        let mut held = lock(&self.held);
        let mut found = look(&mut held.machine);
        if found.is_some() {
            self.idle_looks.store(0, Ordering::Relaxed);
            return (found, false);
        }
        let now = held.now(self.clock);
        if !drives && !self.helping.alert {
            self.note(now);
        }
        held.machine.drive(now);
        found = look(&mut held.machine);
        if self.helping.alert && !drives {
            self.note_look(now, found.is_some());
        } else if self.helping.alert && !self.helper_drives.get() {
            self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        if found.is_none() {
            held.machine.settle(now);
        }
        let has_progress = held.machine.take_progress();
        // This look may have created work that is due before a sleeping driver wakes.
        let overtaken = if drives { held.is_overtaken() } else { held.wakes_sleeper() };
        drop(held);
        if has_progress {
            self.call_followers();
        }
        (found, has_progress || overtaken)
    }

    /// Waits according to the driver's policy, and drives the machine during the wait. The caller holds the
    /// driver's lock.
    pub(super) fn drive_until<T>(
        &self,
        waiting: &mut Waiting,
        deadline: Instant,
        signals: Option<&signals::BlockedSignals>,
        look: &mut impl FnMut(&mut M) -> Option<T>,
    ) -> Option<T> {
        let mut looks = 0u32;
        // The machine's deadlines end a sleep (`Sleeper for Shared`). Each look then does the work that is
        // due.
        waiting.wait(self, self, deadline, || {
            looks = looks.wrapping_add(1);
            if let Some(signals) = signals.filter(|_| looks.is_multiple_of(SIGNAL_LOOKS)) {
                signals.deliver_pending();
            }
            self.look(true, look).0
        })
    }

    /// Sleeps while another thread drives, until there is an event or no thread drives. Returns `None` if the
    /// caller should try to drive.
    pub(super) fn follow<T>(
        &self,
        deadline: Instant,
        look: &mut impl FnMut(&mut M) -> Option<T>,
    ) -> Option<Result<T, WaitError>> {
        let is_free = || try_lock(&self.driver).is_some();
        let seen = self.followers.enter(|| *lock(&self.progress.0), is_free)?;
        let mut result = self.look_beside(look).map(Ok);
        if result.is_none() {
            if self.helper_drives.take() {
                self.wait_set.ring();
            }
            let now = self.clock.now();
            // The sleep is bounded, so that the departure of a driver that made no call is noticed soon.
            let most = deadline.since(now).min(Duration::from_millis(20));
            // Release the lock before looking, because the look may call other followers.
            let _ = self
                .progress
                .1
                .wait_timeout_while(lock(&self.progress.0), most, |has_progress| *has_progress == seen);
            if self.clock.now() >= deadline {
                result = Some(self.look_beside(look).ok_or(WaitError::Timeout));
            }
        }
        self.followers.leave();
        result
    }

    /// Looks without being the driver, and wakes the driver if necessary.
    #[inline]
    pub(super) fn look_beside<T>(&self, look: &mut impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        let (found, has_progress) = self.look(false, look);
        if has_progress {
            self.wait_set.ring();
        }
        found
    }

    /// Sleeps until anything arrives or for `NAP`, then looks.
    #[cold]
    pub(super) fn nap<T>(&self, look: &mut impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        let Some(driver) = try_lock(&self.driver) else {
            // The thread that drives calls if anything has happened.
            let followed = self.follow(self.clock.now() + NAP, look).and_then(Result::ok);
            return followed.or_else(|| self.look_beside(look));
        };
        self.arm();
        let (mut found, has_progress) = self.look(true, look);
        if found.is_none() && !has_progress {
            self.sleep(self, Some(NAP));
        }
        self.disarm();
        if found.is_none() {
            found = self.look(true, look).0;
        }
        self.stop_driving(driver);
        found
    }

    /// Wakes the followers because an event has happened.
    #[inline]
    pub(super) fn call_followers(&self) {
        if self.followers.any() {
            self.call();
        }
    }

    pub(super) fn call(&self) {
        *lock(&self.progress.0) += 1;
        self.progress.1.notify_all();
    }

    /// Releases the driver's lock and wakes the followers, so that one of them drives next.
    pub(super) fn stop_driving(&self, driver: MutexGuard<'_, ()>) {
        drop(driver);
        if self.followers.any_after_driving() {
            self.call();
        }
    }
}

impl<M: Machine, Q: QueueKey> Doorbell for Shared<M, Q> {
    fn arm(&self) {
        lock(&self.held).machine.arm();
        self.wait_set.arm();
    }

    fn disarm(&self) -> Option<u64> {
        let first = lock(&self.held).machine.disarm();
        // The bell that was rung first is the one that ended the sleep.
        self.wait_set.disarm().into_iter().chain(first).min()
    }
}

impl<M: Machine, Q: QueueKey> Sleeper<Shared<M, Q>> for Shared<M, Q> {
    fn sleep(&self, _: &Shared<M, Q>, mut timeout: Option<Duration>) {
        {
            let mut held = lock(&self.held);
            // A drive is bounded, and remaining work is not announced again. A bell that was added after the
            // others were armed does not ring either.
            if held.machine.has_more() {
                return;
            }
            let now = self.clock.now();
            let until = timeout.map_or(Instant::NEVER, |timeout| now + timeout);
            // An arrival in the meantime may have set a timer.
            held.sleeps_until = until.min(held.machine.deadline());
            timeout = (held.sleeps_until != Instant::NEVER).then(|| held.sleeps_until.since(now));
        }
        signals::sleep(&self.wait_set, timeout);
        // Edge-triggered files keep an epoll ready until their events are collected.
        let mut events = [const { MaybeUninit::<Event>::uninit() }; 32];
        let _ = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default()));
        let mut held = lock(&self.held);
        held.sleeps_until = Instant::ZERO;
        held.recent.1 = 0;
        held.machine.after_sleep();
    }

    fn wake(&self, _: &Shared<M, Q>) {
        self.wait_set.ring();
    }
}
