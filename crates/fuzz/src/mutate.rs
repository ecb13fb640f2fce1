//! A search without external tools. Starting from a seed, inputs with new features are kept, mutated and
//! crossed.
//!
//! It needs no instrumented build, because targets report features. The same seed gives the same run.

use crate::features::Features;
use crate::target::Target;
use kiban_base::SimRng;
use std::collections::HashSet;

/// Maximum length of an input produced by mutation.
const INPUT_BYTES_MAX: usize = 4096;

/// A search over one target.
#[derive(Debug)]
pub struct Search {
    target: Target,
    rng: SimRng,
    seen: HashSet<u64>,
    /// Inputs that have reached new features; the seeds come first.
    pub kept: Vec<Vec<u8>>,
}

impl Search {
    /// Creates a search and runs each of `inputs`.
    pub fn new(target: Target, seed: u64, inputs: Vec<Vec<u8>>) -> Search {
        let mut search =
            Search { target, rng: SimRng::from_seed(seed), seen: HashSet::new(), kept: Vec::new() };
        search.kept.push(Vec::new());
        inputs.into_iter().for_each(|input| {
            search.attempt(input);
        });
        search
    }

    /// Runs an input and keeps it if it has a new feature.
    pub fn attempt(&mut self, input: Vec<u8>) -> bool {
        let before = self.seen.len();
        let mut see = |feature| {
            self.seen.insert(feature);
        };
        (self.target.run)(&input, &mut Features::to(&mut see));
        let is_new = self.seen.len() > before;
        if is_new {
            self.kept.push(input);
        }
        is_new
    }

    /// Returns the next input to try.
    pub fn next_input(&mut self) -> Vec<u8> {
        let count = self.kept.len() as u64;
        let mut input = self.kept[self.rng.below(count) as usize].clone();
        for _ in 0..=self.rng.below(4) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let rng = &mut self.rng;
        let at = rng.below(input.len() as u64 + 1) as usize;
        let length = (rng.below(16) as usize + 1).min(input.len() - at);
        match rng.below(8) {
            0 if at < input.len() => input[at] ^= 1 << rng.below(8),
            1 if at < input.len() => input[at] = rng.draw() as u8,
            // Use the boundaries of ranges, where behaviour changes.
            2 if at < input.len() => {
                const ENDS: [u8; 8] = [0, 1, 4, 5, 0x7f, 0x80, 0xfe, 0xff];
                input[at] = ENDS[rng.below(8) as usize];
            }
            3 => {
                let fresh: Vec<u8> = (0..=rng.below(12)).map(|_| rng.draw() as u8).collect();
                input.splice(at..at, fresh);
            }
            4 => {
                input.drain(at..at + length);
            }
            5 => {
                let again = input[at..at + length].to_vec();
                input.splice(at..at, again);
            }
            6 => {
                let other = &self.kept[rng.below(self.kept.len() as u64) as usize];
                let from = rng.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.extend((0..=rng.below(8)).map(|_| rng.draw() as u8)),
        }
    }
}
