//! Known attacks as packet scripts: what the attacker gains, and what the attack costs others (RFC 4953, RFC
//! 5961, RFC 5927).

use crate::common::ms;
use crate::common::peer::*;
use crate::common::station::Frame;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, State, SynCookies};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, SackBlock, Timestamps};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Without cookies, a SYN flood fills the backlog but nothing else: existing sessions continue, and new
/// connections are accepted once the half-open ones have expired.
#[test]
fn a_flood_without_cookies_keeps_newcomers_out_only_while_it_lasts() {
    let mut talk = Peer::established(Config { syn_cookies: SynCookies::Off, ..Config::default() });
    let (server, good) = (talk.local(), talk.session);
    let mut read = 0;
    for n in 0..100_000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n));
        let syn = Header { source_port: 1 + (n % 60_000) as u16, ..seg(SYN, n, 0, 1000) };
        talk.station.arrive(&Frame::of(source, server.ip(), &syn, b""), talk.now);
        if n.is_multiple_of(1000) {
            talk.hear(seg(ACK, 1 + read, 1, 60_000), &bytes(700));
            read += 700;
            talk.frames.clear();
        }
    }
    assert_eq!(talk.got.len() as u32, read, "no byte of another stream is lost");
    assert_eq!(talk.station.tcp.sessions(), 1 + 128);
    assert_eq!(talk.station.tcp.counters().syns_dropped, 100_000 - 128);
    talk.pass(SECOND * 300);
    talk.frames.clear();
    assert_eq!((talk.station.tcp.sessions(), talk.session), (1, good));
    talk.peer_port = 6000;
    talk.told();
    talk.hear(seg(SYN, 0, 0, 8000), b"");
    let answer = talk.frames.last().expect("an answer").header().0;
    talk.initial = answer.sequence;
    talk.hear(seg(ACK, 1, 1, 8000), b"hello");
    assert_eq!(talk.told(), ["accepted", "data 5"]);
}

/// Peers that open sessions and send nothing occupy one session each but no packet memory; beyond
/// `sessions_max`, further connections are refused and counted. Keep-alive removes sessions whose peers do
/// not answer.
#[test]
fn thousands_of_silent_sessions_hold_no_memory_and_go_when_they_do_not_answer() {
    let config = Config {
        sessions_max: 3000,
        backlog: 4000,
        keep_alive: Some(SECOND * 60),
        keep_alive_interval: SECOND,
        keep_alive_probes: 2,
        ..Config::default()
    };
    let mut talk = Peer::listening(config);
    let blocks = talk.station.memory.pdus.available();
    let server = talk.local();
    for n in 0..5000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n));
        let syn = Header { source_port: 7, ..seg(SYN, n, 0, 1000) };
        talk.station.arrive(&Frame::of(source, server.ip(), &syn, b""), talk.now);
        talk.settle();
        let Some(answer) = talk.frames.pop() else { continue };
        let number = answer.header().0.sequence + 1;
        talk.frames.clear();
        let ack = Header { source_port: 7, acknowledgment: number, ..seg(ACK, n + 1, 0, 1000) };
        talk.station.arrive(&Frame::of(source, server.ip(), &ack, b""), talk.now);
        talk.settle();
    }
    assert_eq!(talk.station.tcp.sessions(), 3000);
    assert_eq!(talk.station.tcp.counters().syns_dropped, 2000);
    assert_eq!(talk.station.memory.pdus.available(), blocks);
    assert_eq!(talk.station.memory.receive.available(), talk.station.memory.receive.capacity());
    for _ in 0..70 {
        talk.pass(SECOND);
        talk.frames.clear();
    }
    talk.check_home();
}

/// Data for a peer that never reopens its window is kept only until the host closes and the orphan timeout
/// expires.
#[test]
fn a_closed_window_does_not_hold_memory_after_its_host_has_left() {
    for leaves in [true, false] {
        let mut talk = Peer::established(Config { orphan_timeout: SECOND * 100, ..Config::default() });
        talk.hear(seg(ACK, 1, 1, 0), b"");
        talk.write(&bytes(5000));
        let (id, now) = (talk.id(), talk.now);
        if leaves {
            talk.station.with(now, |tcp, cx, out| tcp.close(id, cx, out)).unwrap();
            talk.settle();
        }
        for _ in 0..99 {
            // The peer answers every probe with a zero window.
            talk.hear(seg(ACK, 1, 1, 0), b"");
            talk.pass(SECOND);
        }
        assert_ne!(talk.state(), None, "R2 is not reached");
        for _ in 0..5 {
            talk.hear(seg(ACK, 1, 1, 0), b"");
            talk.pass(SECOND);
        }
        assert_eq!(talk.state().is_none(), leaves);
        if leaves {
            assert!(talk.said_briefly().last().unwrap().starts_with("RST"));
            talk.check_home();
        }
    }
}

