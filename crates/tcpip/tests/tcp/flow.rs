//! Talks about how much is sent and when: windows, probes, silly windows, Nagle, delayed acknowledgements
//! (RFC 9293 §3.8.6, RFC 1122 §4.2.3).

use crate::common::talk::*;
use crate::common::{at_ms, ms};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Nagle, State};
use kiban_tcpip::wire::tcp::{Header, Options};

fn mss(mss: u16) -> Options {
    Options { mss: Some(mss), ..Options::NONE }
}

// ---- Acknowledgements
// ----------------------------------------------------------------------------------------------

#[test]
fn one_segment_is_acknowledged_after_40_ms_and_two_at_once() {
    let mut talk = Talk::established(Config::default());
    let begin = talk.now;
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.pass(ms(39));
    assert_eq!(talk.said().len(), 0);
    talk.pass(ms(1));
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1001"]);
    assert_eq!(talk.now.since(begin), ms(40));
    talk.hear(seg(ACK, 1001, 1, 60_000), &bytes(1000));
    assert_eq!(talk.said().len(), 0);
    talk.hear(seg(ACK, 2001, 1, 60_000), &bytes(1000));
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 3001"]);
    talk.pass(ms(100));
    assert_eq!((talk.said().len(), talk.station.tcp.counters().delayed_acks), (0, 1));
}

#[test]
fn output_that_waits_for_the_port_is_sent_when_it_has_room() {
    let mut talk = Talk::established(Config::default());
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
    // New data, data to be sent again and an acknowledgement, one segment at a time.
    let mut talk = Talk::established(Config::default());
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

#[test]
fn a_burst_is_acknowledged_once() {
    let mut talk = Talk::established(Config::default());
    for n in 0..20 {
        talk.arrive(seg(ACK, 1 + 1000 * n, 1, 60_000), &bytes(1000));
    }
    talk.settle();
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 20001"]);
}

#[test]
fn data_carries_the_acknowledgement() {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 1, 1, 60_000), b"question");
    talk.write(b"answer");
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+6 ack 9"]);
    talk.pass(ms(100));
    assert_eq!(talk.said().len(), 0);
}

#[test]
fn pure_acknowledgements_are_not_acknowledged() {
    let mut talk = Talk::established(Config::default());
    for _ in 0..10 {
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
    }
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.said().len(), 0);
}

// ---- Nagle and silly windows
// ---------------------------------------------------------------------------------------

#[test]
fn nagle_holds_short_segments_back_while_data_is_out() {
    for (nagle, expected) in [
        (Nagle::Classic, &["PSH ACK 1+10 ack 1", "PSH ACK 11+20 ack 1"][..]),
        (Nagle::Off, &["PSH ACK 1+10 ack 1", "PSH ACK 11+10 ack 1", "PSH ACK 21+10 ack 1"][..]),
    ] {
        let mut talk = Talk::established(Config { nagle, ..Config::default() });
        for _ in 0..3 {
            talk.write(&bytes(10));
        }
        talk.hear(seg(ACK, 1, 11, 60_000), b"");
        assert_eq!(talk.said_briefly(), expected);
    }
}

#[test]
fn nagle_lets_full_segments_go_and_keeps_the_rest() {
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(2500));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1"]);
    talk.hear(seg(ACK, 1, 2001, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["PSH ACK 2001+500 ack 1"]);
}

#[test]
fn a_shutdown_sends_delayed_data() {
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(1500));
    talk.said();
    talk.finish().unwrap();
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1001+500 ack 1"]);
}

#[test]
fn short_writes_become_full_segments() {
    let mut talk = Talk::established(Config::default());
    for _ in 0..50 {
        talk.write(&bytes(50));
    }
    let said = talk.said_briefly();
    assert_eq!(said[0], "PSH ACK 1+50 ack 1");
    assert_eq!(said[1..], ["PSH ACK 51+1000 ack 1", "PSH ACK 1051+1000 ack 1"].map(String::from));
}

#[test]
fn large_segments_leave_whole_where_something_below_cuts() {
    let mut talk = Talk::established(Config { segment_bytes_max: 5500, ..Config::default() });
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
    // SYN ACK, 1000 (what the first write's page grain let go), then large ones.
    assert!(segments <= 5, "{segments}");
}

