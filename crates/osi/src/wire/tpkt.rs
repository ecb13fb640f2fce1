//! TPKTs: NSDUs in a TCP stream (RFC 1006 §6; RFC 2126 §4.3 retains the format).
//!
//! Purpose   gives TCP, a byte stream, the record boundaries that transport class 0 needs.
//!
//! ```text
//!   0  version 8     3
//!   1  reserved 8    sent as 0, ignored on receipt
//!   2  length 16     of the whole packet, including this header: 7 to 65535
//! ```
//!
//! Limits    a length below seven is invalid, because the smallest TPDU has three octets.

use kiban_base::Malformed;

/// The TCP port of ISO transport (RFC 1006 §4).
pub const PORT: u16 = 102;
/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 4;
/// Maximum length of a packet in bytes, header included.
pub const PACKET_BYTES_MAX: usize = 65535;
/// Maximum length of a TPDU in bytes.
pub const TPDU_BYTES_MAX: usize = PACKET_BYTES_MAX - HEADER_BYTES;

const VERSION: u8 = 3;
const PACKET_BYTES_MIN: usize = 7;

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the payload in bytes: 3 to [`TPDU_BYTES_MAX`].
    pub payload_bytes: u16,
}

impl Header {
    /// Reads the header at the front of a stream; the payload may still be incomplete.
    ///
    /// # Errors
    /// `Version` as soon as the first byte is present and wrong; `Truncated` if the header is incomplete;
    /// `TotalLength` for an invalid length.
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

    /// Returns the length of the header in bytes.
    #[inline]
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header to the front of `target`.
    ///
    /// # Panics
    /// If `target` is shorter than the header, or the payload is too long for a packet.
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
    fn headers_are_decoded() {
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
    fn an_encoded_header_matches_the_captures() {
        let mut bytes = [0xa5; 4];
        assert_eq!(Header { payload_bytes: 18 }.write(&mut bytes), 4);
        assert_eq!(bytes, [3, 0, 0, 0x16]);
    }
}
