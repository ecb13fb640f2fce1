//! DMA controller (DMAC): gathers and scatters. It moves bytes between the host's memory and the work
//! executor's FIFOs.
//!
//! Gather   a message's bytes are in scatter/gather elements. A segment takes the next bytes as [`Piece`]s,
//!          which the lower layer copies or passes to its operating system by reference.
//! Scatter  a segment's bytes go to the elements of a receive, or to one memory range.
//! Checks   every element is checked again for every segment, so an invalidated tag transfers nothing more.
//!          The pages of memory to be sent are also read, because the lower layer cannot refuse a segment
//!          later. If the program unmaps them after that, zeros are sent, or the stream ends.

use super::super::work::{Data, Sge};
use super::pblmt::BufferList;
use super::smt::{AccessKind, StagTable, Violation};
use crate::wire::rdmap::Atomic;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use kiban_base::{Region, SharedBytes};

/// Maximum number of pieces in a segment; a segment that would need more ends early.
pub(in super::super) const PIECES_MAX: usize = 32;

/// A range of the host's memory to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    region: &'a Region,
    address: u64,
    length: usize,
}

impl<'a> Piece<'a> {
    #[inline]
    fn new(region: &'a Region, address: u64, length: usize) -> Result<Piece<'a>, Violation> {
        match region.is_readable(address, length) {
            true => Ok(Piece { region, address, length }),
            false => Err(Violation::Unmapped),
        }
    }

    /// Returns the bytes, for copying.
    #[inline]
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.region.bytes(self.address, self.length).expect("a piece lies within its block")
    }

    /// Returns the memory, which stays referenced while the value is held.
    #[inline]
    pub fn region(&self) -> Region {
        self.region.part(self.address, self.length).expect("a piece lies within its block")
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the length is zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// The payload of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes made by the core.
    Bytes(&'a [u8]),
    /// The host's memory.
    Pieces(&'a [Piece<'a>]),
}

impl Payload<'_> {
    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Pieces(pieces) => pieces.iter().map(Piece::len).sum(),
        }
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies all bytes into `target`, which has the same length.
    #[inline]
    pub fn copy_to(&self, mut target: &mut [u8]) {
        match self {
            Payload::Bytes(bytes) => target.copy_from_slice(bytes),
            Payload::Pieces(pieces) => {
                for piece in *pieces {
                    let (room, rest) = target.split_at_mut(piece.len());
                    // Memory that is no longer mapped is sent as zeros.
                    if piece.bytes().copy_to(0, room) < room.len() {
                        room.fill(0);
                    }
                    target = rest;
                }
            }
        }
    }

    /// Appends all bytes to `target`.
    #[inline]
    pub fn append_to(&self, target: &mut Vec<u8>) {
        match self {
            Payload::Bytes(bytes) => target.extend_from_slice(bytes),
            Payload::Pieces(pieces) => {
                for piece in *pieces {
                    piece.bytes().append_to(target);
                }
            }
        }
    }
}

/// A position in a list of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Cursor {
    element: usize,
    offset: u32,
}

impl Cursor {
    /// Skips exhausted elements and returns the rest of the current one.
    #[inline]
    fn rest(&mut self, sges: &[Sge]) -> Option<Sge> {
        loop {
            let sge = sges.get(self.element)?;
            if self.offset < sge.length {
                let address = sge.address.wrapping_add(u64::from(self.offset));
                return Some(Sge { stag: sge.stag, address, length: sge.length - self.offset });
            }
            *self = Cursor { element: self.element + 1, offset: 0 };
        }
    }
}

/// Collects the next pieces, at most `room` bytes in total, and advances the cursor. If `cut` is set, stops
/// where a transfer ends: at the end of an element or of a block, and so after one piece.
pub(in super::super) fn gather<'a>(
    smt: &'a StagTable,
    owner: (u32, u32),
    sges: &[Sge],
    cursor: &mut Cursor,
    room: usize,
    cut: bool,
    pieces: &mut ArrayVec<Piece<'a>, PIECES_MAX>,
) -> Result<usize, Violation> {
    let mut taken = 0;
    while taken < room && !pieces.is_full() {
        let Some(sge) = cursor.rest(sges) else { break };
        let list = smt.check(sge.stag, owner, AccessKind::LocalRead, sge.address, u64::from(sge.length))?;
        let (mut address, mut wanted) = (sge.address, (sge.length as usize).min(room - taken));
        while wanted > 0 && !pieces.is_full() {
            let (region, length) = list.find(address, wanted).ok_or(Violation::Bounds)?;
            pieces.push(Piece::new(region, address, length)?);
            (address, wanted, taken) = (address + length as u64, wanted - length, taken + length);
            cursor.offset += length as u32;
            if cut {
                return Ok(taken);
            }
        }
    }
    Ok(taken)
}

/// Returns the number of DMA transfers that fetch a range: one for each block in which a part of it lies.
pub(in super::super) fn transfers(list: &BufferList, (mut address, mut length): (u64, usize)) -> usize {
    let mut count = 0;
    while length > 0 {
        let Some((_, taken)) = list.find(address, length) else { break };
        (address, length, count) = (address + taken as u64, length - taken, count + 1);
    }
    count
}

