//! ICMPv6 messages (RFC 4443): echo and errors.
//!
//! ```text
//! | type 8 | code 8 | checksum 16 | by type 32 | data, or as much of a packet as fits
//!   1         unreachable     unused 32
//!   2         too long        MTU 32
//!   3         time exceeded   unused 32
//!   4         bad parameter   pointer 32
//!   128, 129  echo            identifier 16 | sequence 16
//! ```
//!
//! Checksum         the checksum also covers a pseudo-header (RFC 4443 §2.3): `rest` is the sum of that and
//!                  of what follows the header.
//! Not implemented  neighbour discovery messages are returned as [`Header::Other`]: see
//!                  [`crate::wire::discovery`].

use kiban_base::Sum;

use crate::wire::icmp;
use kiban_base::Malformed;

/// Length of the header of every message, bytes.
pub const HEADER_BYTES: usize = 8;

/// Code of destination unreachable: address unreachable (RFC 4443 §3.1).
pub const UNREACHABLE_ADDRESS: u8 = 3;
/// Code of destination unreachable: port unreachable.
pub const UNREACHABLE_PORT: u8 = 4;

const UNREACHABLE: u8 = 1;
const TOO_LONG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// The packet could not be delivered.
    Unreachable {
        /// The ICMPv6 code: 0 no route, 1 administratively prohibited, 3 address unreachable, 4 port
        /// unreachable.
        code: u8,
    },
    /// Packet too big for the next hop.
    TooLong {
        /// MTU of the next hop, bytes.
        mtu: u32,
    },
    /// Time exceeded: the hop limit ran out (code 0), or reassembly timed out (code 1).
    TimeExceeded {
        /// The ICMPv6 code.
        code: u8,
    },
    /// Parameter problem: a header field is invalid.
    ParameterProblem {
        /// The ICMPv6 code: 0 invalid field, 1 unknown next header, 2 unknown option.
        code: u8,
        /// Offset of the invalid byte in the packet.
        pointer: u32,
    },
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
    /// Any other type.
    Other {
        /// The type; types below 128 are errors.
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
        let word = u32::from_be_bytes([a, b, c, d]);
        let (identifier, sequence) = ((word >> 16) as u16, word as u16);
        let header = match kind {
            UNREACHABLE => Header::Unreachable { code },
            // RFC 4443 §3.2: the code is zero when sent and ignored when received.
            TOO_LONG => Header::TooLong { mtu: word },
            TIME_EXCEEDED => Header::TimeExceeded { code },
            PARAMETER_PROBLEM => Header::ParameterProblem { code, pointer: word },
            ECHO_REQUEST if code == 0 => Header::EchoRequest { identifier, sequence },
            ECHO_REPLY if code == 0 => Header::EchoReply { identifier, sequence },
            _ => Header::Other { kind, code, rest: [a, b, c, d] },
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Returns whether the message is an error, which must not be answered with another error (RFC 4443
    /// §2.4(e)).
    #[inline]
    pub const fn is_error(&self) -> bool {
        match self {
            Header::Other { kind, .. } => *kind < 128,
            Header::EchoRequest { .. } | Header::EchoReply { .. } => false,
            _ => true,
        }
    }

    /// Writes the header at the front of `target` with a zero checksum, to be completed by [`fill`]. Returns
    /// the number of bytes written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes = target.first_chunk_mut::<HEADER_BYTES>().expect("room for an ICMPv6 header of 8 bytes");
        let pair = |first: u16, second: u16| u32::from(first) << 16 | u32::from(second);
        let (kind, code, word) = match *self {
            Header::Unreachable { code } => (UNREACHABLE, code, 0),
            Header::TooLong { mtu } => (TOO_LONG, 0, mtu),
            Header::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
            Header::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
            Header::EchoRequest { identifier, sequence } => (ECHO_REQUEST, 0, pair(identifier, sequence)),
            Header::EchoReply { identifier, sequence } => (ECHO_REPLY, 0, pair(identifier, sequence)),
            Header::Other { kind, code, rest } => (kind, code, u32::from_be_bytes(rest)),
        };
        let [a, b, c, d] = word.to_be_bytes();
        *bytes = [kind, code, 0, 0, a, b, c, d];
        HEADER_BYTES
    }
}

/// Computes and stores the checksum of a message; `rest` is the sum of the pseudo-header and of what follows
/// the header.
///
/// # Panics
/// If `header` is shorter than 8 bytes.
#[inline]
pub fn fill(header: &mut [u8], rest: Sum) {
    icmp::fill(header, rest);
}

/// Verifies the checksum of a message; `rest` is the sum of the pseudo-header and of what follows the header.
///
/// # Errors
/// `Truncated`; `Checksum` if it does not match.
#[inline]
pub fn verify(header: &[u8], rest: Sum) -> Result<(), Malformed> {
    icmp::verify(header, rest)
}
