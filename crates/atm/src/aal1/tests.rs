//! Both ends of a circuit, and a network between them that loses, inserts and corrupts cells.

use super::*;
use crate::wire::aal1::fec::Code;
use crate::wire::aal1::{COUNTS, Header, PAYLOAD_OCTETS, STAMP_PERIOD_BITS};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, SimRng};
use proptest::prelude::*;

type Cell = [u8; 48];

const FORMS: [Form; 6] = [
    Form::Stream,
    Form::Corrected(Code::Long),
    Form::Corrected(Code::Short),
    Form::Structured { block_octets: 1 },
    Form::Structured { block_octets: 40 },
    Form::Structured { block_octets: 200 },
];

/// Returns octets that do not repeat within the length of a test.
fn octets(count: usize) -> Vec<u8> {
    let mut chance = SimRng::from_seed(363);
    (0..count).map(|_| chance.draw() as u8).collect()
}

/// Returns all cells that these octets fill.
fn cells(config: Config, octets: &[u8]) -> Vec<Cell> {
    let (mut sender, mut cells) = (Sender::new(config), Vec::new());
    let mut left = octets;
    while !left.is_empty() {
        let taken = sender.push(&left[..left.len().min(sender.room())]);
        left = &left[taken..];
        while let Some(cell) = sender.cell() {
            cells.push(cell);
        }
    }
    cells
}

fn receive(config: Config, cells: &[Cell]) -> (Vec<u8>, ReceiverCounters) {
    let (mut receiver, mut out) = (Receiver::new(config), Vec::new());
    cells.iter().for_each(|cell| receiver.on_cell(cell, &mut out));
    receiver.finish(&mut out);
    (out, *receiver.counters())
}

#[test]
fn data_round_trips_in_every_mode() {
    let sent = octets(3 * Code::Long.user_octets());
    for form in FORMS {
        let config = Config::of(form);
        let cells = cells(config, &sent);
        let (out, counters) = receive(config, &cells);
        assert!(sent.starts_with(&out), "{form:?}");
        // The missing octets were too few to fill a cell, a block or a matrix.
        assert!(
            sent.len() - out.len() < Code::Short.user_octets(),
            "{form:?}: {} of {}",
            out.len(),
            sent.len()
        );
        let expected = ReceiverCounters {
            cells_in: cells.len() as u64,
            octets_out: out.len() as u64,
            matrices: counters.matrices,
            ..ReceiverCounters::default()
        };
        assert_eq!(counters, expected, "{form:?}");
    }
}

#[test]
fn counts_wrap_and_each_cycle_has_exactly_one_pointer() {
    for block_octets in [2, 40, 93, 94, 200, 2000] {
        let config = Config::of(Form::Structured { block_octets });
        let cells = cells(config, &octets(8000));
        assert!(cells.iter().enumerate().all(|(at, cell)| {
            Header::read(cell).is_ok_and(|(header, _)| usize::from(header.count) == at % 8)
        }));
        for cycle in cells.chunks_exact(8) {
            let marked: Vec<bool> =
                cycle.iter().map(|cell| Header::read(cell).is_ok_and(|(header, _)| header.csi)).collect();
            assert_eq!(marked.iter().filter(|marked| **marked).count(), 1, "{block_octets}: {marked:?}");
            assert!(marked.iter().skip(1).step_by(2).all(|marked| !marked));
        }
    }
}

