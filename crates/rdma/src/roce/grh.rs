//! The global route header (GRH): the 40 bytes in front of a received datagram's payload (IBTA volume 1
//! §8.3).
//!
//! Content  an IPv6 header with the GIDs of both ends, also if the packet came over IPv4: programs find the
//!          sender in it. Other fields than the GIDs have plausible values, because a UDP socket does not
//!          show the packet's header.
//! IPv4     hardware puts the IPv4 header into the last 20 bytes (IBTA §A17.4.5.1). Programs that expect it
//!          there look in sysfs for the device's GID type; without such an entry, UCX looks for the GID.

use crate::rnic::GRH_BYTES;
use core::net::IpAddr;

/// The next header value of IBA's transport.
const IBA_TRANSPORT: u8 = 0x1b;
const HOP_LIMIT: u8 = 1;

/// Builds the GRH of a datagram.
pub fn grh(from: IpAddr, to: IpAddr, payload_bytes: usize) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    header[0] = 6 << 4;
    header[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
    (header[6], header[7]) = (IBA_TRANSPORT, HOP_LIMIT);
    header[8..24].copy_from_slice(&gid(from));
    header[24..].copy_from_slice(&gid(to));
    header
}

/// Returns the GID of an address. IPv4 addresses are in mapped form (RFC 4291 §2.5.5.2).
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_gids_of_both_ends() {
        let grh = grh([10, 1, 2, 3].into(), "fe80::2".parse().expect("an address"), 100);
        assert_eq!((grh[0], u16::from_be_bytes([grh[4], grh[5]])), (0x60, 100));
        assert_eq!(grh[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!((grh[24], grh[25], grh[39]), (0xfe, 0x80, 2));
    }
}
