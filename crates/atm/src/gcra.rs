//! The generic cell rate algorithm (I.371 Annex A, ATM Forum TM 4.1 §4.4.3).
//!
//! Purpose    provide one conformance check for the policer at a network's edge, the shaper before it, and
//!            the tests.
//! Algorithm  virtual scheduling, GCRA(T, τ): a cell at t conforms unless t is earlier than TAT - τ. If it
//!            conforms, TAT becomes max(t, TAT) + T; otherwise TAT is unchanged.
//! Exactness  T and τ are ratios of integers and TAT keeps its fraction of a nanosecond, so nothing drifts.
//! Contract   peak: T = 1/PCR, τ = CDVT. Sustained, in addition: T = 1/SCR, τ = BT + CDVT, where the burst
//!            tolerance BT = (MBS - 1)(1/SCR - 1/PCR). A cell must conform to both tests; only then is it
//!            counted in both.
//! Shaping    [`Meter::earliest`] is the earliest time at which a cell would conform. On a slotted line a
//!            shaper needs a CDVT of one slot time to reach the PCR exactly; with a CDVT of zero each cell
//!            waits for the slot after its time.

use crate::slots::Interval;
use core::time::Duration;
use kiban_base::Instant;

/// A traffic contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Interval between cells at the peak cell rate.
    pub peak: Interval,
    /// Cell delay variation tolerance.
    pub tolerance: Duration,
    /// Sustainable rate and burst size, if they are part of the contract.
    pub sustained: Option<Sustained>,
}

/// The sustained part of a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sustained {
    /// Interval between cells at the sustainable cell rate; not shorter than that at the peak rate.
    pub interval: Interval,
    /// Maximum burst size: consecutive cells at the peak rate.
    pub burst_cells: u32,
}

impl Contract {
    /// Creates a contract with only a peak cell rate.
    pub const fn peak(peak: Interval, tolerance: Duration) -> Contract {
        Contract { peak, tolerance, sustained: None }
    }
}

/// One GCRA(T, τ).
#[derive(Clone, Copy, Debug)]
pub struct Gcra {
    increment: Exact,
    limit: Exact,
    /// The theoretical arrival time (TAT) of the next cell.
    expected: Exact,
    /// Denominator of the fractions: their unit is 1/scale ns.
    scale: u64,
}

/// A time or duration: nanos + fraction / scale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Exact {
    nanos: u64,
    fraction: u64,
}

impl Exact {
    const ZERO: Exact = Exact { nanos: 0, fraction: 0 };

    fn of(units: u128, scale: u64) -> Exact {
        Exact { nanos: (units / u128::from(scale)) as u64, fraction: (units % u128::from(scale)) as u64 }
    }

    #[inline]
    fn plus(self, other: Exact, scale: u64) -> Exact {
        let fraction = self.fraction + other.fraction;
        let carry = fraction >= scale;
        Exact {
            nanos: self.nanos.saturating_add(other.nanos).saturating_add(carry as u64),
            fraction: if carry { fraction - scale } else { fraction },
        }
    }

    /// Subtracts `other`. The result is zero if `other` is greater.
    #[inline]
    fn minus(self, other: Exact, scale: u64) -> Exact {
        if self <= other {
            return Exact::ZERO;
        }
        let borrow = self.fraction < other.fraction;
        Exact {
            nanos: self.nanos - other.nanos - borrow as u64,
            fraction: if borrow {
                self.fraction + scale - other.fraction
            } else {
                self.fraction - other.fraction
            },
        }
    }

    /// Returns the first whole nanosecond that is not earlier.
    #[inline]
    fn rounded_up(self) -> Instant {
        Instant::from_nanos(self.nanos.saturating_add((self.fraction > 0) as u64))
    }
}

impl Gcra {
    /// Creates a GCRA(T, τ) with T = `increment` and τ = `limit`.
    pub fn new(increment: Interval, limit: Duration) -> Gcra {
        let (numerator, scale) = increment.ratio();
        Gcra {
            increment: Exact::of(u128::from(numerator), scale),
            limit: Exact { nanos: limit.as_nanos() as u64, fraction: 0 },
            expected: Exact::ZERO,
            scale,
        }
    }

