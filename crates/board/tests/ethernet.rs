//! Boards on an Ethernet: ARP, neighbour discovery, address autoconfiguration, and both IP families.

mod common;

use common::hub::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::ether_type;
use kiban_board::{BoardConfig, Completion, IcmpErrorKind, Reason};
use kiban_tcpip::ethernet::{AutoconfConfig, Identifier, LinkConfig, NeighbourConfig};
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::discovery::{ALL_NODES, Item, Message, solicited_node};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn noise(length: usize) -> Vec<u8> {
    common::packets::noise(length as u64, length)
}

fn arp_frame(target: Mac, packet: arp::Packet) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + arp::PACKET_BYTES];
    Header { target, source: packet.sender_mac, ether_type: ether_type::ARP }.write(&mut bytes);
    packet.write(&mut bytes[HEADER_BYTES..]);
    bytes
}

/// Returns the ARP packets among frames.
fn arps(frames: &[Vec<u8>]) -> Vec<(Mac, arp::Packet)> {
    let is_arp = |frame: &&Vec<u8>| frame[12..14] == [8, 6];
    let read = |frame: &Vec<u8>| {
        let (header, _) = Header::read(frame).unwrap();
        (header.target, arp::Packet::read(&frame[HEADER_BYTES..]).unwrap().0)
    };
    frames.iter().filter(is_arp).map(read).collect()
}

/// Returns the neighbour discovery messages among frames: source, destination, message.
fn discoveries(frames: &[Vec<u8>]) -> Vec<(Ipv6Addr, Ipv6Addr, Message)> {
    let read = |frame: &Vec<u8>| {
        let (header, length) = kiban_tcpip::wire::ipv6::Header::read(frame.get(HEADER_BYTES..)?).ok()?;
        let (message, _) = Message::read(&frame[HEADER_BYTES + length..]).ok()?;
        Some((header.source, header.target, message))
    };
    frames.iter().filter_map(read).collect()
}

/// Moves `bytes` over a stream to `remote` and back again, then closes it.
fn stream_there_and_back(hub: &mut Hub, remote: SocketAddr, local: SocketAddr, bytes: &[u8]) {
    hub.boards[1].host().listen(local).unwrap();
    let near = hub.boards[0].host().open(remote).unwrap();
    hub.pass(second(1));
    assert!(hub.take_completions(0).contains(&Completion::Opened { stream: near }));
    let completions = hub.take_completions(1);
    let far = completions.iter().find_map(|completion| match completion {
        Completion::Accepted { stream, remote: peer, .. } => {
            assert_eq!(peer.is_ipv4(), remote.is_ipv4(), "the peer's true family");
            Some(*stream)
        }
        _ => None,
    });
    let far = far.expect("accepted");
    for (from, to) in [((0, near), (1, far)), ((1, far), (0, near))] {
        let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 65536]);
        for _ in 0..20_000 {
            sent += hub.boards[from.0].host().write(from.1, &bytes[sent..]).unwrap();
            hub.pass(Duration::from_millis(5));
            while let Ok(count @ 1..) = hub.boards[to.0].host().read(to.1, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
            }
            if got.len() == bytes.len() {
                break;
            }
        }
        assert!(got == bytes, "{} of {}", got.len(), bytes.len());
    }
    hub.boards[0].host().close(near).unwrap();
    hub.boards[1].host().close(far).unwrap();
    hub.pass(second(100));
}

#[test]
fn streams_of_both_families_are_routed() {
    let mut hub = Hub::pair();
    let bytes = noise(300_000);
    let any4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 80);
    stream_there_and_back(&mut hub, SocketAddr::new(ip4(1), 80), any4, &bytes);
    let questions = arps(&hub.seen).iter().filter(|(to, _)| *to == Mac::BROADCAST).count();
    assert_eq!(questions, 1, "everybody is asked once");
    hub.seen.clear();
    let any6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80);
    stream_there_and_back(&mut hub, SocketAddr::new(local6(1).into(), 80), any6, &bytes);
    assert!(hub.seen.iter().all(|frame| frame.len() <= 1514));
    for side in 0..2 {
        assert_eq!(hub.count(side, "tcp", "retransmits"), 0);
        assert_eq!(hub.count(side, "ip", "too_long") + hub.count(side, "tcp", "checksum_errors"), 0);
    }
    hub.check_home();
}

#[test]
fn large_segments_are_cut_and_merged_over_both_families() {
    let configs = [0, 1].map(|side| {
        let mut config = config(link(side));
        config.tcp.segment_bytes_max = 10 * 1460;
        config.tcp.segmentation_offload = true;
        let kiban_board::PortConfig::Ethernet(port) = &mut config.ports[0] else { panic!() };
        (port.cuts, port.merges) = (true, true);
        config
    });
    let mut hub = Hub::of(&configs);
    hub.pass(second(5));
    let bytes = noise(500_000);
    for remote in [ip4(1), local6(1).into()] {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let before = hub.count(0, "tcp", "segments_out");
        hub.seen.clear();
        stream_there_and_back(&mut hub, SocketAddr::new(remote, 80), SocketAddr::new(any, 80), &bytes);
        assert!(hub.seen.iter().all(|frame| frame.len() <= 1514));
        let segments = hub.count(0, "tcp", "segments_out") - before;
        assert!(segments < 500_000 / 1460, "{segments} segments");
        assert_eq!(hub.count(1, "tcp", "checksum_errors") + hub.count(1, "tcp", "retransmits"), 0);
    }
    hub.check_home();
}

