//! An ATM switch as a value (I.361, I.371; frame discard as in ATM Forum TM 4.1 §5.8).
//!
//! Purpose          treat a board's cells as a public network does: forward, delay, queue, mark, police and
//!                  drop them, exact to the cell.
//! Table            (port, VPI, VCI) or, for paths, (port, VPI) → output port and new identifier. A path
//!                  keeps each cell's VCI.
//! Pipeline         header check → table → policing at the time of arrival → `delay` through the fabric →
//!                  queue of the entry at its output port → the port's [`Scheduler`] → line.
//! Dropping         a single cell is dropped if the circuit's or the port's queue is full, or if the cell has
//!                  low priority and `low_priority_cells_max` cells are waiting. With `frame_discard`
//!                  (Romanow and Floyd 1995), a frame that begins while `early_cells_max` cells are waiting,
//!                  or whose first cell finds no room, is dropped whole (early packet discard). After a cell
//!                  of a frame has been dropped here, the rest is dropped too, except the last cell, which
//!                  delimits frames (partial packet discard). All thresholds count cells waiting at the
//!                  output port.
//! Marking          user cells queued at or above `mark_cells_min` get the congestion indication (EFCI).
//! Time             trains from several ports are passed together ([`Switch::arrive_merged`]) and merged by
//!                  (time, port). Before a cell is queued, its output port commits every slot that starts
//!                  earlier. A cell that arrives at t is queued at t + delay. So once all arrivals up to t
//!                  have been passed, outputs may be advanced to t + delay.
//! Limits           `queue_cells_max` per entry, `port_cells_max` per output port; cells that have been sent
//!                  are kept until [`Switch::advance`] fetches them.
//! Not implemented  point-to-multipoint, priorities between circuits, ABR, frame-aware policing.

use crate::cell::{HeaderReceiver, Received, TimedCell, hec_of, is_end, is_management};
use crate::counters::{HecCounters, RouteCounters, SwitchCounters};
use crate::gcra::{Contract, Meter};
use crate::scheduler::{CellSource, Scheduler};
use crate::slots::Interval;
use crate::table::{HeaderTable, name_mask, name_of};
use crate::wire::atm::{Interface, PTI_CONGESTED, Vc, is_physical, is_unassigned};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use kiban_base::Instant;

/// Typical delay through the fabric of a switch of the 1990s, without queueing.
pub const FABRIC_DELAY: Duration = Duration::from_micros(10);

/// Configuration of a port.
#[derive(Clone, Copy, Debug)]
pub struct SwitchPort {
    /// Time per cell on the port's outgoing line.
    pub cell_time: Interval,
    /// Header format, in both directions.
    pub interface: Interface,
    /// Maximum number of cells queued for the port's outgoing line.
    pub port_cells_max: usize,
    /// Number of waiting cells at which low-priority cells start to be dropped.
    pub low_priority_cells_max: usize,
    /// Number of waiting cells at which new frames start to be dropped whole.
    pub early_cells_max: usize,
    /// Number of waiting cells at which user cells start to be marked (EFCI).
    pub mark_cells_min: usize,
}

impl SwitchPort {
    /// Creates a port that can queue `port_cells_max` cells and has no thresholds.
    pub const fn plain(cell_time: Interval, interface: Interface, port_cells_max: usize) -> SwitchPort {
        SwitchPort {
            cell_time,
            interface,
            port_cells_max,
            low_priority_cells_max: usize::MAX,
            early_cells_max: usize::MAX,
            mark_cells_min: usize::MAX,
        }
    }
}

/// The incoming identifier of an entry: a circuit or a whole path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionId {
    /// One virtual circuit.
    Circuit(Vc),
    /// All circuits of a virtual path that do not have their own entry.
    Path(u16),
}

impl ConnectionId {
    /// Returns the identifier as bits of a header word.
    fn key(self, interface: Interface) -> u32 {
        match self {
            ConnectionId::Circuit(vc) => name_of(interface, vc),
            ConnectionId::Path(vpi) => name_of(interface, Vc::new(vpi, 0)),
        }
    }
}

/// The policer's action on a cell that violates its contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Penalty {
    /// Drop the cell.
    Drop,
    /// Set CLP; a cell with CLP already set is dropped.
    Tag,
}

