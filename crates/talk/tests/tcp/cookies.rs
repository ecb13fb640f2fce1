//! SYN cookies: SYNs for which no state is kept (RFC 4987 §3.6).

use crate::check;

const ALWAYS: &str =
    "set tcp.syn_cookies always; 0ms listen 80; <- SYN seq 0 win 8000 mss 1452 sackok shift 7";

#[test]
fn the_ack_of_the_handshake_creates_the_session_with_the_negotiated_options() {
    // The nearest size that a cookie can encode is 1440, of which timestamps take 12 bytes. The SYN-ACK's
    // window field can express only 65,535 bytes; reading opens the rest.
    check(
        "set tcp.syn_cookies always
         0ms listen 80; <- SYN seq 0 win 8000 mss 1452 sackok ts val 100 ecr 0 shift 7; sessions 0
         -> SYN seq 0 ack 1 win 65535 mss 1460 sackok ts ecr 100 shift 3
         +100s <- seq 1:13 ack 1 win 500 ts val 101; told accepted; got 12
         info state ESTABLISHED mss 1428 window 64000; counter tcp.syn_cookies_accepted 1
         -> ack 13 ts; write 6; -> PSH seq 1:7 ack 13 ts
         <- seq 1001:2001 ack 7; -> ack 13 sack 1001:2001
         finish; -> FIN seq 7 ack 13 sack 1001:2001",
    );
}

#[test]
fn without_timestamps_a_cookie_encodes_only_the_mss() {
    check(&format!(
        "{ALWAYS}; -> SYN seq 0 ack 1 win 65535 mss 1460
         <- seq 1 ack 1 win 500; told accepted; info mss 1440 window 500
         <- seq 1001:2001 ack 1; -> ack 1 no-ts"
    ));
}

#[test]
fn data_creates_the_session_if_the_ack_of_the_handshake_is_lost() {
    check(
        "set tcp.syn_cookies always
         0ms listen 80; <- SYN seq 0 win 8000 mss 1452 sackok ts val 100 ecr 0 shift 7; -> SYN seq 0 ack 1
         <- FIN seq 1:4 ack 1 ts val 150; told accepted; told finished; got 3; -> ack 5
         info state CLOSE-WAIT",
    );
}

#[test]
fn a_cookie_is_valid_for_two_minutes_and_only_for_its_4_tuple() {
    // These ACKs have another acknowledgment number, another sequence number, or another port.
    check(&format!(
        "{ALWAYS}; b: conn port 5001 local 80; -> SYN seq 0 ack 1
         <- seq 1 ack 10; -> RST seq 10; sessions 0
         <- seq 1 ack 16777217; -> RST seq 16777217; sessions 0
         <- seq 2 ack 1; -> RST seq 1; sessions 0
         b: <- seq 1 ack 1; b: -> RST seq any; sessions 0; counter tcp.syn_cookies_invalid 4"
    ));
    for (wait, outcome, sessions) in [(127, "told accepted", 1), (193, "-> RST seq 1", 0)] {
        check(&format!(
            "{ALWAYS}; -> SYN seq 0 ack 1; +{wait}s <- seq 1 ack 1; {outcome}; sessions {sessions}"
        ));
    }
    // No cookie was sent, so the ACK is not checked for one.
    check(
        "set tcp.syn_cookies always; 0ms listen 80; <- seq 1 ack 1; -> RST seq 1
         counter tcp.syn_cookies_invalid 0",
    );
}

#[test]
fn without_cookies_syns_beyond_the_backlog_are_dropped() {
    check(
        "set tcp.syn_cookies off; set tcp.backlog 1
         0ms listen 80; others: <- SYN seq 0 win 8000 x 3; others: -> SYN seq 0 ack 1
         silence; counter tcp.syns_dropped 2",
    );
}
