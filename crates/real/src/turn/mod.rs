//! Turns: a value without a thread, driven by whoever calls.
//!
//! Goal      a NIC's calls, blocking ones among them, for any thread: what arrives is taken by who waits for it.
//! Turn      the [`Machine`] has no thread of its own: whoever works, looks or waits holds its lock for a moment and moves
//!           what there is to move. Nobody blocks inside.
//! Wait      of those who wait, one is the *driver*: it spins or sleeps on the doors by its queue's policy
//!           ([`crate::wait`]). The others follow: they sleep until the driver has news for somebody.
//! Away      when nobody has driven for a while, a helper thread does, so that peers are answered while the program
//!           computes (`helper.rs`). It sleeps until something arrives.
//! Doors     what wakes a sleeping driver: files on an epoll, bells in shared memory, the machine's deadline, and whoever
//!           changes something beside it (`doors.rs`).
//! Signals   of the program end a wait that asks for it ([`Turn::wait_interruptibly`], `signals.rs`).
//! Limits    one lock a turn: programs that drive much from many threads make several.
//! Left out  fork: a child must not use its parent's turn. Fairness among those who follow.

mod doors;
mod helper;
mod places;
mod signals;

pub(crate) use doors::watch;
pub(crate) use helper::Helping;
pub use signals::ends_this_call;
pub(crate) use signals::quietly;

use self::doors::Doors;
use self::helper::Helper;
use self::places::Places;
use crate::clock::{Clock, ticks};
use crate::wait::Waiting;
use kiban_ground::{Instant, Report, Wait};
use std::hash::Hash;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A reading of the clock is good for so many ticks: some ten microseconds, less than any deadline is exact to.
const RECENT_TICKS: u64 = 30_000;

/// After so many looks in vain a program is taken to go on looking.
const VAIN_MAX: u32 = 8;

/// Whoever spins for ever lets signals in after so many looks: some hundred microseconds.
const LET_IN_LOOKS: u32 = 1024;

/// What a turn guards: a value that takes and sends when it is driven. All calls come under the lock.
pub(crate) trait Machine: Send + 'static {
    /// Takes what has arrived, and sends what there is to send. Bounded: what is left is told by [`Machine::has_more`].
    fn drive(&mut self, now: Instant);
    /// The host has had its chance to answer what was taken, and has looked in vain.
    fn settle(&mut self, now: Instant);
    /// Sends what there is to send, after a host's call.
    fn flush(&mut self, now: Instant);
    /// Whether something has happened since this was last asked that somebody may wait for.
    fn take_news(&mut self) -> bool;
    /// When it has to be driven whatever arrives; [`Instant::NEVER`] if there is no such moment.
    fn deadline(&self) -> Instant;
    /// Something is left that nobody will announce: the last drive had its bound, or a bell has come that is not armed.
    /// A driver then looks again and does not sleep.
    fn has_more(&self) -> bool;
    /// A driver is about to sleep: arms the bells of its links.
    fn arm(&mut self) {}
    /// It has slept: disarms them. When the first was rung (nanoseconds of [`crate::clock::machine_nanos`]), if any was.
    fn disarm(&mut self) -> Option<u64> {
        None
    }
    /// A driver has slept: time has passed, and what is looked at seldom is due.
    fn after_sleep(&mut self) {}
}

/// What names a queue: each has a policy of waiting and learns for itself.
pub(crate) trait Place: Copy + Eq + Hash + Send + 'static {}

impl<Q: Copy + Eq + Hash + Send + 'static> Place for Q {}

/// Why a wait came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The time is over.
    Timeout,
    /// The turn has been closed.
    Closed,
}

/// A machine and who drives it. Clones are the same turn; its helper ends with the last.
pub(crate) struct Turn<M: Machine, Q: Place> {
    shared: Arc<Shared<M, Q>>,
    /// Stops the helper when the last of the host's clones goes.
    _helper: Arc<Helper<M, Q>>,
}

