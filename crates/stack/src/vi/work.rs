//! Work: descriptors on their queues, from posting to dequeuing.
//!
//! Order     a queue is first in, first out: descriptors may be done earlier, they are dequeued in the order of posting
//!           (VI Architecture 1.0). Works have running numbers, so that whoever is under way names one without holding it.
//! Memory    what a descriptor names is looked up whenever bytes move: memory that was deregistered meanwhile is not touched.

use super::memory::Registry;
use alloc::collections::VecDeque;
use core::fmt;
use kiban_ground::{SharedBytes, SharedRoom};

/// A run of registered memory in a descriptor: a data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// The first byte, by the address of its memory.
    pub address: u64,
    /// The memory's handle.
    pub handle: u32,
    /// Bytes.
    pub length: u32,
}

/// Where an RDMA operation works in the peer's memory: an address segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The first byte.
    pub address: u64,
    /// The handle of the peer's memory.
    pub handle: u32,
}

/// What a descriptor on a send queue asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A message for the peer's next receive descriptor.
    Send,
    /// Bytes into the peer's memory.
    Write(Remote),
    /// Bytes out of the peer's memory.
    Read(Remote),
}

/// A descriptor for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Whatever the host calls it.
    pub cookie: u64,
    /// What to do.
    pub operation: Operation,
    /// The host's memory.
    pub segments: &'a [Segment],
    /// Four bytes that the peer's receive descriptor shows. A write with them consumes one.
    pub immediate: Option<u32>,
    /// Begin only when all reads posted before are done (queue fence).
    pub fence: bool,
}

impl<'a> Work<'a> {
    /// A message.
    pub const fn send(cookie: u64, segments: &'a [Segment]) -> Work<'a> {
        Work { cookie, operation: Operation::Send, segments, immediate: None, fence: false }
    }

    /// An RDMA Write.
    pub const fn write(cookie: u64, segments: &'a [Segment], remote: Remote) -> Work<'a> {
        Work { cookie, operation: Operation::Write(remote), segments, immediate: None, fence: false }
    }

    /// An RDMA Read.
    pub const fn read(cookie: u64, segments: &'a [Segment], remote: Remote) -> Work<'a> {
        Work { cookie, operation: Operation::Read(remote), segments, immediate: None, fence: false }
    }

    /// The same with immediate data.
    #[must_use]
    pub const fn with_immediate(self, immediate: u32) -> Work<'a> {
        Work { immediate: Some(immediate), ..self }
    }

    /// The same with a queue fence.
    #[must_use]
    pub const fn fenced(self) -> Work<'a> {
        Work { fence: true, ..self }
    }
}

/// How a descriptor ended: the bits of the descriptor's status word (VI Architecture 1.0), as VIPL names them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Status(pub u32);

impl Status {
    /// Without an error.
    pub const OK: Status = Status(0);
    /// The descriptor itself breaks a rule.
    pub const FORMAT: Status = Status(0x2);
    /// It names memory that is not registered, or not for this VI.
    pub const PROTECTION: Status = Status(0x4);
    /// The message is longer than the descriptor, or than the VI's longest.
    pub const LENGTH: Status = Status(0x8);
    /// Bytes had moved already when an error ended it.
    pub const PARTIAL: Status = Status(0x10);
    /// The connection ended, or was never there, before its turn came.
    pub const FLUSHED: Status = Status(0x20);
    /// The connection broke under it.
    pub const TRANSPORT: Status = Status(0x40);
    /// The peer does not let this VI touch that place.
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

    /// Whether there was no error.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other`'s bits are set.
    pub const fn has(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
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

/// What a descriptor was for, as the done one says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoneAs {
    /// A message sent.
    Send,
    /// A message received.
    Receive,
    /// An RDMA Write done.
    Write,
    /// The peer's RDMA Write with immediate data, which consumed a receive descriptor.
    RemoteWrite,
    /// An RDMA Read done.
    Read,
}

/// A descriptor that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// What the host called it.
    pub cookie: u64,
    /// What it was for.
    pub kind: DoneAs,
    /// How it ended.
    pub status: Status,
    /// Bytes that moved.
    pub length: u32,
    /// Immediate data that came with a message, or went with it.
    pub immediate: Option<u32>,
}

/// A descriptor on its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub cookie: u64,
    /// None on a receive queue.
    pub operation: Option<Operation>,
    pub immediate: Option<u32>,
    pub fence: bool,
    /// Bytes of its segments together.
    pub bytes: u32,
    segments: u32,
    first_segment: u64,
    end: Option<(Status, u32, DoneAs)>,
}

