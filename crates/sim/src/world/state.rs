//! The state of a world, and access to its parts.

use crate::models::processor::Processor;
use crate::network::cable::Cable;
use crate::network::line::Line;
use crate::network::plug::{
    Attachment, BoardNumber, CableNumber, EthernetSwitchNumber, LineNumber, PortKind, SwitchNumber,
    TerminalNumber,
};
use crate::network::switch::Switch;
use crate::programs::program::Program;
use crate::programs::terminal::Terminal;
use kiban_atm::TimedCell;
use kiban_base::{Instant, Pdu, SimRng};
use kiban_board::{Board, Parcel};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Processor time by consumer, in ticks of the supplied source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The boards: protocols, segmentation, reassembly.
    pub board_ticks: u64,
    /// The programs, including the copies at the host edge.
    pub host_ticks: u64,
}

pub(super) struct LineLink {
    pub(super) from: Attachment,
    pub(super) to: Attachment,
    pub(super) line: Line,
    /// When the event for the line's next frame end is due, if one is in the heap.
    pub(super) event_at: Instant,
}

/// The far end of a cable: a port of a board, or of an Ethernet switch.
#[derive(Clone, Copy)]
pub(super) enum CableEnd {
    Board(usize, usize),
    Ethernet(usize, usize),
}

pub(super) struct CableLink {
    pub(super) to: CableEnd,
    pub(super) cable: Cable,
    /// When the event for the cable's next arrival is due, if one is in the heap.
    pub(super) event_at: Instant,
}

pub(super) struct PortState {
    pub(super) kind: PortKind,
    /// The outgoing cable of a packet port.
    pub(super) cable: Option<usize>,
    /// Whether the port is held, because its cable has no room.
    pub(super) held: bool,
}

/// An Ethernet switch.
pub(super) struct EthernetNode {
    pub(super) switch: Switch,
    /// The port of a board at each port of the switch.
    pub(super) boards: Vec<Option<(usize, usize)>>,
    /// When the switch's next event is due, if one is in the heap.
    pub(super) event_at: Instant,
}

pub(super) struct Node {
    pub(super) board: Board,
    pub(super) ports: Vec<PortState>,
    /// Packets sent through a port that is not connected.
    pub(super) packets_nowhere: u64,
    pub(super) programs: Vec<Box<dyn Program>>,
    /// The number of programs, at the end of the list, that have not been started.
    pub(super) fresh: usize,
    pub(super) wake_at: Instant,
    /// Lines out of the board.
    pub(super) out: Vec<usize>,
    /// The modelled processor. With `None`, processing takes no time.
    pub(super) processor: Option<Box<Processor>>,
    /// The nodes of all shards, by shard number, if this is a shard of a divided board.
    pub(super) shards: Vec<usize>,
    /// Parcels of other shards that the board has not taken yet.
    pub(super) parcels: VecDeque<Parcel>,
    /// The number of bursts that have arrived at the ports of a divided board, if this is its first shard.
    pub(super) bursts: usize,
}

pub(super) struct SwitchNode {
    pub(super) switch: kiban_atm::Switch,
    pub(super) into: Vec<usize>,
    pub(super) out: Vec<usize>,
    pub(super) pulled: Instant,
    /// How far the switch may be pulled at once before the other switches that feed it must be pulled too.
    /// `None` means that no other switch feeds it.
    pub(super) stride: Option<Duration>,
    pub(super) trains: Vec<(usize, Vec<TimedCell>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A frame may have ended at the far end of a line.
    End(usize),
    /// A packet may have arrived at the far end of a cable.
    Arrival(usize),
    /// A board's deadline, or room in one of its ports.
    Wake(usize),
    /// A frame may have arrived behind an Ethernet switch, or its flow control is due.
    Ethernet(usize),
}

/// Boards, switches, lines, cables, and the time.
pub struct World {
    pub(super) now: Instant,
    pub(super) rng: SimRng,
    pub(super) nodes: Vec<Node>,
    pub(super) switches: Vec<SwitchNode>,
    pub(super) ethernets: Vec<EthernetNode>,
    pub(super) terminals: Vec<Box<dyn Terminal>>,
    pub(super) line_links: Vec<LineLink>,
    pub(super) cable_links: Vec<CableLink>,
    pub(super) heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    pub(super) number: u64,
    pub(super) ticks: Option<fn() -> u64>,
    pub(super) cost: Cost,
    pub(super) events: u64,
    pub(super) cells: Vec<TimedCell>,
    pub(super) packets: VecDeque<Pdu>,
    /// Buffer for a packet that a cable fetches.
    pub(super) message: Vec<u8>,
}

impl World {
    /// Creates an empty world. All of its random numbers, including the keys of its boards, are derived from
    /// `seed`.
    pub fn new(seed: u64) -> World {
        World {
            now: Instant::ZERO,
            rng: SimRng::from_seed(seed),
            nodes: Vec::new(),
            switches: Vec::new(),
            ethernets: Vec::new(),
            terminals: Vec::new(),
            line_links: Vec::new(),
            cable_links: Vec::new(),
            heap: BinaryHeap::new(),
            number: 0,
            ticks: None,
            cost: Cost::default(),
            events: 0,
            cells: Vec::new(),
            packets: VecDeque::new(),
            message: Vec::new(),
        }
    }

