//! Ablation of the five mechanisms of paper \[1\]: with the cost model of 1995, and measured on this machine.
//!
//! Modelled  throughput and CPU time per PDU of each board, exact in virtual time.
//! Measured  CPU time per PDU of 8192 bytes, of both boards and their hosts, measured alternately with and
//!           without the mechanism ([`crate::Bench`]). [`Measured::what`] describes kiban's counterpart of
//!           the mechanism, whose effect may differ from that of 1995.

use super::atm_board::config_1995;
use super::flow::{Interval, measure};
use super::paired::Paired;
use crate::table::Table;
use crate::{Bench, Options, Target, Trial, Unit};
use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    Arrival, Circuit, Interval as CellTime, OC3C_BITS_PER_SECOND, Reassembly, RxCircuit, Segmentation,
    Service, TimedCell, TxCircuit,
};
use kiban_base::{Context, Copies, Instant, Memory, Page, PagePool, Pdu, PduPool, RngKey, SecureRng};
use kiban_board::{Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig};
use kiban_sim::cost::{BOARD_1995, CostModel, Mechanism, Mechanisms};
use kiban_tcpip::tcp;
use serde::Serialize;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Payload of a PDU, bytes.
const PAYLOAD_BYTES: usize = 8192;
/// The windows in KB and the numbers of sessions for which the modelled comparison is made: the best point of
/// figure 6, and a point with many sessions and one acknowledgement per PDU.
const PLACES: [(u32, usize); 2] = [(256, 1), (16, 20)];

/// The modelled result of one board configuration.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Window, KB.
    pub window_kib: u32,
    /// Sessions.
    pub sessions: usize,
    /// Goodput of all sessions.
    pub mbps: f64,
    /// CPU time per PDU of the sending and of the receiving board, microseconds.
    pub cpu_us_per_pdu: [f64; 2],
}

/// A mechanism under the cost model.
#[derive(Clone, Debug, Serialize)]
pub struct Modelled {
    /// The mechanism that was removed; `None` for the complete board of the paper.
    pub without: Option<&'static str>,
    /// The results at each window and number of sessions.
    pub points: Vec<Point>,
}

/// Runs the board of the paper, then the board without each of `mechanisms`.
pub fn modelled(mechanisms: &[Mechanism], interval: Interval) -> Vec<Modelled> {
    let whole = std::iter::once((None, BOARD_1995));
    let less = mechanisms.iter().map(|mechanism| {
        let model = CostModel { mechanisms: Mechanisms::without(*mechanism), ..BOARD_1995 };
        (Some(mechanism.name()), model)
    });
    let points = |model: CostModel| {
        PLACES.map(|(window_kib, sessions)| {
            let flow = measure(&model.plan(&config_1995(), window_kib << 10), sessions, interval);
            // Bits divided by Mbit/s are microseconds.
            let each = 8.0 * PAYLOAD_BYTES as f64 / flow.mbps;
            Point { window_kib, sessions, mbps: flow.mbps, cpu_us_per_pdu: flow.busy.map(|busy| busy * each) }
        })
    };
    whole.chain(less).map(|(without, model)| Modelled { without, points: points(model).to_vec() }).collect()
}

/// Returns the modelled comparison as a text table.
pub fn modelled_table(rows: &[Modelled]) -> Table {
    let mut table = Table::new("throughput lost without each mechanism, cost model of 1995")
        .text_column("window x sessions")
        .text_column("without")
        .number_column("Mbit/s")
        .number_column("% lost")
        .number_column("us/PDU sending")
        .number_column("receiving");
    // The board of the paper comes first.
    let Some(whole) = rows.first() else { return table };
    for (place, whole) in whole.points.iter().enumerate() {
        for row in rows {
            let Point { window_kib, sessions, mbps, cpu_us_per_pdu: [sending, receiving] } =
                row.points[place];
            let lost = row.without.map(|_| format!("{:.1}", (1.0 - mbps / whole.mbps) * 100.0));
            table.row([
                format!("{window_kib} KB x {sessions}"),
                row.without.unwrap_or("(nothing)").to_owned(),
                format!("{mbps:.1}"),
                lost.unwrap_or_default(),
                format!("{sending:.0}"),
                format!("{receiving:.0}"),
            ]);
        }
    }
    table
}

/// A mechanism as measured on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The name of the mechanism.
    pub mechanism: &'static str,
    /// The two variants that are compared here: with and without the mechanism.
    pub what: &'static str,
    /// The CPU times per PDU.
    #[serde(flatten)]
    pub times: Paired,
}

/// Measures each of `mechanisms`, alternately with and without it.
pub fn measured(mechanisms: &[Mechanism], options: Options) -> Vec<Measured> {
    let mut bench = Bench::new("mechanisms", options);
    mechanisms.iter().map(|mechanism| pair(&mut bench, *mechanism)).collect()
}

