//! Silence: keep-alive, timeouts, and TIME-WAIT (RFC 9293 §3.8.3, §3.8.4, §3.6.1; RFC 6191).

use crate::{begin, check, run};
use kiban_talk::Exchange;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

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
fn the_user_timeout_decides_how_long_keep_alive_probes_go_unanswered() {
    // Earlier than the number of probes would, or later.
    check(&format!(
        "set tcp.user_timeout 105s; {KEEPING} silence; +100s -> seq 0 ack 1; +5s told ended timed-out; -> RST seq 1 ack 1
         sessions 0"
    ));
    check(&format!(
        "set tcp.user_timeout 145s; {KEEPING} silence; +100s -> seq 0 ack 1; {} +5s told ended timed-out
         -> RST seq 1 ack 1; sessions 0",
        "+10s -> seq 0 ack 1;".repeat(4)
    ));
    // If the timeout is shorter than the silence before the first probe, the peer can answer that probe.
    check(&format!(
        "set tcp.user_timeout 5s; {KEEPING} silence; +100s -> seq 0 ack 1; +0s <- ack 1; +100s -> seq 0 ack 1
         within 0s..10s told ended timed-out; -> RST seq 1 ack 1; sessions 0"
    ));
    // Once the host has removed it, the number of probes decides again.
    check(&format!(
        "set tcp.user_timeout 5s; {KEEPING} silence; +100s -> seq 0 ack 1; +0s <- ack 1; patience keep-alive 100s
         +100s -> seq 0 ack 1; {} +10s told ended timed-out; -> RST seq 1 ack 1; sessions 0",
        "+10s -> seq 0 ack 1;".repeat(2)
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

#[test]
fn a_session_with_a_closed_window_is_dropped_when_memory_runs_out() {
    let closed = |settings: &str, rest: &str| {
        begin(&format!(
            "{settings} established mss 1000 win 60000
             0ms write \"one\"; -> seq 1:4 ack 1; <- ack 4 win 0; {rest}; silence"
        ))
    };
    // The peer answers whatever it gets with a zero window. Returns the last packet.
    let wait = |exchange: &mut Exchange, seconds: u32| {
        let mut last = None;
        for _ in 0..seconds {
            exchange.pass(SECOND);
            last = exchange.sent().pop().or(last);
            if exchange.info().is_some() {
                run(exchange, "<- ack 4 win 0");
            }
        }
        last
    };
    let mut exchange = closed("", "write \"two\"");
    wait(&mut exchange, 1000);
    // MUST-37: others have pages.
    run(&mut exchange, "info state ESTABLISHED; hold transmit all");
    let last = wait(&mut exchange, 100);
    assert!(last.as_ref().is_some_and(|words| words.starts_with("RST seq 4 ack 1")), "{last:?}");
    assert_eq!(exchange.told(), ["ended timed-out"]);
    run(&mut exchange, "counter tcp.persist_sessions_aborted 1; sessions 0");
    exchange.end().unwrap();

    // Only a FIN waits behind the window. It holds no memory, so it may wait.
    let mut exchange = closed("", "finish");
    run(&mut exchange, "hold transmit all");
    wait(&mut exchange, 100);
    run(&mut exchange, "info state FIN-WAIT-1");

    // The session is not aborted before the timeout, and never on a board that is configured to wait forever.
    for (settings, seconds) in
        [("set tcp.stuck_timeout none;", 100), ("set tcp.memory_shares off;", 100), ("", 9)]
    {
        let mut exchange = closed(settings, "write \"two\"");
        run(&mut exchange, "hold transmit all");
        wait(&mut exchange, seconds);
        run(&mut exchange, "info state ESTABLISHED");
    }
}

#[test]
fn time_wait_entries_are_bounded_and_the_oldest_goes_first() {
    // TIME-WAIT holds as many sessions as configured, but no more than a quarter of all.
    for setting in ["tcp.time_wait_max 10", "tcp.sessions_max 40"] {
        let mut exchange = begin(&format!("set {setting}"));
        for n in 0..50 {
            let lines = format!(
                "conn port {} local 80; established mss 1000 rtt 0ms
                 finish; -> FIN seq 1 ack 1; <- FIN seq 1 ack 2; -> ack 2; told finished; told ended closed",
                6000 + n
            );
            let lines: Vec<String> =
                lines.split(['\n', ';']).map(|line| format!("c{n}: {}", line.trim())).collect();
            run(&mut exchange, &lines.join(";"));
            exchange.pass(SECOND);
        }
        run(&mut exchange, "sessions 10; counter tcp.time_wait_overflow 40");
        let ports: Vec<_> = exchange.board().infos().map(|info| info.remote.port()).collect();
        assert!(ports.iter().all(|port| *port >= 6040), "{ports:?}");
        exchange.pass(SECOND * 61);
        run(&mut exchange, "sessions 0");
        exchange.end().unwrap();
    }
}
