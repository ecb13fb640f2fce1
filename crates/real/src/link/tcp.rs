//! TCP sockets of the operating system as byte streams for an RDMA NIC.
//!
//! Goal      bytes go from the host's memory into the socket and from the socket into the host's memory, with one system call
//!           a burst and no copy of ours in between.
//! Down      [`TcpLink::send`]: a gathering write over what a stream has to send.
//! Up        [`TcpLink::receive`]: a scattering read, first into the places where a long payload belongs, then into room for
//!           what follows.
//! Limits    never blocks. A peer that says nothing is asked by the system whether it lives (`KEEPALIVE`).

use kiban_ground::Region;
use kiban_stack::iwarp::stream::Chunk;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use smallvec::SmallVec;
use std::io::{self, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// After so much silence a peer is asked for a sign of life; three more times, a third of it apart.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Parts of a write at most: what Linux takes at once.
const PARTS_MAX: usize = 1024;

/// A connection.
#[derive(Debug)]
pub struct TcpLink {
    socket: TcpStream,
}

impl TcpLink {
    /// Begins to connect; it has when [`TcpLink::is_connected`] says so. `from`: an address of this host's to connect from.
    ///
    /// # Errors
    /// There is no way to that address.
    pub fn connect(to: SocketAddr, from: Option<std::net::IpAddr>) -> io::Result<TcpLink> {
        TcpLink::connect_after(to, from, |_| {})
    }

    /// The same; `first` is done before the peer can have heard anything, and is told our end, if the system has chosen it.
    ///
    /// # Errors
    /// As [`TcpLink::connect`].
    pub fn connect_after(
        to: SocketAddr,
        from: Option<std::net::IpAddr>,
        first: impl FnOnce(SocketAddr),
    ) -> io::Result<TcpLink> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        let socket = TcpStream::from(socket);
        if let Some(from) = from {
            port_later(&socket);
            net::bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match net::connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        // One that was refused at once has no port any more.
        if let Some(own) = socket.local_addr().ok().filter(|own| own.port() != 0) {
            first(own);
        }
        TcpLink::prepare(socket)
    }

    fn prepare(socket: TcpStream) -> io::Result<TcpLink> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE / 3)?;
        sockopt::set_tcp_keepcnt(&socket, 3)?;
        Ok(TcpLink { socket })
    }

    /// Whether it has connected.
    ///
    /// # Errors
    /// It never will.
    pub fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Our end's address, from the moment it was chosen.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The two ends' addresses.
    ///
    /// # Errors
    /// It is not connected.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.socket.local_addr()?, self.socket.peer_addr()?))
    }

    /// Writes as much of a burst as the socket takes: how many bytes; zero: none now.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send<'a>(&self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        // Most bursts have few parts; room for all that there may be would take longer to clear than a short write takes.
        let mut parts: SmallVec<[libc::iovec; 32]> = SmallVec::new();
        parts.extend(chunks.take(PARTS_MAX).map(|chunk| match chunk {
            Chunk::Own(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            Chunk::Memory(region) => iovec(region),
        }));
        // SAFETY: all of its fields may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the parts name memory that lives as long as the chunks, which outlive the call; it is read
        // only. A region's memory can be read while the region is held.
        let sent = unsafe {
            libc::sendmsg(
                self.socket.as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            )
        };
        outcome(sent)
    }

    /// Whether there is something to read: bytes, or the end.
    pub fn has_something(&self) -> bool {
        let flags = net::RecvFlags::DONTWAIT | net::RecvFlags::PEEK;
        !matches!(
            net::recv(&self.socket, &mut [0; 1], flags),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
        )
    }

    /// Reads what is here into the places, then into `room`: how many bytes; `None`: nothing is here now, and zero: the peer
    /// has ended.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn receive(&self, places: &[Region], room: &mut [u8]) -> io::Result<Option<usize>> {
        if places.is_empty() {
            return match net::recv(&self.socket, room, net::RecvFlags::DONTWAIT) {
                Ok((read, _)) => Ok(Some(read)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        let mut parts = [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; 64];
        let used = places.len().min(parts.len() - 1);
        for (part, place) in parts.iter_mut().zip(&places[..used]) {
            *part = iovec(place);
        }
        parts[used] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: the parts name memory of regions, which can be written while the regions are held and to which nobody has
        // a reference, and `room`, which is borrowed mutably; both outlive the call.
        let read = unsafe { libc::readv(self.socket.as_raw_fd(), parts.as_ptr(), used as i32 + 1) };
        match read {
            0 => Ok(Some(0)),
            read => outcome(read).map(|read| (read > 0).then_some(read)),
        }
    }

    /// The same into room of the caller's own.
    ///
    /// # Errors
    /// As [`TcpLink::receive`].
    pub fn receive_into(&self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.socket).read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(room)]) {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends no more: what is written still goes, then the end.
    pub fn finish(&self) {
        // It fails when the connection is gone.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends at once: the peer is reset.
    pub fn abort(self) {
        // It fails when the connection is gone.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Whether the peer's system has acknowledged all that was written.
    pub fn is_acknowledged(&self) -> bool {
        let mut queued: libc::c_int = 0;
        // SAFETY: this request writes an int.
        let asked = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        asked == 0 && queued == 0
    }
}

/// The port is chosen when the socket connects. Chosen before, it could serve one destination only, and the system's search for
/// it is long where many connections have ended a moment ago.
fn port_later(socket: &TcpStream) {
    let yes: libc::c_int = 1;
    let (value, bytes) = ((&raw const yes).cast(), size_of_val(&yes) as libc::socklen_t);
    // A system that does not know of it chooses at once.
    // SAFETY: an option that is an int; sockets of IPv6 have it as well.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, value, bytes)
    };
}

fn iovec(region: &Region) -> libc::iovec {
    let (base, length) = region.raw();
    libc::iovec { iov_base: base.as_ptr().cast(), iov_len: length }
}

/// What a system call moved; zero, when it could not now.
fn outcome(moved: isize) -> io::Result<usize> {
    if let Ok(moved) = usize::try_from(moved) {
        return Ok(moved);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An address that is taken, and where nobody is let in yet.
#[derive(Debug)]
pub struct ReservedDoor {
    socket: TcpListener,
}

impl ReservedDoor {
    /// Takes an address; port 0: the system chooses one.
    ///
    /// # Errors
    /// Somebody else has it, or the address is not this host's.
    pub fn open(at: SocketAddr) -> io::Result<ReservedDoor> {
        ReservedDoor::bind(at, false)
    }

    fn bind(at: SocketAddr, again: bool) -> io::Result<ReservedDoor> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        // A port of the system's choice is looked for longer by whom others may follow.
        sockopt::set_socket_reuseaddr(&socket, again && at.port() != 0)?;
        net::bind(&socket, &at).map_err(|error| told(error, at))?;
        sockopt::set_socket_reuseaddr(&socket, again)?;
        Ok(ReservedDoor { socket: TcpListener::from(socket) })
    }

    /// Its address.
    ///
    /// # Errors
    /// Never for a socket that is bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Lets connections in: so many wait to be taken, at most.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen(self, backlog: u32) -> io::Result<TcpDoor> {
        let at = self.address()?;
        net::listen(&self.socket, backlog.min(4096) as i32).map_err(|error| told(error, at))?;
        Ok(TcpDoor { listener: self.socket })
    }
}

fn told(error: rustix::io::Errno, at: SocketAddr) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot listen on TCP address {at}: {error}"))
}

/// A socket that connections come to.
#[derive(Debug)]
pub struct TcpDoor {
    listener: TcpListener,
}

impl TcpDoor {
    /// Listens on an address; port 0: the system chooses one. So many connections wait to be taken, at most.
    ///
    /// # Errors
    /// Somebody else listens there, or the address is not this host's.
    pub fn open(at: SocketAddr, backlog: u32) -> io::Result<TcpDoor> {
        ReservedDoor::bind(at, true)?.listen(backlog)
    }

    /// Its address.
    ///
    /// # Errors
    /// Never for a socket that listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// The program or the system has no more files.
    pub fn accept(&self) -> io::Result<Option<(TcpLink, SocketAddr)>> {
        loop {
            match self.listener.accept() {
                Ok((socket, from)) => {
                    if socket.set_nonblocking(true).is_ok()
                        && let Ok(link) = TcpLink::prepare(socket)
                    {
                        return Ok(Some((link, from)));
                    }
                }
                Err(error) => match error.kind() {
                    // One that ended before it was taken.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for TcpDoor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
