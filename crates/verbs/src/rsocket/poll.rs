//! rpoll and rselect: poll(2) and select(2) for any mixture of rsockets and other descriptors.
//!
//! How       [`Socket::ready`] reports the events of an rsocket. While none is ready, the thread sleeps in
//!           poll(2), from which the rsockets' descriptors wake it.
//! Wake-ups  checking a socket consumes the wake-up of its descriptor and wakes other threads that sleep
//!           here. Two such threads could consume each other's wake-ups, so no sleep is longer than
//!           [`SLEEP_MAX`].

use super::socket::Socket;
use super::world::{self, Descriptor};
use core::ffi::c_int;
use kiban_os::Clock;
use libc::{nfds_t, pollfd};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep between two checks.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How long to poll before sleeping.
const SPIN: Duration = Duration::from_micros(20);

/// Returns the rsockets among descriptors.
fn sockets(files: &[pollfd]) -> Vec<Option<Arc<Socket>>> {
    let socket = |file: &pollfd| match world::find(file.fd) {
        Ok(Descriptor::Socket(socket)) => Some(socket),
        _ => None,
    };
    files.iter().map(socket).collect()
}

/// Sets the rsockets' events. Returns how many rsockets are ready.
fn poll_rsockets(files: &mut [pollfd], sockets: &[Option<Arc<Socket>>], own: usize) -> usize {
    let mut count = 0;
    for (file, socket) in files.iter_mut().zip(sockets) {
        if let Some(socket) = socket {
            file.revents = socket.ready(file.events, own);
            count += usize::from(file.revents != 0);
        }
    }
    count
}

/// Calls poll(2) on the other descriptors and, unless `timeout` is 0, also on the rsockets' descriptors,
/// which only serve to wake the thread. Returns how many of the other descriptors are ready.
fn poll_system(
    files: &mut [pollfd],
    sockets: &[Option<Arc<Socket>>],
    timeout: c_int,
) -> Result<usize, c_int> {
    let mut polled: Vec<pollfd> = files.to_vec();
    for (file, socket) in polled.iter_mut().zip(sockets) {
        if socket.is_some() {
            file.events = libc::POLLIN;
            // poll(2) ignores negative descriptors.
            file.fd = if timeout == 0 { -1 } else { file.fd };
        }
    }
    // SAFETY: `polled` is a vector of this length.
    if unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as nfds_t, timeout) } < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINTR));
    }
    let mut count = 0;
    for ((file, polled), socket) in files.iter_mut().zip(polled).zip(sockets) {
        if socket.is_none() {
            file.revents = polled.revents;
            count += usize::from(file.revents != 0);
        }
    }
    Ok(count)
}

/// Implements poll(2); `None` means no time limit.
pub(super) fn poll(files: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, c_int> {
    let sockets = sockets(files);
    if sockets.iter().all(Option::is_none) {
        let wait = timeout.map_or(-1, |timeout| c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX));
        return poll_system(files, &sockets, wait);
    }
    let clock = Clock::new();
    let started = clock.now();
    let only = sockets.iter().all(Option::is_some);
    loop {
        let count =
            poll_rsockets(files, &sockets, 0) + if only { 0 } else { poll_system(files, &sockets, 0)? };
        let passed = clock.now().since(started);
        if count > 0 || timeout.is_some_and(|timeout| passed >= timeout) {
            return Ok(count);
        }
        if passed < SPIN {
            continue;
        }
        // From now on, a thread that takes events from these sockets wakes this thread.
        for socket in sockets.iter().flatten() {
            socket.sleepers.enter();
            Socket::arm(&socket.inner());
        }
        let mut slept = Ok(0);
        if poll_rsockets(files, &sockets, 1) == 0 {
            let left = timeout.map_or(SLEEP_MAX, |timeout| timeout.saturating_sub(passed).min(SLEEP_MAX));
            // Sleep at least one millisecond, because 0 would not sleep.
            slept = poll_system(files, &sockets, (left.as_millis() as c_int).max(1));
        }
        for socket in sockets.iter().flatten() {
            socket.sleepers.leave();
        }
        slept?;
    }
}

/// Returns whether a set of select(2) contains a descriptor; a null set contains none.
///
/// # Safety
/// `set` is null or a valid set.
unsafe fn has(set: *const libc::fd_set, file: c_int) -> bool {
    // SAFETY: the caller guarantees that the set is valid; `file` is below FD_SETSIZE, as `select` checks.
    !set.is_null() && unsafe { libc::FD_ISSET(file, set) }
}

/// Implements select(2).
///
/// # Safety
/// Each set is null or valid for reads and writes.
pub(super) unsafe fn select(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    timeout: Option<Duration>,
) -> Result<c_int, c_int> {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return Err(libc::EINVAL);
    }
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let mut files = Vec::new();
    for fd in 0..count {
        // SAFETY: the caller of `select` guarantees that each set is null or valid; `fd` is below FD_SETSIZE.
        let wanted = sets.iter().zip(EVENTS).filter(|(set, _)| unsafe { has(**set, fd) });
        let events = wanted.fold(0, |events, (_, event)| events | event);
        if events != 0 {
            files.push(pollfd { fd, events, revents: 0 });
        }
    }
    poll(&mut files, timeout)?;
    if files.iter().any(|file| file.revents & libc::POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    // select(2): a descriptor with an error or hang-up is readable and writable.
    let over = libc::POLLHUP | libc::POLLERR;
    let mut ready = 0;
    for (set, event) in sets.into_iter().zip(EVENTS).filter(|(set, _)| !set.is_null()) {
        let also = if event == libc::POLLPRI { 0 } else { over };
        for file in &files {
            // SAFETY: the caller of `select` guarantees that each set is null or valid; the descriptor came
            // from one of the sets, so it is below FD_SETSIZE.
            unsafe {
                if has(set, file.fd) {
                    if file.revents & (event | also) != 0 {
                        ready += 1;
                    } else {
                        libc::FD_CLR(file.fd, set);
                    }
                }
            }
        }
    }
    Ok(ready)
}
