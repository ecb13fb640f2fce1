//! How much is sent and when: windows, probes, silly windows, Nagle, delayed acknowledgements
//! (RFC 9293 §3.8.6, RFC 1122 §4.2.3).

use crate::common::cable::Nature;
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms};

#[test]
fn settle_sends_no_more_than_the_port_has_room_for() {
    // The world checks this after each settle: here, with new data, retransmissions and acknowledgements.
    let nature = Nature { delay: ms(5), rate: 10_000_000, port_frames: 1, loss: 0.02, ..Nature::default() };
    let mut world = World::plain(nature, 3);
    world.converse(Role::eager(200_000), Role::eager(200_000));
    world.run().unwrap();
    for station in &world.stations {
        let counters = station.tcp.counters();
        assert!(counters.fast_retransmits > 0, "{counters:?}");
    }
}

// ---- Closed windows

#[test]
fn a_reader_that_stops_for_100_seconds_loses_nothing() {
    for loss in [0.0, 0.05] {
        let mut world = World::plain(Nature { delay: ms(5), loss, ..Nature::default() }, 3);
        let reader = Role { stop_reading_at: 100_000, read_again_at: at_ms(100_000), ..Role::eager(300_000) };
        world.converse(Role::eager(1_000_000), reader);
        world.run().unwrap();
        assert!(world.apps[0][1].complete_at.unwrap() > at_ms(100_000));
        let counters = world.stations[0].tcp.counters();
        assert!((3..30).contains(&counters.zero_window_probes), "{}", counters.zero_window_probes);
    }
}

#[test]
fn small_reads_do_not_cause_small_segments() {
    let mut world = World::plain(Nature { delay: ms(1), ..Nature::default() }, 3);
    let reader = Role { read_max: 100, read_every: ms(1), ..Role::eager(0) };
    world.converse(Role::eager(400_000), reader);
    world.run().unwrap();
    let counters = world.stations[0].tcp.counters();
    assert!(counters.segments_out < 400_000 / 1460 + 60, "{}", counters.segments_out);
}
