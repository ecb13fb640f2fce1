//! RoCEv2 over UDP sockets, without privileges.
//!
//! ```text
//! socket of a port   its number is in the queue pair numbers ([`super::ports`]); the source port of all
//!                    packets, and the destination of packets between processes of this host
//! port 4791          where other hosts send. All processes of one user share it (SO_REUSEPORT), and the
//!                    system gives each packet to one of them
//! ```
//!
//! Relay      a process that receives a packet for a queue pair of another sends it on to the port in the
//!            queue pair's number, with the addresses in front. A message of the connection manager goes to
//!            the port of the service or, later, to the port in the communication id ([`super::roce_cm`]).
//!            Every process can therefore end without disturbing the others. The source port 4791 shows that
//!            a process of the same user relayed a packet.
//! Errors     an ICMP error means that no program receives at a port: see [`RoceLinks::take_refusals`].
//! ICRC       sockets that are not connected and never fragment send IPv4 packets with identification 0, and
//!            trains with 0, 1, 2 and so on; the ICRC covers it ([`kiban_rdma::roce`]).
//! Memory     packets between processes of this host go through shared memory ([`super::roce_shared`]).
//! Window     the packets that one queue pair may have on the way fit into the receive buffer of an ordinary
//!            socket.
//! End        the message that ends a connection comes by another socket than the packets before it. It is
//!            sent after them, and handled after those that have arrived.
//! Congestion trains of connected queue pairs are sent as ECN-capable, and the marks of received ones are
//!            passed to the endpoint, also of relayed packets.
//! Limits     no fragments: a path MTU must fit the links of the path.

use super::pairs::{Peer, QueuePairs, Sending, Service};
use super::ports::{Port, Ports, port_of};
use super::roce_activity::Activity;
use super::roce_cm::RoceCm;
use super::roce_groups::{Group, Groups};
use super::roce_shared::SharedLinks;
use crate::linked_nic::LinkedNic;
use kiban_base::Instant;
use kiban_os::icmp::{Refusal, next_refusal};
use kiban_os::interface;
use kiban_os::udp::{SendResult, TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use kiban_rdma::rnic::{RequestError, Rnic, RoceSending, RoceTraits};
use kiban_rdma::roce::{Departure, Endpoint, Path};
use kiban_rdma::wire::roce as wire;
use kiban_rdma::wire::roce::cm::mtu_code;
use kiban_rdma::wire::roce::{GSI_QPN, PORT, Packet};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Requested size of the receive buffers in bytes. Without privileges, the system grants less.
const QUEUE_BYTES: usize = 8 << 20;
/// The bytes that one queue pair may have on the way.
const WINDOW_BYTES: usize = 256 << 10;
/// Maximum number of trains received from one socket before it is the next one's turn.
const TURN_TRAINS: usize = 16;
/// After fewer bytes than this, it is the next socket's turn.
const SHORT_BYTES: usize = 512;
/// Maximum number of turns in which the packets are received that a peer sent before it ended its connection.
/// A turn may receive only one short packet, and with the smallest path MTU the window has this many.
const FINAL_TURNS: usize = WINDOW_BYTES / 256;
/// Time after which all sockets are read, while no thread sleeps: those that were empty, and those of the
/// connection manager. Reading them takes several microseconds, a poll of shared memory a fraction of one.
const READ_ALL_INTERVAL: Duration = Duration::from_micros(20);
/// The first octet of a relayed packet, which no RoCEv2 packet has: its opcode is reserved.
const RELAYED: u8 = 0xff;
/// Header of a relayed packet: [`RELAYED`], an octet that is not zero if the packet was marked (CE),
/// and the sender's port, its address, and the address that it sent to.
const RELAY_BYTES: usize = 36;
/// The first port that the system assigns, whatever its settings: lower ones are privileged
/// (ip_local_port_range, ip(7)).
const UNPRIVILEGED_PORT: u16 = 1024;
/// The MTU of an interface that is not known: Ethernet's.
const LINK_MTU_BYTES: usize = 1500;
/// The hop limit of datagrams to multicast groups, as rdma_rxe's connection manager sets it.
const MULTICAST_HOPS: u8 = 64;
/// The default partition, with full membership.
const PKEY: u16 = 0xffff;

/// The socket at port 4791 of an address.
struct Shared {
    socket: UdpLink,
    /// Sends the connection manager's messages to other hosts. ICMP errors about them come to this process,
    /// because no other process has its port.
    manager: UdpLink,
    /// The code of the path MTU that fits the interface.
    mtu: u8,
    /// Number of queue pairs, listeners and connections of this process that use it.
    users: u32,
}

/// The queue pairs that receive packets.
struct Receivers<'a> {
    core: &'a mut Rnic,
    qps: &'a QueuePairs,
    now: Instant,
}

