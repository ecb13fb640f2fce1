//! Chooses the seeds and values of n to run, and reports the results.

use kiban_fault::Plan;
use std::sync::LazyLock;
use std::time::Duration;

/// The scenarios. Seed s runs scenario s modulo their number, and passes the quotient to it ([`Soak::run`]).
const SCENARIOS: [&str; 20] = [
    "board",
    "start",
    "attached",
    "preloaded",
    "links",
    "kernel links",
    "ftam",
    "ftam client",
    "verbs server",
    "verbs client",
    "rsocket server",
    "rsocket client",
    "rdma server",
    "rdma client",
    "vi server",
    "vi server on udp",
    "vi client",
    "vipl server",
    "vipl client",
    "lab server",
];
/// The number of seeds that `make test` runs.
const SEEDS: u64 = 200;
/// The number of values of n that `make test` runs in each scenario.
const STEPS: usize = 6;
/// The number of allocations that `make test` makes fail in each program.
const ALLOCATIONS: usize = 10;
/// The maximum number of failures reported.
pub(crate) const FAILURES_MAX: usize = 5;

/// How much to run.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// If set, the only seed that is run.
    pub(crate) seed: Option<u64>,
    /// The number of times that a single seed is run.
    pub(crate) times: u64,
    /// The number of seeds, divided among all scenarios.
    pub(crate) seeds: u64,
    /// The number of values of n in each scenario. For each value, one run makes the n-th call fail, and
    /// another run kills the process at that call.
    pub(crate) steps: usize,
    /// The number of allocations that are made to fail.
    pub(crate) allocations: usize,
    /// The time limit of each test.
    pub(crate) time: Duration,
}

impl Effort {
    /// Returns the effort for `make test`.
    pub(crate) fn quick() -> Effort {
        Effort {
            seed: None,
            times: 5,
            seeds: SEEDS,
            steps: STEPS,
            allocations: ALLOCATIONS,
            time: Duration::MAX,
        }
    }

    /// Returns the effort requested by environment variables (`make soak`).
    pub(crate) fn asked() -> Effort {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
        let quick = Effort::quick();
        let (seeds, time) = (number("KIBAN_SOAK_SEEDS"), number("KIBAN_SOAK_TIME"));
        let asked = Effort {
            seed: number("KIBAN_SOAK_SEED"),
            times: number("KIBAN_SOAK_TIMES").unwrap_or(quick.times),
            time: time.map_or(quick.time, Duration::from_secs),
            ..quick
        };
        match seeds.is_some() || time.is_some() {
            true => Effort {
                seeds: seeds.unwrap_or(u64::MAX),
                steps: usize::MAX,
                allocations: usize::MAX,
                ..asked
            },
            false => asked,
        }
    }

    fn is_soak(&self) -> bool {
        self.steps == usize::MAX
    }
}

/// Returns every number below `count` once, starting with 0. Every prefix of the sequence is evenly spread
/// (it advances by the golden ratio).
pub(crate) fn spread(count: u64) -> impl Iterator<Item = u64> {
    let is_coprime = |step: &u64| {
        let (mut a, mut b) = (*step, count);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let golden = (count as f64 * 0.618) as u64;
    let step = (golden.max(1)..).find(is_coprime).expect("count + 1 is, unless an earlier one was");
    (0..count).map(move |at| (u128::from(at) * u128::from(step) % u128::from(count)) as u64)
}

/// Returns whether programs can be traced; prints the reason if not.
///
/// # Panics
/// If programs cannot be traced although `KIBAN_FAULTS=required` is set (as in `.ci/run`).
pub(crate) fn can_trace() -> bool {
    static CAN: LazyLock<Result<(), String>> = LazyLock::new(kiban_fault::available);
    is_run(&CAN, std::env::var("KIBAN_FAULTS").is_ok_and(|value| value == "required"))
}

fn is_run(can: &Result<(), String>, is_required: bool) -> bool {
    if let Err(why) = can {
        assert!(!is_required, "KIBAN_FAULTS=required, but {why}");
        println!("SKIPPED: {why}");
    }
    can.is_ok()
}

/// The result of a run: the number of calls that the plan saw, and the faults that were injected.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) injections: u64,
    pub(crate) notes: Vec<String>,
}

