//! The 40 bytes in front of a received datagram's payload (IBTA §A17.4.5.1).
//!
//! ```text
//! IPv6   the IPv6 header
//! IPv4   20 bytes without meaning, then the IPv4 header
//! ```
//!
//! `ibv_init_ah_from_wc` finds the sender's address there, and tells IPv4 from IPv6 by the version fields and
//! the IPv4 header's checksum. A UDP socket does not show the other fields: they have plausible values.

use crate::rnic::GRH_BYTES;
use core::net::{IpAddr, SocketAddr};
use kiban_base::checksum;

const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;
const IPV4_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const DONT_FRAGMENT: u16 = 0x4000;

/// Builds the header of a datagram with this UDP payload.
pub(super) fn grh(source: SocketAddr, target: SocketAddr, udp_payload_bytes: usize) -> [u8; GRH_BYTES] {
    let udp_bytes = (UDP_HEADER_BYTES + udp_payload_bytes) as u16;
    let mut grh = [0; GRH_BYTES];
    match (source.ip(), target.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = &mut grh[GRH_BYTES - IPV4_HEADER_BYTES..];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&(udp_bytes + IPV4_HEADER_BYTES as u16).to_be_bytes());
            header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
            (header[8], header[9]) = (HOP_LIMIT, UDP);
            header[12..16].copy_from_slice(&from.octets());
            header[16..].copy_from_slice(&to.octets());
            let sum = checksum::of_header(header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => {
            grh[0] = 6 << 4;
            grh[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            (grh[6], grh[7]) = (UDP, HOP_LIMIT);
            grh[8..24].copy_from_slice(&mapped(from));
            grh[24..].copy_from_slice(&mapped(to));
        }
    }
    grh
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ipv4_header_has_a_valid_checksum() {
        let grh = grh("10.1.2.3:4791".parse().unwrap(), "10.1.2.4:4791".parse().unwrap(), 1048);
        let sum: u32 =
            grh[20..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(grh[..20], [0; 20]);
        assert_eq!((grh[20], &grh[32..36], &grh[36..]), (0x45, &[10, 1, 2, 3][..], &[10, 1, 2, 4][..]));
    }

    #[test]
    fn the_ipv6_header_has_both_addresses() {
        let grh = grh("[fe80::1]:4791".parse().unwrap(), "[fe80::2]:4791".parse().unwrap(), 100);
        assert_eq!((grh[0], grh[6], u16::from_be_bytes([grh[4], grh[5]])), (0x60, 17, 108));
        assert_eq!((grh[8], grh[23], grh[39]), (0xfe, 1, 2));
    }
}
