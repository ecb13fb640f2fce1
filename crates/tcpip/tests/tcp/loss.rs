//! Talks and worlds about loss: the clock, fast retransmit, NewReno, and numbers that wrap
//! (RFC 6298, RFC 5681, RFC 6582).

use crate::common::cable::Nature;
use crate::common::ms;
use crate::common::station::{Sizes, frames_of};
use crate::common::talk::*;
use crate::common::world::{Role, World};
use core::time::Duration;
use kiban_base::Instant;
use kiban_tcpip::tcp::{Config, CongestionControl, LossDetection};
use kiban_tcpip::wire::tcp::Options;

/// NewReno by the letter of RFC 5681 and RFC 6582, without what came later.
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

/// A session with a window wide enough, and a round trip of 100 ms measured in the handshake.
fn talk() -> Talk {
    let mut talk = Talk::listening(newreno());
    talk.hear(
        kiban_tcpip::wire::tcp::Header {
            options: Options { mss: Some(1000), ..Options::NONE },
            ..seg(SYN, 0, 0, 60_000)
        },
        b"",
    );
    talk.pass(ms(100));
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    talk.said();
    talk.told();
    talk
}

fn duplicate(talk: &mut Talk, acknowledgment: u32) {
    talk.hear(seg(ACK, 1, acknowledgment, 60_000), b"");
}

// ---- The clock
// -----------------------------------------------------------------------------------------------------

#[test]
fn the_timeout_doubles_and_only_the_first_segment_is_retransmitted() {
    let mut talk = talk();
    talk.write(&bytes(5000));
    assert_eq!(talk.said().len(), 5);
    let begin = talk.now;
    let mut at = Vec::new();
    while talk.now.since(begin) < Duration::from_secs(12) {
        talk.pass(ms(100));
        for words in talk.said_briefly() {
            assert_eq!(words, "ACK 1+1000 ack 1");
            at.push(talk.now.since(begin).as_millis());
        }
    }
    // RFC 6298 §2.2: SRTT 100 ms, RTTVAR 50 ms: 300 ms.
    assert_eq!(at, [300, 900, 2100, 4500, 9300]);
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().congestion_window_bytes, 1000);
}

#[test]
fn after_a_timeout_the_window_grows_back_over_what_was_sent_before() {
    let mut talk = talk();
    talk.write(&bytes(5000));
    talk.said();
    talk.pass(ms(301));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1"]);
    // All but the first had been lost: slow start sends them again.
    duplicate(&mut talk, 1001);
    assert_eq!(talk.said_briefly(), ["ACK 1001+1000 ack 1", "ACK 2001+1000 ack 1"]);
    // The rest had arrived.
    duplicate(&mut talk, 5001);
    assert_eq!(talk.said().len(), 0);
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().outstanding_bytes, 0);
}

#[test]
fn a_session_with_a_silent_peer_times_out() {
    let mut talk = talk();
    talk.write(&bytes(5000));
    talk.pass(Duration::from_secs(2000));
    assert_eq!(talk.told(), ["doubtful 10.0.0.9", "gone: TimedOut"]);
    // RFC 9293 §3.8.3: not before 100 seconds.
    assert_eq!(talk.said().len(), 5 + 15);
    talk.check_home();
}

#[test]
fn a_new_acknowledgement_restarts_the_timer() {
    // RFC 6298 §5.3.
    let mut talk = talk();
    talk.write(&bytes(5000));
    for n in 1..5 {
        talk.pass(ms(250));
        duplicate(&mut talk, 1 + n * 1000);
    }
    assert_eq!(talk.station.tcp.counters().timeouts, 0);
    duplicate(&mut talk, 5001);
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.station.tcp.counters().timeouts, 0, "RFC 6298 §5.2: all is acknowledged");
}

#[test]
fn the_backed_off_timeout_stays_until_a_new_measurement() {
    // RFC 6298 §5: a path slower than the timeout must not be sent everything twice for ever.
    let mut world = World::plain(Nature { delay: ms(700), ..Nature::default() }, 4);
    world.converse(Role::eager(50_000), Role::eager(0));
    world.run().unwrap();
    let counters = world.stations[0].tcp.counters();
    assert!(counters.timeouts <= 2 && counters.retransmits <= 3, "{counters:?}");
}

#[test]
fn a_retransmitted_segment_gives_no_rtt_sample() {
    let mut talk = talk();
    talk.write(&bytes(1000));
    talk.pass(ms(301));
    assert_eq!(talk.said().len(), 2);
    talk.pass(ms(1));
    duplicate(&mut talk, 1001);
    let info = talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!(info.round_trip, ms(100), "Karn: neither 302 ms nor 1 ms");
    // The same when duplicates asked for it.
    let mut talk = self::talk();
    talk.write(&bytes(8000));
    talk.pass(ms(250));
    (0..3).for_each(|_| duplicate(&mut talk, 1));
    assert_eq!(talk.station.tcp.counters().fast_retransmits, 1);
    duplicate(&mut talk, 8001);
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().round_trip, ms(100));
}

#[test]
fn a_new_measurement_ends_the_back_off() {
    let mut talk = talk();
    talk.write(&bytes(1000));
    talk.pass(Duration::from_secs(5));
    duplicate(&mut talk, 1001);
    for n in 1..3 {
        talk.write(&bytes(1000));
        talk.pass(ms(100));
        duplicate(&mut talk, 1001 + 1000 * n);
    }
    talk.said();
    talk.write(&bytes(1000));
    talk.pass(ms(310));
    assert_eq!(talk.said().len(), 2, "sent, and sent again after 300 ms or less");
}

