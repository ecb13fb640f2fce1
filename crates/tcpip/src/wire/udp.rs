//! The UDP header (RFC 768).
//!
//! ```text
//! | source port 16 | target port 16 | length 16 | checksum 16 | payload
//! ```
//!
//! Checksum  covers pseudo-header, header and payload: `rest` is the first and the last. Zero in the field
//!           means that the sender formed none, which IPv4 allows and IPv6 does not (RFC 8200 §8.1).

use kiban_base::Sum;

use kiban_base::{Malformed, checksum};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Bytes of the longest payload that the length field can say.
pub const PAYLOAD_BYTES_MAX: usize = 65535 - HEADER_BYTES;

/// The header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Who sent it, or 0.
    pub source_port: u16,
    /// Who it is for.
    pub target_port: u16,
    /// Bytes of header and payload.
    pub total_bytes: u16,
}

impl Header {
    /// Reads the header at the front of a datagram. The checksum is not looked at: see [`verify_over_ipv4`].
    ///
    /// # Errors
    /// `Truncated`; `TotalLength` when the length is below 8 or beyond the bytes.
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

    /// Always [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Bytes of payload: what the length leaves behind the header.
    #[inline]
    pub const fn payload_bytes(&self) -> usize {
        (self.total_bytes as usize).saturating_sub(HEADER_BYTES)
    }

    /// Writes the header at the front of `target` with a checksum of zero: see [`fill`].
    ///
    /// # Panics
    /// When `target` is shorter than the header.
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

/// Completes the checksum of a header; `rest` is pseudo-header and payload.
///
/// # Panics
/// When `header` is shorter than 8 bytes.
#[inline]
pub fn fill(header: &mut [u8], rest: Sum) {
    let header = &mut header[..HEADER_BYTES];
    header[6..8].fill(0);
    let checksum = match checksum::of_header(header).plus(rest).checksum() {
        // RFC 768: a checksum that comes out as zero is sent as all ones, its other name.
        0 => 0xffff,
        checksum => checksum,
    };
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// Checks a datagram over IPv4, where no checksum is right too; `rest` is pseudo-header and payload.
///
/// # Errors
/// `Truncated`; `Checksum`.
#[inline]
pub fn verify_over_ipv4(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    match header.first_chunk::<HEADER_BYTES>() {
        Some([.., 0, 0]) => Ok(()),
        Some(header) => verify(header, rest),
        None => Err(Malformed::Truncated),
    }
}

/// Checks a datagram over IPv6, which must have a checksum; `rest` is pseudo-header and payload.
///
/// # Errors
/// `Truncated`; `Checksum`.
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
