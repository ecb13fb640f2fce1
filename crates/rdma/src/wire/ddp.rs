//! DDP: where a segment's payload is placed (RFC 5041 §4).
//!
//! ```text
//!  0  T 1 | L 1 | reserved 4 | version 2 | ULP 8   T: tagged, L: last segment; ULP: see crate::wire::rdmap
//!  tagged                                untagged
//!  2  STag 32                            2  ULP 32       of a Send with Invalidate: the STag
//!  6  tagged offset 64                   6  queue number 32
//! 14  payload                           10  message sequence number 32
//!                                       14  message offset 32
//!                                       18  payload
//! ```
//!
//! Tagged    the segment carries the address in the receiver's memory.
//! Untagged  the receiver chooses the buffer: the next one of a queue (RDMAP: 0 Sends, 1 read requests, 2
//!           Terminate, 3 atomic responses).

use kiban_base::Malformed;

/// Length of a tagged segment's header in bytes.
pub const TAGGED_BYTES: usize = 14;
/// Length of an untagged segment's header in bytes.
pub const UNTAGGED_BYTES: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
/// The version of RFC 5041.
pub const VERSION: u8 = 1;

/// Queues of untagged messages (RFC 5040 §4.2, RFC 7306 §4).
pub mod queue {
    /// Sends of every kind, and immediate data.
    pub const SEND: u32 = 0;
    /// Read requests and atomic requests.
    pub const READ_REQUEST: u32 = 1;
    /// The Terminate.
    pub const TERMINATE: u32 = 2;
    /// Atomic responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
}

/// How the payload is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// The payload goes to an address chosen by the sender in the receiver's memory.
    Tagged {
        /// The steering tag.
        stag: u32,
        /// The offset of the payload's first byte within that memory.
        offset: u64,
    },
    /// The payload goes into the buffer that the receiver chose for the message.
    Untagged {
        /// RDMAP's field.
        ulp: u32,
        /// The queue.
        queue: u32,
        /// The message sequence number (MSN) within its queue, starting at 1.
        sequence: u32,
        /// The offset within the message.
        offset: u32,
    },
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whether this is the last segment of its message.
    pub last: bool,
    /// RDMAP's octet.
    pub ulp: u8,
    /// Where the payload is placed.
    pub placing: Placing,
}

/// Returns whether the segment with this first octet is tagged.
#[inline]
pub const fn is_tagged(first: u8) -> bool {
    first & TAGGED != 0
}

/// Returns the length in bytes of the header with this first octet.
#[inline]
pub const fn header_bytes(first: u8) -> usize {
    if is_tagged(first) { TAGGED_BYTES } else { UNTAGGED_BYTES }
}

impl Header {
    /// Reads the header of a segment, and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `Version` unless the DDP version is 1.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let &[first, ulp, ..] = bytes else { return Err(Malformed::Truncated) };
        if first & VERSION_MASK != VERSION {
            return Err(Malformed::Version);
        }
        let last = first & LAST != 0;
        if is_tagged(first) {
            let [_, _, s0, s1, s2, s3, rest @ ..] = bytes else { return Err(Malformed::Truncated) };
            let offset = rest.first_chunk().ok_or(Malformed::Truncated)?;
            let stag = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
            let placing = Placing::Tagged { stag, offset: u64::from_be_bytes(*offset) };
            return Ok((Header { last, ulp, placing }, TAGGED_BYTES));
        }
        let words: &[u8; 16] = bytes[2..].first_chunk().ok_or(Malformed::Truncated)?;
        let word = |at: usize| u32::from_be_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        let placing = Placing::Untagged { ulp: word(0), queue: word(4), sequence: word(8), offset: word(12) };
        Ok((Header { last, ulp, placing }, UNTAGGED_BYTES))
    }

    /// Returns the number of bytes that [`Header::write`] fills.
    #[inline]
    pub const fn length(&self) -> usize {
        match self.placing {
            Placing::Tagged { .. } => TAGGED_BYTES,
            Placing::Untagged { .. } => UNTAGGED_BYTES,
        }
    }

    /// Writes the header to the front of `target`, and returns its length.
    ///
    /// # Panics
    /// If `target` is too short.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let last = if self.last { LAST } else { 0 };
        match self.placing {
            Placing::Tagged { stag, offset } => {
                target[..TAGGED_BYTES][0] = TAGGED | last | VERSION;
                target[1] = self.ulp;
                target[2..6].copy_from_slice(&stag.to_be_bytes());
                target[6..TAGGED_BYTES].copy_from_slice(&offset.to_be_bytes());
            }
            Placing::Untagged { ulp, queue, sequence, offset } => {
                target[..UNTAGGED_BYTES][0] = last | VERSION;
                target[1] = self.ulp;
                target[2..6].copy_from_slice(&ulp.to_be_bytes());
                target[6..10].copy_from_slice(&queue.to_be_bytes());
                target[10..14].copy_from_slice(&sequence.to_be_bytes());
                target[14..UNTAGGED_BYTES].copy_from_slice(&offset.to_be_bytes());
            }
        }
        self.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Headers sent by Linux's soft-iWARP in an rping session, and the expected result of reading each.
    #[test]
    fn headers_of_a_real_peer() {
        let rows: [(&[u8], Header); 3] = [
            (
                &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
                Header {
                    last: true,
                    ulp: 0x43,
                    placing: Placing::Untagged { ulp: 0, queue: 0, sequence: 1, offset: 0 },
                },
            ),
            (
                &[0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
                Header {
                    last: true,
                    ulp: 0x41,
                    placing: Placing::Untagged { ulp: 0, queue: 1, sequence: 1, offset: 0 },
                },
            ),
            (
                &[0xc1, 0x42, 0x12, 0x34, 0x56, 0x78, 0, 0, 0x55, 0xaa, 1, 2, 3, 4],
                Header {
                    last: true,
                    ulp: 0x42,
                    placing: Placing::Tagged { stag: 0x1234_5678, offset: 0x55aa_0102_0304 },
                },
            ),
        ];
        for (bytes, header) in rows {
            assert_eq!(Header::read(bytes), Ok((header, bytes.len())));
            let mut written: Vec<u8> = alloc::vec![0xff; bytes.len()];
            assert_eq!(header.write(&mut written), header.length());
            assert_eq!(written, bytes);
            for cut in 0..bytes.len() {
                assert_eq!(Header::read(&bytes[..cut]), Err(Malformed::Truncated), "{cut} bytes");
            }
        }
    }

    #[test]
    fn other_versions_are_rejected() {
        for version in [0, 2, 3] {
            let mut bytes = [0u8; UNTAGGED_BYTES];
            bytes[0] = LAST | version;
            assert_eq!(Header::read(&bytes), Err(Malformed::Version));
        }
    }
}
