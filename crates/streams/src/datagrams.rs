//! Datagram sockets on the UDP of a running board, for programs on the same host.
//!
//! Socket     the board turns the program's connection to `NAME.sockets` (a service of kind `sockets`) into a
//!            datagram socket: a Unix socket that preserves packet boundaries. So poll and epoll work on its
//!            file descriptor, and each datagram costs one system call, as with the system's UDP.
//! Blocking   only [`DatagramSocket::bind`] and [`DatagramSocket::connect`] block, until the board answers.
//! Limits     a datagram has at most 65,507 bytes over IPv4 and 65,527 over IPv6. If a program does not read,
//!            the Unix socket holds what fits (usually 208 KiB) and the board 64 more datagrams; others are
//!            dropped.
//!
//! ```no_run
//! use kiban_streams::datagrams::DatagramSocket;
//!
//! let socket = DatagramSocket::bind(Some("lab"), "10.9.0.2:0".parse().expect("an address"))?;
//! socket.send_to(b"ping", "10.9.0.1:7".parse().expect("an address"))?;
//! # Ok::<(), std::io::Error>(())
//! ```

use super::call::{ATTACH_TIMEOUT, is_no_listener, wait_for};
use super::{board_gone_error, boards, end_error, run_socket_path};
use kiban_attach::{DATAGRAM_BYTES_MAX, DATAGRAM_HEADER_BYTES, DatagramHeader, ENTRY_BYTES};
use kiban_attach::{Indication, Request, Sharing};
use kiban_os::clock::machine_nanos;
use kiban_os::unix::Peer;
use kiban_os::unix::names::{self, folders_of_boards};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A received datagram; its payload is in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Length in bytes; at most the size of the buffer.
    pub bytes: usize,
    /// The sender's address.
    pub from: SocketAddr,
    /// When the board passed it to this program (CLOCK_MONOTONIC, in nanoseconds).
    pub nanos: u64,
}

/// A datagram socket on a running board.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: Peer,
    path: PathBuf,
    /// Whether the path was searched for, so that the socket must be checked before each connection.
    is_found: bool,
    local: SocketAddr,
}

impl DatagramSocket {
    /// Binds a socket on the board with this name; without a name, on the only running board that has such
    /// sockets. Port 0 lets the board choose a port.
    ///
    /// # Errors
    /// There is no such board, or the address is not one of its addresses or is in use.
    pub fn bind(board: Option<&str>, local: SocketAddr) -> io::Result<DatagramSocket> {
        let board = named(board)?;
        let mut why = None;
        for folder in folders_of_boards() {
            match DatagramSocket::bind_by(run_socket_path(&folder, &board), true, local) {
                Err(error) if is_no_listener(&error) => {}
                Err(error) => why = Some(error),
                bound => return bound,
            }
        }
        Err(why.unwrap_or_else(|| {
            let message = format!(
                "no board {board} offers datagram sockets: add a service of kind \"sockets\" to its \
                 configuration{}",
                names::left_out()
            );
            io::Error::new(io::ErrorKind::NotFound, message)
        }))
    }

    /// Binds a socket on the board whose `NAME.sockets` has this path.
    ///
    /// # Errors
    /// As for [`DatagramSocket::bind`].
    pub fn bind_at(path: &Path, local: SocketAddr) -> io::Result<DatagramSocket> {
        DatagramSocket::bind_by(path.to_owned(), false, local)
    }

    fn bind_by(path: PathBuf, is_found: bool, local: SocketAddr) -> io::Result<DatagramSocket> {
        let request = Request::Bind { local, remote: None, shares: Sharing::default() };
        let (socket, answer) = ask(&path, is_found, request)?;
        match answer {
            Indication::Listening { result: Ok(local), .. } => {
                Ok(DatagramSocket { socket, path, is_found, local })
            }
            Indication::Listening { result: Err(why), .. } => Err(end_error(why)),
            _ => Err(board_gone_error()),
        }
    }

