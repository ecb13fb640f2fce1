//! The entries of both rings.

use crate::{Completion, ConnectError, DataSegment, Reliability, RequestError};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use kiban_base::ring::Shape;

/// Maximum number of segments in a descriptor posted through a ring.
pub const SEGMENTS_MAX: usize = 12;
/// Size of a work ring entry in bytes: a header and the segments.
pub(super) const ENTRY_BYTES: usize = 32 + 16 * SEGMENTS_MAX;
/// Size of a completion ring entry in bytes.
pub(super) const DONE_BYTES: usize = 48;
/// Maximum length of a discriminator or a host's address in an entry, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Returns the shape of a work ring with at least `entries` slots.
pub fn work_shape(entries: usize) -> Shape {
    Shape::new(entries, ENTRY_BYTES)
}

/// Returns the shape of a completion ring with at least `entries` slots.
pub fn done_shape(entries: usize) -> Shape {
    Shape::new(entries, DONE_BYTES)
}

pub(super) mod op {
    pub(in crate::queues) const RECEIVE: u8 = 1;
    pub(in crate::queues) const SEND: u8 = 2;
    pub(in crate::queues) const WRITE: u8 = 3;
    pub(in crate::queues) const READ: u8 = 4;
    pub(in crate::queues) const CREATE_VI: u8 = 16;
    pub(in crate::queues) const DESTROY_VI: u8 = 17;
    pub(in crate::queues) const REGISTER: u8 = 18;
    pub(in crate::queues) const DEREGISTER: u8 = 19;
    pub(in crate::queues) const LISTEN: u8 = 20;
    pub(in crate::queues) const ACCEPT: u8 = 21;
    pub(in crate::queues) const REJECT: u8 = 22;
    pub(in crate::queues) const CONNECT: u8 = 23;
    pub(in crate::queues) const DISCONNECT: u8 = 24;
}

pub(super) mod indication_kind {
    pub(in crate::queues) const DONE: u8 = 1;
    pub(in crate::queues) const REPLY: u8 = 2;
    pub(in crate::queues) const REQUEST: u8 = 3;
    pub(in crate::queues) const LOST: u8 = 4;
}

/// A control request of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// Creates a VI. The value in the reply is its number.
    CreateVi {
        /// Reliability level.
        reliability: Reliability,
        /// Maximum transfer size in bytes.
        transfer_bytes_max: u32,
        /// Whether the peer may use RDMA Write.
        rdma_write: bool,
        /// Whether the peer may use RDMA Read.
        rdma_read: bool,
    },
    /// Destroys an idle VI with empty queues.
    DestroyVi(u32),
    /// Registers a part of the arena. The value in the reply is its handle.
    Register {
        /// Address of the first byte in the arena.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Whether peers may write to the memory.
        rdma_write: bool,
        /// Whether peers may read it.
        rdma_read: bool,
    },
    /// Deregisters the memory with this handle.
    Deregister(u32),
    /// Listens at a discriminator. Each incoming request is reported as an [`Indication::Request`].
    Listen(Vec<u8>),
    /// Accepts a request with a VI.
    Accept {
        /// Number of the request.
        request: u32,
        /// The VI to connect.
        vi: u32,
    },
    /// Rejects a request.
    Reject(u32),
    /// Connects a VI; the reply follows when the outcome is known.
    Connect {
        /// The VI to connect.
        vi: u32,
        /// Address of the host, in the driver's format.
        host: Vec<u8>,
        /// Discriminator of the endpoint on that host.
        discriminator: Vec<u8>,
        /// Timeout for the answer, in milliseconds.
        patience_ms: u32,
    },
    /// Disconnects a VI.
    Disconnect(u32),
}

/// An indication to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indication {
    /// A descriptor on one of the host's VIs has completed.
    Done {
        /// The VI.
        vi: u32,
        /// The completed descriptor.
        done: Completion,
    },
    /// A control request was executed or denied.
    Reply {
        /// The cookie of the entry.
        cookie: u64,
        /// The requested number (zero if the request returns none), or the reason for the denial.
        result: Result<u32, ControlError>,
    },
    /// An incoming connection request.
    Request {
        /// Its number, for [`Control::Accept`].
        request: u32,
    },
    /// A VI lost its connection.
    Lost {
        /// The VI.
        vi: u32,
        /// The cause, one of `crate::wire::fault`.
        fault: u32,
    },
}

/// The reason why the board denied a host's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum ControlError {
    /// The entry is invalid.
    Garbage = 1,
    /// The VI, memory or request does not belong to this host.
    NotYours = 2,
    /// A bound is reached.
    TooMany = 3,
    /// The VI's state does not allow the request, or the object is in use.
    BadState = 4,
    /// The attributes of the two ends differ.
    Unlike = 5,
    /// There is no listener, or the request was rejected.
    NoMatch = 6,
    /// No answer arrived in time.
    Timeout = 7,
    /// There is no path to that host.
    Unreachable = 8,
    /// The range lies outside the arena.
    OutOfRange = 9,
}

