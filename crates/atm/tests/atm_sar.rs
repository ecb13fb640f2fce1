//! Tests of segmentation and reassembly.

mod atm;

use atm::*;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{
    Header, Interface, PTI_CONGESTED, PTI_OAM_END_TO_END, PTI_RESOURCE_MANAGEMENT, Vc,
};
use kiban_atm::{Arrival, Circuit, Reassembly, RxCircuit, TimedCell};
use kiban_base::crc::Crc32Aal5;
use kiban_base::{Instant, Pdu};
use proptest::prelude::*;

/// Returns the cells of frames sent one after another on circuit 0.
fn train_of(bench: &mut Bench, frames: &[Vec<u8>]) -> Vec<TimedCell> {
    let (mut down, _) = ports(1, 65535, 1);
    let mut train = Vec::new();
    for frame in frames {
        let pdu = bench.pdu(frame, 48, &[4096]);
        down.send(Circuit(0), pdu, Instant::ZERO).unwrap();
    }
    down.advance(LATER, &mut train, &mut bench.copies);
    train
}

/// Builds the cells of one frame with an arbitrary trailer but a correct CRC.
fn raw_frame(pdu: &[u8]) -> Vec<TimedCell> {
    assert_eq!(pdu.len() % 48, 0);
    let count = pdu.len() / 48;
    let cell = |(at, payload): (usize, &[u8])| {
        let word = Header::user(vc(0), at + 1 == count).to_word(Interface::Uni);
        TimedCell::new(Instant::from_nanos(at as u64), word, payload.try_into().unwrap())
    };
    pdu.chunks(48).enumerate().map(cell).collect()
}

fn with_crc(mut pdu: Vec<u8>) -> Vec<u8> {
    let end = pdu.len() - 4;
    let crc = Crc32Aal5::of(&pdu[..end]);
    pdu[end..].copy_from_slice(&crc.to_be_bytes());
    pdu
}

#[test]
fn every_length_survives_every_page_size() {
    for (page_bytes, head_cells) in [(4096, 1), (4096, 0), (101, 1), (96, 0), (17, 1)] {
        let mut bench = Bench::new(page_bytes);
        let lengths: Vec<usize> = (1..200).chain([264, 265, 296, 300]).collect();
        let sent: Vec<Vec<u8>> = lengths.iter().map(|length| pattern(*length as u64, *length)).collect();
        for some in sent.chunks(64) {
            let train = train_of(&mut bench, some);
            let (_, mut up) = ports(1, 65535, head_cells);
            let arrivals = bench.receive(&mut up, &train);
            let got: Vec<Vec<u8>> = frames(&arrivals).into_iter().map(|(_, bytes)| bytes).collect();
            assert!(got == some, "pages of {page_bytes}, {head_cells} cells in the head");
        }
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn the_longest_frame_fits_into_pages_and_head() {
    let mut bench = Bench::new(4096);
    let frame = pattern(1, 65535);
    let train = train_of(&mut bench, std::slice::from_ref(&frame));
    assert_eq!(train.len(), 1366);
    let (_, mut up) = ports(1, 65535, 1);
    let arrivals = bench.receive(&mut up, &train);
    assert!(frames(&arrivals) == [(0, frame)]);
    assert_eq!(bench.copies.sar_out_bytes, bench.copies.sar_in_bytes);
}

#[test]
fn headers_land_in_the_head_and_payload_in_pages_of_its_own() {
    let mut bench = Bench::new(4096);
    let train = train_of(&mut bench, &[pattern(1, 8240), pattern(2, 40), pattern(3, 44)]);
    let (_, mut up) = ports(1, 9188, 1);
    let arrivals = bench.receive(&mut up, &train);
    let shape = |arrival: &Arrival| match arrival {
        Arrival::Frame { pdu, .. } => {
            (pdu.head().len(), pdu.body().iter().map(|slice| slice.len()).collect())
        }
        Arrival::Oam { .. } | Arrival::Foreign { .. } => panic!("no management was sent"),
    };
    let shapes: Vec<(usize, Vec<usize>)> = arrivals.iter().map(shape).collect();
    // The frames have the layout of paper [1]: LLC 8, IP 20 and TCP 20 bytes before 8192 bytes of content. In
    // the frame of 44 bytes, the pad begins in the first cell.
    assert_eq!(shapes, [(48, vec![4096, 4096]), (40, vec![]), (44, vec![])]);
}

#[test]
fn a_lost_last_cell_loses_only_the_two_frames_that_it_joined() {
    let sent: Vec<Vec<u8>> = (0..5).map(|seed| pattern(seed, 500)).collect();
    let mut bench = Bench::new(4096);
    let mut train = train_of(&mut bench, &sent);
    let last =
        train.iter().enumerate().filter(|(_, cell)| cell.header >> 1 & 1 == 1).map(|(at, _)| at).nth(1);
    train.remove(last.unwrap());
    let (_, mut up) = ports(1, 9188, 1);
    let arrivals = bench.receive(&mut up, &train);
    let got: Vec<Vec<u8>> = frames(&arrivals).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(got, [&sent[0][..], &sent[3], &sent[4]]);
    assert_eq!((up.counters().frames_in, up.counters().frames_crc_wrong), (3, 1));
    drop(arrivals);
    assert!(bench.memory.is_all_free());
}

#[test]
fn any_lost_cell_or_wrong_bit_loses_no_frame_but_its_own() {
    let sent: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, 300)).collect();
    let mut bench = Bench::new(256);
    let train = train_of(&mut bench, &sent);
    let cells = train.len() / 3;
    // The last cell of the middle frame is lost, which joins two frames.
    for at in cells..2 * cells - 1 {
        for harm in 0..2 {
            let mut train = train.clone();
            match harm {
                0 => drop(train.remove(at)),
                _ => train[at].payload[at % 48] ^= 1,
            }
            let (_, mut up) = ports(1, 9188, 1);
            let arrivals = bench.receive(&mut up, &train);
            let got: Vec<Vec<u8>> = frames(&arrivals).into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(got, [&sent[0][..], &sent[2]]);
            assert_eq!(up.counters().frames_crc_wrong, 1);
        }
    }
    assert!(bench.memory.is_all_free());
}

