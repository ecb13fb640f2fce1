//! Capture files: classic pcap with three kinds of records (libpcap's savefile format; Endace ERF types).
//!
//! Purpose          write a board's traffic to a file that Wireshark opens and validates: link type 197 with
//!                  ERF records of type 4 holds whole AAL5 frames, so that Wireshark checks length and CRC
//!                  independently.
//!
//! ```text
//! file      | magic 4 | 2 4 | zone 4 | accuracy 4 | snapshot length 4 | link type 4 |
//! record    | seconds 4 | fraction 4 | bytes captured 4 | bytes on the wire 4 | data
//! ERF       | time 8, lowest byte first | type 1 | flags 1 | record 2 | lost 2 | wire 2 | header word 4 |
//!           AAL5 frame
//! SUNATM    | sent 1, kind 7 bits | VPI 8 | VCI 16 | frame without pad and trailer
//! ```
//!
//! Order            files are written little-endian with nanoseconds (A1B23C4D); both byte orders and units
//!                  are read.
//! pcapng           files in the newer format are read by [`pcapng`].
//! Not implemented  ERF extension headers, other ERF types, and writing SUNATM and pcapng.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod pcapng;

use alloc::vec::Vec;

use kiban_atm::wire::atm;
use kiban_base::Malformed;

/// Link type of frames with a SUNATM header of four bytes.
pub const LINK_TYPE_SUNATM: u32 = 123;
/// Link type of ERF records.
pub const LINK_TYPE_ERF: u32 = 197;
/// Link type of packets that begin with an IP header.
pub const LINK_TYPE_RAW: u32 = 101;
/// Link type of Ethernet frames.
pub const LINK_TYPE_ETHERNET: u32 = 1;
/// Link type of packets in a format unknown to readers (LINKTYPE_USER0), used for VI.
pub const LINK_TYPE_USER0: u32 = 147;

/// Size of the file header in bytes.
pub const FILE_HEADER_BYTES: usize = 24;
/// Size of a record header in bytes.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Bytes before the AAL5 frame in an ERF record: the record's header and the cell header word.
pub const ERF_HEADER_BYTES: usize = 20;
/// Bytes before the frame in a SUNATM record.
pub const SUNATM_HEADER_BYTES: usize = 4;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const ERF_AAL5: u8 = 4;
const ERF_VARYING_LENGTH: u8 = 0x04;
const SECOND: u64 = 1_000_000_000;

/// A file header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Whether the file is big-endian.
    pub big_endian: bool,
    /// Whether fractions of a second are in nanoseconds; otherwise in microseconds.
    pub nanoseconds: bool,
    /// Snapshot length: maximum bytes captured of any frame.
    pub snap_bytes: u32,
    /// Link type of the records: see the `LINK_TYPE_` constants.
    pub link_type: u32,
}

impl FileHeader {
    /// Creates the header of files written here: little-endian, nanoseconds.
    #[inline]
    pub const fn new(link_type: u32) -> Self {
        FileHeader { big_endian: false, nanoseconds: true, snap_bytes: 262_144, link_type }
    }

    /// Reads the header at the front of a file and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `Magic`; `Version` for any version other than 2.4.
    pub fn read(bytes: &[u8]) -> Result<(FileHeader, usize), Malformed> {
        let header = bytes.first_chunk::<FILE_HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        let [m0, m1, m2, m3, ..] = *header;
        let magic = [m0, m1, m2, m3];
        let (highest_first, nanoseconds) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MAGIC_NANOSECONDS, _) => (false, true),
            (MAGIC_MICROSECONDS, _) => (false, false),
            (_, MAGIC_NANOSECONDS) => (true, true),
            (_, MAGIC_MICROSECONDS) => (true, false),
            _ => return Err(Malformed::Magic),
        };
        let mut file = FileHeader { big_endian: highest_first, nanoseconds, snap_bytes: 0, link_type: 0 };
        let version = if highest_first { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        if header[4..8] != version {
            return Err(Malformed::Version);
        }
        file.snap_bytes = file.number(header, 16);
        // The high bits of this word may give the length of the frames' FCS.
        file.link_type = file.number(header, 20) & 0xffff;
        Ok((file, FILE_HEADER_BYTES))
    }

    /// Appends the header to `file`.
    pub fn write(&self, file: &mut Vec<u8>) {
        let magic = if self.nanoseconds { MAGIC_NANOSECONDS } else { MAGIC_MICROSECONDS };
        file.extend(self.bytes(magic));
        file.extend(if self.big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
        file.extend([0; 8]);
        file.extend(self.bytes(self.snap_bytes));
        file.extend(self.bytes(self.link_type));
    }

    /// Iterates over the records after the header, in order. `bytes` is the whole file.
    ///
    /// The last item is an error if the file ends inside a record.
    pub fn records<'a>(&self, bytes: &'a [u8]) -> Records<'a> {
        Records { file: *self, rest: bytes.get(FILE_HEADER_BYTES..).unwrap_or(&[]) }
    }

    fn number(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = *bytes[at..].first_chunk().expect("the caller counted the header");
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn bytes(&self, number: u32) -> [u8; 4] {
        if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
    }
}

