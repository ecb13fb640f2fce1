//! Waiting until something can be read, or until a moment; and what cannot be guessed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
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

/// Lets time go by: for a pace that was promised, never to wait for somebody else. It may end early.
pub fn pace(length: Duration) {
    // What fails is as good as early.
    let _ = poll(&mut [], Some(&timespec(length)));
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system has no chance to lend.
pub fn secret<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
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

    #[test]
    fn secrets_differ() {
        assert_ne!(secret::<16>().expect("chance"), secret::<16>().expect("chance"));
    }
}
