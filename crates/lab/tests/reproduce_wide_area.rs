//! `wide-area-atm`: virtual-time results are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::wide_area::hosts::{Experiment, SWITCH_DELAY, WORKSTATION_1995};
use kiban_lab::reproduce::wide_area::{Effort, make};
use kiban_tcpip::tcp::{Config, Offer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn mbps(tcp: Config, buffer_bytes: u32, message_bytes: usize) -> f64 {
    let (costs, delay) = (WORKSTATION_1995, SWITCH_DELAY);
    Experiment { tcp, mtu_bytes: 9180, message_bytes, buffer_bytes, costs, delay }
        .run(Duration::from_secs(2), 0)
        .mbps
}

#[test]
fn the_report_equals_the_snapshot() {
    // This run is shorter than the published one, but contains all experiments.
    let effort = Effort { long: true, ..Effort::QUICK };
    let cells = AtomicU64::new(0);
    let made = make(effort, &|| {
        cells.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(cells.into_inner(), effort.cells());
    let missed = made.report.rows.iter().filter(|row| row.verdict == Verdict::Missed);
    let missed: Vec<_> = missed.map(|row| row.here.as_str()).collect();
    assert_eq!(missed, [] as [&str; 0]);
    check("wide-area-atm.txt", &made.to_string());
    check("wide-area-atm.csv", &made.csv());
}

/// With a buffer of two segments, today's settings are slow even outside the slow region, because writer and
/// reader alternate. There are two remedies: to acknowledge every segment and offer the whole window, or to
/// have a buffer for more than two segments.
#[test]
fn today_a_buffer_of_two_segments_makes_writer_and_reader_alternate() {
    let today = Config::modern;
    for message in [1000, 4000, 6000] {
        let turns = mbps(today(), 12_000, message);
        assert!(turns < 40.0, "{message}: {turns}");
        let eager = Config { ack_segments: 1, window_advertisement: Offer::Whole, ..today() };
        let better = [mbps(eager, 12_000, message), mbps(today(), 36_000, message)];
        assert!(better[0] > 40.0 && better[1] > 50.0, "{message}: {better:?}");
    }
}

/// Each rule that causes the collapse is a setting. With today's usual value of any one of them, the
/// throughput does not collapse.
#[test]
fn without_one_rule_the_writer_continues() {
    let old = Config::solaris23;
    let today = Config::modern();
    assert!(mbps(old(), 8000, 4500) < 2.6);
    // From 4570 bytes on, two messages reach the low-water mark of 9140 bytes.
    assert!(mbps(old(), 8000, 4569) < 2.6 && mbps(old(), 8000, 4570) > 30.0);
    for cured in [
        Config { delayed_ack: Duration::ZERO, ack_tick: Duration::ZERO, ..old() },
        Config { ack_bytes: Some(4500), ..old() },
        Config { send_round_to_mss: false, ..old() },
        Config { send_low_water_bytes: today.send_low_water_bytes, ..old() },
    ] {
        let rate = mbps(cured.clone(), 8000, 4500);
        assert!(rate > 20.0, "{rate} {cured:?}");
    }
}
