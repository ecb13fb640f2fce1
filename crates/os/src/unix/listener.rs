//! A listening socket at a path.

use super::closing::{self, Closer};
use super::peer::{Peer, refuse_files};
use super::socket_path::SocketPath;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket at a path, accessible to this user and root.
#[derive(Debug)]
pub struct Listener {
    /// `Some` until it is closed.
    socket: Option<OwnedFd>,
    may_hold_files: bool,
    pub(super) closer: Closer,
    /// `Some` until it is removed.
    path: Option<SocketPath>,
}

impl Listener {
    /// Listens at a path. Replaces a socket that a killed process has left there.
    ///
    /// # Errors
    /// Another process listens there, another kind of file is there, or the file cannot be created.
    pub fn open(path: &Path, kind: SocketType) -> io::Result<Listener> {
        Listener::open_with(path, kind, refuse_files)
    }

    pub(super) fn open_with(
        path: &Path,
        kind: SocketType,
        refuse: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> io::Result<Listener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let may_hold_files = !refuse(socket.as_fd());
        let path = SocketPath::bind(socket.as_fd(), path)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket: Some(socket), may_hold_files, closer: Closer::default(), path: Some(path) })
    }

    /// Accepts the next caller that is this user or root; `None` if no caller waits.
    ///
    /// # Errors
    /// The system has no descriptor left, or too many files of peers wait to be closed. Both are temporary.
    pub fn accept(&self) -> io::Result<Option<Peer>> {
        closing::try_again();
        if self.may_hold_files && self.closer.is_full() {
            return Err(io::Error::other(
                "too many file descriptors received from peers are waiting to be closed",
            ));
        }
        let Some(socket) = &self.socket else { return Ok(None) };
        loop {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => match Peer::with(socket, self.may_hold_files, self.closer.clone()) {
                    Ok(peer) if peer.is_own_user_or_root() => return Ok(Some(peer)),
                    _ => {}
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether no unaccepted caller is left, and none can be added.
    fn is_clean(&self, socket: &OwnedFd) -> bool {
        if !self.may_hold_files {
            return true;
        }
        if rustix::net::shutdown(socket, Shutdown::Both).is_err() {
            return false;
        }
        for _ in 0..2 * BACKLOG {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => drop(Peer::with(socket, true, self.closer.clone())),
                // accept(2) fails with this error on a socket that was shut down and has no caller left; with
                // EAGAIN if the socket does not block.
                Err(Errno::INVAL | Errno::AGAIN) => return true,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.path = None;
        if let Some(socket) = self.socket.take() {
            match self.is_clean(&socket) {
                true => drop(socket),
                false => self.closer.close(socket),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is open until it is dropped").as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
