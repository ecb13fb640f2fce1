//! ICMP errors of both families: those that a board sends, and those that it receives and accepts or rejects.

mod common;

use common::hub::*;
use common::packets;
use kiban_base::checksum;
use kiban_base::ethernet::{HEADER_BYTES, Header};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{RngKey, Sum};
use kiban_board::{BoardConfig, Completion, IcmpErrorKind, Input, ShardConfig, SocketId, Steering};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Returns a frame with an IP packet from the third host to board 0.
fn frame(packet: &[u8]) -> Vec<u8> {
    let ether_type = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let mut bytes = vec![0; HEADER_BYTES];
    Header { target: mac(0), source: STRANGER, ether_type }.write(&mut bytes);
    bytes.extend_from_slice(packet);
    bytes
}

fn packet6(source: Ipv6Addr, target: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: payload.len() as u16,
        next_header,
        hop_limit: 64,
        source,
        target,
    };
    let mut bytes = vec![0; ipv6::HEADER_BYTES];
    header.write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns an ICMP error from a router that quotes `quoted`.
fn error(kind: IcmpErrorKind, quoted: &[u8]) -> Vec<u8> {
    if quoted[0] >> 4 == 4 {
        let header = match kind {
            IcmpErrorKind::Unreachable { code } => icmp::Header::Unreachable { code, next_hop_mtu: 0 },
            IcmpErrorKind::FragmentationNeeded { mtu } => {
                icmp::Header::Unreachable { code: 4, next_hop_mtu: mtu as u16 }
            }
            IcmpErrorKind::TimeExceeded { code } => icmp::Header::TimeExceeded { code },
            IcmpErrorKind::ParameterProblem { code, pointer } => {
                icmp::Header::ParameterProblem { code, pointer: pointer as u8 }
            }
        };
        let message = packets::icmp(header, quoted);
        frame(&packets::ip("10.0.0.99".parse().unwrap(), ip4(0), protocol::ICMP, &message))
    } else {
        let header = match kind {
            IcmpErrorKind::Unreachable { code } => icmpv6::Header::Unreachable { code },
            IcmpErrorKind::FragmentationNeeded { mtu } => icmpv6::Header::TooLong { mtu },
            IcmpErrorKind::TimeExceeded { code } => icmpv6::Header::TimeExceeded { code },
            IcmpErrorKind::ParameterProblem { code, pointer } => {
                icmpv6::Header::ParameterProblem { code, pointer }
            }
        };
        let mut message = vec![0; 8];
        header.write(&mut message);
        let length = message.len() + quoted.len();
        let pseudo = checksum::pseudo_ipv6(ROUTER, local6(0), protocol::ICMPV6, length);
        icmpv6::fill(&mut message, pseudo.plus(Sum::of(quoted)));
        message.extend_from_slice(quoted);
        frame(&packet6(ROUTER, local6(0), protocol::ICMPV6, &message))
    }
}

/// Returns the sender of [`error`].
fn reporter(is_ipv4: bool) -> IpAddr {
    if is_ipv4 { "10.0.0.99".parse().unwrap() } else { ROUTER.into() }
}

/// Binds a socket of board 0 for an address family. Returns the socket and its peer's address.
fn socket(hub: &mut Hub, is_ipv4: bool) -> (SocketId, SocketAddr) {
    let (any, remote): (IpAddr, IpAddr) = if is_ipv4 {
        (Ipv4Addr::UNSPECIFIED.into(), ip4(1))
    } else {
        (Ipv6Addr::UNSPECIFIED.into(), local6(1).into())
    };
    let socket = hub.boards[0].host().bind(SocketAddr::new(any, 5000)).unwrap();
    hub.boards[1].host().bind(SocketAddr::new(any, 7)).unwrap();
    (socket, SocketAddr::new(remote, 7))
}

/// Returns the IP packets that board 0 sent to board 1.
fn packets_to_1(hub: &Hub) -> Vec<Vec<u8>> {
    let to_1 = |frame: &&Vec<u8>| frame[..6] == mac(1).0 && frame[12..14] != [8, 6];
    hub.seen.iter().filter(to_1).map(|frame| frame[HEADER_BYTES..].to_vec()).collect()
}

