//! MPA: framing on a TCP stream, and its negotiation (RFC 5044, RFC 6581).
//!
//! ```text
//! start    | key 16 | M C R S, reserved 2, extensions 2 | revision 8 | private data bytes 16 | private data
//! setup    | A B IRD 14 | C D ORD 14 |     the first four bytes of private data, if S (RFC 6581 §9)
//! FPDU     | ULPDU bytes 16 | ULPDU | pad 0..3 | CRC-32C 32, lowest byte first |     multiple of four bytes
//! marker   | reserved 16 | bytes since the FPDU's length field 16 |     every 512 bytes of the stream
//! ```
//!
//! Order            network byte order, except for the CRC. The CRC covers the length field, the ULPDU, the
//!                  pad, and every marker before the CRC. Without CRCs, the field is present but has no
//!                  meaning (RFC 5044 §4.4).
//! Markers          the marker interval includes the marker's own four bytes, so there are 508 other bytes
//!                  between two markers. The first marker precedes the first FPDU. A marker between two
//!                  FPDUs belongs to the second and has a pointer of zero (RFC 5044 §4.3).
//! Not implemented  the content of a ULPDU, which belongs to DDP.

use kiban_base::Malformed;

/// Length of a start frame before its private data, in bytes.
pub const START_BYTES: usize = 20;
/// Maximum private data in bytes, including the [`Setup`] (RFC 5044 §7.1.1).
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;
/// Length of a [`Setup`] in bytes.
pub const SETUP_BYTES: usize = 4;
/// The largest IRD or ORD in a [`Setup`]. The value itself means that the hosts negotiate the number (RFC
/// 6581 §9).
pub const DEPTH_MAX: u16 = 0x3fff;
/// The highest known revision (RFC 6581).
pub const REVISION_MAX: u8 = 2;

/// Length of an FPDU's length field in bytes.
pub const LENGTH_BYTES: usize = 2;
/// Length of an FPDU's CRC field in bytes.
pub const CRC_BYTES: usize = 4;
/// Maximum length of pad and CRC in bytes.
pub const TRAILER_BYTES_MAX: usize = 3 + CRC_BYTES;
/// The longest ULPDU that the length field can express, in bytes.
pub const ULPDU_BYTES_MAX: usize = 65535;

/// Length of a [`Marker`] in bytes.
pub const MARKER_BYTES: usize = 4;
/// Distance between the starts of two markers in the stream, in bytes.
pub const MARKER_INTERVAL_BYTES: usize = 512;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

/// Error codes in a Terminate message with layer LLP and error type MPA (RFC 5044 §8, RFC 6581 §8).
pub mod error {
    /// The TCP connection is lost.
    pub const CONNECTION: u8 = 1;
    /// The CRC does not match.
    pub const CRC: u8 = 2;
    /// Markers and lengths disagree.
    pub const MARKER: u8 = 3;
    /// The request or reply is invalid.
    pub const START: u8 = 4;
    /// A local catastrophic error of the sender.
    pub const LOCAL: u8 = 5;
    /// The initiator's IRD is less than the responder's ORD.
    pub const IRD: u8 = 6;
    /// No ready-to-receive message is supported by both ends.
    pub const RTR: u8 = 7;
}

/// The sender of a start frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The initiator's request.
    Request,
    /// The responder's reply.
    Reply,
}

impl Side {
    /// Returns the sixteen bytes that begin a frame sent by this side.
    #[inline]
    pub const fn key(self) -> &'static [u8; 16] {
        match self {
            Side::Request => REQUEST_KEY,
            Side::Reply => REPLY_KEY,
        }
    }

    /// Returns the reserved bit that carries [`Start::extensions`] in a frame sent by this side. Requests and
    /// replies use different bits, because siw's reply repeats all flags in the request.
    const fn extensions(self) -> u8 {
        match self {
            Side::Request => 0x01,
            Side::Reply => 0x02,
        }
    }
}

/// The fixed part of a request or a reply (RFC 5044 §7.1.1, RFC 6581 §6). Reserved bits are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// Request or reply.
    pub side: Side,
    /// M: the sender wants to receive markers.
    pub markers: bool,
    /// C: the sender wants CRCs. If either side wants them, both directions have them.
    pub crc: bool,
    /// R, in a reply: rejected.
    pub rejected: bool,
    /// S: private data begins with a [`Setup`]. A reserved bit below revision 2.
    pub enhanced: bool,
    /// A reserved bit with which kiban peers announce support for RFC 7306: the last reserved bit in a
    /// request, and the last but one in a reply. Other peers ignore reserved bits (RFC 5044 §7.1.1) and send
    /// zero in this bit of a reply, so a peer that does not support the extensions never receives them.
    pub extensions: bool,
    /// The revision of MPA.
    pub revision: u8,
    /// Number of bytes of private data that follow, including the [`Setup`].
    pub private_data_bytes: u16,
}

