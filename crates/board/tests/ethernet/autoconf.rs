//! Address autoconfiguration, routers and redirects.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Mac};
use kiban_board::BoardConfig;
use kiban_tcpip::ethernet::{AutoconfConfig, Identifier, LinkConfig};
use kiban_tcpip::wire::discovery::{ALL_NODES, Item, Message, solicited_node};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

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
    // A router solicitation from one board is enough: both boards receive the advertisement.
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
    // No further advertisements arrive, so the address becomes deprecated and then invalid. The router and
    // the prefix expire too.
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
    // A flood of advertised prefixes that includes every kind of unusable prefix.
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

/// The test sends any number of advertisements and redirects. The tables stay within their bounds, entries
/// beyond the bounds are counted, and the first router remains the default.
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
    // address. If the interface identifier is opaque, a new one is then generated.
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
        hub.boards[1] = crate::common::board(1, &configs[1]);
        hub.pass(second(5));
        hub.unplugged[1] = false;
        hub.boards[1] = crate::common::board(1, &configs[1]);
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
        // With a hop limit of 254, the packet has crossed a router.
        discovery(mac(0), (outsider, local6(0)), 254, question, &link),
        // Invalid solicitations: from the unspecified address with a link-layer option, from the unspecified
        // address to a unicast address, and for a multicast address.
        discovery(mac(0), (Ipv6Addr::UNSPECIFIED, solicited_node(local6(0))), 255, question, &link),
        discovery(mac(0), (Ipv6Addr::UNSPECIFIED, local6(0)), 255, question, &[]),
        discovery(
            group,
            (outsider, ALL_NODES),
            255,
            Message::NeighbourSolicitation { target: ALL_NODES },
            &link,
        ),
        // This advertisement is invalid: it is solicited, but was sent to a multicast address.
        discovery(group, (outsider, ALL_NODES), 255, answer(true), &[Item::TargetLink(STRANGER)]),
        // This router advertisement is invalid: its source address is not link-local.
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