#[test]
fn every_shard_learns_the_path_mtu_of_datagrams() {
    let steering = Steering::new(3, RngKey::for_simulation(1));
    let first = BoardConfig { shard: Some(ShardConfig { number: 0, steering }), ..config(link(0)) };
    let mut hub = Hub::of(&[first, config(link(1))]);
    hub.pass(Duration::from_secs(15));
    while hub.boards[0].parcel().is_some() {}
    // Any of them may have sent the datagram, because its socket may be on another shard than its flow.
    let datagram = packets::udp_packet(SocketAddr::new(ip4(0), 9), SocketAddr::new(ip4(1), 7), &[0; 1400]);
    hub.inject(0, &error(IcmpErrorKind::FragmentationNeeded { mtu: 1300 }, &datagram));
    hub.run();
    let parcels = std::iter::from_fn(|| hub.boards[0].parcel());
    let told: Vec<usize> = parcels.map(|(to, _)| to).collect();
    assert_eq!(told, [1, 2]);
}

#[test]
fn the_path_mtu_is_learnt_only_from_errors_that_quote_our_packets() {
    for is_ipv4 in [true, false] {
        let mut hub = Hub::pair();
        let (socket, remote) = socket(&mut hub, is_ipv4);
        let bytes = packets::noise(1, 1440);
        hub.boards[0].host().send_to(socket, remote, &bytes).unwrap();
        hub.run();
        let sent = packets_to_1(&hub).pop().expect("one packet");
        hub.take_completions(1);
        // This error quotes a packet whose source address is not ours.
        let mut foreign = sent.clone();
        if is_ipv4 {
            foreign[15] = 77;
        } else {
            foreign[23] = 77;
        }
        for quoted in [&foreign[..], &sent[..20], &[]] {
            if !quoted.is_empty() {
                hub.inject(0, &error(IcmpErrorKind::FragmentationNeeded { mtu: 1300 }, quoted));
            }
        }
        // The MTU in this error is not smaller than the quoted packet.
        hub.inject(0, &error(IcmpErrorKind::FragmentationNeeded { mtu: 1499 }, &sent));
        hub.run();
        assert!(hub.take_completions(0).is_empty());
        assert_eq!(hub.count(0, "icmp", "errors_unmatched"), 2);
        assert_eq!(hub.count(0, "ip", "path_mtu_implausible"), 1);
        // This error is plausible: its MTU is smaller than the quoted packet.
        hub.inject(0, &error(IcmpErrorKind::FragmentationNeeded { mtu: 1300 }, &sent[..48.min(sent.len())]));
        hub.run();
        let kind = IcmpErrorKind::FragmentationNeeded { mtu: 1300 };
        assert_eq!(
            hub.take_completions(0),
            [Completion::DatagramError { socket, remote, reporter: reporter(is_ipv4), kind }]
        );
        hub.seen.clear();
        hub.boards[0].host().send_to(socket, remote, &bytes).unwrap();
        hub.run();
        let lengths: Vec<_> = packets_to_1(&hub).iter().map(Vec::len).collect();
        assert!(lengths.len() == 2 && lengths.iter().all(|length| *length <= 1300), "{lengths:?}");
        assert_eq!(hub.take_completions(1).len(), 0, "the socket had a datagram already");
        assert_eq!(hub.count(1, "ip", "reassembled"), 1);
        // Ten minutes later the board tries the full MTU again, in case the path has changed.
        hub.pass(Duration::from_secs(601));
        hub.seen.clear();
        hub.boards[0].host().send_to(socket, remote, &bytes).unwrap();
        hub.run();
        assert_eq!(packets_to_1(&hub).iter().filter(|packet| packet.len() > 1300).count(), 1);
    }
}

