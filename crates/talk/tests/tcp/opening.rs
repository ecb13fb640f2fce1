//! How sessions begin and how they are refused (RFC 9293 §3.5, §3.10.7.1 to §3.10.7.3).

use crate::check;

#[test]
fn our_syn_offers_the_enabled_options_in_the_order_of_linux() {
    let rows: [(&str, &str, &str, &[u8]); 4] = [
        ("off", "off", "shift 3", &[2, 4, 0x05, 0xb4, 1, 3, 3, 3]),
        ("off", "on", "sackok shift 3", &[2, 4, 0x05, 0xb4, 1, 1, 4, 2]),
        ("on", "off", "ts ecr 0 shift 3", &[2, 4, 0x05, 0xb4, 1, 1, 8, 10]),
        ("on", "on", "sackok ts ecr 0 shift 3", &[2, 4, 0x05, 0xb4, 4, 2, 8, 10]),
    ];
    for (timestamps, sack, options, bytes) in rows {
        let report = check(&format!(
            "set tcp.timestamps {timestamps}; set tcp.sack {sack}
             0ms open; -> SYN seq 0 win 65535 mss 1460 {options}"
        ));
        // The offset after the headers of the capture, the record, IP and TCP.
        let captured = &report.capture[24 + 16 + 20 + 20..];
        assert_eq!(captured[..8], *bytes);
        assert_eq!(captured[captured.len() - 4..], [1, 3, 3, 3]);
    }
}

#[test]
fn three_segments_open_a_session_from_our_side() {
    // RFC 7323 §2.2: the window of a SYN is not scaled.
    check(
        "0ms open; -> SYN seq 0
         <- SYN seq 0 ack 1 win 8000 mss 1000 shift 2; told opened; -> ack 1 win 32768
         info mss 1000 window 8000
         <- ack 1 win 8000; info window 32000",
    );
}

#[test]
fn three_segments_open_a_session_from_their_side() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000 mss 1000 shift 7
         -> SYN seq 0 ack 1 win 65535 mss 1460 shift 3
         <- ack 1 win 10; told accepted; info window 1280",
    );
}

#[test]
fn a_peer_without_window_scale_gets_none() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000 mss 1000; -> SYN seq 0 ack 1 win 65535 mss 1460
         <- ack 1 win 8000; told accepted; info window 8000
         <- seq 1:101 ack 1; +40ms -> ack 101 win 65435",
    );
}

#[test]
fn a_peer_without_mss_gets_536_bytes_and_a_tiny_mss_is_raised() {
    for (offered, mss) in [("", 536), ("mss 0", 64), ("mss 1", 64), ("mss 1000", 1000), ("mss 9000", 1460)] {
        check(&format!("established {offered} win 8000; info mss {mss}"));
    }
}

#[test]
fn a_window_shift_above_14_counts_as_14() {
    check(&format!(
        "0ms listen 80; <- SYN seq 0 win 8000 mss 1000 shift 200; -> SYN seq 0 ack 1
         <- ack 1 win 65535; told accepted; info window {}",
        0xffff << 14
    ));
}

#[test]
fn data_right_behind_the_syn_ack_is_within_the_window_that_our_syn_offered() {
    // In this burst, the acknowledgement that would offer a window has not been sent yet.
    check(
        "0ms open; -> SYN seq 0
         <- SYN seq 0 ack 1 win 8000 mss 1000; & seq 1 ack 1 \"hello\"
         told opened; got 5; -> ack 6",
    );
}

#[test]
fn a_syn_is_retransmitted_with_back_off_and_times_out() {
    check(
        "set tcp.syn_retries 3
         0ms open; -> SYN seq 0; +1s -> SYN seq 0; +2s -> SYN seq 0; +4s -> SYN seq 0
         +8s told ended timed-out; sessions 0",
    );
}

#[test]
fn after_a_lost_syn_data_begins_with_three_seconds_and_after_two_with_one_segment() {
    // RFC 6928 §2; RFC 6298 §5.7.
    for (lost, in_first_flight) in [("", "1:10001 by 1000"), ("+2s -> SYN seq 0", "1:1001")] {
        check(&format!(
            "0ms open; -> SYN seq 0; +1s -> SYN seq 0; {lost}
             <- SYN seq 0 ack 1 win 60000 mss 1000; -> ack 1; told opened
             write 20000; -> seq {in_first_flight} ack 1; +3s -> seq 1:1001 ack 1"
        ));
    }
}

#[test]
fn a_syn_ack_is_retransmitted_for_a_repeated_syn_and_by_the_timer() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000 mss 1000; -> SYN seq 0 ack 1
         <- SYN seq 0 win 8000 mss 1000; -> SYN seq 0 ack 1
         +1s -> SYN seq 0 ack 1; sessions 1
         <- ack 1; told accepted",
    );
}

