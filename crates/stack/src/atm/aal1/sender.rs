//! AAL1 down: octets of the user into cells.
//!
//! Pointers  one for each cycle of eight cells, in the first cell with an even count from which a block's beginning can be
//!           reached; in count 6, if none was sent before, whatever is to be said (93: just behind; 127: farther).
//!           Blocks of one octet need none.
//! Matrices  begin with count 0, since their cells are a multiple of eight; the mark is the CSI of that cell.

use crate::atm::aal1::{Config, Form, SenderCounters};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use kiban_wire::aal1::{
    COUNTS, HEADER_BYTES, Header, OFFSET_MAX, PAYLOAD_OCTETS, PAYLOAD_OCTETS_WITH_POINTER, Pointer, stamp_bit,
};
use kiban_wire::atm::CELL_PAYLOAD_BYTES;

/// The sending end of a circuit.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    count: u8,
    waiting: VecDeque<u8>,
    /// A matrix that is being sent, and how much of it was.
    matrix: Vec<u8>,
    sent: usize,
    user: Vec<u8>,
    /// Octets to where the next block begins.
    to_block: usize,
    /// Whether this cycle has its pointer.
    pointed: bool,
    stamp: u8,
    counters: SenderCounters,
}

impl Sender {
    /// A sender that has sent nothing.
    ///
    /// # Panics
    /// When blocks have no octets, or no matrix finds room.
    pub fn new(config: Config) -> Sender {
        let (matrix, user) = match config.form {
            Form::Corrected(code) => {
                assert!(config.octets_max >= code.user_octets(), "a matrix has to find room");
                (code.matrix_octets(), code.user_octets())
            }
            Form::Structured { block_octets } => {
                assert!(block_octets > 0, "a block has octets");
                (0, 0)
            }
            Form::Stream => (0, 0),
        };
        Sender {
            config,
            count: 0,
            waiting: VecDeque::new(),
            matrix: vec![0; matrix],
            sent: matrix,
            user: vec![0; user],
            to_block: 0,
            pointed: false,
            stamp: 0,
            counters: SenderCounters::default(),
        }
    }

    /// Octets that are taken now.
    pub fn room(&self) -> usize {
        self.config.octets_max - self.waiting.len()
    }

    /// Takes octets of the user: as many as there is room for. How many.
    pub fn push(&mut self, octets: &[u8]) -> usize {
        let taken = octets.len().min(self.room());
        self.waiting.extend(&octets[..taken]);
        self.counters.octets_in += taken as u64;
        self.counters.octets_refused += (octets.len() - taken) as u64;
        taken
    }

    /// The residual time stamp that the cells from the next with count 0 on carry.
    pub fn set_stamp(&mut self, stamp: u8) {
        self.stamp = stamp;
    }

    /// The sequence count of the next cell.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// The payload of the next cell, if its octets are there.
    pub fn cell(&mut self) -> Option<[u8; CELL_PAYLOAD_BYTES]> {
        let mut payload = [0; CELL_PAYLOAD_BYTES];
        let octets = &mut payload[HEADER_BYTES..];
        let even_bit = match self.config.form {
            Form::Stream | Form::Structured { block_octets: 1 } => {
                self.take(octets)?;
                false
            }
            Form::Corrected(code) => {
                if self.sent == self.matrix.len() {
                    let user = self.waiting.len().checked_sub(code.user_octets()).map(|_| &mut self.user)?;
                    user.iter_mut()
                        .zip(self.waiting.drain(..code.user_octets()))
                        .for_each(|(to, from)| *to = from);
                    code.interleave(&self.user, &mut self.matrix);
                    (self.sent, self.counters.matrices_out) = (0, self.counters.matrices_out + 1);
                }
                octets.copy_from_slice(&self.matrix[self.sent..][..PAYLOAD_OCTETS]);
                self.sent += PAYLOAD_OCTETS;
                self.sent == PAYLOAD_OCTETS
            }
            Form::Structured { block_octets } => self.structured(octets, block_octets)?,
        };
        let csi = match stamp_bit(self.stamp, self.count) {
            Some(bit) => self.config.stamps && bit,
            None => even_bit,
        };
        Header { csi, count: self.count }.write(&mut payload);
        self.count = (self.count + 1) % COUNTS;
        self.counters.cells_out += 1;
        Some(payload)
    }

    /// What happened so far.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Fills a cell with octets of blocks, and its pointer if it is the one to have it: whether it has.
    fn structured(&mut self, octets: &mut [u8], block_octets: usize) -> Option<bool> {
        if self.count == 0 {
            self.pointed = false;
        }
        let pointer = match (self.count.is_multiple_of(2) && !self.pointed, self.count) {
            (false, _) => None,
            (true, 6) => Some(Pointer::to(self.to_block).unwrap_or(Pointer::NONE)),
            (true, _) if self.to_block < usize::from(OFFSET_MAX) => Pointer::to(self.to_block),
            (true, _) => None,
        };
        let used = match pointer {
            Some(pointer) => {
                let (front, rest) = octets.split_at_mut(PAYLOAD_OCTETS - PAYLOAD_OCTETS_WITH_POINTER);
                self.take(rest)?;
                pointer.write(front);
                self.pointed = true;
                self.counters.pointers_out += 1;
                PAYLOAD_OCTETS_WITH_POINTER
            }
            None => {
                self.take(octets)?;
                PAYLOAD_OCTETS
            }
        };
        let behind = used.saturating_sub(self.to_block) % block_octets;
        self.to_block = match self.to_block.checked_sub(used) {
            Some(left) => left,
            None if behind == 0 => 0,
            None => block_octets - behind,
        };
        Some(pointer.is_some())
    }

    /// Moves waiting octets to `target`, if there are enough to fill it.
    fn take(&mut self, target: &mut [u8]) -> Option<()> {
        let whole = target.len() <= self.waiting.len();
        whole.then(|| {
            let octets = self.waiting.drain(..target.len());
            target.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        })
    }
}
