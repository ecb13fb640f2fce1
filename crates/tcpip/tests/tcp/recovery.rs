//! Talks about recovery from loss with a peer that sends SACK, and about the congestion window
//! (RFC 2018, RFC 2883, RFC 3042, RFC 6675, RFC 6937, RFC 8985, RFC 9438).

use crate::common::ms;
use crate::common::talk::*;
use core::time::Duration;
use kiban_tcpip::tcp::{Config, CongestionControl, Info, LossDetection};
use kiban_tcpip::wire::tcp::{Header, Options, SackBlock, SackBlocks};

/// A session whose peer takes SACK, with a measured round trip of 100 ms.
fn talk_with(config: Config) -> Talk {
    let mut talk = Talk::listening(Config { sack: true, ..config });
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::NONE };
    talk.hear(Header { options, ..seg(SYN, 0, 0, 60_000) }, b"");
    talk.pass(ms(100));
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    talk.said();
    talk.told();
    talk
}

fn talk() -> Talk {
    talk_with(Config::default())
}

/// Delivers an acknowledgement with SACK blocks, in relative numbers.
fn sack(talk: &mut Talk, acknowledgment: u32, blocks: &[(u32, u32)]) {
    let mut list = SackBlocks::new();
    for (left, right) in blocks {
        let at = |n: u32| talk.initial + n;
        assert!(list.push(SackBlock { left: at(*left), right: at(*right) }));
    }
    let options = Options { sack: list, ..Options::NONE };
    talk.hear(Header { options, ..seg(ACK, 1, acknowledgment, 60_000) }, b"");
}

fn info(talk: &Talk) -> Info {
    talk.station.tcp.info(talk.id()).unwrap()
}

// ---- Holes
// ---------------------------------------------------------------------------------------------------------

#[test]
fn only_the_holes_are_retransmitted_and_each_once() {
    for loss_detection in [LossDetection::Rack, LossDetection::Sack] {
        let mut talk = talk_with(Config { loss_detection, ..Config::default() });
        talk.write(&bytes(10_000));
        talk.said();
        talk.pass(ms(100));
        // The first and the third of ten are lost.
        sack(&mut talk, 1, &[(1001, 2001)]);
        sack(&mut talk, 1, &[(3001, 4001), (1001, 2001)]);
        sack(&mut talk, 1, &[(3001, 5001), (1001, 2001)]);
        let mut again = talk.said_briefly();
        sack(&mut talk, 1, &[(3001, 6001), (1001, 2001)]);
        sack(&mut talk, 1, &[(3001, 7001), (1001, 2001)]);
        sack(&mut talk, 1, &[(3001, 10_001), (1001, 2001)]);
        again.extend(talk.said_briefly());
        assert_eq!(again, ["ACK 1+1000 ack 1", "ACK 2001+1000 ack 1"], "{loss_detection:?}");
        sack(&mut talk, 2001, &[(3001, 10_001)]);
        sack(&mut talk, 10_001, &[]);
        assert!(talk.said().is_empty());
        let counters = talk.station.tcp.counters();
        assert_eq!((counters.retransmits, counters.timeouts, counters.fast_retransmits), (2, 0, 1));
        // CUBIC: 0.7 of the ten segments that were out.
        assert_eq!(info(&talk).congestion_window_bytes, 7000);
    }
}

#[test]
fn a_large_segment_is_cut_where_the_peer_holds_part_of_it() {
    let mut talk = talk_with(Config { segment_bytes_max: 8000, ..Config::default() });
    talk.write(&bytes(8000));
    talk.said();
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(2001, 3001), (4001, 8001)]);
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1", "ACK 3001+1000 ack 1"]);
}

#[test]
fn a_lost_retransmission_is_detected_by_rack() {
    // RFC 8985 §3.1: duplicate acknowledgements could not tell.
    let mut talk = talk();
    talk.write(&bytes(20_000));
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(1001, 5001)]);
    talk.said();
    // Segments sent after the retransmission arrive a round trip later, the retransmission does not.
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(1001, 11_001)]);
    assert_eq!(talk.said_briefly()[0], "ACK 1+1000 ack 1");
    assert_eq!(talk.station.tcp.counters().timeouts, 0);
}

