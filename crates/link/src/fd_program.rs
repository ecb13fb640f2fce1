//! Programs that use both a board's host edge and file descriptors of the operating system: for example, to
//! connect a board's streams to the kernel's sockets.
//!
//! Trait            [`FdProgram`] is a [`Program`] with one file that is readable when there is work to do.
//!                  The driver sleeps on this file as well as on the links, and calls the program when the
//!                  file is ready.
//! Files            [`EpollSet`] combines many files into one: each is watched under a number,
//!                  level-triggered, for the events that the program can use now. A program that cannot use
//!                  any event removes the file, so that the driver does not spin.

use kiban_base::Instant;
use kiban_board::{Host, Program};
use kiban_os::wait::Doorbell;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of files that one call of [`EpollSet::ready`] reports.
pub const READY_MAX: usize = 64;

/// A program that also works with file descriptors of the operating system.
pub trait FdProgram: Program {
    /// Returns the file that is readable when there is work to do.
    fn file(&self) -> BorrowedFd<'_>;

    /// Returns whether there is work to do now.
    fn is_ready(&self) -> bool {
        is_readable(self.file())
    }

    /// Returns the bell that the driver arms before it sleeps. It is needed if the file signals some events
    /// only once the bell is armed.
    fn doorbell(&self) -> Option<Arc<dyn Doorbell + Send + Sync>> {
        None
    }

    /// Does a limited amount of pending work.
    fn on_file(&mut self, host: &mut Host<'_>, now: Instant);
}

fn is_readable(file: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&file, PollFlags::IN)];
    // If polling a file fails, the file counts as readable, so that the error is noticed.
    rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()))
        .map_or(true, |ready| ready > 0)
}

/// The events that a file is watched for. Hang-up and errors are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Watch for input, or for incoming connections to a listener.
    pub read: bool,
    /// Watch for room to write.
    pub write: bool,
}

impl Interest {
    /// Input only.
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

/// A set of files that is watched through one file (epoll).
#[derive(Debug)]
pub struct EpollSet(OwnedFd);

impl EpollSet {
    /// Returns an empty set.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<EpollSet> {
        Ok(EpollSet(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a file under a number. Closing the file ends the watch.
    ///
    /// # Errors
    /// The file cannot be watched.
    pub fn watch(&self, file: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, file, EventData::new_u64(number), interest.flags())?)
    }

    /// Changes the events that a file is watched for.
    ///
    /// # Errors
    /// The file is not watched.
    pub fn change(&self, file: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, file, EventData::new_u64(number), interest.flags())?)
    }

    /// Watches a file for the wanted events, or no longer; `watched` tells for which it has been.
    ///
    /// # Errors
    /// The file cannot be watched, or is not watched although `watched` says so.
    pub fn update(
        &self,
        file: impl AsFd,
        number: u64,
        watched: &mut Option<Interest>,
        wanted: Option<Interest>,
    ) -> io::Result<()> {
        match (*watched, wanted) {
            (old, new) if old == new => return Ok(()),
            (None, Some(wanted)) => self.watch(file, number, wanted)?,
            (Some(_), Some(wanted)) => self.change(file, number, wanted)?,
            (_, None) => self.forget(file)?,
        }
        *watched = wanted;
        Ok(())
    }

    /// Stops watching a file that stays open. A file watched for no events would still report its hang-up.
    ///
    /// # Errors
    /// The file is not watched.
    pub fn forget(&self, file: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, file)?)
    }

    /// Returns whether any file is ready now.
    pub fn has_ready(&self) -> bool {
        is_readable(self.as_fd())
    }

    /// Appends the numbers of files that are ready now, at most [`READY_MAX`].
    pub fn ready(&self, into: &mut Vec<u64>) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_MAX];
        // If the call fails, no file is reported.
        if let Ok((ready, _)) = epoll::wait(&self.0, &mut events, Some(&rustix::event::Timespec::default())) {
            into.extend(ready.iter().map(|event| event.data.u64()));
        }
    }
}

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
