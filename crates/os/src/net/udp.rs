//! UDP as a link: one packet per datagram, many peers on one socket.
//!
//! Purpose          exchange packets between hosts without privileges. Loss, duplication and delay are left
//!                  to the protocol above.
//! Size             a datagram fits an Ethernet frame ([`PACKET_BYTES`]); between loopback addresses it may
//!                  be longer.
//! Limits           calls never block: a packet that the socket cannot take now is dropped, as on a wire.
//! Not implemented  segmentation offload; several datagrams per system call.

use super::interface::bind_remedy;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Payload bytes of a datagram that fits an Ethernet frame, over IPv6 or IPv4.
pub const PACKET_BYTES: usize = 1452;
/// Payload bytes of a datagram between loopback addresses.
pub const LOOPBACK_PACKET_BYTES: usize = 16 << 10;
/// Bytes of the longest datagram.
pub const PACKET_BYTES_MAX: usize = 65_535;

/// A non-blocking UDP socket, used as a link.
#[derive(Debug)]
pub struct UdpLink {
    socket: UdpSocket,
    local: SocketAddr,
}

impl UdpLink {
    /// Binds a socket to `local`. If the port is 0, the system chooses a port.
    ///
    /// # Errors
    /// `local` is not an address of this host, or the port is in use.
    pub fn bind(local: SocketAddr) -> io::Result<UdpLink> {
        let socket = UdpSocket::bind(local).map_err(|error| {
            let remedy = bind_remedy(local, &error);
            io::Error::new(error.kind(), format!("cannot use UDP address {local}: {error}{remedy}"))
        })?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        Ok(UdpLink { socket, local })
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the socket and its local address.
    pub fn into_parts(self) -> (UdpSocket, SocketAddr) {
        (self.socket, self.local)
    }

    /// Returns the maximum packet size to a peer, in bytes.
    pub fn packet_bytes(peer: IpAddr) -> usize {
        if peer.is_loopback() { LOOPBACK_PACKET_BYTES } else { PACKET_BYTES }
    }

    /// Requests a receive buffer of `bytes`. Only a privileged process can exceed the system's limit
    /// (net.core.rmem_max).
    pub fn request_receive_buffer(&self, bytes: usize) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            // SAFETY: both options take an int, and `bytes` outlives the calls. If a call fails, the buffer
            // keeps its size.
            unsafe {
                libc::setsockopt(
                    self.socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const bytes).cast(),
                    size_of::<libc::c_int>() as _,
                );
            }
        }
    }

    /// Sends a packet. Returns false if the packet is lost here because the socket cannot take it.
    pub fn send(&self, packet: &[u8], to: SocketAddr) -> bool {
        self.socket.send_to(packet, to).is_ok()
    }

    /// Receives the next packet, if one has arrived, and returns its length and its sender.
    pub fn receive(&self, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(room) {
                Ok(packet) => return Some(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // An ICMP error caused by an earlier packet (port unreachable) is reported once: the next
                // call may succeed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for UdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_with_its_sender() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (one, two) =
            (UdpLink::bind(any).expect("a port is free"), UdpLink::bind(any).expect("a port is free"));
        let mut room = [0; 64];
        assert_eq!(two.receive(&mut room), None);
        assert!(one.send(b"packet", two.local()));
        // On loopback, a datagram has arrived when send(2) returns.
        assert_eq!(two.receive(&mut room), Some((6, one.local())));
        assert_eq!(&room[..6], b"packet");
        let taken = UdpLink::bind(two.local()).expect_err("it is in use");
        assert!(taken.to_string().contains("cannot use UDP address"), "{taken}");
    }

    #[test]
    fn a_missing_receiver_is_not_an_error() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let one = UdpLink::bind(any).expect("a port is free");
        let gone = UdpLink::bind(any).expect("a port is free").local();
        let mut room = [0; 64];
        for _ in 0..3 {
            one.send(b"packet", gone);
            assert_eq!(one.receive(&mut room), None);
        }
    }
}
