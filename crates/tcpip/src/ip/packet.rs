//! Packets passed to and from IP, and packets for which ICMP sends an error.

use super::icmp_error::IcmpErrorKind;
use core::net::IpAddr;
use kiban_base::Pdu;

/// A packet to send. The transport header is at the front of the PDU's head.
#[derive(Debug)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// Protocol number of the payload (see [`kiban_base::numbers::protocol`]).
    pub protocol: u8,
    /// DSCP and ECN, as in the header (RFC 2474 §3).
    pub traffic_class: u8,
    /// Whether the packet is dropped if it is too long for the path, instead of being fragmented. Over IPv4
    /// it then has the DF bit and identification 0 (RFC 6864 §4.1). TCP's segments need not set it.
    pub dont_fragment: bool,
    /// Hop limit (TTL); 0 means that of the configuration.
    pub hop_limit: u8,
    /// Transport header and payload.
    pub pdu: Pdu,
}

/// Other header fields of a received packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderInfo {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit (TTL).
    pub hop_limit: u8,
    /// IPv4 identification.
    pub identification: u16,
    /// Whether the packet arrived in fragments, or with a fragment header.
    pub in_fragments: bool,
    /// Whether the packet has a router alert option for multicast listener discovery (RFC 2711; IPv6).
    pub router_alert: bool,
    /// Whether the packet was sent to a multicast or broadcast address; it must not be answered with an ICMP
    /// error (RFC 1122 §3.2.2).
    pub to_group: bool,
    /// Whether the packet was sent to another host ([`Ip::intercept`](super::Ip::intercept)).
    pub intercepted: bool,
}

/// A received packet, from its transport header on.
#[derive(Debug)]
pub struct Delivery {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// Protocol number of the payload (see [`kiban_base::numbers::protocol`]).
    pub protocol: u8,
    /// Transport header and payload.
    pub pdu: Pdu,
    /// Other header fields.
    pub brief: HeaderInfo,
}

/// A packet whose sender must get an ICMP error.
#[derive(Debug)]
pub struct IcmpErrorRequest {
    /// The error to report.
    pub kind: IcmpErrorKind,
    /// Our address, to which the packet was sent.
    pub local: IpAddr,
    /// Its sender.
    pub remote: IpAddr,
    /// The packet from its IP header on.
    pub pdu: Pdu,
}

/// A packet with its IP header, and where to send it.
#[derive(Debug)]
pub struct Hop {
    /// The port.
    pub port: usize,
    /// The next hop on that port.
    pub next: IpAddr,
    /// The packet.
    pub pdu: Pdu,
}
