//! Known attacks: what the attacker gains, and what the attack costs others (RFC 4953, RFC 5961, RFC 5927).
//! Floods from many addresses are in the tests of the TCP/IP crate.

use crate::{begin, check, ms, run};
use kiban_talk::Exchange;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Data for a peer that never reopens its window is kept only until the host closes and the orphan timeout
/// expires.
#[test]
fn a_closed_window_does_not_hold_memory_after_its_host_has_left() {
    for leaves in [true, false] {
        let mut exchange = begin(
            "set tcp.orphan_timeout 100s; established mss 1000 win 60000; 0ms <- ack 1 win 0; write 5000",
        );
        if leaves {
            run(&mut exchange, "close");
        }
        let mut sent = Vec::new();
        // The peer answers with a zero window, whatever it gets.
        let mut wait = |exchange: &mut Exchange, seconds: u32| {
            for _ in 0..seconds {
                if exchange.board().sessions() > 0 {
                    run(exchange, "<- ack 1 win 0");
                }
                exchange.pass(SECOND);
                sent.extend(exchange.sent());
            }
        };
        wait(&mut exchange, 99);
        assert_eq!(exchange.board().sessions(), 1, "R2 is not reached");
        wait(&mut exchange, 5);
        assert_eq!(exchange.board().sessions(), usize::from(!leaves));
        if leaves {
            assert!(sent.last().is_some_and(|words| words.starts_with("RST")), "{sent:?}");
            assert!(exchange.board().memory_mut().is_all_free());
        }
        exchange.end().unwrap();
    }
}

/// Segments outside the window carry future timestamps. If these were accepted, the peer's own segments would
/// look old.
#[test]
fn a_blind_segment_cannot_advance_the_peers_timestamp() {
    let mut exchange = begin("established mss 1000 win 60000 ts; 0ms silence");
    for words in [
        "seq 1048577:1048579 ack 1",
        "seq -2147483648:-2147483646 ack 1",
        // These segments are within the window, but acknowledge data that was never sent (RFC 5961 §5).
        "seq 1:3 ack 1073741824",
        "seq 1:3 ack -2147483648",
        // These segments have no ACK, or lie outside the window.
        "seq 1:3",
        "SYN seq 2:4",
        "RST seq 3:5",
    ] {
        let packet = exchange.packet(&format!("{words} evil ts val 1879048192 ecr 0"));
        exchange.arrive(packet);
        exchange.settle();
    }
    exchange.sent();
    assert_eq!(exchange.told(), [""; 0]);
    run(&mut exchange, "<- seq 1:5 ack 1 ts val 1; got 4; counter tcp.paws_rejected 0");
    exchange.end().unwrap();
}

/// Whatever the number of urgent pointers, the stream is unchanged and the mark never moves backward.
#[test]
fn endless_urgent_marks_move_only_the_mark() {
    let mut exchange = begin("established mss 1000 win 60000; 0ms silence");
    let mut mark = 0;
    let mut marks = 0;
    for n in 0..2000u32 {
        run(&mut exchange, &format!("<- URG seq {}:{} ack 1 urg {}", n + 1, n + 2, n * 37 % 65_536));
        for words in exchange.told() {
            let distance: u32 =
                words.strip_prefix("urgent ").expect("only marks are reported").parse().unwrap();
            assert!(n + distance > mark, "{n}: from {mark} to {}", n + distance);
            (mark, marks) = (n + distance, marks + 1);
        }
        exchange.sent();
    }
    // From 65,535 bytes ahead, the mark advances by at most one byte at a time.
    assert!((1..=2000).contains(&marks), "{marks}");
    run(&mut exchange, "got 2000");
    exchange.end().unwrap();
}

/// A thousand keep-alive probes arrive per second; those without payload are answered ten times per second
/// (RFC 5961 §7).
#[test]
fn endless_keep_alives_are_answered_within_limits() {
    let mut exchange = begin("established mss 1000 win 60000; 0ms silence");
    let mut answers = 0;
    for _ in 0..5000 {
        run(&mut exchange, "<- seq 0 ack 1");
        answers += exchange.sent().len();
        exchange.pass(ms(1));
    }
    assert!((40..=60).contains(&answers), "{answers} answers in 5 s");
    run(&mut exchange, "info state ESTABLISHED");
}

/// SACK blocks that cover data never sent, or everything, or have their edges reversed: no byte counts as
/// arrived, and the window does not grow.
#[test]
fn sack_blocks_of_unsent_data_do_not_open_the_window() {
    let lies = ["10001:19001", "0:1", "1:1", "9000:2000", "1:10002", "-2147483648:5"];
    let lies: String = lies.map(|block| format!("<- ack 1 sack {block};")).concat().repeat(50);
    check(&format!(
        "established mss 1000 win 60000 sackok; 0ms write 50000; -> seq 1:10001 by 1000 ack 1
         info cwnd 10000 outstanding 10000; {lies} silence; info cwnd 10000 outstanding 10000
         counter tcp.sack_blocks_invalid 200"
    ));
}

