//! Framing of what is sent.
//!
//! Goal      an FPDU costs its header no copy: the caller appends header and payload to a buffer between [`begin`] and [`end`],
//!           or sends them from where they lie, between [`length_field`] and a [`Trailer`].
//! Markers   are woven into finished FPDUs, with a copy and a new CRC: nobody asks for them but to show that he can.

use alloc::vec::Vec;
use kiban_wire::crc::Crc32c;
use kiban_wire::mpa::{
    self as wire, CRC_BYTES, LENGTH_BYTES, MARKER_BYTES, MARKER_INTERVAL_BYTES, Marker, TRAILER_BYTES_MAX,
    ULPDU_BYTES_MAX,
};

/// The two bytes before a ULPDU.
///
/// # Panics
/// Above [`ULPDU_BYTES_MAX`] bytes.
#[inline]
pub const fn length_field(ulpdu_bytes: usize) -> [u8; LENGTH_BYTES] {
    assert!(ulpdu_bytes <= ULPDU_BYTES_MAX, "a ULPDU is at most 65535 bytes");
    (ulpdu_bytes as u16).to_be_bytes()
}

/// Begins an FPDU: appends its length field. The caller appends `ulpdu_bytes`, then calls [`end`] with what this returns.
///
/// # Panics
/// Above [`ULPDU_BYTES_MAX`] bytes.
#[inline]
pub fn begin(target: &mut Vec<u8>, ulpdu_bytes: usize) -> usize {
    let start = target.len();
    target.extend_from_slice(&length_field(ulpdu_bytes));
    start
}

/// Ends the FPDU that began at `start`: appends pad and CRC, which is zero without `crc`.
///
/// # Panics
/// When what was appended is not what `begin` was told.
#[inline]
pub fn end(target: &mut Vec<u8>, start: usize, crc: bool) {
    let ulpdu_bytes = target.len() - start - LENGTH_BYTES;
    assert!(target[start..start + LENGTH_BYTES] == length_field(ulpdu_bytes), "the ULPDU has its length");
    // RFC 5044 §4.4: the CRC covers the length field and the pad.
    target.resize(target.len() + wire::pad_bytes(ulpdu_bytes), 0);
    let field = if crc { Crc32c::of(&target[start..]).to_le_bytes() } else { [0; CRC_BYTES] };
    target.extend_from_slice(&field);
}

/// Pad and CRC behind a ULPDU that is sent from where it lies. They are [`Trailer::as_slice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    bytes: [u8; TRAILER_BYTES_MAX],
    length: u8,
}

impl Trailer {
    /// Behind a ULPDU of this many bytes, where no CRC was agreed on.
    #[inline]
    pub const fn plain(ulpdu_bytes: usize) -> Trailer {
        Trailer { bytes: [0; TRAILER_BYTES_MAX], length: wire::trailer_bytes(ulpdu_bytes) as u8 }
    }

    /// Behind a ULPDU in pieces, with its CRC.
    ///
    /// # Panics
    /// Above [`ULPDU_BYTES_MAX`] bytes in all.
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

    /// The bytes: 4 to 7.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The sending end of a stream whose receiver asked for markers.
#[derive(Clone, Debug, Default)]
pub struct Weaver {
    /// Where the stream stands between the last marker's start and the next one's.
    phase: usize,
}

impl Weaver {
    /// At the first byte behind the start frame.
    pub const fn new() -> Weaver {
        Weaver { phase: 0 }
    }

    /// Appends whole FPDUs to `target` with markers among them. Their CRCs, if `crc`, are formed anew to cover the markers.
    ///
    /// # Panics
    /// When `fpdus` does not end with an FPDU.
    pub fn weave(&mut self, mut fpdus: &[u8], crc: bool, target: &mut Vec<u8>) {
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
        // One that falls on the CRC field stands before it and is covered.
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