/// A test case: the changes to the cells, and the expected output. Cells are numbered from 0, and `-` stands
/// for 47 dummy octets.
#[test]
fn the_robust_algorithm_tells_lost_from_misinserted_cells() {
    let config = Config::of(Form::Stream);
    let sent = octets(20 * PAYLOAD_OCTETS);
    let cells = cells(config, &sent);
    let stray = |count: u8| {
        let mut cell = [0x55; 48];
        Header::of_count(count).write(&mut cell);
        cell
    };
    let spoilt = |number: usize| {
        let mut cell = cells[number];
        cell[0] ^= 0b11;
        cell
    };
    let miscounted = |number: usize, count: u8| {
        let mut cell = cells[number];
        Header::of_count(count).write(&mut cell);
        cell
    };
    let take = |numbers: &[usize]| -> Vec<Cell> { numbers.iter().map(|number| cells[*number]).collect() };
    let with = |before: &[usize], odd: Cell, then: &[usize]| [take(before), vec![odd], take(then)].concat();
    let talks: [(&str, Vec<Cell>, &str); 9] = [
        ("nothing happens", take(&[0, 1, 2, 3, 4]), "0 1 2 3 4"),
        ("one is lost", take(&[0, 1, 3, 4, 5]), "0 1 - 3 4 5"),
        ("six are lost", take(&[0, 1, 8, 9]), "0 1 - - - - - - 8 9"),
        ("one comes in between", with(&[0, 1], stray(6), &[2, 3]), "0 1 2 3"),
        ("one comes twice", take(&[0, 1, 1, 2, 3]), "0 1 2 3"),
        ("a count is wrong", with(&[0, 1], miscounted(2, 5), &[3, 4]), "0 1 2 3 4"),
        ("a header is spoilt", with(&[0, 1], spoilt(2), &[3, 4]), "0 1 2 3 4"),
        ("a spoilt one comes in between", with(&[0, 1], spoilt(9), &[2, 3]), "0 1 2 3"),
        ("a spoilt one beside a lost one", with(&[0, 1], spoilt(3), &[4, 5]), "0 1 - 3 4 5"),
    ];
    for (what, came, expected) in talks {
        let (out, _) = receive(config, &came);
        let told: Vec<String> = out
            .chunks(PAYLOAD_OCTETS)
            .map(|octets| match cells.iter().position(|cell| &cell[1..] == octets) {
                Some(number) => number.to_string(),
                None if octets.iter().all(|octet| *octet == config.dummy) => "-".into(),
                None => "?".into(),
            })
            .collect();
        assert_eq!(told.join(" "), expected, "{what}");
    }
}

#[test]
fn one_wrong_header_bit_is_corrected_but_not_in_two_consecutive_headers() {
    let config = Config::of(Form::Stream);
    let mut cells = cells(config, &octets(12 * PAYLOAD_OCTETS));
    for number in [2, 5, 6] {
        cells[number][0] ^= 1 << 5;
    }
    let (out, counters) = receive(config, &cells);
    assert_eq!((counters.headers_corrected, counters.headers_invalid), (2, 1));
    assert_eq!(
        (out, counters.cells_lost),
        (octets(12 * PAYLOAD_OCTETS), 0),
        "an invalid one keeps its place"
    );
}

#[test]
fn a_matrix_corrects_what_its_code_guarantees_and_keeps_octet_positions() {
    for (code, gone) in [(Code::Long, vec![130, 131, 170, 255]), (Code::Short, vec![20])] {
        let config = Config::of(Form::Corrected(code));
        let sent = octets(3 * code.user_octets());
        let all = cells(config, &sent);
        let kept = |gone: &[usize]| -> Vec<Cell> {
            all.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, cell)| *cell).collect()
        };
        let (out, counters) = receive(config, &kept(&gone));
        assert!(out == sent, "{code:?}");
        assert_eq!((counters.matrices_corrected, counters.matrices_uncorrectable), (1, 0));
        assert_eq!(counters.cells_lost, gone.len() as u64);
        // Too many losses in the second matrix damage it, but not the third.
        let first = code.cells() + 4;
        let (out, counters) = receive(config, &kept(&(first..first + 5).collect::<Vec<_>>()));
        assert_eq!((out.len(), counters.matrices_uncorrectable), (sent.len(), 1), "{code:?}");
        let (begin, end) = (code.user_octets(), 2 * code.user_octets());
        assert!(out[..begin] == sent[..begin] && out[begin..end] != sent[begin..end]);
        assert!(out[end..] == sent[end..]);
        // The counts do not reveal the loss of eight cells, but the mark of the third matrix does.
        let (out, counters) = receive(config, &kept(&(first..first + 8).collect::<Vec<_>>()));
        assert_eq!((out.len(), counters.matrices_cut, counters.cells_lost), (sent.len(), 1, 0), "{code:?}");
        assert!(out[end..] == sent[end..]);
    }
}

