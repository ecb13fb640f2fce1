//! The host interface as rings: a host posts work and reads completions through memory that it shares with
//! the board.
//!
//! Purpose          a host that is another thread or process uses the VI NIC without a call: it fills a slot
//!                  of the work ring and polls the completion ring.
//! Requests         [`Host`] posts. [`Attachment::drain`], on the board's side, copies each entry once,
//!                  validates the copy and executes it. A control entry (create a VI, register memory,
//!                  connect) is answered by a reply with its cookie.
//! Indications      completions, replies, requests and events go into the completion ring while it has room;
//!                  the rest waits in the NIC and affects only that host.
//! Isolation        a host refers to its VIs and memories by numbers that the board assigned; it cannot use
//!                  those of other hosts. Its memory is part of one arena that both sides map, and
//!                  descriptors cannot reach beyond it. The worst that it can cause by writing into its rings
//!                  is a rejection, or the end of its own attachment.
//! End              [`Attachment::end`] releases everything: connections, VIs, memory, tag.
//! Limits           a descriptor has up to [`SEGMENTS_MAX`] segments; a host up to `vis_max` VIs.
//! Not implemented  completion queues chosen by the host: all completions of an attachment use one ring.

use crate::{
    AddressSegment, Completion, CompletionKind, ConnectError, DataSegment, Event, MemoryAttributes, Nic,
    Operation, Reliability, RequestError, Status, ViAttributes, Work,
};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use kiban_base::ring::{Consumer, Poisoned, Producer, Shape};
use kiban_base::{Instant, Region};

/// Maximum segments of a descriptor posted through a ring.
pub const SEGMENTS_MAX: usize = 12;
/// Size of a work ring entry in bytes: a header and the segments.
const ENTRY_BYTES: usize = 32 + 16 * SEGMENTS_MAX;
/// Size of a completion ring entry in bytes.
const DONE_BYTES: usize = 48;
/// Maximum length of a discriminator or a host's address in an entry, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Returns the shape of a work ring with at least `entries` slots.
pub fn work_shape(entries: usize) -> Shape {
    Shape::new(entries, ENTRY_BYTES)
}

/// Returns the shape of a completion ring with at least `entries` slots.
pub fn done_shape(entries: usize) -> Shape {
    Shape::new(entries, DONE_BYTES)
}

mod op {
    pub(super) const RECEIVE: u8 = 1;
    pub(super) const SEND: u8 = 2;
    pub(super) const WRITE: u8 = 3;
    pub(super) const READ: u8 = 4;
    pub(super) const CREATE_VI: u8 = 16;
    pub(super) const DESTROY_VI: u8 = 17;
    pub(super) const REGISTER: u8 = 18;
    pub(super) const DEREGISTER: u8 = 19;
    pub(super) const LISTEN: u8 = 20;
    pub(super) const ACCEPT: u8 = 21;
    pub(super) const REJECT: u8 = 22;
    pub(super) const CONNECT: u8 = 23;
    pub(super) const DISCONNECT: u8 = 24;
}

mod indication_kind {
    pub(super) const DONE: u8 = 1;
    pub(super) const REPLY: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const LOST: u8 = 4;
}

/// A control request of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// Creates a VI; the reply's value is its number.
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
    /// Registers a part of the arena; the reply's value is its handle.
    Register {
        /// Address of the first byte in the arena.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Whether peers may write to it.
        rdma_write: bool,
        /// Whether peers may read it.
        rdma_read: bool,
    },
    /// Deregisters the memory with this handle.
    Deregister(u32),
    /// Listens at a discriminator; each incoming request is a [`Indication::Request`].
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
    /// Connects a VI; the reply comes when the outcome is known.
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
    /// A descriptor of one of its VIs has completed.
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
        /// The requested number, or zero if there is none; or the reason for the denial.
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