/// Runs a scenario with its share of the seeds and values of n.
pub(crate) struct Soak {
    name: &'static str,
    /// The number of kinds of the scenario, such as the kinds of link.
    kinds: u64,
    failures: Vec<String>,
    runs: u64,
    injections: u64,
    /// The number of calls in a run without faults; the maximum over all kinds.
    calls: u64,
}

impl Soak {
    pub(crate) fn new(name: &'static str) -> Soak {
        Soak::of_kinds(name, 1)
    }

    /// A scenario that has several kinds. Its number modulo `kinds` selects the kind.
    pub(crate) fn of_kinds(name: &'static str, kinds: usize) -> Soak {
        Soak { name, kinds: kinds as u64, failures: Vec::new(), runs: 0, injections: 0, calls: 0 }
    }

    /// Runs each kind of the scenario without faults, and then the scenario with each of its seeds. After
    /// that, for each n and each kind, runs it once with the n-th call failing, and once with the process
    /// killed at that call.
    ///
    /// The scenario is passed a number from which it derives its kind and other properties. When these
    /// numbers are divided by a small number, all remainders occur equally often, both among the seeds and
    /// among the values of n.
    pub(crate) fn run(self, scenario: impl FnMut(Plan, u64, &mut Seen) -> Result<(), String>) {
        let clock = kiban_os::Clock::new();
        self.cover(&Effort::asked(), &|| clock.now().since(kiban_base::Instant::ZERO), scenario);
    }

    fn cover(
        mut self,
        effort: &Effort,
        elapsed: &dyn Fn() -> Duration,
        mut scenario: impl FnMut(Plan, u64, &mut Seen) -> Result<(), String>,
    ) {
        let scenarios = SCENARIOS.len() as u64;
        let place = SCENARIOS.iter().position(|name| *name == self.name);
        let place = place.expect("SCENARIOS has to count it") as u64;
        if effort.seed.is_some_and(|seed| seed % scenarios != place) {
            return;
        }
        for kind in 0..self.kinds {
            let mut seen = Seen::default();
            if let Err(why) = scenario(Plan::Watch, kind, &mut seen) {
                panic!("{}, kind {kind}: without any fault: {why}", self.name);
            }
            assert!(seen.calls > 0, "{}, kind {kind}: no call was seen", self.name);
            self.calls = self.calls.max(seen.calls);
        }
        let repeat = |seed: u64| format!("make soak SEED={seed}");
        if let Some(seed) = effort.seed {
            for _ in 0..effort.times {
                let plan = Plan::from_seed(seed, self.calls);
                self.once(plan, seed / scenarios, &repeat(seed), &mut scenario);
            }
            return self.tell(0);
        }
        let mut seed = place;
        // Use half of the time for seeds, and the rest for the values of n.
        while seed < effort.seeds && elapsed() < effort.time / 2 && self.failures.len() < FAILURES_MAX {
            let plan = Plan::from_seed(seed, self.calls);
            self.once(plan, seed / scenarios, &repeat(seed), &mut scenario);
            if effort.is_soak() && (seed / scenarios).is_multiple_of(25) {
                eprintln!("{}: seed {seed}, {} runs, {} faults", self.name, self.runs, self.injections);
            }
            seed += scenarios;
        }
        let mut swept = 0;
        for (choice, number) in spread(self.calls * self.kinds).take(effort.steps).enumerate() {
            if elapsed() >= effort.time || self.failures.len() >= FAILURES_MAX {
                break;
            }
            let call = number / self.kinds;
            for plan in [Plan::Nth { call, choice: choice as u64 }, Plan::Kill { call }] {
                self.once(plan, number, "a sweep over n", &mut scenario);
            }
            swept += 1;
        }
        self.tell(swept);
    }

    fn once(
        &mut self,
        plan: Plan,
        number: u64,
        how: &str,
        scenario: &mut impl FnMut(Plan, u64, &mut Seen) -> Result<(), String>,
    ) {
        let mut seen = Seen::default();
        let outcome = scenario(plan, number, &mut seen);
        self.runs += 1;
        self.injections += seen.injections;
        if let Err(why) = outcome {
            let name = self.name;
            let notes = seen.notes.join("\n    ");
            let told = format!("{name}: {how}: {plan:?}, number {number}\n    {notes}\n  {why}");
            eprintln!("FAILED {told}");
            self.failures.push(told);
        }
    }

