//! What ports report to IP, to bridges and to the host edge.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_base::Pdu;
use kiban_tcpip::ip::Prefix;

/// What an ATM port has for those above.
pub(crate) enum AtmEvent {
    /// An IP packet, and the circuit on which it came.
    Packet { circuit: u32, pdu: Pdu },
    /// A frame for a bridge, whole, without FCS.
    Frame { circuit: u32, pdu: Pdu },
    /// A loopback cell of ours came back.
    Loopback { circuit: u32, tag: u32, round_trip: Duration },
}

/// What a link reports to IP: [`Output`](kiban_tcpip::ethernet::Output) without what the port itself transmits.
pub(crate) enum LinkEvent {
    Undelivered(Pdu),
    NeighbourFailed(IpAddr),
    Address(Ipv6Addr, bool),
    Deprecated(Ipv6Addr, bool),
    Group(Ipv6Addr, bool),
    Route { prefix: Prefix, gateway: Option<IpAddr>, exists: bool, mtu_bytes: usize },
    Mtu(usize),
    HopLimit(u8),
}
