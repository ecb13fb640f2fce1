//! Replays a capture as a link. Its records arrive at their recorded times, or as fast as they are read.
//!
//! Files            pcap with microseconds or nanoseconds, either byte order; pcapng. Packets have link type
//!                  101 (also 12, 14, 228, 229) and frames have link type 1. Cells come from AAL5 frames, ERF
//!                  type 4 (197) and SUNATM (123), which are segmented into cells again.
//! Direction        if records are marked as received or sent, only the received ones arrive; `RecordFilter`
//!                  changes that.
//! Sending          units sent to the link are counted and discarded; record the link to keep them.
//! Limits           the whole file is read into memory. Truncated packets count as malformed.
//! End              after the last record, the link is idle.

use super::unit::{ReceivePage, Unit, UnitError};
use super::{BURST, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_base::Instant;
use kiban_capture::{
    Erf, FileHeader, LINK_TYPE_ERF, LINK_TYPE_ETHERNET, LINK_TYPE_RAW, LINK_TYPE_SUNATM, SunAtm,
};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// What a link carries or a capture holds: packets, frames or cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// IP packets.
    Packets,
    /// Ethernet frames.
    Frames,
    /// AAL5 frames, which are segmented into cells.
    Cells,
}

/// Which records arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordFilter {
    /// Replay the received records, if the capture marks directions; otherwise all records.
    #[default]
    Received,
    /// Replay the sent records, if the capture marks directions; otherwise all records.
    Sent,
    /// All.
    All,
}

/// When records arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speed {
    /// Records arrive at their recorded intervals, the first one immediately.
    #[default]
    Times,
    /// Records arrive as fast as they are read.
    Fast,
}

/// A record's time, and the record's position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    nanoseconds: u64,
    range: Range<usize>,
    /// Whether the record is complete.
    is_whole: bool,
    /// Whether the record is marked as sent.
    is_sent: Option<bool>,
}

/// A capture file in memory.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    link_type: u32,
    entries: Vec<Entry>,
    name: String,
}

impl Capture {
    /// Reads a capture.
    ///
    /// # Errors
    /// There is no such file, or it is not a capture of a known kind.
    pub fn open(path: &Path) -> io::Result<Capture> {
        let name = format!("pcap:{}", path.display());
        let bytes = kiban_os::regular::read(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{name}: cannot read the file: {error}"))
        })?;
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {what}"));
        let (link_type, entries) = if bytes.starts_with(&SECTION.to_be_bytes()) {
            read_blocks(&bytes).map_err(invalid)?
        } else {
            read_records(&bytes).map_err(invalid)?
        };
        let mut capture = Capture { bytes, link_type, entries, name };
        if capture.unit_kind().is_none() {
            let what = format!(
                "unknown link type {link_type}; supported are {LINK_TYPE_RAW} (IP), {LINK_TYPE_ETHERNET} (Ethernet), \
                 {LINK_TYPE_ERF} (ERF) and {LINK_TYPE_SUNATM} (SUNATM)"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", capture.name)));
        }
        for entry in &mut capture.entries {
            let record = &capture.bytes[entry.range.clone()];
            match link_type {
                LINK_TYPE_SUNATM => entry.is_sent = SunAtm::read(record).ok().map(|(its, _)| its.is_sent),
                LINK_TYPE_ERF => entry.is_sent = Erf::read(record).ok().map(|(its, _)| its.interface == 1),
                _ => {}
            }
        }
        Ok(capture)
    }

    /// Returns the kind of units in the capture, or `None` if its link type is unknown.
    pub fn unit_kind(&self) -> Option<UnitKind> {
        match self.link_type {
            // LINKTYPE_RAW and the values that some systems write instead; then the types for IPv4 only and
            // for IPv6 only.
            LINK_TYPE_RAW | 12 | 14 | 228 | 229 => Some(UnitKind::Packets),
            LINK_TYPE_ETHERNET => Some(UnitKind::Frames),
            LINK_TYPE_ERF | LINK_TYPE_SUNATM => Some(UnitKind::Cells),
            _ => None,
        }
    }

    /// Returns the number of records.
    pub fn records(&self) -> usize {
        self.entries.len()
    }
}

/// Reads the records of a classic pcap file. If the file ends inside a record, returns those before it.
fn read_records(bytes: &[u8]) -> Result<(u32, Vec<Entry>), &'static str> {
    let (file, _) = FileHeader::read(bytes).map_err(|_| "neither pcap nor pcapng")?;
    let mut entries = Vec::new();
    for (record, data) in file.records(bytes).map_while(Result::ok) {
        let start = data.as_ptr() as usize - bytes.as_ptr() as usize;
        entries.push(Entry {
            nanoseconds: record.nanoseconds,
            range: start..start + data.len(),
            is_whole: record.captured_bytes >= record.original_bytes,
            is_sent: None,
        });
    }
    Ok((file.link_type, entries))
}

