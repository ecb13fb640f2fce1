//! Doors: how the driver of a turn sleeps, and what wakes it.
//!
//! Goal      one sleep for everything that may happen: files, bells in memory, calls of other threads, deadlines.
//! Order     arm all bells, look, sleep on the epoll, disarm, look ([`crate::wait`]). What turns up between arming and
//!           sleeping has either rung, or the machine [has more](super::Machine::has_more): no wake-up is lost.
//! Left out  which file woke it: the machine looks at all it has, or watches an epoll of its own.

use super::{Machine, Place, Shared, lock};
use crate::clock::machine_nanos;
use crate::wait::{Doorbell, EventSleeper, Sleeper};
use kiban_ground::{Bell, Instant};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What wakes the driver: the files of the machine, and the turn's own bell.
pub(super) struct Doors {
    epoll: OwnedFd,
    own: EventSleeper,
    bell: Bell,
}

impl Doors {
    pub(super) fn new() -> io::Result<Doors> {
        let doors = Doors {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            own: EventSleeper::new()?,
            bell: Bell::default(),
        };
        watch(&doors.epoll, doors.own.as_fd(), true)?;
        Ok(doors)
    }

    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Wakes the driver, from within the process.
    pub(super) fn wake(&self) {
        if self.bell.ring(machine_nanos) {
            self.own.wake(&self.bell);
        }
    }
}

/// Watches a file for something to read or its end: its edges, or its level.
pub(crate) fn watch(epoll: &OwnedFd, file: BorrowedFd<'_>, edges: bool) -> io::Result<()> {
    let edge = if edges { EventFlags::ET } else { EventFlags::empty() };
    Ok(epoll::add(epoll, file, EventData::new_u64(0), EventFlags::IN | EventFlags::RDHUP | edge)?)
}

impl<M: Machine, Q: Place> Doorbell for Shared<M, Q> {
    fn arm(&self) {
        lock(&self.held).machine.arm();
        self.doors.bell.arm();
    }

    fn disarm(&self) -> Option<u64> {
        let first = lock(&self.held).machine.disarm();
        // The first that was rung is what ended the sleep.
        self.doors.bell.disarm().into_iter().chain(first).min()
    }
}

impl<M: Machine, Q: Place> Sleeper<Shared<M, Q>> for Shared<M, Q> {
    fn sleep(&self, _: &Shared<M, Q>, mut timeout: Option<Duration>) {
        {
            let mut held = lock(&self.held);
            // A turn has its bound: what it left is not announced again. Nor does a bell ring that came after the others
            // were armed.
            if held.machine.has_more() {
                return;
            }
            let now = self.clock.now();
            let until = timeout.map_or(Instant::NEVER, |timeout| now + timeout);
            // What has arrived meanwhile may have set a clock.
            held.sleeps_until = until.min(held.machine.deadline());
            timeout = (held.sleeps_until != Instant::NEVER).then(|| held.sleeps_until.since(now));
        }
        super::signals::sleep(&self.doors.epoll, timeout.map(crate::wait::timespec).as_ref());
        let mut held = lock(&self.held);
        held.sleeps_until = Instant::ZERO;
        held.recent.1 = 0;
        held.machine.after_sleep();
    }

    fn wake(&self, _: &Shared<M, Q>) {
        self.doors.wake();
    }
}
