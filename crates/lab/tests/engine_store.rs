//! Stored records: resuming after a kill, broken lines, folders of other plans, merging, and the cache.

mod engine_common;

use engine_common::Toy;
use kiban_lab::engine::{
    Cache, Manifest, Options, Outcome, Record, Records, Run, Shard, StoreError, Time, merge, sweep,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::tempdir;

const PLAN: &str = "question = \"toy\"\n[parameters]\nword = \"a\"\nacross = { from = 1, to = 10, step = 1 }";

fn run(toy: &Toy, dir: &Path, cache: Option<&Cache>, shard: Shard) -> Result<Outcome, StoreError> {
    let run = Run::open(dir, toy.manifest(PLAN, shard))?;
    sweep(toy, &run, cache, &Options::default(), &|_| {})
}

fn lines(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("records.jsonl")).expect("there are records");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_resumed_run_repeats_nothing() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    let first = run(&toy, dir.path(), None, Shard::ALL).expect("it can be created");
    assert_eq!((first.trials, first.made, first.found), (10, 10, 0));
    assert_eq!((lines(dir.path()).len(), toy.asked()), (10, 10));
    // Keep seven lines, as if the process had been killed.
    let kept = lines(dir.path())[..7].join("\n") + "\n";
    fs::write(dir.path().join("records.jsonl"), &kept).expect("it can be cut");
    let toy = Toy::new(Time::Virtual);
    let second = run(&toy, dir.path(), None, Shard::ALL).expect("it goes on");
    assert_eq!((second.made, second.found), (3, 7));
    // Three missing trials run, and one recorded trial is repeated to check that the build is the same.
    assert_eq!(toy.asked(), 3 + 1);
    let text = fs::read_to_string(dir.path().join("records.jsonl")).expect("there are records");
    assert!(text.starts_with(&kept) && text.lines().count() == 10);
}

#[test]
fn a_broken_line_is_reported_and_its_trial_repeated() {
    for (place, break_it, expected) in [
        (9, (|line| line[..line.len() / 2].to_owned()) as fn(&str) -> String, "truncated"),
        (3, |line| line[..line.len() / 2].to_owned(), "truncated"),
        (0, |_| "{ nonsense".to_owned(), "not a record"),
        (4, |line| line.replace("\"seed\":1", "\"seed\":2"), "its key does not match its point"),
        (4, |line| line.replace("\"toy\"", "\"boy\""), "belongs to question boy"),
        (4, |line| line.replace("\"version\":\"", "\"version\":\"9."), "made by kiban 9."),
        (4, |_| "\u{fffd}\u{0}".to_owned(), "not a record"),
    ] {
        let dir = tempdir().expect("a folder");
        let toy = Toy::new(Time::Virtual);
        run(&toy, dir.path(), None, Shard::ALL).expect("it can be created");
        let mut all = lines(dir.path());
        all[place] = break_it(&all[place]);
        // The last line is not terminated, as if the process had been killed while writing it.
        fs::write(dir.path().join("records.jsonl"), all.join("\n")).expect("it can be broken");
        let run = toy.open(dir.path(), PLAN, Shard::ALL);
        let broken = &run.found().broken;
        assert_eq!((broken.len(), broken[0].line), (1, place + 1), "{expected}");
        assert!(broken[0].why.starts_with(expected), "{:?}", broken[0]);
        let outcome = sweep(&toy, &run, None, &Options::default(), &|_| {}).expect("it goes on");
        assert_eq!((outcome.found, outcome.made), (9, 1), "{expected}");
        drop(run);
        let after = Records::read(dir.path(), &toy.manifest(PLAN, Shard::ALL)).expect("it can be read");
        assert_eq!((after.lines.len(), after.broken.len()), (10, 1), "{expected}");
    }
}

#[test]
fn garbage_lines_are_counted_and_a_device_is_refused() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    run(&toy, dir.path(), None, Shard::ALL).expect("it can be created");
    let path = dir.path().join("records.jsonl");
    let text = fs::read_to_string(&path).expect("there are records") + &"x\n".repeat(50_000);
    fs::write(&path, text).expect("it can be broken");
    let manifest = toy.manifest(PLAN, Shard::ALL);
    let records = Records::read(dir.path(), &manifest).expect("it can be read");
    assert_eq!((records.lines.len(), records.broken.len()), (10, 10));
    assert!(records.broken[9].why.ends_with("; 49990 more invalid lines follow"), "{:?}", records.broken[9]);
    // A device that never ends is not accepted as a records file.
    fs::remove_file(&path).expect("ours");
    std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
    let error = Records::read(dir.path(), &manifest).expect_err("no file");
    assert!(error.to_string().contains("is not a regular file: remove it"), "{error}");
}

