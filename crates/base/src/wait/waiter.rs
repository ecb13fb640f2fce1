//! The wait decisions for one queue.
//!
//! A wait begins when a poll finds the queue empty, and ends with [`Waiter::on_arrival`] or
//! [`Waiter::on_timeout`]. In between, the waiter first spins, then possibly naps and spins again, and
//! finally sleeps until the bell rings.

use super::adaptive::{Adaptive, Outcome, Plan};
use super::costs::{Costs, nanos};
use super::evidence::Evidence;
use super::period::Nap;
use super::policy::Wait;
use crate::Instant;
use core::time::Duration;

/// The waiter's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Poll the queue until `until`, then call [`Waiter::step`] again.
    Spin {
        /// When to call `step` again. With [`Instant::NEVER`], only an arrival ends the spin.
        until: Instant,
    },
    /// Arm the bell, poll the queue once more, and sleep until the bell rings, but at most until `until`. The
    /// last poll finds what arrived before the bell was armed.
    Sleep {
        /// When to call `step` again. With [`Instant::NEVER`], only the bell ends the sleep.
        until: Instant,
    },
}

/// Statistics of one waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Waits that ended with an arrival.
    pub waits: u64,
    /// Arrivals found at the first poll, without a wait.
    pub at_once: u64,
    /// Waits that ended while spinning, without a sleep.
    pub spin_hits: u64,
    /// Sleeps that the bell ended.
    pub blocks: u64,
    /// Timed sleeps.
    pub timed_sleeps: u64,
    /// Number of times that the core was taken away during a spin, or that a woken sleeper did not get it.
    pub disturbances: u64,
    /// CPU time spent spinning.
    pub spun: Duration,
    /// Cost of the waits (see [`Costs`]).
    pub cost: Duration,
    /// The cost that the waits would have had if every arrival had been known in advance: the receiver then
    /// either spins until it, or sleeps until the bell rings.
    pub optimum: Duration,
}

impl Report {
    /// Returns the cost of not knowing the arrivals in advance. The result is zero if timed sleeps, which the
    /// optimum does not use, made the waits cheaper than the optimum.
    pub fn regret(&self) -> Duration {
        self.cost.saturating_sub(self.optimum)
    }
}

/// If a wake-up takes longer than usual by this factor, the sleeper was waiting for the core.
const WAKE_LOST: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Spin,
    Nap,
    Watch,
    Block,
}

/// The wait decisions for one queue. Costs less than 100 ns per wait and reads no clock.
#[derive(Clone, Debug)]
pub struct Waiter {
    wait: Wait,
    costs: Costs,
    /// The costs given by the driver.
    costs_first: Costs,
    adaptive: Adaptive,
    phase: Phase,
    began: Instant,
    /// When the phase began.
    since: Instant,
    spin_until: Instant,
    nap: Option<Nap>,
    /// Cost of the wait so far in nanoseconds, without the final sleep until the bell.
    paid: u64,
    report: Report,
}

impl Waiter {
    /// Creates a waiter without history.
    pub fn new(wait: Wait, costs: Costs) -> Waiter {
        Waiter {
            wait,
            adaptive: Adaptive::new(&costs),
            costs_first: costs,
            costs,
            phase: Phase::Idle,
            began: Instant::ZERO,
            since: Instant::ZERO,
            spin_until: Instant::ZERO,
            nap: None,
            paid: 0,
            report: Report::default(),
        }
    }

    /// Returns the policy.
    pub fn policy(&self) -> Wait {
        self.wait
    }

    /// Returns the costs of waiting as learned so far.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the statistics so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Makes the adaptive policy poll for `guard` before a sleep while recent arrivals came that close to
    /// each other, because the queue would lose what arrives if the wake-up is delayed (see
    /// [`loss_guard`](super::loss_guard)). Zero, the initial value, means that the queue loses nothing. The
    /// additional polling is part of [`Report::cost`].
    pub fn set_guard(&mut self, guard: Duration) {
        self.adaptive.set_guard(guard);
    }

    /// Begins a wait, after the waiter has polled and found nothing.
    pub fn begin(&mut self, now: Instant) {
        (self.began, self.since, self.paid) = (now, now, 0);
        let spin = |spin_until| Plan { spin_until, nap: None };
        let plan = match self.wait {
            Wait::Poll => spin(Instant::NEVER),
            Wait::Interrupt => spin(now),
            Wait::Hybrid { spin: length } => spin(now + length),
            Wait::Adaptive => self.adaptive.plan(now, &self.costs),
        };
        (self.spin_until, self.nap) = (plan.spin_until, plan.nap);
        self.phase = Phase::Spin;
    }

