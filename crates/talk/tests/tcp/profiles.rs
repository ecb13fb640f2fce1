//! Rules that differ between systems; each is a setting.

use crate::check;

// ---- When an acknowledgement is due

#[test]
fn a_coarse_timer_is_never_late() {
    // Columns, in milliseconds: the delay, the tick, the arrival of the segment (after a full second), and
    // the sending of the answer.
    for (delay, tick, comes, leaves) in [
        (50, 0, 3, 53),
        (50, 10, 0, 50),
        (50, 10, 3, 50),
        (50, 10, 9, 50),
        (50, 10, 10, 60),
        (200, 200, 0, 200),
        (200, 200, 1, 200),
        (200, 200, 199, 200),
    ] {
        check(&format!(
            "set tcp.delayed_ack {delay}ms; set tcp.ack_tick {tick}ms; established mss 1000 win 60000 rtt 0ms
             {comes}ms <- seq 1:1001 ack 1; {leaves}ms -> ack 1001"
        ));
    }
}

#[test]
fn the_rule_for_the_second_segment_is_a_setting() {
    // Segments of 600, 500 and 1000 bytes arrive, with an MSS of 1000. The last column says after which
    // segment (counted from 0) the ACK is due. After the third, the largest segment is 1000 bytes, so 2100
    // bytes count as two segments.
    for (unit, segments, answered) in [
        ("segment", 2, Some(1)),
        ("largest", 2, Some(2)),
        ("mss", 2, Some(2)),
        ("segment", 3, Some(2)),
        ("mss", 1, Some(1)),
        ("mss", 0, None),
        ("segment", 0, None),
    ] {
        let script: String = [(1, 601), (601, 1101), (1101, 2101)]
            .iter()
            .enumerate()
            .take(answered.map_or(3, |last| last + 1))
            .map(|(n, (begin, end))| {
                let told = if n == 0 { "told readable;" } else { "" };
                let answer = if answered == Some(n) { format!("-> ack {end};") } else { String::new() };
                format!("<- seq {begin}:{end} ack 1; {told} {answer} silence;")
            })
            .collect();
        check(&format!(
            "set tcp.ack_unit {unit}; set tcp.ack_segments {segments}; established mss 1000 win 60000
             host waits; 0ms {script}"
        ));
    }
}

#[test]
fn an_ack_can_be_due_by_bytes_whatever_the_segments() {
    check(
        "set tcp.ack_segments 0; set tcp.ack_bytes 1050; established mss 1000 win 60000
         host waits; 0ms <- seq 1:1001 ack 1; told readable; <- seq 1001:1050 ack 1; silence
         <- seq 1050:1051 ack 1; -> ack 1051; <- seq 1051:2051 ack 1; silence
         <- seq 2051:3051 ack 1; -> ack 3051",
    );
}

#[test]
fn in_4_3bsd_reading_makes_an_ack_due() {
    // At first nothing has been read. After that, the threshold is two segments or 35 % of 8192, whichever is
    // less; here it is 2048.
    check(
        "profile bsd43; set tcp.mss 1024; set tcp.receive_buffer_bytes 8192; established mss 1024 win 60000
         host waits; 0ms <- seq 1:4097 by 1024 ack 1; told readable; silence
         read 2047; silence; read 1; -> ack 4097",
    );
    // 35 % of a small buffer is less than two segments: 1433 of 4096.
    check(
        "profile bsd43; set tcp.mss 1024; set tcp.receive_buffer_bytes 4096; established mss 1024 win 60000
         0ms <- seq 1:1025 ack 1; silence; <- seq 1025:1433 ack 1; silence; <- seq 1433:1434 ack 1
         -> ack 1434",
    );
}

#[test]
fn in_4_3bsd_a_single_segment_waits_for_the_200_ms_tick() {
    // The session begins at a full second, so the timer ticks every fifth of a second.
    check(
        "profile bsd43; established mss 1000 win 60000 rtt 0ms
         150ms <- seq 1:1001 ack 1; 200ms -> ack 1001; +1s silence",
    );
}

