//! Waiting until something can be read, or until a moment.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Waits until a socket can be read, or has a connection to accept; false: not within `timeout`.
///
/// # Errors
/// The system's.
pub fn readable(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut files = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut files, Some(&timespec(timeout))) {
        Ok(ready) => Ok(ready > 0),
        // Whoever waits looks at the time anyhow.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of some sockets can be read, or has a connection to accept; says of each whether it can be.
///
/// # Errors
/// The system's.
pub fn readable_among(sockets: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut files: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    match poll(&mut files, Some(&timespec(timeout))) {
        Ok(_) => Ok(files.iter().map(|file| !file.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; sockets.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Lets time go by: for a pace that was promised, never to wait for somebody else. It may end early.
pub fn pace(length: Duration) {
    // What fails is as good as early.
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
    fn a_listener_is_readable_once_somebody_called() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        assert!(!readable(&listener, Duration::from_millis(1)).expect("a socket can be waited for"));
        let _caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        assert!(readable(&listener, Duration::from_secs(5)).expect("a socket can be waited for"));
    }
}
