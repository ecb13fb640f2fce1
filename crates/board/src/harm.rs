//! Harm: what a line does to cells, and a cable to packets, besides delaying them. Lines of the simulator do it, and real links.
//!
//! Goal      loss, bit errors, duplication, reordering between circuits and stalls, from a seed.
//! Cells     each cell meets each harm with its probability, independent of all others; a bit error flips one bit of
//!           the 424, header and HEC included. Packets likewise; a bit error flips one of their bits.
//! Order     ATM keeps the order within a circuit, so reordering delays a *circuit* for a while, and the others
//!           overtake it. IP promises no order: a packet is delayed alone. A stall holds the whole line.
//! Speed     a line without harm draws no chance at all.

use alloc::vec::Vec;
use core::time::Duration;
use kiban_ground::{Instant, SimRng};
use kiban_stack::atm::TimedCell;
use kiban_wire::atm::CELL_PAYLOAD_BYTES;

kiban_ground::counters! {
    /// What a line did to cells, or a cable to packets.
    pub struct HarmCounters {
        /// Cells or packets lost.
        lost,
        /// Cells or packets with a bit flipped.
        flipped,
        /// Cells or packets that came twice.
        doubled,
        /// Times that a circuit or a packet was held back.
        held_back,
        /// Times that the line stood still.
        stalls,
    }
}

/// What a line does to cells, or a cable to packets. Probabilities are per cell or packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Harm {
    /// A cell is lost.
    pub loss: f64,
    /// Beside that each n-th cell is lost; 0: none.
    pub lose_every: u64,
    /// One bit of a cell is flipped.
    pub bit_error: f64,
    /// A cell comes twice.
    pub duplicate: f64,
    /// The cell's circuit is held back for up to `hold_back`: cells of other circuits overtake its. On a cable, the packet:
    /// later ones overtake it.
    pub reorder: f64,
    /// How long a circuit or a packet is held back at most.
    pub hold_back: Duration,
    /// The line stands still for up to `stall`.
    pub stalls: f64,
    /// How long the line stands still at most.
    pub stall: Duration,
}

impl Harm {
    /// No harm.
    pub const NONE: Harm = Harm {
        loss: 0.0,
        lose_every: 0,
        bit_error: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        hold_back: Duration::ZERO,
        stalls: 0.0,
        stall: Duration::ZERO,
    };

    /// A bit of everything, from a seed: what a hundred worlds in CI meet.
    pub fn of_seed(seed: u64) -> Harm {
        let mut chance = SimRng::from_seed(seed ^ 0x6861_726d);
        let mut some = |most: f64| if chance.happens(0.6) { chance.unit() * most } else { 0.0 };
        Harm {
            loss: some(3e-4),
            lose_every: 0,
            bit_error: some(2e-4),
            duplicate: some(1e-4),
            reorder: some(1e-3),
            hold_back: Duration::from_micros(300),
            stalls: some(2e-5),
            stall: Duration::from_millis(20),
        }
    }
}

/// A line's harm at work.
#[derive(Debug)]
pub struct Harmful {
    harm: Harm,
    chance: SimRng,
    /// Cells or packets that came by, for the harm that counts them.
    met: u64,
    /// Circuits held back: header bits that name them, and until when.
    held: Vec<(u32, Instant)>,
    stalled_until: Instant,
    counters: HarmCounters,
}

/// The bits of a header word that name the circuit.
const NAME_BITS: u32 = 0xffff_fff0;

impl Harmful {
    /// No harm has been done yet.
    pub fn new(harm: Harm, chance: SimRng) -> Harmful {
        Harmful {
            harm,
            chance,
            met: 0,
            held: Vec::new(),
            stalled_until: Instant::ZERO,
            counters: HarmCounters::default(),
        }
    }

    /// Other harm from now on.
    pub fn set(&mut self, harm: Harm) {
        self.harm = harm;
    }

    /// What it has done.
    pub fn counters(&self) -> &HarmCounters {
        &self.counters
    }

    /// Whether it does nothing.
    pub fn is_none(&self) -> bool {
        self.harm == Harm::NONE
    }

    /// Does what is to be done to `cells`, from place `from` on. Afterwards they stand in the order of their moments.
    pub fn apply(&mut self, cells: &mut Vec<TimedCell>, from: usize) {
        let fresh = cells.split_off(from);
        for mut cell in fresh {
            if self.loses() {
                continue;
            }
            if self.chance.happens(self.harm.bit_error) {
                self.counters.flipped += 1;
                self.flip(&mut cell);
            }
            cell.at = self.moment(&cell);
            cells.push(cell);
            if self.chance.happens(self.harm.duplicate) {
                self.counters.doubled += 1;
                cells.push(cell);
            }
        }
        // Held circuits stand later than those that overtook them; cells of one circuit stay in order.
        cells[from..].sort_by_key(|cell| cell.at);
    }

    /// The same for a packet that would arrive at `at`: what arrives in its place goes to `put`.
    pub fn meet(&mut self, at: Instant, mut bytes: Vec<u8>, put: &mut dyn FnMut(Instant, Vec<u8>)) {
        if self.is_none() {
            return put(at, bytes);
        }
        if self.loses() {
            return;
        }
        if self.chance.happens(self.harm.bit_error) && !bytes.is_empty() {
            self.counters.flipped += 1;
            let bit = self.chance.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.stall(at);
        let mut at = at.max(self.stalled_until);
        if self.chance.happens(self.harm.reorder) {
            self.counters.held_back += 1;
            at += self.up_to(self.harm.hold_back);
        }
        if self.chance.happens(self.harm.duplicate) {
            self.counters.doubled += 1;
            put(at, bytes.clone());
        }
        put(at, bytes);
    }

    /// Whether the next cell or packet is lost.
    fn loses(&mut self) -> bool {
        self.met += 1;
        let by_count = self.harm.lose_every > 0 && self.met.is_multiple_of(self.harm.lose_every);
        let is_lost = self.chance.happens(self.harm.loss) || by_count;
        self.counters.lost += u64::from(is_lost);
        is_lost
    }

    /// At `at` the line may begin to stand still.
    fn stall(&mut self, at: Instant) {
        if self.chance.happens(self.harm.stalls) {
            self.counters.stalls += 1;
            self.stalled_until = self.stalled_until.max(at + self.up_to(self.harm.stall));
        }
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.chance.below(most.as_nanos() as u64 + 1))
    }

    fn flip(&mut self, cell: &mut TimedCell) {
        let bit = self.chance.below(8 * (5 + CELL_PAYLOAD_BYTES as u64)) as usize;
        match bit {
            0..32 => cell.header ^= 1 << bit,
            32..40 => cell.hec ^= 1 << (bit - 32),
            _ => cell.payload[(bit - 40) / 8] ^= 1 << (bit % 8),
        }
    }

    /// When the cell arrives, stalls and held circuits considered.
    fn moment(&mut self, cell: &TimedCell) -> Instant {
        self.stall(cell.at);
        let name = cell.header & NAME_BITS;
        if self.chance.happens(self.harm.reorder) {
            self.counters.held_back += 1;
            let until = cell.at + self.up_to(self.harm.hold_back);
            match self.held.iter_mut().find(|held| held.0 == name) {
                Some(held) => held.1 = held.1.max(until),
                None => self.held.push((name, until)),
            }
        }
        self.held.retain(|held| held.1 > cell.at);
        let held = self.held.iter().find(|held| held.0 == name).map_or(Instant::ZERO, |held| held.1);
        cell.at.max(held).max(self.stalled_until)
    }
}
