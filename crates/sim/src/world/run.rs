//! Runs a world: takes events from the heap and schedules new ones.

use super::state::{CableEnd, CableLink, EthernetNode, Event, World};
use crate::network::plug::{Attachment, TerminalNumber};
use kiban_base::{Instant, Pdu, SharedBytes};
use kiban_board::Input;
use std::cmp::Reverse;
use std::collections::VecDeque;

impl World {
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
    pub(super) fn hand_over(&mut self, number: usize, terminal: TerminalNumber) {
        let mut cells = std::mem::take(&mut self.cells);
        self.line_links[number].line.arrive(self.now, &mut cells);
        if !cells.is_empty() {
            self.terminals[terminal.0].arrive(&cells);
        }
        cells.clear();
        self.cells = cells;
    }

    /// Handles the next event, unless it is after `until`.
    pub(super) fn step(&mut self, until: Instant) -> bool {
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
            Event::Ethernet(switch) => self.on_ethernet(switch),
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

    pub(super) fn push(&mut self, moment: Instant, event: Event) {
        self.number += 1;
        self.heap.push(Reverse((moment, self.number, event)));
    }

    /// Handles the possible end of a frame at the far end of a line.
    pub(super) fn on_end(&mut self, number: usize) {
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
    pub(super) fn on_arrival(&mut self, number: usize) {
        let CableLink { to, cable, event_at } = &mut self.cable_links[number];
        if *event_at != self.now {
            return;
        }
        *event_at = Instant::NEVER;
        let (node, port) = match *to {
            CableEnd::Board(node, port) => (node, port),
            CableEnd::Ethernet(switch, port) => {
                while let Some(frame) = cable.arrive_bytes(self.now) {
                    self.ethernets[switch].switch.arrive(port, frame, self.now);
                }
                self.expect_arrival(number);
                return self.expect_from_switch(switch);
            }
        };
        if self.nodes[node].ports[port].kind.is_fetched() {
            while let Some(bytes) = self.cable_links[number].cable.arrive_bytes(self.now) {
                self.work(node, Input::Message { port, bytes: SharedBytes::from(&bytes[..]) });
            }
            return self.expect_arrival(number);
        }
        let shards = self.nodes[node].shards.len();
        let node = match shards {
            0 => node,
            _ => {
                self.nodes[node].bursts += 1;
                self.nodes[node].shards[self.nodes[node].bursts % shards]
            }
        };
        let mut packets = std::mem::take(&mut self.packets);
        let cable = &mut self.cable_links[number].cable;
        cable.arrive(self.now, self.nodes[node].board.memory_mut(), &mut packets);
        self.give_packets(node, port, packets);
        self.expect_arrival(number);
    }

    /// Gives packets to a board, and keeps the empty queue.
    fn give_packets(&mut self, node: usize, port: usize, mut packets: VecDeque<Pdu>) {
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
    }

    /// Delivers the frames that have arrived behind an Ethernet switch, and runs its flow control.
    fn on_ethernet(&mut self, number: usize) {
        if self.ethernets[number].event_at != self.now {
            return;
        }
        self.ethernets[number].event_at = Instant::NEVER;
        self.ethernets[number].switch.advance(self.now);
        while let Some((port, frame)) = self.ethernets[number].switch.leave(self.now) {
            let EthernetNode { switch, boards, .. } = &mut self.ethernets[number];
            let Some((node, board_port)) = boards[port] else { continue };
            let mut packets = std::mem::take(&mut self.packets);
            let memory = self.nodes[node].board.memory_mut();
            switch.port_mut(port).lay_down(&frame, memory, &mut packets);
            self.give_packets(node, board_port, packets);
        }
        self.expect_from_switch(number);
    }

    /// Schedules an event for an Ethernet switch.
    fn expect_from_switch(&mut self, number: usize) {
        let EthernetNode { switch, event_at, .. } = &mut self.ethernets[number];
        let next = switch.deadline().max(self.now);
        if next < *event_at {
            *event_at = next;
            self.push(next, Event::Ethernet(number));
        }
    }

    /// Schedules an event for the next frame end on a line.
    pub(super) fn expect(&mut self, number: usize) {
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
    pub(super) fn expect_arrival(&mut self, number: usize) {
        let link = &mut self.cable_links[number];
        let next = link.cable.next_arrival();
        if next < link.event_at {
            link.event_at = next;
            self.push(next, Event::Arrival(number));
        }
    }

    pub(super) fn wake(&mut self, node: usize, moment: Instant) {
        let moment = moment.max(self.now);
        if moment < self.nodes[node].wake_at {
            self.nodes[node].wake_at = moment;
            self.push(moment, Event::Wake(node));
        }
    }
}
