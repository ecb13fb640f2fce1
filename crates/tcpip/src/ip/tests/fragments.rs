//! IPv4 fragmentation and reassembly, including hostile fragments.

use super::*;
use alloc::vec;
use kiban_base::Pdu;
use proptest::prelude::*;

fn noise(length: usize) -> Vec<u8> {
    let mut chance = SimRng::from_seed(length as u64);
    (0..length).map(|_| chance.draw() as u8).collect()
}

fn roomy(reassembly: ReassemblyConfig) -> Bench {
    let mut bench = Bench::new();
    bench.memory = Memory {
        transmit: PagePool::new(64, 4096),
        receive: PagePool::new(256, 4096),
        pdus: PduPool::new(256),
    };
    bench.ip.reassembly = Reassembly::new(reassembly);
    bench
}

/// Returns a fragment of a datagram from the peer.
fn fragment(identification: u16, from: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    packet(payload, |header| {
        header.identification = identification;
        header.dont_fragment = false;
        header.more_fragments = more;
        header.fragment_offset_bytes = from as u16;
    })
}

fn bytes_of(pdu: &Pdu) -> Vec<u8> {
    pdu.runs().flatten().copied().collect()
}

impl Bench {
    fn count(&self, name: &str) -> u64 {
        let mut found = None;
        self.ip.counters().each(&mut |counter, value| {
            if counter == name {
                found = Some(value);
            }
        });
        found.expect("a counter of that name")
    }

    fn pass(&mut self, length: Duration) -> Vec<IcmpErrorRequest> {
        self.now += length;
        self.with(|ip, cx| ip.settle(cx));
        core::iter::from_fn(|| self.ip.poll_error_request()).collect()
    }