#[test]
fn a_record_of_another_plan_does_not_count() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    run(&toy, dir.path(), None, Shard::ALL).expect("it can be created");
    // The file contains records of a larger plan, as if two files had been concatenated.
    let fewer = toy.manifest(&PLAN.replace("to = 10", "to = 8"), Shard::ALL);
    let records = Records::read(dir.path(), &fewer).expect("it can be read");
    assert_eq!((records.lines.len(), records.broken.len()), (8, 2));
    assert_eq!(records.broken[0].why, "its point is not in the plan");
}

#[test]
fn another_plan_version_or_shard_is_refused_and_nothing_is_changed() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    run(&toy, dir.path(), None, Shard::ALL).expect("it can be created");
    let before = lines(dir.path());
    let other = toy.manifest(&PLAN.replace("to = 10", "to = 11"), Shard::ALL);
    let mut newer: Manifest = toy.manifest(PLAN, Shard::ALL);
    newer.version = "9.9.9".into();
    let part = toy.manifest(PLAN, "2/3".parse().expect("a shard"));
    for (manifest, expected) in [
        (other, "another plan: the parameter across differs; use another folder (--out)"),
        (newer, "this is kiban 9.9.9: continue with that version, or use another folder"),
        (part, "contains shard 1/1, not 2/3"),
    ] {
        let error = Run::open(dir.path(), manifest).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(lines(dir.path()), before);
    fs::remove_file(dir.path().join("run.json")).expect("it is there");
    let error = Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL))
        .expect_err("records without a manifest are refused");
    assert!(error.to_string().contains("records but no run.json"), "{error}");
    fs::write(dir.path().join("run.json"), "{}").expect("it can be written");
    let error = Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL)).expect_err("it says nothing");
    assert!(error.to_string().contains("cannot parse"), "{error}");
}

#[test]
fn a_run_without_records_takes_another_plan() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    drop(Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL)).expect("it can be created"));
    let other = PLAN.replace("to = 10", "to = 3");
    let run = Run::open(dir.path(), toy.manifest(&other, Shard::ALL)).expect("nothing was recorded");
    assert_eq!(sweep(&toy, &run, None, &Options::default(), &|_| {}).expect("it runs").made, 3);
    drop(run);
    assert!(Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL)).is_err(), "now there are records");
}

#[test]
fn two_processes_do_not_write_into_one_folder() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    let one = toy.open(dir.path(), PLAN, Shard::ALL);
    let error = Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL)).expect_err("it is in use");
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    drop(one);
    toy.open(dir.path(), PLAN, Shard::ALL);
}

#[test]
fn a_forked_child_does_not_keep_the_folder_locked() {
    let dir = tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let children = scope.spawn(|| {
            let mut children = 0;
            while !ended.load(Ordering::Relaxed) {
                Command::new("true").status().expect("it is everywhere");
                children += 1;
            }
            children
        });
        let opened =
            (0..2000).filter(|_| Run::open(dir.path(), toy.manifest(PLAN, Shard::ALL)).is_ok()).count();
        ended.store(true, Ordering::Relaxed);
        assert!(children.join().expect("it ends") > 0);
        assert_eq!(opened, 2000);
    });
}

#[test]
fn records_of_another_build_are_detected() {
    let (dir, cache) = (tempdir().expect("a folder"), tempdir().expect("a folder"));
    let cache = Cache::new(cache.path());
    run(&Toy::new(Time::Virtual), dir.path(), Some(&cache), Shard::ALL).expect("it can be created");
    let other = Toy { build: 1e-9, ..Toy::new(Time::Virtual) };
    let error = run(&other, dir.path(), None, Shard::ALL).expect_err("its figures differ");
    assert!(error.to_string().contains("come from another build; use another folder"), "{error}");
    let fresh = tempdir().expect("a folder");
    let error =
        run(&other, fresh.path(), Some(&cache), Shard::ALL).expect_err("the cached figures differ, too");
    assert!(error.to_string().contains("and another cache"), "{error}");
}

#[test]
fn cached_trials_are_not_repeated() {
    let (cache_dir, one, two) =
        (tempdir().expect("a folder"), tempdir().expect("a folder"), tempdir().expect("a folder"));
    let cache = Cache::new(&cache_dir.path().join("deep/down"));
    let toy = Toy::new(Time::Virtual);
    run(&toy, one.path(), Some(&cache), Shard::ALL).expect("it can be created");
    let toy = Toy::new(Time::Virtual);
    // Another plan has six points in common with the first.
    let plan = PLAN.replace("from = 1, to = 10", "from = 5, to = 12");
    let other = toy.open(two.path(), &plan, Shard::ALL);
    let outcome = sweep(&toy, &other, Some(&cache), &Options::default(), &|_| {}).expect("it can be created");
    assert_eq!((outcome.cached, outcome.made), (6, 2));
    // Two missing trials run, and one is repeated to check that the build is the same.
    assert_eq!(toy.asked(), 2 + 1);
    // A file truncated by a power failure counts as missing.
    let key = serde_json::from_str::<Record>(&lines(two.path())[0]).expect("a record").key;
    assert!(cache.get(&key).is_some());
    fs::write(
        cache_dir.path().join("deep/down").join(&key[..2]).join(format!("{}.json", &key[2..])),
        "{\"key\"",
    )
    .expect("it can be cut");
    assert!(cache.get(&key).is_none() && cache.get("").is_none());
}