    /// Returns what to do now. Call it after [`Waiter::begin`], and again whenever a step's time is reached
    /// without an arrival.
    pub fn step(&mut self, now: Instant) -> Step {
        if self.phase == Phase::Spin {
            if now < self.spin_until {
                return Step::Spin { until: self.spin_until };
            }
            self.leave(now, if self.nap.is_some() { Phase::Nap } else { Phase::Block });
        }
        if let Some(nap) = self.nap {
            if self.phase == Phase::Nap {
                if now < nap.until {
                    return Step::Sleep { until: nap.until };
                }
                self.leave(now, Phase::Watch);
            }
            if self.phase == Phase::Watch {
                if now < nap.watch_until {
                    return Step::Spin { until: nap.watch_until };
                }
                self.leave(now, Phase::Block);
            }
        }
        Step::Sleep { until: Instant::NEVER }
    }

    /// Records that the core was taken away for `lost` during a spin that lasted until now.
    pub fn on_preempted(&mut self, now: Instant, lost: Duration) {
        self.report.disturbances += 1;
        if matches!(self.phase, Phase::Spin | Phase::Watch) {
            // The time that other processes used was not spent spinning.
            self.since = (self.since + lost).min(now);
            if self.wait == Wait::Adaptive {
                self.adaptive.preempted(now, lost);
                self.leave(now, Phase::Block);
            }
        }
    }

    /// Records an arrival found at the first poll, before any wait began.
    #[inline]
    pub fn at_once(&mut self) {
        self.report.at_once += 1;
        if self.wait == Wait::Adaptive {
            self.adaptive.at_once();
        }
    }

    /// Ends the wait with an arrival.
    pub fn on_arrival(&mut self, now: Instant, evidence: Evidence) {
        if self.phase == Phase::Idle {
            return self.at_once();
        }
        let arrived = match evidence {
            Evidence::Rung { at } if at >= self.began && at <= now => at,
            // The time of arrival is unknown, so assume the usual wake-up latency.
            Evidence::Unrung if self.phase == Phase::Block => (now - self.costs.wake).max(self.began),
            _ => now,
        };
        let rung = matches!(evidence, Evidence::Rung { .. });
        let (phase, slept) = (self.phase, evidence != Evidence::Spinning);
        self.end(now, slept);
        let late = now.since(arrived);
        let (mut cost, mut usual) = (self.paid, self.paid);
        if slept && phase == Phase::Block {
            cost += self.costs.both_ends() + self.costs.latency(late);
            usual += self.costs.block();
        } else if slept {
            cost += self.costs.latency(late) + if rung { nanos(self.costs.ring) } else { 0 };
            usual = cost;
        }
        self.report.waits += 1;
        self.report.spin_hits += u64::from(phase == Phase::Spin);
        self.report.blocks += u64::from(rung);
        self.pay(cost, arrived);
        if self.wait == Wait::Adaptive {
            let outcome = Outcome { began: self.began, arrived, now, evidence, paid: usual };
            self.adaptive.learn(&outcome, &self.costs);
        }
        if rung && late > WAKE_LOST * self.costs.wake {
            // The sleeper was ready to run, but other processes kept the core.
            self.report.disturbances += 1;
            self.adaptive.disturbed(now, late);
        } else if rung && arrived < now {
            self.learn_wake(late);
        }
    }

