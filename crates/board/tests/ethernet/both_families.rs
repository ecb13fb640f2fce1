//! Streams, datagrams and pings of both IP families, and frames of other protocols.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_board::{Completion, IcmpErrorKind, Reason};
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::discovery::{ALL_NODES, Item, Message};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

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
        let (reporter, remote) = (remote, SocketAddr::new(remote, 54));
        let error = Completion::DatagramError { socket: here, remote, reporter, kind };
        assert_eq!(hub.take_completions(0), [error]);
    }
    assert!(hub.seen.iter().all(|frame| frame.len() <= 1514));
    assert!(hub.count(1, "ip", "reassembled") >= 8);
    hub.pass(second(100));
    hub.check_home();
}

#[test]
fn a_ping_to_an_absent_host_ends_with_an_error_from_the_board() {
    let mut hub = Hub::pair();
    for (target, reporter, code) in [(ip4(9), ip4(0), 1), (local6(9).into(), local6(0).into(), 3)] {
        hub.boards[0].host().ping(target, 7, 2, b"who is there?").unwrap();
        hub.pass(second(10));
        let kind = IcmpErrorKind::Unreachable { code };
        let error = Completion::EchoError { reporter, target, identifier: 7, sequence: 2, kind };
        assert_eq!(hub.take_completions(0), [error]);
    }
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
fn frames_for_others_and_of_unknown_types_are_dropped() {
    let mut hub = Hub::pair();
    let packet =
        crate::common::packets::udp_packet(SocketAddr::new(ip4(1), 9), SocketAddr::new(ip4(0), 9), b"x");
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
        // Correct the checksum, because otherwise the board would check nothing else.
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
