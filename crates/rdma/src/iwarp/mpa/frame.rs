//! MPA transmit path: frames ULPDUs.
//!
//! Purpose  framing copies no payload: the caller appends header and payload to a buffer between [`begin`]
//!          and [`end`], or sends them in place, between a [`length_field`] and a [`Trailer`].
//! Markers  are inserted into finished FPDUs, which takes a copy and a new CRC. Only conformance tests
//!          request markers.

use crate::wire::mpa::{
    self as wire, CRC_BYTES, LENGTH_BYTES, MARKER_BYTES, MARKER_INTERVAL_BYTES, Marker, TRAILER_BYTES_MAX,
    ULPDU_BYTES_MAX,
};
use alloc::vec::Vec;
use kiban_base::crc::Crc32c;

/// Returns the length field of an FPDU.
///
/// # Panics
/// If `ulpdu_bytes` exceeds [`ULPDU_BYTES_MAX`].
#[inline]
pub const fn length_field(ulpdu_bytes: usize) -> [u8; LENGTH_BYTES] {
    assert!(ulpdu_bytes <= ULPDU_BYTES_MAX, "a ULPDU is at most 65535 bytes");
    (ulpdu_bytes as u16).to_be_bytes()
}

/// Begins an FPDU: appends its length field. The caller appends `ulpdu_bytes` bytes, then calls [`end`] with
/// the returned start.
///
/// # Panics
/// If `ulpdu_bytes` exceeds [`ULPDU_BYTES_MAX`].
#[inline]
pub fn begin(target: &mut Vec<u8>, ulpdu_bytes: usize) -> usize {
    let start = target.len();
    target.extend_from_slice(&length_field(ulpdu_bytes));
    start
}

/// Ends the FPDU that began at `start`: appends the pad and the CRC field, which is zero if `crc` is false.
///
/// # Panics
/// If the number of appended bytes differs from the one given to [`begin`].
#[inline]
pub fn end(target: &mut Vec<u8>, start: usize, crc: bool) {
    let ulpdu_bytes = target.len() - start - LENGTH_BYTES;
    assert!(target[start..start + LENGTH_BYTES] == length_field(ulpdu_bytes), "the ULPDU has its length");
    // RFC 5044 §4.4: the CRC covers the length field and the pad.
    target.resize(target.len() + wire::pad_bytes(ulpdu_bytes), 0);
    let field = if crc { Crc32c::of(&target[start..]).to_le_bytes() } else { [0; CRC_BYTES] };
    target.extend_from_slice(&field);
}

/// The pad and CRC that follow a ULPDU sent in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    bytes: [u8; TRAILER_BYTES_MAX],
    length: u8,
}

impl Trailer {
    /// Returns the trailer, without a CRC, for a ULPDU of this length.
    #[inline]
    pub const fn plain(ulpdu_bytes: usize) -> Trailer {
        Trailer { bytes: [0; TRAILER_BYTES_MAX], length: wire::trailer_bytes(ulpdu_bytes) as u8 }
    }

    /// Returns the trailer, with a CRC, for a ULPDU given in pieces.
    ///
    /// # Panics
    /// If the total length exceeds [`ULPDU_BYTES_MAX`].
    pub fn with_crc<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Trailer {
        let ulpdu_bytes = pieces.clone().map(<[u8]>::len).sum();
        let mut trailer = Trailer::plain(ulpdu_bytes);
        let mut crc = Crc32c::new();
        crc.update(&length_field(ulpdu_bytes));
        pieces.for_each(|piece| crc.update(piece));
        let pad_bytes = wire::pad_bytes(ulpdu_bytes);
        crc.update(&trailer.bytes[..pad_bytes]);
        trailer.bytes[pad_bytes..pad_bytes + CRC_BYTES].copy_from_slice(&crc.value().to_le_bytes());
        trailer
    }

    /// Returns the bytes: 4 to 7.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The sender of a stream whose receiver requested markers.
#[derive(Clone, Debug, Default)]
pub struct MarkerInserter {
    /// Distance in bytes from the start of the last marker to the current position.
    phase: usize,
}

impl MarkerInserter {
    /// Creates a sender that starts at the first byte after the start frame.
    pub const fn new() -> MarkerInserter {
        MarkerInserter { phase: 0 }
    }

    /// Appends complete FPDUs to `target` and inserts markers. If `crc` is true, the CRCs are recomputed to
    /// cover the markers.
    ///
    /// # Panics
    /// If `fpdus` does not end with a complete FPDU.
    pub fn insert_markers(&mut self, mut fpdus: &[u8], crc: bool, target: &mut Vec<u8>) {
        while let Some(&field) = fpdus.first_chunk::<LENGTH_BYTES>() {
            let bytes = wire::fpdu_bytes(usize::from(u16::from_be_bytes(field)));
            let (fpdu, rest) = fpdus.split_at(bytes);
            self.weave_one(&fpdu[..bytes - CRC_BYTES], crc, target);
            fpdus = rest;
        }
        assert!(fpdus.is_empty(), "FPDUs are whole");
    }

    fn weave_one(&mut self, covered: &[u8], crc: bool, target: &mut Vec<u8>) {
        let start = target.len();
        let length_at = start + if self.phase == 0 { MARKER_BYTES } else { 0 };
        let mut left = covered;
        while !left.is_empty() {
            self.mark(length_at, target);
            let (run, rest) = left.split_at(left.len().min(MARKER_INTERVAL_BYTES - self.phase));
            target.extend_from_slice(run);
            self.phase = (self.phase + run.len()) % MARKER_INTERVAL_BYTES;
            left = rest;
        }
        // A marker due at the CRC field goes before it and is covered by the CRC.
        self.mark(length_at, target);
        let field = if crc { Crc32c::of(&target[start..]).to_le_bytes() } else { [0; CRC_BYTES] };
        target.extend_from_slice(&field);
        self.phase = (self.phase + CRC_BYTES) % MARKER_INTERVAL_BYTES;
    }

    /// Appends a marker if one is due.
    fn mark(&mut self, length_at: usize, target: &mut Vec<u8>) {
        if self.phase == 0 {
            let since_length = target.len().saturating_sub(length_at) as u16;
            let mut bytes = [0; MARKER_BYTES];
            self.phase = Marker { since_length }.write(&mut bytes);
            target.extend_from_slice(&bytes);
        }
    }
}