    /// Asserts that all memory has been returned.
    fn check_home(&mut self) {
        assert_eq!(self.ip.incomplete(), 0);
        assert_eq!(self.ip.deadline(), Instant::NEVER);
        assert!(self.memory.is_all_free());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn fragments_are_reassembled_in_any_order(
        length in 1usize..65_507, mtu in 576usize..9180, seed in any::<u64>(), twice in any::<bool>(),
    ) {
        let mut bench = roomy(ReassemblyConfig { bytes_max: 1 << 30, ..ReassemblyConfig::default() });
        bench.ip.routes.add(Route {
            prefix: "10.0.0.0/24".parse().unwrap(), port: 3, gateway: None, source: ours(), mtu_bytes: mtu,
        });
        let bytes = noise(length);
        let mut pdu = bench.memory.pdus.take().unwrap();
        for part in bytes.chunks(4096) {
            pdu.push_body(bench.memory.transmit.take().unwrap().append(part).unwrap()).unwrap();
        }
        pdu.push_head(8).copy_from_slice(b"transprt");
        let hops = bench.send(Packet {
            source: ours(), target: peer(), protocol: 17, traffic_class: 0, dont_fragment: false, hop_limit: 0, pdu,
        });
        let whole = 8 + length;
        let size = (mtu - 20) & !7;
        prop_assert_eq!(hops.len(), if whole + 20 <= mtu { 1 } else { whole.div_ceil(size) });
        // Send the fragments back as if they came from the peer, with swapped addresses and each fragment in
        // a separate page.
        let mut packets: Vec<Vec<u8>> = hops.into_iter().map(|hop| {
            let mut bytes = bytes_of(&hop.pdu);
            prop_assert!(bytes.len() <= mtu);
            prop_assert!(ipv4::verify(&bytes[..20]).is_ok());
            let (source, target) = bytes[12..20].split_at_mut(4);
            source.swap_with_slice(target);
            Ok(bytes)
        }).collect::<Result<_, _>>()?;
        let mut chance = SimRng::from_seed(seed);
        for at in (1..packets.len()).rev() {
            packets.swap(at, chance.below(at as u64 + 1) as usize);
        }
        let mut got = Vec::new();
        for packet in &packets {
            let mut pdu = bench.memory.pdus.take().unwrap();
            for part in packet.chunks(4096) {
                pdu.push_body(bench.memory.receive.take().unwrap().append(part).unwrap()).unwrap();
            }
            got.extend(bench.with(|ip, cx| ip.arrive(pdu, 0, cx)));
            // A duplicate after the last fragment starts a new datagram, which stays incomplete.
            if twice && packet.len() <= 4096 && packets.len() > 1 {
                got.extend(bench.arrive(packet));
            }
        }
        prop_assert_eq!(got.len(), 1, "{:?}", bench.ip.counters());
        for got in &got {
            let read = bytes_of(&got.pdu);
            prop_assert_eq!(&read[..8], b"transprt");
            prop_assert!(read[8..] == bytes);
            prop_assert_eq!(got.pdu.sum().word() % 0xffff, kiban_base::Sum::of(&read).word() % 0xffff);
        }
    }
}

#[test]
fn reassembly_references_slices_while_they_fit() {
    let mut bench = roomy(ReassemblyConfig::default());
    let bytes = noise(16 * 1480);
    let mut got = None;
    for (at, part) in bytes.chunks(1480).enumerate() {
        got = bench.arrive(&fragment(9, at * 1480, at < 15, part));
    }
    assert!(bytes_of(&got.as_ref().expect("whole").pdu) == bytes);
    assert_eq!(bench.copies.gather_bytes, 0, "nothing is copied");
    drop(got.take());
    let bytes = noise(44 * 1480);
    for (at, part) in bytes.chunks(1480).enumerate() {
        got = bench.arrive(&fragment(9, at * 1480, at < 43, part));
    }
    assert!(bytes_of(&got.expect("whole").pdu) == bytes);
    assert_eq!(bench.copies.gather_bytes, bytes.len() as u64, "more slices than a PDU has: once");
    bench.check_home();
}

#[test]
fn overlapping_or_contradictory_fragments_discard_the_whole_datagram() {
    type Row<'a> = (&'a [(usize, bool, usize)], &'a str, u64);
    // Each row: fragments as (offset, more, bytes), the expected counter, and the number of fragments that
    // arrived too late.
    let rows: &[Row<'_>] = &[
        (&[(0, true, 16), (8, true, 16), (24, false, 8)], "fragments_overlapping", 1),
        (&[(8, true, 16), (0, true, 16), (24, false, 8)], "fragments_overlapping", 1),
        (&[(0, true, 32), (8, true, 8), (32, false, 8)], "fragments_overlapping", 1),
        (&[(8, true, 8), (0, true, 32), (32, false, 8)], "fragments_overlapping", 1),
        // Two fragments with the same offset and different lengths.
        (&[(0, true, 16), (0, true, 8), (16, false, 8)], "fragments_overlapping", 1),
        // Two last fragments.
        (&[(16, false, 8), (24, false, 8), (0, true, 16)], "fragments_overlapping", 1),
        // A fragment extends beyond the end, and an end precedes bytes already received.
        (&[(8, false, 8), (16, true, 8), (0, true, 8)], "fragments_overlapping", 1),
        (&[(16, true, 8), (8, false, 8), (0, true, 8)], "fragments_overlapping", 1),
        // The same fragment twice, once marked as the last and once not.
        (&[(8, false, 8), (8, true, 8), (0, true, 8)], "fragments_overlapping", 1),
    ];
    for (pieces, counter, late) in rows {
        let mut bench = roomy(ReassemblyConfig::default());
        for (from, more, length) in *pieces {
            assert!(bench.arrive(&fragment(7, *from, *more, &noise(*length))).is_none(), "{pieces:?}");
        }
        assert_eq!((bench.count(counter), bench.count("fragments_late")), (1, *late), "{pieces:?}");
        assert!(bench.memory.is_all_free(), "what is given up holds no memory");
        assert!(bench.pass(Duration::from_secs(61)).is_empty(), "and nobody hears of it");
        bench.check_home();
    }
}

#[test]
fn a_duplicate_fragment_is_ignored() {
    let mut bench = roomy(ReassemblyConfig::default());
    let bytes = noise(24);
    assert!(bench.arrive(&fragment(7, 8, true, &bytes[8..16])).is_none());
    assert!(bench.arrive(&fragment(7, 8, true, &bytes[8..16])).is_none());
    assert!(bench.arrive(&fragment(7, 16, false, &bytes[16..])).is_none());
    assert!(bench.arrive(&fragment(7, 16, false, &bytes[16..])).is_none());
    let got = bench.arrive(&fragment(7, 0, true, &bytes[..8])).expect("whole");
    assert_eq!(bytes_of(&got.pdu), bytes);
    assert!(got.brief.in_fragments);
    assert_eq!(bench.count("fragments_duplicate"), 2);
    drop(got);
    bench.check_home();
}

#[test]
fn a_mark_on_any_fragment_marks_the_datagram() {
    // RFC 3168 §5.3. The traffic classes of three fragments; what the datagram gets, `None` if it is dropped.
    let dscp = 46 << 2;
    for (classes, whole) in [
        ([dscp, dscp, dscp], Some(dscp)),
        ([dscp | 2, dscp | 2, dscp | 2], Some(dscp | 2)),
        ([dscp | 2, dscp | 3, dscp | 2], Some(dscp | 3)),
        ([dscp | 1, dscp | 2, dscp | 3], Some(dscp | 3)),
        ([dscp | 3, dscp | 2, dscp | 2], Some(dscp | 3)),
        ([dscp | 2, dscp, dscp | 2], Some(dscp | 2)),
        ([dscp, dscp, dscp | 3], None),
        ([dscp | 3, dscp | 3, dscp], None),
    ] {
        let mut bench = roomy(ReassemblyConfig::default());
        let bytes = noise(24);
        let mut got = None;
        for (n, class) in classes.into_iter().enumerate() {
            let part = packet(&bytes[8 * n..][..8], |header| {
                (header.identification, header.dont_fragment, header.traffic_class) = (7, false, class);
                (header.more_fragments, header.fragment_offset_bytes) = (n < 2, 8 * n as u16);
            });
            got = bench.arrive(&part);
        }
        assert_eq!(got.as_ref().map(|got| got.brief.traffic_class), whole, "{classes:?}");
        assert_eq!(bench.count("fragments_ecn_mixed"), u64::from(whole.is_none()));
        drop(got);
        bench.check_home();
    }
}

#[test]
fn invalid_fragments_are_counted() {
    let tcp = |from, more, length| {
        packet(&noise(length), |header| {
            (header.protocol, header.dont_fragment) = (6, false);
            (header.fragment_offset_bytes, header.more_fragments) = (from, more);
        })
    };
    for (bytes, counter) in [
        (fragment(1, 0, true, &[]), "fragments_malformed"),
        (fragment(1, 8, false, &[]), "fragments_malformed"),
        (fragment(1, 0, true, &noise(9)), "fragments_malformed"),
        (fragment(1, 65_528, false, &noise(8)), "fragments_beyond_max"),
        (fragment(1, 65_504, false, &noise(16)), "fragments_beyond_max"),
        (tcp(0, true, 8), "fragments_tiny"),
        (tcp(8, true, 16), "fragments_tiny"),
        (tcp(8, false, 16), "fragments_tiny"),
    ] {
        let mut bench = roomy(ReassemblyConfig::default());
        assert!(bench.arrive(&bytes).is_none());
        assert_eq!(bench.count(counter), 1, "{counter}");
        bench.check_home();
    }
}

#[test]
fn endless_fragments_stay_within_every_bound() {
    let small = ReassemblyConfig {
        bytes_max: 40 * 5120,
        fragments_max: 48,
        datagrams_max: 10,
        fragments_of_one_max: 12,
        timeout: Duration::from_secs(30),
    };
    // One datagram whose last fragment never arrives.
    let mut bench = roomy(small);
    for at in 0..100 {
        assert!(bench.arrive(&fragment(1, at * 8, true, &noise(8))).is_none());
    }
    assert_eq!((bench.count("fragments_too_many"), bench.count("fragments_late")), (1, 87));
    assert!(bench.memory.is_all_free());
    // Many incomplete datagrams arrive. The oldest are evicted at the limit on datagrams, and at the limit on
    // bytes.
    for (parts, alive) in [(1, 10), (8, 5)] {
        let mut bench = roomy(small);
        for id in 0..200 {
            for at in 0..parts {
                assert!(bench.arrive(&fragment(id, at * 8, true, &noise(8))).is_none());
                let held = bench.memory.receive.capacity() - bench.memory.receive.available();
                assert!(held <= 40, "{held} pages");
            }
        }
        assert!(bench.count("reassembly_evicted") >= 200 - alive, "{parts}");
        assert!(bench.ip.incomplete() as u64 <= 10);
        // A valid datagram is still reassembled.
        assert!(bench.arrive(&fragment(999, 0, true, b"good----")).is_none());
        assert!(bench.arrive(&fragment(999, 8, false, b"and well")).is_some());
        bench.pass(Duration::from_secs(30));
        bench.check_home();
    }
    // A single fragment exceeds the limit on bytes.
    let mut bench = roomy(ReassemblyConfig { bytes_max: 100, ..small });
    assert!(bench.arrive(&fragment(1, 0, true, &noise(8))).is_none());
    assert_eq!(bench.count("reassembly_evicted"), 1);
    assert!(bench.memory.is_all_free());
}

#[test]
fn time_exceeded_is_sent_only_if_the_first_fragment_arrived() {
    for (from, heard) in [(0, true), (8, false)] {
        let mut bench = roomy(ReassemblyConfig::default());
        assert!(bench.arrive(&fragment(7, from, true, &noise(16))).is_none());
        assert_eq!(bench.ip.deadline(), bench.now + Duration::from_secs(60));
        assert!(bench.pass(Duration::from_secs(59)).is_empty());
        // Later fragments do not extend the timeout.
        assert!(bench.arrive(&fragment(7, 800, true, &noise(16))).is_none());
        let complaints = bench.pass(Duration::from_secs(1));
        assert_eq!(complaints.len(), usize::from(heard));
        for complaint in complaints {
            assert_eq!(complaint.kind, IcmpErrorKind::TimeExceeded { code: 1 });
            assert_eq!((complaint.local, complaint.remote), (ours(), peer()));
            assert_eq!(bytes_of(&complaint.pdu), fragment(7, 0, true, &noise(16)), "as it came");
        }
        assert_eq!(bench.count("reassembly_timeouts"), 1);
        bench.check_home();
    }
}

#[test]
fn without_memory_all_fragments_are_sent_or_none() {
    for refused in 1..=3 {
        let mut bench = roomy(ReassemblyConfig::default());
        let mut pdu = bench.pdu(&noise(4000));
        pdu.push_head(8).fill(1);
        bench.memory.pdus.fail_nth_take(refused);
        assert!(
            bench
                .send(Packet {
                    source: ours(),
                    target: peer(),
                    protocol: 17,
                    traffic_class: 0,
                    dont_fragment: false,
                    hop_limit: 0,
                    pdu
                })
                .is_empty()
        );
        assert_eq!((bench.count("no_memory"), bench.count("packets_out")), (1, 0));
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn ip_options_are_skipped_rejected_or_reported() {
    let with = |options: &'static [u8]| {
        packet(b"payload", |header| {
            header.options = options;
            header.total_bytes += options.len() as u16;
        })
    };
    for (options, up, counter, pointer) in [
        (&[148, 4, 0, 0][..], true, "packets_in", None),
        (&[7, 7, 4, 0, 0, 0, 0, 0], true, "packets_in", None),
        (&[1, 1, 1, 1], true, "packets_in", None),
        (&[131, 7, 4, 0, 0, 0, 0, 0], false, "source_routed", None),
        (&[137, 7, 4, 0, 0, 0, 0, 0], false, "source_routed", None),
        (&[7, 0, 0, 0], false, "options_malformed", Some(20)),
        (&[1, 1, 68, 40], false, "options_malformed", Some(22)),
        (&[1, 1, 1, 68], false, "options_malformed", Some(23)),
    ] {
        let mut bench = roomy(ReassemblyConfig::default());
        let got = bench.arrive(&with(options));
        assert_eq!(got.is_some(), up, "{options:?}");
        assert_eq!(bench.count(counter), 1, "{options:?}");
        let told = bench.ip.poll_error_request().map(|complaint| complaint.kind);
        let expected = pointer.map(|pointer| IcmpErrorKind::ParameterProblem { code: 0, pointer });
        assert_eq!(told, expected, "{options:?}");
    }
}

#[test]
fn only_datagrams_are_accepted_on_broadcast_and_multicast_addresses() {
    for (target, protocol, up) in [
        ("255.255.255.255", 17, true),
        ("10.0.0.255", 17, true),
        ("224.0.0.1", 17, true),
        ("224.0.0.9", 17, false),
        ("10.0.0.255", 6, false),
        ("255.255.255.255", 1, false),
        ("10.0.1.255", 17, false),
    ] {
        let mut bench = Bench::new();
        let bytes = packet(b"payload-", |header| {
            header.target = target.parse().unwrap();
            header.protocol = protocol;
        });
        let got = bench.arrive(&bytes);
        assert_eq!(got.is_some(), up, "{target} {protocol}");
        if let Some(got) = got {
            assert!(got.brief.to_group);
            bench.ip.request_error(IcmpErrorKind::Unreachable { code: 3 }, got);
        }
        assert!(bench.ip.poll_error_request().is_none(), "no error answers a group");
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn a_plausible_path_mtu_is_used_until_it_expires() {
    let mut bench = roomy(ReassemblyConfig::default());
    // Columns: packet bytes, reported MTU, returned MTU, resulting path MTU.
    for (packet, said, believed, afterwards) in [
        (1500, 1500, None, 1500),
        (1000, 1200, None, 1500),
        (1500, 1400, Some(1400), 1400),
        (1500, 1450, Some(1400), 1400),
        (1400, 0, Some(1006), 1006),
        (1006, 68, Some(552), 552),
        (500, 100, Some(552), 552),
    ] {
        assert_eq!(bench.ip.on_too_long(peer(), packet, said, bench.now), believed, "{packet} {said}");
        assert_eq!(bench.ip.path_mtu(peer(), bench.now), afterwards);
    }
    assert_eq!((bench.count("path_mtu_implausible"), bench.count("path_mtu_lowered")), (2, 3));
    // Datagrams are fragmented to fit the path MTU. TCP segments are not, but DF is not set if the path MTU
    // is below the floor.
    let pdu = bench.pdu(&noise(1000));
    assert_eq!(
        bench
            .send(Packet {
                source: ours(),
                target: peer(),
                protocol: 17,
                traffic_class: 0,
                dont_fragment: false,
                hop_limit: 0,
                pdu
            })
            .len(),
        2
    );
    let pdu = bench.pdu(&noise(1000));
    let hops = bench.send(Packet {
        source: ours(),
        target: peer(),
        protocol: 6,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 0,
        pdu,
    });
    let dont_fragment = |hops: &[Hop]| Header::read_quoted(hops[0].pdu.head()).unwrap().0.dont_fragment;
    assert!(hops.len() == 1 && !dont_fragment(&hops));
    drop(hops);
    assert_eq!(bench.ip.path_mtu("192.0.2.1".parse().unwrap(), bench.now), 0, "no way there");
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.ip.path_mtu(peer(), bench.now), 1500);
    let pdu = bench.pdu(&noise(1000));
    let hops = bench.send(Packet {
        source: ours(),
        target: peer(),
        protocol: 6,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 0,
        pdu,
    });
    assert!(hops.len() == 1 && dont_fragment(&hops));
}

#[test]
fn datagrams_without_df_have_unique_identifications() {
    let mut bench = Bench::new();
    let mut names = vec![];
    for _ in 0..100 {
        let pdu = bench.pdu(b"x");
        let hops = bench.send(Packet {
            source: ours(),
            target: peer(),
            protocol: 17,
            traffic_class: 0,
            dont_fragment: false,
            hop_limit: 0,
            pdu,
        });
        let header = Header::read_quoted(hops[0].pdu.head()).unwrap().0;
        assert!(!header.dont_fragment);
        names.push(header.identification);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 100);
}

#[test]
fn a_packet_that_must_not_be_fragmented_is_sent_whole_or_dropped() {
    let mut bench = roomy(ReassemblyConfig::default());
    let mut send = |length| {
        let pdu = bench.pdu(&noise(length));
        let packet = Packet {
            source: ours(),
            target: peer(),
            protocol: 17,
            traffic_class: 2,
            dont_fragment: true,
            hop_limit: 0,
            pdu,
        };
        let hops = bench.send(packet);
        hops.iter().map(|hop| bytes_of(&hop.pdu)).collect::<Vec<_>>()
    };
    let sent = send(1480);
    let (header, _) = ipv4::Header::read(&sent[0]).unwrap();
    // RFC 6864 §4.1: it needs no identification.
    assert_eq!((header.dont_fragment, header.identification, header.traffic_class), (true, 0, 2));
    assert_eq!((sent.len(), send(1481).len()), (1, 0));
    assert_eq!((bench.count("too_long"), bench.count("fragmented")), (1, 0));
    assert!(bench.memory.is_all_free());
}
