//! AAL1 up: cells into as many octets as were sent.
//!
//! Header    one wrong bit is put right unless the header before was wrong too (I.363.1 §2.4.2.2: correction and detection mode).
//! Held      a cell is delivered when the next has come ([`Sequence`]).
//! Stream    a lost cell becomes 47 dummies.
//! Matrix    a lost cell is an erasure. A matrix begins with its mark; one that is cut short by the next one's mark is
//!           filled up with erasures, so that the number of octets is kept.
//! Block     whole blocks are delivered. A lost cell becomes 47 dummies, which are one too many if it had a pointer: the next
//!           pointer says where blocks begin, and octets are filled in or left out until they do.

use crate::atm::aal1::sequence::{Held, Sequence};
use crate::atm::aal1::{Config, Form, ReceiverCounters};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use kiban_wire::aal1::fec::{self, Code};
use kiban_wire::aal1::{
    COUNTS, HEADER_BYTES, Header, HeaderCheck, PAYLOAD_OCTETS, POINTER_BYTES, Pointer, check, with_stamp_bit,
};
use kiban_wire::atm::CELL_PAYLOAD_BYTES;

/// Stamps that are kept until somebody asks for them.
const STAMPS_MAX: usize = 64;

/// The receiving end of a circuit.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    /// The header before was wrong.
    detecting: bool,
    sequence: Sequence,
    held: Option<(Option<Header>, [u8; CELL_PAYLOAD_BYTES])>,
    matrix: Option<Matrix>,
    block: Block,
    stamps: Stamps,
    counters: ReceiverCounters,
}

/// A matrix that is being filled.
#[derive(Debug)]
struct Matrix {
    code: Code,
    octets: Vec<u8>,
    lost: [bool; fec::CELLS_MAX],
    user: Vec<u8>,
    cells: usize,
    /// Whether it is known where matrices begin.
    aligned: bool,
}

/// A block that is being filled.
#[derive(Debug, Default)]
struct Block {
    octets: Vec<u8>,
    /// Octets before a block begins; none: nobody knows.
    skip: Option<usize>,
}

/// The stamp of the cycle under way.
#[derive(Debug, Default)]
struct Stamps {
    bits: u8,
    seen: u8,
    last: u8,
    whole: VecDeque<Option<u8>>,
}

impl Receiver {
    /// A receiver that has seen nothing.
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

    /// A cell arrived: what can be delivered now is appended to `out`.
    pub fn on_cell(&mut self, payload: &[u8; CELL_PAYLOAD_BYTES], out: &mut Vec<u8>) {
        self.counters.cells_in += 1;
        let header = self.judge(payload[0]);
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

    /// No more cells come: the one that is held is delivered, if it belongs here.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some((header, cell)) = self.held.take().filter(|_| self.sequence.is_in_sync()) {
            self.keep(header, &cell, out);
        }
        self.sequence = Sequence::default();
    }

    /// The stamp of the next cycle that has gone by, oldest first: nothing in it where a bit of it was lost.
    pub fn next_stamp(&mut self) -> Option<Option<u8>> {
        self.stamps.whole.pop_front()
    }

    /// What happened so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    fn judge(&mut self, byte: u8) -> Option<Header> {
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

    /// A cell that belongs here.
    fn keep(&mut self, header: Option<Header>, cell: &[u8; CELL_PAYLOAD_BYTES], out: &mut Vec<u8>) {
        if self.config.stamps {
            self.stamps.see(header);
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

    /// A cell that is lost.
    fn fill(&mut self, out: &mut Vec<u8>) {
        if self.config.stamps {
            self.stamps.see(None);
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

    /// A cell of a matrix, or the place of one that is lost. `known`: its header says whether it begins a matrix.
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
            // The mark should be here: nobody knows where this cell stands.
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

    /// A pointer says where a block begins.
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
    /// A cell that belongs here, or the place of one whose header is not known.
    fn see(&mut self, header: Option<Header>) {
        // What is lost stands where the count goes on.
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
