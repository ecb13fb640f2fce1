//! What off-path attackers can learn (RFC 6056), and errors of the network.

use crate::common::cable::Nature;
use crate::common::station::{Sizes, Station};
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_tcpip::tcp::{Config, Reason, Refusal};

#[test]
fn ephemeral_ports_are_random_and_skip_those_in_use() {
    // RFC 6056 §3.3.1.
    let config = Config { sessions_max: 20_000, ..Config::default() };
    let mut station = Station::new(1, config, Sizes::default(), 7);
    let local = SocketAddr::new(station.address, 0);
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 1)), 80);
    let mut open = || {
        station.with(at_ms(1), |tcp, cx, _| {
            tcp.open(local, remote, 0, cx).map(|id| tcp.info(id).expect("just opened").local.port())
        })
    };
    let ports: Vec<u16> = (0..16_384).map(|_| open().expect("a port is free")).collect();
    assert_eq!(open(), Err(Refusal::TooMany), "all are in use");
    let rising = ports[..1000].windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((400..600).contains(&rising), "{rising} of 999 are above the one before");
    let mut all = ports;
    all.sort_unstable();
    assert!(all.into_iter().eq(49_152..=65_535), "each once");
}

/// Reports to a station that the next hop to the other one is unreachable, or the next hop to another host.
fn next_hop_fails(world: &mut World, side: usize, is_that_way: bool) {
    let (now, ends) = (world.now, (world.stations[side].address, world.stations[1 - side].address));
    world.stations[side].with(now, |tcp, cx, out| {
        tcp.on_next_hop_unreachable(|source, target| is_that_way && (source, target) == ends, cx, out);
    });
    world.step().unwrap();
}

#[test]
fn an_unreachable_next_hop_fails_only_opens_through_it() {
    let new = || World::plain(Nature { delay: ms(5), ..Nature::default() }, 1);
    let mut world = new();
    world.converse(Role::eager(500), Role::eager(0));
    next_hop_fails(&mut world, 0, false);
    assert_eq!(world.apps[0][0].gone, None, "another way");
    next_hop_fails(&mut world, 0, true);
    assert_eq!(world.apps[0][0].gone, Some(Reason::Unreachable));
    world.stations[0].check_home();
    // RFC 1122 §4.2.3.9: an established connection continues, and so does a connection that a peer is
    // opening.
    let mut world = new();
    world.converse(Role::eager(500), Role::eager(500));
    world.run_until(|world| world.apps[0][0].opened);
    next_hop_fails(&mut world, 0, true);
    world.run().unwrap();
    let mut world = new();
    world.converse(Role::eager(500), Role::eager(500));
    world.run_until(|world| world.stations[1].tcp.sessions() == 1);
    assert!(!world.apps[0][1].opened);
    next_hop_fails(&mut world, 1, true);
    world.run().unwrap();
}
