//! Datagrams and echo requests to addresses and ports that the board does not have, for a transparent proxy.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::Pdu;
use kiban_tcpip::wire::udp;

/// Maximum number of packets that wait for the proxy; later ones are dropped.
pub(super) const INTERCEPTED_MAX: usize = 1024;

/// An intercepted packet ([`Host::intercept`](crate::Host::intercept)).
#[derive(Debug)]
pub struct Intercepted {
    pub(crate) kind: InterceptedKind,
    pub(crate) payload: Pdu,
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
    /// Returns a datagram to a port without a socket, given from its header on; `None` if that is cut off.
    pub(crate) fn datagram(source: IpAddr, target: IpAddr, mut pdu: Pdu) -> Option<Intercepted> {
        let [s0, s1, t0, t1, ..] = *pdu.head() else { return None };
        let local = SocketAddr::new(target, u16::from_be_bytes([t0, t1]));
        let remote = SocketAddr::new(source, u16::from_be_bytes([s0, s1]));
        pdu.pull_head(udp::HEADER_BYTES);
        Some(Intercepted { kind: InterceptedKind::Datagram { local, remote }, payload: pdu })
    }

    /// Returns what the packet is.
    pub fn kind(&self) -> InterceptedKind {
        self.kind
    }

    /// Replaces the contents of `target` by the payload.
    pub fn copy_payload(&self, target: &mut Vec<u8>) {
        target.clear();
        self.payload.runs().for_each(|run| target.extend_from_slice(run));
    }
}
