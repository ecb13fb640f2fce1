//! Posting and completing descriptors in the program's memory.
//!
//! Posting      a descriptor is read once, when it is posted. Later changes by the program have no effect.
//!              The result is written once, before the descriptor is returned to the program.
//! Refused      a descriptor is refused if it is unaligned, outside memory registered with the VI's tag, or
//!              already posted.
//! Errors       a descriptor that is queued but cannot be executed completes in order, with an error status.
//!              For sends, the errors are reserved bits set in `Control`, an invalid operation, a missing
//!              address segment, immediate data with a read, and a `Length` that is not the sum of the
//!              segments. For receives, `Length` is ignored, because programs reuse descriptors without
//!              clearing it.
//! Deregistered if the descriptor's memory has been deregistered before completion, the result is not
//!              written. The error is reported asynchronously (VIP_ERROR_COMP_PROT), and the program still
//!              gets the pointer.

use crate::abi::{VIP_CONTROL_SEGMENT, VIP_DESCRIPTOR, VIP_DESCRIPTOR_ALIGNMENT, VIP_RETURN, VIP_SEGMENT};
use crate::abi::{control, status};
use crate::border::{Answer, reading};
use crate::errors;
use crate::objects::callbacks::Context;
use crate::objects::members::{Direction, Vi};
use crate::objects::memory::Memories;
use crate::objects::nic::Nic;
use arrayvec::ArrayVec;
use core::mem::offset_of;
use kiban_base::Wait;
use kiban_os::lock;
use kiban_vi::{AddressSegment, Completion, CompletionKind, DataSegment, Operation, Status, Work};
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The maximum number of segments in a descriptor: the data segments that the NIC supports, plus one address
/// segment.
const SEGMENTS_MAX: usize = 253;
const CONTROL_BYTES: usize = size_of::<VIP_CONTROL_SEGMENT>();
const SEGMENT_BYTES: usize = size_of::<VIP_SEGMENT>();

/// A copy of a descriptor's segments. The copy is filled in place, because moving the array would cost more
/// than the call.
type Segments = ArrayVec<DataSegment, SEGMENTS_MAX>;

/// Copies a descriptor from registered memory. Returns its control segment, and appends the other segments
/// to `segments`.
fn copy(
    memories: &Memories,
    handle: u32,
    at: usize,
    tag: u32,
    segments: &mut Segments,
) -> Answer<VIP_CONTROL_SEGMENT> {
    const BAD: VIP_RETURN = VIP_RETURN::INVALID_PARAMETER;
    let memory = memories.get(handle)?;
    if at == 0
        || !at.is_multiple_of(VIP_DESCRIPTOR_ALIGNMENT)
        || memory.tag != tag
        || !memory.holds(at, CONTROL_BYTES)
    {
        return Err(BAD);
    }
    // SAFETY: the bytes are aligned and in registered memory, which the program keeps valid until
    // deregistration; deregistration takes the lock that our caller holds. If another thread of the program
    // writes to the memory, the volatile copy is a mixture of old and new bytes, and any value is valid.
    let control = unsafe { core::ptr::with_exposed_provenance::<VIP_CONTROL_SEGMENT>(at).read_volatile() };
    let count = usize::from(control.SegCount);
    if count <= SEGMENTS_MAX {
        if !memory.holds(at, CONTROL_BYTES + count * SEGMENT_BYTES) {
            return Err(BAD);
        }
        for index in 0..count {
            let place = at + CONTROL_BYTES + index * SEGMENT_BYTES;
            // SAFETY: the segments are in the same registered memory as the control segment, as checked
            // above; any value is valid.
            let segment = unsafe { core::ptr::with_exposed_provenance::<VIP_SEGMENT>(place).read_volatile() };
            segments.push(DataSegment {
                address: segment.Data,
                handle: segment.Handle,
                length: segment.Length,
            });
        }
    }
    Ok(control)
}

/// Decodes a descriptor. The status indicates the first error, if there is one.
fn decode<'a>(
    control: &VIP_CONTROL_SEGMENT,
    segments: &'a [DataSegment],
    direction: Direction,
) -> (Operation, &'a [DataSegment], Status) {
    let VIP_CONTROL_SEGMENT { Control, SegCount, Length, .. } = control;
    let faulty = (Operation::Send, &[][..], Status::FORMAT);
    if usize::from(*SegCount) != segments.len() || Control & control::RESERVED != 0 {
        return faulty;
    }
    let operation = Control & control::OP_MASK;
    if direction == Direction::Receive {
        return if operation == control::OP_SENDRECV {
            (Operation::Send, segments, Status::OK)
        } else {
            faulty
        };
    }
    let (operation, segments) = match (operation, segments.split_first()) {
        (control::OP_SENDRECV, _) => (Operation::Send, segments),
        (control::OP_RDMAWRITE, Some((place, segments))) => {
            (Operation::Write(AddressSegment { address: place.address, handle: place.handle }), segments)
        }
        (control::OP_RDMAREAD, Some((place, segments))) if Control & control::IMMEDIATE == 0 => {
            (Operation::Read(AddressSegment { address: place.address, handle: place.handle }), segments)
        }
        _ => return faulty,
    };
    let sum = segments.iter().fold(0u64, |sum, segment| sum + u64::from(segment.length));
    let status = if sum == u64::from(*Length) { Status::OK } else { Status::LENGTH };
    (operation, segments, status)
}

