//! Code shared by the ATM tests: memory, frames, simple models.
#![allow(dead_code, unreachable_pub)]

use kiban_atm::wire::atm::{Interface, Vc};
use kiban_atm::{
    Arrival, Circuit, Interval, Reassembly, RxCircuit, Segmentation, Service, TimedCell, TxCircuit,
};
use kiban_base::{Context, Copies, Instant, Memory, PagePool, Pdu, PduPool, RngKey, SecureRng, SimRng, Sum};
use std::time::Duration;

/// A cell takes 2.5 microseconds, so a line has round slot times.
pub const LINE: Interval = Interval::every(Duration::from_nanos(2500));
pub const LATER: Instant = Instant::from_nanos(u64::MAX / 4);

pub struct Bench {
    pub memory: Memory,
    pub rng: SecureRng,
    pub copies: Copies,
}

impl Bench {
    pub fn new(page_bytes: usize) -> Bench {
        let pages = (4 << 20) / page_bytes;
        let memory = Memory {
            transmit: PagePool::new(512, 65536),
            receive: PagePool::new(pages.min(4096), page_bytes),
            pdus: PduPool::new(512),
        };
        Bench { memory, rng: SecureRng::new(RngKey::for_simulation(7)), copies: Copies::default() }
    }

    pub fn cx(&mut self) -> Context<'_> {
        Context { now: Instant::ZERO, memory: &mut self.memory, rng: &mut self.rng, copies: &mut self.copies }
    }

    /// Builds a PDU of `bytes`. The first `head` bytes are in its head; the rest is in slices whose lengths
    /// are `lengths`, repeated.
    pub fn pdu(&mut self, bytes: &[u8], head: usize, lengths: &[usize]) -> Pdu {
        let mut pdu = self.memory.pdus.take().expect("a block");
        let (front, mut rest) = bytes.split_at(head.min(bytes.len()));
        pdu.push_head(front.len()).copy_from_slice(front);
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            // The last slice takes the remaining bytes.
            let length = if pdu.body().len() + 1 == kiban_base::SLICES_MAX { rest.len() } else { *length };
            let (part, after) = rest.split_at(length.min(rest.len()));
            let mut page = self.memory.transmit.take().expect("a page");
            pdu.push_body(page.append(part).expect("an empty page")).expect("room for a slice");
            rest = after;
        }
        pdu
    }

    pub fn receive(&mut self, up: &mut Reassembly, train: &[TimedCell]) -> Vec<Arrival> {
        let mut out = Vec::new();
        up.cells(train, &mut self.cx(), &mut out);
        out
    }
}

pub fn vc(circuit: u32) -> Vc {
    Vc::new(0, 100 + circuit as u16)
}

pub fn outlet(circuit: u32) -> TxCircuit {
    TxCircuit {
        vc: vc(circuit),
        frames_max: 64,
        low_priority: false,
        contract: None,
        service: Service::default(),
    }
}

/// Creates the transmit and the receive side of a port, with `circuits` circuits open.
pub fn ports(circuits: u32, frame_bytes_max: usize, head_cells: u8) -> (Segmentation, Reassembly) {
    let (mut down, mut up) = (Segmentation::new(LINE, Interface::Uni), Reassembly::new(Interface::Uni));
    for circuit in 0..circuits {
        down.open(Circuit(circuit), outlet(circuit));
        up.open(Circuit(circuit), RxCircuit { vc: vc(circuit), frame_bytes_max, head_cells });
    }
    (down, up)
}

/// Returns bytes that differ by position and by seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut chance = SimRng::from_seed(seed);
    (0..length).map(|_| chance.draw() as u8).collect()
}

pub fn bytes_of(pdu: &Pdu) -> Vec<u8> {
    pdu.runs().flatten().copied().collect()
}

/// Returns the frames among arrivals, and checks that the sums of each match its bytes and that it has no
/// tail.
pub fn frames(arrivals: &[Arrival]) -> Vec<(u32, Vec<u8>)> {
    let frames = arrivals.iter().filter_map(|arrival| match arrival {
        Arrival::Frame { circuit, pdu, .. } => {
            for slice in pdu.body() {
                assert!(same_sum(slice.sum(), Sum::of(slice.bytes())), "a slice knows its sum");
            }
            let bytes = bytes_of(pdu);
            assert!(same_sum(pdu.sum(), Sum::of(&bytes)), "a PDU knows its sum");
            assert!(pdu.tail().is_empty());
            Some((circuit.0, bytes))
        }
        Arrival::Oam { .. } | Arrival::Foreign { .. } => None,
    });
    frames.collect()
}

/// In one's complement, 0 and 0xffff both represent zero.
pub fn same_sum(a: Sum, b: Sum) -> bool {
    a.word() % 0xffff == b.word() % 0xffff
}

/// Returns the start of slot k by definition.
pub fn slot_start(line: Interval, k: u64) -> u64 {
    let (numerator, denominator) = line.ratio();
    (u128::from(k) * u128::from(numerator) / u128::from(denominator)) as u64
}