// ---- Windows

#[test]
fn a_window_may_be_rounded_up_to_full_segments() {
    for (buffer, rounds, least, window) in [
        (2000, "on", 0, 9140),
        (9140, "on", 0, 9140),
        (9500, "on", 0, 18_280),
        (9500, "off", 0, 9500),
        (9500, "on", 4, 36_560),
        (40_000, "on", 4, 45_700),
    ] {
        check(&format!(
            "set ip.mtu 9180; set tcp.mss 9140; set tcp.receive_buffer_bytes {buffer}
             set tcp.window_round_to_mss {rounds}; set tcp.window_segments_min {least}
             set tcp.window_advertisement room; established mss 9140 win 60000
             0ms <- seq 1:2 ack 1; within 0ms..100ms -> ack 2 win {window}"
        ));
    }
}

#[test]
fn without_scaling_none_is_offered_and_none_is_accepted() {
    for (scaling, shift, window) in [("on", "shift 3", 8000), ("off", "", 1000)] {
        check(&format!(
            "set tcp.window_scaling {scaling}
             0ms listen 80; <- SYN seq 0 win 1000 mss 1000 shift 3; -> SYN seq 0 ack 1 mss 1460 {shift}
             <- ack 1 win 1000; told accepted; info window {window}"
        ));
    }
}

#[test]
fn the_peers_segments_may_be_rounded_down_to_clusters() {
    for (round, offered, mss) in
        [("none", 9140, 9140), ("1024", 9140, 8192), ("1024", 1460, 1024), ("1024", 536, 536)]
    {
        check(&format!(
            "set ip.mtu 9180; set tcp.mss 9140; set tcp.mss_round_bytes {round}
             established mss {offered} win 60000; info mss {mss}"
        ));
    }
}

#[test]
fn a_system_v_stream_offers_its_whole_window_until_that_much_is_queued() {
    // The offered window is never larger than the buffer, and an offer is never taken back.
    let arrivals: String = [4000, 4000, 4000, 4000, 3000, 2000]
        .iter()
        .enumerate()
        .map(|(n, window)| {
            let told = if n == 0 { "told readable;" } else { "" };
            let (begin, end) = (1000 * n + 1, 1000 * n + 1001);
            format!("<- seq {begin}:{end} ack 1; {told} within 0ms..100ms -> ack {end} win {window};")
        })
        .collect();
    check(&format!(
        "set tcp.mss 1000; set tcp.receive_buffer_bytes 4000; set tcp.window_advertisement whole
         established mss 1000 win 60000; host waits; 0ms {arrivals} read 2000; -> ack 6001 win 4000"
    ));
}

#[test]
fn small_reads_move_the_window_by_steps_or_with_every_ack() {
    for (offer, window) in [("steps", 7900), ("room", 8000)] {
        check(&format!(
            "set tcp.mss 1000; set tcp.receive_buffer_bytes 8000; set tcp.window_advertisement {offer}
             established mss 1000 win 60000; 0ms <- seq 1:101 ack 1; +40ms -> ack 101 win {window}"
        ));
    }
    // A window of less than a segment and less than a quarter of the buffer is not offered.
    let full: String = (0..4)
        .map(|n| {
            let told = if n == 0 { "told readable;" } else { "" };
            let (begin, end) = (2000 * n + 1, 2000 * n + 2001);
            format!("<- seq {begin}:{end} by 1000 ack 1; {told} -> ack {end};")
        })
        .collect();
    check(&format!(
        "set tcp.mss 1000; set tcp.receive_buffer_bytes 8000; set tcp.window_advertisement room
         established mss 1000 win 60000; host waits; 0ms {full}
         read 900; <- seq 8000:8001 ack 1; -> ack 8001 win 0"
    ));
}

// ---- Nagle