/// Why the board denied a request of a host.
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
    const ALL: [ControlError; 9] = [
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
                "the VI, the memory or the request belongs to another host, or no longer exists"
            }
            ControlError::TooMany => "a limit of the board is reached: release some objects of this kind",
            ControlError::BadState => {
                "not possible in the VI's present state: disconnect it, or empty its queues, first"
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

/// A work ring entry and its encoder; fields are in machine byte order, since both sides run on one machine.
#[derive(Clone, Copy)]
struct Entry {
    bytes: [u8; ENTRY_BYTES],
    length: usize,
}

impl Entry {
    fn new(op: u8, flags: u8, vi: u32, cookie: u64) -> Entry {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (op, flags);
        bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_ne_bytes());
        Entry { bytes, length: 32 }
    }

    fn put_word(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    fn put_long(&mut self, at: usize, long: u64) {
        self.bytes[at..at + 8].copy_from_slice(&long.to_ne_bytes());
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    fn long(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }

    fn put_segments(&mut self, segments: &[DataSegment]) {
        self.bytes[2] = segments.len() as u8;
        for (n, segment) in segments.iter().enumerate() {
            let at = 32 + 16 * n;
            self.put_long(at, segment.address);
            self.put_word(at + 8, segment.handle);
            self.put_word(at + 12, segment.length);
        }
        self.length = 32 + 16 * segments.len();
    }

    fn segments(&self) -> Option<ArrayVec<DataSegment, SEGMENTS_MAX>> {
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
    fn put_names(&mut self, one: &[u8], two: &[u8]) {
        (self.bytes[2], self.bytes[3]) = (one.len() as u8, two.len() as u8);
        self.bytes[32..32 + one.len()].copy_from_slice(one);
        self.bytes[32 + one.len()..32 + one.len() + two.len()].copy_from_slice(two);
        self.length = 32 + one.len() + two.len();
    }

    fn names(&self) -> Option<(&[u8], &[u8])> {
        let (one, two) = (usize::from(self.bytes[2]), usize::from(self.bytes[3]));
        if one.max(two) > NAME_BYTES_MAX || self.length != 32 + one + two {
            return None;
        }
        Some(self.bytes[32..32 + one + two].split_at(one))
    }
}

/// The host's side.
#[derive(Debug)]
pub struct Host {
    work: Producer,
    done: Consumer,
}

/// Why an entry could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// The work ring is full: take completions, then post again.
    Full,
    /// More segments, or a longer name, than an entry holds.
    TooLong,
    /// The board violated the ring's protocol or ended the attachment.
    Broken,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full => "the work ring is full: take completions, then post again",
            PostError::TooLong => "the request has too many segments, or too long a name, for the ring",
            PostError::Broken => "the board has closed the attachment",
        })
    }
}

impl core::error::Error for PostError {}

impl Host {
    /// Creates the host's side of two new rings.
    pub fn new(work: Producer, done: Consumer) -> Host {
        Host { work, done }
    }

