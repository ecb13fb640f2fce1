//! ORRQ and IRRQ: reads and atomics under way.
//!
//! ORRQ      ours. What comes back must be what the oldest of them asked for, to the byte; nothing else is taken.
//! IRRQ      the peer's, no more than agreed (IRD). The send module answers them in turn with the send queue, message by
//!           message.

use super::super::work::{Place, Sge};
use alloc::collections::VecDeque;
use kiban_wire::rdmap::ReadRequest;

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Asked {
    /// A read from the peer's memory into an element, of which so many bytes are here.
    Read { source: Place, sink: Sge, here: u32 },
    /// An atomic operation, by its identifier.
    Atomic { identifier: u32 },
}

/// A request of ours that has not been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Outbound {
    /// Of which WQE.
    pub(in super::super) wqe: u64,
    pub(in super::super) asked: Asked,
}

/// What the peer is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Owed {
    /// Bytes of our memory; so many have been sent.
    Read { source: Place, sink: Place, length: u32, sent: u32 },
    /// What eight bytes were.
    Atomic { identifier: u32, original: u64 },
}

/// Outbound RDMA-Read request queue.
#[derive(Debug, Default)]
pub(in super::super) struct Orrq {
    pub(in super::super) entries: VecDeque<Outbound>,
    /// Identifies the next atomic request.
    pub(in super::super) identifier: u32,
}

impl Orrq {
    /// The WQE that asked for this, if one did; requests that are alike are told apart by their order only.
    pub(in super::super) fn asked_for(&self, request: &ReadRequest) -> Option<u64> {
        let its = |entry: &&Outbound| {
            matches!(entry.asked, Asked::Read { sink, source, .. } if source == request.source
                && (sink.stag, sink.address, sink.length)
                    == (request.sink.stag, request.sink.offset, request.length))
        };
        self.entries.iter().find(its).map(|entry| entry.wqe)
    }
}

/// Inbound RDMA-Read request queue.
#[derive(Debug, Default)]
pub(in super::super) struct Irrq {
    pub(in super::super) entries: VecDeque<Owed>,
}
