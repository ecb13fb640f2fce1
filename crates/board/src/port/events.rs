//! Events that ports report to IP, to bridges and to the host edge.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_base::Pdu;
use kiban_tcpip::dhcp::Lease;
use kiban_tcpip::ethernet::Advertised;
use kiban_tcpip::ip::Prefix;

/// An event of an ATM port.
pub(crate) enum AtmEvent {
    /// An IP packet, and the circuit on which it arrived.
    Packet { circuit: u32, pdu: Pdu },
    /// A whole frame for a bridge, without its FCS.
    Frame { circuit: u32, pdu: Pdu },
    /// An InATMARP packet for shard 0.
    AtmArp { circuit: u32, pdu: Pdu },
    /// A loopback cell that we sent has returned.
    Loopback { circuit: u32, tag: u32, round_trip: Duration },
}

/// An event that a link reports to IP: [`Output`](kiban_tcpip::ethernet::Output) without the packets that the
/// port itself transmits.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Undelivered(Pdu),
    NeighbourFailed(IpAddr),
    Address(Ipv6Addr, bool),
    Deprecated(Ipv6Addr, bool),
    Group(IpAddr, bool),
    Route {
        prefix: Prefix,
        gateway: Option<IpAddr>,
        exists: bool,
        mtu_bytes: usize,
    },
    /// An IPv4 address was leased by DHCP, or its lease ended.
    Lease(Lease, bool),
    Mtu(usize),
    HopLimit(u8),
    /// Shard 0 is asked for a neighbour.
    Ask(IpAddr),
    /// The other shards are informed about a neighbour.
    Inform(IpAddr, Advertised),
}

impl LinkEvent {
    /// Returns a copy for other shards, if it is a change of addresses or routes.
    pub(crate) fn shared(&self) -> Option<LinkEvent> {
        Some(match self {
            LinkEvent::Address(address, is_ours) => LinkEvent::Address(*address, *is_ours),
            LinkEvent::Deprecated(address, deprecated) => LinkEvent::Deprecated(*address, *deprecated),
            LinkEvent::Group(group, listen) => LinkEvent::Group(*group, *listen),
            LinkEvent::Route { prefix, gateway, exists, mtu_bytes } => LinkEvent::Route {
                prefix: *prefix,
                gateway: *gateway,
                exists: *exists,
                mtu_bytes: *mtu_bytes,
            },
            LinkEvent::Lease(lease, is_ours) => LinkEvent::Lease(lease.clone(), *is_ours),
            LinkEvent::Mtu(mtu_bytes) => LinkEvent::Mtu(*mtu_bytes),
            LinkEvent::HopLimit(hop_limit) => LinkEvent::HopLimit(*hop_limit),
            LinkEvent::Undelivered(_)
            | LinkEvent::NeighbourFailed(_)
            | LinkEvent::Ask(_)
            | LinkEvent::Inform(..) => return None,
        })
    }
}