    fn tell(self, swept: u64) {
        let Soak { name, kinds, runs, injections, calls, failures } = self;
        let of_kinds = if kinds > 1 { format!(" in each of {kinds} kinds") } else { String::new() };
        println!("{name}: {runs} runs, {injections} faults; {swept} values of n, of {calls}{of_kinds}");
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(injections > 0 || runs < STEPS as u64, "{name}: nothing was injected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Runs a scenario with ten calls, in which each run takes a second; returns the plans and numbers that
    /// were run.
    fn covered(effort: Effort) -> Vec<(Plan, u64)> {
        covered_kinds(1, effort)
    }

    fn covered_kinds(kinds: usize, effort: Effort) -> Vec<(Plan, u64)> {
        let (mut plans, seconds) = (Vec::new(), Cell::new(0));
        Soak::of_kinds("board", kinds).cover(
            &effort,
            &|| Duration::from_secs(seconds.get()),
            |plan, number, seen| {
                seconds.set(seconds.get() + 1);
                (seen.calls, seen.injections) = (10, 1);
                plans.push((plan, number));
                Ok(())
            },
        );
        plans
    }

    #[test]
    fn half_of_the_time_is_for_every_n() {
        let soak = Effort { seeds: u64::MAX, steps: usize::MAX, ..Effort::quick() };
        let plans = covered(Effort { time: Duration::from_secs(80), ..soak });
        for n in 0..10 {
            assert!(plans.contains(&(Plan::Kill { call: n }, n)), "{n}");
        }
        // 40 runs in the first half of the time (one without faults, and 39 seeds), then two runs for each of
        // the ten values of n.
        assert_eq!(plans.len(), 40 + 20);
        assert_eq!(covered(Effort { time: Duration::from_secs(20), ..soak }).len(), 20);
    }

    #[test]
    fn one_seed_is_run_alone() {
        let seed = 7 * SCENARIOS.len() as u64;
        let plans = covered(Effort { seed: Some(seed), times: 3, ..Effort::quick() });
        assert_eq!(plans[1..], [(Plan::from_seed(seed, 10), 7); 3]);
        assert!(covered(Effort { seed: Some(seed + 1), ..Effort::quick() }).is_empty());
    }

    #[test]
    fn seeds_reach_every_property_that_a_scenario_derives_from_its_number() {
        // A scenario gets every 20th seed, so the seed itself would always have the same remainder modulo 2
        // or 5.
        let plans = covered(Effort { steps: 0, ..Effort::quick() });
        for divisor in 2..=7 {
            for remainder in 0..divisor {
                assert!(
                    plans.iter().any(|(_, number)| number % divisor == remainder),
                    "{remainder}, {divisor}"
                );
            }
        }
    }

    #[test]
    fn every_n_is_run_for_every_kind() {
        let effort = Effort { seeds: 0, steps: usize::MAX, ..Effort::quick() };
        let plans = covered_kinds(6, effort);
        for kind in 0..6 {
            assert!(plans.contains(&(Plan::Watch, kind)), "{kind}");
            for call in 0..10 {
                assert!(plans.contains(&(Plan::Kill { call }, call * 6 + kind)), "{kind}, {call}");
            }
        }
    }

    #[test]
    fn numbers_are_spread_and_come_once() {
        for count in [1, 2, 3, 10, 610, 3000] {
            let order: Vec<u64> = spread(count).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            assert_eq!(order[0], 0);
        }
        let mut few: Vec<u64> = spread(1000).take(6).chain([1000]).collect();
        few.sort_unstable();
        assert!(few.windows(2).all(|pair| (80..400).contains(&(pair[1] - pair[0]))), "{few:?}");
        assert_eq!(spread(0).count(), 0);
    }

    #[test]
    #[should_panic(expected = "KIBAN_FAULTS=required, but ptrace is refused")]
    fn where_faults_are_required_and_impossible_the_reason_is_told() {
        let refused = Err("ptrace is refused".to_owned());
        assert!(!is_run(&refused, false));
        is_run(&refused, true);
    }
}
