//! I/O maps (riomap, riounmap, riowrite): a peer writes directly to the program's memory, outside the
//! stream.
//!
//! Purpose   lets a program map memory at an offset, which its peer uses to write there. The mapping is
//!           announced before the next bytes of the stream.
//! Limits    at most as many mappings as the peer has entries (its `RDMA_IOMAPSIZE`). Overlapping offsets are
//!           not detected.

use super::socket::Socket;
use super::stream::Stream;
use super::wire::{Entry, MapEntry};
use crate::memory::program_memory;
use core::ffi::c_int;
use core::ptr::NonNull;
use kiban_rdma_runtime::verbs::Access;

/// The memory that this side has mapped.
#[derive(Default)]
pub(super) struct Mappings {
    all: Vec<Mapping>,
}

struct Mapping {
    at: usize,
    length: usize,
    key: u32,
    offset: u64,
    /// The index of the entry in the peer's table, and whether the entry has been sent.
    entry: Option<(u16, bool)>,
}

impl Mappings {
    /// Returns all keys, to be deregistered when the connection ends.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|mapping| mapping.key)
    }
}

/// Maps memory.
///
/// # Safety
/// The memory belongs to the program, which lets the peer use it until it is unmapped.
pub(super) unsafe fn map(
    socket: &Socket,
    at: *mut u8,
    length: usize,
    for_writing: bool,
    offset: i64,
) -> Result<i64, c_int> {
    socket.look();
    let mut inner = socket.inner();
    let stream = inner.stream().ok_or(libc::EINVAL)?;
    let (Some(base), Ok(_)) = (NonNull::new(at), u32::try_from(length)) else { return Err(libc::EINVAL) };
    if length == 0 {
        return Err(libc::EINVAL);
    }
    let entry = if for_writing {
        let is_free = |index: &u16| {
            stream.mappings.all.iter().all(|mapping| mapping.entry.is_none_or(|(used, _)| used != *index))
        };
        Some((0..stream.peer_iomap()).find(is_free).ok_or(libc::ENOMEM)?)
    } else {
        None
    };
    // SAFETY: the caller of `map` guarantees that the memory stays valid, and may be accessed by the peer,
    // until it is unmapped.
    let region = unsafe { program_memory(base, length) };
    let access = Access { local_write: true, remote_write: for_writing, ..Access::NONE };
    let key = stream.register(region, access)?;
    let offset = if offset == -1 { at.addr() as i64 } else { offset };
    let entry = entry.map(|index| (index, false));
    let mapping = Mapping { at: at.addr(), length, key, offset: offset.cast_unsigned(), entry };
    stream.mappings.all.push(mapping);
    Ok(offset)
}

/// Unmaps memory. The peer is not notified; its later writes fail.
pub(super) fn unmap(socket: &Socket, at: usize, length: usize) -> Result<(), c_int> {
    let mut inner = socket.inner();
    let stream = inner.stream().ok_or(libc::EINVAL)?;
    let mut all = stream.mappings.all.iter();
    let found = all.position(|mapping| (mapping.at, mapping.length) == (at, length)).ok_or(libc::EINVAL)?;
    let mapping = stream.mappings.all.swap_remove(found);
    stream.deregister(mapping.key);
    Ok(())
}

/// Announces as many new mappings to the peer as credits allow.
pub(super) fn send_mappings(stream: &mut Stream) {
    for index in 0..stream.mappings.all.len() {
        let Mapping { at, length, key, offset, entry } = stream.mappings.all[index];
        if let Some((entry, false)) = entry
            && stream.can_send()
        {
            let memory = Entry { address: at as u64, key, length: length as u32 };
            stream.send_mapping(entry, MapEntry { offset, entry: memory });
            stream.mappings.all[index].entry = Some((entry, true));
        }
    }
}

/// Writes to memory that the peer has mapped.
pub(super) fn write(socket: &Socket, bytes: &[u8], offset: i64, flags: c_int) -> Result<usize, c_int> {
    let offset = offset.cast_unsigned();
    // Returns the mapping at an offset, the position within it, and the room from there to its end.
    let reach = |stream: &Stream, sent: usize| {
        let at = offset.wrapping_add(sent as u64);
        let within = |mapped: &&MapEntry| at.wrapping_sub(mapped.offset) < u64::from(mapped.entry.length);
        let mapped = stream.mapped.iter().find(within)?;
        let from = at.wrapping_sub(mapped.offset);
        Some((mapped.entry, from, (u64::from(mapped.entry.length) - from) as usize))
    };
    let mut end = bytes.len();
    let sent = socket.send_with(bytes.len(), flags, |stream, sent| {
        let mut now = sent;
        while now < end && stream.can_send() {
            let Some((entry, from, room)) = reach(stream, now) else {
                end = now;
                break;
            };
            now += stream.write_direct(&bytes[now..end.min(now + room)], entry, from);
        }
        // If nothing is mapped there, end the call.
        if now >= end { bytes.len() - sent } else { now - sent }
    })?;
    Ok(sent.min(end))
}
