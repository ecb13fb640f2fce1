//! Work requests and completions: what a host posts and what it gets back.
//!
//! A work request (WR) becomes a work queue element (WQE) when its queue takes it, and a completion queue element (CQE)
//! when it is done; the words are those of the RDMA verbs.

use alloc::vec::Vec;
use core::fmt;
use kiban_ground::Region;
use kiban_wire::rdmap::Atomic;
use smallvec::SmallVec;

pub use kiban_wire::rdmap::Place;

/// A scatter/gather element: a run of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// The local steering tag (`lkey`).
    pub stag: u32,
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// The elements of a work request.
pub type Sges = SmallVec<[Sge; 4]>;

/// What memory allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// The owner's receives and reads may write to it. (Reading one's own memory is always allowed.)
    pub local_write: bool,
    /// Peers may write to it.
    pub remote_write: bool,
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may do atomic operations on it.
    pub remote_atomic: bool,
    /// Windows may be bound to it.
    pub bind: bool,
}

impl Access {
    /// The owner may read: a source of Sends and Writes.
    pub const NONE: Access = Access {
        local_write: false,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        bind: false,
    };
    /// The owner may read and write.
    pub const LOCAL: Access = Access { local_write: true, ..Access::NONE };
    /// Everybody in the protection domain may do everything.
    pub const ALL: Access =
        Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true, bind: true };
}

/// What a memory window shows from when it is bound: a part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The region's steering tag.
    pub region: u32,
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What peers may do; local rights mean nothing for a window.
    pub access: Access,
}

/// What a work request on the send queue does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A message to the peer's receive queue; it may invalidate a steering tag of the peer's.
    Send {
        /// The peer's steering tag.
        invalidate: Option<u32>,
    },
    /// A message to the peer's receive queue with 32 bits beside it, which come with its completion. No standard has it: the
    /// peer must be kiban's ([`super::Rnic::agree_on_own`]). There is none that also invalidates.
    SendImmediate {
        /// The 32 bits.
        data: u32,
    },
    /// A datagram to whoever has this address, queue pair and key; the only work of queue pairs for datagrams, and of no
    /// others. At most 4096 bytes.
    Datagram {
        /// The address, in the words of verbs a global identifier: what it means is the lower layer's affair.
        gid: [u8; 16],
        /// The queue pair there, of 24 bits.
        qp: u32,
        /// Its key; with the highest bit, the sender's own in place of it (IBTA 1.4 §10.2.5).
        qkey: u32,
        /// 32 bits that come with its completion.
        immediate: Option<u32>,
    },
    /// A message of eight octets to the peer's receive queue (RFC 7306); the peer must know extensions.
    Immediate {
        /// The eight octets.
        data: u64,
    },
    /// Writes to the peer's memory; with immediate data, the peer's receive queue hears of it (RFC 7306).
    Write {
        /// Where.
        remote: Place,
        /// Told when all of it is there.
        immediate: Option<u64>,
    },
    /// Reads the peer's memory into the elements; the elements may be invalidated when the data is there.
    Read {
        /// Where.
        remote: Place,
        /// Whether the local steering tag is invalid afterwards.
        invalidate: bool,
    },
    /// Eight bytes of the peer's memory are changed at once; what they were goes to the first element (RFC 7306).
    Atomic {
        /// Where.
        remote: Place,
        /// What is done.
        atomic: Atomic,
    },
    /// A steering tag names nothing from now on.
    LocalInvalidate {
        /// Which.
        stag: u32,
    },
    /// A region made without memory gets some: a physical buffer list.
    Register {
        /// Its steering tag; the low eight bits may differ from before and become the tag's key.
        stag: u32,
        /// What the first byte is called.
        address: u64,
        /// The memory, in order.
        blocks: Vec<Region>,
        /// What is allowed.
        access: Access,
    },
    /// A window shows a part of a region from now on; without a binding, nothing.
    Bind {
        /// The window's steering tag; the low eight bits may differ from before and become the tag's key.
        window: u32,
        /// What it shows.
        binding: Option<Binding>,
    },
}

impl Operation {
    /// A plain Send.
    pub const SEND: Operation = Operation::Send { invalidate: None };

    /// A plain Write.
    pub const fn write(remote: Place) -> Operation {
        Operation::Write { remote, immediate: None }
    }

    /// A plain Read.
    pub const fn read(remote: Place) -> Operation {
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

    /// Whether the peer answers: it counts as an outbound read.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self, Operation::Read { .. } | Operation::Atomic { .. })
    }

