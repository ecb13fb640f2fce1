//! Segments that no correct peer sends must not cause a panic or affect other sessions. They may use only
//! bounded memory, all of it free at the end.

use crate::{begin, ms, run, seeds};
use kiban_base::SimRng;
use kiban_talk::Exchange;
use kiban_tcpip::tcp::State;
use std::time::Duration;

fn pick<T: Copy>(chance: &mut SimRng, choices: &[T]) -> T {
    choices[chance.below(choices.len() as u64) as usize]
}

const FLAGS: [(&str, u8); 7] =
    [("FIN", 0x01), ("SYN", 0x02), ("RST", 0x04), ("PSH", 0x08), ("URG", 0x20), ("ECE", 0x40), ("CWR", 0x80)];
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Returns a segment from a peer that has a session and breaks every rule.
fn malice(chance: &mut SimRng, exchange: &mut Exchange, got: usize) -> Vec<u8> {
    let near = |chance: &mut SimRng, around: u32| match chance.below(8) {
        0 => chance.draw() as u32,
        1 => around.wrapping_add(0x8000_0000).wrapping_add(chance.below(5) as u32).wrapping_sub(2),
        2 => around,
        _ => around.wrapping_add(chance.below(6000) as u32).wrapping_sub(3000),
    };
    let around = got as u32 + 1 + pick(chance, &[0, 0, 0, 1460, 65_535, 262_144]);
    let sent = exchange.info().map_or(1, |info| info.outstanding_bytes) + chance.below(3000) as u32;
    let flags = match chance.below(10) {
        0..=5 => ACK,
        6 => ACK | FIN,
        7 => pick(chance, &[RST, RST | ACK]),
        8 => pick(chance, &[SYN, SYN | ACK, SYN | FIN, SYN | FIN | RST]),
        _ => chance.draw() as u8,
    };
    let mut words = String::new();
    FLAGS.iter().filter(|(_, flag)| flags & flag != 0).for_each(|(word, _)| words += &format!("{word} "));
    let sequence = i64::from(near(chance, around) as i32);
    let payload = if chance.happens(0.5) { 0 } else { chance.below(1401) as i64 };
    let range = if payload > 0 { format!(":{}", sequence + payload) } else { String::new() };
    words += &format!("seq {sequence}{range} urg {} ", chance.draw() as u16);
    if flags & ACK != 0 {
        words += &format!("ack {} ", near(chance, sent) as i32);
    }
    words += &format!("win {}", pick(chance, &[0, 0, 1, 100, 1000, 8000, 60_000, 65_535]));
    if flags & SYN != 0 || chance.happens(0.05) {
        if chance.happens(0.8) {
            words += &format!(" mss {}", pick(chance, &[0, 1, 64, 536, 1460, 65_535]));
        }
        if chance.happens(0.5) {
            words += &format!(" shift {}", chance.below(20));
        }
    }
    exchange.packet(&words)
}