#[test]
fn each_nagle_variant_delays_the_segments_that_it_should() {
    // Consecutive writes without acknowledgements. Each pair is the length of a write, and the lengths of the
    // segments that are then sent.
    type Write = (usize, &'static [usize]);
    let cases: [(&str, &[Write]); 10] = [
        ("off", &[(10, &[10]), (10, &[10]), (1000, &[1000]), (10, &[10])]),
        ("on", &[(10, &[10]), (10, &[]), (10, &[])]),
        ("on", &[(1000, &[1000]), (10, &[]), (10, &[])]),
        ("on", &[(10, &[10]), (600, &[]), (600, &[1000])]),
        ("minshall", &[(1000, &[1000]), (10, &[10]), (10, &[])]),
        ("minshall", &[(10, &[10]), (10, &[]), (10, &[])]),
        ("minshall", &[(1500, &[1000, 500]), (10, &[])]),
        ("limit", &[(10, &[10]), (399, &[]), (1, &[400])]),
        ("limit", &[(400, &[400]), (400, &[400]), (399, &[])]),
        ("limit", &[(1000, &[1000]), (1400, &[1000, 400]), (10, &[])]),
    ];
    for (nagle, writes) in cases {
        let (mut at, mut script) = (1, String::new());
        for (bytes, sent) in writes {
            script += &format!("write {bytes};");
            for length in *sent {
                script += &format!("-> seq {at}:{} ack 1;", at + length);
                at += length;
            }
        }
        check(&format!(
            "set tcp.nagle {nagle}; set tcp.nagle_limit_bytes 400; established mss 1000 win 60000
             0ms {script} silence"
        ));
    }
}

#[test]
fn a_partial_segment_is_sent_if_it_fills_enough_of_the_largest_window() {
    // The window admits 600 of 1000 bytes, which is 60 % of the largest window.
    for (percent, rest) in [(50, "-> seq 401:1001 ack 1"), (60, "-> seq 401:1001 ack 1"), (61, "")] {
        check(&format!(
            "set tcp.silly_window_percent {percent}; set ip.mtu 2040; set tcp.mss 1460
             established mss 2000 win 1000; 0ms write 400; -> seq 1:401 ack 1; write 1000; {rest}; silence"
        ));
    }
}

// ---- The writer

#[test]
fn a_write_may_begin_below_the_mark_and_end_beyond_it() {
    for writes in [
        "write 7001 takes 7000",
        "write 1999; write 5002 takes 5001",
        "write 1999; write 1000; write 1 takes 0",
    ] {
        check(&format!(
            "set tcp.send_buffer_bytes 2000; set tcp.write_overshoot_bytes 5000
             established mss 1000 win 0; 0ms {writes}"
        ));
    }
}

#[test]
fn the_send_mark_may_be_rounded_up_to_full_segments() {
    for (buffer, rounds, room) in [(2000, "off", 2000), (2000, "on", 9140), (9500, "on", 18_280)] {
        check(&format!(
            "set ip.mtu 9180; set tcp.mss 9140; set tcp.send_buffer_bytes {buffer}
             set tcp.send_round_to_mss {rounds}; established mss 9140 win 0
             0ms write 30000 takes {room}"
        ));
    }
}

#[test]
fn a_blocked_writer_is_woken_at_its_low_water_mark() {
    // The number of bytes acknowledged, from a full buffer of 5000, and whether the writer is then woken.
    for (low, acknowledged, wakes) in [
        ("none", 2499, false),
        ("none", 2500, true),
        ("2048", 2047, false),
        ("2048", 2048, true),
        ("9140", 4999, false),
        ("9140", 5000, true),
    ] {
        // Below the mark, a write that does not fit is refused entirely, but a write that fits is accepted.
        let takes = if wakes || low == "none" { acknowledged } else { 0 };
        for write in [format!("write {acknowledged}"), format!("write 9000 takes {takes}")] {
            let told = if wakes { "told writable" } else { "silence" };
            check(&format!(
                "set tcp.send_buffer_bytes 5000; set tcp.send_low_water_bytes {low}
                 established mss 1000 win 60000; 0ms write 6000 takes 5000; -> seq 1:5001 by 1000 ack 1
                 <- ack {} win 0; {told}; {write}",
                1 + acknowledged
            ));
        }
    }
}
