//! Scripts about silence: keep-alive, timeouts, and TIME-WAIT (RFC 9293 §3.8.3, §3.8.4, §3.6.1; RFC 6191).

use crate::common::ms;
use crate::common::talk::*;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Refusal, State};
use kiban_tcpip::wire::tcp::{Header, Options, Sequence, Timestamps};

const SECOND: Duration = Duration::from_secs(1);

fn keeping() -> Config {
    Config {
        keep_alive: Some(SECOND * 100),
        keep_alive_interval: SECOND * 10,
        keep_alive_probes: 3,
        ..Config::default()
    }
}

#[test]
fn keep_alive_is_off_unless_the_host_enables_it() {
    let mut talk = Talk::established(Config::default());
    talk.pass(SECOND * 1_000_000);
    assert_eq!((talk.said().len(), talk.state()), (0, Some(State::Established)));
    let (id, now) = (talk.id(), talk.now);
    talk.station.tcp.set_timeouts(id, Some(SECOND * 7200), None).unwrap();
    talk.settle();
    // The silence before it counts.
    assert!(talk.station.tcp.deadline() <= now);
    talk.pass(SECOND);
    assert_eq!(talk.said_briefly(), ["ACK 0+0 ack 1"]);
}

#[test]
fn a_silent_peer_is_probed_with_snd_nxt_minus_1_and_times_out() {
    let mut talk = Talk::established(keeping());
    talk.write(b"x");
    talk.hear(seg(ACK, 1, 2, 60_000), b"");
    talk.said();
    talk.pass(SECOND * 99);
    assert_eq!(talk.said().len(), 0);
    talk.pass(SECOND * 2);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1"], "RFC 9293 §3.8.4: SND.NXT-1");
    talk.pass(SECOND * 20);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1"; 2]);
    talk.told();
    talk.pass(SECOND * 10);
    assert_eq!(
        (talk.told(), talk.said_briefly()),
        (vec!["gone: TimedOut".into()], vec!["RST ACK 2+0 ack 1".into()])
    );
    talk.check_home();
}

#[test]
fn an_answer_restarts_the_keep_alive_interval() {
    let mut talk = Talk::established(keeping());
    for _ in 0..5 {
        talk.pass(SECOND * 115);
        assert_eq!(talk.said().len(), 2);
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
    }
    assert_eq!(talk.state(), Some(State::Established));
    // A peer that sends is not probed.
    for _ in 0..10 {
        talk.pass(SECOND * 50);
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
    }
    assert_eq!(talk.said().len(), 0);
}

#[test]
fn a_keep_alive_of_the_peer_is_answered() {
    // With and without the byte that old ones carry.
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 0, 1, 60_000), b"");
    talk.hear(seg(ACK, 0, 1, 60_000), b"x");
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1"; 2]);
}

#[test]
fn time_wait_sends_no_keep_alive() {
    let config = Config { keep_alive: Some(SECOND * 5), keep_alive_interval: SECOND, ..Config::default() };
    let mut talk = Talk::established(config);
    talk.finish().unwrap();
    talk.hear(seg(ACK | FIN, 1, 2, 60_000), b"");
    assert_eq!(talk.state(), Some(State::TimeWait));
    talk.said();
    // A deadline without progress would be noticed here.
    talk.pass(SECOND * 59);
    assert_eq!((talk.said().len(), talk.state()), (0, Some(State::TimeWait)));
    talk.pass(SECOND * 2);
    talk.check_home();
}