/// The clock jumps forward by an hour or more in every state: at most one retransmission is due, and the
/// session continues where it was.
#[test]
fn a_clock_that_jumps_by_hours_ends_no_stream() {
    for hours in [1, 24, 24 * 30] {
        let jump = |exchange: &mut Exchange| {
            exchange.jump(HOUR * hours);
            exchange.sent()
        };
        let mut exchange = begin("0ms listen 80; <- SYN seq 0 win 60000 mss 1000; -> SYN seq 0 ack 1");
        jump(&mut exchange);
        assert_eq!(exchange.told(), [""; 0], "not accepted yet");
        run(&mut exchange, "<- seq 1 ack 1; told accepted; info state ESTABLISHED");
        assert_eq!(jump(&mut exchange), [""; 0]);
        // Sends data to the peer, and receives out-of-order data from it.
        run(&mut exchange, "write 500; -> seq 1:501 ack 1; <- seq 11:15 ack 1 \"late\"; -> ack 1");
        let sent = jump(&mut exchange);
        assert_eq!(sent.iter().filter(|words| words.contains("seq 1:501")).count(), 1, "{sent:?}");
        run(&mut exchange, "<- seq 1:11 ack 501; -> ack 15; got 14");
        jump(&mut exchange);
        run(&mut exchange, "finish; -> FIN seq 501 ack 15");
        jump(&mut exchange);
        run(&mut exchange, "<- seq 15 ack 502; info state FIN-WAIT-2");
        assert_eq!(jump(&mut exchange), [""; 0]);
        run(&mut exchange, "<- FIN seq 15 ack 502; -> ack 16; told finished; told ended closed; sessions 1");
        jump(&mut exchange);
        run(&mut exchange, "sessions 0");
        exchange.end().unwrap();
    }
}

/// Our sequence numbers wrap in every phase: at the SYN, within the data, between data and FIN, at the FIN,
/// and after it.
#[test]
fn our_sequence_numbers_may_wrap_in_any_state() {
    // RFC 9293 §3.4.1: the initial sequence number advances every 4 microseconds, so the time of opening
    // determines where a stream begins.
    let opening = |ticks: u32| {
        let mut exchange = begin(&format!(
            "{}us listen 80; <- SYN seq 0 win 60000 mss 1000; -> SYN seq 0 ack 1",
            u64::from(ticks) * 4
        ));
        // The acknowledgment field stands behind 20 bytes of IP header and the first 8 of TCP's.
        let packet = exchange.packet("ack 0");
        let initial = u32::from_be_bytes([packet[28], packet[29], packet[30], packet[31]]);
        (exchange, initial)
    };
    let (_, first) = opening(0);
    for distance in [0u32, 1, 2, 500, 999, 1000, 1001, 2998, 2999, 3000, 3001, 3002] {
        // The SYN has the sequence number `-distance`.
        let (mut exchange, initial) = opening(0u32.wrapping_sub(distance).wrapping_sub(first));
        assert_eq!(initial, 0u32.wrapping_sub(distance));
        // Everything is lost and retransmitted.
        run(
            &mut exchange,
            "<- seq 1 ack 1; told accepted; write 3000; -> seq 1:3001 by 1000 ack 1
             finish; -> FIN seq 3001 ack 1
             eventually -> seq 1:1001 ack 1; eventually -> seq 1:1001 ack 1; <- ack 1001
             -> seq 1001:3001 by 1000 ack 1; <- ack 2001; -> seq 2001:3001 ack 1; -> FIN seq 3001 ack 1; <- ack 3002
             info state FIN-WAIT-2; <- FIN seq 1 ack 3002; -> ack 2; told finished; told ended closed
             +59s sessions 1; +2s sessions 0",
        );
        exchange.end().unwrap();
    }
}

/// A receiver without timestamps measures its round trip wherever the peer's sequence numbers start.
#[test]
fn a_window_grows_from_any_initial_sequence_number() {
    for initial in [0, 0x1000_0000, 0x7fff_0000, 0x9000_0000u32, 0xf000_0000, 0xffff_f000] {
        let mut exchange = begin(&format!(
            "set peer.initial {initial}; set tcp.autotune on
             set tcp.receive_buffer_bytes 16k; set tcp.receive_buffer_max_bytes 128k
             established mss 1000 win 60000 shift 2 rtt 0ms; 0ms silence"
        ));
        let mut next = 1;
        for _ in 0..20 {
            let window = exchange.info().expect("it is open").receive_window_bytes;
            let burst: Vec<String> = (0..window / 1000)
                .map(|n| format!("seq {}:{} ack 1", next + n * 1000, next + n * 1000 + 1000))
                .collect();
            next += window / 1000 * 1000;
            run(&mut exchange, &format!("<- {}", burst.join("\n& ")));
            exchange.pass(ms(20));
            exchange.sent();
        }
        let bytes = exchange.info().expect("it is open").receive_buffer_bytes;
        assert!(bytes > 100_000, "{initial:x}: {bytes}");
    }
}
