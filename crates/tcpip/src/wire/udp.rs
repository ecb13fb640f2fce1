//! The UDP header (RFC 768).
//!
//! ```text
//! | source port 16 | target port 16 | length 16 | checksum 16 | payload
//! ```
//!
//! Checksum         the checksum covers pseudo-header, header and payload; `rest` is the sum of pseudo-header
//!                  and payload. A zero field means that the sender computed none, which IPv4 allows and IPv6
//!                  does not (RFC 8200 §8.1).

use kiban_base::Sum;

use kiban_base::{Malformed, checksum};

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 8;
/// Longest payload that the length field can express, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 65535 - HEADER_BYTES;

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source port, or 0 if unused.
    pub source_port: u16,
    /// Destination port.
    pub target_port: u16,
    /// Length of header and payload, bytes.
    pub total_bytes: u16,
}

impl Header {
    /// Decodes the header at the front of a datagram. The checksum is not verified: see [`verify_over_ipv4`].
    ///
    /// # Errors
    /// `Truncated`; `TotalLength` if the length field is below 8 or exceeds the bytes given.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(&[s0, s1, t0, t1, l0, l1, _, _]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let total_bytes = u16::from_be_bytes([l0, l1]);
        if usize::from(total_bytes) < HEADER_BYTES || usize::from(total_bytes) > bytes.len() {
            return Err(Malformed::TotalLength);
        }
        let source_port = u16::from_be_bytes([s0, s1]);
        let target_port = u16::from_be_bytes([t0, t1]);
        Ok((Header { source_port, target_port, total_bytes }, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Returns the payload length, bytes: the length field minus the header.
    #[inline]
    pub const fn payload_bytes(&self) -> usize {
        (self.total_bytes as usize).saturating_sub(HEADER_BYTES)
    }

    /// Writes the header at the front of `target` with a zero checksum, to be completed by [`fill`]. Returns
    /// the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for a UDP header of 8 bytes");
        let [s0, s1] = self.source_port.to_be_bytes();
        let [t0, t1] = self.target_port.to_be_bytes();
        let [l0, l1] = self.total_bytes.to_be_bytes();
        *bytes = [s0, s1, t0, t1, l0, l1, 0, 0];
        HEADER_BYTES
    }
}

/// Computes and stores the checksum of a datagram; `rest` is the sum of pseudo-header and payload.
///
/// # Panics
/// If `header` is shorter than 8 bytes.
#[inline]
pub fn fill(header: &mut [u8], rest: Sum) {
    let header = &mut header[..HEADER_BYTES];
    header[6..8].fill(0);
    let checksum = match checksum::of_header(header).plus(rest).checksum() {
        // RFC 768: a computed checksum of zero is sent as all ones, because zero means "no checksum".
        0 => 0xffff,
        checksum => checksum,
    };
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// Verifies the checksum of a datagram over IPv4, where a datagram without a checksum is valid; `rest` is the
/// sum of pseudo-header and payload.
///
/// # Errors
/// `Truncated`; `Checksum` if it does not match.
#[inline]
pub fn verify_over_ipv4(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    match header.first_chunk::<HEADER_BYTES>() {
        Some([.., 0, 0]) => Ok(()),
        Some(header) => verify(header, rest),
        None => Err(Malformed::Truncated),
    }
}

/// Verifies the checksum of a datagram over IPv6, where a checksum is mandatory; `rest` is the sum of
/// pseudo-header and payload.
///
/// # Errors
/// `Truncated`; `Checksum` if it does not match.
#[inline]
pub fn verify_over_ipv6(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    match header.first_chunk::<HEADER_BYTES>() {
        Some([.., 0, 0]) => Err(Malformed::Checksum),
        Some(header) => verify(header, rest),
        None => Err(Malformed::Truncated),
    }
}

#[inline]
fn verify(header: &[u8; HEADER_BYTES], rest: Sum) -> Result<(), Malformed> {
    if checksum::of_header(header).plus(rest).is_intact() { Ok(()) } else { Err(Malformed::Checksum) }
}
