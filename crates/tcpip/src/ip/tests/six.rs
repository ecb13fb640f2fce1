//! IPv6: extension headers, fragments, groups and sources.

use super::*;
use crate::wire::ipv6_extension::Fragment;
use alloc::vec;
use kiban_base::numbers::protocol::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING, UDP};

fn six(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

const OURS: &str = "2001:db8::1";
const PEER: &str = "2001:db8::2";

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.memory = Memory {
        transmit: PagePool::new(32, 4096),
        receive: PagePool::new(64, 4096),
        pdus: PduPool::new(64),
    };
    for (address, prefix) in [(OURS, "2001:db8::/64"), ("fe80::1", "fe80::/64")] {
        bench.ip.add_address(3, address.parse().unwrap());
        bench.ip.add_route(Route {
            prefix: prefix.parse().unwrap(),
            port: 3,
            gateway: None,
            source: Ipv6Addr::UNSPECIFIED.into(),
            mtu_bytes: 1500,
        });
    }
    bench
}

/// Returns a packet from the peer, with the bytes `rest` after its header.
fn packet6(next_header: u8, rest: &[u8], change: impl FnOnce(&mut ipv6::Header)) -> Vec<u8> {
    let mut header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: rest.len() as u16,
        next_header,
        hop_limit: 64,
        source: six(PEER),
        target: six(OURS),
    };
    change(&mut header);
    let mut bytes = vec![0; 40];
    header.write(&mut bytes);
    bytes.extend_from_slice(rest);
    bytes
}

fn fragment6(id: u32, from: usize, more: bool, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; 8];
    let header =
        Fragment { next_header, offset_bytes: from as u16, more_fragments: more, identification: id };
    header.write(&mut rest);
    rest.extend_from_slice(payload);
    packet6(FRAGMENT, &rest, |_| {})
}

fn bytes_of(pdu: &Pdu) -> Vec<u8> {
    pdu.runs().flatten().copied().collect()
}

fn counted(bench: &Bench) -> Vec<(&'static str, u64)> {
    let mut counted = Vec::new();
    bench.ip.counters().each(&mut |counter, value| {
        if value > 0 && counter != "packets_in" && counter != "icmp_errors_requested" {
            counted.push((counter, value));
        }
    });
    counted
}

