//! The connection manager over RoCEv2.

use super::*;
use crate::tcp::ReservedPort;
use kiban_base::Instant;
use kiban_rdma::roce::cm::{Cm, CmConfig, Connect};
use kiban_rdma::roce::{Endpoint, Path};
use kiban_rdma::wire::roce::cm::{Message, PortSpace, RejectReason};
use kiban_rdma::wire::roce::{MAD_BYTES, PORT};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Weak;

/// An address that no other file of tests uses: port 4791 of an address is shared. Both sides have it, as a
/// loopback address stands for the device's own.
pub(super) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 80));
/// IBTA volume 1 §12.11.2.
const NOT_SUPPORTED: u8 = 1;
const REJECTED: u8 = 2;

/// The owner of listeners and ends, which keeps their events.
pub(super) struct Owner {
    me: Weak<Owner>,
    events: Channel<CmEvent>,
}

impl CmEventHandler for Owner {
    fn on_event(&self, event: CmEvent) -> Option<Arc<dyn CmEventHandler>> {
        let is_request = matches!(event, CmEvent::ConnectRequest(_));
        self.events.tell(event);
        let me = self.me.upgrade().filter(|_| is_request)?;
        Some(me)
    }
}

/// An engine with its queues, and the owner of its connections.
pub(super) struct Node {
    pub(super) side: Side,
    owner: Arc<Owner>,
}

impl Node {
    fn new() -> Node {
        Node::over(Wire::Roce)
    }

    pub(super) fn over(wire: Wire) -> Node {
        let engine = Engine::open(Features { extensions: true, shared_memory: false, wire });
        let owner = Arc::new_cyclic(|me| Owner {
            me: me.clone(),
            events: Channel::new().expect("file descriptors are available"),
        });
        Node { side: Side::new(&engine.expect("a NIC")), owner }
    }

    pub(super) fn next(&self) -> CmEvent {
        self.side.engine.next_event(&self.owner.events, SOON).expect("in time")
    }

    /// Listens at a free port.
    pub(super) fn listen(&self, is_datagrams: bool) -> SocketAddr {
        self.listen_in(if is_datagrams { PortSpace::Udp } else { PortSpace::Tcp }, SocketAddr::new(HERE, 0))
    }

    /// Listens at an address.
    pub(super) fn listen_at(&self, at: SocketAddr) {
        self.listen_in(PortSpace::Tcp, at);
    }

    fn listen_in(&self, space: PortSpace, at: SocketAddr) -> SocketAddr {
        let port = ReservedPort::open(at).expect("a port is free");
        let at = port.address().expect("it is bound");
        let (socket, owner) = (port.listen(1).expect("it is bound"), self.owner.clone());
        self.side.engine.listen(space, socket, vec![HERE], owner).expect("the port is free for UDP");
        at
    }

    fn resolve(&self, to: SocketAddr, private_data: &[u8]) -> u32 {
        let from = SocketAddr::new(HERE, 0);
        let begun = self.side.engine.resolve(HERE, from, to, private_data, self.owner.clone());
        begun.expect("a socket").expect("room")
    }

    pub(super) fn connect(&self, qp: u32, to: SocketAddr) -> u32 {
        let engine = &self.side.engine;
        let begun =
            engine.connect(qp, Some(HERE), (PortSpace::Tcp, to), (1, 1), b"hello", self.owner.clone());
        begun.expect("a socket").expect("room")
    }

