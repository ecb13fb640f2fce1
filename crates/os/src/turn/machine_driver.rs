//! The lock around a machine, and the threads that drive it in turns.

use super::followers::Followers;
use super::helper::Helper;
use super::machine::{HelperPolicy, Machine, QueueKey, WaitError};
use super::polling::Contention;
use super::shared::{Held, Shared};
use super::signals;
use crate::clock::Clock;
use crate::wait::WaitSet;
use crate::{Flag, lock, try_lock};
use kiban_base::{Instant, Report, Wait};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Watches a file for input or hang-up, edge-triggered if `edges`, otherwise level-triggered.
///
/// # Errors
/// The system is out of memory, or watches too many files for this user.
pub fn watch(epoll: &OwnedFd, file: BorrowedFd<'_>, edges: bool) -> io::Result<()> {
    let edge = if edges { EventFlags::ET } else { EventFlags::empty() };
    Ok(epoll::add(epoll, file, EventData::new_u64(0), EventFlags::IN | EventFlags::RDHUP | edge)?)
}

/// A machine and the state of the threads that drive it. Clones share both; the helper ends with the last
/// clone.
pub struct Turn<M: Machine, Q: QueueKey> {
    pub(super) shared: Arc<Shared<M, Q>>,
    /// Stops the helper when the last clone is dropped.
    _helper: Arc<Helper<M, Q>>,
}

impl<M: Machine, Q: QueueKey> Clone for Turn<M, Q> {
    fn clone(&self) -> Turn<M, Q> {
        Turn { shared: self.shared.clone(), _helper: self._helper.clone() }
    }
}

impl<M: Machine, Q: QueueKey> Turn<M, Q> {
    /// Creates a turn. `make` receives an epoll on which the machine may have its files watched ([`watch`]).
    /// Also starts the helper thread, named `helper`.
    ///
    /// # Errors
    /// Those of `make`; also if the system has no descriptor or thread available.
    pub fn new<E: From<io::Error>>(
        helper: &str,
        helping: HelperPolicy,
        make: impl FnOnce(&OwnedFd) -> Result<M, E>,
    ) -> Result<Turn<M, Q>, E> {
        let clock = Clock::new();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let wait_set = WaitSet::new()?;
        wait_set.watch_program(epoll.as_fd(), None);
        let machine = make(&epoll)?;
        let shared = Arc::new(Shared {
            held: Mutex::new(Held { machine, sleeps_until: Instant::ZERO, recent: (Instant::ZERO, 0) }),
            clock,
            driver: Mutex::new(()),
            epoll,
            wait_set,
            followers: Followers::new(),
            progress: (Mutex::new(0), Condvar::new()),
            waiters: Mutex::default(),
            driven_at: AtomicU64::new(0),
            helping,
            helper_drives: Flag::default(),
            idle_looks: AtomicU32::new(0),
            contention: Contention::default(),
            closed: Flag::default(),
        });
        let helper = Helper::start(helper, &shared)?;
        Ok(Turn { shared, _helper: Arc::new(helper) })
    }

    /// Closes the turn for all its clones, after running `last` on the machine. Waiting threads return
    /// [`WaitError::Closed`].
    pub fn close(&self, last: impl FnOnce(&mut M, Instant)) {
        self.shared.closed.set(true);
        self.work(last);
        self.shared.call_followers();
        self.shared.wait_set.ring();
    }