    /// Sets the tick source with which processor time is measured.
    pub fn set_tick_source(&mut self, ticks: fn() -> u64) {
        self.ticks = Some(ticks);
    }

    /// Returns how long a board's modelled processor has worked; zero if it has none.
    pub fn processor_busy(&self, board: BoardNumber) -> Duration {
        self.nodes[board.0].processor.as_ref().map_or(Duration::ZERO, |processor| processor.busy())
    }

    /// Takes a board's programs, to query them.
    pub fn take_programs(&mut self, board: BoardNumber) -> Vec<Box<dyn Program>> {
        std::mem::take(&mut self.nodes[board.0].programs)
    }

    /// Returns the first of a board's programs that is a `P`.
    pub fn program<P: Program>(&self, board: BoardNumber) -> Option<&P> {
        self.nodes[board.0].programs.iter().find_map(|program| program.as_any().downcast_ref())
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns a board.
    pub fn board(&self, board: BoardNumber) -> &Board {
        &self.nodes[board.0].board
    }

    /// Returns a board, for tests that interfere with it.
    pub fn board_mut(&mut self, board: BoardNumber) -> &mut Board {
        &mut self.nodes[board.0].board
    }

    /// Returns a switch.
    pub fn switch(&self, switch: SwitchNumber) -> &kiban_atm::Switch {
        &self.switches[switch.0].switch
    }

    /// Returns an Ethernet switch.
    pub fn ethernet_switch(&mut self, switch: EthernetSwitchNumber) -> &mut Switch {
        &mut self.ethernets[switch.0].switch
    }

    /// Returns a terminal, if it is a `T`.
    pub fn terminal<T: Terminal>(&mut self, terminal: TerminalNumber) -> Option<&mut T> {
        self.terminals[terminal.0].as_any_mut().downcast_mut()
    }

    /// Returns a line.
    pub fn line(&mut self, line: LineNumber) -> &mut Line {
        &mut self.line_links[line.0].line
    }

    /// Returns all cables, one for each direction, in the order in which they were connected.
    pub fn cables(&self) -> impl Iterator<Item = CableNumber> + use<> {
        (0..self.cable_links.len()).map(CableNumber)
    }

    /// Returns one direction of a cable.
    pub fn cable(&mut self, cable: CableNumber) -> &mut Cable {
        &mut self.cable_links[cable.0].cable
    }

    /// Returns the number of packets that a board sent through unconnected ports. They are lost.
    pub fn unattached_packets(&self, board: BoardNumber) -> u64 {
        self.nodes[board.0].packets_nowhere
    }

    /// Returns the processor time used so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns whether all programs are done.
    pub fn is_done(&self) -> bool {
        self.nodes.iter().flat_map(|node| &node.programs).all(|program| program.is_done())
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (boards, switches, lines) = (self.nodes.len(), self.switches.len(), self.line_links.len());
        let cables = self.cable_links.len();
        write!(
            f,
            "World({boards} boards, {switches} switches, {lines} lines, {cables} cables, {:?})",
            self.now
        )
    }
}
