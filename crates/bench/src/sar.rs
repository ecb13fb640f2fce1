//! AAL5 segmentation and reassembly with every check that the standard requires.
//!
//! Claim     one core processes cells faster than any ATM line of the 1990s requires: 12 Gbit/s of frames,
//!           whereas an OC-12c carries 0.6 Gbit/s.
//! Work      frames of 8240 bytes (paper \[1\]: 8192 bytes of payload behind LLC/SNAP, IP and TCP headers)
//!           are segmented into 172 cells with CRC-32 and header error control, interleaved cell by cell over
//!           the circuits. The cells are then reassembled, with checks of HEC, circuit, Internet checksum,
//!           CRC-32 and length.
//! Counted   bytes of frames per CPU time of one thread. Each byte counts once, for segmentation and
//!           reassembly together.
//! Checked   separately, outside the measurement: every frame of a burst arrives unchanged, with the correct
//!           checksum.

use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    Arrival, Circuit, Interval, OC3C_BITS_PER_SECOND, Reassembly, RxCircuit, Segmentation, Service,
    TimedCell, TxCircuit,
};
use kiban_base::{Context, Copies, Instant, Memory, PagePool, Pdu, PduPool, RngKey, SecureRng, Slice, Sum};
use kiban_lab::{Bench, Options, Target, Trial, Unit};

const HEAD_BYTES: usize = 48;
const FRAME_BYTES: usize = 8240;
const PAGE_BYTES: usize = 4096;
/// Frames of one burst, over all circuits.
const BURST: usize = 60;

/// A sending and a receiving port, and memory for both.
struct Ports {
    memory: Memory,
    rng: SecureRng,
    copies: Copies,
    down: Segmentation,
    up: Reassembly,
    circuits: usize,
    now: Instant,
    /// The content of a frame. The same pages are sent repeatedly, as they would be if TCP retransmitted
    /// them.
    content: Vec<Slice>,
    train: Vec<TimedCell>,
    arrivals: Vec<Arrival>,
}

impl Ports {
    #[expect(clippy::disallowed_methods, reason = "the ports are in memory and behave the same in each run")]
    fn new(circuits: usize) -> Ports {
        let mut memory = Memory {
            transmit: PagePool::new(4, PAGE_BYTES),
            receive: PagePool::new(4 * BURST, PAGE_BYTES),
            pdus: PduPool::new(4 * BURST),
        };
        let mut down = Segmentation::new(Interval::of_line(OC3C_BITS_PER_SECOND), Interface::Uni);
        let mut up = Reassembly::new(Interface::Uni);
        for number in 0..circuits {
            let (circuit, vc) = (Circuit(number as u32), Vc::new(0, 100 + number as u16));
            down.open(
                circuit,
                TxCircuit {
                    vc,
                    frames_max: BURST,
                    low_priority: false,
                    contract: None,
                    service: Service::default(),
                },
            );
            up.open(circuit, RxCircuit::classical_ip(vc));
        }
        let bytes = crate::noise::noise(1, FRAME_BYTES - HEAD_BYTES);
        let content = bytes
            .chunks(PAGE_BYTES)
            .map(|part| memory.transmit.take().and_then(|mut page| page.append(part)).expect("a page"))
            .collect();
        Ports {
            memory,
            rng: SecureRng::new(RngKey::for_simulation(1)),
            copies: Copies::default(),
            down,
            up,
            circuits,
            now: Instant::ZERO,
            content,
            train: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// Sends a burst through both ports; `arrivals` receives the reassembled frames.
    fn burst(&mut self) {
        self.segment();
        self.reassemble();
    }

    fn segment(&mut self) {
        let Ports { memory, copies, down, circuits, now, content, train, .. } = self;
        for number in 0..BURST {
            let mut pdu: Pdu = memory.pdus.take().expect("a block");
            pdu.push_head(HEAD_BYTES).fill(number as u8);
            content.iter().for_each(|slice| pdu.push_body(slice.clone()).expect("two slices fit"));
            down.send(Circuit((number % *circuits) as u32), pdu, *now).expect("the queue holds a burst");
        }
        // Allow enough time for every cell of the burst.
        *now += std::time::Duration::from_millis(100);
        train.clear();
        down.advance(*now, train, copies);
    }

    fn reassemble(&mut self) {
        let Ports { memory, rng, copies, up, now, train, arrivals, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        up.cells(train, cx, arrivals);
    }

    fn check(&mut self) {
        self.burst();
        let content: Vec<u8> = self.content.iter().flat_map(Slice::bytes).copied().collect();
        assert_eq!((self.train.len(), self.arrivals.len()), (BURST * 172, BURST));
        let mut heads = vec![0; BURST];
        for arrival in self.arrivals.drain(..) {
            let Arrival::Frame { pdu, .. } = arrival else { panic!("only frames were sent") };
            let bytes: Vec<u8> = pdu.runs().flatten().copied().collect();
            heads[usize::from(bytes[0])] += 1;
            assert!(
                bytes[..HEAD_BYTES].iter().all(|byte| *byte == bytes[0]) && bytes[HEAD_BYTES..] == content
            );
            assert_eq!(pdu.sum(), Sum::of(&bytes));
        }
        assert!(heads.iter().all(|count| *count == 1), "each frame comes once");
        if self.circuits > 1 {
            let changes = self.train.windows(2).filter(|pair| pair[0].header != pair[1].header).count();
            assert!(changes > self.train.len() * 9 / 10, "cells of the circuits alternate");
        }
    }
}

/// Returns the time to reassemble a cell of frames of 8240 bytes, in nanoseconds.
pub(crate) fn reassembly_nanos(trial: &Trial) -> f64 {
    let mut ports = Ports::new(1);
    let clock = trial.clock();
    let (mut nanos, mut cells) = (0, 0);
    while nanos < trial.span_nanos() / 4 {
        ports.segment();
        let from = clock.now();
        ports.reassemble();
        nanos += clock.now().since(from).as_nanos() as u64;
        cells += ports.train.len();
        ports.arrivals.clear();
    }
    nanos as f64 / cells as f64
}

fn sample(trial: &mut Trial, circuits: usize) -> f64 {
    let mut ports = Ports::new(circuits);
    ports.check();
    let span = trial.measure(|| {
        ports.burst();
        assert_eq!(ports.arrivals.len(), BURST);
        ports.arrivals.clear();
        (BURST * FRAME_BYTES) as f64
    });
    span.gbit_per_cpu_second()
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("sar", options.clone());
    for circuits in [1, 60] {
        let plural = if circuits == 1 { "circuit" } else { "circuits, cells interleaved" };
        bench.single(
            &format!("frames of 8240 bytes, {circuits} {plural}"),
            Unit::GbitPerSecond,
            ("segmented and reassembled, per core", |trial: &mut Trial| sample(trial, circuits)),
            Target::at_least(12.0),
        );
    }
    bench.finish();
}
