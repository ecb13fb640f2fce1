//! How sessions begin and how they are refused: calls of the bare machine (RFC 9293 §3.5, §3.10.1).

use crate::common::at_ms;
use crate::common::cable::Nature;
use crate::common::station::{Frame, SERVER_PORT, Sizes, Station, header};
use crate::common::world::{Role, World};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_base::{Page, RngKey};
use kiban_tcpip::steering::Steering;
use kiban_tcpip::tcp::{Config, Refusal, SessionId, State};
use kiban_tcpip::wire::tcp::{Flags, Sequence};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const REMOTE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 80);

fn station(config: Config) -> Station {
    Station::new(1, config, Sizes::default(), 7)
}

/// Opens a session from the port 4000.
fn open(station: &mut Station) -> SessionId {
    let local = SocketAddr::new(station.address, 4000);
    station.with(at_ms(1), |tcp, cx, _| tcp.open(local, REMOTE, 0, cx)).expect("the name is free")
}

#[test]
fn a_listener_of_one_address_precedes_a_wildcard_listener() {
    let mut world = World::plain(Nature::default(), 1);
    let any = SocketAddr::new(ANY, SERVER_PORT);
    // The world already listens on the station's own address.
    let general = world.stations[1].tcp.listen(any).unwrap();
    assert_eq!(world.stations[1].tcp.listen(any), Err(Refusal::AddressInUse));
    world.converse(Role::eager(10), Role::eager(10));
    world.run_until(|world| !world.accepted_by.is_empty());
    let special = world.accepted_by[0];
    assert_ne!(special, general);
    let now = world.now;
    assert!(world.stations[1].with(now, |tcp, cx, out| tcp.unlisten(special, cx, out)));
    world.converse(Role::eager(10), Role::eager(10));
    world.run().unwrap();
    assert_eq!(world.accepted_by, [special, general]);
}

#[test]
fn ports_are_chosen_from_the_dynamic_range_and_never_twice() {
    let mut station = station(Config::default());
    let local = SocketAddr::new(station.address, 0);
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..=16_384 {
        let opened = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, REMOTE, 0, cx));
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
fn shard_0_uses_the_ports_of_other_flows_once_its_own_are_taken() {
    // More than half of the ports. Shard 1 has only the ports whose flows lead to it.
    const CONNECTIONS: usize = 9500;
    for number in [0, 1] {
        let mut station = station(Config::default());
        let steering = Steering::new(2, RngKey::for_simulation(3));
        station.tcp.set_shard(number, steering);
        let local = SocketAddr::new(station.address, 0);
        let mut shards = Vec::new();
        for _ in 0..CONNECTIONS {
            match station.with(at_ms(1), |tcp, cx, _| tcp.open(local, REMOTE, 0, cx)) {
                Ok(session) => {
                    shards.push(steering.of_flow(station.tcp.info(session).unwrap().local, REMOTE));
                }
                Err(refusal) => assert_eq!(refusal, Refusal::TooMany),
            }
        }
        let own = shards.iter().take_while(|shard| **shard == number).count();
        assert!((7000..9400).contains(&own), "about half of all ports: {own}");
        assert_eq!(shards.len(), if number == 0 { CONNECTIONS } else { own });
    }
}

#[test]
fn invalid_requests_fail_with_the_reason() {
    let mut station = station(Config::default());
    let local = SocketAddr::new(station.address, 80);
    for (local, remote) in [
        (local, "[::1]:80".parse().unwrap()),
        (local, SocketAddr::new(REMOTE.ip(), 0)),
        (local, SocketAddr::new(ANY, 80)),
        (local, "224.0.0.1:80".parse().unwrap()),
        // A session needs an address of its own.
        (SocketAddr::new(ANY, 0), REMOTE),
    ] {
        let opened = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, remote, 0, cx));
        assert_eq!(opened, Err(Refusal::BadAddress), "{local} {remote}");
    }
    assert_eq!(station.tcp.listen(SocketAddr::new(local.ip(), 0)), Err(Refusal::BadAddress));
    let first = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, REMOTE, 0, cx));
    assert!(first.is_ok());
    let again = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, REMOTE, 0, cx));
    assert_eq!(again, Err(Refusal::AddressInUse));
    assert_eq!(Refusal::AddressInUse.to_string(), "that address and port are in use: choose another port");
}

