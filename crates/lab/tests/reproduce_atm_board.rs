//! A quick run of `atm-board`: virtual-time results are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::atm_board::{Effort, report};
use kiban_lab::reproduce::flow::{Interval, measure};
use kiban_lab::reproduce::mechanisms::{modelled, modelled_table};
use kiban_sim::cost::{BOARD_1995, CostModel, Costs, Mechanism};
use std::time::Duration;

#[test]
fn the_report_equals_the_snapshot_and_misses_nothing() {
    let mut points = 0;
    let report = report(Effort::QUICK, &mut || points += 1);
    assert_eq!(points, Effort::QUICK.points());
    let missed: Vec<_> = report.rows.iter().filter(|row| row.verdict == Verdict::Missed).collect();
    assert!(report.came_out(), "{missed:#?}");
    check("atm-board.txt", &report.to_string());
    let csv: String = report.figures.iter().map(|figure| figure.csv()).collect();
    check("atm-board.csv", &csv);
}

#[test]
fn every_mechanism_but_scaling_is_worth_something_under_the_model() {
    let interval = Interval { settle: Duration::from_millis(600), span: Duration::from_millis(300) };
    let rows = modelled(&Mechanism::ALL, interval);
    let [whole, less @ ..] = &rows[..] else { panic!("the whole board comes first") };
    for row in less {
        for (point, whole) in row.points.iter().zip(&whole.points) {
            match row.without {
                Some("scaling") => assert!((point.mbps / whole.mbps - 1.0).abs() < 0.01, "{row:?}"),
                _ => assert!(point.mbps < whole.mbps * 0.97, "{row:?}"),
            }
        }
    }
    check("atm-board-mechanisms.txt", &modelled_table(&rows).to_string());
}

/// One set of constants explains all curves: changing a fitted constant changes the value that it was fitted
/// to.
#[test]
fn the_fitted_constants_carry_the_values_that_they_were_fitted_to() {
    let interval = Interval { settle: Duration::from_millis(800), span: Duration::from_millis(400) };
    let config = kiban_lab::reproduce::atm_board::config_1995();
    let mbps = |model: &CostModel, window: u32, sessions| {
        measure(&model.plan(&config, window << 10), sessions, interval).mbps
    };
    let costs = BOARD_1995.costs;
    let with = |costs: Costs| CostModel { costs, ..BOARD_1995 };
    let micros = Duration::from_micros;
    for (what, window, sessions, less, more) in [
        ("gap", 256, 1, Costs { gap: micros(0), ..costs }, Costs { gap: micros(9), ..costs }),
        ("pdu", 16, 5, Costs { pdu: micros(440), ..costs }, Costs { pdu: micros(480), ..costs }),
        ("waiter", 48, 50, Costs { waiter: micros(0), ..costs }, Costs { waiter: micros(2), ..costs }),
    ] {
        let here = mbps(&BOARD_1995, window, sessions);
        assert!(mbps(&with(less), window, sessions) > here * 1.004, "{what}");
        assert!(mbps(&with(more), window, sessions) < here * 0.996, "{what}");
    }
}