#[test]
fn pings_and_long_datagrams_work_over_both_families() {
    let mut hub = Hub::pair();
    for remote in [ip4(1), local6(1).into()] {
        for length in [0, 56, 3000, 65_000] {
            let bytes = noise(length);
            hub.boards[0].host().ping(remote, 7, length as u16, &bytes).unwrap();
            hub.pass(second(2));
            let reply = Completion::EchoReply {
                source: remote,
                identifier: 7,
                sequence: length as u16,
                bytes: length,
            };
            assert_eq!(hub.take_completions(0), [reply]);
        }
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let there = hub.boards[1].host().bind(SocketAddr::new(any, 53)).unwrap();
        let here = hub.boards[0].host().bind(SocketAddr::new(any, 5353)).unwrap();
        for length in [1, 1472, 1473, 20_000, if remote.is_ipv4() { 65_507 } else { 65_527 }] {
            let bytes = noise(length);
            hub.boards[0].host().send_to(here, SocketAddr::new(remote, 53), &bytes).unwrap();
            hub.run();
            let mut buffer = vec![0; 66_000];
            let got = hub.boards[1].host().receive_from(there, &mut buffer).unwrap();
            assert_eq!(got.map(|(from, count)| (from.port(), count)), Some((5353, length)));
            assert!(buffer[..length] == bytes);
        }
        hub.take_completions(1);
        // Port 54 is not bound, so the sending socket gets an ICMP error.
        hub.boards[0].host().send_to(here, SocketAddr::new(remote, 54), &noise(3000)).unwrap();
        hub.run();
        let code = if remote.is_ipv4() { 3 } else { 4 };
        let kind = IcmpErrorKind::Unreachable { code };
        let remote = SocketAddr::new(remote, 54);
        assert_eq!(hub.take_completions(0), [Completion::DatagramError { socket: here, remote, kind }]);
    }
    assert!(hub.seen.iter().all(|frame| frame.len() <= 1514));
    assert!(hub.count(1, "ip", "reassembled") >= 8);
    hub.pass(second(100));
    hub.check_home();
}

#[test]
fn a_dual_stack_listener_reports_the_peers_address() {
    let mut hub = Hub::pair();
    let any6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80);
    let any4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 80);
    hub.boards[1].host().listen_with(any6, false).unwrap();
    assert!(hub.boards[1].host().listen(any4).is_err(), "its IPv4 side is taken");
    let socket = hub.boards[1].host().bind_with(any6, false).unwrap();
    assert!(hub.boards[1].host().bind(any4).is_err());
    let here4 = hub.boards[0].host().bind(any4).unwrap();
    let here6 = hub.boards[0].host().bind(any6).unwrap();
    for (remote, here) in [(ip4(1), here4), (local6(1).into(), here6)] {
        hub.boards[0].host().open(SocketAddr::new(remote, 80)).unwrap();
        hub.boards[0].host().send_to(here, SocketAddr::new(remote, 80), b"hello").unwrap();
        hub.pass(second(1));
        let peer = hub.take_completions(1).into_iter().find_map(|completion| match completion {
            Completion::Accepted { remote, .. } => Some(remote),
            _ => None,
        });
        let source: IpAddr = if remote.is_ipv4() { ip4(0) } else { local6(0).into() };
        assert_eq!(peer.map(|peer| peer.ip()), Some(source));
        let got = hub.boards[1].host().receive_from(socket, &mut [0; 9]).unwrap();
        assert_eq!(got, Some((SocketAddr::new(source, 80), 5)));
        // The reply uses the address family of the request.
        hub.boards[1].host().send_to(socket, SocketAddr::new(source, 80), b"well").unwrap();
        hub.run();
        let got = hub.boards[0].host().receive_from(here, &mut [0; 9]).unwrap();
        assert_eq!(got, Some((SocketAddr::new(remote, 80), 4)));
    }
    // This listener is IPv6-only, so a connect over IPv4 fails.
    hub.boards[1].host().listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 81)).unwrap();
    let stream = hub.boards[0].host().open(SocketAddr::new(ip4(1), 81)).unwrap();
    hub.pass(second(1));
    assert!(hub.take_completions(0).contains(&Completion::Ended { stream, reason: Reason::Refused }));
}

