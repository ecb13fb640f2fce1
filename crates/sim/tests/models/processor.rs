//! A modelled processor changes only the times at which a board is called.

use kiban_sim::cost::{BOARD_1995, CostModel, Costs, Mechanism, Mechanisms};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{Pair, Plan, Tap, check};
use kiban_tcpip::tcp;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const PORT: u16 = 5001;

/// Sends `bytes` over each of `sessions` streams. Returns what arrived, by stream, and how long it took.
fn transfer(plan: &Plan, sessions: usize, bytes: u64) -> (Vec<Vec<u8>>, Duration, Pair) {
    tapped_transfer(plan, sessions, bytes, &Rc::default())
}

/// Does the same, and records when the last cell of each PDU arrives at the receiver, nanoseconds.
fn tapped_transfer(
    plan: &Plan,
    sessions: usize,
    bytes: u64,
    ends: &Rc<RefCell<Vec<u64>>>,
) -> (Vec<Vec<u8>>, Duration, Pair) {
    let mut pair = Pair::new(plan);
    let received: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let make = {
        let received = received.clone();
        Box::new(move |number: usize| -> Sink {
            received.borrow_mut().resize(number + 1, Vec::new());
            let received = received.clone();
            Box::new(move |_, bytes| received.borrow_mut()[number].extend_from_slice(bytes))
        })
    };
    let source = || -> Source {
        Box::new(|from, target| {
            target.iter_mut().zip(from..).for_each(|(byte, at)| *byte = pattern(at));
        })
    };
    let streams = (0..sessions).map(|number| {
        let at = |side, port| SocketAddr::new(Pair::address_on(number % plan.circuits, side), port);
        ((Some(at(0, 0)), at(1, PORT)), bytes, source())
    });
    let line = pair.receiving[1];
    let frames = ends.clone();
    // Each call is one record: the file header, or the time of a frame's last cell, and the frame.
    let sink = move |record: &[u8]| {
        if let Some((header, frame)) = record.split_first_chunk::<16>()
            && frame.len() > 8192
        {
            let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four octets"));
            frames.borrow_mut().push(u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)));
        }
    };
    pair.world.line(line).set_tap(Tap::new(0, Box::new(sink)));
    pair.world.run_program(pair.boards[1], Box::new(Receiver::new(PORT, sessions, make)));
    pair.world.run_program(pair.boards[0], Box::new(Sender::between(streams.collect())));
    pair.world.run(kiban_base::Instant::ZERO + Duration::from_secs(3600));
    let took = pair.world.now().since(kiban_base::Instant::ZERO);
    let received = received.borrow().clone();
    (received, took, pair)
}

fn pattern(at: u64) -> u8 {
    (at * 7 + at / 251) as u8
}

fn model(costs: Costs) -> CostModel {
    CostModel { costs, ..BOARD_1995 }
}

#[test]
fn data_arrives_intact_and_the_world_becomes_idle() {
    let expected: Vec<u8> = (0..300_000).map(pattern).collect();
    for mechanisms in Mechanism::ALL.map(Mechanisms::without).into_iter().chain([Mechanisms::ALL]) {
        // Twelve windows of 128 KB need more clusters than there are, so writers wait for memory.
        let plan = CostModel { mechanisms, ..BOARD_1995 }.plan(&tcp::Config::bsd43(), 128 << 10);
        let (received, _, mut pair) = transfer(&plan, 12, 300_000);
        assert_eq!(received.len(), 12, "{mechanisms:?}");
        for (number, stream) in received.iter().enumerate() {
            assert_eq!(check::stream(number, &expected, stream), [], "{mechanisms:?}");
        }
        let boards = pair.boards;
        assert!(pair.world.board(boards[0]).page_waits().0 > 0 || !mechanisms.scaling, "{mechanisms:?}");
        assert_eq!(check::check_idle(&mut pair.world, &boards), [], "{mechanisms:?}");
    }
}

/// The board computes the TCP sum of a PDU while its cells arrive, for each circuit (§3.2 of the paper). A
/// sum that mixed the cells of two circuits would be wrong, and its PDU would be dropped.
#[test]
fn sums_are_right_when_the_cells_of_many_circuits_interleave() {
    let expected: Vec<u8> = (0..300_000).map(pattern).collect();
    for circuits in [1, 12] {
        let plan = Plan { circuits, ..BOARD_1995.plan(&tcp::Config::bsd43(), 16 << 10) };
        let ends = Rc::default();
        let (received, _, mut pair) = tapped_transfer(&plan, 12, 300_000, &ends);
        assert_eq!(received.len(), 12);
        for (number, stream) in received.iter().enumerate() {
            assert_eq!(check::stream(number, &expected, stream), [], "{circuits} circuits");
        }
        let boards = pair.boards;
        for board in boards {
            assert_eq!(pair.world.board(board).tcp_counters().checksum_errors, 0, "{circuits} circuits");
        }
        // A PDU takes 487 us on the line. Two that end within less than that were interleaved.
        let ends = ends.borrow();
        let interleaved = ends.windows(2).filter(|pair| pair[1] - pair[0] < 400_000).count();
        assert_eq!(interleaved > ends.len() / 10, circuits > 1, "{interleaved} of {}", ends.len());
        assert_eq!(check::check_idle(&mut pair.world, &boards), [], "{circuits} circuits");
    }
}

#[test]
fn a_slow_processor_sets_the_pace_and_a_fast_one_the_line() {
    let config = tcp::Config { copy_chunk_bytes: None, ..tcp::Config::bsd43() };
    let bytes = 4 << 20;
    let pdus = bytes / 8192;
    for (pdu_us, expected_us) in [(2000, 2000.0), (1000, 1000.0), (100, 491.3)] {
        let costs =
            Costs { pdu: Duration::from_micros(pdu_us), acknowledgment: Duration::ZERO, ..BOARD_1995.costs };
        let (_, took, pair) = transfer(&model(costs).plan(&config, 256 << 10), 1, bytes);
        // Subtract the times at the beginning and at the end, which are not steady flow: a delayed
        // acknowledgement, and the last acknowledgements of the window.
        let each = (took.as_secs_f64() - 0.2) * 1e6 / pdus as f64;
        assert!((each / expected_us - 1.0).abs() < 0.06, "{pdu_us} us: {each} us");
        let busy = pair.world.processor_busy(pair.boards[0]).as_secs_f64() * 1e6 / pdus as f64;
        assert!((busy / pdu_us as f64 - 1.0).abs() < 0.02, "{pdu_us} us: {busy} us");
    }
}

#[test]
fn the_same_plan_gives_the_same_run() {
    let plan = BOARD_1995.plan(&tcp::Config::bsd43(), 48 << 10);
    let run = || {
        let (received, took, pair) = transfer(&plan, 7, 100_000);
        (received, took, pair.world.events())
    };
    assert_eq!(run(), run());
}

#[test]
fn receive_clusters_bound_the_sessions() {
    // Each row: the window in KB, and the number of sessions for which there are enough receive clusters.
    for (window, sessions) in [(8, 63), (16, 63), (48, 63), (64, 63), (128, 31), (256, 15)] {
        assert_eq!(BOARD_1995.memory.sessions_max(window << 10), sessions, "{window} KB");
    }
    assert_eq!(BOARD_1995.memory.clusters(), 127);
}
