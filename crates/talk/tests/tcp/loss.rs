//! Loss: the retransmission timer, fast retransmit, NewReno (RFC 6298, RFC 5681, RFC 6582).

use crate::check;

/// NewReno exactly as in RFC 5681 and RFC 6582, without later additions. The round trip is 100 ms.
const BEGIN: &str = "set tcp.congestion reno; set tcp.loss_detection newreno
    set tcp.proportional_rate_reduction off; set tcp.limited_transmit off; set tcp.sack off
    established mss 1000 win 60000 rtt 100ms; 0ms";

fn newreno(script: &str) {
    check(&format!("{BEGIN} {script}"));
}

// ---- The timer

#[test]
fn the_timeout_doubles_and_only_the_first_segment_is_retransmitted() {
    // RFC 6298 §2.2: with SRTT 100 ms and RTTVAR 50 ms, the RTO is 300 ms.
    newreno(
        "write 5000; -> seq 1:5001 by 1000 ack 1
         +300ms -> seq 1:1001 ack 1; +600ms -> seq 1:1001 ack 1; +1200ms -> seq 1:1001 ack 1
         +2400ms -> seq 1:1001 ack 1; +4800ms -> seq 1:1001 ack 1; info cwnd 1000",
    );
}

#[test]
fn after_a_timeout_the_window_grows_back_over_what_was_sent_before() {
    // The ACK after the timeout covers only the first segment, so slow start retransmits the next ones. The
    // ACK after that shows that the rest had arrived.
    newreno(
        "write 5000; -> seq 1:5001 by 1000 ack 1; +300ms -> seq 1:1001 ack 1
         <- ack 1001; -> seq 1001:3001 by 1000 ack 1; <- ack 5001; silence; info outstanding 0",
    );
}

#[test]
fn a_session_with_a_silent_peer_times_out() {
    // RFC 9293 §3.8.3: the session is aborted after fifteen retransmissions, and not before 100 seconds.
    let waits = [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400].into_iter();
    let again: String = waits
        .chain(core::iter::repeat_n(60_000, 7))
        .map(|wait| format!("+{wait}ms -> seq 1:1001 ack 1;"))
        .collect();
    newreno(&format!(
        "write 5000; -> seq 1:5001 by 1000 ack 1; {again} +60s told ended timed-out; sessions 0"
    ));
}

#[test]
fn a_new_acknowledgement_restarts_the_timer() {
    // RFC 6298 §5.3: progress restarts the timer. §5.2: the timer stops when everything is acknowledged.
    newreno(
        "write 5000; -> seq 1:5001 by 1000 ack 1
         +250ms <- ack 1001; +250ms <- ack 2001; +250ms <- ack 3001; +250ms <- ack 4001
         counter tcp.timeouts 0; <- ack 5001; +10s silence; counter tcp.timeouts 0",
    );
}

#[test]
fn a_retransmitted_segment_gives_no_rtt_sample() {
    // Karn's rule: neither 302 ms nor 1 ms is taken as a sample. The same applies if duplicate ACKs caused
    // the retransmission.
    newreno("write 1000; -> seq 1:1001 ack 1; +300ms -> seq 1:1001 ack 1; +2ms <- ack 1001; info srtt 100ms");
    newreno(
        "write 8000; -> seq 1:8001 by 1000 ack 1; +250ms <- ack 1; <- ack 1; <- ack 1; -> seq 1:1001 ack 1
         counter tcp.fast_retransmits 1; <- ack 8001; info srtt 100ms",
    );
}

#[test]
fn a_new_measurement_ends_the_back_off() {
    newreno(
        "write 1000; -> seq 1:1001 ack 1
         +300ms -> seq 1:1001 ack 1; +600ms -> seq 1:1001 ack 1; +1200ms -> seq 1:1001 ack 1
         +2400ms -> seq 1:1001 ack 1; +500ms <- ack 1001
         write 1000; -> seq 1001:2001 ack 1; +100ms <- ack 2001
         write 1000; -> seq 2001:3001 ack 1; +100ms <- ack 3001
         write 1000; -> seq 3001:4001 ack 1; within 200ms..310ms -> seq 3001:4001 ack 1",
    );
}

// ---- Duplicates

