//! repoll: epoll(7) for rsockets and other files (as in librdmacm from rdma-core 65).
//!
//! State     a list of descriptors with the program's data. Waiting means rpoll() on the list.
//! Errors    repoll_ctl and repoll_wait return the errno itself, as in rdma-core.
//! Changes   to the list wake waiting threads through the list's own descriptor.
//! Limits    level-triggered only, as in rdma-core: EPOLLET and EPOLLONESHOT are ignored.

use super::poll::poll;
use core::ffi::c_int;
use kiban_os::lock;
use kiban_rdma_runtime::verbs::Channel;
use libc::{epoll_event, pollfd};
use std::sync::Mutex;
use std::time::Duration;

/// A list of descriptors.
pub(super) struct Repoll {
    /// Signalled when the list has changed.
    pub(super) changes: Channel<u64>,
    files: Mutex<Vec<(c_int, u32, u64)>>,
}

impl Repoll {
    pub(super) fn new() -> std::io::Result<Repoll> {
        Ok(Repoll { changes: Channel::new()?, files: Mutex::default() })
    }

    /// Implements epoll_ctl(2).
    pub(super) fn control(
        &self,
        operation: c_int,
        file: c_int,
        event: Option<epoll_event>,
    ) -> Result<(), c_int> {
        let mut files = lock(&self.files);
        let at = files.iter().position(|(known, ..)| *known == file);
        match (operation, at, event) {
            (libc::EPOLL_CTL_ADD, None, Some(event)) => files.push((file, event.events, event.u64)),
            (libc::EPOLL_CTL_ADD, Some(_), Some(_)) => return Err(libc::EEXIST),
            (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => files[at] = (file, event.events, event.u64),
            (libc::EPOLL_CTL_DEL, Some(at), _) => drop(files.swap_remove(at)),
            (libc::EPOLL_CTL_MOD, None, Some(_)) | (libc::EPOLL_CTL_DEL, None, _) => {
                return Err(libc::ENOENT);
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => return Err(libc::EFAULT),
            _ => return Err(libc::EINVAL),
        }
        drop(files);
        self.changes.tell(0);
        Ok(())
    }

    /// Implements epoll_wait(2).
    pub(super) fn wait(&self, room: &mut [epoll_event], timeout: Option<Duration>) -> Result<usize, c_int> {
        let clock = kiban_os::Clock::new();
        let started = clock.now();
        loop {
            let known = lock(&self.files).clone();
            // poll(2) and epoll(7) use the same bits for these events.
            let file = |fd, events: u32| pollfd { fd, events: events as i16, revents: 0 };
            let mut files: Vec<pollfd> = known.iter().map(|(fd, events, _)| file(*fd, *events)).collect();
            files.push(file(self.changes.number(), libc::POLLIN as u32));
            let left = timeout.map(|timeout| timeout.saturating_sub(clock.now().since(started)));
            poll(&mut files, left)?;
            let changed = files.pop().is_some_and(|file| file.revents != 0);
            while self.changes.take().is_some() {}
            let mut count = 0;
            let ready = files.iter().zip(known).filter(|(file, _)| file.revents != 0);
            for (place, (file, (.., data))) in room.iter_mut().zip(ready) {
                *place = epoll_event { events: file.revents as u16 as u32, u64: data };
                count += 1;
            }
            if count > 0 || !changed {
                return Ok(count);
            }
        }
    }
}
