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
//! Groups           entries of a group leave as one shaped path: the contract limits their sum, and within it
//!                  they are served by category and weight, each from its own queue ([`Switch::add_group`]).
//! Not implemented  point-to-multipoint, ABR, frame-aware policing; shaping an entry of a group separately.

use crate::cell::{HeaderReceiver, Received, TimedCell, hec_of, is_end, is_management};
use crate::counters::{HecCounters, RouteCounters, SwitchCounters};
use crate::gcra::{Contract, Meter};
use crate::output_queue::{Group, Queue, Supply, SwitchPort};
use crate::scheduler::{CellSource, Scheduler};
use crate::service::Service;
use crate::table::{HeaderTable, name_mask, name_of};
use crate::wire::atm::{Interface, PTI_CONGESTED, Vc, is_physical, is_unassigned};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use kiban_base::Instant;

/// Typical delay through the fabric of a switch of the 1990s, without queueing.
pub const FABRIC_DELAY: Duration = Duration::from_micros(10);

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
    /// How the entry is served when others of its output port, or of its group, also have cells.
    pub service: Service,
    /// The group in whose contract the entry's cells leave, if any.
    pub group: Option<GroupId>,
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
            service: Service::UBR,
            group: None,
            frame_discard: false,
        }
    }
}

/// The number of a group of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupId(usize);

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
    /// There is no such group at the entry's output port.
    UnknownGroup,
    /// The entry has a shape, but its group is shaped as a whole.
    ShapeInGroup,
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
            RouteError::UnknownGroup => "the output port has no group with this number",
            RouteError::ShapeInGroup => {
                "a group is shaped as a whole: remove the entry's shape, or shape its source"
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
    /// The output port of each group.
    groups: Vec<usize>,
    counters: SwitchCounters,
}

/// The number of an entry's queue in its output port's scheduler. Groups have the numbers between.
fn queue_of(entry: u32) -> u32 {
    2 * entry
}

fn group_of(GroupId(group): GroupId) -> u32 {
    2 * group as u32 + 1
}

impl Switch {
    /// Creates a switch with the given ports and delay through its fabric.
    pub fn new(ports: &[SwitchPort], delay: Duration) -> Switch {
        Switch {
            delay,
            ports: ports.iter().map(|config| Port::new(*config)).collect(),
            entries: Vec::new(),
            groups: Vec::new(),
            counters: SwitchCounters::default(),
        }
    }

    /// Adds a group, whose entries together are shaped to `contract`.
    ///
    /// # Errors
    /// [`RouteError::UnknownPort`].
    pub fn add_group(
        &mut self,
        out_port: usize,
        contract: Contract,
        service: Service,
    ) -> Result<GroupId, RouteError> {
        let port = self.ports.get_mut(out_port).ok_or(RouteError::UnknownPort)?;
        let group = GroupId(self.groups.len());
        self.groups.push(out_port);
        port.scheduler.insert(group_of(group), Supply::Group(Group::default()), Some(contract), service);
        Ok(group)
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
        if let Some(GroupId(group)) = route.group {
            if self.groups.get(group) != Some(&route.out_port) {
                return Err(RouteError::UnknownGroup);
            }
            if route.shape.is_some() {
                return Err(RouteError::ShapeInGroup);
            }
        }
        let key = route.in_connection.key(in_interface);
        if self.ports[route.in_port].names_mut(route.in_connection).contains(key) {
            return Err(RouteError::InUse);
        }
        let number = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        self.ports[route.in_port].names_mut(route.in_connection).insert(key, number as u32);
        let scheduler = &mut self.ports[route.out_port].scheduler;
        let queue = Queue::new(route.queue_cells_max, route.frame_discard);
        match route.group {
            None => {
                let supply = Supply::Entry(queue);
                scheduler.insert(queue_of(number as u32), supply, route.shape, route.service);
            }
            Some(id) => {
                let group = scheduler.supply_mut(group_of(id)).and_then(Supply::group_mut);
                group.expect("groups stay").insert(number as u32, queue, route.service);
            }
        }
        let police = route.police.map(|(contract, penalty)| (Meter::new(contract), penalty));
        let entry = Entry {
            in_port: route.in_port,
            in_name: route.in_connection,
            out_port: route.out_port,
            group: route.group,
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
        let cells = match entry.group {
            None => output.scheduler.remove(queue_of(number)).expect("an entry has a queue").cells(),
            Some(id) => {
                let group = output.scheduler.supply_mut(group_of(id)).and_then(Supply::group_mut);
                let cells = group.expect("groups stay").remove(number);
                // Without cells, the group must leave the scheduler's ring.
                output.scheduler.rest(group_of(id));
                cells
            }
        };
        output.waiting -= cells;
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
        let (group, entry) = (entry.group, &mut entry.counters);
        let cell = TimedCell { at: moment, header: word, ..*cell };
        output.queue((number, group), cell, entry, &mut self.counters);
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
    group: Option<GroupId>,
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
    scheduler: Scheduler<Supply>,
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
        (number, group): (u32, Option<GroupId>),
        mut cell: TimedCell,
        entry: &mut RouteCounters,
        counters: &mut SwitchCounters,
    ) {
        let name = group.map_or(queue_of(number), group_of);
        let supply = self.scheduler.supply_mut(name).expect("an entry has a queue");
        let queue = supply.queue_mut(number).expect("an entry has a queue");
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
        if let Supply::Group(group) = supply {
            group.on_push(number);
        }
        if was_empty {
            self.scheduler.wake(name, cell.at);
        }
    }
}
