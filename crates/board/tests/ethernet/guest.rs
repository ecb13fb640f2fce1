//! A board that configures the guest of its link. The guest is another board, or frames of the test.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Sum, checksum};
use kiban_tcpip::dhcp::State;
use kiban_tcpip::ethernet::{AutoconfConfig, LinkConfig};
use kiban_tcpip::guest::{GuestConfig, LEASE_SECONDS};
use kiban_tcpip::wire::dhcpv6::{self, Kind, option};
use kiban_tcpip::wire::discovery::{ALL_NODES, ALL_ROUTERS, HOP_LIMIT, Item, Message};
use kiban_tcpip::wire::{ipv6, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 15);

/// The link of the board that configures its guest.
fn gateway() -> LinkConfig {
    let net = |text: &str| text.parse().unwrap();
    let (gateway6, guest6) = (six("fd00::1"), six("fd00::15"));
    LinkConfig {
        addresses: vec![(GATEWAY.into(), net("10.7.0.0/24")), (gateway6.into(), net("fd00::/64"))],
        mtu_bytes: 1400,
        autoconf: AutoconfConfig { accept_routers: false, ..AutoconfConfig::default() },
        guest: Some(GuestConfig {
            ipv4: Some((GUEST, net("10.7.0.0/24"), GATEWAY)),
            ipv6: Some((guest6, net("fd00::/64"))),
            names: vec![GATEWAY.into(), gateway6.into()],
        }),
        ..LinkConfig::new(mac(1))
    }
}

fn advertisements(hub: &Hub) -> usize {
    let is_one = |message: &Message| matches!(message, Message::RouterAdvertisement { .. });
    discoveries(&hub.seen).iter().filter(|(.., message)| is_one(message)).count()
}

#[test]
fn a_board_as_guest_gets_addresses_routes_and_the_mtu() {
    let guest = LinkConfig { dhcp: true, ..LinkConfig::new(mac(0)) };
    let mut hub = Hub::of(&[config(guest), config(gateway())]);
    hub.pass(second(10));
    let made = six("fd00::ff:fe00:1");
    let has = |hub: &Hub, address: IpAddr| hub.boards[0].addresses().any(|own| own == address);
    assert_eq!(hub.boards[0].dhcp(0).expect("a client").state(), State::Bound);
    assert!(has(&hub, GUEST.into()) && has(&hub, made.into()));
    let lease = hub.boards[0].dhcp(0).and_then(|client| client.lease()).expect("a lease");
    assert_eq!((lease.server, lease.router), (GATEWAY, Some(GATEWAY)));
    assert_eq!(lease.prefix.bits(), 24);
    // The advertised MTU: a longer datagram goes in fragments.
    let here = hub.boards[0].host().bind("[::]:53".parse().unwrap()).unwrap();
    let there = hub.boards[1].host().bind("[::]:53".parse().unwrap()).unwrap();
    hub.boards[0].host().send_to(here, "[fd00::1]:53".parse().unwrap(), &noise(1400)).unwrap();
    hub.run();
    let got = hub.boards[1].host().receive_from(there, &mut vec![0; 1400]).unwrap();
    assert_eq!(got, Some(((made, 53).into(), 1400)));
    assert!(hub.seen.iter().all(|frame| frame.len() <= 1414));
    // The gateway stays a router when it answers neighbour solicitations, and its lease is renewed.
    for _ in 0..10 {
        hub.pass(second(60));
        hub.seen.clear();
        for far in ["192.0.2.1", "2001:db8:9::1"] {
            hub.boards[0].host().ping(far.parse().unwrap(), 1, 1, b"x").expect("a default route");
        }
        hub.run();
        let frames = hub.seen.iter().map(|frame| Header::read(frame).unwrap().0);
        assert!(frames.clone().any(|header| header.target == mac(1)), "to the gateway");
    }
    hub.pass(second(u64::from(LEASE_SECONDS)));
    assert!(has(&hub, GUEST.into()) && has(&hub, made.into()));
    // DISCOVER, REQUEST, and at least one renewal.
    assert!(hub.count(1, "guest", "answered") >= 3 && hub.count(1, "guest", "malformed") == 0);
    hub.check_home();
}