    /// Returns the address to which the socket is bound.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives only from this address from now on, and reports ICMP errors about datagrams to it. Datagrams
    /// that have arrived before stay. Returns the local address that such datagrams have.
    ///
    /// # Errors
    /// The board has no route to the address, or has exited.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<SocketAddr> {
        let request = Request::SetRemote { local: self.local, tag: 0, remote: Some(remote) };
        match ask(&self.path, self.is_found, request)?.1 {
            Indication::Opened { local, .. } => Ok(local),
            Indication::Ended { why, .. } => Err(end_error(why)),
            _ => Err(board_gone_error()),
        }
    }

    /// Joins a group. A socket that is bound to all addresses then receives the group's datagrams to its
    /// port. It joins on the board's port that has the socket's address or, if that is unspecified, on the
    /// one of the route to the group, or else on the first one.
    ///
    /// # Errors
    /// The socket has joined it already, or has joined too many; the address is not a group; the board has
    /// exited.
    pub fn join(&self, group: IpAddr) -> io::Result<()> {
        self.set_member(group, true)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// The socket has not joined the group; the board has exited.
    pub fn leave(&self, group: IpAddr) -> io::Result<()> {
        self.set_member(group, false)
    }

    fn set_member(&self, group: IpAddr, joins: bool) -> io::Result<()> {
        let group = SocketAddr::new(group, 0);
        match ask(&self.path, self.is_found, Request::Member { local: self.local, tag: 0, group, joins })?.1 {
            Indication::Opened { .. } => Ok(()),
            Indication::Ended { why, .. } => Err(end_error(why)),
            _ => Err(board_gone_error()),
        }
    }

    /// Sends a datagram. That the board cannot send it, for example because it has no route, is reported by a
    /// later [`DatagramSocket::receive`].
    ///
    /// # Errors
    /// `WouldBlock`: the board has not taken earlier datagrams yet. `InvalidInput`: it is too long. The board
    /// has exited.
    pub fn send_to(&self, bytes: &[u8], remote: SocketAddr) -> io::Result<()> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            let message = format!("a datagram has at most {DATAGRAM_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let header = DatagramHeader::to(remote).bytes();
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Err(board_gone_error()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives the next datagram. What the buffer has no room for is lost.
    ///
    /// # Errors
    /// `WouldBlock`: none has arrived. Another error is that of an earlier datagram, or the board has exited.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        let mut header = [0; DATAGRAM_HEADER_BYTES];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(room)];
        let none = &mut RecvAncillaryBuffer::default();
        let length = match rustix::net::recvmsg(&self.socket, &mut parts, none, RecvFlags::DONTWAIT) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        match DatagramHeader::read(&header[..length.min(DATAGRAM_HEADER_BYTES)]) {
            Some((DatagramHeader::Data { remote, nanos, .. }, _)) => {
                Ok(Received { bytes: length - DATAGRAM_HEADER_BYTES, from: remote, nanos })
            }
            Some((DatagramHeader::Error { why, .. }, _)) => Err(end_error(why)),
            _ => Err(board_gone_error()),
        }
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the given name, or that of the only board that has sockets for programs.
fn named(board: Option<&str>) -> io::Result<String> {
    let running = match board {
        Some(board) => return Ok(board.to_owned()),
        None => boards("sockets"),
    };
    match &running[..] {
        [one] => Ok(one.clone()),
        [] => {
            let message = "no board offers datagram sockets: give one a service of kind \"sockets\"";
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        many => {
            let message = format!("several boards offer datagram sockets: name one of {}", many.join(", "));
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

/// Sends a request over a new connection and waits for the answer.
fn ask(path: &Path, is_found: bool, request: Request) -> io::Result<(Peer, Indication)> {
    let socket = match is_found {
        true => names::call(path, SocketType::SEQPACKET, false)?,
        false => Peer::connect(path, SocketType::SEQPACKET, false)?,
    };
    rustix::net::send(&socket, &request.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    let until = machine_nanos() + ATTACH_TIMEOUT.as_nanos() as u64;
    let mut entry = [0; ENTRY_BYTES];
    loop {
        match socket.receive(&mut entry) {
            Ok(ENTRY_BYTES) => {
                let answer = Indication::read(&entry).ok_or_else(board_gone_error)?;
                return Ok((socket, answer));
            }
            Ok(_) => return Err(board_gone_error()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for(socket.as_fd(), until)?,
            Err(error) => return Err(error),
        }
    }
}