impl Posted {
    /// What it is done as, unless a write of the peer's consumed it.
    pub(super) const fn kind(&self) -> DoneAs {
        match self.operation {
            Some(Operation::Send) => DoneAs::Send,
            Some(Operation::Write(_)) => DoneAs::Write,
            Some(Operation::Read(_)) => DoneAs::Read,
            None => DoneAs::Receive,
        }
    }

    /// Whether it is done by a response.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self.operation, Some(Operation::Read(_)))
    }
}

/// One work queue of a VI.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    works: VecDeque<Posted>,
    segments: VecDeque<Segment>,
    /// The number of the first work, and of the first segment.
    front: u64,
    segments_front: u64,
    /// Works below this number are done and told.
    done: u64,
}

impl WorkQueue {
    pub(super) fn len(&self) -> usize {
        self.works.len()
    }

    /// The number of the first that has not been dequeued.
    #[inline]
    pub(super) fn front(&self) -> u64 {
        self.front
    }

    /// The number that the next work gets.
    pub(super) fn end(&self) -> u64 {
        self.front + self.works.len() as u64
    }

    pub(super) fn push(
        &mut self,
        cookie: u64,
        operation: Option<Operation>,
        segments: &[Segment],
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
    pub(super) fn get(&self, number: u64) -> Option<&Posted> {
        self.works.get(usize::try_from(number.checked_sub(self.front)?).ok()?)
    }

    /// The first work that is not done: its number.
    #[inline]
    pub(super) fn first_open(&self) -> Option<u64> {
        (self.done < self.end()).then_some(self.done)
    }

    /// A work has ended. It is dequeued when those before it have.
    #[inline]
    pub(super) fn finish(
        &mut self,
        number: u64,
        status: Status,
        length: u32,
        kind: DoneAs,
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

    /// A work of a send queue has ended: as what it was posted for, with the immediate data that went with it.
    #[inline]
    pub(super) fn end_with(&mut self, number: u64, status: Status, length: u32) {
        if let Some(work) = self.get(number) {
            let (kind, immediate) = (work.kind(), work.immediate);
            self.finish(number, status, length, kind, immediate);
        }
    }

    /// Whether a work has ended already.
    pub(super) fn has_ended(&self, number: u64) -> bool {
        self.get(number).is_none_or(|work| work.end.is_some())
    }

    /// How many more are done, in order, than were told before.
    #[inline]
    pub(super) fn newly_done(&mut self) -> u64 {
        let before = self.done;
        while self.get(self.done).is_some_and(|work| work.end.is_some()) {
            self.done += 1;
        }
        self.done - before
    }

    /// Ends everything that has not ended.
    pub(super) fn flush(&mut self, status: Status) {
        for work in &mut self.works {
            let kind = work.kind();
            work.end.get_or_insert((status, 0, kind));
        }
    }

    /// Whether the first is done.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.front < self.done
    }

    /// The next that is done.
    #[inline]
    pub(super) fn dequeue(&mut self) -> Option<Done> {
        if !self.is_ready() {
            return None;
        }
        let work = self.works.pop_front()?;
        self.front += 1;
        self.segments.drain(..work.segments as usize);
        self.segments_front += u64::from(work.segments);
        let (status, length, kind) = work.end?;
        Some(Done { cookie: work.cookie, kind, status, length, immediate: work.immediate })
    }

    /// Shows the parts of a work's memory that hold `length` bytes from `offset` on.
    #[inline]
    fn walk(
        &self,
        number: u64,
        mut offset: usize,
        mut length: usize,
        see: &mut dyn FnMut(Segment) -> Option<()>,
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
                see(Segment { address, handle: segment.handle, length: part as u32 })?;
            }
            length -= part;
            offset = 0;
            if length == 0 {
                return Some(());
            }
        }
        (length == 0).then_some(())
    }

    /// Whether all memory of a work is there and may be used under a tag.
    pub(super) fn is_permitted(&self, number: u64, tag: u32, memory: &Registry) -> bool {
        let whole = self.get(number).map_or(0, |work| work.bytes as usize);
        self.walk(number, 0, whole, &mut |segment| {
            memory.local(segment.handle, tag)?.range(segment.address, segment.length as usize).map(|_| ())
        })
        .is_some()
    }

    /// Copies out of a work's memory into a packet; nothing when it may not.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "a part of a work, whose it is, and where it goes")]
    pub(super) fn gather(
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

    /// Copies a packet's payload into a work's memory; nothing when it may not.
    #[inline]
    pub(super) fn scatter(
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