#[test]
fn a_sender_avoids_the_silly_window() {
    // RFC 9293 §3.8.6.2.1: a full segment, or all there is, or half of the largest window.
    let mut talk = Talk::established_with(Config::default(), 4000, mss(1000));
    talk.write(&bytes(6000));
    assert_eq!(talk.said().len(), 4);
    talk.hear(seg(ACK, 1, 4001, 300), b"");
    assert_eq!(talk.said().len(), 0, "300 bytes are not worth a segment");
    talk.hear(seg(ACK, 1, 4001, 999), b"");
    assert_eq!(talk.said().len(), 0);
    talk.hear(seg(ACK, 1, 4001, 1000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 4001+1000 ack 1"]);
}

#[test]
fn a_peer_whose_window_is_always_small_is_served_by_half_windows() {
    let mut talk = Talk::established_with(Config::default(), 600, mss(1000));
    talk.write(&bytes(2000));
    assert_eq!(talk.said_briefly(), ["ACK 1+600 ack 1"]);
    talk.hear(seg(ACK, 1, 601, 299), b"");
    assert_eq!(talk.said().len(), 0);
    talk.hear(seg(ACK, 1, 601, 300), b"");
    assert_eq!(talk.said_briefly(), ["ACK 601+300 ack 1"]);
}

#[test]
fn an_ack_of_more_data_updates_the_window_even_with_an_older_sequence_number() {
    let mut talk = Talk::established_with(Config::default(), 2000, mss(1000));
    talk.write(&bytes(4000));
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1"]);
    talk.hear(seg(ACK, 501, 1, 2000), b"early");
    talk.hear(seg(ACK, 1, 2001, 0), b"late");
    assert_eq!(talk.said_briefly(), ["ACK 2001+0 ack 1", "ACK 2001+0 ack 5"], "the window is closed");
}

#[test]
fn a_small_window_is_used_after_the_override_timeout() {
    let mut talk = Talk::established_with(Config::default(), 4000, mss(1000));
    talk.write(&bytes(6000));
    talk.hear(seg(ACK, 1, 4001, 300), b"");
    talk.said();
    talk.pass(ms(1500));
    assert_eq!(talk.said_briefly()[0], "ACK 4001+300 ack 1");
}

#[test]
fn a_receiver_opens_its_window_by_worthwhile_steps_only() {
    // RFC 9293 §3.8.6.2.2.
    let mut talk = Talk::established(Config { receive_buffer_bytes: 4000, ..Config::default() });
    talk.reads = false;
    for n in 0..4 {
        talk.hear(seg(ACK, 1 + 1000 * n, 1, 60_000), &bytes(1000));
    }
    assert_eq!(talk.said().last().unwrap(), "ACK 1+0 ack 4001 win 0");
    talk.consume(500);
    talk.consume(499);
    // A probe in between does not tempt it.
    talk.hear(seg(ACK, 4001, 1, 60_000), b"p");
    assert_eq!(talk.said(), ["ACK 1+0 ack 4001 win 0"]);
    talk.consume(1001);
    assert_eq!(talk.said(), ["ACK 1+0 ack 4001 win 2000"], "half of the buffer is told at once");
    talk.consume(10);
    assert_eq!(talk.said().len(), 0);
}

#[test]
fn single_bytes_do_not_advance_the_window() {
    // Every answer rounds the window to the scale; what is rounded up must not add up.
    for length in [1, 9, 1001] {
        let options = Options { window_shift: Some(0), ..mss(1000) };
        let mut talk = Talk::established_with(Config::default(), 60_000, options);
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

#[test]
fn a_window_never_shrinks() {
    let mut talk = Talk::established(Config { receive_buffer_bytes: 8000, ..Config::default() });
    talk.reads = false;
    let mut edge = 0;
    for n in 0..7 {
        talk.hear(seg(ACK, 1 + 1000 * n, 1, 60_000), &bytes(1000));
        talk.pass(ms(41));
        for frame in core::mem::take(&mut talk.frames) {
            let (header, _) = frame.header();
            let now = PEER.distance(header.acknowledgment) + u32::from(header.window);
            assert!(now >= edge, "{now} after {edge}");
            edge = now;
        }
        talk.consume(300);
    }
}

// ---- Closed windows
// ------------------------------------------------------------------------------------------------

/// Returns a session with 500 bytes queued and a closed window.
fn closed() -> Talk {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 1, 1, 0), b"");
    talk.write(&bytes(500));
    assert_eq!(talk.said().len(), 0);
    talk
}

#[test]
fn a_closed_window_is_probed_twice_as_late_each_time_for_as_long_as_it_is_answered() {
    let mut talk = closed();
    let mut at = Vec::new();
    let begin = talk.now;
    while talk.now.since(begin) < Duration::from_secs(3600) {
        talk.pass(ms(100));
        for words in talk.said_briefly() {
            assert_eq!(words, "ACK 1+1 ack 1");
            at.push(talk.now.since(begin).as_millis() / 100);
            talk.hear(seg(ACK, 1, 1, 0), b"");
        }
    }
    assert_eq!(at[..6], [2, 6, 14, 30, 62, 126]);
    assert!(at.len() > 60 && at.windows(2).all(|pair| pair[1] - pair[0] <= 600), "{at:?}");
    // Not the answers but silence ends a session, and no probe was taken for a loss.
    assert_eq!(talk.state(), Some(State::Established));
    assert_eq!(talk.station.tcp.counters().fast_retransmits, 0);
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+500 ack 1"]);
    // The timer starts afresh: a later loss is retransmitted soon.
    talk.pass(ms(1500));
    assert_eq!(talk.said_briefly()[0], "PSH ACK 1+500 ack 1");
}

#[test]
fn a_probe_that_is_taken_goes_on_from_there() {
    let mut talk = closed();
    talk.pass(ms(250));
    assert_eq!(talk.said_briefly(), ["ACK 1+1 ack 1"]);
    talk.hear(seg(ACK, 1, 2, 0), b"");
    talk.pass(ms(250));
    assert_eq!(talk.said_briefly(), ["ACK 2+1 ack 1"]);
    talk.hear(seg(ACK, 1, 3, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["PSH ACK 3+498 ack 1"]);
}

#[test]
fn unanswered_probes_end_the_session() {
    let mut talk = closed();
    talk.pass(Duration::from_secs(2000));
    assert_eq!(talk.told(), ["gone: TimedOut"]);
    talk.check_home();
}

#[test]
fn a_window_that_opens_starts_the_clock_anew() {
    // The persist clock ran almost out when the window opened: that is no timeout of what is sent now.
    let mut talk = closed();
    talk.pass(ms(199));
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+500 ack 1"]);
    talk.pass(ms(150));
    assert_eq!((talk.said().len(), talk.station.tcp.counters().timeouts), (0, 0));
}

#[test]
fn a_fin_behind_a_closed_window_is_sent_when_it_opens() {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 1, 1, 0), b"");
    talk.finish().unwrap();
    assert_eq!(talk.said().len(), 0, "a FIN needs a place in the window");
    talk.pass(ms(250));
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+0 ack 1"], "it probes");
    talk.hear(seg(ACK, 1, 1, 0), b"");
    talk.hear(seg(ACK, 1, 1, 100), b"");
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+0 ack 1"]);
    talk.hear(seg(ACK, 1, 2, 100), b"");
    assert_eq!(talk.state(), Some(State::FinWait2));
}

#[test]
fn a_closed_window_takes_acknowledgements_and_answers_probes() {
    let mut talk = Talk::established(Config { receive_buffer_bytes: 2000, ..Config::default() });
    talk.reads = false;
    talk.write(&bytes(100));
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.hear(seg(ACK, 1001, 1, 60_000), &bytes(1000));
    talk.said();
    talk.hear(seg(ACK, 2001, 101, 60_000), b"probe");
    assert_eq!(talk.said(), ["ACK 101+0 ack 2001 win 0"]);
    assert_eq!(talk.told().last().unwrap(), "sent 100");
    assert_eq!(talk.got.len(), 2000);
}

#[test]
fn two_closed_windows_that_probe_each_other_do_not_loop() {
    // Our probe stands beyond the peer's window; an answer placed behind it would be beyond it, too, and be
    // answered.
    let mut talk = Talk::established(Config { receive_buffer_bytes: 2000, ..Config::default() });
    talk.reads = false;
    talk.hear(seg(ACK, 1, 1, 0), &bytes(1000));
    talk.hear(seg(ACK, 1001, 1, 0), &bytes(1000));
    talk.write(&bytes(500));
    talk.said();
    talk.pass(ms(250));
    assert_eq!(talk.said_briefly(), ["ACK 1+1 ack 2001"]);
    talk.hear(seg(ACK, 2001, 1, 0), b"p");
    assert_eq!(talk.said(), ["ACK 1+0 ack 2001 win 0"], "where the peer still reads");
}

#[test]
fn a_window_shrunk_by_the_peer_is_tolerated() {
    // RFC 9293 §3.8.6: a sender must be robust against it.
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(8000));
    assert_eq!(talk.said().len(), 8);
    talk.hear(seg(ACK, 1, 1001, 2000), b"");
    talk.hear(seg(ACK, 1, 2001, 0), b"");
    talk.write(&bytes(3000));
    assert_eq!(talk.said().len(), 0);
    // Data beyond the window is retransmitted by the timer; no new data is sent.
    talk.pass(Duration::from_secs(2));
    let said = talk.said_briefly();
    assert!(!said.is_empty() && said.iter().all(|words| words.starts_with("ACK 2001+1000")), "{said:?}");
    talk.hear(seg(ACK, 1, 8001, 60_000), b"");
    talk.hear(seg(ACK, 1, 11_001, 60_000), b"");
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().queued_bytes, 0);
}

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

#[test]
fn segment_headers_match_the_fast_path_of_the_peer() {
    // No option on any segment but the first: the peer's fast path is met.
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(3000));
    talk.hear(seg(ACK, 1, 3001, 60_000), &bytes(3));
    talk.finish().unwrap();
    assert!(talk.frames.len() >= 3);
    for frame in &talk.frames {
        let Header { options, urgent, .. } = frame.header().0;
        assert_eq!((options, urgent), (Options::NONE, 0));
    }
}
