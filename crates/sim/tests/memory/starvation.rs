//! Memory shortage: the allocation of one page or block fails, or memory is scarce. Every stream still
//! arrives, and all memory is freed.

use kiban_base::SimRng;
use kiban_board::MemoryConfig;
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{ImpairmentConfig, Pair, Plan, check};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Bytes = Rc<Vec<u8>>;

fn parts(sessions: usize, length: usize) -> Vec<Bytes> {
    let mut chance = SimRng::from_seed(length as u64);
    (0..sessions).map(|_| Rc::new((0..length).map(|_| chance.draw() as u8).collect())).collect()
}

/// Sends each part from board 0 to board 1 in a separate session. Everything must arrive, and the boards must
/// become idle.
fn transfer(pair: &mut Pair, parts: &[Bytes], what: &dyn std::fmt::Debug) {
    let sources = parts
        .iter()
        .map(|part| {
            let (length, part) = (part.len() as u64, part.clone());
            let source: Source = Box::new(move |at, buffer| {
                buffer.copy_from_slice(&part[at as usize..at as usize + buffer.len()]);
            });
            (length, source)
        })
        .collect();
    let received: Vec<_> = parts.iter().map(|_| Rc::new(RefCell::new(Vec::new()))).collect();
    let places = received.clone();
    let make = move |index: usize| -> Sink {
        let place: Rc<RefCell<Vec<u8>>> = places[index].clone();
        Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
    };
    pair.world.run_program(pair.boards[1], Box::new(Receiver::new(80, parts.len(), Box::new(make))));
    pair.world.run_program(pair.boards[0], Box::new(Sender::new(Pair::socket(1, 80), sources)));
    assert!(pair.world.run(pair.world.now() + Duration::from_secs(3000)), "{what:?}: {:?}", pair.world);
    let mut left: Vec<&Bytes> = parts.iter().collect();
    for stream in &received {
        let stream = stream.borrow();
        let at = left.iter().position(|part| ***part == *stream);
        left.swap_remove(at.unwrap_or_else(|| panic!("{what:?}: a stream differs")));
    }
    assert_eq!(check::check_idle(&mut pair.world, &pair.boards), [], "{what:?}");
}

#[test]
fn any_page_or_block_that_is_refused_delays_and_loses_nothing() {
    let parts = parts(3, 100_000);
    crate::refusal::each(|refusal| {
        let mut pair = Pair::new(&Plan::with_window(48 << 10));
        let board = pair.boards[refusal.side];
        refusal.arm(pair.world.board_mut(board).memory_mut());
        transfer(&mut pair, &parts, &refusal);
        refusal.has_happened(pair.world.board_mut(board).memory_mut())
    });
}

/// Allocations of every kind fail at random intervals, throughout the run. Half of the runs use impaired
/// lines.
#[test]
fn refusals_that_go_on_and_on_lose_nothing() {
    let parts = parts(3, 50_000);
    for seed in 0..40 {
        let mut chance = SimRng::from_seed(seed);
        let impairment =
            if seed % 2 == 0 { ImpairmentConfig::NONE } else { ImpairmentConfig::from_seed(seed) };
        let mut plan = Plan { seed, impairment, ..Plan::with_window(24 << 10) };
        // This many failures could exhaust the default number of retransmissions, so allow more.
        plan.tcp.rto_retries = 100;
        let mut pair = Pair::new(&plan);
        let sources: Vec<_> = parts.clone();
        // Called once per millisecond, so that allocations that have failed soon fail again.
        let boards = pair.boards;
        let mut each = |pair: &mut Pair| {
            for board in boards {
                let memory = pair.world.board_mut(board).memory_mut();
                match chance.below(12) {
                    0 => memory.transmit.fail_nth_take(1 + chance.below(4)),
                    1 => memory.receive.fail_nth_take(1 + chance.below(4)),
                    2 => memory.pdus.fail_nth_take(1 + chance.below(4)),
                    _ => {}
                }
            }
        };
        let mut received = Vec::new();
        let streams = sources.iter().map(|part| {
            let (length, part) = (part.len() as u64, part.clone());
            let source: Source = Box::new(move |at, buffer| {
                buffer.copy_from_slice(&part[at as usize..at as usize + buffer.len()]);
            });
            received.push(Rc::new(RefCell::new(Vec::<u8>::new())));
            (length, source)
        });
        let streams: Vec<_> = streams.collect();
        let places = received.clone();
        let make = move |index: usize| -> Sink {
            let place = places[index].clone();
            Box::new(move |_, bytes| place.borrow_mut().extend_from_slice(bytes))
        };
        pair.world.run_program(pair.boards[1], Box::new(Receiver::new(80, parts.len(), Box::new(make))));
        pair.world.run_program(pair.boards[0], Box::new(Sender::new(Pair::socket(1, 80), streams)));
        let (mut pause, mut before) = (Duration::from_millis(1), pair.world.now());
        for _ in 0..1_000_000 {
            if pair.world.is_done() {
                break;
            }
            each(&mut pair);
            pair.world.run(before + pause);
            // While nothing happens, double the interval, so that the next deadline is reached soon.
            pause = if pair.world.now() > before { Duration::from_millis(1) } else { pause * 2 };
            before = pair.world.now();
        }
        assert!(pair.world.is_done(), "seed {seed}: {:?}", pair.world);
        let mut left: Vec<&Bytes> = parts.iter().collect();
        for stream in &received {
            let stream = stream.borrow();
            let at = left.iter().position(|part| ***part == *stream).expect("a stream that was sent");
            left.swap_remove(at);
        }
        assert_eq!(check::check_idle(&mut pair.world, &pair.boards), [], "seed {seed}");
    }
}

#[test]
fn ten_sessions_share_sixteen_pages_and_forty_blocks() {
    let memories = [
        MemoryConfig { page_bytes: 4096, transmit_bytes: 64 << 10, receive_bytes: 64 << 10, pdus: 40 },
        MemoryConfig { page_bytes: 4096, transmit_bytes: 16 << 10, receive_bytes: 64 << 10, pdus: 40 },
        MemoryConfig { page_bytes: 4096, transmit_bytes: 64 << 10, receive_bytes: 32 << 10, pdus: 40 },
        MemoryConfig { page_bytes: 4096, transmit_bytes: 8 << 20, receive_bytes: 8 << 20, pdus: 12 },
        MemoryConfig { page_bytes: 1024, transmit_bytes: 64 << 10, receive_bytes: 64 << 10, pdus: 40 },
        MemoryConfig { page_bytes: 16_384, transmit_bytes: 64 << 10, receive_bytes: 64 << 10, pdus: 40 },
    ];
    for (index, memory) in memories.into_iter().enumerate() {
        for impairment in [ImpairmentConfig::NONE, ImpairmentConfig::from_seed(2)] {
            for window in [16 << 10, 64 << 10] {
                let mut pair = Pair::new(&Plan { memory, impairment, ..Plan::with_window(window) });
                transfer(
                    &mut pair,
                    &parts(10, 60_000),
                    &(index, impairment == ImpairmentConfig::NONE, window),
                );
            }
        }
    }
}