    /// Whether it needs a peer that is kiban's.
    pub(super) const fn needs_own(&self) -> bool {
        matches!(self, Operation::SendImmediate { .. })
    }

    /// Whether its bytes leave with it, so that they may stand in the work request itself.
    pub(super) const fn takes_inline(&self) -> bool {
        matches!(
            self,
            Operation::Send { .. }
                | Operation::SendImmediate { .. }
                | Operation::Datagram { .. }
                | Operation::Write { .. }
        )
    }

    /// Whether it needs a peer that knows RFC 7306.
    pub(super) const fn needs_extensions(&self) -> bool {
        matches!(
            self,
            Operation::Immediate { .. }
                | Operation::Atomic { .. }
                | Operation::Write { immediate: Some(_), .. }
        )
    }
}

/// Where the bytes of a work request are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// In registered memory: they must stay until the work is done.
    Elements(Sges),
    /// In the work request itself.
    Inline(SmallVec<[u8; 64]>),
}

impl Data {
    /// No bytes.
    pub fn none() -> Data {
        Data::Elements(Sges::new())
    }

    /// One element.
    pub fn one(sge: Sge) -> Data {
        Data::Elements(SmallVec::from_slice(&[sge]))
    }

    /// Bytes in all.
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
    /// Comes back with the completion.
    pub id: u64,
    /// What is done.
    pub operation: Operation,
    /// With which bytes.
    pub data: Data,
    /// Whether its success is told. Errors always are.
    pub signalled: bool,
    /// Whether the peer's solicited event is raised.
    pub solicited: bool,
    /// It starts when all reads and atomics before it are done.
    pub fence: bool,
    /// It starts when everything before it is done.
    pub local_fence: bool,
}

impl SendWork {
    /// A signalled work request without fences.
    pub fn new(id: u64, operation: Operation, data: Data) -> SendWork {
        SendWork { id, operation, data, signalled: true, solicited: false, fence: false, local_fence: false }
    }
}

/// A work request for a receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveWork {
    /// Comes back with the completion.
    pub id: u64,
    /// Where a message goes.
    pub sges: Sges,
}

/// What a completion is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A Send left.
    Send,
    /// Immediate data left.
    Immediate,
    /// A Write left.
    Write,
    /// A Read is here.
    Read,
    /// The answer of an atomic compare and swap is here.
    CompareSwap,
    /// The answer of an atomic fetch and add is here.
    FetchAdd,
    /// A tag was invalidated.
    LocalInvalidate,
    /// A region got its memory.
    Register,
    /// A window was bound.
    Bind,
    /// A Send arrived.
    Receive,
    /// Immediate data arrived.
    ReceiveImmediate,
}

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// As it should.
    Success,
    /// The message does not fit, or is longer than one can be.
    LocalLength,
    /// The queue pair cannot do it.
    LocalOperation,
    /// An element names memory that it may not.
    LocalProtection,
    /// The queue pair failed before it was done.
    Flushed,
    /// A window cannot be bound so.
    Bind,
    /// The peer says that the request was wrong.
    RemoteRequest,
    /// The peer says that its memory does not allow it.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The connection was lost under it.
    Lost,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocalLength => "the message does not fit: post larger receives, or send less at once",
            Status::LocalOperation => "the queue pair cannot do this operation",
            Status::LocalProtection => {
                "an element names memory that is not registered, or not for this: check lkey, address and length"
            }
            Status::Flushed => "the queue pair failed or was closed before this was done",
            Status::Bind => "the window cannot be bound so: check the region's rights and range",
            Status::RemoteRequest => "the peer says that the request was wrong",
            Status::RemoteAccess => {
                "the peer's memory does not allow it: check rkey, address, length and rights"
            }
            Status::RemoteOperation => "the peer could not do it",
            Status::Lost => "the connection was lost",
        })
    }
}

/// A completion queue element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Of the work request.
    pub id: u64,
    /// How it ended; unless it is a success, only `id`, `qp` and `kind` mean anything.
    pub status: Status,
    /// What it was.
    pub kind: Kind,
    /// Bytes received or read.
    pub bytes: u32,
    /// The queue pair: its number, or the name that it was given.
    pub qp: u32,
    /// Immediate data that came: eight octets, or the 32 bits of a Send.
    pub immediate: Option<u64>,
    /// The steering tag that the peer invalidated.
    pub invalidated: Option<u32>,
    /// The queue pair that a datagram is from.
    pub source: Option<u32>,
}