/// Returns the measured comparison as a text table.
pub fn measured_table(rows: &[Measured]) -> Table {
    let mut table = Table::new("measured on this machine: CPU time per PDU of 8192 bytes, ns")
        .text_column("mechanism")
        .text_column("with / without")
        .number_column("with")
        .number_column("without")
        .number_column("ratio");
    for row in rows {
        let mark = row.times.mark(&mut table);
        let [with, without, ratio] = row.times.cells();
        table.row([row.mechanism.to_owned(), format!("{}{mark}", row.what), with, without, ratio]);
    }
    table
}

fn pair(bench: &mut Bench, mechanism: Mechanism) -> Measured {
    let whole = PathOptions { window_bytes: 256 << 10, bursts: true, believes: true, refers: true };
    let boards = |options: PathOptions| move |trial: &mut Trial| Joined::new(options).sample(trial);
    let cells = |whole_trains: bool| move |trial: &mut Trial| Ports::new().sample(trial, whole_trains);
    let mut compare = |without: PathOptions| {
        let sides = (("without", boards(without)), ("with", boards(whole)));
        Paired::of(bench.compare(mechanism.name(), Unit::Nanoseconds, sides.0, sides.1, Target::None))
    };
    let (what, times) = match mechanism {
        Mechanism::Separation => (
            "a PDU references its payload / payload is copied when a PDU is divided",
            compare(PathOptions { refers: false, ..whole }),
        ),
        Mechanism::Sum => (
            "checksum computed while the host's bytes are copied / payload read and summed again on arrival",
            compare(PathOptions { believes: false, ..whole }),
        ),
        Mechanism::Scaling => (
            "window of 256 KB / of 56 KB, without scaling",
            compare(PathOptions { window_bytes: 56 << 10, ..whole }),
        ),
        Mechanism::Deferral => (
            "one settle call per batch of arrivals / one per packet",
            compare(PathOptions { bursts: false, ..whole }),
        ),
        Mechanism::Chaining => (
            "cells in trains / cell by cell; segmentation and reassembly only",
            Paired::of(bench.compare(
                mechanism.name(),
                Unit::Nanoseconds,
                ("without", cells(false)),
                ("with", cells(true)),
                Target::None,
            )),
        ),
    };
    Measured { mechanism: mechanism.name(), what, times }
}

/// The options of the connection between two boards.
#[derive(Clone, Copy)]
struct PathOptions {
    window_bytes: u32,
    /// Whether all waiting packets are passed to the board in one batch, followed by one call of `settle`.
    bursts: bool,
    /// Whether checksums that packets carry are trusted.
    believes: bool,
    /// Whether packets share their payload pages; otherwise the payload is copied.
    refers: bool,
}

/// Two boards whose IP ports are connected, and a host that writes endlessly.
struct Joined {
    boards: [Board; 2],
    wires: [VecDeque<Pdu>; 2],
    options: PathOptions,
    copies: PagePool,
    bytes: Vec<u8>,
    received: usize,
    now: Instant,
}

impl Joined {
    #[expect(
        clippy::disallowed_methods,
        reason = "it measures only the board, which does the same work in each run"
    )]
    fn new(options: PathOptions) -> Joined {
        let mut boards = [0, 1]
            .map(|side| Board::new(&Joined::config(side, options), RngKey::for_simulation(side as u64)));
        let server = SocketAddr::new(Joined::address(1), 80);
        boards[1].host().listen(server).expect("the port is free");
        boards[0].host().open(server).expect("there is a route");
        Joined {
            boards,
            wires: Default::default(),
            options,
            copies: PagePool::new(256, PAYLOAD_BYTES),
            bytes: vec![0x5a; PAYLOAD_BYTES],
            received: 0,
            now: Instant::ZERO,
        }
    }

    fn address(side: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, 1 + side as u8])
    }

    fn config(side: usize, options: PathOptions) -> BoardConfig {
        let port = IpPortConfig {
            address: Joined::address(side),
            prefix: "10.0.0.0/24".parse().expect("a prefix"),
            mtu_bytes: 9180,
            packets_max: 256,
            cuts: false,
            merges: false,
            believe_sums: options.believes,
        };
        BoardConfig {
            memory: MemoryConfig { page_bytes: PAYLOAD_BYTES, ..MemoryConfig::default() },
            tcp: tcp::Config {
                mss: PAYLOAD_BYTES as u16,
                segment_bytes_max: PAYLOAD_BYTES as u32,
                receive_buffer_bytes: options.window_bytes,
                send_buffer_bytes: options.window_bytes,
                ..tcp::Config::default()
            },
            ports: vec![PortConfig::Ip(port)],
            ..BoardConfig::default()
        }
    }

    /// Passes waiting packets to a board and collects its output.
    fn work(&mut self, side: usize) {
        self.now += Duration::from_micros(1);
        if self.options.bursts || self.wires[1 - side].is_empty() {
            let mut packets = std::mem::take(&mut self.wires[1 - side]);
            self.hand_over(side, &mut packets);
            // Reuse the list, which is empty now.
            self.wires[1 - side] = packets;
        } else {
            let mut single = VecDeque::with_capacity(1);
            for _ in 0..self.wires[1 - side].len() {
                single.extend(self.wires[1 - side].pop_front());
                self.hand_over(side, &mut single);
            }
        }
    }

    fn hand_over(&mut self, side: usize, packets: &mut VecDeque<Pdu>) {
        if !self.options.refers {
            packets.iter_mut().for_each(|pdu| copy_body(pdu, &mut self.copies));
        }
        let Joined { boards, wires, bytes, received, now, .. } = self;
        let board = &mut boards[side];
        board.handle(Input::Packets { port: 0, packets }, *now);
        loop {
            match board.poll() {
                Output::Transmit { pdu, .. } => wires[side].push_back(pdu),
                Output::Completions => {
                    let mut host = board.host();
                    while let Some(completion) = host.completion() {
                        match completion {
                            Completion::Opened { stream } | Completion::Writable { stream } => {
                                while host.write(stream, bytes) == Ok(bytes.len()) {}
                            }
                            Completion::Readable { stream } => {
                                while let Ok(Some(slice)) = host.take(stream) {
                                    *received += slice.len();
                                }
                            }
                            _ => {}
                        }
                    }
                }
                Output::Idle { .. } => return,
            }
        }
    }

    fn sample(&mut self, trial: &mut Trial) -> f64 {
        let span = trial.measure(|| {
            let before = self.received;
            for _ in 0..64 {
                self.work(0);
                self.work(1);
            }
            (self.received - before) as f64 / PAYLOAD_BYTES as f64
        });
        let again: u64 = self.boards.iter().map(|board| board.counter("tcp", "retransmits")).sum();
        assert_eq!(again, 0, "nothing is lost between the boards");
        span.cpu_nanos_each()
    }
}

