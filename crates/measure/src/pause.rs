//! Waits until a socket is readable, or until a deadline.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Waits until a socket is readable, or has a connection to accept. Returns false on timeout.
///
/// # Errors
/// A system call failed.
pub fn readable(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut files = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut files, Some(&timespec(timeout))) {
        Ok(ready) => Ok(ready > 0),
        // On a signal, report that nothing is readable; the caller checks the time anyway.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of several sockets is readable, or has a connection to accept. Returns for each socket
/// whether it is ready.
///
/// # Errors
/// A system call failed.
pub fn readable_among(sockets: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut files: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    match poll(&mut files, Some(&timespec(timeout))) {
        Ok(_) => Ok(files.iter().map(|file| !file.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; sockets.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps, to pace transmissions. May return early, so it is not suitable for waiting for a peer.
pub fn pace(length: Duration) {
    // An error only shortens the sleep.
    let _ = poll(&mut [], Some(&timespec(length)));
}

fn timespec(length: Duration) -> Timespec {
    Timespec { tv_sec: length.as_secs().min(1 << 30) as i64, tv_nsec: i64::from(length.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_is_readable_once_a_peer_has_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        assert!(!readable(&listener, Duration::from_millis(1)).expect("a socket can be waited for"));
        let _caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        assert!(readable(&listener, Duration::from_secs(5)).expect("a socket can be waited for"));
    }
}
