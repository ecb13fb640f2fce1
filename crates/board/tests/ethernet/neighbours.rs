//! ARP, neighbour discovery, and the neighbour cache.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Mac};
use kiban_board::{Completion, IcmpErrorKind, Reason};
use kiban_tcpip::ethernet::NeighbourConfig;
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::discovery::{Item, Message, solicited_node};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

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
    assert_eq!(
        completions,
        vec![Completion::DatagramError { socket, remote: gone, reporter: ip4(0), kind }; 3]
    );
    assert_eq!(hub.count(0, "ethernet", "unresolved_discards"), 27);
    assert_eq!(hub.count(0, "ethernet", "neighbours_failed"), 1);
    // The same test runs with an IPv6 wildcard socket.
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
    assert_eq!(
        hub.take_completions(0),
        [Completion::DatagramError { socket, remote: gone, reporter: local6(0).into(), kind }]
    );
    hub.check_home();
}

#[test]
fn connecting_through_a_missing_neighbour_fails() {
    let mut hub = Hub::pair();
    let (absent4, absent6) = ("10.0.0.77".parse().unwrap(), IpAddr::V6(six("fe80::77")));
    for absent in [absent4, absent6] {
        // There are more SYNs than the queue for an unresolved neighbour holds. All connects fail, whether
        // their SYN was queued or not.
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
        // The neighbour entry is stale. The board uses it at once, and probes it by unicast five seconds
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

/// RFC 9293 §3.8.3, R1: even a recently reachable neighbour is probed after three unsuccessful
/// retransmissions.
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
