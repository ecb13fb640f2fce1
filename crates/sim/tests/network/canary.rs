//! Canaries: each checker must report the fault injected for it, and report nothing in a clean run.

use kiban_base::{Instant, Slice};
use kiban_board::{Completion, Host, StreamId};
use kiban_sim::check::{self, Violation};
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{ImpairmentConfig, Pair, Plan, Program};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const LENGTH: usize = 100_000;

fn byte(at: u64) -> u8 {
    (at * 7 + at / 256) as u8
}

fn sent() -> Vec<u8> {
    (0..LENGTH as u64).map(byte).collect()
}

fn sender() -> Box<Sender> {
    let source: Source = Box::new(|at, buffer| {
        buffer.iter_mut().zip(at..).for_each(|(place, at)| *place = byte(at));
    });
    Box::new(Sender::new(Pair::socket(1, 80), vec![(LENGTH as u64, source)]))
}

fn run(pair: &mut Pair) -> Vec<Violation> {
    pair.world.run(Instant::from_nanos(100_000_000_000));
    check::check_idle(&mut pair.world, &pair.boards)
}

/// Transfers data and lets `spoil` modify and store the received data. Returns the violations and the stored
/// data.
fn transfer(mut spoil: impl FnMut(&mut Vec<u8>, &[u8]) + 'static) -> (Vec<Violation>, Vec<u8>) {
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    let got = Rc::new(RefCell::new(Vec::new()));
    let place = got.clone();
    let spoil = Rc::new(RefCell::new(move |got: &mut Vec<u8>, bytes: &[u8]| spoil(got, bytes)));
    let make = move |_| -> Sink {
        let (place, spoil) = (place.clone(), spoil.clone());
        Box::new(move |_, bytes| spoil.borrow_mut()(&mut place.borrow_mut(), bytes))
    };
    pair.world.run_program(pair.boards[1], Box::new(Receiver::new(80, 1, Box::new(make))));
    pair.world.run_program(pair.boards[0], sender());
    let violations = run(&mut pair);
    let got = got.borrow().clone();
    (violations, got)
}

#[test]
fn a_clean_run_raises_no_alarm() {
    let (violations, got) = transfer(|got, bytes| got.extend_from_slice(bytes));
    assert_eq!((violations, check::stream(0, &sent(), &got)), (vec![], vec![]));
}

#[test]
fn a_program_that_loses_a_byte_is_caught() {
    let (_, got) = transfer(|got, bytes| {
        let skip = usize::from(got.is_empty());
        got.extend_from_slice(&bytes[skip..]);
    });
    assert_eq!(got.len(), LENGTH - 1);
    assert_eq!(check::stream(3, &sent(), &got), [Violation::StreamDiffers { stream: 3, at: 0 }]);
    // One byte is wrong, missing at the end, or added.
    let mut wrong = sent();
    wrong[777] ^= 1;
    assert_eq!(check::stream(0, &sent(), &wrong), [Violation::StreamDiffers { stream: 0, at: 777 }]);
    let at = LENGTH as u64 - 1;
    assert_eq!(
        check::stream(0, &sent(), &sent()[..LENGTH - 1]),
        [Violation::StreamDiffers { stream: 0, at }]
    );
    let longer = [sent(), vec![0]].concat();
    assert_eq!(check::stream(0, &sent(), &longer), [Violation::StreamDiffers { stream: 0, at: at + 1 }]);
}

/// Receives data as slices. Keeps one of them if `greedy` is set, and closes only if `tidy` is set.
struct Taker {
    greedy: bool,
    tidy: bool,
    done: bool,
    kept: Rc<RefCell<Vec<Slice>>>,
    stream: Option<StreamId>,
    finished: bool,
}

impl Taker {
    fn new(greedy: bool, tidy: bool, done: bool) -> (Box<Taker>, Rc<RefCell<Vec<Slice>>>) {
        let kept = Rc::new(RefCell::new(Vec::new()));
        (Box::new(Taker { greedy, tidy, done, kept: kept.clone(), stream: None, finished: false }), kept)
    }
}

impl Program for Taker {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.listen(Pair::socket(1, 80)).unwrap();
    }
    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Accepted { stream, .. } => self.stream = Some(stream),
            Completion::Readable { stream } => {
                while let Some(slice) = host.take(stream).unwrap() {
                    if self.greedy && self.kept.borrow().is_empty() {
                        self.kept.borrow_mut().push(slice);
                    }
                }
            }
            Completion::PeerFinished { stream } => {
                self.finished = true;
                if self.tidy {
                    host.close(stream).unwrap();
                }
            }
            _ => {}
        }
    }
    fn is_done(&self) -> bool {
        self.done && self.finished
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn take(taker: Box<Taker>) -> (Pair, Vec<Violation>) {
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    pair.world.run_program(pair.boards[1], taker);
    pair.world.run_program(pair.boards[0], sender());
    let violations = run(&mut pair);
    (pair, violations)
}

#[test]
fn a_receiver_that_releases_its_slices_raises_no_alarm() {
    let (taker, _) = Taker::new(false, true, true);
    assert_eq!(take(taker).1, []);
}

#[test]
fn a_leaked_slice_is_caught_until_it_is_released() {
    let (taker, kept) = Taker::new(true, true, true);
    let (mut pair, violations) = take(taker);
    assert_eq!(violations, [Violation::MemoryAway { board: 1, missing: [0, 1, 0] }]);
    kept.borrow_mut().clear();
    assert_eq!(check::check_idle(&mut pair.world, &pair.boards), []);
}

#[test]
fn leaked_pages_and_blocks_are_caught() {
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    let memory = pair.world.board_mut(pair.boards[0]).memory_mut();
    let kept = (memory.transmit.take(), memory.pdus.take(), memory.pdus.take());
    assert_eq!(run(&mut pair), [Violation::MemoryAway { board: 0, missing: [1, 0, 2] }]);
    drop(kept);
    assert_eq!(run(&mut pair), []);
}

#[test]
fn a_program_that_never_finishes_is_caught() {
    let (taker, _) = Taker::new(false, true, false);
    let (pair, violations) = take(taker);
    let [Violation::IdleWhileWorkWaits { since }] = violations[..] else { panic!("{violations:?}") };
    assert!(since <= pair.world.now());
    // A program also counts as unfinished if it cannot finish because all cells are lost.
    let mut pair = Pair::new(&Plan {
        impairment: ImpairmentConfig { loss: 1.0, ..ImpairmentConfig::NONE },
        ..Plan::with_window(48 << 10)
    });
    let (taker, _) = Taker::new(false, true, true);
    pair.world.run_program(pair.boards[1], taker);
    let violations = run(&mut pair);
    assert!(matches!(violations[..], [Violation::IdleWhileWorkWaits { .. }]), "{violations:?}");
}

#[test]
fn a_leaked_session_is_caught() {
    let (taker, _) = Taker::new(false, false, true);
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    pair.world.run_program(pair.boards[1], taker);
    pair.world.run_program(pair.boards[0], sender());
    pair.world.run(Instant::from_nanos(100_000_000_000));
    pair.world.take_programs(pair.boards[0]);
    // The sender has closed its side, but the receiver has not, so both boards keep a half-closed session.
    let violations = check::check_idle(&mut pair.world, &pair.boards);
    let left = |board| Violation::SessionsLeft { board, sessions: 1 };
    assert_eq!(violations, [left(0), left(1)]);
    assert!(pair.world.now().since(Instant::ZERO) < Duration::from_secs(7200));
}