impl Receivers<'_> {
    /// Passes a packet to its queue pair. Returns the MAD if it is one for the connection manager.
    fn take<'b>(
        &mut self,
        endpoint: &mut Endpoint,
        path: Path,
        packet: &'b [u8],
        is_marked: bool,
    ) -> Option<&'b [u8]> {
        let find = |qpn| self.qps.named(path.local.ip(), qpn);
        endpoint.take(self.core, find, path, packet, is_marked, self.now)
    }
}

/// The sockets and the endpoint of a process.
pub(super) struct RoceLinks {
    epoll: OwnedFd,
    endpoint: Endpoint,
    pub(super) cm: RoceCm,
    pub(super) groups: Groups,
    pub(super) memory: SharedLinks,
    shared: BTreeMap<IpAddr, Shared>,
    /// The number of queue pairs per port.
    open: BTreeMap<(IpAddr, u16), u32>,
    room: Vec<u8>,
    train: Vec<u8>,
    /// A train that a socket had no room for.
    unsent: Option<Departure>,
    relayed: Vec<u8>,
    more: bool,
    /// When [`RoceLinks::take`] reads all sockets.
    read_all_at: Instant,
    activity: Activity,
}

impl RoceLinks {
    pub(super) fn open(outer: &OwnedFd, shares_memory: bool) -> io::Result<RoceLinks> {
        let links = RoceLinks {
            epoll: outer.try_clone()?,
            endpoint: Endpoint::default(),
            cm: RoceCm::open()?,
            groups: Groups::default(),
            memory: SharedLinks::open(shares_memory.then_some(outer))?,
            shared: BTreeMap::new(),
            open: BTreeMap::new(),
            room: vec![0; 1 << 16],
            train: Vec::new(),
            unsent: None,
            relayed: Vec::new(),
            more: false,
            read_all_at: Instant::ZERO,
            activity: Activity::default(),
        };
        links.prepare(links.cm.port())?;
        Ok(links)
    }

    // ---- queue pairs

    /// Counts another queue pair at a port.
    pub(super) fn open_port(&mut self, port: &Port) -> io::Result<()> {
        let place = (port.address, port.udp.local().port());
        if !self.open.contains_key(&place) {
            self.prepare(&port.udp)?;
            self.memory.open_port(port.udp.local());
        }
        self.open_address(port.address)?;
        *self.open.entry(place).or_insert(0) += 1;
        Ok(())
    }

    /// Counts another user of an address: a queue pair, a listener, or a connection.
    pub(super) fn open_address(&mut self, address: IpAddr) -> io::Result<()> {
        if !self.shared.contains_key(&address) {
            let socket = UdpLink::bind_shared(SocketAddr::new(address, PORT)).map_err(|error| {
                let kind = error.kind();
                let remedy = match kind {
                    io::ErrorKind::AddrInUse => {
                        ": another user's programs or the kernel's rdma_rxe use it for RoCEv2; use another \
                         address of this host, or another network namespace"
                    }
                    _ => "",
                };
                io::Error::new(kind, format!("{error}{remedy}"))
            })?;
            self.prepare(&socket)?;
            let manager = UdpLink::bind(SocketAddr::new(address, 0))?;
            self.prepare(&manager)?;
            for socket in [&socket, &manager] {
                socket.request_errors();
            }
            let link_mtu_bytes = interface::name_of(address).and_then(|name| interface::mtu(&name).ok());
            let mtu = mtu_code(link_mtu_bytes.unwrap_or(LINK_MTU_BYTES));
            self.shared.insert(address, Shared { socket, manager, mtu, users: 0 });
        }
        if let Some(shared) = self.shared.get_mut(&address) {
            shared.users += 1;
        }
        Ok(())
    }

    /// Releases an address. Its last user closes the socket.
    pub(super) fn close_address(&mut self, address: IpAddr) {
        if let Some(shared) = self.shared.get_mut(&address) {
            shared.users -= 1;
            if shared.users == 0 {
                // This fails only if the socket is not watched.
                let _ = epoll::delete(&self.epoll, &shared.socket);
                self.activity.forget(shared.socket.local());
                self.shared.remove(&address);
            }
        }
    }

