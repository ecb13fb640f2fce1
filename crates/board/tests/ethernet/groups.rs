//! Groups of sockets: memberships, reports of IPv4 groups (IGMP), and datagrams to groups.

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Sum, checksum};
use kiban_board::{HostError, MEMBERSHIPS_MAX, SocketId};
use kiban_tcpip::udp::Refusal;
use kiban_tcpip::wire::igmp::{ALL_HOSTS, Message, record, verify};
use kiban_tcpip::wire::{ipv4, udp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const ALERT: [u8; 4] = [148, 4, 0, 0];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const EVERY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// The types of the messages of version 2.
const REPORT: u8 = 0x16;
const LEAVE: u8 = 0x17;
/// A report: its destination, and what it says of each group.
type Report = (Ipv4Addr, Vec<(u8, Ipv4Addr)>);

fn mac_of(group: Ipv4Addr) -> Mac {
    let [_, b, c, d] = group.octets();
    Mac([1, 0, 0x5e, b & 0x7f, c, d])
}

/// Returns the reports among frames. Each has TTL 1, a router alert, the board's address and a correct
/// checksum.
fn reports(frames: &[Vec<u8>]) -> Vec<Report> {
    let read = |frame: &Vec<u8>| {
        let (ethernet, at) = Header::read(frame).unwrap();
        let (header, length) = ipv4::Header::read(frame.get(at..)?).ok()?;
        if header.protocol != protocol::IGMP {
            return None;
        }
        assert_eq!(
            (header.time_to_live, header.options, ethernet.target),
            (1, &ALERT[..], mac_of(header.target))
        );
        assert_eq!(IpAddr::V4(header.source), ip4(0));
        ipv4::verify(&frame[at..at + length]).unwrap();
        let bytes = &frame[at + length..at + usize::from(header.total_bytes)];
        verify(bytes).unwrap();
        let groups = match Message::read(bytes).unwrap().0 {
            Message::Report(records) => records.map(|record| (record.kind, record.group)).collect(),
            Message::ReportV2 { group } => vec![(REPORT, group)],
            Message::Leave { group } => vec![(LEAVE, group)],
            other => panic!("a board does not send {other:?}"),
        };
        Some((header.target, groups))
    };
    frames.iter().filter_map(read).collect()
}

/// Returns a frame with an IPv4 packet.
fn frame(
    source: Ipv4Addr,
    target: Ipv4Addr,
    (protocol, ttl): (u8, u8),
    options: &[u8],
    bytes: &[u8],
) -> Vec<u8> {
    let header = ipv4::Header {
        traffic_class: 0,
        total_bytes: (ipv4::HEADER_BYTES + options.len() + bytes.len()) as u16,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: ttl,
        protocol,
        source,
        target,
        options,
    };
    let mut frame = vec![0; HEADER_BYTES + header.length()];
    let ethernet = Header { target: mac_of(target), source: STRANGER, ether_type: ether_type::IPV4 };
    ethernet.write(&mut frame);
    header.write(&mut frame[HEADER_BYTES..]);
    frame.extend_from_slice(bytes);
    frame
}

fn message(message: Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.length()];
    message.write(&mut bytes);
    bytes
}

/// Sends a message. A querier that has no address sends it from 0.0.0.0, as snooping bridges do.
fn tell(hub: &mut Hub, target: Ipv4Addr, its: Message<'_>) {
    hub.inject(0, &frame(EVERY, target, (protocol::IGMP, 1), &ALERT, &message(its)));
    hub.run();
}

fn query(group: Ipv4Addr, max_response_code: u8) -> Message<'static> {
    let (suppress, robustness, interval_code) = (false, 2, 125);
    Message::Query { max_response_code, group, suppress, robustness, interval_code, sources: &[] }
}

fn any() -> IpAddr {
    EVERY.into()
}

/// Returns a hub with one board, whose socket at port 5000 has joined the group and has reported it.
fn settled() -> (Hub, SocketId) {
    let mut hub = Hub::of(&[config(link(0))]);
    let socket = hub.boards[0].host().bind((any(), 5000).into()).unwrap();
    hub.boards[0].host().join(socket, GROUP.into(), any()).unwrap();
    hub.pass(second(15));
    (hub, socket)
}

