//! Delay statistics in bounded memory. The origin of the delays is arbitrary, so only their differences are
//! meaningful.
//!
//! Variation  RFC 5481 §4.2, PDV: each delay minus the minimum. IPDV (§4.1) is the difference from the
//!           previous delay, and jitter (RFC 3550 §6.4.1) is a mean of such differences; neither shows how
//!           deep a playout buffer has to be.
//! Bound     when more than [`KEPT_MAX`] values are kept, every second one is discarded, and from then on
//!           every second new value is skipped, so that the sample stays evenly spaced. Minimum and maximum
//!           are exact.

use crate::stats::{quantile, sorted};

/// The maximum number of values that are kept.
const KEPT_MAX: usize = 1 << 16;

/// Delays in nanoseconds, relative to an origin that the caller chooses.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    kept: Vec<i64>,
    stride: u64,
    seen: u64,
    least: i64,
    greatest: i64,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { kept: Vec::new(), stride: 1, seen: 0, least: i64::MAX, greatest: i64::MIN }
    }
}

impl Delays {
    /// Adds a value.
    pub(crate) fn push(&mut self, delay: i64) {
        (self.least, self.greatest) = (self.least.min(delay), self.greatest.max(delay));
        if self.seen.is_multiple_of(self.stride) {
            self.kept.push(delay);
        }
        self.seen += 1;
        if self.kept.len() >= KEPT_MAX {
            let mut number = 0u64;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Returns the minimum.
    pub(crate) fn least(&self) -> Option<i64> {
        (self.seen > 0).then_some(self.least)
    }

    /// Returns by how much the maximum exceeds an origin, in microseconds.
    pub(crate) fn greatest_us(&self, origin: i64) -> Option<f64> {
        (self.seen > 0).then(|| (self.greatest - origin) as f64 * 1e-3)
    }

    /// Returns the median and the 99th percentile of the delays minus `origin`, in microseconds.
    pub(crate) fn above_us(&self, origin: i64) -> [Option<f64>; 2] {
        let above: Vec<f64> =
            self.kept.iter().map(|delay| delay.saturating_sub(origin) as f64 * 1e-3).collect();
        let above = sorted(&above);
        [quantile(&above, 0.5), quantile(&above, 0.99)]
    }

    /// Returns by how much the median and the 99th percentile exceed the minimum, in microseconds.
    pub(crate) fn variation_us(&self) -> [Option<f64>; 2] {
        self.least().map_or([None; 2], |least| self.above_us(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_an_even_sample_and_extremes_are_exact() {
        let mut delays = Delays::default();
        assert_eq!(delays.variation_us(), [None, None]);
        let count = 1_000_000u64;
        for number in 0..count {
            // The values 0 to 999 us occur equally often, in pseudo-random order.
            let micros = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 1000;
            delays.push(-5_000_000 + micros as i64 * 1000);
        }
        assert!(delays.kept.len() < KEPT_MAX && delays.kept.len() > KEPT_MAX / 4);
        let [p50, p99] = delays.variation_us();
        let (p50, p99) = (p50.expect("there are some"), p99.expect("there are some"));
        assert!((p50 - 500.0).abs() < 15.0 && (p99 - 990.0).abs() < 5.0, "{p50} {p99}");
        assert_eq!((delays.least(), delays.greatest_us(-5_000_000)), (Some(-5_000_000), Some(999.0)));
    }
}