#[test]
fn a_missing_neighbour_is_solicited_once_a_second_and_given_up() {
    let mut hub = Hub::pair();
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 9);
    let socket = hub.boards[0].host().bind(any).unwrap();
    let gone = SocketAddr::new("10.0.0.77".parse().unwrap(), 9);
    for _ in 0..30 {
        hub.boards[0].host().send_to(socket, gone, b"is anybody there").unwrap();
        hub.pass(Duration::from_millis(100));
    }
    assert_eq!(arps(&hub.seen).len(), 3, "three questions in three seconds for thirty packets");
    hub.pass(Duration::from_millis(500));
    let kind = IcmpErrorKind::Unreachable { code: 1 };
    let completions = hub.take_completions(0);
    assert_eq!(completions, vec![Completion::DatagramError { socket, remote: gone, kind }; 3]);
    assert_eq!(hub.count(0, "ethernet", "unresolved_discards"), 27);
    assert_eq!(hub.count(0, "ethernet", "neighbours_failed"), 1);
    // The same test with an IPv6 wildcard socket.
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 9);
    let socket = hub.boards[0].host().bind(any).unwrap();
    let gone = SocketAddr::new(six("fe80::77").into(), 9);
    hub.seen.clear();
    hub.boards[0].host().send_to(socket, gone, b"is anybody there").unwrap();
    hub.pass(second(4));
    let asked = discoveries(&hub.seen);
    let question = Message::NeighbourSolicitation { target: six("fe80::77") };
    assert_eq!(asked, vec![(local6(0), solicited_node(six("fe80::77")), question); 3]);
    let kind = IcmpErrorKind::Unreachable { code: 3 };
    assert_eq!(hub.take_completions(0), [Completion::DatagramError { socket, remote: gone, kind }]);
    hub.check_home();
}

#[test]
fn connecting_through_a_missing_neighbour_fails() {
    let mut hub = Hub::pair();
    let (absent4, absent6) = ("10.0.0.77".parse().unwrap(), IpAddr::V6(six("fe80::77")));
    for absent in [absent4, absent6] {
        // More SYNs than the queue for an unresolved neighbour holds. All connects fail, whether their SYN
        // was queued or not.
        let open = |hub: &mut Hub, port| hub.boards[0].host().open(SocketAddr::new(absent, port)).unwrap();
        let streams: Vec<_> = (80..90).map(|port| open(&mut hub, port)).collect();
        hub.pass(Duration::from_millis(2900));
        assert_eq!(hub.take_completions(0), []);
        // A connect that starts during the resolution waits for the same ARP requests.
        let late = open(&mut hub, 90);
        hub.pass(Duration::from_millis(200));
        let completions = hub.take_completions(0);
        for stream in streams.into_iter().chain([late]) {
            assert!(
                completions.contains(&Completion::Ended { stream, reason: Reason::Unreachable }),
                "{absent}"
            );
        }
        assert_eq!(completions.len(), 11);
    }
    assert_eq!(hub.count(0, "tcp", "connects_unreachable"), 22);
    hub.check_home();
}

#[test]
fn losing_a_neighbour_ends_connects_but_not_open_streams() {
    for remote in [ip4(1), local6(1).into()] {
        let mut hub = Hub::pair();
        let (open, closed) = (SocketAddr::new(remote, 80), SocketAddr::new(remote, 81));
        hub.boards[1].host().listen(open).unwrap();
        let made = hub.boards[0].host().open(open).unwrap();
        hub.pass(second(60));
        assert!(hub.take_completions(0).contains(&Completion::Opened { stream: made }));
        hub.unplugged[1] = true;
        hub.boards[0].host().write(made, b"in vain").unwrap();
        let other = hub.boards[0].host().open(closed).unwrap();
        // The board first probes the known MAC address by unicast, then resolves the address by broadcast.
        hub.pass(second(8));
        assert_eq!(hub.take_completions(0), []);
        hub.pass(second(12));
        assert_eq!(
            hub.take_completions(0),
            [Completion::Ended { stream: other, reason: Reason::Unreachable }]
        );
        // The peer was only disconnected. After it is reconnected, the open stream continues.
        hub.unplugged[1] = false;
        hub.pass(second(60));
        let mut buffer = [0; 16];
        let far = hub.take_completions(1).into_iter().find_map(|completion| match completion {
            Completion::Accepted { stream, .. } => Some(stream),
            _ => None,
        });
        let count = hub.boards[1].host().read(far.expect("accepted"), &mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"in vain", "{remote}");
    }
}

#[test]
fn a_moved_or_missing_neighbour_is_detected() {
    for remote in [ip4(1), local6(1).into()] {
        let mut hub = Hub::pair();
        hub.boards[0].host().ping(remote, 1, 1, b"x").unwrap();
        hub.pass(second(60));
        hub.seen.clear();
        // The neighbour entry is stale: the board uses it at once, and probes it by unicast five seconds
        // later.
        hub.boards[0].host().ping(remote, 1, 2, b"x").unwrap();
        hub.run();
        assert_eq!(hub.take_completions(0).len(), 2);
        assert!(arps(&hub.seen).is_empty() && discoveries(&hub.seen).is_empty());
        hub.pass(second(6));
        let to_board_1 = |frame: &&Vec<u8>| frame[..6] == mac(1).0;
        let probes = arps(&hub.seen).iter().filter(|(to, _)| *to == mac(1)).count()
            + discoveries(&hub.seen).iter().filter(|(_, to, _)| IpAddr::V6(*to) == remote).count();
        assert!(probes >= 1, "it was asked itself");
        assert!(hub.seen.iter().filter(to_board_1).count() >= 2);
        // The neighbour is disconnected: the board sends three unicast probes, then a multicast solicitation.
        hub.pass(second(60));
        hub.unplugged[1] = true;
        hub.boards[0].host().ping(remote, 1, 3, b"x").unwrap();
        hub.pass(second(20));
        assert_eq!(hub.count(0, "ethernet", "neighbours_failed"), 1);
        assert!(hub.take_completions(0).is_empty());
        hub.unplugged[1] = false;
        hub.boards[0].host().ping(remote, 1, 4, b"x").unwrap();
        hub.pass(second(2));
        assert_eq!(hub.take_completions(0).len(), 1);
        hub.check_home();
    }
}

