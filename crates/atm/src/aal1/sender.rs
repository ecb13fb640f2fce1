//! AAL1 transmit path: turns user octets into cells.
//!
//! Pointers  there is one per cycle of eight cells, in the first cell with an even count that is within reach
//!           of the start of a block. If no pointer has been sent by count 6, the cell with that count
//!           carries one in any case. (Its value is 93 if the block starts just after the cell, and 127 if
//!           farther away.) Blocks of one octet need no pointers.
//! Matrices  each begins with count 0, since its number of cells is a multiple of eight; the mark is the CSI
//!           bit of its first cell.

use crate::aal1::{Config, Form, SenderCounters};
use crate::wire::aal1::{
    COUNTS, HEADER_BYTES, Header, OFFSET_MAX, PAYLOAD_OCTETS, PAYLOAD_OCTETS_WITH_POINTER, Pointer, stamp_bit,
};
use crate::wire::atm::CELL_PAYLOAD_BYTES;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// The sending end of a circuit.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    count: u8,
    waiting: VecDeque<u8>,
    /// The matrix being sent, and the number of octets sent.
    matrix: Vec<u8>,
    sent: usize,
    user: Vec<u8>,
    /// Number of octets until the next block begins.
    to_block: usize,
    /// Whether the pointer of this cycle has been sent.
    pointed: bool,
    stamp: u8,
    counters: SenderCounters,
}

impl Sender {
    /// Creates a sender.
    ///
    /// # Panics
    /// If blocks have zero octets, or `octets_max` is too small for a matrix.
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

    /// Returns how many more octets are accepted now.
    pub fn room(&self) -> usize {
        self.config.octets_max - self.waiting.len()
    }

    /// Queues as many octets as there is room for and returns how many.
    pub fn push(&mut self, octets: &[u8]) -> usize {
        let taken = octets.len().min(self.room());
        self.waiting.extend(&octets[..taken]);
        self.counters.octets_in += taken as u64;
        self.counters.octets_refused += (octets.len() - taken) as u64;
        taken
    }

    /// Sets the residual time stamp to be carried from the next cell with count 0 on.
    pub fn set_stamp(&mut self, stamp: u8) {
        self.stamp = stamp;
    }

    /// Returns the sequence count of the next cell.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// Returns the payload of the next cell, or `None` if too few octets are queued.
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

    /// Returns the counters.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Fills a cell with octets of blocks and, if one is due, a pointer. Returns whether the cell has a
    /// pointer.
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

    /// Moves queued octets to `target`, or returns `None` if there are too few to fill it.
    fn take(&mut self, target: &mut [u8]) -> Option<()> {
        let whole = target.len() <= self.waiting.len();
        whole.then(|| {
            let octets = self.waiting.drain(..target.len());
            target.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        })
    }
}
