//! A tap: what an analyser on the line would record (paper \[1\] had one), as a capture that Wireshark reads.
//!
//! Cells are collected per circuit until a frame ends, and written as one ERF record of type 4: the whole
//! CPCS-PDU with padding and trailer, so that the reader can check its CRC. The tap shares no code with the board's
//! reassembly: it is a witness. On a cable each packet or frame is a record as it is.

use kiban_ground::Instant;
use kiban_stack::atm::TimedCell;
use kiban_wire::atm::CELL_PAYLOAD_BYTES;
use kiban_wire::capture;
use std::collections::BTreeMap;

/// Bytes of a frame that a tap keeps at most: the longest CPCS-PDU. What is longer never ends and is dropped.
const FRAME_BYTES_MAX: usize = 65_568;

/// Receives what a tap has written.
pub type Sink = Box<dyn FnMut(&[u8])>;

/// A tap on one direction of a line or a cable.
pub struct Tap {
    interface: u8,
    /// What the file holds, once it has begun.
    link_type: Option<u32>,
    circuits: BTreeMap<u32, Vec<u8>>,
    record: Vec<u8>,
    sink: Sink,
    frames: u64,
}

impl Tap {
    /// A tap that hands a capture file to `sink`, piece by piece, from when it is put on a line; `interface` is the number
    /// that records of cells carry.
    pub fn new(interface: u8, sink: Sink) -> Tap {
        Tap { interface, link_type: None, circuits: BTreeMap::new(), record: Vec::new(), sink, frames: 0 }
    }

    /// The file begins, unless it has begun: on a line of the same kind.
    pub(crate) fn begin(&mut self, link_type: u32) {
        let begun = self.link_type.replace(link_type);
        assert!(
            begun.is_none_or(|known| known == link_type),
            "a capture holds one kind of records: take a new tap"
        );
        if begun.is_none() {
            let mut header = Vec::new();
            self.file().write(&mut header);
            (self.sink)(&header);
        }
    }

    fn file(&self) -> capture::File {
        capture::File::new(self.link_type.expect("a tap is on a line before it sees something"))
    }

    /// Frames or packets recorded.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// A packet or a frame has arrived.
    pub(crate) fn see_packet(&mut self, at: Instant, bytes: &[u8]) {
        let file = self.file();
        let kept = &bytes[..bytes.len().min(file.kept_bytes_max as usize)];
        let record = capture::Record {
            nanoseconds: at.as_nanos(),
            kept_bytes: kept.len() as u32,
            wire_bytes: bytes.len() as u32,
        };
        self.record.clear();
        record.write(&file, &mut self.record);
        self.record.extend_from_slice(kept);
        (self.sink)(&self.record);
        self.frames += 1;
    }

    pub(crate) fn see(&mut self, cell: &TimedCell) {
        let name = cell.header & 0xffff_fff0;
        let management = cell.header & 0b1000 != 0;
        if management {
            return;
        }
        let frame = self.circuits.entry(name).or_default();
        if frame.len() + CELL_PAYLOAD_BYTES > FRAME_BYTES_MAX {
            frame.clear();
        }
        frame.extend_from_slice(&cell.payload);
        if cell.is_end() {
            self.record.clear();
            capture::write_aal5(cell.at.as_nanos(), self.interface, cell.header, frame, &mut self.record);
            frame.clear();
            (self.sink)(&self.record);
            self.frames += 1;
        }
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tap({} frames)", self.frames)
    }
}
