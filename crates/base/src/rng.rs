//! Random numbers: one generator for numbers that must not be predictable, and one for runs that must be
//! repeatable.
//!
//! Secure     [`SecureRng`], ChaCha20 (RFC 8439) with a 256-bit key. Protocols have access only to this one,
//!            so it supplies every number that appears on the wire, authenticates a peer, or serves as a key.
//!            Its output may be sent as it is: it reveals nothing about earlier or later output.
//! Simulated  [`SimRng`], SplitMix64 (Steele, Lea, Flood 2014), for impairments, generated load and tests.
//!            One output reveals its state and thereby every other output, so it is never used for a secret
//!            or sent on a wire.
//! Keys       [`RngKey`], come from the operating system where a board, NIC or endpoint uses real links
//!            (`kiban_os::random`), and from a seed in simulations, so that the same seed gives the same run.
//! Limits     a key cannot be copied, displayed or compared, and each generator has its own. The key cannot
//!            be computed from the output, but it stays in memory: anyone who can read the process's memory
//!            can predict later output.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use core::fmt;

/// The key of a [`SecureRng`]: 256 bits.
pub struct RngKey([u8; 32]);

impl RngKey {
    /// Wraps 32 unpredictable bytes, from the operating system or from another [`SecureRng`].
    pub const fn from_bytes(bytes: [u8; 32]) -> RngKey {
        RngKey(bytes)
    }

    /// Derives a key from a seed, for simulations and tests. Anyone who knows or guesses the seed knows the
    /// key.
    pub fn for_simulation(seed: u64) -> RngKey {
        let mut rng = SimRng::from_seed(seed);
        let mut bytes = [0; 32];
        bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = rng.draw().to_le_bytes());
        RngKey(bytes)
    }
}

impl fmt::Debug for RngKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RngKey(..)")
    }
}

/// A cryptographically secure generator.
pub struct SecureRng(ChaCha20Rng);

impl SecureRng {
    /// Creates a generator.
    pub fn new(key: RngKey) -> SecureRng {
        SecureRng(ChaCha20Rng::from_seed(key.0))
    }

    /// Draws the key for another generator. That key reveals nothing about this generator.
    pub fn draw_key(&mut self) -> RngKey {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        RngKey(bytes)
    }

    /// Draws 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws 32 bits.
    pub fn draw_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Draws a number in `0..bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.draw(), bound)
    }

    /// Draws a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        unit(self.draw())
    }
}

impl fmt::Debug for SecureRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecureRng(..)")
    }
}

/// Maps 64 bits to `0..bound` with negligible bias (Lemire's multiplication). Returns zero if `bound` is
/// zero.
fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// Maps 64 bits to `0.0..1.0`.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A generator for simulations: the same seed gives the same output on every machine and in every version.
/// Its state can be computed from its output: use [`SecureRng`] for anything that leaves the machine.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: u64,
}

impl SimRng {
    /// Creates a generator; the same `seed` gives the same output.
    pub const fn from_seed(seed: u64) -> SimRng {
        SimRng { state: seed }
    }

    /// Creates a generator for a named part of the run, so that draws in one part do not affect other parts.
    pub fn fork(&self, name: u64) -> SimRng {
        let mut fork = SimRng { state: self.state ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        fork.draw();
        fork
    }

    /// Draws 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number in `0..bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.draw(), bound)
    }

    /// Draws a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        unit(self.draw())
    }

    /// Returns true with the given probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_for_seed_zero() {
        let mut rng = SimRng::from_seed(0);
        assert_eq!(rng.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.draw(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut rng = SimRng::from_seed(7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[rng.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }

    #[test]
    fn the_secure_generator_is_chacha20_with_its_published_key_stream() {
        // RFC 8439 appendix A.1, test vectors 1 and 2: key and nonce all zero, blocks 0 and 1.
        let mut rng = SecureRng::new(RngKey::from_bytes([0; 32]));
        let words: std::vec::Vec<u32> = (0..20).map(|_| rng.draw_u32()).collect();
        assert_eq!(words[..4], [0xade0_b876, 0x903d_f1a0, 0xe56a_5d40, 0x28bd_8653]);
        assert_eq!(words[16..], [0xbee7_079f, 0x7a38_5155, 0x7c97_ba98, 0x0d08_2d73]);
    }

    #[test]
    fn keys_are_generators_of_their_own_and_are_not_shown() {
        let draw = |key: RngKey| SecureRng::new(key).draw();
        assert_eq!(draw(RngKey::for_simulation(7)), draw(RngKey::for_simulation(7)), "a run can be repeated");
        assert_ne!(draw(RngKey::for_simulation(7)), draw(RngKey::for_simulation(8)));
        let mut parent = SecureRng::new(RngKey::for_simulation(7));
        let children = [parent.draw_key(), parent.draw_key()].map(draw);
        assert!(children[0] != children[1] && !children.contains(&parent.draw()));
        let shown = std::format!("{:?} {parent:?}", RngKey::from_bytes([0xab; 32]));
        assert_eq!(shown, "RngKey(..) SecureRng(..)");
    }
}
