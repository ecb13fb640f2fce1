//! Connections of the board's NIC.

use super::super::ends::{CmEvent, EndUse, Retry};
use super::super::engine_state::EngineState;
use crate::link::Address;
use kiban_base::Instant;
use kiban_rdma::hif::{Answer, Request, Transport};
use kiban_rdma::nic::ConnectError;

impl EngineState {
    /// Handles the board's replies to requests to connect. Returns whether there were any.
    pub(in super::super) fn hear_board(&mut self, now: Instant) -> bool {
        let mut replies = Vec::new();
        if let Some(board) = &mut self.board {
            let numbers: Vec<u32> = board.connecting.keys().copied().collect();
            for number in numbers {
                if let Some(reply) = board.nic.reply(number)
                    && let Some(of) = board.connecting.remove(&number)
                {
                    replies.push((of, reply));
                }
            }
        }
        let heard = !replies.is_empty();
        for (of, reply) in replies {
            let end = match reply {
                Ok(Answer::Number(end)) => Some(end),
                _ => None,
            };
            self.on_connecting(of, end, now);
        }
        heard
    }

    /// Handles the beginning of a connection with this end, or its refusal.
    fn on_connecting(&mut self, of: EndUse, end: Option<u32>, now: Instant) {
        self.has_events = true;
        match (of, end) {
            (EndUse::Meeting(qp), None) => self.call_again(qp, now),
            (EndUse::Meeting(qp), Some(end)) => match self.qps.entries.get_mut(&qp) {
                Some(entry) if entry.oob.is_some() && entry.end.is_none() => {
                    entry.end = Some(end);
                    self.own_board_end(end, EndUse::Meeting(qp));
                }
                _ => self.forget_end(end, now),
            },
            (EndUse::Manager(listens, Some(again)), Some(to)) => {
                let end = again.before.unwrap_or(to);
                listens.on_event(CmEvent::Retried { end, to, local: None });
                self.set_board_qp(to, again.qp);
                self.own_board_end(to, EndUse::Manager(listens, Some(again)));
            }
            (EndUse::Manager(listens, Some(again)), None) => {
                let end = again.before.unwrap_or_default();
                listens.on_event(CmEvent::Failed { end, error: ConnectError::Lost });
            }
            (_, Some(end)) => self.forget_end(end, now),
            (_, None) => {}
        }
    }

    /// Records the queue pair of a connection of the connection manager.
    pub(super) fn set_board_qp(&mut self, end: u32, qp: u32) {
        if let Some(board) = &mut self.board {
            board.qp_of_end.insert(end, qp);
        }
    }

    /// Gives an end its owner, who gets the events that have come before.
    pub(super) fn own_board_end(&mut self, end: u32, of: EndUse) {
        self.ends.of.insert(end, of);
        if let Some(board) = &mut self.board {
            board.nic.report(end);
        }
    }

    /// Retries a connection of the connection manager.
    pub(in super::super) fn connect_again_on_board(&mut self, end: u32, of: EndUse) {
        let EndUse::Manager(listens, Some(again)) = of else { return };
        let again = Box::new(Retry { before: Some(end), ..*again });
        let Address::Ip(remote) = again.route.to else { return };
        let Some(board) = &mut self.board else { return };
        let request = Request::Connect {
            transport: board.nic.transport(),
            remote,
            qp: again.qp,
            depths: again.depths,
            private_data: again.private_data.clone(),
        };
        match board.nic.ask(&request) {
            Ok(number) => {
                board.connecting.insert(number, EndUse::Manager(listens, Some(again)));
            }
            Err(_) => drop(listens.on_event(CmEvent::Failed { end, error: ConnectError::Lost })),
        }
    }

    /// Records that a connection of the connection manager is established, or has ended.
    pub(in super::super) fn note_board_end(&mut self, end: u32, is_connected: bool, is_over: bool) {
        let Some(board) = &mut self.board else { return };
        let Some(&qp) = board.qp_of_end.get(&end) else { return };
        if is_connected {
            board.connected.insert(qp);
        }
        if is_over && board.connected.contains(&qp) {
            board.failed.insert(qp);
        }
    }

    /// Returns the transport of connections of the connection manager.
    pub(super) fn board_transport(&self) -> Transport {
        self.board.as_ref().map_or(Transport::Tcp, |board| board.nic.transport())
    }
}
