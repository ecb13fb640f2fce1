//! MPA receive path: parses the beginning of the received bytes.
//!
//! Purpose  lets the upper layer step through the received FPDUs in a few nanoseconds each, without a copy.
//! Plain    without markers, [`front`] is a pure function of the bytes. Without a CRC, a long FPDU is
//!          returned before it is complete, so that its payload can be stored directly at its destination.
//! Markers  with markers, a complete FPDU is copied without its markers; the position of the next marker is
//!          the only state. The CRC is verified first, since a marker can be trusted only if the CRC is
//!          correct (RFC 5044 §8).
//! Pad      not checked, because siw leaves stale bytes in it.
//! Limits   markers are found by counting bytes. The pointer in a marker is only compared with the expected
//!          value: a mismatch is a fault.

use crate::wire::mpa::{
    self as wire, CRC_BYTES, LENGTH_BYTES, MARKER_BYTES, MARKER_INTERVAL_BYTES, Marker, error,
};
use alloc::vec::Vec;
use kiban_base::crc::Crc32c;

/// The result of parsing the beginning of the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front<'a> {
    /// A complete FPDU.
    Whole {
        /// Its payload; may be empty.
        ulpdu: &'a [u8],
        /// Length of the FPDU in the stream, in bytes; the next FPDU follows it.
        taken: usize,
    },
    /// The beginning of an FPDU without a CRC; it may be processed before the rest arrives.
    Part {
        /// The received part of the ULPDU: all of it, if only the trailer is missing.
        ulpdu: &'a [u8],
        /// Length of the whole ULPDU in bytes. The length field of two bytes precedes it, and
        /// [`super::trailer_bytes`] bytes follow it.
        length: usize,
    },
    /// At least this many bytes, in total, are needed to continue.
    NeedMore(usize),
}

/// A violation of MPA framing. Frame boundaries are lost, so the connection must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The CRC does not match.
    Crc,
    /// A marker disagrees with the start of its FPDU.
    Marker,
}

impl Fault {
    /// Returns the error code for a Terminate message with layer LLP and error type MPA (RFC 5044 §8).
    pub const fn code(self) -> u8 {
        match self {
            Fault::Crc => error::CRC,
            Fault::Marker => error::MARKER,
        }
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Fault::Crc => "the FPDU's CRC does not match",
            Fault::Marker => "a marker does not point to the start of its FPDU",
        })
    }
}

impl core::error::Error for Fault {}

/// Parses the next FPDU in a stream without markers. `crc` says whether both ends agreed on CRCs; if not, the
/// CRC field is ignored.
///
/// # Errors
/// [`Fault::Crc`].
#[inline]
pub fn front(crc: bool, bytes: &[u8]) -> Result<Front<'_>, Fault> {
    let Some((&field, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(Front::NeedMore(LENGTH_BYTES));
    };
    let length = usize::from(u16::from_be_bytes(field));
    let taken = wire::fpdu_bytes(length);
    if bytes.len() >= taken {
        if crc {
            verify(&bytes[..taken])?;
        }
        Ok(Front::Whole { ulpdu: &rest[..length], taken })
    } else if crc {
        Ok(Front::NeedMore(taken))
    } else {
        Ok(Front::Part { ulpdu: &rest[..length.min(rest.len())], length })
    }
}

/// Verifies the CRC of an FPDU, which also covers the FPDU's markers.
#[inline(never)]
fn verify(fpdu: &[u8]) -> Result<(), Fault> {
    let (covered, field) = fpdu.split_last_chunk::<CRC_BYTES>().expect("an FPDU has eight bytes at least");
    if Crc32c::of(covered).to_le_bytes() == *field { Ok(()) } else { Err(Fault::Crc) }
}

/// The receiver of one stream of FPDUs.
#[derive(Clone, Debug)]
pub struct Deframer {
    crc: bool,
    markers: Option<Markers>,
}

#[derive(Clone, Debug, Default)]
struct Markers {
    /// Distance in bytes from the start of the last marker to the next FPDU.
    phase: usize,
    /// The FPDU without its markers and its CRC.
    plain: Vec<u8>,
}

impl Deframer {
    /// Creates a receiver that starts at the first byte after the start frame. `markers` says whether the
    /// peer sends markers.
    pub fn new(crc: bool, markers: bool) -> Deframer {
        Deframer { crc, markers: markers.then(Markers::default) }
    }

    /// Returns whether CRCs are verified.
    #[inline]
    pub const fn has_crc(&self) -> bool {
        self.crc
    }

    /// Returns whether FPDUs contain markers. If so, they are returned only when complete.
    #[inline]
    pub const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// Parses the next FPDU in `bytes`. With markers, a complete FPDU counts as taken, so the next call must
    /// start after it.
    ///
    /// # Errors
    /// See [`Fault`].
    #[inline]
    pub fn front<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Front<'a>, Fault> {
        match &mut self.markers {
            None => front(self.crc, bytes),
            Some(markers) => markers.front(self.crc, bytes),
        }
    }
}

impl Markers {
    fn front<'a>(&'a mut self, crc: bool, bytes: &[u8]) -> Result<Front<'a>, Fault> {
        // The lengths of markers, marker intervals and FPDUs are multiples of four bytes, so a marker can
        // precede or follow a length field but never splits it.
        let length_at = if self.phase == 0 { MARKER_BYTES } else { 0 };
        let Some(&[l0, l1]) = bytes.get(length_at..).and_then(|rest| rest.first_chunk::<LENGTH_BYTES>())
        else {
            return Ok(Front::NeedMore(length_at + LENGTH_BYTES));
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let plain_bytes = wire::fpdu_bytes(length);
        let taken = plain_bytes + MARKER_BYTES * wire::markers(self.phase, plain_bytes);
        let Some(fpdu) = bytes.get(..taken) else { return Ok(Front::NeedMore(taken)) };
        if crc {
            verify(fpdu)?;
        }
        self.plain.clear();
        let covered = &fpdu[..taken - CRC_BYTES];
        let mut at = 0;
        while at < covered.len() {
            let mut run_bytes = MARKER_INTERVAL_BYTES - (self.phase + at) % MARKER_INTERVAL_BYTES;
            if run_bytes == MARKER_INTERVAL_BYTES {
                let (marker, marker_bytes) =
                    Marker::read(&covered[at..]).expect("a marker is counted among the bytes before the CRC");
                // RFC 5044 §4.3: the pointer counts stream bytes, including other markers; it is zero for a
                // marker directly before the length field.
                if marker.since_length != at.saturating_sub(length_at) as u16 {
                    return Err(Fault::Marker);
                }
                at += marker_bytes;
                run_bytes -= marker_bytes;
            }
            let run_end = covered.len().min(at + run_bytes);
            self.plain.extend_from_slice(&covered[at..run_end]);
            at = run_end;
        }
        self.phase = (self.phase + taken) % MARKER_INTERVAL_BYTES;
        Ok(Front::Whole { ulpdu: &self.plain[LENGTH_BYTES..LENGTH_BYTES + length], taken })
    }
}
