//! The payload of an OAM cell, F4 and F5 alike (I.610 §10).
//!
//! Purpose          answer and send loopback cells, and recognise other OAM cells.
//!
//! ```text
//! | type 4 bits, function 4 bits | 45 bytes by function, unused ones 6A | reserved 6 bits, CRC 10 bits |
//!
//! loopback (1, 8)       | indication 1 | correlation tag 4 | location 16 | source 16 | unused 8 |
//! AIS (1, 0), RDI (1, 1)| defect type 1 | defect location 16 | unused 28 |
//! ```
//!
//! Cell type        the cell header identifies F5 (PTI 4 segment, 5 end to end) or F4 (VCI 3, 4): see
//!                  [`crate::wire::atm`].
//! Not implemented  performance monitoring, activation and system management cells are recognised but not
//!                  decoded.

use crate::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::{Malformed, crc};

/// The value of unused bytes (I.610 §10.1).
pub const UNUSED: u8 = 0x6a;
/// The loopback location that means the far end of the connection or segment (I.610 §10.2.3).
pub const LOCATION_END: [u8; 16] = [0xff; 16];

const FAULT_ALARM: u8 = 0x10;
const FAULT_REMOTE_DEFECT: u8 = 0x11;
const FAULT_CONTINUITY: u8 = 0x14;
const FAULT_LOOPBACK: u8 = 0x18;

/// The contents of an OAM cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// A loopback request or its answer.
    Loopback(Loopback),
    /// AIS: a failure upstream.
    Alarm(Defect),
    /// RDI: the far end does not receive our cells.
    RemoteDefect(Defect),
    /// Continuity check: the connection is alive although there are no other cells to send.
    Continuity,
    /// Any other function.
    Other {
        /// OAM type in the high four bits, function in the low four.
        type_and_function: u8,
    },
}

/// A loopback cell (I.610 §10.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loopback {
    /// `true` in a request that must be looped back; `false` in the answer.
    pub to_be_looped: bool,
    /// Chosen by the sender, returned unchanged.
    pub correlation_tag: u32,
    /// The point that loops the cell back; [`LOCATION_END`] for the far end.
    pub location: [u8; 16],
    /// The sender's location; all ones if not given.
    pub source: [u8; 16],
}

impl Loopback {
    /// Creates a request to the far end without a source.
    #[inline]
    pub const fn request(correlation_tag: u32) -> Self {
        Loopback { to_be_looped: true, correlation_tag, location: LOCATION_END, source: [0xff; 16] }
    }

    /// Returns the answer to a request: the same cell, marked as looped (I.610 §10.2.3).
    #[inline]
    pub const fn answer(self) -> Self {
        Loopback { to_be_looped: false, ..self }
    }
}

/// The cause of an alarm (I.610 §10.2.1). Every byte is 6A if the field is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defect {
    /// Defect type.
    pub kind: u8,
    /// Defect location.
    pub location: [u8; 16],
}

impl Payload {
    /// Reads the payload of an OAM cell, checks its CRC, and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `Crc` (I.610 §10.1).
    pub fn read(bytes: &[u8]) -> Result<(Payload, usize), Malformed> {
        let Some(payload) = bytes.first_chunk::<CELL_PAYLOAD_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        verify(payload)?;
        let defect = || Defect { kind: payload[1], location: id(payload, 2) };
        let value = match payload[0] {
            FAULT_LOOPBACK => Payload::Loopback(Loopback {
                // I.610 §10.2.3: only the lowest bit is the indication.
                to_be_looped: payload[1] & 1 == 1,
                correlation_tag: u32::from_be_bytes([payload[2], payload[3], payload[4], payload[5]]),
                location: id(payload, 6),
                source: id(payload, 22),
            }),
            FAULT_ALARM => Payload::Alarm(defect()),
            FAULT_REMOTE_DEFECT => Payload::RemoteDefect(defect()),
            FAULT_CONTINUITY => Payload::Continuity,
            type_and_function => Payload::Other { type_and_function },
        };
        Ok((value, CELL_PAYLOAD_BYTES))
    }

    /// Returns the length of the payload, always 48.
    #[inline]
    pub const fn length(&self) -> usize {
        CELL_PAYLOAD_BYTES
    }

    /// Writes the payload with its CRC at the front of `target` and returns its length. The fields of an
    /// [`Payload::Other`] are filled with the unused value.
    ///
    /// # Panics
    /// If `target` is shorter than 48 bytes.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let payload = target.first_chunk_mut::<CELL_PAYLOAD_BYTES>().expect("room for a payload of 48 bytes");
        payload.fill(UNUSED);
        payload[0] = match self {
            Payload::Loopback(_) => FAULT_LOOPBACK,
            Payload::Alarm(_) => FAULT_ALARM,
            Payload::RemoteDefect(_) => FAULT_REMOTE_DEFECT,
            Payload::Continuity => FAULT_CONTINUITY,
            Payload::Other { type_and_function } => *type_and_function,
        };
        match self {
            Payload::Loopback(loopback) => {
                payload[1] = u8::from(loopback.to_be_looped);
                payload[2..6].copy_from_slice(&loopback.correlation_tag.to_be_bytes());
                payload[6..22].copy_from_slice(&loopback.location);
                payload[22..38].copy_from_slice(&loopback.source);
            }
            Payload::Alarm(defect) | Payload::RemoteDefect(defect) => {
                payload[1] = defect.kind;
                payload[2..18].copy_from_slice(&defect.location);
            }
            Payload::Continuity | Payload::Other { .. } => {}
        }
        payload[46] = 0;
        fill(payload);
        CELL_PAYLOAD_BYTES
    }
}

/// Computes and writes the CRC-10 over the 374 bits before it; the six reserved bits are unchanged.
#[inline]
pub fn fill(payload: &mut [u8; CELL_PAYLOAD_BYTES]) {
    let reserved = payload[46] & 0xfc;
    let [high, low] = crc::crc10_and_six_bits(&payload[..46], reserved).to_be_bytes();
    payload[46] = reserved | high;
    payload[47] = low;
}

/// Verifies the CRC-10.
///
/// # Errors
/// `Crc` if it does not match.
#[inline]
pub fn verify(payload: &[u8; CELL_PAYLOAD_BYTES]) -> Result<(), Malformed> {
    if crc::crc10(payload) == 0 { Ok(()) } else { Err(Malformed::Crc) }
}

fn id(payload: &[u8; CELL_PAYLOAD_BYTES], start: usize) -> [u8; 16] {
    let mut value = [0; 16];
    value.copy_from_slice(&payload[start..start + 16]);
    value
}