impl Start {
    /// Reads the first [`START_BYTES`]; private data may arrive later.
    ///
    /// # Errors
    /// `Truncated`; `Magic` for a key that is neither a request's nor a reply's; `Version` above
    /// [`REVISION_MAX`]; `TotalLength` for more than [`PRIVATE_DATA_BYTES_MAX`].
    pub fn read(bytes: &[u8]) -> Result<(Start, usize), Malformed> {
        let (key, rest) = bytes.split_first_chunk::<16>().ok_or(Malformed::Truncated)?;
        let &[flags, revision, l0, l1] = rest.first_chunk().ok_or(Malformed::Truncated)?;
        let side = match key {
            REQUEST_KEY => Side::Request,
            REPLY_KEY => Side::Reply,
            _ => return Err(Malformed::Magic),
        };
        if revision > REVISION_MAX {
            return Err(Malformed::Version);
        }
        let private_data_bytes = u16::from_be_bytes([l0, l1]);
        if usize::from(private_data_bytes) > PRIVATE_DATA_BYTES_MAX {
            return Err(Malformed::TotalLength);
        }
        let start = Start {
            side,
            markers: flags & 0x80 != 0,
            crc: flags & 0x40 != 0,
            rejected: flags & 0x20 != 0,
            enhanced: flags & 0x10 != 0,
            extensions: flags & side.extensions() != 0,
            revision,
            private_data_bytes,
        };
        Ok((start, START_BYTES))
    }

    /// Returns [`START_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        START_BYTES
    }

    /// Writes the fixed part; the caller appends the private data.
    ///
    /// # Panics
    /// If `target` is shorter.
    pub fn write(&self, target: &mut [u8]) -> usize {
        target[..16].copy_from_slice(self.side.key());
        target[16] = (u8::from(self.markers) << 7)
            | (u8::from(self.crc) << 6)
            | (u8::from(self.rejected) << 5)
            | (u8::from(self.enhanced) << 4)
            | if self.extensions { self.side.extensions() } else { 0 };
        target[17] = self.revision;
        target[18..20].copy_from_slice(&self.private_data_bytes.to_be_bytes());
        START_BYTES
    }
}

/// The ready-to-receive message: the initiator's first message, after which the responder may send (RFC 6581
/// §9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// An FPDU with an empty ULPDU (B).
    Empty,
    /// A zero-length RDMA Write (C).
    Write,
    /// A zero-length RDMA Read (D).
    Read,
}

/// The setup word of RFC 6581 §9 at the front of private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// A: either side may send first.
    pub peer_to_peer: bool,
    /// B: see [`Rtr::Empty`].
    pub rtr_empty: bool,
    /// C: see [`Rtr::Write`].
    pub rtr_write: bool,
    /// D: see [`Rtr::Read`].
    pub rtr_read: bool,
    /// Number of RDMA Reads that the sender answers concurrently, 14 bits.
    pub ird: u16,
    /// Number of outstanding RDMA Reads that the sender wants, 14 bits.
    pub ord: u16,
}

impl Setup {
    /// Reads the word.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(Setup, usize), Malformed> {
        let &[i0, i1, o0, o1] = bytes.first_chunk::<SETUP_BYTES>().ok_or(Malformed::Truncated)?;
        let (ird, ord) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([o0, o1]));
        let setup = Setup {
            peer_to_peer: ird & 0x8000 != 0,
            rtr_empty: ird & 0x4000 != 0,
            rtr_write: ord & 0x8000 != 0,
            rtr_read: ord & 0x4000 != 0,
            ird: ird & DEPTH_MAX,
            ord: ord & DEPTH_MAX,
        };
        Ok((setup, SETUP_BYTES))
    }

    /// Returns [`SETUP_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        SETUP_BYTES
    }

    /// Writes the word; depths above [`DEPTH_MAX`] are written as [`DEPTH_MAX`].
    ///
    /// # Panics
    /// If `target` is shorter.
    pub fn write(&self, target: &mut [u8]) -> usize {
        let ird = self.ird.min(DEPTH_MAX)
            | (u16::from(self.peer_to_peer) << 15)
            | (u16::from(self.rtr_empty) << 14);
        let ord =
            self.ord.min(DEPTH_MAX) | (u16::from(self.rtr_write) << 15) | (u16::from(self.rtr_read) << 14);
        target[..2].copy_from_slice(&ird.to_be_bytes());
        target[2..4].copy_from_slice(&ord.to_be_bytes());
        SETUP_BYTES
    }

    /// Returns whether the setup word includes this ready-to-receive message.
    #[inline]
    pub const fn has(&self, rtr: Rtr) -> bool {
        match rtr {
            Rtr::Empty => self.rtr_empty,
            Rtr::Write => self.rtr_write,
            Rtr::Read => self.rtr_read,
        }
    }
}

