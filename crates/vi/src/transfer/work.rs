//! Descriptors on their work queues, from posting to dequeuing.
//!
//! Order     a queue is first in, first out: descriptors may complete out of order, but are dequeued in the
//!           order in which they were posted (VI Architecture 1.0). Descriptors are numbered consecutively,
//!           and the rest of the NIC refers to them by number.
//! Memory    a descriptor's memory is looked up every time bytes are moved, so that memory deregistered in
//!           the meantime is not accessed.

use crate::memory::Registry;
use alloc::collections::VecDeque;
use core::fmt;
use kiban_base::{SharedBytes, SharedRoom};

/// A data segment: a range of registered memory in a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataSegment {
    /// Address of the first byte, in the address range under which the memory was registered.
    pub address: u64,
    /// Handle of the memory.
    pub handle: u32,
    /// Length in bytes.
    pub length: u32,
}

/// An address segment: the target of an RDMA operation in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressSegment {
    /// Address of the first byte.
    pub address: u64,
    /// Handle of the peer's memory.
    pub handle: u32,
}

/// The operation of a descriptor on a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Sends a message to the peer's next receive descriptor.
    Send,
    /// RDMA Write into the peer's memory.
    Write(AddressSegment),
    /// RDMA Read from the peer's memory.
    Read(AddressSegment),
}

/// A work request for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// An identifier chosen by the host, returned on completion.
    pub cookie: u64,
    /// The operation.
    pub operation: Operation,
    /// Data segments in the host's memory.
    pub segments: &'a [DataSegment],
    /// Immediate data for the peer's receive descriptor. If an RDMA Write has immediate data, it consumes a
    /// receive descriptor.
    pub immediate: Option<u32>,
    /// Queue fence: the operation starts only after all previously posted RDMA Reads have completed.
    pub fence: bool,
}

impl<'a> Work<'a> {
    /// Creates a send.
    pub const fn send(cookie: u64, segments: &'a [DataSegment]) -> Work<'a> {
        Work { cookie, operation: Operation::Send, segments, immediate: None, fence: false }
    }

    /// Creates an RDMA Write.
    pub const fn write(cookie: u64, segments: &'a [DataSegment], remote: AddressSegment) -> Work<'a> {
        Work { cookie, operation: Operation::Write(remote), segments, immediate: None, fence: false }
    }

    /// Creates an RDMA Read.
    pub const fn read(cookie: u64, segments: &'a [DataSegment], remote: AddressSegment) -> Work<'a> {
        Work { cookie, operation: Operation::Read(remote), segments, immediate: None, fence: false }
    }

    /// Returns this work request with immediate data added.
    #[must_use]
    pub const fn with_immediate(self, immediate: u32) -> Work<'a> {
        Work { immediate: Some(immediate), ..self }
    }

    /// Returns this work request with a queue fence added.
    #[must_use]
    pub const fn fenced(self) -> Work<'a> {
        Work { fence: true, ..self }
    }
}

/// Completion status: the bits of the descriptor's status word (VI Architecture 1.0), named as in VIPL.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Status(pub u32);

impl Status {
    /// No error.
    pub const OK: Status = Status(0);
    /// The descriptor is malformed.
    pub const FORMAT: Status = Status(0x2);
    /// The descriptor refers to memory that is not registered, or that the VI may not use.
    pub const PROTECTION: Status = Status(0x4);
    /// The message is longer than the descriptor or the VI's maximum transfer size.
    pub const LENGTH: Status = Status(0x8);
    /// Some bytes had already moved when the error occurred.
    pub const PARTIAL: Status = Status(0x10);
    /// The VI was not connected, or lost its connection, before the descriptor was processed.
    pub const FLUSHED: Status = Status(0x20);
    /// The connection broke while the descriptor was being processed.
    pub const TRANSPORT: Status = Status(0x40);
    /// The peer does not allow this access to the peer's memory.
    pub const RDMA_PROTECTION: Status = Status(0x80);
    /// The peer's descriptor was in error.
    pub const REMOTE_DESCRIPTOR: Status = Status(0x100);

