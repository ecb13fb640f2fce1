//! Compares the cost of wait policies with an optimum that knows every arrival in advance. Arrivals are in
//! virtual time.
//!
//! The receiver is a loop that drives a [`Waiter`] as the real one does; sleeping, waking and timers have the
//! costs in [`COSTS`]. Handling a message takes no time.

use kiban_base::{Costs, Evidence, Instant, Report, SimRng, Step, Wait, Waiter, optimum};
use std::time::Duration;

const COSTS: Costs = Costs {
    wake: Duration::from_micros(20),
    sleep: Duration::from_micros(9),
    ring: Duration::from_micros(7),
    timer_late: Duration::from_micros(25),
    timer_late_seldom: Duration::from_micros(45),
    price: 1.0,
};
const FIXED_MICROS: [u64; 6] = [20, 36, 50, 100, 140, 300];

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    /// CPU time of both ends and the price of every message's latency, in nanoseconds.
    cost: u64,
    report: Report,
}

/// Runs the receiver until the last of `arrivals`.
struct Receiver<'a> {
    waiter: Waiter,
    now: Instant,
    cost: u64,
    timer: &'a mut dyn FnMut() -> Duration,
}

impl Receiver<'_> {
    fn meet(&mut self, arrival: Instant) {
        if arrival <= self.now {
            self.waiter.at_once();
        } else {
            self.waiter.begin(self.now);
            let evidence = self.wait_for(arrival);
            self.waiter.on_arrival(self.now, evidence);
        }
        self.cost += COSTS.latency(self.now.since(arrival));
    }

    fn wait_for(&mut self, arrival: Instant) -> Evidence {
        loop {
            match self.waiter.step(self.now) {
                Step::Spin { until } => {
                    assert!(until > self.now, "a step leads on");
                    let end = until.min(arrival);
                    self.cost += end.since(self.now).as_nanos() as u64;
                    self.now = end;
                    if arrival <= until {
                        return Evidence::Spinning;
                    }
                }
                Step::Sleep { until } => {
                    self.cost += COSTS.sleep.as_nanos() as u64;
                    let awake = if until == Instant::NEVER { until } else { until + (self.timer)() };
                    if arrival <= awake {
                        self.cost += COSTS.ring.as_nanos() as u64;
                        self.now = awake.min(arrival + COSTS.wake);
                        return Evidence::Rung { at: arrival };
                    }
                    self.now = awake;
                }
            }
        }
    }
}

fn run(wait: Wait, arrivals: &[Instant]) -> Outcome {
    let mut chance = SimRng::from_seed(99);
    let mut timer = || {
        COSTS.timer_late - micros(5) + micros(chance.below(if chance.clone().happens(0.1) { 60 } else { 10 }))
    };
    let mut receiver =
        Receiver { waiter: Waiter::new(wait, COSTS), now: Instant::ZERO, cost: 0, timer: &mut timer };
    arrivals.iter().for_each(|&arrival| receiver.meet(arrival));
    Outcome { cost: receiver.cost, report: *receiver.waiter.report() }
}

fn from_gaps(gaps: impl IntoIterator<Item = u64>) -> Vec<Instant> {
    let mut at = Instant::ZERO;
    gaps.into_iter()
        .map(|nanos| {
            at += Duration::from_nanos(nanos);
            at
        })
        .collect()
}

