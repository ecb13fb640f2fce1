//! Extended transport headers (IBTA volume 1 §9.3 to §9.5).
//!
//! ```text
//! RETH (16)         virtual address 64 | R_Key 32 | DMA length 32
//! AETH (4)          syndrome 8 | message sequence number 24
//! AtomicETH (28)    virtual address 64 | R_Key 32 | swap or add 64 | compare 64
//! AtomicAckETH (8)  original value 64
//! DETH (8)          Q_Key 32 | reserved 8 | source queue pair 24
//! ```
//!
//! ImmDt, IETH (an R_Key) and XRCETH (8 reserved bits and a shared receive queue) are single words, which
//! [`super::Packet`] holds as numbers.

use super::bth::QPN_MASK;
use core::time::Duration;
use kiban_base::Malformed;

/// The bits of a message sequence number.
const MSN_MASK: u32 = 0x00ff_ffff;

/// Where an RDMA Write puts data, or an RDMA Read takes them from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// The virtual address at the responder.
    pub address: u64,
    /// The key of the responder's memory region.
    pub rkey: u32,
    /// Length of the whole message in bytes.
    pub length: u32,
}

/// What an atomic operation changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicEth {
    /// The virtual address of the 64-bit value.
    pub address: u64,
    /// The key of the responder's memory region.
    pub rkey: u32,
    /// The value to store (compare and swap) or to add (fetch and add).
    pub swap_or_add: u64,
    /// The value to compare with (compare and swap only).
    pub compare: u64,
}

/// The result of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtomicAckEth {
    /// The value before the operation.
    pub original: u64,
}

/// The source of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deth {
    /// The key that the destination requires.
    pub qkey: u32,
    /// The source queue pair, 24 bits.
    pub source: u32,
}

/// Why a responder refuses a request (IBTA volume 1 §9.7.5.2.8, table 60).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN is missing: retransmit from the expected one.
    SequenceError = 0,
    /// The request breaks a rule of the protocol.
    InvalidRequest = 1,
    /// The R_Key, address or access right is invalid.
    RemoteAccess = 2,
    /// The responder cannot complete the request.
    RemoteOperational = 3,
}

/// What an acknowledgement says (IBTA volume 1 §9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Positive, with the code of a credit count ([`credits`]), 5 bits.
    Ack(u8),
    /// The receiver is not ready; the code of a time ([`rnr_timer`]), 5 bits.
    RnrNak(u8),
    /// Negative.
    Nak(NakCode),
}

/// An acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// The number of messages that the responder has completed, 24 bits.
    pub msn: u32,
}

/// Returns the number of receive requests that a credit code stands for; `None`: the responder does not count
/// credits (IBTA volume 1 §9.7.7.2.5, table 64).
pub const fn credits(code: u8) -> Option<u32> {
    match code & 0x1f {
        few @ 0..=3 => Some(few as u32),
        31 => None,
        // From 4 on, codes alternate between 2^n and 1.5 * 2^n.
        code if code % 2 == 0 => Some(1 << (code / 2)),
        code => Some(3 << (code / 2 - 1)),
    }
}

/// Returns the minimum time after which a request may be repeated if the receiver was not ready (IBTA volume
/// 1 §9.7.5.2.8, table 61).
pub const fn rnr_timer(code: u8) -> Duration {
    // From code 2 on, the times alternate between 2^n and 1.5 * 2^n hundredths of a millisecond.
    let hundredths = match code & 0x1f {
        0 => 65_536,
        1 => 1,
        code if code % 2 == 0 => 1 << (code / 2),
        code => 3 << (code / 2 - 1),
    };
    Duration::from_micros(hundredths * 10)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

fn front<const BYTES: usize>(bytes: &[u8]) -> Result<&[u8; BYTES], Malformed> {
    bytes.first_chunk::<BYTES>().ok_or(Malformed::Truncated)
}

fn front_mut<const BYTES: usize>(target: &mut [u8]) -> &mut [u8; BYTES] {
    target.first_chunk_mut::<BYTES>().expect("room for an extended header")
}

impl Reth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 16;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(Reth, usize), Malformed> {
        let bytes = front::<{ Reth::BYTES }>(bytes)?;
        Ok((Reth { address: long(bytes, 0), rkey: word(bytes, 8), length: word(bytes, 12) }, Reth::BYTES))
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = front_mut::<{ Reth::BYTES }>(target);
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        Reth::BYTES
    }
}

