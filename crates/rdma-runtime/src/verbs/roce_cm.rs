//! The connection manager of a process over RoCEv2: its MADs, its listeners, and its ends.
//!
//! Owners     all processes of one user share port 4791, and so do their connection managers. A request
//!            belongs to the process that holds the UDP port of the service; any other message to the process
//!            whose own port is the upper half of the communication id to which it is addressed. A process
//!            relays what belongs to another ([`super::roce`]).

use super::ends::CmEventHandler;
use crate::tcp::TcpListenSocket;
use kiban_base::{Instant, RngKey, SecureRng};
use kiban_os::udp::UdpLink;
use kiban_rdma::nic::OpenError;
use kiban_rdma::roce::Path;
use kiban_rdma::roce::cm::{self, Cm, CmConfig, CmError, Connect};
use kiban_rdma::wire::roce::cm::{Message, PortSpace, Req};
use kiban_rdma::wire::roce::{BTH_BYTES, Deth, MAD_BYTES, PORT, PSN_MASK};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Offset of a MAD in a datagram: it follows BTH and DETH.
const MAD_AT: usize = BTH_BYTES + Deth::BYTES;

/// Returns the error of a call on the connection manager.
pub(super) fn open_error(error: CmError) -> OpenError {
    match error {
        CmError::TooMany => OpenError::TooMany,
        CmError::UnknownConnection | CmError::WrongState => OpenError::Gone,
        _ => OpenError::InUse,
    }
}

/// A listener.
pub(super) struct Listener {
    /// Holds the port for TCP, in which programs look for it.
    pub(super) _tcp: TcpListenSocket,
    /// Receive what other processes relay, one at each address.
    pub(super) udp: Vec<Arc<UdpLink>>,
    pub(super) service_id: u64,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) owner: Arc<dyn CmEventHandler>,
}

impl Listener {
    /// Returns whether it is for a service at an address.
    pub(super) fn serves(&self, service_id: u64, address: IpAddr) -> bool {
        self.service_id == service_id && self.addresses.contains(&address)
    }
}

/// A connection, or the resolution of a service of datagrams, from its request on.
pub(super) struct End {
    pub(super) owner: Option<Arc<dyn CmEventHandler>>,
    pub(super) qp: Option<u32>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// The address whose socket it uses, and that from which the peer's packets come.
    pub(super) address: IpAddr,
    pub(super) remote: IpAddr,
    /// Our maximum numbers of outstanding reads from the peer and to the peer.
    pub(super) depths: (u16, u16),
    /// The PSN of the first packet that we expect.
    pub(super) psn: u32,
    /// The code of the connection's path MTU.
    pub(super) mtu: u8,
    /// Our request for a connection, until it is accepted.
    pub(super) connect: Option<Box<Connect>>,
    /// The peer's request for a connection, until it is answered.
    pub(super) request: Option<Box<Req>>,
    /// Whether it resolves a service of datagrams.
    pub(super) is_datagrams: bool,
}

/// The connection manager of a process.
pub(super) struct RoceCm {
    pub(super) cm: Cm,
    /// Receives what other processes relay; its number is in our communication ids.
    pub(super) port: Arc<UdpLink>,
    pub(super) rng: SecureRng,
    pub(super) listeners: BTreeMap<u32, Listener>,
    pub(super) next_listener: u32,
    pub(super) ends: BTreeMap<u32, End>,
}

impl RoceCm {
    pub(super) fn open() -> io::Result<RoceCm> {
        let any = |address: IpAddr| UdpLink::bind(SocketAddr::new(address, 0));
        let port = any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        let mut rng = SecureRng::new(kiban_os::random::key()?);
        let config =
            CmConfig { ca_guid: rng.draw(), id_prefix: Some(port.local().port()), ..CmConfig::default() };
        let key: RngKey = rng.draw_key();
        let (listeners, ends) = (BTreeMap::new(), BTreeMap::new());
        let port = Arc::new(port);
        Ok(RoceCm { cm: Cm::new(config, key), port, rng, listeners, next_listener: 0, ends })
    }

    /// Returns the socket that receives what other processes relay.
    pub(super) fn port(&self) -> &UdpLink {
        &self.port
    }

    /// Returns all sockets that receive what other processes relay.
    pub(super) fn sockets(&self) -> Vec<Arc<UdpLink>> {
        let listeners = self.listeners.values().flat_map(|listener| &listener.udp);
        listeners.cloned().chain([self.port.clone()]).collect()
    }

    /// Returns the port of another process to which a datagram for the connection manager at an address
    /// belongs.
    pub(super) fn owner(&self, address: IpAddr, datagram: &[u8]) -> Option<u16> {
        let (_, message) = Message::read(datagram.get(MAD_AT..MAD_AT + MAD_BYTES)?).ok()?;
        let of_service = |id: u64| {
            let is_own = self.listeners.values().any(|listener| listener.serves(id, address));
            PortSpace::of_service(id).filter(|_| !is_own).map(|(_, port)| port)
        };
        let of_id = |id: u32| {
            let port = (id >> 16) as u16;
            (port != self.port.local().port()).then_some(port)
        };
        match message {
            Message::Req(request) => of_service(request.service_id),
            Message::SidrReq(request) => of_service(request.service_id),
            Message::Mra(mra) => of_id(mra.remote_comm_id),
            Message::Rej(reject) => of_id(reject.remote_comm_id),
            Message::Rep(reply) => of_id(reply.remote_comm_id),
            Message::Rtu(ready) => of_id(ready.remote_comm_id),
            Message::Dreq(request) => of_id(request.remote_comm_id),
            Message::Drep(reply) => of_id(reply.remote_comm_id),
            Message::SidrRep(reply) => of_id(reply.request_id),
        }
    }

    /// Takes a MAD.
    pub(super) fn take(&mut self, path: &Path, mad: &[u8], now: Instant) {
        // A malformed MAD is counted by the manager.
        let _ = self.cm.take(path.remote, path.local.ip(), mad, now);
    }

    /// Handles an ICMP error: no program receives at port 4791 of `to`, where a datagram went that is quoted.
    pub(super) fn on_refusal(&mut self, to: SocketAddr, datagram: &[u8], now: Instant) {
        let quoted = datagram.get(MAD_AT..).unwrap_or_default();
        self.cm.on_port_unreachable(to, &quoted[..quoted.len().min(MAD_BYTES)], now);
    }

    /// Returns the next MAD to be sent, and its path.
    pub(super) fn next_mad(&mut self) -> Option<(Path, [u8; MAD_BYTES])> {
        let cm::Transmit { to, from, mad } = self.cm.poll_transmit()?;
        Some((Path { local: SocketAddr::new(from, PORT), remote: SocketAddr::new(to.ip(), PORT) }, mad))
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.cm.advance(now);
    }

    pub(super) fn deadline(&self) -> Instant {
        self.cm.deadline().unwrap_or(Instant::NEVER)
    }

    pub(super) fn draw_psn(&mut self) -> u32 {
        self.rng.draw_u32() & PSN_MASK
    }
}
