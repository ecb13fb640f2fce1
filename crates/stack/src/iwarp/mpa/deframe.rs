//! What stands at the front of the bytes received.
//!
//! Goal      an upper layer that loops over a received run: a few nanoseconds an FPDU, and no copy.
//! Plain     without markers the bytes say it all: [`front`] is a function of them. Without CRCs a long FPDU is shown before it
//!           is whole, so that its payload can be landed where it belongs.
//! Markers   with markers an FPDU is copied out from between them when it is whole; where the next marker stands is the only
//!           state. The CRC is looked at first, since a marker may only be believed if it holds (RFC 5044 §8).
//! Pad       is not looked at: siw leaves in it what was there before.
//! Limits    markers are counted, not followed: a pointer that disagrees is a fault, never a place to look.

use alloc::vec::Vec;
use kiban_wire::crc::Crc32c;
use kiban_wire::mpa::{
    self as wire, CRC_BYTES, LENGTH_BYTES, MARKER_BYTES, MARKER_INTERVAL_BYTES, Marker, error,
};

/// What stands at the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front<'a> {
    /// An FPDU.
    Whole {
        /// What it holds; may be empty.
        ulpdu: &'a [u8],
        /// Bytes of the stream that it took: the next FPDU begins behind them.
        taken: usize,
    },
    /// The front of an FPDU of which no CRC will be looked at, so that it may be used at once.
    Part {
        /// What has come of the ULPDU: all of it, if only the trailer is missing.
        ulpdu: &'a [u8],
        /// Bytes of the whole ULPDU. The length field of two bytes stands before it, [`super::trailer_bytes`] follow it.
        length: usize,
    },
    /// So many bytes, in all, are needed before more can be said.
    Wants(usize),
}

/// How received bytes break MPA's rules. The stream has no further boundaries: the connection is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The CRC does not match.
    Crc,
    /// A marker and the length before it disagree where the FPDU starts.
    Marker,
}

impl Fault {
    /// The error code of a Terminate of layer LLP, type MPA (RFC 5044 §8).
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
            Fault::Marker => "a marker disagrees with the length where its FPDU starts",
        })
    }
}

impl core::error::Error for Fault {}

/// What stands at the front of a stream without markers. `crc` is whether CRCs were agreed on; without, the field is not
/// looked at.
///
/// # Errors
/// [`Fault::Crc`].
#[inline]
pub fn front(crc: bool, bytes: &[u8]) -> Result<Front<'_>, Fault> {
    let Some((&field, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(Front::Wants(LENGTH_BYTES));
    };
    let length = usize::from(u16::from_be_bytes(field));
    let taken = wire::fpdu_bytes(length);
    if bytes.len() >= taken {
        if crc {
            verify(&bytes[..taken])?;
        }
        Ok(Front::Whole { ulpdu: &rest[..length], taken })
    } else if crc {
        Ok(Front::Wants(taken))
    } else {
        Ok(Front::Part { ulpdu: &rest[..length.min(rest.len())], length })
    }
}

/// Checks an FPDU's bytes, markers among them, against the CRC that ends them.
#[inline(never)]
fn verify(fpdu: &[u8]) -> Result<(), Fault> {
    let (covered, field) = fpdu.split_last_chunk::<CRC_BYTES>().expect("an FPDU has eight bytes at least");
    if Crc32c::of(covered).to_le_bytes() == *field { Ok(()) } else { Err(Fault::Crc) }
}

/// The receiving end of one stream of FPDUs.
#[derive(Clone, Debug)]
pub struct Deframer {
    crc: bool,
    markers: Option<Markers>,
}

#[derive(Clone, Debug, Default)]
struct Markers {
    /// Where the front stands between the last marker's start and the next one's.
    phase: usize,
    /// The FPDU without its markers and its CRC.
    plain: Vec<u8>,
}

impl Deframer {
    /// At the first byte behind the start frame. `markers` is whether the peer sends them.
    pub fn new(crc: bool, markers: bool) -> Deframer {
        Deframer { crc, markers: markers.then(Markers::default) }
    }

    /// Whether CRCs are looked at.
    #[inline]
    pub const fn has_crc(&self) -> bool {
        self.crc
    }

    /// Whether FPDUs come with markers, and are therefore shown only when they are whole.
    #[inline]
    pub const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// What stands at the front of `bytes`. With markers, an FPDU that was shown whole counts as taken: the next call is
    /// about the bytes behind it.
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
        // Everything is a multiple of four bytes, so that a marker stands before a length field or behind it, but never in it.
        let length_at = if self.phase == 0 { MARKER_BYTES } else { 0 };
        let Some(&[l0, l1]) = bytes.get(length_at..).and_then(|rest| rest.first_chunk::<LENGTH_BYTES>())
        else {
            return Ok(Front::Wants(length_at + LENGTH_BYTES));
        };
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let plain_bytes = wire::fpdu_bytes(length);
        let taken = plain_bytes + MARKER_BYTES * wire::markers(self.phase, plain_bytes);
        let Some(fpdu) = bytes.get(..taken) else { return Ok(Front::Wants(taken)) };
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
                // RFC 5044 §4.3: bytes of the stream, other markers among them; zero for one before the field.
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
