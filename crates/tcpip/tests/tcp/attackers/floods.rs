//! Floods from many addresses: what they gain, and what they cost others (RFC 4953).

use crate::common::cable::Nature;
use crate::common::station::{Frame, SERVER_PORT, Sizes, Station, header};
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, SynCookies};
use kiban_tcpip::wire::tcp::{Flags, Sequence};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the address of one of a million hosts.
fn source(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n))
}

fn syn(station: &Station, source: IpAddr, port: u16) -> Frame {
    Frame::of(source, station.address, &header(port, Flags::SYN, Sequence(port.into()), Sequence(0)), b"")
}

fn listening(config: Config) -> Station {
    let mut station = Station::new(1, config, Sizes::default(), 1);
    station.tcp.listen(SocketAddr::new(station.address, SERVER_PORT)).expect("nobody listens yet");
    station
}

/// Without cookies, a SYN flood fills the backlog but nothing else: existing sessions continue, and new
/// connections are accepted once the half-open ones have expired.
#[test]
fn a_flood_without_cookies_keeps_newcomers_out_only_while_it_lasts() {
    let config = Config { syn_cookies: SynCookies::Off, ..Config::default() };
    let nature = Nature { delay: ms(1), ..Nature::default() };
    let mut world = World::new([config.clone(), config], [nature; 2], [Sizes::default(); 2], 3);
    let writer = Role { write_max: 700, write_every: ms(1), ..Role::eager(20_000) };
    world.converse(writer.after_peer(), Role::eager(0).after_peer());
    world.run_until(|world| world.apps[0][1].opened);
    for n in 0..100_000u32 {
        let frame = syn(&world.stations[1], source(n), 1 + (n % 60_000) as u16);
        assert!(world.stations[1].arrive(&frame, world.now));
        if n.is_multiple_of(1000) {
            // The world checks every byte of the stream.
            world.step().unwrap();
        }
    }
    assert_eq!(world.stations[1].tcp.sessions(), 1 + 128);
    assert_eq!(world.stations[1].tcp.counters().syns_dropped, 100_000 - 128);
    world.run_until(|world| world.apps[0][1].complete_at.is_some());
    while world.step().unwrap() {}
    assert!(world.now < at_ms(300_000), "{:?}", world.now);
    assert_eq!((world.stations[1].tcp.sessions(), world.apps[0][1].gone), (1, None), "the first one goes on");
    world.converse(Role::eager(5), Role::eager(0));
    world.run_until(|world| world.apps[1][1].complete_at.is_some());
}

/// Peers that open sessions and send nothing occupy one session each but no packet memory; beyond
/// `sessions_max`, further connections are refused and counted. Keep-alive removes sessions whose peers do
/// not answer.
#[test]
fn thousands_of_silent_sessions_hold_no_memory_and_go_when_they_do_not_answer() {
    let mut station = listening(Config {
        sessions_max: 3000,
        backlog: 4000,
        keep_alive: Some(SECOND * 60),
        keep_alive_interval: SECOND,
        keep_alive_probes: 2,
        ..Config::default()
    });
    let (blocks, now) = (station.memory.pdus.available(), at_ms(1000));
    for n in 0..5000 {
        let request = syn(&station, source(n), 7);
        assert!(station.arrive(&request, now));
        station.settle(1000, now);
        let Some(answer) = station.sent() else { continue };
        let ack = header(7, Flags::ACK, Sequence(8), answer.sequence + 1);
        assert!(station.arrive(&Frame::of(source(n), station.address, &ack, b""), now));
        station.settle(1000, now);
        station.drop_output();
    }
    assert_eq!(station.tcp.sessions(), 3000);
    assert_eq!(station.tcp.counters().syns_dropped, 2000);
    assert_eq!(station.memory.pdus.available(), blocks);
    assert_eq!(station.memory.receive.available(), station.memory.receive.capacity());
    station.idle(now, now + SECOND * 59);
    assert_eq!(station.tcp.sessions(), 3000);
    station.idle(now + SECOND * 59, now + SECOND * 70);
    station.check_home();
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_no_more() {
    let mut station = listening(Config::default());
    let now = at_ms(1000);
    for n in 0..50_000u32 {
        let request = syn(&station, source(n / 60_000), (n % 60_000) as u16 + 1);
        assert!(station.arrive(&request, now));
        if n % 100 == 0 {
            station.settle(1000, now);
            station.drop_output();
        }
    }
    assert_eq!(station.tcp.sessions(), 128);
    station.idle(now, now + SECOND * 300);
    station.check_home();
}
