//! Sweeps: in virtual time, trials run in parallel and in any order; in real time, one after another and
//! guarded against foreign load.

mod engine_common;

use engine_common::Toy;
use kiban_base::Instant;
use kiban_lab::engine::sweep::{RetryClock, SystemHooks, sweep_with};
use kiban_lab::engine::{Options, Outcome, Record, Shard, Time, sweep};
use kiban_lab::load::{Meter, Reading};
use kiban_os::Clock;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::tempdir;

const PLAN: &str = "question = \"toy\"\n[parameters]\nword = \"a\"\nacross = [1, 2, 3]";

/// A simulated machine on which other processes use this many cores during each trial of one second.
struct Script {
    wall_seconds: u64,
    busy_nanos: u64,
    /// The meter is read in pairs: at the start and at the end of a trial.
    is_end: bool,
    cores: VecDeque<f64>,
}

impl Script {
    fn new(cores: &[f64]) -> Script {
        Script { wall_seconds: 0, busy_nanos: 0, is_end: false, cores: cores.iter().copied().collect() }
    }
}

impl Meter for Script {
    fn read(&mut self) -> Option<Reading> {
        if self.is_end {
            self.wall_seconds += 1;
            self.busy_nanos += (self.cores.pop_front()? * 1e9) as u64;
        }
        self.is_end = !self.is_end;
        Some(Reading {
            wall_nanos: self.wall_seconds * 1_000_000_000,
            busy_nanos: self.busy_nanos,
            own_nanos: 0,
        })
    }
}

fn records(dir: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(dir.join("records.jsonl")).expect("there are records");
    text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

fn guarded(toy: &Toy, dir: &Path, plan: &str, cores: &[f64], redos_max: u32) -> Outcome {
    let run = toy.open(dir, plan, Shard::ALL);
    let options = Options { retries_max: redos_max, ..Options::default() };
    let lent = SystemHooks { meter: &mut Script::new(cores), patience: &mut Clock::new() };
    sweep_with(toy, &run, None, &options, lent, &|_| {}).expect("it can be written")
}

#[test]
fn a_disturbed_trial_is_repeated_until_undisturbed() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Real);
    let outcome = guarded(&toy, dir.path(), PLAN, &[0.1, 0.9, 0.5, 0.2, 0.0], 5);
    assert_eq!((outcome.made, outcome.redone, outcome.disturbed), (3, 2, 0));
    assert_eq!(toy.asked(), 5);
    let records = records(dir.path());
    assert!(records.iter().all(|record| record.foreign_cores.is_none() && record.environment.is_some()));
}

#[test]
fn a_trial_that_is_always_disturbed_keeps_the_quietest_attempt_and_is_marked() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Real);
    let outcome = guarded(&toy, dir.path(), PLAN, &[0.0, 0.9, 0.5, 0.7, 0.1], 2);
    assert_eq!((outcome.made, outcome.redone, outcome.disturbed), (3, 2, 1));
    let marks: Vec<Option<f64>> = records(dir.path()).iter().map(|record| record.foreign_cores).collect();
    assert_eq!(marks, [None, Some(0.5), None]);
    assert!(outcome.is_complete());
}

#[test]
fn without_cpu_times_trials_count_unchecked() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Real);
    let outcome = guarded(&toy, dir.path(), PLAN, &[], 2);
    assert_eq!((outcome.made, outcome.redone, outcome.disturbed), (3, 0, 0));
}

#[test]
fn a_failed_trial_is_retried_and_then_left_to_the_next_run() {
    let dir = tempdir().expect("a folder");
    let toy = Toy { lost: Mutex::new(1), ..Toy::new(Time::Real) };
    let outcome = guarded(&toy, dir.path(), PLAN, &[0.0; 9], 2);
    assert_eq!((outcome.made, outcome.redone, outcome.failed), (3, 1, 0));
    let dir = tempdir().expect("a folder");
    let toy = Toy { lost: Mutex::new(3), ..Toy::new(Time::Real) };
    let outcome = guarded(&toy, dir.path(), PLAN, &[0.0; 9], 2);
    assert_eq!((outcome.made, outcome.redone, outcome.failed), (2, 2, 1));
    assert!(!outcome.is_complete());
    assert_eq!(outcome.failures, ["across=1 down=0.5 nodelay=false word=a seed=1: lost: the peer has gone"]);
    let outcome = guarded(&toy, dir.path(), PLAN, &[0.0; 9], 2);
    assert_eq!((outcome.found, outcome.made, outcome.failed), (2, 1, 0));
}

/// A clock that advances only during sleeps.
struct Pauses(Instant);

impl RetryClock for Pauses {
    fn now(&self) -> Instant {
        self.0
    }

    fn pause(&mut self, length: Duration) {
        self.0 += length;
    }
}

