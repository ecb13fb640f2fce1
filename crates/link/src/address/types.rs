//! Addresses and their parts, and links of every kind of unit.

use crate::cells::connection::Role;
use crate::pcap::{RecordFilter, Speed, UnitKind};
use crate::{Link, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::Vc;
use kiban_base::Pdu;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default MTU of a link over TCP, and of a capture.
pub(super) const MTU_BYTES: usize = 1500;
/// The default MTU over UDP. A packet of this length, in a datagram over IPv6, fits into 1500 bytes.
pub(super) const UDP_MTU_BYTES: usize = 1452;

/// The address of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// The transport that carries the units, and its address.
    pub transport: Transport,
    /// The options.
    pub options: Options,
}

/// The transport of a link's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TUN device: IP packets to and from this host's kernel.
    Tun(String),
    /// A TAP device: Ethernet frames to and from this host's kernel.
    Tap(String),
    /// A TAP device that a descriptor of this process has open; its interface may be in another network
    /// namespace.
    TapFile(i32),
    /// Ethernet frames on an interface of this host.
    Packet(String),
    /// Ethernet frames on one queue of an interface, bypassing the kernel's stack.
    Xdp(String),
    /// Packets, frames or 53-byte cells in UDP datagrams.
    Udp(UnitKind, Ends),
    /// Packets, frames or cells on a TCP connection.
    Tcp(UnitKind, Role, Host),
    /// Ethernet frames on a connection of a Unix socket at a path.
    Unix(Role, PathBuf),
    /// Ethernet frames in datagrams of Unix sockets, at the link's path and the peer's.
    UnixDatagrams(PathBuf, PathBuf),
    /// Linux's atmtcp protocol.
    AtmTcp(Role, Host),
    /// Cells in an RFC 4717 pseudowire.
    Pseudowire(Ends),
    /// A capture file.
    Pcap(PathBuf),
}

/// The local address and the peer of a UDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// An address of this host.
    pub local: SocketAddr,
    /// The peer.
    pub peer: Host,
}

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// The port.
    pub port: u16,
}

/// Options of a link; `None` or zero means the link's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Whether large segments pass through uncut, if the link can carry them. By default they do, unless the
    /// link is impaired.
    pub offload: Option<bool>,
    /// Whether frames for all MAC addresses are received (promiscuous mode).
    pub promiscuous: bool,
    /// The queue number of an interface.
    pub device_queue: Option<u32>,
    /// Maximum length of an IP packet, for links that cannot determine the length themselves.
    pub mtu: Option<usize>,
    /// Cells per datagram.
    pub packed: Option<usize>,
    /// The label of sent packets, and also of received packets unless another is given.
    pub label: Option<u32>,
    /// The label of received packets, if it differs from the label of sent packets.
    pub label_in: Option<u32>,
    /// Whether a pseudowire's packets have a control word.
    pub control_word: bool,
    /// Whether a pseudowire's packets have sequence numbers.
    pub sequence: Option<bool>,
    /// Cells per pseudowire packet.
    pub cells: Option<usize>,
    /// Circuits that use AAL0.
    pub aal0: Vec<Vc>,
    /// Which records of a capture are replayed.
    pub take: RecordFilter,
    /// The speed of a replay.
    pub speed: Speed,
    /// The file to record to.
    pub record: Option<PathBuf>,
    /// The fraction of units that are lost.
    pub loss: f64,
    /// The fraction of units in which a bit is flipped.
    pub corrupt: f64,
    /// The fraction of units that are duplicated.
    pub duplicate: f64,
    /// The fraction of units that are held back, each for up to `hold`.
    pub reorder: f64,
    /// The longest time that units are held back; the default is a millisecond.
    pub hold: Option<Duration>,
    /// The one-way delay of a unit.
    pub delay: Duration,
    /// The maximum additional delay.
    pub jitter: Duration,
    /// The rate, bit/s.
    pub rate: Option<u64>,
    /// Maximum number of units that wait for the line.
    pub queue: Option<usize>,
    /// The seed of the impairments.
    pub seed: Option<u64>,
}

/// An invalid address, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressError(pub(super) String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// An open link.
pub enum AnyLink {
    /// A link of IP packets, for an IP port.
    Packets(Box<dyn Link<Pdu>>),
    /// A link of Ethernet frames, for an Ethernet port.
    Frames(Box<dyn Link<Pdu>>),
    /// A link of cells, for an ATM port.
    Cells(Box<dyn Link<TimedCell>>),
}

impl AnyLink {
    /// Returns the link's properties.
    pub fn traits(&self) -> LinkTraits {
        match self {
            AnyLink::Packets(link) | AnyLink::Frames(link) => link.traits(),
            AnyLink::Cells(link) => link.traits(),
        }
    }

    /// Returns the kind of the link's units.
    pub fn unit_kind(&self) -> UnitKind {
        match self {
            AnyLink::Packets(_) => UnitKind::Packets,
            AnyLink::Frames(_) => UnitKind::Frames,
            AnyLink::Cells(_) => UnitKind::Cells,
        }
    }
}

impl fmt::Debug for AnyLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyLink({:?}, {:?})", self.unit_kind(), self.traits())
    }
}
