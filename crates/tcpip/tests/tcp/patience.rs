//! Silence: keep-alive, timeouts, and TIME-WAIT (RFC 9293 §3.8.3, §3.8.4, §3.6.1; RFC 6191).

use crate::common::peer::*;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Refusal, State};
use kiban_tcpip::wire::tcp::Sequence;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_session_with_a_closed_window_is_dropped_when_memory_runs_out() {
    let closed = |config: Config| {
        let mut talk = Peer::established(config);
        talk.write(b"one");
        talk.hear(seg(ACK, 1, 4, 0), b"");
        talk.write(b"two");
        talk.told();
        talk
    };
    // The peer answers probes with a zero window.
    let wait = |talk: &mut Peer, seconds: u32| {
        for _ in 0..seconds {
            talk.pass(SECOND);
            if talk.state().is_some() {
                talk.hear(seg(ACK, 1, 4, 0), b"");
            }
        }
    };
    let mut talk = closed(Config::default());
    wait(&mut talk, 1000);
    assert_eq!(talk.state(), Some(State::Established), "MUST-37: others have pages");
    let pages: Vec<_> = std::iter::from_fn(|| talk.station.memory.transmit.take()).collect();
    talk.said();
    wait(&mut talk, 100);
    assert_eq!(talk.told(), ["gone: TimedOut"]);
    assert_eq!(talk.said_briefly().last().map(String::as_str), Some("RST ACK 4+0 ack 1"));
    assert_eq!(talk.station.tcp.counters().persist_sessions_aborted, 1);
    drop(pages);
    talk.check_home();

    // Only a FIN waits behind the window. It holds no memory, so it may wait.
    let mut talk = Peer::established(Config::default());
    talk.write(b"one");
    talk.hear(seg(ACK, 1, 4, 0), b"");
    talk.finish().unwrap();
    let _pages: Vec<_> = std::iter::from_fn(|| talk.station.memory.transmit.take()).collect();
    wait(&mut talk, 100);
    assert_eq!(talk.state(), Some(State::FinWait1));

    // The session is not aborted before the timeout, and never on a board that is configured to wait forever.
    for config in [
        Config { stuck_timeout: None, ..Config::default() },
        Config { memory_shares: false, ..Config::default() },
    ] {
        let mut talk = closed(config);
        let _pages: Vec<_> = std::iter::from_fn(|| talk.station.memory.transmit.take()).collect();
        wait(&mut talk, 100);
        assert_eq!(talk.state(), Some(State::Established));
    }
    let mut talk = closed(Config::default());
    let _pages: Vec<_> = std::iter::from_fn(|| talk.station.memory.transmit.take()).collect();
    wait(&mut talk, 9);
    assert_eq!(talk.state(), Some(State::Established));
}

// ---- TIME-WAIT

#[test]
fn time_wait_entries_are_bounded_and_the_oldest_goes_first() {
    // TIME-WAIT holds as many sessions as configured, but no more than a quarter of all.
    for config in
        [Config { time_wait_max: 10, ..Config::default() }, Config { sessions_max: 40, ..Config::default() }]
    {
        ten_of_fifty_rest(config);
    }
}

fn ten_of_fifty_rest(config: Config) {
    let mut talk = Peer::listening(config);
    for port in 0..50 {
        talk.peer_port = 6000 + port;
        talk.session = None;
        talk.hear(seg(SYN, 0, 0, 8000), b"");
        talk.initial = talk.frames.last().unwrap().header().0.sequence;
        talk.hear(seg(ACK, 1, 1, 8000), b"");
        talk.finish().unwrap();
        talk.hear(seg(ACK | FIN, 1, 2, 8000), b"");
        talk.pass(SECOND);
    }
    assert_eq!(talk.station.tcp.sessions(), 10);
    assert_eq!(talk.station.tcp.counters().time_wait_overflow, 40);
    let ports: Vec<_> = talk.station.tcp.infos().map(|info| info.remote.port()).collect();
    assert!(ports.iter().all(|port| *port >= 6040), "{ports:?}");
    talk.pass(SECOND * 61);
    talk.check_home();
}

#[test]
fn a_session_needs_an_address_of_its_own() {
    let mut talk = Peer::new(Config::default());
    let (remote, now) = (talk.remote(), talk.now);
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let opened = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert_eq!(opened, Err(Refusal::BadAddress));
    assert_eq!(talk.initial, Sequence(0));
}

#[test]
fn a_silent_peer_causes_negative_advice_once() {
    // RFC 9293 §3.8.3, R1: IP gets negative advice about the route before the session ends.
    let mut talk = Peer::opening(Config { syn_retries: 3, ..Config::default() });
    talk.pass(SECOND * 60);
    assert_eq!(talk.told(), ["doubtful 10.0.0.9", "gone: TimedOut"]);
    let mut talk = Peer::opening(Config { syn_retries: 3, ..Config::default() });
    talk.pass(SECOND * 14);
    assert_eq!(talk.told(), ["doubtful 10.0.0.9"]);
    let mut talk = Peer::established(Config::default());
    talk.write(&bytes(5000));
    talk.pass(SECOND * 2000);
    assert_eq!(talk.told(), ["doubtful 10.0.0.9", "gone: TimedOut"]);
    talk.check_home();
}