#[test]
fn icmp_errors_reach_their_stream_and_do_not_end_it() {
    for is_ipv4 in [true, false] {
        let mut hub = Hub::pair();
        let (socket, remote) = socket(&mut hub, is_ipv4);
        hub.boards[0].host().send_to(socket, remote, b"hello").unwrap();
        let stream = hub.boards[0].host().open(SocketAddr::new(remote.ip(), 80)).unwrap();
        hub.run();
        let sent = packets_to_1(&hub);
        let protocol_at = if is_ipv4 { 9 } else { 6 };
        let of = |wanted: u8| sent.iter().find(|packet| packet[protocol_at] == wanted).expect("it was sent");
        hub.take_completions(0);
        let kinds = [
            IcmpErrorKind::Unreachable { code: 1 },
            IcmpErrorKind::TimeExceeded { code: 0 },
            IcmpErrorKind::ParameterProblem { code: 0, pointer: 4 },
        ];
        for kind in kinds {
            hub.inject(0, &error(kind, of(protocol::UDP)));
            hub.run();
            assert_eq!(
                hub.take_completions(0),
                [Completion::DatagramError { socket, remote, reporter: reporter(is_ipv4), kind }]
            );
        }
        hub.inject(0, &error(kinds[0], of(protocol::TCP)));
        hub.run();
        assert_eq!(hub.count(0, "tcp", "icmp_errors_rejected"), 1);
        assert!(hub.boards[0].host().info(stream).is_err() || hub.take_completions(0).is_empty());
        // The completions for errors are bounded, even if the host does not read them.
        for _ in 0..5000 {
            hub.inject(0, &error(kinds[0], of(protocol::UDP)));
            let Hub { boards, wires, now, .. } = &mut hub;
            boards[0].handle(Input::Packets { port: 0, packets: &mut wires[0] }, *now);
        }
        let mut waiting = 0;
        while hub.boards[0].host().completion().is_some() {
            waiting += 1;
        }
        assert!(waiting <= 1100, "{waiting}");
        assert!(hub.count(0, "host", "replies_dropped") > 3000);
    }
}

/// Returns the ICMP errors that board 0 sent to the third host. Each is given as kind, code and packet
/// length.
fn reports(hub: &Hub) -> Vec<(u8, u8, usize)> {
    let read = |frame: &Vec<u8>| {
        let packet = &frame[HEADER_BYTES..];
        let (at, is_icmp) = match packet[0] >> 4 {
            4 => (20, packet[9] == protocol::ICMP),
            6 => (40, packet[6] == protocol::ICMPV6),
            _ => return None,
        };
        let kind = *packet.get(at)?;
        let is_error = if at == 20 { matches!(kind, 3 | 11 | 12) } else { kind < 128 };
        (is_icmp && is_error).then(|| (kind, packet[at + 1], packet.len()))
    };
    hub.seen.iter().filter_map(read).collect()
}

/// Returns a hub whose board 0 knows the third host's MAC address for both of its IP addresses.
fn with_stranger() -> Hub {
    let mut hub = Hub::pair();
    introduce(&mut hub);
    hub
}

/// The third host resolves board 0's address, so that board 0 learns the third host's MAC address.
fn introduce(hub: &mut Hub) {
    let arp = kiban_tcpip::wire::arp::Packet {
        operation: kiban_tcpip::wire::arp::Operation::Request,
        sender_mac: STRANGER,
        sender: "10.0.0.99".parse().unwrap(),
        target_mac: Default::default(),
        target: "10.0.0.1".parse().unwrap(),
    };
    let mut bytes = vec![0; HEADER_BYTES + 28];
    Header { target: mac(0), source: STRANGER, ether_type: ether_type::ARP }.write(&mut bytes);
    arp.write(&mut bytes[HEADER_BYTES..]);
    hub.inject(0, &bytes);
    let question = kiban_tcpip::wire::discovery::Message::NeighbourSolicitation { target: local6(0) };
    let link = [kiban_tcpip::wire::discovery::Item::SourceLink(STRANGER)];
    hub.inject(0, &discovery(mac(0), (ROUTER, local6(0)), 255, question, &link));
    hub.run();
    hub.seen.clear();
}

