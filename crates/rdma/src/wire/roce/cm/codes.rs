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

/// Returns the GID of an address: IPv4 addresses are mapped (IBTA §A17.4.5.1).
pub const fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
