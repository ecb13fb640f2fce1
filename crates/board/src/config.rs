//! What a board is made of: memory, ports, addresses, settings. A value that can be written down.

use crate::wiring::rdma::{EfePortConfig, RdmaConfig};
use alloc::vec::Vec;
use core::net::IpAddr;
use kiban_stack::atm::{Contract, OC3C_BITS_PER_SECOND};
use kiban_stack::ethernet::LinkConfig;
use kiban_stack::ip::{self, Prefix, Route};
use kiban_stack::tcp;
use kiban_stack::vi;
use kiban_wire::atm::{Interface, Vc};

/// A board before it is built.
#[derive(Clone, Debug)]
pub struct BoardConfig {
    /// Packet memory.
    pub memory: MemoryConfig,
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Settings of IP.
    pub ip: ip::Config,
    /// Whether listeners and sockets on the unspecified IPv6 address take IPv6 alone (RFC 3493 §5.3), if the host does
    /// not say for one of them.
    pub v6_only: bool,
    /// Settings of the VI NIC, if there are ports for it.
    pub vi: vi::Config,
    /// The RDMA NIC, if the board has one.
    pub rdma: Option<RdmaConfig>,
    /// UDP sockets at most.
    pub udp_sockets_max: usize,
    /// Datagrams that wait for the reader of one socket, at most.
    pub datagrams_max: usize,
    /// The ports, numbered from 0 in this order.
    pub ports: Vec<PortConfig>,
    /// Addresses of IP ports beside the first.
    pub addresses: Vec<PortAddress>,
    /// Routes beside those that the ports' own prefixes make.
    pub routes: Vec<Route>,
}

impl Default for BoardConfig {
    fn default() -> BoardConfig {
        BoardConfig {
            memory: MemoryConfig::default(),
            tcp: tcp::Config::default(),
            ip: ip::Config::default(),
            v6_only: true,
            vi: vi::Config::default(),
            rdma: None,
            udp_sockets_max: 256,
            datagrams_max: 64,
            ports: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
        }
    }
}

impl BoardConfig {
    /// The circuits of a port that a bridge has, and whether they send frames with their FCS.
    pub(crate) fn bridged(&self, port: usize) -> Vec<(u32, bool)> {
        let bridges = self.ports.iter().filter_map(|port| match port {
            PortConfig::Bridge(bridge) => Some(&bridge.circuits),
            _ => None,
        });
        let its = bridges.flatten().filter(|member| member.port == port);
        its.map(|member| (member.circuit, member.with_fcs)).collect()
    }
}

/// Packet memory, sized at start.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Bytes of a content page.
    pub page_bytes: usize,
    /// Content memory for what the host sends (paper \[1\]: 8 MB).
    pub transmit_bytes: usize,
    /// Content memory for what arrives (paper \[1\]: 8 MB).
    pub receive_bytes: usize,
    /// PDUs under way in the board, both directions.
    pub pdus: usize,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { page_bytes: 4096, transmit_bytes: 8 << 20, receive_bytes: 8 << 20, pdus: 4096 }
    }
}

/// Where a board meets a link or a cable.
#[derive(Clone, Debug)]
pub enum PortConfig {
    /// Cells on a line.
    Atm(AtmPortConfig),
    /// IP packets, as a TUN device or another board in memory takes them.
    Ip(IpPortConfig),
    /// IP packets in Ethernet frames, as a TAP device takes them, without preamble and FCS.
    Ethernet(EthernetPortConfig),
    /// Packets of the VI NIC, on a link of their own.
    Vi(vi::PathTraits),
    /// Ethernet frames of the RDMA NIC's EFE endpoint.
    Efe(EfePortConfig),
    /// Ethernet frames that pass between a link and circuits of ATM ports.
    Bridge(BridgePortConfig),
    /// IP packets of the host itself, which owns the address of another port.
    Host(HostPortConfig),
}

/// An ATM port with permanent circuits (RFC 2225 on PVCs).
#[derive(Clone, Debug)]
pub struct AtmPortConfig {
    /// Payload rate of the line, bit/s: what is left for cells.
    pub line_bits_per_second: u64,
    /// Whether VPIs have 8 or 12 bits.
    pub interface: Interface,
    /// The board's address on this port; unspecified: it has no IP here, and its circuits are a bridge's.
    pub address: IpAddr,
    /// The net that is reached directly.
    pub prefix: Prefix,
    /// The longest IP packet, bytes (RFC 2225 §7: 9180).
    pub mtu_bytes: usize,
    /// The circuits.
    pub circuits: Vec<CircuitConfig>,
}

