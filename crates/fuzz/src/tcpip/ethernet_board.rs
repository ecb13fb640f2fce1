//! A board behind an Ethernet port, fed with arbitrary frames: ARP, neighbour discovery, router
//! advertisements, and both IP families.
//!
//! Input     a byte of settings (1: accept redirects; 2: opaque identifiers; 4: use addresses at once; 8:
//!           small caches; 16: lease an IPv4 address, too; 32: configure a guest), followed by frames.
//!           Each has a byte of corrections (1: lengths and checksums; 2: addressed to the board's MAC, and
//!           to its own or its all-nodes address; 4: time passes; 8: the host sends), a length of two bytes,
//!           and the frame itself.
//! Checks    nothing panics. One frame causes few answers, each correct and from the board's own MAC. The
//!           number of addresses stays within its bound, and all memory is freed.

use crate::features::Features;
use crate::input::Input;
use crate::tcpip::craft;
use crate::tcpip::ip_board::{for_the_board, packets};
use crate::tcpip::stand::{BOARD, BOARD6, PEER, PEER6, Stand, check_sent, memory};
use crate::wire::{dhcp_seeds, dhcpv6_seeds};
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_board::{BoardConfig, EthernetPortConfig, PortConfig};
use kiban_tcpip::ethernet::{AutoconfConfig, Identifier, LinkConfig, NeighbourConfig};
use kiban_tcpip::guest::GuestConfig;
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::wire::arp::{self, Operation};
use kiban_tcpip::wire::discovery::{ALL_NODES, ALL_ROUTERS, HOP_LIMIT, Item, Message, solicited_node};
use kiban_tcpip::wire::ipv6_extension::{PAD_MORE, ROUTER_ALERT};
use kiban_tcpip::wire::{dhcpv6, igmp, mld, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Our link-local address, derived from the MAC, and the peer's.
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
/// Maximum number of frames that one frame may cause: packets that waited for a neighbour, the answer, and
/// the board's own announcements.
const ANSWERS_MAX: usize = 16;
/// Maximum number of addresses in addition to the configured IPv4 address; the configuration sets this limit.
const ADDRESSES_MAX: usize = 6;

fn board(settings: u8) -> BoardConfig {
    let wishes = |bit: u8| settings >> bit & 1 == 1;
    let net = |text: &str| text.parse().expect("a prefix");
    let identifier = if wishes(1) { Identifier::Opaque { key: [1, 2] } } else { Identifier::Eui64 };
    let mut neighbours = NeighbourConfig::default();
    if wishes(3) {
        neighbours = NeighbourConfig { neighbours_max: 2, queue_max: 1, queued_max: 2, ..neighbours };
    }
    let link = LinkConfig {
        addresses: vec![(BOARD.into(), net("10.0.0.0/24")), (BOARD6.into(), net("fd00::/64"))],
        neighbours,
        dhcp: wishes(4),
        guest: wishes(5).then(guest),
        autoconf: AutoconfConfig {
            accept_redirects: wishes(0),
            identifier,
            probes: u8::from(!wishes(2)),
            addresses_max: ADDRESSES_MAX,
            prefixes_max: 4,
            routers_max: 2,
            ..AutoconfConfig::default()
        },
        ..LinkConfig::new(OURS)
    };
    BoardConfig {
        memory: memory(),
        ports: vec![PortConfig::Ethernet(EthernetPortConfig::on(link))],
        v6_only: false,
        ..BoardConfig::default()
    }
}

/// The configuration of the peer as a guest.
fn guest() -> GuestConfig {
    let prefix = |address: IpAddr, bits| Prefix::new(address, bits);
    GuestConfig {
        ipv4: Some((PEER, prefix(PEER.into(), 24), BOARD)),
        ipv6: Some((PEER6, prefix(PEER6.into(), 64))),
        names: vec![BOARD.into(), BOARD6.into()],
    }
}

/// Checks the headers of a frame that the board has sent.
fn check_frame(frame: &[u8]) {
    let (header, used) = Header::read(frame).expect("a board sends frames that can be read");
    assert_eq!(header.source, OURS);
    let load = &frame[used..];
    match header.ether_type {
        ether_type::ARP => {
            let (packet, _) = arp::Packet::read(load).expect("a board's ARP");
            assert_eq!(packet.sender_mac, OURS);
        }
        kind => {
            let (sent, bytes) = check_sent(load);
            assert_eq!(kind == ether_type::IPV4, sent.source.is_ipv4());
            assert_eq!(
                header.target.is_group(),
                is_for_all(sent.target),
                "{} to {}",
                sent.target,
                header.target
            );
            if sent.protocol == Some(protocol::ICMPV6) && (133..=137).contains(&bytes[0]) {
                let (message, _) = Message::read(bytes).expect("a board's discovery");
                assert!(!matches!(message, Message::Redirect { .. }));
            }
        }
    }
}

fn is_for_all(target: IpAddr) -> bool {
    match target {
        IpAddr::V4(target) => target.is_multicast() || target.is_broadcast() || target.octets()[3] == 255,
        IpAddr::V6(target) => target.is_multicast(),
    }
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let mut stand = Stand::new(&board(input.byte()));
    let mut host = stand.board.host();
    let any = |port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let listener = host.listen(any(80)).expect("there is no listener yet");
    let socket = host.bind(any(7)).expect("the port is free");
    stand.drain();
    while !input.is_empty() {
        let mode = input.byte();
        let length = usize::from(input.short() % 2048);
        let mut frame = input.take(length).to_vec();
        if mode & 2 != 0 && frame.len() >= HEADER_BYTES {
            frame[..6].copy_from_slice(&OURS.0);
            frame[6..12].copy_from_slice(&THEIRS.0);
            // Neighbour discovery uses its own addresses.
            let is_discovery = frame.get(HEADER_BYTES + 40).is_some_and(|kind| (133..=137).contains(kind));
            if !is_discovery && frame[12..14] != ether_type::ARP.to_be_bytes() {
                for_the_board(&mut frame[HEADER_BYTES..]);
            }
        }
        if mode & 1 != 0 && frame.len() > HEADER_BYTES && frame[12..14] != ether_type::ARP.to_be_bytes() {
            craft::mend(&mut frame[HEADER_BYTES..]);
        }
        stand.packet(&frame);
        assert!(stand.sent.len() <= ANSWERS_MAX, "{} answers to one frame", stand.sent.len());
        stand.sent.drain(..).for_each(|frame| check_frame(&frame));
        if mode & 8 != 0 {
            let last = input.byte();
            let to: IpAddr = match last % 3 {
                0 => [10, 0, 0, last].into(),
                1 => [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
                _ => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into(),
            };
            // This fails if the board has no address or no route.
            let _ = stand.board.host().ping(to, 1, u16::from(last), b"who is there?");
            stand.drain();
        }
        if mode & 4 != 0 {
            stand.pass(Duration::from_millis(u64::from(mode) * 50));
        }
        stand.sent.drain(..).for_each(|frame| check_frame(&frame));
        assert!(stand.board.addresses().count() <= 1 + ADDRESSES_MAX);
        let mut host = stand.board.host();
        while let Ok(Some(_)) = host.receive_from(socket, &mut [0; 2048]) {}
        stand.drain();
    }
    stand.show(features);
    features.show(stand.board.addresses().count());
    stand.board.host().unbind(socket).expect("it is bound");
    stand.give_up(listener);
    // Packets that wait for a neighbour are dropped after a few solicitations.
    stand.pass(Duration::from_secs(600));
    stand.pass(Duration::from_secs(600));
    stand.sent.clear();
    stand.finish();
}

fn framed(kind: u16, load: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    Header { target: OURS, source: THEIRS, ether_type: kind }.write(&mut frame);
    frame.extend_from_slice(load);
    frame
}

fn discovery(source: Ipv6Addr, target: Ipv6Addr, message: Message, options: &[Item<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; message.length() + options.iter().map(Item::length).sum::<usize>()];
    let mut at = message.write(&mut bytes);
    for option in options {
        at += option.write(&mut bytes[at..]);
    }
    let mut packet = craft::ip(source.into(), target.into(), protocol::ICMPV6, &bytes);
    assert_eq!(packet[7], HOP_LIMIT);
    craft::mend(&mut packet);
    framed(ether_type::IPV6, &packet)
}

/// Returns a frame with a query for multicast listeners, behind a router alert option.
fn listeners(query: mld::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![protocol::ICMPV6, 0, ROUTER_ALERT, 2, 0, 0, PAD_MORE, 0];
    bytes.resize(bytes.len() + query.length(), 0);
    query.write(&mut bytes[8..]);
    let mut packet = craft::ip(ROUTER.into(), ALL_NODES.into(), protocol::HOP_BY_HOP, &bytes);
    packet[7] = mld::HOP_LIMIT;
    craft::mend(&mut packet);
    framed(ether_type::IPV6, &packet)
}

/// Returns a frame with a query for group members.
fn members(query: igmp::Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; query.length()];
    query.write(&mut bytes);
    let mut packet = craft::ip(PEER.into(), igmp::ALL_HOSTS.into(), protocol::IGMP, &bytes);
    packet[8] = igmp::TIME_TO_LIVE;
    craft::mend(&mut packet);
    framed(ether_type::IPV4, &packet)
}

/// Returns frames with which a guest asks for its configuration.
fn requests() -> Vec<Vec<u8>> {
    let datagram = |source: IpAddr, target: IpAddr, ports: [u16; 2], message: &[u8]| {
        let mut bytes = vec![0; udp::HEADER_BYTES];
        let [source_port, target_port] = ports;
        let total_bytes = (udp::HEADER_BYTES + message.len()) as u16;
        udp::Header { source_port, target_port, total_bytes }.write(&mut bytes);
        bytes.extend_from_slice(message);
        let mut packet = craft::ip(source, target, protocol::UDP, &bytes);
        craft::mend(&mut packet);
        let kind = if source.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
        let mut frame = framed(kind, &packet);
        let group = dhcpv6::ALL_SERVERS.octets();
        let mac = [[0x33, 0x33, group[12], group[13], group[14], group[15]], [0xff; 6]];
        frame[..6].copy_from_slice(&mac[usize::from(source.is_ipv4())]);
        frame
    };
    let four = dhcp_seeds().into_iter().map(|message| {
        datagram(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into(), [68, 67], &message)
    });
    let six = dhcpv6_seeds()
        .into_iter()
        .map(|message| datagram(ROUTER.into(), dhcpv6::ALL_SERVERS.into(), [546, 547], &message));
    let (message, target) = (Message::RouterSolicitation, ALL_ROUTERS);
    let solicitations = [
        discovery(ROUTER, target, message, &[Item::SourceLink(THEIRS)]),
        discovery(Ipv6Addr::UNSPECIFIED, target, message, &[]),
    ];
    four.chain(six).chain(solicitations).collect()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ask = |operation, target| {
        let mut bytes = vec![0; arp::PACKET_BYTES];
        arp::Packet { operation, sender_mac: THEIRS, sender: PEER, target_mac: OURS, target }
            .write(&mut bytes);
        framed(ether_type::ARP, &bytes)
    };
    let prefix = |text: &str, valid_seconds| Item::Prefix {
        bits: 64,
        on_link: true,
        autonomous: true,
        valid_seconds,
        preferred_seconds: valid_seconds,
        prefix: text.parse().expect("a prefix"),
    };
    let router = |lifetime_seconds| Message::RouterAdvertisement {
        hop_limit: 33,
        managed: false,
        other: false,
        lifetime_seconds,
        reachable_ms: 1000,
        retransmit_ms: 100,
    };
    let question = Message::NeighbourSolicitation { target: LOCAL };
    let answer =
        |target| Message::NeighbourAdvertisement { router: true, solicited: true, overrides: true, target };
    let redirect =
        Message::Redirect { target: ROUTER, destination: "2001:db8::9".parse().expect("an address") };
    let (source, target) = ([Item::SourceLink(THEIRS)], [Item::TargetLink(THEIRS)]);
    let prefixes = [prefix("2001:db8:5::", 7200), prefix("2001:db8:6::", 1), Item::Mtu(1280), source[0]];
    // A query for all groups, without delay, in either version.
    let old = mld::Message::QueryV1 { max_response_ms: 0, group: Ipv6Addr::UNSPECIFIED };
    let new = mld::Message::Query {
        max_response_code: 0,
        group: Ipv6Addr::UNSPECIFIED,
        suppress: false,
        robustness: 2,
        interval_code: 1,
        sources: &[],
    };
    let frames: Vec<Vec<u8>> = [
        ask(Operation::Request, BOARD),
        ask(Operation::Reply, BOARD),
        discovery(PEER6, LOCAL, question, &source),
        discovery(Ipv6Addr::UNSPECIFIED, solicited_node(LOCAL), question, &[]),
        discovery(ROUTER, ALL_NODES, router(1800), &prefixes),
        discovery(ROUTER, ALL_NODES, router(0), &prefixes[..1]),
        discovery(PEER6, BOARD6, answer(PEER6), &target),
        discovery(ROUTER, LOCAL, redirect, &target),
        listeners(old),
        listeners(new),
        members(igmp::Message::OldQuery { max_response_code: 1, group: Ipv4Addr::UNSPECIFIED }),
    ]
    .into_iter()
    .chain(packets().iter().map(|packet| {
        let kind = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        framed(kind, packet)
    }))
    .collect();
    let record = |mode: u8, frame: &Vec<u8>| {
        let more: &[u8] = if mode & 8 != 0 { &[2] } else { &[] };
        [&[mode][..], &(frame.len() as u16).to_be_bytes(), frame, more].concat()
    };
    let wait = |seconds: usize| record(4 | 240, &Vec::new()).repeat(seconds.div_ceil(12));
    let mut seeds = Vec::new();
    for settings in [0, 1, 2, 4, 8, 15, 16, 32, 36] {
        // Frames that arrive before the board's addresses are usable; in another input, frames that arrive
        // afterwards.
        seeds.push([vec![settings], frames.iter().flat_map(|frame| record(1, frame)).collect()].concat());
        let all: Vec<u8> = frames.iter().flat_map(|frame| record(11, frame)).collect();
        seeds.push([vec![settings], wait(30), all.clone(), wait(60), all].concat());
    }
    seeds.extend(frames.iter().map(|frame| [vec![4], wait(12), record(9, frame)].concat()));
    let requests = requests();
    seeds.extend(requests.iter().map(|frame| [vec![36], wait(12), record(1, frame), wait(12)].concat()));
    seeds
}
