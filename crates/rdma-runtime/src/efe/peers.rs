//! Numbers of peers: UDP addresses as the 64-bit values by which an EFE endpoint knows its peers.

use kiban_rdma::efe::{Endpoint, Peer};
use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The bit that marks the number of an IPv6 peer.
const IPV6: u64 = 1 << 63;
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

    pub(super) fn peer_of(&mut self, from: SocketAddr, endpoint: &Endpoint) -> Peer {
        let place = match from {
            SocketAddr::V4(from) => u64::from(from.ip().to_bits()) << 16,
            SocketAddr::V6(from) => {
                IPV6 | u64::from(self.number((*from.ip(), from.scope_id()), endpoint)) << 16
            }
        };
        Peer(place | u64::from(from.port()))
    }

    pub(super) fn address_of(&self, Peer(peer): Peer) -> Option<SocketAddr> {
        let port = peer as u16;
        if peer & IPV6 == 0 {
            return Some(SocketAddr::new(Ipv4Addr::from_bits((peer >> 16) as u32).into(), port));
        }
        let &(ip, zone) = self.places.get(&((peer >> 16) as u32))?;
        Some(SocketAddrV6::new(ip, port, 0, zone).into())
    }
}
