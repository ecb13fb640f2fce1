//! IPv4: packets between hosts (RFC 791, RFC 1122 §3).
//!
//! Goal      put a header in front and say where the packet goes next; check a header and say whose the packet is.
//! Down      source, target and protocol make the header; the route names the port and the next hop.
//! Up        version, lengths and checksum are checked, padding of the link is cut off, fragments are counted and
//!           dropped; what is not for this host is dropped: a board is a host, not a router.
//! Limits    routes are a short list, searched for the longest prefix.
//! Left out  (next) fragmentation and reassembly, options beyond passing over them, path MTU discovery, IPv6. Types
//!           carry both families from the start; an IPv6 packet is refused as unreachable.

mod route;

pub use route::{Prefix, Route, Routes};

use core::net::{IpAddr, Ipv4Addr};
use kiban_ground::{Chance, Context, Pdu};
use kiban_wire::ipv4::{self, Header};

/// Packets live for so many routers (RFC 1700's recommendation, and Linux's).
const TIME_TO_LIVE: u8 = 64;

kiban_ground::counters! {
    /// What happened in IP.
    pub struct IpCounters {
        /// Packets that arrived.
        packets_in,
        /// Packets sent.
        packets_out,
        /// Packets with a header that breaks a rule.
        malformed,
        /// Packets whose header checksum does not match.
        checksum_wrong,
        /// Packets shorter than their length field.
        truncated,
        /// Fragments, dropped.
        fragments_dropped,
        /// Packets for somebody else, dropped.
        not_ours,
        /// Packets from an address that cannot be a source.
        bad_source,
        /// Packets for a protocol that is not here.
        unknown_protocol,
        /// Packets for which there is no route.
        unreachable,
        /// Packets longer than the port takes.
        too_long,
    }
}

/// A packet between IP and what stands above it: the transport header stands at the front of the PDU's head.
#[derive(Debug)]
pub struct Packet {
    /// The address it comes from.
    pub source: IpAddr,
    /// The address it goes to.
    pub target: IpAddr,
    /// What stands above (see [`kiban_wire::numbers::protocol`]).
    pub protocol: u8,
    /// Transport header and payload.
    pub pdu: Pdu,
}

/// Where a packet goes next, with its IP header in front.
#[derive(Debug)]
pub struct Hop {
    /// The port.
    pub port: usize,
    /// The neighbour on that port that is to have it.
    pub next: IpAddr,
    /// The packet.
    pub pdu: Pdu,
}

/// IP for one board.
pub struct Ip {
    addresses: alloc::vec::Vec<IpAddr>,
    routes: Routes,
    identification: u16,
    counters: IpCounters,
}

impl Ip {
    /// IP without addresses or routes.
    pub fn new(chance: &mut Chance) -> Ip {
        Ip {
            addresses: alloc::vec::Vec::new(),
            routes: Routes::default(),
            identification: chance.draw() as u16,
            counters: IpCounters::default(),
        }
    }

    /// This host is also known as `address`.
    pub fn add_address(&mut self, address: IpAddr) {
        if !self.is_ours(address) {
            self.addresses.push(address);
        }
    }

    /// Packets for a prefix go through a port.
    pub fn add_route(&mut self, route: Route) {
        self.routes.add(route);
    }

    /// Whether this host is known as `address`.
    #[inline]
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// The address from which this host speaks to `target`, if there is a way.
    pub fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        self.routes.find(target).map(|route| route.source)
    }

    /// The port and the neighbour on the way to `target`, if there is one.
    pub fn way_to(&self, target: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes.find(target).map(|route| (route.port, route.gateway.unwrap_or(target)))
    }

    /// The longest packet that the way to `target` takes, bytes.
    pub fn mtu_for(&self, target: IpAddr) -> Option<usize> {
        self.routes.find(target).map(|route| route.mtu_bytes)
    }

    /// What has been counted.
    pub fn counters(&self) -> &IpCounters {
        &self.counters
    }

    /// Counts a packet that nobody above wanted.
    pub fn on_unknown_protocol(&mut self) {
        self.counters.unknown_protocol += 1;
    }

    /// Puts the header in front and finds the way; nothing when there is none.
    pub fn send(&mut self, packet: Packet) -> Option<Hop> {
        let Packet { source, target, protocol, mut pdu } = packet;
        let (Some(route), IpAddr::V4(source), IpAddr::V4(to)) = (self.routes.find(target), source, target)
        else {
            self.counters.unreachable += 1;
            return None;
        };
        let total = pdu.len() + ipv4::HEADER_BYTES;
        // A PDU that may be cut below is judged by its pieces.
        let piece = if pdu.cut() > 0 { pdu.cut() + pdu.head().len() + ipv4::HEADER_BYTES } else { total };
        if piece > route.mtu_bytes || total > ipv4::PACKET_BYTES_MAX {
            self.counters.too_long += 1;
            return None;
        }
        self.identification = self.identification.wrapping_add(1);
        let header = Header {
            traffic_class: 0,
            total_bytes: total as u16,
            identification: self.identification,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: TIME_TO_LIVE,
            protocol,
            source,
            target: to,
            options: &[],
        };
        header.write(pdu.push_head(ipv4::HEADER_BYTES));
        self.counters.packets_out += 1;
        Some(Hop { port: route.port, next: route.gateway.unwrap_or(target), pdu })
    }

    /// Checks a packet that arrived; it goes up without its header, or nowhere.
    pub fn arrive(&mut self, mut pdu: Pdu, cx: &mut Context<'_>) -> Option<Packet> {
        self.counters.packets_in += 1;
        let first =
            pdu.pull_up(ipv4::HEADER_BYTES).map(|moved| (moved, usize::from(pdu.head()[0] & 0x0f) * 4));
        let Some((moved, header_bytes)) = first else {
            self.counters.malformed += 1;
            return None;
        };
        let Some(more) = pdu.pull_up(header_bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += (moved + more) as u64;
        let Ok((header, length)) = Header::read_quoted(pdu.head()) else {
            self.counters.malformed += 1;
            return None;
        };
        if ipv4::verify(&pdu.head()[..length]).is_err() {
            self.counters.checksum_wrong += 1;
            return None;
        }
        if usize::from(header.total_bytes) > pdu.len() {
            self.counters.truncated += 1;
            return None;
        }
        if header.is_fragment() {
            self.counters.fragments_dropped += 1;
            return None;
        }
        let (source, target) = (IpAddr::V4(header.source), IpAddr::V4(header.target));
        if !self.is_ours(target) {
            self.counters.not_ours += 1;
            return None;
        }
        // RFC 1122 §3.2.1.3: neither a group nor everybody nor nobody is a source; nor are we, from outside, nor
        // the loopback net.
        if header.source.is_multicast()
            || header.source.is_loopback()
            || header.source.is_broadcast()
            || header.source == Ipv4Addr::UNSPECIFIED
            || self.is_ours(source)
        {
            self.counters.bad_source += 1;
            return None;
        }
        let (protocol, total) = (header.protocol, usize::from(header.total_bytes));
        if total < pdu.len() {
            pdu.truncate(total);
        }
        pdu.pull_head(length);
        Some(Packet { source, target, protocol, pdu })
    }
}

#[cfg(test)]
mod tests;
