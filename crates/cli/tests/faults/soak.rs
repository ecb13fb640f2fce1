//! Chooses the seeds and the n that are run, and reports the results.

use kiban_fault::Plan;
use std::sync::LazyLock;
use std::time::Duration;

/// Scenarios, which take the seeds in turn.
const SCENARIOS: u64 = 8;
/// Seeds of `make test`.
const SEEDS: u64 = 200;
/// Values of n of `make test`, in each scenario.
const STEPS: u64 = 8;
/// The number of failures that are reported.
const FAILURES_MAX: usize = 5;

static CLOCK: LazyLock<kiban_os::Clock> = LazyLock::new(kiban_os::Clock::new);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Returns whether programs can be traced; prints why not.
pub(crate) fn can_trace() -> bool {
    static CAN: LazyLock<Result<(), String>> = LazyLock::new(kiban_fault::available);
    if let Err(why) = &*CAN {
        println!("SKIPPED: {why}");
    }
    CAN.is_ok()
}

/// The result of a run: how many calls its plan saw, and what was injected.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) injections: u64,
    pub(crate) notes: Vec<String>,
}

/// Runs a scenario's share of the seeds, and of every n.
pub(crate) struct Soak {
    name: &'static str,
    place: u64,
    failures: Vec<String>,
    runs: u64,
    injections: u64,
    /// Calls of a run without faults.
    calls: u64,
}

impl Soak {
    /// `place` is the number of the scenario, from 0.
    pub(crate) fn new(name: &'static str, place: u64) -> Soak {
        assert!(place < SCENARIOS, "SCENARIOS has to count it");
        Soak { name, place, failures: Vec::new(), runs: 0, injections: 0, calls: 0 }
    }

    /// Runs it: without faults first, then by seeds, then with the n-th call failing, and with the n-th call
    /// its process's last.
    pub(crate) fn run(mut self, mut scenario: impl FnMut(Plan, u64, &mut Seen) -> Result<(), String>) {
        let one = number("KIBAN_SOAK_SEED");
        let deadline = number("KIBAN_SOAK_TIME").map(|seconds| CLOCK.now() + Duration::from_secs(seconds));
        let seeds = number("KIBAN_SOAK_SEEDS").unwrap_or(if deadline.is_some() { u64::MAX } else { SEEDS });
        let is_soak = deadline.is_some() || number("KIBAN_SOAK_SEEDS").is_some();
        let is_late = || deadline.is_some_and(|deadline| CLOCK.now() >= deadline);
        if one.is_some_and(|seed| seed % SCENARIOS != self.place) {
            return;
        }
        let mut seen = Seen::default();
        if let Err(why) = scenario(Plan::Watch, 0, &mut seen) {
            panic!("{}: without any fault: {why}", self.name);
        }
        self.calls = seen.calls;
        assert!(self.calls > 0, "{}: no call was seen", self.name);
        if let Some(seed) = one {
            for _ in 0..number("KIBAN_SOAK_TIMES").unwrap_or(5) {
                self.once(Plan::from_seed(seed, self.calls), seed, true, &mut scenario);
            }
            return self.tell();
        }
        let mut seed = self.place;
        while seed < seeds && !is_late() && self.failures.len() < FAILURES_MAX {
            self.once(Plan::from_seed(seed, self.calls), seed, true, &mut scenario);
            if is_soak && (seed / SCENARIOS).is_multiple_of(25) {
                eprintln!("{}: seed {seed}, {} runs, {} faults", self.name, self.runs, self.injections);
            }
            seed += SCENARIOS;
        }
        // Every n where there is time, else some of them.
        let step = if is_soak { 1 } else { (self.calls / STEPS).max(1) };
        for n in (0..self.calls).step_by(step as usize) {
            for plan in [Plan::Nth { call: n, choice: n / step }, Plan::Kill { call: n }] {
                if is_late() || self.failures.len() >= FAILURES_MAX {
                    break;
                }
                self.once(plan, n, false, &mut scenario);
            }
        }
        self.tell();
    }

    fn once(
        &mut self,
        plan: Plan,
        seed: u64,
        is_seed: bool,
        scenario: &mut impl FnMut(Plan, u64, &mut Seen) -> Result<(), String>,
    ) {
        let mut seen = Seen::default();
        let outcome = scenario(plan, seed, &mut seen);
        self.runs += 1;
        self.injections += seen.injections;
        if let Err(why) = outcome {
            let name = self.name;
            let how = if is_seed { format!("make soak SEED={seed}") } else { "a sweep over n".into() };
            let notes = seen.notes.join("\n    ");
            let told = format!("{name}: {how}: {plan:?}, number {seed}\n    {notes}\n  {why}");
            eprintln!("FAILED {told}");
            self.failures.push(told);
        }
    }

    fn tell(self) {
        println!("{}: {} runs of {} calls, {} faults", self.name, self.runs, self.calls, self.injections);
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        assert!(self.injections > 0 || self.runs < STEPS, "{}: nothing was injected", self.name);
    }
}