/// Returns arrivals of the named kind of traffic, whose mean gap is approximately `gap_micros`.
fn traffic(kind: &str, gap_micros: u64, messages: usize) -> Vec<Instant> {
    let mut chance = SimRng::from_seed(gap_micros);
    let gap = gap_micros * 1000;
    match kind {
        "constant" => from_gaps(vec![gap; messages]),
        "exponential" => from_gaps((0..messages).map(|_| (-(1.0 - chance.unit()).ln() * gap as f64) as u64)),
        // Heavy-tailed gaps: with exponent 1.5, the mean is three times the least gap, and there is no finite
        // variance.
        "Pareto" => from_gaps(
            (0..messages).map(|_| (gap as f64 / 3.0 / (1.0 - chance.unit()).powf(1.0 / 1.5)) as u64),
        ),
        // Bursts of 20 arrivals, with long pauses between them.
        "bursts" => {
            from_gaps((0..messages).map(|at| if at % 20 == 0 { gap * 20 - 19 * gap / 10 } else { gap / 10 }))
        }
        // Periodic arrivals with up to 3 % jitter.
        "periodic" => {
            let due = |at: u64| Duration::from_nanos(gap * at);
            (1..=messages as u64)
                .map(|at| Instant::ZERO + due(at) + Duration::from_nanos(chance.below(gap * 3 / 100)))
                .collect()
        }
        _ => unreachable!("no traffic is called {kind}"),
    }
}

const KINDS: [&str; 5] = ["constant", "exponential", "Pareto", "bursts", "periodic"];
const GAPS_MICROS: [u64; 10] = [10, 20, 30, 50, 100, 200, 500, 1_000, 3_000, 10_000];

fn fixed_policies() -> Vec<Wait> {
    let hybrid = FIXED_MICROS.map(|spin| Wait::Hybrid { spin: micros(spin) });
    [Wait::Interrupt, Wait::Poll].into_iter().chain(hybrid).collect()
}

#[test]
fn adaptive_is_within_the_bound_in_every_row_and_beats_every_fixed_setting_over_all() {
    let fixed = fixed_policies();
    // Collect the worst and the mean cost of each policy, relative to the optimum.
    let (mut worst, mut sum) = (vec![0.0f64; fixed.len()], vec![0.0; fixed.len()]);
    let (mut worst_adaptive, mut sum_adaptive) = (0.0f64, 0.0);
    for (kind, gap) in KINDS.into_iter().flat_map(|kind| GAPS_MICROS.map(|gap| (kind, gap))) {
        let arrivals = traffic(kind, gap, 4_000);
        let least = optimum(Instant::ZERO, &arrivals, &COSTS) as f64;
        let ratios: Vec<f64> = fixed.iter().map(|&wait| run(wait, &arrivals).cost as f64 / least).collect();
        let adaptive = run(Wait::Adaptive, &arrivals).cost as f64 / least;
        let best = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{kind:12} {gap:6} us: adaptive {adaptive:.2}, best fixed {best:.2}, fixed {ratios:.2?}");
        assert!(adaptive <= 2.0, "{kind} {gap} us: {adaptive:.2} optima");
        // If short gaps are as long as a wake-up, one sleep sometimes covers two arrivals, which this count
        // ignores.
        assert!(adaptive <= 1.2 * best, "{kind} {gap} us: {adaptive:.2} optima, the best fixed {best:.2}");
        for (at, ratio) in ratios.into_iter().enumerate() {
            worst[at] = worst[at].max(ratio);
            sum[at] += ratio;
        }
        worst_adaptive = worst_adaptive.max(adaptive);
        sum_adaptive += adaptive;
    }
    println!("adaptive: worst {worst_adaptive:.2}, sum {sum_adaptive:.1}");
    for (at, wait) in fixed.iter().enumerate() {
        println!("{wait}: worst {:.2}, sum {:.1}", worst[at], sum[at]);
        assert!(worst[at] > worst_adaptive, "{wait}: worst {:.2}, adaptive {worst_adaptive:.2}", worst[at]);
        assert!(sum[at] > 1.2 * sum_adaptive, "{wait}: sum {:.1}, adaptive {sum_adaptive:.1}", sum[at]);
    }
}

