//! How the driver of a turn sleeps, and what wakes it.
//!
//! Purpose          one sleep for all events: files, bells in memory, calls of other threads, deadlines.
//! Order            arm all bells, look, sleep on the epoll, disarm, look ([`crate::wait`]). An event between
//!                  arming and sleeping has either rung a bell, or the machine [has
//!                  more](super::Machine::has_more): no wake-up is lost.
//! Limits           which file caused the wake-up is not reported: the machine checks all its files, or
//!                  watches an epoll of its own.

use crate::clock::machine_nanos;
use crate::wait::{EventSleeper, Sleeper};
use kiban_base::Bell;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What wakes the driver: the machine's files, and the turn's own bell.
pub(super) struct Doors {
    epoll: OwnedFd,
    own: EventSleeper,
    pub(super) bell: Bell,
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

    /// Wakes the driver from another thread of the process.
    pub(super) fn wake(&self) {
        if self.bell.ring(machine_nanos) {
            self.own.wake(&self.bell);
        }
    }
}

/// Watches a file for input or hang-up, edge-triggered if `edges`, otherwise level-triggered.
pub fn watch(epoll: &OwnedFd, file: BorrowedFd<'_>, edges: bool) -> io::Result<()> {
    let edge = if edges { EventFlags::ET } else { EventFlags::empty() };
    Ok(epoll::add(epoll, file, EventData::new_u64(0), EventFlags::IN | EventFlags::RDHUP | edge)?)
}