#[test]
fn an_icmp_error_is_sent_once_and_quotes_what_fits() {
    let outsider: IpAddr = "10.0.0.99".parse().unwrap();
    let long = packets::noise(3, 1400);
    let udp4 = packets::udp_packet(SocketAddr::new(outsider, 9), SocketAddr::new(ip4(0), 54), &long);
    let udp6 = {
        let (from, to) = (SocketAddr::new(ROUTER.into(), 9), SocketAddr::new(local6(0).into(), 54));
        packet6(ROUTER, local6(0), protocol::UDP, &packets::udp(from, to, &long))
    };
    let first4 = {
        let mut packet = packets::ip(outsider, ip4(0), protocol::UDP, &long[..400]);
        packet[6] = 0x20;
        ipv4::fill(&mut packet[..20]);
        packet
    };
    let later4 = {
        let mut packet = packets::ip(outsider, ip4(0), protocol::UDP, &long[..400]);
        packet[7] = 9;
        ipv4::fill(&mut packet[..20]);
        packet
    };
    let wrong_option = packets::ip_with(outsider, ip4(0), protocol::UDP, &[7, 0, 0, 0], b"x");
    let about_error = {
        let quoted = packets::icmp(icmp::Header::TimeExceeded { code: 0 }, &long[..40]);
        packets::ip_with(outsider, ip4(0), protocol::ICMP, &[7, 0, 0, 0], &quoted)
    };
    let rows = [
        (udp4, Some((3, 3))),
        (udp6, Some((1, 4))),
        (packets::ip(outsider, ip4(0), 200, &long), Some((3, 2))),
        (packet6(ROUTER, local6(0), 200, &long), Some((4, 1))),
        (packet6(ROUTER, local6(0), protocol::ROUTING, &[17, 0, 0, 1, 0, 0, 0, 0]), Some((4, 0))),
        (wrong_option, Some((12, 0))),
        (about_error, None),
        (first4, Some((11, 1))),
        (later4, None),
    ];
    for (packet, report) in rows {
        let mut hub = with_stranger();
        hub.inject(0, &frame(&packet));
        hub.run();
        let mut got = reports(&hub);
        hub.pass(Duration::from_secs(59));
        introduce(&mut hub);
        hub.pass(Duration::from_secs(2));
        got.extend(reports(&hub));
        assert_eq!(
            got.iter().map(|(kind, code, _)| (*kind, *code)).collect::<Vec<_>>(),
            report.into_iter().collect::<Vec<_>>()
        );
        let most = if packet[0] >> 4 == 4 { 576 } else { 1280 };
        for (_, _, length) in got {
            let whole = packet.len() + if most == 576 { 28 } else { 48 };
            assert_eq!(length, whole.min(most));
        }
        hub.pass(Duration::from_secs(100));
        hub.check_home();
    }
}

#[test]
fn a_flood_of_bad_packets_causes_no_flood_of_errors() {
    let mut hub = with_stranger();
    let outsider: IpAddr = "10.0.0.99".parse().unwrap();
    for n in 0..1000u16 {
        let to = SocketAddr::new(ip4(0), 1000 + n);
        let packet = packets::udp_packet(SocketAddr::new(outsider, 9), to, b"x");
        hub.inject(0, &frame(&packet));
        hub.run();
    }
    assert_eq!(reports(&hub).len(), 100);
    assert_eq!(hub.count(0, "icmp", "errors_rate_limited"), 900);
    hub.check_home();
}

#[test]
fn connecting_over_atm_fails_if_no_circuit_leads_to_the_target() {
    use common::lines::{self, BAD, Lines};
    use kiban_board::Reason;
    let nobody: SocketAddr = "10.0.0.99:80".parse().unwrap();
    // The peers of all circuits are known, and none has this address.
    let mut lines = Lines::new();
    let stream = lines.boards[0].host().open(nobody).unwrap();
    lines.pass(Duration::from_millis(1));
    assert_eq!(lines.completions(0), [Completion::Ended { stream, reason: Reason::Unreachable }]);
    let (near, far) = lines.open(0, 80);
    lines.close_and_check([near, far]);
    // InATMARP is still resolving the peer of one circuit, and that peer could have the address. InATMARP
    // gives up after five requests, a second apart (RFC 2225 §8.2).
    let mut configs = [lines::config(0), lines::config(1)];
    let its = lines::port_of(&mut configs[0]).circuits.iter_mut().find(|circuit| circuit.vc == BAD).unwrap();
    its.peer = None;
    let mut lines = Lines::of(configs);
    let stream = lines.boards[0].host().open(nobody).unwrap();
    lines.pass(Duration::from_secs(5));
    assert_eq!(lines.completions(0), []);
    lines.pass(Duration::from_millis(2500));
    assert_eq!(lines.completions(0), [Completion::Ended { stream, reason: Reason::Unreachable }]);
    lines.check_home();
}
