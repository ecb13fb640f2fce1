//! Makes a program's n-th allocation fail. Unless the code uses a fallible allocation, Rust then aborts the
//! process (`handle_alloc_error`). The tests check that the process's peers are not affected, that no
//! confirmed data is lost, and that the next process works.

use crate::place::{Place, compile};
use crate::soak::{Effort, FAILURES_MAX, spread};
use kiban_os::{ignore_poison, lock};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// The environment variable that says which allocation fails.
pub(crate) const VARIABLE: &str = "KIBAN_REFUSE_ALLOCATION";

static REFUSER: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libkiban_refuse.so");
    compile("tests/faults/malloc.c", &library, &["-shared", "-fPIC"]);
    library
});

/// The allocations of one program, of which the n-th fails.
pub(crate) struct Allocations {
    n: u64,
    /// The file in which `malloc.c` counts the allocations.
    count: PathBuf,
}

impl Allocations {
    fn new(place: &Place, n: u64) -> Allocations {
        Allocations { n, count: place.write("count", 0u64.to_ne_bytes()) }
    }

    /// Prepares a command, which may have other preloaded libraries. Allocations in its child processes
    /// count, too.
    pub(crate) fn of(&self, mut command: Command) -> Command {
        let mut preload = REFUSER.as_os_str().to_owned();
        if let Some((_, Some(own))) = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD") {
            preload.push(":");
            preload.push(own);
        }
        command.env("LD_PRELOAD", preload);
        command.env("KIBAN_ALLOCATIONS", &self.count).env(VARIABLE, self.n.to_string());
        command
    }

    /// Returns whether no allocation is made to fail, as in the first run, which counts the allocations.
    pub(crate) fn all_succeed(&self) -> bool {
        self.n == 0
    }

    /// Returns whether the n-th allocation has failed.
    pub(crate) fn is_reached(&self) -> bool {
        self.n > 0 && self.count() >= self.n
    }

    /// Returns the number of allocations that the program has made.
    fn count(&self) -> u64 {
        let bytes = std::fs::read(&self.count).expect("it was written");
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    }
}

/// The minimum number of allocations that are made to fail in each kind of a test.
const ALLOCATIONS_MIN: usize = 3;

/// Runs a test once per value of n, making the n-th allocation fail, until n exceeds the number of
/// allocations. `make test` runs only a few values of n, evenly spread.
pub(crate) fn each(name: &str, run: impl FnMut(&Allocations) -> Result<(), String> + Send) {
    each_kind(name, 1, run);
}

/// Like [`each`], for a test that is one of `kinds`. The kinds share the time, and in `make test` also the
/// values of n.
pub(crate) fn each_kind(
    name: &str,
    kinds: usize,
    run: impl FnMut(&Allocations) -> Result<(), String> + Send,
) {
    let run = Mutex::new(run);
    each_of(name, kinds, 1, |allocations| lock(&run)(allocations));
}

/// Like [`each_kind`], but runs several values of n at once, because a run spends most of its time waiting
/// for programs.
pub(crate) fn each_in_parallel(
    name: &str,
    kinds: usize,
    run: impl Fn(&Allocations) -> Result<(), String> + Sync,
) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    each_of(name, kinds, 2 * processors, run);
}

fn each_of(name: &str, kinds: usize, jobs: usize, run: impl Fn(&Allocations) -> Result<(), String> + Sync) {
    let clock = kiban_os::Clock::new();
    let asked = Effort::asked();
    let effort = Effort {
        allocations: asked.allocations.div_ceil(kinds).max(ALLOCATIONS_MIN),
        time: asked.time / kinds as u32,
        ..asked
    };
    cover(name, &effort, &|| clock.now().since(kiban_base::Instant::ZERO), jobs, run);
}

/// The results of a test so far.
#[derive(Default)]
struct Found {
    reached: Vec<u64>,
    failures: Vec<String>,
    /// Whether a value of n exceeded the number of allocations.
    is_complete: bool,
}

