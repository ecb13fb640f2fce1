//! Tests of units of any length, sent over X.25 and LAPB on a simulated line.

use crate::station::{Quality, World};
use kiban_base::{Bytes, Instant, Rope};
use kiban_osi::wire::lapb::Modulo;
use kiban_osi::x25::{Call, FastSelect, Indication, Request, Sizes};
use std::collections::VecDeque;
use std::time::Duration;

const CLEAN: Quality = Quality { bits_per_second: 2_000_000, delay: Duration::from_millis(5), impairment: 0 };

/// Makes calls on these channels, alternately from either end.
fn call(world: &mut World, channels: &[u16]) {
    let mut up = [Vec::new(), Vec::new()];
    let mut called = false;
    while up.iter().any(|up: &Vec<u16>| up.len() < channels.len()) {
        world.step();
        let is_ready = world.stations.iter().all(|station| station.layer.free_channel().is_some());
        for (number, station) in world.stations.iter_mut().enumerate() {
            while let Some(indication) = station.layer.poll_up() {
                match indication {
                    Indication::Incoming { channel, call } => {
                        assert_eq!(call.facilities.fast_select, FastSelect::No);
                        let accept = Request::Accept { channel, call: Call::default() };
                        station.layer.request(accept, world.now).expect("a call is pending");
                        up[number].push(channel);
                    }
                    Indication::Accepted { channel, .. } => up[number].push(channel),
                    Indication::Ready => called |= number == 0,
                    other => panic!("{other:?}"),
                }
            }
        }
        if called && is_ready {
            called = false;
            for channel in channels {
                let request = Request::Call { channel: *channel, call: Call::default() };
                world.stations[0].layer.request(request, world.now).expect("free");
            }
        }
    }
}

fn unit(way: usize, channel: u16, number: usize, length: usize) -> Bytes {
    let start = way * 91 + usize::from(channel) * 17 + number;
    (0..length).map(|at| (start + at * 7 + at / 256) as u8).collect::<Vec<u8>>().into()
}

/// Transfers `count` units in each direction on every channel; returns the time since the first packet.
fn exchange(world: &mut World, channels: &[u16], count: usize, length: usize, both: bool) -> Duration {
    let began = world.now;
    let mut expected: Vec<[VecDeque<Bytes>; 2]> = Vec::new();
    for channel in channels {
        let ways = [0, 1].map(|way| match way {
            1 if !both => VecDeque::new(),
            _ => (0..count).map(|number| unit(way, *channel, number, length + number)).collect(),
        });
        for (way, units) in ways.iter().enumerate() {
            for data in units {
                let data = Rope::from(data.clone());
                let request = Request::Data { channel: *channel, data, qualifier: false, delivery: false };
                world.stations[way].layer.request(request, world.now).expect("room");
            }
        }
        expected.push(ways);
    }
    let mut steps = 0;
    while expected.iter().flatten().any(|units| !units.is_empty()) {
        world.step();
        for (number, station) in world.stations.iter_mut().enumerate() {
            while let Some(indication) = station.layer.poll_up() {
                let Indication::Data { channel, data, .. } = indication else { panic!("{indication:?}") };
                let at = channels.iter().position(|of| *of == channel).expect("one of ours");
                let unit = expected[at][1 - number].pop_front().expect("not more than was sent");
                assert!(data == Rope::from(unit), "a unit on {channel} differs");
            }
        }
        steps += 1;
        assert!(steps < 5_000_000, "nothing moves at {:?}", world.now);
    }
    world.now.since(began)
}

#[test]
fn megabytes_cross_a_lossy_line() {
    for (seed, modulo) in [(1, Modulo::Eight), (2, Modulo::OneTwentyEight), (3, Modulo::Eight)] {
        let quality = Quality { impairment: 20, ..CLEAN };
        let mut world = World::new(modulo, Sizes::same(512, modulo.mask().min(20)), quality, seed);
        call(&mut world, &[1, 2, 3]);
        let resets = |world: &World| world.stations.each_ref().map(|station| station.link.counters().resets);
        let before = resets(&world);
        exchange(&mut world, &[1, 2, 3], 8, 100_000, true);
        assert_eq!(resets(&world), before);
        for station in &world.stations {
            assert_eq!(station.layer.counters().resets_for_errors, 0);
            assert!(station.link.counters().retransmits > 0, "the line lost no frame");
        }
    }
}

/// Measures what share of the line rate carries user data. A frame with 2048 octets of user data takes 2056
/// octets on the line, so the maximum is 99.6 %.
#[test]
fn packets_of_2048_in_a_window_of_7_fill_a_line_of_two_megabits() {
    let mut world = World::new(Modulo::Eight, Sizes::same(2048, 7), CLEAN, 4);
    call(&mut world, &[1]);
    let bytes = 4_000_000;
    let time = exchange(&mut world, &[1], 1, bytes, false);
    let share = bytes as f64 * 8.0 / time.as_secs_f64() / CLEAN.bits_per_second as f64;
    println!("one way: {:.2} % of the line", share * 100.0);
    assert!(share > 0.985, "{share} of the line's rate");
    // In both directions at once, acknowledgements are piggybacked on data packets.
    let time = exchange(&mut world, &[1], 1, bytes, true);
    let share = bytes as f64 * 8.0 / time.as_secs_f64() / CLEAN.bits_per_second as f64;
    println!("each of both ways: {:.2} % of the line", share * 100.0);
    assert!(share > 0.97, "{share} of the line's rate");
    assert!(world.now > Instant::ZERO);
}

#[test]
fn channels_share_a_line_evenly() {
    let mut world = World::new(Modulo::Eight, Sizes::same(256, 3), CLEAN, 5);
    let channels = [1, 2, 3, 4];
    call(&mut world, &channels);
    for channel in channels {
        let data = Rope::from(unit(0, channel, 0, 200_000));
        let request = Request::Data { channel, data, qualifier: false, delivery: false };
        world.stations[0].layer.request(request, world.now).expect("room");
    }
    let mut done = Vec::new();
    while done.len() < channels.len() {
        world.step();
        while let Some(indication) = world.stations[1].layer.poll_up() {
            let Indication::Data { channel, .. } = indication else { panic!("{indication:?}") };
            done.push((channel, world.now));
        }
    }
    let spread = done[3].1.since(done[0].1);
    assert!(spread < Duration::from_millis(50), "{done:?}");
}
