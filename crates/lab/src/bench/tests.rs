//! Tests of rounds, targets and records, with scripted CPU times.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use crate::load::{Meter, Reading};
use crate::stats::Summary;
use crate::trial::Trial;
use kiban_os::clock::Clock;
use std::fs;

const SAMPLE_NANOS: u64 = 100_000_000;

/// A meter that reports one of the given foreign loads for each sample in turn, then no load.
struct Script {
    cores: VecDeque<f64>,
    now: Reading,
    inside: bool,
}

impl Meter for Script {
    fn read(&mut self) -> Option<Reading> {
        if self.inside {
            let foreign = self.cores.pop_front().unwrap_or(0.0) * SAMPLE_NANOS as f64;
            self.now.wall_nanos += SAMPLE_NANOS;
            self.now.own_nanos += SAMPLE_NANOS;
            self.now.busy_nanos += SAMPLE_NANOS + foreign as u64;
        }
        self.inside = !self.inside;
        Some(self.now)
    }
}

fn bench(repeats: usize, redos_max: usize, cores: &[f64]) -> Bench {
    let options = Options { repeats, redos_max, warmup: 0, dir: None, ..Options::full() };
    let script = Script { cores: cores.iter().copied().collect(), now: Reading::default(), inside: false };
    Bench::with_meter("script", options, Clock::new(), Box::new(script))
}

/// Returns a sample that yields these results in turn and logs each call.
fn figures<'a>(
    name: &'a str,
    figures: &'a [f64],
    log: &Rc<RefCell<String>>,
) -> (&'a str, impl FnMut(&mut Trial) -> f64 + use<'a>) {
    let (log, mut next) = (Rc::clone(log), figures.iter().cycle());
    let sample = move |_: &mut Trial| {
        log.borrow_mut().push_str(name);
        *next.next().expect("a cycle has no end")
    };
    (name, sample)
}

#[test]
fn sides_alternate_and_the_ratio_is_paired() {
    let log = Rc::default();
    let mut bench = bench(4, 0, &[]);
    let first = figures("A", &[10.0, 20.0, 30.0, 44.0], &log);
    let second = figures("B", &[10.0, 10.0, 10.0, 11.0], &log);
    let record = bench.compare("turns", Unit::GbitPerSecond, first, second, Target::ratio_at_least(2.5));
    assert_eq!(*log.borrow(), "ABBAABBA");
    assert_eq!(record.ratio, Some(Summary { median: 2.5, min: 1.0, max: 4.0, count: 4 }));
    assert_eq!(record.sides[0].figures.median, 25.0);
    assert_eq!((record.verdict, record.gave_up, record.rejected), (Some(Verdict::Met), false, 0));
}

#[test]
fn several_sides_are_measured_in_the_same_rounds() {
    let log = Rc::default();
    let mut bench = bench(2, 0, &[]);
    let mut first = figures("A", &[10.0, 20.0], &log);
    let mut second = figures("B", &[5.0], &log);
    let mut third = figures("C", &[10.0, 40.0], &log);
    let others: Vec<(Sample<'_>, _)> = vec![
        ((second.0, &mut second.1), Target::ratio_at_least(2.0)),
        ((third.0, &mut third.1), Target::ratio_at_least(2.0)),
    ];
    bench.compare_each("turns", Unit::GbitPerSecond, (first.0, &mut first.1), others);
    assert_eq!(*log.borrow(), "ABCCBA");
    let [one, two] = bench.records() else { panic!("two comparisons") };
    assert_eq!((&*one.sides[1].name, &*two.sides[1].name), ("B", "C"));
    assert_eq!(one.ratio, Some(Summary { median: 3.0, min: 2.0, max: 4.0, count: 2 }));
    assert_eq!((one.verdict, two.verdict), (Some(Verdict::Met), Some(Verdict::Missed)));
    assert_eq!(two.rounds[1].order, [1, 0]);
    assert_eq!(two.rounds[1].figures, [20.0, 40.0]);
}

#[test]
fn a_disturbed_round_is_repeated_in_the_same_order() {
    let log = Rc::default();
    // Round 1 is quiet. Round 2 (B A) is disturbed during its second sample. The repetition is quiet.
    let mut bench = bench(2, 5, &[0.0, 0.0, 0.0, 1.0, 0.1, 0.2]);
    let first = figures("A", &[1.0, 1000.0, 3.0], &log);
    let second = figures("B", &[1.0], &log);
    let record = bench.compare("redo", Unit::PerSecond, first, second, Target::None);
    assert_eq!(*log.borrow(), "ABBABA");
    assert_eq!(record.sides[0].figures, Summary { median: 2.0, min: 1.0, max: 3.0, count: 2 });
    assert_eq!((record.rejected, record.gave_up), (1, false));
    assert_eq!(record.rounds[1].foreign_cores, [Some(1.0), Some(0.0)]);
    assert!(!record.rounds[1].counts && record.rounds[2].counts);
    assert!(record.notes[0].contains("1 disturbed"), "{:?}", record.notes);
}

#[test]
fn giving_up_uses_the_quietest_rounds_and_reports_it() {
    let log = Rc::default();
    let mut bench = bench(2, 3, &[2.0, 1.0, 1.5, 0.0, 2.0]);
    let sample = figures("A", &[5.0, 1.0, 100.0, 7.0], &log);
    let record = bench.single("noise", Unit::Nanoseconds, sample, Target::at_most(3.5));
    assert_eq!(log.borrow().len(), 5, "one quiet round, and one more rejected than may be repeated");
    let counted: Vec<f64> =
        record.rounds.iter().filter(|round| round.counts).map(|round| round.figures[0]).collect();
    assert_eq!(counted, [1.0, 7.0]);
    assert!(record.gave_up);
    assert_eq!((record.rejected, record.verdict), (4, Some(Verdict::Missed)));
    let report = bench.report();
    assert!(report.contains("GAVE UP"), "{report}");
    assert!(report.contains("MISSED, noisy"), "{report}");
    assert!(report.contains("targets: 0 met, 1 missed"), "{report}");
}