/// A table entry.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Input port.
    pub in_port: usize,
    /// Incoming identifier.
    pub in_connection: ConnectionId,
    /// Output port.
    pub out_port: usize,
    /// Outgoing identifier, of the same kind.
    pub out_connection: ConnectionId,
    /// Maximum number of this entry's cells queued at the output port.
    pub queue_cells_max: usize,
    /// Contract that the input is policed to, and the penalty, if any.
    pub police: Option<(Contract, Penalty)>,
    /// Contract to which the output is shaped, if any.
    pub shape: Option<Contract>,
    /// Whether early and partial packet discard apply; for circuits that carry AAL5.
    pub frame_discard: bool,
}

impl Route {
    /// Creates an entry without contract and frame discard.
    pub const fn plain(
        in_port: usize,
        in_connection: ConnectionId,
        out_port: usize,
        out_connection: ConnectionId,
        queue_cells_max: usize,
    ) -> Route {
        Route {
            in_port,
            in_connection,
            out_port,
            out_connection,
            queue_cells_max,
            police: None,
            shape: None,
            frame_discard: false,
        }
    }
}

/// Why an entry was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RouteError {
    /// There is no such port.
    UnknownPort,
    /// The identifier already has an entry, which must be removed first.
    InUse,
    /// The incoming and outgoing identifiers are not both circuits or both paths.
    KindsDiffer,
    /// Frame discard was requested for a path, which interleaves frames of many circuits that it cannot
    /// distinguish.
    PathWithFrames,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteError::UnknownPort => "the switch has no port with this number",
            RouteError::InUse => "the identifier already has an entry: remove it first",
            RouteError::KindsDiffer => {
                "the incoming and outgoing identifiers must both be circuits, or both be paths"
            }
            RouteError::PathWithFrames => {
                "frame discard needs a circuit: a path interleaves the frames of its circuits"
            }
        })
    }
}

/// A switch.
pub struct Switch {
    delay: Duration,
    ports: Vec<Port>,
    entries: Vec<Option<Entry>>,
    counters: SwitchCounters,
}

impl Switch {
    /// Creates a switch with the given ports and delay through its fabric.
    pub fn new(ports: &[SwitchPort], delay: Duration) -> Switch {
        Switch {
            delay,
            ports: ports.iter().map(|config| Port::new(*config)).collect(),
            entries: Vec::new(),
            counters: SwitchCounters::default(),
        }
    }

    /// Adds an entry to the table.
    ///
    /// # Errors
    /// [`RouteError`] if the entry contradicts the ports or the table.
    pub fn add(&mut self, route: Route) -> Result<(), RouteError> {
        let (Some(in_port), Some(out_port)) = (self.ports.get(route.in_port), self.ports.get(route.out_port))
        else {
            return Err(RouteError::UnknownPort);
        };
        let in_interface = in_port.config.interface;
        let out_interface = out_port.config.interface;
        let rewrite = match (route.in_connection, route.out_connection) {
            (ConnectionId::Circuit(_), ConnectionId::Circuit(vc)) => {
                Rewrite { keep: 0xf, put: name_of(out_interface, vc) }
            }
            (ConnectionId::Path(_), ConnectionId::Path(_)) if route.frame_discard => {
                return Err(RouteError::PathWithFrames);
            }
            (ConnectionId::Path(_), ConnectionId::Path(vpi)) => {
                Rewrite { keep: 0x000f_ffff, put: name_of(out_interface, Vc::new(vpi, 0)) }
            }
            _ => return Err(RouteError::KindsDiffer),
        };
        let key = route.in_connection.key(in_interface);
        if self.ports[route.in_port].names_mut(route.in_connection).contains(key) {
            return Err(RouteError::InUse);
        }
        let number = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        self.ports[route.in_port].names_mut(route.in_connection).insert(key, number as u32);
        self.ports[route.out_port].scheduler.insert(number as u32, Queue::new(&route), route.shape);
        let police = route.police.map(|(contract, penalty)| (Meter::new(contract), penalty));
        let entry = Entry {
            in_port: route.in_port,
            in_name: route.in_connection,
            out_port: route.out_port,
            rewrite,
            police,
            counters: RouteCounters::default(),
        };
        if number == self.entries.len() {
            self.entries.push(Some(entry));
        } else {
            self.entries[number] = Some(entry);
        }
        Ok(())
    }

    /// Removes an entry and drops the cells in its queue. Returns whether there was one.
    pub fn remove(&mut self, in_port: usize, in_name: ConnectionId) -> bool {
        let Some(port) = self.ports.get_mut(in_port) else { return false };
        let key = in_name.key(port.config.interface);
        let Some(number) = port.names_mut(in_name).remove(key) else { return false };
        let entry = self.entries[number as usize].take().expect("the table names only existing entries");
        debug_assert_eq!((entry.in_port, entry.in_name), (in_port, in_name));
        let output = &mut self.ports[entry.out_port];
        let queue = output.scheduler.remove(number).expect("an entry has a queue");
        output.waiting -= queue.cells.len();
        true
    }

