//! `via-library`: virtual-time results are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_base::Wait;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::via_library::host::{Host, KB, MB, STALLS, descriptors};
use kiban_lab::reproduce::via_library::{Effort, make};
use kiban_sim::waiting::{Level, Stall, StallTiming};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn the_report_equals_the_snapshot() {
    let (effort, points) = (Effort::quick(), AtomicU64::new(0));
    let made = make(&effort, &|| {
        points.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(points.into_inner(), effort.points());
    let missed = made.report.rows.iter().filter(|row| row.verdict == Verdict::Missed);
    let missed: Vec<_> = missed.map(|row| row.what.as_str()).collect();
    assert_eq!(missed, [""; 0]);
    let of = |verdict| made.report.rows.iter().filter(move |row| row.verdict == verdict);
    let conflicts: Vec<_> = of(Verdict::Conflict).map(|row| row.what.as_str()).collect();
    assert_eq!(
        conflicts,
        [
            "sizes of lost packets, 100 us, 10 MB, KB",
            "loss, polling for 90 us, 15 MB, %",
            "longest stall, ms",
            "processor twice as fast: unchanged cells of table 3"
        ]
    );
    check("via-library.txt", &made.to_string());
    check("via-library.csv", &made.report.figures[0].csv());
}

/// Two stalls at the same wake-up would be longer than any stall that the model assumes, and lose packets in
/// cells without loss.
#[test]
fn no_run_reaches_a_wake_up_at_which_both_stalls_are_due() {
    let [StallTiming::EveryWaking(often), StallTiming::EveryWaking(seldom)] = STALLS.map(|stall| stall.when)
    else {
        panic!("both are counted")
    };
    let both = (1..).map(|times| times * seldom).find(|wakings| wakings.is_multiple_of(often));
    for effort in [Effort::quick(), Effort::full()] {
        assert!(both > Some(effort.packets.max(effort.packets_past_cliff)), "{both:?}");
    }
}

/// This host isolates the effect of polling: every hundredth wake-up is stalled, for about the longest
/// possible time.
#[test]
fn each_descriptor_covers_one_packet_gap_of_a_stall() {
    let longest = Stall { when: StallTiming::EveryWaking(100), ..STALLS[1] };
    let host = Host { stalls: vec![longest], ..Host::of_2000() };
    let lost = |spin_us: u64, packet_kb: u64| {
        let wait = Wait::Hybrid { spin: Duration::from_micros(spin_us) };
        host.receive(wait, Level::Unreliable, descriptors(7 * MB), packet_kb * KB, 100_000).lost
    };
    // The buffer has 106 descriptors. A stall of 38.4 ms therefore loses packets if the gaps are shorter than
    // 362 us, that is, if packets are smaller than 22.7 KB.
    for (spin_us, packet_kb, loses) in [
        (100, 12, false), // the gap is 192 us: the packet arrives while the process polls
        (100, 13, true),
        (100, 22, true),
        (100, 24, false),
        (140, 15, false),
        (140, 16, true),
        (300, 22, false), // the process never sleeps
        (300, 30, false), // the process sleeps, but 106 gaps are 51 ms
    ] {
        assert_eq!(lost(spin_us, packet_kb) > 0, loses, "{spin_us} us, {packet_kb} KB");
    }
}