#[test]
fn the_third_duplicate_retransmits_the_first_segment_at_once() {
    // RFC 5681 §3.2: ssthresh = 5000. The three segments by which RFC 5681 inflates the window are counted as
    // arrived instead.
    newreno(
        "write 10000; -> seq 1:10001 by 1000 ack 1; <- ack 1; <- ack 1; silence
         <- ack 1; -> seq 1:1001 ack 1; info cwnd 5000
         <- ack 1; silence; counter tcp.fast_retransmits 1",
    );
}

#[test]
fn acks_with_data_or_a_new_window_are_not_duplicates() {
    // RFC 5681 §2: a duplicate ACK has no data, no FIN and an unchanged window, and arrives while data is
    // outstanding.
    let six = |line: &dyn Fn(u32) -> String| (0..6).map(line).collect::<String>();
    for way in [
        six(&|n| format!("<- ack 1 win {};", 60_000 - n)),
        six(&|n| format!("<- FIN seq {} ack 1; -> ack 1;", 100 - n)),
        six(&|n| format!("<- ack {};", 1 + n)),
    ] {
        newreno(&format!("write 10000; -> seq 1:10001 by 1000 ack 1; {way} counter tcp.fast_retransmits 0"));
    }
    newreno(
        "write 10000; -> seq 1:10001 by 1000 ack 1
         <- seq 1:2 ack 1; <- seq 2:3 ack 1; -> ack 3; <- seq 3:4 ack 1; <- seq 4:5 ack 1; -> ack 5
         <- seq 5:6 ack 1; <- seq 6:7 ack 1; -> ack 7; counter tcp.fast_retransmits 0",
    );
    newreno("<- ack 1 x 6; silence; counter tcp.duplicate_acks 0");
}

#[test]
fn newreno_fills_a_hole_an_acknowledgement_and_leaves_with_half_the_window() {
    // RFC 6582 §3.2: segments 1, 4 and 7 of ten are lost. Step 3, option 1: min(ssthresh, max(FlightSize,
    // SMSS) + SMSS).
    newreno(
        "write 10000; -> seq 1:10001 by 1000 ack 1; <- ack 1; <- ack 1; <- ack 1; -> seq 1:1001 ack 1
         <- ack 1; <- ack 1; <- ack 1; <- ack 1; silence
         <- ack 3001; -> seq 3001:4001 ack 1; <- ack 6001; -> seq 6001:7001 ack 1
         <- ack 10001; info cwnd 2000 outstanding 0
         counter tcp.timeouts 0; counter tcp.retransmits 3; counter tcp.fast_retransmits 1",
    );
}

#[test]
fn duplicates_in_recovery_send_new_data() {
    // RFC 5681 §3.2 step 4: each duplicate means that a segment has left the network. The window is 5000
    // bytes. The third duplicate leaves 7000 bytes in the network, and the ninth 1000: four new segments.
    newreno(
        "write 20000; -> seq 1:10001 by 1000 ack 1; <- ack 1; <- ack 1; <- ack 1; -> seq 1:1001 ack 1
         <- ack 1; <- ack 1; <- ack 1; -> seq 10001:11001 ack 1; <- ack 1; -> seq 11001:12001 ack 1
         <- ack 1; -> seq 12001:13001 ack 1; <- ack 1; -> seq 13001:14001 ack 1; silence",
    );
}

#[test]
fn duplicates_after_a_timeout_do_not_signal_a_loss() {
    // RFC 6582 §3.2 steps 1 and 5: below `recover` there is no new fast retransmit, and an ACK exactly at
    // `recover` still counts as old.
    newreno(
        "write 10000; -> seq 1:10001 by 1000 ack 1; +300ms -> seq 1:1001 ack 1; +1ms <- ack 5001
         -> seq 5001:10001 by 1000 ack 1
         <- ack 5001; <- ack 5001; <- ack 5001; <- ack 5001; <- ack 5001; silence
         counter tcp.fast_retransmits 0
         <- ack 10001; write 4000; -> seq 10001:14001 by 1000 ack 1
         <- ack 10001; <- ack 10001; <- ack 10001; <- ack 10001; <- ack 10001
         counter tcp.fast_retransmits 0",
    );
}

#[test]
fn the_peers_sequence_numbers_wrap_between_out_of_order_segments() {
    // The peer's initial sequence number is 4096 below the wrap.
    let early: String = (1..9)
        .rev()
        .map(|n| format!("<- seq {}:{} ack 1; -> ack 1;", n * 1000 + 1, n * 1000 + 1001))
        .collect();
    check(&format!("established mss 1000 win 60000; 0ms {early} <- seq 1:1001 ack 1; -> ack 9001; got 9000"));
}
