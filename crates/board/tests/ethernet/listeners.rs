//! Reports of IPv6 groups (MLD).

use crate::common::hub::*;
use crate::helpers::*;
use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::{ether_type, protocol};
use kiban_tcpip::ethernet::{AutoconfConfig, LinkConfig};
use kiban_tcpip::wire::discovery::{ALL_NODES, solicited_node};
use kiban_tcpip::wire::mld::{Message, record};
use kiban_tcpip::wire::{icmpv6, ipv6};
use std::net::Ipv6Addr;
use std::time::Duration;

const HOP_BY_HOP_BYTES: usize = 8;
const QUERIER: Ipv6Addr = ROUTER;
/// A report: its source, destination, and what it says of each group. A report of version 1 has type 131, a
/// done message type 132.
type Report = (Ipv6Addr, Ipv6Addr, Vec<(u8, Ipv6Addr)>);

/// Returns the reports among frames. Each has hop limit 1, a router alert and a correct checksum.
fn reports(frames: &[Vec<u8>]) -> Vec<Report> {
    let read = |frame: &Vec<u8>| {
        let (ethernet, at) = Header::read(frame).unwrap();
        let (header, length) = ipv6::Header::read(frame.get(at..)?).ok()?;
        if header.next_header != protocol::HOP_BY_HOP {
            return None;
        }
        let at = at + length;
        assert_eq!(frame[at..at + HOP_BY_HOP_BYTES], [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
        let bytes = &frame[at + HOP_BY_HOP_BYTES..];
        assert_eq!(header.hop_limit, 1);
        let octets = header.target.octets();
        assert_eq!(ethernet.target.0, [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]);
        let sum = checksum::pseudo_ipv6(header.source, header.target, protocol::ICMPV6, bytes.len());
        icmpv6::verify(&bytes[..8], sum.plus(Sum::of(&bytes[8..]))).unwrap();
        let groups = match Message::read(bytes).unwrap().0 {
            Message::Report(records) => records.map(|record| (record.kind, record.group)).collect(),
            Message::ReportV1 { group } => vec![(131, group)],
            Message::Done { group } => vec![(132, group)],
            query => panic!("a board does not send {query:?}"),
        };
        Some((header.source, header.target, groups))
    };
    frames.iter().filter_map(read).collect()
}

/// Returns a frame with a message, from `source` and with this hop limit and router alert option.
fn mld(source: Ipv6Addr, target: Ipv6Addr, hop_limit: u8, alert: u8, message: Message<'_>) -> Vec<u8> {
    let length = message.length();
    let at = HEADER_BYTES + ipv6::HEADER_BYTES + HOP_BY_HOP_BYTES;
    let mut bytes = vec![0; at + length];
    let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
    Header { target: group, source: STRANGER, ether_type: ether_type::IPV6 }.write(&mut bytes);
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: (HOP_BY_HOP_BYTES + length) as u16,
        next_header: protocol::HOP_BY_HOP,
        hop_limit,
        source,
        target,
    }
    .write(&mut bytes[HEADER_BYTES..]);
    bytes[at - HOP_BY_HOP_BYTES..at].copy_from_slice(&[protocol::ICMPV6, 0, alert, 2, 0, 0, 1, 0]);
    message.write(&mut bytes[at..]);
    let sum = checksum::pseudo_ipv6(source, target, protocol::ICMPV6, length);
    let rest = sum.plus(Sum::of(&bytes[at + 8..]));
    icmpv6::fill(&mut bytes[at..], rest);
    bytes
}

fn query(group: Ipv6Addr, max_response_code: u16) -> Message<'static> {
    Message::Query {
        max_response_code,
        group,
        suppress: false,
        robustness: 2,
        interval_code: 125,
        sources: &[],
    }
}

fn ask(hub: &mut Hub, message: Message<'_>) {
    hub.inject(0, &mld(QUERIER, ALL_NODES, 1, 5, message));
    hub.run();
}

const ALL_V2_ROUTERS: &str = "ff02::16";
const EVERY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// Returns a hub with one board that has reported its group.
fn settled() -> (Hub, Ipv6Addr) {
    let mut hub = Hub::of(&[config(link(0))]);
    hub.pass(second(15));
    hub.seen.clear();
    (hub, solicited_node(local6(0)))
}

#[test]
fn a_group_is_reported_before_its_first_probe_and_again_from_the_link_local_address() {
    let mut hub = Hub::of(&[config(link(0))]);
    hub.pass(second(15));
    let group = solicited_node(local6(0));
    let frames = std::mem::take(&mut hub.seen);
    let got = reports(&frames);
    // RFC 3810 §6.1: `robustness` reports of each change; RFC 3590 §4: again from the link-local address.
    let report = |source| (source, six(ALL_V2_ROUTERS), vec![(record::TO_EXCLUDE, group)]);
    let from = |source: Ipv6Addr| got.iter().filter(|its| **its == report(source)).count();
    assert!((1..=2).contains(&from(EVERY)), "{got:?}");
    assert_eq!(from(local6(0)), 2, "{got:?}");
    assert_eq!(got.len() as u64, hub.count(0, "ethernet", "mld_reports_out"));
    assert_eq!(got.len(), from(EVERY) + 2);
    let at =
        |wanted: &dyn Fn(&[Vec<u8>]) -> bool| frames.iter().position(|its| wanted(std::slice::from_ref(its)));
    let probe = at(&|one| !discoveries(one).is_empty());
    assert!(at(&|one| !reports(one).is_empty()) < probe, "the report opens the path for the probe's answers");
}

