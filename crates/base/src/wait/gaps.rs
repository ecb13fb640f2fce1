//! Statistics of the times between arrivals, from which the spin time is computed.
//!
//! The histogram has eight buckets per octave. Old gaps decay: the last [`MEMORY`] gaps weigh more than all
//! earlier ones. The spin time with the least average cost is chosen from it. For memoryless gaps, the best
//! spin time is zero or the maximum. An intermediate one pays off if gaps are short within bursts and long
//! between them; it ends just after the short ones.

/// Decay constant, in gaps: after this number of further gaps, the relative weight of a gap has fallen by a
/// factor e.
const MEMORY: f32 = 64.0;
/// Gaps below 2^8 ns share one bucket.
const FIRST_OCTAVE: u32 = 8;
const PER_OCTAVE: usize = 8;
/// Buckets for 256 ns to 1 ms, and one each below and above.
const BUCKETS: usize = 2 + 12 * PER_OCTAVE;
/// If the gaps have less weight than this, there is not enough evidence.
const EVIDENCE: f32 = 3.0;

/// A spin time in nanoseconds, and its expected cost including the sleep that may follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spin {
    pub(super) nanos: u64,
    pub(super) cost: f32,
}

#[derive(Clone, Debug)]
pub(super) struct Gaps {
    weights: [f32; BUCKETS],
    /// The sum of `weights`.
    total: f32,
    /// The weight of the next gap. It grows with each gap, so that the weights of earlier gaps need not be
    /// reduced.
    next: f32,
}

fn bucket(nanos: u64) -> usize {
    if nanos < 1 << FIRST_OCTAVE {
        return 0;
    }
    let octave = nanos.ilog2();
    let part = (nanos >> (octave - 3)) as usize % PER_OCTAVE;
    ((octave - FIRST_OCTAVE) as usize * PER_OCTAVE + part + 1).min(BUCKETS - 1)
}

/// Returns the upper bound (exclusive) of a bucket in nanoseconds.
fn end(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 1 << FIRST_OCTAVE,
        Some(at) => {
            (((at % PER_OCTAVE) + 1 + PER_OCTAVE) as u64) << (at / PER_OCTAVE + FIRST_OCTAVE as usize - 3)
        }
    }
}

impl Gaps {
    pub(super) fn new() -> Gaps {
        Gaps { weights: [0.0; BUCKETS], total: 0.0, next: 1.0 }
    }

    /// Records a gap of that length.
    pub(super) fn learn(&mut self, nanos: u64) {
        const TOO_MUCH: f32 = 1e18;
        self.weights[bucket(nanos)] += self.next;
        self.total += self.next;
        self.next *= 1.0 + 1.0 / MEMORY;
        if self.next > TOO_MUCH {
            self.weights.iter_mut().for_each(|weight| *weight /= TOO_MUCH);
            self.next /= TOO_MUCH;
            self.total = self.weights.iter().sum();
        }
    }

    /// Returns the cheapest spin time for a wait that begins `late` nanoseconds after the last arrival, if a
    /// sleep costs `block`.
    ///
    /// Never longer than `block`, so that no wait costs more than two sleeps. With too little evidence it is
    /// exactly that long, which costs at most twice the optimum for any arrivals.
    pub(super) fn cheapest(&self, late: u64, block: u64) -> Spin {
        let first = bucket(late);
        let all = self.total - self.weights[..first].iter().sum::<f32>();
        if all < EVIDENCE * self.next {
            return Spin { nanos: block, cost: block as f32 };
        }
        let mut best = Spin { nanos: 0, cost: block as f32 };
        // The sum of the weights, and of the weighted lengths, of the gaps up to this bucket.
        let (mut within, mut spent) = (0.0, 0.0);
        for at in first..BUCKETS - 1 {
            let weight = self.weights[at];
            // Most buckets are empty.
            if weight == 0.0 {
                continue;
            }
            let start = at.checked_sub(1).map_or(0, end).max(late);
            if start - late >= block {
                break;
            }
            let end = end(at);
            within += weight;
            spent += weight * ((start + end) / 2 - late) as f32;
            let nanos = (end - late).min(block);
            let cost = (spent + (all - within) * (nanos + block) as f32) / all;
            if cost < best.cost {
                best = Spin { nanos, cost };
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 36_000;

    #[test]
    fn buckets_follow_one_another_without_a_hole() {
        for at in 0..BUCKETS - 1 {
            assert_eq!(bucket(end(at) - 1), at);
            assert_eq!(bucket(end(at)), at + 1);
        }
        assert_eq!(end(BUCKETS - 2), 1 << 20);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    /// Checks that the spin time after repeated gaps of these lengths lies within the given bounds.
    fn check(gaps: &[(u64, usize)], late: u64, expected: core::ops::RangeInclusive<u64>) {
        let mut seen = Gaps::new();
        for _ in 0..300 {
            for &(gap, times) in gaps {
                (0..times).for_each(|_| seen.learn(gap));
            }
        }
        let spin = seen.cheapest(late, BLOCK);
        assert!(expected.contains(&spin.nanos), "{gaps:?}, {late} late: {spin:?}");
        assert!(spin.cost <= BLOCK as f32);
    }

    #[test]
    fn the_spin_ends_just_behind_the_gaps_that_are_worth_it() {
        check(&[(10_000, 1)], 0, 10_000..=11_300);
        check(&[(10_000, 99), (5_000_000, 1)], 0, 10_000..=11_300);
        check(&[(30_000, 19), (430_000, 1)], 0, 30_000..=33_800);
        check(&[(30_000, 2), (430_000, 1)], 0, 0..=0);
        check(&[(1_000_000, 1)], 0, 0..=0);
        check(&[(50_000, 1)], 0, 0..=0);
        check(&[(50_000, 1)], 20_000, 30_000..=36_000);
        check(&[(100, 1)], 0, 256..=256);
    }

    #[test]
    fn without_history_the_spin_lasts_as_long_as_a_sleep_costs() {
        let mut gaps = Gaps::new();
        assert_eq!(gaps.cheapest(0, BLOCK).nanos, BLOCK);
        (0..10).for_each(|_| gaps.learn(10_000));
        assert!(gaps.cheapest(0, BLOCK).nanos < 12_000);
        assert_eq!(gaps.cheapest(20_000, BLOCK).nanos, BLOCK, "nothing was ever seen that late");
    }

    #[test]
    fn old_gaps_fade_and_weights_stay_finite() {
        let mut gaps = Gaps::new();
        (0..100_000).for_each(|_| gaps.learn(1_000_000));
        assert_eq!(gaps.cheapest(0, BLOCK).nanos, 0);
        (0..40).for_each(|_| gaps.learn(1_000));
        assert!((1_000..2_000).contains(&gaps.cheapest(0, BLOCK).nanos));
    }
}