// ---- Duplicates
// ----------------------------------------------------------------------------------------------------

#[test]
fn the_third_duplicate_retransmits_the_first_segment_at_once() {
    let mut talk = talk();
    talk.write(&bytes(10_000));
    assert_eq!(talk.said().len(), 10);
    duplicate(&mut talk, 1);
    duplicate(&mut talk, 1);
    assert_eq!(talk.said().len(), 0);
    duplicate(&mut talk, 1);
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1"]);
    // RFC 5681 §3.2: ssthresh = 5000. The three segments by which it is inflated are counted as arrived
    // instead.
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().congestion_window_bytes, 5000);
    duplicate(&mut talk, 1);
    assert_eq!((talk.said().len(), talk.station.tcp.counters().fast_retransmits), (0, 1));
}

#[test]
fn acks_with_data_or_a_new_window_are_not_duplicates() {
    // RFC 5681 §2: no data, no FIN, the same window, something outstanding.
    type Way = fn(&mut Talk, u32);
    let ways: [Way; 4] = [
        |talk, n| talk.hear(seg(ACK, 1 + n, 1, 60_000), b"d"),
        |talk, n| talk.hear(seg(ACK, 1, 1, 60_000 - n as u16), b""),
        |talk, n| talk.hear(seg(ACK | FIN, 100 - n, 1, 60_000), b""),
        |talk, n| talk.hear(seg(ACK, 1, 1 + n, 60_000), b""),
    ];
    for (row, way) in ways.into_iter().enumerate() {
        let mut talk = talk();
        talk.write(&bytes(10_000));
        for n in 0..6 {
            way(&mut talk, n);
        }
        let counters = talk.station.tcp.counters();
        assert_eq!(counters.fast_retransmits, 0, "{row}: {counters:?}");
    }
    let mut talk = talk();
    (0..6).for_each(|_| duplicate(&mut talk, 1));
    assert_eq!(talk.station.tcp.counters().duplicate_acks, 0, "nothing is outstanding");
}

#[test]
fn newreno_fills_a_hole_an_acknowledgement_and_leaves_with_half_the_window() {
    // RFC 6582 §3.2: segments 1, 4 and 7 of ten are lost.
    let mut talk = talk();
    talk.write(&bytes(10_000));
    talk.said();
    (0..7).for_each(|_| duplicate(&mut talk, 1));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1"]);
    duplicate(&mut talk, 3001);
    assert_eq!(talk.said_briefly(), ["ACK 3001+1000 ack 1"]);
    duplicate(&mut talk, 6001);
    assert_eq!(talk.said_briefly(), ["ACK 6001+1000 ack 1"]);
    duplicate(&mut talk, 10_001);
    let info = talk.station.tcp.info(talk.id()).unwrap();
    // §3.2 step 3, option 1: min(ssthresh, max(FlightSize, SMSS) + SMSS).
    assert_eq!((info.congestion_window_bytes, info.outstanding_bytes), (2000, 0));
    let counters = talk.station.tcp.counters();
    assert_eq!((counters.timeouts, counters.retransmits, counters.fast_retransmits), (0, 3, 1));
}

#[test]
fn duplicates_in_recovery_send_new_data() {
    // RFC 5681 §3.2 step 4: each tells that a segment has left the network.
    let mut talk = talk();
    talk.write(&bytes(20_000));
    assert_eq!(talk.said().len(), 10);
    (0..9).for_each(|_| duplicate(&mut talk, 1));
    // 5000, of which the third duplicate leaves 7000 in the network and the ninth 1000: four new segments.
    let said = talk.said_briefly();
    assert_eq!(said.len(), 5);
    assert_eq!(said[1], "ACK 10001+1000 ack 1");
    assert_eq!(said[4], "ACK 13001+1000 ack 1");
}

#[test]
fn duplicates_after_a_timeout_do_not_signal_a_loss() {
    // RFC 6582 §3.2 step 1 and 5: nothing new below `recover`.
    let mut talk = talk();
    talk.write(&bytes(10_000));
    talk.pass(ms(301));
    duplicate(&mut talk, 5001);
    talk.said();
    (0..5).for_each(|_| duplicate(&mut talk, 5001));
    assert_eq!((talk.said().len(), talk.station.tcp.counters().fast_retransmits), (0, 0));
    duplicate(&mut talk, 10_001);
    talk.write(&bytes(4000));
    (0..5).for_each(|_| duplicate(&mut talk, 10_001));
    assert_eq!(talk.station.tcp.counters().fast_retransmits, 0, "exactly at `recover` is still old");
}

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
    // The 41st is lost; its repetition is the first behind the window that was out then.
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
// ---------------------------------------------------------------------------------------------

/// A moment at which the left station's first conversation begins just below 2^32: the initial number moves
/// with time.
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

#[test]
fn the_peers_sequence_numbers_wrap_between_out_of_order_segments() {
    // `PEER` is 4096 below the wrap.
    let mut talk = Talk::established(Config::default());
    let stream = bytes(9000);
    for n in (1..9).rev() {
        talk.hear(seg(ACK, 1 + 1000 * n, 1, 60_000), &stream[1000 * n as usize..][..1000]);
    }
    talk.hear(seg(ACK, 1, 1, 60_000), &stream[..1000]);
    assert_eq!(talk.got, stream);
    assert_eq!(talk.said_briefly().last().unwrap(), "ACK 1+0 ack 9001");
}