    /// Creates the GCRA of a sustainable rate, with τ = BT + CDVT.
    ///
    /// # Panics
    /// If the sustainable rate is greater than the peak rate, or the common denominator of the two intervals
    /// in nanoseconds is 2^63 or more.
    pub fn sustained(peak: Interval, sustained: Sustained, tolerance: Duration) -> Gcra {
        let (peak_numerator, peak_scale) = peak.ratio();
        let (numerator, scale) = sustained.interval.ratio();
        let common = peak_scale
            .checked_mul(scale)
            .filter(|scale| *scale < 1 << 63)
            .expect("rates with a common measure");
        let (slow, fast) =
            (u128::from(numerator) * u128::from(peak_scale), u128::from(peak_numerator) * u128::from(scale));
        let spare = slow.checked_sub(fast).expect("the sustained rate is at most the peak rate");
        let burst = spare * u128::from(sustained.burst_cells.saturating_sub(1));
        let tolerance = tolerance.as_nanos() * u128::from(common);
        Gcra {
            increment: Exact::of(slow, common),
            limit: Exact::of(burst + tolerance, common),
            expected: Exact::ZERO,
            scale: common,
        }
    }

    /// Returns whether a cell at `at` conforms, without counting it.
    #[inline]
    pub fn admits(&self, at: Instant) -> bool {
        let at = Exact { nanos: at.as_nanos(), fraction: 0 };
        at.plus(self.limit, self.scale) >= self.expected
    }

    /// Counts a conforming cell at `at`.
    #[inline]
    pub fn record(&mut self, at: Instant) {
        let at = Exact { nanos: at.as_nanos(), fraction: 0 };
        self.expected = at.max(self.expected).plus(self.increment, self.scale);
    }

    /// Returns the earliest time at which a cell would conform.
    #[inline]
    pub fn earliest(&self) -> Instant {
        self.expected.minus(self.limit, self.scale).rounded_up()
    }

    /// Returns a time before which the `count`-th cell from now (1: the next) cannot conform.
    pub fn earliest_of(&self, count: u64) -> Instant {
        let later = u128::from(count.saturating_sub(1));
        let units = (u128::from(self.increment.nanos) * u128::from(self.scale)
            + u128::from(self.increment.fraction))
            * later;
        self.expected
            .plus(Exact::of(units, self.scale), self.scale)
            .minus(self.limit, self.scale)
            .rounded_up()
    }
}

/// The state of a contract, for a policer (does a cell conform?) or a shaper (when would it?).
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    peak: Gcra,
    sustained: Option<Gcra>,
}

impl Meter {
    /// Creates a meter without history.
    pub fn new(contract: Contract) -> Meter {
        Meter {
            peak: Gcra::new(contract.peak, contract.tolerance),
            sustained: contract
                .sustained
                .map(|sustained| Gcra::sustained(contract.peak, sustained, contract.tolerance)),
        }
    }

    /// Polices a cell at `at`: returns whether it conforms to the whole contract and, if so, counts it.
    #[inline]
    pub fn police(&mut self, at: Instant) -> bool {
        let conforms = self.peak.admits(at) && self.sustained.is_none_or(|sustained| sustained.admits(at));
        if conforms {
            self.pass(at);
        }
        conforms
    }

    /// Shapes: counts a cell sent at `at`, which must not be before [`Meter::earliest`].
    #[inline]
    pub fn pass(&mut self, at: Instant) {
        self.peak.record(at);
        if let Some(sustained) = &mut self.sustained {
            sustained.record(at);
        }
    }

    /// Returns the earliest time at which a cell would conform.
    #[inline]
    pub fn earliest(&self) -> Instant {
        let peak = self.peak.earliest();
        self.sustained.map_or(peak, |sustained| peak.max(sustained.earliest()))
    }

