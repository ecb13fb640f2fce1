//! DMAC: gathers and scatters. Moves bytes between the host's memory and the FIFOs of the work executor.
//!
//! Gather    the bytes of a message lie in elements; a segment takes the next of them as [`Piece`]s, which a lower layer
//!           copies, or hands to its operating system as they are.
//! Scatter   the bytes of a segment go to the elements of a receive, or to one place.
//! Checked   every element at every segment: a tag that was taken back under way moves no byte more.

use super::super::work::{Data, Sge};
use super::smt::{StagTable, Use, Violation};
use arrayvec::ArrayVec;
use kiban_ground::{Region, SharedBytes};

/// Pieces of one segment at most; a segment with more ends early.
pub(in super::super) const PIECES_MAX: usize = 32;

/// A run of the host's memory that goes out.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    region: &'a Region,
    address: u64,
    length: usize,
}

impl Piece<'_> {
    /// The bytes, to be copied.
    #[inline]
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.region.bytes(self.address, self.length).expect("a piece lies within its block")
    }

    /// The memory, kept for as long as the value is held.
    #[inline]
    pub fn region(&self) -> Region {
        self.region.part(self.address, self.length).expect("a piece lies within its block")
    }

    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// The payload of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes that stand in the core.
    Bytes(&'a [u8]),
    /// The host's memory.
    Pieces(&'a [Piece<'a>]),
}

impl Payload<'_> {
    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Pieces(pieces) => pieces.iter().map(Piece::len).sum(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all bytes.
    #[inline]
    pub fn append_to(&self, target: &mut alloc::vec::Vec<u8>) {
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

/// A place in a list of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Cursor {
    element: usize,
    offset: u32,
}

impl Cursor {
    /// Skips to the next element with bytes left: it, from there on.
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

/// The next pieces, of at most `room` bytes in all; the cursor moves behind them. An element ends the segment if `cut`.
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
        let list = smt.check(sge.stag, owner, Use::LocalRead, sge.address, u64::from(sge.length))?;
        let (mut address, mut wanted) = (sge.address, (sge.length as usize).min(room - taken));
        while wanted > 0 && !pieces.is_full() {
            let (region, length) = list.find(address, wanted).ok_or(Violation::Bounds)?;
            pieces.push(Piece { region, address, length });
            (address, wanted, taken) = (address + length as u64, wanted - length, taken + length);
            cursor.offset += length as u32;
        }
        if cut {
            break;
        }
    }
    Ok(taken)
}

/// The next pieces of one place in memory that a peer reads.
pub(in super::super) fn gather_place<'a>(
    smt: &'a StagTable,
    owner: (u32, u32),
    stag: u32,
    (mut address, length): (u64, u64),
    room: usize,
    pieces: &mut ArrayVec<Piece<'a>, PIECES_MAX>,
) -> Result<usize, Violation> {
    let list = smt.check(stag, owner, Use::RemoteRead, address, length)?;
    let room = room.min(usize::try_from(length).unwrap_or(usize::MAX));
    let mut taken = 0;
    while taken < room && !pieces.is_full() {
        let (region, length) = list.find(address, room - taken).ok_or(Violation::Bounds)?;
        pieces.push(Piece { region, address, length });
        (address, taken) = (address + length as u64, taken + length);
    }
    Ok(taken)
}

/// Copies bytes to the elements; the cursor moves behind them. How many bytes had room.
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
        let list = smt.check(sge.stag, owner, Use::LocalWrite, sge.address, count as u64)?;
        list.write(sge.address, bytes.part(0, count)).ok_or(Violation::Bounds)?;
        bytes = bytes.after(count);
        cursor.offset += count as u32;
        done += count;
    }
    Ok(done)
}

/// The next memory of the elements, of at most `room` bytes in all, for a lower layer that lands bytes there itself. The
/// cursor stays: [`skip`] moves it when the bytes are there.
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
        let list = smt.check(sge.stag, owner, Use::LocalWrite, sge.address, count as u64)?;
        let (region, count) = list.find(sge.address, count).ok_or(Violation::Bounds)?;
        places.extend(region.part(sge.address, count));
        cursor.offset += count as u32;
        room -= count;
    }
    Ok(())
}

/// So many bytes have been put where [`landing`] said.
pub(in super::super) fn skip(sges: &[Sge], cursor: &mut Cursor, mut bytes: usize) {
    while bytes > 0 {
        let Some(sge) = cursor.rest(sges) else { break };
        let count = bytes.min(sge.length as usize);
        cursor.offset += count as u32;
        bytes -= count;
    }
}

/// Whether every element may be used so.
pub(in super::super) fn check_all(
    smt: &StagTable,
    owner: (u32, u32),
    data: &Data,
    purpose: Use,
) -> Result<(), Violation> {
    let Data::Elements(sges) = data else { return Ok(()) };
    sges.iter()
        .filter(|sge| sge.length > 0)
        .try_for_each(|sge| smt.check(sge.stag, owner, purpose, sge.address, u64::from(sge.length)).map(drop))
}
