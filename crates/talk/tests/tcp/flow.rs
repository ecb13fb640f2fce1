//! How much is sent and when: windows, probes, silly windows, Nagle, delayed acknowledgements
//! (RFC 9293 §3.8.6, RFC 1122 §4.2.3).

use crate::{begin, check, ms, run};

const BEGIN: &str = "established mss 1000 win 60000; 0ms";

fn established(script: &str) {
    check(&format!("{BEGIN} {script}"));
}

// ---- Acknowledgements

#[test]
fn one_segment_is_acknowledged_after_40_ms_and_two_at_once() {
    established(
        "<- seq 1:1001 ack 1; +40ms -> ack 1001; <- seq 1001:2001 ack 1; silence
         <- seq 2001:3001 ack 1; -> ack 3001; +100ms silence; counter tcp.delayed_acks 1",
    );
}

#[test]
fn a_burst_is_acknowledged_once() {
    established("<- seq 1:20001 by 1000 ack 1; -> ack 20001; silence");
}

#[test]
fn data_carries_the_acknowledgement() {
    established("<- seq 1:9 ack 1; write \"answer\"; -> PSH seq 1 \"answer\" ack 9; +100ms silence");
}

#[test]
fn pure_acknowledgements_are_not_acknowledged() {
    established("<- ack 1 x 10; +10s silence");
}

// ---- Nagle and silly windows

#[test]
fn nagle_holds_short_segments_back_while_data_is_out() {
    for (nagle, second, third, later) in [
        ("on", "", "", "-> PSH seq 11:31 ack 1"),
        ("minshall", "", "", "-> PSH seq 11:31 ack 1"),
        ("off", "-> PSH seq 11:21 ack 1", "-> PSH seq 21:31 ack 1", ""),
    ] {
        check(&format!(
            "set tcp.nagle {nagle}; {BEGIN} write 10; -> PSH seq 1:11 ack 1
             write 10; {second}; write 10; {third}; <- ack 11; {later}; silence"
        ));
    }
}

#[test]
fn nagle_lets_full_segments_go_and_keeps_the_rest() {
    for (nagle, full, rest) in [
        ("on", "-> seq 1:2001 by 1000 ack 1", "-> PSH seq 2001:2501 ack 1"),
        ("minshall", "-> seq 1:2501 by 1000 ack 1", ""),
    ] {
        check(&format!("set tcp.nagle {nagle}; {BEGIN} write 2500; {full}; <- ack 2001; {rest}; silence"));
    }
}

#[test]
fn a_shutdown_sends_delayed_data() {
    established(
        "write 1; -> PSH seq 1:2 ack 1; write 1500; -> seq 2:1002 ack 1; finish; -> FIN PSH seq 1002:1502 ack 1",
    );
}

#[test]
fn short_writes_become_full_segments() {
    let twenty = "write 50;".repeat(20);
    established(&format!(
        "write 50; -> PSH seq 1:51 ack 1; {twenty} -> PSH seq 51:1051 ack 1
         {twenty} -> PSH seq 1051:2051 ack 1; write 50; silence"
    ));
}

#[test]
fn a_sender_avoids_the_silly_window() {
    // RFC 9293 §3.8.6.2.1: TCP sends a full segment, or all queued data, or half of the largest window.
    check(
        "established mss 1000 win 4000; 0ms write 6000; -> seq 1:4001 by 1000 ack 1
         <- ack 4001 win 300; silence; <- ack 4001 win 999; silence
         <- ack 4001 win 1000; -> seq 4001:5001 ack 1",
    );
}

#[test]
fn a_peer_whose_window_is_always_small_is_served_by_half_windows() {
    check(
        "established mss 1000 win 600; 0ms write 2000; -> seq 1:601 ack 1
         <- ack 601 win 299; silence; <- ack 601 win 300; -> seq 601:901 ack 1",
    );
}

#[test]
fn an_ack_of_more_data_updates_the_window_even_with_an_older_sequence_number() {
    check(
        "established mss 1000 win 2000; 0ms write 4000; -> seq 1:2001 by 1000 ack 1
         <- seq 501:506 ack 1 win 2000; -> ack 1
         <- seq 1:5 ack 2001 win 0; -> ack 5; silence",
    );
}

