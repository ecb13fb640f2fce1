//! What a guest gets.

use crate::ip::Prefix;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Duration of a lease, and lifetime of addresses, seconds: a day.
pub const LEASE_SECONDS: u32 = 86_400;
/// Maximum number of name servers of each family.
pub const NAMES_MAX: usize = 3;

/// What the guest of a link gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestConfig {
    /// The IPv4 address with its net, and the gateway: an address of ours in that net.
    pub ipv4: Option<(Ipv4Addr, Prefix, Ipv4Addr)>,
    /// The IPv6 address with its net.
    pub ipv6: Option<(Ipv6Addr, Prefix)>,
    /// The name servers. Only the first [`NAMES_MAX`] of each family count.
    pub names: Vec<IpAddr>,
}

impl GuestConfig {
    /// Returns the octets of the IPv4 name servers.
    pub(crate) fn names4(&self) -> Vec<u8> {
        let names = self.names.iter().filter_map(|name| match name {
            IpAddr::V4(name) => Some(name.octets()),
            IpAddr::V6(_) => None,
        });
        names.take(NAMES_MAX).flatten().collect()
    }

    /// Returns the octets of the IPv6 name servers.
    pub(crate) fn names6(&self) -> Vec<u8> {
        let names = self.names.iter().filter_map(|name| match name {
            IpAddr::V6(name) => Some(name.octets()),
            IpAddr::V4(_) => None,
        });
        names.take(NAMES_MAX).flatten().collect()
    }
}
