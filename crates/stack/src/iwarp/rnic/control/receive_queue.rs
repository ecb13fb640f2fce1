//! RQ and SRQ: where untagged messages go, in order.

use super::super::host::dmac::Cursor;
use super::super::work::ReceiveWork;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_wire::rdmap::Opcode;

/// A message that is arriving.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    pub(in super::super) work: ReceiveWork,
    pub(in super::super) cursor: Cursor,
    pub(in super::super) bytes: u32,
    /// Bytes that the receive takes.
    pub(in super::super) room: u64,
    pub(in super::super) opcode: Opcode,
}

/// The receive queue of one queue pair.
#[derive(Debug)]
pub(in super::super) struct ReceiveQueue {
    pub(in super::super) wqes: VecDeque<ReceiveWork>,
    pub(in super::super) most: usize,
    /// The message in the middle of which the stream is.
    pub(in super::super) incoming: Option<Incoming>,
    /// A message waits for a receive.
    pub(in super::super) is_dry: bool,
}

impl ReceiveQueue {
    pub(in super::super) fn new(most: usize) -> ReceiveQueue {
        ReceiveQueue { wqes: VecDeque::new(), most, incoming: None, is_dry: false }
    }
}

/// A receive queue that several queue pairs share.
#[derive(Debug)]
pub(in super::super) struct SharedReceiveQueue {
    pub(in super::super) pd: u32,
    pub(in super::super) wqes: VecDeque<ReceiveWork>,
    pub(in super::super) most: usize,
    /// Queue pairs that take from it.
    pub(in super::super) users: usize,
    /// The host is told once when fewer are left.
    pub(in super::super) limit: usize,
    /// Queue pairs for whose messages there was none.
    pub(in super::super) waiters: Vec<u32>,
}