/// Returns the length of the pad after a ULPDU in bytes: 0 to 3.
#[inline]
pub const fn pad_bytes(ulpdu_bytes: usize) -> usize {
    (LENGTH_BYTES + ulpdu_bytes).wrapping_neg() & 3
}

/// Returns the length of the pad and CRC after a ULPDU in bytes: 4 to 7.
#[inline]
pub const fn trailer_bytes(ulpdu_bytes: usize) -> usize {
    pad_bytes(ulpdu_bytes) + CRC_BYTES
}

/// Returns the length of an FPDU without markers in bytes.
#[inline]
pub const fn fpdu_bytes(ulpdu_bytes: usize) -> usize {
    LENGTH_BYTES + ulpdu_bytes + trailer_bytes(ulpdu_bytes)
}

/// Returns the maximum ULPDU length in bytes (MULPDU of RFC 5044 §4.5): the FPDU fits into `segment_bytes`
/// at any position of the markers. Zero if none fits.
pub const fn ulpdu_bytes_max(segment_bytes: usize, markers: bool) -> usize {
    let markers_bytes =
        if markers { MARKER_BYTES * segment_bytes.div_ceil(MARKER_INTERVAL_BYTES) } else { 0 };
    let longest = segment_bytes.saturating_sub(LENGTH_BYTES + CRC_BYTES + segment_bytes % 4 + markers_bytes);
    if longest < ULPDU_BYTES_MAX { longest } else { ULPDU_BYTES_MAX }
}

/// Returns the number of markers within `bytes` bytes of other data that begin at stream position
/// `position`. A marker due directly after the last byte does not count.
#[inline]
pub const fn markers(position: usize, bytes: usize) -> usize {
    let before = position.wrapping_neg() % MARKER_INTERVAL_BYTES;
    if bytes <= before { 0 } else { 1 + (bytes - before - 1) / (MARKER_INTERVAL_BYTES - MARKER_BYTES) }
}

/// A marker (RFC 5044 §4.3). Its reserved half is written as zero and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Bytes of the stream from the FPDU's length field to this marker; zero if the marker precedes that
    /// field. The two lowest bits are always zero.
    pub since_length: u16,
}

