//! Off-path attackers: what they cannot do (RFC 5961, RFC 5927, RFC 1337).

use crate::{begin, check, ms, run};
use kiban_tcpip::tcp::{IcmpErrorClass, State};

#[test]
fn a_reset_in_time_wait_frees_the_4_tuple_only_if_enabled() {
    // RFC 1337 §3.
    for (enabled, sessions) in [("off", 1), ("on", 0)] {
        check(&format!(
            "set tcp.time_wait_accepts_rst {enabled}; established mss 1000 win 60000
             0ms finish; -> FIN seq 1 ack 1; <- FIN seq 1 ack 2; -> ack 2; told finished; told ended closed
             <- RST seq 2; sessions {sessions}; counter tcp.time_wait_resets_ignored {sessions}"
        ));
    }
}

#[test]
fn an_unreachable_port_or_protocol_refuses_a_connection_being_opened() {
    for (error, outcome) in [
        ("unreachable port", "told ended refused"),
        ("unreachable protocol", "told ended refused"),
        ("unreachable host", ""),
        ("time-exceeded", ""),
        ("parameter-problem", ""),
    ] {
        // First, the error quotes a sequence number that is not our SYN's.
        check(&format!(
            "0ms open; -> SYN seq 0; <- icmp {error} quoting seq 1; silence
             <- icmp {error} quoting seq 0; {outcome}; silence"
        ));
    }
}

#[test]
fn an_open_fails_after_three_unreachable_syns() {
    // Several reports about one SYN count as one.
    let reports = "<- icmp unreachable host quoting seq 0;".repeat(10);
    let three = format!(
        "0ms open; -> SYN seq 0; {reports} silence; +1s -> SYN seq 0; {reports} silence; +2s -> SYN seq 0;
         <- icmp unreachable host quoting seq 0;"
    );
    check(&format!("{three} told ended unreachable; sessions 0; counter tcp.connects_unreachable 1"));
    // The connection can still be established if the attempt was not ended.
    check(&format!(
        "set tcp.syn_unreachable_max 4; {three} {reports} silence; +4s -> SYN seq 0
         sessions 1; counter tcp.connects_unreachable 0
         <- SYN seq 0 ack 1 win 8000; told opened; -> ack 1; <- icmp unreachable host quoting seq 1; silence"
    ));
}

#[test]
fn a_packet_too_big_retransmits_in_smaller_segments() {
    // A reported MTU larger than the segments has no effect. RFC 5927 §7: the MTU is not lowered below a
    // floor, whatever is reported.
    check(
        "established mss 1460 win 60000
         0ms write 2920; -> seq 1:2921 by 1460 ack 1
         <- icmp too-long mtu 1500 quoting seq 1:1461; silence
         <- icmp too-long mtu 1040 quoting seq 1:1461
         -> seq 1:1001 ack 1; -> seq 1001:1461 ack 1; -> seq 1461:2461 ack 1; -> PSH seq 2461:2921 ack 1
         <- icmp too-long mtu 68 quoting seq 1:1001; info mss 512; counter tcp.mss_lowered 2
         -> seq 1:513 ack 1; -> seq 513:1001 ack 1; -> seq 1001:1461 ack 1
         -> seq 1461:1973 ack 1; -> seq 1973:2461 ack 1; -> seq 2461:2921 ack 1
         <- ack 2921; +10s silence",
    );
}

#[test]
fn a_peer_of_small_segments_is_not_sent_larger_ones_by_the_floor() {
    check(
        "established mss 300 win 60000; 0ms write 300; -> seq 1:301 ack 1
         <- icmp too-long mtu 100 quoting seq 1:301; info mss 300",
    );
}

#[test]
fn blind_data_with_a_guessed_acknowledgement_is_dropped() {
    // RFC 5961 §5: of the 2^32 possible ACK values, only a window's worth is accepted. The number of answers
    // is limited (§7).
    let guesses: String = (0..64u32)
        .map(|n| format!("<- seq 1:5 ack {} evil;", 60_002u32.wrapping_add(n << 26) as i32))
        .collect();
    check(&format!(
        "set tcp.challenges_per_second 0; established mss 1000 win 60000; 0ms {guesses} silence; got 0"
    ));
}

#[test]
fn resets_for_unmatched_segments_are_rate_limited_per_board() {
    let mut exchange = begin("set tcp.challenges_per_second 200");
    for n in 0..100 {
        let port = 6000 + n;
        run(&mut exchange, &format!("c{n}: conn port {port} local 80; c{n}: established mss 1000 rtt 0ms"));
    }
    // The limit is between half and one and a half times the setting, redrawn each second.
    let mut answered = Vec::new();
    for _ in 0..5 {
        let mut answers = 0;
        for n in (0..100).cycle().take(1000) {
            run(&mut exchange, &format!("c{n}: <- SYN seq 77 win 8000"));
            answers += exchange.sent().len();
        }
        answered.push(answers);
        exchange.pass(ms(1000));
    }
    assert!(answered.iter().all(|count| (100..=300).contains(count)), "{answered:?}");
    assert!(answered.iter().any(|count| *count != answered[0]), "{answered:?}");
}

#[test]
fn an_icmp_error_is_accepted_only_for_data_in_flight() {
    let mut exchange = begin("established mss 1000 win 60000; 0ms write 500; -> seq 1:501 ack 1");
    for (sequence, accepted) in [(0, 0), (1, 1), (500, 1), (501, 0), (-0x7000_0000, 0)] {
        let before = exchange.board().tcp_counters().icmp_errors;
        run(&mut exchange, &format!("<- icmp unreachable port quoting seq {sequence}; silence"));
        assert_eq!(exchange.board().tcp_counters().icmp_errors - before, accepted, "{sequence}");
    }
    // RFC 5927 §5.2: the error is only recorded.
    let info = exchange.info().expect("it is open");
    assert_eq!((info.state, info.icmp_error), (State::Established, Some(IcmpErrorClass::PortUnreachable)));
    // Then nothing is in flight, and finally the error is for a connection that does not exist.
    run(
        &mut exchange,
        "<- ack 501; <- icmp unreachable net quoting seq 501; counter tcp.icmp_errors_rejected 4
         b: conn port 9 local 80; b: <- icmp unreachable net quoting seq 1
         counter tcp.icmp_errors_rejected 5; counter tcp.icmp_errors 2",
    );
}