#[test]
fn a_session_with_a_closed_window_is_dropped_when_memory_runs_out() {
    let closed = |config: Config| {
        let mut talk = Talk::established(config);
        talk.write(b"one");
        talk.hear(seg(ACK, 1, 4, 0), b"");
        talk.write(b"two");
        talk.told();
        talk
    };
    // The peer answers probes with a zero window.
    let wait = |talk: &mut Talk, seconds: u32| {
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

    // A FIN alone waits behind the window: it keeps nothing, and may wait.
    let mut talk = Talk::established(Config::default());
    talk.write(b"one");
    talk.hear(seg(ACK, 1, 4, 0), b"");
    talk.finish().unwrap();
    let _pages: Vec<_> = std::iter::from_fn(|| talk.station.memory.transmit.take()).collect();
    wait(&mut talk, 100);
    assert_eq!(talk.state(), Some(State::FinWait1));

    // Not before its time, and not where a board is to wait for ever.
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

#[test]
fn the_user_timeout_ends_a_session_with_unacknowledged_data() {
    let mut talk = Talk::established(Config { user_timeout: Some(SECOND * 30), ..Config::default() });
    talk.pass(SECOND * 1000);
    assert_eq!(talk.state(), Some(State::Established), "nothing waits");
    talk.write(b"one");
    talk.pass(SECOND * 29);
    talk.hear(seg(ACK, 1, 4, 60_000), b"");
    talk.write(b"two");
    talk.told();
    talk.pass(ms(29_900));
    assert_eq!(talk.state(), Some(State::Established));
    talk.pass(ms(200));
    assert_eq!(talk.told(), ["gone: TimedOut"]);
    assert!(talk.said_briefly().last().unwrap().starts_with("RST"));
    talk.check_home();
    // A closed window counts, though its peer answers (Linux).
    let mut talk = Talk::established(Config { user_timeout: Some(SECOND * 30), ..Config::default() });
    talk.hear(seg(ACK, 1, 1, 0), b"");
    talk.write(b"never");
    for _ in 0..31 {
        talk.pass(SECOND);
        talk.hear(seg(ACK, 1, 1, 0), b"");
    }
    assert_eq!(talk.told(), ["gone: TimedOut"]);
    // Our own SYN waits no longer, either.
    let mut talk = Talk::opening(Config { user_timeout: Some(SECOND * 5), ..Config::default() });
    talk.pass(SECOND * 6);
    assert_eq!(talk.told(), ["gone: TimedOut"]);
}

#[test]
fn fin_wait_2_of_a_closed_session_times_out() {
    for (closes, left) in [(true, None), (false, Some(State::FinWait2))] {
        let mut talk = Talk::established(Config { fin_wait_2: SECOND * 9, ..Config::default() });
        let (id, now) = (talk.id(), talk.now);
        if closes {
            talk.station.with(now, |tcp, cx, out| tcp.close(id, cx, out)).unwrap();
            talk.settle();
        } else {
            talk.finish().unwrap();
        }
        talk.hear(seg(ACK, 1, 2, 60_000), b"");
        assert_eq!(talk.state(), Some(State::FinWait2));
        talk.pass(SECOND * 8);
        assert_eq!(talk.state(), Some(State::FinWait2));
        talk.pass(SECOND * 2);
        assert_eq!(talk.state(), left);
    }
}

// ---- Names at rest
// ------------------------------------------------------------------------------------------------

/// A session at rest whose next byte is 101; the clock of the peer stood at 500 if it has one.
fn at_rest(stamped: bool) -> Talk {
    let stamps = |value| stamped.then_some(Timestamps { value, echo: 0 });
    let options = |value| Options { mss: Some(1000), timestamps: stamps(value), ..Options::NONE };
    let mut talk = Talk::listening(Config::default());
    let rest = Options { mss: None, ..options(500) };
    talk.hear(Header { options: options(500), ..seg(SYN, 0, 0, 60_000) }, b"");
    talk.hear(Header { options: rest, ..seg(ACK, 1, 1, 60_000) }, &bytes(99));
    talk.finish().unwrap();
    talk.hear(Header { options: rest, ..seg(ACK | FIN, 100, 2, 60_000) }, b"");
    assert_eq!(talk.state(), Some(State::TimeWait));
    talk.said();
    talk.told();
    talk
}

#[test]
fn a_new_syn_reuses_a_4_tuple_in_time_wait_if_it_cannot_be_old() {
    // RFC 6191 §2 and RFC 9293 §3.10.7.4: clock of the old, number and clock of the new, whether it is taken.
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
    for (stamped, sequence, clock, taken) in rows {
        let mut talk = at_rest(stamped);
        let last = talk.initial + 2;
        let timestamps = clock.map(|value| Timestamps { value, echo: 0 });
        let options = Options { mss: Some(1000), timestamps, ..Options::NONE };
        talk.hear(Header { options, ..seg(SYN, sequence, 0, 60_000) }, b"");
        let frame = talk.frames.last().expect("an answer").header().0;
        assert_eq!(frame.flags.has(SYN), taken, "{stamped} {sequence} {clock:?}");
        assert_eq!(talk.station.tcp.sessions(), 1);
        if taken {
            let apart = last.distance(frame.sequence);
            assert!((60_000..1 << 31).contains(&apart), "our numbers go on: {apart}");
            assert_eq!(frame.acknowledgment, PEER + sequence + 1);
        }
    }
}

#[test]
fn time_wait_is_kept_without_a_listener() {
    let mut talk = Talk::opening(Config::default());
    talk.hear(
        Header { options: Options { mss: Some(1000), ..Options::NONE }, ..seg(SYN | ACK, 0, 1, 9000) },
        b"",
    );
    talk.finish().unwrap();
    talk.hear(seg(ACK | FIN, 1, 2, 9000), b"");
    talk.said();
    talk.hear(seg(SYN, 1000, 0, 9000), b"");
    assert_eq!((talk.state(), talk.said_briefly()), (Some(State::TimeWait), vec!["ACK 2+0 ack 2".into()]));
}

#[test]
fn time_wait_entries_are_bounded_and_the_oldest_goes_first() {
    // As many as is said, and no more than a quarter of all sessions.
    for config in
        [Config { time_wait_max: 10, ..Config::default() }, Config { sessions_max: 40, ..Config::default() }]
    {
        ten_of_fifty_rest(config);
    }
}

fn ten_of_fifty_rest(config: Config) {
    let mut talk = Talk::listening(config);
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
fn closing_a_listener_resets_its_half_open_sessions() {
    let mut talk = Talk::new(Config::default());
    let listener = talk.station.tcp.listen(talk.local()).unwrap();
    talk.hear(seg(SYN, 0, 0, 8000), b"");
    talk.said();
    let now = talk.now;
    assert!(talk.station.with(now, |tcp, cx, out| tcp.unlisten(listener, cx, out)));
    talk.settle();
    assert_eq!((talk.said_briefly(), talk.told().len()), (vec!["RST ACK 1+0 ack 1".into()], 0));
    talk.check_home();
    assert!(!talk.station.with(now, |tcp, cx, out| tcp.unlisten(listener, cx, out)));
}

#[test]
fn a_session_needs_an_address_of_its_own() {
    let mut talk = Talk::new(Config::default());
    let (remote, now) = (talk.remote(), talk.now);
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let opened = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert_eq!(opened, Err(Refusal::BadAddress));
    assert_eq!(talk.initial, Sequence(0));
}
