//! Completions as entries of a ring, and the memory of such a ring.

use super::codec::{Reader, Writer};
use crate::rnic::{Completion, Kind, Status};
use kiban_base::ring::Shape;

/// Length of a completion's entry in bytes.
pub const COMPLETION_BYTES: usize = 52;

const KINDS: [Kind; 11] = [
    Kind::Send,
    Kind::Immediate,
    Kind::Write,
    Kind::Read,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::LocalInvalidate,
    Kind::Register,
    Kind::Bind,
    Kind::Receive,
    Kind::ReceiveImmediate,
];

const STATUSES: [Status; 11] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalOperation,
    Status::LocalProtection,
    Status::Flushed,
    Status::Bind,
    Status::RemoteRequest,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::Lost,
    Status::ReceiverNotReady,
];

/// The memory of a completion queue: a bell, on which the NIC waits for room, and a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionRing {
    entries: usize,
}

impl CompletionRing {
    /// Offset of the ring; the bell is at 0.
    pub const AT: usize = 64;

    /// Creates the layout for a number of completions, at most 2^20.
    pub fn new(entries: usize) -> CompletionRing {
        CompletionRing { entries: entries.clamp(1, 1 << 20) }
    }

    /// Returns the shape of the ring.
    pub fn shape(&self) -> Shape {
        Shape::new(self.entries, COMPLETION_BYTES)
    }

    /// Returns the size of the memory in bytes.
    pub fn bytes(&self) -> usize {
        CompletionRing::AT + self.shape().bytes()
    }
}

fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|one| one == value).expect("the list is complete") as u8
}

/// Encodes a completion.
pub fn completion_to_bytes(completion: &Completion) -> [u8; COMPLETION_BYTES] {
    let Completion { id, status, kind, bytes, qp, immediate, invalidated, source } = completion;
    let mut out = Writer::default();
    out.u64(*id).u8(code(&STATUSES, status)).u8(code(&KINDS, kind)).u32(*bytes).u32(*qp);
    out.option(*immediate).option(invalidated.map(u64::from)).option(source.map(u64::from));
    let mut entry = [0; COMPLETION_BYTES];
    entry[..out.0.len()].copy_from_slice(&out.0);
    entry
}

/// Decodes a completion, or returns `None` if it is invalid.
pub fn completion_from_bytes(bytes: &[u8]) -> Option<Completion> {
    let mut entry = Reader(bytes);
    Some(Completion {
        id: entry.u64()?,
        status: *STATUSES.get(usize::from(entry.u8()?))?,
        kind: *KINDS.get(usize::from(entry.u8()?))?,
        bytes: entry.u32()?,
        qp: entry.u32()?,
        immediate: entry.option()?,
        invalidated: entry.option()?.map(|stag| stag as u32),
        source: entry.option()?.map(|qp| qp as u32),
    })
}