/// RFC 9293 §3.8.3, R1: after three unsuccessful retransmissions, a neighbour that was reachable a moment ago
/// is probed.
#[test]
fn a_stalled_stream_probes_its_neighbour() {
    for remote in [ip4(1), local6(1).into()] {
        for doubts in [true, false] {
            let configs = [0, 1].map(|side| {
                let mut config = config(link(side));
                config.tcp.negative_advice_retries = if doubts { 3 } else { 1000 };
                config
            });
            let mut hub = Hub::of(&configs);
            hub.pass(second(5));
            hub.boards[1].host().listen(SocketAddr::new(remote, 80)).unwrap();
            let stream = hub.boards[0].host().open(SocketAddr::new(remote, 80)).unwrap();
            hub.pass(second(1));
            hub.unplugged[1] = true;
            hub.boards[0].host().write(stream, b"in vain").unwrap();
            // Three retransmissions take 1.4 s, the fourth takes another 1.6 s, and the probe follows five
            // seconds later.
            hub.pass(second(12));
            let gone = hub.count(0, "ethernet", "neighbours_failed");
            assert_eq!(gone, u64::from(doubts), "{remote}, doubts {doubts}");
        }
    }
}

#[test]
fn unsolicited_arp_is_ignored_and_conflicts_are_counted_and_defended() {
    let mut hub = Hub::pair();
    let (IpAddr::V4(zero), IpAddr::V4(one)) = (ip4(0), ip4(1)) else { unreachable!() };
    let gratuitous = |sender: &str, mac: Mac| arp::Packet {
        operation: Operation::Request,
        sender_mac: mac,
        sender: sender.parse().unwrap(),
        target_mac: Mac::default(),
        target: sender.parse().unwrap(),
    };
    let before = hub.count(0, "ethernet", "arp_ignored");
    for n in 10..250u8 {
        let packet = gratuitous(&format!("10.0.0.{n}"), Mac([2, 9, 0, 0, 0, n]));
        hub.inject(0, &arp_frame(Mac::BROADCAST, packet));
        hub.inject(0, &arp_frame(Mac::BROADCAST, arp::Packet { operation: Operation::Reply, ..packet }));
    }
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "arp_ignored"), before + 480);
    // An ARP packet from a known neighbour may change its MAC address.
    hub.boards[0].host().ping(ip4(1), 1, 1, b"x").unwrap();
    hub.run();
    hub.inject(0, &arp_frame(Mac::BROADCAST, gratuitous("10.0.0.2", STRANGER)));
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "neighbours_moved"), 1);
    hub.seen.clear();
    hub.boards[0].host().ping(ip4(1), 1, 2, b"x").unwrap();
    hub.run();
    assert_eq!(hub.seen[0][..6], STRANGER.0);
    // Another host claims our address. Each claim is counted, but the board defends its address at most once
    // in ten seconds.
    hub.seen.clear();
    for _ in 0..15 {
        hub.inject(0, &arp_frame(Mac::BROADCAST, gratuitous("10.0.0.1", STRANGER)));
        hub.pass(second(1));
    }
    assert_eq!(hub.count(0, "ethernet", "arp_conflicts"), 15);
    let defences =
        arps(&hub.seen).iter().filter(|(_, packet)| packet.sender == zero && packet.target == zero).count();
    assert_eq!(defences, 2);
    // Malformed ARP packets, and one whose sender MAC is not the frame's source.
    let good = arp::Packet { target: zero, ..gratuitous("10.0.0.2", STRANGER) };
    let mut spoilt = [
        arp_frame(mac(0), arp::Packet { sender: Ipv4Addr::BROADCAST, ..good }),
        arp_frame(mac(0), good)[..30].to_vec(),
        arp_frame(mac(0), good),
        arp_frame(mac(0), good),
    ];
    spoilt[2][HEADER_BYTES + 4] = 7;
    spoilt[3][6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x55]);
    spoilt.iter().for_each(|frame| hub.inject(0, frame));
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "arp_malformed"), 4);
    // An ARP probe (RFC 5227) is answered, but creates no entry.
    hub.seen.clear();
    let probe = arp::Packet { sender: Ipv4Addr::UNSPECIFIED, sender_mac: STRANGER, ..good };
    hub.inject(0, &arp_frame(Mac::BROADCAST, probe));
    hub.run();
    assert_eq!(arps(&hub.seen)[0].1.operation, Operation::Reply);
    assert_ne!(one, zero);
}

