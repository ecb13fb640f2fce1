//! The AAL5 common part: pad and trailer (I.363.5 §9.2).
//!
//! Purpose          carry a payload of 1 to 65,535 bytes in a whole number of cells, with length and CRC at
//!                  the end.
//!
//! ```text
//! | payload 1..65535 | pad 0..47, zero | UU 1 | CPI 1 | length 2 | CRC-32 4 |     multiple of 48 bytes
//! ```
//!
//! CRC              the CRC covers everything before it, including the pad and the first half of the trailer.
//! Not implemented  the user-to-user byte is carried, not interpreted; see [`crate::Reassembly`] for
//!                  reassembly.

use crate::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::{Malformed, crc::Crc32Aal5};

/// Maximum payload of a frame in bytes, the largest value of the length field.
pub const FRAME_BYTES_MAX: usize = 65535;
/// Size of the trailer in bytes.
pub const TRAILER_BYTES: usize = 8;
/// Maximum number of bytes that follow a payload: the longest pad and the trailer.
pub const TAIL_BYTES_MAX: usize = CELL_PAYLOAD_BYTES - 1 + TRAILER_BYTES;
/// Maximum length of a frame with pad and trailer, in bytes.
pub const PDU_BYTES_MAX: usize = pdu_bytes(FRAME_BYTES_MAX);

/// Returns the number of cells that a payload of `payload_bytes` needs.
#[inline]
pub const fn cells(payload_bytes: usize) -> usize {
    (payload_bytes + TRAILER_BYTES).div_ceil(CELL_PAYLOAD_BYTES)
}

/// Returns the length of payload, pad and trailer together, in bytes.
#[inline]
pub const fn pdu_bytes(payload_bytes: usize) -> usize {
    cells(payload_bytes) * CELL_PAYLOAD_BYTES
}

/// Returns the length of the pad between a payload and its trailer: 0 to 47.
#[inline]
pub const fn pad_bytes(payload_bytes: usize) -> usize {
    pdu_bytes(payload_bytes) - payload_bytes - TRAILER_BYTES
}

/// The trailer: the last eight bytes of a frame (I.363.5 §9.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// User-to-user byte, not interpreted.
    pub user_to_user: u8,
    /// Length of the payload in bytes.
    pub length: u16,
    /// The CRC-32 of everything before this field.
    pub crc: u32,
}

impl Trailer {
    /// Reads the trailer from the first eight bytes of `bytes` and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `CommonPartIndicator` (§9.2.1.2: values other than zero are for further study); `Aborted`
    /// for a length of zero (§9.2.1.2).
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Trailer, usize), Malformed> {
        let Some(&[user_to_user, indicator, l0, l1, c0, c1, c2, c3]) = bytes.first_chunk::<TRAILER_BYTES>()
        else {
            return Err(Malformed::Truncated);
        };
        let length = u16::from_be_bytes([l0, l1]);
        if indicator != 0 {
            return Err(Malformed::CommonPartIndicator);
        }
        if length == 0 {
            return Err(Malformed::Aborted);
        }
        let crc = u32::from_be_bytes([c0, c1, c2, c3]);
        Ok((Trailer { user_to_user, length, crc }, TRAILER_BYTES))
    }

    /// Returns the length of the trailer, always [`TRAILER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        TRAILER_BYTES
    }

    /// Writes the trailer at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is shorter than the trailer.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<TRAILER_BYTES>().expect("room for a trailer of 8 bytes");
        let [l0, l1] = self.length.to_be_bytes();
        let [c0, c1, c2, c3] = self.crc.to_be_bytes();
        *bytes = [self.user_to_user, 0, l0, l1, c0, c1, c2, c3];
        TRAILER_BYTES
    }

    /// Returns the length of the payload in a frame of `pdu_bytes` that ends with this trailer.
    ///
    /// # Errors
    /// `PadLength` if the two do not match: cells were lost or belong to another frame.
    #[inline]
    pub fn payload_bytes(&self, pdu_bytes: usize) -> Result<usize, Malformed> {
        let payload_bytes = usize::from(self.length);
        if self::pdu_bytes(payload_bytes) == pdu_bytes {
            Ok(payload_bytes)
        } else {
            Err(Malformed::PadLength)
        }
    }
}

/// Writes pad and trailer after a payload of `payload_bytes` whose CRC so far is `crc`; returns the number of
/// bytes written.
///
/// # Panics
/// If the payload is empty or longer than [`FRAME_BYTES_MAX`].
#[inline]
pub fn write_tail(
    payload_bytes: usize,
    user_to_user: u8,
    mut crc: Crc32Aal5,
    target: &mut [u8; TAIL_BYTES_MAX],
) -> usize {
    assert!((1..=FRAME_BYTES_MAX).contains(&payload_bytes), "a frame carries 1 to 65535 bytes");
    let pad_bytes = pad_bytes(payload_bytes);
    target[..pad_bytes].fill(0);
    let mut trailer = Trailer { user_to_user, length: payload_bytes as u16, crc: 0 };
    trailer.write(&mut target[pad_bytes..]);
    crc.update(&target[..pad_bytes + 4]);
    trailer.crc = crc.value();
    pad_bytes + trailer.write(&mut target[pad_bytes..])
}

/// Validates a contiguous frame and returns its trailer and payload.
///
/// # Errors
/// Same as for [`Trailer::read`] and [`Trailer::payload_bytes`]; `Crc`, which is checked last because that is
/// the most expensive check.
#[inline]
pub fn open(pdu: &[u8]) -> Result<(Trailer, &[u8]), Malformed> {
    let (_, bytes) = pdu.split_last_chunk::<TRAILER_BYTES>().ok_or(Malformed::Truncated)?;
    let (trailer, _) = Trailer::read(bytes)?;
    let payload_bytes = trailer.payload_bytes(pdu.len())?;
    if Crc32Aal5::of(&pdu[..pdu.len() - 4]) != trailer.crc {
        return Err(Malformed::Crc);
    }
    Ok((trailer, &pdu[..payload_bytes]))
}
