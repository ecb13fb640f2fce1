//! Channels: queues of events for a program that may wait on a file.
//!
//! Purpose    provides a file that `poll`, `select` and `epoll` find readable exactly while an event is
//!            queued.
//! Mechanism  an eventfd used as a semaphore: adding an event adds one, taking an event takes one. Programs
//!            may make it non-blocking and use it in any event loop; they never read it themselves.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

/// A queue of events, and the file that is readable while it is not empty.
#[derive(Debug)]
pub struct Channel<T> {
    file: OwnedFd,
    events: Mutex<VecDeque<T>>,
}

impl<T> Channel<T> {
    /// Creates an empty channel. Like the kernel's, its file is blocking until the program changes that.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> io::Result<Channel<T>> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Channel { file, events: Mutex::default() })
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<T>> {
        kiban_os::lock(&self.events)
    }

    /// Adds an event, and makes the file readable.
    pub fn tell(&self, event: T) {
        let mut events = self.events();
        events.push_back(event);
        // This fails only if the counter is full, at 2^64 events.
        let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
    }

    /// Takes the next event, if there is one.
    pub fn take(&self) -> Option<T> {
        self.take_noting(&mut |_| ())
    }

    /// Takes an event like [`Channel::take`]. Calls `note` with the event while the channel is locked, so
    /// that each event is seen either by `note` or by [`Channel::forget`].
    pub fn take_noting(&self, note: &mut impl FnMut(&T)) -> Option<T> {
        let mut events = self.events();
        let event = events.pop_front()?;
        note(&event);
        self.uncount();
        Some(event)
    }

    /// Removes the events of an object that is destroyed.
    pub fn forget(&self, mut is_gone: impl FnMut(&T) -> bool) {
        let mut events = self.events();
        let before = events.len();
        events.retain(|event| !is_gone(event));
        (events.len()..before).for_each(|_| self.uncount());
    }

    /// Decrements the eventfd's counter. This does not block, because the counter equals the number of
    /// queued events.
    fn uncount(&self) {
        let _ = rustix::io::read(&self.file, &mut [0; 8]);
    }

    /// Returns whether the program has made the file non-blocking.
    pub fn is_nonblocking(&self) -> bool {
        fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// Returns the file descriptor, as programs see it.
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl<T> AsFd for Channel<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::Channel;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(channel: &Channel<u32>) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&none)) == Ok(1)
    }

    #[test]
    fn the_file_is_readable_exactly_while_events_wait() {
        let channel = Channel::new().expect("file descriptors are available");
        assert!(!is_readable(&channel) && channel.take().is_none());
        channel.tell(1);
        channel.tell(2);
        channel.tell(3);
        assert!(is_readable(&channel));
        assert_eq!(channel.take(), Some(1));
        channel.forget(|&event| event == 2);
        assert!(is_readable(&channel));
        assert_eq!(channel.take(), Some(3));
        assert!(!is_readable(&channel) && channel.take().is_none());
    }
}
