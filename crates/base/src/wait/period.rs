//! Periodic arrivals, and timed sleeps towards the next.
//!
//! Clock     an alpha-beta filter tracks the phase and length of the period. The phase is corrected by half
//!           of an error, and the length by a sixteenth. An error of half a period restarts the filter.
//! Lead      a timed sleep ends late, sometimes more than usual (the median and the 90th percentile are
//!           learned). The timer is set earlier by one of [`LEADS`], chosen by its recent cost. That cost is
//!           computed from every arrival, with or without a nap.
//! Watch     after the sleep, the waiter spins until a few times the average error past the expected arrival,
//!           then sleeps until the bell rings. The bell is armed during the timed sleep too.
//! Limits    the time of an arrival found at the first poll is unknown, so the clock restarts after it.

use super::Costs;
use super::costs::nanos;
use crate::Instant;
use core::time::Duration;

/// Number of leads compared: from the usual lateness of a sleep to well past the 90th percentile.
const LEADS: usize = 4;
/// Number of arrivals before the clock is trusted.
const TRUSTED: u32 = 8;

/// A timed sleep towards the next arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nap {
    /// The time at which the timer ends the sleep.
    pub(super) until: Instant,
    /// How long to spin after the sleep.
    pub(super) watch_until: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct Period {
    /// Filtered time of the last arrival.
    last: Option<Instant>,
    length: f32,
    /// The average absolute error, in nanoseconds.
    error: f32,
    seen: u32,
    /// Recent cost of each lead.
    costs: [f32; LEADS],
    late: f32,
    late_seldom: f32,
}

/// Moves an average by an eighth of the difference.
fn follow(average: &mut f32, figure: f32) {
    *average += (figure - *average) / 8.0;
}

impl Period {
    pub(super) fn new(costs: &Costs) -> Period {
        Period {
            last: None,
            length: 0.0,
            error: 0.0,
            seen: 0,
            costs: [0.0; LEADS],
            late: nanos(costs.timer_late) as f32,
            late_seldom: nanos(costs.timer_late_seldom) as f32,
        }
    }

    /// Restarts the clock after an arrival at an unknown time.
    pub(super) fn forget(&mut self) {
        (self.last, self.seen) = (None, 0);
    }

    /// Records that a timed sleep ended `late` after its timer was due.
    pub(super) fn learn_late(&mut self, late: Duration) {
        let late = nanos(late) as f32;
        // Track quantiles in small steps: up if the value was above the quantile, down if below. The ratio of
        // the two steps is the ratio of the two fractions.
        let step = self.late.max(500.0) / 16.0;
        self.late += if late > self.late { step } else { -step };
        let step = self.late_seldom.max(500.0) / 16.0;
        self.late_seldom += if late > self.late_seldom { step } else { -step / 9.0 };
        self.late = self.late.clamp(0.0, 1e6);
        self.late_seldom = self.late_seldom.clamp(self.late, 2e6);
    }

    fn lead(&self, at: usize) -> f32 {
        self.late + at as f32 / 2.0 * (self.late_seldom - self.late + self.error)
    }

    fn watch(&self) -> f32 {
        3.0 * self.error + 1_000.0
    }

    /// Records an arrival.
    pub(super) fn learn(&mut self, arrived: Instant, costs: &Costs) {
        let Some(last) = self.last else {
            self.last = Some(arrived);
            return;
        };
        let interval = nanos(arrived.since(last)) as f32;
        if self.seen == 0 {
            (self.last, self.length, self.error, self.seen) = (Some(arrived), interval, interval / 4.0, 1);
            self.costs = [costs.block() as f32; LEADS];
            return;
        }
        let error = interval - self.length;
        if error.abs() > self.length / 2.0 {
            (self.last, self.seen) = (Some(arrived), 0);
            return;
        }
        self.learn_costs(error, costs);
        follow(&mut self.error, error.abs());
        // An overestimate of the lateness would prevent naps, and so would never be corrected. Therefore let
        // it decay.
        self.late_seldom -= (self.late_seldom - self.late) / 512.0;
        self.late -= self.late / 2048.0;
        let moved = (self.length + error / 2.0).max(0.0);
        self.last = Some(last + Duration::from_nanos(moved as u64));
        self.length += error / 16.0;
        self.seen = self.seen.saturating_add(1);
    }