#[test]
fn wrong_octets_are_corrected_without_a_lost_cell() {
    let config = Config::of(Form::Corrected(Code::Long));
    let sent = octets(Code::Long.user_octets());
    let mut cells = cells(config, &sent);
    cells[3][10] ^= 0xff;
    cells[90][10] ^= 1;
    cells[90][47] ^= 1;
    let (out, counters) = receive(config, &cells);
    assert!(out == sent);
    assert_eq!((counters.octets_corrected, counters.matrices_corrected), (3, 1));
}

#[test]
fn after_a_lost_cell_the_pointer_realigns_the_blocks() {
    for block_octets in [40, 93, 200] {
        let config = Config::of(Form::Structured { block_octets });
        let sent = octets(150 * block_octets);
        let all = cells(config, &sent);
        // Lose cells with and without a pointer, and then eight cells, whose loss the counts do not reveal.
        for gone in [16..17, 17..18, 19..23, 24..32] {
            let kept: Vec<Cell> =
                all.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, cell)| *cell).collect();
            let (out, counters) = receive(config, &kept);
            assert_eq!(out.len() % block_octets, 0);
            let blocks = |octets: &[u8]| octets.chunks(block_octets).map(Vec::from).collect::<Vec<_>>();
            let (out, sent) = (blocks(&out), blocks(&sent));
            // Only blocks near the gap are damaged: at most a cycle of blocks and their neighbours.
            let spoilt = out.iter().filter(|block| !sent.contains(block)).count();
            assert!(spoilt <= (8 + 8) * 47 / block_octets + 2, "{block_octets} {gone:?}: {spoilt}");
            assert_eq!(out.last(), sent.get(sent.len() - 1 - usize::from(sent.last() != out.last())));
            assert_eq!(counters.pointers_malformed, 0);
        }
    }
}

#[test]
fn timestamps_round_trip_and_a_lost_bit_loses_one() {
    let config = Config { stamps: true, ..Config::of(Form::Stream) };
    let (mut sender, mut cells) = (Sender::new(config), Vec::new());
    for cycle in 0..6u8 {
        sender.set_stamp(cycle * 5 % 16);
        sender.push(&octets(8 * PAYLOAD_OCTETS));
        cells.extend(core::iter::from_fn(|| sender.cell()));
    }
    let stamps = |cells: &[Cell]| {
        let (mut receiver, mut out) = (Receiver::new(config), Vec::new());
        cells.iter().for_each(|cell| receiver.on_cell(cell, &mut out));
        receiver.finish(&mut out);
        core::iter::from_fn(|| receiver.next_stamp()).collect::<Vec<_>>()
    };
    assert_eq!(stamps(&cells), [0, 5, 10, 15, 4, 9].map(Some));
    cells.remove(8 * 2 + 3);
    assert_eq!(stamps(&cells), [Some(0), Some(5), None, Some(15), Some(4), Some(9)]);
}

/// Returns the clock rate of a source that deviates by `ppm` parts per million.
fn source(bits_per_second: u64, ppm: f64) -> f64 {
    bits_per_second as f64 * (1.0 + ppm * 1e-6)
}

#[test]
fn timestamps_give_the_rate_of_a_deviating_source() {
    for (rate, shift) in [(1_544_000, 6), (2_048_000, 6), (34_368_000, 2), (5_880_000, 4)] {
        let srts = Srts::new(rate).expect("a rate below the network's");
        assert_eq!(srts.derived_hertz(), (NETWORK_HERTZ, 1 << shift), "{rate}");
        let derived = NETWORK_HERTZ as f64 / f64::from(1 << shift);
        assert!((1.0..2.0).contains(&(derived / rate as f64)));
        for ppm in [-200.0, -50.0, 0.0, 3.0, 130.0] {
            let mut recovery = SrtsRecovery::new(srts);
            let period = STAMP_PERIOD_BITS as f64 / source(rate, ppm);
            for number in 0..=20_000u64 {
                let at = Instant::from_nanos((period * number as f64 * 1e9) as u64);
                // Some stamps are lost on the way.
                recovery.on_stamp((number % 17 != 5).then(|| srts.stamp(at)));
            }
            let found = (recovery.ratio().expect("many stamps") - 1.0) * 1e6;
            // The tolerance is one tick in 20,000 periods of about 4000 ticks each, plus a nanosecond.
            assert!((found - ppm).abs() < 0.1, "{rate}: {ppm} became {found}");
        }
    }
    assert_eq!((Srts::new(0), Srts::new(NETWORK_HERTZ + 1)), (None, None));
}

