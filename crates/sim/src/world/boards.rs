//! Calls boards and their programs.

use super::state::{Node, World};
use crate::models::processor::Stage;
use crate::network::plug::Attachment;
use kiban_base::{Instant, SharedRoom};
use kiban_board::{Input, Output};
use std::time::Duration;

/// Maximum number of polls of one board at one instant. If there are more, the world reports a livelock.
pub(super) const POLLS_MAX: usize = 1_000_000;

/// Maximum packet length of a VI port, bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 16;

impl World {
    /// Lets a board process cells, packets, a timeout, or its programs' calls.
    pub(super) fn work(&mut self, number: usize, input: Input<'_>) {
        let started = self.ticks.map(|ticks| ticks());
        let node = &mut self.nodes[number];
        node.board.handle(input, self.now);
        if !node.parcels.is_empty() {
            node.board.handle(Input::Parcels { parcels: &mut node.parcels }, self.now);
        }
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
    pub(super) fn drain(&mut self, number: usize, mut started: Option<u64>) -> Instant {
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
                    Some(cable) => {
                        let cable = &mut self.cable_links[cable].cable;
                        cable.send(&pdu, now);
                        if cable.must_hold(now) {
                            node.board.hold(port, true);
                            node.ports[port].held = true;
                        }
                    }
                    None => node.packets_nowhere += 1,
                },
                Output::Idle { deadline } => {
                    self.pass_on(number);
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

    /// Passes the parcels of a shard to the others, which are called at this time.
    fn pass_on(&mut self, number: usize) {
        while let Some((to, parcel)) = self.nodes[number].board.parcel() {
            let to = self.nodes[number].shards[to];
            self.nodes[to].parcels.push_back(parcel);
            self.wake(to, self.now);
        }
    }

    /// Moves the VI packets that fit onto their cables, and releases ports whose cables have room again.
    /// Returns the current time if there were any, otherwise the time when there will be room.
    pub(super) fn fetch(&mut self, number: usize) -> Instant {
        let mut room_at = Instant::NEVER;
        let Node { board, ports, packets_nowhere, .. } = &mut self.nodes[number];
        for (port, port_state) in ports.iter_mut().enumerate().filter(|(_, port_state)| port_state.held) {
            let Some(cable) = port_state.cable else { continue };
            let free_at = self.cable_links[cable].cable.room_at(self.now);
            room_at = room_at.min(free_at);
            if free_at <= self.now {
                port_state.held = false;
                board.hold(port, false);
            }
        }
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
                Some(cable) => drop(cable.send_bytes(self.message[..length].to_vec(), self.now)),
                None => *packets_nowhere += 1,
            }
        }
        room_at
    }

    /// Schedules the events that follow from a board's output. Returns when a port will have the room that it
    /// waits for.
    pub(super) fn expect_from(&mut self, number: usize) -> Instant {
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
    pub(super) fn attend(&mut self, number: usize) {
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

    pub(super) fn charge(&mut self, started: Option<u64>) {
        if let (Some(ticks), Some(started)) = (self.ticks, started) {
            self.cost.board_ticks += ticks().saturating_sub(started);
        }
    }
}