/// Segments outside the window carry future timestamps. If these were accepted, the peer's own segments would
/// look old.
#[test]
fn a_blind_segment_cannot_advance_the_peers_timestamp() {
    let stamps = |value| Options { timestamps: Some(Timestamps { value, echo: 0 }), ..Options::NONE };
    let options = Options { mss: Some(1000), ..stamps(1000) };
    let mut talk = Peer::listening(Config::default());
    talk.hear(Header { options, ..seg(SYN, 0, 0, 60_000) }, b"");
    talk.hear(Header { options: stamps(1000), ..seg(ACK, 1, 1, 60_000) }, b"");
    for (sequence, acknowledgment, flags) in [
        (1 << 20, 1, ACK),
        (0x8000_0000, 1, ACK),
        // These segments are within the window, but acknowledge data that was never sent (RFC 5961 §5).
        (1, 0x4000_0000, ACK),
        (1, 0x8000_0000, ACK),
        // These segments have no ACK, or lie outside the window.
        (1, 1, Flags(0)),
        (2, 1, SYN),
        (3, 1, RST),
    ] {
        talk.hear(
            Header { options: stamps(0x7000_0000), ..seg(flags, sequence, acknowledgment, 60_000) },
            b"xx",
        );
    }
    talk.said();
    talk.told();
    talk.hear(Header { options: stamps(1001), ..seg(ACK, 1, 1, 60_000) }, b"true");
    assert_eq!(talk.told(), ["data 4"]);
    assert_eq!(talk.station.tcp.counters().paws_rejected, 0);
    talk.abort();
    talk.check_home();
}

/// Whatever the number of urgent pointers, the stream is unchanged and the mark never moves backward.
#[test]
fn endless_urgent_marks_move_only_the_mark() {
    let mut talk = Peer::established(Config::default());
    let mut expected = Vec::new();
    for n in 0..2000u32 {
        let header = Header { urgent: (n * 37 % 65_536) as u16, ..seg(ACK | Flags::URG, 1 + n, 1, 60_000) };
        talk.hear(header, &[n as u8]);
        expected.push(n as u8);
    }
    assert_eq!(talk.got, expected);
    let counts = |word: &str| talk.up.iter().filter(|said| said.starts_with(word)).count();
    assert_eq!(counts("data"), 2000);
    // Each mark lies beyond the previous one. From 65,535 bytes ahead, the mark advances by at most one byte
    // at a time.
    assert!(counts("urgent") < 4000);
    talk.abort();
    talk.check_home();
}

/// A thousand keep-alive probes arrive per second; those without payload are answered ten times per second
/// (RFC 5961 §7).
#[test]
fn endless_keep_alives_are_answered_within_limits() {
    let mut talk = Peer::established(Config::default());
    let mut answers = 0;
    for _ in 0..5000 {
        talk.hear(seg(ACK, 0, 1, 60_000), b"");
        answers += talk.said().len();
        talk.pass(ms(1));
    }
    assert!((40..=60).contains(&answers), "{answers} answers in 5 s");
    assert_eq!(talk.state(), Some(State::Established));
}

/// SACK blocks that cover data never sent, or everything, or have their edges reversed: no byte counts as
/// arrived, and the window does not grow.
#[test]
fn sack_blocks_of_unsent_data_do_not_open_the_window() {
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::NONE };
    let mut talk = Peer::established_with(Config::default(), 60_000, options);
    talk.write(&bytes(50_000));
    let info = |talk: &Peer| talk.station.tcp.info(talk.id()).unwrap();
    let before = info(&talk);
    let out = before.outstanding_bytes;
    talk.frames.clear();
    let blocks =
        [(1 + out, 1 + out + 9000), (0, 1), (1, 1), (9000, 2000), (1, 1 + out + 1), (0x8000_0000, 5)];
    for (left, right) in blocks.repeat(50) {
        let mut options = Options::NONE;
        options.sack.push(SackBlock { left: talk.initial + left, right: talk.initial + right });
        talk.hear(Header { options, ..seg(ACK, 1, 1, 60_000) }, b"");
    }
    assert_eq!(info(&talk).congestion_window_bytes, before.congestion_window_bytes);
    assert_eq!(info(&talk).outstanding_bytes, out);
    assert!(talk.frames.is_empty(), "nothing follows from a lie");
    assert!(talk.station.tcp.counters().sack_blocks_invalid >= 200);
}

