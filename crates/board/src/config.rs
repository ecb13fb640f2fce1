//! The configuration of a board: memory, ports, addresses, settings.

use alloc::vec::Vec;
use core::net::IpAddr;
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{Contract, OC3C_BITS_PER_SECOND, Service};
use kiban_base::ethernet::Mac;
use kiban_rdma::efe;
use kiban_rdma::{iwarp::mpa, nic, rnic};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::{self, Prefix, Route};
use kiban_tcpip::steering::Steering;
use kiban_tcpip::tcp;
use kiban_vi as vi;

/// The configuration of a board.
#[derive(Clone, Debug)]
pub struct BoardConfig {
    /// Packet memory.
    pub memory: MemoryConfig,
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Settings of IP.
    pub ip: ip::Config,
    /// Whether listeners and sockets on the unspecified IPv6 address accept only IPv6 (RFC 3493 §5.3). The
    /// host can override this for each of them.
    pub v6_only: bool,
    /// Settings of the VI NIC, if there are ports for it.
    pub vi: vi::Config,
    /// The RDMA NIC, if the board has one.
    pub rdma: Option<RdmaConfig>,
    /// Limit of UDP sockets.
    pub udp_sockets_max: usize,
    /// Maximum number of datagrams that wait for the reader of one socket.
    pub datagrams_max: usize,
    /// The ports, numbered from 0 in this order.
    pub ports: Vec<PortConfig>,
    /// Addresses of IP ports in addition to their first ones.
    pub addresses: Vec<PortAddress>,
    /// Routes in addition to the routes for the ports' own prefixes.
    pub routes: Vec<Route>,
    /// The place of this board among the shards of one, if it is divided. The configurations of its shards
    /// differ in this alone; only shard 0 may have a NIC.
    pub shard: Option<ShardConfig>,
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
            shard: None,
        }
    }
}

impl BoardConfig {
    /// Returns the circuits of a port that belong to a bridge, and whether they send frames with their FCS.
    pub(crate) fn bridged(&self, port: usize) -> Vec<(u32, bool)> {
        let bridges = self.ports.iter().filter_map(|port| match port {
            PortConfig::Bridge(bridge) => Some(&bridge.circuits),
            _ => None,
        });
        let its = bridges.flatten().filter(|member| member.port == port);
        its.map(|member| (member.circuit, member.with_fcs)).collect()
    }
}

/// Sizes of the packet memory, which is allocated at start.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Bytes of a content page.
    pub page_bytes: usize,
    /// Memory for the contents of data that the host sends (paper \[1\]: 8 MB).
    pub transmit_bytes: usize,
    /// Memory for the contents of received data (paper \[1\]: 8 MB).
    pub receive_bytes: usize,
    /// Number of PDU buffers on the board, shared by both directions.
    pub pdus: usize,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { page_bytes: 4096, transmit_bytes: 8 << 20, receive_bytes: 8 << 20, pdus: 4096 }
    }
}

/// A port, where a board meets a link or a cable.
#[derive(Clone, Debug)]
pub enum PortConfig {
    /// Cells on a line.
    Atm(AtmPortConfig),
    /// IP packets, as for a TUN device or another board in memory.
    Ip(IpPortConfig),
    /// IP packets in Ethernet frames without preamble and FCS, as for a TAP device.
    Ethernet(EthernetPortConfig),
    /// Packets of the VI NIC, on a separate link.
    Vi(vi::PathTraits),
    /// Ethernet frames of the RDMA NIC's EFE endpoint.
    Efe(EfePortConfig),
    /// Ethernet frames that pass between a link and circuits of ATM ports.
    Bridge(BridgePortConfig),
    /// IP packets of the host itself, which owns the address of another port.
    Host(HostPortConfig),
}

/// The place of a board among the shards.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// The shard's number; 0 is the first.
    pub number: usize,
    /// How flows find their shards; the same for all shards.
    pub steering: Steering,
}

/// An ATM port with permanent circuits (RFC 2225 on PVCs).
#[derive(Clone, Debug)]
pub struct AtmPortConfig {
    /// Payload rate of the line, bit/s: the rate available to cells.
    pub line_bits_per_second: u64,
    /// Whether VPIs have 8 or 12 bits.
    pub interface: Interface,
    /// The board's address on this port. If it is unspecified, the board has no IP on this port, and the
    /// circuits belong to a bridge.
    pub address: IpAddr,
    /// The directly connected prefix.
    pub prefix: Prefix,
    /// Maximum length of an IP packet, bytes (RFC 2225 §7: 9180).
    pub mtu_bytes: usize,
    /// The circuits.
    pub circuits: Vec<CircuitConfig>,
    /// Whether a divided board distributes the circuits over its shards, each of which has a link of its own.
    pub by_circuit: bool,
}

impl AtmPortConfig {
    /// Returns an OC-3c port with the MTU of Classical IP and no circuits.
    pub fn oc3c(address: IpAddr, prefix: Prefix) -> AtmPortConfig {
        AtmPortConfig {
            line_bits_per_second: OC3C_BITS_PER_SECOND,
            interface: Interface::Uni,
            address,
            prefix,
            mtu_bytes: 9180,
            circuits: Vec::new(),
            by_circuit: false,
        }
    }
}

/// A permanent circuit.
#[derive(Clone, Copy, Debug)]
pub struct CircuitConfig {
    /// Its VPI and VCI.
    pub vc: Vc,
    /// The peer's address. With `None`, InATMARP discovers it (RFC 2225 §8.1).
    pub peer: Option<IpAddr>,
    /// Whether packets carry LLC/SNAP. Without it, the circuit carries only IP (RFC 2684 §6).
    pub llc_snap: bool,
    /// The traffic contract to which the circuit's cells are shaped.
    pub contract: Option<Contract>,
    /// The circuit's service category, and its weight among the circuits of that category.
    pub service: Service,
    /// Maximum number of frames that wait for the line.
    pub frames_max: usize,
}

