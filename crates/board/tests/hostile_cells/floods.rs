//! Floods of valid packets.

use crate::common::lines::{BAD, Lines, attacker, port_of};
use crate::common::packets::*;
use crate::common::{address, socket};
use crate::helpers::*;
use kiban_atm::wire::atmarp::Operation;
use kiban_atm::{Contract, Interval};
use kiban_base::numbers::protocol;
use kiban_board::Input;
use kiban_tcpip::icmp::ERRORS_PER_SECOND;
use kiban_tcpip::wire::icmp;
use kiban_tcpip::wire::tcp::Flags;
use std::net::Ipv4Addr;
use std::time::Duration;

#[test]
fn a_flood_of_inatmarp_is_answered_once_per_burst() {
    let mut rounds = 0;
    let mut configs = configs();
    // InATMARP resolves the attacker's circuit. It accepts any answer, and no table grows.
    port_of(&mut configs[1]).circuits[1].peer = None;
    let lines = Lines::under_attack(configs, GOOD_BYTES, |lines, round| {
        rounds += 1;
        for index in 0..60u32 {
            let operation = if index % 2 == 0 { Operation::InverseRequest } else { Operation::InverseReply };
            let source = Ipv4Addr::from_bits(0x0a00_0100 + index + round as u32 * 64);
            lines.inject(1, &frame(BAD, &inarp(operation, source.into())));
        }
    });
    let replies = lines.count("inarp", "replies_out");
    assert_eq!(lines.count("inarp", "packets_in"), rounds * 60);
    assert!(replies <= rounds && replies > rounds / 2, "{replies} to {rounds} bursts");
    assert_eq!(lines.boards[0].counter("tcp", "retransmits"), 0);
}

#[test]
fn an_echo_flood_does_not_starve_streams() {
    for bytes in [20, 8000] {
        let mut started = None;
        let lines = Lines::under_attack(configs(), 2_000_000, |lines, _| {
            let at = *started.get_or_insert(lines.now);
            assert!(lines.now.since(at) < Duration::from_secs(2), "the stream goes on beside the flood");
            // Send as many as fit on the line alongside the stream.
            let count = if bytes == 20 { 17 } else { 1 };
            for sequence in 0..count {
                lines.inject(
                    1,
                    &frame(BAD, &llc_ip(&echo_packet(attacker(), address(1), sequence, &vec![0; bytes]))),
                );
            }
            let memory = lines.boards[1].memory_mut();
            assert!(memory.pdus.available() * 2 > memory.pdus.capacity());
        });
        assert!(lines.count("icmp", "echoes_answered") > 1000);
    }
}

/// The flooded board sends the stream. Its replies to the flood must not displace the stream's segments in
/// the port's queue.
#[test]
fn a_board_flooded_with_echoes_still_sends() {
    let mut lines = Lines::new();
    let (near, far) = lines.open(1, 80);
    let started = lines.now;
    lines.carry((1, near), far, &noise(5, 500_000), |lines, _| {
        assert!(lines.now.since(started) < Duration::from_secs(1), "the stream goes on beside the flood");
        for sequence in 0..17 {
            lines.inject(1, &frame(BAD, &llc_ip(&echo_packet(attacker(), address(1), sequence, &[0; 20]))));
        }
    });
    lines.close_and_check([far, near]);
}

/// The attacker's circuit is shaped to one cell per millisecond. The attacker requests more than that: echo
/// replies, resets for closed ports, ICMP errors for unbound ports. The circuit's queue fills, but the other
/// circuits are not affected.
#[test]
fn a_flood_from_a_slow_circuit_leaves_the_others_their_memory() {
    let mut configs = configs();
    port_of(&mut configs[1]).circuits[1].contract =
        Some(Contract::peak(Interval::every(Duration::from_millis(1)), Duration::ZERO));
    let mut lines = Lines::of(configs);
    let (near, far) = lines.open(1, 80);
    let started = lines.now;
    lines.carry((1, near), far, &noise(5, 500_000), |lines, round| {
        assert!(lines.now.since(started) < Duration::from_millis(100), "the stream goes on beside the flood");
        let syn = Segment { sequence: 1, acknowledgment: 0, flags: Flags::SYN, window: 1000 };
        lines.inject(1, &packet(tcp_packet(hostile(round as u16), socket(1, 81), syn, b""), |_| ()));
        lines.inject(1, &packet(echo_packet(attacker(), address(1), 1, &[0; 3000]), |_| ()));
        lines.inject(1, &packet(datagram(7, b"nobody"), |_| ()));
    });
    assert!(lines.count("port", "queue_full") > 100);
    assert_eq!(lines.count("tcp", "retransmits"), 0);
    lines.close_and_check([far, near]);
}

#[test]
fn unread_datagrams_are_bounded() {
    // Datagrams arrive for one socket, then for sixty sockets, which together could hold more than the whole
    // memory. The stream continues.
    for sockets in [1, 60u16] {
        let mut bound = Vec::new();
        let lines = Lines::under_attack(configs(), 4_000_000, |lines, round| {
            if round == 0 {
                for port in 0..sockets {
                    bound.push(lines.boards[1].host().bind(socket(1, 1000 + port)).unwrap());
                }
            }
            let port = 1000 + round as u16 % sockets;
            lines.inject(1, &frame(BAD, &llc_ip(&datagram(port, &noise(round, 8000)))));
            if lines.boards[1].counter("host", "datagrams_dropped") > 0 && round > 1500 {
                bound.drain(..).for_each(|socket| lines.boards[1].host().unbind(socket).unwrap());
            }
        });
        assert!(lines.count("host", "datagrams_dropped") > 0, "{sockets} sockets");
    }
}

#[test]
fn errors_about_closed_ports_are_rate_limited() {
    let mut rounds = 0;
    let mut lines = Lines::under_attack(configs(), GOOD_BYTES, |lines, round| {
        rounds += 1;
        (0..5).for_each(|at| lines.inject(1, &frame(BAD, &llc_ip(&datagram(7 + at, &noise(round, 30))))));
    });
    assert_eq!(lines.count("udp", "no_socket"), rounds * 5);
    assert_eq!(lines.count("icmp", "errors_out"), u64::from(ERRORS_PER_SECOND));
    assert_eq!(lines.count("icmp", "errors_rate_limited"), rounds * 5 - u64::from(ERRORS_PER_SECOND));
    // A second later errors are sent again, because the rate limit has refilled.
    lines.inject(1, &frame(BAD, &llc_ip(&datagram(7, b"late"))));
    lines.step(Duration::from_secs(1));
    assert_eq!(lines.count("icmp", "errors_out"), u64::from(ERRORS_PER_SECOND) + 1);
}

/// The attacker sends unsolicited echo replies. The number of completions that wait for an idle host is
/// bounded.
#[test]
fn unsolicited_replies_do_not_pile_up() {
    let mut lines = Lines::new();
    let reply = icmp(icmp::Header::EchoReply { identifier: 1, sequence: 2 }, b"unasked");
    let burst = frame(BAD, &llc_ip(&ip(attacker(), address(1), protocol::ICMP, &reply))).repeat(500);
    for _ in 0..20 {
        lines.boards[1].handle(Input::Cells { port: 0, cells: &burst }, lines.now);
    }
    assert_eq!(lines.count("icmp", "replies_in"), 10_000);
    lines.drain(1);
    let completions = lines.completions(1).len();
    assert!(completions <= 1024, "{completions} completions wait");
    assert_eq!(lines.count("host", "replies_dropped"), 10_000 - completions as u64);
}