/// Appends the next `length` bytes of the elements to `target`, and advances the cursor.
pub(in super::super) fn copy(
    smt: &StagTable,
    owner: (u32, u32),
    sges: &[Sge],
    cursor: &mut Cursor,
    length: usize,
    target: &mut Vec<u8>,
) -> Result<(), Violation> {
    let end = target.len() + length;
    while target.len() < end {
        let mut pieces = ArrayVec::new();
        if gather(smt, owner, sges, cursor, end - target.len(), false, &mut pieces)? == 0 {
            return Err(Violation::Bounds);
        }
        Payload::Pieces(&pieces).append_to(target);
    }
    Ok(())
}

/// Collects the next pieces of one memory range that a peer reads. If `cut` is set, stops where a block ends.
pub(in super::super) fn gather_place<'a>(
    smt: &'a StagTable,
    owner: (u32, u32),
    stag: u32,
    (mut address, length): (u64, u64),
    room: usize,
    cut: bool,
    pieces: &mut ArrayVec<Piece<'a>, PIECES_MAX>,
) -> Result<usize, Violation> {
    let list = smt.check(stag, owner, AccessKind::RemoteRead, address, length)?;
    let room = room.min(usize::try_from(length).unwrap_or(usize::MAX));
    let mut taken = 0;
    while taken < room && !pieces.is_full() {
        let (region, length) = list.find(address, room - taken).ok_or(Violation::Bounds)?;
        pieces.push(Piece::new(region, address, length)?);
        (address, taken) = (address + length as u64, taken + length);
        if cut {
            break;
        }
    }
    Ok(taken)
}

/// Appends bytes of one memory range that a peer reads to `target`.
pub(in super::super) fn copy_place(
    smt: &StagTable,
    owner: (u32, u32),
    stag: u32,
    mut address: u64,
    length: usize,
    target: &mut Vec<u8>,
) -> Result<(), Violation> {
    let end = target.len() + length;
    while target.len() < end {
        let missing = end - target.len();
        let mut pieces = ArrayVec::new();
        let taken = gather_place(smt, owner, stag, (address, missing as u64), missing, false, &mut pieces)?;
        Payload::Pieces(&pieces).append_to(target);
        address = address.wrapping_add(taken as u64);
    }
    Ok(())
}

/// Executes an atomic operation on eight bytes, and returns their previous value. Returns `None` if they are
/// not in the list or no longer mapped.
pub(in super::super) fn modify(list: &BufferList, address: u64, atomic: Atomic) -> Option<u64> {
    let mut value = [0; 8];
    list.read(address, &mut value)?;
    let original = u64::from_ne_bytes(value);
    let changed = atomic.apply(original).to_ne_bytes();
    list.write(address, SharedBytes::from(&changed[..]))?;
    Some(original)
}

/// Copies bytes to the elements and advances the cursor. Returns the number of bytes copied.
pub(in super::super) fn scatter(
    smt: &StagTable,
    owner: (u32, u32),
    sges: &[Sge],
    cursor: &mut Cursor,
    mut bytes: SharedBytes<'_>,
) -> Result<usize, Violation> {
    let mut done = 0;
    while !bytes.is_empty() {
        let Some(sge) = cursor.rest(sges) else { break };
        let count = bytes.len().min(sge.length as usize);
        let list = smt.check(sge.stag, owner, AccessKind::LocalWrite, sge.address, count as u64)?;
        list.write(sge.address, bytes.part(0, count)).ok_or(Violation::Unmapped)?;
        bytes = bytes.after(count);
        cursor.offset += count as u32;
        done += count;
    }
    Ok(done)
}

/// Collects the next memory ranges in the elements, at most `room` bytes in total, so that the lower layer
/// can store bytes there directly. The cursor does not move; [`skip`] advances it when the bytes have
/// arrived.
pub(in super::super) fn landing(
    smt: &StagTable,
    owner: (u32, u32),
    sges: &[Sge],
    mut cursor: Cursor,
    mut room: usize,
    places: &mut ArrayVec<Region, PIECES_MAX>,
) -> Result<(), Violation> {
    while room > 0 && !places.is_full() {
        let Some(sge) = cursor.rest(sges) else { break };
        let count = room.min(sge.length as usize);
        let list = smt.check(sge.stag, owner, AccessKind::LocalWrite, sge.address, count as u64)?;
        let (region, count) = list.find(sge.address, count).ok_or(Violation::Bounds)?;
        places.extend(region.part(sge.address, count));
        cursor.offset += count as u32;
        room -= count;
    }
    Ok(())
}

/// Advances the cursor past `bytes` bytes that were stored in the memory from [`placement_buffers`].
pub(in super::super) fn skip(sges: &[Sge], cursor: &mut Cursor, mut bytes: usize) {
    while bytes > 0 {
        let Some(sge) = cursor.rest(sges) else { break };
        let count = bytes.min(sge.length as usize);
        cursor.offset += count as u32;
        bytes -= count;
    }
}

/// Checks that every element allows this use.
pub(in super::super) fn check_all(
    smt: &StagTable,
    owner: (u32, u32),
    data: &Data,
    purpose: AccessKind,
) -> Result<(), Violation> {
    let Data::Elements(sges) = data else { return Ok(()) };
    sges.iter()
        .filter(|sge| sge.length > 0)
        .try_for_each(|sge| smt.check(sge.stag, owner, purpose, sge.address, u64::from(sge.length)).map(drop))
}
