//! Lower layers of an RDMA NIC in real time: their names, and the EFE link.
//!
//! ```text
//! tcp[:ADDRESS]         MPA on the operating system's TCP; connections use that local address
//! board[:NAME]          MPA on the TCP of a running board: the only one, or the one with this name or path
//! nic[:NAME]            the NIC of a running board, and MPA on the board's TCP
//! nic-roce[:NAME]       the NIC of a running board, and RoCEv2 on the board's UDP
//! roce[:ADDRESS]        RoCEv2, at that local address
//! efe:ADDRESS           EFE over UDP, at that local address
//! efe-raw:INTERFACE     EFE in Ethernet frames of an interface
//! ```

use kiban_base::ethernet::Mac;
use kiban_base::numbers::ether_type;
use kiban_base::{Instant, RngKey};
use kiban_os::packet::PacketLink;
use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use kiban_rdma::efe::{self, Endpoint, Peer, Train, TrainLimits, ethernet};
use kiban_rdma::hif::Transport;
use kiban_rdma::wire::roce::PORT;
use kiban_rdma::{iwarp::mpa, nic::Nic};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

/// The UDP port of EFE endpoints. It is not assigned; its value is the EtherType for local experiments.
pub const EFE_UDP_PORT: u16 = 0x88b5;
/// Maximum number of frames received per call from an interface.
const TURN_FRAMES: usize = 256;
/// Number of bytes received from a UDP socket after which they are acknowledged first, so that the peer sends
/// while this end works.
const TURN_BYTES: usize = 32 << 10;
/// Number of frames for which a train waits.
const TRAIN_FRAMES_MIN: usize = 32;
/// Requested size of a UDP socket's receive buffer in bytes. Without privileges, the system grants less.
const QUEUE_BYTES: usize = 8 << 20;
/// Length in bytes of the longest train that a socket receives.
const ROOM_BYTES: usize = 1 << 16;

/// The transport of a NIC's connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lower {
    /// iWARP: MPA on the operating system's TCP.
    Tcp {
        /// Local address of outgoing connections; by default the system chooses.
        from: Option<IpAddr>,
    },
    /// iWARP: MPA on the TCP of a running board, `kiban up` with a service of kind `attach`.
    Board {
        /// The board's name, or the path of its socket, which contains a `/`. `None` selects the only
        /// running board.
        name: Option<String>,
    },
    /// The NIC of a running board, `kiban up` with a service of kind `rdma`, instead of a NIC of this
    /// process's own.
    Nic {
        /// The board's name, or the path of its socket, which contains a `/`. `None` selects the only
        /// running board with such a service.
        name: Option<String>,
        /// The transport of connections.
        transport: Transport,
    },
    /// RoCEv2 at UDP port 4791.
    Roce {
        /// A local address. Without one, [`Lower::towards`] chooses it.
        at: Option<IpAddr>,
    },
    /// EFE over UDP.
    EfeUdp {
        /// A local address; port 0 means [`EFE_UDP_PORT`].
        at: SocketAddr,
    },
    /// EFE in Ethernet frames.
    EfeRaw {
        /// The interface's name.
        interface: String,
    },
}

impl fmt::Display for Lower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lower::Tcp { from: None } => f.write_str("tcp"),
            Lower::Tcp { from: Some(from) } => write!(f, "tcp:{from}"),
            Lower::Board { name: None } => f.write_str("board"),
            Lower::Board { name: Some(name) } => write!(f, "board:{name}"),
            Lower::Nic { name, transport } => {
                f.write_str(match transport {
                    Transport::Tcp => "nic",
                    Transport::Roce => "nic-roce",
                })?;
                name.as_ref().map_or(Ok(()), |name| write!(f, ":{name}"))
            }
            Lower::Roce { at: None } => f.write_str("roce"),
            Lower::Roce { at: Some(at) } => write!(f, "roce:{at}"),
            Lower::EfeUdp { at } => write!(f, "efe:{at}"),
            Lower::EfeRaw { interface } => write!(f, "efe-raw:{interface}"),
        }
    }
}

impl FromStr for Lower {
    type Err = String;