    fn push(&mut self, entry: &Entry) -> Result<(), PostError> {
        match self.work.push(&entry.bytes[..entry.length]) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PostError::Full),
            Err(Poisoned) => Err(PostError::Broken),
        }
    }

    /// Posts a descriptor to a VI's send queue.
    ///
    /// # Errors
    /// [`PostError`] if the entry does not fit or the ring is full or broken.
    pub fn send(&mut self, vi: u32, work: &Work<'_>) -> Result<(), PostError> {
        if work.segments.len() > SEGMENTS_MAX {
            return Err(PostError::TooLong);
        }
        let flags = u8::from(work.immediate.is_some()) | (u8::from(work.fence) << 1);
        let (op, remote) = match work.operation {
            Operation::Send => (op::SEND, None),
            Operation::Write(remote) => (op::WRITE, Some(remote)),
            Operation::Read(remote) => (op::READ, Some(remote)),
        };
        let mut entry = Entry::new(op, flags, vi, work.cookie);
        entry.put_word(16, work.immediate.unwrap_or(0));
        if let Some(remote) = remote {
            entry.put_word(20, remote.handle);
            entry.put_long(24, remote.address);
        }
        entry.put_segments(work.segments);
        self.push(&entry)
    }

    /// Posts a descriptor to a VI's receive queue.
    ///
    /// # Errors
    /// As for [`Host::send`].
    pub fn receive(&mut self, vi: u32, cookie: u64, segments: &[DataSegment]) -> Result<(), PostError> {
        if segments.len() > SEGMENTS_MAX {
            return Err(PostError::TooLong);
        }
        let mut entry = Entry::new(op::RECEIVE, 0, vi, cookie);
        entry.put_segments(segments);
        self.push(&entry)
    }

    /// Posts a control request; its [`Indication::Reply`] has the same cookie.
    ///
    /// # Errors
    /// As for [`Host::send`].
    pub fn post_control(&mut self, cookie: u64, control: &Control) -> Result<(), PostError> {
        let both = |write: bool, read: bool| u8::from(write) | (u8::from(read) << 1);
        let entry = match control {
            Control::CreateVi { reliability, transfer_bytes_max, rdma_write, rdma_read } => {
                let mut entry = Entry::new(op::CREATE_VI, both(*rdma_write, *rdma_read), 0, cookie);
                entry.put_word(16, *reliability as u32);
                entry.put_word(20, *transfer_bytes_max);
                entry
            }
            Control::Register { address, length, rdma_write, rdma_read } => {
                let mut entry = Entry::new(op::REGISTER, both(*rdma_write, *rdma_read), 0, cookie);
                entry.put_word(16, *length);
                entry.put_long(24, *address);
                entry
            }
            Control::DestroyVi(vi) => Entry::new(op::DESTROY_VI, 0, *vi, cookie),
            Control::Deregister(handle) => Entry::new(op::DEREGISTER, 0, *handle, cookie),
            Control::Disconnect(vi) => Entry::new(op::DISCONNECT, 0, *vi, cookie),
            Control::Reject(request) => Entry::new(op::REJECT, 0, *request, cookie),
            Control::Accept { request, vi } => {
                let mut entry = Entry::new(op::ACCEPT, 0, *vi, cookie);
                entry.put_word(16, *request);
                entry
            }
            Control::Listen(discriminator) => {
                if discriminator.len() > NAME_BYTES_MAX {
                    return Err(PostError::TooLong);
                }
                let mut entry = Entry::new(op::LISTEN, 0, 0, cookie);
                entry.put_names(discriminator, &[]);
                entry
            }
            Control::Connect { vi, host, discriminator, patience_ms } => {
                if host.len().max(discriminator.len()) > NAME_BYTES_MAX {
                    return Err(PostError::TooLong);
                }
                let mut entry = Entry::new(op::CONNECT, 0, *vi, cookie);
                entry.put_word(16, *patience_ms);
                entry.put_names(host, discriminator);
                entry
            }
        };
        self.push(&entry)
    }

    /// Returns whether an indication is available; one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.done.is_ready()
    }

    /// Returns the next indication from the board, or `None` if there is none.
    ///
    /// # Errors
    /// [`Poisoned`] if the board violated the ring's protocol or wrote an invalid entry; it is not trusted
    /// any more.
    pub fn next_indication(&mut self) -> Result<Option<Indication>, Poisoned> {
        let mut bytes = [0; DONE_BYTES];
        match self.done.peek()? {
            None => return Ok(None),
            Some(entry) => entry.copy_to(0, &mut bytes),
        };
        self.done.release();
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let cookie = u64::from(word(8)) | (u64::from(word(12)) << 32);
        let cookie = if cfg!(target_endian = "big") { cookie.rotate_left(32) } else { cookie };
        match bytes[0] {
            indication_kind::DONE => {
                let kinds = [
                    CompletionKind::Send,
                    CompletionKind::Receive,
                    CompletionKind::Write,
                    CompletionKind::RemoteWrite,
                    CompletionKind::Read,
                ];
                let kind = *kinds.get(usize::from(bytes[1])).ok_or(Poisoned)?;
                let immediate = (bytes[2] != 0).then_some(word(24));
                let done = Completion { cookie, kind, status: Status(word(16)), length: word(20), immediate };
                Ok(Some(Indication::Done { vi: word(4), done }))
            }
            indication_kind::REPLY => {
                let result = match bytes[1] {
                    0 => Ok(word(4)),
                    code => Err(*ControlError::ALL.get(usize::from(code) - 1).ok_or(Poisoned)?),
                };
                Ok(Some(Indication::Reply { cookie, result }))
            }
            indication_kind::REQUEST => Ok(Some(Indication::Request { request: word(4) })),
            indication_kind::LOST => Ok(Some(Indication::Lost { vi: word(4), fault: word(16) })),
            _ => Err(Poisoned),
        }
    }
}