    /// Processes a train that arrived at one port, if nothing arrived at the other ports in the meantime.
    /// Trains must be passed in order of time.
    pub fn arrive(&mut self, port: usize, train: &[TimedCell]) {
        self.counters.cells_in += train.len() as u64;
        for cell in train {
            self.on_cell(port, cell);
        }
    }

    /// Processes trains that arrived at several ports. Each train is in order of time, and the trains are
    /// merged by (time, port). They are empty afterwards.
    pub fn arrive_merged(&mut self, trains: &mut [(usize, &[TimedCell])]) {
        let first = |(port, train): &(usize, &[TimedCell])| train.first().map(|cell| (cell.at, *port));
        loop {
            let next =
                trains.iter().enumerate().filter_map(|(index, train)| Some((first(train)?, index))).min();
            let Some((_, index)) = next else { return };
            // Process cells of this train until another train has an earlier cell.
            let others = trains.iter().enumerate().filter(|(other, _)| *other != index);
            let bound = others.filter_map(|(_, train)| first(train)).min();
            let (port, train) = trains[index];
            let count = match bound {
                Some(bound) => train.iter().take_while(|cell| (cell.at, port) < bound).count().max(1),
                None => train.len(),
            };
            self.arrive(port, &train[..count]);
            trains[index].1 = &train[count..];
        }
    }

    /// Commits every slot of an output port that starts before `until` and moves its cells to the end of
    /// `out`. This includes cells already committed by arrivals, at most the fabric's delay ahead.
    pub fn advance(&mut self, port: usize, until: Instant, out: &mut Vec<TimedCell>) {
        let output = &mut self.ports[port];
        self.counters.cells_out += output.advance(until);
        if out.is_empty() {
            core::mem::swap(out, &mut output.departed);
        } else {
            out.append(&mut output.departed);
        }
    }

    /// Returns when the next management cell, or last cell of a frame, will have left an output port if no
    /// more input comes; never late. Returns `NEVER` if there is none.
    pub fn next_end(&self, port: usize) -> Instant {
        let output = &self.ports[port];
        let departed = output.departed.iter().find(|cell| is_end(cell.header)).map(|cell| cell.at);
        departed.unwrap_or_else(|| output.scheduler.next_end())
    }

    /// Returns the number of cells waiting at an output port.
    pub fn waiting(&self, port: usize) -> usize {
        self.ports[port].waiting
    }

    /// Returns whether the switch holds no cells: none are queued, and none are committed but not yet
    /// fetched.
    pub fn is_empty(&self) -> bool {
        self.ports.iter().all(|port| port.waiting == 0 && port.departed.is_empty())
    }

    /// Returns the delay through the fabric.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the counters of an entry by its incoming identifier, or `None` if there is no such entry.
    pub fn route_counters(&mut self, in_port: usize, in_name: ConnectionId) -> Option<RouteCounters> {
        let port = self.ports.get_mut(in_port)?;
        let key = in_name.key(port.config.interface);
        let number = port.names_mut(in_name).get(key)?;
        Some(self.entries[number as usize].as_ref().expect("the table names only existing entries").counters)
    }

    /// Returns the number of cells received at a port for which the table has no entry.
    pub fn unrouted(&self, port: usize) -> u64 {
        self.ports[port].unrouted
    }

