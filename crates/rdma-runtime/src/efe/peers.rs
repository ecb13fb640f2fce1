//! Numbers of peers: a UDP port of this process and an address, as the 64-bit value by which an EFE endpoint
//! knows a peer.
//!
//! ```text
//! bit   63        62     48 to 61        16 to 47                      0 to 15
//!       is IPv6   local  number of our   IPv4 address, or a number     the peer's UDP port
//!                        port            for an IPv6 address and zone
//! ```

use kiban_rdma::efe::{Endpoint, Peer};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The bit that marks the number of an IPv6 peer.
const IPV6: u64 = 1 << 63;
/// Position of the number of our port, and the number of its values.
const PORT_AT: u32 = 48;
pub(super) const PORTS_MAX: u16 = 1 << 14;
/// Number of known IPv6 peers above which those without a flow are forgotten.
const PEERS_KEPT: usize = 4096;

/// Assigns numbers to IPv6 addresses and zones, which do not fit into a [`Peer`].
#[derive(Default)]
pub(super) struct Peers {
    numbers: HashMap<(Ipv6Addr, u32), u32>,
    places: HashMap<u32, (Ipv6Addr, u32)>,
    made: u32,
}

impl Peers {
    fn number(&mut self, place: (Ipv6Addr, u32), endpoint: &Endpoint) -> u32 {
        if let Some(&number) = self.numbers.get(&place) {
            return number;
        }
        if self.numbers.len() >= PEERS_KEPT {
            // Any host can send frames from any address, so forget peers without a flow.
            let used: HashSet<u32> = endpoint.peers().map(|Peer(peer)| (peer >> 16) as u32).collect();
            self.places.retain(|number, _| used.contains(number));
            self.numbers.retain(|_, number| used.contains(number));
        }
        self.made = self.made.wrapping_add(1);
        self.numbers.insert(place, self.made);
        self.places.insert(self.made, place);
        self.made
    }

    /// Returns the peer at `address` that uses our port `port`, whose address is `own`.
    pub(super) fn peer_of(
        &mut self,
        port: u16,
        own: IpAddr,
        address: SocketAddr,
        endpoint: &Endpoint,
    ) -> Peer {
        let place = match address {
            SocketAddr::V4(address) => u64::from(address.ip().to_bits()) << 16,
            SocketAddr::V6(address) => {
                IPV6 | u64::from(self.number((*address.ip(), address.scope_id()), endpoint)) << 16
            }
        };
        let is_local = address.ip().is_loopback() || address.ip() == own;
        let local = if is_local { Peer::LOCAL } else { 0 };
        Peer(local | u64::from(port % PORTS_MAX) << PORT_AT | place | u64::from(address.port()))
    }

    /// Returns the address of a peer.
    pub(super) fn address_of(&self, Peer(peer): Peer) -> Option<SocketAddr> {
        let port = peer as u16;
        if peer & IPV6 == 0 {
            return Some(SocketAddr::new(Ipv4Addr::from_bits((peer >> 16) as u32).into(), port));
        }
        let &(ip, zone) = self.places.get(&((peer >> 16) as u32))?;
        Some(SocketAddrV6::new(ip, port, 0, zone).into())
    }
}

/// Returns the number of our port that a peer uses.
pub(super) fn port_of(Peer(peer): Peer) -> u16 {
    (peer >> PORT_AT) as u16 % PORTS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::RngKey;
    use kiban_rdma::efe::Config;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the endpoint sends nothing")]
    fn a_peer_has_an_address_a_port_of_ours_and_a_locality() {
        let endpoint = Endpoint::new(Config::default(), RngKey::for_simulation(1));
        let mut peers = Peers::default();
        for (own, address, is_local) in [
            ("192.0.2.1", "192.0.2.2:7", false),
            ("192.0.2.1", "192.0.2.1:65535", true),
            ("127.0.0.1", "127.255.0.3:1", true),
            ("2001:db8::1", "[2001:db8::2]:7", false),
            ("2001:db8::1", "[2001:db8::1]:7", true),
            ("::1", "[::1]:9", true),
            ("fe80::1", "[fe80::2%3]:9", false),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            for port in [0, 1, PORTS_MAX - 1] {
                let peer = peers.peer_of(port, own.parse().expect("an address"), address, &endpoint);
                assert_eq!((peers.address_of(peer), port_of(peer)), (Some(address), port));
                assert_eq!(peer.is_local(), is_local, "{own} {address}");
            }
        }
    }
}
