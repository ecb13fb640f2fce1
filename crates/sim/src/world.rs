//! The world: boards and switches joined by lines and cables, in virtual time.
//!
//! Goal      run the unchanged code of the boards in controlled time, exact to the cell and many times faster
//!           than the line.
//! Events    there are few: the end of a frame or the arrival of a packet at the far end of a line, a board's
//!           deadline, and room in a port. Events are kept in a heap ordered by (time, number), so that a run
//!           can be repeated exactly.
//! Pull      cells move only when they are needed. At an event, each node concerned pulls its lines up to the
//!           time of the event: a line pulls its sender, and a switch pulls the lines into it, each up to the
//!           latest time at which a cell can arrive and still leave the switch in time. A switch subtracts
//!           the transit time of its fabric, so every pull goes further back in time and ends at boards,
//!           which have acted already. Switches that feed each other are pulled in steps no longer than the
//!           round-trip delay between them; time in which no cell is in transit is skipped.
//! Packets   are pushed rather than pulled: a packet that a board sends goes onto its cable at once
//!           (`cable.rs`), and causes an event where it arrives.
//! Early     the end of the next frame on a line is known exactly if nothing more is sent, and is never
//!           earlier than predicted. An event that turns out to be too early is rescheduled.
//! Terminals send and receive cells without feedback (`programs/terminal.rs`): they cause no events, and
//!           receive cells when a frame ends or at [`World::collect`].
//! Cost      processor time is measured with a tick source that the caller supplies, because the world has no
//!           clock.
//! Modelled  a board may be given a modelled processor (`models/processor.rs`); the board is then called only
//!           when that processor is free.

use crate::models::cost::CostModel;
use crate::models::processor::{Processor, Stage};
use crate::network::cable::{Cable, CableConfig};
use crate::network::line::Line;
use crate::network::plug::{
    AttachError, Attachment, BoardNumber, CableNumber, LineNumber, PortKind, SwitchNumber, TerminalNumber,
};
use crate::programs::program::Program;
use crate::programs::terminal::Terminal;
use kiban_atm::{Switch, TimedCell};
use kiban_base::{Instant, Pdu, RngKey, SharedBytes, SharedRoom, SimRng};
use kiban_board::impairment::ImpairmentConfig;
use kiban_board::{Board, BoardConfig, Input, Output};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Maximum number of polls of one board at one instant. If there are more, the world reports a livelock.
const POLLS_MAX: usize = 1_000_000;

/// Maximum packet length of a VI port, bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// Processor time by consumer, in ticks of the supplied source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The boards: protocols, segmentation, reassembly.
    pub board_ticks: u64,
    /// The programs, including the copies at the host edge.
    pub host_ticks: u64,
}

struct LineLink {
    from: Attachment,
    to: Attachment,
    line: Line,
    /// When the event for the line's next frame end is due, if one is in the heap.
    event_at: Instant,
}

struct CableLink {
    to: BoardNumber,
    port: usize,
    cable: Cable,
    /// When the event for the cable's next arrival is due, if one is in the heap.
    event_at: Instant,
}

struct PortState {
    kind: PortKind,
    /// The outgoing cable of a packet port.
    cable: Option<usize>,
}

struct Node {
    board: Board,
    ports: Vec<PortState>,
    /// Packets sent through a port that is not connected.
    packets_nowhere: u64,
    programs: Vec<Box<dyn Program>>,
    /// The number of programs, at the end of the list, that have not been started.
    fresh: usize,
    wake_at: Instant,
    /// Lines out of the board.
    out: Vec<usize>,
    /// The modelled processor. With `None`, processing takes no time.
    processor: Option<Box<Processor>>,
}

