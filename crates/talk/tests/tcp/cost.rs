//! Measures the cost of a segment from a hostile peer, as a function of how much state the peer has built up.
//!
//! If the cost per segment grew with the state that a peer builds up, the total would be quadratic in what it
//! sends. Each row does the same work with little and with much state. The packets are built before; the
//! board takes them without answering.

use crate::{begin, ms, run};
use kiban_talk::Exchange;

/// Returns the time that the board takes for each of these packets, microseconds.
#[expect(clippy::disallowed_methods, reason = "it measures, and decides nothing")]
fn each(exchange: &mut Exchange, packets: Vec<Vec<u8>>) -> f64 {
    let count = packets.len() as f64;
    let start = std::time::Instant::now();
    packets.into_iter().for_each(|packet| exchange.arrive(packet));
    start.elapsed().as_secs_f64() * 1e6 / count
}

/// Returns an exchange whose peer has a huge window and tiny segments, with `bytes` outstanding, and the
/// first outstanding byte.
fn flight(detection: &str, bytes: u32) -> (Exchange, u32) {
    let mut exchange = begin(&format!(
        "set tcp.loss_detection {detection}; set tcp.send_buffer_bytes 4096k; set tcp.memory_shares off
         set tcp.initial_window_segments 1; set memory.transmit_bytes 16777216
         set memory.receive_bytes 16777216; set memory.pdus 262144
         established mss 64 win 983040000 sackok shift 14; 0ms silence"
    ));
    // Repeatedly acknowledging everything opens the congestion window.
    let mut una = 1;
    loop {
        let stream = exchange.stream().expect("it is open");
        let room = exchange.board().host().room(stream).expect("it is open").min(1 << 20);
        run(&mut exchange, &format!("write {room}"));
        let outstanding = exchange.info().expect("it is open").outstanding_bytes;
        exchange.sent();
        if outstanding >= bytes {
            return (exchange, una);
        }
        una += outstanding;
        exchange.pass(ms(10));
        exchange.sent();
        run(&mut exchange, &format!("<- ack {una}"));
        exchange.sent();
        exchange.told();
    }
}

/// Every second segment is SACKed, three at a time, beginning at the far or the near end of the flight.
fn holes(detection: &str, segments: u32, from_far: bool) -> f64 {
    let (mut exchange, una) = flight(detection, segments * 64);
    let block = |n: u32| {
        let at = if from_far { segments / 2 - 1 - n } else { n };
        let left = una + (at * 2 + 1) * 64;
        format!("{left}:{}", left + 64)
    };
    let acks = segments / 2 / 3;
    let packets = (0..acks).map(|n| {
        let blocks = [0, 1, 2].map(|k| block(n * 3 + k)).join(" ");
        exchange.packet(&format!("seq 1 ack {una} sack {blocks}"))
    });
    let packets = packets.collect();
    each(&mut exchange, packets)
}

/// The same SACK block for one far segment, repeated.
fn repeated(detection: &str, segments: u32) -> f64 {
    let (mut exchange, una) = flight(detection, segments * 64);
    let packets = (0..2000).map(|n| {
        let left = una + ((n % 7) * 2 + 1) * 64;
        exchange.packet(&format!("seq 1 ack {una} sack {left}:{}", left + 64))
    });
    let packets = packets.collect();
    each(&mut exchange, packets)
}

/// Repeated short segments after a hole, each of which extends a run that is no longer in the list of recent
/// runs.
fn crumbs(pieces: u32) -> f64 {
    let mut exchange = begin("established mss 1000 win 60000; 0ms silence");
    let mut crumb = |at: u32| exchange.packet(&format!("seq {at}:{} ack 1", at + 1));
    let known = (0..pieces).map(|n| 10 + n).chain((0..8).map(|n| 2000 + 2 * n));
    let known: Vec<_> = known.map(&mut crumb).collect();
    let again = (0..20_000).map(|n| if n % 5 == 0 { 10 + n % pieces } else { 2000 + 2 * (n % 8) });
    let again: Vec<_> = again.map(&mut crumb).collect();
    each(&mut exchange, known);
    each(&mut exchange, again)
}

/// Out-of-order segments arrive while memory is scarce and many sessions are open.
fn scarce(sessions: u32) -> f64 {
    let mut exchange =
        begin("set tcp.syn_cookies off; set tcp.backlog 1048576; established mss 1000 rtt 0ms");
    for n in 1..sessions {
        let (port, host) = (1 + n % 60_000, 3 + n / 60_000);
        run(
            &mut exchange,
            &format!("c{n}: conn port {port} local 80 host {host}; c{n}: established mss 1000 rtt 0ms"),
        );
    }
    // Most pages are in use.
    run(&mut exchange, "hold receive 1000");
    let packets = (0..2000u32).map(|n| {
        let at = 10 + n % 3;
        exchange.packet(&format!("seq {at}:{} ack 1", at + 1))
    });
    let packets = packets.collect();
    each(&mut exchange, packets)
}

#[test]
#[ignore = "measures; run it alone, with --nocapture"]
fn the_cost_of_a_segment_does_not_grow_with_the_queue() {
    let row = |name: &str, small: (u32, f64), large: (u32, f64)| {
        println!("{name:44} {:6}: {:8.2} us   {:6}: {:8.2} us", small.0, small.1, large.0, large.1);
    };
    let both = |name: &str, sizes: (u32, u32), work: &dyn Fn(u32) -> f64| {
        row(name, (sizes.0, work(sizes.0)), (sizes.1, work(sizes.1)));
    };
    for detection in ["rack", "sack"] {
        let name = |what: &str| format!("{detection} {what}");
        both(&name("holes from the near end"), (1024, 16_384), &|n| holes(detection, n, false));
        both(&name("holes from the far end"), (1024, 16_384), &|n| holes(detection, n, true));
        both(&name("the same blocks again"), (1024, 16_384), &|n| repeated(detection, n));
    }
    both("crumbs told again", (64, 480), &crumbs);
    both("an early segment, scarce memory, sessions", (256, 8192), &scarce);
}