impl CircuitConfig {
    /// Returns a circuit with LLC/SNAP and no contract, to a known peer.
    pub fn to(vc: Vc, peer: IpAddr) -> CircuitConfig {
        CircuitConfig {
            vc,
            peer: Some(peer),
            llc_snap: true,
            contract: None,
            service: Service::default(),
            frames_max: 64,
        }
    }
}

/// Another address of an IP port.
#[derive(Clone, Copy, Debug)]
pub struct PortAddress {
    /// The port number.
    pub port: usize,
    /// The board's address on it.
    pub address: IpAddr,
    /// The directly connected prefix.
    pub prefix: Prefix,
}

/// A port for IP packets.
#[derive(Clone, Copy, Debug)]
pub struct IpPortConfig {
    /// The board's address on this port.
    pub address: IpAddr,
    /// The directly connected prefix.
    pub prefix: Prefix,
    /// The longest IP packet, bytes.
    pub mtu_bytes: usize,
    /// Maximum number of packets that wait for the link.
    pub packets_max: usize,
    /// Whether the port cuts TCP's large segments into packets of its MTU (TSO).
    pub cuts: bool,
    /// Whether consecutive packets of one stream in a burst are merged before they are passed up (LRO).
    pub merges: bool,
    /// Whether the checksums that PDUs carry are trusted. If not, the checksum of received payload is
    /// recomputed.
    pub believe_sums: bool,
}

/// The host's interface to another port, like a TUN device: the host's own IP stack owns the other port's
/// address, and the board acts as its network card. Packets that arrive on the other port for the host are
/// passed up through this port. Packets from the host leave through the other port, to the next hop given by
/// the board's routes. (Linux's `clip` did this for ATM.) Packets pass unchanged.
#[derive(Clone, Copy, Debug)]
pub struct HostPortConfig {
    /// The port whose address the host has: ATM, IP or Ethernet.
    pub of: usize,
    /// Maximum number of packets that wait for the host.
    pub packets_max: usize,
}

/// A bridge: forwards frames between the port's link and circuits (RFC 2684 §5.2, §6.2), and learns station
/// addresses. The board's own IP stack is not connected to it.
#[derive(Clone, Debug)]
pub struct BridgePortConfig {
    /// The circuits. Without LLC/SNAP they carry only frames (§6.2).
    pub circuits: Vec<BridgedCircuit>,
    /// Maximum number of frames that wait for the link.
    pub packets_max: usize,
}

/// A circuit that carries Ethernet frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BridgedCircuit {
    /// The ATM port of the circuit.
    pub port: usize,
    /// The circuit's number there.
    pub circuit: u32,
    /// Whether frames are sent with their FCS. With LLC/SNAP they are received either way.
    pub with_fcs: bool,
}

/// A port for Ethernet frames, with ARP, neighbour discovery and address autoconfiguration.
#[derive(Clone, Debug)]
pub struct EthernetPortConfig {
    /// MAC, addresses, MTU, neighbours.
    pub link: LinkConfig,
    /// Maximum number of frames that wait for the link.
    pub packets_max: usize,
    /// As for an [`IpPortConfig`].
    pub cuts: bool,
    /// As for an [`IpPortConfig`].
    pub merges: bool,
    /// As for an [`IpPortConfig`].
    pub believe_sums: bool,
    /// The link's rate, if the port obeys priority-based flow control (IEEE 802.1Q §36): the other end counts
    /// pauses in bit times of the link.
    pub pfc_bits_per_second: Option<u64>,
}

impl EthernetPortConfig {
    /// Returns a port on a link, with room for 256 frames, with segmentation, merging, trusted checksums and
    /// flow control off.
    pub fn on(link: LinkConfig) -> EthernetPortConfig {
        EthernetPortConfig {
            link,
            packets_max: 256,
            cuts: false,
            merges: false,
            believe_sums: false,
            pfc_bits_per_second: None,
        }
    }
}

/// An RDMA NIC on a board.
#[derive(Clone, Debug, Default)]
pub struct RdmaConfig {
    /// Settings of the RNIC core.
    pub nic: rnic::Config,
    /// How connections over TCP are set up; connections over EFE begin with the same greetings.
    pub mpa: mpa::Config,
    /// RoCEv2 over the board's UDP, if the NIC speaks it: port 4791 of all of the board's addresses.
    pub roce: Option<RoceConfig>,
    /// EFE over the board's UDP, if the NIC speaks it: port 34997 of all of the board's addresses. It
    /// excludes an EFE port ([`PortConfig::Efe`]).
    pub efe: Option<efe::Config>,
}

/// RoCEv2 on a board.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// Connections.
    pub nic: nic::RoceConfig,
    /// DSCP and ECN of all packets (RFC 2474 §3).
    pub traffic_class: u8,
}

/// DSCP 26, which switches commonly treat as RoCE's priority 3, and ECT(0): switches may mark the packet
/// instead of dropping it (RFC 3168 §5).
const ROCE_TRAFFIC_CLASS: u8 = 26 << 2 | 0b10;

impl Default for RoceConfig {
    fn default() -> RoceConfig {
        RoceConfig { nic: nic::RoceConfig::default(), traffic_class: ROCE_TRAFFIC_CLASS }
    }
}

/// A port for EFE in Ethernet frames. A board has at most one.
#[derive(Clone, Debug)]
pub struct EfePortConfig {
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The endpoint.
    pub endpoint: efe::Config,
}
