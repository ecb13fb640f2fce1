//! UDP as a link: a packet a datagram, many peers on one socket.
//!
//! Goal      packets between hosts without privileges; what is lost, doubled or late is the protocol's above.
//! Size      a datagram fits an Ethernet frame ([`PACKET_BYTES`]); between addresses of the loopback it may be longer.
//! Limits    never blocks: what the socket cannot take now is dropped, as a wire would.
//! Left out  segmentation offload and many datagrams a call.

use super::interface::bind_remedy;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Payload of a datagram in an Ethernet frame, over IPv6 or IPv4.
pub const PACKET_BYTES: usize = 1452;
/// Payload of a datagram that never leaves the host.
pub const LOOPBACK_PACKET_BYTES: usize = 16 << 10;
/// The longest datagram there is.
pub const PACKET_BYTES_MAX: usize = 65_535;

/// A socket.
#[derive(Debug)]
pub struct UdpLink {
    socket: UdpSocket,
    local: SocketAddr,
}

impl UdpLink {
    /// A socket on `local`; port 0: the system chooses.
    ///
    /// # Errors
    /// The address is not this host's, or somebody has it.
    pub fn bind(local: SocketAddr) -> io::Result<UdpLink> {
        let socket = UdpSocket::bind(local).map_err(|error| {
            let remedy = bind_remedy(local, &error);
            io::Error::new(error.kind(), format!("cannot use UDP address {local}: {error}{remedy}"))
        })?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        Ok(UdpLink { socket, local })
    }

    /// Its address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The socket, and its address.
    pub(super) fn into_parts(self) -> (UdpSocket, SocketAddr) {
        (self.socket, self.local)
    }

    /// Bytes of the longest packet for a peer.
    pub fn packet_bytes(peer: IpAddr) -> usize {
        if peer.is_loopback() { LOOPBACK_PACKET_BYTES } else { PACKET_BYTES }
    }

    /// Asks for room for so many bytes of packets that nobody has taken yet. What the system's bound (net.core.rmem_max) does
    /// not allow is had only by who may pass it.
    pub fn ask_for_room(&self, bytes: usize) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            // SAFETY: options that are an int. Whoever is refused keeps what it has.
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

    /// Sends a packet. False: it is lost here, since the socket cannot take it.
    pub fn send(&self, packet: &[u8], to: SocketAddr) -> bool {
        self.socket.send_to(packet, to).is_ok()
    }

    /// The next packet that is here, and who sent it.
    pub fn receive(&self, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(room) {
                Ok(packet) => return Some(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // What an earlier packet met with (port unreachable) is reported once: the next may be fine.
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
        // Datagrams on the loopback are there when the call returns.
        assert_eq!(two.receive(&mut room), Some((6, one.local())));
        assert_eq!(&room[..6], b"packet");
        let taken = UdpLink::bind(two.local()).expect_err("somebody has it");
        assert!(taken.to_string().contains("cannot use UDP address"), "{taken}");
    }

    #[test]
    fn nobody_at_the_other_end_is_no_error() {
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