#[test]
fn extension_header_chains_are_accepted_rejected_or_reported() {
    let pad = |next: u8| vec![next, 0, 1, 4, 0, 0, 0, 0];
    let option = |next: u8, kind: u8| vec![next, 0, kind, 4, 0, 0, 0, 0];
    let routing = |next: u8, kind: u8, left: u8| vec![next, 0, kind, left, 0, 0, 0, 0];
    let join = |parts: &[Vec<u8>]| [parts.concat(), b"datagram".to_vec()].concat();
    let problem = |code, pointer| Some(IcmpErrorKind::ParameterProblem { code, pointer });
    type Row = (u8, Vec<u8>, bool, Option<&'static str>, Option<IcmpErrorKind>);
    let rows: Vec<Row> = vec![
        (UDP, join(&[]), true, None, None),
        (HOP_BY_HOP, join(&[pad(DESTINATION_OPTIONS), pad(UDP)]), true, None, None),
        (HOP_BY_HOP, join(&[vec![UDP, 0, 5, 2, 0, 0, 1, 0]]), true, None, None),
        (DESTINATION_OPTIONS, join(&[option(UDP, 0x3e)]), true, None, None),
        (DESTINATION_OPTIONS, join(&[option(UDP, 0x7e)]), false, Some("options_unknown"), None),
        (DESTINATION_OPTIONS, join(&[option(UDP, 0xbe)]), false, Some("options_unknown"), problem(2, 42)),
        (DESTINATION_OPTIONS, join(&[option(UDP, 0xfe)]), false, Some("options_unknown"), problem(2, 42)),
        (
            DESTINATION_OPTIONS,
            join(&[vec![UDP, 0, 1, 5, 0, 0, 0, 0]]),
            false,
            Some("options_unknown"),
            problem(0, 42),
        ),
        (
            DESTINATION_OPTIONS,
            join(&[pad(HOP_BY_HOP), pad(UDP)]),
            false,
            Some("extension_headers_invalid"),
            problem(1, 40),
        ),
        (ROUTING, join(&[routing(UDP, 0, 0)]), true, None, None),
        (ROUTING, join(&[routing(UDP, 0, 1)]), false, Some("source_routed"), problem(0, 42)),
        (ROUTING, join(&[routing(UDP, 4, 200)]), false, Some("source_routed"), problem(0, 42)),
        (99, join(&[]), false, Some("unknown_protocol"), problem(1, 6)),
        (DESTINATION_OPTIONS, join(&[pad(99)]), false, Some("unknown_protocol"), problem(1, 40)),
        (59, join(&[]), false, Some("no_upper_layer_header"), None),
        (HOP_BY_HOP, vec![UDP, 9, 0, 0], false, Some("malformed"), None),
        (HOP_BY_HOP, vec![UDP], false, Some("malformed"), None),
        (FRAGMENT, vec![UDP, 0, 0], false, Some("malformed"), None),
        (
            DESTINATION_OPTIONS,
            join(&vec![pad(DESTINATION_OPTIONS); 12]),
            false,
            Some("extension_headers_invalid"),
            None,
        ),
        (
            HOP_BY_HOP,
            [vec![UDP, 31], [1, 252].to_vec(), vec![0; 300]].concat(),
            false,
            Some("extension_headers_invalid"),
            None,
        ),
        // An atomic fragment is complete by itself (RFC 6946).
        (FRAGMENT, join(&[vec![UDP, 0, 0, 0, 1, 2, 3, 4]]), true, Some("fragments_atomic"), None),
    ];
    for (next_header, rest, up, counter, told) in rows {
        let mut bench = bench();
        let got = bench.arrive(&packet6(next_header, &rest, |_| {}));
        assert_eq!(got.is_some(), up, "{next_header} {rest:?}");
        if let Some(got) = got {
            assert_eq!((got.protocol, bytes_of(&got.pdu)), (UDP, b"datagram".to_vec()));
        }
        let expected: Vec<_> = counter.map(|counter| (counter, 1)).into_iter().collect();
        assert_eq!(counted(&bench), expected, "{next_header} {rest:?}");
        let complaint = bench.ip.poll_error_request();
        assert_eq!(complaint.as_ref().map(|complaint| complaint.kind), told, "{next_header} {rest:?}");
        if let Some(complaint) = complaint {
            assert_eq!(bytes_of(&complaint.pdu), packet6(next_header, &rest, |_| {}), "as it came");
        }
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn packets_with_impossible_addresses_are_dropped() {
    let rows: Vec<(&str, &str, u8, Option<&str>)> = vec![
        (PEER, OURS, UDP, None),
        (PEER, "fe80::1", UDP, None),
        (PEER, "2001:db8::9", UDP, Some("not_ours")),
        (PEER, "ff02::1", UDP, None),
        (PEER, "ff02::1", 6, Some("not_ours")),
        (PEER, "ff02::1:ff00:1", 58, Some("not_ours")),
        ("ff02::1", OURS, UDP, Some("bad_source")),
        ("::1", OURS, UDP, Some("bad_source")),
        (OURS, OURS, UDP, Some("bad_source")),
        ("::ffff:10.0.0.2", OURS, UDP, Some("bad_source")),
        ("::", OURS, UDP, Some("bad_source")),
        ("::", OURS, 58, None),
    ];
    for (source, target, protocol, counter) in rows {
        let mut bench = bench();
        let bytes = packet6(protocol, b"message-", |header| {
            (header.source, header.target) = (six(source), six(target));
        });
        assert_eq!(bench.arrive(&bytes).is_some(), counter.is_none(), "{source} {target}");
        let expected: Vec<_> = counter.map(|counter| (counter, 1)).into_iter().collect();
        assert_eq!(counted(&bench), expected, "{source} {target}");
    }
    let mut bench = bench();
    // RFC 1112 §7.2: a group is joined on one port, and these packets arrive at port 0.
    for (port, is_taken) in [(3, false), (0, true)] {
        bench.ip.listen_to_group(port, six("ff02::1:ff00:1").into(), true);
        let bytes = packet6(58, b"message-", |header| header.target = six("ff02::1:ff00:1"));
        assert_eq!(bench.arrive(&bytes).is_some(), is_taken, "joined on port {port}");
    }
}

#[test]
fn an_option_that_requires_a_report_gets_one_even_for_multicast() {
    for (kind, told) in [(0xbe, true), (0xfe, false)] {
        let mut bench = bench();
        let rest = [vec![UDP, 0, kind, 4, 0, 0, 0, 0], b"datagram".to_vec()].concat();
        let bytes = packet6(DESTINATION_OPTIONS, &rest, |header| header.target = six("ff02::1"));
        assert!(bench.arrive(&bytes).is_none());
        assert_eq!(
            bench.ip.poll_error_request().map(|complaint| complaint.local),
            told.then(|| OURS.parse().unwrap())
        );
    }
}

#[test]
fn datagrams_are_fragmented_at_the_source_and_reassembled() {
    for length in [1452, 1453, 3000, 60_000] {
        let mut bench = bench();
        let mut chance = SimRng::from_seed(1);
        let bytes: Vec<u8> = (0..length).map(|_| chance.draw() as u8).collect();
        let mut pdu = bench.memory.pdus.take().unwrap();
        for part in bytes.chunks(4096) {
            pdu.push_body(bench.memory.transmit.take().unwrap().append(part).unwrap()).unwrap();
        }
        pdu.push_head(8).copy_from_slice(b"transprt");
        let packet = Packet {
            source: OURS.parse().unwrap(),
            target: PEER.parse().unwrap(),
            protocol: UDP,
            traffic_class: 0,
            dont_fragment: false,
            hop_limit: 0,
            pdu,
        };
        let hops = bench.send(packet);
        assert_eq!(hops.len(), if length == 1452 { 1 } else { (length + 8usize).div_ceil(1448) });
        let mut got = None;
        for hop in hops.into_iter().rev() {
            let mut bytes = bytes_of(&hop.pdu);
            drop(hop);
            assert!(bytes.len() <= 1500);
            let (source, target) = bytes[8..40].split_at_mut(16);
            source.swap_with_slice(target);
            got = bench.arrive(&bytes);
        }
        let read = bytes_of(&got.expect("whole").pdu);
        assert!(read[..8] == *b"transprt" && read[8..] == bytes);
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn invalid_fragments_are_counted_and_reported_as_the_standard_requires() {
    let problem = |pointer| Some(IcmpErrorKind::ParameterProblem { code: 0, pointer });
    for (bytes, counter, told) in [
        (fragment6(1, 0, true, UDP, &[0; 9]), "fragments_malformed", problem(4)),
        (fragment6(1, 65_528, false, UDP, &[0; 8]), "fragments_beyond_max", problem(42)),
        (fragment6(1, 8, false, UDP, &[]), "fragments_malformed", None),
        (fragment6(1, 0, true, 6, &[0; 16]), "fragments_tiny", None),
    ] {
        let mut bench = bench();
        assert!(bench.arrive(&bytes).is_none());
        assert_eq!(counted(&bench), [("fragments_in", 1), (counter, 1)]);
        assert_eq!(bench.ip.poll_error_request().map(|complaint| complaint.kind), told);
        assert!(bench.memory.is_all_free());
    }
    // An overlap discards the datagram (RFC 5722). A fragment header within a reassembled packet is rejected.
    // Incomplete reassembly times out.
    let mut bench = bench();
    for (from, more) in [(0, true), (8, true), (24, false)] {
        assert!(bench.arrive(&fragment6(1, from, more, UDP, &[0; 16])).is_none());
    }
    let nested = [vec![UDP, 0, 0, 1, 0, 0, 0, 9], b"datagram".to_vec()].concat();
    assert!(bench.arrive(&fragment6(2, 0, true, FRAGMENT, &nested[..8])).is_none());
    assert!(bench.arrive(&fragment6(2, 8, false, FRAGMENT, &nested[8..])).is_none());
    let first = fragment6(3, 0, true, UDP, &[7; 16]);
    assert!(bench.arrive(&first).is_none());
    bench.now += Duration::from_secs(60);
    bench.with(|ip, cx| ip.settle(cx));
    let complaint = bench.ip.poll_error_request().expect("the first fragment had come");
    assert_eq!((complaint.kind, bytes_of(&complaint.pdu)), (IcmpErrorKind::TimeExceeded { code: 1 }, first));
    let counters = *bench.ip.counters();
    assert_eq!((counters.fragments_overlapping, counters.fragments_late), (1, 1));
    assert_eq!((counters.extension_headers_invalid, counters.reassembly_timeouts), (1, 1));
    drop(complaint);
    assert!(bench.ip.incomplete() == 0 && bench.memory.is_all_free());
}

#[test]
fn headers_after_the_fragment_header_are_parsed_after_reassembly() {
    let mut bench = bench();
    let whole = [vec![UDP, 0, 1, 4, 0, 0, 0, 0], b"datagram".to_vec()].concat();
    assert!(bench.arrive(&fragment6(5, 8, false, 99, &whole[8..])).is_none());
    let got = bench.arrive(&fragment6(5, 0, true, DESTINATION_OPTIONS, &whole[..8])).expect("whole");
    assert_eq!((got.protocol, bytes_of(&got.pdu)), (UDP, b"datagram".to_vec()));
}

#[test]
fn the_source_address_has_the_scope_of_the_target_and_is_not_deprecated() {
    let mut bench = bench();
    bench.ip.add_address(3, "2001:db8::aaaa".parse().unwrap());
    let source =
        |ip: &Ip, target: &str| ip.source_for(target.parse().unwrap()).map(|source| source.to_string());
    use alloc::string::ToString;
    assert_eq!(source(&bench.ip, "fe80::7").as_deref(), Some("fe80::1"));
    assert_eq!(source(&bench.ip, "2001:db8::aaab").as_deref(), Some("2001:db8::aaaa"));
    bench.ip.deprecate(six("2001:db8::aaaa"), true);
    assert_eq!(source(&bench.ip, "2001:db8::aaab").as_deref(), Some(OURS));
    assert_eq!(source(&bench.ip, "2001:db9::1"), None);
}

#[test]
fn the_path_mtu_is_at_least_1280() {
    let mut bench = bench();
    let peer = PEER.parse().unwrap();
    for (packet, said, believed) in
        [(1500, 1279, None), (1500, 0, None), (1300, 1400, None), (1500, 1280, Some(1280))]
    {
        assert_eq!(bench.ip.on_too_long(peer, packet, said, bench.now), believed, "{said}");
    }
    assert_eq!(bench.ip.path_mtu(peer, bench.now), 1280);
}
