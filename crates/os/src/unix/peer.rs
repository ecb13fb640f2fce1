//! A connected socket with an untrusted peer.

use super::closing::Closer;
use crate::{lock, socket_option};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Bytes per read from a socket that is being closed, and the maximum number of such reads.
const DRAIN_BYTES: usize = 16 << 10;
const DRAINS_MAX: usize = 64;
/// Most files in a message (`SCM_MAX_FD` of Linux).
const FILES_MAX: usize = 253;
/// `SO_PASSRIGHTS` of Linux 6.16, which the libc crate does not define.
const SO_PASSRIGHTS: libc::c_int = 83;
/// `SIOCATMARK` of asm-generic/sockios.h, which the libc crate does not define.
const SIOCATMARK: libc::Ioctl = 0x8905;
/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Returns whether a file is memory that cannot disappear: a memfd of shmem, in which a hole reads as zeros.
///
/// A memfd of huge pages (MFD_HUGETLB) can disappear: despite the seal against shrinking, holes can be
/// punched into it, and if the system then has no free huge page, a thread that touches the hole is killed
/// (SIGBUS).
pub fn is_plain_memory(file: BorrowedFd<'_>) -> bool {
    // Check the seals first, because this does not involve a file system. Other files have no seals, and
    // their file system may not answer.
    let has_seals = rustix::fs::fcntl_get_seals(file).is_ok();
    has_seals && rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 == TMPFS_MAGIC)
}

/// Asks the system to refuse files that are sent to a socket, or to the sockets that a listener accepts.
/// Returns whether the system supports this.
pub(super) fn refuse_files(socket: BorrowedFd<'_>) -> bool {
    let off: libc::c_int = 0;
    socket_option::set(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, &off).is_ok()
}

/// Sets SO_MAX_PACING_RATE, which has no effect on Unix sockets. Only processes that have a descriptor of the
/// socket can read this number.
///
/// # Errors
/// The system call failed.
pub fn set_token(socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &token)
}

/// Returns whether the next byte of a socket with SO_OOBINLINE is its urgent byte (sockatmark(3)).
pub fn is_at_mark(socket: BorrowedFd<'_>) -> bool {
    let mut is_at: libc::c_int = 0;
    // SAFETY: the call writes one int, into `is_at`, which outlives it.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut is_at) };
    status == 0 && is_at == 1
}

