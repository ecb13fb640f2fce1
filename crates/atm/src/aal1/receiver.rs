//! AAL1 receive path: turns cells into as many octets as were sent.
//!
//! Header    a single-bit error is corrected unless the previous header was wrong too (I.363.1 §2.4.2.2:
//!           correction and detection mode).
//! Delay     a cell is delivered when the next has arrived ([`Sequence`]).
//! Stream    a lost cell becomes 47 dummy octets.
//! Matrix    a lost cell is an erasure. A matrix begins with its mark. If the next mark comes too early, the
//!           matrix is completed with erasures, so that the number of octets is preserved.
//! Block     whole blocks are delivered. A lost cell becomes 47 dummy octets, which is one too many if the
//!           cell had a pointer. The next pointer gives the block boundary, and octets are inserted or
//!           dropped to match it.

use crate::aal1::sequence::{Held, Sequence};
use crate::aal1::{Config, Form, ReceiverCounters};
use crate::wire::aal1::fec::{self, Code};
use crate::wire::aal1::{
    COUNTS, HEADER_BYTES, Header, HeaderCheck, PAYLOAD_OCTETS, POINTER_BYTES, Pointer, check, with_stamp_bit,
};
use crate::wire::atm::CELL_PAYLOAD_BYTES;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of stamps kept until they are fetched.
const STAMPS_MAX: usize = 64;

/// The receiving end of a circuit.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    /// Whether the previous header was wrong (detection mode).
    detecting: bool,
    sequence: Sequence,
    held: Option<(Option<Header>, [u8; CELL_PAYLOAD_BYTES])>,
    matrix: Option<Matrix>,
    block: Block,
    stamps: Stamps,
    counters: ReceiverCounters,
}

/// The matrix being filled.
#[derive(Debug)]
struct Matrix {
    code: Code,
    octets: Vec<u8>,
    lost: [bool; fec::CELLS_MAX],
    user: Vec<u8>,
    cells: usize,
    /// Whether the position of matrices in the stream is known.
    aligned: bool,
}

/// The block being filled.
#[derive(Debug, Default)]
struct Block {
    octets: Vec<u8>,
    /// Octets before the next block begins; `None` if unknown.
    skip: Option<usize>,
}

/// The time stamp of the current cycle.
#[derive(Debug, Default)]
struct Stamps {
    bits: u8,
    seen: u8,
    last: u8,
    whole: VecDeque<Option<u8>>,
}

impl Receiver {
    /// Creates a receiver without history.
    pub fn new(config: Config) -> Receiver {
        let matrix = match config.form {
            Form::Corrected(code) => Some(Matrix {
                code,
                octets: vec![0; code.matrix_octets()],
                lost: [false; fec::CELLS_MAX],
                user: vec![0; code.user_octets()],
                cells: 0,
                aligned: false,
            }),
            _ => None,
        };
        let mut block = Block::default();
        if let Form::Structured { block_octets: 1 } = config.form {
            block.skip = Some(0);
        }
        Receiver {
            config,
            detecting: false,
            sequence: Sequence::default(),
            held: None,
            matrix,
            block,
            stamps: Stamps::default(),
            counters: ReceiverCounters::default(),
        }
    }

    /// Processes a received cell and appends the octets that can be delivered to `out`.
    pub fn on_cell(&mut self, payload: &[u8; CELL_PAYLOAD_BYTES], out: &mut Vec<u8>) {
        self.counters.cells_in += 1;
        let header = self.validate_header(payload[0]);
        let step = self.sequence.on_cell(header.map(|header| header.count));
        self.counters.sequence_losses += u64::from(step.broken);
        let arrived = step.hold.then_some((header, *payload));
        let Some((held, cell)) = core::mem::replace(&mut self.held, arrived) else {
            self.counters.cells_dropped += u64::from(!step.hold);
            return;
        };
        self.counters.cells_dropped += u64::from(!step.hold);
        match step.held {
            Held::Drop => self.counters.cells_dropped += 1,
            Held::Misinserted => self.counters.cells_misinserted += 1,
            Held::Keep => {
                self.counters.cells_lost += u64::from(step.lost);
                for _ in 0..step.lost {
                    self.fill(out);
                }
                self.keep(held, &cell, out);
            }
        }
    }

