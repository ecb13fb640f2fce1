//! The sending edge: generates the cells of the plan's sources, shapes paths, and packs cells into datagrams
//! with a due time.
//!
//! Sources   the same sources as in the virtual network; their cells are generated slightly ahead of time.
//!           The same plan and seed therefore give the same cells.
//! Shape     a shaped path sends its cells no earlier than its contract allows (GCRA), and serves its
//!           circuits in turn; at most `queue_cells` cells wait.
//! Pack      a datagram is full when it has [`CELLS_MAX`](super::wire::CELLS_MAX) cells or reaches the plan's
//!           limit. It waits at most [`PACK`] for more cells. It is due when its last cell is due.

use super::super::plan::{Kind, Plan};
use super::super::traffic::{self, contract, slot_us};
use super::wire::{self, Head, NONCE_OCTETS};
use kiban_atm::wire::atm::{VCI_USER_FIRST, Vc};
use kiban_atm::{Meter, TimedCell};
use kiban_base::Instant;
use kiban_sim::Terminal;
use kiban_sim::traffic::{CellLog, FrameSource, Shared};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// The longest time that a cell waits for other cells to fill its datagram: short compared to the path's
/// delay, and long enough to fill most of a datagram at 10 Mbit/s.
const PACK: Duration = Duration::from_millis(1);

/// A circuit's source, and the number of cells generated so far.
struct Circuit {
    number: u16,
    flow: usize,
    path: usize,
    source: Box<dyn Terminal>,
    ledger: Shared,
    packing: Vec<TimedCell>,
    datagrams: u32,
    cells: u64,
    units: u64,
}

/// A shaped path.
struct Shaper {
    meter: Meter,
    last: Instant,
    /// When the waiting cells leave.
    waiting: VecDeque<Instant>,
}

/// The numbers of cells and units that a flow has sent since the last call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Offered {
    pub(super) cells: u64,
    pub(super) units: u64,
}

/// The sending edge.
pub(super) struct Edge {
    circuits: Vec<Circuit>,
    shapers: Vec<Option<Shaper>>,
    queue_cells: usize,
    cells_max: usize,
    nonce: [u8; NONCE_OCTETS],
    due: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    order: u64,
    offered: Vec<Offered>,
    dropped: u64,
}

impl Edge {
    /// Creates the edge for some of a plan's flows. Circuits are numbered in order, including those of TCP
    /// flows, for which the edge generates no cells.
    pub(super) fn new(plan: &Plan, flows: &[usize], nonce: [u8; NONCE_OCTETS]) -> Edge {
        let all = traffic::circuits(plan);
        let chosen = flows.iter().enumerate().flat_map(|(local, flow)| {
            let circuits = all.iter().enumerate().filter(move |(_, of)| *of == flow);
            circuits.map(move |(circuit, _)| (local, *flow, circuit))
        });
        let circuits = chosen.enumerate().filter_map(|(number, (local, flow, circuit))| {
            let said = &plan.flows[flow];
            if said.kind == Kind::Bulk {
                return None;
            }
            let path = plan.path(said).expect("the plan is valid, and local flows are not chosen");
            let ledger = CellLog::shared();
            let vc = Vc::new(path as u16 + 1, VCI_USER_FIRST + circuit as u16);
            let source = traffic::source(plan, circuit, vc, ledger.clone());
            let (packing, number) = (Vec::new(), number as u16);
            Some(Circuit {
                number,
                flow: local,
                path,
                source,
                ledger,
                packing,
                datagrams: 0,
                cells: 0,
                units: 0,
            })
        });
        let shaper = |pvc: &super::super::plan::Pvc| {
            pvc.shape.then(|| Shaper {
                meter: Meter::new(contract(pvc.mbps, slot_us(plan))),
                last: Instant::ZERO,
                waiting: VecDeque::new(),
            })
        };
        Edge {
            circuits: circuits.collect(),
            shapers: plan.pvcs.iter().map(shaper).collect(),
            queue_cells: plan.network.queue_cells,
            cells_max: plan.network.datagram_cells,
            nonce,
            due: BinaryHeap::new(),
            order: 0,
            offered: vec![Offered::default(); flows.len()],
            dropped: 0,
        }
    }

