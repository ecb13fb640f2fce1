//! Segmentation and reassembly, for links that carry AAL5 frames while the board's port carries cells
//! (I.363.5 §9.2).
//!
//! Segmentation     a frame becomes cells with pad and trailer, as in the board's own segmentation, but all
//!                  with the same time.
//! Reassembly       the cells of each circuit become frames; headers are corrected or rejected, and trailers
//!                  and CRCs are checked, as at the end of a circuit.
//! Limits           at most [`CIRCUITS_MAX`] frames in reassembly, each of up to 65,535 bytes; cells of
//!                  further circuits are dropped.

use kiban_atm::wire::aal5::{self, FRAME_BYTES_MAX, TAIL_BYTES_MAX};
use kiban_atm::wire::atm::{
    CELL_PAYLOAD_BYTES, Interface, PTI_LAST, PTI_MANAGEMENT, is_physical, is_unassigned,
};
use kiban_atm::{HeaderReceiver, Received, TimedCell};
use kiban_base::Instant;
use kiban_base::crc::Crc32Aal5;
use std::collections::{HashMap, VecDeque};

/// Maximum number of frames in reassembly.
const CIRCUITS_MAX: usize = 1024;
/// The bits of a header word that identify the circuit: all but payload type and priority.
const NAME_BITS: u32 = 0xffff_fff0;

/// Segments a frame of 1 to 65,535 bytes into the cells of a circuit; `word` is its header word with payload
/// type 0.
pub(crate) fn segment(frame: &[u8], word: u32, at: Instant, into: &mut VecDeque<TimedCell>) {
    let mut crc = Crc32Aal5::new();
    crc.update(frame);
    let mut tail = [0; TAIL_BYTES_MAX];
    let tail_bytes = aal5::write_tail(frame.len(), 0, crc, &mut tail);
    let cells = aal5::cells(frame.len());
    let byte = |at: usize| match at.checked_sub(frame.len()) {
        None => frame[at],
        Some(at) => tail[..tail_bytes][at],
    };
    for number in 0..cells {
        let from = number * CELL_PAYLOAD_BYTES;
        let payload = match frame.get(from..from + CELL_PAYLOAD_BYTES) {
            Some(bytes) => bytes.try_into().expect("48 bytes"),
            None => std::array::from_fn(|at| byte(from + at)),
        };
        let is_last = number + 1 == cells;
        let word = word | if is_last { u32::from(PTI_LAST) << 1 } else { 0 };
        into.push_back(TimedCell::new(at, word, payload));
    }
}

/// The result of a cell.
pub(crate) enum Reassembled<'a> {
    /// The cell's frame is not complete yet, or the cell was idle.
    Nothing,
    /// The cell completed a frame: the circuit's header word, and the payload.
    Frame(u32, &'a [u8]),
    /// A management cell, or another cell that does not belong to a frame.
    Management,
    /// A frame or cell that is broken, or for which there is no room.
    Wrong,
}

/// Reassembles frames from the cells of many circuits.
#[derive(Default)]
pub(crate) struct Reassembler {
    receiver: HeaderReceiver,
    frames: HashMap<u32, Vec<u8>>,
    done: Vec<u8>,
}

impl Reassembler {
    /// Processes the next cell.
    pub(crate) fn cell(&mut self, cell: &TimedCell) -> Reassembled<'_> {
        let word = match self.receiver.arrive(cell) {
            Received::Intact => cell.header,
            Received::Corrected(word) => word,
            Received::Bad => return Reassembled::Wrong,
        };
        if is_physical(word) || is_unassigned(Interface::Uni, word) {
            return Reassembled::Nothing;
        }
        if word >> 1 & u32::from(PTI_MANAGEMENT) != 0 {
            return Reassembled::Management;
        }
        let name = word & NAME_BITS;
        if self.frames.len() >= CIRCUITS_MAX && !self.frames.contains_key(&name) {
            return Reassembled::Wrong;
        }
        let frame = self.frames.entry(name).or_default();
        // The last cell of a frame was lost, so this frame and the next one cannot be used.
        if frame.len() >= aal5::pdu_bytes(FRAME_BYTES_MAX) {
            frame.clear();
        }
        frame.extend_from_slice(&cell.payload);
        if word >> 1 & u32::from(PTI_LAST) == 0 {
            return Reassembled::Nothing;
        }
        self.done = self.frames.remove(&name).expect("it was filled above");
        match aal5::open(&self.done) {
            Ok((_, frame)) => Reassembled::Frame(name, frame),
            Err(_) => Reassembled::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_and_circuit_are_reassembled() {
        let mut gather = Reassembler::default();
        for length in (1..200).chain([9188, FRAME_BYTES_MAX]) {
            let frames =
                [0x0000_0640, 0x0010_0650].map(|word| (word, vec![length as u8 ^ word as u8; length]));
            let [mut one, mut two] = [VecDeque::new(), VecDeque::new()];
            segment(&frames[0].1, frames[0].0, Instant::ZERO, &mut one);
            segment(&frames[1].1, frames[1].0, Instant::ZERO, &mut two);
            assert_eq!(one.len(), aal5::cells(length));
            let mut came = Vec::new();
            for cell in one.iter().zip(&two).flat_map(|(one, two)| [one, two]) {
                if let Reassembled::Frame(word, frame) = gather.cell(cell) {
                    came.push((word, frame.to_vec()));
                }
            }
            assert_eq!(came, frames);
        }
        assert!(gather.frames.is_empty());
    }

    #[test]
    fn a_lost_cell_loses_its_frame_and_a_lost_last_cell_two() {
        let mut gather = Reassembler::default();
        let mut cells = VecDeque::new();
        (0..4).for_each(|number| segment(&[number; 100], 0x640, Instant::ZERO, &mut cells));
        // Each frame has three cells. The second cell of frame 0 and the last cell of frame 1 are lost.
        let kept = cells.iter().enumerate().filter(|(at, _)| ![1, 5].contains(at));
        let mut came = Vec::new();
        let mut wrong = 0;
        for (_, cell) in kept {
            match gather.cell(cell) {
                Reassembled::Frame(_, frame) => came.push(frame[0]),
                Reassembled::Wrong => wrong += 1,
                _ => {}
            }
        }
        assert_eq!((came, wrong), (vec![3], 2));
    }
}
