//! Steering: chooses the shard of a board that serves a flow.
//!
//! Hash             a keyed hash of the two ends, the same in both directions, so that a shard finds its own
//!                  flows by the packets that arrive and by the ports that it chooses. The key is drawn at
//!                  start: a peer cannot choose ports that all lead to one shard.
//! Secret           the steering also holds the secret of TCP's keyed hashes, so that a cookie that one shard
//!                  has granted is valid on all.
//! Not a flow       fragments, extension headers, other protocols than TCP and UDP, and packets to groups
//!                  have no flow. Messages for DHCP clients and servers (RFC 2131 §4.1: ports 68 and 67)
//!                  have none either, because the link takes them before UDP.

use crate::ip::Delivery;
use crate::wire::dhcp;
use crate::wire::ip::Front;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use kiban_base::numbers::protocol;
use kiban_base::{RngKey, SecureRng};

/// The UDP ports of DHCP.
const DHCP: [u16; 2] = [dhcp::SERVER_PORT, dhcp::CLIENT_PORT];
/// Bytes of the ports at the front of a TCP or UDP header.
pub const PORTS_BYTES: usize = 4;

/// Chooses the shard of a flow.
#[derive(Clone, Copy)]
pub struct Steering {
    shards: u32,
    key: [u64; 2],
    secret: [u64; 2],
}

impl Steering {
    /// Returns a function that spreads flows over `shards` shards.
    ///
    /// # Panics
    /// If there are no shards.
    pub fn new(shards: usize, key: RngKey) -> Steering {
        assert!(shards > 0, "a board has at least one shard");
        let mut rng = SecureRng::new(key);
        let key = [rng.draw(), rng.draw() | 1];
        Steering { shards: shards as u32, key, secret: [rng.draw(), rng.draw()] }
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards as usize
    }

    /// Returns the key of TCP's secret, which the shards share.
    pub(crate) fn secret(&self) -> [u64; 2] {
        self.secret
    }

    /// Returns the shard of the flow between two ends, in either order.
    #[inline]
    pub fn of_flow(&self, one: SocketAddr, other: SocketAddr) -> usize {
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        let hash = hash(self.key, low, high);
        ((u64::from((hash >> 32) as u32) * u64::from(self.shards)) >> 32) as usize
    }

    /// Returns the shard of an IP packet's flow, given its headers; `None` if it has no flow.
    #[inline]
    pub fn of_packet(&self, packet: &[u8]) -> Option<usize> {
        let front = Front::read(packet).ok()?;
        if front.is_fragment {
            return None;
        }
        let header = packet.get(front.header_bytes..)?;
        let (source, target) = flow(front.protocol, front.source, front.target, header)?;
        Some(self.of_flow(source, target))
    }
}

/// Returns the source and the target of a packet that IP has processed; `None` if it has no flow.
#[inline]
pub fn flow_of(delivery: &Delivery) -> Option<(SocketAddr, SocketAddr)> {
    let Delivery { source, target, protocol, pdu, .. } = delivery;
    flow(*protocol, *source, *target, pdu.head())
}

#[inline]
fn flow(protocol: u8, source: IpAddr, target: IpAddr, header: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    if !matches!(protocol, protocol::TCP | protocol::UDP) || target.is_multicast() {
        return None;
    }
    let [s0, s1, t0, t1] = *header.first_chunk::<PORTS_BYTES>()?;
    let (source_port, target_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([t0, t1]));
    if protocol == protocol::UDP && DHCP.contains(&target_port) {
        return None;
    }
    Some((SocketAddr::new(source, source_port), SocketAddr::new(target, target_port)))
}

impl fmt::Debug for Steering {
    // The key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steering({} shards)", self.shards)
    }
}

/// Returns the keyed hash of two ends.
#[inline]
pub(crate) fn hash(key: [u64; 2], one: SocketAddr, other: SocketAddr) -> u64 {
    let ports = u64::from(one.port()) << 16 | u64::from(other.port());
    let state = fold_address(fold_address(key[0], one.ip()), other.ip());
    mix(mix(state, ports), key[1])
}

