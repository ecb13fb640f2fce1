//! The state of the adaptive policy, and its plan for one wait.
//!
//! Spin      spins for the time that is cheapest on average for gaps like those observed ([`Gaps`]), but
//!           never longer than a sleep costs.
//! Nap       a timed sleep towards a periodic arrival ([`Period`]), if that was clearly cheaper recently.
//! Account   learning can be wrong, and an adversary may provoke that. A balance records how far the total
//!           cost is below twice the optimum. When the balance is spent, the plan is to spin for the cost of
//!           a sleep, which stays within twice the optimum for any arrivals. If learning would have done much
//!           better in the meantime, the balance gets a small loan. Each loan requires twice the savings of
//!           the previous one, so the total cost is at most 2 optimum + o(optimum).
//! Guard     on a queue that loses arrivals, polling may be necessary although it costs more ([`Guard`]).
//! Core      if the core was taken away while spinning, or a woken sleeper did not get the core, spinning
//!           stops for [`PAUSE`] times as long. The pause doubles each time that a new attempt soon fails in
//!           the same way. An occasional disturbance therefore hardly reduces spinning, but a waiter whose
//!           core stays busy rarely retries.

use super::costs::{Costs, nanos};
use super::evidence::Evidence;
use super::gaps::Gaps;
use super::guard::Guard;
use super::period::{Nap, Period};
use crate::Instant;
use core::time::Duration;

/// Number of waits after which the spin is recomputed.
const RENEW: u8 = 8;
/// When spinning is retried, the time lost to other processes stays below this fraction (one part in this
/// number).
const PAUSE: u32 = 16;
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A nap must be expected to cost less than this fraction of the recent cost without naps.
const CLEARLY: f32 = 0.9;

/// The plan for one wait: spin until a time, optionally nap, then sleep until the bell rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) spin_until: Instant,
    pub(super) nap: Option<Nap>,
}

/// The result of one wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) began: Instant,
    pub(super) arrived: Instant,
    pub(super) now: Instant,
    pub(super) evidence: Evidence,
    /// All values are in nanoseconds. A sleep ended by the bell is charged its usual cost.
    pub(super) paid: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    gaps: Gaps,
    period: Period,
    account: Account,
    backoff: Backoff,
    guard: Guard,
    /// Whether the guard lengthened the plan of this wait. The cost of such a wait does not judge learning.
    is_guarded: bool,
    /// Until when polling would only take the core from others: the thread lost it while it polled.
    shares_core_until: Instant,
    /// The spin time for a wait that begins at the last arrival.
    spin: u64,
    /// The spin time that learning proposed for this wait, whether or not it was used.
    proposed: u64,
    /// Number of waits until the spin time is recomputed.
    fresh: u8,
    /// How long the last arrival had waited when it was found.
    late: u64,
    /// Recent average cost of a wait without naps, whether or not one was taken.
    without_nap: f32,
}

impl Adaptive {
    pub(super) fn new(costs: &Costs) -> Adaptive {
        Adaptive {
            gaps: Gaps::new(),
            period: Period::new(costs),
            account: Account::new(costs.block()),
            backoff: Backoff::default(),
            guard: Guard::new(),
            is_guarded: false,
            shares_core_until: Instant::ZERO,
            spin: costs.block(),
            proposed: 0,
            fresh: 0,
            late: 0,
            without_nap: costs.block() as f32,
        }
    }

    /// Returns whether other processes seem to compete for the core.
    pub(super) fn is_contended(&self, now: Instant) -> bool {
        now < self.backoff.until
    }

    pub(super) fn set_guard(&mut self, length: Duration) {
        self.guard.set_length(length);
    }

    pub(super) fn plan(&mut self, now: Instant, costs: &Costs) -> Plan {
        let plan = self.cheapest_plan(now, costs);
        let guard = if now < self.shares_core_until { Duration::ZERO } else { self.guard.length() };
        let guarded_until = now + guard;
        self.is_guarded = !guard.is_zero() && (plan.nap.is_some() || plan.spin_until < guarded_until);
        if self.is_guarded { Plan { spin_until: guarded_until, nap: None } } else { plan }
    }

    fn cheapest_plan(&mut self, now: Instant, costs: &Costs) -> Plan {
        if self.is_contended(now) {
            self.proposed = 0;
            return Plan { spin_until: now, nap: None };
        }
        let block = costs.block();
        if self.late > 0 {
            self.proposed = self.gaps.cheapest(self.late, block).nanos;
        } else {
            if self.fresh == 0 {
                (self.spin, self.fresh) = (self.gaps.cheapest(0, block).nanos, RENEW);
            }
            self.fresh -= 1;
            self.proposed = self.spin.min(block);
        }
        if self.account.is_spent(block) {
            return Plan { spin_until: now + Duration::from_nanos(block), nap: None };
        }
        if let Some((nap, cost)) = self.period.nap(now, costs)
            && cost < CLEARLY * self.without_nap
        {
            return Plan { spin_until: now, nap: Some(nap) };
        }
        Plan { spin_until: now + Duration::from_nanos(self.proposed), nap: None }
    }

