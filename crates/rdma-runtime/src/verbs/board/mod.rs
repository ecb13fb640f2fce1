//! The engine on the NIC of a running board ([`crate::board_nic`]), instead of a NIC of this process.
//!
//! Objects        the board's NIC has the protection domains, regions, queues, queue pairs and connections;
//!                here are the program's names for them, as for a NIC of this process.
//! Memory         the program's pages become memory that is shared with the board (`pages.rs`).
//! Calls          a call that creates or changes an object waits for the board's reply. Posting and polling
//!                are accesses to shared memory.
//! Out of band    as without a board: a queue pair's number contains a port, at which the board listens, and
//!                the end with the greater address and number connects to the other's ([`super::oob`]). Both
//!                ends are on boards.
//! Not supported  RoCEv2 out of band; datagram queue pairs, extended reliable connections, queue pairs that
//!                are connected to themselves, and changing a region.

mod connections;
mod pages;
mod pairs;
mod requests;

pub(super) use self::requests::BoardAccess;

use super::ends::EndUse;
use super::engine_state::EngineState;
use crate::board_nic::BoardNic;
use crate::linked_nic::EndState;
use kiban_base::Instant;
use kiban_rdma::hif::Request;
use kiban_rdma::nic::{self, OpenError};
use kiban_rdma::rnic::{Completion, RequestError};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Number of queue pairs per port.
const INDICES: usize = 256;

/// A port at which the board listens for connections that programs agree on out of band.
pub(super) struct OobPort {
    listener: u32,
    port: u16,
    next: usize,
    used: [bool; INDICES],
}

/// The board's NIC, and what the engine knows of its objects.
pub(super) struct BoardVerbs {
    pub(super) nic: BoardNic,
    ports: HashMap<IpAddr, OobPort>,
    /// Connections whose end the board has not reported yet, by the number of the request.
    connecting: HashMap<u32, EndUse>,
    /// The queue pairs of the connection manager's connections.
    qp_of_end: HashMap<u32, u32>,
    /// Queue pairs that are connected, and those that have failed.
    connected: HashSet<u32>,
    failed: HashSet<u32>,
    srq_limits: HashMap<u32, usize>,
}

impl BoardVerbs {
    pub(super) fn new(mut nic: BoardNic) -> BoardVerbs {
        nic.follow_all();
        BoardVerbs {
            nic,
            ports: HashMap::new(),
            connecting: HashMap::new(),
            qp_of_end: HashMap::new(),
            connected: HashSet::new(),
            failed: HashSet::new(),
            srq_limits: HashMap::new(),
        }
    }

    /// Returns the capacity and the limit of a shared receive queue.
    pub(super) fn query_srq(&self, srq: u32) -> Result<(usize, usize), RequestError> {
        let capacity = self.nic.srq_capacity(srq).ok_or(RequestError::UnknownSrq)?;
        Ok((capacity, self.srq_limits.get(&srq).copied().unwrap_or(0)))
    }

    /// Handles the end of a connection that was made out of band: the queue pair stays, and its next send
    /// ends as lost.
    pub(super) fn on_oob_end(&mut self, qp: u32) {
        self.connected.remove(&qp);
    }
}

impl EngineState {
    /// Takes the next completion of a queue.
    #[inline]
    pub(super) fn poll(&mut self, cq: u32) -> Result<Option<Completion>, RequestError> {
        let Some(board) = &mut self.board else { return self.core.nic.core.poll(cq) };
        // A queue pair that is destroyed has no completions.
        while let Some(completion) = board.nic.poll(cq) {
            if let Some(entry) = self.qps.get(completion.qp) {
                return Ok(Some(Completion { qp: entry.qpn, ..completion }));
            }
        }
        Ok(None)
    }

    // ---- ends of connections, on the NIC of this process or the board's

    pub(super) fn next_request(&mut self) -> Option<nic::Request> {
        match &mut self.board {
            Some(board) => board.nic.next_request(),
            None => self.core.next_request(),
        }
    }

    pub(super) fn next_changed(&mut self) -> Option<u32> {
        match &mut self.board {
            Some(board) => board.nic.changed(),
            None => self.core.changed(),
        }
    }

    pub(super) fn end_state(&mut self, end: u32) -> Option<&mut EndState> {
        match &mut self.board {
            Some(board) => board.nic.end_states.get_mut(&end),
            None => self.core.end_states.get_mut(&end),
        }
    }

    pub(super) fn end_addresses(&self, end: u32) -> Option<(SocketAddr, SocketAddr)> {
        match &self.board {
            Some(board) => board.nic.addresses(end),
            None => self.core.addresses(end),
        }
    }

    /// Returns IRD and ORD of a connection.
    pub(super) fn end_depths(&self, end: u32) -> (u16, u16) {
        if let Some(board) = &self.board {
            return board.nic.depths(end);
        }
        let qp = self.core.nic.qp_of(end);
        let traits = qp.and_then(|qp| self.core.nic.core.query_qp(qp).ok()).map(|(.., traits)| traits);
        traits.map_or((0, 0), |traits| (traits.ird, traits.ord))
    }

    pub(super) fn forget_end(&mut self, end: u32, now: Instant) {
        match &mut self.board {
            Some(board) => {
                board.qp_of_end.remove(&end);
                board.nic.release(end);
            }
            None => self.core.forget(end, now),
        }
    }

    pub(super) fn reject_end(&mut self, end: u32, data: &[u8], now: Instant) -> Result<(), OpenError> {
        match &mut self.board {
            Some(board) => {
                board.nic.tell(&Request::Reject { end, private_data: data.to_vec() });
                Ok(())
            }
            None => self.core.reject(end, data, now),
        }
    }

    pub(super) fn accept_end(
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
    pub(super) fn oob_port_of(&self, listener: u32) -> Option<(IpAddr, u16)> {
        let Some(board) = &self.board else { return self.ports.of_listener(listener) };
        let found = board.ports.iter().find(|(_, port)| port.listener == listener);
        found.map(|(&address, port)| (address, port.port))
    }

    /// Returns whether a queue pair has incomplete sends.
    pub(super) fn has_sends(&self, qp: u32) -> bool {
        match &self.board {
            Some(board) => board.nic.has_sends(qp),
            None => self.core.nic.core.has_sends(qp),
        }
    }
}