/// A connection that a host has requested.
#[derive(Debug)]
pub struct Call {
    /// Address of the remote host, in the driver's format.
    pub host: Vec<u8>,
    vi: u32,
    discriminator: Vec<u8>,
    patience: core::time::Duration,
    cookie: u64,
}

/// The board's side: the state kept for one host.
#[derive(Debug)]
pub struct Attachment {
    work: Consumer,
    done: Producer,
    arena: Region,
    tag: u32,
    queue: u32,
    vis_max: usize,
    vis: Vec<u32>,
    memories: Vec<u32>,
    listeners: Vec<Vec<u8>>,
    requests: Vec<u32>,
    calls: Vec<Call>,
    /// VIs whose connect request awaits a reply, and the cookie of each request.
    connecting: Vec<(u32, u64)>,
    /// Indications that did not fit into the completion ring.
    waiting: Vec<[u8; DONE_BYTES]>,
}

/// Maximum memories that one host registers; below, maximum discriminators at which it listens.
const MEMORIES_MAX: usize = 512;
const LISTENERS_MAX: usize = 8;
/// Maximum entries taken from one host before the next is served.
const TURN_ENTRIES: usize = 64;
/// Indications queued for a host that does not read them, above which no entries are taken from it.
const WAITING_MAX: usize = 256;

