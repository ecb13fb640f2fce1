//! Signals: a wait ends when a handler of the program's has run, as read(2) ends.
//!
//! Goal      programs that stop a blocked call by a signal (an alarm, Ctrl-C) find it stopped, with EINTR; those whose handlers
//!           were set to restart calls (`SA_RESTART`, sigaction(2)) notice nothing.
//! Race      a handler that runs while the waiter spins, before it sleeps, would be forgotten. So signals wait while a thread
//!           spins: they come in at the sleep itself, which takes the thread's own mask (epoll_pwait(2)), or, where nobody
//!           sleeps soon, now and then ([`Held::let_in`]).
//! Which     of signals that have waited it is known what their handlers want. Of one that ended a sleep it is not known which
//!           it was: any handler that is there and does not restart calls is taken for it.
//! Left out  faults of the program's own (SIGSEGV and its like): they never wait.

use rustix::event::Timespec;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;

thread_local! {
    /// The mask that a waiting thread had.
    static BEFORE: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
    /// A handler has run that ends calls.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// Those that a thread brings upon itself.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
/// The last number of a signal.
const LAST: libc::c_int = 64;

/// Signals wait, until it goes.
pub(super) struct Held {
    before: libc::sigset_t,
    /// A mask is a thread's own.
    _here: PhantomData<*const ()>,
}

/// Sets this thread's mask: what it was.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: two sets; one of zeroes is an empty one, should the call write none.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}

fn all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is filled by the first call; the numbers are those of signals.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        all.assume_init()
    }
}

/// Does some work while this thread takes no signals: threads that are made meanwhile take none, ever.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let before = set_mask(&all());
    let done = work();
    set_mask(&before);
    done
}

fn has(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: a set, and a number that may be any.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Whether there is a handler for a signal that does not restart calls.
fn ends_calls(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only asks, and is refused for numbers that are none.
    let action = unsafe {
        if libc::sigaction(signal, null(), action.as_mut_ptr()) != 0 {
            return false;
        }
        action.assume_init()
    };
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) && action.sa_flags & libc::SA_RESTART == 0
}

/// Whether a signal that has just ended a call of this thread's, with `mask`, may have been one whose handler ends calls.
fn may_end_calls(mask: &libc::sigset_t) -> bool {
    (1..=LAST).any(|signal| !FAULTS.contains(&signal) && !has(mask, signal) && ends_calls(signal))
}

/// Whether a call of this thread's that a signal has just ended (EINTR of poll(2)) is to end for the program too, as read(2)
/// would: whether there is a handler that does not restart calls.
pub fn ends_this_call() -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: it only asks.
    let mask = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, null(), mask.as_mut_ptr());
        mask.assume_init()
    };
    may_end_calls(&mask)
}

impl Held {
    pub(super) fn new() -> Held {
        let before = set_mask(&all());
        BEFORE.set(Some(before));
        ENDS.set(false);
        Held { before, _here: PhantomData }
    }

    /// Whether a handler has run that ends calls.
    pub(super) fn has_ended(&self) -> bool {
        ENDS.get()
    }

    /// Lets those in that have waited. Handlers run here: nothing is locked.
    pub(super) fn let_in(&self) {
        let mut waiting = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a place for a set.
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

impl Drop for Held {
    fn drop(&mut self) {
        BEFORE.set(None);
        set_mask(&self.before);
    }
}

/// Sleeps until a file of the epoll is ready, or the time is over; where signals wait, they come in here.
pub(super) fn sleep(epoll: &OwnedFd, timeout: Option<&Timespec>) {
    use rustix::event::epoll::{Event, wait};
    let mut events = [const { MaybeUninit::<Event>::uninit() }; 32];
    let Some(mask) = BEFORE.get() else {
        // Errors are early ends.
        let _ = wait(epoll, &mut events, timeout);
        return;
    };
    let mut events = [const { MaybeUninit::<libc::epoll_event>::uninit() }; 32];
    let exact = timeout.map(|time| libc::timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec as _ });
    // SAFETY: an open file, room for as many events, a time or null, and a mask of the kernel's size.
    let mut code = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            events.len(),
            exact.as_ref().map_or(null(), std::ptr::from_ref),
            &raw const mask,
            size_of::<u64>(),
        )
    };
    if code < 0 && last_error() == Some(libc::ENOSYS) {
        // Older than Linux 5.11: it sleeps up to a millisecond too long.
        let millis = timeout.map_or(-1, |time| {
            time.tv_sec
                .saturating_mul(1000)
                .saturating_add(time.tv_nsec / 1_000_000 + 1)
                .min(i64::from(i32::MAX))
        });
        // SAFETY: as above.
        code = unsafe {
            libc::epoll_pwait(
                epoll.as_raw_fd(),
                events.as_mut_ptr().cast(),
                events.len() as _,
                millis as _,
                &raw const mask,
            )
            .into()
        };
    }
    if code < 0 && last_error() == Some(libc::EINTR) && may_end_calls(&mask) {
        ENDS.set(true);
    }
}

fn last_error() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RUN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: libc::c_int) {
        RUN.fetch_add(1, Ordering::SeqCst);
    }

    fn set(signal: libc::c_int, flags: libc::c_int) {
        // SAFETY: a function that makes one addition, for a signal that nobody else here uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }

    fn raise(signal: libc::c_int) {
        // SAFETY: this thread, which has a handler.
        unsafe { assert_eq!(libc::pthread_kill(libc::pthread_self(), signal), 0) };
    }

    #[test]
    fn handlers_run_at_the_sleep_and_end_calls_if_they_do_not_restart_them() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a file may be had");
        for (flags, ends) in [(0, true), (libc::SA_RESTART, false)] {
            set(libc::SIGUSR2, flags);
            let before = RUN.load(Ordering::SeqCst);
            let held = Held::new();
            raise(libc::SIGUSR2);
            assert_eq!(RUN.load(Ordering::SeqCst), before, "it waits");
            // For ever, if the signal were lost.
            sleep(&epoll, None);
            assert_eq!((RUN.load(Ordering::SeqCst), held.has_ended()), (before + 1, ends));
            drop(held);
            let held = Held::new();
            assert!(!held.has_ended());
            raise(libc::SIGUSR2);
            held.let_in();
            assert_eq!((RUN.load(Ordering::SeqCst), held.has_ended()), (before + 2, ends));
            held.let_in();
            raise(libc::SIGUSR2);
            drop(held);
            assert_eq!(RUN.load(Ordering::SeqCst), before + 3);
        }
    }
}