    /// Ends the stream: delivers the held cell if it is in sequence.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some((header, cell)) = self.held.take().filter(|_| self.sequence.is_in_sync()) {
            self.keep(header, &cell, out);
        }
        self.sequence = Sequence::default();
    }

    /// Returns the stamp of the next completed cycle, oldest first. The inner `None` means that one of its
    /// bits was lost.
    pub fn next_stamp(&mut self) -> Option<Option<u8>> {
        self.stamps.whole.pop_front()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    fn validate_header(&mut self, byte: u8) -> Option<Header> {
        let was_detecting = self.detecting;
        match check(byte) {
            HeaderCheck::Intact(header) => {
                self.detecting = false;
                Some(header)
            }
            HeaderCheck::Corrected(header) if !was_detecting => {
                self.detecting = true;
                self.counters.headers_corrected += 1;
                Some(header)
            }
            _ => {
                self.detecting = true;
                self.counters.headers_invalid += 1;
                None
            }
        }
    }

    /// Processes a cell that is in sequence.
    fn keep(&mut self, header: Option<Header>, cell: &[u8; CELL_PAYLOAD_BYTES], out: &mut Vec<u8>) {
        if self.config.stamps {
            self.stamps.on_csi(header);
        }
        let octets = &cell[HEADER_BYTES..];
        let marked = header.is_some_and(|header| header.csi && header.count.is_multiple_of(2));
        match self.config.form {
            Form::Stream => {
                out.extend_from_slice(octets);
                self.counters.octets_out += PAYLOAD_OCTETS as u64;
            }
            Form::Corrected(_) => {
                let begins = header.is_some_and(|header| header.csi && header.count == 0);
                self.keep_in_matrix(Some(octets), begins, header.is_some(), out);
            }
            Form::Structured { block_octets: 1 } => self.keep_in_block(octets, 1, out),
            Form::Structured { block_octets } if marked => {
                match Pointer::read(octets) {
                    Ok((pointer, _)) => self.align(pointer, block_octets),
                    Err(_) => self.counters.pointers_malformed += 1,
                }
                self.keep_in_block(&octets[POINTER_BYTES..], block_octets, out);
            }
            Form::Structured { block_octets } => self.keep_in_block(octets, block_octets, out),
        }
    }

    /// Inserts dummies for a lost cell.
    fn fill(&mut self, out: &mut Vec<u8>) {
        if self.config.stamps {
            self.stamps.on_csi(None);
        }
        let dummies = [self.config.dummy; PAYLOAD_OCTETS];
        match self.config.form {
            Form::Stream => {
                out.extend_from_slice(&dummies);
                self.counters.octets_out += PAYLOAD_OCTETS as u64;
                self.counters.octets_dummy += PAYLOAD_OCTETS as u64;
            }
            Form::Corrected(_) => self.keep_in_matrix(None, false, false, out),
            Form::Structured { block_octets } => {
                if self.block.skip.is_some() {
                    self.counters.octets_dummy += PAYLOAD_OCTETS as u64;
                }
                self.keep_in_block(&dummies, block_octets, out);
            }
        }
    }

    /// Adds a cell to the matrix, or an erasure if `octets` is `None`. `known` means that its header is
    /// valid, so `begins` can be trusted.
    fn keep_in_matrix(&mut self, octets: Option<&[u8]>, begins: bool, known: bool, out: &mut Vec<u8>) {
        let matrix = self.matrix.as_mut().expect("a form with matrices has one");
        if begins {
            if matrix.aligned && matrix.cells > 0 {
                self.counters.matrices_cut += 1;
                matrix.octets[matrix.cells * PAYLOAD_OCTETS..].fill(self.config.dummy);
                matrix.lost[matrix.cells..].fill(true);
                matrix.deliver(&mut self.counters, out);
            }
            (matrix.aligned, matrix.cells) = (true, 0);
        } else if matrix.cells == 0 && known {
            // The mark is missing from the cell that should carry it, so the position of the cell is unknown.
            matrix.aligned = false;
        }
        if !matrix.aligned {
            self.counters.cells_dropped += u64::from(octets.is_some());
            return;
        }
        let place = &mut matrix.octets[matrix.cells * PAYLOAD_OCTETS..][..PAYLOAD_OCTETS];
        match octets {
            Some(octets) => place.copy_from_slice(octets),
            None => place.fill(self.config.dummy),
        }
        matrix.lost[matrix.cells] = octets.is_none();
        matrix.cells += 1;
        if matrix.cells == matrix.code.cells() {
            matrix.deliver(&mut self.counters, out);
        }
    }

    /// Aligns the block boundary with a pointer.
    fn align(&mut self, pointer: Pointer, block_octets: usize) {
        let Some(offset) = pointer.offset() else { return };
        let Block { octets, skip } = &mut self.block;
        match skip {
            None => *skip = Some(offset),
            Some(0) => {
                if offset > block_octets {
                    self.counters.pointers_malformed += 1;
                    return;
                }
                let have = (block_octets - offset) % block_octets;
                if octets.len() == have {
                    return;
                }
                self.counters.blocks_realigned += 1;
                self.counters.octets_dummy += have.saturating_sub(octets.len()) as u64;
                octets.resize(have, self.config.dummy);
            }
            Some(left) => *left = offset,
        }
    }

    fn keep_in_block(&mut self, mut octets: &[u8], block_octets: usize, out: &mut Vec<u8>) {
        let Block { octets: block, skip } = &mut self.block;
        let Some(skip) = skip else { return };
        let skipped = octets.len().min(*skip);
        (octets, *skip) = (&octets[skipped..], *skip - skipped);
        while !octets.is_empty() {
            let count = octets.len().min(block_octets - block.len());
            block.extend_from_slice(&octets[..count]);
            octets = &octets[count..];
            if block.len() == block_octets {
                self.counters.octets_out += block_octets as u64;
                out.append(block);
            }
        }
    }
}