    pub(super) fn at_once(&mut self) {
        self.late = 0;
        self.period.forget();
    }

    pub(super) fn learn(&mut self, outcome: &Outcome, costs: &Costs) {
        let Outcome { began, arrived, now, evidence, paid } = *outcome;
        let (gap, block) = (nanos(arrived.since(began)), costs.block());
        self.gaps.learn(gap.saturating_add(self.late));
        self.guard.learn(arrived.since(began));
        let proposal = if gap <= self.proposed { gap } else { self.proposed + block };
        self.without_nap += (proposal as f32 - self.without_nap) / 8.0;
        if !self.is_contended(began) && !self.is_guarded {
            self.account.settle(gap.min(block), paid, proposal, block);
        }
        self.late = nanos(now.since(arrived));
        match evidence {
            Evidence::Unrung => self.period.forget(),
            _ => self.period.learn(arrived, costs),
        }
    }

    /// Records that nothing arrived for `waited`.
    pub(super) fn gave_up(&mut self, waited: Duration, costs: &Costs) {
        // A wait that ended early says only that the arrival was farther away than that.
        if waited > self.guard.length() {
            self.guard.learn(waited);
        }
        let gap = nanos(waited) + self.late;
        // A shorter wait gives no information about gaps.
        if gap >= costs.block() {
            self.gaps.learn(gap);
        }
    }

    pub(super) fn learn_late(&mut self, late: Duration) {
        self.period.learn_late(late);
    }

    /// Records that a woken sleeper had to wait for the core.
    pub(super) fn disturbed(&mut self, now: Instant, lost: Duration) {
        self.backoff.disturbed(now, lost);
    }

    /// Records that the core was taken away while the thread polled.
    pub(super) fn preempted(&mut self, now: Instant, lost: Duration) {
        self.backoff.disturbed(now, lost);
        self.shares_core_until = self.backoff.until;
    }
}

/// The margin by which the waits so far cost less than twice the optimum.
#[derive(Clone, Debug)]
struct Account {
    balance: i64,
    /// The cost that learning would have saved while the balance was spent.
    shadow: i64,
    /// The savings that the next loan requires, in sleeps.
    asked: i64,
}

impl Account {
    /// The amount of a loan, and the initial balance, in sleeps.
    const LOAN: i64 = 3;
    const ASKED: i64 = 8;
    const BALANCE_MAX: i64 = 64;

    fn new(block: u64) -> Account {
        Account { balance: Self::LOAN * block as i64, shadow: 0, asked: Self::ASKED }
    }

    fn is_spent(&self, block: u64) -> bool {
        self.balance < block as i64
    }

    fn settle(&mut self, optimum: u64, paid: u64, proposal: u64, block: u64) {
        let twice = 2 * optimum as i64;
        let block = block as i64;
        if self.balance < block {
            self.shadow = (self.shadow + twice - proposal as i64).max(0);
            if self.shadow > self.asked * block {
                self.balance = Self::LOAN * block;
                self.shadow = 0;
                self.asked = (2 * self.asked).min(1 << 20);
            }
        }
        // If the scheduler took the core away during a wait, the cost of the wait says little about the plan,
        // so cap it.
        let paid = (paid as i64).min(4 * block);
        self.balance = self.balance.saturating_add(twice - paid).clamp(-block, Self::BALANCE_MAX * block);
        if self.balance == Self::BALANCE_MAX * block {
            self.asked = Self::ASKED;
        }
    }
}

/// Exponential back-off from spinning after others have used the core.
#[derive(Clone, Debug, Default)]
struct Backoff {
    until: Instant,
    length: Duration,
}

impl Backoff {
    fn disturbed(&mut self, now: Instant, lost: Duration) {
        // This happened soon after the last time, so the other processes are still running.
        let again = now.since(self.until) < self.length;
        let longer = if again { self.length * 2 } else { Duration::ZERO };
        self.length = (lost * PAUSE).max(longer).min(PAUSE_MAX);
        self.until = now + self.length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truce_grows_while_others_stay_and_starts_small_again() {
        let mut truce = Backoff::default();
        let lost = Duration::from_millis(4);
        let mut now = Instant::ZERO;
        let lengths: [u64; 6] = core::array::from_fn(|_| {
            now = truce.until + Duration::from_millis(5);
            truce.disturbed(now, lost);
            truce.length.as_millis() as u64
        });
        assert_eq!(lengths, [64, 128, 256, 512, 1024, 2048]);
        truce.disturbed(truce.until + Duration::from_secs(60), Duration::from_micros(20));
        assert_eq!(truce.length, PAUSE * Duration::from_micros(20));
    }
}