#[test]
fn the_neighbour_cache_is_bounded_and_good_neighbours_stay_reachable() {
    let mut small = link(0);
    small.neighbours = NeighbourConfig { neighbours_max: 8, ..NeighbourConfig::default() };
    let mut hub = Hub::of(&[config(small), config(link(1))]);
    hub.pass(second(5));
    hub.boards[0].host().ping(local6(1).into(), 1, 1, b"x").unwrap();
    hub.run();
    for n in 1..=500u16 {
        // Solicitations for our address arrive from very many addresses.
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 9, 0, 0, n);
        let target = local6(0);
        let options = [Item::SourceLink(STRANGER)];
        let message = Message::NeighbourSolicitation { target };
        hub.inject(0, &discovery(mac(0), (source, target), 255, message, &options));
        hub.run();
    }
    assert!(hub.count(0, "ethernet", "neighbours_evicted") >= 490);
    hub.seen.clear();
    hub.boards[0].host().ping(local6(1).into(), 1, 2, b"x").unwrap();
    hub.run();
    assert_eq!(hub.take_completions(0).len(), 2);
    assert!(discoveries(&hub.seen).is_empty(), "who is reachable did not make room");
}

#[test]
fn addresses_are_autoconfigured_from_router_advertisements() {
    let mut hub = Hub::of(&[config(link(0)), config(link(1))]);
    let router =
        Router { lifetime_seconds: 1800, options: vec![prefix("2001:db8:5::", 7200, 3600), Item::Mtu(1400)] };
    hub.router = Some(router);
    hub.pass(second(5));
    let made = |side: u16| Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0xff, 0xfe00, 1 + side);
    for side in 0..2 {
        let mut addresses: Vec<_> = hub.boards[side].addresses().collect();
        addresses.sort();
        assert_eq!(addresses, [ip4(side), made(side as u16).into(), local6(side).into()]);
    }
    // One board's router solicitation is enough: both receive the advertisement.
    let asked = [0, 1].map(|side| hub.count(side, "ethernet", "router_solicitations_out"));
    assert!(asked[0] + asked[1] >= 1);
    let probes = discoveries(&hub.seen);
    let probe = |address| {
        (Ipv6Addr::UNSPECIFIED, solicited_node(address), Message::NeighbourSolicitation { target: address })
    };
    for side in 0..2 {
        assert!(probes.contains(&probe(local6(side))) && probes.contains(&probe(made(side as u16))));
    }
    // The datagram is sent from the autoconfigured address, with the router's MTU and hop limit.
    hub.seen.clear();
    let any6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 53);
    let there = hub.boards[1].host().bind(any6).unwrap();
    let here = hub.boards[0].host().bind(any6).unwrap();
    hub.boards[0].host().send_to(here, SocketAddr::new(made(1).into(), 53), &noise(1400)).unwrap();
    hub.run();
    let got = hub.boards[1].host().receive_from(there, &mut vec![0; 1400]).unwrap();
    assert_eq!(got, Some((SocketAddr::new(made(0).into(), 53), 1400)));
    let fragments: Vec<_> = hub.seen.iter().filter(|frame| frame.get(20) == Some(&44)).collect();
    assert_eq!(fragments.len(), 2);
    assert!(fragments.iter().all(|frame| frame.len() <= 1414 && frame[21] == 33));
    // Packets to destinations outside the advertised prefix go to the router.
    hub.seen.clear();
    hub.boards[0].host().ping(six("2001:db8:9::1").into(), 1, 1, b"x").unwrap();
    hub.run();
    let asked = discoveries(&hub.seen);
    assert_eq!(asked[0].2, Message::NeighbourSolicitation { target: ROUTER });
    // No further advertisements arrive: the address becomes deprecated, then invalid; the router and the
    // prefix expire too.
    hub.router = None;
    hub.pass(second(3700));
    assert!(hub.boards[0].addresses().any(|address| address == IpAddr::from(made(0))));
    hub.pass(second(3600));
    assert_eq!(hub.boards[0].addresses().count(), 2);
    assert!(hub.boards[0].host().ping(six("2001:db8:9::1").into(), 1, 1, b"x").is_err(), "no way");
}

#[test]
fn advertisements_cannot_shorten_lifetimes_below_two_hours_or_fill_the_tables() {
    let mut hub = Hub::of(&[config(link(0))]);
    let day = Router { lifetime_seconds: 1800, options: vec![prefix("2001:db8:5::", 86_400, 86_400)] };
    hub.router = Some(day.clone());
    hub.pass(second(5));
    let has = |hub: &Hub| {
        hub.boards[0].addresses().any(|address| address == IpAddr::from(six("2001:db8:5::ff:fe00:1")))
    };
    assert!(has(&hub));
    let short = Router { lifetime_seconds: 0, options: vec![prefix("2001:db8:5::", 1, 0)] };
    hub.router = None;
    hub.advertise(&short);
    hub.pass(second(7000));
    assert!(has(&hub), "two hours at least");
    hub.advertise(&short);
    hub.pass(second(10));
    assert!(has(&hub) && hub.count(0, "ethernet", "autoconf_invalid") == 1);
    hub.pass(second(300));
    assert!(!has(&hub));
    // A flood of advertised prefixes, including every kind that cannot be used.
    for n in 0..100u16 {
        let text = format!("2001:db8:{n:x}::");
        let other = Item::Prefix {
            bits: 48,
            on_link: false,
            autonomous: true,
            valid_seconds: 7200,
            preferred_seconds: 7200,
            prefix: six(&text),
        };
        let options = vec![
            prefix(&text, 86_400, 86_400),
            other,
            prefix("fe80::", 9, 9),
            prefix("2001:db8::", 5, 9),
            Item::Mtu(9000),
            Item::Mtu(100),
        ];
        hub.advertise(&Router { lifetime_seconds: 1800, options });
        hub.run();
    }
    hub.pass(second(5));
    assert!(hub.boards[0].addresses().count() <= 1 + 16);
    assert!(hub.count(0, "ethernet", "autoconf_table_full") >= 160);
    assert!(hub.count(0, "ethernet", "autoconf_invalid") >= 500);
    hub.check_home();
}