#[test]
fn a_join_and_a_leave_are_reported_twice() {
    let (mut hub, socket) = settled();
    assert_eq!(reports(&hub.seen), vec![(V3_ROUTERS, vec![(record::TO_EXCLUDE, GROUP)]); 2]);
    assert_eq!(hub.count(0, "ethernet", "igmp_reports_out"), 2);
    hub.seen.clear();
    // A second member changes nothing, and neither does its end.
    let second_one = hub.boards[0].host().bind((any(), 5001).into()).unwrap();
    hub.boards[0].host().join(second_one, GROUP.into(), any()).unwrap();
    hub.pass(second(15));
    hub.boards[0].host().unbind(second_one).unwrap();
    hub.pass(second(15));
    assert_eq!(reports(&hub.seen), []);
    hub.boards[0].host().leave(socket, GROUP.into(), any()).unwrap();
    hub.pass(second(15));
    assert_eq!(reports(&hub.seen), vec![(V3_ROUTERS, vec![(record::TO_INCLUDE, GROUP)]); 2]);
}

#[test]
fn queries_are_answered_after_a_random_delay_and_once() {
    let (mut hub, _) = settled();
    hub.seen.clear();
    for queried in [EVERY, GROUP] {
        let target = if queried == EVERY { ALL_HOSTS } else { queried };
        for _ in 0..2 {
            tell(&mut hub, target, query(queried, 10));
        }
        hub.pass(second(1));
        assert_eq!(reports(&hub.seen), [(V3_ROUTERS, vec![(record::IS_EXCLUDE, GROUP)])], "{queried}");
        hub.seen.clear();
        hub.pass(second(10));
    }
    assert_eq!(hub.count(0, "ethernet", "igmp_queries_in"), 4);
    // A query for a group without a member here.
    tell(&mut hub, ALL_HOSTS, query(Ipv4Addr::new(239, 9, 9, 9), 1));
    hub.pass(second(10));
    assert_eq!(reports(&hub.seen), []);
    assert_eq!(hub.count(0, "ethernet", "igmp_ignored"), 1);
}

#[test]
fn messages_from_beyond_the_link_and_malformed_ones_are_ignored() {
    let (mut hub, _) = settled();
    hub.seen.clear();
    let good = message(query(EVERY, 1));
    let mut wrong_sum = good.clone();
    wrong_sum[2] ^= 1;
    for (ttl, bytes) in
        [(2, &good[..]), (1, &wrong_sum), (1, &good[..7]), (1, &message(query(EVERY, 1))[..10])]
    {
        hub.inject(0, &frame(EVERY, ALL_HOSTS, (protocol::IGMP, ttl), &ALERT, bytes));
        hub.pass(second(5));
    }
    assert_eq!(reports(&hub.seen), []);
    assert_eq!(hub.count(0, "ethernet", "igmp_malformed"), 4);
}

#[test]
fn an_old_querier_is_answered_in_version_2_until_it_has_been_silent() {
    let (mut hub, socket) = settled();
    hub.seen.clear();
    let old = |group| Message::OldQuery { max_response_code: 10, group };
    tell(&mut hub, ALL_HOSTS, old(EVERY));
    hub.pass(second(20));
    assert_eq!(reports(&hub.seen), [(GROUP, vec![(REPORT, GROUP)])]);
    hub.seen.clear();
    // RFC 2236 §3: a report of another member is enough.
    tell(&mut hub, GROUP, old(GROUP));
    tell(&mut hub, GROUP, Message::ReportV2 { group: GROUP });
    hub.pass(second(20));
    assert_eq!(reports(&hub.seen), []);
    hub.boards[0].host().leave(socket, GROUP.into(), any()).unwrap();
    hub.pass(second(20));
    assert_eq!(reports(&hub.seen), [(ROUTERS, vec![(LEAVE, GROUP)])]);
    hub.boards[0].host().join(socket, GROUP.into(), any()).unwrap();
    hub.pass(second(20));
    hub.seen.clear();
    // RFC 3376 §8.12: 2 × 125 s + 1 s after the last old query.
    hub.pass(second(251));
    tell(&mut hub, ALL_HOSTS, query(EVERY, 10));
    hub.pass(second(2));
    assert_eq!(reports(&hub.seen), [(V3_ROUTERS, vec![(record::IS_EXCLUDE, GROUP)])]);
}

