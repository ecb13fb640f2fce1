//! The results of a run.

use kiban_base::Report;
use std::time::Duration;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Packets that the process took.
    pub taken: u64,
    /// The time from the start until the last packet was handled.
    pub elapsed: Duration,
    /// CPU time spent working.
    pub worked: Duration,
    /// CPU time spent spinning.
    pub spun: Duration,
    /// CPU time spent on sleeps: falling asleep, waking up, the interrupt.
    pub slept: Duration,
    /// The number of sleeps.
    pub sleeps: u64,
    /// The number of stalls.
    pub stalls: u64,
    /// The longest stall.
    pub stall_longest: Duration,
    /// Histogram of the time from a packet's scheduled sending time until the process took it.
    pub latencies: Latencies,
    /// The waiter's own report.
    pub waits: Report,
}

impl Outcome {
    /// Returns the fraction of the CPU that was used, 0 to 1.
    pub fn cpu(&self) -> f64 {
        (self.worked + self.spun + self.slept).as_secs_f64() / self.elapsed.as_secs_f64()
    }

    pub(super) fn stall(&mut self, length: Duration) {
        self.stalls += 1;
        self.stall_longest = self.stall_longest.max(length);
    }
}

/// Sixteen buckets per octave: a quantile is at most 1/16 too high.
const PER_OCTAVE_BITS: u32 = 4;
const BUCKETS: usize = (64 - PER_OCTAVE_BITS as usize + 1) << PER_OCTAVE_BITS;

/// A histogram of latencies.
#[derive(Clone, PartialEq)]
pub struct Latencies {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { counts: Box::new([0; BUCKETS]) }
    }
}

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:?}, p99 {:?}", self.quantile(0.5), self.quantile(0.99))
    }
}

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        let nanos = latency.as_nanos() as u64;
        let shift = (64 - nanos.leading_zeros()).saturating_sub(PER_OCTAVE_BITS + 1);
        let bucket = ((shift as usize) << PER_OCTAVE_BITS) + (nanos >> shift) as usize;
        self.counts[bucket] += 1;
    }

    /// Returns the latency that this fraction (0 to 1) of all packets does not exceed. Returns `None` if
    /// there were no packets.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all: u64 = self.counts.iter().sum();
        let wanted = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        let shift = (bucket >> PER_OCTAVE_BITS).saturating_sub(1);
        let start = (bucket - (shift << PER_OCTAVE_BITS)) as u64;
        Some(Duration::from_nanos(((start + 1) << shift) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_a_sixteenth_too_high() {
        for nanos in [0, 1, 15, 16, 17, 31, 32, 1000, 123_456, 10_000_000_007, 1 << 60] {
            let mut latencies = Latencies::default();
            latencies.add(Duration::from_nanos(nanos));
            let found = latencies.quantile(0.5).expect("one was seen").as_nanos() as u64;
            assert!(found >= nanos && found - nanos <= nanos / 16, "{nanos}: {found}");
        }
        assert_eq!(Latencies::default().quantile(0.5), None);
    }

    #[test]
    fn quantiles_count_from_below() {
        let mut latencies = Latencies::default();
        (1..=10).for_each(|nanos| latencies.add(Duration::from_nanos(nanos)));
        for (part, expected) in [(0.0, 1), (0.1, 1), (0.5, 5), (0.51, 6), (1.0, 10)] {
            assert_eq!(latencies.quantile(part), Some(Duration::from_nanos(expected)), "{part}");
        }
    }
}
