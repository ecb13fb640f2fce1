//! Segments that no correct peer sends must not cause a panic or affect other sessions.

use crate::common::cable::Nature;
use crate::common::station::{Frame, SERVER_PORT, Sizes, Station, frames_of, header};
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms, seeds};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_base::SimRng;
use kiban_tcpip::tcp::Config;
use kiban_tcpip::wire::tcp::{Flags, Sequence};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));

fn pick<T: Copy>(chance: &mut SimRng, choices: &[T]) -> T {
    choices[chance.below(choices.len() as u64) as usize]
}

fn garbage(chance: &mut SimRng, most: u64) -> Vec<u8> {
    (0..chance.below(most + 1)).map(|_| chance.draw() as u8).collect()
}

/// Returns a malformed frame, from pure noise to almost valid.
fn nonsense(chance: &mut SimRng, source: IpAddr, target: IpAddr, ports: (u16, u16)) -> Frame {
    let mut frame = Frame { source, target, traffic_class: 0, bytes: garbage(chance, 200) };
    if frame.bytes.len() >= 20 && chance.happens(0.9) {
        frame.bytes[0..2].copy_from_slice(&ports.0.to_be_bytes());
        frame.bytes[2..4].copy_from_slice(&ports.1.to_be_bytes());
        if chance.happens(0.7) {
            // The header length is possible for the segment, but the bytes there are not an option list.
            frame.bytes[12] = (5 + chance.below(11) as u8) << 4;
        }
        if chance.happens(0.9) {
            frame.seal();
        }
    }
    frame
}

#[test]
fn random_segments_do_not_affect_other_sessions() {
    for seed in 0..seeds(10) {
        let mut chance = SimRng::from_seed(seed).fork(5);
        let mut world = World::plain(Nature { delay: ms(5), loss: 0.01, ..Nature::default() }, seed);
        world.frames_max = 1 << 40;
        for _ in 0..3 {
            world.converse(Role::eager(100_000), Role::eager(100_000));
        }
        let mut more = true;
        while more {
            more = world.step().unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            if world.now > at_ms(10_000) {
                break;
            }
            for side in 0..2 {
                let target = world.stations[side].address;
                // A blind attacker knows the addresses and ports of the others, but not their sequence
                // numbers.
                let source = pick(&mut chance, &[STRANGER, world.stations[1 - side].address]);
                let client = 20_000 + chance.below(3) as u16;
                let server = pick(&mut chance, &[SERVER_PORT, 81]);
                let ports = if side == 1 { (client, server) } else { (server, client) };
                for _ in 0..chance.below(4) {
                    let frame = nonsense(&mut chance, source, target, ports);
                    world.stations[side].arrive(&frame, world.now);
                }
            }
        }
        for apps in &world.apps {
            assert!(apps.iter().all(|app| app.complete_at.is_some()), "seed {seed}");
        }
        world.stations.iter_mut().for_each(|station| {
            let counters = station.tcp.counters();
            assert!(counters.checksum_errors > 0 && counters.malformed > 0, "{counters:?}");
        });
    }
}

#[test]
fn a_session_with_oneself_does_not_hang() {
    // A SYN whose source is its target (the "LAND" attack).
    let mut station = Station::new(1, Config::default(), Sizes::default(), 1);
    let (own, now) = (station.address, at_ms(1000));
    station.tcp.listen(SocketAddr::new(own, SERVER_PORT)).expect("nobody listens yet");
    let syn = header(SERVER_PORT, Flags::SYN, Sequence(77), Sequence(0));
    let mut frames = vec![Frame::of(own, own, &syn, b"")];
    let mut turns = 0;
    while !frames.is_empty() {
        assert!(turns < 100, "it quarrels with itself");
        turns += 1;
        frames.iter().for_each(|frame| assert!(station.arrive(frame, now)));
        station.settle(1000, now);
        frames = station.out.down.drain(..).flat_map(frames_of).collect();
    }
    assert!(turns > 1, "the SYN is answered");
}