#[test]
fn a_buffer_finds_the_rate_of_its_source_through_jitter() {
    let rate = 5_880_000;
    for ppm in [-100.0, 0.0, 60.0] {
        let mut chance = SimRng::from_seed(5);
        let (target, settle) = (7350, Duration::from_secs(10));
        let mut clock = Adaptive::new(rate, target, settle, 200);
        let tick = Duration::from_millis(1);
        let (mut sent, mut read, mut tail) = (target as f64, 0.0, 0.0);
        for number in 0..200_000 {
            sent += source(rate, ppm) / 8.0 * tick.as_secs_f64();
            // Up to a millisecond of cells is still in transit.
            let arrived = sent - chance.unit() * 735.0;
            let ratio = clock.on_level((arrived - read) as usize, tick);
            read += rate as f64 / 8.0 * ratio * tick.as_secs_f64();
            assert!(
                (sent - read - target as f64).abs() < target as f64,
                "the buffer neither empties nor doubles"
            );
            if number >= 150_000 {
                tail += ratio - 1.0;
            }
        }
        let found = tail / 50_000.0 * 1e6;
        assert!((found - ppm).abs() < 2.0, "{ppm} became {found}");
        assert!((clock.bits_per_second() / rate as f64 - 1.0).abs() <= 200.01e-6);
    }
}

proptest! {
    #[test]
    fn lost_cells_fewer_than_seven_in_a_row_keep_the_number_of_octets(
        gaps in prop::collection::vec((2usize..40, 1usize..7), 1..12),
    ) {
        let config = Config::of(Form::Stream);
        let total: usize = gaps.iter().map(|(kept, lost)| kept + lost).sum::<usize>() + 4;
        let sent = octets(total * PAYLOAD_OCTETS);
        let all = cells(config, &sent);
        let (mut kept, mut at, mut lost) = (Vec::new(), 0, 0);
        for (run, gap) in &gaps {
            kept.extend_from_slice(&all[at..at + run]);
            at += run + gap;
            lost += gap;
        }
        kept.extend_from_slice(&all[at..]);
        let (out, counters) = receive(config, &kept);
        prop_assert_eq!(out.len(), sent.len());
        prop_assert_eq!(counters.cells_lost, lost as u64);
        prop_assert_eq!(counters.octets_dummy, (lost * PAYLOAD_OCTETS) as u64);
        let wrong = out.iter().zip(&sent).filter(|(out, sent)| out != sent).count();
        prop_assert!(wrong <= lost * PAYLOAD_OCTETS);
    }

    #[test]
    fn arbitrary_cells_cause_no_panic_and_all_are_counted(
        form in 0usize..FORMS.len(), stamps in any::<bool>(),
        headers in prop::collection::vec(any::<(u8, bool)>(), 0..600),
    ) {
        let config = Config { stamps, ..Config::of(FORMS[form]) };
        let (mut receiver, mut out) = (Receiver::new(config), Vec::new());
        for (number, (byte, valid)) in headers.iter().enumerate() {
            let mut cell = [number as u8; 48];
            cell[0] = *byte;
            cell[1] = byte.rotate_left(3);
            if *valid {
                Header { csi: byte & 1 == 1, count: (number % usize::from(COUNTS)) as u8 }.write(&mut cell);
            }
            receiver.on_cell(&cell, &mut out);
        }
        let counters = *receiver.counters();
        prop_assert_eq!(counters.cells_in, headers.len() as u64);
        prop_assert_eq!(counters.octets_out, out.len() as u64);
        prop_assert!(counters.cells_dropped + counters.cells_misinserted <= counters.cells_in);
        prop_assert!(out.len() as u64 <= (counters.cells_in + counters.cells_lost) * 47 + 5828 * counters.matrices_cut + 200 * counters.blocks_realigned);
    }
}