    /// Returns the clock on which the turn's times are based.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.clock().now()
    }

    // ---- turns

    /// Reads the machine without driving it.
    pub fn read<T>(&self, read: impl FnOnce(&M) -> T) -> T {
        read(&lock(&self.shared.held).machine)
    }

    /// Runs `work` on the machine, then sends pending output. The time passed to `work` is exact to a few
    /// microseconds.
    #[inline]
    pub fn work<T>(&self, work: impl FnOnce(&mut M, Instant) -> T) -> T {
        let shared = &*self.shared;
        let mut held = lock(&shared.held);
        let now = held.now(shared.clock);
        if !shared.helping.alert {
            shared.note(now);
        }
        let done = work(&mut held.machine, now);
        held.machine.flush(now);
        let earlier = held.wakes_sleeper();
        let has_progress = held.machine.take_progress();
        drop(held);
        if has_progress {
            shared.call_followers();
        }
        // A sleeping driver must wake for an earlier deadline, or for new events. If the helper drives, no
        // thread waits for events.
        if earlier || has_progress && !(shared.helping.alert && shared.helper_drives.get()) {
            shared.wait_set.ring();
        }
        done
    }

    /// Looks once; if that finds nothing, drives the machine and looks again.
    #[inline]
    pub fn look<T>(&self, mut look: impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        self.shared.look_beside(&mut look)
    }

    /// Looks as [`Turn::look`] does, for a program that polls. If that finds nothing, and other threads want
    /// the caller's processor, sleeps until anything arrives, but at most 0.1 ms, and looks again
    /// (`polling.rs`).
    #[inline]
    pub fn poll<T>(&self, mut look: impl FnMut(&mut M) -> Option<T>) -> Option<T> {
        let found = self.shared.look_beside(&mut look);
        if found.is_some() || !self.shared.contention.on_idle() { found } else { self.shared.nap(&mut look) }
    }

    /// Looks until something is found, or until the timeout ([`Duration::MAX`] means no timeout). Waits by
    /// the queue's policy, or by the policy `once` for this call only. Consecutive calls with the same `once`
    /// policy share what they learn, separately from the queue's own policy.
    ///
    /// # Errors
    /// The timeout has passed, or the turn was closed.
    pub fn wait<T>(
        &self,
        queue: Q,
        once: Option<Wait>,
        timeout: Duration,
        look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.wait_guarded(queue, once, |_| Duration::ZERO, timeout, look)
    }

    /// Like [`Turn::wait`], for a queue that loses what arrives while all its slots are used: with the
    /// adaptive policy, polls for `guard` before a sleep if necessary ([`kiban_base::Waiter::set_guard`]).
    /// `guard` is called only if the first look finds nothing.
    ///
    /// # Errors
    /// Same as for [`Turn::wait`].
    pub fn wait_guarded<T>(
        &self,
        queue: Q,
        once: Option<Wait>,
        guard: impl FnOnce(&M) -> Duration,
        timeout: Duration,
        look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.wait_holding(queue, (once, guard), timeout, None, look)
    }

    /// Like [`Turn::wait`] with the queue's policy, but returns `None` if a signal handler has ended the
    /// wait, as a handler would end read(2) (`signals.rs`).
    ///
    /// # Errors
    /// Same as for [`Turn::wait`].
    pub fn wait_interruptibly<T>(
        &self,
        queue: Q,
        timeout: Duration,
        mut look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        if let Some(found) = self.look(&mut look) {
            return Ok(Some(found));
        }
        let signals = signals::BlockedSignals::new();
        self.wait_holding(queue, (None, |_: &M| Duration::ZERO), timeout, Some(&signals), |machine| {
            look(machine).map(Some).or_else(|| signals.has_ended().then_some(None))
        })
    }

    fn wait_holding<T>(
        &self,
        queue: Q,
        (once, guard): (Option<Wait>, impl FnOnce(&M) -> Duration),
        timeout: Duration,
        signals: Option<&signals::BlockedSignals>,
        mut look: impl FnMut(&mut M) -> Option<T>,
    ) -> Result<T, WaitError> {
        let shared = &*self.shared;
        let mut look = |machine: &mut M| {
            if shared.closed.get() { Some(Err(WaitError::Closed)) } else { look(machine).map(Ok) }
        };
        if let Some(found) = self.look(&mut look) {
            return found;
        }
        let deadline = if timeout == Duration::MAX { Instant::NEVER } else { self.now() + timeout };
        let guard = self.read(guard);
        let spot = lock(&shared.waiters).waiter(queue, once, shared.clock);
        loop {
            if let Some(driver) = try_lock(&shared.driver) {
                let found = spot.wait(|waiting| {
                    waiting.set_guard(guard);
                    shared.drive_until(waiting, deadline, signals, &mut look)
                });
                shared.stop_driving(driver);
                return found.unwrap_or(Err(WaitError::Timeout));
            }
            if let Some(found) = shared.follow(deadline, &mut look) {
                return found?;
            }
            if let Some(signals) = signals {
                signals.deliver_pending();
            }
        }
    }

    // ---- policies

    /// Sets the waiting policy of queues that do not have their own.
    pub fn set_wait(&self, wait: Wait) {
        lock(&self.shared.waiters).set_wait(wait);
    }

    /// Sets the waiting policy of one queue.
    pub fn set_queue_wait(&self, queue: Q, wait: Wait) {
        lock(&self.shared.waiters).set_queue_wait(queue, wait);
    }

    /// Returns statistics of the waits for a queue, or `None` before the first wait.
    pub fn wait_report(&self, queue: Q) -> Option<Report> {
        let spot = lock(&self.shared.waiters).known(queue)?;
        Some(spot.report())
    }

    /// Returns the waiting policy of a queue.
    pub fn wait_policy(&self, queue: Q) -> Wait {
        lock(&self.shared.waiters).policy(queue)
    }

    /// Deletes the state of a removed queue, so that a later queue with the same name starts with the default
    /// policy and without history.
    pub fn forget_queue(&self, queue: Q) {
        lock(&self.shared.waiters).forget(queue);
    }
}
