//! RTP between two simulated boards: the receiver's figures are those of the cable.

use kiban_lab::rtp::Stream;
use kiban_lab::rtp::boards::{Plan, run};
use kiban_sim::ImpairmentConfig;
use std::time::Duration;

fn plan(impairment: ImpairmentConfig) -> Plan {
    // A clock of 90 kHz, so that its units of 11 us are small beside the jitter.
    let stream = Stream { payload_type: 96, clock_hz: 90_000, ..Stream::default() };
    Plan { stream, streams: 3, packets: 2000, delay: Duration::from_millis(10), impairment, seed: 1 }
}

#[test]
fn a_clean_cable_has_no_losses_no_jitter_and_its_own_delay() {
    let (clean, capture) = run(&plan(ImpairmentConfig::NONE));
    assert_eq!(clean.received.streams.len(), 3);
    for stream in &clean.received.streams {
        // The first packet only announces the stream.
        assert_eq!((stream.packets, stream.lost, stream.reordered, stream.ignored), (1999, 0, 0, 1));
        assert!(stream.jitter_ms < 0.02, "{stream:?}");
        let one_way = stream.one_way_ms.expect("boards share the world's clock");
        assert!((one_way - 10.0).abs() < 0.1, "{stream:?}");
        assert!(stream.cname.starts_with("stream-") && stream.has_left, "{stream:?}");
    }
    for stream in &clean.sent.streams {
        assert_eq!((stream.packets, stream.lost), (2000, Some(0)));
        let trip = stream.round_trip_ms.expect("the receiver has heard sender reports");
        assert!((trip - 20.0).abs() < 0.2, "{stream:?}");
    }
    assert!(capture.len() > 3 * 2000 * 200);
    assert_eq!(run(&plan(ImpairmentConfig::NONE)).0, clean, "the same plan gives the same figures");
}

#[test]
fn losses_and_duplicates_are_those_of_the_cable() {
    let impairment = ImpairmentConfig { loss: 0.02, duplicate: 0.01, ..ImpairmentConfig::NONE };
    let (figures, _) = run(&plan(impairment));
    let sum = |of: fn(&kiban_lab::rtp::measured::ReceivedStream) -> i64| -> i64 {
        figures.received.streams.iter().map(of).sum()
    };
    let lost = sum(|stream| stream.lost + stream.duplicates as i64);
    let duplicates = sum(|stream| stream.duplicates as i64);
    // The cable also carries RTCP, and the first and the last packets of a stream are not expected.
    let (cable_lost, cable_duplicated) = (figures.cable_lost as i64, figures.cable_duplicated as i64);
    assert!(cable_lost > 80 && (cable_lost - 10..=cable_lost).contains(&lost), "{figures}");
    assert!(
        cable_duplicated > 40 && (cable_duplicated - 5..=cable_duplicated).contains(&duplicates),
        "{figures}"
    );
    assert_eq!(sum(|stream| stream.reordered as i64), 0);
}

#[test]
fn jitter_is_the_mean_difference_of_transit_times() {
    let hold_back = Duration::from_millis(9);
    let impairment = ImpairmentConfig { reorder: 1.0, hold_back, ..ImpairmentConfig::NONE };
    let (figures, _) = run(&plan(impairment));
    for stream in &figures.received.streams {
        // Two uniform times from 0 to 9 ms differ by 3 ms on average.
        let mean = figures.mean_difference_ms[&stream.ssrc];
        assert!((mean - 3.0).abs() < 0.2, "{figures}");
        // RFC 3550 weighs the last sixteen packets or so, hence the tolerance: the standard deviation of one
        // difference is 2.1 ms, and that of the weighted mean a fifth of it or, as neighbours share a packet,
        // a little more.
        assert!((stream.jitter_ms - mean).abs() < 1.8, "{figures}");
        assert_eq!((stream.lost, stream.reordered), (0, 0), "packets 20 ms apart do not overtake: {figures}");
        let [p50, p99, max] = stream.variation_ms.expect("packets have arrived");
        assert!((p50 - 4.5).abs() < 0.4 && p99 > 8.5 && max <= 9.01, "{figures}");
    }
}

#[test]
fn packets_that_overtake_each_other_are_reordered_and_not_lost() {
    let hold_back = Duration::from_millis(60);
    let impairment = ImpairmentConfig { reorder: 1.0, hold_back, ..ImpairmentConfig::NONE };
    let (figures, _) = run(&plan(impairment));
    for stream in &figures.received.streams {
        assert!((300..1400).contains(&stream.reordered), "{figures}");
        // Packets that are still behind at the beginning are not part of the statistics.
        assert!((-3..=0).contains(&stream.lost) && stream.duplicates == 0, "{figures}");
    }
}
