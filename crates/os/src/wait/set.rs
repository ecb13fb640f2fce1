//! The set of files and bells that a driver sleeps on, and how other threads wake it.
//!
//! Sleep            a driver sleeps on the files of links and programs, under any waiting policy. Files are
//!                  polled only during a sleep (ppoll(2)), because a permanent registration (epoll) would
//!                  cost the sender a call for every packet, even if no thread sleeps. A driver with many
//!                  files watches them with an epoll, and puts that epoll into the set ([`crate::turn`]).
//! Signals          a thread that blocks signals passes its original mask, which applies during the sleep.
//! Bells            bells in shared memory are armed together with the set's own bell.
//! Wake             any thread can use [`Waker`], which sets a flag, and signals an event if the driver
//!                  sleeps.

use super::sleepers::{Doorbell, EventSleeper, Sleeper};
use crate::clock::machine_nanos;
use crate::{Flag, lock};
use kiban_base::Bell;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The owner of a watched file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Own,
    Link(usize),
    Program,
}

/// Bells in shared memory that wake the driver too.
type Others = Vec<Arc<dyn Doorbell + Send + Sync>>;

/// The set of files and bells that wake a driver.
pub struct WaitSet {
    own: EventSleeper,
    /// The first entry is the set's own eventfd.
    files: Mutex<Vec<(Owner, libc::pollfd)>>,
    bell: Bell,
    others: Mutex<Others>,
    /// Set by [`Waker::wake`].
    woken: Flag,
}

impl WaitSet {
    /// Returns a set that contains only its own eventfd.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Arc<WaitSet>> {
        let set = WaitSet {
            own: EventSleeper::new()?,
            files: Mutex::default(),
            bell: Bell::default(),
            others: Mutex::default(),
            woken: Flag::default(),
        };
        set.watch(Owner::Own, set.own.as_fd());
        Ok(Arc::new(set))
    }

    fn watch(&self, whose: Owner, file: BorrowedFd<'_>) {
        let file = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        lock(&self.files).push((whose, file));
    }

    /// Watches a link's file for reading until [`WaitSet::forget`]. Replaces the link's previous file.
    pub fn watch_link(&self, number: usize, file: Option<BorrowedFd<'_>>) {
        self.forget(number);
        if let Some(file) = file {
            self.watch(Owner::Link(number), file);
        }
    }

    /// Watches a program's file for reading, and arms its bell if it has one, for as long as the set exists.
    pub fn watch_program(&self, file: BorrowedFd<'_>, bell: Option<Arc<dyn Doorbell + Send + Sync>>) {
        self.watch(Owner::Program, file);
        lock(&self.others).extend(bell);
    }

    /// Starts or stops watching a link's file for writability.
    pub fn watch_room(&self, number: usize, wanted: bool) {
        let events = if wanted { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        let mut files = lock(&self.files);
        let of_link = files.iter_mut().filter(|(whose, _)| *whose == Owner::Link(number));
        of_link.for_each(|(_, file)| file.events = events);
    }

    /// Stops watching a link's file. Call this before the file is closed.
    pub fn forget(&self, number: usize) {
        lock(&self.files).retain(|(whose, _)| *whose != Owner::Link(number));
    }

    /// Returns whether [`Waker::wake`] was called since the last call of this method.
    pub fn take_woken(&self) -> bool {
        self.woken.take()
    }

    /// Returns whether [`Waker::wake`] was called, without resetting the flag.
    pub fn is_woken(&self) -> bool {
        self.woken.get()
    }

    /// Wakes the thread that sleeps on this set.
    pub(crate) fn ring(&self) {
        if self.bell.ring(machine_nanos) {
            self.own.wake(&self.bell);
        }
    }

    /// Returns a handle that wakes the thread that sleeps on this set.
    pub fn waker(set: &Arc<WaitSet>) -> Waker {
        Waker(set.clone())
    }
}

impl Doorbell for WaitSet {
    fn arm(&self) {
        lock(&self.others).iter().for_each(|other| other.arm());
        self.bell.arm();
    }

    fn disarm(&self) -> Option<u64> {
        let others = lock(&self.others).iter().filter_map(|other| other.disarm()).min();
        self.bell.disarm().into_iter().chain(others).min()
    }
}

impl Sleeper<WaitSet> for WaitSet {
    fn sleep(&self, _: &WaitSet, timeout: Option<Duration>) {
        self.sleep_with(timeout, None);
    }

    fn wake(&self, _: &WaitSet) {
        self.own.wake(&self.bell);
    }
}

impl WaitSet {
    /// Sleeps until a file is ready, a wake-up, a signal or the timeout. If `mask` is given, it is the
    /// thread's signal mask during the sleep. Returns whether a signal handler ended the sleep.
    pub(crate) fn sleep_with(&self, timeout: Option<Duration>, mask: Option<&libc::sigset_t>) -> bool {
        let mut list: SmallVec<[libc::pollfd; 16]> =
            lock(&self.files).iter().map(|(_, file)| *file).collect();
        let timeout = timeout.map(|length| libc::timespec {
            tv_sec: length.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: length.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list, the timeout and the mask outlive the call, which writes only to the list. A
        // closed descriptor is only reported in `revents`.
        let ready = unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout, mask) };
        // On an error the sleep ends early, which is allowed.
        if ready > 0 && list[0].revents != 0 {
            self.own.reset();
        }
        ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    }
}

/// Wakes a driver from another thread.
#[derive(Clone)]
pub struct Waker(Arc<WaitSet>);

impl Waker {
    /// Ends the driver's wait. The driver then checks whether it is done.
    pub fn wake(&self) {
        self.0.woken.set(true);
        self.0.ring();
    }
}
