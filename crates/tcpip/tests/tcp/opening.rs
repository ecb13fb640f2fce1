//! How sessions begin and how they are refused (RFC 9293 §3.5, §3.10.7.1 to §3.10.7.3).

use crate::common::at_ms;
use crate::common::peer::*;
use crate::common::station::{Sizes, Station};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_tcpip::tcp::{Config, Refusal, State};
use kiban_tcpip::wire::tcp::{Header, Options};

fn options(mss: u16, shift: Option<u8>) -> Options {
    Options { mss: Some(mss), window_shift: shift, ..Options::NONE }
}

#[test]
fn a_listener_of_one_address_precedes_a_wildcard_listener() {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    let mut talk = Peer::new(Config::default());
    let local = talk.local();
    let general = talk.station.tcp.listen(any).unwrap();
    let special = talk.station.tcp.listen(local).unwrap();
    assert_eq!(talk.station.tcp.listen(any), Err(Refusal::AddressInUse));
    for (listener, expected) in [(special, "special"), (general, "general")] {
        talk.arrive(seg(SYN, 0, 0, 8000), b"");
        talk.settle();
        talk.initial = talk.frames.last().unwrap().header().0.sequence;
        talk.arrive(seg(ACK, 1, 1, 8000), b"");
        let accepted = talk.station.out.up.pop_front();
        match accepted {
            Some(kiban_tcpip::tcp::Indication::Accepted { listener: took, session, .. }) => {
                assert_eq!(took, listener, "{expected}");
                let now = talk.now;
                talk.station.with(now, |tcp, cx, out| tcp.abort(session, cx, out)).unwrap();
            }
            other => panic!("{other:?}"),
        }
        talk.settle();
        let now = talk.now;
        talk.station.with(now, |tcp, cx, out| tcp.unlisten(special, cx, out));
    }
}

#[test]
fn ports_are_chosen_from_the_dynamic_range_and_never_twice() {
    let mut station = Station::new(1, Config::default(), Sizes::default(), 7);
    let local = SocketAddr::new(station.address, 0);
    let remote = SocketAddr::new(PEER_ADDRESS, 80);
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..=16_384 {
        let opened = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, remote, 0, cx));
        match opened {
            Ok(session) => {
                let port = station.tcp.info(session).unwrap().local.port();
                assert!(port >= 49_152 && seen.insert(port), "{port}");
            }
            Err(refusal) => assert_eq!((n, refusal), (16_384, Refusal::TooMany)),
        }
    }
    assert_eq!(seen.len(), 16_384);
}

#[test]
fn invalid_requests_fail_with_the_reason() {
    let mut talk = Peer::new(Config::default());
    let v6 = SocketAddr::new("::1".parse().unwrap(), 80);
    let (local, remote, now) = (talk.local(), talk.remote(), talk.now);
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80);
    for (local, remote, refusal) in [
        (local, v6, Refusal::BadAddress),
        (local, SocketAddr::new(remote.ip(), 0), Refusal::BadAddress),
        (local, nobody, Refusal::BadAddress),
        (local, "224.0.0.1:80".parse().unwrap(), Refusal::BadAddress),
    ] {
        let opened = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
        assert_eq!(opened, Err(refusal));
    }
    assert_eq!(talk.station.tcp.listen(SocketAddr::new(local.ip(), 0)), Err(Refusal::BadAddress));
    let first = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert!(first.is_ok());
    let again = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert_eq!(again, Err(Refusal::AddressInUse));
    assert_eq!(Refusal::AddressInUse.to_string(), "that address and port are in use: choose another port");
}

#[test]
fn initial_sequence_numbers_advance_with_the_clock_and_differ_by_4_tuple() {
    let initial = |port, at| {
        let mut station = Station::new(1, Config::default(), Sizes::default(), 7);
        let local = SocketAddr::new(station.address, port);
        let remote = SocketAddr::new(PEER_ADDRESS, 80);
        station.with(at, |tcp, cx, _| tcp.open(local, remote, 0, cx)).unwrap();
        station.settle(10, at);
        let segment = station.out.down.pop_front().unwrap();
        crate::common::station::frames_of(segment)[0].header().0.sequence
    };
    // RFC 9293 §3.4.1: the initial sequence number advances every 4 us.
    assert_eq!(initial(1000, at_ms(0)).distance(initial(1000, at_ms(4))), 1000);
    assert_ne!(initial(1000, at_ms(0)), initial(1001, at_ms(0)));
}

#[test]
fn identifiers_of_ended_sessions_are_invalid() {
    let mut talk = Peer::established(Config::default());
    let old = talk.id();
    talk.abort();
    let mut page = talk.station.memory.transmit.take().unwrap();
    let slice = page.append(b"x").unwrap();
    let (_, refusal) = talk.station.tcp.send(old, slice).unwrap_err();
    assert_eq!(refusal, Refusal::UnknownSession);
    assert_eq!(talk.station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert_eq!((talk.station.tcp.room(old), talk.station.tcp.info(old).is_none()), (0, true));
    let now = talk.now;
    let aborted = talk.station.with(now, |tcp, cx, out| tcp.abort(old, cx, out));
    assert_eq!(aborted, Err(Refusal::UnknownSession));
    // The slot is reused. The old identifier still matches nothing, and does not affect the new session.
    let (local, remote) = (talk.local(), talk.remote());
    let new = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx)).unwrap();
    assert_eq!(new.index(), old.index());
    talk.station.with(now, |tcp, cx, out| tcp.consume(old, 1000, cx, out));
    assert_eq!(talk.station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert!(talk.station.tcp.info(old).is_none() && talk.station.tcp.info(new).is_some());
}

#[test]
fn writes_beyond_the_buffer_or_after_the_shutdown_are_returned() {
    let mut talk =
        Peer::established(Config { send_buffer_bytes: 5000, floor_bytes: 1000, ..Config::default() });
    assert_eq!(talk.station.tcp.room(talk.id()), 5000);
    let mut pages: Vec<_> = (0..2).map(|_| talk.station.memory.transmit.take().unwrap()).collect();
    let big = pages[0].append(&bytes(3000)).unwrap();
    let small = pages[1].append(&bytes(2500)).unwrap();
    talk.station.tcp.send(talk.id(), big).unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), small).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::NoRoom));
    talk.finish().unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), slice).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::Finished));
    drop((slice, pages));
    talk.abort();
    talk.check_home();
}

#[test]
fn data_and_a_shutdown_are_accepted_before_the_session_is_open() {
    let mut talk = Peer::opening(Config::default());
    talk.said();
    talk.write(b"early");
    talk.finish().unwrap();
    assert_eq!(talk.said(), [""; 0]);
    let mut page = talk.station.memory.transmit.take().unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), page.append(b"x").unwrap()).unwrap_err();
    assert_eq!((slice.len(), refusal), (1, Refusal::Finished));
    talk.hear(Header { options: options(1000, None), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+5 ack 1"]);
    assert_eq!(talk.state(), Some(State::FinWait1));
}
