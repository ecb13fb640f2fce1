//! Signals: a wait ends when one of the program's handlers has run, as read(2) does.
//!
//! Purpose          a program that interrupts a blocked call by a signal (an alarm, Ctrl-C) gets EINTR; a
//!                  program whose handlers restart calls (`SA_RESTART`, sigaction(2)) is not affected.
//! Race             a handler that ran while the waiter spins, before it sleeps, would be missed. So signals
//!                  are blocked while a thread spins. They are delivered during the sleep itself, which
//!                  installs the thread's own mask (ppoll(2)), or, if the thread does not sleep soon, from
//!                  time to time ([`Held::deliver_pending`]).
//! Which signal     the action of each pending signal is looked up. The number of a signal that ended a sleep
//!                  is not known, so if any handler that does not restart calls is installed, it is assumed
//!                  to have run.
//! Not covered      faults of the program itself (SIGSEGV and similar signals), which are never blocked.

use crate::wait::WaitSet;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::time::Duration;

thread_local! {
    /// The signal mask that a waiting thread had before its wait.
    static BEFORE: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
    /// Set once a handler that does not restart calls has run.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// Signals that a thread's own faults raise.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
/// The highest signal number.
const LAST: libc::c_int = 64;

/// Blocks signals on this thread until it is dropped.
pub(super) struct BlockedSignals {
    before: libc::sigset_t,
    /// Not `Send`: the mask belongs to one thread.
    _here: PhantomData<*const ()>,
}

/// Sets this thread's signal mask and returns the previous one.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are valid signal sets; `before` is zeroed, which is an empty set if the call writes
    // nothing.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}

fn all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call initialises the set; the numbers are valid signals.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        all.assume_init()
    }
}

/// Runs `work` with this thread's signals blocked. Threads started in the meantime inherit the mask and never
/// take signals.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = set_mask(&all());
    let done = work();
    set_mask(&before);
    done
}

fn has(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: the set is initialised; sigismember accepts any number.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Returns whether a signal has a handler that does not restart calls.
fn ends_calls(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only reads the action into `action`, and fails for invalid signal numbers.
    let action = unsafe {
        if libc::sigaction(signal, null(), action.as_mut_ptr()) != 0 {
            return false;
        }
        action.assume_init()
    };
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) && action.sa_flags & libc::SA_RESTART == 0
}

/// Returns whether the signal that has just ended a call of this thread under `mask` may have a handler that
/// does not restart calls.
fn may_end_calls(mask: &libc::sigset_t) -> bool {
    (1..=LAST).any(|signal| !FAULTS.contains(&signal) && !has(mask, signal) && ends_calls(signal))
}

/// Returns whether a call that a signal has just ended on this thread (EINTR of poll(2)) must also end for
/// the program, as read(2) would: that is, whether a handler that does not restart calls is installed.
pub fn ends_this_call() -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the call only reads the mask into `mask`.
    let mask = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, null(), mask.as_mut_ptr());
        mask.assume_init()
    };
    may_end_calls(&mask)
}

impl BlockedSignals {
    pub(super) fn new() -> BlockedSignals {
        let before = set_mask(&all());
        BEFORE.set(Some(before));
        ENDS.set(false);
        BlockedSignals { before, _here: PhantomData }
    }

    /// Returns whether a handler that does not restart calls has run.
    pub(super) fn has_ended(&self) -> bool {
        ENDS.get()
    }

    /// Delivers the pending signals. Handlers run inside this call; the caller must hold no lock.
    pub(super) fn deliver_pending(&self) {
        let mut waiting = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigpending writes a signal set to `waiting`, which is zeroed and outlives the call.
        let waiting = unsafe {
            libc::sigpending(waiting.as_mut_ptr());
            waiting.assume_init()
        };
        let mut coming =
            (1..=LAST).filter(|&signal| has(&waiting, signal) && !has(&self.before, signal)).peekable();
        if coming.peek().is_none() {
            return;
        }
        let ends = coming.any(ends_calls);
        let held = set_mask(&self.before);
        set_mask(&held);
        ENDS.set(ENDS.get() | ends);
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        BEFORE.set(None);
        set_mask(&self.before);
    }
}

/// Sleeps on the set, at most for `timeout`. Blocked signals are delivered during the sleep.
pub(super) fn sleep(set: &WaitSet, timeout: Option<Duration>) {
    let mask = BEFORE.get();
    let interrupted = set.sleep_with(timeout, mask.as_ref());
    if interrupted && mask.is_some_and(|mask| may_end_calls(&mask)) {
        ENDS.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RUN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: libc::c_int) {
        RUN.fetch_add(1, Ordering::SeqCst);
    }

    fn set(signal: libc::c_int, flags: libc::c_int) {
        // SAFETY: the handler only adds to an atomic, and no other test uses this signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }

    fn raise(signal: libc::c_int) {
        // SAFETY: the target is this thread, which has a handler for the signal.
        unsafe { assert_eq!(libc::pthread_kill(libc::pthread_self(), signal), 0) };
    }

    #[test]
    fn handlers_run_at_the_sleep_and_end_calls_if_they_do_not_restart_them() {
        let wait_set = WaitSet::new().expect("descriptors are left");
        for (flags, ends) in [(0, true), (libc::SA_RESTART, false)] {
            set(libc::SIGUSR2, flags);
            let before = RUN.load(Ordering::SeqCst);
            let held = BlockedSignals::new();
            raise(libc::SIGUSR2);
            assert_eq!(RUN.load(Ordering::SeqCst), before, "it waits");
            // Without the signal, this would wait forever.
            sleep(&wait_set, None);
            assert_eq!((RUN.load(Ordering::SeqCst), held.has_ended()), (before + 1, ends));
            drop(held);
            let held = BlockedSignals::new();
            assert!(!held.has_ended());
            raise(libc::SIGUSR2);
            held.deliver_pending();
            assert_eq!((RUN.load(Ordering::SeqCst), held.has_ended()), (before + 2, ends));
            held.deliver_pending();
            raise(libc::SIGUSR2);
            drop(held);
            assert_eq!(RUN.load(Ordering::SeqCst), before + 3);
        }
    }
}
