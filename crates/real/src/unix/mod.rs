//! Unix sockets of peers that are not trusted.
//!
//! Threat    a peer may send open files with its bytes (SCM_RIGHTS, unix(7)). Whoever drops the last reference to such a file
//!           closes it, and that may take as long as the sender chose ([`closing`]). Files are dropped by recv(2) without
//!           room for them, by recv(2) of what follows out-of-band data, by close(2) of a socket in which they wait, and by
//!           close(2) of a listener with connections in which they wait.
//! Receive   [`Peer`] looks before it takes. MSG_PEEK adds references and never drops the last one; where it finds a file that is
//!           not wanted, nothing is taken and the call fails. SO_OOBINLINE shows what is sent out of band, too.
//! Close     a socket is shut down, so that nothing more arrives, and emptied in the same way. One in which a file waits goes to
//!           [`closing`]. So no call here waits for anybody, and honest peers cost no thread.
//! Refuse    where no file is wanted the system is asked to let none in (SO_PASSRIGHTS, Linux 6.16): then sendmsg(2) fails
//!           at the peer.
//! Memory    the only files that are wanted: memfds of shmem ([`is_plain_memory`]).
//! Tasks     of a runtime have [`Callers`] and [`Caller`].
//! Names     paths in directories of one user ([`names`]); a listener holds a lock beside its path.
//! Who       the user of this process, and root (SO_PEERCRED).
//! Limits    Linux before 6.10 closes files of sockets that were sent into each other on whatever thread closes a socket next.

pub mod closing;
pub mod names;
mod tasks;

pub use tasks::{Caller, Callers};

#[cfg(test)]
mod tests;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType,
};
use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Bytes that are read at once from a socket that is closed, and how often.
const DRAIN_BYTES: usize = 16 << 10;
const DRAINS_MAX: usize = 64;
/// How often a lock is taken again that was removed meanwhile.
const LOCKS_MAX: usize = 16;
/// `SO_PASSRIGHTS` of Linux 6.16, which libc does not have.
const SO_PASSRIGHTS: libc::c_int = 83;
/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Whether a file is memory that stays: a memfd of shmem, in which a hole reads as zeros.
///
/// One of huge pages (MFD_HUGETLB) is none: the seal against shrinking lets holes be punched into it, and who then touches such a
/// page when the system has no other is killed (SIGBUS).
pub fn is_plain_memory(file: BorrowedFd<'_>) -> bool {
    // First, as no file system is asked for it: other files have no seals, and may be of one that does not answer.
    let has_seals = rustix::fs::fcntl_get_seals(file).is_ok();
    has_seals && rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 == TMPFS_MAGIC)
}

/// Has the system refuse files that are sent to a socket, and to those that a listener accepts: whether it does.
fn refuse_files(socket: BorrowedFd<'_>) -> bool {
    let off: libc::c_int = 0;
    // SAFETY: an option of the length of a number, which is read.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    set == 0
}

/// Calls `work` with the address of a path. One that is too long for an address is reached by its directory.
fn with_address<T>(
    path: &Path,
    work: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<T>,
) -> io::Result<T> {
    match (SocketAddrUnix::new(path), path.parent(), path.file_name()) {
        (Err(Errno::NAMETOOLONG), Some(folder), Some(name)) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(folder, flags, Mode::empty())?;
            let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
            Ok(work(&SocketAddrUnix::new(&short)?)?)
        }
        (address, ..) => Ok(work(&address?)?),
    }
}

/// A socket whose other end is not trusted. No call on it blocks.
#[derive(Debug)]
pub struct Peer {
    /// Until it is closed.
    socket: Option<OwnedFd>,
    kind: SocketType,
    /// Whether files may wait in it.
    may_hold_files: bool,
    /// Who looks is who takes.
    turn: Mutex<()>,
}

