//! Builds a world: boards, switches, terminals, lines and cables.

use super::state::{CableEnd, CableLink, EthernetNode, LineLink, Node, PortState, SwitchNode, World};
use crate::models::cost::CostModel;
use crate::models::processor::Processor;
use crate::network::cable::{Cable, CableConfig};
use crate::network::line::Line;
use crate::network::plug::{
    AttachError, Attachment, BoardNumber, CableNumber, EthernetSwitchNumber, LineNumber, PortKind,
    SwitchNumber, TerminalNumber,
};
use crate::network::switch;
use crate::programs::program::Program;
use crate::programs::terminal::Terminal;
use kiban_atm::Switch;
use kiban_base::{Instant, RngKey};
use kiban_board::impairment::ImpairmentConfig;
use kiban_board::{Board, BoardConfig, ShardConfig, Steering};
use std::collections::VecDeque;
use std::time::Duration;

impl World {
    /// Adds a board.
    pub fn add_board(&mut self, config: &BoardConfig) -> BoardNumber {
        let port_state = |port| PortState { kind: PortKind::of(port), cable: None, held: false };
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
            shards: Vec::new(),
            parcels: VecDeque::new(),
            bursts: 0,
        });
        BoardNumber(self.nodes.len() - 1)
    }

    /// Adds a board of several shards, and returns all of them. Only the ports of the first one are connected
    /// to cables, which serve all shards. A cable passes its arrivals to the shards in turn, whatever their
    /// flows, so most of them have to be handed on.
    ///
    /// # Panics
    /// If there is no shard.
    pub fn add_shards(&mut self, config: &BoardConfig, shards: usize) -> Vec<BoardNumber> {
        let key = RngKey::for_simulation(self.rng.fork((3 << 32) + self.nodes.len() as u64).draw());
        let steering = Steering::new(shards, key);
        let numbers: Vec<BoardNumber> = (0..shards)
            .map(|number| {
                let shard = Some(ShardConfig { number, steering });
                self.add_board(&BoardConfig { shard, ..config.clone() })
            })
            .collect();
        let nodes: Vec<usize> = numbers.iter().map(|BoardNumber(node)| *node).collect();
        nodes.iter().for_each(|node| self.nodes[*node].shards.clone_from(&nodes));
        numbers
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

    /// Adds an Ethernet switch.
    pub fn add_ethernet_switch(&mut self, switch: switch::Switch) -> EthernetSwitchNumber {
        let boards = vec![None; switch.ports()];
        self.ethernets.push(EthernetNode { switch, boards, event_at: Instant::NEVER });
        EthernetSwitchNumber(self.ethernets.len() - 1)
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
                let there = self.lay_cable((one, near), CableEnd::Board(other.0, far), config);
                let back = self.lay_cable((other, far), CableEnd::Board(one.0, near), config);
                [one, other].into_iter().for_each(|board| self.link_up(board));
                Ok((there, back))
            }
            _ => Err(AttachError::NotPackets(one)),
        }
    }

    /// Connects an Ethernet port of a board to a port of an Ethernet switch. `up` is the cable to the switch;
    /// the switch has the one back.
    ///
    /// # Errors
    /// If there is no such port, or it is not for Ethernet frames, or is connected.
    ///
    /// # Panics
    /// If the switch has no such port.
    pub fn connect_to_switch(
        &mut self,
        board: BoardNumber,
        port: usize,
        (switch, switch_port): (EthernetSwitchNumber, usize),
        up: &CableConfig,
    ) -> Result<CableNumber, AttachError> {
        let attachment = Attachment::Board(board, port);
        if self.kind_of(attachment)? != PortKind::Frames {
            return Err(AttachError::NotFrames(attachment));
        }
        if self.ethernets[switch.0].boards[switch_port].replace((board.0, port)).is_some() {
            return Err(AttachError::Taken(attachment));
        }
        let cable = self.lay_cable((board, port), CableEnd::Ethernet(switch.0, switch_port), up);
        self.link_up(board);
        Ok(cable)
    }

    /// A port's link comes up, so its board configures its addresses and announces itself.
    fn link_up(&mut self, BoardNumber(node): BoardNumber) {
        self.nodes[node].shards.clone().into_iter().for_each(|shard| self.wake(shard, self.now));
        if let Some(processor) = &mut self.nodes[node].processor {
            processor.due = self.now;
        }
        self.wake(node, self.now);
    }

    /// Returns what both attachments carry, if they are free and match.
    pub(super) fn kind_of_both(&self, one: Attachment, other: Attachment) -> Result<PortKind, AttachError> {
        let kinds = (self.kind_of(one)?, self.kind_of(other)?);
        match kinds.0 == kinds.1 {
            true if one == other => Err(AttachError::Taken(other)),
            true => Ok(kinds.0),
            false => Err(AttachError::Differ(one, kinds.0, other, kinds.1)),
        }
    }

    /// Returns what an attachment carries, if it is free.
    pub(super) fn kind_of(&self, plug: Attachment) -> Result<PortKind, AttachError> {
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

    pub(super) fn lay_cable(
        &mut self,
        from: (BoardNumber, usize),
        to: CableEnd,
        config: &CableConfig,
    ) -> CableNumber {
        let number = self.cable_links.len();
        let port_state = &mut self.nodes[from.0.0].ports[from.1];
        // The fork numbers of cables must differ from the fork numbers of lines.
        let rng = self.rng.fork((1 << 32) + number as u64);
        let cable = Cable::new(*config, port_state.kind.link_type(), rng);
        port_state.cable = Some(number);
        let others: Vec<usize> = self.nodes[from.0.0].shards.clone();
        others.into_iter().for_each(|node| self.nodes[node].ports[from.1].cable = Some(number));
        self.cable_links.push(CableLink { to, cable, event_at: Instant::NEVER });
        CableNumber(number)
    }

    pub(super) fn lay(
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
}
