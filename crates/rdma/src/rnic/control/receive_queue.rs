//! RQ and SRQ: receives for untagged messages, in order.

use super::super::host::dmac::Cursor;
use super::super::work::ReceiveWork;
use crate::wire::rdmap::Opcode;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// An untagged message that is partly received.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    pub(in super::super) work: ReceiveWork,
    pub(in super::super) cursor: Cursor,
    pub(in super::super) bytes: u32,
    /// Capacity of the receive in bytes.
    pub(in super::super) room: u64,
    pub(in super::super) opcode: Opcode,
}

/// The receive queue of one queue pair.
#[derive(Debug)]
pub(in super::super) struct ReceiveQueue {
    pub(in super::super) wqes: VecDeque<ReceiveWork>,
    pub(in super::super) most: usize,
    /// The message that is partly received.
    pub(in super::super) incoming: Option<Incoming>,
    /// A message waits for a receive.
    pub(in super::super) awaits_receive: bool,
}

impl ReceiveQueue {
    pub(in super::super) fn new(most: usize) -> ReceiveQueue {
        ReceiveQueue { wqes: VecDeque::new(), most, incoming: None, awaits_receive: false }
    }
}

/// What a shared receive queue for extended reliable connections has beside its receives.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct XrcQueue {
    /// The domain, whose targets' peers may name the queue.
    pub(in super::super) domain: u32,
    /// The completion queue of the receives.
    pub(in super::super) cq: u32,
}

/// An XRC domain.
#[derive(Debug, Default)]
pub(in super::super) struct XrcDomain {
    /// Number of targets and queues in it.
    pub(in super::super) users: usize,
}

/// A receive queue that several queue pairs share.
#[derive(Debug)]
pub(in super::super) struct SharedReceiveQueue {
    pub(in super::super) pd: u32,
    pub(in super::super) wqes: VecDeque<ReceiveWork>,
    pub(in super::super) most: usize,
    /// Number of queue pairs that use it.
    pub(in super::super) users: usize,
    /// One event is raised when the queue has fewer receives than this.
    pub(in super::super) limit: usize,
    /// Queue pairs with a message that waits for a receive.
    pub(in super::super) waiters: Vec<u32>,
    /// Set if the peers of extended reliable connections name it.
    pub(in super::super) xrc: Option<XrcQueue>,
}
