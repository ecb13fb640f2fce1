//! Events that ports report to IP, to bridges and to the host edge.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_base::Pdu;
use kiban_tcpip::dhcp::Lease;
use kiban_tcpip::ip::Prefix;

/// An event of an ATM port.
pub(crate) enum AtmEvent {
    /// An IP packet, and the circuit on which it arrived.
    Packet { circuit: u32, pdu: Pdu },
    /// A whole frame for a bridge, without its FCS.
    Frame { circuit: u32, pdu: Pdu },
    /// A loopback cell that we sent has returned.
    Loopback { circuit: u32, tag: u32, round_trip: Duration },
}

/// An event that a link reports to IP: [`Output`](kiban_tcpip::ethernet::Output) without the packets that the
/// port itself transmits.
pub(crate) enum LinkEvent {
    Undelivered(Pdu),
    NeighbourFailed(IpAddr),
    Address(Ipv6Addr, bool),
    Deprecated(Ipv6Addr, bool),
    Group(Ipv6Addr, bool),
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
}