impl Attachment {
    /// Attaches a host with two new rings and its arena.
    ///
    /// # Errors
    /// [`RequestError::TooMany`] if the NIC has no protection tag or completion queue left.
    pub fn new(
        nic: &mut Nic,
        work: Consumer,
        done: Producer,
        arena: Region,
        vis_max: usize,
    ) -> Result<Attachment, RequestError> {
        let tag = nic.create_tag()?;
        let bound = nic.config().descriptors_max.saturating_mul(2).saturating_mul(vis_max.max(1));
        let queue = match nic.create_queue(bound) {
            Ok(queue) => queue,
            Err(refusal) => {
                nic.destroy_tag(tag)?;
                return Err(refusal);
            }
        };
        Ok(Attachment {
            work,
            done,
            arena,
            tag,
            queue,
            vis_max,
            vis: Vec::new(),
            memories: Vec::new(),
            listeners: Vec::new(),
            requests: Vec::new(),
            calls: Vec::new(),
            connecting: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Returns whether a VI belongs to this host.
    pub fn has(&self, vi: u32) -> bool {
        self.vis.contains(&vi)
    }

    /// Returns whether the host has posted an entry; one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.work.is_ready()
    }

    /// Returns whether no more entries are processed, because the host does not read its indications.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Executes the entries that the host has posted and returns how many. Call [`Attachment::call`]
    /// afterwards.
    ///
    /// # Errors
    /// [`Poisoned`] if the host violated the ring's protocol: end the attachment.
    pub fn drain(&mut self, nic: &mut Nic, now: Instant) -> Result<usize, Poisoned> {
        let mut taken = 0;
        while taken < TURN_ENTRIES && self.waiting.len() < WAITING_MAX {
            let mut entry = Entry { bytes: [0; ENTRY_BYTES], length: 0 };
            match self.work.peek()? {
                None => break,
                // Copied once; only the copy is validated.
                Some(bytes) => entry.length = bytes.copy_to(0, &mut entry.bytes).min(bytes.len()),
            }
            self.work.release();
            taken += 1;
            self.act(&entry, nic, now);
        }
        Ok(taken)
    }

    fn act(&mut self, entry: &Entry, nic: &mut Nic, now: Instant) {
        let (kind, cookie) = (entry.bytes[0], entry.long(8));
        if matches!(kind, op::RECEIVE | op::SEND | op::WRITE | op::READ) {
            if let Err(denied) = self.post(entry, nic) {
                self.reply(cookie, Err(denied));
            }
            return;
        }
        if kind == op::CONNECT {
            match self.call_of(entry) {
                Ok(call) => self.calls.push(call),
                Err(denied) => self.reply(cookie, Err(denied)),
            }
            return;
        }
        let result = self.control(entry, nic, now);
        self.reply(cookie, result);
    }

    fn own_vi(&self, vi: u32) -> Result<u32, ControlError> {
        if self.has(vi) { Ok(vi) } else { Err(ControlError::NotYours) }
    }

    fn post(&mut self, entry: &Entry, nic: &mut Nic) -> Result<(), ControlError> {
        let vi = self.own_vi(entry.word(4))?;
        let segments = entry.segments().ok_or(ControlError::Garbage)?;
        let cookie = entry.long(8);
        if entry.bytes[0] == op::RECEIVE {
            return Ok(nic.post_receive(vi, cookie, &segments)?);
        }
        let remote = AddressSegment { address: entry.long(24), handle: entry.word(20) };
        let operation = match entry.bytes[0] {
            op::SEND => Operation::Send,
            op::WRITE => Operation::Write(remote),
            _ => Operation::Read(remote),
        };
        let immediate = (entry.bytes[1] & 1 != 0).then_some(entry.word(16));
        let work = Work { cookie, operation, segments: &segments, immediate, fence: entry.bytes[1] & 2 != 0 };
        Ok(nic.post_send(vi, work)?)
    }

    fn call_of(&self, entry: &Entry) -> Result<Call, ControlError> {
        let vi = self.own_vi(entry.word(4))?;
        let (host, discriminator) = entry.names().ok_or(ControlError::Garbage)?;
        Ok(Call {
            host: host.to_vec(),
            vi,
            discriminator: discriminator.to_vec(),
            patience: core::time::Duration::from_millis(entry.word(16).into()),
            cookie: entry.long(8),
        })
    }

    /// Returns the next connection that the host requested; the driver finds a path to [`Call::host`].
    pub fn call(&mut self) -> Option<Call> {
        if self.calls.is_empty() { None } else { Some(self.calls.remove(0)) }
    }

    /// Sends the request of a call over `path`, or denies it if `path` is `None`.
    pub fn connect(&mut self, call: &Call, path: Option<u32>, nic: &mut Nic, now: Instant) {
        let names = (&[][..], &call.discriminator[..]);
        let requested = path
            .ok_or(ControlError::Unreachable)
            .and_then(|path| Ok(nic.request(call.vi, path, names, false, now, now + call.patience)?));
        match requested {
            Ok(()) => self.connecting.push((call.vi, call.cookie)),
            Err(denied) => self.reply(call.cookie, Err(denied)),
        }
    }

    fn control(&mut self, entry: &Entry, nic: &mut Nic, now: Instant) -> Result<u32, ControlError> {
        let number = entry.word(4);
        let (write, read) = (entry.bytes[1] & 1 != 0, entry.bytes[1] & 2 != 0);
        match entry.bytes[0] {
            op::CREATE_VI => {
                if self.vis.len() >= self.vis_max {
                    return Err(ControlError::TooMany);
                }
                let reliability = match entry.word(16) {
                    0 => Reliability::Unreliable,
                    1 => Reliability::Delivery,
                    2 => Reliability::Reception,
                    _ => return Err(ControlError::Garbage),
                };
                let attributes = ViAttributes {
                    reliability,
                    transfer_bytes_max: entry.word(20),
                    qos: 0,
                    tag: self.tag,
                    rdma_write: write,
                    rdma_read: read,
                };
                let vi = nic.create_vi(attributes, Some(self.queue), Some(self.queue))?;
                self.vis.push(vi);
                Ok(vi)
            }
            op::DESTROY_VI => {
                nic.destroy_vi(self.own_vi(number)?)?;
                self.vis.retain(|vi| *vi != number);
                Ok(0)
            }
            op::REGISTER => {
                if self.memories.len() >= MEMORIES_MAX {
                    return Err(ControlError::TooMany);
                }
                let part = self
                    .arena
                    .part(entry.long(24), entry.word(16) as usize)
                    .ok_or(ControlError::OutOfRange)?;
                let attributes = MemoryAttributes { tag: self.tag, rdma_write: write, rdma_read: read };
                let handle = nic.register(part, attributes)?;
                self.memories.push(handle);
                Ok(handle)
            }
            op::DEREGISTER => {
                let place =
                    self.memories.iter().position(|own| *own == number).ok_or(ControlError::NotYours)?;
                self.memories.swap_remove(place);
                nic.deregister(number)?;
                Ok(0)
            }
            op::LISTEN => {
                let (discriminator, _) = entry.names().ok_or(ControlError::Garbage)?;
                if self.listeners.len() >= LISTENERS_MAX {
                    return Err(ControlError::TooMany);
                }
                if nic.listens(discriminator) {
                    return Err(ControlError::BadState);
                }
                nic.listen(discriminator)?;
                self.listeners.push(discriminator.to_vec());
                Ok(0)
            }
            op::ACCEPT | op::REJECT => {
                let request = if entry.bytes[0] == op::ACCEPT { entry.word(16) } else { number };
                if !self.requests.contains(&request) {
                    return Err(ControlError::NotYours);
                }
                match entry.bytes[0] {
                    op::ACCEPT => nic.accept(request, self.own_vi(number)?, now)?,
                    _ => nic.reject(request)?,
                }
                self.requests.retain(|own| *own != request);
                Ok(0)
            }
            op::DISCONNECT => {
                nic.disconnect(self.own_vi(number)?)?;
                self.connecting.retain(|(vi, _)| *vi != number);
                Ok(0)
            }
            _ => Err(ControlError::Garbage),
        }
    }

    fn reply(&mut self, cookie: u64, result: Result<u32, ControlError>) {
        let mut bytes = [0; DONE_BYTES];
        bytes[0] = indication_kind::REPLY;
        match result {
            Ok(value) => bytes[4..8].copy_from_slice(&value.to_ne_bytes()),
            Err(denied) => bytes[1] = denied as u8,
        }
        bytes[8..16].copy_from_slice(&cookie.to_ne_bytes());
        self.waiting.push(bytes);
    }

    /// Handles an event of the NIC and returns whether it concerned this host.
    pub fn on_event(&mut self, event: Event) -> bool {
        let (vi, fault) = match event {
            Event::ConnectionLost { vi, fault } => (vi, fault),
            // Descriptor statuses report these to the host.
            Event::ReceiveQueueEmpty { vi } | Event::RdmaProtection { vi, .. } => return self.has(vi),
            Event::CompletionQueueFull { queue } => return queue == self.queue,
        };
        if !self.has(vi) {
            return false;
        }
        let mut bytes = [0; DONE_BYTES];
        bytes[0] = indication_kind::LOST;
        bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
        bytes[16..20].copy_from_slice(&fault.to_ne_bytes());
        self.waiting.push(bytes);
        true
    }

    /// Writes pending indications into the host's ring, as far as it has room, and returns whether it wrote
    /// any.
    ///
    /// # Errors
    /// [`Poisoned`] if the host violated the ring's protocol: end the attachment.
    pub fn deliver_indications(&mut self, nic: &mut Nic) -> Result<bool, Poisoned> {
        let mut replies: ArrayVec<(u64, Result<u32, ControlError>), 16> = ArrayVec::new();
        self.connecting.retain(|(vi, cookie)| {
            if replies.is_full() {
                return true;
            }
            match nic.outcome(*vi) {
                Ok(None) => true,
                Ok(Some(outcome)) => {
                    replies.push((*cookie, outcome.map(|_| 0).map_err(ControlError::from)));
                    false
                }
                Err(refusal) => {
                    replies.push((*cookie, Err(refusal.into())));
                    false
                }
            }
        });
        replies.into_iter().for_each(|(cookie, result)| self.reply(cookie, result));
        let Attachment { waiting, listeners, requests, done, queue, .. } = self;
        requests.retain(|request| nic.has_request(*request));
        for discriminator in listeners.iter() {
            while waiting.len() < WAITING_MAX
                && let Some(request) = nic.request_at(discriminator)
            {
                let mut bytes = [0; DONE_BYTES];
                bytes[0] = indication_kind::REQUEST;
                bytes[4..8].copy_from_slice(&request.number.to_ne_bytes());
                waiting.push(bytes);
                requests.push(request.number);
            }
        }
        let mut posted = false;
        let sent = waiting.iter().map_while(|bytes| match done.push(bytes) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(condemned) => Some(Err(condemned)),
        });
        let count = sent.collect::<Result<Vec<_>, _>>()?.len();
        waiting.drain(..count);
        posted |= count > 0;
        // While the ring is full, completions wait in the NIC in order.
        while waiting.is_empty() && done.room()?.is_some() {
            let Ok(Some((vi, receive))) = nic.queue_done(*queue) else { break };
            let next = if receive { nic.receive_done(vi) } else { nic.send_done(vi) };
            let Ok(Some(one)) = next else { continue };
            done.push(&done_entry(vi, &one))?;
            posted = true;
        }
        Ok(posted)
    }

    /// Detaches the host and releases everything it owned.
    pub fn end(self, nic: &mut Nic) {
        self.listeners.iter().for_each(|discriminator| nic.unlisten(discriminator));
        for request in self.requests {
            let _ = nic.reject(request);
        }
        for vi in self.vis {
            let _ = nic.disconnect(vi);
            while matches!(nic.send_done(vi), Ok(Some(_))) || matches!(nic.receive_done(vi), Ok(Some(_))) {}
            nic.destroy_vi(vi).expect("it is idle, and its queues are empty");
        }
        for handle in self.memories {
            let _ = nic.deregister(handle);
        }
        nic.destroy_queue(self.queue).expect("no VI has it any more");
        nic.destroy_tag(self.tag).expect("nothing has it any more");
    }
}

fn done_entry(vi: u32, done: &Completion) -> [u8; DONE_BYTES] {
    let mut bytes = [0; DONE_BYTES];
    bytes[0] = indication_kind::DONE;
    bytes[1] = done.kind as u8;
    bytes[2] = u8::from(done.immediate.is_some());
    bytes[4..8].copy_from_slice(&vi.to_ne_bytes());
    bytes[8..16].copy_from_slice(&done.cookie.to_ne_bytes());
    bytes[16..20].copy_from_slice(&done.status.0.to_ne_bytes());
    bytes[20..24].copy_from_slice(&done.length.to_ne_bytes());
    bytes[24..28].copy_from_slice(&done.immediate.unwrap_or(0).to_ne_bytes());
    bytes
}