#[test]
fn real_time_trials_do_not_use_the_cache() {
    let (cache_dir, one, two) =
        (tempdir().expect("a folder"), tempdir().expect("a folder"), tempdir().expect("a folder"));
    let cache = Cache::new(cache_dir.path());
    let toy = Toy::new(Time::Real);
    let redos = Options { retries_max: 0, ..Options::default() };
    for dir in [&one, &two] {
        let run = toy.open(dir.path(), PLAN, Shard::ALL);
        let outcome = sweep(&toy, &run, Some(&cache), &redos, &|_| {}).expect("it can be created");
        assert_eq!((outcome.made, outcome.cached), (10, 0));
    }
    assert_eq!(fs::read_dir(cache_dir.path()).expect("a folder").count(), 0);
}

#[test]
fn any_number_of_merged_shards_gives_the_same_bytes() {
    let place = tempdir().expect("a folder");
    let mut results = Vec::new();
    for count in [1, 2, 7] {
        let toy = Toy::new(Time::Virtual);
        let mut dirs = Vec::new();
        for number in 1..=count {
            let dir = place.path().join(format!("{number}-of-{count}"));
            run(&toy, &dir, None, Shard::new(number, count).expect("it is one")).expect("it can be created");
            dirs.push(dir);
        }
        // The order of the folders does not matter.
        dirs.reverse();
        let out = place.path().join(format!("merged-{count}"));
        let merged = merge(&out, &dirs).expect("they fit");
        assert_eq!((merged.trials, merged.records, merged.twice), (10, 10, 0));
        let bytes = |name: &str| fs::read(out.join(name)).expect("it is there");
        results.push((bytes("records.jsonl"), bytes("run.json")));
        // Merging one of the folders into the result once more changes nothing.
        merge(&out, &dirs[..1]).expect("they fit");
        assert_eq!(bytes("records.jsonl"), results[0].0);
        assert_eq!(toy.asked(), 10);
    }
    assert!(results.iter().all(|result| *result == results[0]));
    // The merged folder can be used like that of any other run.
    let toy = Toy::new(Time::Virtual);
    let again = run(&toy, &place.path().join("merged-7"), None, Shard::ALL).expect("it goes on");
    assert_eq!((again.found, again.made), (10, 0));
}

#[test]
fn a_merge_reports_missing_trials_and_refuses_conflicting_records() {
    let place = tempdir().expect("a folder");
    let (toy, dir) = (Toy::new(Time::Virtual), |name: &str| place.path().join(name));
    run(&toy, &dir("1"), None, Shard::new(1, 2).expect("it is one")).expect("it can be created");
    let merged = merge(&dir("out"), &[dir("1")]).expect("it fits");
    assert_eq!((merged.trials, merged.records), (10, 5));
    // A later merge adds the records of the second shard.
    run(&toy, &dir("2"), None, Shard::new(2, 2).expect("it is one")).expect("it can be created");
    assert_eq!(merge(&dir("out"), &[dir("2")]).expect("it fits").records, 10);

    let other = Toy { build: 1.0, ..Toy::new(Time::Virtual) };
    run(&other, &dir("other"), None, Shard::ALL).expect("it can be created");
    let error = merge(&dir("out"), &[dir("1"), dir("other")]).expect_err("virtual time is exact");
    assert!(error.to_string().contains("different builds"), "{error}");
    let plan = toy.open(&dir("plan"), &PLAN.replace("to = 10", "to = 9"), Shard::ALL);
    drop(plan);
    let error = merge(&dir("out"), &[dir("1"), dir("plan")]).expect_err("another plan");
    assert!(error.to_string().contains("the parameter across differs"), "{error}");
    let error = merge(&dir("out"), &[dir("nowhere")]).expect_err("no folder");
    assert!(error.to_string().contains("is not the folder of a run"), "{error}");
}

#[test]
fn the_first_of_duplicate_real_time_records_counts() {
    let place = tempdir().expect("a folder");
    let quick = Options { retries_max: 0, ..Options::default() };
    let dirs: Vec<_> = [0.0, 1.0]
        .map(|build| {
            let dir = place.path().join(build.to_string());
            let toy = Toy { build, ..Toy::new(Time::Real) };
            sweep(&toy, &toy.open(&dir, PLAN, Shard::ALL), None, &quick, &|_| {}).expect("it can be created");
            dir
        })
        .into();
    let out = place.path().join("out");
    assert_eq!(merge(&out, &dirs).expect("they fit").twice, 10);
    assert_eq!(lines(&out), lines(&dirs[0]));
}
