//! `osi-board`: virtual-time results are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::osi_board::measured::{Plan, measure};
use kiban_lab::reproduce::osi_board::transfer::{FILE_BYTES, run};
use kiban_lab::reproduce::osi_board::{Effort, make};
use kiban_osi::stack::meter::Task;
use kiban_sim::osi::{Costs, Medium, OSI_BOARD_1992, Setup};
use std::time::Duration;

#[test]
fn the_report_equals_the_snapshot() {
    let mut points = 0;
    let made = make(Effort::FULL, &mut || points += 1);
    assert_eq!(points, Effort::FULL.points());
    let missed = made.report.rows.iter().filter(|row| row.verdict == Verdict::Missed);
    assert_eq!(missed.count(), 0);
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

/// The split of coding into encoding and decoding decides whether the sender waits with F-DATA of 2000.
#[test]
fn only_a_receiver_that_decodes_more_slowly_makes_the_sender_wait_with_short_data() {
    let lif = |encoding: u64| {
        let [encoding, decoding] = [encoding, 9000 - encoding].map(Duration::from_micros);
        let costs = Costs { encoding, decoding, ..OSI_BOARD_1992 };
        let setup = Setup { fdata_bytes: 2000, costs: Some(costs), ..Setup::new(Medium::line(2_000_000)) };
        let run = run(&setup, FILE_BYTES);
        [0, 1].map(|side| run.boards.spent(side)[Task::Lower as usize].as_secs_f64())
    };
    for (encoding, waits) in [(2000, true), (3000, true), (4500, false), (6000, false)] {
        let [sender, receiver] = lif(encoding);
        assert_eq!(sender > 2.0 * receiver, waits, "{encoding} us: {sender} s beside {receiver} s");
    }
}
