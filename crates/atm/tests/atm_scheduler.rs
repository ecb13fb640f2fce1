//! The scheduler compared with a model that checks every slot.

mod atm;

use atm::*;
use kiban_atm::wire::aal5;
use kiban_atm::wire::atm::{Interface, PTI_OAM_SEGMENT};
use kiban_atm::{
    Circuit, Contract, Interval, Meter, OC3C_BITS_PER_SECOND, Segmentation, Sustained, TimedCell, TxCircuit,
};
use kiban_base::Instant;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

/// One circuit of the model. For each queued cell it records whether the cell ends a frame; management cells
/// are kept separately.
#[derive(Clone)]
struct Queue {
    frames: VecDeque<bool>,
    management: usize,
    meter: Option<Meter>,
    /// Whether the circuit is in the ring or waits for a time.
    stands: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.management == 0
    }
}

/// A port that determines at every slot which circuit may send.
#[derive(Clone)]
struct Model {
    line: Interval,
    slot: u64,
    queues: Vec<Queue>,
    ring: VecDeque<usize>,
    /// (time, circuit), in order.
    waiting: Vec<(u64, usize)>,
}

impl Model {
    /// Serves every slot that starts before `until`; returns (circuit, end of slot, whether the cell ends a
    /// frame).
    fn run(&mut self, until: u64, out: &mut Vec<(usize, u64, bool)>, stop_at_end: bool) {
        while slot_start(self.line, self.slot) < until {
            let start = slot_start(self.line, self.slot);
            self.join(start);
            self.slot += 1;
            let Some(circuit) = self.ring.pop_front() else {
                // The ring is empty, so advance slot by slot to the first slot in which a waiting circuit may
                // send.
                if self.waiting.is_empty() {
                    self.slot = self.slot.max(slot_at_or_after(self.line, until));
                }
                continue;
            };
            let next = slot_start(self.line, self.slot);
            let queue = &mut self.queues[circuit];
            if let Some(meter) = &mut queue.meter {
                meter.pass(Instant::from_nanos(start));
            }
            let ends = if queue.management > 0 {
                queue.management -= 1;
                true
            } else {
                queue.frames.pop_front().unwrap()
            };
            out.push((circuit, next, ends));
            queue.stands = false;
            self.enlist(circuit, next);
            if stop_at_end && ends {
                return;
            }
        }
        self.join_before(until);
    }

    fn join(&mut self, start: u64) {
        while self.waiting.first().is_some_and(|(moment, _)| *moment <= start) {
            self.ring.push_back(self.waiting.remove(0).1);
        }
    }

    /// Circuits whose time has come before an input join the ring before that input.
    fn join_before(&mut self, until: u64) {
        while self.waiting.first().is_some_and(|(moment, _)| *moment < until) {
            self.ring.push_back(self.waiting.remove(0).1);
        }
    }

    /// A circuit with cells joins the ring, or waits if it may not send in the slot that starts at `start`.
    fn enlist(&mut self, circuit: usize, start: u64) {
        let queue = &mut self.queues[circuit];
        if queue.stands || queue.is_empty() {
            return;
        }
        queue.stands = true;
        match queue.meter.map(|meter| meter.earliest().as_nanos()) {
            Some(earliest) if earliest > start => {
                self.waiting.push((earliest, circuit));
                self.waiting.sort();
            }
            _ => self.ring.push_back(circuit),
        }
    }

    fn input(&mut self, circuit: usize, now: u64) {
        let slot = self.slot.max(slot_at_or_after(self.line, now));
        if self.ring.is_empty() {
            self.slot = slot;
        }
        self.enlist(circuit, slot_start(self.line, slot));
    }

    /// Returns when the next end of a frame would leave if no more cells came.
    fn next_end(&self) -> Option<u64> {
        let mut future = self.clone();
        let mut out = Vec::new();
        if future.queues.iter().any(|queue| queue.management > 0 || queue.frames.contains(&true)) {
            while !out.last().is_some_and(|(_, _, ends)| *ends) {
                let until = slot_start(self.line, future.slot) + 1_000_000;
                future.run(until, &mut out, true);
            }
        }
        out.last().map(|(_, at, _)| *at)
    }
}

fn slot_at_or_after(line: Interval, moment: u64) -> u64 {
    let (numerator, denominator) = line.ratio();
    (u128::from(moment) * u128::from(denominator)).div_ceil(u128::from(numerator)) as u64
}

#[derive(Clone, Debug)]
enum What {
    Frame(usize),
    Management,
    Look,
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        4 => prop_oneof![1usize..100, 1usize..3000].prop_map(What::Frame),
        1 => Just(What::Management),
        1 => Just(What::Look)
    ]
}

fn contract() -> impl Strategy<Value = Option<Contract>> {
    let sustained = prop::option::of((1u64..5, 1u32..40));
    let some =
        (20_000u64..360_000, 0u64..9000, sustained).prop_map(|(rate, tolerance, sustained)| Contract {
            peak: Interval::per_second(rate),
            tolerance: Duration::from_nanos(tolerance),
            sustained: sustained.map(|(part, burst_cells)| Sustained {
                interval: Interval::per_second(rate / part),
                burst_cells,
            }),
        });
    prop::option::of(some)
}

