//! Questions in the registry give the same results as the modules of the papers.

use kiban_lab::engine::{Failure, Plan, Point, Question, Value, questions};
use kiban_lab::reproduce::atm_board::config_1995;
use kiban_lab::reproduce::flow::{Interval, measure};
use kiban_lab::reproduce::osi_board;
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

/// Across a distance, TCP carries at most a window per round trip.
#[test]
fn over_a_distance_the_buffer_limits_the_rate_instead_of_the_hosts() {
    let question = question("wide-area-atm");
    let mbps = |kilometres: f64| {
        let parameters = format!(
            "message_bytes = 9000\nbuffer_bytes = 65536\nprofile = \"modern\"\nkilometres = {kilometres:?}"
        );
        question.trial(&point(question, &parameters), 1).expect("it can be created").figures["mbps"]
    };
    let limit = |kilometres: f64| 65_536.0 * 8e-6 / (2.0 * kilometres * 1e3 / 2.1e8);
    let [near, one, two] = [0.0, 3000.0, 7760.0].map(mbps);
    assert!(near > 40.0 && near < 135.0, "{near}");
    for (rate, kilometres) in [(one, 3000.0), (two, 7760.0)] {
        let limit = limit(kilometres);
        assert!(rate > 0.6 * limit && rate <= 1.01 * limit, "{kilometres}: {rate} of {limit}");
    }
    let refused = question.validate(&point(question, "kilometres = 50000")).expect_err("too far");
    assert!(refused.to_string().contains("kilometres must be a number from 0 to 40000"), "{refused}");
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
        ("osi-board", "tpdu_bytes", Value::Count(4096), "tpdu_bytes must be between 128 and 2048"),
        ("osi-board", "packet_bytes", Value::Count(100), "packet_bytes must be a power of two"),
        ("osi-board", "k_frames", Value::Count(128), "k_frames must be between 1 and 127"),
        (
            "osi-board",
            "without",
            Value::Word("sum".into()),
            "without must be one of none, no-copy, primitives, shared-buffers",
        ),
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

#[test]
fn an_osi_board_gives_the_values_of_the_figures_and_loses_by_each_missing_mechanism() {
    let question = question("osi-board");
    let trial = |parameters: &str| {
        question.trial(&point(question, parameters), 1).expect("the point is valid").figures
    };
    let effort = osi_board::Effort::QUICK;
    let figure = &osi_board::make(effort, &mut || {}).report.figures[0];
    for (curve, medium) in figure.curves.iter().zip(["line", "loopback"]) {
        for (fdata, published) in &curve.points {
            let figures = trial(&format!("medium = \"{medium}\"\nfdata_bytes = {fdata}"));
            assert_eq!(Some(figures["mbps"]), *published, "{medium} {fdata}");
        }
    }
    // As in the table of the model in the page: where the upper module is the bottleneck, every mechanism
    // counts.
    let loopback = |without: &str| trial(&format!("medium = \"loopback\"\nwithout = \"{without}\""))["mbps"];
    let whole = loopback("none");
    for without in ["no-copy", "primitives", "shared-buffers"] {
        assert!(loopback(without) < 0.9 * whole, "{without}: {} of {whole}", loopback(without));
    }
    // The lower module has a cost per frame, so short packets reduce the throughput. A window of one packet
    // leaves the line idle.
    let whole = trial("")["mbps"];
    let (short, lone) = (trial("packet_bytes = 512")["mbps"], trial("window_packets = 1")["mbps"]);
    assert!(short < 0.5 * whole && lone < 0.9 * whole, "{short} {lone} of {whole}");
    let idle = trial("board = \"today\"");
    assert!(idle["busy_sender"] == 0.0 && idle["line_use"] > 0.99, "{idle:?}");
}

#[test]
fn an_osi_board_runs_at_the_corners_of_its_parameters() {
    let question = question("osi-board");
    for fdata in [1, 1 << 20] {
        for (tpdu, packet) in [(128, 16), (128, 4096), (2048, 16), (2048, 4096)] {
            for (window, k) in [(1, 1), (1, 127), (127, 1), (127, 127)] {
                let asked = format!(
                    "fdata_bytes = {fdata}\ntpdu_bytes = {tpdu}\npacket_bytes = {packet}\n\
                    window_packets = {window}\nk_frames = {k}\nfile_bytes = 5000"
                );
                let figures = question.trial(&point(question, &asked), 1).expect("it is valid").figures;
                assert!(figures["mbps"] > 0.0 && figures["line_use"] <= 1.0, "{asked}: {figures:?}");
            }
        }
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