#[test]
fn a_peer_that_violates_every_rule_is_survived() {
    for seed in 0..seeds(150) {
        let mut chance = SimRng::from_seed(seed).fork(6);
        let receive = pick(&mut chance, &[1000, 8000, 65_535, 256 << 10, 1 << 30]);
        let segment = pick(&mut chance, &[1460, 60_000]);
        let send = pick(&mut chance, &[2000, 256 << 10]);
        let nagle = if chance.happens(0.5) { "on" } else { "off" };
        let opening = if chance.happens(0.7) { "listen" } else { "open" };
        let mut exchange = begin(&format!(
            "set tcp.receive_buffer_bytes {receive}; set tcp.segment_bytes_max {segment}
             set tcp.send_buffer_bytes {send}; set tcp.nagle {nagle}; set tcp.rto_retries 3
             0ms host waits; {opening}"
        ));
        let reads = chance.happens(0.6);
        let mut got = 0;
        if chance.happens(0.9) {
            let ack = if opening == "open" { "ack 1" } else { "" };
            let shift = chance.below(15);
            for words in [&format!("SYN seq 0 {ack} win 8000 mss 1000 shift {shift}"), "seq 1 ack 1 win 8000"]
            {
                let packet = exchange.packet(words);
                exchange.arrive(packet);
                exchange.settle();
            }
        }
        for _ in 0..300 {
            let packet = malice(&mut chance, &mut exchange, got);
            exchange.arrive(packet);
            let stream = exchange.stream();
            let mut buffer = vec![0; 100_000];
            match (chance.below(30), stream) {
                (0, _) => exchange.pass(ms(chance.below(3000))),
                (1, _) => exchange.pass(ms(chance.below(50))),
                // What the host calls may have ended already.
                (2..=4, Some(stream)) => {
                    let _ = exchange.board().host().write(stream, &buffer[..chance.below(4000) as usize]);
                }
                (5, Some(stream)) => drop(exchange.board().host().finish(stream)),
                (6, Some(stream)) => {
                    let most = chance.below(100_000) as usize;
                    got += exchange.board().host().read(stream, &mut buffer[..most]).unwrap_or(0);
                }
                (7, Some(stream)) if chance.happens(0.1) => drop(exchange.board().host().abort(stream)),
                (8..=20, _) => exchange.settle(),
                _ => {}
            }
            if let Some(stream) = stream.filter(|_| reads) {
                got += exchange.board().host().read(stream, &mut buffer).unwrap_or(0);
            }
            // Every arrival may be answered; a settle sends no more than the windows allow and a few
            // acknowledgements.
            let sent = exchange.sent().len();
            assert!(sent < 400, "seed {seed}: {sent} packets");
            exchange.told();
        }
        // Abort everything: memory is freed whatever happened.
        exchange.settle();
        exchange.pass(Duration::from_secs(2000));
        if let (Some(State::Established | State::FinWait2 | State::CloseWait), Some(stream)) =
            (exchange.info().map(|info| info.state), exchange.stream())
        {
            exchange.board().host().abort(stream).unwrap();
        }
        exchange.settle();
        exchange.pass(Duration::from_secs(2000));
        exchange.sent();
        exchange.told();
        if exchange.board().sessions() == 0 {
            exchange.end().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        } else {
            // Sessions that get no further events are still open. They hold no memory but their own state.
            assert!(exchange.board().infos().all(|info| info.state != State::SynReceived), "seed {seed}");
        }
    }
}

#[test]
fn small_segments_ahead_of_a_hole_are_bounded() {
    let mut exchange =
        begin("set tcp.receive_buffer_bytes 1024k; established mss 1000 win 60000; 0ms silence");
    let before = exchange.board().memory_mut().receive.available();
    for n in 0..60_000u32 {
        let sequence = 2 + (n * 7919 % 30_000) * 2;
        run(&mut exchange, &format!("<- seq {sequence}:{} ack 1", sequence + 1));
        exchange.sent();
    }
    let held = before - exchange.board().memory_mut().receive.available();
    assert!(held <= 512, "{held} pages");
    exchange.end().unwrap();
}

#[test]
fn options_of_every_shape() {
    // Tries every pair of bytes with a third that gives the length: the options are decoded or rejected,
    // without a panic or a damaged session.
    let mut exchange = begin("established mss 1000 win 60000; 0ms silence");
    for kind in 0..=255u8 {
        for length in [0, 1, 2, 3, 4, 5, 10, 18, 34, 39, 40, 41, 255] {
            let zeros = "00".repeat(38);
            let packet = exchange.packet(&format!("seq 1 ack 1 win 60000 opt {kind:02x}{length:02x}{zeros}"));
            exchange.arrive(packet);
        }
    }
    exchange.settle();
    assert_eq!(exchange.sent(), [""; 0]);
    assert!(exchange.board().tcp_counters().malformed > 0);
    run(&mut exchange, "info state ESTABLISHED; <- seq 1:11 ack 1; got 10; +40ms -> ack 11");
    exchange.end().unwrap();
}

#[test]
fn two_ends_that_disagree_about_everything_do_not_loop() {
    // An attacker has injected bytes: each side acknowledges data that the other never sent. RFC 5961 §7:
    // challenge ACKs are rate-limited.
    let mut exchange = begin("established mss 1000 win 60000; 0ms <- seq 1:501 ack 1");
    let mut answers = 0;
    for _ in 0..1000 {
        // The peer, which never sent the 500 bytes, answers every acknowledgement with its own.
        run(&mut exchange, "<- seq 1 ack 400");
        answers += exchange.sent().len();
        exchange.pass(ms(1));
    }
    assert!(answers <= 20, "{answers} answers in a second");
}
