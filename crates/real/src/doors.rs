//! The doors of whoever drives links: what it sleeps on, all at once, and how others wake it.
//!
//! Sleep     on the files of links and programs, by any policy of waiting. Files are watched only meanwhile: a file that stands on
//!           somebody's list all the time (epoll) costs whoever makes it ready a call for every packet, sleeper or not.
//! Bells     of others in memory are armed with the own one.
//! Wake      [`Waker`], from any thread: a flag, and an event if somebody sleeps.

use crate::clock::machine_nanos;
use crate::wait::{Doorbell, EventSleeper, Sleeper};
use kiban_ground::Bell;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose file it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Link(usize),
    Program,
}

/// Bells of others.
type Others = Vec<Arc<dyn Doorbell + Send + Sync>>;

/// What wakes a driver.
pub(crate) struct Doors {
    own: EventSleeper,
    /// The first is its own.
    files: Mutex<Vec<(Whose, libc::pollfd)>>,
    bell: Bell,
    others: Mutex<Others>,
    /// Whether somebody wants it to look around.
    woken: AtomicBool,
}

fn held<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nobody panics in the midst of a change.
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Doors {
    pub(crate) fn new() -> io::Result<Arc<Doors>> {
        let doors = Doors {
            own: EventSleeper::new()?,
            files: Mutex::default(),
            bell: Bell::default(),
            others: Mutex::default(),
            woken: AtomicBool::new(false),
        };
        doors.watch(Whose::Own, doors.own.as_fd());
        Ok(Arc::new(doors))
    }

    fn watch(&self, whose: Whose, file: BorrowedFd<'_>) {
        let file = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        held(&self.files).push((whose, file));
    }

    /// Wakes when a link's file can be read, in place of the link that was there; until it is forgotten.
    pub(crate) fn watch_link(&self, number: usize, file: Option<BorrowedFd<'_>>) {
        self.forget(number);
        if let Some(file) = file {
            self.watch(Whose::Link(number), file);
        }
    }

    /// Wakes when a program has something to do, for good.
    pub(crate) fn watch_program(&self, file: BorrowedFd<'_>, bell: Option<Arc<dyn Doorbell + Send + Sync>>) {
        self.watch(Whose::Program, file);
        held(&self.others).extend(bell);
    }

    /// Wakes also, or no more, when a link can be written to.
    pub(crate) fn watch_room(&self, number: usize, wanted: bool) {
        let events = if wanted { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        let mut files = held(&self.files);
        let of_link = files.iter_mut().filter(|(whose, _)| *whose == Whose::Link(number));
        of_link.for_each(|(_, file)| file.events = events);
    }

    /// Before a link's file is closed.
    pub(crate) fn forget(&self, number: usize) {
        held(&self.files).retain(|(whose, _)| *whose != Whose::Link(number));
    }

    /// Whether somebody wanted it to look around since it was last asked.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Whether somebody wants that, without taking the wish.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    pub(crate) fn waker(doors: &Arc<Doors>) -> Waker {
        Waker(doors.clone())
    }
}

impl Doorbell for Doors {
    fn arm(&self) {
        held(&self.others).iter().for_each(|other| other.arm());
        self.bell.arm();
    }

    fn disarm(&self) -> Option<u64> {
        let others = held(&self.others).iter().filter_map(|other| other.disarm()).min();
        self.bell.disarm().into_iter().chain(others).min()
    }
}

impl Sleeper<Doors> for Doors {
    fn sleep(&self, _: &Doors, timeout: Option<Duration>) {
        let mut list: SmallVec<[libc::pollfd; 16]> =
            held(&self.files).iter().map(|(_, file)| *file).collect();
        let timeout = timeout.map(|length| libc::timespec {
            tv_sec: length.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: length.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list and the length live for the call, which writes to the list alone. A number that is no file's is answered.
        let ready =
            unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, timeout, std::ptr::null()) };
        // Errors are early ends.
        if ready > 0 && list[0].revents != 0 {
            self.own.hear();
        }
    }

    fn wake(&self, _: &Doors) {
        self.own.wake(&self.bell);
    }
}

/// Wakes a driver from another thread.
#[derive(Clone)]
pub struct Waker(Arc<Doors>);

impl Waker {
    /// The driver ends its wait, and asks whether it is done.
    pub fn wake(&self) {
        self.0.woken.store(true, Ordering::Release);
        if self.0.bell.ring(machine_nanos) {
            self.0.own.wake(&self.0.bell);
        }
    }
}
