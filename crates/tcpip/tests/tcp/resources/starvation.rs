//! Memory exhaustion: the n-th page or block allocation fails, or hardly any memory exists. Streams still
//! arrive.

use crate::common::cable::Nature;
use crate::common::station::Sizes;
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms};
use core::time::Duration;
use kiban_tcpip::tcp::Config;

/// Runs a short transfer in both directions, including the close; `refuse` selects the allocation that fails.
fn short(seed: u64, loss: f64, refuse: impl Fn(&mut World)) -> Result<World, String> {
    let mut world = World::plain(Nature { delay: ms(2), loss, ..Nature::default() }, seed);
    world.converse(Role::eager(60_000), Role { write_max: 900, ..Role::eager(20_000) });
    refuse(&mut world);
    world.run()?;
    Ok(world)
}

#[test]
fn sessions_survive_the_failure_of_any_block_allocation() {
    for side in 0..2 {
        for n in 1..=200 {
            let world = short(n, 0.0, |world| world.stations[side].memory.pdus.fail_nth_take(n))
                .unwrap_or_else(|fault| panic!("station {side}, block {n}: {fault}"));
            assert!(world.apps[0].iter().all(|app| app.complete_at.unwrap() < at_ms(3000)), "{side} {n}");
        }
    }
}

#[test]
fn sessions_survive_the_failure_of_any_receive_page_allocation() {
    for side in 0..2 {
        for n in 1..=200 {
            let world = short(n, 0.0, |world| world.stations[side].memory.receive.fail_nth_take(n))
                .unwrap_or_else(|fault| panic!("station {side}, page {n}: {fault}"));
            assert!(world.apps[0].iter().all(|app| app.complete_at.unwrap() < at_ms(3000)), "{side} {n}");
        }
    }
}

#[test]
fn sessions_survive_the_failure_of_any_transmit_page_allocation() {
    for side in 0..2 {
        for n in 1..=40 {
            short(n, 0.0, |world| world.stations[side].memory.transmit.fail_nth_take(n))
                .unwrap_or_else(|fault| panic!("station {side}, page {n}: {fault}"));
        }
    }
}

#[test]
fn recovery_survives_a_failed_allocation() {
    for n in 1..=200 {
        short(n, 0.05, |world| {
            world.stations[0].memory.pdus.fail_nth_take(n);
            world.stations[1].memory.pdus.fail_nth_take(n * 7 % 200 + 1);
            world.stations[1].memory.receive.fail_nth_take(n * 13 % 200 + 1);
        })
        .unwrap_or_else(|fault| panic!("{n}: {fault}"));
    }
}

#[test]
fn two_blocks_are_enough_for_a_transfer() {
    for blocks in [2, 3, 5] {
        let sizes = Sizes { blocks, ..Sizes::default() };
        let mut world =
            World::new([(); 2].map(|()| Config::default()), [Nature::default(); 2], [sizes; 2], 1);
        for cable in &mut world.cables {
            cable.nature = Nature { delay: ms(1), rate: 100_000_000, port_frames: 1, ..Nature::default() };
        }
        world.frames_max = 100_000;
        world.converse(Role::eager(30_000), Role::eager(30_000));
        world.run().unwrap_or_else(|fault| panic!("{blocks} blocks: {fault}"));
    }
}

#[test]
fn few_receive_pages_and_many_holes() {
    // Out-of-order data is freed first, so in-order data always finds a page.
    for seed in 0..20 {
        let sizes = Sizes { receive_pages: 24, ..Sizes::default() };
        let nature = Nature { delay: ms(2), loss: 0.05, ..Nature::default() };
        let config = Config { time_wait: Duration::from_secs(600), ..Config::default() };
        let mut world = World::new([config.clone(), config], [nature; 2], [sizes; 2], seed);
        for _ in 0..3 {
            world.converse(Role::eager(100_000), Role::eager(1000));
        }
        world.frames_max *= 4;
        world.run().unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn an_empty_pool_is_reported_and_the_writer_is_woken() {
    let mut world = World::plain(Nature { delay: ms(1), ..Nature::default() }, 1);
    world.converse(Role::eager(1000), Role::eager(0));
    let hoard: Vec<_> = core::iter::from_fn(|| world.stations[0].memory.pdus.take()).collect();
    for _ in 0..5 {
        assert!(world.step().unwrap());
    }
    assert!(world.stations[0].tcp.counters().no_memory >= 4);
    assert_eq!(world.now, at_ms(5), "it looks again every millisecond");
    drop(hoard);
    world.run().unwrap();
}