#[test]
fn a_small_window_is_used_after_the_override_timeout() {
    check(
        "established mss 1000 win 4000; 0ms write 6000; -> seq 1:4001 by 1000 ack 1
         <- ack 4001 win 300; within 1ms..1500ms -> seq 4001:4301 ack 1",
    );
}

#[test]
fn a_receiver_opens_its_window_by_worthwhile_steps_only() {
    // RFC 9293 §3.8.6.2.2: a probe in between does not change this. Once half of the buffer is free, it is
    // offered at once.
    check(
        "set tcp.receive_buffer_bytes 4000; established mss 1000 win 60000
         host waits; 0ms <- seq 1:1001 ack 1; told readable; <- seq 1001:2001 ack 1; -> ack 2001
         <- seq 2001:3001 ack 1; <- seq 3001:4001 ack 1; -> ack 4001 win 0
         read 500; read 499; silence
         <- seq 4001:4002 ack 1 evil; -> ack 4001 win 0
         read 1001; -> ack 4001 win 2000; read 10; silence",
    );
}

#[test]
fn a_window_never_shrinks() {
    // The right edge stays at 8001 until reads move it by a step worth announcing.
    check(
        "set tcp.receive_buffer_bytes 8000; established mss 1000 win 60000
         host waits; 0ms <- seq 1:1001 ack 1; told readable; +40ms -> ack 1001 win 7000; read 300
         +1ms <- seq 1001:2001 ack 1; +40ms -> ack 2001 win 6000; read 300
         +1ms <- seq 2001:3001 ack 1; +40ms -> ack 3001 win 5000; read 300
         +1ms <- seq 3001:4001 ack 1; +40ms -> ack 4001 win 4000; read 300
         +1ms <- seq 4001:5001 ack 1; +40ms -> ack 5001 win 4200; read 300
         +1ms <- seq 5001:6001 ack 1; +40ms -> ack 6001 win 3200; read 300
         +1ms <- seq 6001:7001 ack 1; +40ms -> ack 7001 win 2200; read 300; silence",
    );
}

// ---- Closed windows

/// A session with 500 bytes queued and a closed window.
const CLOSED: &str = "established mss 1000 win 60000; 0ms <- ack 1 win 0; write 500; silence;";

#[test]
fn a_closed_window_is_probed_twice_as_late_each_time_for_as_long_as_it_is_answered() {
    // A session ends because the peer is silent, not because of the number of answered probes, and no probe
    // counts as a loss. When the window opens, the timer is reset.
    let waits = [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200].into_iter();
    let probes: String = waits
        .chain(core::iter::repeat_n(60_000, 55))
        .map(|wait| format!("+{wait}ms -> seq 1:2 ack 1; <- ack 1 win 0;"))
        .collect();
    check(&format!(
        "{CLOSED} {probes} info state ESTABLISHED; counter tcp.fast_retransmits 0
         <- ack 1 win 60000; -> PSH seq 1:501 ack 1; within 1ms..1500ms -> PSH seq 1:501 ack 1"
    ));
}

#[test]
fn a_probe_that_is_taken_goes_on_from_there() {
    check(&format!(
        "{CLOSED} +200ms -> seq 1:2 ack 1; +50ms <- ack 2 win 0; within 1ms..250ms -> seq 2:3 ack 1
         <- ack 3 win 60000; -> PSH seq 3:501 ack 1"
    ));
}

#[test]
fn unanswered_probes_end_the_session() {
    let waits = [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200].into_iter();
    let probes: String = waits
        .chain(core::iter::repeat_n(60_000, 6))
        .map(|wait| format!("+{wait}ms -> seq 1:2 ack 1;"))
        .collect();
    check(&format!("{CLOSED} {probes} eventually told ended timed-out; sessions 0"));
}

#[test]
fn a_window_that_opens_starts_the_clock_anew() {
    // The persist timer had almost expired when the window opened, but it must not time out the data that is
    // sent now.
    check(&format!(
        "{CLOSED} +199ms <- ack 1 win 60000; -> PSH seq 1:501 ack 1; +150ms silence; counter tcp.timeouts 0"
    ));
}

#[test]
fn a_fin_behind_a_closed_window_is_sent_when_it_opens() {
    // A FIN needs room in the window. It also serves as the zero-window probe.
    established(
        "<- ack 1 win 0; finish; silence; +200ms -> FIN seq 1 ack 1
         +50ms <- ack 1 win 0; <- ack 1 win 100; -> FIN seq 1 ack 1
         <- ack 2 win 100; info state FIN-WAIT-2",
    );
}