#[test]
fn rack_waits_for_reordering_once_it_has_been_seen() {
    let mut talk = talk();
    talk.write(&bytes(4000));
    talk.pass(ms(100));
    talk.said();
    // Two segments overtook the first, which then comes: nothing is sent again.
    sack(&mut talk, 1, &[(1001, 3001)]);
    assert!(talk.said().is_empty());
    sack(&mut talk, 3001, &[]);
    sack(&mut talk, 4001, &[]);
    // From now on three segments above a hole are not enough: a quarter of a round trip is waited (RFC 8985
    // §6.2).
    talk.write(&bytes(8000));
    talk.said();
    talk.pass(ms(100));
    sack(&mut talk, 4001, &[(5001, 12_001)]);
    assert!(talk.said().is_empty());
    talk.pass(ms(24));
    assert!(talk.said().is_empty());
    talk.pass(ms(2));
    assert_eq!(talk.said_briefly(), ["ACK 4001+1000 ack 1"]);
    assert_eq!(talk.station.tcp.counters().timeouts, 0);
}

#[test]
fn data_discarded_after_a_sack_is_retransmitted() {
    // RFC 2018 §8.
    let mut talk = talk();
    talk.write(&bytes(5000));
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(1001, 5001)]);
    sack(&mut talk, 1001, &[]);
    talk.said();
    let mut again = Vec::new();
    for n in 1..5 {
        talk.pass(Duration::from_secs(3));
        again.extend(talk.said_briefly());
        sack(&mut talk, 1001 + 1000 * n, &[]);
        again.extend(talk.said_briefly());
    }
    assert!(again.contains(&"PSH ACK 4001+1000 ack 1".into()), "{again:?}");
    assert_eq!(info(&talk).outstanding_bytes, 0);
}

#[test]
fn a_timeout_does_not_retransmit_sacked_data() {
    let mut talk = talk_with(Config { loss_detection: LossDetection::Sack, ..Config::default() });
    talk.write(&bytes(4000));
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(1001, 2001)]);
    talk.said();
    talk.pass(ms(400));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1"]);
    sack(&mut talk, 2001, &[]);
    assert_eq!(talk.said_briefly(), ["ACK 2001+1000 ack 1", "PSH ACK 3001+1000 ack 1"]);
}

#[test]
fn sack_blocks_of_unsent_data_are_ignored() {
    let mut talk = talk();
    talk.write(&bytes(4000));
    talk.said();
    sack(&mut talk, 1, &[(5001, 9001), (9001, 5001), (4001, 4001)]);
    sack(&mut talk, 1, &[(1, 4_000_000), (0x8000_0000, 0x8000_1000)]);
    assert!(talk.said().is_empty());
    let counters = talk.station.tcp.counters();
    assert!(counters.sack_blocks_invalid >= 3, "{counters:?}");
    assert_eq!((counters.fast_retransmits, info(&talk).outstanding_bytes), (0, 4000));
}

// ---- The window
// ----------------------------------------------------------------------------------------------------

#[test]
fn recovery_reduces_the_rate_in_proportion_to_deliveries() {
    // RFC 6937, Reno: of fourteen segments that are out one is lost; seven go while thirteen arrive, one for
    // two.
    let config =
        Config { congestion: CongestionControl::Reno, initial_window_segments: 20, ..Config::default() };
    let mut talk = talk_with(config);
    talk.write(&bytes(40_000));
    let out = talk.said().len() as u32;
    talk.pass(ms(100));
    let mut sent = Vec::new();
    for n in 2..=out {
        sack(&mut talk, 1, &[(1001, n * 1000 + 1)]);
        sent.push(talk.said().len());
    }
    let all: usize = sent.iter().sum();
    // Limited transmit lets the first two through, the retransmission is one; half of what is delivered
    // follows.
    assert!((out as usize / 2..=out as usize / 2 + 3).contains(&all), "{sent:?}");
    assert!(sent.iter().all(|count| *count <= 2), "no burst: {sent:?}");
    sack(&mut talk, out * 1000 + 1, &[]);
    assert_eq!(info(&talk).congestion_window_bytes, 7300, "half of the initial window of 14,600");
}