    /// Returns the HEC counters of a port's input.
    pub fn hec(&self, port: usize) -> HecCounters {
        self.ports[port].hec
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    #[inline]
    fn on_cell(&mut self, port: usize, cell: &TimedCell) {
        let input = &mut self.ports[port];
        let word = match input.receiver.arrive(cell) {
            Received::Intact => cell.header,
            Received::Corrected(word) => {
                self.counters.cells_hec_corrected += 1;
                input.hec.corrected += 1;
                word
            }
            Received::Bad => {
                self.counters.cells_hec_bad += 1;
                input.hec.bad += 1;
                return;
            }
        };
        let Some(number) = input.look_up(word) else {
            let idle = is_physical(word) || is_unassigned(input.config.interface, word);
            if idle {
                self.counters.cells_idle += 1;
            } else {
                self.counters.cells_unrouted += 1;
                input.unrouted += 1;
            }
            return;
        };
        let entry = self.entries[number as usize].as_mut().expect("the table names only existing entries");
        entry.counters.cells_in += 1;
        let Some(word) = entry.police(word, cell.at, &mut self.counters) else { return };
        let word = word & entry.rewrite.keep | entry.rewrite.put;
        let output = &mut self.ports[entry.out_port];
        let moment = cell.at + self.delay;
        self.counters.cells_out += output.advance(moment);
        let entry = &mut entry.counters;
        output.queue(number, TimedCell { at: moment, header: word, ..*cell }, entry, &mut self.counters);
    }
}

/// A header rewrite: the bits to keep, and the bits to set.
#[derive(Clone, Copy)]
struct Rewrite {
    keep: u32,
    put: u32,
}

struct Entry {
    in_port: usize,
    in_name: ConnectionId,
    out_port: usize,
    rewrite: Rewrite,
    police: Option<(Meter, Penalty)>,
    counters: RouteCounters,
}

impl Entry {
    /// Polices a cell and returns its header word, or `None` if the cell is dropped.
    #[inline]
    fn police(&mut self, word: u32, at: Instant, counters: &mut SwitchCounters) -> Option<u32> {
        let Some((meter, penalty)) = &mut self.police else { return Some(word) };
        if meter.police(at) {
            Some(word)
        } else if *penalty == Penalty::Tag && word & 1 == 0 {
            counters.cells_tagged += 1;
            self.counters.cells_tagged += 1;
            Some(word | 1)
        } else {
            counters.cells_policed += 1;
            self.counters.cells_policed += 1;
            None
        }
    }
}

struct Port {
    config: SwitchPort,
    receiver: HeaderReceiver,
    circuits: HeaderTable,
    paths: HeaderTable,
    scheduler: Scheduler<Queue>,
    /// Number of cells in all queues of the outgoing line.
    waiting: usize,
    /// Number of cells received here for which the table has no entry.
    unrouted: u64,
    hec: HecCounters,
    /// Cells whose slots have been committed and that have not been fetched.
    departed: Vec<TimedCell>,
}

/// The bits of a header word that identify the path.
const PATH: u32 = 0xfff0_0000;

impl Port {
    fn new(config: SwitchPort) -> Port {
        Port {
            config,
            receiver: HeaderReceiver::default(),
            circuits: HeaderTable::new(),
            paths: HeaderTable::new(),
            scheduler: Scheduler::new(config.cell_time),
            waiting: 0,
            unrouted: 0,
            hec: HecCounters::default(),
            departed: Vec::new(),
        }
    }

    fn names_mut(&mut self, name: ConnectionId) -> &mut HeaderTable {
        match name {
            ConnectionId::Circuit(_) => &mut self.circuits,
            ConnectionId::Path(_) => &mut self.paths,
        }
    }

    #[inline]
    fn look_up(&mut self, word: u32) -> Option<u32> {
        let name = word & name_mask(self.config.interface);
        self.circuits.look_up(name).or_else(|| self.paths.look_up(name & PATH))
    }

    /// Commits every slot that starts before `until` and returns the number of cells sent.
    #[inline]
    fn advance(&mut self, until: Instant) -> u64 {
        let before = self.departed.len();
        self.scheduler.advance(until, &mut self.departed, &mut ());
        let left = self.departed.len() - before;
        self.waiting -= left;
        left as u64
    }

    /// Queues a cell with its outgoing header, or drops it.
    #[inline]
    fn queue(
        &mut self,
        number: u32,
        mut cell: TimedCell,
        entry: &mut RouteCounters,
        counters: &mut SwitchCounters,
    ) {
        let queue = self.scheduler.supply_mut(number).expect("an entry has a queue");
        if let Err(dropped) = queue.check_discard(cell.header, self.waiting, &self.config) {
            entry.cells_dropped += 1;
            return dropped.count(counters);
        }
        entry.cells_queued += 1;
        entry.frames += u64::from(is_end(cell.header) && !is_management(cell.header));
        if self.waiting >= self.config.mark_cells_min && !is_management(cell.header) {
            counters.cells_marked += 1;
            cell.header |= u32::from(PTI_CONGESTED) << 1;
        }
        cell.hec = hec_of(cell.header);
        self.waiting += 1;
        let was_empty = queue.cells.is_empty();
        queue.push(cell);
        if was_empty {
            self.scheduler.wake(number, cell.at);
        }
    }
}

/// The reason why a cell was dropped at its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    QueueFull,
    PortFull,
    Priority,
    /// An earlier cell of its frame was dropped.
    PartialPacketDiscard,
    /// Its frame is dropped whole.
    EarlyPacketDiscard,
}

/// A cell that was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Dropped {
    cause: Cause,
    /// Whether this is the first cell of its frame to be dropped.
    frame: bool,
}

