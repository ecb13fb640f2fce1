//! Management datagrams (IBTA volume 1 §13.4): the header, and the octets of a datagram.
//!
//! ```text
//!  0  base version 8 | management class 8 | class version 8 | method 8
//!  4  status 16 | class specific 16
//!  8  transaction id 64
//! 16  attribute id 16 | reserved 16
//! 20  attribute modifier 32
//! 24  data 232
//! ```
//!
//! Class      only that of communication management ([`super::cm`]), whose messages all have the method Send.
//! Carried    in a UD Send from queue pair 1 to queue pair 1, with [`GSI_QKEY`].

use kiban_base::Malformed;

/// Length of every management datagram in bytes.
pub const MAD_BYTES: usize = 256;
/// Length of the data after the header in bytes.
pub const MAD_DATA_BYTES: usize = MAD_BYTES - MadHeader::BYTES;
/// The queue pair of the general services interface, at both ends.
pub const GSI_QPN: u32 = 1;
/// The Q_Key of queue pair 1 (IBTA volume 1 §10.2.5).
pub const GSI_QKEY: u32 = 0x8001_0000;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 0x07;
const CLASS_VERSION_CM: u8 = 2;
const METHOD_SEND: u8 = 3;

/// The header of a management datagram of communication management.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MadHeader {
    /// Zero in communication management.
    pub status: u16,
    /// Reserved in communication management.
    pub class_specific: u16,
    /// Chosen by the sender of a request; its responses have the same.
    pub transaction: u64,
    /// Which message follows.
    pub attribute: u16,
    /// Reserved in communication management.
    pub modifier: u32,
}

impl MadHeader {
    /// Length of the header in bytes.
    pub const BYTES: usize = 24;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`; `Version` for another base or class version; `Operation` for another class or method.
    pub fn read(bytes: &[u8]) -> Result<(MadHeader, usize), Malformed> {
        let Some(bytes) = bytes.first_chunk::<{ MadHeader::BYTES }>() else {
            return Err(Malformed::Truncated);
        };
        if bytes[0] != BASE_VERSION || bytes[1] == CLASS_CM && bytes[2] != CLASS_VERSION_CM {
            return Err(Malformed::Version);
        }
        if (bytes[1], bytes[3]) != (CLASS_CM, METHOD_SEND) {
            return Err(Malformed::Operation);
        }
        let header = MadHeader {
            status: short(bytes, 4),
            class_specific: short(bytes, 6),
            transaction: long(bytes, 8),
            attribute: short(bytes, 16),
            modifier: word(bytes, 20),
        };
        Ok((header, MadHeader::BYTES))
    }

    /// Returns [`MadHeader::BYTES`].
    pub const fn length(&self) -> usize {
        MadHeader::BYTES
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<{ MadHeader::BYTES }>().expect("room for a MAD header");
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS_CM, CLASS_VERSION_CM, METHOD_SEND]);
        bytes[4..6].copy_from_slice(&self.status.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        bytes[18..20].fill(0);
        bytes[20..].copy_from_slice(&self.modifier.to_be_bytes());
        MadHeader::BYTES
    }
}

/// Returns the octets at a constant offset, which the caller's array is long enough for.
pub(super) fn octets<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    bytes[at..at + BYTES].try_into().expect("a range of this length")
}

pub(super) fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(octets(bytes, at))
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets(bytes, at))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets(bytes, at))
}