impl AtmPortConfig {
    /// An OC-3c port with the MTU of Classical IP and no circuit yet.
    pub fn oc3c(address: IpAddr, prefix: Prefix) -> AtmPortConfig {
        AtmPortConfig {
            line_bits_per_second: OC3C_BITS_PER_SECOND,
            interface: Interface::Uni,
            address,
            prefix,
            mtu_bytes: 9180,
            circuits: Vec::new(),
        }
    }
}

/// A permanent circuit.
#[derive(Clone, Copy, Debug)]
pub struct CircuitConfig {
    /// Its name on the line.
    pub vc: Vc,
    /// Who is at the other end; none: InATMARP asks (RFC 2225 §8.1).
    pub peer: Option<IpAddr>,
    /// Whether packets carry LLC/SNAP; without it the circuit carries IP alone (RFC 2684 §6).
    pub llc_snap: bool,
    /// Its traffic contract: cells are shaped to it.
    pub contract: Option<Contract>,
    /// Frames that may wait for the line.
    pub frames_max: usize,
}

impl CircuitConfig {
    /// A circuit with LLC/SNAP and no contract, to a peer that is known.
    pub fn to(vc: Vc, peer: IpAddr) -> CircuitConfig {
        CircuitConfig { vc, peer: Some(peer), llc_snap: true, contract: None, frames_max: 64 }
    }
}

/// Another address of an IP port.
#[derive(Clone, Copy, Debug)]
pub struct PortAddress {
    /// Which port.
    pub port: usize,
    /// The board's address on it.
    pub address: IpAddr,
    /// The net that is reached directly.
    pub prefix: Prefix,
}

/// A port for IP packets.
#[derive(Clone, Copy, Debug)]
pub struct IpPortConfig {
    /// The board's address on this port.
    pub address: IpAddr,
    /// The net that is reached directly.
    pub prefix: Prefix,
    /// The longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Packets that may wait for the link.
    pub packets_max: usize,
    /// Whether the port cuts segments that TCP hands down whole into packets of its size.
    pub cuts: bool,
    /// Whether packets of one stream that follow each other in a burst go up as one.
    pub merges: bool,
    /// Whether sums that PDUs carry are believed. If not, arriving payload is read and summed anew.
    pub believe_sums: bool,
}

/// The host's side of another port, as a TUN device: the host's own IP stack has that port's address, and the board is its
/// network card. What comes in there and is for no address of the board goes up here; what the host sends leaves there, to the
/// neighbour that the board's routes name. (What Linux's `clip` did for ATM.) Packets pass as they are.
#[derive(Clone, Copy, Debug)]
pub struct HostPortConfig {
    /// The port whose address the host has: ATM, IP or Ethernet.
    pub of: usize,
    /// Packets that may wait for the host.
    pub packets_max: usize,
}

/// A bridge: the frames of the port's link and those of circuits (RFC 2684 §5.2, §6.2) pass to each other; who is where is learned. The
/// board itself has no part in it.
#[derive(Clone, Debug)]
pub struct BridgePortConfig {
    /// The circuits. Without LLC/SNAP they carry frames alone (§6.2).
    pub circuits: Vec<BridgedCircuit>,
    /// Frames that may wait for the link.
    pub packets_max: usize,
}

/// A circuit that carries Ethernet frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BridgedCircuit {
    /// Its ATM port.
    pub port: usize,
    /// Its number there.
    pub circuit: u32,
    /// Whether frames are sent with their FCS. With LLC/SNAP they are received either way.
    pub with_fcs: bool,
}

/// A port for Ethernet frames, with ARP, neighbour discovery and addresses that make themselves.
#[derive(Clone, Debug)]
pub struct EthernetPortConfig {
    /// MAC, addresses, MTU, neighbours.
    pub link: LinkConfig,
    /// Frames that may wait for the link.
    pub packets_max: usize,
    /// As for an [`IpPortConfig`].
    pub cuts: bool,
    /// As for an [`IpPortConfig`].
    pub merges: bool,
    /// As for an [`IpPortConfig`].
    pub believe_sums: bool,
}

impl EthernetPortConfig {
    /// A port on a link, with room for 256 frames, that neither cuts nor merges nor believes sums.
    pub fn on(link: LinkConfig) -> EthernetPortConfig {
        EthernetPortConfig { link, packets_max: 256, cuts: false, merges: false, believe_sums: false }
    }
}
