//! The cell slots of a line.
//!
//! Purpose    compute the time of slot k without accumulated error, in a few additions per slot.
//! Slots      as in SONET, slots run freely: slot k occupies [k·T, (k+1)·T), T = 424 / R seconds for a
//!            payload rate of R bit/s. OC-3c: R = 149 760 000, T = 331250/117 ns.
//! Exactness  T is a ratio of integers ([`Interval`]) and the fraction of a nanosecond is carried along;
//!            reported times are rounded down. For an integer t, floor(x) < t exactly when x < t, so
//!            comparing with a reported time is the same as comparing with the exact one.
//! Rule       a cell offered at t may use the first slot that starts at or after t; its transmission ends
//!            with that slot.

use crate::wire::atm::CELL_BYTES;
use core::time::Duration;
use kiban_base::Instant;

/// Payload rate of an OC-3c or STM-1 line in bit/s: 155.52 Mbit/s less section, line and path overhead.
pub const OC3C_BITS_PER_SECOND: u64 = 149_760_000;
/// Payload rate of an OC-12c or STM-4c line in bit/s.
pub const OC12C_BITS_PER_SECOND: u64 = 599_040_000;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const CELL_BITS: u64 = 8 * CELL_BYTES as u64;

/// A duration as a ratio of integers, in nanoseconds, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    numerator: u64,
    denominator: u64,
}

impl Interval {
    const fn new(numerator: u64, denominator: u64) -> Interval {
        assert!(numerator > 0 && denominator > 0, "an interval is longer than nothing and shorter than ever");
        let (mut a, mut b) = (numerator, denominator);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Interval { numerator: numerator / a, denominator: denominator / a }
    }

    /// Returns the time of one cell on a line with a payload rate of `bits_per_second`.
    ///
    /// # Panics
    /// If the rate is zero.
    pub const fn of_line(bits_per_second: u64) -> Interval {
        Interval::new(CELL_BITS * NANOS_PER_SECOND, bits_per_second)
    }

    /// Returns the interval between cells at `count` cells per second.
    ///
    /// # Panics
    /// If `count` is zero.
    pub const fn per_second(count: u64) -> Interval {
        Interval::new(NANOS_PER_SECOND, count)
    }

    /// Returns an interval of a whole number of nanoseconds.
    ///
    /// # Panics
    /// If `length` is zero.
    pub const fn every(length: Duration) -> Interval {
        Interval::new(length.as_nanos() as u64, 1)
    }

    /// Returns the interval in nanoseconds as the ratio (numerator, denominator).
    pub const fn ratio(self) -> (u64, u64) {
        (self.numerator, self.denominator)
    }

    /// Returns the number of intervals per second, i.e. the cell rate.
    pub fn rate(self) -> f64 {
        NANOS_PER_SECOND as f64 * self.denominator as f64 / self.numerator as f64
    }
}

/// The slots of one line, positioned at the next free slot.
#[derive(Clone, Debug)]
pub struct SlotClock {
    /// T = whole + part / scale nanoseconds.
    whole: u64,
    part: u64,
    scale: u64,
    slot: u64,
    /// The slot starts at nanos + fraction / scale nanoseconds.
    nanos: u64,
    fraction: u64,
}

impl SlotClock {
    /// Creates the slots of a line, positioned at slot 0, which starts at time zero.
    pub const fn new(cell_time: Interval) -> SlotClock {
        let (numerator, scale) = cell_time.ratio();
        SlotClock { whole: numerator / scale, part: numerator % scale, scale, slot: 0, nanos: 0, fraction: 0 }
    }

    /// Returns the number of the current slot.
    pub const fn slot(&self) -> u64 {
        self.slot
    }

    /// Returns when the current slot starts.
    #[inline]
    pub const fn start(&self) -> Instant {
        Instant::from_nanos(self.nanos)
    }

    /// Returns when the current slot ends, which is the time of the cell in it.
    #[inline]
    pub const fn end(&self) -> Instant {
        let carry = self.fraction + self.part >= self.scale;
        Instant::from_nanos(self.nanos + self.whole + carry as u64)
    }

