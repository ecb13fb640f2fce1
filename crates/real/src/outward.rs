//! Programs that stand at a board's host edge with one hand and at the system with the other: a board's streams and the kernel's.
//!
//! Trait     [`Outward`] is a [`Program`] with one file that can be read when there is something to do. The driver sleeps on it
//!           beside the links, and asks when it is ready.
//! Files     [`Files`] makes one file of many: each is watched under a number, level-triggered, for what the program can use
//!           now. Who can use nothing forgets the file, so that nothing spins.

use crate::wait::Doorbell;
use kiban_board::{Host, Program};
use kiban_ground::Instant;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Files that one look tells of at most.
pub const READY_MAX: usize = 64;

/// A program that works with files of the system, too.
pub trait Outward: Program {
    /// What can be read when there is something to do.
    fn file(&self) -> BorrowedFd<'_>;

    /// Whether there is something to do now.
    fn is_ready(&self) -> bool {
        is_readable(self.file())
    }

    /// What the driver arms before it sleeps, where something may turn up that no file tells of until then.
    fn doorbell(&self) -> Option<Arc<dyn Doorbell + Send + Sync>> {
        None
    }

    /// There is something to do: a bounded part of it.
    fn on_file(&mut self, host: &mut Host<'_>, now: Instant);
}

fn is_readable(file: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&file, PollFlags::IN)];
    // What fails is looked at.
    rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()))
        .map_or(true, |ready| ready > 0)
}

/// What a file is watched for. Its end and its errors are always told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// That there is something to read, or somebody who calls.
    pub read: bool,
    /// That there is room to write.
    pub write: bool,
}

impl Interest {
    /// To read.
    pub const READ: Interest = Interest { read: true, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.read {
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if self.write {
            flags |= EventFlags::OUT;
        }
        flags
    }
}

/// Many files, watched as one.
#[derive(Debug)]
pub struct Files(OwnedFd);

impl Files {
    /// None yet.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<Files> {
        Ok(Files(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a file under a number. Closing the file ends it.
    ///
    /// # Errors
    /// It is none that can be watched.
    pub fn watch(&self, file: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, file, EventData::new_u64(number), interest.flags())?)
    }

    /// Watches it for something else.
    ///
    /// # Errors
    /// It is not watched.
    pub fn change(&self, file: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, file, EventData::new_u64(number), interest.flags())?)
    }

    /// Watches it no more, though it stays open: one that is watched for nothing would still tell of its end.
    ///
    /// # Errors
    /// It is not watched.
    pub fn forget(&self, file: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, file)?)
    }

    /// Whether any is ready now.
    pub fn has_ready(&self) -> bool {
        is_readable(self.as_fd())
    }

    /// The numbers of files that are ready now, [`READY_MAX`] at most.
    pub fn ready(&self, into: &mut Vec<u64>) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_MAX];
        // Errors are early ends.
        if let Ok((ready, _)) = epoll::wait(&self.0, &mut events, Some(&rustix::event::Timespec::default())) {
            into.extend(ready.iter().map(|event| event.data.u64()));
        }
    }
}

impl AsFd for Files {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