    /// Generates the cells that sources send before `until`.
    pub(super) fn make(&mut self, until: Instant) {
        let mut cells = Vec::new();
        for (place, circuit) in self.circuits.iter_mut().enumerate() {
            let mut train = Vec::new();
            circuit.source.cells(until, &mut train);
            self.offered[circuit.flow].cells += train.len() as u64;
            if let Some(source) = circuit.source.as_any_mut().downcast_mut::<FrameSource>() {
                self.offered[circuit.flow].units += source.units() - circuit.units;
                circuit.units = source.units();
            }
            // Loss is computed from sequence numbers, so the log of cells is not needed.
            circuit.ledger.borrow_mut().close();
            let _ = circuit.ledger.borrow_mut().take();
            cells.extend(train.into_iter().map(|cell| (place, cell)));
        }
        cells.sort_by_key(|(place, cell)| (cell.at, *place));
        for (place, cell) in cells {
            let Some(cell) = self.shape(self.circuits[place].path, cell) else { continue };
            self.pack(place, cell);
        }
        for place in 0..self.circuits.len() {
            if self.circuits[place].packing.first().is_some_and(|first| first.at + PACK <= until) {
                self.send(place);
            }
        }
    }

    /// Returns a cell with the time at which it leaves the edge; `None` if its path's queue is full.
    fn shape(&mut self, path: usize, mut cell: TimedCell) -> Option<TimedCell> {
        let Some(shaper) = &mut self.shapers[path] else { return Some(cell) };
        while shaper.waiting.front().is_some_and(|leaves| *leaves <= cell.at) {
            shaper.waiting.pop_front();
        }
        if shaper.waiting.len() >= self.queue_cells {
            self.dropped += 1;
            return None;
        }
        cell.at = cell.at.max(shaper.meter.earliest()).max(shaper.last);
        shaper.meter.pass(cell.at);
        shaper.last = cell.at;
        shaper.waiting.push_back(cell.at);
        Some(cell)
    }

    fn pack(&mut self, place: usize, cell: TimedCell) {
        let packing = &self.circuits[place].packing;
        if packing.first().is_some_and(|first| cell.at > first.at + PACK) {
            self.send(place);
        }
        let packing = &mut self.circuits[place].packing;
        packing.push(cell);
        if packing.len() >= self.cells_max {
            self.send(place);
        }
    }

    fn send(&mut self, place: usize) {
        let circuit = &mut self.circuits[place];
        let Some(last) = circuit.packing.last().map(|cell| cell.at) else { return };
        let head = Head {
            nonce: self.nonce,
            circuit: circuit.number,
            number: circuit.datagrams,
            cell: circuit.cells,
            sent: 0,
        };
        let octets = wire::write(&head, &circuit.packing);
        circuit.datagrams += 1;
        circuit.cells += circuit.packing.len() as u64;
        circuit.packing.clear();
        self.due.push(Reverse((last, self.order, octets)));
        self.order += 1;
    }

    /// Stops generating cells, and makes partly filled datagrams due.
    pub(super) fn end(&mut self) {
        (0..self.circuits.len()).for_each(|place| self.send(place));
    }

    /// Returns when the next datagram is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((due, ..))| *due)
    }

    /// Returns the next datagram and its due time, unless that is after `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Instant, Vec<u8>)> {
        self.next().filter(|due| *due <= now)?;
        self.due.pop().map(|Reverse((due, _, octets))| (due, octets))
    }

    /// Returns the numbers of cells and units that each flow has sent since the last call.
    pub(super) fn offered(&mut self) -> Vec<Offered> {
        let none = vec![Offered::default(); self.offered.len()];
        std::mem::replace(&mut self.offered, none)
    }

    /// Returns the number of cells dropped because the queue of a shaped path was full.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of generated cells that have not been sent.
    pub(super) fn left(&self) -> u64 {
        self.due.iter().map(|Reverse((.., octets))| wire::cells(octets)).sum()
    }

    /// Returns the number of datagrams sent on each of the `circuits`; 0 for circuits of TCP.
    pub(super) fn datagrams(&self, circuits: usize) -> Vec<u64> {
        let mut sent = vec![0; circuits];
        for circuit in &self.circuits {
            sent[usize::from(circuit.number)] = circuit.datagrams.into();
        }
        sent
    }
}