#[test]
fn an_unresolved_router_is_replaced_and_no_stream_ends() {
    let mut hub = Hub::of(&[config(link(0))]);
    hub.pass(second(5));
    let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let message = Message::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        lifetime_seconds: 9000,
        reachable_ms: 0,
        retransmit_ms: 0,
    };
    // The first router's advertisement has no link-layer address option, and the router does not answer
    // solicitations.
    let prefix = prefix("2001:db8:5::", 9000, 9000);
    hub.inject(0, &discovery(group, (six("fe80::a"), ALL_NODES), 255, message, &[prefix]));
    hub.inject(
        0,
        &discovery(group, (six("fe80::b"), ALL_NODES), 255, message, &[Item::SourceLink(STRANGER)]),
    );
    hub.pass(second(5));
    hub.seen.clear();
    let far = SocketAddr::new(six("2001:db8:77::1").into(), 80);
    hub.boards[0].host().open(far).unwrap();
    hub.pass(second(2));
    let question = Message::NeighbourSolicitation { target: six("fe80::a") };
    assert!(discoveries(&hub.seen).iter().any(|(_, _, what)| *what == question));
    assert!(!hub.seen.iter().any(|frame| frame[..6] == STRANGER.0));
    hub.pass(second(6));
    assert!(hub.seen.iter().any(|frame| frame[..6] == STRANGER.0), "the SYN goes to the next");
    assert_eq!(hub.take_completions(0), []);
}

/// The number of routers and redirects is unlimited here. The tables stay within their bounds, entries beyond
/// them are counted, and the first router remains the default.
#[test]
fn floods_of_routers_and_redirects_stay_within_bounds() {
    let mut obedient = link(0);
    obedient.autoconf = AutoconfConfig { accept_redirects: true, ..AutoconfConfig::default() };
    let mut hub = Hub::of(&[config(obedient)]);
    hub.router = Some(Router { lifetime_seconds: 9000, options: vec![prefix("2001:db8:5::", 9000, 9000)] });
    hub.pass(second(5));
    hub.router = None;
    let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
    for n in 0..2000u16 {
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 8, 0, 0, n);
        let message = Message::RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other: false,
            lifetime_seconds: 9000,
            reachable_ms: 1,
            retransmit_ms: 1,
        };
        hub.inject(0, &discovery(group, (source, ALL_NODES), 255, message, &[Item::SourceLink(STRANGER)]));
        let destination = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, n);
        let message = Message::Redirect { target: six("fe80::77"), destination };
        hub.inject(0, &discovery(mac(0), (ROUTER, local6(0)), 255, message, &[Item::TargetLink(STRANGER)]));
        hub.run();
    }
    // The table holds eight routers: the real one and seven others.
    assert_eq!(hub.count(0, "ethernet", "autoconf_table_full"), 2000 - 7);
    assert_eq!(hub.count(0, "ethernet", "redirects_in"), 2000);
    assert!(hub.count(0, "ethernet", "neighbours_evicted") >= 2000 - 1024);
    hub.seen.clear();
    hub.boards[0].host().ping(six("2001:db8:77::1").into(), 1, 1, b"x").unwrap();
    hub.pass(second(5));
    let asked = discoveries(&hub.seen);
    assert!(
        hub.seen.iter().any(|frame| frame[..6] == STRANGER.0)
            || asked.iter().any(|(_, _, what)| *what == Message::NeighbourSolicitation { target: ROUTER }),
        "the first router is still the one: {asked:?}"
    );
    // The advertisements set very short timers, but the board retransmits solicitations at least half a
    // second apart, so it sends few.
    assert!(asked.len() <= 60, "{} questions in five seconds", asked.len());
    hub.pass(second(100));
    hub.check_home();
}