impl Marker {
    /// Reads a marker.
    ///
    /// # Errors
    /// `Truncated`.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Marker, usize), Malformed> {
        let &[_, _, p0, p1] = bytes.first_chunk::<MARKER_BYTES>().ok_or(Malformed::Truncated)?;
        // RFC 5044 §4.3: receivers treat the two lowest bits as zero.
        Ok((Marker { since_length: u16::from_be_bytes([p0, p1]) & !3 }, MARKER_BYTES))
    }

    /// Returns [`MARKER_BYTES`].
    #[inline]
    pub const fn length(&self) -> usize {
        MARKER_BYTES
    }

    /// Writes the marker.
    ///
    /// # Panics
    /// If `target` is shorter.
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        target[..2].fill(0);
        target[2..4].copy_from_slice(&(self.since_length & !3).to_be_bytes());
        MARKER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_request_of_rping_is_parsed_and_reproduced() {
        // siw of Linux 6.1, captured.
        let bytes = *b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
        let (start, used) = Start::read(&bytes).unwrap();
        assert_eq!(
            start,
            Start {
                side: Side::Request,
                markers: false,
                crc: false,
                rejected: false,
                enhanced: true,
                extensions: false,
                revision: 2,
                private_data_bytes: 4
            }
        );
        let (setup, _) = Setup::read(&bytes[used..]).unwrap();
        assert_eq!((setup.ird, setup.ord, setup.peer_to_peer), (1, 1, false));
        let mut again = [0xee; 24];
        start.write(&mut again);
        setup.write(&mut again[START_BYTES..]);
        assert_eq!(again, bytes);
    }

    #[test]
    fn a_reflected_request_agrees_on_no_extensions() {
        let mut bytes = [0; START_BYTES];
        for (side, other) in [(Side::Request, Side::Reply), (Side::Reply, Side::Request)] {
            let start = Start {
                side,
                markers: false,
                crc: true,
                rejected: false,
                enhanced: true,
                extensions: true,
                revision: 2,
                private_data_bytes: 4,
            };
            start.write(&mut bytes);
            assert_eq!(Start::read(&bytes), Ok((start, START_BYTES)));
            bytes[..16].copy_from_slice(other.key());
            let repeated = Start { side: other, extensions: false, ..start };
            assert_eq!(Start::read(&bytes), Ok((repeated, START_BYTES)));
        }
    }

    #[test]
    fn each_invalid_start_frame_has_its_own_fault() {
        let good = *b"MPA ID Rep Frame\xf0\x02\x02\x00";
        let rows: [(&[_], _); 6] = [
            (&[], Ok(512)),
            (&[(10, b'Q')], Err(Malformed::Magic)),
            (&[(15, b'E')], Err(Malformed::Magic)),
            (&[(17, 3)], Err(Malformed::Version)),
            (&[(19, 1)], Err(Malformed::TotalLength)),
            (&[(17, 0), (16, 0x0f)], Ok(512)),
        ];
        for (changes, expected) in rows {
            let mut bytes = good;
            for &(at, value) in changes {
                bytes[at] = value;
            }
            assert_eq!(Start::read(&bytes).map(|(start, _)| start.private_data_bytes), expected);
        }
        for length in 0..START_BYTES {
            assert_eq!(Start::read(&good[..length]), Err(Malformed::Truncated));
        }
    }

    #[test]
    fn the_bits_of_the_setup_word_are_at_their_offsets() {
        let plain = Setup {
            peer_to_peer: false,
            rtr_empty: false,
            rtr_write: false,
            rtr_read: false,
            ird: 0x0123,
            ord: 0x3fff,
        };
        for (setup, bytes) in [
            (plain, [0x01, 0x23, 0x3f, 0xff]),
            (Setup { peer_to_peer: true, ..plain }, [0x81, 0x23, 0x3f, 0xff]),
            (Setup { rtr_empty: true, ..plain }, [0x41, 0x23, 0x3f, 0xff]),
            (Setup { rtr_write: true, ..plain }, [0x01, 0x23, 0xbf, 0xff]),
            (Setup { rtr_read: true, ..plain }, [0x01, 0x23, 0x7f, 0xff]),
        ] {
            let mut written = [0xee; 4];
            setup.write(&mut written);
            assert_eq!(written, bytes);
            assert_eq!(Setup::read(&bytes), Ok((setup, 4)));
        }
    }

    #[test]
    fn every_fpdu_is_a_multiple_of_four_bytes() {
        for (ulpdu, pad, fpdu) in
            [(0, 2, 8), (1, 1, 8), (2, 0, 8), (3, 3, 12), (18, 0, 24), (42, 0, 48), (65535, 3, 65544)]
        {
            assert_eq!((pad_bytes(ulpdu), fpdu_bytes(ulpdu)), (pad, fpdu), "{ulpdu}");
        }
    }

    #[test]
    fn the_longest_ulpdu_fills_its_segment() {
        for segment in 8..3000 {
            let longest = ulpdu_bytes_max(segment, false);
            assert!(fpdu_bytes(longest) <= segment, "{segment}");
            assert!(fpdu_bytes(longest + 1) > segment, "{segment}");
        }
        // Segment lengths: Ethernet with TCP timestamps, and the largest possible.
        assert_eq!(ulpdu_bytes_max(1448, false), 1442);
        assert_eq!(ulpdu_bytes_max(1448, true), 1430);
        assert_eq!(ulpdu_bytes_max(65535, true), 65014);
        assert_eq!((ulpdu_bytes_max(5, true), ulpdu_bytes_max(1 << 20, false)), (0, 65535));
    }

    proptest! {
        #[test]
        fn markers_are_counted_as_if_one_by_one(position in 0usize..5000, bytes in 0usize..70000) {
            let (mut at, mut count) = (position, 0);
            for _ in 0..bytes {
                if at % MARKER_INTERVAL_BYTES == 0 {
                    count += 1;
                    at += MARKER_BYTES;
                }
                at += 1;
            }
            prop_assert_eq!(markers(position, bytes), count);
        }

        #[test]
        fn parsed_frames_are_reproduced_byte_for_byte(bytes in any::<[u8; 4]>(), private in 0u16..=512) {
            let mut again = [0; START_BYTES];
            let (setup, _) = Setup::read(&bytes).unwrap();
            setup.write(&mut again);
            prop_assert_eq!(&again[..4], &bytes);
            let (marker, _) = Marker::read(&bytes).unwrap();
            marker.write(&mut again);
            prop_assert_eq!(Marker::read(&again), Ok((marker, 4)));
            let mut front: Vec<u8> = Side::Reply.key().to_vec();
            front.extend([bytes[0] & 0xf0, bytes[1] % 3]);
            front.extend(private.to_be_bytes());
            let (start, _) = Start::read(&front).unwrap();
            start.write(&mut again);
            prop_assert_eq!(&again[..], &front);
        }
    }
}