struct SwitchNode {
    switch: Switch,
    into: Vec<usize>,
    out: Vec<usize>,
    pulled: Instant,
    /// How far the switch may be pulled at once before the other switches that feed it must be pulled too.
    /// `None` means that no other switch feeds it.
    stride: Option<Duration>,
    trains: Vec<(usize, Vec<TimedCell>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A frame may have ended at the far end of a line.
    End(usize),
    /// A packet may have arrived at the far end of a cable.
    Arrival(usize),
    /// A board's deadline, or room in one of its ports.
    Wake(usize),
}

/// Boards, switches, lines, cables, and the time.
pub struct World {
    now: Instant,
    rng: SimRng,
    nodes: Vec<Node>,
    switches: Vec<SwitchNode>,
    terminals: Vec<Box<dyn Terminal>>,
    line_links: Vec<LineLink>,
    cable_links: Vec<CableLink>,
    heap: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    number: u64,
    ticks: Option<fn() -> u64>,
    cost: Cost,
    events: u64,
    cells: Vec<TimedCell>,
    packets: VecDeque<Pdu>,
    /// Buffer for a packet that a cable fetches.
    message: Vec<u8>,
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

    /// Adds a board.
    pub fn add_board(&mut self, config: &BoardConfig) -> BoardNumber {
        let port_state = |port| PortState { kind: PortKind::of(port), cable: None };
        // The fork numbers of boards must differ from the fork numbers of lines and cables.
        let key = RngKey::for_simulation(self.rng.fork((2 << 32) + self.nodes.len() as u64).draw());
        self.nodes.push(Node {
            board: Board::new(config, key),
            ports: config.ports.iter().map(port_state).collect(),
            packets_nowhere: 0,
            programs: Vec::new(),
            fresh: 0,
            wake_at: Instant::NEVER,
            out: Vec::new(),
            processor: None,
        });
        BoardNumber(self.nodes.len() - 1)
    }

    /// Adds a switch.
    pub fn add_switch(&mut self, switch: Switch) -> SwitchNumber {
        self.switches.push(SwitchNode {
            switch,
            into: Vec::new(),
            out: Vec::new(),
            pulled: Instant::ZERO,
            stride: None,
            trains: Vec::new(),
        });
        SwitchNumber(self.switches.len() - 1)
    }

    /// Adds a terminal.
    pub fn add_terminal(&mut self, terminal: Box<dyn Terminal>) -> TerminalNumber {
        self.terminals.push(terminal);
        TerminalNumber(self.terminals.len() - 1)
    }

    /// Connects two attachments for cells by a line of some length in both directions. Each direction has the
    /// rate of the port that sends.
    ///
    /// # Errors
    /// If the attachments do not match, or are not for cells.
    pub fn connect(
        &mut self,
        one: Attachment,
        other: Attachment,
        metres: f64,
        impairment: ImpairmentConfig,
    ) -> Result<(LineNumber, LineNumber), AttachError> {
        match self.kind_of_both(one, other)? {
            PortKind::Cells => {
                let there = self.lay(one, other, metres, impairment);
                Ok((there, self.lay(other, one, metres, impairment)))
            }
            kind => Err(AttachError::NotCells(one, kind)),
        }
    }

    /// Connects two packet ports by a cable. Both directions start with the same properties, which
    /// [`Cable::set_config`] can change.
    ///
    /// # Errors
    /// If the attachments do not match, or are for cells.
    pub fn connect_packets(
        &mut self,
        one: Attachment,
        other: Attachment,
        config: &CableConfig,
    ) -> Result<(CableNumber, CableNumber), AttachError> {
        match (self.kind_of_both(one, other)?, one, other) {
            (
                PortKind::Packets | PortKind::Frames | PortKind::Messages | PortKind::Pulled,
                Attachment::Board(one, near),
                Attachment::Board(other, far),
            ) => {
                let there = self.lay_cable((one, near), (other, far), config);
                let back = self.lay_cable((other, far), (one, near), config);
                // The port's link comes up, so the board configures its addresses and announces itself.
                for BoardNumber(node) in [one, other] {
                    if let Some(processor) = &mut self.nodes[node].processor {
                        processor.due = self.now;
                    }
                    self.wake(node, self.now);
                }
                Ok((there, back))
            }
            _ => Err(AttachError::NotPackets(one)),
        }
    }

