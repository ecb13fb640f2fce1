//! The EFE link: an EFE endpoint, and its UDP ports or its interface.
//!
//! Services  a NIC with an address of its own has one UDP port, which is also that of its peers, and the port
//!           in an address is the number of the service. With [`EfeLink::open_ports`], each service has the
//!           UDP port of its number, so that several processes can share an address.

use super::peers::port_of;
use super::ports::{Port, Ports};
use crate::link::{Address, EFE_UDP_PORT, Lower};
use kiban_base::numbers::ether_type;
use kiban_base::{Instant, RngKey};
use kiban_os::icmp::next_refusal;
use kiban_os::packet::PacketLink;
use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use kiban_rdma::efe::{self, Endpoint, FlowNumber, Padding, Peer, Train, TrainLimits, ethernet};
use kiban_rdma::{iwarp::mpa, nic::Nic};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Maximum number of frames received per call from an interface.
const TURN_FRAMES: usize = 256;
/// Number of bytes received from a UDP socket after which they are acknowledged first, so that the peer sends
/// while this end works.
const TURN_BYTES: usize = 32 << 10;
/// Number of frames for which a train waits.
const TRAIN_FRAMES_MIN: usize = 32;
/// Length in bytes of the longest train that a socket receives.
const ROOM_BYTES: usize = 1 << 16;
/// Maximum number of ICMP errors taken from a port at a time.
const TURN_ERRORS: usize = 16;
/// The trains that a socket takes. Between processes of a host, a kilobyte of padding costs less than a
/// system call.
const LIMITS: TrainLimits = TrainLimits {
    frames: TRAIN_MAX,
    bytes: TRAIN_BYTES_MAX,
    waits_for: TRAIN_FRAMES_MIN,
    padding: Padding::Local,
};

enum Socket {
    Udp(Ports),
    Raw(PacketLink),
}

/// An EFE endpoint and its sockets.
pub(crate) struct EfeLink {
    pub(crate) endpoint: Endpoint,
    socket: Socket,
    /// Whether each service has the UDP port of its number.
    has_port_per_service: bool,
    room: Box<[u8]>,
    config: mpa::Config,
    /// A train, or the rest of one, that the socket had no room for.
    unsent: Option<Unsent>,
}

/// Frames that wait for a socket.
struct Unsent {
    udp: Arc<UdpLink>,
    bytes: Vec<u8>,
    each: usize,
    to: SocketAddr,
}

