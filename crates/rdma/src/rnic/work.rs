//! Work requests and completions.
//!
//! A work request (WR) becomes a work queue element (WQE) when it is queued, and a completion queue element
//! (CQE) when it is done, as in the RDMA verbs.

use crate::wire::rdmap::Atomic;
use alloc::vec::Vec;
use core::fmt;
use kiban_base::Region;
use smallvec::SmallVec;

pub use crate::wire::rdmap::TaggedAddress;

/// A scatter/gather element: a range of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// The local steering tag (`lkey`).
    pub stag: u32,
    /// The address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
}

/// The scatter/gather elements of a work request.
pub type Sges = SmallVec<[Sge; 4]>;

/// Access rights of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// The owner's receives and reads may write to the memory. (The owner may always read it.)
    pub local_write: bool,
    /// Peers may write to it.
    pub remote_write: bool,
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may perform atomic operations on the memory.
    pub remote_atomic: bool,
    /// Windows may be bound to the memory.
    pub bind: bool,
}

impl Access {
    /// The owner may read: sufficient for the source of Sends and Writes.
    pub const NONE: Access = Access {
        local_write: false,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        bind: false,
    };
    /// The owner may read and write.
    pub const LOCAL: Access = Access { local_write: true, ..Access::NONE };
    /// Every queue pair in the protection domain has full access.
    pub const ALL: Access =
        Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true, bind: true };
}

/// The part of a region that a memory window exposes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The region's steering tag.
    pub region: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The peers' access rights. Local rights have no effect on a window.
    pub access: Access,
}

/// The operation of a work request on the send queue.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Sends a message to the peer's receive queue.
    Send {
        /// Steering tag that the peer invalidates.
        invalidate: Option<u32>,
    },
    /// Sends a message with 32 bits of immediate data, reported in the peer's completion. No iWARP standard
    /// defines it: the peer must be a kiban NIC ([`super::Rnic::set_peer_is_kiban`]). It cannot be combined
    /// with Invalidate.
    SendImmediate {
        /// The immediate data.
        data: u32,
    },
    /// Sends a datagram of at most 4096 bytes. This is the only operation on datagram queue pairs, and other
    /// queue pairs do not support it.
    Datagram {
        /// The destination address, called GID in verbs. The lower layer interprets it.
        gid: [u8; 16],
        /// The destination queue pair, 24 bits.
        qp: u32,
        /// The destination's Q_Key; if the highest bit is set, the sender's own Q_Key is used instead (IBTA
        /// 1.4 §10.2.5).
        qkey: u32,
        /// Immediate data, reported in the peer's completion.
        immediate: Option<u32>,
    },
    /// Sends eight octets of immediate data to the peer's receive queue (RFC 7306); the peer must support the
    /// extensions.
    Immediate {
        /// The eight octets.
        data: u64,
    },
    /// Writes to the peer's memory; immediate data is delivered to the peer's receive queue (RFC 7306).
    Write {
        /// Destination address.
        remote: TaggedAddress,
        /// Immediate data, delivered after all data has been placed. RoCEv2 carries the upper 32 bits, and
        /// its receiver finds the length of the Write in the lower ones.
        immediate: Option<u64>,
    },
    /// Reads from the peer's memory into the elements.
    Read {
        /// Source address.
        remote: TaggedAddress,
        /// Whether the local steering tags are invalidated when the data has arrived.
        invalidate: bool,
    },
    /// Changes eight bytes of the peer's memory atomically and stores their previous value in the first
    /// element (RFC 7306).
    Atomic {
        /// Target address.
        remote: TaggedAddress,
        /// The atomic operation.
        atomic: Atomic,
    },
    /// Invalidates a local steering tag.
    LocalInvalidate {
        /// The steering tag.
        stag: u32,
    },
    /// Attaches memory, as a physical buffer list, to a region that was allocated without memory.
    Register {
        /// The steering tag. Its low eight bits may differ from the current key; they become the new key.
        stag: u32,
        /// The address that refers to the first byte.
        address: u64,
        /// The memory, in order.
        blocks: Vec<Region>,
        /// The access rights.
        access: Access,
    },
    /// Binds a window to a part of a region, or unbinds it if there is no binding.
    Bind {
        /// The window's steering tag. Its low eight bits may differ from the current key; they become the
        /// new key.
        window: u32,
        /// The part of the region that the window exposes.
        binding: Option<Binding>,
    },
}

impl Operation {
    /// A Send without Invalidate.
    pub const SEND: Operation = Operation::Send { invalidate: None };

    /// Returns a Write without immediate data.
    pub const fn write(remote: TaggedAddress) -> Operation {
        Operation::Write { remote, immediate: None }
    }

    /// Returns a Read without Invalidate.
    pub const fn read(remote: TaggedAddress) -> Operation {
        Operation::Read { remote, invalidate: false }
    }

    pub(super) const fn kind(&self) -> Kind {
        match self {
            Operation::Send { .. } | Operation::SendImmediate { .. } | Operation::Datagram { .. } => {
                Kind::Send
            }
            Operation::Immediate { .. } => Kind::Immediate,
            Operation::Write { .. } => Kind::Write,
            Operation::Read { .. } => Kind::Read,
            Operation::Atomic { atomic: Atomic::CompareSwap { .. }, .. } => Kind::CompareSwap,
            Operation::Atomic { atomic: Atomic::FetchAdd { .. }, .. } => Kind::FetchAdd,
            Operation::LocalInvalidate { .. } => Kind::LocalInvalidate,
            Operation::Register { .. } => Kind::Register,
            Operation::Bind { .. } => Kind::Bind,
        }
    }