/// Replaces the shared payload pages of a PDU with copies.
fn copy_body(pdu: &mut Pdu, pool: &mut PagePool) {
    if pdu.body_len() == 0 {
        return;
    }
    let mut page: Page = pool.take().expect("a window limits the pages in use");
    let slices: Vec<_> =
        pdu.drain_body().map(|slice| page.append(slice.bytes()).expect("a page holds a payload")).collect();
    for slice in slices {
        pdu.push_body(slice).expect("there are no more slices than before");
    }
}

/// A sending and a receiving ATM port.
struct Ports {
    memory: Memory,
    rng: SecureRng,
    down: Segmentation,
    up: Reassembly,
    train: Vec<TimedCell>,
    arrivals: Vec<Arrival>,
    bytes: Vec<u8>,
    now: Instant,
}

/// PDUs per batch of cells.
const TRAIN_PDUS: usize = 16;

impl Ports {
    #[expect(
        clippy::disallowed_methods,
        reason = "it measures only the board, which does the same work in each run"
    )]
    fn new() -> Ports {
        let (circuit, vc) = (Circuit(0), Vc::new(0, 100));
        let mut down = Segmentation::new(CellTime::of_line(OC3C_BITS_PER_SECOND), Interface::Uni);
        let mut up = Reassembly::new(Interface::Uni);
        down.open(
            circuit,
            TxCircuit {
                vc,
                frames_max: TRAIN_PDUS,
                low_priority: false,
                contract: None,
                service: Service::default(),
            },
        );
        up.open(circuit, RxCircuit::classical_ip(vc));
        Ports {
            memory: Memory {
                transmit: PagePool::new(2 * TRAIN_PDUS, PAYLOAD_BYTES),
                receive: PagePool::new(8 * TRAIN_PDUS, PAYLOAD_BYTES),
                pdus: PduPool::new(4 * TRAIN_PDUS),
            },
            rng: SecureRng::new(RngKey::for_simulation(1)),
            down,
            up,
            train: Vec::new(),
            arrivals: Vec::new(),
            bytes: vec![0x5a; PAYLOAD_BYTES],
            now: Instant::ZERO,
        }
    }

    fn burst(&mut self, whole_trains: bool) {
        let Ports { memory, rng, down, up, train, arrivals, bytes, now } = self;
        for _ in 0..TRAIN_PDUS {
            let mut pdu = memory.pdus.take().expect("a block");
            pdu.push_head(48).fill(1);
            let slice = memory.transmit.take().and_then(|mut page| page.append(bytes)).expect("a page");
            pdu.push_body(slice).expect("one slice fits");
            down.send(Circuit(0), pdu, *now).expect("the queue holds a train");
        }
        *now += Duration::from_millis(100);
        train.clear();
        let mut copies = Copies::default();
        down.advance(*now, train, &mut copies);
        let cx = &mut Context { now: *now, memory, rng, copies: &mut copies };
        let step = if whole_trains { train.len() } else { 1 };
        train.chunks(step).for_each(|cells| up.cells(cells, cx, arrivals));
    }

    fn sample(&mut self, trial: &mut Trial, whole_trains: bool) -> f64 {
        let span = trial.measure(|| {
            self.burst(whole_trains);
            assert_eq!(self.arrivals.len(), TRAIN_PDUS, "every PDU arrives");
            self.arrivals.clear();
            TRAIN_PDUS as f64
        });
        span.cpu_nanos_each()
    }
}
