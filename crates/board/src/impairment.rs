//! Impairments that a line applies to cells, and a cable to packets, in addition to delay. They are used by
//! the simulator's lines and by real links.
//!
//! Purpose          apply loss, bit errors, duplication, reordering between circuits, and stalls,
//!                  reproducibly from a seed.
//! Cells            each impairment applies to each cell with its probability, independently of all others; a
//!                  bit error flips one of the cell's 424 bits, including header and HEC. The same applies to
//!                  packets: a bit error flips one bit of the packet.
//! Order            ATM keeps the order within a circuit, so reordering delays a whole *circuit* for a while,
//!                  and others overtake it. IP does not guarantee order, so a packet is delayed alone. A
//!                  stall delays the whole line.
//! Speed            a line without impairments does not draw random numbers.

use alloc::vec::Vec;
use core::time::Duration;
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::CELL_PAYLOAD_BYTES;
use kiban_base::{Instant, SimRng};

kiban_base::counters! {
    /// Counters of impairments.
    pub struct ImpairmentCounters {
        /// Cells or packets lost.
        lost,
        /// Cells or packets with a bit flipped.
        corrupted,
        /// Cells or packets that were duplicated.
        duplicated,
        /// Times that a circuit or a packet was held back.
        reordered,
        /// Number of stalls of the line.
        stalls,
    }
}

/// The impairments of a line or a cable. Probabilities are per cell or packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImpairmentConfig {
    /// Probability that a cell is lost.
    pub loss: f64,
    /// In addition, every n-th cell is lost; 0 disables this.
    pub lose_every: u64,
    /// Probability that one bit of a cell is flipped.
    pub bit_error: f64,
    /// Probability that a cell is duplicated.
    pub duplicate: f64,
    /// Probability that the cell's circuit is held back for up to `hold_back`, so that cells of other
    /// circuits overtake it. On a cable, the packet is held back, and later ones overtake it.
    pub reorder: f64,
    /// The longest time that a circuit or a packet is held back.
    pub hold_back: Duration,
    /// Probability that the line stalls for up to `stall`.
    pub stalls: f64,
    /// The longest stall.
    pub stall: Duration,
}

impl ImpairmentConfig {
    /// No impairments.
    pub const NONE: ImpairmentConfig = ImpairmentConfig {
        loss: 0.0,
        lose_every: 0,
        bit_error: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        hold_back: Duration::ZERO,
        stalls: 0.0,
        stall: Duration::ZERO,
    };

    /// Returns a mix of all impairments, derived from a seed, for simulations in CI.
    pub fn from_seed(seed: u64) -> ImpairmentConfig {
        let mut rng = SimRng::from_seed(seed ^ 0x6861_726d);
        let mut some = |most: f64| if rng.happens(0.6) { rng.unit() * most } else { 0.0 };
        ImpairmentConfig {
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

/// Applies the impairments of one line.
#[derive(Debug)]
pub struct Impairment {
    impairment: ImpairmentConfig,
    rng: SimRng,
    /// Number of cells or packets so far, for `lose_every`.
    met: u64,
    /// The header bits of each circuit that is held back, and the time at which it is released.
    held: Vec<(u32, Instant)>,
    stalled_until: Instant,
    counters: ImpairmentCounters,
}

/// The bits of a header word that identify the circuit.
const NAME_BITS: u32 = 0xffff_fff0;

impl Impairment {
    /// Returns an instance with all counters at zero.
    pub fn new(impairment: ImpairmentConfig, rng: SimRng) -> Impairment {
        Impairment {
            impairment,
            rng,
            met: 0,
            held: Vec::new(),
            stalled_until: Instant::ZERO,
            counters: ImpairmentCounters::default(),
        }
    }

    /// Changes the impairments.
    pub fn set(&mut self, impairment: ImpairmentConfig) {
        self.impairment = impairment;
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ImpairmentCounters {
        &self.counters
    }

    /// Returns whether there are no impairments.
    pub fn is_none(&self) -> bool {
        self.impairment == ImpairmentConfig::NONE
    }

    /// Applies the impairments to `cells` from index `from` on. Afterwards they are in order of arrival time.
    pub fn apply(&mut self, cells: &mut Vec<TimedCell>, from: usize) {
        let fresh = cells.split_off(from);
        for mut cell in fresh {
            if self.loses() {
                continue;
            }
            if self.rng.happens(self.impairment.bit_error) {
                self.counters.corrupted += 1;
                self.flip_bit(&mut cell);
            }
            cell.at = self.delivery_time(&cell);
            cells.push(cell);
            if self.rng.happens(self.impairment.duplicate) {
                self.counters.duplicated += 1;
                cells.push(cell);
            }
        }
        // Move the cells of held circuits behind the cells that overtook them; the sort is stable, so the
        // cells of one circuit stay in order.
        cells[from..].sort_by_key(|cell| cell.at);
    }

    /// Applies the impairments to a packet that would arrive at `at`; passes each packet that arrives to
    /// `put`.
    pub fn apply_to_packet(
        &mut self,
        at: Instant,
        mut bytes: Vec<u8>,
        put: &mut dyn FnMut(Instant, Vec<u8>),
    ) {
        if self.is_none() {
            return put(at, bytes);
        }
        if self.loses() {
            return;
        }
        if self.rng.happens(self.impairment.bit_error) && !bytes.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.rng.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.stall(at);
        let mut at = at.max(self.stalled_until);
        if self.rng.happens(self.impairment.reorder) {
            self.counters.reordered += 1;
            at += self.random_duration(self.impairment.hold_back);
        }
        if self.rng.happens(self.impairment.duplicate) {
            self.counters.duplicated += 1;
            put(at, bytes.clone());
        }
        put(at, bytes);
    }

    /// Returns whether the next cell or packet is lost.
    fn loses(&mut self) -> bool {
        self.met += 1;
        let by_count = self.impairment.lose_every > 0 && self.met.is_multiple_of(self.impairment.lose_every);
        let is_lost = self.rng.happens(self.impairment.loss) || by_count;
        self.counters.lost += u64::from(is_lost);
        is_lost
    }

    /// Starts a stall at `at`, with the configured probability.
    fn stall(&mut self, at: Instant) {
        if self.rng.happens(self.impairment.stalls) {
            self.counters.stalls += 1;
            self.stalled_until = self.stalled_until.max(at + self.random_duration(self.impairment.stall));
        }
    }

    fn random_duration(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.rng.below(most.as_nanos() as u64 + 1))
    }

    fn flip_bit(&mut self, cell: &mut TimedCell) {
        let bit = self.rng.below(8 * (5 + CELL_PAYLOAD_BYTES as u64)) as usize;
        match bit {
            0..32 => cell.header ^= 1 << bit,
            32..40 => cell.hec ^= 1 << (bit - 32),
            _ => cell.payload[(bit - 40) / 8] ^= 1 << (bit % 8),
        }
    }

    /// Returns when a cell arrives, considering stalls and held circuits.
    fn delivery_time(&mut self, cell: &TimedCell) -> Instant {
        self.stall(cell.at);
        let name = cell.header & NAME_BITS;
        if self.rng.happens(self.impairment.reorder) {
            self.counters.reordered += 1;
            let until = cell.at + self.random_duration(self.impairment.hold_back);
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