#[test]
fn regimes_that_take_turns_cost_less_than_with_any_fixed_setting() {
    for turn in [5, 30, 100, 500] {
        let gaps =
            (0..8_000).map(|at| if at / turn % 2 == 0 { 8_000 } else { 700_000 + at as u64 % 7 * 90_000 });
        let arrivals = from_gaps(gaps);
        let least = optimum(Instant::ZERO, &arrivals, &COSTS) as f64;
        let adaptive = run(Wait::Adaptive, &arrivals).cost as f64 / least;
        assert!(adaptive <= 1.3, "turns of {turn}: {adaptive:.2} optima");
        for wait in fixed_policies() {
            let ratio = run(wait, &arrivals).cost as f64 / least;
            assert!(ratio > adaptive, "turns of {turn}: {wait} {ratio:.2}, adaptive {adaptive:.2}");
        }
    }
}

/// Runs against an adversary that sees every decision and chooses the next arrival. The adversary is given
/// the time until which the receiver spins, or `None` if the receiver sleeps at once.
fn against(waits: u64, mut choose: impl FnMut(u64, Option<Instant>, Instant) -> Instant) -> f64 {
    let (mut now, mut cost, mut least) = (Instant::ZERO, 0, 0);
    let mut waiter = Waiter::new(Wait::Adaptive, COSTS);
    for number in 0..waits {
        waiter.begin(now);
        let began = now;
        let spin = match waiter.step(now) {
            Step::Spin { until } => Some(until),
            Step::Sleep { .. } => None,
        };
        let arrival = choose(number, spin, began);
        let mut timer = || COSTS.timer_late;
        let mut receiver = Receiver { waiter, now, cost: 0, timer: &mut timer };
        let evidence = receiver.wait_for(arrival);
        receiver.waiter.on_arrival(receiver.now, evidence);
        cost += receiver.cost + COSTS.latency(receiver.now.since(arrival));
        now = receiver.now;
        waiter = receiver.waiter;
        least += (arrival.since(began).as_nanos() as u64).min(COSTS.block());
    }
    cost as f64 / least as f64
}

#[test]
fn an_adaptive_adversary_cannot_make_it_cost_more_than_twice_the_optimum() {
    let soon = Duration::from_nanos(10);
    let far = Duration::from_millis(2);
    type Choice = fn(u64, Option<Instant>, Instant) -> Instant;
    let adversaries: [(&str, Choice); 5] = [
        ("just after giving up", |_, spin, now| spin.unwrap_or(now) + Duration::from_nanos(10)),
        ("never while spinning", |_, spin, now| {
            if spin.is_some() { now + Duration::from_millis(2) } else { now + Duration::from_nanos(10) }
        }),
        ("lulled with long gaps, then short ones", |number, spin, now| match spin {
            None if number % 400 > 200 => now + Duration::from_nanos(10),
            spin => spin.unwrap_or(now) + Duration::from_millis(1),
        }),
        ("lulled with short gaps, then long ones", |number, _, now| {
            now + if number % 300 < 150 { Duration::from_micros(12) } else { Duration::from_millis(1) }
        }),
        ("a clock that misses whoever naps", |number, _, now| {
            let due = 200_000 * (number / 40 + now.as_nanos() / 200_000 + 1);
            Instant::from_nanos(due + if number % 40 > 12 { 90_000 } else { 0 })
        }),
    ];
    for (name, choose) in adversaries {
        let ratio = against(20_000, choose);
        println!("{name}: {ratio:.3}");
        assert!(ratio <= 2.02, "{name}: {ratio:.3} optima");
    }
    assert!(against(20_000, |_, spin, now| spin.unwrap_or(now) + soon) > 1.5, "an adversary does harm");
    assert!(against(20_000, |_, _, now| now + far) < 1.1, "and who comes rarely is slept for");
}

#[test]
fn the_same_arrivals_cost_the_same_to_the_nanosecond() {
    let arrivals = traffic("Pareto", 50, 4_000);
    let (first, second) = (run(Wait::Adaptive, &arrivals), run(Wait::Adaptive, &arrivals));
    assert_eq!((first.cost, first.report), (second.cost, second.report));
    assert!(first.report.blocks > 0 && first.report.spin_hits > 0);
}