impl EfeLink {
    /// Opens the EFE link for a lower layer. Returns `None` if the lower layer needs none.
    pub(crate) fn open(lower: &Lower, key: RngKey) -> io::Result<Option<EfeLink>> {
        let (socket, config) = match lower {
            Lower::Tcp { .. } | Lower::Board { .. } | Lower::Nic { .. } | Lower::Roce { .. } => {
                return Ok(None);
            }
            Lower::EfeUdp { at } => {
                let port = if at.port() == 0 { EFE_UDP_PORT } else { at.port() };
                let mut ports = Ports::default();
                ports.bind(SocketAddr::new(at.ip(), port))?;
                (Socket::Udp(ports), efe::Config::udp())
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
        Ok(Some(EfeLink::new(socket, config, key)))
    }

    /// Creates an EFE link for a process that uses several addresses. It has no ports yet.
    pub(crate) fn open_ports(key: RngKey) -> EfeLink {
        let link = EfeLink::new(Socket::Udp(Ports::default()), efe::Config::udp(), key);
        EfeLink { has_port_per_service: true, ..link }
    }

    fn new(socket: Socket, config: efe::Config, key: RngKey) -> EfeLink {
        EfeLink {
            endpoint: Endpoint::new(config, key),
            socket,
            has_port_per_service: false,
            room: vec![0; ROOM_BYTES].into(),
            // Always announce the extensions, because all EFE peers are kiban NICs.
            config: mpa::Config { extensions: true, ..mpa::Config::default() },
            unsent: None,
        }
    }

    /// Returns whether each service has the UDP port of its number.
    pub(crate) fn has_port_per_service(&self) -> bool {
        self.has_port_per_service
    }

    /// Returns the sockets, each with its number.
    pub(crate) fn files(&self) -> Vec<(u16, BorrowedFd<'_>)> {
        match &self.socket {
            Socket::Udp(ports) => ports.ports.iter().map(|port| (port.number, port.udp.as_fd())).collect(),
            Socket::Raw(raw) => vec![(0, raw.as_fd())],
        }
    }

    /// Returns the endpoint's peer for an address, and the service in that address. `from` is the local
    /// address, if there are several.
    pub(crate) fn place(&mut self, to: Address, from: Option<IpAddr>) -> io::Result<(Peer, u16)> {
        match (to, &mut self.socket) {
            (Address::Ip(to), Socket::Udp(ports)) => {
                let Ports { ports, peers, .. } = ports;
                let is_at = |port: &&Port| from.is_none_or(|from| port.udp.local().ip() == from);
                let found = if self.has_port_per_service { ports.iter().find(is_at) } else { ports.first() };
                let port = found.ok_or(io::ErrorKind::AddrNotAvailable)?;
                let (own, mut place) = (port.udp.local(), to);
                if !self.has_port_per_service {
                    place.set_port(own.port());
                }
                Ok((peers.peer_of(port.number, own.ip(), place, &self.endpoint), to.port()))
            }
            (Address::Ethernet { mac, service }, Socket::Raw(_)) => Ok((mac.into(), service)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "wrong kind of address: use IP:SERVICE for EFE over UDP, MAC/SERVICE for EFE in Ethernet frames",
            )),
        }
    }

    // ---- ports

    fn ports(&mut self) -> io::Result<(&mut Ports, &mut Endpoint)> {
        match &mut self.socket {
            Socket::Udp(ports) => Ok((ports, &mut self.endpoint)),
            Socket::Raw(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Adds a port with an existing socket. Returns its number.
    ///
    /// # Errors
    /// There are too many ports.
    pub(crate) fn add_port(&mut self, udp: Arc<UdpLink>) -> io::Result<u16> {
        self.ports()?.0.add(udp)
    }

    /// Opens a port. Returns its number, and its socket if it is new.
    ///
    /// # Errors
    /// The address is not local, or the port is in use; there are too many ports.
    pub(crate) fn bind_port(&mut self, at: SocketAddr) -> io::Result<(u16, Option<Arc<UdpLink>>)> {
        let (port, is_new) = self.ports()?.0.bind(at)?;
        Ok((port.number, is_new.then(|| port.udp.clone())))
    }

    /// Closes a port as soon as no flow uses it.
    pub(crate) fn close_port(&mut self, at: SocketAddr) {
        if let Ok((ports, endpoint)) = self.ports()
            && let Some(number) = ports.number_at(at)
        {
            ports.close(number, endpoint);
        }
    }

    /// Listens at a port that is open, for the service of its number.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn listen_at(&mut self, at: SocketAddr, listener: u32) -> io::Result<()> {
        let (ports, endpoint) = self.ports()?;
        let port = ports.ports.iter_mut().find(|port| port.udp.local() == at);
        port.ok_or(io::ErrorKind::AddrNotAvailable)?.listener = Some(listener);
        endpoint.listen(at.port());
        Ok(())
    }

    /// Ends a listener, and closes its ports.
    pub(crate) fn unlisten(&mut self, listener: u32) {
        if !self.has_port_per_service {
            return self.endpoint.unlisten(listener as u16);
        }
        let Ok((ports, endpoint)) = self.ports() else { return };
        for at in ports.unlisten(listener, endpoint) {
            if !ports.listens(at.port()) {
                endpoint.unlisten(at.port());
            }
        }
    }

    /// Returns the listener for a request that came through a flow.
    pub(crate) fn listener_of(&self, flow: FlowNumber) -> Option<u32> {
        let Socket::Udp(ports) = &self.socket else { return None };
        ports.get(port_of(self.endpoint.peer(flow)?))?.listener
    }

    /// Returns the addresses of both ends of a flow, ours first.
    pub(crate) fn addresses(&self, flow: FlowNumber) -> Option<(SocketAddr, SocketAddr)> {
        match &self.socket {
            Socket::Udp(ports) => ports.addresses(self.endpoint.peer(flow)?),
            Socket::Raw(_) => None,
        }
    }

    // ---- services

    /// Stops listening for all services.
    pub(crate) fn stop_listening(&mut self) {
        self.endpoint.unlisten_all();
    }

    /// Starts listening for a service. Returns the listener's number, which is the service, and its address.
    /// Service 0 selects a free one.
    pub(crate) fn listen(&mut self, at: Address) -> io::Result<(u32, Address)> {
        let (service, own) = match (at, &self.socket) {
            (Address::Ip(at), Socket::Udp(ports)) => {
                let own = ports.ports.first().map(|port| port.udp.local().ip());
                (at.port(), Ok(own.ok_or(io::ErrorKind::AddrNotAvailable)?))
            }
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

    // ---- frames

    /// Receives frames. Returns whether there may be more.
    pub(crate) fn take(&mut self, nic: &mut Nic, now: Instant) -> bool {
        let EfeLink { endpoint, socket, room, .. } = self;
        match socket {
            Socket::Udp(Ports { ports, peers, busy, .. }) => {
                let mut has_more = false;
                for port in ports {
                    if !port.is_polled(*busy) {
                        continue;
                    }
                    let own = port.udp.local().ip();
                    let mut taken_bytes = 0;
                    // An error of the socket is reported again, or the frames are lost as on any network.
                    while taken_bytes < TURN_BYTES
                        && let Ok(Some(train)) = port.udp.receive_train(room)
                    {
                        (port.polls, *busy) = (0, port.number);
                        taken_bytes += train.bytes;
                        let peer = peers.peer_of(port.number, own, train.from, endpoint);
                        for frame in room[..train.bytes].chunks(train.each) {
                            nic.take_frame(endpoint, peer, frame, now);
                        }
                    }
                    has_more |= taken_bytes >= TURN_BYTES;
                }
                has_more
            }
            Socket::Raw(raw) => {
                for _ in 0..TURN_FRAMES {
                    let Some(length) = raw.receive(room) else { return false };
                    ethernet::arrive(endpoint, raw.mac(), &room[..length], now);
                }
                true
            }
        }
    }

    /// Handles an event of a socket: looks at it again, and if there is an error, takes the reports of hosts
    /// that have no receiver at a port.
    pub(crate) fn on_event(&mut self, number: u16, has_error: bool, now: Instant) {
        let EfeLink { endpoint, socket, room, .. } = self;
        let Socket::Udp(Ports { ports, peers, .. }) = socket else { return };
        let Some(port) = ports.iter_mut().find(|port| port.number == number) else { return };
        port.polls = 0;
        for _ in 0..if has_error { TURN_ERRORS } else { 0 } {
            let Some(refusal) = next_refusal(&*port.udp, room) else { return };
            let peer = peers.peer_of(number, port.udp.local().ip(), refusal.to, endpoint);
            endpoint.on_unreachable(peer, &room[..refusal.bytes], now);
        }
    }

    /// Moves data and events between the NIC and the network.
    pub(crate) fn pump(&mut self, nic: &mut Nic, now: Instant) {
        nic.pump(&mut self.endpoint, &self.config, now);
        self.send(now);
    }

    /// Fires due timers and releases pending acknowledgements. Call it after the host has had the
    /// opportunity to send.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.endpoint.settle(now);
        if let Socket::Udp(ports) = &mut self.socket {
            ports.sweep(&self.endpoint);
        }
    }

    fn send(&mut self, now: Instant) {
        let EfeLink { endpoint, socket, room, unsent, .. } = self;
        match socket {
            Socket::Udp(ports) => {
                // What the socket has no room for is sent first when it has room again.
                if let Some(Unsent { udp, bytes, each, to }) = unsent.take() {
                    *unsent = rest_of(&udp, &bytes, each, to);
                }
                while unsent.is_none()
                    && let Some(Train { peer, bytes, each }) = endpoint.fetch_train(room, &LIMITS, now)
                {
                    if let Some((udp, to)) = ports.route(peer) {
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

    pub(crate) fn deadline(&self) -> Instant {
        self.endpoint.deadline()
    }
}

/// Sends a train, and returns what the socket has no room for now.
fn rest_of(udp: &Arc<UdpLink>, bytes: &[u8], each: usize, to: SocketAddr) -> Option<Unsent> {
    match udp.send_train(bytes, each, to) {
        // Whatever the system rejects is lost, as on any network.
        SendResult::All | SendResult::None => None,
        SendResult::Some(sent) => {
            Some(Unsent { udp: udp.clone(), bytes: bytes[sent * each..].to_vec(), each, to })
        }
    }
}
