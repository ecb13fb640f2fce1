//! Datagrams and echo requests to addresses and ports that the board does not have, for a transparent proxy.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::numbers::protocol;
use kiban_tcpip::ip::Delivery;
use kiban_tcpip::wire::udp;

/// Maximum number of packets that wait for the proxy; later ones are dropped.
pub(super) const INTERCEPTED_MAX: usize = 1024;

/// An intercepted packet ([`Host::intercept`](crate::Host::intercept)).
#[derive(Debug)]
pub struct Intercepted {
    pub(crate) kind: InterceptedKind,
    /// The packet: for a datagram from its UDP header on, for an echo request its payload.
    pub(crate) delivery: Delivery,
}

/// What an intercepted packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterceptedKind {
    /// A UDP datagram.
    Datagram {
        /// The destination.
        local: SocketAddr,
        /// The sender.
        remote: SocketAddr,
    },
    /// An ICMP echo request.
    Echo {
        /// The host that is asked.
        local: IpAddr,
        /// The host that asks.
        remote: IpAddr,
        /// The identifier of the request.
        identifier: u16,
        /// The sequence number of the request.
        sequence: u16,
    },
}

impl Intercepted {
    /// Returns a datagram to a port without a socket; `None` if its header is cut off.
    pub(crate) fn datagram(delivery: Delivery) -> Option<Intercepted> {
        let [s0, s1, t0, t1, ..] = *delivery.pdu.head() else { return None };
        let local = SocketAddr::new(delivery.target, u16::from_be_bytes([t0, t1]));
        let remote = SocketAddr::new(delivery.source, u16::from_be_bytes([s0, s1]));
        Some(Intercepted { kind: InterceptedKind::Datagram { local, remote }, delivery })
    }

    /// Returns what the packet is.
    pub fn kind(&self) -> InterceptedKind {
        self.kind
    }

    /// Replaces the contents of `target` by the payload.
    pub fn copy_payload(&self, target: &mut Vec<u8>) {
        target.clear();
        self.delivery.pdu.runs().for_each(|run| target.extend_from_slice(run));
        if self.delivery.protocol == protocol::UDP {
            target.drain(..udp::HEADER_BYTES.min(target.len()));
        }
    }
}