    /// Returns the code of the path MTU of an address that is in use.
    pub(super) fn mtu(&self, address: IpAddr) -> u8 {
        self.shared.get(&address).map_or(mtu_code(LINK_MTU_BYTES), |shared| shared.mtu)
    }

    /// Sets the path MTU of an address that is in use, as if its interface had another MTU.
    #[cfg(test)]
    pub(super) fn set_mtu(&mut self, address: IpAddr, mtu: u8) {
        self.shared.get_mut(&address).expect("it is in use").mtu = mtu;
    }

    /// Sets a socket's options and watches it until it is closed.
    pub(super) fn prepare(&self, socket: &UdpLink) -> io::Result<()> {
        socket.request_receive_buffer(QUEUE_BYTES);
        socket.request_trains();
        socket.request_marks();
        socket.forbid_fragments();
        socket.direct_multicast(MULTICAST_HOPS);
        // RoCEv2's senders need not compute UDP's checksum, and rdma_rxe does not; the ICRC covers more.
        socket.allow_missing_checksums();
        let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket.as_fd(), epoll::EventData::new_u64(0), events)?)
    }

    /// Removes a queue pair from its port.
    pub(super) fn close(&mut self, ports: &mut Ports, qp: u32, address: IpAddr, qpn: u32) {
        self.disconnect(qp);
        let place = (address, port_of(qpn));
        if let Some(count) = self.open.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&place);
                self.memory.close_port(place.into());
                self.activity.forget(place.into());
                if let Some(port) = ports.port(address, qpn) {
                    // This fails only if the socket is not watched.
                    let _ = epoll::delete(&self.epoll, &port.udp);
                }
            }
        }
        self.close_address(address);
    }

    /// Connects a queue pair at a port with its peer: it receives from now on.
    pub(super) fn connect(
        &mut self,
        core: &mut LinkedNic,
        qp: u32,
        service: Service,
        port: &Port,
        peer: &Peer,
    ) -> Result<(), RequestError> {
        if port.address.is_ipv4() != peer.address.is_ipv4() {
            return Err(RequestError::BadAddress);
        }
        let traits = RoceTraits {
            service: match service {
                Service::Unreliable => wire::Service::Uc,
                Service::XrcInitiator | Service::XrcTarget(_) => wire::Service::Xrc,
                Service::Connected | Service::Datagrams => wire::Service::Rc,
            },
            peer: peer.qpn,
            pkey: PKEY,
            path_mtu: peer.path_mtu,
            first_psn: peer.initial_psn,
            ird: peer.reads,
            rnr_timer: peer.rnr_timer,
            reorder_max: window(peer.path_mtu),
        };
        core.nic.core.connect_roce(qp, traits)?;
        let remote = remote(&self.shared, peer.address, peer.qpn);
        let local = port.udp.local();
        self.endpoint.attach(qp, Path { local, remote });
        if remote.port() != PORT && !self.open.contains_key(&(remote.ip(), remote.port())) {
            self.memory.call(local, remote);
        }
        Ok(())
    }

    /// Forgets a queue pair's peer.
    pub(super) fn disconnect(&mut self, qp: u32) {
        self.endpoint.detach(qp);
    }

    // ---- datagrams

    /// Receives datagrams and passes them to their queue pairs.
    pub(super) fn take(&mut self, core: &mut LinkedNic, qps: &QueuePairs, ports: &mut Ports, now: Instant) {
        self.endpoint.advance(&mut core.nic.core, now);
        self.cm.advance(now);
        let reads_all = now >= self.read_all_at;
        if reads_all {
            self.read_all_at = now + READ_ALL_INTERVAL;
        }
        let mut to = Receivers { core: &mut core.nic.core, qps, now };
        let mut room = std::mem::take(&mut self.room);
        let mut more = false;
        if reads_all {
            self.memory.set_up();
            more |= self.take_refusals(&mut to, &mut room);
            more |= self.take_from_manager(&mut to, &mut room);
        }
        more |= self.take_packets(&mut to, ports, reads_all, &mut room);
        let mut turns = 0;
        while self.cm.cm.has_disconnected()
            && turns < FINAL_TURNS
            && self.take_packets(&mut to, ports, true, &mut room)
        {
            turns += 1;
        }
        self.room = room;
        self.more = more;
    }

    /// Receives from all places but those of the connection manager. Returns whether there may be more.
    fn take_packets(
        &mut self,
        to: &mut Receivers<'_>,
        ports: &mut Ports,
        reads_all: bool,
        room: &mut [u8],
    ) -> bool {
        let mut more = self.take_from_ports(to, ports, reads_all, room);
        more |= self.take_from_shared(to, reads_all, room);
        more |= self.take_from_groups(to, room);
        let endpoint = &mut self.endpoint;
        more |= self.memory.take(|path, packet| {
            to.take(endpoint, path, packet, false);
        });
        more
    }

    /// Receives what other processes relay to the connection manager. Returns whether there may be more.
    fn take_from_manager(&mut self, to: &mut Receivers<'_>, room: &mut [u8]) -> bool {
        let RoceLinks { endpoint, cm, shared, .. } = self;
        let mut more = false;
        for socket in cm.sockets() {
            more |= each(&socket, room, |bytes, from, _| {
                if let Some((path, packet, is_marked)) = relayed(bytes, from, shared)
                    && let Some(mad) = to.take(endpoint, path, packet, is_marked)
                {
                    cm.take(&path, mad, to.now);
                }
            });
        }
        more
    }

    /// Receives from the sockets of queue pairs' ports: packets of this host's processes, and those that they
    /// relay. Returns whether there may be more.
    fn take_from_ports(
        &mut self,
        to: &mut Receivers<'_>,
        ports: &mut Ports,
        reads_all: bool,
        room: &mut [u8],
    ) -> bool {
        let RoceLinks { endpoint, shared, open, activity, .. } = self;
        let mut more = false;
        for &(address, number) in open.keys() {
            let Some(port) = ports.port(address, u32::from(number) << 8) else { continue };
            let local = port.udp.local();
            if !reads_all && !activity.is_recent(local) {
                continue;
            }
            let mut is_empty = true;
            more |= each(&port.udp, room, |bytes, from, is_marked| {
                is_empty = false;
                let direct = (Path { local, remote: from }, bytes, is_marked);
                let (path, packet, is_marked) = relayed(bytes, from, shared).unwrap_or(direct);
                // The connection manager has no port of a queue pair.
                to.take(endpoint, path, packet, is_marked);
            });
            activity.note(local, is_empty);
        }
        more
    }

    /// Receives at port 4791 of each address, and relays what belongs to another process. Returns whether
    /// there may be more.
    fn take_from_shared(&mut self, to: &mut Receivers<'_>, reads_all: bool, room: &mut [u8]) -> bool {
        let RoceLinks { endpoint, cm, shared, relayed: front, activity, .. } = self;
        let mut more = false;
        for (&address, Shared { socket, .. }) in shared.iter() {
            let local = socket.local();
            if !reads_all && !activity.is_recent(local) {
                continue;
            }
            let mut is_empty = true;
            more |= each(socket, room, |bytes, from, is_marked| {
                is_empty = false;
                let owner = |qpn| match qpn {
                    GSI_QPN => cm.owner(address, bytes),
                    _ => to.qps.named(address, qpn).is_none().then_some(port_of(qpn)),
                };
                if let Some(port) = relay_port(bytes, owner) {
                    return relay(socket, (bytes, is_marked), from, port, front);
                }
                let path = Path { local, remote: from };
                if let Some(mad) = to.take(endpoint, path, bytes, is_marked) {
                    cm.take(&path, mad, to.now);
                }
            });
            activity.note(local, is_empty);
        }
        more
    }

    /// Receives from the sockets of multicast groups. Returns whether there may be more.
    fn take_from_groups(&mut self, to: &mut Receivers<'_>, room: &mut [u8]) -> bool {
        let RoceLinks { endpoint, groups, .. } = self;
        let mut more = false;
        for (&(_, group), Group { socket, qps }) in &groups.of {
            let local = SocketAddr::new(group, PORT);
            more |= each(socket, room, |bytes, remote, _| {
                endpoint.take_multicast(to.core, qps, Path { local, remote }, bytes);
            });
        }
        more
    }

    /// Handles ICMP errors. A request of this process that another host refuses is not served there. A
    /// relayed message that a port of this host refuses belongs to a process that has ended, or to a service
    /// that does not exist; the connection manager of this process answers it. Returns whether there may be
    /// more.
    fn take_refusals(&mut self, to: &mut Receivers<'_>, room: &mut [u8]) -> bool {
        let RoceLinks { endpoint, cm, shared, .. } = self;
        let mut more = false;
        for (address, Shared { socket, manager, .. }) in shared.iter() {
            more |= each_refusal(manager, room, |refusal, datagram| {
                cm.on_refusal(refusal.to, datagram, to.now);
            });
            // Peers answer to port 4791. Discard packets to this port: errors wait in the same queue.
            more |= each(manager, room, |_, _, _| ());
            more |= each_refusal(socket, room, |refusal, datagram| {
                // Another host cannot refuse a packet that was sent within this host.
                let is_local = refusal.to.ip() == *address && refusal.reporter == *address;
                if let Some((path, packet, _)) =
                    relayed(datagram, socket.local(), shared).filter(|_| is_local)
                    && let Some(mad) = endpoint.take(to.core, |_| None, path, packet, false, to.now)
                {
                    cm.take(&path, mad, to.now);
                }
            });
        }
        more
    }

    /// Sends what queue pairs have to send.
    pub(super) fn send(&mut self, core: &mut LinkedNic, qps: &QueuePairs, ports: &mut Ports, now: Instant) {
        if self.send_packets(core, qps, ports, now) {
            self.send_management();
        }
    }

    /// Sends the messages of the connection manager.
    fn send_management(&mut self) {
        while let Some((mut path, mad)) = self.cm.next_mad() {
            let manager = self.shared.get(&path.local.ip()).map(|shared| &shared.manager);
            path.local = manager.map_or(path.local, UdpLink::local);
            let mut datagram = Vec::new();
            self.endpoint.management(&path, &mad, &mut datagram);
            // A MAD that the system does not take is retransmitted later.
            match (self.shared.get(&path.remote.ip()), self.cm.owner(path.remote.ip(), &datagram)) {
                // Relay it within this host: at port 4791, a process that is about to end might receive it.
                (Some(Shared { socket, .. }), Some(port)) => {
                    relay(socket, (&datagram, false), path.local, port, &mut self.relayed);
                }
                _ => drop(manager.map(|socket| socket.send(&datagram, path.remote))),
            }
        }
    }

    /// Sends the packets of queue pairs. Returns false if a socket has no room for more.
    fn send_packets(
        &mut self,
        core: &mut LinkedNic,
        qps: &QueuePairs,
        ports: &mut Ports,
        now: Instant,
    ) -> bool {
        loop {
            let departure = match self.unsent.take() {
                Some(departure) => departure,
                None => {
                    let limits = (TRAIN_MAX, TRAIN_BYTES_MAX);
                    let nic = &mut core.nic.core;
                    let shared = &self.shared;
                    let path = |qp, to, qpn| {
                        let entry = qps.get(qp)?;
                        let local = SocketAddr::new(entry.address, port_of(entry.qpn));
                        Some(Path { local, remote: remote(shared, to, qpn) })
                    };
                    match self.endpoint.next_train(nic, now, limits, &mut self.train) {
                        Some(departure) => departure,
                        None => match self.endpoint.next_datagram(nic, path, &mut self.train) {
                            Some(departure) => departure,
                            None => return true,
                        },
                    }
                }
            };
            let Path { local, remote } = departure.path;
            if self.memory.send(departure.path, &self.train, departure.each) {
                continue;
            }
            let Some(port) = ports.port(local.ip(), u32::from(local.port()) << 8) else { continue };
            let sent = match departure.is_ecn_capable {
                true => port.udp.send_ecn_capable_train(&self.train, departure.each, remote),
                false => port.udp.send_train(&self.train, departure.each, remote),
            };
            match sent {
                // A packet that the system rejects is lost, as on any network.
                SendResult::All | SendResult::None => {}
                SendResult::Some(sent) => {
                    self.train.drain(..sent * departure.each);
                    self.unsent = Some(departure);
                    return false;
                }
            }
        }
    }

    /// Returns whether a socket may hold more.
    pub(super) fn has_more(&self) -> bool {
        self.more || self.memory.is_rung()
    }

    /// Makes the next [`RoceLinks::take`] read all sockets, because any of them may have ended the sleep.
    pub(super) fn after_sleep(&mut self) {
        self.read_all_at = Instant::ZERO;
    }

    pub(super) fn deadline(&self) -> Instant {
        self.endpoint.deadline().min(self.cm.deadline())
    }
}