#[test]
fn a_closed_window_takes_acknowledgements_and_answers_probes() {
    check(
        "set tcp.receive_buffer_bytes 2000; established mss 1000 win 60000
         host waits; 0ms write 100; -> seq 1:101 ack 1
         <- seq 1:1001 ack 1; told readable; <- seq 1001:2001 ack 1; -> ack 2001
         <- seq 2001:2006 ack 101 evil; -> seq 101 ack 2001 win 0
         info bytes-acknowledged 100 bytes-in 2000",
    );
}

#[test]
fn two_closed_windows_that_probe_each_other_do_not_loop() {
    // Our probe lies beyond the peer's window. If our answer had the sequence number after the probe, it
    // would also lie beyond the window, and would itself be answered. So the answer has a sequence number
    // that the peer still accepts.
    check(
        "set tcp.receive_buffer_bytes 2000; established mss 1000 win 60000
         host waits; 0ms <- seq 1:1001 ack 1 win 0; told readable; <- seq 1001:2001 ack 1 win 0; -> ack 2001
         write 500; +200ms -> seq 1:2 ack 2001
         <- seq 2001:2002 ack 1 win 0 evil; -> seq 1 ack 2001 win 0",
    );
}

#[test]
fn a_window_shrunk_by_the_peer_is_tolerated() {
    // RFC 9293 §3.8.6: data beyond the window is retransmitted by the timer; no new data is sent.
    established(
        "write 8000; -> seq 1:8001 by 1000 ack 1
         <- ack 1001 win 2000; <- ack 2001 win 0; write 3000; silence
         +200ms -> seq 2001:3001 ack 1; +400ms -> seq 2001:3001 ack 1; +800ms -> seq 2001:3001 ack 1
         <- ack 8001 win 60000; -> seq 8001:11001 by 1000 ack 1; <- ack 11001; info queued 0",
    );
}

#[test]
fn segment_headers_match_the_fast_path_of_the_peer() {
    // Only the first segment carries options.
    established(
        "write 3000; -> seq 1:1001 ack 1 no-options
         -> seq 1001:2001 ack 1 no-options; -> seq 2001:3001 ack 1 no-options
         <- seq 1:4 ack 3001; finish; -> FIN seq 3001 ack 4 no-options",
    );
}

#[test]
fn output_that_waits_for_the_port_is_sent_when_it_has_room() {
    check(
        "set ip.packets_max 1; established mss 1000 win 60000
         0ms link stops; write 1000; <- seq 1:101 ack 1; +100ms silence
         link runs; -> seq 1:1001 ack 1; -> ack 101",
    );
}

#[test]
fn large_segments_leave_whole_where_something_below_cuts() {
    // TCP sends the SYN-ACK, 5000 bytes, and 4600 bytes.
    check(
        "set tcp.segment_bytes_max 5500; established mss 1000 win 60000
         0ms write 9600; -> seq 1:9601 by 1000 ack 1; info segments-out 3",
    );
}

#[test]
fn single_bytes_do_not_advance_the_window() {
    // Every answer rounds the window up to a multiple of the scale. The rounding must not accumulate.
    for length in [1, 9, 1001] {
        let mut exchange = begin("established mss 1000 shift 0 win 60000; 0ms host waits");
        for n in 0..300_000 / length {
            let sequence = 1 + n * length;
            run(&mut exchange, &format!("<- seq {sequence}:{} ack 1", sequence + length));
            if n % 100 == 0 {
                exchange.pass(ms(50));
            }
            exchange.sent();
            exchange.told();
        }
        let stream = exchange.stream().expect("it is open");
        let readable = exchange.board().host().readable(stream).expect("it is open");
        assert!((262_000..=262_144).contains(&readable), "{readable}");
    }
}

#[test]
fn only_a_fin_with_data_pushes() {
    let delayed = "write 10; -> seq 1:11 ack 1; write 10; finish";
    for (script, sent) in [("finish", "FIN seq 1 ack 1"), (delayed, "FIN PSH seq 11:21 ack 1")] {
        let mut exchange = begin("established mss 1000 win 60000");
        run(&mut exchange, script);
        let all = exchange.sent();
        assert!(all.last().is_some_and(|last| last.starts_with(sent)), "{script}: {all:?}");
    }
}
