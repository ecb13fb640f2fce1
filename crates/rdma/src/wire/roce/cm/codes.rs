//! Codes of times and sizes, and addresses as GIDs.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

/// Returns the time that a 5-bit code stands for (IBTA volume 1 §12.7.20).
pub const fn timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}

/// Returns the payload in bytes of a path MTU's code, 1 to 5 (IBTA volume 1 §12.7.24).
pub const fn mtu_bytes(code: u8) -> Option<usize> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// Bytes of the longest headers of a packet from IP on, as Linux counts them for RoCE.
const HEADER_BYTES_MAX: usize = 108;

/// Returns the code of the largest path MTU whose packets fit into a link's MTU in bytes; at least that of
/// 256.
pub const fn mtu_code(link_mtu_bytes: usize) -> u8 {
    let room = link_mtu_bytes.saturating_sub(HEADER_BYTES_MAX);
    let mut code = 5;
    while code > 1 && room < 128 << code {
        code -= 1;
    }
    code
}

/// Returns the GID of an address: IPv4 addresses are mapped (IBTA §A17.4.5.1).
pub const fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_mtu_leaves_room_for_headers() {
        let links = [(65_536, 4096), (9000, 4096), (4204, 4096), (4203, 2048), (2156, 2048), (1500, 1024)];
        let shorter = [(1280, 1024), (1131, 512), (576, 256), (0, 256)];
        for (link_mtu_bytes, payload_bytes) in links.into_iter().chain(shorter) {
            assert_eq!(mtu_bytes(mtu_code(link_mtu_bytes)), Some(payload_bytes), "link MTU {link_mtu_bytes}");
        }
    }
}