/// The clock jumps forward by an hour or more in every state: at most one retransmission is due, and the
/// session continues where it was.
#[test]
fn a_clock_that_jumps_by_hours_ends_no_stream() {
    for hours in [1, 24, 24 * 30] {
        let jump = |talk: &mut Peer| {
            talk.now += HOUR * hours;
            talk.settle();
        };
        let mut talk = Peer::listening(Config::default());
        let options = Options { mss: Some(1000), ..Options::NONE };
        talk.hear(Header { options, ..seg(SYN, 0, 0, 60_000) }, b"");
        jump(&mut talk);
        assert_eq!(talk.state(), None, "not accepted yet");
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
        assert_eq!(talk.state(), Some(State::Established));
        jump(&mut talk);
        // Sends data to the peer, and receives out-of-order data from it.
        talk.write(&bytes(500));
        talk.hear(seg(ACK, 11, 1, 60_000), b"late");
        talk.said();
        jump(&mut talk);
        assert_eq!(talk.said_briefly().iter().filter(|said| said.contains("1+500")).count(), 1);
        talk.hear(seg(ACK, 1, 501, 60_000), &bytes(10));
        assert_eq!(&talk.got[10..], b"late");
        jump(&mut talk);
        talk.finish().unwrap();
        jump(&mut talk);
        talk.hear(seg(ACK, 15, 502, 60_000), b"");
        assert_eq!(talk.state(), Some(State::FinWait2));
        jump(&mut talk);
        talk.hear(seg(ACK | FIN, 15, 502, 60_000), b"");
        assert_eq!(talk.state(), Some(State::TimeWait));
        jump(&mut talk);
        talk.check_home();
    }
}

/// Our sequence numbers wrap in every phase: at the SYN, within the data, between data and FIN, at the FIN,
/// and after it.
#[test]
fn our_sequence_numbers_may_wrap_in_any_state() {
    // RFC 9293 §3.4.1: the initial sequence number advances every 4 microseconds, so the time of opening
    // determines where a stream begins.
    let opening = |at: kiban_base::Instant| {
        let mut talk = Peer::new(Config::default());
        talk.now = at;
        talk.station.tcp.listen(talk.local()).unwrap();
        talk.hear(
            Header { options: Options { mss: Some(1000), ..Options::NONE }, ..seg(SYN, 0, 0, 60_000) },
            b"",
        );
        talk
    };
    let begin = crate::common::at_ms(1000);
    let first = opening(begin).initial;
    for distance in [0u32, 1, 2, 500, 999, 1000, 1001, 2998, 2999, 3000, 3001, 3002] {
        // The SYN has the sequence number `-distance`.
        let ticks = 0u32.wrapping_sub(distance).wrapping_sub(first.0);
        let mut talk = opening(begin + Duration::from_micros(4) * ticks);
        assert_eq!(talk.initial.0, 0u32.wrapping_sub(distance));
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
        talk.write(&bytes(3000));
        talk.finish().unwrap();
        let said = talk.said_briefly();
        assert_eq!(said[1..3], ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1"]);
        assert_eq!(said[3..], ["PSH ACK 2001+1000 ack 1", "FIN PSH ACK 3001+0 ack 1"]);
        // Everything is lost and retransmitted.
        for _ in 0..10 {
            talk.pass(SECOND * 5);
            let Some(frame) = talk.frames.last() else { continue };
            let (header, payload) = frame.header();
            let upto = talk.initial.distance(header.sequence) + header.sequence_bytes(payload.len());
            talk.hear(seg(ACK, 1, upto, 60_000), b"");
        }
        assert_eq!(talk.state(), Some(State::FinWait2), "{distance}");
        talk.hear(seg(ACK | FIN, 1, 3002, 60_000), b"");
        talk.pass(SECOND * 61);
        talk.check_home();
    }
}

/// A receiver without timestamps measures its round trip wherever the peer's sequence numbers start.
#[test]
fn a_window_grows_from_any_initial_sequence_number() {
    for begin in [0, 0x1000_0000, 0x7fff_0000, 0x9000_0000, 0xf000_0000u32] {
        let config = Config {
            autotune: true,
            receive_buffer_bytes: 16 << 10,
            receive_buffer_max_bytes: 128 << 10,
            ..Config::default()
        };
        let mut talk = Peer::listening(config);
        let options = Options { mss: Some(1000), window_shift: Some(2), ..Options::NONE };
        talk.hear(Header { options, ..seg(SYN, begin, 0, 60_000) }, b"");
        talk.hear(seg(ACK, begin.wrapping_add(1), 1, 60_000), b"");
        let mut next = begin.wrapping_add(1);
        for _ in 0..20 {
            let info = talk.station.tcp.info(talk.id()).unwrap();
            for _ in 0..info.receive_window_bytes / 1000 {
                talk.arrive(seg(ACK, next, 1, 60_000), &bytes(1000));
                next = next.wrapping_add(1000);
            }
            talk.settle();
            talk.pass(ms(20));
        }
        let info = talk.station.tcp.info(talk.id()).unwrap();
        assert!(info.receive_buffer_bytes > 100_000, "{begin:x}: {}", info.receive_buffer_bytes);
    }
}