#[test]
fn initial_sequence_numbers_advance_with_the_clock_and_differ_by_4_tuple() {
    let initial = |port, at| {
        let mut station = station(Config::default());
        let local = SocketAddr::new(station.address, port);
        station.with(at, |tcp, cx, _| tcp.open(local, REMOTE, 0, cx)).unwrap();
        station.settle(10, at);
        station.sent().expect("a SYN").sequence
    };
    // RFC 9293 §3.4.1: the initial sequence number advances every 4 us.
    assert_eq!(initial(1000, at_ms(0)).distance(initial(1000, at_ms(4))), 1000);
    assert_ne!(initial(1000, at_ms(0)), initial(1001, at_ms(0)));
}

#[test]
fn identifiers_of_ended_sessions_are_invalid() {
    let mut station = station(Config::default());
    let (old, now) = (open(&mut station), at_ms(1));
    station.with(now, |tcp, cx, out| tcp.abort(old, cx, out)).expect("a live session");
    station.settle(10, now);
    let mut page = station.memory.transmit.take().unwrap();
    let slice = page.append(b"x").unwrap();
    let (_, refusal) = station.tcp.send(old, slice).unwrap_err();
    assert_eq!(refusal, Refusal::UnknownSession);
    assert_eq!(station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert_eq!((station.tcp.room(old), station.tcp.info(old).is_none()), (0, true));
    let aborted = station.with(now, |tcp, cx, out| tcp.abort(old, cx, out));
    assert_eq!(aborted, Err(Refusal::UnknownSession));
    // The slot is reused. The old identifier still matches nothing, and does not affect the new session.
    let new = open(&mut station);
    assert_eq!(new.index(), old.index());
    station.with(now, |tcp, cx, out| tcp.consume(old, 1000, cx, out));
    assert_eq!(station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert!(station.tcp.info(old).is_none() && station.tcp.info(new).is_some());
}

#[test]
fn writes_beyond_the_buffer_or_after_the_shutdown_are_returned() {
    let config = Config { send_buffer_bytes: 5000, floor_bytes: 1000, ..Config::default() };
    let mut station = station(config);
    let session = open(&mut station);
    assert_eq!(station.tcp.room(session), 5000);
    let mut pages: Vec<Page> = (0..2).map(|_| station.memory.transmit.take().unwrap()).collect();
    let big = pages[0].append(&[1; 3000]).unwrap();
    let small = pages[1].append(&[2; 2500]).unwrap();
    station.tcp.send(session, big).unwrap();
    let (slice, refusal) = station.tcp.send(session, small).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::NoRoom));
    station.tcp.finish(session).unwrap();
    let (slice, refusal) = station.tcp.send(session, slice).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::Finished));
    drop((slice, pages));
    station.with(at_ms(1), |tcp, cx, out| tcp.abort(session, cx, out)).expect("a live session");
    station.settle(10, at_ms(1));
    station.drop_output();
    station.check_home();
}

#[test]
fn data_and_a_shutdown_are_accepted_before_the_session_is_open() {
    let mut station = station(Config::default());
    let (session, now) = (open(&mut station), at_ms(1));
    station.settle(10, now);
    let syn = station.sent().expect("a SYN");
    assert_eq!(station.write(session, &mut None, b"early"), Ok(5));
    station.tcp.finish(session).unwrap();
    station.settle(10, now);
    assert_eq!(station.sent(), None);
    let mut page = station.memory.transmit.take().unwrap();
    let (slice, refusal) = station.tcp.send(session, page.append(b"x").unwrap()).unwrap_err();
    assert_eq!((slice.len(), refusal), (1, Refusal::Finished));
    let answer = header(REMOTE.port(), Flags::SYN | Flags::ACK, Sequence(7), syn.sequence + 1);
    let answer = kiban_tcpip::wire::tcp::Header { target_port: 4000, ..answer };
    assert!(station.arrive(&Frame::of(REMOTE.ip(), station.address, &answer, b""), now));
    station.settle(10, now);
    let segment = station.out.down.pop_front().expect("the data");
    let frame = crate::common::station::frames_of(segment).remove(0);
    let (first, payload) = frame.header();
    assert_eq!(
        (first.sequence, first.acknowledgment, payload),
        (syn.sequence + 1, Sequence(8), &b"early"[..])
    );
    assert_eq!(first.flags, Flags::FIN | Flags::PSH | Flags::ACK);
    assert_eq!((station.sent(), station.tcp.info(session).unwrap().state), (None, State::FinWait1));
}