/// A record header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Time in nanoseconds since 1970-01-01 00:00. Written modulo 2^32 seconds.
    pub nanoseconds: u64,
    /// Number of bytes captured, which follow in the file.
    pub captured_bytes: u32,
    /// Length of the packet on the wire in bytes.
    pub original_bytes: u32,
}

impl RecordHeader {
    /// Reads the record header at the front of `bytes`, where the record's data follows it, and returns it
    /// with its length.
    ///
    /// # Errors
    /// `Truncated`; `RecordLength` if the data extends beyond `bytes`.
    pub fn read(file: &FileHeader, bytes: &[u8]) -> Result<(RecordHeader, usize), Malformed> {
        let (header, data) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        let unit = if file.nanoseconds { 1 } else { 1000 };
        let record = RecordHeader {
            nanoseconds: u64::from(file.number(header, 0)) * SECOND
                + u64::from(file.number(header, 4)) * unit,
            captured_bytes: file.number(header, 8),
            original_bytes: file.number(header, 12),
        };
        if record.captured_bytes as usize > data.len() {
            return Err(Malformed::RecordLength);
        }
        Ok((record, RECORD_HEADER_BYTES))
    }

    /// Appends the record header to a file with the header `file`. The caller appends the data.
    pub fn write(&self, file: &FileHeader, target: &mut Vec<u8>) {
        let fraction = (self.nanoseconds % SECOND) as u32;
        target.extend(file.bytes((self.nanoseconds / SECOND) as u32));
        target.extend(file.bytes(if file.nanoseconds { fraction } else { fraction / 1000 }));
        target.extend(file.bytes(self.captured_bytes));
        target.extend(file.bytes(self.original_bytes));
    }
}

/// An iterator over the records of a file: header and data.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    file: FileHeader,
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(RecordHeader, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match RecordHeader::read(&self.file, self.rest) {
            Ok((record, header_bytes)) => {
                let (data, rest) = self.rest[header_bytes..].split_at(record.captured_bytes as usize);
                self.rest = rest;
                Some(Ok((record, data)))
            }
            Err(rule) => {
                self.rest = &[];
                Some(Err(rule))
            }
        }
    }
}

/// An ERF record of type 4: the header word of the cells, and a whole AAL5 frame with pad and trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Erf {
    /// Time in nanoseconds since 1970-01-01 00:00. ERF counts in units of 2^-32 s, but a time that is written
    /// and read back is exact.
    pub nanoseconds: u64,
    /// One of up to four capture interfaces; kiban uses 0 for received and 1 for sent frames.
    pub interface: u8,
    /// The cells' header word without HEC; Wireshark decodes it as a UNI header.
    pub word: u32,
    /// Number of bytes of the frame that the record contains.
    pub captured_bytes: u16,
    /// Length of the frame on the wire in bytes, limited to 16 bits.
    pub original_bytes: u16,
}

impl Erf {
    /// Maximum number of bytes of a frame that fit into a record, given its 16-bit length.
    pub const KEPT_BYTES_MAX: usize = 65535 - ERF_HEADER_BYTES;

