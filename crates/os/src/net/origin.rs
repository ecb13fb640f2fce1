//! Origins of connections that have not authenticated yet, and which of too many of them to close.
//!
//! Purpose   if a host, a site or a provider opens many silent connections, only its own are closed.
//! Origin    an IPv4 address or an IPv6 /64, because even a single host may have a whole /64 (RFC 6177).
//! Order     the provider (/16, IPv6 /32) with the most connections is chosen first, then its site (/24,
//!           IPv6 /48: RFC 6177) with the most, then the origin with the most, then the oldest connection.
//!           Providers that tie are compared by their sites, and so on. The largest aggregate comes first,
//!           because an attacker can spread connections over the 65,536 /64s of a site: then each of its
//!           origins is smaller than that of an honest client with two connections. An honest client
//!           authenticates within a few round trips, so even a large honest site has few connections here.
//! Cost      O(n log n) in the number of connections.
//! Weakness  an attacker at many sites of a client's own provider, or at as many providers as there are
//!           slots, displaces that client if the client is slow.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the origin of an address, which is the part that a subscriber cannot easily change.
pub fn origin_of(address: IpAddr) -> IpAddr {
    prefix(address.to_canonical(), 32, 64)
}

/// Returns the first bits of an address; the number depends on its family.
fn prefix(address: IpAddr, bits_v4: u32, bits_v6: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - bits_v4))).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - bits_v6))).into(),
    }
}

/// Returns which connection to close first, given the addresses of all connections, the oldest first; `None`
/// if there are none. The newest connection is never the first while there are others.
pub fn most_crowded(addresses: impl IntoIterator<Item = IpAddr>) -> Option<usize> {
    let mut sorted: Vec<(IpAddr, usize)> = addresses.into_iter().map(origin_of).zip(0..).collect();
    // Addresses with a common prefix become neighbours.
    sorted.sort_unstable();
    let same = |bits_v4, bits_v6| {
        move |(one, _): &(IpAddr, usize), (other, _): &(IpAddr, usize)| {
            prefix(*one, bits_v4, bits_v6) == prefix(*other, bits_v4, bits_v6)
        }
    };
    let origins = sorted.chunk_by(same(16, 32)).flat_map(|provider| {
        provider.chunk_by(same(24, 48)).flat_map(move |site| {
            site.chunk_by(same(32, 64)).map(move |origin| {
                let (_, oldest) = origin[0];
                (provider.len(), site.len(), origin.len(), Reverse(oldest))
            })
        })
    });
    origins.max().map(|(.., Reverse(oldest))| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_origin_is_an_ipv4_address_or_an_ipv6_slash_64() {
        for (address, origin) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
        ] {
            assert_eq!(origin_of(from(address)), from(origin));
        }
    }

    #[test]
    fn the_largest_provider_then_site_then_origin_loses_its_oldest_connection() {
        let rows: [(&[&str], Option<usize>); 9] = [
            (&[], None),
            (&["192.0.2.1"], Some(0)),
            // All are equal: the oldest, whatever its address.
            (&["203.0.113.9", "192.0.2.1", "2001:db8::1"], Some(0)),
            (&["192.0.2.1", "203.0.113.9", "203.0.113.9"], Some(1)),
            // A /48 and a /24 have more connections than the two of one origin.
            (
                &["2001:db8::1", "2001:db8::2", "2001:db9:0:1::1", "2001:db9:0:2::1", "2001:db9:0:3::1"],
                Some(2),
            ),
            (&["192.0.2.1", "192.0.2.1", "198.51.100.1", "198.51.100.2", "198.51.100.3"], Some(2)),
            // So have a /32 and a /16.
            (&["2001:db8::1", "2001:db8::2", "2001:db9:1::1", "2001:db9:2::1", "2001:db9:3::1"], Some(2)),
            (&["192.0.2.1", "192.0.2.1", "198.51.1.1", "198.51.2.1", "198.51.3.1"], Some(2)),
            // Within a provider, the site, then the origin.
            (&["10.0.1.1", "10.0.2.1", "10.0.2.2", "10.0.2.2"], Some(2)),
        ];
        for (addresses, expected) in rows {
            assert_eq!(most_crowded(addresses.iter().map(|text| from(text))), expected, "{addresses:?}");
        }
    }
}