/// Block types of pcapng (draft-ietf-opsawg-pcapng §4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Options: end of list, a packet's flags, an interface's time resolution.
const END: u16 = 0;
const FLAGS: u16 = 2;
const RESOLUTION: u16 = 9;

/// Reads integers in a section's byte order.
#[derive(Clone, Copy)]
struct Order {
    highest_first: bool,
}

impl Order {
    fn word(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.highest_first { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn half(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.highest_first { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// Returns the value of an option in an option list.
    fn option(self, mut list: &[u8], wanted: u16) -> Option<&[u8]> {
        loop {
            let (code, length) = (self.half(list, 0)?, usize::from(self.half(list, 2)?));
            let value = list.get(4..4 + length)?;
            match code {
                END => return None,
                code if code == wanted => return Some(value),
                _ => list = list.get(4 + length.next_multiple_of(4)..)?,
            }
        }
    }
}

/// Reads the packets of a pcapng file that have the first interface's link type. If the file ends inside a
/// block, returns those before it.
fn read_blocks(bytes: &[u8]) -> Result<(u32, Vec<Entry>), &'static str> {
    let mut order = Order { highest_first: false };
    // The link type and the ticks per second of each interface in the section.
    let mut interfaces: Vec<(u32, u128)> = Vec::new();
    let mut link_type = None;
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some(block) = bytes.get(at..).filter(|block| block.len() >= 12) {
        if block.starts_with(&SECTION.to_be_bytes()) {
            let little = Order { highest_first: false };
            order = Order { highest_first: little.word(block, 8) != Some(BYTE_ORDER) };
            if order.word(block, 8) != Some(BYTE_ORDER) {
                return Err("a section has no valid byte-order magic");
            }
            interfaces.clear();
        }
        let (Some(kind), Some(length)) = (order.word(block, 0), order.word(block, 4)) else { break };
        let length = length as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err("a block has an invalid length");
        }
        let Some(body) = block.get(..length).map(|block| &block[8..length - 4]) else { break };
        match kind {
            INTERFACE => {
                let its = u32::from(order.half(body, 0).ok_or("an interface block is too short")?);
                let unit = order.option(body.get(8..).unwrap_or(&[]), RESOLUTION).and_then(<[u8]>::first);
                let units = match unit {
                    None => 1_000_000,
                    Some(power) if power & 0x80 != 0 => 1u128 << (power & 0x7f).min(64),
                    Some(power) => 10u128.pow(u32::from(*power).min(18)),
                };
                interfaces.push((its, units));
                link_type.get_or_insert(its);
            }
            ENHANCED => {
                let number = |offset| order.word(body, offset).ok_or("a packet block is too short");
                let (its, units) =
                    *interfaces.get(number(0)? as usize).ok_or("a packet refers to an unknown interface")?;
                let time = u128::from(number(4)?) << 32 | u128::from(number(8)?);
                let (kept, wire) = (number(12)? as usize, number(16)? as usize);
                let options = body.get(20 + kept.next_multiple_of(4)..).unwrap_or(&[]);
                if body.len() < 20 + kept {
                    return Err("a packet is longer than its block");
                }
                let direction =
                    order.option(options, FLAGS).and_then(|flags| order.word(flags, 0)).unwrap_or(0) & 3;
                if Some(its) == link_type {
                    entries.push(Entry {
                        nanoseconds: (time * 1_000_000_000 / units) as u64,
                        range: at + 28..at + 28 + kept,
                        is_whole: kept >= wire,
                        is_sent: [None, Some(false), Some(true), None][direction as usize],
                    });
                }
            }
            _ => {}
        }
        at += length;
    }
    Ok((link_type.ok_or("the file describes no interface")?, entries))
}

/// Replays a capture as a link.
#[derive(Debug)]
pub struct Replay {
    capture: Capture,
    take: RecordFilter,
    speed: Speed,
    next: usize,
    /// The driver's time and the recorded time at the first record.
    origin: Option<(Instant, u64)>,
    /// The time at which the next record is due, once the first record has arrived.
    due: Instant,
    mtu_bytes: usize,
    page: ReceivePage,
    counters: LinkCounters,
}

impl Replay {
    /// Replays a capture; its units are of the kind [`Capture::unit_kind`].
    pub fn new(capture: Capture, take: RecordFilter, speed: Speed, mtu_bytes: usize) -> Replay {
        let mut replay = Replay {
            capture,
            take,
            speed,
            next: 0,
            origin: None,
            due: Instant::ZERO,
            mtu_bytes,
            page: ReceivePage::default(),
            counters: LinkCounters::default(),
        };
        replay.skip();
        replay
    }

    /// Returns whether all records have arrived.
    pub fn is_done(&self) -> bool {
        self.next == self.capture.entries.len()
    }

    /// Skips to the next record that passes the filter.
    fn skip(&mut self) {
        let unwanted = match self.take {
            RecordFilter::All => None,
            RecordFilter::Received => Some(true),
            RecordFilter::Sent => Some(false),
        };
        let rest = &self.capture.entries[self.next..];
        let passed =
            rest.iter().take_while(|entry| entry.is_sent.is_some() && entry.is_sent == unwanted).count();
        self.next += passed;
        self.due = match (rest.get(passed), self.origin) {
            (None, _) => Instant::NEVER,
            (Some(_), None) => Instant::ZERO,
            (Some(_), Some((now, _))) if self.speed == Speed::Fast => now,
            (Some(entry), Some((moment, first))) => {
                moment + Duration::from_nanos(entry.nanoseconds.saturating_sub(first))
            }
        };
    }
}

impl<U: Unit> Link<U> for Replay {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: self.mtu_bytes, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let enough = into.len() + BURST;
        while self.due <= lent.now && into.len() < enough {
            let entry = self.capture.entries[self.next].clone();
            self.origin.get_or_insert((lent.now, entry.nanoseconds));
            let (before, record) = (into.len(), &self.capture.bytes[entry.range]);
            let result = match entry.is_whole {
                true => U::replay(self.capture.link_type, record, &mut self.page, lent, into),
                false => Err(UnitError::Malformed),
            };
            match result {
                Ok(()) => {
                    self.counters.units_in += (into.len() - before) as u64;
                    self.counters.bytes_in += record.len() as u64;
                }
                Err(UnitError::Malformed) => self.counters.malformed += 1,
                Err(UnitError::Starved) => self.counters.no_memory += 1,
            }
            self.next += 1;
            self.skip();
        }
        Ok(())
    }

    fn send(&mut self, units: &mut VecDeque<U>, _: &mut LinkContext<'_>) -> io::Result<()> {
        for unit in units.drain(..) {
            self.counters.units_out += 1;
            self.counters.bytes_out += unit.bytes() as u64;
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn deadline(&self) -> Instant {
        self.due
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(nanoseconds: u64, range: Range<usize>, is_sent: Option<bool>) -> Entry {
        Entry { nanoseconds, range, is_whole: true, is_sent }
    }

    /// Returns a block in big-endian byte order.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (12 + body.len()) as u32;
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), body, &length.to_be_bytes()].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn blocks_are_decoded_with_time_resolution_and_direction() {
        let section = block(SECTION, &words(&[BYTE_ORDER, 0x0001_0000, !0, !0]));
        // The first interface carries raw IP, with times in nanoseconds. The second interface is an Ethernet,
        // and its packets are skipped.
        let raw = block(INTERFACE, &words(&[101 << 16, 0, 9 << 16 | 1, 9 << 24, 0]));
        let ethernet = block(INTERFACE, &words(&[1 << 16, 0]));
        let packet = |interface: u32, nanoseconds: u32, flags: Option<u32>| {
            let mut body = words(&[interface, 1, nanoseconds, 5, 5, 0x0102_0304, 0x0500_0000]);
            if let Some(flags) = flags {
                body.extend(words(&[2 << 16 | 4, flags, 0]));
            }
            block(ENHANCED, &body)
        };
        let unknown = block(0x0000_0bad, &[]);
        let parts = [
            section,
            raw,
            ethernet,
            packet(0, 7, None),
            unknown,
            packet(1, 8, None),
            packet(0, 9, Some(2)),
            packet(0, 10, Some(1)),
        ];
        let mut file = parts.concat();
        let at = |part: usize| parts[..part].iter().map(Vec::len).sum::<usize>() + 28;
        let second = 1 << 32;
        let expected = vec![
            entry(second + 7, at(3)..at(3) + 5, None),
            entry(second + 9, at(6)..at(6) + 5, Some(true)),
            entry(second + 10, at(7)..at(7) + 5, Some(false)),
        ];
        assert_eq!(read_blocks(&file), Ok((101, expected.clone())));
        // If the file ends within a block, the blocks before it are read.
        file.truncate(file.len() - 1);
        assert_eq!(read_blocks(&file), Ok((101, expected[..2].to_vec())));
        // No corrupted byte causes a panic.
        for at in 0..file.len() {
            let mut wrong = file.clone();
            wrong[at] ^= 0xff;
            let _ = read_blocks(&wrong);
        }
    }
}