    /// Returns what both attachments carry, if they are free and match.
    fn kind_of_both(&self, one: Attachment, other: Attachment) -> Result<PortKind, AttachError> {
        let kinds = (self.kind_of(one)?, self.kind_of(other)?);
        match kinds.0 == kinds.1 {
            true if one == other => Err(AttachError::Taken(other)),
            true => Ok(kinds.0),
            false => Err(AttachError::Differ(one, kinds.0, other, kinds.1)),
        }
    }

    /// Returns what an attachment carries, if it is free.
    fn kind_of(&self, plug: Attachment) -> Result<PortKind, AttachError> {
        let (kind, has_cable) = match plug {
            Attachment::Switch(..) | Attachment::Terminal(_) => (PortKind::Cells, false),
            Attachment::Board(board, port) => {
                let port_state = self.nodes[board.0].ports.get(port).ok_or(AttachError::NoSuchPort(plug))?;
                (port_state.kind, port_state.cable.is_some())
            }
        };
        let is_taken = has_cable || self.line_links.iter().any(|link| link.from == plug);
        if is_taken { Err(AttachError::Taken(plug)) } else { Ok(kind) }
    }

    fn lay_cable(
        &mut self,
        from: (BoardNumber, usize),
        to: (BoardNumber, usize),
        config: &CableConfig,
    ) -> CableNumber {
        let number = self.cable_links.len();
        let port_state = &mut self.nodes[from.0.0].ports[from.1];
        // The fork numbers of cables must differ from the fork numbers of lines.
        let rng = self.rng.fork((1 << 32) + number as u64);
        let cable = Cable::new(*config, port_state.kind.link_type(), rng);
        port_state.cable = Some(number);
        self.cable_links.push(CableLink { to: to.0, port: to.1, cable, event_at: Instant::NEVER });
        CableNumber(number)
    }

    fn lay(
        &mut self,
        from: Attachment,
        to: Attachment,
        metres: f64,
        impairment: ImpairmentConfig,
    ) -> LineNumber {
        let number = self.line_links.len();
        let line = Line::new(metres, impairment, self.rng.fork(number as u64 + 1));
        self.line_links.push(LineLink { from, to, line, event_at: Instant::NEVER });
        match from {
            Attachment::Board(board, _) => self.nodes[board.0].out.push(number),
            Attachment::Switch(switch, _) => self.switches[switch.0].out.push(number),
            Attachment::Terminal(_) => {}
        }
        if let Attachment::Switch(switch, _) = to {
            self.switches[switch.0].into.push(number);
            if let Attachment::Switch(other, _) = from {
                let delay = |switch: SwitchNumber| self.switches[switch.0].switch.delay();
                let there_and_back = delay(switch) + self.line_links[number].line.delay + delay(other);
                let stride = &mut self.switches[switch.0].stride;
                let shortest = stride.map_or(there_and_back, |known| known.min(there_and_back));
                *stride = Some(shortest.max(Duration::from_nanos(1)));
            }
        }
        LineNumber(number)
    }

    /// Gives a board a program and starts it.
    pub fn run_program(&mut self, board: BoardNumber, program: Box<dyn Program>) {
        let node = &mut self.nodes[board.0];
        node.programs.push(program);
        node.fresh += 1;
        self.wake(board.0, self.now);
    }

