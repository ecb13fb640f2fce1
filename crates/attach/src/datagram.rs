//! Packets between a program's datagram socket and the board: a header, and a datagram.
//!
//! ```text
//! 0  kind: 1 datagram, 2 error,    8   time at which the board passed it on, ns (64 bits); of an error, the
//!    3 settings                        MTU or the pointer in the ICMP message
//! 1  reason of an error; settings  16  IP address of the remote end, in network byte order
//! 2  port of the remote end (16)   32  IP address of the local end; of an error, the host that reported it;
//! 4  family: 4, 6                       zero if there is none
//! 5  traffic class, ICMP type      48  payload
//! 6  hop limit, ICMP code
//! 7  whether an error is from ICMP
//! ```
//!
//! Order    numbers are in machine byte order, as in ring entries.
//! Trust    each packet is read once, from a copy that the kernel made; a packet that is too short or has an
//!          unknown kind, family or reason is invalid.

use crate::EndReason;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the header in bytes.
pub const DATAGRAM_HEADER_BYTES: usize = 48;
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
        /// The address of the board. Unspecified towards the board: that of the socket or the route.
        local: IpAddr,
        /// DSCP and ECN.
        traffic_class: u8,
        /// The hop limit. 0 towards the board: the usual one.
        hop_limit: u8,
    },
    /// An error about an earlier datagram to `remote`. Only the board sends it.
    Error {
        /// The remote end.
        remote: SocketAddr,
        /// The error.
        why: EndReason,
        /// The ICMP message that reported the error; `None` if the board itself did.
        icmp: Option<IcmpReport>,
    },
    /// What the program wants of its socket. Only the program sends it.
    Settings {
        /// Whether it gets errors about datagrams to all addresses, not only to the one that it has set.
        takes_errors: bool,
    },
}

/// The ICMP message that reported an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpReport {
    /// The host that sent it.
    pub reporter: IpAddr,
    /// The ICMP type.
    pub kind: u8,
    /// The ICMP code.
    pub code: u8,
    /// The MTU or the pointer in it, or zero.
    pub info: u32,
}

impl DatagramHeader {
    /// Returns the header of a datagram from a program that has no wishes about its fields.
    pub const fn to(remote: SocketAddr) -> DatagramHeader {
        let local = match remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        DatagramHeader::Data { remote, nanos: 0, local, traffic_class: 0, hop_limit: 0 }
    }

    /// Encodes the header.
    pub fn bytes(self) -> [u8; DATAGRAM_HEADER_BYTES] {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES];
        match self {
            DatagramHeader::Data { remote, nanos, local, traffic_class, hop_limit } => {
                bytes[0] = 1;
                put_remote(&mut bytes, remote);
                bytes[5..7].copy_from_slice(&[traffic_class, hop_limit]);
                bytes[8..16].copy_from_slice(&nanos.to_ne_bytes());
                put_ip(&mut bytes[32..], local);
            }
            DatagramHeader::Error { remote, why, icmp } => {
                bytes[..2].copy_from_slice(&[2, why as u8]);
                put_remote(&mut bytes, remote);
                if let Some(IcmpReport { reporter, kind, code, info }) = icmp {
                    bytes[5..8].copy_from_slice(&[kind, code, 1]);
                    bytes[8..16].copy_from_slice(&u64::from(info).to_ne_bytes());
                    put_ip(&mut bytes[32..], reporter);
                }
            }
            DatagramHeader::Settings { takes_errors } => {
                bytes[..2].copy_from_slice(&[3, takes_errors.into()])
            }
        }
        bytes
    }

    /// Decodes a packet: its header, and the payload. Returns `None` if it is invalid.
    pub fn read(packet: &[u8]) -> Option<(DatagramHeader, &[u8])> {
        let (header, payload) = packet.split_first_chunk::<DATAGRAM_HEADER_BYTES>()?;
        if (header[0], header[4]) == (3, 0) {
            return Some((DatagramHeader::Settings { takes_errors: header[1] != 0 }, payload));
        }
        let ip = |at: usize| -> Option<IpAddr> {
            let octets = *header[at..].first_chunk::<16>()?;
            match header[4] {
                4 => Some(Ipv4Addr::from(*octets.first_chunk::<4>()?).into()),
                6 => Some(Ipv6Addr::from(octets).into()),
                _ => None,
            }
        };
        let remote = SocketAddr::new(ip(16)?, u16::from_ne_bytes([header[2], header[3]]));
        let [traffic_class, hop_limit, is_icmp] = *header[5..].first_chunk()?;
        let nanos = u64::from_ne_bytes(*header[8..].first_chunk()?);
        let header = match (header[0], header[1]) {
            (1, 0) => DatagramHeader::Data { remote, nanos, local: ip(32)?, traffic_class, hop_limit },
            (2, reason) => {
                let (kind, code, info) = (traffic_class, hop_limit, nanos as u32);
                let icmp = IcmpReport { reporter: ip(32)?, kind, code, info };
                DatagramHeader::Error {
                    remote,
                    why: EndReason::of(reason)?,
                    icmp: (is_icmp != 0).then_some(icmp),
                }
            }
            _ => return None,
        };
        Some((header, payload))
    }
}

fn put_remote(bytes: &mut [u8; DATAGRAM_HEADER_BYTES], remote: SocketAddr) {
    bytes[2..4].copy_from_slice(&remote.port().to_ne_bytes());
    bytes[4] = if remote.is_ipv4() { 4 } else { 6 };
    put_ip(&mut bytes[16..], remote.ip());
}

/// Writes an address; the unspecified one of the other family is all zeros, too.
fn put_ip(to: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => to[..16].copy_from_slice(&ip.octets()),
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
            let icmp = IcmpReport { reporter: ip, kind: 3, code: 4, info: 1300 };
            for header in [
                DatagramHeader::Data { remote, nanos: 1 << 40, local: ip, traffic_class: 0xb8, hop_limit: 3 },
                DatagramHeader::to(remote),
                DatagramHeader::Error { remote, why: EndReason::Refused, icmp: None },
                DatagramHeader::Error { remote, why: EndReason::Refused, icmp: Some(icmp) },
                DatagramHeader::Settings { takes_errors: true },
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
            let mut packet: Vec<u8> = (0..rng.below(80)).map(|_| rng.draw() as u8).collect();
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