fn check(line: Interval, contracts: &[Option<Contract>], steps: &[(u32, What, u64)]) {
    let mut bench = Bench::new(4096);
    let mut port = Segmentation::new(line, Interface::Uni);
    let mut model = Model { line, slot: 0, queues: Vec::new(), ring: VecDeque::new(), waiting: Vec::new() };
    for (circuit, contract) in contracts.iter().enumerate() {
        port.open(Circuit(circuit as u32), TxCircuit { contract: *contract, ..outlet(circuit as u32) });
        let meter = contract.map(Meter::new);
        model.queues.push(Queue { frames: VecDeque::new(), management: 0, meter, stands: false });
    }
    let shaped = contracts.iter().any(Option::is_some);
    let (mut train, mut expected, mut now) = (Vec::new(), Vec::new(), 0);
    for (circuit, what, gap) in steps {
        now += gap;
        let (circuit, moment) = (*circuit as usize % contracts.len(), Instant::from_nanos(now));
        port.advance(moment, &mut train, &mut bench.copies);
        model.run(now, &mut expected, false);
        match what {
            What::Frame(length) => {
                let pdu = bench.pdu(&pattern(now, *length), 48, &[4096]);
                if port.send(Circuit(circuit as u32), pdu, moment).is_ok() {
                    let cells = aal5::cells(*length);
                    model.queues[circuit].frames.extend((1..=cells).map(|cell| cell == cells));
                    model.input(circuit, now);
                }
            }
            What::Management => {
                if port.send_management(Circuit(circuit as u32), PTI_OAM_SEGMENT, [0; 48], moment).is_ok() {
                    model.queues[circuit].management += 1;
                    model.input(circuit, now);
                }
            }
            What::Look => {
                let (foretold, truth) =
                    (port.next_end(), model.next_end().map_or(Instant::NEVER, Instant::from_nanos));
                assert!(foretold <= truth, "{foretold:?} is later than {truth:?}");
                assert!(foretold > moment, "who waits for {foretold:?} at {moment:?} does not get on");
                if !shaped {
                    assert_eq!(foretold, truth);
                }
            }
        }
    }
    port.advance(Instant::from_nanos(now + 3_000_000_000), &mut train, &mut bench.copies);
    model.run(now + 3_000_000_000, &mut expected, false);
    let seen =
        |cell: &TimedCell| ((cell.header >> 4) as usize - 100, cell.at.as_nanos(), cell.header >> 1 & 5 != 0);
    let seen: Vec<_> = train.iter().map(seen).collect();
    assert_eq!(seen.len(), expected.len());
    if let Some(at) = seen.iter().zip(&expected).position(|(a, b)| a != b) {
        panic!("cell {at}: {:?}, the model says {:?}", &seen[at], &expected[at]);
    }
    assert_eq!(port.next_end(), Instant::NEVER);
    assert!(bench.memory.is_all_free());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_port_is_exact_to_the_cell(
        circuits in 1usize..6,
        steps in prop::collection::vec((0u32..6, what(), prop_oneof![0u64..3000, 0u64..200_000]), 1..60),
    ) {
        check(Interval::of_line(OC3C_BITS_PER_SECOND), &vec![None; circuits], &steps);
    }

    #[test]
    fn a_shaping_port_is_exact_to_the_cell(
        contracts in prop::collection::vec(contract(), 1..5),
        steps in prop::collection::vec((0u32..6, what(), prop_oneof![0u64..3000, 0u64..200_000]), 1..40),
    ) {
        check(Interval::of_line(OC3C_BITS_PER_SECOND), &contracts, &steps);
    }
}

#[test]
fn a_lone_shaped_circuit_knows_its_end_exactly_when_its_tolerance_is_a_slot() {
    let line = Interval::of_line(OC3C_BITS_PER_SECOND);
    let contract = Contract::peak(Interval::of_line(67_815_000), Duration::from_nanos(2832));
    let mut bench = Bench::new(4096);
    let mut port = Segmentation::new(line, Interface::Uni);
    port.open(Circuit(0), TxCircuit { contract: Some(contract), ..outlet(0) });
    let pdu = bench.pdu(&pattern(1, 8240), 48, &[4096]);
    port.send(Circuit(0), pdu, Instant::ZERO).unwrap();
    let (foretold, mut train) = (port.next_end(), Vec::new());
    port.advance(LATER, &mut train, &mut bench.copies);
    assert_eq!(train.last().map(|cell| cell.at), Some(foretold));
    // The time is 171 cell times of the contract (the paper's 67.815 Mbit/s), plus a slot.
    let pace = 171.0 * 424.0 / 67.815e6 * 1e9;
    assert!((foretold.as_nanos() as f64 - pace).abs() < 2.0 * 2832.0);
}

#[test]
fn sixty_circuits_share_an_oc3c_alike_and_fill_it() {
    let line = Interval::of_line(OC3C_BITS_PER_SECOND);
    let mut bench = Bench::new(4096);
    let mut port = Segmentation::new(line, Interface::Uni);
    let mut sent = 0;
    for circuit in 0..60 {
        port.open(Circuit(circuit), outlet(circuit));
        for seed in 0..2 {
            let pdu = bench.pdu(&pattern(seed, 8240), 48, &[4096]);
            port.send(Circuit(circuit), pdu, Instant::ZERO).unwrap();
            sent += 172;
        }
    }
    let mut train = Vec::new();
    port.advance(LATER, &mut train, &mut bench.copies);
    assert_eq!(train.len(), sent);
    for (slot, cell) in train.iter().enumerate() {
        assert_eq!(((cell.header >> 4) - 100) as usize, slot % 60);
        assert_eq!(cell.at.as_nanos(), slot_start(line, slot as u64 + 1));
    }
}
