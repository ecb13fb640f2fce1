//! A recorder: turns the traffic at a point of a line or a link into a capture for Wireshark.
//!
//! Cells            cells are collected per circuit until a frame ends, and written as one ERF record of type
//!                  4: the whole CPCS-PDU with padding and trailer, so that the reader can check its CRC.
//!                  This code is independent of the board's reassembly, so that the two can be compared.
//! Packets          each packet or frame is one record; long ones are truncated.
//! Limits           a frame longer than [`FRAME_BYTES_MAX`] is dropped. At most [`CIRCUITS_MAX`] frames may
//!                  be unfinished; cells of further circuits are not recorded.
//! Not implemented  management cells.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_capture as capture;

/// Maximum length of a recorded frame, in bytes: the longest CPCS-PDU.
pub const FRAME_BYTES_MAX: usize = 65_568;
/// Maximum number of circuits with an unfinished frame.
pub const CIRCUITS_MAX: usize = 4096;

/// The bits of a header word that identify the circuit.
const NAME_BITS: u32 = 0xffff_fff0;
const MANAGEMENT: u32 = 0b1000;

/// Makes capture records of one link type.
#[derive(Debug)]
pub struct Recorder {
    file: capture::FileHeader,
    circuits: BTreeMap<u32, Vec<u8>>,
}

impl Recorder {
    /// Returns a recorder for a link type: one of `capture::LINK_TYPE_*`.
    pub fn new(link_type: u32) -> Recorder {
        Recorder { file: capture::FileHeader::new(link_type), circuits: BTreeMap::new() }
    }

    /// Returns the link type of the records.
    pub fn link_type(&self) -> u32 {
        self.file.link_type
    }

    /// Appends the file header.
    pub fn begin(&self, target: &mut Vec<u8>) {
        self.file.write(target);
    }

    /// Records a packet or a frame, given as `runs` of bytes; appends its record to `target`.
    pub fn packet<'a>(
        &self,
        nanoseconds: u64,
        runs: impl Iterator<Item = &'a [u8]> + Clone,
        target: &mut Vec<u8>,
    ) {
        let length: usize = runs.clone().map(<[u8]>::len).sum();
        let kept = length.min(self.file.snap_bytes as usize);
        let record =
            capture::RecordHeader { nanoseconds, captured_bytes: kept as u32, original_bytes: length as u32 };
        record.write(&self.file, target);
        let end = target.len() + kept;
        for run in runs {
            target.extend_from_slice(&run[..run.len().min(end - target.len())]);
        }
    }

    /// Records a cell; `interface` is the interface number for its frame's record. Returns whether a record
    /// was appended to `target`.
    pub fn cell(&mut self, nanoseconds: u64, interface: u8, cell: &TimedCell, target: &mut Vec<u8>) -> bool {
        let name = cell.header & NAME_BITS;
        if cell.header & MANAGEMENT != 0
            || self.circuits.len() >= CIRCUITS_MAX && !self.circuits.contains_key(&name)
        {
            return false;
        }
        let frame = self.circuits.entry(name).or_default();
        if frame.len() + CELL_PAYLOAD_BYTES > FRAME_BYTES_MAX {
            frame.clear();
        }
        frame.extend_from_slice(&cell.payload);
        if !cell.is_end() {
            return false;
        }
        capture::write_aal5(nanoseconds, interface, cell.header, frame, target);
        self.circuits.remove(&name);
        true
    }
}
