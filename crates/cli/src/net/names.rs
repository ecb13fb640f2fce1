//! This host's name servers, for the board.
//!
//! Purpose  `/etc/resolv.conf` changes when this host gets into another network. The first process reads it
//!          once a second, and sends the servers to the board, whose sandbox hides files that replace others.
//!          It does not use inotify, of which a user has few instances.
//! Limits   a file without name servers changes nothing: often, another one follows.

use super::options::host_name_servers;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;

/// The interval between two looks at the file.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Starts to follow changes. Returns the board's end of a socket, on which the servers arrive, now and after
/// each change.
///
/// # Errors
/// The system has no more files or threads.
pub(super) fn follow() -> io::Result<UnixDatagram> {
    let (own, of_board) = UnixDatagram::pair()?;
    let mut servers = Vec::new();
    let mut look = move |own: &UnixDatagram| -> io::Result<()> {
        let found = host_name_servers();
        if found != servers && !found.is_empty() {
            let words: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            own.send(words.join(" ").as_bytes())?;
            servers = found;
        }
        Ok(())
    };
    // The board can read the first list as soon as it has the socket.
    look(&own)?;
    let follow = move || {
        while look(&own).is_ok() {
            // Nothing arrives here, so this ends after the interval, or with the board.
            let mut polled = [PollFd::new(&own, PollFlags::empty())];
            if rustix::event::poll(&mut polled, Some(&LOOK)).is_ok_and(|count| count > 0) {
                break;
            }
        }
    };
    std::thread::Builder::new().name("names".into()).spawn(follow)?;
    Ok(of_board)
}