#[test]
fn one_wrong_header_bit_is_corrected_and_two_lose_a_frame() {
    let sent: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, 300)).collect();
    let mut bench = Bench::new(256);
    let mut train = train_of(&mut bench, &sent);
    train[1].header ^= 1 << 20;
    train[8].hec ^= 3;
    let (_, mut up) = ports(1, 9188, 1);
    let arrivals = bench.receive(&mut up, &train);
    assert_eq!(frames(&arrivals).len(), 2);
    let counters = up.counters();
    assert_eq!((counters.cells_hec_corrected, counters.cells_hec_bad, counters.frames_crc_wrong), (1, 1, 1));
}

#[test]
fn sixty_circuits_interleaved_come_out_whole_with_the_right_sums() {
    let mut bench = Bench::new(4096);
    let (mut down, mut up) = ports(60, 9188, 1);
    let mut train = Vec::new();
    for circuit in 0..60 {
        let frame = pattern(circuit.into(), 8240 - circuit as usize * 7);
        let pdu = bench.pdu(&frame, 48, &[4096]);
        down.send(Circuit(circuit), pdu, Instant::ZERO).unwrap();
    }
    down.advance(LATER, &mut train, &mut bench.copies);
    // Round robin is per cell: the first sixty cells belong to sixty circuits.
    let names: Vec<u32> = train[..60].iter().map(|cell| (cell.header >> 4) - 100).collect();
    assert_eq!(names, (0..60).collect::<Vec<u32>>());
    let arrivals = bench.receive(&mut up, &train);
    let mut got = frames(&arrivals);
    got.sort();
    let expected: Vec<_> = (0..60).map(|c| (c, pattern(c.into(), 8240 - c as usize * 7))).collect();
    assert!(got == expected);
    drop(arrivals);
    assert!(bench.memory.is_all_free());
}