/// Runs the test for several values of n, `jobs` of them at once; returns the values that were reached.
fn cover(
    name: &str,
    effort: &Effort,
    elapsed: &(dyn Fn() -> Duration + Sync),
    jobs: usize,
    run: impl Fn(&Allocations) -> Result<(), String> + Sync,
) -> Vec<u64> {
    if effort.seed.is_some() {
        return Vec::new();
    }
    let place = Place::new("allocations");
    let none = Allocations::new(&place, 0);
    run(&none).unwrap_or_else(|why| panic!("{name}: no allocation refused: {why}"));
    let count = none.count();
    // The number of allocations varies slightly from run to run.
    let numbers = Mutex::new(spread(count).map(|n| n + 1).chain(count + 1..).take(effort.allocations));
    let found = Mutex::new(Found::default());
    let work = || {
        let place = Place::new("allocations");
        loop {
            let Some(n) = lock(&numbers).next() else { return };
            let is_over = |found: &Found| found.is_complete || found.failures.len() >= FAILURES_MAX;
            // Always run at least the first one, even if the time is over.
            if n > 1 && (elapsed() >= effort.time || is_over(&lock(&found))) {
                return;
            }
            let allocations = Allocations::new(&place, n);
            let outcome = run(&allocations);
            let mut found = lock(&found);
            if let Err(why) = outcome {
                eprintln!("FAILED {name}: allocation {n}: {why}");
                found.failures.push(format!("{name}: allocation {n}: {why}"));
            }
            match allocations.is_reached() {
                true => found.reached.push(n),
                false => found.is_complete |= n > count,
            }
        }
    };
    match jobs {
        1 => work(),
        _ => std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work)))),
    }
    let Found { reached, failures, .. } = ignore_poison(found.into_inner());
    println!("{name}: {} of {count} allocations were refused", reached.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(reached.contains(&1), "{name}: the first allocation was not refused");
    reached
}

#[test]
fn a_library_that_a_command_preloads_stays_beside_ours() {
    let place = Place::new("preload");
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", "libkiban_paths.so");
    let command = Allocations::new(&place, 1).of(command);
    let preloaded = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, value)| value);
    let preloaded = preloaded.and_then(OsStr::to_str).expect("a plain path");
    assert_eq!(preloaded.split(':').collect::<Vec<_>>(), [REFUSER.to_str().unwrap(), "libkiban_paths.so"]);
}

#[test]
fn every_allocation_is_refused_that_a_program_reaches_and_no_more() {
    let all = Effort { allocations: usize::MAX, ..Effort::quick() };
    // The test program makes five allocations if none of them fails, and six otherwise.
    let run = |allocations: &Allocations| {
        let made: u64 = if allocations.n == 0 { 5 } else { 6 };
        std::fs::write(&allocations.count, made.to_ne_bytes()).map_err(|error| error.to_string())
    };
    let mut reached = cover("all", &all, &|| Duration::ZERO, 1, run);
    reached.sort_unstable();
    assert_eq!(reached, [1, 2, 3, 4, 5, 6]);
    assert_eq!(cover("few", &Effort { allocations: 3, ..all }, &|| Duration::ZERO, 1, run).len(), 3);
    // Nothing is run here if a single seed is given; a time limit ends the runs early.
    let seed = Effort { seed: Some(17), ..all };
    assert!(cover("seed", &seed, &|| panic!("it does not run"), 1, run).is_empty());
    let runs = AtomicU64::new(0);
    let counted = |allocations: &Allocations| {
        runs.fetch_add(1, Ordering::Relaxed);
        run(allocations)
    };
    let timed = Effort { time: Duration::from_secs(3), ..all };
    let elapsed = || Duration::from_secs(runs.load(Ordering::Relaxed));
    assert_eq!(cover("time", &timed, &elapsed, 1, counted).len(), 2);
    let none = Effort { time: Duration::ZERO, ..all };
    assert_eq!(cover("no time", &none, &|| Duration::ZERO, 1, run), [1]);
    // Parallel runs reach the same values of n, each of them once.
    let mut reached = cover("at once", &all, &|| Duration::ZERO, 3, run);
    reached.sort_unstable();
    assert_eq!(reached[..5], [1, 2, 3, 4, 5]);
    assert!(reached.windows(2).all(|pair| pair[0] < pair[1]), "{reached:?}");
}