    fn from_str(word: &str) -> Result<Lower, String> {
        let (kind, rest) = word.split_once(':').map_or((word, None), |(kind, rest)| (kind, Some(rest)));
        let ip = |rest: &str| {
            rest.trim_matches(['[', ']']).parse().map_err(|_| format!("`{rest}` is not an IP address"))
        };
        match (kind, rest) {
            ("tcp", None) => Ok(Lower::Tcp { from: None }),
            ("tcp", Some(rest)) => Ok(Lower::Tcp { from: Some(ip(rest)?) }),
            ("board", None) => Ok(Lower::Board { name: None }),
            ("board", Some(name)) if !name.is_empty() => Ok(Lower::Board { name: Some(name.into()) }),
            ("nic" | "nic-roce", name) if name != Some("") => {
                let transport = if kind == "nic" { Transport::Tcp } else { Transport::Roce };
                Ok(Lower::Nic { name: name.map(str::to_owned), transport })
            }
            ("roce", None) => Ok(Lower::Roce { at: None }),
            ("roce", Some(rest)) => Ok(Lower::Roce { at: Some(ip(rest)?) }),
            ("efe", Some(rest)) => {
                let at = rest.parse().or_else(|_| ip(rest).map(|ip| SocketAddr::new(ip, 0)))?;
                Ok(Lower::EfeUdp { at })
            }
            ("efe-raw", Some(interface)) => Ok(Lower::EfeRaw { interface: interface.into() }),
            _ => Err(format!(
                "unknown lower layer `{word}`: use tcp, tcp:ADDRESS, board, board:NAME, nic, nic:NAME, nic-roce, \
                 nic-roce:NAME, roce, roce:ADDRESS, efe:ADDRESS or efe-raw:INTERFACE"
            )),
        }
    }
}

impl Lower {
    /// Returns the lower layer with which a server listens at an address: RoCEv2 without an address uses this
    /// one.
    pub fn serving(self, at: Address) -> Lower {
        match (self, at) {
            (Lower::Roce { at: None }, Address::Ip(at)) if !at.ip().is_unspecified() => {
                Lower::Roce { at: Some(at.ip()) }
            }
            (lower, _) => lower,
        }
    }

    /// Returns the lower layer with which a client reaches a server. RoCEv2 without an address uses that of
    /// the route; to a loopback address, it uses one of this process, because each NIC needs its own.
    ///
    /// # Errors
    /// There is no route.
    pub fn towards(self, server: Address) -> io::Result<Lower> {
        let (Lower::Roce { at: None }, Address::Ip(mut server)) = (&self, server) else { return Ok(self) };
        let any: IpAddr = match server.ip() {
            IpAddr::V4(server) if server.is_loopback() => {
                return Ok(Lower::Roce { at: Some(loopback_beside(server).into()) });
            }
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        server.set_port(PORT);
        // Connecting a UDP socket sends nothing: the system looks up the route and chooses the address.
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        Ok(Lower::Roce { at: Some(socket.local_addr()?.ip()) })
    }
}

/// Returns the loopback address of this process, which is not that of the server. 127.128.0.0/9 has more
/// addresses than the system has process numbers (2^22, proc(5)).
fn loopback_beside(server: Ipv4Addr) -> Ipv4Addr {
    let own = 0x7f80_0000 | std::process::id() & 0x3f_ffff;
    Ipv4Addr::from_bits(if server.to_bits() == own { own + 1 } else { own })
}

/// The address of a NIC: a host, and a service (a port) on that host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and a port. Over RoCEv2, the port is RDMA-CM's. Over EFE, the port is the service, and
    /// the UDP port is the same as the sender's.
    Ip(SocketAddr),
    /// An Ethernet address.
    Ethernet {
        /// The interface's MAC address.
        mac: Mac,
        /// The service.
        service: u16,
    },
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Ethernet { mac, service } => write!(f, "{mac}/{service}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(word: &str) -> Result<Address, String> {
        if let Ok(address) = word.parse() {
            return Ok(Address::Ip(address));
        }
        let parts = word.split_once('/').and_then(|(mac, service)| {
            Some(Address::Ethernet { mac: mac.parse().ok()?, service: service.parse().ok()? })
        });
        parts.ok_or_else(|| format!("invalid address `{word}`: use IP:PORT or MAC/SERVICE"))
    }
}

enum Socket {
    Udp(UdpLink),
    Raw(PacketLink),
}

/// An EFE endpoint and its socket.
pub(super) struct EfeLink {
    pub(super) endpoint: Endpoint,
    socket: Socket,
    peers: Peers,
    room: Box<[u8]>,
    config: mpa::Config,
    limits: TrainLimits,
    /// A train, or the rest of one, that the socket had no room for.
    unsent: Option<Unsent>,
}

/// Frames that wait for a socket.
struct Unsent {
    bytes: Vec<u8>,
    each: usize,
    to: SocketAddr,
}

