//! Pulls cells through lines and switches.

use super::state::{LineLink, SwitchNode, World};
use crate::network::plug::Attachment;
use kiban_base::Instant;
use std::time::Duration;

impl World {
    /// Puts all cells on a line that will arrive at its far end by `until`.
    pub(super) fn pull(&mut self, number: usize, until: Instant) {
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
    pub(super) fn pull_switch(&mut self, number: usize, until: Instant) {
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
    pub(super) fn skip_quiet(&mut self) {
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
    pub(super) fn enter(&mut self, number: usize, until: Instant) {
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
}
