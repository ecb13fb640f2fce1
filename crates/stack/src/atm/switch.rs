//! An ATM switch as a value (I.361, I.371; frame discard as in ATM Forum TM 4.1 §5.8).
//!
//! Goal      what a public network does to a board's cells: forward, delay, queue, mark, police, drop; exact to the cell.
//! Table     (port, VPI, VCI) or, for paths, (port, VPI) → output port and new name. A path keeps each cell's VCI.
//! Way       header check → table → policing at the moment of arrival → `delay` through the fabric → queue of the
//!           entry at its output port → the port's [`Scheduler`] → line.
//! Dropping  cell by cell: the circuit's or the port's queue is full, or the cell is of low priority and
//!           `low_priority_cells_max` wait. By frames (`frame_discard`; Romanow and Floyd 1995): a frame that begins while
//!           `early_cells_max` wait, or whose first cell finds no room, goes whole (early packet discard); the
//!           rest of a frame that has lost a cell here goes too, but for its last cell, which tells frames apart (partial
//!           packet discard). All thresholds count cells that wait at the output port.
//! Marking   user cells queued above `mark_cells_min` are told that they met congestion (EFCI).
//! Time      trains of several ports are given together ([`Switch::arrive_merged`]) and are merged by (moment, port).
//!           Before a cell is queued, its output port commits every slot that starts before. A cell that arrives at t is
//!           queued at t + delay; so, once arrivals up to t are in, outputs may be advanced to t + delay.
//! Limits    `queue_cells_max` for each entry, `port_cells_max` for each output port; cells that have left stay until
//!           [`Switch::advance`] asks for them.
//! Left out  point-to-multipoint, priorities between circuits, ABR; policing does not know frames.

use crate::atm::cell::{HeaderReceiver, Received, TimedCell, hec_of, is_end, is_management};
use crate::atm::counters::{HecCounters, RouteCounters, SwitchCounters};
use crate::atm::gcra::{Contract, Meter};
use crate::atm::scheduler::{Scheduler, Supply};
use crate::atm::slots::Interval;
use crate::atm::table::{Names, name_mask, name_of};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use kiban_ground::Instant;
use kiban_wire::atm::{Interface, PTI_CONGESTED, Vc, is_physical, is_unassigned};

/// Time through the fabric of a switch of the 1990s, when nothing waits.
pub const FABRIC_DELAY: Duration = Duration::from_micros(10);

/// One port.
#[derive(Clone, Copy, Debug)]
pub struct SwitchPort {
    /// Time per cell on its outgoing line.
    pub cell_time: Interval,
    /// What its header words look like, both ways.
    pub interface: Interface,
    /// Cells that may wait for its outgoing line.
    pub port_cells_max: usize,
    /// Cells waiting above which cells of low priority are dropped.
    pub low_priority_cells_max: usize,
    /// Cells waiting from which on new frames are refused whole.
    pub early_cells_max: usize,
    /// Cells waiting from which on user cells are marked.
    pub mark_cells_min: usize,
}

impl SwitchPort {
    /// A port with a queue of this many cells and no other rule.
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

/// What comes in: a circuit, or a whole path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// One virtual circuit.
    Circuit(Vc),
    /// All circuits of a virtual path that have no entry of their own.
    Path(u16),
}

impl Name {
    /// The name as bits of a header word.
    fn key(self, interface: Interface) -> u32 {
        match self {
            Name::Circuit(vc) => name_of(interface, vc),
            Name::Path(vpi) => name_of(interface, Vc::new(vpi, 0)),
        }
    }
}

/// What a policer does to a cell that breaks its contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Penalty {
    /// Drops it.
    Drop,
    /// Sets CLP, if it was not set (it is dropped if it was).
    Tag,
}

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The port at which cells come in.
    pub in_port: usize,
    /// The name under which they come in.
    pub in_name: Name,
    /// The port at which they leave.
    pub out_port: usize,
    /// The name under which they leave: of the same kind.
    pub out_name: Name,
    /// Cells of this entry that may wait at the output port.
    pub queue_cells_max: usize,
    /// What comes in is policed by.
    pub police: Option<(Contract, Penalty)>,
    /// What goes out is shaped to.
    pub shape: Option<Contract>,
    /// Whether frames are dropped early and their rests dropped; for circuits that carry AAL5.
    pub frame_discard: bool,
}

