//! Loss recovery with a peer that sends SACK, and the congestion window (RFC 2018, RFC 2883, RFC 3042, RFC
//! 6675, RFC 6937, RFC 8985, RFC 9438).

use crate::check;

/// A session whose peer sends SACK, with a measured round trip of 100 ms.
const BEGIN: &str = "established mss 1000 win 60000 sackok rtt 100ms; 0ms";

#[test]
fn only_the_holes_are_retransmitted_and_each_once() {
    // The first and the third of ten segments are lost. CUBIC reduces the window to 0.7 of the ten segments
    // that were outstanding.
    for detection in ["rack", "sack"] {
        let again = "-> seq 2001:3001 ack 1;";
        let (now, later) = if detection == "rack" { (again, "") } else { ("", again) };
        check(&format!(
            "set tcp.loss_detection {detection}
             {BEGIN} write 10000; -> seq 1:10001 by 1000 ack 1
             +100ms <- ack 1 sack 1001:2001
             <- ack 1 sack 3001:4001 1001:2001
             <- ack 1 sack 3001:5001 1001:2001; -> seq 1:1001 ack 1; {now}
             <- ack 1 sack 3001:6001 1001:2001; {later}
             <- ack 1 sack 3001:7001 1001:2001; <- ack 1 sack 3001:10001 1001:2001
             <- ack 2001 sack 3001:10001; <- ack 10001; silence
             counter tcp.retransmits 2; counter tcp.timeouts 0; counter tcp.fast_retransmits 1
             info cwnd 7000"
        ));
    }
}

#[test]
fn a_lost_retransmission_is_detected_by_rack() {
    // RFC 8985 §3.1: duplicate ACKs alone could not reveal this loss. Segments sent after the retransmission
    // arrive a round trip later, but the retransmission itself does not.
    check(&format!(
        "{BEGIN} write 20000; -> seq 1:10001 by 1000 ack 1
         +100ms <- ack 1 sack 1001:5001; -> seq 1:1001 ack 1; -> seq 10001:11001 ack 1
         +100ms <- ack 1 sack 1001:11001; -> seq 1:1001 ack 1; -> seq 11001:17001 by 1000 ack 1
         counter tcp.timeouts 0"
    ));
}

#[test]
fn rack_waits_for_reordering_once_it_has_been_seen() {
    // Two segments overtook the first, which then arrives, so nothing is retransmitted. From then on, three
    // segments above a hole do not suffice; a loss is declared only after a quarter of a round trip (RFC 8985
    // §6.2).
    check(&format!(
        "{BEGIN} write 4000; -> seq 1:4001 by 1000 ack 1
         +100ms <- ack 1 sack 1001:3001; silence; <- ack 3001; <- ack 4001
         write 8000; -> seq 4001:12001 by 1000 ack 1
         +100ms <- ack 4001 sack 5001:12001; +24ms silence
         within 0ms..2ms -> seq 4001:5001 ack 1; counter tcp.timeouts 0"
    ));
}

#[test]
fn data_discarded_after_a_sack_is_retransmitted() {
    // RFC 2018 §8.
    check(&format!(
        "set tcp.tail_loss_probe off
         {BEGIN} write 5000; -> seq 1:5001 by 1000 ack 1
         +100ms <- ack 1 sack 1001:5001; -> seq 1:1001 ack 1; <- ack 1001
         eventually -> seq 1001:2001 ack 1; <- ack 2001; -> seq 2001:4001 by 1000 ack 1
         <- ack 3001; -> PSH seq 4001:5001 ack 1; <- ack 4001; <- ack 5001; info outstanding 0"
    ));
}

#[test]
fn a_timeout_does_not_retransmit_sacked_data() {
    check(&format!(
        "set tcp.loss_detection sack
         {BEGIN} write 4000; -> seq 1:4001 by 1000 ack 1
         +100ms <- ack 1 sack 1001:2001
         within 200ms..400ms -> seq 1:1001 ack 1
         <- ack 2001; -> seq 2001:3001 ack 1; -> PSH seq 3001:4001 ack 1"
    ));
}

#[test]
fn sack_blocks_of_unsent_data_are_ignored() {
    check(&format!(
        "{BEGIN} write 4000; -> seq 1:4001 by 1000 ack 1
         <- ack 1 sack 5001:9001 9001:5001 4001:4001
         <- ack 1 sack 1:4000000 -2147483648:-2147479552; silence
         counter tcp.sack_blocks_invalid 4; counter tcp.fast_retransmits 0; info outstanding 4000"
    ));
}