impl AtomicEth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 28;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(AtomicEth, usize), Malformed> {
        let bytes = front::<{ AtomicEth::BYTES }>(bytes)?;
        let header = AtomicEth {
            address: long(bytes, 0),
            rkey: word(bytes, 8),
            swap_or_add: long(bytes, 12),
            compare: long(bytes, 20),
        };
        Ok((header, AtomicEth::BYTES))
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = front_mut::<{ AtomicEth::BYTES }>(target);
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        AtomicEth::BYTES
    }
}

impl AtomicAckEth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 8;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(AtomicAckEth, usize), Malformed> {
        let bytes = front::<{ AtomicAckEth::BYTES }>(bytes)?;
        Ok((AtomicAckEth { original: u64::from_be_bytes(*bytes) }, AtomicAckEth::BYTES))
    }

    /// Writes the header.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        *front_mut::<{ AtomicAckEth::BYTES }>(target) = self.original.to_be_bytes();
        AtomicAckEth::BYTES
    }
}

impl Deth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 8;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(Deth, usize), Malformed> {
        let bytes = front::<{ Deth::BYTES }>(bytes)?;
        Ok((Deth { qkey: word(bytes, 0), source: word(bytes, 4) & QPN_MASK }, Deth::BYTES))
    }

    /// Writes the header. Only the low 24 bits of the source are written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = front_mut::<{ Deth::BYTES }>(target);
        bytes[..4].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[4..].copy_from_slice(&(self.source & QPN_MASK).to_be_bytes());
        Deth::BYTES
    }
}

impl Aeth {
    /// Length of the header in bytes.
    pub const BYTES: usize = 4;

    /// Decodes the header.
    ///
    /// # Errors
    /// `Truncated`; `ParameterValue` for a reserved syndrome.
    pub fn read(bytes: &[u8]) -> Result<(Aeth, usize), Malformed> {
        let bytes = front::<{ Aeth::BYTES }>(bytes)?;
        let low = bytes[0] & 0x1f;
        let syndrome = match (bytes[0] >> 5, low) {
            (0, _) => Syndrome::Ack(low),
            (1, _) => Syndrome::RnrNak(low),
            (3, 0) => Syndrome::Nak(NakCode::SequenceError),
            (3, 1) => Syndrome::Nak(NakCode::InvalidRequest),
            (3, 2) => Syndrome::Nak(NakCode::RemoteAccess),
            (3, 3) => Syndrome::Nak(NakCode::RemoteOperational),
            _ => return Err(Malformed::ParameterValue),
        };
        Ok((Aeth { syndrome, msn: word(bytes, 0) & MSN_MASK }, Aeth::BYTES))
    }

    /// Writes the header. Only the low 24 bits of the message sequence number are written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = front_mut::<{ Aeth::BYTES }>(target);
        *bytes = (self.msn & MSN_MASK).to_be_bytes();
        bytes[0] = match self.syndrome {
            Syndrome::Ack(credits) => credits & 0x1f,
            Syndrome::RnrNak(timer) => 0x20 | timer & 0x1f,
            Syndrome::Nak(code) => 0x60 | code as u8,
        };
        Aeth::BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn credit_codes_are_the_standards() {
        let expected = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        assert!((0..31).map(|code| credits(code).expect("a count")).eq(expected));
        assert_eq!(credits(31), None);
    }

    #[test]
    fn times_of_a_receiver_that_is_not_ready_are_the_standards() {
        let expected_ms = [
            655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
            2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76,
            327.68, 491.52,
        ];
        for (code, expected) in (0..).zip(expected_ms) {
            assert_eq!(rnr_timer(code), Duration::from_secs_f64(expected / 1e3), "code {code}");
        }
    }

    #[test]
    fn a_syndrome_keeps_its_octet_and_reserved_ones_are_refused() {
        let read: Vec<u8> = (0..=255).filter(|octet| Aeth::read(&[*octet, 1, 2, 3]).is_ok()).collect();
        assert_eq!(read, (0x00..0x40).chain(0x60..0x64).collect::<Vec<u8>>());
        for octet in read {
            let bytes = [octet, 1, 2, 3];
            let (header, _) = Aeth::read(&bytes).expect("a syndrome");
            let mut written = [0; 4];
            assert_eq!((header.write(&mut written), header.msn), (4, 0x01_0203));
            assert_eq!(written, bytes);
        }
    }
}
