//! A NIC's objects: protection tags, VIs, completion queues, and connection requests.

use super::callbacks::Line;
use super::nic::{Kind, Nic};
use crate::abi::VIP_PVOID;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// A protection tag that a program holds.
pub(crate) struct Tag {
    pub(crate) nic: Arc<Nic>,
    pub(crate) number: u32,
}

/// Which queue of a VI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Send = 0,
    Receive = 1,
}

/// A VI that a program holds.
pub(crate) struct Vi {
    pub(crate) nic: Arc<Nic>,
    pub(crate) number: u32,
    /// The NIC's number for the VI's protection tag.
    pub(crate) tag: AtomicU32,
    /// Whether sends and receives report to a completion queue.
    pub(crate) reports: [bool; 2],
    /// A pointer that the program has stored with the VI.
    pub(crate) user_data: AtomicPtr<core::ffi::c_void>,
    /// Callbacks that wait for sends and for receives.
    pub(crate) lines: [Arc<Line>; 2],
}

impl Vi {
    pub(crate) fn handle(&self) -> VIP_PVOID {
        self.nic.handle_of(Kind::Vi, self.number)
    }

    /// Returns whether a queue reports to a completion queue. Such a queue cannot be waited for (VI
    /// Architecture 1.0).
    pub(crate) fn reports(&self, direction: Direction) -> bool {
        self.reports[direction as usize]
    }
}

/// A completion queue that a program holds.
pub(crate) struct Queue {
    pub(crate) nic: Arc<Nic>,
    pub(crate) number: u32,
    /// Callbacks that wait for entries.
    pub(crate) line: Arc<Line>,
}

/// A connection request that a server has received.
pub(crate) struct Request {
    pub(crate) nic: Arc<Nic>,
    pub(crate) incoming: kiban_vi_runtime::Request,
}