/// The bit that marks the number of an IPv6 peer.
const IPV6: u64 = 1 << 63;
/// Number of known IPv6 peers above which those without a flow are forgotten.
const PEERS_KEPT: usize = 4096;

/// Assigns numbers to IPv6 addresses and zones, which do not fit into a [`Peer`].
#[derive(Default)]
struct Peers {
    numbers: HashMap<(Ipv6Addr, u32), u32>,
    places: HashMap<u32, (Ipv6Addr, u32)>,
    made: u32,
}

impl Peers {
    fn number(&mut self, place: (Ipv6Addr, u32), endpoint: &Endpoint) -> u32 {
        if let Some(&number) = self.numbers.get(&place) {
            return number;
        }
        if self.numbers.len() >= PEERS_KEPT {
            // Any host can send frames from any address, so forget peers without a flow.
            let used: HashSet<u32> = endpoint.peers().map(|Peer(peer)| (peer >> 16) as u32).collect();
            self.places.retain(|number, _| used.contains(number));
            self.numbers.retain(|_, number| used.contains(number));
        }
        self.made = self.made.wrapping_add(1);
        self.numbers.insert(place, self.made);
        self.places.insert(self.made, place);
        self.made
    }

    fn peer_of(&mut self, from: SocketAddr, endpoint: &Endpoint) -> Peer {
        let place = match from {
            SocketAddr::V4(from) => u64::from(from.ip().to_bits()) << 16,
            SocketAddr::V6(from) => {
                IPV6 | u64::from(self.number((*from.ip(), from.scope_id()), endpoint)) << 16
            }
        };
        Peer(place | u64::from(from.port()))
    }

    fn address_of(&self, Peer(peer): Peer) -> Option<SocketAddr> {
        let port = peer as u16;
        if peer & IPV6 == 0 {
            return Some(SocketAddr::new(Ipv4Addr::from_bits((peer >> 16) as u32).into(), port));
        }
        let &(ip, zone) = self.places.get(&((peer >> 16) as u32))?;
        Some(SocketAddrV6::new(ip, port, 0, zone).into())
    }
}

impl EfeLink {
    /// Opens the EFE link for a lower layer. Returns `None` if the lower layer needs none.
    pub(super) fn open(lower: &Lower, key: RngKey) -> io::Result<Option<EfeLink>> {
        let is_loopback = matches!(lower, Lower::EfeUdp { at } if at.ip().is_loopback());
        let (socket, config) = match lower {
            Lower::Tcp { .. } | Lower::Board { .. } | Lower::Nic { .. } | Lower::Roce { .. } => {
                return Ok(None);
            }
            Lower::EfeUdp { at } => {
                let port = if at.port() == 0 { EFE_UDP_PORT } else { at.port() };
                let socket = UdpLink::bind(SocketAddr::new(at.ip(), port))?;
                socket.request_receive_buffer(QUEUE_BYTES);
                socket.request_trains();
                (Socket::Udp(socket), if is_loopback { efe::Config::loopback() } else { efe::Config::udp() })
            }
            Lower::EfeRaw { interface } => {
                let socket = PacketLink::open(interface, ether_type::EXPERIMENTAL)?;
                // Response times depend on the operating system, so use the timeouts for UDP.
                let config = efe::Config {
                    segment_bytes: efe::Config::default().segment_bytes,
                    checked: false,
                    ..efe::Config::udp()
                };
                (Socket::Raw(socket), config)
            }
        };
        let endpoint = Endpoint::new(config, key);
        let room = vec![0; ROOM_BYTES].into();
        // On the loopback, a kilobyte of padding costs less than a system call.
        let limits = TrainLimits {
            frames: TRAIN_MAX,
            bytes: TRAIN_BYTES_MAX,
            waits_for: TRAIN_FRAMES_MIN,
            pads: is_loopback,
        };
        // Always announce the extensions, because all EFE peers are kiban NICs.
        let config = mpa::Config { extensions: true, ..mpa::Config::default() };
        Ok(Some(EfeLink { endpoint, socket, peers: Peers::default(), room, config, limits, unsent: None }))
    }

