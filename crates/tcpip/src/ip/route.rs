//! Routes: port, next hop and source address for each destination (RFC 1122 §3.3.1).

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;

/// An address prefix, such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Creates a prefix. `bits` is limited to the length of the address.
    pub fn new(address: IpAddr, bits: u8) -> Prefix {
        Prefix { address, bits: bits.min(if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// Returns whether `address` lies within the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differs.leading_zeros() >= u32::from(self.bits)
    }

    /// Returns the length of the prefix, bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns the address of the prefix.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local())
    }

    /// Returns the last address of an IPv4 net (its broadcast address); nets of one or two addresses have
    /// none.
    fn last(&self) -> Option<Ipv4Addr> {
        let IpAddr::V4(net) = self.address else { return None };
        let rest = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
        (self.bits < 31).then(|| Ipv4Addr::from_bits(net.to_bits() | rest))
    }

    /// Returns whether `address` is the last address of this net.
    pub(crate) fn is_last(&self, address: Ipv4Addr) -> bool {
        self.last() == Some(address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Prefix, &'static str> {
        let (address, bits) = text.split_once('/').ok_or("a prefix is written as ADDRESS/BITS")?;
        let address: IpAddr = address.parse().map_err(|_| "the part before / is not an IP address")?;
        let bits: u8 = bits.parse().map_err(|_| "the part after / is not a number of bits")?;
        if bits > if address.is_ipv4() { 32 } else { 128 } {
            return Err("the prefix length exceeds the length of the address");
        }
        Ok(Prefix { address, bits })
    }
}

/// A route: packets for `prefix` leave through `port`.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The destinations.
    pub prefix: Prefix,
    /// The port.
    pub port: usize,
    /// The next hop, or `None` if the destination is directly connected.
    pub gateway: Option<IpAddr>,
    /// Our source address. If it is unspecified, the best address of the port is used (IPv6).
    pub source: IpAddr,
    /// The MTU of the port, bytes.
    pub mtu_bytes: usize,
}

impl Route {
    /// Returns the port and the next hop for `target`.
    #[inline]
    pub fn hop(&self, target: IpAddr) -> (usize, IpAddr) {
        (self.port, self.gateway.unwrap_or(target))
    }
}

/// A short list of routes, longest prefix first.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
    /// Broadcast addresses of directly connected IPv4 nets.
    lasts: Vec<Ipv4Addr>,
}

impl Routes {
    /// Adds a route, replacing any existing one for the same prefix.
    ///
    /// Link-local prefixes exist on every port, and there may be several default routers, so these routes are
    /// distinguished by port and gateway.
    pub fn add(&mut self, route: Route) {
        let many = route.prefix.is_link_local() || route.source.is_unspecified();
        self.list.retain(|other| {
            other.prefix != route.prefix
                || (many && (other.port, other.gateway) != (route.port, route.gateway))
        });
        self.list.push(route);
        self.list.sort_by_key(|route| core::cmp::Reverse(route.prefix.bits));
        self.note_lasts();
    }

    fn note_lasts(&mut self) {
        let direct = self.list.iter().filter(|route| route.gateway.is_none());
        self.lasts = direct.filter_map(|route| route.prefix.last()).collect();
    }

    /// Returns all routes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Route> {
        self.list.iter()
    }

    /// Removes the routes for which `is_it` returns true.
    pub fn remove(&mut self, is_it: impl Fn(&Route) -> bool) {
        self.list.retain(|route| !is_it(route));
        self.note_lasts();
    }

    /// Sets the MTU of IPv6 routes through a port, bytes.
    pub(super) fn set_mtu6(&mut self, port: usize, mtu_bytes: usize) {
        let routes =
            self.list.iter_mut().filter(|route| route.port == port && route.prefix.address.is_ipv6());
        routes.for_each(|route| route.mtu_bytes = mtu_bytes);
    }

    /// Returns whether an address is the broadcast address of a directly connected IPv4 net (RFC 1122
    /// §3.2.1.3).
    #[inline]
    pub(super) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        self.lasts.contains(&address)
    }

    /// Returns the route with the longest prefix that contains `target`.
    #[inline]
    pub fn find(&self, target: IpAddr) -> Option<&Route> {
        self.list.iter().find(|route| route.prefix.contains(target))
    }

    /// Returns the directly connected nets of a port.
    pub fn direct(&self, port: usize) -> impl Iterator<Item = &Route> {
        self.list.iter().filter(move |route| route.port == port && route.gateway.is_none())
    }

    /// Returns the directly connected nets of all other ports.
    pub fn direct_elsewhere(&self, port: usize) -> impl Iterator<Item = &Route> {
        self.list.iter().filter(move |route| route.port != port && route.gateway.is_none())
    }

    /// Returns whether there is a route for exactly this prefix; the addresses in it may differ in host bits.
    pub fn has(&self, prefix: Prefix) -> bool {
        self.list
            .iter()
            .any(|route| route.prefix.bits == prefix.bits && prefix.contains(route.prefix.address))
    }

    /// Returns the route to `target` for packets from `source`. A link-local target is reached through the
    /// port that has the source address.
    #[inline]
    pub fn find_from(&self, target: IpAddr, source: IpAddr) -> Option<&Route> {
        match target {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                let mut all = self.list.iter().filter(|route| route.prefix.contains(target));
                all.clone().find(|route| route.source == source).or_else(|| all.next())
            }
            _ => self.find(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_families_do_not_mix() {
        let route = |prefix: &str, port| Route {
            prefix: prefix.parse().unwrap(),
            port,
            gateway: None,
            source: "10.0.0.1".parse().unwrap(),
            mtu_bytes: 9180,
        };
        let mut routes = Routes::default();
        for (prefix, port) in [("0.0.0.0/0", 1), ("10.1.0.0/16", 2), ("10.1.2.3/32", 3), ("2001:db8::/32", 4)]
        {
            routes.add(route(prefix, port));
        }
        for (target, port) in [
            ("10.1.2.3", Some(3)),
            ("10.1.2.4", Some(2)),
            ("9.9.9.9", Some(1)),
            ("2001:db8::1", Some(4)),
            ("::1", None),
        ] {
            assert_eq!(routes.find(target.parse().unwrap()).map(|route| route.port), port, "{target}");
        }
    }

    #[test]
    fn an_invalid_prefix_is_rejected_with_the_reason() {
        for bad in ["10.0.0.1", "x/8", "10.0.0.1/x", "10.0.0.1/33"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }
}