#[test]
fn datagrams_to_a_group_are_received_by_its_members_only() {
    let mut hub = Hub::of(&[config(link(0))]);
    let socket = hub.boards[0].host().bind((any(), 5000).into()).unwrap();
    let IpAddr::V4(peer) = ip4(1) else { panic!("it is IPv4") };
    let send = |hub: &mut Hub, port: u16| {
        let mut bytes = vec![0; udp::HEADER_BYTES];
        bytes.extend_from_slice(b"news");
        udp::Header { source_port: 7, target_port: port, total_bytes: 12 }.write(&mut bytes);
        let pseudo = checksum::pseudo(peer.into(), GROUP.into(), protocol::UDP, bytes.len());
        let rest = pseudo.plus(Sum::of(&bytes[udp::HEADER_BYTES..]));
        udp::fill(&mut bytes[..udp::HEADER_BYTES], rest);
        hub.inject(0, &frame(peer, GROUP, (protocol::UDP, 1), &[], &bytes));
        hub.pass(Duration::from_millis(1));
    };
    let receive = |hub: &mut Hub| hub.boards[0].host().receive_datagram(socket, &mut [0; 9]).unwrap();
    send(&mut hub, 5000);
    assert_eq!(receive(&mut hub), None, "before it has joined");
    hub.boards[0].host().join(socket, GROUP.into(), ip4(0)).unwrap();
    hub.pass(second(1));
    send(&mut hub, 5000);
    let (info, length) = receive(&mut hub).expect("a datagram");
    assert_eq!((info.local, info.remote, length), (GROUP.into(), SocketAddr::new(peer.into(), 7), 4));
    // No ICMP error answers a datagram to a group (RFC 1122 §3.2.2).
    hub.seen.clear();
    send(&mut hub, 5001);
    assert_eq!((hub.seen.len(), hub.count(0, "udp", "no_socket")), (0, 1));
    hub.boards[0].host().leave(socket, GROUP.into(), ip4(0)).unwrap();
    hub.pass(second(1));
    send(&mut hub, 5000);
    assert_eq!(receive(&mut hub), None, "after it has left");
}

#[test]
fn memberships_are_limited_and_wrong_ones_refused() {
    let (mut hub, socket) = settled();
    let mut host = hub.boards[0].host();
    let group = |number: usize| IpAddr::from([239, 0, 0, number as u8]);
    for number in 1..MEMBERSHIPS_MAX {
        host.join(socket, group(number), any()).unwrap();
    }
    let six_group = six("ff02::77").into();
    for (group, interface, why) in [
        (group(99), any(), HostError::Udp(Refusal::TooMany)),
        (GROUP.into(), any(), HostError::Udp(Refusal::AddressInUse)),
        (ip4(1), any(), HostError::Udp(Refusal::BadAddress)),
        (six_group, any(), HostError::Udp(Refusal::BadAddress)),
        (group(99), ip4(1), HostError::NoRoute),
    ] {
        assert_eq!(host.join(socket, group, interface), Err(why), "{group} {interface}");
    }
    assert_eq!(host.leave(socket, group(99), any()), Err(HostError::Udp(Refusal::BadAddress)));
    // The board no longer has the address, or the route has changed.
    host.leave(socket, group(1), ip4(1)).unwrap();
    host.leave(socket, group(2), ip4(0)).unwrap();
    host.join(socket, group(2), any()).unwrap();
    host.join(socket, six_group, six("::").into()).unwrap();
    hub.pass(second(15));
    hub.check_home();
}

#[test]
fn ipv6_groups_of_interface_scope_are_not_reported() {
    let (mut hub, socket) = settled();
    for (group, is_reported) in [("ff00::77", false), ("ff01::77", false), ("ff02::77", true)] {
        let before = hub.count(0, "ethernet", "mld_reports_out");
        hub.boards[0].host().join(socket, six(group).into(), six("::").into()).unwrap();
        hub.pass(second(15));
        assert_eq!(hub.count(0, "ethernet", "mld_reports_out") > before, is_reported, "{group}");
        hub.boards[0].host().leave(socket, six(group).into(), six("::").into()).unwrap();
        hub.pass(second(15));
    }
    hub.check_home();
}