    const NAMES: [(Status, &'static str); 8] = [
        (Status::FORMAT, "format"),
        (Status::PROTECTION, "protection"),
        (Status::LENGTH, "length"),
        (Status::PARTIAL, "partial"),
        (Status::FLUSHED, "flushed"),
        (Status::TRANSPORT, "transport"),
        (Status::RDMA_PROTECTION, "RDMA protection"),
        (Status::REMOTE_DESCRIPTOR, "remote descriptor"),
    ];

    /// Returns whether there was no error.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    /// Combines the bits of both.
    #[must_use]
    pub const fn and(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() {
            return f.write_str("ok");
        }
        let mut names = Status::NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("?"))?;
        names.try_for_each(|name| write!(f, " + {name}"))
    }
}

/// The operation that a completed descriptor performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionKind {
    /// A message was sent.
    Send,
    /// A message was received.
    Receive,
    /// An RDMA Write.
    Write,
    /// An RDMA Write with immediate data by the peer, which consumed a receive descriptor.
    RemoteWrite,
    /// An RDMA Read.
    Read,
}

/// A completed descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The identifier chosen by the host.
    pub cookie: u64,
    /// The operation.
    pub kind: CompletionKind,
    /// The completion status.
    pub status: Status,
    /// Number of bytes moved.
    pub length: u32,
    /// Immediate data received or sent with the message.
    pub immediate: Option<u32>,
}

/// A descriptor on its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub cookie: u64,
    /// `None` on a receive queue.
    pub operation: Option<Operation>,
    pub immediate: Option<u32>,
    pub fence: bool,
    /// Total length of the descriptor's segments in bytes.
    pub bytes: u32,
    segments: u32,
    first_segment: u64,
    end: Option<(Status, u32, CompletionKind)>,
}

impl Posted {
    /// The kind reported on completion, unless an RDMA Write by the peer consumed the descriptor.
    pub(crate) const fn kind(&self) -> CompletionKind {
        match self.operation {
            Some(Operation::Send) => CompletionKind::Send,
            Some(Operation::Write(_)) => CompletionKind::Write,
            Some(Operation::Read(_)) => CompletionKind::Read,
            None => CompletionKind::Receive,
        }
    }

    /// Returns whether the operation is an RDMA Read, which completes when its response arrives.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self.operation, Some(Operation::Read(_)))
    }
}

/// A work queue of a VI.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    works: VecDeque<Posted>,
    segments: VecDeque<DataSegment>,
    /// The number of the first descriptor in the queue, and the number of the queue's first segment.
    front: u64,
    segments_front: u64,
    /// Descriptors below this number have completed and been reported.
    done: u64,
}

impl WorkQueue {
    pub(crate) fn len(&self) -> usize {
        self.works.len()
    }

    /// Returns the number of the first descriptor that has not been dequeued.
    #[inline]
    pub(crate) fn front(&self) -> u64 {
        self.front
    }

    /// Returns the number of the next descriptor to be posted.
    pub(crate) fn end(&self) -> u64 {
        self.front + self.works.len() as u64
    }

    pub(crate) fn push(
        &mut self,
        cookie: u64,
        operation: Option<Operation>,
        segments: &[DataSegment],
        immediate: Option<u32>,
        fence: bool,
    ) -> u64 {
        let number = self.end();
        let first_segment = self.segments_front + self.segments.len() as u64;
        let bytes = segments.iter().fold(0u32, |sum, segment| sum.saturating_add(segment.length));
        self.segments.extend(segments);
        let segments = segments.len() as u32;
        self.works.push_back(Posted {
            cookie,
            operation,
            immediate,
            fence,
            bytes,
            segments,
            first_segment,
            end: None,
        });
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&Posted> {
        self.works.get(usize::try_from(number.checked_sub(self.front)?).ok()?)
    }

    /// Returns the number of the first descriptor that has not completed.
    #[inline]
    pub(crate) fn first_open(&self) -> Option<u64> {
        (self.done < self.end()).then_some(self.done)
    }

    /// Completes a descriptor. It can be dequeued once all earlier descriptors have completed.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        number: u64,
        status: Status,
        length: u32,
        kind: CompletionKind,
        immediate: Option<u32>,
    ) {
        let Some(index) = number.checked_sub(self.front) else { return };
        if let Some(work) = self.works.get_mut(index as usize)
            && work.end.is_none()
        {
            work.end = Some((status, length, kind));
            work.immediate = immediate;
        }
    }