impl Matrix {
    fn deliver(&mut self, counters: &mut ReceiverCounters, out: &mut Vec<u8>) {
        let lost = &self.lost[..self.code.cells()];
        counters.matrices += 1;
        match self.code.recover(&self.octets, lost, &mut self.user) {
            Ok(corrected) => {
                counters.octets_corrected += corrected as u64;
                counters.matrices_corrected += u64::from(corrected > 0 || lost.contains(&true));
            }
            Err(_) => {
                counters.matrices_uncorrectable += 1;
                let lost = lost.iter().filter(|lost| **lost).count() * PAYLOAD_OCTETS;
                counters.octets_dummy += lost.min(self.user.len()) as u64;
            }
        }
        counters.octets_out += self.user.len() as u64;
        out.extend_from_slice(&self.user);
        self.cells = 0;
    }
}

impl Stamps {
    /// Processes the CSI bit of a cell in sequence, or a cell without a valid header.
    fn on_csi(&mut self, header: Option<Header>) {
        // A cell without a valid header is assumed to carry the next sequence count.
        let count = header.map_or((self.last + 1) % COUNTS, |header| header.count);
        if count < self.last {
            (self.bits, self.seen) = (0, 0);
        }
        self.last = count;
        if let Some(header) = header.filter(|header| header.count % 2 == 1) {
            self.bits = with_stamp_bit(self.bits, header.count, header.csi);
            self.seen |= 1 << (header.count / 2);
        }
        if count == COUNTS - 1 {
            let whole = (self.seen == 0b1111).then_some(self.bits);
            if self.whole.len() == STAMPS_MAX {
                self.whole.pop_front();
            }
            self.whole.push_back(whole);
            (self.bits, self.seen) = (0, 0);
        }
    }
}
