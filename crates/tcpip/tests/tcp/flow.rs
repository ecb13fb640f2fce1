//! How much is sent and when: windows, probes, silly windows, Nagle, delayed acknowledgements
//! (RFC 9293 §3.8.6, RFC 1122 §4.2.3).

use crate::common::peer::*;
use crate::common::{at_ms, ms};
use kiban_tcpip::tcp::Config;
use kiban_tcpip::wire::tcp::Options;

fn mss(mss: u16) -> Options {
    Options { mss: Some(mss), ..Options::NONE }
}

// ---- Acknowledgements

#[test]
fn output_that_waits_for_the_port_is_sent_when_it_has_room() {
    let mut talk = Peer::established(Config::default());
    talk.room = 0;
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(100));
    talk.pass(ms(100));
    assert!(talk.said().is_empty() && talk.station.tcp.has_work(0));
    talk.room = 1;
    talk.settle();
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 101"]);
}

#[test]
fn settle_sends_no_more_than_the_port_has_room_for() {
    // New data, a retransmission and an acknowledgement are sent, one segment at a time.
    let mut talk = Peer::established(Config::default());
    talk.write(&bytes(4000));
    talk.write(&bytes(6000));
    talk.said();
    (0..2).for_each(|_| talk.hear(seg(ACK, 1, 1, 60_000), b""));
    talk.write(&bytes(9000));
    talk.said();
    talk.room = 1;
    for n in 0..8 {
        talk.arrive(seg(ACK, 1, 1, 60_000), b"");
        talk.arrive(seg(ACK, 1001 + 1000 * n, 1, 60_000), &bytes(1000));
        talk.settle();
        assert!(talk.said().len() <= 1);
    }
    talk.room = 1000;
    talk.settle();
    assert!(talk.said().len() > 1);
}

// ---- Nagle and silly windows

#[test]
fn large_segments_leave_whole_where_something_below_cuts() {
    let mut talk = Peer::established(Config { segment_bytes_max: 5500, ..Config::default() });
    let id = talk.id();
    assert_eq!(talk.station.tcp.writer(id).unwrap().grain(), 5000);
    let stream = bytes(9600);
    talk.write(&stream);
    let segments = talk.station.tcp.counters().segments_out;
    talk.hear(seg(ACK, 1, 9001, 60_000), b"");
    let frames = core::mem::take(&mut talk.frames);
    let sent: Vec<u8> = frames.iter().flat_map(|frame| frame.header().1.to_vec()).collect();
    assert_eq!(sent, stream);
    assert!(frames.iter().all(|frame| frame.header().1.len() <= 1000));
    // The board sends a SYN-ACK, then 1000 bytes (the first write's grain), then large segments.
    assert!(segments <= 5, "{segments}");
}

#[test]
fn single_bytes_do_not_advance_the_window() {
    // Every answer rounds the window up to a multiple of the scale. The rounding must not accumulate.
    for length in [1, 9, 1001] {
        let options = Options { window_shift: Some(0), ..mss(1000) };
        let mut talk = Peer::established_with(Config::default(), 60_000, options);
        talk.reads = false;
        for n in 0..300_000 / length {
            talk.hear(seg(ACK, 1 + n as u32 * length as u32, 1, 60_000), &bytes(length));
            if n % 100 == 0 {
                talk.pass(ms(50));
            }
            talk.frames.clear();
        }
        assert!((262_000..=262_144).contains(&talk.got.len()), "{}", talk.got.len());
    }
}

// ---- Closed windows

#[test]
fn a_reader_that_stops_for_100_seconds_loses_nothing() {
    use crate::common::cable::Nature;
    use crate::common::world::{Role, World};
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
    use crate::common::cable::Nature;
    use crate::common::world::{Role, World};
    let mut world = World::plain(Nature { delay: ms(1), ..Nature::default() }, 3);
    let reader = Role { read_max: 100, read_every: ms(1), ..Role::eager(0) };
    world.converse(Role::eager(400_000), reader);
    world.run().unwrap();
    let counters = world.stations[0].tcp.counters();
    assert!(counters.segments_out < 400_000 / 1460 + 60, "{}", counters.segments_out);
}
