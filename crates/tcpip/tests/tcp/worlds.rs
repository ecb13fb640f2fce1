//! Simulations: two TCP machines, seeded impairments, and applications with varied behaviour. Set
//! `KIBAN_TCP_SEEDS=10000` for a long campaign.

use crate::common::cable::Nature;
use crate::common::station::Sizes;
use crate::common::world::{Finish, Role, World};
use crate::common::{at_ms, ms, seeds, us};
use core::time::Duration;
use kiban_base::SimRng;
use kiban_tcpip::tcp::{Config, Ecn, Nagle};

fn one_of<T: Copy>(chance: &mut SimRng, choices: &[T]) -> T {
    choices[chance.below(choices.len() as u64) as usize]
}

fn some_config(chance: &mut SimRng) -> Config {
    let mss = one_of(chance, &[100, 536, 1000, 1460, 9140]);
    Config {
        mss,
        segment_bytes_max: one_of(chance, &[u32::from(mss), 20_000, 65_000]),
        send_buffer_bytes: one_of(chance, &[3_000, 20_000, 256 << 10]),
        receive_buffer_bytes: one_of(chance, &[2_000, 10_000, 65_535, 65_536, 256 << 10, 1 << 20]),
        floor_bytes: one_of(chance, &[4 << 10, 16 << 10]),
        nagle: one_of(chance, &[Nagle::Off, Nagle::Classic, Nagle::Minshall, Nagle::Minshall]),
        ecn: one_of(chance, &[Ecn::Off, Ecn::Accept, Ecn::On]),
        // In these runs, impairments do not abort sessions, and no FIN arrives after TIME-WAIT.
        rto_retries: 60,
        syn_retries: 60,
        time_wait: Duration::from_secs(7200),
        ..Config::default()
    }
}

fn some_nature(chance: &mut SimRng) -> Nature {
    let harm = one_of(chance, &[0.0, 0.01, 0.05, 0.2]);
    let mut some = |share: f64| if chance.happens(share) { harm } else { 0.0 };
    Nature {
        loss: some(0.7),
        duplication: some(0.4),
        reordering: some(0.5),
        corruption: some(0.3),
        marking: some(0.5),
        delay: one_of(chance, &[us(20), us(500), ms(10), ms(150), ms(700)]),
        rate: one_of(chance, &[0, 0, 1_000_000, 100_000_000]),
        port_frames: one_of(chance, &[0, 3, 64]),
        reordering_delay: one_of(chance, &[us(10), ms(3), ms(300)]),
        ..Nature::default()
    }
}

fn some_role(chance: &mut SimRng) -> Role {
    Role {
        bytes: one_of(chance, &[0, 1, 3_000, 40_000, 200_000]),
        write_max: one_of(chance, &[usize::MAX, usize::MAX, 5000, 300]),
        write_every: one_of(chance, &[Duration::ZERO, Duration::ZERO, us(100), ms(2)]),
        read_max: one_of(chance, &[usize::MAX, 3000, 20_000]),
        read_every: one_of(chance, &[Duration::ZERO, Duration::ZERO, ms(5), ms(50)]),
        stop_reading_at: one_of(chance, &[usize::MAX, usize::MAX, 2_000]),
        read_again_at: at_ms(one_of(chance, &[1, 5_000, 100_000])),
        finish: Finish::Written,
    }
}

/// The whole simulation is determined by one seed.
fn world_of(seed: u64) -> World {
    let mut chance = SimRng::from_seed(seed).fork(99);
    let configs = [some_config(&mut chance), some_config(&mut chance)];
    let natures = [some_nature(&mut chance), some_nature(&mut chance)];
    let sizes = [(); 2].map(|()| Sizes {
        page_bytes: one_of(&mut chance, &[1024, 4096]),
        receive_pages: one_of(&mut chance, &[100, 1024]),
        blocks: one_of(&mut chance, &[100, 1024]),
        ..Sizes::default()
    });
    let mut world = World::new(configs, natures, sizes, seed);
    for _ in 0..=chance.below(4) {
        let (left, right) = (some_role(&mut chance), some_role(&mut chance));
        let (left, right) = match chance.below(4) {
            0 => (left.after_peer(), right),
            1 => (left, right.after_peer()),
            _ => (left, right),
        };
        if chance.happens(0.25) {
            world.converse_from_both(left, right);
        } else {
            world.converse(left, right);
        }
    }
    world.frames_max *= 8;
    world
}

#[test]
fn a_hundred_worlds_with_impairments() {
    let mut failed = Vec::new();
    for seed in 0..seeds(100) {
        if let Err(fault) = world_of(seed).run() {
            println!("seed {seed}: {fault}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
#[ignore = "shows every frame of the world that KIBAN_TCP_SEEDS names"]
fn one_world_with_its_log() {
    let mut world = world_of(seeds(0));
    println!("{:?} {:?}", world.cables[0].nature, world.cables[1].nature);
    world.apps.iter().for_each(|[left, right]| println!("{:?}\n    {:?}", left.role, right.role));
    world.log = true;
    let result = world.run();
    world
        .stations
        .iter()
        .for_each(|station| println!("{:?} {:?}", station.tcp.config(), station.tcp.counters()));
    result.unwrap();
}

#[test]
fn closing_in_every_order() {
    let base = Role::eager(5000);
    let late = Role { write_every: ms(20), write_max: 500, ..base };
    for (left, right) in [
        (base, base),
        (base.after_peer(), base),
        (base, base.after_peer()),
        (late, base),
        (base, late),
        (late, base.after_peer()),
        (late.after_peer(), base),
        (Role::eager(0), base),
        (base, Role::eager(0)),
        (Role::eager(0), Role::eager(0)),
    ] {
        for both in [false, true] {
            let mut world = World::plain(Nature { delay: ms(5), ..Nature::default() }, 1);
            if both {
                world.converse_from_both(left, right);
            } else {
                world.converse(left, right);
            }
            world.run().unwrap_or_else(|fault| panic!("{left:?} {right:?} both {both}: {fault}"));
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_byte_for_byte() {
    let run = |seed| {
        let mut world = world_of(seed);
        let _ = world.run();
        (world.now, world.cables[0].frames, world.cables[1].frames, *world.stations[0].tcp.counters())
    };
    for seed in [3, 17] {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn the_canary_a_byte_changed_behind_the_checksum_is_seen() {
    let mut world = World::plain(Nature { delay: ms(1), treason: 0.05, ..Nature::default() }, 5);
    world.converse(Role::eager(200_000), Role::eager(0));
    let fault = world.run().expect_err("the stream is damaged");
    assert!(fault.contains("damaged"), "{fault}");
}

#[test]
fn the_canary_a_lost_session_is_seen() {
    let mut world = World::plain(Nature { delay: ms(1), ..Nature::default() }, 5);
    world.forgetful = true;
    world.converse(Role::eager(0), Role::eager(10_000));
    let fault = world.run().expect_err("nobody serves the session");
    assert!(fault.contains("idle") || fault.contains("no application"), "{fault}");
}

#[test]
fn the_canary_a_cable_that_carries_nothing_is_seen() {
    let mut world = World::plain(Nature { loss: 1.0, ..Nature::default() }, 5);
    world.converse(Role::eager(10), Role::eager(10));
    let fault = world.run().expect_err("nothing arrives");
    assert!(fault.contains("idle"), "{fault}");
}