/// Returns where packets to a queue pair go. Where this process shares port 4791, no other implementation
/// uses it: a queue pair at such an address belongs to kiban, and its number contains its own port.
fn remote(shared: &BTreeMap<IpAddr, Shared>, address: IpAddr, qpn: u32) -> SocketAddr {
    SocketAddr::new(address, if shared.contains_key(&address) { port_of(qpn) } else { PORT })
}

/// Returns the maximum number of packets in flight per queue pair. The responder buffers as many after a gap.
fn window(path_mtu: usize) -> u32 {
    (WINDOW_BYTES / path_mtu) as u32
}

/// Lets a connected queue pair send.
pub(super) fn start(core: &mut LinkedNic, qp: u32, sending: &Sending) -> Result<(), RequestError> {
    let core = &mut core.nic.core;
    let path_mtu = core.roce_traits(qp).ok_or(RequestError::UnknownQp)?.path_mtu;
    let sending = RoceSending {
        first_psn: sending.initial_psn,
        ord: sending.reads,
        ack_timeout: sending.ack_timeout,
        retries: sending.retries,
        rnr_retries: sending.rnr_retries,
        window: window(path_mtu),
    };
    core.start_roce(qp, sending)
}

/// Receives from a socket and calls `take` for each datagram, with its sender and whether it is marked (CE).
/// Returns whether there may be more.
fn each(socket: &UdpLink, room: &mut [u8], mut take: impl FnMut(&[u8], SocketAddr, bool)) -> bool {
    for _ in 0..TURN_TRAINS {
        // An error of the socket is reported again, or the packets are lost as on any network.
        let Ok(Some(train)) = socket.receive_train(room) else { return false };
        let from = SocketAddr::new(train.from.ip().to_canonical(), train.from.port());
        room[..train.bytes].chunks(train.each).for_each(|datagram| take(datagram, from, train.is_marked));
        // A short message is often the only one: let the program see it before the socket is read again.
        if train.bytes < SHORT_BYTES {
            break;
        }
    }
    true
}

