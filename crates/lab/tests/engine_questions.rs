//! Questions in the registry give the same results as the modules of the papers.

use kiban_lab::engine::{Failure, Plan, Point, Question, Value, questions};
use kiban_lab::reproduce::atm_board::config_1995;
use kiban_lab::reproduce::flow::{Interval, measure};
use kiban_lab::reproduce::wide_area::map::Map;
use kiban_sim::cost::BOARD_1995;
use std::time::Duration;

fn question(name: &str) -> &'static dyn Question {
    questions::find(name).expect("it is in the registry")
}

fn point(question: &dyn Question, parameters: &str) -> Point {
    let text = format!("question = \"{}\"\n[parameters]\n{parameters}", question.name());
    Plan::read(&text, &questions::all()).expect("the plan is good").trial(0).point
}

#[test]
fn a_single_cell_equals_that_of_the_map() {
    let (messages, buffers, interval) = ([4000, 5000], [8000, 12_000], Duration::from_millis(300));
    let map = Map::make("map", "solaris23", &messages, &buffers, interval, &|| {});
    let question = question("wide-area-atm");
    let mut slow = 0;
    for (buffer, message, cell) in map.iter() {
        let parameters = format!("message_bytes = {message}\nbuffer_bytes = {buffer}\nmilliseconds = 300");
        let metrics = question.trial(&point(question, &parameters), 1).expect("it can be created");
        assert_eq!(metrics.figures["mbps"], cell.mbps, "{buffer} {message}");
        assert_eq!(metrics.figures["waits_per_second"], cell.waits_per_second, "{buffer} {message}");
        slow += usize::from(cell.mbps < 10.0);
    }
    assert_eq!(slow, 1, "the region of the paper and what lies around it");
}

#[test]
fn board_sessions_equal_those_of_the_figure() {
    let interval = Interval { settle: Duration::from_millis(300), span: Duration::from_millis(200) };
    let flow = measure(&BOARD_1995.plan(&config_1995(), 16 << 10), 4, interval);
    let question = question("atm-board");
    let asked =
        point(question, "sessions = 4\nwindow_kib = 16\nsettle_milliseconds = 300\nmilliseconds = 200");
    let metrics = question.trial(&asked, 1).expect("it can be created");
    assert_eq!((metrics.figures["mbps"], metrics.figures["moving"]), (flow.mbps, flow.active_streams as f64));
    assert_eq!([metrics.figures["busy_sender"], metrics.figures["busy_receiver"]], flow.busy);
    assert!(flow.mbps > 100.0 && flow.active_streams == 4, "{flow:?}");
}

#[test]
fn impossible_points_are_refused_with_the_valid_range() {
    for (name, parameter, value, expected) in [
        ("wide-area-atm", "mtu_bytes", Value::Count(100), "mtu_bytes must be between 576 and 9180"),
        (
            "wide-area-atm",
            "profile",
            Value::Word("bsd".into()),
            "profile must be one of modern, bsd43, solaris23",
        ),
        ("wide-area-atm", "message_bytes", Value::Count(0), "message_bytes must be between 1 and 1048576"),
        ("atm-board", "sessions", Value::Count(0), "sessions must be between 1 and 1000"),
        ("atm-board", "board", Value::Word("1996".into()), "board must be one of 1995, today"),
    ] {
        let question = question(name);
        let mut point = point(question, "");
        assert_eq!(question.validate(&point), Ok(()));
        point.0.insert(parameter.to_owned(), value);
        let expected = Failure::Impossible(expected.to_owned());
        assert_eq!(question.validate(&point), Err(expected.clone()));
        assert_eq!(question.trial(&point, 1), Err(expected));
    }
}

/// Every point that validation accepts can be run; this test runs the corners of the valid range.
#[test]
fn a_valid_point_can_be_run() {
    let question = question("wide-area-atm");
    for profile in ["modern", "bsd43", "solaris23"] {
        for (message, buffer, mtu) in
            [(1, 500, 576), (1 << 20, 500, 9180), (1, 1 << 18, 576), (1 << 20, 1 << 18, 9180), (1, 500, 9180)]
        {
            let parameters = format!(
                "profile = \"{profile}\"\nmessage_bytes = {message}\nbuffer_bytes = {buffer}\nmtu_bytes = {mtu}\nmilliseconds = 20"
            );
            let asked = point(question, &parameters);
            assert_eq!(question.validate(&asked), Ok(()));
            let metrics = question.trial(&asked, 1).expect("the point is valid");
            assert!(metrics.figures["mbps"] >= 0.0, "{parameters}");
        }
    }
}