    /// Updates the cost of one lead (each in turn) for an arrival `error` later than predicted.
    fn learn_costs(&mut self, error: f32, costs: &Costs) {
        let (block, price) = (costs.block() as f32, costs.price as f32);
        let (sleep, ring) = (nanos(costs.sleep) as f32, nanos(costs.ring) as f32);
        let (at, watch) = (self.seen as usize % LEADS, self.watch());
        let lead = self.lead(at);
        let with = |late: f32| {
            let early = lead - late;
            let before = early + error;
            if error < -lead {
                block // it rang during the sleep
            } else if before < 0.0 {
                sleep + ring - price * before
            } else if error <= watch {
                sleep + before
            } else {
                sleep + early.max(0.0) + watch + block
            }
        };
        // Most sleeps end with the usual lateness.
        let cost = 0.75 * with(self.late) + 0.25 * with(self.late_seldom);
        self.costs[at] += (cost - self.costs[at]) / 4.0;
    }

    /// Returns the best nap towards the next arrival after `now`, with its expected cost. Returns `None` if
    /// the clock is not trusted yet or the nap would be too short.
    pub(super) fn nap(&self, now: Instant, costs: &Costs) -> Option<(Nap, f32)> {
        if self.seen < TRUSTED {
            return None;
        }
        let at = (0..LEADS).min_by(|&a, &b| self.costs[a].total_cmp(&self.costs[b]))?;
        let next = self.last? + Duration::from_nanos(self.length as u64);
        let nap = Nap {
            until: next - Duration::from_nanos(self.lead(at) as u64),
            watch_until: next + Duration::from_nanos(self.watch() as u64),
        };
        (nap.until > now + 2 * costs.sleep).then_some((nap, self.costs[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimRng;

    const COSTS: Costs = Costs {
        wake: Duration::from_micros(20),
        sleep: Duration::from_micros(9),
        ring: Duration::from_micros(7),
        timer_late: Duration::from_micros(25),
        timer_late_seldom: Duration::from_micros(40),
        price: 1.0,
    };

    #[test]
    fn the_waiter_sleeps_until_just_before_a_regular_arrival() {
        let (mut period, mut chance) = (Period::new(&COSTS), SimRng::from_seed(1));
        let start = Instant::from_nanos(1_000_000);
        for number in 0..200u64 {
            let due = start + Duration::from_nanos(number * 125_000);
            let arrived = due + Duration::from_nanos(chance.below(4_000));
            if number > 50 {
                let (nap, cost) =
                    period.nap(due - Duration::from_micros(120), &COSTS).expect("it is regular");
                let awake = nap.until + COSTS.timer_late;
                assert!(awake < arrived + Duration::from_micros(5), "{number}: woken in time, or nearly");
                assert!(awake + Duration::from_micros(40) > arrived, "{number}: and not long before");
                assert!(nap.watch_until > arrived, "{number}: watched long enough");
                assert!(cost < COSTS.block() as f32 * 0.9, "{number}: {cost}");
            }
            period.learn(arrived, &COSTS);
        }
    }

    #[test]
    fn an_irregular_sender_is_not_worth_a_nap() {
        let (mut period, mut chance) = (Period::new(&COSTS), SimRng::from_seed(2));
        let mut now = Instant::ZERO;
        for _ in 0..1_000 {
            now += Duration::from_nanos(20_000 + chance.below(400_000));
            period.learn(now, &COSTS);
            if let Some((nap, cost)) = period.nap(now, &COSTS) {
                assert!(cost > COSTS.block() as f32 * 0.8, "{nap:?} {cost}");
            }
        }
    }

    #[test]
    fn the_lateness_of_the_timer_is_learned_by_quantiles() {
        let (mut period, mut chance) = (Period::new(&COSTS), SimRng::from_seed(3));
        for _ in 0..2_000 {
            let micros = if chance.happens(0.2) { 200 } else { 50 + chance.below(10) };
            period.learn_late(Duration::from_micros(micros));
        }
        assert!((45_000.0..70_000.0).contains(&period.late), "{}", period.late);
        assert!((150_000.0..260_000.0).contains(&period.late_seldom), "{}", period.late_seldom);
    }

    #[test]
    fn after_a_pause_the_period_is_measured_anew() {
        let mut period = Period::new(&COSTS);
        (1..=50u64).for_each(|number| period.learn(Instant::from_nanos(number * 200_000), &COSTS));
        assert!(period.nap(Instant::from_nanos(10_010_000), &COSTS).is_some());
        period.learn(Instant::from_nanos(90_000_000), &COSTS);
        assert_eq!(period.nap(Instant::from_nanos(90_010_000), &COSTS), None);
    }
}