#[test]
fn queries_are_answered_after_a_random_delay_and_once() {
    let (mut hub, group) = settled();
    let state = (local6(0), six(ALL_V2_ROUTERS), vec![(record::IS_EXCLUDE, group)]);
    for queried in [EVERY, group] {
        // Two queries within the delay of the first are answered by one report.
        for _ in 0..2 {
            ask(&mut hub, query(queried, 1000));
        }
        hub.pass(second(1));
        assert_eq!(reports(&hub.seen), std::slice::from_ref(&state), "{queried}");
        hub.seen.clear();
        hub.pass(second(10));
    }
    assert_eq!(hub.count(0, "ethernet", "mld_queries_in"), 4);
    // A query for a group without a listener here.
    ask(&mut hub, query(six("ff02::1:ff99:9999"), 100));
    hub.pass(second(10));
    assert_eq!(reports(&hub.seen), []);
}

#[test]
fn a_flood_of_queries_without_delay_causes_one_report_per_second() {
    let (mut hub, group) = settled();
    for _ in 0..100 {
        for queried in [EVERY, group, EVERY] {
            ask(&mut hub, query(queried, 0));
        }
        hub.pass(Duration::from_millis(100));
    }
    let got = reports(&hub.seen).len();
    assert!((9..=11).contains(&got), "{got} reports in ten seconds");
    assert!(hub.count(0, "ethernet", "mld_rate_limited") >= 280);
    hub.pass(second(10));
    hub.check_home();
}

#[test]
fn a_query_that_may_come_from_beyond_the_link_is_ignored() {
    let (mut hub, _) = settled();
    let alien = six("2001:db8::1");
    for (source, hop_limit, alert) in [(alien, 1, 5), (EVERY, 1, 5), (QUERIER, 2, 5), (QUERIER, 1, 1)] {
        hub.inject(0, &mld(source, ALL_NODES, hop_limit, alert, query(EVERY, 0)));
        hub.pass(second(5));
    }
    assert_eq!(reports(&hub.seen), []);
    assert_eq!(hub.count(0, "ethernet", "mld_malformed"), 4);
}

#[test]
fn an_old_querier_is_answered_in_version_1_until_it_has_been_silent() {
    let (mut hub, group) = settled();
    let old = |group| Message::QueryV1 { max_response_ms: 1000, group };
    // A pending response of version 2 is cancelled by the change (RFC 3810 §8.2.1).
    ask(&mut hub, query(EVERY, 10_000));
    ask(&mut hub, old(EVERY));
    hub.pass(second(20));
    let report = (local6(0), group, vec![(131, group)]);
    assert_eq!(reports(&hub.seen), std::slice::from_ref(&report));
    hub.seen.clear();
    // In version 1, a report of another listener is enough (RFC 2710 §4).
    ask(&mut hub, old(group));
    hub.inject(0, &mld(QUERIER, group, 1, 5, Message::ReportV1 { group }));
    hub.pass(second(20));
    assert_eq!(reports(&hub.seen), []);
    // A query of version 2 does not end version 1.
    ask(&mut hub, query(group, 1000));
    hub.pass(second(20));
    assert_eq!(reports(&hub.seen), [report]);
    hub.seen.clear();
    // RFC 3810 §9.12: 2 × 125 s + 1 s after the last query of version 1.
    hub.pass(second(251 - 39));
    ask(&mut hub, query(group, 1000));
    hub.pass(second(2));
    assert_eq!(reports(&hub.seen), [(local6(0), six(ALL_V2_ROUTERS), vec![(record::IS_EXCLUDE, group)])]);
}

#[test]
fn a_group_shared_by_two_addresses_is_left_with_the_second_one() {
    // With identifiers derived from the MAC, both addresses have the same solicited-node group.
    let mut hub = Hub::of(&[config(link(0))]);
    hub.router = Some(Router { lifetime_seconds: 1800, options: vec![prefix("2001:db8:5::", 60, 60)] });
    hub.pass(second(10));
    hub.router = None;
    hub.seen.clear();
    hub.pass(second(100));
    assert_eq!(hub.boards[0].addresses().count(), 2, "the address from the prefix has expired");
    assert_eq!(reports(&hub.seen), []);
    let group = solicited_node(local6(0));
    let wanted = kiban_tcpip::wire::discovery::Message::NeighbourSolicitation { target: local6(0) };
    let mac = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
    hub.inject(0, &discovery(mac, (ROUTER, group), 255, wanted, &[]));
    hub.run();
    assert_eq!(hub.count(0, "ip", "not_ours"), 0, "the link-local address is still resolved");
}

#[test]
fn an_address_that_turns_out_to_be_a_duplicate_is_left() {
    let address = six("2001:db8:5::77");
    let autoconf = AutoconfConfig { accept_routers: false, ..AutoconfConfig::default() };
    let addresses = vec![(address.into(), "2001:db8:5::/64".parse().unwrap())];
    let link = LinkConfig { addresses, autoconf, ..LinkConfig::new(mac(1)) };
    let mut hub = Hub::of(&[config(link)]);
    hub.run();
    let group = solicited_node(address);
    let probe = kiban_tcpip::wire::discovery::Message::NeighbourSolicitation { target: address };
    let mac = Mac([0x33, 0x33, 0xff, 0, 0, 0x77]);
    hub.inject(0, &discovery(mac, (EVERY, group), 255, probe, &[]));
    hub.pass(second(15));
    let got = reports(&hub.seen);
    let left =
        got.iter().flat_map(|(_, _, groups)| groups).filter(|its| **its == (record::TO_INCLUDE, group));
    assert_eq!(left.count(), 2, "{got:?}");
}