/// Takes a socket's ICMP errors and calls `take` for each. Returns whether there may be more.
fn each_refusal(socket: &UdpLink, room: &mut [u8], mut take: impl FnMut(Refusal, &[u8])) -> bool {
    for _ in 0..TURN_TRAINS {
        let Some(refusal) = next_refusal(socket, room) else { return false };
        take(refusal, &room[..refusal.bytes]);
    }
    true
}

/// Sends a packet, with its congestion mark, on to the process that owns a port.
fn relay(
    socket: &UdpLink,
    (packet, is_marked): (&[u8], bool),
    from: SocketAddr,
    port: u16,
    room: &mut Vec<u8>,
) {
    room.clear();
    room.extend_from_slice(&[RELAYED, is_marked.into()]);
    room.extend_from_slice(&from.port().to_be_bytes());
    room.extend_from_slice(&super::gid(from.ip()));
    room.extend_from_slice(&super::gid(socket.local().ip()));
    room.extend_from_slice(packet);
    // If the process has ended, the packet is lost.
    socket.send(room, SocketAddr::new(socket.local().ip(), port));
}

/// Returns the port of the process to which a packet is relayed. `owner` returns that of the process that has
/// a queue pair, unless it is this process. Anyone can send to port 4791, so this accepts only packets of
/// RoCEv2, which a relayed packet is not, and only ports that the system may have assigned: not those of
/// services, nor port 4791 itself.
pub(super) fn relay_port(packet: &[u8], owner: impl FnOnce(u32) -> Option<u16>) -> Option<u16> {
    let (packet, _) = Packet::read(packet).ok()?;
    owner(packet.bth.destination).filter(|port| *port >= UNPRIVILEGED_PORT && *port != PORT)
}

/// Decodes a relayed packet: the path on which it came, the packet, and its congestion mark. Only sockets
/// of the same user can send from port 4791 of an address that this process shares (SO_REUSEPORT, socket(7)).
/// They relay packets of the address's own family.
fn relayed<'a>(
    bytes: &'a [u8],
    from: SocketAddr,
    shared: &BTreeMap<IpAddr, Shared>,
) -> Option<(Path, &'a [u8], bool)> {
    let (front, packet) = bytes.split_first_chunk::<RELAY_BYTES>()?;
    let address = |at: usize| {
        let octets: [u8; 16] = front[at..at + 16].try_into().ok()?;
        Some(Ipv6Addr::from(octets).to_canonical())
    };
    let local = SocketAddr::new(address(20)?, PORT);
    let remote = SocketAddr::new(address(4)?, u16::from_be_bytes([front[2], front[3]]));
    let is_trusted = front[0] == RELAYED
        && from == local
        && shared.contains_key(&local.ip())
        && local.is_ipv4() == remote.is_ipv4();
    is_trusted.then_some((Path { local, remote }, packet, front[1] != 0))
}