#[test]
fn a_lost_peer_is_retried_before_the_sweep_ends_early_and_can_resume() {
    let dir = tempdir().expect("a folder");
    let patient = |toy: &Toy, seconds| {
        let run = toy.open(dir.path(), PLAN, Shard::ALL);
        let patience = Some(Duration::from_secs(seconds));
        let options = Options { retries_max: 0, peer_timeout: patience, ..Options::default() };
        let lent = SystemHooks { meter: &mut Script::new(&[]), patience: &mut Pauses(Instant::ZERO) };
        let told = Mutex::new(Vec::new());
        let outcome = sweep_with(toy, &run, None, &options, lent, &|progress| {
            let next = progress.now.and_then(|trial| trial.point.count("across"));
            told.lock().expect("no test panics in between").push((progress.outcome.done(), next));
        });
        (outcome.expect("it can be written"), told.into_inner().expect("no test panics in between"))
    };
    // The sweep makes two attempts per second. The lost peer returns at the fifth attempt, before the
    // timeout.
    let toy = Toy { lost: Mutex::new(4), ..Toy::new(Time::Real) };
    toy.lose_after(1);
    let (outcome, told) = patient(&toy, 2);
    assert_eq!((outcome.made, outcome.redone, outcome.failed, &outcome.ended_early), (3, 4, 0, &None));
    assert_eq!(told, [(0, Some(1)), (1, Some(2)), (2, Some(3)), (3, None)]);

    // The peer would return only at the sixth attempt, after the timeout. Existing records are kept, and no
    // other trial is started.
    std::fs::remove_file(dir.path().join("records.jsonl")).expect("it is there");
    let toy = Toy { lost: Mutex::new(99), ..Toy::new(Time::Real) };
    toy.lose_after(1);
    let (outcome, told) = patient(&toy, 2);
    assert_eq!((outcome.made, outcome.failed, toy.asked()), (1, 0, 1 + 5));
    assert_eq!(outcome.ended_early.as_deref(), Some("the peer has gone"));
    assert_eq!(told.last(), Some(&(1, None)));
    assert!(!outcome.is_complete());
    let (outcome, _) = patient(&Toy::new(Time::Real), 2);
    assert_eq!((outcome.found, outcome.made, outcome.is_complete()), (1, 2, true));
}

#[test]
fn repetitions_in_real_time_are_trials_of_their_own() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Real);
    let plan = "question = \"toy\"\nrepetitions = 3\nseeds = [1, 2]\nparameters.word = \"a\"";
    let outcome = guarded(&toy, dir.path(), plan, &[0.0; 6], 0);
    assert_eq!((outcome.trials, outcome.made), (6, 6));
    let records = records(dir.path());
    let keys: BTreeSet<&String> = records.iter().map(|record| &record.key).collect();
    assert_eq!(keys.len(), 6);
    let order: Vec<(u64, u32)> = records.iter().map(|record| (record.seed, record.repetition)).collect();
    assert_eq!(order, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
}

#[test]
fn a_failure_in_virtual_time_leaves_the_other_trials_alone() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    let run = toy.open(dir.path(), &PLAN.replace("[1, 2, 3]", "[1, 98, 99, 100]"), Shard::ALL);
    let outcome = sweep(&toy, &run, None, &Options::default(), &|_| {}).expect("it can be written");
    assert_eq!((outcome.trials, outcome.made, outcome.failed), (4, 2, 2));
    let mut failures = outcome.failures.clone();
    failures.sort();
    assert!(failures[0].ends_with("lost: sum is NaN, not a finite number"), "{failures:?}");
    assert!(failures[1].ends_with("impossible: 99 was not foreseen"), "{failures:?}");
}

#[test]
fn the_number_of_workers_changes_nothing_but_the_order() {
    let plan = "question = \"toy\"\nseeds = [3, 1]\n[parameters]\nword = [\"a\", \"b\"]\n\
                across = { from = 101, to = 300, step = 1 }";
    let mut sets = Vec::new();
    for workers in [1, 2, 9] {
        let dir = tempdir().expect("a folder");
        let toy = Toy::new(Time::Virtual);
        let run = toy.open(dir.path(), plan, Shard::ALL);
        let seen = Mutex::new(0);
        let options = Options { workers: Some(workers), ..Options::default() };
        let outcome = sweep(&toy, &run, None, &options, &|progress| {
            let outcome = progress.outcome;
            let mut seen = seen.lock().expect("no test panics in between");
            assert_eq!(outcome.made, *seen + 1, "progress is told one by one");
            *seen = outcome.made;
        });
        assert_eq!(outcome.expect("it can be written").made, 800);
        let text = std::fs::read_to_string(dir.path().join("records.jsonl")).expect("there are records");
        sets.push(text.lines().map(str::to_owned).collect::<BTreeSet<_>>());
    }
    assert!(sets[0].len() == 800 && sets.iter().all(|set| *set == sets[0]));
}
