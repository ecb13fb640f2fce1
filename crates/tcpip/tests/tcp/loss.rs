//! Loss: the RTO, fast retransmit, NewReno, and sequence numbers that wrap (RFC 6298, RFC 5681, RFC 6582).

use crate::common::cable::Nature;
use crate::common::ms;
use crate::common::station::{Sizes, frames_of};
use crate::common::world::{Role, World};
use kiban_base::Instant;
use kiban_tcpip::tcp::{Config, CongestionControl, LossDetection};

/// NewReno exactly as in RFC 5681 and RFC 6582, without later additions.
fn newreno() -> Config {
    Config {
        congestion: CongestionControl::Reno,
        loss_detection: LossDetection::NewReno,
        proportional_rate_reduction: false,
        limited_transmit: false,
        sack: false,
        ..Config::default()
    }
}

// ---- The timer

#[test]
fn the_backed_off_timeout_stays_until_a_new_measurement() {
    // RFC 6298 §5: if the path is slower than the timeout, data must not be sent twice forever.
    let mut world = World::plain(Nature { delay: ms(700), ..Nature::default() }, 4);
    world.converse(Role::eager(50_000), Role::eager(0));
    world.run().unwrap();
    let counters = world.stations[0].tcp.counters();
    assert!(counters.timeouts <= 2 && counters.retransmits <= 3, "{counters:?}");
}

// ---- Duplicates

#[test]
fn several_holes_in_one_window_are_recovered_without_a_timeout() {
    for burst in [0, 10_000_000] {
        let mut world = World::plain(Nature { delay: ms(10), rate: burst, ..Nature::default() }, 9);
        world.cables[0].doomed = vec![41, 44, 45, 50];
        world.converse(Role::eager(300_000), Role::eager(0));
        world.run().unwrap();
        let counters = world.stations[0].tcp.counters();
        assert_eq!((counters.timeouts, counters.fast_retransmits), (0, 1), "{counters:?}");
        assert_eq!(counters.retransmits, 4);
    }
}

#[test]
fn a_lost_retransmission_waits_for_the_timer() {
    let nature = Nature { delay: ms(10), ..Nature::default() };
    let mut world = World::new([newreno(), newreno()], [nature; 2], [Sizes::default(); 2], 9);
    // The 41st segment is lost; its retransmission is the first segment after the window outstanding at that
    // time.
    world.cables[0].doomed = (41..=41).chain(71..=90).collect();
    world.converse(Role::eager(300_000), Role::eager(0));
    world.run().unwrap();
    assert!(world.stations[0].tcp.counters().timeouts >= 1);
}

#[test]
fn slow_start_doubles_a_round_trip_and_one_acknowledgement_for_a_burst_does_not_hinder_it() {
    let mut world = World::plain(Nature { delay: ms(50), ..Nature::default() }, 9);
    let rounds =
        std::rc::Rc::new(core::cell::RefCell::new(std::collections::BTreeMap::<Instant, usize>::new()));
    let seen = rounds.clone();
    world.watch = Some(Box::new(move |now, side, frame| {
        if side == 0 && !frame.header().1.is_empty() {
            *seen.borrow_mut().entry(now).or_default() += 1;
        }
    }));
    world.converse(Role::eager(300_000), Role::eager(0));
    world.run().unwrap();
    let rounds: Vec<usize> = rounds.borrow().values().copied().collect();
    assert_eq!(rounds[..4], [10, 20, 40, 80]);
}

// ---- Numbers that wrap

/// Returns a time at which the left station's first connection begins just below 2^32: the initial sequence
/// number moves with time.
fn moment_before_the_wrap(world: impl Fn(Instant) -> World, below: u32) -> Instant {
    let mut probe = world(Instant::ZERO);
    probe.converse(Role::eager(0), Role::eager(0));
    probe.stations[0].settle(10, Instant::ZERO);
    let syn = frames_of(probe.stations[0].out.down.pop_front().unwrap()).remove(0);
    let steps = (0u32.wrapping_sub(below)).wrapping_sub(syn.header().0.sequence.0);
    Instant::from_nanos(u64::from(steps) * 4000)
}

#[test]
fn our_sequence_numbers_wrap() {
    for loss in [0.0, 0.03] {
        for below in [0, 1, 2, 1000, 30_000, 100_000] {
            let world = |now| {
                let nature = Nature { delay: ms(5), loss, ..Nature::default() };
                let mut world = World::plain(nature, 11);
                world.now = now;
                world
            };
            let begin = moment_before_the_wrap(world, below);
            let mut world = world(begin);
            let crossed = std::rc::Rc::new(core::cell::Cell::new(0u32));
            let seen = crossed.clone();
            world.watch = Some(Box::new(move |_, side, frame| {
                let sequence = frame.header().0.sequence.0;
                if side == 0 {
                    seen.set(seen.get() | if sequence > 0xf000_0000 { 1 } else { 2 });
                }
            }));
            world.until = Instant::NEVER;
            world.converse(Role::eager(200_000), Role::eager(50_000));
            world.run().unwrap_or_else(|fault| panic!("{below}: {fault}"));
            assert!(below < 2 || crossed.get() == 3, "{below}");
        }
    }
}
