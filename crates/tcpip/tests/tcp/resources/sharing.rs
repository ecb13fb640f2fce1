//! Simulations of sharing: a fast path filled by one session; a slow port and a small memory shared by many.

use crate::common::cable::Nature;
use crate::common::station::Sizes;
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms, us};
use core::time::Duration;
use kiban_tcpip::tcp::Config;

/// Returns the payload rate of one connection from left to right, from its first byte written to its last
/// byte received, bit/s.
fn rate_of(config: Config, nature: Nature, bytes: usize) -> f64 {
    let sizes = Sizes { receive_pages: 4096, transmit_pages: 4096, blocks: 8192, ..Sizes::default() };
    let mut world = World::new([config.clone(), config], [nature; 2], [sizes; 2], 1);
    world.converse(Role::eager(bytes), Role::eager(0));
    world.run().unwrap();
    bytes as f64 * 8.0 / world.apps[0][1].complete_at.unwrap().as_secs_f64()
}

#[test]
fn a_48_kb_window_fills_a_path_of_135_megabits_and_a_millisecond() {
    // The link of paper [1]: the maximum rate is 135 Mbit/s, less the headers.
    for (mss, segment_bytes_max, port_frames) in
        [(1460, 1460, 16), (9140, 9140, 8), (1460, 11_680, 32), (9140, 9140, 0)]
    {
        let config = Config { mss, segment_bytes_max, receive_buffer_bytes: 48 << 10, ..Config::default() };
        let nature = Nature { delay: us(500), rate: 135_000_000, port_frames, ..Nature::default() };
        let rate = rate_of(config, nature, 16_000_000);
        let limit = 135e6 * f64::from(mss) / (f64::from(mss) + 60.0);
        assert!(rate > 0.99 * limit, "mss {mss}: {rate:.0} of {limit:.0}");
    }
}

#[test]
fn one_window_per_round_trip_limits_a_long_path() {
    let window = 33 * 1460;
    let config = Config { receive_buffer_bytes: window, timestamps: false, ..Config::default() };
    let nature = Nature { delay: ms(10), ..Nature::default() };
    let rate = rate_of(config, nature, 16_000_000);
    let limit = f64::from(window) * 8.0 / 0.020;
    assert!(rate > 0.99 * limit, "{rate:.0} of {limit:.0}");
}

#[test]
fn sixty_sessions_share_a_slow_port_evenly() {
    for (segment_bytes_max, delay) in [(1460, us(100)), (1460, ms(20)), (14_600, ms(1))] {
        let config = Config { segment_bytes_max, ..Config::default() };
        let nature = Nature { delay, rate: 20_000_000, port_frames: 4, ..Nature::default() };
        let sizes = Sizes { transmit_pages: 8192, receive_pages: 4096, blocks: 4096, ..Sizes::default() };
        let mut world = World::new([config.clone(), config], [nature; 2], [sizes; 2], 2);
        for _ in 0..60 {
            world.converse(Role::eager(2_000_000), Role::eager(0));
        }
        while world.now < at_ms(20_000) {
            assert!(world.step().unwrap());
        }
        let got: Vec<usize> = world.apps.iter().map(|apps| apps[1].got.len()).collect();
        let (least, most) = (*got.iter().min().unwrap(), *got.iter().max().unwrap());
        assert!(most * 10 <= least * 11, "{least} to {most}: {got:?}");
        // The port is fully used: 20 Mbit/s for 20 s.
        let total = got.iter().sum::<usize>() as f64 * 8.0;
        assert!(total > 0.93 * 20e6 * 20.0 * 1460.0 / 1520.0, "{total}");
    }
}

/// Returns sixty sessions with windows and buffers of 256 KB over 8 MB.
fn sixty(readers: impl Fn(usize) -> Role, bytes: usize) -> World {
    // No session is aborted in favour of others, because this test is about the memory that sessions hold.
    let config = Config { stuck_timeout: None, ..Config::default() };
    let nature = Nature { delay: ms(5), rate: 200_000_000, port_frames: 16, ..Nature::default() };
    // The ledger counts bytes but the pool counts pages, and segments do not fill their pages. So only 8 MB
    // of 10 MB are promised.
    let pages = 6827;
    let sizes = Sizes {
        transmit_pages: pages,
        receive_pages: pages,
        page_bytes: 1536,
        blocks: 4096,
        ledger_percent: 80,
    };
    let mut world = World::new([config.clone(), config], [nature; 2], [sizes; 2], 3);
    for n in 0..60 {
        world.converse(Role::eager(bytes), readers(n));
    }
    world
}

#[test]
fn sixty_windows_of_256_kb_over_8_mb_do_not_starve_a_session() {
    let slow = Role { read_max: 20_000, read_every: ms(50), ..Role::eager(0) };
    let mut world = sixty(|_| slow, 1_000_000);
    world.run().unwrap();
    let ends: Vec<f64> = world.apps.iter().map(|apps| apps[1].complete_at.unwrap().as_secs_f64()).collect();
    let last = ends.iter().copied().fold(0.0, f64::max);
    // Each session reads 400 kB/s, so it takes 2.5 s.
    assert!(last < 4.0, "{ends:?}");
    let counters = world.stations[0].tcp.counters();
    assert_eq!((counters.timeouts, counters.fast_retransmits), (0, 0), "{counters:?}");
}

#[test]
fn readers_that_stop_hold_their_share_and_the_others_go_on() {
    let stopped = Role { stop_reading_at: 0, read_again_at: at_ms(60_000), ..Role::eager(0) };
    let mut world = sixty(|n| if n % 2 == 0 { stopped } else { Role::eager(0) }, 1_000_000);
    while world.now < at_ms(10_000) {
        assert!(world.step().unwrap());
    }
    for (n, apps) in world.apps.iter().enumerate() {
        let complete = apps[1].complete_at.is_some();
        assert_eq!(complete, n % 2 == 1, "conversation {n}, {} bytes", apps[1].got.len());
    }
    // A new session is served even though half of the sessions hold all they may.
    let newcomer = world.converse(Role::eager(500_000), Role::eager(500_000));
    let end = world.now + Duration::from_secs(3);
    while world.now < end {
        assert!(world.step().unwrap());
    }
    assert!(world.apps[newcomer].iter().all(|app| app.complete_at.is_some()));
    world.run().unwrap();
}

#[test]
fn a_hundred_sessions_on_a_port_of_one_frame() {
    let nature = Nature { delay: ms(1), rate: 10_000_000, port_frames: 1, ..Nature::default() };
    let config = Config { time_wait: Duration::from_secs(1), ..Config::default() };
    let mut world = World::new([config.clone(), config], [nature; 2], [Sizes::default(); 2], 3);
    for _ in 0..100 {
        world.converse(Role::eager(10_000), Role::eager(10_000));
    }
    world.run().unwrap();
}