#[test]
fn without_cpu_times_results_count_and_a_note_says_so() {
    struct Blind;
    impl Meter for Blind {
        fn read(&mut self) -> Option<Reading> {
            None
        }
    }
    let options = Options { dir: None, ..Options::quick() };
    let mut bench = Bench::with_meter("blind", options, Clock::new(), Box::new(Blind));
    let record = bench.single(
        "x",
        Unit::Percent,
        ("A", |trial: &mut Trial| {
            assert!(trial.is_quick());
            1.0
        }),
        Target::None,
    );
    assert_eq!((record.gave_up, record.rounds.len(), record.verdict), (false, 3, None));
    assert!(record.notes.iter().any(|note| note.contains("was not detected")));
    assert!(record.notes.iter().any(|note| note.contains("do not quote")));
}

#[test]
fn targets_apply_to_medians() {
    for (target, first, ratio, expected) in [
        (Target::None, 1.0, Some(1.0), None),
        (Target::at_least(2.0), 2.0, None, Some(Verdict::Met)),
        (Target::at_least(2.0), 1.9, None, Some(Verdict::Missed)),
        (Target::at_most(2.0), 2.1, None, Some(Verdict::Missed)),
        (Target::ratio_at_least(1.5), 0.0, Some(1.4), Some(Verdict::Missed)),
        (Target::ratio_at_most(1.5), 9.0, Some(1.4), Some(Verdict::Met)),
    ] {
        assert_eq!(target.verdict(first, ratio), expected, "{target:?} {first} {ratio:?}");
    }
}

#[test]
#[should_panic(expected = "the sample 'A' of 'nothing' must return a positive figure")]
fn a_result_that_is_not_a_number_panics() {
    let sample = ("A", |_: &mut Trial| f64::NAN);
    bench(1, 0, &[]).single("nothing", Unit::PerSecond, sample, Target::None);
}

#[test]
fn a_record_is_one_line_of_json_with_everything_in_it() {
    let log = Rc::default();
    let mut bench = bench(1, 0, &[]);
    let (first, second) = (figures("kiban", &[3.0], &log), figures("other", &[2.0], &log));
    let record =
        bench.compare("1500-byte frames", Unit::GbitPerSecond, first, second, Target::ratio_at_least(1.5));
    let line = serde_json::to_string(record).expect("a record has only plain values");
    assert!(!line.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&line).expect("it was just written");
    for (pointer, expected) in [
        ("/format", serde_json::json!(1)),
        ("/bench", serde_json::json!("script")),
        ("/unit", serde_json::json!("Gbit/s")),
        ("/sides/0/name", serde_json::json!("kiban")),
        ("/sides/1/figures/median", serde_json::json!(2.0)),
        ("/ratio/median", serde_json::json!(1.5)),
        ("/target", serde_json::json!({"kind": "ratio_at_least", "figure": 1.5})),
        ("/verdict", serde_json::json!("met")),
        ("/rounds/0/order", serde_json::json!([0, 1])),
        ("/rounds/0/foreign_cores", serde_json::json!([0.0, 0.0])),
        ("/environment/kiban", serde_json::json!(env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(value.pointer(pointer), Some(&expected), "{pointer} in {line}");
    }
    assert_eq!(serde_json::from_str::<Record>(&line).expect("records can be read again"), *record);
}

#[test]
fn records_are_appended_and_write_errors_are_reported() {
    let dir = std::env::temp_dir().join(format!("kiban-lab-{}", std::process::id()));
    let log = Rc::default();
    let mut run = bench(1, 0, &[]);
    run.options_mut().dir = Some(dir.join("records"));
    for title in ["one", "two"] {
        run.single(title, Unit::PerSecond, figures("A", &[1.0], &log), Target::None);
    }
    let file = dir.join("records/script.jsonl");
    let text = fs::read_to_string(&file).expect("two records were kept");
    let titles: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Record>(line).expect("each line is a record").title)
        .collect();
    assert_eq!(titles, ["one", "two"]);

    let mut run = bench(1, 0, &[]);
    run.options_mut().dir = Some(file);
    run.single("three", Unit::PerSecond, figures("A", &[1.0], &log), Target::None);
    assert!(run.report().contains("NOT KEPT"), "{}", run.report());
    fs::remove_dir_all(dir).expect("the test made this directory");
}

#[test]
fn the_table_shows_the_verdict_beside_its_result() {
    let log = Rc::default();
    let mut bench = bench(1, 0, &[]);
    let (first, second) = (figures("kiban", &[12.5], &log), figures("smoltcp", &[5.0], &log));
    bench.compare("frames", Unit::GbitPerSecond, first, second, Target::ratio_at_least(1.5));
    bench.single("cells", Unit::MillionPerSecond, figures("kiban", &[7.0], &log), Target::at_least(12.0));
    let report = bench.report();
    let rows: Vec<String> = report
        .lines()
        .skip_while(|line| !line.starts_with("---"))
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "frames kiban 12.50 12.50 12.50 Gbit/s",
        "smoltcp 5.000 5.000 5.000 Gbit/s",
        "ratio 2.500 2.500 2.500 x >= 1.5 met",
        "cells kiban 7.000 7.000 7.000 M/s >= 12 MISSED",
        "targets: 1 met, 1 missed",
        "records: none kept",
    ];
    assert_eq!(rows, expected, "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
}
