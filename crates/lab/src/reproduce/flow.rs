//! Measures the steady-state throughput of endless streams between two boards.

use kiban_base::Instant;
use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{Pair, Plan};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The TCP port of the receiver.
const PORT: u16 = 5001;

/// The interval of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Virtual time before the measurement.
    pub settle: Duration,
    /// Virtual time of the measurement.
    pub span: Duration,
}

/// The result of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// Goodput of all streams, Mbit/s.
    pub mbps: f64,
    /// The number of streams that transferred any data in the interval.
    pub active_streams: usize,
    /// Goodput of the slowest stream, in percent of an equal share.
    pub least_percent: f64,
    /// The number of writes in the interval that found no free page, and the sum of the lengths of the queues
    /// that these writes had to join.
    pub page_waits: (u64, u64),
    /// Utilization (0 to 1) of the sending and the receiving processor, if they are modelled.
    pub busy: [f64; 2],
}

/// Measures `sessions` concurrent streams from board 0 to board 1, spread over the plan's circuits.
pub fn measure(plan: &Plan, sessions: usize, interval: Interval) -> Flow {
    let mut pair = Pair::new(plan);
    let counts: Rc<RefCell<Vec<u64>>> = Rc::default();
    let total: Rc<Cell<u64>> = Rc::default();
    let make = {
        let (counts, total) = (counts.clone(), total.clone());
        Box::new(move |number: usize| -> Sink {
            let (counts, total) = (counts.clone(), total.clone());
            counts.borrow_mut().resize(number + 1, 0);
            Box::new(move |_, bytes| {
                counts.borrow_mut()[number] += bytes.len() as u64;
                total.set(total.get() + bytes.len() as u64);
            })
        })
    };
    let source = || -> Source { Box::new(|_, _| {}) };
    let streams = (0..sessions).map(|number| {
        let at = |side, port| SocketAddr::new(Pair::address_on(number % plan.circuits, side), port);
        ((Some(at(0, 0)), at(1, PORT)), u64::MAX, source())
    });
    pair.world.run_program(pair.boards[1], Box::new(Receiver::new(PORT, sessions, make)));
    pair.world.run_program(pair.boards[0], Box::new(Sender::between(streams.collect())));

    // Start and end the measurement at a read, because an interval that ends within a PDU would count only a
    // part of the PDU.
    let look = |pair: &mut Pair, until: Instant| {
        let (mut seen, mut at) = (total.get(), pair.world.now());
        pair.world.run_with(until, &mut |world| {
            if total.get() != seen {
                (seen, at) = (total.get(), world.now());
            }
        });
        let busy = pair.boards.map(|board| pair.world.processor_busy(board));
        (at, counts.borrow().clone(), pair.world.board(pair.boards[0]).page_waits(), busy)
    };
    let begin = Instant::ZERO + interval.settle;
    let (from, before, waits_before, busy_before) = look(&mut pair, begin);
    let (to, after, waits, busy) = look(&mut pair, begin + interval.span);

    let moved = |(number, after): (usize, &u64)| after - before.get(number).copied().unwrap_or(0);
    let bytes: Vec<u64> = after.iter().enumerate().map(moved).collect();
    let total: u64 = bytes.iter().sum();
    let between = to.since(from).as_secs_f64();
    let seconds = interval.span.as_secs_f64();
    Flow {
        mbps: if total == 0 { 0.0 } else { total as f64 * 8.0 / between / 1e6 },
        least_percent: match (total, bytes.iter().min()) {
            (1.., Some(least)) if bytes.len() == sessions => {
                *least as f64 * sessions as f64 / total as f64 * 100.0
            }
            _ => 0.0,
        },
        active_streams: bytes.iter().filter(|bytes| **bytes > 0).count(),
        page_waits: (waits.0 - waits_before.0, waits.1 - waits_before.1),
        busy: [0, 1].map(|side| (busy[side] - busy_before[side]).as_secs_f64() / seconds),
    }
}