#[test]
fn a_duplicate_address_is_not_used() {
    // Both boards have the same MAC address by mistake. The board that probes second detects the duplicate
    // address; an opaque interface identifier is then generated anew.
    for opaque in [false, true] {
        let configs: Vec<BoardConfig> = [0, 1]
            .into_iter()
            .map(|side| {
                let mut link = LinkConfig::new(mac(side));
                link.addresses = vec![(six("2001:db8::7").into(), "2001:db8::/64".parse().unwrap())];
                if opaque {
                    link.autoconf.identifier = Identifier::Opaque { key: [5, side as u64] };
                }
                link.autoconf.accept_routers = false;
                config(link)
            })
            .collect();
        let mut hub = Hub::of(&configs[..1]);
        hub.pass(second(5));
        let first: Vec<IpAddr> = hub.boards[0].addresses().collect();
        assert_eq!(first.len(), 2);
        // The second board starts later, and finds that the address is in use.
        let mut hub = Hub::of(&configs);
        hub.unplugged[1] = true;
        hub.boards[1] = common::board(1, &configs[1]);
        hub.pass(second(5));
        hub.unplugged[1] = false;
        hub.boards[1] = common::board(1, &configs[1]);
        hub.pass(second(5));
        let second_has: Vec<IpAddr> = hub.boards[1].addresses().collect();
        assert_eq!(second_has.len(), 1, "its own link-local address: {second_has:?}");
        assert_eq!(hub.count(1, "ethernet", "duplicate_addresses"), 1);
    }
    // Another host claims a tentative opaque address, so the board generates another one.
    let mut link = LinkConfig::new(mac(0));
    link.autoconf.identifier = Identifier::Opaque { key: [5, 6] };
    let mut hub = Hub::of(&[config(link)]);
    for _ in 0..20 {
        hub.pass(Duration::from_millis(100));
        if let Some((_, group, Message::NeighbourSolicitation { target })) =
            discoveries(&hub.seen).first().copied()
        {
            let message = Message::NeighbourSolicitation { target };
            hub.inject(
                0,
                &discovery(
                    Mac([0x33, 0x33, 0xff, 0, 0, 1]),
                    (Ipv6Addr::UNSPECIFIED, group),
                    255,
                    message,
                    &[],
                ),
            );
            hub.pass(second(3));
            let addresses: Vec<_> = hub.boards[0].addresses().collect();
            assert_eq!(addresses.len(), 1);
            assert_ne!(addresses[0], IpAddr::from(target));
            assert_eq!(hub.count(0, "ethernet", "duplicate_addresses"), 1);
            return;
        }
    }
    panic!("the address was never requested");
}

#[test]
fn invalid_neighbour_discovery_is_counted_and_ignored() {
    let mut hub = Hub::pair();
    let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let outsider = six("fe80::99");
    let question = Message::NeighbourSolicitation { target: local6(0) };
    let advertisement = Message::RouterAdvertisement {
        hop_limit: 1,
        managed: false,
        other: false,
        lifetime_seconds: 1800,
        reachable_ms: 1,
        retransmit_ms: 1,
    };
    let answer = |solicited| Message::NeighbourAdvertisement {
        router: false,
        solicited,
        overrides: true,
        target: local6(1),
    };
    let link = [Item::SourceLink(STRANGER)];
    let mut zero = discovery(mac(0), (outsider, local6(0)), 255, question, &link);
    zero[HEADER_BYTES + 40 + 24 + 1] = 0;
    let rows = [
        // A hop limit of 254: the packet has crossed a router.
        discovery(mac(0), (outsider, local6(0)), 254, question, &link),
        // Solicitations: from the unspecified address with a link-layer option, from the unspecified address
        // to a unicast address, and for a multicast address.
        discovery(mac(0), (Ipv6Addr::UNSPECIFIED, solicited_node(local6(0))), 255, question, &link),
        discovery(mac(0), (Ipv6Addr::UNSPECIFIED, local6(0)), 255, question, &[]),
        discovery(
            group,
            (outsider, ALL_NODES),
            255,
            Message::NeighbourSolicitation { target: ALL_NODES },
            &link,
        ),
        // A solicited advertisement that was sent to a multicast address.
        discovery(group, (outsider, ALL_NODES), 255, answer(true), &[Item::TargetLink(STRANGER)]),
        // A router advertisement from an address that is not link-local.
        discovery(group, (six("2001:db8::99"), ALL_NODES), 255, advertisement, &[]),
    ];
    for frame in &rows {
        hub.inject(0, frame);
    }
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "discovery_malformed"), rows.len() as u64);
    hub.inject(0, &zero);
    hub.run();
    assert_eq!(hub.count(0, "icmp", "checksum_errors"), 1, "the byte was changed behind the sum");
    // An unsolicited advertisement creates no neighbour entry, and a redirect is rejected.
    let unasked = Message::NeighbourAdvertisement {
        router: false,
        solicited: false,
        overrides: true,
        target: six("fe80::55"),
    };
    hub.inject(0, &discovery(group, (outsider, ALL_NODES), 255, unasked, &[Item::TargetLink(STRANGER)]));
    let redirect = Message::Redirect { target: outsider, destination: local6(1) };
    hub.inject(0, &discovery(mac(0), (outsider, local6(0)), 255, redirect, &[]));
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "discovery_ignored"), 1);
    assert_eq!(hub.count(0, "ethernet", "redirects_rejected"), 1);
    assert!(hub.boards[0].host().ping(six("2001:db8::1").into(), 1, 1, b"").is_err());
    hub.check_home();
}

