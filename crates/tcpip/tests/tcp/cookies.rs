//! Scripts about SYNs for which no state is kept (RFC 4987 §3.6).

use crate::common::ms;
use crate::common::station::Frame;
use crate::common::talk::*;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, State, SynCookies};
use kiban_tcpip::wire::tcp::{Header, Options, Timestamps};

const SECOND: Duration = Duration::from_secs(1);

fn always() -> Config {
    Config { syn_cookies: SynCookies::Always, ..Config::default() }
}

fn offering(value: Option<u32>) -> Options {
    Options {
        mss: Some(1452),
        window_shift: Some(7),
        sack_permitted: true,
        timestamps: value.map(|value| Timestamps { value, echo: 0 }),
        ..Options::NONE
    }
}

/// The last segment of a handshake, giving back the clock of our answer.
fn last(talk: &Talk, value: u32) -> Header {
    let ours = talk.frames.last().unwrap().header().0.options.timestamps;
    let timestamps = ours.map(|ours| Timestamps { value, echo: ours.value });
    Header { options: Options { timestamps, ..Options::NONE }, ..seg(ACK, 1, 1, 500) }
}

#[test]
fn the_ack_of_the_handshake_creates_the_session_with_the_negotiated_options() {
    let mut talk = Talk::listening(always());
    talk.hear(Header { options: offering(Some(100)), ..seg(SYN, 0, 0, 8000) }, b"");
    assert_eq!(talk.station.tcp.sessions(), 0);
    let ack = last(&talk, 101);
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460 shift 3 sack-permitted echo 100"]);
    talk.pass(SECOND * 100);
    talk.hear(ack, b"and its data");
    assert_eq!(talk.told(), ["accepted", "data 12"]);
    let info = talk.station.tcp.info(talk.id()).unwrap();
    // 1440 is the nearest size that a cookie tells; timestamps take 12 of it.
    assert_eq!((info.state, info.mss, info.send_window_bytes), (State::Established, 1428, 500 << 7));
    assert!(info.timestamps && info.sack);
    // It is a session like any other. The SYN's window could express only 65,535 bytes; reading opens the
    // rest.
    talk.write(b"answer");
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 13", "PSH ACK 1+6 ack 13"]);
    talk.finish().unwrap();
    assert_eq!(talk.station.tcp.counters().syn_cookies_accepted, 1);
}

#[test]
fn without_timestamps_a_cookie_encodes_only_the_mss() {
    let mut talk = Talk::listening(always());
    talk.hear(Header { options: offering(None), ..seg(SYN, 0, 0, 8000) }, b"");
    let ack = last(&talk, 0);
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460"]);
    talk.hear(ack, b"");
    let info = talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!((info.mss, info.send_window_bytes, info.timestamps, info.sack), (1440, 500, false, false));
}

#[test]
fn data_creates_the_session_if_the_ack_of_the_handshake_is_lost() {
    let mut talk = Talk::listening(always());
    talk.hear(Header { options: offering(Some(100)), ..seg(SYN, 0, 0, 8000) }, b"");
    let ack = last(&talk, 150);
    talk.said();
    talk.hear(Header { flags: ACK | FIN, ..ack }, b"all");
    assert_eq!(talk.told(), ["accepted", "data 3", "finished"]);
    assert_eq!(talk.state(), Some(State::CloseWait));
}

#[test]
fn a_cookie_is_valid_for_two_minutes_and_only_for_its_4_tuple() {
    let given = |talk: &mut Talk| {
        talk.hear(Header { options: offering(None), ..seg(SYN, 0, 0, 8000) }, b"");
        talk.said();
    };
    let mut talk = Talk::listening(always());
    given(&mut talk);
    // Another acknowledgment, another sequence number, another port.
    for (sequence, acknowledgment, port) in [(1, 10, 0), (1, 0x0100_0001, 0), (2, 1, 0), (1, 1, 1)] {
        talk.peer_port += port;
        talk.hear(seg(ACK, sequence, acknowledgment, 500), b"");
        assert_eq!(talk.station.tcp.sessions(), 0);
        assert!(talk.said()[0].starts_with("RST"));
    }
    assert_eq!(talk.station.tcp.counters().syn_cookies_invalid, 4);
    for (wait, sessions) in [(127, 1), (193, 0)] {
        let mut talk = Talk::listening(always());
        given(&mut talk);
        talk.pass(SECOND * wait);
        talk.hear(seg(ACK, 1, 1, 500), b"");
        assert_eq!(talk.station.tcp.sessions(), sessions, "{wait}");
    }
    // No cookie was sent: none is looked for.
    let mut talk = Talk::listening(always());
    talk.hear(seg(ACK, 1, 1, 500), b"");
    assert_eq!((talk.said().len(), talk.station.tcp.counters().syn_cookies_invalid), (1, 0));
}

#[test]
fn a_million_syns_take_no_memory_and_a_real_client_connects() {
    let mut talk = Talk::listening(Config::default());
    let (server, blocks) = (talk.local(), talk.station.memory.pdus.available());
    for n in 0..1_000_000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n / 60_000));
        let header = Header {
            source_port: (n % 60_000) as u16 + 1,
            options: offering(Some(n)),
            ..seg(SYN, n, 0, 1000)
        };
        let frame = Frame::of(source, server.ip(), &header, b"");
        assert!(talk.station.arrive(&frame, talk.now));
        while talk.station.out.down.pop_front().is_some() {}
        if n == 500_000 {
            // In the middle of it.
            talk.settle();
            talk.frames.clear();
            let syn = Header { options: offering(Some(100)), ..seg(SYN, 0, 0, 8000) };
            talk.initial = {
                talk.hear(syn, b"");
                talk.frames.last().unwrap().header().0.sequence
            };
            let ack = last(&talk, 101);
            talk.hear(ack, b"hello");
            assert_eq!(talk.told(), ["accepted", "data 5"]);
        }
    }
    let counters = talk.station.tcp.counters();
    assert_eq!((talk.station.tcp.sessions(), counters.syns_dropped), (129, 0));
    assert_eq!(counters.syn_cookies_sent, 1_000_001 - 128);
    assert!(talk.station.memory.pdus.available() >= blocks - 129);
    talk.pass(SECOND * 300);
    assert_eq!(talk.station.tcp.sessions(), 1);
}

#[test]
fn without_cookies_syns_beyond_the_backlog_are_dropped() {
    let mut talk = Talk::listening(Config { syn_cookies: SynCookies::Off, backlog: 1, ..Config::default() });
    for port in 0..3 {
        talk.peer_port = 6000 + port;
        talk.hear(seg(SYN, 0, 0, 8000), b"");
    }
    assert_eq!((talk.said().len(), talk.station.tcp.counters().syns_dropped), (1, 2));
    talk.pass(ms(1));
}