    /// Returns when the slot that is `count` slots later ends.
    pub fn end_after(&self, count: u64) -> Instant {
        let count = count + 1;
        let parts = u128::from(self.part) * u128::from(count) + u128::from(self.fraction);
        let carried = if let Ok(parts) = u64::try_from(parts) {
            parts / self.scale
        } else {
            (parts / u128::from(self.scale)) as u64
        };
        Instant::from_nanos(
            self.nanos.saturating_add(self.whole.saturating_mul(count)).saturating_add(carried),
        )
    }

    /// Uses the current slot and advances to the next.
    #[inline]
    pub const fn step(&mut self) {
        self.slot += 1;
        self.nanos += self.whole;
        self.fraction += self.part;
        if self.fraction >= self.scale {
            self.fraction -= self.scale;
            self.nanos += 1;
        }
    }

    /// Advances to the first slot that starts at or after `moment`; never goes back.
    #[inline]
    pub fn skip_to(&mut self, moment: Instant) {
        let ahead = moment.as_nanos().saturating_sub(self.nanos);
        if ahead > 0 {
            self.skip_by(ahead);
        }
    }

    /// Advances to the first slot that starts at least `ahead` nanoseconds after the reported start of the
    /// current slot.
    fn skip_by(&mut self, ahead: u64) {
        let numerator = self.whole as u128 * self.scale as u128 + self.part as u128;
        let distance = ahead as u128 * self.scale as u128 - self.fraction as u128;
        // Both factors fit in 64 bits except after long idle times, when a slow division does not matter.
        let count = match (u64::try_from(distance), u64::try_from(numerator)) {
            (Ok(distance), Ok(numerator)) => distance.div_ceil(numerator),
            _ => distance.div_ceil(numerator) as u64,
        };
        let exact = self.fraction as u128 + self.part as u128 * count as u128;
        self.slot += count;
        self.nanos += self.whole * count + (exact / self.scale as u128) as u64;
        self.fraction = (exact % self.scale as u128) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_oc3c_carries_what_the_standard_says() {
        let cell = Interval::of_line(OC3C_BITS_PER_SECOND);
        assert_eq!(cell.ratio(), (331_250, 117));
        let cells_per_second = cell.rate();
        assert!((cells_per_second - 353_207.547).abs() < 0.001);
        assert!((cells_per_second * 384.0 / 1e6 - 135.631_698).abs() < 1e-6);
    }

    #[test]
    fn a_billion_slots_do_not_drift() {
        let mut clock = SlotClock::new(Interval::of_line(OC3C_BITS_PER_SECOND));
        // 10^9 slots take 10^9 · 331250 / 117 ns.
        let expected = 1_000_000_000u128 * 331_250 / 117;
        assert_eq!(clock.end_after(999_999_999).as_nanos(), expected as u64);
        for _ in 0..1_000_000_000u64 {
            clock.step();
        }
        assert_eq!((clock.slot(), u128::from(clock.start().as_nanos())), (1_000_000_000, expected));
    }

    proptest! {
        #[test]
        fn slot_times_match_their_definition(
            rate in 1u64..20_000_000_000,
            moments in prop::collection::vec(0u64..10_000_000_000_000, 1..20),
        ) {
            let interval = Interval::of_line(rate);
            let (n, d) = interval.ratio();
            let time = |k: u64| (u128::from(k) * u128::from(n) / u128::from(d)) as u64;
            let mut clock = SlotClock::new(interval);
            let mut low = 0;
            for moment in moments {
                clock.skip_to(Instant::from_nanos(moment));
                // The smallest k, not before the last slot, for which k·n/d >= moment.
                let k = (u128::from(moment) * u128::from(d)).div_ceil(u128::from(n)) as u64;
                let k = k.max(low);
                low = k;
                prop_assert_eq!(clock.slot(), k);
                prop_assert_eq!(clock.start().as_nanos(), time(k));
                prop_assert_eq!(clock.end().as_nanos(), time(k + 1));
                prop_assert_eq!(clock.end_after(1000).as_nanos(), time(k + 1001));
                clock.step();
                low += 1;
                prop_assert_eq!((clock.slot(), clock.start().as_nanos()), (low, time(low)));
            }
        }
    }
}