#[test]
fn every_broken_frame_is_counted_by_name() {
    let trailer = |indicator: u8, length: u16| {
        let mut pdu = pattern(9, 96);
        pdu[89] = indicator;
        pdu[90..92].copy_from_slice(&length.to_be_bytes());
        pdu
    };
    let mut wrong_crc = with_crc(trailer(0, 60));
    wrong_crc[95] ^= 1;
    let rows: [(Vec<u8>, &str); 9] = [
        (with_crc(trailer(0, 60)), "frames_in"),
        (with_crc(trailer(0, 88)), "frames_in"),
        (with_crc(trailer(0, 41)), "frames_in"),
        (with_crc(trailer(0, 40)), "frames_length_wrong"),
        (with_crc(trailer(0, 89)), "frames_length_wrong"),
        (trailer(0, 0), "frames_aborted"),
        (with_crc(trailer(7, 60)), "frames_indicator_wrong"),
        (wrong_crc, "frames_crc_wrong"),
        (with_crc(pattern(1, 480)), "frames_oversized"),
    ];
    let mut bench = Bench::new(4096);
    for (pdu, name) in rows {
        let (_, mut up) = ports(1, 100, 1);
        let arrivals = bench.receive(&mut up, &raw_frame(&pdu));
        assert_eq!(frames(&arrivals).len(), usize::from(name == "frames_in"), "{name}");
        up.counters().each(&mut |counter, value| {
            if counter.starts_with("frames") {
                assert_eq!(value, u64::from(counter == name), "{counter} for {name}");
            }
        });
        // The next frame is not affected.
        assert_eq!(frames(&bench.receive(&mut up, &raw_frame(&with_crc(trailer(0, 60))))).len(), 1, "{name}");
        drop(arrivals);
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn a_pad_that_is_not_zero_is_neither_stored_nor_summed() {
    for length in 41..=88 {
        let mut pdu = vec![0xa5; 96];
        pdu[88..92].copy_from_slice(&[0, 0, 0, length]);
        let mut bench = Bench::new(64);
        for head_cells in [0, 1] {
            let (_, mut up) = ports(1, 100, head_cells);
            let arrivals = bench.receive(&mut up, &raw_frame(&with_crc(pdu.clone())));
            assert_eq!(frames(&arrivals), [(0, vec![0xa5; length.into()])]);
        }
    }
}

#[test]
fn congestion_priority_and_management_cells_are_delivered() {
    let mut bench = Bench::new(4096);
    let mut train = train_of(&mut bench, &[pattern(1, 100), pattern(2, 100)]);
    let renew =
        |cell: &mut TimedCell, bits: u32| *cell = TimedCell::new(cell.at, cell.header | bits, cell.payload);
    renew(&mut train[0], 1);
    renew(&mut train[0], u32::from(PTI_CONGESTED) << 1);
    renew(&mut train[5], u32::from(PTI_CONGESTED) << 1);
    for (at, pti) in [(1, PTI_OAM_END_TO_END), (5, PTI_RESOURCE_MANAGEMENT)] {
        let word = Header { pti, ..Header::user(vc(0), false) }.to_word(Interface::Uni);
        train.insert(at, TimedCell::new(train[at].at, word, [7; 48]));
    }
    let (_, mut up) = ports(1, 9188, 1);
    let arrivals = bench.receive(&mut up, &train);
    let seen: Vec<(u8, bool, bool)> = arrivals
        .iter()
        .map(|arrival| match arrival {
            Arrival::Oam { header, payload, .. } => {
                assert_eq!(payload, &[7; 48]);
                (header.pti, false, false)
            }
            Arrival::Frame { congested, low_priority, .. } => (0, *congested, *low_priority),
            Arrival::Foreign { .. } => panic!("all circuits are reassembled here"),
        })
        .collect();
    // I.363.5: the congestion indication is taken from the last cell; low priority in any cell marks the
    // frame.
    assert_eq!(seen, [(5, false, false), (0, false, true), (6, false, false), (0, true, false)]);
}

#[test]
fn idle_and_unknown_cells_are_counted_and_dropped() {
    let mut bench = Bench::new(4096);
    let (_, mut up) = ports(1, 9188, 1);
    let cell = |word| TimedCell::new(Instant::ZERO, word, [0x6a; 48]);
    let stranger = Header::user(Vc::new(0, 99), true).to_word(Interface::Uni);
    let train = [cell(1), cell(1), cell(0), cell(stranger), cell(stranger)];
    assert!(bench.receive(&mut up, &train).is_empty());
    assert_eq!((up.counters().cells_idle, up.counters().cells_unknown_circuit), (3, 2));
}

#[test]
fn starvation_costs_one_frame_and_no_memory() {
    let sent: Vec<Vec<u8>> = (0..4).map(|seed| pattern(seed, 700)).collect();
    let mut bench = Bench::new(256);
    let train = train_of(&mut bench, &sent);
    // After the head there are 652 bytes, which take three pages per frame.
    for n in 1..=12u64 {
        let (_, mut up) = ports(1, 9188, 1);
        bench.memory.receive.fail_nth_take(n);
        let arrivals = bench.receive(&mut up, &train);
        let got = frames(&arrivals);
        let lost = (n - 1) as usize / 3;
        assert_eq!(got.len(), 3);
        assert!(got.iter().all(|(_, bytes)| *bytes != sent[lost]));
        assert_eq!(up.counters().frames_out_of_pages, 1);
        drop(arrivals);
        assert!(bench.memory.is_all_free());
    }
    for n in 1..=4u64 {
        let (_, mut up) = ports(1, 9188, 1);
        bench.memory.pdus.fail_nth_take(n);
        assert_eq!(frames(&bench.receive(&mut up, &train)).len(), 3);
        assert_eq!((up.counters().frames_out_of_blocks, up.counters().cells_abandoned), (1, 15));
        assert!(bench.memory.is_all_free());
    }
}

#[test]
fn a_closed_circuit_gives_its_memory_back() {
    let mut bench = Bench::new(256);
    let train = train_of(&mut bench, &[pattern(1, 700)]);
    let (_, mut up) = ports(1, 9188, 1);
    assert!(bench.receive(&mut up, &train[..9]).is_empty());
    assert!(!bench.memory.is_all_free());
    up.close(Circuit(0));
    assert!(bench.memory.is_all_free());
    // An identifier may be reopened under another number, and a number with another identifier.
    up.open(Circuit(5), RxCircuit::classical_ip(vc(0)));
    assert_eq!(frames(&bench.receive(&mut up, &train)).len(), 1);
    up.open(Circuit(2), RxCircuit::classical_ip(vc(0)));
    assert_eq!(frames(&bench.receive(&mut up, &train))[0].0, 2);
    up.open(Circuit(2), RxCircuit::classical_ip(vc(7)));
    assert_eq!(frames(&bench.receive(&mut up, &train)).len(), 0);
}

#[derive(Clone, Debug)]
struct Sent {
    circuit: u32,
    length: usize,
    head: usize,
    cuts: Vec<usize>,
    gap: u64,
}

fn sent() -> impl Strategy<Value = Sent> {
    let length = prop_oneof![1usize..200, 1usize..9188, 1usize..65536];
    let cuts = prop::collection::vec(1usize..5000, 1..6);
    (0u32..5, length, 0usize..100, cuts, 0u64..400_000).prop_map(|(circuit, length, head, cuts, gap)| Sent {
        circuit,
        length,
        head,
        cuts,
        gap,
    })
}

proptest! {
    #[test]
    fn reassembly_undoes_segmentation(
        list in prop::collection::vec(sent(), 1..12),
        page_bytes in prop_oneof![Just(4096usize), 3400usize..5000],
        head_cells in 0u8..2,
        pieces in prop::collection::vec(1usize..300, 1..8),
    ) {
        let mut bench = Bench::new(page_bytes);
        let (mut down, mut up) = ports(5, 65535, head_cells);
        let (mut train, mut now, mut expected) = (Vec::new(), 0, vec![Vec::new(); 5]);
        for (seed, sent) in list.iter().enumerate() {
            now += sent.gap;
            let bytes = pattern(seed as u64, sent.length);
            let pdu = bench.pdu(&bytes, sent.head, &sent.cuts);
            prop_assert_eq!(pdu.len(), bytes.len());
            down.advance(Instant::from_nanos(now), &mut train, &mut bench.copies);
            down.send(Circuit(sent.circuit), pdu, Instant::from_nanos(now)).unwrap();
            expected[sent.circuit as usize].push(bytes);
        }
        down.advance(LATER, &mut train, &mut bench.copies);
        let cells: usize = list.iter().map(|sent| aal5::cells(sent.length)).sum();
        prop_assert_eq!(train.len(), cells);
        prop_assert!(train.is_sorted_by(|a, b| a.at < b.at));
        let (mut got, mut rest) = (vec![Vec::new(); 5], &train[..]);
        for piece in pieces.iter().cycle() {
            if rest.is_empty() { break; }
            let (part, after) = rest.split_at((*piece).min(rest.len()));
            for (circuit, bytes) in frames(&bench.receive(&mut up, part)) {
                got[circuit as usize].push(bytes);
            }
            rest = after;
        }
        prop_assert!(got == expected);
        prop_assert_eq!(bench.copies.sar_in_bytes, bench.copies.sar_out_bytes);
        prop_assert!(bench.memory.is_all_free());
    }

    #[test]
    fn garbage_neither_panics_nor_leaks(
        cells in prop::collection::vec((any::<u32>(), 0u8..8, 0u32..4, any::<u8>()), 0..600),
        frame_bytes_max in 0usize..4000, page_bytes in 1usize..200, head_cells in 0u8..2,
        pages in 0usize..20, blocks in 0usize..4,
    ) {
        let mut bench = Bench::new(4096);
        bench.memory.receive = kiban_base::PagePool::new(pages, page_bytes);
        bench.memory.pdus = kiban_base::PduPool::new(blocks);
        let (_, mut up) = ports(3, frame_bytes_max, head_cells);
        let train: Vec<TimedCell> = cells
            .iter()
            .map(|(bits, kind, circuit, byte)| {
                let user = Header::user(vc(*circuit), bits % 5 == 0).to_word(Interface::Uni);
                let word = match kind { 0 => *bits, 1 => user ^ (bits & 0xf), _ => user };
                let mut cell = TimedCell::new(Instant::ZERO, word, [*byte; 48]);
                // Some trailers are nearly right: either the length is too short, or the indicator is zero.
                cell.payload[41..44].copy_from_slice(&[0, 0, *byte]);
                if kind == &2 { cell.hec ^= *byte; }
                cell
            })
            .collect();
        let arrivals = bench.receive(&mut up, &train);
        prop_assert_eq!(up.counters().cells_in, train.len() as u64);
        drop(arrivals);
        for circuit in 0..3 { up.close(Circuit(circuit)); }
        prop_assert!(bench.memory.is_all_free());
    }
}

/// PDUs are `Send` and keep their pools alive, so they can outlive the port and its memory.
#[test]
fn a_frame_outlives_its_port() {
    fn is_send<T: Send>(_: &T) {}
    let mut bench = Bench::new(4096);
    let train = train_of(&mut bench, &[pattern(1, 700)]);
    let mut up = Reassembly::new(Interface::Uni);
    up.open(Circuit(0), RxCircuit::classical_ip(vc(0)));
    let arrivals = bench.receive(&mut up, &train);
    is_send(&up);
    drop((up, bench));
    let pdus: Vec<&Pdu> = arrivals
        .iter()
        .filter_map(|arrival| match arrival {
            Arrival::Frame { pdu, .. } => Some(pdu),
            Arrival::Oam { .. } | Arrival::Foreign { .. } => None,
        })
        .collect();
    assert_eq!(bytes_of(pdus[0]), pattern(1, 700));
}

#[test]
fn foreign_cells_are_checked_and_reported_in_order() {
    let mut bench = Bench::new(4096);
    let (mut down, mut near) = ports(3, 9188, 1);
    let (_, mut far) = ports(3, 9188, 1);
    near.open_foreign(Circuit(1), vc(1));
    near.open_foreign(Circuit(2), vc(2));
    let sent: Vec<(u32, Vec<u8>)> = (0..6).map(|n| (n % 3, pattern(n.into(), 500 + n as usize))).collect();
    for (circuit, frame) in &sent {
        let pdu = bench.pdu(frame, 48, &[4096]);
        down.send(Circuit(*circuit), pdu, Instant::ZERO).unwrap();
    }
    down.send_management(Circuit(1), PTI_OAM_END_TO_END, [7; 48], Instant::ZERO).unwrap();
    let mut train = Vec::new();
    // The cells of the three circuits alternate; the last ones are a run.
    down.advance(LATER, &mut train, &mut bench.copies);
    let pdu = bench.pdu(&pattern(6, 2000), 48, &[4096]);
    down.send(Circuit(1), pdu, LATER).unwrap();
    down.advance(Instant::from_nanos(u64::MAX / 2), &mut train, &mut bench.copies);
    let mut arrivals = bench.receive(&mut near, &train);
    let mut handed_on = Vec::new();
    arrivals.retain(|arrival| match arrival {
        Arrival::Foreign { circuit, is_management, cells } => {
            assert!(!is_management, "management cells of foreign circuits are processed here");
            let word = Header::user(vc(circuit.0), false).to_word(Interface::Uni);
            assert!(train[cells.clone()].iter().all(|cell| cell.header & !0xf == word));
            handed_on.extend_from_slice(&train[cells.clone()]);
            false
        }
        _ => true,
    });
    assert!(arrivals.iter().any(|arrival| matches!(arrival, Arrival::Oam { circuit: Circuit(1), .. })));
    let mut all = frames(&arrivals);
    assert_eq!(all.len(), 2);
    far.set_management_foreign();
    all.extend(frames(&bench.receive(&mut far, &handed_on)));
    all.sort();
    let mut expected = sent;
    expected.push((1, pattern(6, 2000)));
    expected.sort();
    assert!(all == expected);
    // Each cell is counted where it is processed.
    let counted = near.counters().cells_in + far.counters().cells_in;
    assert_eq!((near.counters().cells_management, counted), (1, train.len() as u64));
    let arrivals = bench.receive(&mut far, &train);
    let management = |arrival: &&Arrival| matches!(arrival, Arrival::Foreign { is_management: true, .. });
    assert_eq!(arrivals.iter().filter(management).count(), 1);
    assert_eq!(far.counters().cells_management, 0);
}