impl<M: Machine, Q: Place> Clone for Turn<M, Q> {
    fn clone(&self) -> Turn<M, Q> {
        Turn { shared: self.shared.clone(), _helper: self._helper.clone() }
    }
}

struct Shared<M, Q> {
    held: Mutex<Held<M>>,
    clock: Clock,
    /// Who sleeps on the doors.
    driver: Mutex<()>,
    /// Wakes whoever sleeps on them, from within.
    doors: Doors,
    /// Threads that wait without driving.
    followers: AtomicUsize,
    news: (Mutex<u64>, Condvar),
    places: Mutex<Places<Q>>,
    /// When somebody last moved things, nanoseconds of the clock.
    driven_at: AtomicU64,
    helping: Helping,
    /// The helper sleeps on the doors.
    helper_drives: AtomicBool,
    /// Looks in a row that found nothing.
    vain: AtomicU32,
    closed: AtomicBool,
}

/// What the lock guards.
struct Held<M> {
    machine: M,
    /// When the driver will wake by itself; zero while it is awake.
    sleeps_until: Instant,
    /// The last reading of the clock, and of the tick counter with it.
    recent: (Instant, u64),
}

impl<M: Machine> Held<M> {
    /// The time, to some microseconds: the cheap counter says when the clock has to be read again.
    #[inline]
    fn now(&mut self, clock: Clock) -> Instant {
        if ticks().wrapping_sub(self.recent.1) >= RECENT_TICKS {
            self.recent = (clock.now(), ticks());
        }
        self.recent.0
    }

    /// Whether a sleeping driver has to look again: for a new bell, or for more than one turn.
    #[inline]
    fn is_overtaken(&self) -> bool {
        self.sleeps_until != Instant::ZERO && self.machine.has_more()
    }

    /// Whether a sleeping driver has to be told of an earlier deadline.
    #[inline]
    fn wakes_sleeper(&self) -> bool {
        self.machine.deadline() < self.sleeps_until || self.is_overtaken()
    }
}

