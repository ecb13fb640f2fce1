//! Two boards joined by a cable without delay, in virtual time; also boards on ATM lines and hand-made
//! packets.
#![allow(dead_code)]

pub(crate) mod hub;
pub(crate) mod lines;
pub(crate) mod packets;

use kiban_base::{Instant, Pdu, RngKey};
use kiban_board::{Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

pub(crate) struct Pair {
    pub(crate) boards: [Board; 2],
    pub(crate) completions: [Vec<Completion>; 2],
    pub(crate) now: Instant,
    wires: [VecDeque<Pdu>; 2],
    /// The number of packets that each side has sent, and the length of the longest one.
    pub(crate) packets: [u64; 2],
    pub(crate) longest: usize,
    /// The cable loses every n-th packet, or flips a bit in the packet's header.
    pub(crate) lose_every: Option<u64>,
    pub(crate) damage_every: Option<u64>,
}

pub(crate) fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

pub(crate) fn socket(side: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(side), port)
}

pub(crate) fn config(side: usize) -> BoardConfig {
    let port = IpPortConfig {
        address: address(side),
        prefix: "10.0.0.0/24".parse().unwrap(),
        mtu_bytes: 1500,
        packets_max: 64,
        cuts: false,
        merges: false,
        believe_sums: false,
    };
    let memory =
        MemoryConfig { page_bytes: 4096, transmit_bytes: 1 << 20, receive_bytes: 1 << 20, pdus: 512 };
    BoardConfig { memory, ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() }
}

/// Returns a board with the test's configuration, which is identical in each run.
pub(crate) fn board(side: usize, config: &BoardConfig) -> Board {
    Board::new(config, RngKey::for_simulation(side as u64))
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::of([config(0), config(1)])
    }

    pub(crate) fn of(configs: [BoardConfig; 2]) -> Pair {
        Pair {
            boards: [0, 1].map(|side| board(side, &configs[side])),
            completions: [Vec::new(), Vec::new()],
            now: Instant::ZERO,
            wires: [VecDeque::new(), VecDeque::new()],
            packets: [0; 2],
            longest: 0,
            lose_every: None,
            damage_every: None,
        }
    }

    /// Delivers packets and collects completions until neither board has anything to send.
    pub(crate) fn run(&mut self) {
        loop {
            let mut busy = false;
            for side in 0..2 {
                let board = &mut self.boards[side];
                let arrived = &mut self.wires[1 - side];
                busy |= !arrived.is_empty();
                board.handle(Input::Packets { port: 0, packets: arrived }, self.now);
                loop {
                    match board.poll() {
                        Output::Transmit { mut pdu, .. } => {
                            busy = true;
                            self.packets[side] += 1;
                            self.longest = self.longest.max(pdu.len());
                            let is = |every: Option<u64>| {
                                every.is_some_and(|n| self.packets[side].is_multiple_of(n))
                            };
                            if is(self.damage_every) {
                                let at = pdu.head().len() - 1;
                                pdu.head_mut()[at] ^= 1;
                            }
                            if !is(self.lose_every) {
                                self.wires[side].push_back(pdu);
                            }
                        }
                        Output::Completions => {
                            let mut host = board.host();
                            while let Some(completion) = host.completion() {
                                self.completions[side].push(completion);
                            }
                        }
                        Output::Idle { .. } => break,
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// Runs until `until`. When both boards are idle, advances the time to the next deadline.
    pub(crate) fn run_until(&mut self, until: Instant) {
        loop {
            self.run();
            let next = self
                .boards
                .iter_mut()
                .map(|board| match board.poll() {
                    Output::Idle { deadline } => deadline,
                    other => panic!("a quiet board is idle, not {other:?}"),
                })
                .min()
                .unwrap();
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            for board in &mut self.boards {
                board.handle(Input::Timeout, self.now);
            }
        }
    }

    /// Takes the completions of one side.
    pub(crate) fn completions(&mut self, side: usize) -> Vec<Completion> {
        std::mem::take(&mut self.completions[side])
    }
}
