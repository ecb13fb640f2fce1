//! Two boards and a switch, with traffic and impairments; at the end, the checkers run.

use kiban_base::{Instant, SimRng};
use kiban_sim::program::{Received, Receiver, Sender, Sink, Source};
use kiban_sim::{ImpairmentConfig, Pair, Plan, check};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Returns a file of random data, cut into parts of equal length.
fn parts(sessions: usize, bytes_each: usize, seed: u64) -> Vec<Rc<Vec<u8>>> {
    let mut rng = SimRng::from_seed(seed);
    (0..sessions).map(|_| Rc::new((0..bytes_each).map(|_| rng.draw() as u8).collect())).collect()
}

struct Outcome {
    done: bool,
    received: Vec<Rc<RefCell<Vec<u8>>>>,
    streams: Vec<Received>,
}

/// Sends the parts from `side` to the other side, one session per part.
fn transfer(pair: &mut Pair, side: usize, parts: &[Rc<Vec<u8>>]) -> Outcome {
    let sources = parts
        .iter()
        .map(|part| {
            let part = part.clone();
            let source: Source = Box::new(move |at, buffer| {
                buffer.copy_from_slice(&part[at as usize..at as usize + buffer.len()]);
            });
            (parts[0].len() as u64, source)
        })
        .collect();
    let received: Vec<_> = parts.iter().map(|_| Rc::new(RefCell::new(Vec::new()))).collect();
    let places = received.clone();
    let make = move |index: usize| -> Sink {
        let place: Rc<RefCell<Vec<u8>>> = places[index].clone();
        Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
    };
    pair.world.run_program(pair.boards[1 - side], Box::new(Receiver::new(5000, parts.len(), Box::new(make))));
    pair.world.run_program(pair.boards[side], Box::new(Sender::new(Pair::socket(1 - side, 5000), sources)));
    let until = pair.world.now() + Duration::from_secs(3000);
    let done = pair.world.run(until);
    let programs = pair.world.take_programs(pair.boards[1 - side]);
    pair.world.take_programs(pair.boards[side]);
    let receiver = programs[0].as_any().downcast_ref::<Receiver>().expect("the given receiver");
    Outcome { done, received, streams: receiver.received() }
}

fn check_intact(outcome: &Outcome, parts: &[Rc<Vec<u8>>]) {
    assert!(outcome.done, "every program came to its end");
    // With impairments, streams may be accepted in any order, so check that each part has arrived exactly
    // once.
    let mut left: Vec<&Rc<Vec<u8>>> = parts.iter().collect();
    for received in &outcome.received {
        let received = received.borrow();
        let at = left.iter().position(|part| ***part == *received).expect("a stream that was sent");
        left.swap_remove(at);
    }
}

fn mbps(pair: &Pair, bytes: usize, from: Instant) -> f64 {
    bytes as f64 * 8.0 / pair.world.now().since(from).as_secs_f64() / 1e6
}

#[test]
fn one_session_fills_the_line() {
    for window in [48 << 10, 256 << 10] {
        let mut pair = Pair::new(&Plan::with_window(window));
        let file = parts(1, 16 << 20, 1);
        let outcome = transfer(&mut pair, 0, &file);
        check_intact(&outcome, &file);
        let reached = mbps(&pair, 16 << 20, Instant::ZERO);
        assert!(reached > 134.5803 * 0.995, "{reached} Mbit/s with a window of {window}");
        assert_eq!(pair.world.board(pair.boards[0]).counter("tcp", "retransmits"), 0);
        assert_eq!(check::check_idle(&mut pair.world, &pair.boards), []);
    }
}

#[test]
fn payload_moves_once_into_cells_and_once_out_of_them() {
    let mut pair = Pair::new(&Plan::with_window(64 << 10));
    let file = parts(1, 8 << 20, 1);
    check_intact(&transfer(&mut pair, 0, &file), &file);
    let bytes = 8 << 20;
    let (sender, receiver) = (pair.world.board(pair.boards[0]), pair.world.board(pair.boards[1]));
    assert_eq!(sender.copies().host_in_bytes, bytes);
    assert_eq!(receiver.copies().host_out_bytes, bytes);
    // 172 cells carry 8192 bytes; the rest of the cells' payload is headers, padding and acknowledgements.
    let cells = |payload: u64| payload / 8192 * 172 * 48;
    let excess = sender.copies().sar_out_bytes - cells(bytes);
    assert!(excess < 100_000, "{excess} bytes beyond one transfer");
    assert!(receiver.copies().sar_in_bytes <= sender.copies().sar_out_bytes);
    assert!(receiver.copies().sar_in_bytes >= bytes);
    for copies in [sender.copies(), receiver.copies()] {
        assert_eq!((copies.gather_bytes, copies.header_bytes / 1000), (0, 0));
    }
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_nanosecond() {
    let run = |seed| {
        let plan = Plan { seed, impairment: ImpairmentConfig::from_seed(3), ..Plan::with_window(64 << 10) };
        let mut pair = Pair::new(&plan);
        let file = parts(3, 300_000, 5);
        check_intact(&transfer(&mut pair, 0, &file), &file);
        let board = pair.world.board(pair.boards[0]);
        (pair.world.now(), pair.world.events(), board.counter("tcp", "segments_out"))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_hundred_impaired_worlds_end_with_every_stream_intact() {
    for seed in 0..100 {
        let sessions = 1 + seed as usize % 7;
        let window = [16 << 10, 24 << 10, 48 << 10, 256 << 10][seed as usize % 4];
        let plan = Plan { seed, impairment: ImpairmentConfig::from_seed(seed), ..Plan::with_window(window) };
        let mut pair = Pair::new(&plan);
        let file = parts(sessions, 200_000, seed);
        let outcome = transfer(&mut pair, seed as usize % 2, &file);
        assert!(outcome.done, "seed {seed}: {:?} {:?}", pair.world, outcome.streams);
        check_intact(&outcome, &file);
        assert_eq!(check::check_idle(&mut pair.world, &pair.boards), [], "seed {seed}");
    }
}

#[test]
fn sixty_sessions_share_the_line_and_the_memory() {
    for window in [16 << 10, 24 << 10, 48 << 10, 256 << 10] {
        for sessions in [2, 15, 60] {
            let mut pair = Pair::new(&Plan::with_window(window));
            let each = (24 << 20) / sessions;
            let file = parts(sessions, each, 9);
            let outcome = transfer(&mut pair, 0, &file);
            check_intact(&outcome, &file);
            let reached = mbps(&pair, each * sessions, Instant::ZERO);
            assert!(reached > 134.58 * 0.99, "{reached} Mbit/s for {sessions} at {window}");
            // All streams have the same amount to send, so a stream that gets less than its share finishes
            // last.
            let ends = outcome.streams.iter().map(|stream| stream.last_at.as_secs_f64());
            let (first, last) =
                ends.fold((f64::MAX, 0.0f64), |(first, last), end| (first.min(end), last.max(end)));
            assert!(first > last * 0.9, "{first} to {last} s for {sessions} at {window}");
        }
    }
}
