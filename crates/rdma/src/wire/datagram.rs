//! Datagrams between queue pairs: kiban's own format, one datagram per UDP payload.
//!
//! ```text
//!  0  magic 24 "KUD" | version 4 | flags 4
//!  4  reserved 8 | destination 24     the destination queue pair
//!  8  reserved 8 | source 24          the source queue pair
//! 12  Q_Key 32                        the key that the destination requires
//! 16  immediate 32                    zero, unless a flag says that it is present
//! 20  payload, 0 to 4096 bytes
//! ```
//!
//! Order     network byte order.
//! Length    UDP's length determines the end of the payload; there is no padding.
//! Check     UDP's checksum.
//! Fields    as in the BTH and DETH of InfiniBand's unreliable datagrams: queue pair numbers have 24 bits
//!           and keys have 32.
//! Reserved  bits are written as zero and ignored.

use kiban_base::Malformed;

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 20;
/// Maximum payload length in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// The largest queue pair number.
pub const QP_MAX: u32 = 0x00ff_ffff;

const MAGIC: [u8; 3] = *b"KUD";
const VERSION: u8 = 1;
const SOLICITED: u8 = 1;
const IMMEDIATE: u8 = 2;

/// The header of every datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The destination queue pair, 24 bits.
    pub destination: u32,
    /// The source queue pair, 24 bits.
    pub source: u32,
    /// The destination's Q_Key.
    pub qkey: u32,
    /// Whether the completion at the destination is a solicited event.
    pub solicited: bool,
    /// Immediate data.
    pub immediate: Option<u32>,
}

impl Header {
    /// Reads the header at the front of a datagram; the payload is the rest.
    ///
    /// # Errors
    /// `Truncated`; `Magic`; `Version`; `TotalLength` if the payload exceeds the maximum.
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let datagram_bytes = bytes.len();
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(Malformed::Truncated) };
        if bytes[..3] != MAGIC {
            return Err(Malformed::Magic);
        }
        if bytes[3] >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        if datagram_bytes > HEADER_BYTES + PAYLOAD_BYTES_MAX {
            return Err(Malformed::TotalLength);
        }
        let flags = bytes[3] & 0x0f;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Header {
            destination: word(4) & QP_MAX,
            source: word(8) & QP_MAX,
            qkey: word(12),
            solicited: flags & SOLICITED != 0,
            immediate: (flags & IMMEDIATE != 0).then(|| word(16)),
        };
        Ok((header, HEADER_BYTES))
    }

    /// Returns [`HEADER_BYTES`].
    pub const fn length(&self) -> usize {
        HEADER_BYTES
    }

    /// Writes the header. Only the low 24 bits of queue pair numbers are written.
    ///
    /// # Panics
    /// If `target` is shorter than the header.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let bytes =
            target.first_chunk_mut::<HEADER_BYTES>().expect("room for a datagram's header of 20 bytes");
        let solicited = if self.solicited { SOLICITED } else { 0 };
        let immediate = if self.immediate.is_some() { IMMEDIATE } else { 0 };
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = (VERSION << 4) | solicited | immediate;
        let words = [self.destination & QP_MAX, self.source & QP_MAX, self.qkey, self.immediate.unwrap_or(0)];
        for (at, word) in words.into_iter().enumerate() {
            bytes[4 + 4 * at..8 + 4 * at].copy_from_slice(&word.to_be_bytes());
        }
        HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Header = Header {
        destination: 0x01_0203,
        source: 0xff_fffe,
        qkey: 0x8001_0000,
        solicited: false,
        immediate: None,
    };
    const BYTES: [u8; HEADER_BYTES] =
        [b'K', b'U', b'D', 0x10, 0, 1, 2, 3, 0, 0xff, 0xff, 0xfe, 0x80, 1, 0, 0, 0, 0, 0, 0];

    #[test]
    fn every_field_is_at_its_offset() {
        let rows = [
            (PLAIN, 0x10, 0u32),
            (Header { solicited: true, ..PLAIN }, 0x11, 0),
            (Header { immediate: Some(0), ..PLAIN }, 0x12, 0),
            (Header { immediate: Some(0xdead_beef), solicited: true, ..PLAIN }, 0x13, 0xdead_beef),
        ];
        for (header, first, immediate) in rows {
            let mut expected = BYTES;
            expected[3] = first;
            expected[16..].copy_from_slice(&immediate.to_be_bytes());
            let mut bytes = [0xa5; HEADER_BYTES + 1];
            assert_eq!((header.write(&mut bytes), header.length()), (HEADER_BYTES, HEADER_BYTES));
            assert_eq!((&bytes[..HEADER_BYTES], bytes[HEADER_BYTES]), (&expected[..], 0xa5));
            assert_eq!(Header::read(&bytes), Ok((header, HEADER_BYTES)));
        }
    }

    #[test]
    fn invalid_datagrams_are_rejected() {
        let with = |at: usize, byte: u8| {
            let mut bytes = BYTES;
            bytes[at] = byte;
            Header::read(&bytes)
        };
        for cut in 0..HEADER_BYTES {
            assert_eq!(Header::read(&BYTES[..cut]), Err(Malformed::Truncated), "{cut}");
        }
        for at in 0..3 {
            assert_eq!(with(at, 0), Err(Malformed::Magic));
        }
        assert_eq!(with(3, 0), Err(Malformed::Version));
        assert_eq!(with(3, 0x20), Err(Malformed::Version));
        let mut longest = [0; HEADER_BYTES + PAYLOAD_BYTES_MAX + 1];
        longest[..HEADER_BYTES].copy_from_slice(&BYTES);
        assert_eq!(Header::read(&longest), Err(Malformed::TotalLength));
        assert_eq!(Header::read(&longest[..HEADER_BYTES + PAYLOAD_BYTES_MAX]), Ok((PLAIN, HEADER_BYTES)));
    }

    #[test]
    fn reserved_bits_and_absent_data_are_ignored() {
        for (at, byte) in [(3, 0x1c), (4, 0xff), (8, 0xff), (16, 0xff)] {
            let mut bytes = BYTES;
            bytes[at] = byte;
            assert_eq!(Header::read(&bytes), Ok((PLAIN, HEADER_BYTES)), "{at}");
        }
        let wide = Header { destination: 0xff01_0203, source: 0x01ff_fffe, ..PLAIN };
        let mut bytes = [0; HEADER_BYTES];
        wide.write(&mut bytes);
        assert_eq!(bytes, BYTES, "24 bits have room");
    }
}
