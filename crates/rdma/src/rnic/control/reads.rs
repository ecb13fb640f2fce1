//! ORRQ and IRRQ: outstanding reads and atomics.
//!
//! ORRQ  (outbound) our requests. A response must match the oldest of them exactly; no other is accepted.
//! IRRQ  (inbound) the peer's requests, at most the agreed number (IRD). The send module alternates between
//!       their responses and the send queue, message by message.

use super::super::work::{Sge, TaggedAddress};
use crate::wire::rdmap::ReadRequest;
use alloc::collections::VecDeque;

/// An outstanding request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum OutstandingRequest {
    /// A read from the peer's memory into an element; `here` bytes have arrived.
    Read { source: TaggedAddress, sink: Sge, here: u32 },
    /// An atomic operation.
    Atomic { identifier: u32 },
}

/// One of our requests that has no complete response yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct OrrqEntry {
    /// The WQE that it belongs to.
    pub(in super::super) wqe: u64,
    pub(in super::super) request: OutstandingRequest,
}

/// A response to be sent to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum IrrqEntry {
    /// Bytes of local memory, of which `sent` have been sent.
    Read { source: TaggedAddress, sink: TaggedAddress, length: u32, sent: u32 },
    /// The previous value of eight bytes.
    Atomic { identifier: u32, original: u64 },
}

/// Outbound RDMA-Read request queue.
#[derive(Debug, Default)]
pub(in super::super) struct Orrq {
    pub(in super::super) entries: VecDeque<OrrqEntry>,
    /// The identifier of the next atomic request.
    pub(in super::super) identifier: u32,
}

impl Orrq {
    /// Returns the WQE whose read request equals `request`. Of identical requests, the oldest matches.
    pub(in super::super) fn find_read(&self, request: &ReadRequest) -> Option<u64> {
        let its = |entry: &&OrrqEntry| {
            matches!(entry.request, OutstandingRequest::Read { sink, source, .. } if source == request.source
                && (sink.stag, sink.address, sink.length)
                    == (request.sink.stag, request.sink.offset, request.length))
        };
        self.entries.iter().find(its).map(|entry| entry.wqe)
    }
}

/// Inbound RDMA-Read request queue.
#[derive(Debug, Default)]
pub(in super::super) struct Irrq {
    pub(in super::super) entries: VecDeque<IrrqEntry>,
}
