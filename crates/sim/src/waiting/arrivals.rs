//! The arrival times of packets.

use kiban_base::{Instant, SimRng};
use std::time::Duration;

/// The arrival pattern of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalPattern {
    /// One every `gap`.
    Constant {
        /// The interval between packets.
        gap: Duration,
    },
    /// Memoryless: gaps are exponential.
    Exponential {
        /// The mean gap.
        mean: Duration,
    },
    /// Bursts with pauses.
    Bursts {
        /// Packets of a burst.
        packets: u64,
        /// Interval between packets within a burst.
        gap: Duration,
        /// Interval between the last packet of a burst and the first packet of the next.
        pause: Duration,
    },
    /// Periodic arrivals, each up to `jitter` late. A late packet does not delay later ones.
    Periodic {
        /// The interval between two times.
        period: Duration,
        /// The maximum delay of a packet (uniform, less than the period).
        jitter: Duration,
    },
}

impl ArrivalPattern {
    /// Returns evenly spaced packets of `bytes` at a rate in bytes per second, but never closer than
    /// `gap_min`.
    pub fn packets(bytes: u64, bytes_per_second: u64, gap_min: Duration) -> ArrivalPattern {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
        ArrivalPattern::Constant { gap: Duration::from_nanos(nanos as u64).max(gap_min) }
    }
}

/// The packets of one run: an iterator over their sending times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rhythm: ArrivalPattern,
    left: u64,
    sent: u64,
    /// The last packet's time, without jitter.
    last: Instant,
    rng: SimRng,
}

impl Arrivals {
    /// Creates the arrivals of `packets` packets. The first is due one gap after the start.
    pub fn new(rhythm: ArrivalPattern, packets: u64, seed: u64) -> Arrivals {
        if let ArrivalPattern::Periodic { period, jitter } = rhythm {
            assert!(jitter < period, "packets keep their order");
        }
        Arrivals { rhythm, left: packets, sent: 0, last: Instant::ZERO, rng: SimRng::from_seed(seed) }
    }

    /// Returns how many packets have not been sent yet.
    pub fn left(&self) -> u64 {
        self.left
    }
}

impl Iterator for Arrivals {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        self.left = self.left.checked_sub(1)?;
        let mut late = Duration::ZERO;
        self.last += match self.rhythm {
            ArrivalPattern::Constant { gap } => gap,
            ArrivalPattern::Exponential { mean } => exponential(mean, &mut self.rng),
            ArrivalPattern::Bursts { packets, gap, pause } => {
                if self.sent.is_multiple_of(packets) {
                    pause
                } else {
                    gap
                }
            }
            ArrivalPattern::Periodic { period, jitter } => {
                late = uniform(Duration::ZERO, jitter, &mut self.rng);
                period
            }
        };
        self.sent += 1;
        Some(self.last + late)
    }
}

/// Returns a uniformly distributed time between two values, inclusive.
pub(super) fn uniform(least: Duration, most: Duration, rng: &mut SimRng) -> Duration {
    let width = most.saturating_sub(least).as_nanos() as u64;
    least + Duration::from_nanos(rng.below(width.saturating_add(1)))
}

/// Returns an exponentially distributed time, computed by comparing uniform numbers (von Neumann 1951):
/// unlike a logarithm, this gives the same result on every machine.
pub(super) fn exponential(mean: Duration, rng: &mut SimRng) -> Duration {
    let mut whole = 0u128;
    loop {
        let first = rng.draw();
        let (mut last, mut falling) = (first, 1u32);
        loop {
            let next = rng.draw();
            if next > last {
                break;
            }
            (last, falling) = (next, falling + 1);
        }
        if falling % 2 == 1 {
            let nanos = (mean.as_nanos() * ((whole << 32) + u128::from(first >> 32))) >> 32;
            return Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        whole += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(length: u64) -> Duration {
        Duration::from_micros(length)
    }

    #[test]
    fn arrival_patterns_match_their_names() {
        for (rhythm, expected) in [
            (ArrivalPattern::Constant { gap: micros(10) }, [10, 20, 30, 40, 50]),
            (
                ArrivalPattern::Bursts { packets: 2, gap: micros(5), pause: micros(100) },
                [100, 105, 205, 210, 310],
            ),
            (ArrivalPattern::Periodic { period: micros(7), jitter: micros(0) }, [7, 14, 21, 28, 35]),
            (ArrivalPattern::packets(50_000, 62_500_000, micros(0)), [800, 1600, 2400, 3200, 4000]),
            (ArrivalPattern::packets(1000, 62_500_000, micros(20)), [20, 40, 60, 80, 100]),
        ] {
            let moments: Vec<u64> =
                Arrivals::new(rhythm, 5, 1).map(|moment| moment.as_nanos() / 1000).collect();
            assert_eq!(moments, expected, "{rhythm:?}");
        }
    }

    #[test]
    fn a_late_packet_does_not_delay_the_next_one() {
        let rhythm = ArrivalPattern::Periodic { period: micros(100), jitter: micros(30) };
        let late = Arrivals::new(rhythm, 1000, 3)
            .zip(1u64..)
            .map(|(moment, number)| moment.as_nanos() - number * 100_000);
        let late: Vec<u64> = late.collect();
        assert!(late.iter().all(|&late| late <= 30_000));
        assert!(late.iter().any(|&late| late > 28_000) && late.iter().any(|&late| late < 2_000));
    }

    #[test]
    fn exponential_intervals_have_their_mean_and_no_memory() {
        const COUNT: u32 = 200_000;
        let mut rng = SimRng::from_seed(5);
        let times: Vec<f64> =
            (0..COUNT).map(|_| exponential(micros(100), &mut rng).as_secs_f64() * 1e6).collect();
        let share = |from: f64| times.iter().filter(|&&time| time > from).count() as f64 / f64::from(COUNT);
        let mean = times.iter().sum::<f64>() / f64::from(COUNT);
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        for (from, expected) in [(50.0, 0.6065), (100.0, 0.3679), (300.0, 0.0498)] {
            assert!((share(from) - expected).abs() < 0.005, "{from}: {}", share(from));
        }
    }
}