/// A lock whose holder cannot leave things half done: a panic of one thread is not the end of the others.
#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Machine, Q: Place> Turn<M, Q> {
    /// Makes a machine that may have its files watched ([`watch`]) by the epoll it is lent, and starts its helper, a
    /// thread of this name.
    ///
    /// # Errors
    /// The machine's own, or the system has no file or thread to spare.
    pub(crate) fn new<E: From<io::Error>>(
        helper: &str,
        helping: Helping,
        make: impl FnOnce(&OwnedFd) -> Result<M, E>,
    ) -> Result<Turn<M, Q>, E> {
        let clock = Clock::new();
        let doors = Doors::new()?;
        let machine = make(doors.epoll())?;
        let shared = Arc::new(Shared {
            held: Mutex::new(Held { machine, sleeps_until: Instant::ZERO, recent: (Instant::ZERO, 0) }),
            clock,
            driver: Mutex::new(()),
            doors,
            followers: AtomicUsize::new(0),
            news: (Mutex::new(0), Condvar::new()),
            places: Mutex::default(),
            driven_at: AtomicU64::new(0),
            helping,
            helper_drives: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        });
        let helper = Helper::start(helper, &shared)?;
        Ok(Turn { shared, _helper: Arc::new(helper) })
    }

    /// Closes for everybody who holds it: `last` is the last work, and those who wait hear [`Ended::Closed`].
    pub(crate) fn close(&self, last: impl FnOnce(&mut M, Instant)) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.work(last);
        self.shared.call_followers();
        self.shared.doors.wake();
    }

    /// The clock of its moments.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Instant {
        self.clock().now()
    }

    // ---- turns

    /// Reads something of the machine; moves nothing.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&M) -> T) -> T {
        read(&lock(&self.shared.held).machine)
    }

    /// Works on the machine, then sends what is to be sent. The time is exact to some microseconds.
    #[inline]
    pub(crate) fn work<T>(&self, work: impl FnOnce(&mut M, Instant) -> T) -> T {
        let shared = &*self.shared;
        let mut held = lock(&shared.held);
        let now = held.now(shared.clock);
        if !shared.helping.alert {
            shared.note(now);
        }
        let done = work(&mut held.machine, now);
        held.machine.flush(now);
        let earlier = held.wakes_sleeper();
        let news = held.machine.take_news();
        drop(held);
        if news {
            shared.call_followers();
        }
        // A driver that sleeps does so by an earlier deadline, or for what has just happened: the helper waits for nothing.
        if earlier || news && !(shared.helping.alert && shared.helper_drives.load(Ordering::Relaxed)) {
            shared.doors.wake();
        }
        done
    }

    /// Looks once, and moves what is there to move.
    #[inline]
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        self.shared.look_beside(&mut look)
    }

    /// Looks until something is found, or the time is over ([`Duration::MAX`]: until something is found), waiting by the
    /// queue's policy, or by a policy of this call. Calls of one policy in a row learn together, apart from the queue's own.
    ///
    /// # Errors
    /// The time is over, or the turn was closed.
    pub(crate) fn wait<T>(
        &self,
        queue: Q,
        once: Option<Wait>,
        timeout: Duration,
        look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<T, Ended> {
        self.wait_holding(queue, once, timeout, None, look)
    }

    /// The same by the queue's policy; `None`: a signal's handler has ended the wait, as read(2) ends (`signals.rs`).
    ///
    /// # Errors
    /// As [`Turn::wait`].
    pub(crate) fn wait_interruptibly<T>(
        &self,
        queue: Q,
        timeout: Duration,
        mut look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<Option<T>, Ended> {
        if let Some(found) = self.look(&mut look) {
            return Ok(Some(found));
        }
        let signals = signals::Held::new();
        self.wait_holding(queue, None, timeout, Some(&signals), |machine| {
            look(machine).map(Some).or_else(|| signals.has_ended().then_some(None))
        })
    }

    fn wait_holding<T>(
        &self,
        queue: Q,
        once: Option<Wait>,
        timeout: Duration,
        signals: Option<&signals::Held>,
        mut look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<T, Ended> {
        let shared = &*self.shared;
        let mut look = |machine: &mut M| {
            if shared.closed.load(Ordering::Relaxed) {
                Some(Err(Ended::Closed))
            } else {
                look(machine).map(Ok)
            }
        };
        if let Some(found) = self.look(&mut look) {
            return found;
        }
        let deadline = if timeout == Duration::MAX { Instant::NEVER } else { self.now() + timeout };
        let spot = lock(&shared.places).spot(queue, once, shared.clock);
        loop {
            match shared.driver.try_lock() {
                Ok(driver) => {
                    let found =
                        spot.wait(|waiting| shared.drive_until(waiting, deadline, signals, &mut look));
                    drop(driver);
                    // Another may want to drive now.
                    shared.call_followers();
                    return found.unwrap_or(Err(Ended::Timeout));
                }
                Err(TryLockError::Poisoned(_)) => {
                    shared.driver.clear_poison();
                }
                Err(TryLockError::WouldBlock) => {
                    if let Some(found) = shared.follow(deadline, &mut look) {
                        return found?;
                    }
                    if let Some(signals) = signals {
                        signals.let_in();
                    }
                }
            }
        }
    }

    // ---- policies

    /// How queues wait that have no policy of their own.
    pub(crate) fn set_wait(&self, wait: Wait) {
        lock(&self.shared.places).set_wait(wait);
    }

    /// How one queue waits.
    pub(crate) fn set_queue_wait(&self, queue: Q, wait: Wait) {
        lock(&self.shared.places).set_queue_wait(queue, wait);
    }

    /// What happened while a queue was waited for; nothing before the first wait.
    pub(crate) fn wait_report(&self, queue: Q) -> Option<Report> {
        let spot = lock(&self.shared.places).known(queue)?;
        Some(spot.report())
    }

    /// How a queue waits.
    pub(crate) fn wait_policy(&self, queue: Q) -> Wait {
        lock(&self.shared.places).policy(queue)
    }

    /// A queue is no more: its name may come again, with another's policy and habits.
    pub(crate) fn forget_queue(&self, queue: Q) {
        lock(&self.shared.places).forget(queue);
    }
}

impl<M: Machine, Q: Place> Shared<M, Q> {
    /// The program is at work: the helper need not be.
    #[inline]
    fn note(&self, now: Instant) {
        self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
        if self.helper_drives.load(Ordering::Relaxed) && self.helper_drives.swap(false, Ordering::AcqRel) {
            self.doors.wake();
        }
    }

    /// The program has looked, and moved things. One that goes on looking needs no helper.
    #[inline]
    fn note_look(&self, now: Instant, found: bool) {
        let vain = if found { 0 } else { self.vain.load(Ordering::Relaxed).saturating_add(1) };
        self.vain.store(vain, Ordering::Relaxed);
        if found || vain >= VAIN_MAX {
            self.note(now);
        }
    }

    /// Looks; finds nothing; moves what is there to move, and looks again. Whether there was news, perhaps for others. Who
    /// `drives` does nothing else; who does not shows that the program is at work.
    #[inline]
    fn look<T>(&self, drives: bool, look: &mut impl FnMut(&mut M) -> Option<T>) -> (Option<T>, bool) {
        let mut held = lock(&self.held);
        let mut found = look(&mut held.machine);
        if found.is_some() {
            self.vain.store(0, Ordering::Relaxed);
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
        } else if self.helping.alert && !self.helper_drives.load(Ordering::Relaxed) {
            self.driven_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        if found.is_none() {
            held.machine.settle(now);
        }
        let news = held.machine.take_news();
        // What this look has found out may be due before a sleeping driver wakes.
        let overtaken = if drives { held.is_overtaken() } else { held.wakes_sleeper() };
        drop(held);
        if news {
            self.call_followers();
        }
        (found, news || overtaken)
    }

    /// The holder of the driver's lock waits by its policy, and moves things meanwhile.
    fn drive_until<T>(
        &self,
        waiting: &mut Waiting,
        deadline: Instant,
        signals: Option<&signals::Held>,
        look: &mut impl FnMut(&mut M) -> Option<T>,
    ) -> Option<T> {
        let mut looks = 0u32;
        // The machine's own deadlines end a sleep (`Sleeper for Shared`), and every look does what they ask for.
        waiting.wait(self, self, deadline, || {
            looks = looks.wrapping_add(1);
            if let Some(signals) = signals.filter(|_| looks.is_multiple_of(LET_IN_LOOKS)) {
                signals.let_in();
            }
            self.look(true, look).0
        })
    }

    /// Somebody else drives: sleep until there is news, or nobody drives. None: try to drive.
    fn follow<T>(
        &self,
        deadline: Instant,
        look: &mut impl FnMut(&mut M) -> Option<T>,
    ) -> Option<Result<T, Ended>> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        // A driver that left before it could know of us tells nobody.
        if self.driver.try_lock().is_ok() {
            self.followers.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let seen = *lock(&self.news.0);
        let mut result = self.look_beside(look).map(Ok);
        if result.is_none() {
            if self.helper_drives.swap(false, Ordering::AcqRel) {
                self.doors.wake();
            }
            let now = self.clock.now();
            // However the driver left, it is looked for again before long.
            let most = deadline.since(now).min(Duration::from_millis(20));
            // The lock is let go of in any case: whoever looks below may have news for others.
            let _ = self.news.1.wait_timeout_while(lock(&self.news.0), most, |news| *news == seen);
            if self.clock.now() >= deadline {
                result = Some(self.look_beside(look).ok_or(Ended::Timeout));
            }
        }
        self.followers.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Looks beside a driver: what is found there may be what it sleeps for.
    #[inline]
    fn look_beside<T>(&self, look: &mut impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        let (found, news) = self.look(false, look);
        if news {
            self.doors.wake();
        }
        found
    }

    /// Tells those who wait without driving that something has happened.
    #[inline]
    fn call_followers(&self) {
        if self.followers.load(Ordering::SeqCst) > 0 {
            *lock(&self.news.0) += 1;
            self.news.1.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