    pub(super) fn request(&self) -> ConnectRequest {
        match self.next() {
            CmEvent::ConnectRequest(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn path_mtu(&self, qp: u32) -> usize {
        self.side.engine.turn.read(|board| board.core.nic.core.roce_traits(qp).expect("connected").path_mtu)
    }

    /// Makes the path MTU that of another interface.
    fn set_mtu(&self, code: u8) {
        self.side.engine.turn.work(|board, _| {
            let roce = board.roce.as_mut().expect("it speaks RoCEv2");
            roce.set_mtu(HERE, code);
        });
    }
}

pub(super) fn error(event: CmEvent) -> ConnectError {
    match event {
        CmEvent::Failed { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_of_datagrams_resolves_to_its_queue_pair() {
    let (server, client) = (Node::new(), Node::new());
    let (theirs, ours) =
        (server.side.qp_at(HERE, Service::Datagrams), client.side.qp_at(HERE, Service::Datagrams));
    for (side, qp) in [(&server.side, theirs.0), (&client.side, ours.0)] {
        side.receive(qp, 100);
        side.engine.modify_to_rtr(qp, None).expect("a port").expect("it is ready");
        side.engine.modify_to_rts(qp, sending(0, 0, None)).expect("it is ready to receive");
    }
    let at = server.listen(true);
    let end = client.resolve(at, b"who");
    let request = server.request();
    assert_eq!((request.local, request.peer.ip(), request.depths), (at, HERE, (0, 0)));
    assert_eq!(Some(request.peer), client.side.engine.local_address(end));
    assert_eq!((&request.private_data[..4], request.private_data.len()), (&b"who\0"[..], 180));
    let connected = server.side.qp_at(HERE, Service::Connected);
    assert_eq!(server.side.engine.accept(request.end, connected.0, (0, 0), b""), Err(OpenError::InUse));
    server.side.engine.accept(request.end, theirs.0, (0, 0), b"me").expect("it is asked");
    let CmEvent::Resolved { peer, private_data, .. } = client.next() else { panic!("it resolves") };
    assert_eq!(peer, DatagramPeer { address: HERE, qpn: theirs.1, qkey: QKEY });
    assert_eq!((&private_data[..3], private_data.len()), (&b"me\0"[..], 136));
    client.side.memory[..5].copy_from_slice(b"hello");
    let to = Operation::Datagram { gid: gid(peer.address), qp: peer.qpn, qkey: peer.qkey, immediate: None };
    client.side.send(ours.0, 1, to, 5);
    let got = server.side.next();
    assert_eq!((got.status, got.source), (Status::Success, Some(ours.1)));
    assert_eq!(&server.side.memory[4096 + 40..][..5], b"hello");
}

#[test]
fn a_refused_resolution_carries_status_and_private_data() {
    let (server, client) = (Node::new(), Node::new());
    let at = server.listen(true);
    client.resolve(at, b"");
    server.side.engine.reject(server.request().end, b"no").expect("it is asked");
    let ConnectError::NotServed { status, private_data } = error(client.next()) else { panic!("a status") };
    assert_eq!((status, &private_data[..3]), (REJECTED, &b"no\0"[..]));
}

#[test]
fn a_listener_serves_only_its_own_addresses() {
    // Another host's request, to another address of this process.
    let (other, peer) = (IpAddr::from([127, 0, 0, 81]), SocketAddr::from(([127, 0, 0, 82], PORT)));
    let server = Node::new();
    let _open = server.side.qp_at(other, Service::Connected);
    let socket = UdpSocket::bind(peer).expect("no other test uses it");
    socket.set_nonblocking(true).expect("a socket");
    for is_datagrams in [false, true] {
        let port = server.listen(is_datagrams).port();
        let to = SocketAddr::new(other, PORT);
        let mut cm = Cm::new(CmConfig::default(), kiban_os::random::key().expect("random octets"));
        let begun = match is_datagrams {
            true => cm.resolve(peer.ip(), to, PortSpace::Udp.service_id(port), 0xffff, b"", Instant::ZERO),
            false => {
                let connect = Connect { service_id: PortSpace::Tcp.service_id(port), ..Connect::default() };
                cm.connect(peer.ip(), to, &connect, Instant::ZERO)
            }
        };
        begun.expect("room");
        let (mut endpoint, mut datagram) = (Endpoint::default(), Vec::new());
        let mad = cm.poll_transmit().expect("a request").mad;
        endpoint.management(&Path { local: peer, remote: to }, &mad, &mut datagram);
        socket.send_to(&datagram, to).expect("the address is there");
        let mut answer = [0; 512];
        // The loopback delivers at once; a process reads some of its sockets only now and then.
        let answered =
            (0..1000).any(|_| server.side.engine.turn.look(|_| socket.recv(&mut answer).ok()).is_some());
        assert!(
            answered && server.owner.events.take_noting(&mut |_| ()).is_none(),
            "the program hears nothing"
        );
        let (_, answer) = Message::read(&answer[20..20 + MAD_BYTES]).expect("a MAD");
        match answer {
            Message::Rej(rej) => assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID),
            Message::SidrRep(reply) => assert_eq!(reply.status.0, NOT_SUPPORTED),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a port at which nothing listens.
pub(super) fn free_port() -> SocketAddr {
    ReservedPort::open(SocketAddr::new(HERE, 0)).expect("a port is free").address().expect("it is bound")
}

#[test]
fn a_port_that_nobody_serves_refuses_before_the_manager_gives_up() {
    let (server, client) = (Node::new(), Node::new());
    // The address is in use.
    server.listen(true);
    let port = free_port();
    client.resolve(port, b"");
    let refused = error(client.next());
    assert!(matches!(refused, ConnectError::NotServed { status: NOT_SUPPORTED, .. }), "{refused:?}");
    let (qp, _) = client.side.qp_at(HERE, Service::Connected);
    client.connect(qp, port);
    assert_eq!(error(client.next()), ConnectError::Unreachable);
}

#[test]
fn the_end_of_a_connection_follows_the_packets_before_it() {
    let (server, client) = (Node::new(), Node::new());
    let (passive, _) = server.side.qp_at(HERE, Service::Connected);
    let (active, _) = client.side.qp_at(HERE, Service::Connected);
    (0..12).for_each(|id| server.side.receive(passive, id));
    client.side.receive(active, 100);
    let end = client.connect(active, server.listen(false));
    server.side.engine.accept(server.request().end, passive, (1, 1), b"").expect("it is asked");
    assert!(matches!(client.next(), CmEvent::Connected { .. }));
    assert!(matches!(server.next(), CmEvent::Connected { .. }));
    server.side.send(passive, 50, Operation::SEND, 5);
    assert_eq!(client.side.next().status, Status::Success);
    // The server does not look while these arrive, and then the message that ends the connection.
    (200..212).for_each(|id| client.side.send(active, id, Operation::SEND, 5));
    client.side.engine.disconnect(end);
    assert!(matches!(server.next(), CmEvent::Disconnected { .. }));
    let completions: Vec<_> = (0..13).map(|_| server.side.next()).collect();
    assert!(completions.iter().all(|one| one.status == Status::Success), "{completions:?}");
}

/// Connects a client whose path MTU has the code `ours` (if `None`, that of the loopback) with a server whose
/// path MTU has `theirs`. Returns both path MTUs in bytes, and how often the client repeated its request.
fn agreed(ours: Option<u8>, theirs: Option<u8>) -> ([usize; 2], usize) {
    let (server, client) = (Node::new(), Node::new());
    let (passive, _) = server.side.qp_at(HERE, Service::Connected);
    let (active, _) = client.side.qp_at(HERE, Service::Connected);
    let at = server.listen(false);
    for (node, code) in [(&server, theirs), (&client, ours)] {
        code.into_iter().for_each(|code| node.set_mtu(code));
    }
    client.connect(active, at);
    let request = server.request();
    assert_eq!(request.private_data[..6], *b"hello\0");
    server.side.engine.accept(request.end, passive, (1, 1), b"").expect("it is asked");
    let events = std::iter::from_fn(|| Some(client.next()));
    let repeated = events.take_while(|event| matches!(event, CmEvent::Retried { .. })).count();
    assert!(matches!(server.next(), CmEvent::Connected { .. }));
    ([server.path_mtu(passive), client.path_mtu(active)], repeated)
}

#[test]
fn a_connection_has_the_smaller_path_mtu() {
    let loopback = mtu_code(kiban_os::interface::mtu("lo").expect("every host has it"));
    for (ours, theirs, expected) in [
        (None, None, (128 << loopback, 0)),
        (Some(3), Some(5), (1024, 0)),
        (Some(5), Some(3), (1024, 2)),
        (Some(5), Some(1), (256, 4)),
    ] {
        let (bytes, repeated) = agreed(ours, theirs);
        assert_eq!((bytes, repeated), ([expected.0; 2], expected.1), "{ours:?} and {theirs:?}");
    }
}