/// Calls `work` with the socket address of a path. A path that is too long for an address is reached through
/// its directory.
pub(super) fn with_address<T>(
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

/// A socket with an untrusted peer. No call on it blocks.
#[derive(Debug)]
pub struct Peer {
    /// `Some` until it is closed.
    socket: Option<OwnedFd>,
    kind: SocketType,
    /// Whether files may wait in the socket.
    pub(super) may_hold_files: bool,
    closer: Closer,
    /// A lock held across peek and receive, so that the same thread does both.
    turn: Mutex<()>,
    /// The socket over which a process has received the other end of this one.
    over: Option<Arc<Peer>>,
}

impl Peer {
    /// Wraps a socket that this process created. Call this before another process gets the other end.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new(socket: OwnedFd) -> io::Result<Peer> {
        let may_hold_files = !refuse_files(socket.as_fd());
        Peer::with(socket, may_hold_files, Closer::of_called())
    }

    /// Wraps one end of a pair whose other end is sent over `channel`.
    ///
    /// # Errors
    /// A system call failed.
    pub fn over(channel: Arc<Peer>, socket: OwnedFd) -> io::Result<Peer> {
        let mut peer = Peer::new(socket)?;
        peer.over = Some(channel.over.clone().unwrap_or(channel));
        Ok(peer)
    }

    /// Returns the socket whose credentials (SO_PEERCRED) are those of the client: this one, or the one over
    /// which the client has received its end.
    pub fn connected(&self) -> &Peer {
        self.over.as_deref().unwrap_or(self)
    }

    /// Returns whether the client has received its end over another socket.
    pub fn is_over_another(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn with(socket: OwnedFd, may_hold_files: bool, closer: Closer) -> io::Result<Peer> {
        let prepared = rustix::net::sockopt::socket_type(&socket).and_then(|kind| {
            rustix::net::sockopt::set_socket_oobinline(&socket, true)?;
            Ok(kind)
        });
        match prepared {
            Ok(kind) => Ok(Peer {
                socket: Some(socket),
                kind,
                may_hold_files,
                closer,
                turn: Mutex::new(()),
                over: None,
            }),
            Err(error) => {
                hang_up(socket, &closer);
                Err(error.into())
            }
        }
    }

    /// Connects to a listener without waiting for it to accept. Set `takes_memory` if the listener sends
    /// memory.
    ///
    /// # Errors
    /// There is no listener, or its backlog is full.
    pub fn connect(path: &Path, kind: SocketType, takes_memory: bool) -> io::Result<Peer> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let may_hold_files = takes_memory || !refuse_files(socket.as_fd());
        with_address(path, |address| rustix::net::connect(&socket, address))?;
        Peer::with(socket, may_hold_files, Closer::of_called())
    }

    /// Returns whether the other end is a process of this user or of root.
    pub fn is_own_user_or_root(&self) -> bool {
        let own = rustix::process::geteuid();
        rustix::net::sockopt::socket_peercred(self).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }

    /// Receives bytes, or a packet. Returns zero at the end, or for an empty packet.
    ///
    /// # Errors
    /// `WouldBlock`: nothing has arrived. `InvalidData`: the peer sent files; nothing more can be received.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        if !self.may_hold_files {
            return self.take(into);
        }
        let _turn = lock(&self.turn);
        let length = self.peek(into)?;
        match (length, self.kind) {
            // The peek saw the end of the stream, so there is nothing to receive.
            (0, SocketType::STREAM) => Ok(0),
            _ => self.take(&mut into[..length]),
        }
    }

    /// Discards the datagram that [`Peer::receive`] refused, and closes its files on a thread that may block.
    ///
    /// # Errors
    /// A system call failed.
    pub fn discard_datagram(&self) -> io::Result<()> {
        let _turn = lock(&self.turn);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(self, &mut [IoSliceMut::new(&mut [0])], &mut control, flags)?;
        for one in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = one {
                rights.for_each(|file| self.closer.close(file));
            }
        }
        Ok(())
    }

    /// Receives bytes, and one file with them if it is memory ([`is_plain_memory`]).
    ///
    /// # Errors
    /// Same as for [`Peer::receive`]; also if any other file came with the bytes.
    pub fn receive_memory(&self, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let _turn = lock(&self.turn);
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
        let is_wanted = files.len() < 2 && files.iter().all(|file| is_plain_memory(file.as_fd()));
        match seen.bytes {
            0 if files.is_empty() && is_whole => return Err(io::ErrorKind::ConnectionReset.into()),
            length if is_wanted && is_whole => {
                // The reference that waited in the socket is dropped by receiving. It is not the last one,
                // because `files` holds another.
                return Ok((self.take(&mut into[..length])?, files.pop()));
            }
            _ => files.into_iter().for_each(|file| self.closer.close(file)),
        }
        let message = "received file descriptors other than one memfd";
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Peeks, and returns the number of bytes before the first file.
    fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut control = RecvAncillaryBuffer::default();
        let seen = rustix::net::recvmsg(self, &mut [IoSliceMut::new(into)], &mut control, flags)?;
        if seen.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "received an unexpected file descriptor"));
        }
        Ok(seen.bytes)
    }

    fn take(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, into, RecvFlags::DONTWAIT)?.0)
    }

    /// Returns whether closing the socket drops no file, because no file waits in it and nothing more can
    /// arrive.
    fn is_clean(&self) -> bool {
        if !self.may_hold_files {
            return true;
        }
        // The end of a packet socket is indistinguishable from an empty packet.
        if self.kind != SocketType::STREAM || rustix::net::shutdown(self, Shutdown::Both).is_err() {
            return false;
        }
        let mut bytes = [0; DRAIN_BYTES];
        for _ in 0..DRAINS_MAX {
            match self.receive(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
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
            Some(socket) if !is_clean => hang_up(socket, &self.closer),
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

/// Closes a socket on a thread that may block. The peer sees the hang-up at once, even if such a thread does
/// not exist yet.
fn hang_up(socket: OwnedFd, closer: &Closer) {
    // Fails for a socket that was never connected, which has no peer.
    let _ = rustix::net::shutdown(&socket, Shutdown::Both);
    closer.close(socket);
}
