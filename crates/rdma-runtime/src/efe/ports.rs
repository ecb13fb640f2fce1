//! The UDP ports of an EFE endpoint. One endpoint serves several addresses, each through ports of its own.
//!
//! Purpose   a process has one endpoint, but queue pairs and listeners at several addresses.
//! Numbers   a peer contains the number of the port that it uses ([`super::peers`]).
//! Polling   while the driver is awake, it polls the port that received something last, and each other port
//!           until [`QUIET_POLLS`] polls have found nothing; then epoll reports what arrives there.
//! Closing   a port without a listener stays open as long as flows use it. It can be opened again.

use super::peers::{PORTS_MAX, Peers, port_of};
use kiban_os::udp::UdpLink;
use kiban_rdma::efe::{Endpoint, Peer};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Number of polls without a frame after which a port is left to epoll.
const QUIET_POLLS: u32 = 64;
/// Requested size of a UDP socket's receive buffer in bytes. Without privileges, the system grants less.
const QUEUE_BYTES: usize = 8 << 20;

/// A port.
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) udp: Arc<UdpLink>,
    /// The number of the listener at this port.
    pub(super) listener: Option<u32>,
    /// Whether the port stays open without flows.
    is_held: bool,
    /// Number of polls since the last frame.
    pub(super) polls: u32,
}

impl Port {
    /// Returns whether to poll the port now; `busy` is the number of the one that received something last.
    #[inline]
    pub(super) fn is_polled(&mut self, busy: u16) -> bool {
        self.polls = self.polls.saturating_add(1);
        self.polls <= QUIET_POLLS || self.number == busy
    }
}

/// The ports, and the addresses of peers.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) ports: Vec<Port>,
    pub(super) peers: Peers,
    opened: u16,
    /// The number of the port that received something last.
    pub(super) busy: u16,
    /// The number of flows when ports without flows were looked for.
    flows_seen: Option<usize>,
}

impl Ports {
    /// Opens a port. Returns it, and whether it is new. A port whose number is 0 is any free one.
    ///
    /// # Errors
    /// The address is not local, or the port is in use; there are too many ports.
    pub(super) fn bind(&mut self, at: SocketAddr) -> io::Result<(&Port, bool)> {
        if let Some(index) = self.ports.iter().position(|port| port.udp.local() == at && !port.is_held) {
            self.ports[index].is_held = true;
            return Ok((&self.ports[index], false));
        }
        let number = self.add(Arc::new(UdpLink::bind(at)?))?;
        Ok((self.get(number).expect("it was added"), true))
    }

    /// Adds a port with an existing socket. Returns its number.
    ///
    /// # Errors
    /// There are too many ports.
    pub(super) fn add(&mut self, udp: Arc<UdpLink>) -> io::Result<u16> {
        let used: HashSet<u16> = self.ports.iter().map(|port| port.number).collect();
        let after = (1..=PORTS_MAX).map(|more| self.opened.wrapping_add(more) % PORTS_MAX);
        let number = after.into_iter().find(|number| !used.contains(number));
        let number = number.ok_or(io::ErrorKind::OutOfMemory)?;
        self.opened = number;
        udp.request_receive_buffer(QUEUE_BYTES);
        udp.request_trains();
        udp.request_errors();
        self.ports.push(Port { number, udp, listener: None, is_held: true, polls: 0 });
        Ok(number)
    }

    pub(super) fn get(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    fn get_mut(&mut self, number: u16) -> Option<&mut Port> {
        self.ports.iter_mut().find(|port| port.number == number)
    }

    /// Returns the number of the port with this address.
    pub(super) fn number_at(&self, at: SocketAddr) -> Option<u16> {
        self.ports.iter().find(|port| port.udp.local() == at).map(|port| port.number)
    }

    /// Returns whether a listener has a port of this number, at any address.
    pub(super) fn listens(&self, port_number: u16) -> bool {
        self.ports.iter().any(|port| port.listener.is_some() && port.udp.local().port() == port_number)
    }

    /// Ends a listener, and closes its ports as soon as no flow uses them. Returns their addresses.
    pub(super) fn unlisten(&mut self, listener: u32, endpoint: &Endpoint) -> Vec<SocketAddr> {
        let mut at = Vec::new();
        for port in self.ports.iter_mut().filter(|port| port.listener == Some(listener)) {
            (port.listener, port.is_held) = (None, false);
            at.push(port.udp.local());
        }
        self.flows_seen = None;
        self.sweep(endpoint);
        at
    }

    /// Closes a port as soon as no flow uses it.
    pub(super) fn close(&mut self, number: u16, endpoint: &Endpoint) {
        if let Some(port) = self.get_mut(number) {
            port.is_held = false;
            self.flows_seen = None;
            self.sweep(endpoint);
        }
    }

    /// Closes the ports that are neither held nor used.
    pub(super) fn sweep(&mut self, endpoint: &Endpoint) {
        let flows = endpoint.flows();
        if self.ports.iter().all(|port| port.is_held) || self.flows_seen.replace(flows) == Some(flows) {
            return;
        }
        let used: HashSet<u16> = endpoint.peers().map(port_of).collect();
        self.ports.retain(|port| port.is_held || used.contains(&port.number));
    }

    // ---- frames

    /// Returns our address and the peer's.
    pub(super) fn addresses(&self, peer: Peer) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.get(port_of(peer))?.udp.local(), self.peers.address_of(peer)?))
    }

    /// Returns the socket and the address to which frames to a peer are sent.
    pub(super) fn route(&self, peer: Peer) -> Option<(&Arc<UdpLink>, SocketAddr)> {
        Some((&self.get(port_of(peer))?.udp, self.peers.address_of(peer)?))
    }
}
