//! Two boards with ATM ports, joined by two lines without delay, in steps of virtual time. An attacker
//! inserts cells into either line, between the boards' cells.

use super::packets::noise;
use super::{address, socket};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::Vc;
use kiban_base::{Instant, SimRng};
use kiban_board::{
    AtmPortConfig, Board, BoardConfig, CircuitConfig, Completion, Input, MemoryConfig, Output, PortConfig,
    StreamId,
};
use std::net::IpAddr;
use std::time::Duration;

/// The circuit between the boards.
pub(crate) const GOOD: Vc = Vc::new(0, 100);
/// The circuit from each board to the attacker.
pub(crate) const BAD: Vc = Vc::new(0, 101);
/// Length of a step: 35 slots of an OC-3c.
const STEP: Duration = Duration::from_micros(100);

/// Returns the attacker's address.
pub(crate) fn attacker() -> IpAddr {
    IpAddr::from([10, 0, 0, 66])
}

pub(crate) fn config(side: usize) -> BoardConfig {
    let mut port = AtmPortConfig::oc3c(address(side), "10.0.0.0/24".parse().unwrap());
    port.circuits.push(CircuitConfig::to(GOOD, address(1 - side)));
    port.circuits.push(CircuitConfig::to(BAD, attacker()));
    let memory =
        MemoryConfig { page_bytes: 4096, transmit_bytes: 1 << 20, receive_bytes: 1 << 20, pdus: 512 };
    let mut config = BoardConfig {
        memory,
        ports: vec![PortConfig::Atm(port)],
        datagrams_max: 16,
        ..BoardConfig::default()
    };
    config.tcp.mss = 8192;
    config.tcp.segment_bytes_max = 8192;
    // Without options, the payload of a segment is exactly the MSS.
    config.tcp.timestamps = false;
    config.tcp.receive_buffer_bytes = 128 << 10;
    config
}

/// Returns the ATM port of a configuration.
pub(crate) fn port_of(config: &mut BoardConfig) -> &mut AtmPortConfig {
    let PortConfig::Atm(port) = &mut config.ports[0] else { panic!("an ATM port") };
    port
}

pub(crate) struct Lines {
    pub(crate) boards: [Board; 2],
    pub(crate) completions: [Vec<Completion>; 2],
    pub(crate) now: Instant,
    /// The cells that the attacker sends to each side in the next step.
    pub(crate) hostile: [Vec<TimedCell>; 2],
    /// The cells that each side has sent to the attacker.
    pub(crate) answers: [Vec<TimedCell>; 2],
    /// All cells that each side has sent, if the test records them.
    pub(crate) tap: Option<[Vec<TimedCell>; 2]>,
    /// The deadline that each board returned when it was last idle.
    deadlines: [Instant; 2],
    rng: SimRng,
}

impl Lines {
    pub(crate) fn new() -> Lines {
        Lines::of([config(0), config(1)])
    }

    pub(crate) fn of(configs: [BoardConfig; 2]) -> Lines {
        Lines {
            boards: [0, 1].map(|side| super::board(side, &configs[side])),
            completions: Default::default(),
            now: Instant::ZERO,
            hostile: Default::default(),
            answers: Default::default(),
            tap: None,
            deadlines: [Instant::ZERO; 2],
            rng: SimRng::from_seed(11),
        }
    }

    pub(crate) fn inject(&mut self, side: usize, cells: &[TimedCell]) {
        self.hostile[side].extend_from_slice(cells);
    }

    /// Advances the time by `length`. Cells sent during this step, and those that the attacker inserted,
    /// arrive at its end.
    pub(crate) fn step(&mut self, length: Duration) {
        self.now += length;
        let mut trains: [Vec<TimedCell>; 2] = Default::default();
        let rooms = [0, 1].map(|side: usize| self.boards[side].next_room(0));
        for side in 0..2 {
            let mut sent = Vec::new();
            self.boards[side].cells(0, self.now, &mut sent);
            if let Some(tap) = &mut self.tap {
                tap[side].extend_from_slice(&sent);
            }
            let is_bad = |cell: &TimedCell| cell.header >> 4 == u32::from(BAD.vci);
            self.answers[side].extend(sent.iter().copied().filter(is_bad));
            sent.retain(|cell| !is_bad(cell));
            trains[1 - side] = self.riffle(sent, 1 - side);
        }
        for (side, train) in trains.iter().enumerate() {
            // Call a board only when cells have arrived or its deadline has passed.
            if !train.is_empty() {
                self.boards[side].handle(Input::Cells { port: 0, cells: train }, self.now);
            } else if rooms[side] <= self.now {
                self.boards[side].handle(Input::Room, self.now);
            } else if self.deadlines[side] <= self.now {
                self.boards[side].handle(Input::Timeout, self.now);
            }
            self.drain(side);
        }
    }