#[test]
fn redirects_are_accepted_from_the_first_hop_if_enabled() {
    let mut obedient = link(0);
    obedient.autoconf = AutoconfConfig { accept_redirects: true, ..AutoconfConfig::default() };
    let mut hub = Hub::of(&[config(obedient)]);
    hub.router = Some(Router { lifetime_seconds: 1800, options: vec![prefix("2001:db8:5::", 7200, 7200)] });
    hub.pass(second(5));
    let far = six("2001:db8:9::1");
    let better = six("fe80::77");
    let redirect = |source| {
        let message = Message::Redirect { target: better, destination: far };
        discovery(mac(0), (source, local6(0)), 255, message, &[Item::TargetLink(STRANGER)])
    };
    hub.inject(0, &redirect(six("fe80::66")));
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "redirects_rejected"), 1, "not the first hop");
    hub.inject(0, &redirect(ROUTER));
    hub.run();
    assert_eq!(hub.count(0, "ethernet", "redirects_in"), 1);
    hub.seen.clear();
    hub.boards[0].host().ping(far.into(), 1, 1, b"x").unwrap();
    hub.run();
    assert_eq!(hub.seen[0][..6], STRANGER.0, "to the better hop, whose MAC was told");
    assert!(discoveries(&hub.seen).is_empty());
}

#[test]
fn frames_for_others_and_of_unknown_types_are_dropped() {
    let mut hub = Hub::pair();
    let packet = common::packets::udp_packet(SocketAddr::new(ip4(1), 9), SocketAddr::new(ip4(0), 9), b"x");
    let frame = |target: Mac, source: Mac, ether_type: u16| {
        let mut bytes = vec![0; HEADER_BYTES];
        Header { target, source, ether_type }.write(&mut bytes);
        bytes.extend_from_slice(&packet);
        bytes
    };
    for (bytes, counter) in [
        (frame(mac(5), STRANGER, 0x0800), "not_ours"),
        (frame(mac(0), Mac::BROADCAST, 0x0800), "malformed"),
        (frame(mac(0), STRANGER, 0x8100), "unknown_type"),
        (frame(Mac::BROADCAST, STRANGER, 0x0800), "unicast_in_multicast"),
        (frame(mac(0), STRANGER, 0x0800)[..13].to_vec(), "malformed"),
    ] {
        let before = hub.count(0, "ethernet", counter);
        hub.inject(0, &bytes);
        hub.run();
        assert_eq!(hub.count(0, "ethernet", counter), before + 1, "{counter}");
    }
    assert_eq!(hub.count(0, "udp", "datagrams_in"), 0);
    hub.inject(0, &frame(mac(0), STRANGER, 0x0800));
    hub.run();
    assert_eq!(hub.count(0, "udp", "datagrams_in"), 1);
    hub.check_home();
}

#[test]
fn random_frames_do_no_harm() {
    let mut hub = Hub::pair();
    let mut rng = kiban_base::SimRng::from_seed(9);
    let seeds: Vec<Vec<u8>> = vec![
        discovery(
            mac(0),
            (six("fe80::99"), local6(0)),
            255,
            Message::NeighbourSolicitation { target: local6(0) },
            &[Item::SourceLink(STRANGER)],
        ),
        discovery(
            mac(0),
            (ROUTER, ALL_NODES),
            255,
            Message::RouterAdvertisement {
                hop_limit: 0,
                managed: false,
                other: false,
                lifetime_seconds: 9,
                reachable_ms: 0,
                retransmit_ms: 0,
            },
            &[prefix("2001:db8:5::", 7200, 7200), Item::Mtu(1300)],
        ),
        arp_frame(
            mac(0),
            arp::Packet {
                operation: Operation::Request,
                sender_mac: STRANGER,
                sender: Ipv4Addr::new(10, 0, 0, 9),
                target_mac: Mac::default(),
                target: Ipv4Addr::new(10, 0, 0, 1),
            },
        ),
    ];
    for _ in 0..20_000 {
        let mut bytes = seeds[rng.below(seeds.len() as u64) as usize].clone();
        for _ in 0..1 + rng.below(4) {
            let at = 12 + rng.below(bytes.len() as u64 - 12) as usize;
            bytes[at] = rng.draw() as u8;
        }
        // Correct the checksum, because otherwise the board checks nothing else.
        if bytes[12..14] == [0x86, 0xdd] && bytes.len() > 62 {
            bytes[56..58].fill(0);
            let address = |at: usize| Ipv6Addr::from(*bytes[at..].first_chunk::<16>().unwrap());
            let length = bytes.len() - 54;
            let pseudo = kiban_base::checksum::pseudo_ipv6(address(22), address(38), 58, length);
            let sum = pseudo.plus(kiban_base::Sum::of(&bytes[54..])).checksum();
            bytes[56..58].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.truncate(bytes.len() - rng.below(3) as usize * rng.below(20) as usize);
        hub.inject(0, &bytes);
        if rng.happens(0.05) {
            hub.pass(Duration::from_millis(rng.below(2000)));
            hub.seen.clear();
        } else {
            hub.run();
        }
        hub.completions[0].clear();
    }
    hub.pass(second(100));
    hub.check_home();
    assert!(hub.count(0, "ethernet", "router_advertisements_in") > 1000);
}
