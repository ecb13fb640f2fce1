//! The cell scheduler: selects the circuit for each slot.
//!
//! Purpose          provide one scheduler for a board's transmit port and a switch's output port. It is exact
//!                  to the cell, but uses a plain loop instead of an event per cell.
//! Rule             circuits that have cells and may send are in a ring. Each slot takes one cell from the
//!                  first circuit, which then joins the ring again: at its end among circuits of the same
//!                  [`Service`] (round robin per cell), or by category and weight. A shaped circuit is in
//!                  the ring only while its contract allows its next cell in the next slot; otherwise it
//!                  waits for its time. Circuits that receive cells to send, and circuits whose time has
//!                  come, join the end of the ring in order of time. At equal times, circuits that receive
//!                  cells come first; otherwise the order is by number. All this is within a category, with
//!                  equal weights.
//! Time             [`Scheduler::advance`] commits every slot that starts before a given time. Input at t is
//!                  passed after `advance(t)`, so the slot that starts at t is the first that it can use.
//!                  Idle time is skipped in one step.
//! Prediction       [`Scheduler::next_end`] returns when the next cell that completes something for a
//!                  receiver (the last of a frame, OAM) will have left if no more input comes. The prediction
//!                  is exact for circuits that are not shaped and have the same weight as the others of their
//!                  category, because in round robin the cells sent before a circuit's e-th cell can be
//!                  counted: min(queued, e - 1) from each other circuit, and one more from each circuit
//!                  before it in the ring; and before these, all cells of the categories before it. With
//!                  different weights, it is never late. For a shaped circuit the prediction is
//!                  never late; it is exact if only this circuit is active and its tolerance is at least a
//!                  slot time.
//! Limits           the number of circuits is limited only by the caller; each supply bounds its own queue.
//! Not implemented  separate precedence for real-time and non-real-time VBR; minimum rates for UBR.

use crate::cell::TimedCell;
use crate::gcra::{Contract, Meter};
use crate::service::{Service, ServiceRing};
use crate::slots::{Interval, SlotClock};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use kiban_base::Instant;

/// The cells of one circuit, as the scheduler sees them.
pub trait CellSource {
    /// State that the scheduler's caller provides while cells are written.
    type Loan: ?Sized;

    /// Returns the number of cells queued.
    fn cells(&self) -> usize;

    /// Returns the number of cells up to and including the next one that ends a frame or is a complete
    /// message. Returns `None` if there is none.
    fn cells_to_end(&self) -> Option<usize>;

    /// Writes the next cell, whose slot ends at `at`. At least one cell must be queued.
    fn write(&mut self, at: Instant, out: &mut Vec<TimedCell>, loan: &mut Self::Loan);