#[test]
fn the_first_two_duplicates_send_new_segments() {
    // RFC 3042.
    for (enabled, first, second) in
        [("on", "-> seq 10001:11001 ack 1", "-> seq 11001:12001 ack 1"), ("off", "", "")]
    {
        check(&format!(
            "set tcp.limited_transmit {enabled}
             {BEGIN} write 20000; -> seq 1:10001 by 1000 ack 1
             +100ms <- ack 1 sack 1001:2001; {first}; <- ack 1 sack 1001:3001; {second}; silence"
        ));
    }
}

#[test]
fn after_an_idle_time_the_window_restarts() {
    // RFC 5681 §4.1.
    for (restart, window) in [("on", 10_000), ("off", 20_000)] {
        check(&format!(
            "set tcp.idle_restart {restart}
             {BEGIN} write 10000; -> seq 1:10001 by 1000 ack 1; +100ms <- ack 10001; info cwnd 20000
             +2s write 1000; -> seq 10001:11001 ack 1; info cwnd {window}"
        ));
    }
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    // Slow start: two windows per round trip of 100 ms, so ten segments are 5 ms apart.
    let rest: String =
        (1..10).map(|n| format!("+5ms -> seq {}:{} ack 1;", n * 1000 + 1, n * 1000 + 1001)).collect();
    check(&format!("set tcp.pacing on; {BEGIN} write 10000; -> seq 1:1001 ack 1; {rest} +50ms silence"));
}

// ---- The tail

#[test]
fn the_tail_is_probed_after_two_round_trips() {
    // The last segment is sent before any timeout. Its SACK reveals that the rest is lost, so recovery starts
    // without a timeout.
    check(&format!(
        "{BEGIN} write 3000; -> seq 1:3001 by 1000 ack 1
         +202ms -> PSH seq 2001:3001 ack 1
         +100ms <- ack 1 sack 2001:3001
         within 0ms..30ms -> seq 1:1001 ack 1; -> seq 1001:2001 ack 1
         counter tcp.tail_loss_probes 1; counter tcp.timeouts 0"
    ));
}

#[test]
fn the_probe_of_a_single_segment_allows_for_a_delayed_ack() {
    check(&format!(
        "set tcp.rto_min 1s
         {BEGIN} write 1000; -> seq 1:1001 ack 1; +400ms -> PSH seq 1:1001 ack 1"
    ));
}

#[test]
fn a_tail_loss_probe_prefers_new_data() {
    check(&format!("{BEGIN} write 12000; -> seq 1:10001 by 1000 ack 1; +202ms -> seq 10001:11001 ack 1"));
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window_and_a_spurious_one_does_not() {
    // RFC 8985 §7.4.2: all ten are acknowledged and the window doubles. The next ACK shows whether the probe
    // was needed.
    for (report, duplicates, window) in [("", 0, 14_000), ("sack 9001:10001", 1, 20_000)] {
        check(&format!(
            "{BEGIN} write 10000; -> seq 1:10001 by 1000 ack 1; +202ms -> seq 9001:10001 ack 1
             <- ack 10001 {report}; counter tcp.dsacks_in {duplicates}
             write 1000; -> seq 10001:11001 ack 1; <- ack 11001; info cwnd {window}"
        ));
    }
}

// ---- Holes and the window

#[test]
fn a_large_segment_is_cut_where_the_peer_holds_part_of_it() {
    check(&format!(
        "set tcp.segment_bytes_max 8000
         {BEGIN} write 8000; -> seq 1:8001 by 1000 ack 1
         +100ms <- ack 1 sack 2001:3001 4001:8001
         -> seq 1:1001 ack 1; -> seq 1001:2001 ack 1; -> seq 3001:4001 ack 1"
    ));
}

#[test]
fn recovery_reduces_the_rate_in_proportion_to_deliveries() {
    // RFC 6937, Reno: one of fourteen outstanding segments is lost. While the other thirteen arrive, seven
    // and the retransmission are sent: limited transmit sends the first two, the retransmission is third, and
    // then half of the delivered amount is sent, without a burst.
    let mut lines = String::new();
    for (delivered, sent) in [
        (2, "14001:15001"),
        (3, "15001:16001"),
        (4, "1:1001"),
        (5, ""),
        (6, ""),
        (7, ""),
        (8, "16001:17001"),
        (9, ""),
        (10, "17001:18001"),
        (11, ""),
        (12, ""),
        (13, "18001:19001"),
        (14, "19001:20001"),
    ] {
        let answer = if sent.is_empty() { "silence".into() } else { format!("-> seq {sent} ack 1") };
        lines += &format!("<- ack 1 sack 1001:{}001; {answer};", delivered);
    }
    check(&format!(
        "set tcp.congestion reno; set tcp.initial_window_segments 20
         {BEGIN} write 40000; -> seq 1:14001 by 1000 ack 1; info cwnd 14600; +100ms {lines}
         <- ack 14001; -> seq 20001:21001 ack 1; info cwnd 7300"
    ));
}