    /// Reads the record header at the front of `bytes`, where the frame follows it, and returns it with its
    /// length.
    ///
    /// # Errors
    /// `Truncated`; `RecordType` for other types and for extension headers; `RecordLength`.
    pub fn read(bytes: &[u8]) -> Result<(Erf, usize), Malformed> {
        let (header, frame) = bytes.split_first_chunk::<ERF_HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        let &[t0, t1, t2, t3, t4, t5, t6, t7, kind, flags, r0, r1, _, _, w0, w1, h0, h1, h2, h3] = header;
        if kind != ERF_AAL5 {
            return Err(Malformed::RecordType);
        }
        let record_bytes = usize::from(u16::from_be_bytes([r0, r1]));
        let kept_bytes = record_bytes.checked_sub(ERF_HEADER_BYTES).ok_or(Malformed::RecordLength)?;
        if kept_bytes > frame.len() {
            return Err(Malformed::RecordLength);
        }
        let time = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let erf = Erf {
            nanoseconds: (time >> 32) * SECOND
                + ((time & 0xffff_ffff) * SECOND).div_ceil(1 << 32).min(SECOND - 1),
            interface: flags & 0b11,
            word: u32::from_be_bytes([h0, h1, h2, h3]),
            captured_bytes: kept_bytes as u16,
            original_bytes: u16::from_be_bytes([w0, w1]).saturating_sub(4),
        };
        Ok((erf, ERF_HEADER_BYTES))
    }

    /// Appends the record header. The caller appends `kept_bytes` of the frame.
    ///
    /// # Panics
    /// If `kept_bytes` is above [`Erf::KEPT_BYTES_MAX`].
    pub fn write(&self, target: &mut Vec<u8>) {
        assert!(
            usize::from(self.captured_bytes) <= Self::KEPT_BYTES_MAX,
            "the ERF record is longer than 65535 bytes"
        );
        // Round down here and up on reading. The result is exact, because a nanosecond is more than four ERF
        // units.
        let fraction = ((self.nanoseconds % SECOND) << 32) / SECOND;
        target.extend((((self.nanoseconds / SECOND) << 32) | fraction).to_le_bytes());
        target.extend([ERF_AAL5, ERF_VARYING_LENGTH | (self.interface & 0b11)]);
        target.extend((self.captured_bytes + ERF_HEADER_BYTES as u16).to_be_bytes());
        target.extend([0, 0]);
        target.extend(self.original_bytes.saturating_add(4).to_be_bytes());
        target.extend(self.word.to_be_bytes());
    }
}

/// Appends a whole record to a file of link type 197 written with [`FileHeader::new`]: an AAL5 frame with pad
/// and trailer.
///
/// A frame longer than [`Erf::KEPT_BYTES_MAX`] is truncated.
pub fn write_aal5(nanoseconds: u64, interface: u8, word: u32, frame: &[u8], target: &mut Vec<u8>) {
    let kept = &frame[..frame.len().min(Erf::KEPT_BYTES_MAX)];
    let record = RecordHeader {
        nanoseconds,
        captured_bytes: (ERF_HEADER_BYTES + kept.len()) as u32,
        original_bytes: (ERF_HEADER_BYTES + frame.len()) as u32,
    };
    record.write(&FileHeader::new(LINK_TYPE_ERF), target);
    let wire_bytes = frame.len().min(usize::from(u16::MAX)) as u16;
    Erf { nanoseconds, interface, word, captured_bytes: kept.len() as u16, original_bytes: wire_bytes }
        .write(target);
    target.extend(kept);
}

/// The SUNATM header before a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SunAtm {
    /// Whether the capturing machine sent the frame.
    pub is_sent: bool,
    /// Kind of payload: 1 LANE, 2 LLC/SNAP, 5 ILMI, 6 signalling.
    pub kind: u8,
    /// The circuit.
    pub vc: atm::Vc,
}

impl SunAtm {
    /// Reads the four-byte header before a frame and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<(SunAtm, usize), Malformed> {
        let &[flags, vpi, c0, c1] = bytes.first_chunk::<SUNATM_HEADER_BYTES>().ok_or(Malformed::Truncated)?;
        let vc = atm::Vc { vpi: u16::from(vpi), vci: u16::from_be_bytes([c0, c1]) };
        Ok((SunAtm { is_sent: flags & 0x80 != 0, kind: flags & 0x7f, vc }, SUNATM_HEADER_BYTES))
    }
}