impl Dropped {
    #[cold]
    fn count(self, counters: &mut SwitchCounters) {
        let (cells, frames) = match self.cause {
            Cause::QueueFull => {
                (&mut counters.cells_dropped_queue_full, &mut counters.frames_dropped_partial)
            }
            Cause::PortFull => (&mut counters.cells_dropped_port_full, &mut counters.frames_dropped_partial),
            Cause::Priority => (&mut counters.cells_dropped_priority, &mut counters.frames_dropped_partial),
            Cause::PartialPacketDiscard => {
                (&mut counters.cells_dropped_partial, &mut counters.frames_dropped_partial)
            }
            Cause::EarlyPacketDiscard => {
                (&mut counters.cells_dropped_early, &mut counters.frames_dropped_early)
            }
        };
        *cells += 1;
        *frames += u64::from(self.frame);
    }
}

/// The position of an entry's queue within a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FramePosition {
    /// The next user cell begins a frame.
    Between,
    /// Within a frame of which no cell has been dropped here.
    Within,
    /// Within a frame that has lost a cell here: all but the last cell are dropped.
    Broken,
    /// Within a frame that is dropped whole.
    Refused,
}

/// The cells of one entry that wait at the output port.
struct Queue {
    cells: VecDeque<TimedCell>,
    /// The numbers of the queued cells for which [`is_end`] is true, counted from the first cell ever queued.
    ends: VecDeque<u64>,
    /// The number of the first queued cell.
    first: u64,
    cells_max: usize,
    frame_discard: bool,
    frame_position: FramePosition,
}

impl Queue {
    fn new(route: &Route) -> Queue {
        Queue {
            cells: VecDeque::new(),
            ends: VecDeque::new(),
            first: 0,
            cells_max: route.queue_cells_max,
            frame_discard: route.frame_discard,
            frame_position: FramePosition::Between,
        }
    }

    #[inline]
    fn push(&mut self, cell: TimedCell) {
        if is_end(cell.header) {
            self.ends.push_back(self.first + self.cells.len() as u64);
        }
        self.cells.push_back(cell);
    }

    /// Decides whether to queue a cell while `waiting` cells wait at the port.
    #[inline]
    fn check_discard(&mut self, word: u32, waiting: usize, port: &SwitchPort) -> Result<(), Dropped> {
        let no_room = if self.cells.len() >= self.cells_max {
            Some(Cause::QueueFull)
        } else if waiting >= port.port_cells_max {
            Some(Cause::PortFull)
        } else if word & 1 == 1 && waiting >= port.low_priority_cells_max {
            Some(Cause::Priority)
        } else {
            None
        };
        if !self.frame_discard || is_management(word) {
            return no_room.map_or(Ok(()), |cause| Err(Dropped { cause, frame: false }));
        }
        let (verdict, place) = match (self.frame_position, no_room) {
            (FramePosition::Refused, _) => {
                (Err(Dropped { cause: Cause::EarlyPacketDiscard, frame: false }), FramePosition::Refused)
            }
            // If there is no room for the first cell of a frame, the whole frame is dropped, since none of it
            // has been sent.
            (FramePosition::Between, cause) if cause.is_some() || waiting >= port.early_cells_max => {
                (Err(Dropped { cause: Cause::EarlyPacketDiscard, frame: true }), FramePosition::Refused)
            }
            (FramePosition::Broken, None) if is_end(word) => (Ok(()), FramePosition::Between),
            (FramePosition::Broken, _) => {
                (Err(Dropped { cause: Cause::PartialPacketDiscard, frame: false }), FramePosition::Broken)
            }
            (FramePosition::Between | FramePosition::Within, None) => (Ok(()), FramePosition::Within),
            (FramePosition::Between | FramePosition::Within, Some(cause)) => {
                (Err(Dropped { cause, frame: true }), FramePosition::Broken)
            }
        };
        self.frame_position = if is_end(word) { FramePosition::Between } else { place };
        verdict
    }
}

impl CellSource for Queue {
    type Loan = ();

    #[inline]
    fn cells(&self) -> usize {
        self.cells.len()
    }

    fn cells_to_end(&self) -> Option<usize> {
        self.ends.front().map(|end| (end - self.first) as usize + 1)
    }

    #[inline]
    fn write(&mut self, at: Instant, out: &mut Vec<TimedCell>, _: &mut ()) {
        let cell = self.cells.pop_front().expect("the scheduler takes only queued cells");
        if is_end(cell.header) {
            self.ends.pop_front();
        }
        self.first += 1;
        out.push(TimedCell { at, ..cell });
    }
}
