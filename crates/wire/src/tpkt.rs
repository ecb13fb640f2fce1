//! TPKTs: network service data units in a TCP stream (RFC 1006 §6; RFC 2126 §4.3 keeps the format).
//!
//! Goal      give TCP, which knows no records, the borders that transport class 0 needs.
//!
//! ```text
//!   0  version 8     3
//!   1  reserved 8    sent as 0, not looked at
//!   2  length 16     of the whole packet, this header included: 7 to 65535
//! ```
//!
//! Limits    the smallest TPDU has three octets, so nothing below seven is a packet.

use crate::Malformed;

/// The TCP port of ISO transport (RFC 1006 §4).
pub const PORT: u16 = 102;
/// Bytes in front of a TPDU.
pub const HEADER_BYTES: usize = 4;
/// The longest packet.
pub const PACKET_BYTES_MAX: usize = 65535;
/// The longest TPDU: what a packet can carry.
pub const TPDU_BYTES_MAX: usize = PACKET_BYTES_MAX - HEADER_BYTES;

const VERSION: u8 = 3;
const PACKET_BYTES_MIN: usize = 7;

/// A packet's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of what it carries: 3 to [`TPDU_BYTES_MAX`].
    pub payload_bytes: u16,
}

impl Header {
    /// Reads the header at the front of a stream; the payload need not be there yet.
    ///
    /// # Errors
    /// `Version` as soon as the first byte is there and wrong; `Truncated` if there is less than a header; `TotalLength`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let &[version, ref rest @ ..] = bytes else { return Err(Malformed::Truncated) };
        if version != VERSION {
            return Err(Malformed::Version);
        }
        let &[_, high, low, ..] = rest else { return Err(Malformed::Truncated) };
        let length = u16::from_be_bytes([high, low]);
        if usize::from(length) < PACKET_BYTES_MIN {
            return Err(Malformed::TotalLength);
        }
        Ok((Header { payload_bytes: length - HEADER_BYTES as u16 }, HEADER_BYTES))
    }

    /// Bytes of this header.
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header at the front of `target`.
    ///
    /// # Panics
    /// When `target` is shorter, or the payload longer than a packet carries.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let length =
            self.payload_bytes.checked_add(HEADER_BYTES as u16).expect("a payload fits into a packet");
        let [high, low] = length.to_be_bytes();
        target[..HEADER_BYTES].copy_from_slice(&[VERSION, 0, high, low]);
        HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are() {
        let rows: &[(&[u8], Result<u16, Malformed>)] = &[
            (&[3, 0, 0, 0x16, 0x11, 0xe0], Ok(18)),
            (&[3, 0xff, 0, 7], Ok(3)),
            (&[3, 0, 0xff, 0xff], Ok(65531)),
            (&[3, 0, 0, 6], Err(Malformed::TotalLength)),
            (&[3, 0, 0, 0], Err(Malformed::TotalLength)),
            (&[3, 0, 0], Err(Malformed::Truncated)),
            (&[3], Err(Malformed::Truncated)),
            (&[], Err(Malformed::Truncated)),
            (&[2], Err(Malformed::Version)),
            (b"GET / HTTP/1.1", Err(Malformed::Version)),
        ];
        for (bytes, expected) in rows {
            let read = Header::read(bytes).map(|(header, used)| {
                assert_eq!(used, 4);
                header.payload_bytes
            });
            assert_eq!(read, *expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_written_header_is_that_of_the_captures() {
        let mut bytes = [0xa5; 4];
        assert_eq!(Header { payload_bytes: 18 }.write(&mut bytes), 4);
        assert_eq!(bytes, [3, 0, 0, 0x16]);
    }
}