#[test]
fn the_first_two_duplicates_send_new_segments() {
    // RFC 3042.
    for limited_transmit in [true, false] {
        let mut talk = talk_with(Config { limited_transmit, ..Config::default() });
        talk.write(&bytes(20_000));
        assert_eq!(talk.said().len(), 10);
        talk.pass(ms(100));
        sack(&mut talk, 1, &[(1001, 2001)]);
        sack(&mut talk, 1, &[(1001, 3001)]);
        let expected: &[&str] =
            if limited_transmit { &["ACK 10001+1000 ack 1", "ACK 11001+1000 ack 1"] } else { &[] };
        assert_eq!(talk.said_briefly(), expected);
    }
}

#[test]
fn after_an_idle_time_the_window_restarts() {
    // RFC 5681 §4.1.
    for (idle_restart, window) in [(true, 10_000), (false, 20_000)] {
        let mut talk = talk_with(Config { idle_restart, ..Config::default() });
        talk.write(&bytes(10_000));
        talk.pass(ms(100));
        sack(&mut talk, 10_001, &[]);
        assert_eq!(info(&talk).congestion_window_bytes, 20_000);
        talk.pass(Duration::from_secs(2));
        talk.write(&bytes(1000));
        assert_eq!(info(&talk).congestion_window_bytes, window);
    }
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    let mut talk = talk_with(Config { pacing: true, ..Config::default() });
    talk.write(&bytes(10_000));
    let mut at = Vec::new();
    let begin = talk.now;
    for _ in 0..100 {
        at.extend(talk.said().iter().map(|_| talk.now.since(begin).as_millis()));
        talk.pass(ms(1));
    }
    // Slow start: twice the window in a round trip of 100 ms: ten segments, 5 ms apart.
    assert_eq!(at, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]);
}

// ---- The tail
// ------------------------------------------------------------------------------------------------------

#[test]
fn the_tail_is_probed_after_two_round_trips() {
    let mut talk = talk();
    talk.write(&bytes(3000));
    assert_eq!(talk.said().len(), 3);
    talk.pass(ms(201));
    assert!(talk.said().is_empty());
    talk.pass(ms(1));
    assert_eq!(talk.said_briefly(), ["PSH ACK 2001+1000 ack 1"], "the last segment, before any timeout");
    // Its SACK shows the rest to be lost: no timeout, but a recovery.
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(2001, 3001)]);
    talk.pass(ms(30));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1"]);
    let counters = talk.station.tcp.counters();
    assert_eq!((counters.tail_loss_probes, counters.timeouts), (1, 0));
}

#[test]
fn the_probe_of_a_single_segment_allows_for_a_delayed_ack() {
    let mut talk = talk_with(Config { rto_min: Duration::from_secs(1), ..Config::default() });
    talk.write(&bytes(1000));
    talk.said();
    talk.pass(ms(399));
    assert!(talk.said().is_empty());
    talk.pass(ms(1));
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+1000 ack 1"]);
}

#[test]
fn a_tail_loss_probe_prefers_new_data() {
    let mut talk = talk();
    talk.write(&bytes(12_000));
    assert_eq!(talk.said().len(), 10);
    talk.pass(ms(202));
    assert_eq!(talk.said_briefly(), ["ACK 10001+1000 ack 1"]);
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window_and_a_spurious_one_does_not() {
    // RFC 8985 §7.4.2.
    for (twice, window) in [(false, 14_000), (true, 20_000)] {
        let mut talk = talk();
        talk.write(&bytes(10_000));
        talk.pass(ms(202));
        assert_eq!(talk.said().len(), 11);
        // All ten are acknowledged, the window doubles; whether the probe was needed shows in what comes
        // next.
        sack(&mut talk, 10_001, if twice { &[(9001, 10_001)] } else { &[] });
        assert_eq!(talk.station.tcp.counters().dsacks_in, u64::from(twice));
        talk.write(&bytes(1000));
        sack(&mut talk, 11_001, &[]);
        assert_eq!(info(&talk).congestion_window_bytes, window);
    }
}