impl Peer {
    /// Takes a socket of this process's making, before its other end is anybody else's.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: OwnedFd) -> io::Result<Peer> {
        let may_hold_files = !refuse_files(socket.as_fd());
        Peer::with(socket, may_hold_files)
    }

    fn with(socket: OwnedFd, may_hold_files: bool) -> io::Result<Peer> {
        let prepared = rustix::net::sockopt::socket_type(&socket).and_then(|kind| {
            rustix::net::sockopt::set_socket_oobinline(&socket, true)?;
            Ok(kind)
        });
        match prepared {
            Ok(kind) => Ok(Peer { socket: Some(socket), kind, may_hold_files, turn: Mutex::new(()) }),
            Err(error) => {
                closing::close(socket);
                Err(error.into())
            }
        }
    }

    /// Connects to a listener, without ever waiting for it to accept.
    ///
    /// # Errors
    /// Nobody listens there, or its callers are too many.
    pub fn connect(path: &Path, kind: SocketType) -> io::Result<Peer> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let may_hold_files = !refuse_files(socket.as_fd());
        with_address(path, |address| rustix::net::connect(&socket, address))?;
        Peer::with(socket, may_hold_files)
    }

    /// Whether the other end is a process of this user's, or of root's.
    pub fn is_ours(&self) -> bool {
        let own = rustix::process::geteuid();
        rustix::net::sockopt::socket_peercred(self).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }

    /// Receives bytes, or a packet; zero is the end, or an empty packet.
    ///
    /// # Errors
    /// Nothing is there (`WouldBlock`); the peer sends files (`InvalidData`): then nothing more can be received.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        if !self.may_hold_files {
            return self.take(into);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let length = self.peek(into)?;
        match (length, self.kind) {
            // The end has been seen; there is nothing to take.
            (0, SocketType::STREAM) => Ok(0),
            _ => self.take(&mut into[..length]),
        }
    }

    /// Receives bytes with which one file comes, which has to be memory ([`is_plain_memory`]).
    ///
    /// # Errors
    /// As [`Peer::receive`]; anything else comes with them, or nothing does.
    pub fn receive_memory(&self, into: &mut [u8]) -> io::Result<(usize, OwnedFd)> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let seen = rustix::net::recvmsg(self, &mut [IoSliceMut::new(into)], &mut control, flags)?;
        let mut files: Vec<OwnedFd> = Vec::new();
        for one in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = one {
                files.extend(rights);
            }
        }
        let is_whole = !seen.flags.contains(ReturnFlags::CTRUNC);
        if seen.bytes > 0
            && is_whole
            && let [file] = &files[..]
            && is_plain_memory(file.as_fd())
        {
            // The reference that waited is dropped here, and is not the last one.
            let length = self.take(&mut into[..seen.bytes])?;
            let memory = files.pop().ok_or(io::ErrorKind::InvalidData)?;
            return Ok((length, memory));
        }
        files.into_iter().for_each(closing::close);
        if seen.bytes == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let message = "expected exactly one shared-memory descriptor (a memfd)";
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Sees how many bytes there are, up to a first file.
    fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut control = RecvAncillaryBuffer::default();
        let seen = rustix::net::recvmsg(self, &mut [IoSliceMut::new(into)], &mut control, flags)?;
        if seen.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a descriptor, where none is taken"));
        }
        Ok(seen.bytes)
    }

    fn take(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, into, RecvFlags::DONTWAIT)?.0)
    }

    /// Whether closing it drops no file: nothing arrives any more, and no file has.
    fn is_clean(&self) -> bool {
        if !self.may_hold_files {
            return true;
        }
        // The end of packets looks like an empty one.
        if self.kind != SocketType::STREAM || rustix::net::shutdown(self, Shutdown::Both).is_err() {
            return false;
        }
        let mut bytes = [0; DRAIN_BYTES];
        for _ in 0..DRAINS_MAX {
            match self.receive(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                // An honest caller whose call nobody has taken yet: its memory is closed without waiting.
                Err(_) if self.receive_memory(&mut bytes).is_ok() => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let is_clean = self.is_clean();
        match self.socket.take() {
            Some(socket) if !is_clean => {
                // Its peer hears of the end now.
                let _ = rustix::net::shutdown(&socket, Shutdown::Both);
                closing::close(socket);
            }
            clean => drop(clean),
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is open until it is dropped").as_fd()
    }
}

impl AsRawFd for Peer {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Where peers call: a socket at a path, for this user and root.
#[derive(Debug)]
pub struct Listener {
    /// Until it is closed.
    socket: Option<OwnedFd>,
    may_hold_files: bool,
    path: PathBuf,
    lock: PathBuf,
    /// Held as long as the socket is there.
    _locked: OwnedFd,
}

impl Listener {
    /// Listens at a path. What a killed process has left there makes way; `takes_memory`: peers send memory.
    ///
    /// # Errors
    /// Another process listens there, or the file cannot be made.
    pub fn open(path: &Path, kind: SocketType, takes_memory: bool) -> io::Result<Listener> {
        let mut lock = OsString::from(path);
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let locked = take_lock(&lock)?;
        let listener = Listener::bind(path, kind, takes_memory);
        match listener {
            Ok((socket, may_hold_files)) => {
                let path = path.to_owned();
                Ok(Listener { socket: Some(socket), may_hold_files, path, lock, _locked: locked })
            }
            Err(error) => {
                let _ = std::fs::remove_file(lock);
                Err(error)
            }
        }
    }

    fn bind(path: &Path, kind: SocketType, takes_memory: bool) -> io::Result<(OwnedFd, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let may_hold_files = takes_memory || !refuse_files(socket.as_fd());
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        with_address(path, |address| rustix::net::bind(&socket, address))?;
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((socket, may_hold_files))
    }

    /// Accepts the next caller of this user's or of root's; `None`: nobody calls.
    ///
    /// # Errors
    /// The system has no file left, or too many files of peers wait to be closed: it passes.
    pub fn accept(&self) -> io::Result<Option<Peer>> {
        if closing::is_full() {
            return Err(io::Error::other("too many files of peers wait to be closed"));
        }
        let Some(socket) = &self.socket else { return Ok(None) };
        loop {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => match Peer::with(socket, self.may_hold_files) {
                    Ok(peer) if peer.is_ours() => return Ok(Some(peer)),
                    _ => {}
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether nobody is left who called and was not accepted: nobody more can call.
    fn is_clean(&self, socket: &OwnedFd) -> bool {
        if !self.may_hold_files {
            return true;
        }
        if rustix::net::shutdown(socket, Shutdown::Both).is_err() {
            return false;
        }
        for _ in 0..2 * BACKLOG {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => drop(Peer::with(socket, true)),
                // What a socket says that was shut down, and has nobody: the latter where it does not block.
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
        // It may have been cleared away already.
        let _ = std::fs::remove_file(&self.path);
        if let Some(socket) = self.socket.take() {
            match self.is_clean(&socket) {
                true => drop(socket),
                false => closing::close(socket),
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

/// Takes the lock that stands beside a path, which goes with the process that holds it.
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
        // Who held it before may have removed it after it was opened here.
        let (own, there) = (rustix::fs::fstat(&file)?, rustix::fs::lstat(path));
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)) {
            return Ok(file);
        }
    }
    Err(in_use())
}