#[test]
fn solicitations_are_answered_soon_but_a_flood_of_them_is_not() {
    let mut hub = Hub::of(&[config(gateway())]);
    hub.pass(second(100));
    let solicitation = |source: Ipv6Addr, options: &[Item<'_>]| {
        let group = Mac([0x33, 0x33, 0, 0, 0, 2]);
        discovery(group, (source, ALL_ROUTERS), HOP_LIMIT, Message::RouterSolicitation, options)
    };
    hub.seen.clear();
    // RFC 4861 §6.1.1: without a source address, there is no link-layer address either.
    hub.inject(0, &solicitation(Ipv6Addr::UNSPECIFIED, &[Item::SourceLink(STRANGER)]));
    hub.pass(second(1));
    assert_eq!((advertisements(&hub), hub.count(0, "ethernet", "discovery_malformed")), (0, 1));
    hub.inject(0, &solicitation(Ipv6Addr::UNSPECIFIED, &[]));
    hub.pass(Duration::from_millis(600));
    assert_eq!(advertisements(&hub), 1);
    for _ in 0..300 {
        hub.inject(0, &solicitation(ROUTER, &[Item::SourceLink(STRANGER)]));
        hub.pass(Duration::from_millis(100));
    }
    let count = advertisements(&hub) - 1;
    assert!((8..=10).contains(&count), "{count} in 30 s");
    let (source, target, _) = discoveries(&hub.seen)[0];
    assert_eq!((source, target), (local6(1), ALL_NODES));
    hub.check_home();
}

/// Returns a frame with a DHCPv6 message of the guest; `harm` changes the datagram.
fn request(kind: Kind, source: Ipv6Addr, target: Ipv6Addr, harm: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = vec![kind as u8, 1, 2, 3];
    dhcpv6::push_option(&mut message, option::CLIENT, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 0x99]);
    dhcpv6::push_association(&mut message, option::ADDRESSES, [0, 0, 0, 7], [0, 0], &[]);
    let total = udp::HEADER_BYTES + message.len();
    let mut datagram = vec![0; udp::HEADER_BYTES];
    let ports = (dhcpv6::CLIENT_PORT, dhcpv6::SERVER_PORT);
    udp::Header { source_port: ports.0, target_port: ports.1, total_bytes: total as u16 }
        .write(&mut datagram);
    let pseudo = checksum::pseudo_ipv6(source, target, protocol::UDP, total);
    udp::fill(&mut datagram, pseudo.plus(Sum::of(&message)));
    datagram.extend_from_slice(&message);
    harm(&mut datagram);
    let mut frame = vec![0; HEADER_BYTES + ipv6::HEADER_BYTES];
    let group = Mac([0x33, 0x33, 0, 1, 0, 2]);
    Header { target: group, source: STRANGER, ether_type: ether_type::IPV6 }.write(&mut frame);
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: datagram.len() as u16,
        next_header: protocol::UDP,
        hop_limit: 1,
        source,
        target,
    }
    .write(&mut frame[HEADER_BYTES..]);
    frame.extend_from_slice(&datagram);
    frame
}

#[test]
fn dhcpv6_is_answered_to_the_guest_alone() {
    let mut hub = Hub::of(&[config(gateway())]);
    hub.pass(second(100));
    hub.seen.clear();
    let (guest, group) = (ROUTER, dhcpv6::ALL_SERVERS);
    hub.inject(0, &request(Kind::Solicit, guest, group, |_| {}));
    hub.run();
    assert_eq!(hub.seen.len(), 1);
    let frame = std::mem::take(&mut hub.seen).remove(0);
    let (header, at) = Header::read(&frame).unwrap();
    assert_eq!((header.source, header.target), (mac(1), STRANGER));
    let (ip, length) = ipv6::Header::read(&frame[at..]).unwrap();
    assert_eq!((ip.source, ip.target, ip.next_header), (local6(1), guest, protocol::UDP));
    let datagram = &frame[at + length..];
    let (about, length) = udp::Header::read(datagram).unwrap();
    assert_eq!((about.source_port, about.target_port), (dhcpv6::SERVER_PORT, dhcpv6::CLIENT_PORT));
    let pseudo = checksum::pseudo_ipv6(ip.source, ip.target, protocol::UDP, datagram.len());
    udp::verify_over_ipv6(&datagram[..length], pseudo.plus(Sum::of(&datagram[length..]))).unwrap();
    let (answer, length) = dhcpv6::Header::read(&datagram[8..]).unwrap();
    assert_eq!((answer.kind, answer.transaction), (Kind::Advertise, [1, 2, 3]));
    let options = dhcpv6::Options::read(&datagram[8 + length..]).unwrap();
    let set = dhcpv6::Association::read(options.get(option::ADDRESSES).unwrap()).unwrap();
    assert_eq!(set.addresses().collect::<Vec<_>>(), [six("fd00::15")]);
    // A wrong checksum, and a source that is not on the link.
    hub.inject(0, &request(Kind::Solicit, guest, group, |datagram| *datagram.last_mut().unwrap() ^= 1));
    hub.inject(0, &request(Kind::Solicit, six("2001:db8::9"), group, |_| {}));
    // A message that only a server sends.
    hub.inject(0, &request(Kind::Reply, guest, group, |_| {}));
    hub.run();
    assert!(hub.seen.is_empty(), "{:?}", hub.seen);
    assert_eq!((hub.count(0, "guest", "answered"), hub.count(0, "guest", "malformed")), (1, 1));
    hub.check_home();
}
