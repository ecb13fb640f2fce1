//! Completions and the ends of connections, on the NIC of this process or the board's.

use super::super::engine_state::EngineState;
use crate::linked_nic::EndState;
use kiban_base::Instant;
use kiban_rdma::hif::Request;
use kiban_rdma::nic::{self, OpenError};
use kiban_rdma::rnic::{Completion, RequestError};
use std::net::{IpAddr, SocketAddr};

impl EngineState {
    /// Takes the next completion of a queue.
    #[inline]
    pub(in super::super) fn poll(&mut self, cq: u32) -> Result<Option<Completion>, RequestError> {
        let Some(board) = &mut self.board else { return self.core.nic.core.poll(cq) };
        // A queue pair that is destroyed has no completions.
        while let Some(completion) = board.nic.poll(cq) {
            if let Some(entry) = self.qps.get(completion.qp) {
                return Ok(Some(Completion { qp: entry.qpn, ..completion }));
            }
        }
        Ok(None)
    }

    pub(in super::super) fn next_request(&mut self) -> Option<nic::Request> {
        match &mut self.board {
            Some(board) => board.nic.next_request(),
            None => self.core.next_request(),
        }
    }

    pub(in super::super) fn next_changed(&mut self) -> Option<u32> {
        match &mut self.board {
            Some(board) => board.nic.changed(),
            None => self.core.changed(),
        }
    }

    pub(in super::super) fn end_state(&mut self, end: u32) -> Option<&mut EndState> {
        match &mut self.board {
            Some(board) => board.nic.end_states.get_mut(&end),
            None => self.core.end_states.get_mut(&end),
        }
    }

    pub(in super::super) fn end_addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        match &self.board {
            Some(board) => board.nic.addresses(end),
            None => self.core.addresses(end),
        }
    }

    /// Returns IRD and ORD of a connection.
    pub(in super::super) fn end_depths(&self, end: u32) -> (u16, u16) {
        if let Some(board) = &self.board {
            return board.nic.depths(end);
        }
        let qp = self.core.nic.qp_of(end);
        let traits = qp.and_then(|qp| self.core.nic.core.query_qp(qp).ok()).map(|(.., traits)| traits);
        traits.map_or((0, 0), |traits| (traits.ird, traits.ord))
    }

    pub(in super::super) fn forget_end(&mut self, end: u32, now: Instant) {
        match &mut self.board {
            Some(board) => {
                board.qp_of_end.remove(&end);
                board.nic.release(end);
            }
            None => self.core.forget(end, now),
        }
    }

    pub(in super::super) fn reject_end(
        &mut self,
        end: u32,
        data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        match &mut self.board {
            Some(board) => {
                board.nic.tell(&Request::Reject { end, private_data: data.to_vec() });
                Ok(())
            }
            None => self.core.reject(end, data, now),
        }
    }

    pub(in super::super) fn accept_end(
        &mut self,
        end: u32,
        qp: u32,
        depths: (u16, u16),
        data: &[u8],
        now: Instant,
    ) -> Result<(), OpenError> {
        match &mut self.board {
            // If this fails, the end is withdrawn.
            Some(board) => {
                board.nic.tell(&Request::Accept { end, qp, depths, private_data: data.to_vec() });
                Ok(())
            }
            None => self.core.accept(end, qp, depths, data, now),
        }
    }

    /// Returns the address and port at which a listener accepts connections that are agreed on out of band.
    pub(in super::super) fn oob_port_of(&self, listener: u32) -> Option<(IpAddr, u16)> {
        let Some(board) = &self.board else { return self.ports.of_listener(listener) };
        let found = board.ports.iter().find(|(_, port)| port.listener == listener);
        found.map(|(&address, port)| (address, port.port))
    }

    /// Returns whether a queue pair has incomplete sends.
    pub(in super::super) fn has_sends(&self, qp: u32) -> bool {
        match &self.board {
            Some(board) => board.nic.has_sends(qp),
            None => self.core.nic.core.has_sends(qp),
        }
    }
}
