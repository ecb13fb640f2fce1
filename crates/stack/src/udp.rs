//! UDP sockets.

use crate::core::Handle;
use crate::table::host_error;
use crate::waiters::poll_of;
use kiban_board::SocketId;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A UDP socket.
///
/// A datagram has at most 65,507 bytes (65,527 over IPv6); the stack sends and reassembles fragments. At most
/// [`Config::datagrams_max`](crate::Config::datagrams_max) received datagrams wait; later ones are dropped.
pub struct UdpSocket {
    handle: Arc<Handle>,
    id: SocketId,
    local: SocketAddr,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpSocket({})", self.local)
    }
}

impl UdpSocket {
    pub(crate) fn new(handle: Arc<Handle>, id: SocketId, local: SocketAddr) -> UdpSocket {
        UdpSocket { handle, id, local }
    }

    /// Returns the local address, with the port that the stack has chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets the address for [`UdpSocket::send`]. From now on, datagrams from other addresses are dropped, and
    /// ICMP errors about this address are reported.
    ///
    /// # Errors
    /// `NetworkDown`: the device has failed.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        self.handle.look(|table| table.connect_socket(self.id, remote))
    }

    /// Sends a datagram. It may be lost, as in any network.
    ///
    /// # Errors
    /// `InvalidInput`: it is too long; `AddrNotAvailable`: the remote address is of the other family, or its
    /// port is 0; `OutOfMemory`: no packet memory is free.
    pub fn send_to(&self, bytes: &[u8], remote: SocketAddr) -> io::Result<()> {
        self.handle.call(|table, host| {
            table.check()?;
            host.send_to(self.id, remote, bytes).map_err(host_error)
        })
    }

    /// Sends a datagram to the connected address.
    ///
    /// # Errors
    /// Same as for [`UdpSocket::send_to`]; `NotConnected`; `ConnectionRefused` or `HostUnreachable`: ICMP has
    /// reported this about an earlier datagram.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.handle.call(|table, host| {
            let remote = table.peer(self.id)?;
            host.send_to(self.id, remote, bytes).map_err(host_error)
        })
    }

    /// Receives a datagram. Returns its length and its sender; bytes that do not fit into `buffer` are
    /// dropped. Cancelling loses no datagram.
    ///
    /// # Errors
    /// `NetworkDown`: the device has failed. If the socket is connected, `ConnectionRefused` or
    /// `HostUnreachable`: ICMP has reported this about an earlier datagram.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buffer)).await
    }

    /// Polls for a datagram; see [`UdpSocket::recv_from`].
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = self.handle.call(|table, host| table.receive(self.id, buffer, cx, host));
        poll_of(received).map_ok(|(remote, count)| (count, remote))
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.handle.call(|table, host| table.unbind(self.id, host));
    }
}
