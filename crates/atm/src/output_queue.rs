//! The cells that wait at an output port of a switch: a queue for each table entry, and groups of queues.
//!
//! Discard          early and partial packet discard: once a cell of a frame is dropped, so is the rest of
//!                  the frame, except its last cell, which delimits the frames.
//! Groups           the queues of a group are one supply for the port's scheduler, which shapes them
//!                  together. The group chooses among them by category and weight.

use crate::cell::{TimedCell, is_end, is_management};
use crate::counters::SwitchCounters;
use crate::scheduler::CellSource;
use crate::service::{Service, ServiceRing};
use crate::slots::Interval;
use crate::wire::atm::Interface;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use kiban_base::Instant;

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
pub(crate) struct Dropped {
    cause: Cause,
    /// Whether this is the first cell of its frame to be dropped.
    frame: bool,
}

impl Dropped {
    #[cold]
    pub(crate) fn count(self, counters: &mut SwitchCounters) {
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
pub(crate) struct Queue {
    pub(crate) cells: VecDeque<TimedCell>,
    /// The numbers of the queued cells for which [`is_end`] is true, counted from the first cell ever queued.
    ends: VecDeque<u64>,
    /// The number of the first queued cell.
    first: u64,
    cells_max: usize,
    frame_discard: bool,
    frame_position: FramePosition,
}

impl Queue {
    pub(crate) fn new(cells_max: usize, frame_discard: bool) -> Queue {
        Queue {
            cells: VecDeque::new(),
            ends: VecDeque::new(),
            first: 0,
            cells_max,
            frame_discard,
            frame_position: FramePosition::Between,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, cell: TimedCell) {
        if is_end(cell.header) {
            self.ends.push_back(self.first + self.cells.len() as u64);
        }
        self.cells.push_back(cell);
    }

    /// Decides whether to queue a cell while `waiting` cells wait at the port.
    #[inline]
    pub(crate) fn check_discard(
        &mut self,
        word: u32,
        waiting: usize,
        port: &SwitchPort,
    ) -> Result<(), Dropped> {
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

impl Queue {
    fn cells_to_end(&self) -> Option<usize> {
        self.ends.front().map(|end| (end - self.first) as usize + 1)
    }

    #[inline]
    fn pop(&mut self) -> TimedCell {
        let cell = self.cells.pop_front().expect("the scheduler takes only queued cells");
        if is_end(cell.header) {
            self.ends.pop_front();
        }
        self.first += 1;
        cell
    }
}

/// The entries of a group, each with its queue.
#[derive(Default)]
pub(crate) struct Group {
    queues: BTreeMap<u32, (Queue, Service)>,
    /// The entries that have cells.
    ring: ServiceRing,
    cells: usize,
}

impl Group {
    pub(crate) fn insert(&mut self, number: u32, queue: Queue, service: Service) {
        self.queues.insert(number, (queue, service));
    }

    /// Removes an entry and returns the number of cells in its queue.
    pub(crate) fn remove(&mut self, number: u32) -> usize {
        let Some((queue, _)) = self.queues.remove(&number) else { return 0 };
        self.ring.remove(number);
        self.cells -= queue.cells.len();
        queue.cells.len()
    }

    /// Records that a cell was added to an entry's queue.
    pub(crate) fn on_push(&mut self, number: u32) {
        self.cells += 1;
        if let Some((queue, service)) = self.queues.get(&number)
            && queue.cells.len() == 1
        {
            self.ring.push(number, *service);
        }
    }

    fn pop(&mut self) -> TimedCell {
        let number = self.ring.pop().expect("the scheduler takes only queued cells");
        let (queue, service) = self.queues.get_mut(&number).expect("the ring names only entries");
        let cell = queue.pop();
        self.cells -= 1;
        if !queue.cells.is_empty() {
            self.ring.push(number, *service);
        }
        cell
    }
}

/// What a port's scheduler serves.
pub(crate) enum Supply {
    Entry(Queue),
    Group(Group),
}

impl Supply {
    pub(crate) fn group_mut(&mut self) -> Option<&mut Group> {
        if let Supply::Group(group) = self { Some(group) } else { None }
    }

    #[inline]
    pub(crate) fn queue_mut(&mut self, number: u32) -> Option<&mut Queue> {
        match self {
            Supply::Entry(queue) => Some(queue),
            Supply::Group(group) => group.queues.get_mut(&number).map(|(queue, _)| queue),
        }
    }
}

impl CellSource for Supply {
    type Loan = ();

    #[inline]
    fn cells(&self) -> usize {
        match self {
            Supply::Entry(queue) => queue.cells.len(),
            Supply::Group(group) => group.cells,
        }
    }

    /// For a group, returns a number that is not too high: at best, the entry with the next end goes first.
    fn cells_to_end(&self) -> Option<usize> {
        match self {
            Supply::Entry(queue) => queue.cells_to_end(),
            Supply::Group(group) => group.queues.values().filter_map(|(queue, _)| queue.cells_to_end()).min(),
        }
    }

    #[inline]
    fn write(&mut self, at: Instant, out: &mut Vec<TimedCell>, _: &mut ()) {
        let cell = match self {
            Supply::Entry(queue) => queue.pop(),
            Supply::Group(group) => group.pop(),
        };
        out.push(TimedCell { at, ..cell });
    }
}