    /// Mixes the attacker's cells into the board's cells at random.
    fn riffle(&mut self, sent: Vec<TimedCell>, side: usize) -> Vec<TimedCell> {
        let hostile = std::mem::take(&mut self.hostile[side]);
        let (mut sent, mut hostile) = (sent.into_iter().peekable(), hostile.into_iter().peekable());
        let mut train = Vec::with_capacity(sent.len() + hostile.len());
        while sent.peek().is_some() || hostile.peek().is_some() {
            let left = (sent.len() + hostile.len()) as u64;
            let next = if self.rng.below(left) < sent.len() as u64 { sent.next() } else { hostile.next() };
            train.push(TimedCell { at: self.now, ..next.expect("drawn by what is left") });
        }
        train
    }

    /// Polls a board until it is idle, and returns its deadline.
    pub(crate) fn drain(&mut self, side: usize) -> Instant {
        let board = &mut self.boards[side];
        for _turn in 0..100_000 {
            match board.poll() {
                Output::Completions => {
                    let mut host = board.host();
                    while let Some(completion) = host.completion() {
                        self.completions[side].push(completion);
                    }
                }
                Output::Idle { deadline } => {
                    self.deadlines[side] = deadline;
                    return deadline;
                }
                Output::Transmit { .. } => panic!("there is no port for packets"),
            }
        }
        panic!("board {side} does not come to rest");
    }

    /// Advances the time from event to event.
    pub(crate) fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        while self.now < until {
            let mut next = until;
            for side in 0..2 {
                let board = &mut self.boards[side];
                next = next.min(board.next_cell_end(0)).min(board.next_room(0));
                next = next.min(self.drain(side));
            }
            self.step(next.since(self.now).max(Duration::from_nanos(1)));
        }
    }

    pub(crate) fn completions(&mut self, side: usize) -> Vec<Completion> {
        std::mem::take(&mut self.completions[side])
    }

    /// Opens a stream from one side to the other.
    pub(crate) fn open(&mut self, from: usize, port: u16) -> (StreamId, StreamId) {
        let to = 1 - from;
        self.boards[to].host().listen(socket(to, port)).expect("a port that is free");
        let near = self.boards[from].host().open(socket(to, port)).expect("a stream");
        let mut far = None;
        for _ in 0..100_000 {
            self.step(STEP);
            for completion in self.completions(to) {
                if let Completion::Accepted { stream, .. } = completion {
                    far = Some(stream);
                }
            }
            if let Some(far) = far
                && self.completions(from).contains(&Completion::Opened { stream: near })
            {
                return (near, far);
            }
        }
        panic!("the stream does not open");
    }

    /// Closes a stream from both sides and waits until all is idle; then checks that memory is free and no
    /// session is left.
    pub(crate) fn close_and_check(&mut self, streams: [StreamId; 2]) {
        for (side, stream) in streams.into_iter().enumerate() {
            self.boards[side].host().close(stream).expect("a stream that is open");
        }
        self.pass(Duration::from_secs(200));
        self.check_home();
    }

    pub(crate) fn check_home(&mut self) {
        for (side, board) in self.boards.iter_mut().enumerate() {
            assert_eq!(board.sessions(), 0, "sessions of board {side}");
            let memory = board.memory_mut();
            let away = [
                memory.transmit.capacity() - memory.transmit.available(),
                memory.receive.capacity() - memory.receive.available(),
                memory.pdus.capacity() - memory.pdus.available(),
            ];
            assert_eq!(away, [0; 3], "pages and blocks of board {side}");
        }
    }

    /// Transfers `bytes` over a stream, calls `attack` in every step, and checks that the bytes arrive
    /// unchanged.
    pub(crate) fn carry(
        &mut self,
        from: (usize, StreamId),
        to: StreamId,
        bytes: &[u8],
        mut attack: impl FnMut(&mut Lines, u64),
    ) {
        let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 64 << 10]);
        for round in 0..1_000_000 {
            if got.len() == bytes.len() {
                break;
            }
            sent += self.boards[from.0].host().write(from.1, &bytes[sent..]).expect("the stream lives");
            self.drain(from.0);
            attack(self, round);
            self.step(STEP);
            loop {
                let count = self.boards[1 - from.0].host().read(to, &mut buffer).expect("the stream lives");
                if count == 0 {
                    break;
                }
                got.extend_from_slice(&buffer[..count]);
            }
            self.drain(1 - from.0);
        }
        assert_eq!(got.len(), bytes.len(), "everything arrives");
        assert!(got == bytes, "and as it was sent");
    }

    /// Transfers a stream of `length` bytes from board 0 to board 1 and calls `attack` in every step; then
    /// waits until everything is idle.
    pub(crate) fn under_attack(
        configs: [BoardConfig; 2],
        length: usize,
        attack: impl FnMut(&mut Lines, u64),
    ) -> Lines {
        let mut lines = Lines::of(configs);
        let (near, far) = lines.open(0, 80);
        lines.carry((0, near), far, &noise(length as u64, length), attack);
        // No timer discards a frame that the attacker has left unfinished, so finish it here.
        (0..2).for_each(|side| lines.inject(side, &[super::packets::cell(BAD, true, &[0; 48])]));
        lines.close_and_check([near, far]);
        lines
    }

    /// Returns a counter of board 1, the target of the attacks.
    pub(crate) fn count(&self, family: &str, name: &str) -> u64 {
        self.boards[1].counter(family, name)
    }
}