#[test]
fn the_last_segment_of_the_handshake_may_carry_data_and_fin() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000 mss 1000; -> SYN seq 0 ack 1
         <- FIN seq 1:4 ack 1; told accepted; told finished; got 3; -> ack 5; info state CLOSE-WAIT",
    );
}

#[test]
fn both_sides_open_at_once() {
    // RFC 9293 §3.5, figure 8. Our SYN-ACK was lost and the peer retransmits its own, so answer with an ACK
    // and not with another SYN.
    check(
        "0ms open; -> SYN seq 0
         <- SYN seq 0 win 8000 mss 1000 shift 2; -> SYN seq 0 ack 1 win 65535 mss 1460 shift 3
         info state SYN-RECEIVED
         <- SYN seq 0 ack 1 win 8000 mss 1000 shift 2; told opened; info state ESTABLISHED window 8000
         <- SYN seq 0 ack 1 win 8000 mss 1000 shift 2; -> ack 1",
    );
}

#[test]
fn answers_to_our_syn() {
    // RFC 9293 §3.10.7.3. Columns: the segment; our response, or the completion for the host.
    for (segment, outcome) in [
        ("RST seq 0 ack 1", "told ended refused"),
        ("RST seq 0 ack 2", ""),
        ("RST seq 0", ""),
        ("seq 0 ack 1", ""),
        ("seq 0 ack 0", "-> RST seq 0"),
        ("seq 0 ack 77", "-> RST seq 77"),
        ("SYN seq 0 ack 77", "-> RST seq 77"),
        ("FIN seq 0", ""),
    ] {
        check(&format!("0ms open; -> SYN seq 0; <- {segment} win 8000; {outcome}; silence"));
    }
}

#[test]
fn unmatched_segments_are_answered_as_in_the_closed_state() {
    // RFC 9293 §3.10.7.1: if the segment has an ACK, answer <SEQ=SEG.ACK><CTL=RST>; otherwise
    // <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>.
    check(
        "0ms <- SYN seq 100;         -> RST seq 0 ack 101
             <- SYN seq 100:103;     -> RST seq 0 ack 104
             <- FIN seq 100:103;     -> RST seq 0 ack 104
             <- seq 100;             -> RST seq 0 ack 100
             <- seq 100:103 ack 500; -> RST seq 500
             <- RST seq 100
             <- RST seq 100 ack 500
             silence; sessions 0",
    );
}

#[test]
fn a_listener_takes_only_a_syn() {
    // RFC 9293 §3.10.7.2.
    check(
        "0ms listen 80
             <- RST seq 0;        sessions 0
             <- RST SYN seq 0;    sessions 0
             <- seq 0 ack 77;     -> RST seq 77; sessions 0
             <- SYN seq 0 ack 77; -> RST seq 77; sessions 0
             <- FIN seq 0;        silence; sessions 0",
    );
}

#[test]
fn a_reset_silently_ends_a_half_open_session() {
    let again = "<- SYN seq 0 win 8000; -> SYN seq 0 ack 1; <- RST seq 1; sessions 0; silence;".repeat(3);
    check(&format!("set tcp.backlog 1; 0ms listen 80; {again}"));
}

#[test]
fn a_half_open_session_refuses_a_wrong_acknowledgement_and_stays() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000; -> SYN seq 0 ack 1
         <- seq 1 ack 0; -> RST seq 0
         <- seq 1 ack 2; -> RST seq 2
         <- seq 1 ack -2147483648; -> RST seq -2147483648
         <- seq 1 ack 1; told accepted",
    );
}

#[test]
fn a_full_backlog_drops_requests_silently_and_frees_itself() {
    let answers = "others: -> SYN seq 0 ack 1 x 3;";
    let again: String = [1, 2, 4, 8, 16, 32, 60].map(|wait| format!("+{wait}s {answers}")).concat();
    check(&format!(
        "set tcp.backlog 3; set tcp.syn_cookies off
         0ms listen 80; others: <- SYN seq 0 win 8000 x 5; {answers}
         sessions 3; counter tcp.syns_dropped 2
         {again}
         +60s silence; sessions 0
         others: <- SYN seq 0 win 8000; others: -> SYN seq 0 ack 1; sessions 1"
    ));
}

#[test]
fn the_session_table_is_bounded() {
    check(
        "set tcp.sessions_max 2
         b: conn port 5001; c: conn port 5002
         0ms listen 80; open; -> SYN seq 0; b: open; b: -> SYN seq 0
         c: open refused no session number or port is free
         others: <- SYN seq 0 win 8000; silence; counter tcp.syns_dropped 1",
    );
}
