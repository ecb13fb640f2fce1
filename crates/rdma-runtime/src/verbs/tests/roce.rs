//! Hostile peers of queue pairs that speak RoCEv2: other users of this host, and other hosts.

use super::*;
use crate::verbs::ports::port_of;
use crate::verbs::roce::relay_port;
use kiban_rdma::wire::roce::icrc::Icrc;
use kiban_rdma::wire::roce::{Bth, Deth, ICRC_BYTES, Opcode, Operation as Op, PORT, Packet, Service as Wire};
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses that no other test uses: port 4791 of an address is shared.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
/// The bytes before the payload of a received datagram.
const GRH_BYTES: u32 = 40;
const PSN: u32 = 22;

fn open() -> Engine {
    Engine::open(Features { extensions: true, shared_memory: false, wire: crate::verbs::Wire::Roce })
        .expect("a NIC")
}

fn socket() -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(HERE, 0)).expect("a port is free")
}

fn own_port(qpn: u32) -> SocketAddr {
    SocketAddr::new(HERE, port_of(qpn))
}

/// Returns a Send with its ICRC. The payload has a multiple of four octets.
fn packet(service: Wire, destination: u32, payload: &[u8], from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut packet = Packet::new(Bth {
        opcode: Opcode::Transport(service, Op::SendOnly),
        solicited: false,
        migrated: true,
        pad: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination,
        ack_request: true,
        selective: false,
        psn: PSN,
    });
    packet.deth = (service == Wire::Ud).then_some(Deth { qkey: QKEY, source: 17 });
    let mut octets = vec![0; packet.length()];
    packet.write(&mut octets);
    octets.extend_from_slice(payload);
    let mut icrc = Icrc::new(from, to, octets.len() + ICRC_BYTES, 0);
    icrc.headers(&octets);
    octets.extend_from_slice(&icrc.octets());
    octets
}

/// Returns a packet as a process passes it on that received it at port 4791.
fn relayed(sender: SocketAddr, packet: &[u8]) -> Vec<u8> {
    [&[0xff, 0], &sender.port().to_be_bytes()[..], &gid(sender.ip()), &gid(HERE), packet].concat()
}

#[test]
fn relayed_packets_of_another_program_are_dropped() {
    let engine = open();
    let side = Side::new(&engine);
    let (qp, qpn) = side.qp_at(HERE, Service::Datagrams);
    side.receive(qp, 100);
    engine.modify_to_rtr(qp, None).expect("a port").expect("it is ready");
    let attacker = socket();
    let shared = SocketAddr::new(HERE, PORT);
    let remote = SocketAddr::new(THERE, PORT);
    let forged = packet(Wire::Ud, qpn, b"evil", remote, shared);
    // The sender's address is of another family than the receiver's.
    let alien = relayed(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), PORT), &forged);
    for cut in [0, 1, 2, 19, 20, 35, 36, 37, 40, alien.len()] {
        attacker.send_to(&alien[..cut], own_port(qpn)).expect("the loopback takes it");
    }
    attacker.send_to(&relayed(remote, &forged), own_port(qpn)).expect("the loopback takes it");
    let from = attacker.local_addr().expect("it is bound");
    let good = packet(Wire::Ud, qpn, b"data", from, own_port(qpn));
    attacker.send_to(&good, own_port(qpn)).expect("the loopback takes it");
    let got = side.next();
    assert_eq!((got.status, got.id, got.bytes), (Status::Success, 100, GRH_BYTES + 4));
    let sender = &side.memory[4096 + 20..][..4];
    assert_eq!(sender, [127, 0, 0, 77], "the forged packet was delivered");
}

#[test]
fn only_the_peers_own_port_reaches_a_connection_within_a_host() {
    let engine = open();
    let side = Side::new(&engine);
    let (qp, qpn) = side.qp_at(HERE, Service::Connected);
    side.receive(qp, 100);
    let (peer, attacker) = (socket(), socket());
    let peer_qpn = u32::from(peer.local_addr().expect("it is bound").port()) << 8;
    let named =
        Peer { address: HERE, qpn: peer_qpn, initial_psn: PSN, reads: 16, path_mtu: 1024, rnr_timer: 12 };
    engine.modify_to_rtr(qp, Some(named)).expect("a port").expect("it is ready");
    for (socket, payload) in [(&attacker, b"evil"), (&peer, b"data")] {
        let from = socket.local_addr().expect("it is bound");
        let send = packet(Wire::Rc, qpn, payload, from, own_port(qpn));
        socket.send_to(&send, own_port(qpn)).expect("the loopback takes it");
    }
    let got = side.next();
    assert_eq!((got.status, got.id, got.bytes), (Status::Success, 100, 4));
    assert_eq!(&side.memory[4096..4100], b"data");
}

/// A process at port 4791 passes on packets of others, but only what may be one, and only to ports that the
/// system may have assigned to a process.
#[test]
fn only_packets_are_relayed_and_not_to_services() {
    let at = SocketAddr::new(HERE, PORT);
    let from = SocketAddr::new(THERE, PORT);
    let to_port = |port: u16| packet(Wire::Rc, u32::from(port) << 8, b"data", from, at);
    let relays = |packet: &[u8]| relay_port(packet, |qpn| Some(port_of(qpn)));
    assert_eq!(relays(&to_port(40_000)), Some(40_000));
    assert_eq!(relay_port(&to_port(40_000), |_| None), None, "it is for this process");
    for port in [0, 53, 1023, PORT] {
        assert_eq!(relays(&to_port(port)), None, "to port {port}");
    }
    let twice = relayed(from, &to_port(40_000));
    let text = b"any text at all!";
    for other in [&twice[..], text, &to_port(40_000)[..15], &[]] {
        assert_eq!(relays(other), None, "{other:?}");
    }
}

#[test]
fn a_packet_that_met_congestion_is_answered_with_a_notification() {
    /// Both ECN bits: congestion experienced (RFC 3168).
    const MARKED: u32 = 3;
    const CNP: u8 = 0x81;
    let engine = open();
    let side = Side::new(&engine);
    let (qp, qpn) = side.qp_at(HERE, Service::Connected);
    side.receive(qp, 100);
    let peer = socket();
    let from = peer.local_addr().expect("it is bound");
    let peer_qpn = u32::from(from.port()) << 8;
    let named =
        Peer { address: HERE, qpn: peer_qpn, initial_psn: PSN, reads: 16, path_mtu: 1024, rnr_timer: 12 };
    engine.modify_to_rtr(qp, Some(named)).expect("a port").expect("it is ready");
    socket2::SockRef::from(&peer).set_tos_v4(MARKED).expect("anyone may mark");
    let send = packet(Wire::Rc, qpn, b"data", from, own_port(qpn));
    peer.send_to(&send, own_port(qpn)).expect("the loopback takes it");
    assert_eq!(side.next().status, Status::Success);
    peer.set_read_timeout(Some(SOON)).expect("a socket");
    let mut first_octets = [0, 0].map(|_: u8| {
        let mut room = [0; 100];
        peer.recv(&mut room).expect("a notification and an acknowledgement");
        room[0]
    });
    first_octets.sort_unstable();
    assert_eq!(first_octets, [Op::Acknowledge as u8, CNP]);
}
