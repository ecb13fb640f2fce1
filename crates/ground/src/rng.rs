//! Chance with a seed: the same seed gives the same run, byte for byte, on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, one multiply-xor-shift mix. It is a generator for
//! simulation and for spreading load; secrets (initial sequence numbers, hash keys) are mixed with a key that the
//! driver lends from the operating system.

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: u64,
}

impl SimRng {
    /// A source that repeats itself for the same `seed`.
    pub const fn from_seed(seed: u64) -> SimRng {
        SimRng { state: seed }
    }

    /// A source of its own for a named part of the run, so that one part's draws never move another's.
    pub fn fork(&self, name: u64) -> SimRng {
        let mut fork = SimRng { state: self.state ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        fork.draw();
        fork
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, without bias worth the name (Lemire's multiplication). Zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with the given probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_for_seed_zero() {
        let mut chance = SimRng::from_seed(0);
        assert_eq!(chance.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(chance.draw(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut chance = SimRng::from_seed(7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[chance.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&chance.unit())));
    }
}
