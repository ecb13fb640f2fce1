//! Ways for a thread to sleep until its bell is rung: on an eventfd, or on the bell's word.

use crate::clock::machine_nanos;
use kiban_base::Bell;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::futex;
use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How a thread sleeps until its bell is rung, and how it is woken.
///
/// A sleep may end early; it must not continue once the bell has been rung and [`Sleeper::wake`] has been
/// called.
pub trait Sleeper<B: Doorbell = Bell> {
    /// Sleeps while `bell` is armed, at most for `timeout`.
    fn sleep(&self, bell: &B, timeout: Option<Duration>);
    /// Wakes the sleeper. Called only if [`Bell::ring`] returned true.
    fn wake(&self, bell: &B);
}

/// Rings a bell and wakes its sleeper if it sleeps. Make the data visible before the call.
#[inline]
pub fn ring(sleeper: &impl Sleeper, bell: &Bell) {
    if bell.ring(machine_nanos) {
        sleeper.wake(bell);
    }
}

/// The bells that a sleeper arms before it sleeps: one, or several that wake one sleeper.
pub trait Doorbell {
    /// Arms the bell, as [`Bell::arm`] does.
    fn arm(&self);
    /// Disarms the bell, as [`Bell::disarm`] does. If there are several bells, returns the time at which the
    /// first was rung.
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

/// Sleeps on an eventfd: a file descriptor that other code can poll, too.
#[derive(Debug)]
pub struct EventSleeper {
    event: OwnedFd,
}

impl EventSleeper {
    /// Creates an eventfd.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<EventSleeper> {
        Ok(EventSleeper { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Resets the eventfd, so that the next sleep does not end at once.
    pub fn reset(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Sleeper for EventSleeper {
    fn sleep(&self, _: &Bell, timeout: Option<Duration>) {
        let mut files = [PollFd::new(&self.event, PollFlags::IN)];
        // On an error the sleep ends early, which is allowed.
        if poll(&mut files, timeout.map(timespec).as_ref()).is_ok_and(|ready| ready > 0) {
            self.reset();
        }
    }
    fn wake(&self, _: &Bell) {
        // The write fails only if the counter is full, and then the sleeper wakes anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl AsFd for EventSleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Sleeps on the bell's word: no descriptor, and one system call each for sleeping and waking.
#[derive(Clone, Copy, Debug, Default)]
pub struct FutexSleeper;

impl Sleeper for FutexSleeper {
    fn sleep(&self, bell: &Bell, timeout: Option<Duration>) {
        // Do not use a private futex, because the bell may be in memory shared by two processes. On an error
        // the sleep ends early.
        let flags = futex::Flags::empty();
        let _ = futex::wait(bell.word(), flags, <Bell>::SLEEP_WHILE, timeout.map(timespec).as_ref());
    }
    fn wake(&self, bell: &Bell) {
        let _ = futex::wake(bell.word(), futex::Flags::empty(), 1);
    }
}

/// Converts a duration to the form that system calls take.
pub fn timespec(length: Duration) -> Timespec {
    // The length is capped, because a sleep that exceeds any uptime is as good as infinite.
    Timespec { tv_sec: length.as_secs().min(1 << 40) as i64, tv_nsec: length.subsec_nanos().into() }
}

/// Makes timed sleeps of the calling thread end on time instead of up to 50 us late (timer slack, prctl(2)).
pub fn set_min_timer_slack() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // If this fails, sleeps end later, and the waiter adapts to that.
        let _: Result<(), Errno> = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}
