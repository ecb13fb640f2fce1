//! TCP sockets of the operating system as byte streams for an RDMA NIC.
//!
//! Purpose        moves bytes between the host's memory and the socket, with one system call per burst and no
//!                extra copy.
//! Transmit path  [`TcpLink::send`]: writes a stream's burst with one gathering write.
//! Receive path   [`TcpLink::receive`]: makes one scattering read, first into the destination of a long
//!                payload, and then into a buffer for the bytes that follow.
//! Limits         never blocks. Silent peers are detected by TCP keep-alive (`KEEPALIVE`).

use crate::port_space::Claim;
use kiban_base::Region;
use kiban_rdma::iwarp::stream::Chunk;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use smallvec::SmallVec;
use std::io::{self, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Idle time before the first TCP keep-alive probe; three more follow, at intervals of a third of this time.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Maximum number of parts in a write: Linux's limit.
const PARTS_MAX: usize = 1024;

/// A TCP connection.
#[derive(Debug)]
pub struct TcpLink {
    socket: TcpStream,
}

impl TcpLink {
    /// Begins to connect; [`TcpLink::is_connected`] reports completion. `from` is the local address, if one
    /// is required.
    ///
    /// # Errors
    /// The address is unreachable, or `from` is not local.
    pub fn connect(to: SocketAddr, from: Option<std::net::IpAddr>) -> io::Result<TcpLink> {
        TcpLink::connect_after(to, from, |_| {})
    }

    /// Begins to connect like [`TcpLink::connect`]. If the system has chosen our address, calls `first` with
    /// it before this end can send anything.
    ///
    /// # Errors
    /// As for [`TcpLink::connect`].
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
        // A socket that was refused at once no longer has a port.
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

    /// Returns whether the connection is established.
    ///
    /// # Errors
    /// The connection failed.
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

    /// Returns our address, once it has been chosen.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the addresses of both ends, ours first.
    ///
    /// # Errors
    /// The socket is not connected.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.socket.local_addr()?, self.socket.peer_addr()?))
    }

    /// Writes as much of a burst as the socket accepts. Returns the number of bytes, which is zero if it
    /// accepts none now.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send<'a>(&self, chunks: impl Iterator<Item = Chunk<'a>>) -> io::Result<usize> {
        // Most bursts have few parts, and clearing an array for the maximum number would take longer than a
        // short write.
        let mut parts: SmallVec<[libc::iovec; 32]> = SmallVec::new();
        parts.extend(chunks.take(PARTS_MAX).map(|chunk| match chunk {
            Chunk::Own(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            Chunk::Memory(region) => iovec(region),
        }));
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        // Most short messages are one part, for which send() has less to copy and check than sendmsg().
        if let [part] = &parts[..] {
            // SAFETY: as below.
            return outcome(unsafe { libc::send(socket, part.iov_base, part.iov_len, flags) });
        }
        // SAFETY: msghdr is a C struct of integers and pointers, for which all zeros is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the iovecs point to memory that the chunks borrow, which outlives the call and is only
        // read; holding a region keeps its memory readable.
        let sent = unsafe { libc::sendmsg(socket, &raw const message, flags) };
        outcome(sent)
    }

    /// Returns whether there is something to read: bytes, the end, or an error.
    pub fn has_something(&self) -> bool {
        let flags = net::RecvFlags::DONTWAIT | net::RecvFlags::PEEK;
        !matches!(
            net::recv(&self.socket, &mut [0; 1], flags),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
        )
    }

    /// Reads available bytes into the memory in `places`, and then into `room`. Returns how many were read:
    /// `None` if nothing is available now, zero if the peer has closed.
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
        // SAFETY: the iovecs point to memory of regions, which stays writable while the regions are held and
        // to which no Rust reference exists, and to `room`, which is borrowed mutably; both outlive the call.
        let read = unsafe { libc::readv(self.socket.as_raw_fd(), parts.as_ptr(), used as i32 + 1) };
        match read {
            0 => Ok(Some(0)),
            read => outcome(read).map(|read| (read > 0).then_some(read)),
        }
    }

    /// Like [`TcpLink::receive`], but reads into a buffer of the caller first.
    ///
    /// # Errors
    /// As for [`TcpLink::receive`].
    pub fn receive_into(&self, first: &mut [u8], room: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.socket).read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(room)]) {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends our direction: written bytes are still sent, then a FIN.
    pub fn finish(&self) {
        // This fails if the connection no longer exists.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Aborts the connection with a reset.
    pub fn abort(self) {
        // This fails if the connection no longer exists.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Returns whether the peer's system has acknowledged everything written.
    pub fn is_acknowledged(&self) -> bool {
        let mut queued: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int, to the local variable.
        let ioctl_result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        ioctl_result == 0 && queued == 0
    }
}

/// Lets the system choose the port when the socket connects. A port chosen in `bind` could serve only one
/// destination, and the search for it is slow after many recent connections.
fn port_later(socket: &TcpStream) {
    let yes: libc::c_int = 1;
    let (value, bytes) = ((&raw const yes).cast(), size_of_val(&yes) as libc::socklen_t);
    // A system without this option chooses the port in `bind`. SAFETY: the option is an int, which outlives
    // the call; IPv6 sockets also have it.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, value, bytes)
    };
}

fn iovec(region: &Region) -> libc::iovec {
    let (base, length) = region.raw();
    libc::iovec { iov_base: base.as_ptr().cast(), iov_len: length }
}

/// Returns the number of bytes that a system call moved; zero if it would have blocked.
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

/// A bound address at which nothing listens yet.
#[derive(Debug)]
pub struct ReservedPort {
    socket: TcpListener,
    /// The address at which the program listens for RDMA connections ([`crate::port_space`]).
    claim: Option<Claim>,
}

impl ReservedPort {
    /// Binds an address; port 0 lets the system choose.
    ///
    /// # Errors
    /// The address is in use, or is not local.
    pub fn open(at: SocketAddr) -> io::Result<ReservedPort> {
        ReservedPort::bind(at, false, false)
    }

    /// Binds an address for RDMA connections. Other sockets may bind it too, as long as none of them listens;
    /// port 0 lets the system choose. If a TCP socket of another kind has the port, reserves another TCP port
    /// for the address. With `family_only`, an IPv6 address does not stand for IPv4 addresses.
    ///
    /// # Errors
    /// There is an RDMA listener at the address, or it is not local.
    pub fn for_rdma(at: SocketAddr, family_only: bool) -> io::Result<ReservedPort> {
        let claim = Claim { at, family_only };
        if at.port() != 0 && claim.is_taken() {
            return Err(listen_error(rustix::io::Errno::ADDRINUSE, at));
        }
        let bound = match ReservedPort::bind(at, true, family_only) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && at.port() != 0 => {
                ReservedPort::at_any_port(claim)?
            }
            bound => bound?,
        };
        let port = if at.port() == 0 { bound.address()?.port() } else { at.port() };
        let at = SocketAddr::new(at.ip(), port);
        Ok(ReservedPort { claim: Some(Claim { at, family_only }), ..bound })
    }

    fn at_any_port(claim: Claim) -> io::Result<ReservedPort> {
        ReservedPort::bind(SocketAddr::new(claim.at.ip(), 0), true, claim.family_only)
    }

    fn bind(at: SocketAddr, again: bool, family_only: bool) -> io::Result<ReservedPort> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        if family_only && at.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        // Without SO_REUSEADDR during bind, the system finds a free port faster.
        sockopt::set_socket_reuseaddr(&socket, again && at.port() != 0)?;
        net::bind(&socket, &at).map_err(|error| listen_error(error, at))?;
        sockopt::set_socket_reuseaddr(&socket, again)?;
        Ok(ReservedPort { socket: TcpListener::from(socket), claim: None })
    }

    /// Returns the address.
    ///
    /// # Errors
    /// Never for a bound socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.claim.map_or_else(|| self.socket.local_addr(), |claim| Ok(claim.at))
    }

    /// Starts listening, with at most `backlog` connections waiting to be accepted. After an error the port
    /// is still reserved.
    ///
    /// # Errors
    /// Another socket listens on the address, or there are no more file descriptors.
    pub fn listen(&self, backlog: u32) -> io::Result<TcpListenSocket> {
        let at = self.address()?;
        let backlog = backlog.min(4096) as i32;
        let listener = self.socket.try_clone()?;
        let Some(claim) = self.claim else {
            net::listen(&listener, backlog).map_err(|error| listen_error(error, at))?;
            return Ok(TcpListenSocket { listener, rdma: None });
        };
        if claim.is_taken() {
            return Err(listen_error(rustix::io::Errno::ADDRINUSE, at));
        }
        let listener = match net::listen(&listener, backlog) {
            // A TCP socket has begun to listen since the port was bound.
            Err(rustix::io::Errno::ADDRINUSE) => {
                let listener = ReservedPort::at_any_port(claim)?.socket;
                net::listen(&listener, backlog).map(|()| listener)
            }
            listening => listening.map(|()| listener),
        }
        .map_err(|error| listen_error(error, at))?;
        let tcp_port = listener.local_addr()?.port();
        let entry = match claim.publish(tcp_port) {
            // Clients need no entry to find the port.
            Err(_) if tcp_port == at.port() => None,
            entry => Some(entry?),
        };
        Ok(TcpListenSocket { listener, rdma: Some((claim, entry)) })
    }
}

fn listen_error(error: rustix::io::Errno, at: SocketAddr) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot listen on TCP address {at}: {error}"))
}

/// A listening socket.
#[derive(Debug)]
pub struct TcpListenSocket {
    listener: TcpListener,
    /// The address at which the program listens for RDMA connections, and its entry in the registry.
    rdma: Option<(Claim, Option<UnixDatagram>)>,
}

impl TcpListenSocket {
    /// Listens on an address; port 0 lets the system choose. At most `backlog` connections wait to be
    /// accepted.
    ///
    /// # Errors
    /// The address is in use, or is not local.
    pub fn open(at: SocketAddr, backlog: u32) -> io::Result<TcpListenSocket> {
        ReservedPort::bind(at, true, false)?.listen(backlog)
    }

    /// Returns the address.
    ///
    /// # Errors
    /// Never for a listening socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.rdma.as_ref().map_or_else(|| self.listener.local_addr(), |(claim, _)| Ok(claim.at))
    }

    /// Accepts the next connection, if there is one.
    ///
    /// # Errors
    /// The process or the system has no more file descriptors.
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
                    // Aborted before it was accepted.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for TcpListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