/// Mixes a word into the state of a keyed hash.
#[inline]
fn mix(state: u64, word: u64) -> u64 {
    let wide = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// Mixes an address into the state of a keyed hash.
#[inline]
fn fold_address(state: u64, address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => mix(state, u64::from(v4.to_bits())),
        IpAddr::V6(v6) => mix(mix(state, (v6.to_bits() >> 64) as u64), v6.to_bits() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ipv4, ipv6};
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn steering(shards: usize, seed: u64) -> Steering {
        Steering::new(shards, RngKey::for_simulation(seed))
    }

    /// Returns a packet with these ports at the front of its payload.
    fn packet4(protocol: u8, offset_bytes: u16, more: bool, ports: [u16; 2], options: &[u8]) -> Vec<u8> {
        let header = ipv4::Header {
            traffic_class: 0,
            total_bytes: (ipv4::HEADER_BYTES + options.len() + 8) as u16,
            identification: 0,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset_bytes: offset_bytes,
            time_to_live: 64,
            protocol,
            source: [10, 0, 0, 1].into(),
            target: [10, 0, 0, 2].into(),
            options,
        };
        let mut bytes = vec![0; usize::from(header.total_bytes)];
        let length = header.write(&mut bytes);
        bytes[length..length + 2].copy_from_slice(&ports[0].to_be_bytes());
        bytes[length + 2..length + 4].copy_from_slice(&ports[1].to_be_bytes());
        bytes
    }

    fn packet6(next_header: u8, target: &str, ports: [u16; 2]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 8,
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            target: target.parse().unwrap(),
        };
        let mut bytes = vec![0; ipv6::HEADER_BYTES + 8];
        header.write(&mut bytes);
        bytes[40..42].copy_from_slice(&ports[0].to_be_bytes());
        bytes[42..44].copy_from_slice(&ports[1].to_be_bytes());
        bytes
    }

    #[test]
    fn only_whole_packets_of_tcp_and_udp_have_a_flow() {
        let steering = steering(16, 1);
        let flow =
            |one: &str, other: &str| Some(steering.of_flow(one.parse().unwrap(), other.parse().unwrap()));
        let (tcp, udp) = (protocol::TCP, protocol::UDP);
        let four = flow("10.0.0.1:1000", "10.0.0.2:80");
        let six = flow("[2001:db8::1]:1000", "[2001:db8::2]:80");
        for (what, packet, expected) in [
            ("TCP", packet4(tcp, 0, false, [1000, 80], &[]), four),
            ("UDP", packet4(udp, 0, false, [1000, 80], &[]), four),
            (
                "the opposite direction",
                packet4(tcp, 0, false, [80, 1000], &[]),
                flow("10.0.0.1:80", "10.0.0.2:1000"),
            ),
            ("IPv4 options", packet4(tcp, 0, false, [1000, 80], &[1, 1, 1, 1]), four),
            ("the first fragment", packet4(tcp, 0, true, [1000, 80], &[]), None),
            ("the last fragment", packet4(udp, 1480, false, [1000, 80], &[]), None),
            ("ICMP", packet4(protocol::ICMP, 0, false, [1000, 80], &[]), None),
            ("a DHCP server's message", packet4(udp, 0, false, [67, 68], &[]), None),
            ("a DHCP client's message", packet4(udp, 0, false, [68, 67], &[]), None),
            ("cut off in the ports", packet4(tcp, 0, false, [1000, 80], &[])[..22].to_vec(), None),
            ("cut off in the header", packet4(tcp, 0, false, [1000, 80], &[])[..19].to_vec(), None),
            ("TCP over IPv6", packet6(tcp, "2001:db8::2", [1000, 80]), six),
            ("an extension header", packet6(0, "2001:db8::2", [1000, 80]), None),
            ("a group", packet6(udp, "ff02::fb", [5353, 5353]), None),
            ("nothing", Vec::new(), None),
        ] {
            assert_eq!(steering.of_packet(&packet), expected, "{what}");
        }
    }

    #[test]
    fn flows_spread_evenly_and_differently_under_each_key() {
        let client = |port: u16| SocketAddr::from(([192, 0, 2, 7], 1024 + port));
        let server = SocketAddr::from(([10, 0, 0, 1], 80));
        for shards in [2, 3, 16] {
            let mut counts = vec![0; shards];
            (0..8000).for_each(|port| counts[steering(shards, 1).of_flow(client(port), server)] += 1);
            let even = 8000 / shards;
            assert!(counts.iter().all(|count| (even * 8 / 10..even * 12 / 10).contains(count)), "{counts:?}");
        }
        let moved = (0..1000).filter(|port| {
            steering(16, 1).of_flow(client(*port), server) != steering(16, 2).of_flow(client(*port), server)
        });
        assert!(moved.count() > 800);
    }

    proptest! {
        #[test]
        fn both_directions_of_a_flow_lead_to_one_shard(
            one: SocketAddr, other: SocketAddr, shards in 1usize..65, seed: u64,
        ) {
            let steering = steering(shards, seed);
            prop_assert!(steering.of_flow(one, other) < shards);
            prop_assert_eq!(steering.of_flow(one, other), steering.of_flow(other, one));
        }
    }
}
