//! The path of a bound socket, and the lock file beside it.
//!
//! Purpose          one process at a time binds a socket to a path; a socket that an ended process has left
//!                  is replaced, and a file of another program never is.
//! Lock             a process holds the lock file as long as its socket exists, and removes or replaces a
//!                  socket only while it holds the lock. The lock ends with the process.
//! Probe            other programs do not use the lock. So a socket is removed only if connecting to it shows
//!                  that no process is bound to it.

use super::peer::with_address;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ending of the names of lock files. No other program uses it, so these files may be removed.
const LOCK_ENDING: &str = ".kiban-lock";
/// Maximum number of attempts to take a lock file that other processes keep removing.
const LOCKS_MAX: usize = 16;
/// Age from which a lock file that nobody holds is stale. A process that is about to lock its new file would
/// otherwise find it locked by [`remove_stale`].
const STALE_AGE: Duration = Duration::from_secs(60);

/// The path of a bound socket, accessible to this user and root. The socket is removed from it on drop.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// Device and inode. They are not used again as long as the socket is open.
    file: Option<(u64, u64)>,
    lock: PathBuf,
    /// The lock file, locked as long as the socket exists.
    _locked: OwnedFd,
}

impl SocketPath {
    /// Binds a socket to a path. Replaces a socket that a killed process has left there.
    ///
    /// # Errors
    /// Another process has a socket there, another kind of file is there, or the file cannot be created.
    pub fn bind(socket: BorrowedFd<'_>, path: &Path) -> io::Result<SocketPath> {
        let lock = lock_path(path);
        let locked = take_lock(&lock)?;
        let mut bound = SocketPath { path: path.to_owned(), file: None, lock, _locked: locked };
        remove_unbound(path)?;
        // The file gets the socket's mode, so nobody else can connect to it at any time.
        rustix::fs::fchmod(socket, Mode::RUSR | Mode::WUSR)?;
        with_address(path, |address| rustix::net::bind(socket, address))?;
        bound.file = identity(path);
        Ok(bound)
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // The file may have been removed already, or another program's socket be there. A sandbox may forbid
        // this; the next socket at the path then replaces this one.
        if self.file.is_some() && self.file == identity(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
        let _ = std::fs::remove_file(&self.lock);
    }
}

/// Removes the socket and the lock file of a process that has ended without removing them.
///
/// # Errors
/// Another process has a socket at the path, another kind of file is there, or it cannot be removed.
pub fn remove_abandoned(path: &Path) -> io::Result<()> {
    let lock = lock_path(path);
    let _locked = take_lock(&lock)?;
    let removed = remove_unbound(path);
    let _ = std::fs::remove_file(lock);
    removed
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
        let name = lock.to_string_lossy();
        if name.strip_suffix(LOCK_ENDING).is_some_and(|name| name.ends_with(".shm"))
            && age().is_some_and(|age| age >= STALE_AGE)
            && let Ok(_locked) = take_lock(&lock)
        {
            let _ = std::fs::remove_file(lock.with_extension(""));
            let _ = std::fs::remove_file(&lock);
        }
    }
}

/// Returns the path of the lock file beside a socket.
fn lock_path(path: &Path) -> PathBuf {
    let mut lock = OsString::from(path);
    lock.push(LOCK_ENDING);
    PathBuf::from(lock)
}

/// Returns the device and the inode of the file at a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Removes a socket from its path if no process is bound to it. The caller holds the lock.
fn remove_unbound(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(about) if !about.file_type().is_socket() => {
            let message = "a file that is not a socket is there";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        about => about?,
    };
    // A listener does not notice a connect of a socket of another type: it fails with EPROTOTYPE, or with
    // ECONNREFUSED if no process has the socket. A socket of datagrams gets nothing either.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let probed = with_address(path, |address| Ok(rustix::net::connect(&probe, address)))?;
    match probed {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // EPERM: the other socket is connected to a third one.
        Ok(()) | Err(Errno::PROTOTYPE | Errno::PERM) => Err(in_use()),
        Err(error) => Err(error.into()),
    }
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")
}

/// Takes the lock file beside a path. The lock ends with the process that holds it.
fn take_lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    for _ in 0..LOCKS_MAX {
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use()),
            Err(error) => return Err(error.into()),
        }
        // The previous holder may have removed the file after it was opened here.
        let own = rustix::fs::fstat(&file)?;
        if identity(path) == Some((own.st_dev, own.st_ino)) {
            return Ok(file);
        }
    }
    Err(in_use())
}
