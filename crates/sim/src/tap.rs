//! A tap: what an analyser on the line would record (paper \[1\] had one), as a capture that Wireshark reads.
//!
//! Cells are collected per circuit until a frame ends, and written as one ERF record of type 4: the whole
//! CPCS-PDU with padding and trailer, so that the reader can check its CRC. The tap shares no code with the board's
//! reassembly: it is a witness.

use kiban_stack::atm::TimedCell;
use kiban_wire::atm::CELL_PAYLOAD_BYTES;
use kiban_wire::capture;
use std::collections::BTreeMap;

/// Bytes of a frame that a tap keeps at most: the longest CPCS-PDU. What is longer never ends and is dropped.
const FRAME_BYTES_MAX: usize = 65_568;

/// Receives what a tap has written.
pub type Sink = Box<dyn FnMut(&[u8])>;

/// A tap on one direction of a line.
pub struct Tap {
    interface: u8,
    circuits: BTreeMap<u32, Vec<u8>>,
    record: Vec<u8>,
    sink: Sink,
    frames: u64,
}

impl Tap {
    /// A tap that hands a capture file to `sink`, piece by piece; `interface` is the number that the records carry.
    pub fn new(interface: u8, mut sink: Sink) -> Tap {
        let mut header = Vec::new();
        capture::File::new(capture::LINK_TYPE_ERF).write(&mut header);
        sink(&header);
        Tap { interface, circuits: BTreeMap::new(), record: Vec::new(), sink, frames: 0 }
    }

    /// Frames recorded.
    pub fn frames(&self) -> u64 {
        self.frames
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
