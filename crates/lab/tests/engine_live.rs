//! Watching a run while records are added.

mod engine_common;

use engine_common::Toy;
use kiban_base::Instant;
use kiban_lab::engine::{Live, Options, Question, Shard, Time, sweep};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

const PLAN: &str = "question = \"toy\"\n[parameters]\nword = \"a\"\nacross = [1, 2, 3]\ndown = [0.5, 1.5]\n";

#[test]
fn a_run_is_watched_from_nothing_to_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let toy = Toy::new(Time::Virtual);
    let run = toy.open(dir.path(), PLAN, Shard::ALL);
    let mut live = Live::open(dir.path(), toy.metrics()).expect("it is a run");
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);

    let view = live.look(at(0)).expect("it can be read");
    assert_eq!((view.question, view.done, view.trials, view.per_second), ("toy", 0, 6, None));
    assert_eq!((view.pictures.len(), view.latest.len(), view.left), (0, 0, None));

    sweep(&toy, &run, None, &Options::default(), &|_| ()).expect("the directory accepts the file");
    // Append half a line, as if it were being written.
    let mut file =
        OpenOptions::new().append(true).open(dir.path().join("records.jsonl")).expect("it is there");
    file.write_all(b"{\"key\":\"").expect("there is room");
    let view = live.look(at(3)).expect("it can be read");
    assert_eq!((view.done, view.per_second, view.left), (6, Some(2.0), Some(Duration::ZERO)));
    assert_eq!(view.latest.len(), 6);
    assert_eq!(view.latest.iter().map(|record| record.metrics.len()).min(), Some(2));
    let words = "across: 3; down: 1.5: 4.83 Mbit/s, 2.42 ms".to_owned();
    assert!(view.words.len() == 6 && view.words.contains(&words), "{:?}", view.words);
    assert!(view.pictures.iter().any(|picture| picture.metric == "sum"), "two parameters vary: a map");
    assert_eq!(view.warnings.len(), 1, "a line is broken: {:?}", view.warnings);

    // No record has been added for longer than the window, so the rate is unknown.
    assert_eq!(live.look(at(20)).expect("it can be read").per_second, Some(0.3));
    assert_eq!(live.look(at(70)).expect("it can be read").per_second, None);
}

#[test]
fn a_folder_of_something_else_says_how_to_make_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let told = Live::open(dir.path(), &[]).expect_err("there is nothing").to_string();
    assert!(told.contains("kiban lab run"), "{told}");
}