    /// Returns the endpoint's peer for an address, and the service in that address.
    pub(super) fn place(&mut self, to: Address) -> io::Result<(Peer, u16)> {
        match (to, &self.socket) {
            (Address::Ip(to), Socket::Udp(udp)) => {
                let port = udp.local().port();
                let service = to.port();
                let mut place = to;
                place.set_port(port);
                Ok((self.peer_of(place), service))
            }
            (Address::Ethernet { mac, service }, Socket::Raw(_)) => Ok((mac.into(), service)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "wrong kind of address: use IP:SERVICE for EFE over UDP, MAC/SERVICE for EFE in Ethernet frames",
            )),
        }
    }

    fn peer_of(&mut self, from: SocketAddr) -> Peer {
        self.peers.peer_of(from, &self.endpoint)
    }

    /// Stops listening for all services.
    pub(super) fn stop_listening(&mut self) {
        self.endpoint.unlisten_all();
    }

    /// Starts listening for a service. Returns the listener's number, which is the service, and its address.
    /// Service 0 selects a free one.
    pub(super) fn listen(&mut self, at: Address) -> io::Result<(u32, Address)> {
        let (service, own) = match (at, &self.socket) {
            (Address::Ip(at), Socket::Udp(udp)) => (at.port(), Ok(udp.local().ip())),
            (Address::Ethernet { service, .. }, Socket::Raw(raw)) => (service, Err(raw.mac())),
            (Address::Ip(at), Socket::Raw(raw)) => (at.port(), Err(raw.mac())),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let chosen = (49152..=u16::MAX).find(|&service| !self.endpoint.listens(service));
        let service = if service == 0 { chosen.unwrap_or(0) } else { service };
        if self.endpoint.listens(service) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.endpoint.listen(service);
        Ok((
            service.into(),
            match own {
                Ok(ip) => Address::Ip(SocketAddr::new(ip, service)),
                Err(mac) => Address::Ethernet { mac, service },
            },
        ))
    }

    /// Receives frames. Returns whether there may be more.
    pub(super) fn take(&mut self, nic: &mut Nic, now: Instant) -> bool {
        let EfeLink { endpoint, socket, peers, room, .. } = self;
        match socket {
            Socket::Udp(udp) => {
                let mut taken_bytes = 0;
                while taken_bytes < TURN_BYTES {
                    // An error of the socket is reported again, or the frames are lost as on any network.
                    let Ok(Some(train)) = udp.receive_train(room) else { return false };
                    taken_bytes += train.bytes;
                    let peer = peers.peer_of(train.from, endpoint);
                    for frame in room[..train.bytes].chunks(train.each) {
                        nic.take_frame(endpoint, peer, frame, now);
                    }
                }
            }
            Socket::Raw(raw) => {
                for _ in 0..TURN_FRAMES {
                    let Some(length) = raw.receive(room) else { return false };
                    ethernet::arrive(endpoint, raw.mac(), &room[..length], now);
                }
            }
        }
        true
    }

    /// Moves data and events between the NIC and the network.
    pub(super) fn pump(&mut self, nic: &mut Nic, now: Instant) {
        nic.pump(&mut self.endpoint, &self.config, now);
        self.send(now);
    }

    /// Fires due timers and releases pending acknowledgements. Call it after the host has had the
    /// opportunity to send.
    pub(super) fn settle(&mut self, now: Instant) {
        self.endpoint.settle(now);
    }

    fn send(&mut self, now: Instant) {
        let EfeLink { endpoint, socket, peers, room, limits, unsent, .. } = self;
        match socket {
            Socket::Udp(udp) => {
                // What the socket has no room for is sent first when it has room again.
                if let Some(Unsent { bytes, each, to }) = unsent.take() {
                    *unsent = rest_of(udp, &bytes, each, to);
                }
                while unsent.is_none()
                    && let Some(Train { peer, bytes, each }) = endpoint.fetch_train(room, limits, now)
                {
                    if let Some(to) = peers.address_of(peer) {
                        *unsent = rest_of(udp, bytes, each, to);
                    }
                }
            }
            Socket::Raw(raw) => {
                while let Some(length) = ethernet::fetch(endpoint, raw.mac(), room, now) {
                    raw.send(&room[..length]);
                }
            }
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.endpoint.deadline()
    }
}

/// Sends a train, and returns what the socket has no room for now.
fn rest_of(udp: &UdpLink, bytes: &[u8], each: usize, to: SocketAddr) -> Option<Unsent> {
    match udp.send_train(bytes, each, to) {
        // Whatever the system rejects is lost, as on any network.
        SendResult::All | SendResult::None => None,
        SendResult::Some(sent) => Some(Unsent { bytes: bytes[sent * each..].to_vec(), each, to }),
    }
}

impl AsFd for EfeLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Udp(udp) => udp.as_fd(),
            Socket::Raw(raw) => raw.as_fd(),
        }
    }
}