impl Route {
    /// An entry without contract that drops cell by cell.
    pub const fn plain(
        in_port: usize,
        in_name: Name,
        out_port: usize,
        out_name: Name,
        queue_cells_max: usize,
    ) -> Route {
        Route {
            in_port,
            in_name,
            out_port,
            out_name,
            queue_cells_max,
            police: None,
            shape: None,
            frame_discard: false,
        }
    }
}

/// Why an entry was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteRefused {
    /// There is no such port.
    UnknownPort,
    /// The name has an entry already: remove it first.
    InUse,
    /// A circuit becomes a circuit, a path a path.
    KindsDiffer,
    /// A path interleaves frames of many circuits: frames cannot be told apart.
    PathWithFrames,
}

impl fmt::Display for RouteRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteRefused::UnknownPort => "the switch has fewer ports",
            RouteRefused::InUse => "the name has an entry already: remove it first",
            RouteRefused::KindsDiffer => "a circuit becomes a circuit, a path a path",
            RouteRefused::PathWithFrames => "frame discard needs a circuit: a path interleaves frames",
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
    /// A switch with these ports and this time through its fabric.
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
    /// When the entry contradicts the ports or the table.
    pub fn add(&mut self, route: Route) -> Result<(), RouteRefused> {
        let (Some(in_port), Some(out_port)) = (self.ports.get(route.in_port), self.ports.get(route.out_port))
        else {
            return Err(RouteRefused::UnknownPort);
        };
        let in_interface = in_port.config.interface;
        let out_interface = out_port.config.interface;
        let rewrite = match (route.in_name, route.out_name) {
            (Name::Circuit(_), Name::Circuit(vc)) => Rewrite { keep: 0xf, put: name_of(out_interface, vc) },
            (Name::Path(_), Name::Path(_)) if route.frame_discard => {
                return Err(RouteRefused::PathWithFrames);
            }
            (Name::Path(_), Name::Path(vpi)) => {
                Rewrite { keep: 0x000f_ffff, put: name_of(out_interface, Vc::new(vpi, 0)) }
            }
            _ => return Err(RouteRefused::KindsDiffer),
        };
        let key = route.in_name.key(in_interface);
        if self.ports[route.in_port].names_mut(route.in_name).contains(key) {
            return Err(RouteRefused::InUse);
        }
        let number = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        self.ports[route.in_port].names_mut(route.in_name).insert(key, number as u32);
        self.ports[route.out_port].scheduler.place(number as u32, Queue::new(&route), route.shape);
        let police = route.police.map(|(contract, penalty)| (Meter::new(contract), penalty));
        let entry = Entry {
            in_port: route.in_port,
            in_name: route.in_name,
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

    /// Takes an entry out of the table, with the cells that wait in its queue. Whether there was one.
    pub fn remove(&mut self, in_port: usize, in_name: Name) -> bool {
        let Some(port) = self.ports.get_mut(in_port) else { return false };
        let key = in_name.key(port.config.interface);
        let Some(number) = port.names_mut(in_name).remove(key) else { return false };
        let entry = self.entries[number as usize].take().expect("a name leads to an entry");
        debug_assert_eq!((entry.in_port, entry.in_name), (in_port, in_name));
        let output = &mut self.ports[entry.out_port];
        let queue = output.scheduler.remove(number).expect("an entry has a queue");
        output.waiting -= queue.cells.len();
        true
    }

    /// A train arrives at one port; nothing arrived meanwhile at the others. Trains come in the order of their moments.
    pub fn arrive(&mut self, port: usize, train: &[TimedCell]) {
        self.counters.cells_in += train.len() as u64;
        for cell in train {
            self.on_cell(port, cell);
        }
    }

    /// Trains arrive at several ports, each in the order of its moments; they are merged by (moment, port), and are
    /// empty afterwards.
    pub fn arrive_merged(&mut self, trains: &mut [(usize, &[TimedCell])]) {
        let first = |(port, train): &(usize, &[TimedCell])| train.first().map(|cell| (cell.at, *port));
        loop {
            let next =
                trains.iter().enumerate().filter_map(|(index, train)| Some((first(train)?, index))).min();
            let Some((_, index)) = next else { return };
            // Cells of this train go on as long as no other train has an earlier one.
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

    /// Commits every slot of an output port that starts before `until` and moves its cells to the end of `out`. Cells
    /// that arrivals have committed already come too, at most the fabric's delay ahead.
    pub fn advance(&mut self, port: usize, until: Instant, out: &mut Vec<TimedCell>) {
        let output = &mut self.ports[port];
        self.counters.cells_out += output.advance(until);
        if out.is_empty() {
            core::mem::swap(out, &mut output.departed);
        } else {
            out.append(&mut output.departed);
        }
    }

    /// When the next last cell of a frame, or management cell, will have left an output port if no more input comes;
    /// never late. `NEVER` when there is none.
    pub fn next_end(&self, port: usize) -> Instant {
        let output = &self.ports[port];
        let departed = output.departed.iter().find(|cell| is_end(cell.header)).map(|cell| cell.at);
        departed.unwrap_or_else(|| output.scheduler.next_end())
    }

    /// Cells that wait at an output port.
    pub fn waiting(&self, port: usize) -> usize {
        self.ports[port].waiting
    }

    /// Whether no cell is in the switch: none waits, and none has left that nobody has asked for.
    pub fn is_empty(&self) -> bool {
        self.ports.iter().all(|port| port.waiting == 0 && port.departed.is_empty())
    }

    /// Time through the fabric.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// What happened so far to the cells of an entry, by the name under which they come in; nothing if there is no such entry.
    pub fn route_counters(&mut self, in_port: usize, in_name: Name) -> Option<RouteCounters> {
        let port = self.ports.get_mut(in_port)?;
        let key = in_name.key(port.config.interface);
        let number = port.names_mut(in_name).get(key)?;
        Some(self.entries[number as usize].as_ref().expect("a name leads to an entry").counters)
    }

    /// Cells that came in at a port and that no entry of the table leads anywhere.
    pub fn unrouted(&self, port: usize) -> u64 {
        self.ports[port].unrouted
    }

    /// What the HECs of cells that came in at a port have told.
    pub fn hec(&self, port: usize) -> HecCounters {
        self.ports[port].hec
    }

    /// What happened so far.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    #[inline]
    fn on_cell(&mut self, port: usize, cell: &TimedCell) {
        let input = &mut self.ports[port];
        let word = match input.receiver.receive(cell) {
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
        let entry = self.entries[number as usize].as_mut().expect("a name leads to an entry");
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

/// Which bits of a header word stay, and which come in place of the others.
#[derive(Clone, Copy)]
struct Rewrite {
    keep: u32,
    put: u32,
}

struct Entry {
    in_port: usize,
    in_name: Name,
    out_port: usize,
    rewrite: Rewrite,
    police: Option<(Meter, Penalty)>,
    counters: RouteCounters,
}

impl Entry {
    /// The header word after policing, or nothing when the cell is dropped.
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
    circuits: Names,
    paths: Names,
    scheduler: Scheduler<Queue>,
    /// Cells in all queues of the outgoing line.
    waiting: usize,
    /// Cells that came in here and that no entry leads anywhere.
    unrouted: u64,
    hec: HecCounters,
    /// Cells whose slots have been committed and that nobody has asked for yet.
    departed: Vec<TimedCell>,
}

/// The bits of a name that name its path.
const PATH: u32 = 0xfff0_0000;

impl Port {
    fn new(config: SwitchPort) -> Port {
        Port {
            config,
            receiver: HeaderReceiver::default(),
            circuits: Names::new(),
            paths: Names::new(),
            scheduler: Scheduler::new(config.cell_time),
            waiting: 0,
            unrouted: 0,
            hec: HecCounters::default(),
            departed: Vec::new(),
        }
    }

    fn names_mut(&mut self, name: Name) -> &mut Names {
        match name {
            Name::Circuit(_) => &mut self.circuits,
            Name::Path(_) => &mut self.paths,
        }
    }

    #[inline]
    fn look_up(&mut self, word: u32) -> Option<u32> {
        let name = word & name_mask(self.config.interface);
        self.circuits.look_up(name).or_else(|| self.paths.look_up(name & PATH))
    }

    /// Commits every slot that starts before `until`; how many cells left.
    #[inline]
    fn advance(&mut self, until: Instant) -> u64 {
        let before = self.departed.len();
        self.scheduler.advance(until, &mut self.departed, &mut ());
        let left = self.departed.len() - before;
        self.waiting -= left;
        left as u64
    }

    /// Queues a cell, whose header is as it will leave, or drops it.
    #[inline]
    fn queue(
        &mut self,
        number: u32,
        mut cell: TimedCell,
        entry: &mut RouteCounters,
        counters: &mut SwitchCounters,
    ) {
        let queue = self.scheduler.supply_mut(number).expect("an entry has a queue");
        if let Err(dropped) = queue.judge(cell.header, self.waiting, &self.config) {
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

/// Why a cell was dropped at its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    QueueFull,
    PortFull,
    Priority,
    /// Its frame had lost a cell before.
    Partial,
    /// Its frame is refused whole.
    Early,
}

/// A cell that was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Dropped {
    cause: Cause,
    /// Whether its frame, until then intact, goes with it.
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
            Cause::Partial => (&mut counters.cells_dropped_partial, &mut counters.frames_dropped_partial),
            Cause::Early => (&mut counters.cells_dropped_early, &mut counters.frames_dropped_early),
        };
        *cells += 1;
        *frames += u64::from(self.frame);
    }
}

/// Where in a frame an entry's queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The next user cell begins a frame.
    Between,
    /// Within a frame that has lost nothing here.
    Within,
    /// Within a frame that has lost a cell here: all goes but the last cell.
    Broken,
    /// Within a frame that was refused whole.
    Refused,
}

/// The cells of one entry that wait at the output port.
struct Queue {
    cells: VecDeque<TimedCell>,
    /// The numbers, counted from the first cell ever, of the queued cells that end something.
    ends: VecDeque<u64>,
    /// The number of the first queued cell.
    first: u64,
    cells_max: usize,
    frame_discard: bool,
    place: Place,
}

impl Queue {
    fn new(route: &Route) -> Queue {
        Queue {
            cells: VecDeque::new(),
            ends: VecDeque::new(),
            first: 0,
            cells_max: route.queue_cells_max,
            frame_discard: route.frame_discard,
            place: Place::Between,
        }
    }

    #[inline]
    fn push(&mut self, cell: TimedCell) {
        if is_end(cell.header) {
            self.ends.push_back(self.first + self.cells.len() as u64);
        }
        self.cells.push_back(cell);
    }

    /// What becomes of a cell while `waiting` cells wait at the port.
    #[inline]
    fn judge(&mut self, word: u32, waiting: usize, port: &SwitchPort) -> Result<(), Dropped> {
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
        let (verdict, place) = match (self.place, no_room) {
            (Place::Refused, _) => (Err(Dropped { cause: Cause::Early, frame: false }), Place::Refused),
            // A frame whose first cell finds no room is refused whole as well: nothing of it has been sent.
            (Place::Between, cause) if cause.is_some() || waiting >= port.early_cells_max => {
                (Err(Dropped { cause: Cause::Early, frame: true }), Place::Refused)
            }
            (Place::Broken, None) if is_end(word) => (Ok(()), Place::Between),
            (Place::Broken, _) => (Err(Dropped { cause: Cause::Partial, frame: false }), Place::Broken),
            (Place::Between | Place::Within, None) => (Ok(()), Place::Within),
            (Place::Between | Place::Within, Some(cause)) => {
                (Err(Dropped { cause, frame: true }), Place::Broken)
            }
        };
        self.place = if is_end(word) { Place::Between } else { place };
        verdict
    }
}

impl Supply for Queue {
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
        let cell = self.cells.pop_front().expect("the scheduler asks for a cell that is there");
        if is_end(cell.header) {
            self.ends.pop_front();
        }
        self.first += 1;
        out.push(TimedCell { at, ..cell });
    }
}
