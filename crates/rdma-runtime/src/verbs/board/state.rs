//! The board's NIC as the engine sees it, and the way to the board.

use super::super::ends::EndUse;
use super::pages::Pages;
use crate::board_nic::{BoardNic, Door};
use kiban_rdma::rnic::RequestError;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;

/// The way to a board, and the memory that is shared with it.
pub(in super::super) struct BoardAccess {
    pub(super) door: Door,
    pub(super) pages: Mutex<Pages>,
}

impl BoardAccess {
    pub(super) fn new(door: Door) -> BoardAccess {
        BoardAccess { door, pages: Mutex::default() }
    }
}

/// Number of queue pairs per port.
pub(super) const INDICES: usize = 256;

/// A port at which the board listens for connections that programs agree on out of band.
pub(in super::super) struct OobPort {
    pub(super) listener: u32,
    pub(super) port: u16,
    pub(super) next: usize,
    pub(super) used: [bool; INDICES],
}

/// The board's NIC, and what the engine knows of its objects.
pub(in super::super) struct BoardVerbs {
    pub(in super::super) nic: BoardNic,
    pub(super) ports: HashMap<IpAddr, OobPort>,
    /// Connections whose end the board has not reported yet, by the number of the request.
    pub(super) connecting: HashMap<u32, EndUse>,
    /// The queue pairs of the connection manager's connections.
    pub(super) qp_of_end: HashMap<u32, u32>,
    /// Queue pairs that are connected, and those that have failed.
    pub(super) connected: HashSet<u32>,
    pub(super) failed: HashSet<u32>,
    pub(super) srq_limits: HashMap<u32, usize>,
}

impl BoardVerbs {
    pub(in super::super) fn new(mut nic: BoardNic) -> BoardVerbs {
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
    pub(in super::super) fn query_srq(&self, srq: u32) -> Result<(usize, usize), RequestError> {
        let capacity = self.nic.srq_capacity(srq).ok_or(RequestError::UnknownSrq)?;
        Ok((capacity, self.srq_limits.get(&srq).copied().unwrap_or(0)))
    }

    /// Handles the end of a connection that was made out of band: the queue pair stays, and its next send
    /// ends as lost.
    pub(in super::super) fn on_oob_end(&mut self, qp: u32) {
        self.connected.remove(&qp);
    }
}