    /// Returns a time before which the `count`-th cell from now (1: the next) cannot conform.
    pub fn earliest_of(&self, count: u64) -> Instant {
        let peak = self.peak.earliest_of(count);
        self.sustained.map_or(peak, |sustained| peak.max(sustained.earliest_of(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The continuous-state leaky bucket of I.371 Annex A, in whole units of 1/scale ns.
    struct Bucket {
        increment: i128,
        limit: i128,
        level: i128,
        last: i128,
    }

    impl Bucket {
        fn conforms(&mut self, at: i128) -> bool {
            let drained = self.level - (at - self.last);
            if drained > self.limit {
                return false;
            }
            self.level = drained.max(0) + self.increment;
            self.last = at;
            true
        }
    }

    proptest! {
        #[test]
        fn virtual_scheduling_is_the_leaky_bucket(
            rate in 1u64..2_000_000, limit in 0u64..100_000,
            gaps in prop::collection::vec(0u64..20_000, 1..200),
        ) {
            let interval = Interval::per_second(rate);
            let (numerator, scale) = interval.ratio();
            let mut gcra = Gcra::new(interval, Duration::from_nanos(limit));
            let limit = i128::from(limit) * i128::from(scale);
            let mut bucket = Bucket { increment: numerator.into(), limit, level: 0, last: 0 };
            let mut now = 0;
            for gap in gaps {
                now += gap;
                let at = Instant::from_nanos(now);
                let conforms = gcra.admits(at);
                prop_assert_eq!(conforms, at >= gcra.earliest());
                prop_assert_eq!(conforms, bucket.conforms(i128::from(now) * i128::from(scale)));
                if conforms { gcra.record(at); }
            }
        }

        #[test]
        fn a_greedy_shaper_conforms_and_cannot_be_earlier_than_foretold(
            peak in 1000u64..400_000, share in 1u64..10, burst in 1u32..50,
            tolerance in 0u64..10_000, count in 1u64..100,
        ) {
            let contract = Contract {
                peak: Interval::per_second(peak),
                tolerance: Duration::from_nanos(tolerance),
                sustained: Some(Sustained { interval: Interval::per_second(peak / share), burst_cells: burst }),
            };
            let (mut shaper, mut policer) = (Meter::new(contract), Meter::new(contract));
            let foretold = shaper.earliest_of(count);
            let mut now = Instant::ZERO;
            for _ in 0..count {
                now = now.max(shaper.earliest());
                shaper.pass(now);
                prop_assert!(policer.police(now));
            }
            prop_assert!(now >= foretold);
            if shaper.earliest() > now {
                let early = Instant::from_nanos(shaper.earliest().as_nanos() - 1);
                prop_assert!(!policer.police(early));
            }
        }
    }

    #[test]
    fn a_burst_of_exactly_mbs_cells_at_the_peak_rate_conforms() {
        let contract = Contract {
            peak: Interval::per_second(100_000),
            tolerance: Duration::ZERO,
            sustained: Some(Sustained { interval: Interval::per_second(30_000), burst_cells: 17 }),
        };
        let mut meter = Meter::new(contract);
        let passed =
            (0..40u64).take_while(|k| meter.police(Instant::from_nanos(1_000_000 + k * 10_000))).count();
        assert_eq!(passed, 17);
    }

    #[test]
    fn a_shaper_at_the_peak_rate_does_not_drift() {
        // The maximum information rate of paper [2]'s service, expressed in cells: 67.815 Mbit/s.
        let mut meter = Meter::new(Contract::peak(Interval::of_line(67_815_000), Duration::from_nanos(1)));
        let mut now = Instant::ZERO;
        for _ in 0..1_000_000u64 {
            now = now.max(meter.earliest());
            meter.pass(now);
        }
        // Cell n is due at (n-1)·T, less the tolerance.
        let due = 999_999u128 * 424_000_000_000 / 67_815_000;
        assert!(u128::from(now.as_nanos()).abs_diff(due) <= 1, "{now:?}");
    }
}
