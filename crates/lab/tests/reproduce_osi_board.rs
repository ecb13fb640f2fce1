//! `osi-board`: virtual-time results are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::osi_board::measured::{Plan, measure};
use kiban_lab::reproduce::osi_board::{Effort, make};

#[test]
fn the_report_equals_the_snapshot() {
    let mut points = 0;
    let made = make(Effort::FULL, &mut || points += 1);
    assert_eq!(points, Effort::FULL.points());
    let missed = made.report.rows.iter().filter(|row| row.verdict == Verdict::Missed);
    let missed: Vec<_> = missed.map(|row| row.what.as_str()).collect();
    assert_eq!(
        missed,
        [
            "LIF, F-DATA 2000, % of the tasks' time: sender, receiver",
            "growth from F-DATA 8000 to 2000, factors: FTAM, PL; SL, TL"
        ]
    );
    check("osi-board.txt", &made.to_string());
    let csv: String = made.report.figures.iter().map(|figure| figure.csv()).collect();
    check("osi-board.csv", &csv);
}

#[test]
fn a_quick_run_has_the_same_results() {
    let (full, quick) = (make(Effort::FULL, &mut || {}), make(Effort::QUICK, &mut || {}));
    let rows = |made: &kiban_lab::reproduce::osi_board::OsiBoard| {
        made.report.rows.iter().map(|row| (row.here.clone(), row.verdict)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&full), rows(&quick));
}

#[test]
fn todays_machine_is_faster_than_the_board_of_1992() {
    for one in measure(Plan { files: 1, repeats: 1 }) {
        assert!(one.mb_per_second > 1.0, "{one:?}");
        let all: f64 = one.shares.iter().sum();
        assert!((all - 100.0).abs() < 1e-6 && one.shares.iter().all(|share| *share > 0.0), "{one:?}");
    }
}