    /// Gives a board a modelled processor. `mss` is the payload of its segments, bytes.
    pub fn set_processor(&mut self, board: BoardNumber, model: CostModel, mss: u16) {
        let node = &mut self.nodes[board.0];
        let mut processor = Processor::new(model, mss);
        // The processor decides when the board is called.
        processor.due = node.wake_at;
        node.processor = Some(Box::new(processor));
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
    pub fn switch(&self, switch: SwitchNumber) -> &Switch {
        &self.switches[switch.0].switch
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

    /// Runs until all programs are done, no event is left, or `until` is reached. Returns whether the
    /// programs are done.
    pub fn run(&mut self, until: Instant) -> bool {
        self.run_with(until, &mut |_| {})
    }

    /// Like [`World::run`], but calls `look` after every event (for a progress bar).
    pub fn run_with(&mut self, until: Instant, look: &mut dyn FnMut(&World)) -> bool {
        while !self.is_done() {
            if !self.step(until) {
                return self.is_done();
            }
            look(self);
        }
        true
    }

    /// Runs until no event is left or `until` is reached, so that the timers of closed sessions expire too.
    pub fn settle(&mut self, until: Instant) {
        while self.step(until) {}
    }

    /// Runs until `until`, whether or not programs are done, and passes the cells that have arrived by then
    /// to the terminals.
    pub fn collect(&mut self, until: Instant) {
        self.settle(until);
        self.now = self.now.max(until);
        for number in 0..self.line_links.len() {
            if let Attachment::Terminal(terminal) = self.line_links[number].to {
                self.pull(number, until);
                self.hand_over(number, terminal);
            }
        }
    }

    /// Passes the cells that have arrived by now to a terminal.
    fn hand_over(&mut self, number: usize, terminal: TerminalNumber) {
        let mut cells = std::mem::take(&mut self.cells);
        self.line_links[number].line.arrive(self.now, &mut cells);
        if !cells.is_empty() {
            self.terminals[terminal.0].arrive(&cells);
        }
        cells.clear();
        self.cells = cells;
    }

    /// Handles the next event, unless it is after `until`.
    fn step(&mut self, until: Instant) -> bool {
        let Some(Reverse((moment, _, event))) = self.heap.peek().copied() else { return false };
        if moment > until {
            return false;
        }
        self.heap.pop();
        self.now = moment;
        self.events += 1;
        match event {
            Event::End(line) => self.on_end(line),
            Event::Arrival(cable) => self.on_arrival(cable),
            Event::Wake(node) if self.nodes[node].wake_at == moment => {
                self.nodes[node].wake_at = Instant::NEVER;
                match &mut self.nodes[node].processor {
                    Some(_) => self.attend(node),
                    None => self.work(node, Input::Timeout),
                }
            }
            Event::Wake(_) => {}
        }
        true
    }

    fn push(&mut self, moment: Instant, event: Event) {
        self.number += 1;
        self.heap.push(Reverse((moment, self.number, event)));
    }

    /// Handles the possible end of a frame at the far end of a line.
    fn on_end(&mut self, number: usize) {
        if self.line_links[number].event_at != self.now {
            return;
        }
        self.line_links[number].event_at = Instant::NEVER;
        self.skip_quiet();
        match self.line_links[number].to {
            Attachment::Switch(switch, _) => {
                let reach = self.now + self.switches[switch.0].switch.delay();
                self.pull_switch(switch.0, reach);
                for index in 0..self.switches[switch.0].out.len() {
                    self.expect(self.switches[switch.0].out[index]);
                }
            }
            Attachment::Terminal(terminal) => {
                self.pull(number, self.now);
                self.hand_over(number, terminal);
            }
            Attachment::Board(board, port) => {
                self.pull(number, self.now);
                if self.line_links[number].line.next_end() <= self.now {
                    let mut cells = std::mem::take(&mut self.cells);
                    self.line_links[number].line.arrive(self.now, &mut cells);
                    match &mut self.nodes[board.0].processor {
                        Some(processor) => {
                            processor.queue_cells(port, &cells);
                            self.attend(board.0);
                        }
                        None => self.work(board.0, Input::Cells { port, cells: &cells }),
                    }
                    cells.clear();
                    self.cells = cells;
                }
            }
        }
        self.expect(number);
    }

    /// Handles the possible arrival of a packet at the far end of a cable.
    fn on_arrival(&mut self, number: usize) {
        let CableLink { to, port, cable, event_at } = &mut self.cable_links[number];
        if *event_at != self.now {
            return;
        }
        *event_at = Instant::NEVER;
        let (node, port) = (to.0, *port);
        if self.nodes[node].ports[port].kind.is_fetched() {
            while let Some(bytes) = self.cable_links[number].cable.arrive_bytes(self.now) {
                self.work(node, Input::Message { port, bytes: SharedBytes::from(&bytes[..]) });
            }
            return self.expect_arrival(number);
        }
        let mut packets = std::mem::take(&mut self.packets);
        cable.arrive(self.now, self.nodes[node].board.memory_mut(), &mut packets);
        if !packets.is_empty() {
            match &mut self.nodes[node].processor {
                Some(processor) => {
                    processor.queue_packets(port, &mut packets);
                    self.attend(node);
                }
                None => self.work(node, Input::Packets { port, packets: &mut packets }),
            }
        }
        self.packets = packets;
        self.expect_arrival(number);
    }

    /// Puts all cells on a line that will arrive at its far end by `until`.
    fn pull(&mut self, number: usize, until: Instant) {
        let until = until - self.line_links[number].line.delay;
        match self.line_links[number].from {
            Attachment::Board(board, port) => {
                let started = self.ticks.map(|ticks| ticks());
                let LineLink { line, .. } = &mut self.line_links[number];
                let node = &mut self.nodes[board.0];
                node.board.cells(port, until, &mut line.fresh);
                self.charge(started);
                self.line_links[number].line.depart();
            }
            Attachment::Terminal(terminal) => {
                let LineLink { line, .. } = &mut self.line_links[number];
                self.terminals[terminal.0].cells(until, &mut line.fresh);
                line.depart();
            }
            Attachment::Switch(switch, port) => {
                self.pull_switch(switch.0, until);
                let LineLink { line, .. } = &mut self.line_links[number];
                self.switches[switch.0].switch.advance(port, until, &mut line.fresh);
                line.depart();
            }
        }
    }

    /// Passes all cells to a switch that can leave it by `until`.
    fn pull_switch(&mut self, number: usize, until: Instant) {
        let switch_node = &self.switches[number];
        let until = until - switch_node.switch.delay();
        let Some(stride) = switch_node.stride else {
            if until > switch_node.pulled {
                self.enter(number, until);
            }
            return;
        };
        while self.switches[number].pulled < until {
            self.enter(number, until.min(self.switches[number].pulled + stride));
        }
    }

    /// Skips the time up to now in which no cell is in a switch or arrives at one.
    fn skip_quiet(&mut self) {
        let until = self.now;
        let far_behind = |switch_node: &SwitchNode| {
            switch_node.stride.is_some_and(|stride| switch_node.pulled + stride < until)
        };
        let is_empty = |switch_node: &SwitchNode| switch_node.switch.is_empty();
        if !self.switches.iter().any(far_behind) || !self.switches.iter().all(is_empty) {
            return;
        }
        let mut first = until;
        for number in 0..self.line_links.len() {
            if let LineLink { from, to: Attachment::Switch(..), .. } = self.line_links[number] {
                if let Attachment::Board(..) | Attachment::Terminal(_) = from {
                    self.pull(number, until);
                }
                let under_way = &self.line_links[number].line.under_way;
                first = first.min(under_way.front().map_or(until, |cell| cell.at - Duration::from_nanos(1)));
            }
        }
        for switch_node in &mut self.switches {
            switch_node.pulled = switch_node.pulled.max(first);
        }
    }

    /// Passes all cells to a switch that arrive there by `until`.
    fn enter(&mut self, number: usize, until: Instant) {
        let switch_node = &mut self.switches[number];
        switch_node.pulled = until;
        let into = std::mem::take(&mut switch_node.into);
        let mut trains = std::mem::take(&mut switch_node.trains);
        trains.resize_with(into.len(), Default::default);
        for (line, train) in into.iter().zip(&mut trains) {
            self.pull(*line, until);
            let Attachment::Switch(_, port) = self.line_links[*line].to else {
                unreachable!("lines into a switch end there")
            };
            train.0 = port;
            train.1.clear();
            self.line_links[*line].line.arrive(until, &mut train.1);
        }
        let switch_node = &mut self.switches[number];
        match trains.iter().filter(|train| !train.1.is_empty()).count() {
            0 => {}
            1 => trains.iter().for_each(|(port, train)| switch_node.switch.arrive(*port, train)),
            _ => {
                let mut slices: Vec<_> = trains.iter().map(|(port, train)| (*port, &train[..])).collect();
                switch_node.switch.arrive_merged(&mut slices);
            }
        }
        switch_node.into = into;
        switch_node.trains = trains;
    }

    /// Schedules an event for the next frame end on a line.
    fn expect(&mut self, number: usize) {
        let link = &self.line_links[number];
        let sent = match link.from {
            Attachment::Board(board, port) => self.nodes[board.0].board.next_cell_end(port),
            Attachment::Switch(switch, port) => self.switches[switch.0].switch.next_end(port),
            Attachment::Terminal(_) => Instant::NEVER,
        };
        let arrives = if sent == Instant::NEVER { sent } else { sent + link.line.delay };
        let next = arrives.min(link.line.next_end()).max(self.now);
        if next < link.event_at && next != Instant::NEVER {
            self.line_links[number].event_at = next;
            self.push(next, Event::End(number));
        }
    }

    /// Schedules an event for the next arrival on a cable.
    fn expect_arrival(&mut self, number: usize) {
        let link = &mut self.cable_links[number];
        let next = link.cable.next_arrival();
        if next < link.event_at {
            link.event_at = next;
            self.push(next, Event::Arrival(number));
        }
    }

    fn wake(&mut self, node: usize, moment: Instant) {
        let moment = moment.max(self.now);
        if moment < self.nodes[node].wake_at {
            self.nodes[node].wake_at = moment;
            self.push(moment, Event::Wake(node));
        }
    }

    /// Lets a board process cells, packets, a timeout, or its programs' calls.
    fn work(&mut self, number: usize, input: Input<'_>) {
        let started = self.ticks.map(|ticks| ticks());
        let node = &mut self.nodes[number];
        node.board.handle(input, self.now);
        let begun = node.programs.len() - node.fresh;
        for (number, program) in node.programs[..begun].iter_mut().enumerate() {
            if program.deadline() <= self.now {
                program.on_timeout(&mut node.board.host_of(number), self.now);
            }
        }
        let deadline = self.drain(number, started);
        let due = self.expect_from(number).min(deadline);
        if due != Instant::NEVER {
            self.wake(number, due);
        }
    }

    /// Drains a board until it is idle, and returns its deadline.
    fn drain(&mut self, number: usize, mut started: Option<u64>) -> Instant {
        let (ticks, now) = (self.ticks, self.now);
        let node = &mut self.nodes[number];
        if node.fresh > 0 {
            let first = node.programs.len() - std::mem::take(&mut node.fresh);
            for (number, program) in node.programs.iter_mut().enumerate().skip(first) {
                program.start(&mut node.board.host_of(number), now);
            }
        }
        for _ in 0..POLLS_MAX {
            let node = &mut self.nodes[number];
            match node.board.poll() {
                Output::Completions => {
                    let board_until = ticks.map(|ticks| ticks());
                    while let Some((consumer, completion)) = node.board.completion() {
                        // Completions of calls that a test made outside any program belong to the first
                        // program.
                        if let Some(program) = node.programs.get_mut(consumer.program as usize) {
                            program.on_completion(completion, &mut node.board.host_for(consumer), now);
                        }
                    }
                    if let (Some(ticks), Some(board_until), Some(from)) = (ticks, board_until, started) {
                        let host_until = ticks();
                        self.cost.board_ticks += board_until.saturating_sub(from);
                        self.cost.host_ticks += host_until.saturating_sub(board_until);
                        started = Some(host_until);
                    }
                }
                Output::Transmit { port, pdu } => match node.ports[port].cable {
                    Some(cable) => self.cable_links[cable].cable.send(&pdu, now),
                    None => node.packets_nowhere += 1,
                },
                Output::Idle { deadline } => {
                    let room_at = self.fetch(number);
                    if room_at <= now {
                        continue;
                    }
                    let programs = self.nodes[number].programs.iter().map(|program| program.deadline());
                    let deadline = programs.fold(deadline.min(room_at), Instant::min);
                    self.charge(started);
                    return deadline;
                }
            }
        }
        panic!("board {number} does not come to rest at {now:?}");
    }

    /// Moves the VI packets that fit onto their cables. Returns the current time if any were moved, otherwise
    /// the time when there will be room.
    fn fetch(&mut self, number: usize) -> Instant {
        let mut room_at = Instant::NEVER;
        let Node { board, ports, packets_nowhere, .. } = &mut self.nodes[number];
        for (port, port_state) in
            ports.iter().enumerate().filter(|(_, port_state)| port_state.kind.is_fetched())
        {
            let mut cable = port_state.cable.map(|cable| &mut self.cable_links[cable].cable);
            let free_at = cable.as_mut().map_or(self.now, |cable| cable.room_at(self.now));
            if free_at > self.now {
                room_at = room_at.min(free_at);
                continue;
            }
            self.message.resize(MESSAGE_BYTES_MAX, 0);
            let Some(length) = board.fetch(port, &mut SharedRoom::from(&mut self.message[..])) else {
                continue;
            };
            room_at = self.now;
            match cable {
                Some(cable) => cable.send_bytes(self.message[..length].to_vec(), self.now),
                None => *packets_nowhere += 1,
            }
        }
        room_at
    }

    /// Schedules the events that follow from a board's output. Returns when a port will have the room that it
    /// waits for.
    fn expect_from(&mut self, number: usize) -> Instant {
        let mut room_at = Instant::NEVER;
        for port in 0..self.nodes[number].ports.len() {
            if let Some(cable) = self.nodes[number].ports[port].cable {
                self.expect_arrival(cable);
            }
        }
        for index in 0..self.nodes[number].out.len() {
            let line = self.nodes[number].out[index];
            self.expect(line);
            let Attachment::Board(_, port) = self.line_links[line].from else {
                unreachable!("a board's own line")
            };
            room_at = room_at.min(self.nodes[number].board.next_room(port));
        }
        room_at
    }

    /// Starts the next work of a board's modelled processor, if it is free.
    fn attend(&mut self, number: usize) {
        let now = self.now;
        loop {
            let Node { board, processor, fresh, .. } = &mut self.nodes[number];
            let processor = processor.as_mut().expect("the board has a processor");
            if now < processor.free_at {
                let free_at = processor.free_at;
                return self.wake(number, free_at);
            }
            if processor.stage == Stage::Rest && processor.take(board, now) {
                continue;
            }
            match processor.stage {
                Stage::Rest if *fresh > 0 || processor.due <= now => {
                    board.handle(Input::Timeout, now);
                    processor.stage = Stage::Drain;
                }
                Stage::Rest => {
                    let due = processor.due;
                    if due != Instant::NEVER {
                        self.wake(number, due);
                    }
                    return;
                }
                Stage::Heard => {
                    board.handle(processor.take_input(), now);
                    processor.stage = Stage::Drain;
                }
                Stage::Drain => {
                    processor.stage = Stage::Rest;
                    let deadline = self.drain(number, None);
                    let due = self.expect_from(number).min(deadline);
                    let Node { board, processor, .. } = &mut self.nodes[number];
                    let processor = processor.as_mut().expect("the board has a processor");
                    // A deadline at the current time would loop forever, so use the next nanosecond.
                    processor.due = if due <= now { now + Duration::from_nanos(1) } else { due };
                    processor.charge_work(board, now);
                }
            }
        }
    }

    fn charge(&mut self, started: Option<u64>) {
        if let (Some(ticks), Some(started)) = (self.ticks, started) {
            self.cost.board_ticks += ticks().saturating_sub(started);
        }
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
