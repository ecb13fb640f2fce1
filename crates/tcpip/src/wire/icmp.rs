//! ICMP messages of IPv4 (RFC 792, RFC 1191 §4).
//!
//! Purpose          decode and encode the eight bytes in front of every message. After them follows data, or
//!                  the packet that caused the error.
//!
//! ```text
//! | type 8 | code 8 | checksum 16 | by type 32 | data, or header and 8 bytes or more of a packet
//!   0, 8   echo            identifier 16 | sequence 16
//!   3      unreachable     unused 16     | next-hop MTU 16 (RFC 1191, code 4)
//!   11     time exceeded   unused 32
//!   12     bad parameter   pointer 8     | unused 24
//! ```
//!
//! Checksum         the checksum covers the whole message: [`fill`] and [`verify`] take the sum of what
//!                  follows the header.

use kiban_base::Sum;

use kiban_base::{Malformed, checksum};

/// Length of the header of every message, bytes.
pub const HEADER_BYTES: usize = 8;

/// Code of destination unreachable: network unreachable.
pub const UNREACHABLE_NETWORK: u8 = 0;
/// Code of destination unreachable: host unreachable.
pub const UNREACHABLE_HOST: u8 = 1;
/// Code of destination unreachable: protocol unreachable.
pub const UNREACHABLE_PROTOCOL: u8 = 2;
/// Code of destination unreachable: port unreachable.
pub const UNREACHABLE_PORT: u8 = 3;
/// Code of destination unreachable: fragmentation needed and DF set.
pub const UNREACHABLE_TOO_LONG: u8 = 4;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Echo request (ping).
    EchoRequest {
        /// Identifier, chosen by the sender of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
    },
    /// Echo reply.
    EchoReply {
        /// Copied from the request.
        identifier: u16,
        /// Copied from the request.
        sequence: u16,
    },
    /// The packet could not be delivered.
    Unreachable {
        /// See the `UNREACHABLE_` constants.
        code: u8,
        /// With [`UNREACHABLE_TOO_LONG`], the MTU of the next hop, bytes; 0 from routers older than RFC 1191.
        next_hop_mtu: u16,
    },
    /// Time exceeded: the TTL ran out (code 0), or reassembly timed out (code 1).
    TimeExceeded {
        /// The ICMP code.
        code: u8,
    },
    /// Parameter problem: a field of the header is invalid.
    ParameterProblem {
        /// The ICMP code. If it is 0, `pointer` is valid.
        code: u8,
        /// Offset of the invalid byte in the header.
        pointer: u8,
    },
    /// Any other type.
    Other {
        /// The type.
        kind: u8,
        /// The code.
        code: u8,
        /// Bytes 4 to 7 of the message.
        rest: [u8; 4],
    },
}

impl Header {
    /// Decodes the header at the front of a message. The checksum is not verified: see [`verify`].
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some(&[kind, code, _, _, a, b, c, d]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Truncated);
        };
        let first = u16::from_be_bytes([a, b]);
        let second = u16::from_be_bytes([c, d]);
        let header = match kind {
            ECHO_REQUEST if code == 0 => Header::EchoRequest { identifier: first, sequence: second },
            ECHO_REPLY if code == 0 => Header::EchoReply { identifier: first, sequence: second },
            UNREACHABLE => Header::Unreachable { code, next_hop_mtu: second },
            TIME_EXCEEDED => Header::TimeExceeded { code },
            PARAMETER_PROBLEM => Header::ParameterProblem { code, pointer: a },
            _ => Header::Other { kind, code, rest: [a, b, c, d] },
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Returns whether the message is an error, which must not be answered with another error (RFC 1122
    /// §3.2.2).
    #[inline]
    pub const fn is_error(&self) -> bool {
        match self {
            Header::Unreachable { .. } | Header::TimeExceeded { .. } | Header::ParameterProblem { .. } => {
                true
            }
            // Source quench and redirect, which do not have their own variants.
            Header::Other { kind, .. } => matches!(*kind, 4 | 5),
            Header::EchoRequest { .. } | Header::EchoReply { .. } => false,
        }
    }

    /// Writes the header at the front of `target` with a zero checksum, to be completed by [`fill`]. Returns
    /// the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for an ICMP header of 8 bytes");
        let (kind, code, [a, b, c, d]) = match *self {
            Header::EchoRequest { identifier, sequence } => (ECHO_REQUEST, 0, pair(identifier, sequence)),
            Header::EchoReply { identifier, sequence } => (ECHO_REPLY, 0, pair(identifier, sequence)),
            Header::Unreachable { code, next_hop_mtu } => (UNREACHABLE, code, pair(0, next_hop_mtu)),
            Header::TimeExceeded { code } => (TIME_EXCEEDED, code, [0; 4]),
            Header::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]),
            Header::Other { kind, code, rest } => (kind, code, rest),
        };
        *bytes = [kind, code, 0, 0, a, b, c, d];
        HEADER_BYTES
    }
}

/// Computes and stores the checksum of a message, which covers the header and the bytes after it, whose sum
/// is `rest`.
///
/// # Panics
/// If `header` is shorter than 8 bytes.
#[inline]
pub fn fill(header: &mut [u8], rest: Sum) {
    let header = &mut header[..HEADER_BYTES];
    header[2..4].fill(0);
    let checksum = checksum::of_header(header).plus(rest).checksum();
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Verifies the checksum of a message, which covers the header at the front of `header` and the bytes after
/// it, whose sum is `rest`.
///
/// # Errors
/// `Truncated`; `Checksum` if it does not match.
#[inline]
pub fn verify(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    let header = header.get(..HEADER_BYTES).ok_or(Malformed::Truncated)?;
    if checksum::of_header(header).plus(rest).is_intact() { Ok(()) } else { Err(Malformed::Checksum) }
}

#[inline]
const fn pair(first: u16, second: u16) -> [u8; 4] {
    ((first as u32) << 16 | second as u32).to_be_bytes()
}
