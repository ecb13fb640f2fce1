//! A modelled processor: decides when its board is called.
//!
//! Goal      run the unchanged code of a board at the speed of another machine.
//! Rest      arrivals wait until the processor is free. It then takes them, is charged for them, and only
//!           then passes them to the board. The host's program runs, and the board's output is charged before
//!           the processor is free again.
//! Deferral  all arrivals are taken together, between two PDUs (the pipeline rescheduling of paper \[1\]);
//!           without it, arrivals are taken one frame at a time.
//! Limits    output is sent when the processor starts to work on it, not when its cost has passed. The
//!           segmentation chip holds so few frames that this is at most two PDUs early.

use crate::models::cost::CostModel;
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::{Instant, Pdu};
use kiban_board::{Board, Input};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The bits of a cell header that identify the circuit.
const CIRCUIT_BITS: u32 = 0xffff_fff0;

/// The state of the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It is idle.
    Rest,
    /// The batch has been charged and must now be passed to the board.
    Heard,
    /// The board must be drained.
    Drain,
}

/// How much of a board's work has been charged so far, by kind.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    segments_out: u64,
    bytes_out: u64,
    again: u64,
    waiters: u64,
}

impl Done {
    fn of(board: &Board) -> Done {
        let tcp = board.tcp_counters();
        Done {
            segments_out: tcp.segments_out,
            bytes_out: tcp.bytes_out,
            again: tcp.retransmits,
            waiters: board.page_waits().1,
        }
    }
}

/// A processor at work.
#[derive(Debug)]
pub(crate) struct Processor {
    model: CostModel,
    mss: u64,
    pub(crate) stage: Stage,
    pub(crate) free_at: Instant,
    /// The time at which the board must be called even if nothing arrives.
    pub(crate) due: Instant,
    /// Cells that have arrived, by port.
    inbox: Vec<Vec<TimedCell>>,
    /// Packets that have arrived, by port: they are in the board's memory already.
    packets_inbox: Vec<VecDeque<Pdu>>,
    /// The batch that is being processed, of cells or of packets, and its port.
    batch: Vec<TimedCell>,
    packets: VecDeque<Pdu>,
    port: usize,
    /// Cells of unfinished frames that were taken, by port and circuit: cells of many circuits interleave.
    unfinished: BTreeMap<(usize, u32), usize>,
    done: Done,
    busy: Duration,
}

impl Processor {
    pub(crate) fn new(model: CostModel, mss: u16) -> Processor {
        Processor {
            model,
            mss: u64::from(mss).max(1),
            stage: Stage::Rest,
            free_at: Instant::ZERO,
            due: Instant::NEVER,
            inbox: Vec::new(),
            packets_inbox: Vec::new(),
            batch: Vec::new(),
            packets: VecDeque::new(),
            port: 0,
            unfinished: BTreeMap::new(),
            done: Done::default(),
            busy: Duration::ZERO,
        }
    }

    /// Returns how long the processor has worked.
    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    /// Queues cells that have arrived at a port.
    pub(crate) fn queue_cells(&mut self, port: usize, cells: &[TimedCell]) {
        if self.inbox.len() <= port {
            self.inbox.resize_with(port + 1, Vec::new);
        }
        self.inbox[port].extend_from_slice(cells);
    }

    /// Queues packets that have arrived at a port.
    pub(crate) fn queue_packets(&mut self, port: usize, packets: &mut VecDeque<Pdu>) {
        if self.packets_inbox.len() <= port {
            self.packets_inbox.resize_with(port + 1, VecDeque::new);
        }
        self.packets_inbox[port].append(packets);
    }

    /// Returns the batch that has been charged.
    pub(crate) fn take_input(&mut self) -> Input<'_> {
        match self.packets.is_empty() {
            true => Input::Cells { port: self.port, cells: &self.batch },
            false => Input::Packets { port: self.port, packets: &mut self.packets },
        }
    }

    /// Takes the arrivals as a batch and starts to charge for it. Returns whether there were any.
    pub(crate) fn take(&mut self, board: &Board, now: Instant) -> bool {
        for (port, cells) in self.inbox.iter_mut().enumerate() {
            let mut frames = cells.iter().enumerate().filter(|(_, cell)| cell.is_end()).map(|(at, _)| at + 1);
            let end = if self.model.mechanisms.deferral { frames.next_back() } else { frames.next() };
            let Some(end) = end else { continue };
            self.batch.clear();
            self.batch.extend(cells.drain(..end));
            self.port = port;
            let sessions = board.sessions();
            let mut cost = Duration::ZERO;
            for cell in &self.batch {
                let cells = self.unfinished.entry((port, cell.header & CIRCUIT_BITS)).or_default();
                *cells += 1;
                if cell.is_end() {
                    let bytes = std::mem::take(cells) * CELL_PAYLOAD_BYTES;
                    cost += self.model.costs.of_arrival(&self.model, bytes, sessions);
                }
            }
            self.pay(cost, now);
            self.stage = Stage::Heard;
            return true;
        }
        for (port, packets) in self.packets_inbox.iter_mut().enumerate() {
            let count = if self.model.mechanisms.deferral { packets.len() } else { packets.len().min(1) };
            if count == 0 {
                continue;
            }
            self.packets.extend(packets.drain(..count));
            self.port = port;
            let (costs, sessions) = (&self.model.costs, board.sessions());
            let cost =
                self.packets.iter().map(|pdu| costs.of_arrival(&self.model, pdu.len(), sessions)).sum();
            self.pay(cost, now);
            self.stage = Stage::Heard;
            return true;
        }
        false
    }

    /// Charges for the board's work since the last call. Returns whether there was any.
    pub(crate) fn charge_work(&mut self, board: &Board, now: Instant) -> bool {
        let done = Done::of(board);
        let bytes = done.bytes_out - self.done.bytes_out;
        let segments = done.segments_out - self.done.segments_out;
        let again = done.again - self.done.again;
        let pdus = (bytes.div_ceil(self.mss) + again).min(segments);
        let bytes = bytes + again * self.mss;
        let costs = &self.model.costs;
        let cost = costs.of_departure(&self.model, pdus, bytes, segments - pdus)
            + costs.of_waits(done.waiters - self.done.waiters);
        self.done = done;
        self.pay(cost, now);
        cost > Duration::ZERO
    }

    fn pay(&mut self, cost: Duration, now: Instant) {
        self.busy += cost;
        self.free_at = now + cost;
    }
}