pub(crate) fn post(vi: &Vi, descriptor: *mut VIP_DESCRIPTOR, handle: u32, direction: Direction) -> Answer {
    let nic = &*vi.nic;
    let at = descriptor.expose_provenance();
    let mut segments = Segments::new();
    let descriptor = copy(&reading(&nic.memories), handle, at, vi.tag.load(Relaxed), &mut segments)?;
    match lock(&nic.posted).entry(at) {
        Entry::Occupied(_) => return Err(VIP_RETURN::INVALID_PARAMETER),
        Entry::Vacant(free) => free.insert(handle),
    };
    let (operation, segments, status) = decode(&descriptor, &segments, direction);
    let cookie = at as u64;
    let posted = match direction {
        Direction::Receive => nic.core.post_judged_receive(vi.number, cookie, segments, status),
        Direction::Send => {
            let immediate = descriptor.Control & control::IMMEDIATE != 0;
            let immediate = immediate.then_some(descriptor.ImmediateData);
            let fence = descriptor.Control & control::QFENCE != 0;
            let work = Work { cookie, operation, segments, immediate, fence };
            nic.core.post_judged_send(vi.number, work, status)
        }
    };
    if posted.is_err() {
        lock(&nic.posted).remove(&at);
    }
    Ok(posted?)
}

/// Writes the result of a completed descriptor. Returns its pointer and the return code for the program.
fn answer(nic: &Nic, done: Completion) -> (*mut VIP_DESCRIPTOR, VIP_RETURN) {
    let at = done.cookie as usize;
    let pointer = core::ptr::with_exposed_provenance_mut::<VIP_DESCRIPTOR>(at);
    let received = matches!(done.kind, CompletionKind::Receive | CompletionKind::RemoteWrite);
    let immediate = done.immediate.filter(|_| received && done.status.is_ok());
    let word = status::DONE
        | done.status.0
        | match done.kind {
            CompletionKind::Send => status::OP_SEND,
            CompletionKind::Receive => status::OP_RECEIVE,
            CompletionKind::Write => status::OP_RDMA_WRITE,
            CompletionKind::RemoteWrite => status::OP_REMOTE_RDMA_WRITE,
            CompletionKind::Read => status::OP_RDMA_READ,
        }
        | immediate.map_or(0, |_| status::IMMEDIATE);
    let handle = lock(&nic.posted).remove(&at);
    let memories = reading(&nic.memories);
    let is_there = handle
        .and_then(|handle| memories.get(handle).ok())
        .is_some_and(|memory| memory.holds(at, CONTROL_BYTES));
    if is_there {
        let put = |field: usize, value: u32| {
            // SAFETY: the control segment is aligned and in memory that stays registered while the lock is
            // held; the descriptor belongs to the NIC until this call returns it, so there is no reference to
            // it.
            unsafe { core::ptr::with_exposed_provenance_mut::<u32>(at + field).write_volatile(value) }
        };
        put(offset_of!(VIP_CONTROL_SEGMENT, Length), done.length);
        if let Some(immediate) = immediate {
            put(offset_of!(VIP_CONTROL_SEGMENT, ImmediateData), immediate);
        }
        put(offset_of!(VIP_CONTROL_SEGMENT, Status), word);
    } else {
        drop(memories);
        errors::completion_had_no_memory(nic, Context(pointer.cast()), word & status::OP_MASK);
    }
    (pointer, if done.status.is_ok() { VIP_RETURN::SUCCESS } else { VIP_RETURN::DESCRIPTOR_ERROR })
}

/// A collected descriptor and its code.
pub(crate) type Collected = (*mut VIP_DESCRIPTOR, VIP_RETURN);

/// Returns the next completed descriptor, if there is one.
pub(crate) fn done(vi: &Vi, direction: Direction) -> Answer<Option<Collected>> {
    let done = match direction {
        Direction::Send => vi.nic.core.send_done(vi.number),
        Direction::Receive => vi.nic.core.receive_done(vi.number),
    };
    Ok(done?.map(|done| answer(&vi.nic, done)))
}

/// Returns the next completed descriptor, waiting for at most the timeout.
pub(crate) fn wait(vi: &Vi, direction: Direction, timeout: Duration) -> Answer<Collected> {
    let done = match direction {
        Direction::Send => vi.nic.core.send_wait(vi.number, timeout),
        Direction::Receive => vi.nic.core.receive_wait(vi.number, timeout),
    };
    Ok(answer(&vi.nic, done?))
}

/// Returns the next completed receive. Waits with the policy given in this call.
pub(crate) fn wait_by(vi: &Vi, policy: Wait, timeout: Duration) -> Answer<Collected> {
    Ok(answer(&vi.nic, vi.nic.core.receive_wait_by(vi.number, policy, timeout)?))
}
