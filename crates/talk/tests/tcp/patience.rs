//! Silence: keep-alive, timeouts, and TIME-WAIT (RFC 9293 §3.8.3, §3.8.4, §3.6.1; RFC 6191).

use crate::check;

const KEEPING: &str = "set tcp.keep_alive 100s; set tcp.keep_alive_interval 10s; set tcp.keep_alive_probes 3
    established mss 1000 win 60000; 0ms";

#[test]
fn keep_alive_is_off_unless_the_host_enables_it() {
    // The silence before keep-alive is enabled counts too.
    check(
        "established mss 1000 win 60000; +1000000s silence; info state ESTABLISHED
         patience keep-alive 7200s; -> seq 0 ack 1",
    );
}

#[test]
fn a_silent_peer_is_probed_with_snd_nxt_minus_1_and_times_out() {
    // RFC 9293 §3.8.4: SND.NXT-1.
    check(&format!(
        "{KEEPING} write 1; -> seq 1:2 ack 1; <- ack 2
         +100s -> seq 1 ack 1; +10s -> seq 1 ack 1; +10s -> seq 1 ack 1
         +10s told ended timed-out; -> RST seq 2 ack 1; sessions 0"
    ));
}

#[test]
fn an_answer_restarts_the_keep_alive_interval() {
    // A peer that sends data is not probed.
    let answered = "+100s -> seq 0 ack 1; +10s -> seq 0 ack 1; +5s <- ack 1;".repeat(5);
    let silent = "+50s <- ack 1;".repeat(10);
    check(&format!("{KEEPING} silence; {} info state ESTABLISHED; {silent} silence", &answered));
}

#[test]
fn a_keep_alive_of_the_peer_is_answered() {
    // Probes arrive with and without the byte that older implementations send in keep-alives.
    check(
        "established mss 1000 win 60000; 0ms <- seq 0 ack 1; -> ack 1; <- seq 0:1 ack 1 evil; -> ack 1; silence",
    );
}

#[test]
fn time_wait_sends_no_keep_alive() {
    // If a deadline made no progress, this would detect it.
    check(
        "set tcp.keep_alive 5s; set tcp.keep_alive_interval 1s; established mss 1000 win 60000
         0ms finish; -> FIN seq 1 ack 1; <- FIN seq 1 ack 2; -> ack 2; told finished; told ended closed
         +59s silence; sessions 1; +2s silence; sessions 0",
    );
}

#[test]
fn the_user_timeout_ends_a_session_with_unacknowledged_data() {
    // The timeout does not run while no data is waiting, and progress restarts it.
    check(
        "set tcp.user_timeout 30s; set tcp.rto_min 20s; set tcp.rto_initial 20s
         established mss 1000 win 60000; +1000s info state ESTABLISHED
         write 3; -> seq 1:4 ack 1; +20s -> seq 1:4 ack 1; +9s <- ack 4
         write 3; -> seq 4:7 ack 1; eventually -> RST seq 7 ack 1; told ended timed-out; sessions 0",
    );
    // The timeout applies to our own SYN, too.
    check(
        "set tcp.user_timeout 5s; 0ms open; -> SYN seq 0; +1s -> SYN seq 0; +2s -> SYN seq 0
         within 0s..3s told ended timed-out",
    );
}

#[test]
fn fin_wait_2_of_a_closed_session_times_out() {
    for (call, sessions) in [("close", 0), ("finish", 1)] {
        check(&format!(
            "set tcp.fin_wait_2 9s; established mss 1000 win 60000
             0ms {call}; -> FIN seq 1 ack 1; <- ack 2; +8s sessions 1; +2s sessions {sessions}"
        ));
    }
}

// ---- TIME-WAIT

#[test]
fn a_new_syn_reuses_a_4_tuple_in_time_wait_if_it_cannot_be_old() {
    // RFC 6191 §2 and RFC 9293 §3.10.7.4. Columns: whether the old connection had timestamps (the last one
    // was 500), the sequence number and timestamp of the new SYN, and whether the SYN is accepted. The next
    // byte of the old connection is 101.
    let rows = [
        (true, 50, Some(501), true),
        (true, 50, Some(500), false),
        (true, 101, Some(500), false),
        (true, 102, Some(500), true),
        (true, 5000, Some(499), false),
        (true, 102, None, true),
        (true, 101, None, false),
        (false, 102, Some(1), true),
        (false, 102, None, true),
        (false, 101, None, false),
        (false, 50, None, false),
    ];
    for (stamped, sequence, clock, is_accepted) in rows {
        let old = |word: &str| if stamped { word.to_string() } else { String::new() };
        let (syn, later) = (old("ts val 500 ecr 0"), old("ts val 500"));
        let clock = clock.map_or(String::new(), |value| format!("ts val {value} ecr 0"));
        let answer = if is_accepted {
            format!("-> SYN seq 0 ack {}", sequence + 1)
        } else {
            "-> seq 2 ack 101".into()
        };
        check(&format!(
            "0ms listen 80; <- SYN seq 0 win 60000 mss 1000 {syn}; -> SYN seq 0 ack 1
             <- seq 1:100 ack 1 {later}; told accepted; finish; -> FIN seq 1 ack 100
             <- FIN seq 100 ack 2 {later}; -> ack 101; told finished; told ended closed; sessions 1
             <- SYN seq {sequence} win 60000 mss 1000 {clock} no-ts; {answer}; sessions 1"
        ));
    }
}

#[test]
fn time_wait_is_kept_without_a_listener() {
    check(
        "0ms open; -> SYN seq 0; <- SYN seq 0 ack 1 win 9000 mss 1000; told opened; -> ack 1
         finish; -> FIN seq 1 ack 1; <- FIN seq 1 ack 2; -> ack 2; told finished; told ended closed
         <- SYN seq 1000 win 9000; -> seq 2 ack 2; sessions 1",
    );
}

#[test]
fn closing_a_listener_resets_its_half_open_sessions() {
    check(
        "0ms listen 80; <- SYN seq 0 win 8000; -> SYN seq 0 ack 1
         unlisten; -> RST seq 1 ack 1; silence; sessions 0",
    );
}
