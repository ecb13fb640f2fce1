//! Makes the n-th allocation of a program fail. Rust aborts such a process (`handle_alloc_error`) unless the
//! code uses a fallible allocation. The tests check that the process's peers are not affected, that no
//! confirmed data is lost, and that the next process works.

use crate::place::{Place, compile};
use crate::soak::{Effort, FAILURES_MAX, spread};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// The environment variable that holds the number of the allocation that fails.
pub(crate) const VARIABLE: &str = "KIBAN_REFUSE_ALLOCATION";

static REFUSER: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libkiban_refuse.so");
    compile("tests/faults/malloc.c", &library, &["-shared", "-fPIC"]);
    library
});

/// The allocations of one program; the n-th fails.
pub(crate) struct Allocations {
    n: u64,
    /// The file in which `malloc.c` counts them.
    count: PathBuf,
}

impl Allocations {
    fn new(place: &Place, n: u64) -> Allocations {
        Allocations { n, count: place.write("count", 0u64.to_ne_bytes()) }
    }

    /// Prepares a command, which may have preloaded libraries of its own. Allocations of its child processes
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

    /// Returns whether none fails, as in the first run, which counts the allocations.
    pub(crate) fn all_succeed(&self) -> bool {
        self.n == 0
    }

    /// Returns the number of allocations that the program made.
    fn count(&self) -> u64 {
        let bytes = std::fs::read(&self.count).expect("it was written");
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    }
}

/// Runs a test once for each n, with the n-th allocation failing, until n exceeds the number of allocations;
/// `make test` runs a few values of n, evenly spread.
pub(crate) fn each(name: &str, run: impl FnMut(&Allocations) -> Result<(), String>) {
    let clock = kiban_os::Clock::new();
    cover(name, &Effort::asked(), &|| clock.now().since(kiban_base::Instant::ZERO), run);
}

/// Runs the test for several values of n; returns the values that were reached.
fn cover(
    name: &str,
    effort: &Effort,
    elapsed: &dyn Fn() -> Duration,
    mut run: impl FnMut(&Allocations) -> Result<(), String>,
) -> Vec<u64> {
    let mut reached = Vec::new();
    if effort.seed.is_some() {
        return reached;
    }
    let place = Place::new("allocations");
    let none = Allocations::new(&place, 0);
    run(&none).unwrap_or_else(|why| panic!("{name}: no allocation refused: {why}"));
    let count = none.count();
    let mut failures = Vec::new();
    // The number of allocations varies slightly from run to run.
    for n in spread(count).map(|n| n + 1).chain(count + 1..).take(effort.allocations) {
        // Always run at least the first, even if the time is over.
        if n > 1 && (elapsed() >= effort.time || failures.len() >= FAILURES_MAX) {
            break;
        }
        let allocations = Allocations::new(&place, n);
        if let Err(why) = run(&allocations) {
            eprintln!("FAILED {name}: allocation {n}: {why}");
            failures.push(format!("{name}: allocation {n}: {why}"));
        }
        match allocations.count() >= n {
            true => reached.push(n),
            false if n > count => break,
            false => {}
        }
    }
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
    // The test program makes five allocations if none fails, and six otherwise.
    let run = |allocations: &Allocations| {
        let made: u64 = if allocations.n == 0 { 5 } else { 6 };
        std::fs::write(&allocations.count, made.to_ne_bytes()).map_err(|error| error.to_string())
    };
    let mut reached = cover("all", &all, &|| Duration::ZERO, run);
    reached.sort_unstable();
    assert_eq!(reached, [1, 2, 3, 4, 5, 6]);
    assert_eq!(cover("few", &Effort { allocations: 3, ..all }, &|| Duration::ZERO, run).len(), 3);
    // With a single seed nothing runs here; a time limit ends the runs early.
    assert!(cover("seed", &Effort { seed: Some(17), ..all }, &|| panic!("it does not run"), run).is_empty());
    let runs = std::cell::Cell::new(0);
    let counted = |allocations: &Allocations| {
        runs.set(runs.get() + 1);
        run(allocations)
    };
    let timed = Effort { time: Duration::from_secs(3), ..all };
    assert_eq!(cover("time", &timed, &|| Duration::from_secs(runs.get()), counted).len(), 2);
    let none = Effort { time: Duration::ZERO, ..all };
    assert_eq!(cover("no time", &none, &|| Duration::ZERO, run), [1]);
}
