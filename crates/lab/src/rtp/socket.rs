//! The sockets of senders and receivers: on the host's UDP, or on that of a running board.

use kiban_measure::Came;
use kiban_os::clock::machine_nanos;
use kiban_streams::datagrams::DatagramSocket;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// The error for a full queue of the interface, for which std has no kind.
const ENOBUFS: i32 = 105;

/// A datagram socket. No call on it blocks.
#[derive(Debug)]
pub(super) enum Socket {
    Host(UdpSocket),
    Board(DatagramSocket),
}

impl Socket {
    /// Binds a socket on the host, or on the board with this name.
    pub(super) fn bind(board: Option<&str>, at: SocketAddr) -> io::Result<Socket> {
        if let Some(board) = board {
            return DatagramSocket::bind(Some(board), at).map(Socket::Board);
        }
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        Ok(Socket::Host(socket))
    }

    /// Sends a datagram. A packet for which there is no room counts as lost in the network, and a closed port
    /// as a receiver that is not there yet.
    pub(super) fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        let sent = match self {
            Socket::Host(socket) => socket.send_to(bytes, to).map(drop),
            Socket::Board(socket) => socket.send_to(bytes, to),
        };
        match sent {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory
                ) || error.raw_os_error() == Some(ENOBUFS) =>
            {
                Ok(())
            }
            sent => sent,
        }
    }

    /// Receives the next datagram, if one has arrived. Errors about datagrams that were sent before are
    /// ignored, because a receiver may not be there yet.
    ///
    /// # Errors
    /// The board has exited, or a system call failed.
    pub(super) fn receive(&self, room: &mut [u8]) -> io::Result<Option<Came>> {
        loop {
            let received = match self {
                Socket::Host(socket) => socket.recv_from(room).map(|(octets, from)| Came {
                    octets,
                    from,
                    nanos: machine_nanos(),
                    tos: 0,
                }),
                Socket::Board(socket) => socket.receive(room).map(|received| Came {
                    octets: received.bytes,
                    from: received.from,
                    nanos: received.nanos,
                    tos: 0,
                }),
            };
            return match received {
                Ok(came) => Ok(Some(came)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable => continue,
                    _ => Err(error),
                },
            };
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Host(socket) => socket.as_fd(),
            Socket::Board(socket) => socket.as_fd(),
        }
    }
}
