//! Work requests of a send queue, as entries.

use super::codec::{Reader, SGES_MAX, Writer};
use crate::rnic::{Binding, Data, Operation, SendWork, TaggedAddress};
use crate::wire::rdmap::Atomic;
use smallvec::SmallVec;

/// Maximum number of bytes of inline data in an entry.
const INLINE_BYTES_MAX: usize = 512;

/// Returns whether an entry can carry a work request.
pub(super) fn fits(work: &SendWork) -> bool {
    let is_known = !matches!(work.operation, Operation::Datagram { .. } | Operation::Register { .. });
    is_known
        && match &work.data {
            Data::Elements(sges) => sges.len() <= SGES_MAX,
            Data::Inline(bytes) => bytes.len() <= INLINE_BYTES_MAX,
        }
}

/// Writes a work request for which [`fits`] returns true.
pub(super) fn write(work: &SendWork, out: &mut Writer) {
    out.u64(work.id).flags(&[work.signalled, work.solicited, work.fence, work.local_fence]);
    match &work.operation {
        Operation::Send { invalidate } => out.u8(1).option(invalidate.map(u64::from)),
        Operation::SendImmediate { data } => out.u8(2).u32(*data),
        Operation::Immediate { data } => out.u8(3).u64(*data),
        Operation::Write { remote, immediate } => remote_to(out.u8(4), remote).option(*immediate),
        Operation::Read { remote, invalidate } => remote_to(out.u8(5), remote).u8((*invalidate).into()),
        Operation::Atomic { remote, atomic: Atomic::FetchAdd { add, mask } } => {
            remote_to(out.u8(6), remote).u64(*add).u64(*mask)
        }
        Operation::Atomic {
            remote,
            atomic: Atomic::CompareSwap { swap, swap_mask, compare, compare_mask },
        } => remote_to(out.u8(7), remote).u64(*swap).u64(*swap_mask).u64(*compare).u64(*compare_mask),
        Operation::LocalInvalidate { stag } => out.u8(8).u32(*stag),
        Operation::Bind { window, binding } => {
            out.u8(9).u32(*window).u8(binding.is_some().into());
            match binding {
                Some(its) => out.u32(its.region).u64(its.address).u64(its.length).access(its.access),
                None => out,
            }
        }
        // `fits` excludes these.
        Operation::Datagram { .. } | Operation::Register { .. } => out.u8(0),
    };
    match &work.data {
        Data::Elements(sges) => out.u8(0).sges(sges),
        Data::Inline(bytes) => out.u8(1).bytes(bytes),
    };
}

fn remote_to<'a>(out: &'a mut Writer, remote: &TaggedAddress) -> &'a mut Writer {
    out.u32(remote.stag).u64(remote.offset)
}

fn remote_from(entry: &mut Reader<'_>) -> Option<TaggedAddress> {
    Some(TaggedAddress { stag: entry.u32()?, offset: entry.u64()? })
}

/// Reads a work request.
pub(super) fn read(entry: &mut Reader<'_>) -> Option<SendWork> {
    let id = entry.u64()?;
    let [signalled, solicited, fence, local_fence] = entry.flags()?;
    let operation = match entry.u8()? {
        1 => Operation::Send { invalidate: entry.option()?.map(|stag| stag as u32) },
        2 => Operation::SendImmediate { data: entry.u32()? },
        3 => Operation::Immediate { data: entry.u64()? },
        4 => Operation::Write { remote: remote_from(entry)?, immediate: entry.option()? },
        5 => Operation::Read { remote: remote_from(entry)?, invalidate: entry.flag()? },
        6 => {
            let remote = remote_from(entry)?;
            Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: entry.u64()?, mask: entry.u64()? } }
        }
        7 => {
            let remote = remote_from(entry)?;
            let atomic = Atomic::CompareSwap {
                swap: entry.u64()?,
                swap_mask: entry.u64()?,
                compare: entry.u64()?,
                compare_mask: entry.u64()?,
            };
            Operation::Atomic { remote, atomic }
        }
        8 => Operation::LocalInvalidate { stag: entry.u32()? },
        9 => {
            let (window, is_bound) = (entry.u32()?, entry.flag()?);
            let binding = match is_bound {
                true => Some(Binding {
                    region: entry.u32()?,
                    address: entry.u64()?,
                    length: entry.u64()?,
                    access: entry.access()?,
                }),
                false => None,
            };
            Operation::Bind { window, binding }
        }
        _ => return None,
    };
    let data = match entry.u8()? {
        0 => Data::Elements(entry.sges()?),
        1 => Data::Inline(SmallVec::from_slice(entry.bytes()?)),
        _ => return None,
    };
    Some(SendWork { signalled, solicited, fence, local_fence, ..SendWork::new(id, operation, data) })
}
