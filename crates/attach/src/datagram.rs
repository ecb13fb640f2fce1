//! Packets between a program's datagram socket and the board: a header, and a datagram.
//!
//! ```text
//! 0  kind: 1 datagram, 2 error     8   time at which the board passed it on, ns (64 bits)
//! 1  reason of an error            16  IP address of the remote end, in network byte order
//! 2  port of the remote end (16)
//! 4  family: 4, 6
//! 32 payload
//! ```
//!
//! Order    numbers are in machine byte order, as in ring entries.
//! Trust    each packet is read once, from a copy that the kernel made; a packet that is too short or has an
//!          unknown kind, family or reason is invalid.

use crate::EndReason;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the header in bytes.
pub const DATAGRAM_HEADER_BYTES: usize = 32;
/// Maximum payload of a datagram in bytes: that of an IPv6 packet of 65,535 bytes after its header.
pub const DATAGRAM_BYTES_MAX: usize = 65_527;

/// What a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramHeader {
    /// A datagram to or from `remote`.
    Data {
        /// The remote end.
        remote: SocketAddr,
        /// When the board passed it on (CLOCK_MONOTONIC, in nanoseconds); 0 towards the board.
        nanos: u64,
    },
    /// An error about an earlier datagram to `remote`. Only the board sends it.
    Error {
        /// The remote end.
        remote: SocketAddr,
        /// The error.
        why: EndReason,
    },
}

impl DatagramHeader {
    /// Encodes the header.
    pub fn bytes(self) -> [u8; DATAGRAM_HEADER_BYTES] {
        let (kind, reason, remote, nanos) = match self {
            DatagramHeader::Data { remote, nanos } => (1, 0, remote, nanos),
            DatagramHeader::Error { remote, why } => (2, why as u8, remote, 0),
        };
        let mut bytes = [0; DATAGRAM_HEADER_BYTES];
        (bytes[0], bytes[1]) = (kind, reason);
        bytes[2..4].copy_from_slice(&remote.port().to_ne_bytes());
        bytes[8..16].copy_from_slice(&nanos.to_ne_bytes());
        match remote.ip() {
            IpAddr::V4(ip) => {
                bytes[4] = 4;
                bytes[16..20].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[4] = 6;
                bytes[16..32].copy_from_slice(&ip.octets());
            }
        }
        bytes
    }

    /// Decodes a packet: its header, and the payload. Returns `None` if it is invalid.
    pub fn read(packet: &[u8]) -> Option<(DatagramHeader, &[u8])> {
        let (header, payload) = packet.split_first_chunk::<DATAGRAM_HEADER_BYTES>()?;
        let port = u16::from_ne_bytes([header[2], header[3]]);
        let octets = *header.last_chunk::<16>()?;
        let ip: IpAddr = match header[4] {
            4 => Ipv4Addr::from(*octets.first_chunk::<4>()?).into(),
            6 => Ipv6Addr::from(octets).into(),
            _ => return None,
        };
        let remote = SocketAddr::new(ip, port);
        let nanos = u64::from_ne_bytes(*header[8..].first_chunk()?);
        match (header[0], header[1]) {
            (1, 0) => Some((DatagramHeader::Data { remote, nanos }, payload)),
            (2, reason) => Some((DatagramHeader::Error { remote, why: EndReason::of(reason)? }, payload)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiban_base::SimRng;

    #[test]
    fn a_header_survives_its_encoding() {
        for ip in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])] {
            let remote = SocketAddr::new(ip, 53);
            for header in [
                DatagramHeader::Data { remote, nanos: 1 << 40 },
                DatagramHeader::Error { remote, why: EndReason::Refused },
            ] {
                let packet = [&header.bytes()[..], b"payload"].concat();
                assert_eq!(DatagramHeader::read(&packet), Some((header, &b"payload"[..])));
                assert_eq!(DatagramHeader::read(&packet[..DATAGRAM_HEADER_BYTES - 1]), None);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused() {
        let mut rng = SimRng::from_seed(1);
        for _ in 0..100_000 {
            let mut packet: Vec<u8> = (0..rng.below(64)).map(|_| rng.draw() as u8).collect();
            // Most packets would have an unknown kind or family.
            for (at, values) in [(0, 4), (1, 12), (4, 8)] {
                packet.get_mut(at).into_iter().for_each(|byte| *byte %= values);
            }
            if let Some((header, payload)) = DatagramHeader::read(&packet) {
                assert_eq!(DatagramHeader::read(&header.bytes()), Some((header, &[][..])));
                assert_eq!(payload, &packet[DATAGRAM_HEADER_BYTES..]);
            }
        }
    }
}
