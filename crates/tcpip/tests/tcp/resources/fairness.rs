//! Sessions and the backlog are shared among peer addresses.

use crate::common::at_ms;
use crate::common::station::{Frame, SERVER_PORT, Sizes, Station, header};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use kiban_base::Instant;
use kiban_tcpip::tcp::{Config, Fairness, SynCookies};
use kiban_tcpip::wire::tcp::{Flags, Sequence};

fn peer(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(11, 0, 0, last))
}

fn listening(config: Config) -> Station {
    let mut station = Station::new(1, config, Sizes::default(), 1);
    station.tcp.listen(SocketAddr::new(station.address, SERVER_PORT)).expect("nobody listens yet");
    station
}

/// Sends a SYN from a peer's port; returns whether it created a session.
fn request(station: &mut Station, from: IpAddr, port: u16) -> bool {
    let syn = header(port, Flags::SYN, Sequence(0), Sequence(0));
    assert!(station.arrive(&Frame::of(from, station.address, &syn, b""), at_ms(1000)));
    let remote = SocketAddr::new(from, port);
    let is_taken = station.tcp.infos().any(|info| info.remote == remote);
    station.settle(1000, at_ms(1000));
    station.drop_output();
    is_taken
}

fn without_cookies(fairness: Fairness) -> Config {
    Config { syn_cookies: SynCookies::Off, backlog: 32, fairness, ..Config::default() }
}

#[test]
fn a_full_backlog_makes_room_for_an_address_that_has_less_of_it() {
    let mut station = listening(without_cookies(Fairness::Address));
    // A sole address may use the whole backlog.
    let taken = (0..40).filter(|port| request(&mut station, peer(1), 1000 + port)).count();
    assert_eq!(taken, 32);
    for (address, port) in [(2, 1), (3, 1), (2, 2)] {
        assert!(request(&mut station, peer(address), port), "{address} {port}");
    }
    let counters = station.tcp.counters();
    assert_eq!((counters.half_open_evicted, counters.syns_dropped), (3, 8));
    assert_eq!(station.tcp.sessions(), 32);
    // The oldest went.
    let first = station.tcp.infos().filter(|info| info.remote.ip() == peer(1)).map(|info| info.remote.port());
    assert_eq!(first.min(), Some(1003));
    assert!(!request(&mut station, peer(1), 5000), "the address that has most gets no more");

    let mut station = listening(without_cookies(Fairness::Flow));
    (0..32).for_each(|port| assert!(request(&mut station, peer(1), 1000 + port)));
    assert!(!request(&mut station, peer(2), 1), "by flow nobody makes way");
}

#[test]
fn one_address_cannot_have_all_sessions() {
    let config = |fairness| Config { sessions_max: 64, backlog: 1000, fairness, ..Config::default() };
    let mut station = listening(config(Fairness::Address));
    let taken = (0..100).filter(|port| request(&mut station, peer(1), 1000 + port)).count();
    assert_eq!(taken, 56, "all but an eighth");
    assert_eq!(station.tcp.counters().sessions_limited_by_share, 44);
    let taken = (0..100).filter(|port| request(&mut station, peer(2), 1000 + port)).count();
    assert_eq!(taken, 7, "all but an eighth of what the first has left");
    assert!(request(&mut station, peer(3), 1));

    let mut station = listening(config(Fairness::Flow));
    let taken = (0..100).filter(|port| request(&mut station, peer(1), 1000 + port)).count();
    assert_eq!(taken, 64);
}

#[test]
fn the_addresses_of_one_ipv6_net_count_as_one() {
    let config = Config { sessions_max: 64, backlog: 1000, ..Config::default() };
    let mut station = Station::new(1, config, Sizes::default(), 1);
    let server: SocketAddr = "[2001:db8:9::1]:80".parse().unwrap();
    station.tcp.listen(server).unwrap();
    let net = |net: u16, host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host));
    let mut send = |from: IpAddr| {
        let before = station.tcp.sessions();
        let frame = Frame::of(from, server.ip(), &header(5000, Flags::SYN, Sequence(0), Sequence(0)), b"");
        assert!(station.arrive(&frame, Instant::ZERO));
        station.drop_output();
        station.tcp.sessions() > before
    };
    assert_eq!((0..100).filter(|host| send(net(1, *host))).count(), 56);
    assert!(send(net(2, 1)));
}