impl ControlError {
    pub(super) const ALL: [ControlError; 9] = [
        ControlError::Garbage,
        ControlError::NotYours,
        ControlError::TooMany,
        ControlError::BadState,
        ControlError::Unlike,
        ControlError::NoMatch,
        ControlError::Timeout,
        ControlError::Unreachable,
        ControlError::OutOfRange,
    ];
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlError::Garbage => {
                "the board does not understand the request: run the same version of kiban on both sides"
            }
            ControlError::NotYours => {
                "the VI, memory or request belongs to another host, or no longer exists"
            }
            ControlError::TooMany => "a limit of the board is reached: release some objects of this kind",
            ControlError::BadState => {
                "not possible in the VI's current state: first disconnect it, or empty its queues"
            }
            ControlError::Unlike => {
                "reliability level, maximum message length or quality of service differs from the peer's: \
                 create both VIs with the same attributes"
            }
            ControlError::NoMatch => {
                "connection refused, or no listener at that address: start the other side first"
            }
            ControlError::Timeout => {
                "connection timed out: check that the other side is running and reachable"
            }
            ControlError::Unreachable => "no route to that host",
            ControlError::OutOfRange => "the range lies outside the memory shared with the board",
        })
    }
}

impl core::error::Error for ControlError {}

impl From<RequestError> for ControlError {
    fn from(refusal: RequestError) -> ControlError {
        match refusal {
            RequestError::UnknownVi | RequestError::UnknownMemory | RequestError::UnknownRequest => {
                ControlError::NotYours
            }
            RequestError::TooMany => ControlError::TooMany,
            RequestError::Reliability
            | RequestError::TransferBytes
            | RequestError::Qos
            | RequestError::RdmaRead => ControlError::Unlike,
            RequestError::UnknownPath | RequestError::BadAddress => ControlError::Unreachable,
            _ => ControlError::BadState,
        }
    }
}

impl From<ConnectError> for ControlError {
    fn from(error: ConnectError) -> ControlError {
        match error {
            ConnectError::NoMatch | ConnectError::Rejected => ControlError::NoMatch,
            ConnectError::Timeout => ControlError::Timeout,
            ConnectError::Unreachable => ControlError::Unreachable,
            _ => ControlError::Unlike,
        }
    }
}

/// A work ring entry and its encoder. Fields are in machine byte order, because both sides run on one
/// machine.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) bytes: [u8; ENTRY_BYTES],
    pub(super) length: usize,
}

impl Entry {
    pub(super) fn new(op: u8, flags: u8, vi: u32, cookie: u64) -> Entry {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (op, flags);
        bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_ne_bytes());
        Entry { bytes, length: 32 }
    }

    pub(super) fn put_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    pub(super) fn put_long(&mut self, at: usize, long: u64) {
        self.bytes[at..at + 8].copy_from_slice(&long.to_ne_bytes());
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    pub(super) fn long(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }

    pub(super) fn put_segments(&mut self, segments: &[DataSegment]) {
        self.bytes[2] = segments.len() as u8;
        for (n, segment) in segments.iter().enumerate() {
            let at = 32 + 16 * n;
            self.put_long(at, segment.address);
            self.put_word(at + 8, segment.handle);
            self.put_word(at + 12, segment.length);
        }
        self.length = 32 + 16 * segments.len();
    }

    pub(super) fn segments(&self) -> Option<ArrayVec<DataSegment, SEGMENTS_MAX>> {
        let count = usize::from(self.bytes[2]);
        if count > SEGMENTS_MAX || self.length != 32 + 16 * count {
            return None;
        }
        let segment = |n| {
            let at = 32 + 16 * n;
            DataSegment { address: self.long(at), handle: self.word(at + 8), length: self.word(at + 12) }
        };
        Some((0..count).map(segment).collect())
    }

    /// Writes two names after the header, with their lengths in bytes 2 and 3.
    pub(super) fn put_names(&mut self, one: &[u8], two: &[u8]) {
        (self.bytes[2], self.bytes[3]) = (one.len() as u8, two.len() as u8);
        self.bytes[32..32 + one.len()].copy_from_slice(one);
        self.bytes[32 + one.len()..32 + one.len() + two.len()].copy_from_slice(two);
        self.length = 32 + one.len() + two.len();
    }

    pub(super) fn names(&self) -> Option<(&[u8], &[u8])> {
        let (one, two) = (usize::from(self.bytes[2]), usize::from(self.bytes[3]));
        if one.max(two) > NAME_BYTES_MAX || self.length != 32 + one + two {
            return None;
        }
        Some(self.bytes[32..32 + one + two].split_at(one))
    }
}