    /// Writes a cell into each slot that starts before `until`, as long as there are cells. This is the fast
    /// path for a single active circuit.
    #[inline]
    fn write_run(
        &mut self,
        clock: &mut SlotClock,
        until: Instant,
        out: &mut Vec<TimedCell>,
        loan: &mut Self::Loan,
    ) {
        while self.cells() > 0 && clock.start() < until {
            clock.step();
            self.write(clock.start(), out, loan);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingState {
    Idle,
    InRing,
    Waiting,
}

struct Entry<S> {
    supply: S,
    shaper: Option<Meter>,
    service: Service,
    standing: RingState,
}

/// A port's scheduler. Circuit numbers are chosen by the caller.
pub struct Scheduler<S> {
    clock: SlotClock,
    circuits: Vec<Option<Entry<S>>>,
    ring: ServiceRing,
    waiting: BinaryHeap<Reverse<(Instant, u32)>>,
    /// All slots that start before this time have been committed.
    now: Instant,
}

impl<S: CellSource> Scheduler<S> {
    /// Creates the scheduler of a line on which a cell takes `cell_time`.
    pub fn new(cell_time: Interval) -> Scheduler<S> {
        Scheduler {
            clock: SlotClock::new(cell_time),
            circuits: Vec::new(),
            ring: ServiceRing::default(),
            waiting: BinaryHeap::new(),
            now: Instant::ZERO,
        }
    }

    /// Adds a circuit with its service, and shapes it to `contract` if one is given. Returns the supply that
    /// had this number before.
    pub fn insert(
        &mut self,
        circuit: u32,
        supply: S,
        contract: Option<Contract>,
        service: Service,
    ) -> Option<S> {
        let before = self.remove(circuit);
        let index = circuit as usize;
        if self.circuits.len() <= index {
            self.circuits.resize_with(index + 1, || None);
        }
        let shaper = contract.map(Meter::new);
        self.circuits[index] = Some(Entry { supply, shaper, service, standing: RingState::Idle });
        before
    }

    /// Removes a circuit and returns its supply with all its cells.
    pub fn remove(&mut self, circuit: u32) -> Option<S> {
        let entry = self.circuits.get_mut(circuit as usize)?.take()?;
        self.leave(circuit, entry.standing);
        Some(entry.supply)
    }

    /// Records that a circuit's supply may have become empty by other means than sending.
    pub fn rest(&mut self, circuit: u32) {
        let Some(Some(entry)) = self.circuits.get_mut(circuit as usize) else { return };
        if entry.supply.cells() > 0 {
            return;
        }
        let standing = core::mem::replace(&mut entry.standing, RingState::Idle);
        self.leave(circuit, standing);
    }

    fn leave(&mut self, circuit: u32, standing: RingState) {
        match standing {
            RingState::Idle => {}
            RingState::InRing => self.ring.remove(circuit),
            RingState::Waiting => self.waiting.retain(|Reverse((_, other))| *other != circuit),
        }
    }

    /// Returns the supply of a circuit.
    #[inline]
    pub fn supply(&self, circuit: u32) -> Option<&S> {
        Some(&self.circuits.get(circuit as usize)?.as_ref()?.supply)
    }

    /// Returns the supply of a circuit for adding cells; call [`Scheduler::wake`] afterwards.
    #[inline]
    pub fn supply_mut(&mut self, circuit: u32) -> Option<&mut S> {
        Some(&mut self.circuits.get_mut(circuit as usize)?.as_mut()?.supply)
    }

    /// Records that a circuit has cells to send from `now` on. Call [`Scheduler::advance`] to `now` first.
    #[inline]
    pub fn wake(&mut self, circuit: u32, now: Instant) {
        let Some(Some(entry)) = self.circuits.get_mut(circuit as usize) else { return };
        if entry.standing != RingState::Idle || entry.supply.cells() == 0 {
            return;
        }
        if self.ring.is_empty() {
            self.now = self.now.max(now);
            self.clock.skip_to(self.now);
        }
        Self::insert_into_ring(entry, circuit, &self.clock, &mut self.ring, &mut self.waiting);
    }

    /// Puts a circuit that has cells into the ring or the waiting queue, as of the current slot.
    #[inline]
    fn insert_into_ring(
        entry: &mut Entry<S>,
        circuit: u32,
        clock: &SlotClock,
        ring: &mut ServiceRing,
        waiting: &mut BinaryHeap<Reverse<(Instant, u32)>>,
    ) {
        if let Some(shaper) = &entry.shaper {
            let earliest = shaper.earliest();
            if earliest > clock.start() {
                entry.standing = RingState::Waiting;
                waiting.push(Reverse((earliest, circuit)));
                return;
            }
        }
        entry.standing = RingState::InRing;
        ring.push(circuit, entry.service);
    }

    /// Commits every slot that starts before `until` and appends a cell to `out` for each slot used.
    pub fn advance(&mut self, until: Instant, out: &mut Vec<TimedCell>, loan: &mut S::Loan) {
        self.now = self.now.max(until);
        loop {
            if let Some(Reverse((first, _))) = self.waiting.peek() {
                if self.ring.is_empty() {
                    if *first >= until {
                        return;
                    }
                    // If the slot starts after `until`, it is also the first slot that input at `until` can
                    // use.
                    self.clock.skip_to(*first);
                }
                self.join_due(until);
            }
            if self.clock.start() >= until {
                return;
            }
            match self.ring.len() {
                0 => return,
                1 => self.serve_one(until, out, loan),
                _ => self.serve_many(until, out, loan),
            }
        }
    }

    /// Moves circuits whose time has come by the next slot from the waiting queue into the ring. Input at
    /// `until` has not been passed yet. It takes precedence over circuits whose time is not earlier.
    fn join_due(&mut self, until: Instant) {
        let start = self.clock.start();
        while let Some(&Reverse((moment, circuit))) = self.waiting.peek() {
            if moment > start || moment >= until {
                return;
            }
            self.waiting.pop();
            let entry = self.circuits[circuit as usize].as_mut().expect("a removed circuit is in no queue");
            entry.standing = RingState::InRing;
            self.ring.push(circuit, entry.service);
        }
    }

    /// Serves a ring of one circuit until its queue is empty, the time is reached, or another circuit may
    /// join.
    fn serve_one(&mut self, until: Instant, out: &mut Vec<TimedCell>, loan: &mut S::Loan) {
        let Some(circuit) = self.ring.front() else { return };
        let entry = self.circuits[circuit as usize].as_mut().expect("a removed circuit is in no queue");
        if entry.shaper.is_some() {
            return self.serve_many(until, out, loan);
        }
        let until = self.waiting.peek().map_or(until, |Reverse((first, _))| until.min(*first));
        entry.supply.write_run(&mut self.clock, until, out, loan);
        if entry.supply.cells() == 0 {
            entry.standing = RingState::Idle;
            self.ring.remove(circuit);
        }
    }

    /// Serves the ring slot by slot until the time is reached, only one circuit is left, or another may join.
    fn serve_many(&mut self, until: Instant, out: &mut Vec<TimedCell>, loan: &mut S::Loan) {
        while self.clock.start() < until {
            let Some(circuit) = self.ring.pop() else { return };
            let entry = self.circuits[circuit as usize].as_mut().expect("a removed circuit is in no queue");
            if let Some(shaper) = &mut entry.shaper {
                shaper.pass(self.clock.start());
            }
            self.clock.step();
            entry.supply.write(self.clock.start(), out, loan);
            if entry.supply.cells() == 0 {
                entry.standing = RingState::Idle;
                if self.ring.len() == 1 {
                    return;
                }
            } else if entry.shaper.is_none() {
                self.ring.push(circuit, entry.service);
            } else {
                Self::insert_into_ring(entry, circuit, &self.clock, &mut self.ring, &mut self.waiting);
            }
            if !self.waiting.is_empty() {
                return;
            }
        }
    }

    /// Returns when the next cell that ends a frame or is a complete message will have left if no more input
    /// comes; never late. Returns `NEVER` if there is none.
    pub fn next_end(&self) -> Instant {
        if self.ring.is_empty() && self.waiting.is_empty() {
            return Instant::NEVER;
        }
        self.next_end_unshaped().min(self.next_end_shaped())
    }

    fn active(&self, circuit: u32) -> &Entry<S> {
        self.circuits[circuit as usize].as_ref().expect("a removed circuit is in no queue")
    }

    fn next_end_unshaped(&self) -> Instant {
        let (mut first, mut higher) = (Instant::NEVER, 0);
        for class in self.ring.classes() {
            let unshaped = class.map(|circuit| self.active(circuit)).filter(|entry| entry.shaper.is_none());
            let ends = unshaped.clone().enumerate();
            let ends = ends.filter_map(|(place, entry)| Some((entry.supply.cells_to_end()?, place)));
            // In round robin, the frame end with the fewest cells before it comes first. Among equals, the
            // first circuit in the ring comes first.
            if let Some((cells, place)) = ends.min() {
                let mut weights = unshaped.clone().map(|entry| entry.service.weight);
                let is_round_robin = weights.next().is_none_or(|first| weights.all(|other| other == first));
                let before = |(other, entry): (usize, &Entry<S>)| {
                    entry.supply.cells().min(if other < place { cells } else { cells - 1 })
                };
                let before: usize = match is_round_robin {
                    true => unshaped.clone().enumerate().map(before).sum(),
                    false => cells - 1,
                };
                first = first.min(self.clock.end_after((higher + before) as u64));
            }
            higher += unshaped.map(|entry| entry.supply.cells()).sum::<usize>();
        }
        first
    }

    fn next_end_shaped(&self) -> Instant {
        let mut base = self.clock.clone();
        base.skip_to(self.now);
        let waiting = self.waiting.iter().map(|Reverse((_, circuit))| *circuit);
        let shaped = self.ring.classes().flatten().chain(waiting).map(|circuit| self.active(circuit));
        let ends = shaped.filter_map(|entry| {
            let cells = entry.supply.cells_to_end()? as u64;
            let mut slot = base.clone();
            slot.skip_to(entry.shaper.as_ref()?.earliest_of(cells));
            Some(slot.end().max(base.end_after(cells - 1)))
        });
        ends.min().unwrap_or(Instant::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Category;
    use alloc::vec;
    use core::time::Duration;

    /// Cells that contain their circuit and number. Every `frame`-th cell ends a frame.
    struct Numbered {
        name: u8,
        next: u8,
        queued: usize,
        frame: usize,
    }

    impl CellSource for Numbered {
        type Loan = ();
        fn cells(&self) -> usize {
            self.queued
        }
        fn cells_to_end(&self) -> Option<usize> {
            let left = self.frame - self.next as usize % self.frame;
            (left <= self.queued).then_some(left)
        }
        fn write(&mut self, at: Instant, out: &mut Vec<TimedCell>, _: &mut ()) {
            let mut payload = [0; 48];
            payload[..2].copy_from_slice(&[self.name, self.next]);
            self.next += 1;
            self.queued -= 1;
            out.push(TimedCell::new(
                at,
                2 * u32::from((self.next as usize).is_multiple_of(self.frame)),
                payload,
            ));
        }
    }

    const MICRO: Interval = Interval::every(Duration::from_micros(1));

    fn micros(count: u64) -> Instant {
        Instant::from_nanos(count * 1000)
    }

    fn give(scheduler: &mut Scheduler<Numbered>, circuit: u32, cells: usize, at: u64) {
        scheduler.supply_mut(circuit).unwrap().queued += cells;
        scheduler.wake(circuit, micros(at));
    }

    fn names(out: &[TimedCell]) -> Vec<(u8, u64)> {
        out.iter().map(|cell| (cell.payload[0], cell.at.as_nanos() / 1000)).collect()
    }

    fn scheduler(circuits: u8, shaped: Option<Contract>) -> Scheduler<Numbered> {
        let mut scheduler = Scheduler::new(MICRO);
        for name in 0..circuits {
            let contract = if name == 0 { shaped } else { None };
            let supply = Numbered { name, next: 0, queued: 0, frame: 3 };
            scheduler.insert(name.into(), supply, contract, Service::default());
        }
        scheduler
    }

    #[test]
    fn three_circuits_take_turns_and_a_late_one_joins_at_the_end() {
        let (mut scheduler, mut out) = (scheduler(3, None), vec![]);
        give(&mut scheduler, 0, 3, 0);
        give(&mut scheduler, 1, 3, 0);
        // Slots start at 0, 1 and 2. The slot that starts at 2 is the first that input at time 2 can use.
        scheduler.advance(micros(2), &mut out, &mut ());
        give(&mut scheduler, 2, 1, 2);
        assert_eq!(scheduler.next_end(), micros(6));
        scheduler.advance(micros(100), &mut out, &mut ());
        assert_eq!(names(&out), [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (0, 6), (1, 7)]);
        assert_eq!(scheduler.next_end(), Instant::NEVER);
        // After idle time, a cell waits for the next slot of the line; slots are not realigned to the cell.
        give(&mut scheduler, 2, 1, 100);
        scheduler.advance(Instant::from_nanos(200_500), &mut out, &mut ());
        scheduler.supply_mut(1).unwrap().queued += 1;
        scheduler.wake(1, Instant::from_nanos(200_500));
        scheduler.advance(micros(300), &mut out, &mut ());
        assert_eq!(names(&out[7..]), [(2, 101), (1, 202)]);
    }

    #[test]
    fn a_shaped_circuit_keeps_its_pace_and_leaves_the_rest_to_others() {
        let contract = Contract::peak(Interval::every(Duration::from_micros(4)), Duration::ZERO);
        let (mut scheduler, mut out) = (scheduler(2, Some(contract)), vec![]);
        give(&mut scheduler, 0, 3, 0);
        assert_eq!(scheduler.next_end(), micros(9));
        give(&mut scheduler, 1, 6, 0);
        assert_eq!(scheduler.next_end(), micros(3));
        scheduler.advance(micros(100), &mut out, &mut ());
        assert_eq!(names(&out), [(0, 1), (1, 2), (1, 3), (1, 4), (1, 5), (0, 6), (1, 7), (1, 8), (0, 10)]);
    }

    #[test]
    fn a_waiting_circuit_does_not_hold_up_the_line() {
        let contract = Contract::peak(Interval::every(Duration::from_millis(1)), Duration::ZERO);
        let (mut scheduler, mut out) = (scheduler(2, Some(contract)), vec![]);
        give(&mut scheduler, 0, 2, 0);
        scheduler.advance(micros(5), &mut out, &mut ());
        give(&mut scheduler, 1, 1, 5);
        scheduler.advance(micros(2000), &mut out, &mut ());
        assert_eq!(names(&out), [(0, 1), (1, 6), (0, 1001)]);
    }

    #[test]
    fn categories_and_weights_decide_who_sends_and_predictions_are_not_late() {
        let mut scheduler = Scheduler::new(MICRO);
        let of = |category, weight| Service { category, weight };
        let services = [of(Category::Ubr, 1), of(Category::Ubr, 3), of(Category::Cbr, 1)];
        for (name, service) in services.into_iter().enumerate() {
            let supply = Numbered { name: name as u8, next: 0, queued: 0, frame: 3 };
            scheduler.insert(name as u32, supply, None, service);
        }
        let mut out = vec![];
        give(&mut scheduler, 0, 3, 0);
        give(&mut scheduler, 1, 6, 0);
        scheduler.advance(micros(2), &mut out, &mut ());
        // A circuit of a category before theirs is served at once, although both have waited longer.
        give(&mut scheduler, 2, 3, 2);
        assert_eq!(scheduler.next_end(), micros(5));
        scheduler.advance(micros(5), &mut out, &mut ());
        // The next end is the third cell of circuit 1: never predicted late, here exact.
        assert_eq!(scheduler.next_end(), micros(6));
        scheduler.advance(micros(100), &mut out, &mut ());
        let order: Vec<u8> = out.iter().map(|cell| cell.payload[0]).collect();
        assert_eq!(order, [1, 1, 2, 2, 2, 1, 0, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn a_removed_circuit_leaves_no_trace() {
        let (mut scheduler, mut out) = (scheduler(2, None), vec![]);
        give(&mut scheduler, 0, 2, 0);
        give(&mut scheduler, 1, 2, 0);
        assert_eq!(scheduler.remove(0).unwrap().queued, 2);
        assert!(scheduler.remove(0).is_none());
        scheduler.wake(0, micros(0));
        scheduler.advance(micros(10), &mut out, &mut ());
        assert_eq!(names(&out), [(1, 1), (1, 2)]);
    }
}