    /// Ends the wait without an arrival, for example because a deadline passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Idle {
            return;
        }
        let asleep = self.phase == Phase::Block;
        self.end(now, asleep);
        self.pay(self.paid + if asleep { nanos(self.costs.sleep) } else { 0 }, now);
        if self.wait == Wait::Adaptive {
            self.adaptive.gave_up(now.since(self.began), &self.costs);
        }
    }

    fn end(&mut self, now: Instant, slept: bool) {
        match self.phase {
            // The arrival was found at the last check, so there was no sleep.
            Phase::Nap if !slept => self.phase = Phase::Idle,
            _ => self.leave(now, Phase::Idle),
        }
    }

    /// Adds the cost of a wait for an arrival at that time to the report.
    fn pay(&mut self, cost: u64, arrived: Instant) {
        let block = self.costs.block();
        // On a contended core, spinning is not possible, so even the optimum sleeps.
        let contended = self.wait == Wait::Adaptive && self.adaptive.is_contended(self.began);
        let gap = nanos(arrived.since(self.began));
        self.report.cost += Duration::from_nanos(cost);
        self.report.optimum += Duration::from_nanos(if contended { block } else { gap.min(block) });
    }

    /// Follows the median of the wake-up latency, within a quarter of the driver's value and four times that
    /// value.
    fn learn_wake(&mut self, late: Duration) {
        let first = self.costs_first.wake;
        let step = self.costs.wake / 32;
        let moved = if late > self.costs.wake { self.costs.wake + step } else { self.costs.wake - step };
        self.costs.wake = moved.clamp(first / 4, first * 4);
    }

    /// Ends a phase and charges its cost.
    fn leave(&mut self, now: Instant, next: Phase) {
        match self.phase {
            Phase::Spin | Phase::Watch => {
                let spun = now.since(self.since);
                self.report.spun += spun;
                self.paid += nanos(spun);
            }
            Phase::Nap => {
                self.report.timed_sleeps += 1;
                self.paid += nanos(self.costs.sleep);
                if let Some(nap) = self.nap.filter(|nap| now >= nap.until) {
                    self.adaptive.learn_late(now.since(nap.until));
                }
            }
            Phase::Block | Phase::Idle => {}
        }
        (self.phase, self.since) = (next, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(at: u64) -> Instant {
        Instant::from_nanos(at * 1000)
    }

    const NEVER: Instant = Instant::NEVER;

    #[test]
    fn fixed_policies_do_what_their_names_say() {
        let spin = |until| Step::Spin { until };
        let sleep = Step::Sleep { until: NEVER };
        let hybrid = Wait::Hybrid { spin: Duration::from_micros(50) };
        for (wait, at_once, after_40, after_60) in [
            (Wait::Poll, spin(NEVER), spin(NEVER), spin(NEVER)),
            (Wait::Interrupt, sleep, sleep, sleep),
            (hybrid, spin(micros(150)), spin(micros(150)), sleep),
        ] {
            let mut waiter = Waiter::new(wait, Costs::default());
            waiter.begin(micros(100));
            assert_eq!(waiter.step(micros(100)), at_once, "{wait}");
            assert_eq!(waiter.step(micros(140)), after_40, "{wait}");
            assert_eq!(waiter.step(micros(160)), after_60, "{wait}");
        }
    }

    #[test]
    fn a_report_adds_up_what_was_paid() {
        let mut waiter = Waiter::new(Wait::Hybrid { spin: Duration::from_micros(50) }, Costs::default());
        waiter.at_once();
        waiter.begin(micros(10));
        waiter.step(micros(10));
        waiter.on_arrival(micros(20), Evidence::Spinning);
        waiter.begin(micros(100));
        waiter.step(micros(100));
        waiter.step(micros(150));
        waiter.on_arrival(micros(1020), Evidence::Rung { at: micros(1000) });
        let expected = Report {
            waits: 2,
            at_once: 1,
            spin_hits: 1,
            blocks: 1,
            spun: Duration::from_micros(60),
            cost: Duration::from_micros(10 + 50 + 9 + 7 + 20),
            optimum: Duration::from_micros(10 + 36),
            ..Report::default()
        };
        assert_eq!(*waiter.report(), expected);
        assert_eq!(waiter.report().regret(), Duration::from_micros(50));
    }

    #[test]
    fn a_ring_time_outside_the_wait_is_ignored() {
        for at in [micros(0), micros(99), micros(201), NEVER] {
            let mut waiter = Waiter::new(Wait::Interrupt, Costs::default());
            waiter.begin(micros(100));
            waiter.step(micros(100));
            waiter.on_arrival(micros(200), Evidence::Rung { at });
            assert_eq!(waiter.report().cost, Duration::from_micros(16), "{at:?}: no latency was seen");
        }
    }

    #[test]
    fn a_lost_core_ends_the_spinning_of_adaptive_and_is_not_paid_as_spinning() {
        let mut waiter = Waiter::new(Wait::Adaptive, Costs::default());
        waiter.begin(micros(0));
        assert!(matches!(waiter.step(micros(0)), Step::Spin { .. }));
        waiter.on_preempted(micros(4010), Duration::from_micros(4000));
        assert_eq!(waiter.step(micros(4010)), Step::Sleep { until: NEVER });
        assert_eq!(waiter.report().spun, Duration::from_micros(10));
    }

    #[test]
    fn a_sleeper_that_does_not_get_the_core_when_woken_stops_spinning_for_a_while() {
        let mut waiter = Waiter::new(Wait::Adaptive, Costs::default());
        waiter.begin(micros(0));
        waiter.step(micros(0));
        assert_eq!(waiter.step(micros(1000)), Step::Sleep { until: NEVER });
        waiter.on_arrival(micros(5000), Evidence::Rung { at: micros(2000) });
        waiter.begin(micros(5000));
        assert_eq!(waiter.step(micros(5000)), Step::Sleep { until: NEVER });
        waiter.on_arrival(micros(5020), Evidence::Rung { at: micros(5010) });
        waiter.begin(micros(900_000));
        assert!(matches!(waiter.step(micros(900_000)), Step::Spin { .. }), "and tries again later");
    }
}
