//! The EFE link: an EFE endpoint and its socket.

use super::peers::Peers;
use crate::link::{Address, EFE_UDP_PORT, Lower};
use kiban_base::numbers::ether_type;
use kiban_base::{Instant, RngKey};
use kiban_os::packet::PacketLink;
use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use kiban_rdma::efe::{self, Endpoint, Peer, Train, TrainLimits, ethernet};
use kiban_rdma::{iwarp::mpa, nic::Nic};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

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

enum Socket {
    Udp(UdpLink),
    Raw(PacketLink),
}

/// An EFE endpoint and its socket.
pub(crate) struct EfeLink {
    pub(crate) endpoint: Endpoint,
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

impl EfeLink {
    /// Opens the EFE link for a lower layer. Returns `None` if the lower layer needs none.
    pub(crate) fn open(lower: &Lower, key: RngKey) -> io::Result<Option<EfeLink>> {
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
    pub(crate) fn place(&mut self, to: Address) -> io::Result<(Peer, u16)> {
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
    pub(crate) fn stop_listening(&mut self) {
        self.endpoint.unlisten_all();
    }

    /// Starts listening for a service. Returns the listener's number, which is the service, and its address.
    /// Service 0 selects a free one.
    pub(crate) fn listen(&mut self, at: Address) -> io::Result<(u32, Address)> {
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
    pub(crate) fn take(&mut self, nic: &mut Nic, now: Instant) -> bool {
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
    pub(crate) fn pump(&mut self, nic: &mut Nic, now: Instant) {
        nic.pump(&mut self.endpoint, &self.config, now);
        self.send(now);
    }

    /// Fires due timers and releases pending acknowledgements. Call it after the host has had the
    /// opportunity to send.
    pub(crate) fn settle(&mut self, now: Instant) {
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

    pub(crate) fn deadline(&self) -> Instant {
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
