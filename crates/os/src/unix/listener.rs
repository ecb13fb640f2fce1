//! A listening socket, and the lock file beside it.

use super::closing::{self, Closer};
use super::peer::{Peer, refuse_files, with_address};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Maximum number of attempts to take a lock file that other processes keep removing.
const LOCKS_MAX: usize = 16;
/// Age from which a lock file that nobody holds is stale. A process that is about to lock its new file would
/// otherwise find it locked by [`remove_stale`].
const STALE_AGE: Duration = Duration::from_secs(60);

/// A listening socket at a path, accessible to this user and root.
#[derive(Debug)]
pub struct Listener {
    /// `Some` until it is closed.
    socket: Option<OwnedFd>,
    may_hold_files: bool,
    pub(super) closer: Closer,
    path: PathBuf,
    lock: PathBuf,
    /// The lock file, locked as long as the socket exists.
    _locked: OwnedFd,
}

impl Listener {
    /// Listens at a path. Replaces a socket that a killed process has left there.
    ///
    /// # Errors
    /// Another process listens there, or the file cannot be created.
    pub fn open(path: &Path, kind: SocketType) -> io::Result<Listener> {
        Listener::open_with(path, kind, refuse_files)
    }

    pub(super) fn open_with(
        path: &Path,
        kind: SocketType,
        refuse: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> io::Result<Listener> {
        let mut lock = OsString::from(path);
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let locked = take_lock(&lock)?;
        let listener = Listener::bind(path, kind, refuse);
        match listener {
            Ok((socket, may_hold_files)) => {
                let (path, closer) = (path.to_owned(), Closer::default());
                Ok(Listener { socket: Some(socket), may_hold_files, closer, path, lock, _locked: locked })
            }
            Err(error) => {
                let _ = std::fs::remove_file(lock);
                Err(error)
            }
        }
    }

    fn bind(
        path: &Path,
        kind: SocketType,
        refuse: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> io::Result<(OwnedFd, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let may_hold_files = !refuse(socket.as_fd());
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        with_address(path, |address| rustix::net::bind(&socket, address))?;
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((socket, may_hold_files))
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
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.path);
        if let Some(socket) = self.socket.take() {
            match self.is_clean(&socket) {
                true => drop(socket),
                false => self.closer.close(socket),
            }
        }
        let _ = std::fs::remove_file(&self.lock);
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

/// Removes the sockets and lock files of shared-memory names (`*.shm`) whose processes have ended without
/// closing their listeners: processes that were killed, and programs that called exit(3) before they
/// destroyed their queue pairs. Most such names are never used again, so nothing else would remove their
/// files.
///
/// A process holds its lock as long as its socket exists. While the lock is held here, no other process can
/// listen at the name.
pub(crate) fn remove_stale(folder: &Path) {
    // On an error, files remain until the next process removes them.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let lock = entry.path();
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if lock.to_string_lossy().ends_with(".shm.lock")
            && age().is_some_and(|age| age >= STALE_AGE)
            && let Ok(_locked) = take_lock(&lock)
        {
            let _ = std::fs::remove_file(lock.with_extension(""));
            let _ = std::fs::remove_file(&lock);
        }
    }
}

/// Takes the lock file beside a path. The lock ends with the process that holds it.
fn take_lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let in_use = || io::Error::new(io::ErrorKind::AddrInUse, "another process listens there");
    for _ in 0..LOCKS_MAX {
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use()),
            Err(error) => return Err(error.into()),
        }
        // The previous holder may have removed the file after it was opened here.
        let (own, there) = (rustix::fs::fstat(&file)?, rustix::fs::lstat(path));
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)) {
            return Ok(file);
        }
    }
    Err(in_use())
}