    /// Completes a send descriptor with its own operation and immediate data.
    #[inline]
    pub(crate) fn end_with(&mut self, number: u64, status: Status, length: u32) {
        if let Some(work) = self.get(number) {
            let (kind, immediate) = (work.kind(), work.immediate);
            self.finish(number, status, length, kind, immediate);
        }
    }

    /// Returns whether a descriptor has completed.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        self.get(number).is_none_or(|work| work.end.is_some())
    }

    /// Returns the number of descriptors completed in order since the last call.
    #[inline]
    pub(crate) fn newly_done(&mut self) -> u64 {
        let before = self.done;
        while self.get(self.done).is_some_and(|work| work.end.is_some()) {
            self.done += 1;
        }
        self.done - before
    }

    /// Completes all remaining descriptors with `status`.
    pub(crate) fn flush(&mut self, status: Status) {
        for work in &mut self.works {
            let kind = work.kind();
            work.end.get_or_insert((status, 0, kind));
        }
    }

    /// Returns whether the first descriptor has completed.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.front < self.done
    }

    /// Dequeues the next completed descriptor.
    #[inline]
    pub(crate) fn dequeue(&mut self) -> Option<Completion> {
        if !self.is_ready() {
            return None;
        }
        let work = self.works.pop_front()?;
        self.front += 1;
        self.segments.drain(..work.segments as usize);
        self.segments_front += u64::from(work.segments);
        let (status, length, kind) = work.end?;
        Some(Completion { cookie: work.cookie, kind, status, length, immediate: work.immediate })
    }

    /// Calls `see` for each part of a descriptor's memory that holds the `length` bytes from `offset` on.
    /// Returns `None` if `see` returns `None` or if there are too few bytes.
    #[inline]
    fn walk(
        &self,
        number: u64,
        mut offset: usize,
        mut length: usize,
        see: &mut dyn FnMut(DataSegment) -> Option<()>,
    ) -> Option<()> {
        let work = self.get(number)?;
        let first = (work.first_segment - self.segments_front) as usize;
        for segment in self.segments.range(first..first + work.segments as usize) {
            let whole = segment.length as usize;
            if offset >= whole {
                offset -= whole;
                continue;
            }
            let part = (whole - offset).min(length);
            if part > 0 {
                let address = segment.address.checked_add(offset as u64)?;
                see(DataSegment { address, handle: segment.handle, length: part as u32 })?;
            }
            length -= part;
            offset = 0;
            if length == 0 {
                return Some(());
            }
        }
        (length == 0).then_some(())
    }

    /// Returns whether all memory of a descriptor exists and has protection tag `tag`.
    pub(crate) fn is_permitted(&self, number: u64, tag: u32, memory: &Registry) -> bool {
        let whole = self.get(number).map_or(0, |work| work.bytes as usize);
        self.walk(number, 0, whole, &mut |segment| {
            memory.local(segment.handle, tag)?.range(segment.address, segment.length as usize).map(|_| ())
        })
        .is_some()
    }

    /// Copies bytes from a descriptor's memory into a packet; returns `None` if access is not permitted.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "part of a descriptor, its owner's tag, and the target")]
    pub(crate) fn gather(
        &self,
        number: u64,
        offset: usize,
        length: usize,
        tag: u32,
        memory: &Registry,
        at: usize,
        room: &mut SharedRoom<'_>,
    ) -> Option<()> {
        let mut at = at;
        self.walk(number, offset, length, &mut |segment| {
            let bytes = memory.local(segment.handle, tag)?.bytes(segment.address, segment.length as usize)?;
            room.write(at, bytes);
            at += bytes.len();
            Some(())
        })
    }

    /// Copies a packet's payload into a descriptor's memory; returns `None` if access is not permitted.
    #[inline]
    pub(crate) fn scatter(
        &self,
        number: u64,
        offset: usize,
        payload: SharedBytes<'_>,
        tag: u32,
        memory: &Registry,
    ) -> Option<()> {
        let mut at = 0;
        self.walk(number, offset, payload.len(), &mut |segment| {
            let length = segment.length as usize;
            memory.local(segment.handle, tag)?.write(segment.address, payload.part(at, length))?;
            at += length;
            Some(())
        })
    }
}