    /// Returns whether the peer sends a response: the operation then counts against the ORD.
    pub(super) const fn has_response(&self) -> bool {
        matches!(self, Operation::Read { .. } | Operation::Atomic { .. })
    }

    /// Returns whether the operation requires a kiban peer.
    pub(super) const fn needs_kiban_peer(&self) -> bool {
        matches!(self, Operation::SendImmediate { .. })
    }

    /// Returns whether the operation sends data, which may then be inline.
    pub(super) const fn takes_inline(&self) -> bool {
        matches!(
            self,
            Operation::Send { .. }
                | Operation::SendImmediate { .. }
                | Operation::Datagram { .. }
                | Operation::Write { .. }
        )
    }

    /// Returns whether the operation requires a peer that supports RFC 7306.
    pub(super) const fn needs_extensions(&self) -> bool {
        matches!(
            self,
            Operation::Immediate { .. }
                | Operation::Atomic { .. }
                | Operation::Write { immediate: Some(_), .. }
        )
    }
}

/// The data of a work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// The data is in registered memory, which must stay registered until the work request is done.
    Elements(Sges),
    /// The data is inline, in the work request itself.
    Inline(SmallVec<[u8; 64]>),
}

impl Data {
    /// Returns no data.
    pub fn none() -> Data {
        Data::Elements(Sges::new())
    }

    /// Returns one element.
    pub fn one(sge: Sge) -> Data {
        Data::Elements(SmallVec::from_slice(&[sge]))
    }

    /// Returns the total length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Data::Elements(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// A work request for a send queue.
#[derive(Clone, Debug)]
pub struct SendWork {
    /// Identifier returned in the completion.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// The data to send, or the memory in which to store the data that is read.
    pub data: Data,
    /// Whether success generates a completion. Errors always do.
    pub signalled: bool,
    /// Whether the peer's completion is a solicited event.
    pub solicited: bool,
    /// Whether to start only when all earlier reads and atomics are done.
    pub fence: bool,
    /// Whether to start only when all earlier work is done.
    pub local_fence: bool,
    /// The number of the peer's shared receive queue ([`super::Rnic::create_xrc_srq`]), 24 bits. Only
    /// extended reliable connections use it.
    pub xrc_srq: u32,
}

impl SendWork {
    /// Returns a signalled work request without fences.
    pub fn new(id: u64, operation: Operation, data: Data) -> SendWork {
        SendWork {
            id,
            operation,
            data,
            signalled: true,
            solicited: false,
            fence: false,
            local_fence: false,
            xrc_srq: 0,
        }
    }
}

/// A work request for a receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveWork {
    /// Identifier returned in the completion.
    pub id: u64,
    /// Where the message is stored.
    pub sges: Sges,
}

/// The kind of work that a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A Send.
    Send,
    /// Immediate data sent.
    Immediate,
    /// A Write.
    Write,
    /// A Read whose data has arrived.
    Read,
    /// An atomic compare and swap whose response has arrived.
    CompareSwap,
    /// An atomic fetch and add whose response has arrived.
    FetchAdd,
    /// A local invalidation.
    LocalInvalidate,
    /// The registration of a region's memory.
    Register,
    /// The binding of a window.
    Bind,
    /// A received Send.
    Receive,
    /// Received immediate data.
    ReceiveImmediate,
}

/// The result of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Success.
    Success,
    /// The message does not fit its receive, or exceeds the maximum length.
    LocalLength,
    /// The queue pair cannot perform the operation.
    LocalOperation,
    /// A scatter/gather element refers to memory that may not be accessed in this way.
    LocalProtection,
    /// The queue pair failed before the work was done.
    Flushed,
    /// The window cannot be bound as requested.
    Bind,
    /// The peer reported an invalid request.
    RemoteRequest,
    /// The peer reported that the access is not allowed.
    RemoteAccess,
    /// The peer could not perform the operation.
    RemoteOperation,
    /// The connection was lost.
    Lost,
    /// The peer had no receive posted for the message, however often it was sent again.
    ReceiverNotReady,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocalLength => {
                "the message does not fit the buffer: post larger receives, or send shorter messages"
            }
            Status::LocalOperation => "the queue pair does not support this operation",
            Status::LocalProtection => {
                "local memory is not registered for this access: check lkey, address, length and access rights"
            }
            Status::Flushed => "flushed: the queue pair failed or was closed before this request completed",
            Status::Bind => "the memory window cannot be bound: check the region's access rights and range",
            Status::RemoteRequest => "the peer reported an invalid request",
            Status::RemoteAccess => {
                "remote access denied: check rkey, address, length and access rights"
            }
            Status::RemoteOperation => "the peer could not complete the operation",
            Status::Lost => "the connection was lost",
            Status::ReceiverNotReady => {
                "the peer has posted no receive for the message: post more receives, or raise rnr_retry"
            }
        })
    }
}

/// A completion queue element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Identifier of the work request.
    pub id: u64,
    /// The result. If the work did not succeed, the only other valid fields are `id`, `qp` and `kind`.
    pub status: Status,
    /// The kind of work.
    pub kind: Kind,
    /// Bytes received or read.
    pub bytes: u32,
    /// The number of the queue pair: either the NIC's number for it or the one set by
    /// [`super::Rnic::set_qpn`].
    pub qp: u32,
    /// Received immediate data: eight octets, or 32 bits from a Send.
    pub immediate: Option<u64>,
    /// Steering tag that the peer invalidated.
    pub invalidated: Option<u32>,
    /// Source queue pair of a datagram.
    pub source: Option<u32>,
}
