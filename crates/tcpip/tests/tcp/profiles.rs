//! Talks about rules that differ from system to system: each is a setting, a profile is a set of them.

use crate::common::talk::*;
use crate::common::{at_ms, ms};
use core::time::Duration;
use kiban_tcpip::tcp::{AckUnit, Config, Nagle, Offer, PROFILES};
use kiban_tcpip::wire::tcp::{Header, Options};

fn options(mss: u16) -> Options {
    Options { mss: Some(mss), ..Options::NONE }
}

// ---- Profiles
// ------------------------------------------------------------------------------------------------------

#[test]
fn every_profile_has_a_name_and_the_first_is_the_default() {
    assert_eq!(Config::profile(PROFILES[0]), Some(Config::default()));
    let known: Vec<Config> = PROFILES.iter().filter_map(|name| Config::profile(name)).collect();
    assert_eq!(known.len(), PROFILES.len());
    assert!(known[1] != known[0] && known[2] != known[0] && known[1] != known[2]);
    assert_eq!(Config::profile("4.2bsd"), None);
}

#[test]
fn a_profile_can_be_written_down_and_read_back() {
    for name in PROFILES {
        let profile = Config::profile(name).expect("it has a name");
        let mut read = Config::default();
        profile.each(&mut |name, word, _| read.set(name, word).expect("what is shown can be read"));
        assert_eq!(read, profile);
    }
}

// ---- When an acknowledgement is due
// --------------------------------------------------------------------------------

#[test]
fn a_coarse_timer_is_never_late() {
    // The delay, the tick, when the segment comes (after the first second), when the answer leaves:
    // milliseconds.
    for (delay, tick, comes, leaves) in [
        (50, 0, 3, 53),
        (50, 10, 0, 50),
        (50, 10, 3, 50),
        (50, 10, 9, 50),
        (50, 10, 10, 60),
        (200, 200, 0, 200),
        (200, 200, 1, 200),
        (200, 200, 199, 200),
    ] {
        let config = Config { delayed_ack: ms(delay), ack_tick: ms(tick), ..Config::default() };
        let mut talk = Talk::established(config);
        talk.pass(ms(comes));
        talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
        talk.pass(ms(leaves - comes) - Duration::from_nanos(1));
        assert!(talk.said().is_empty(), "{delay} {tick} {comes}: too early");
        talk.pass(Duration::from_nanos(1));
        assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1001"], "{delay} {tick} {comes}");
        assert_eq!(talk.now, at_ms(1000 + leaves));
    }
}

#[test]
fn the_rule_for_the_second_segment_is_a_setting() {
    // Segments of 600, 500 and 1000 bytes towards an MSS of 1000: after which one is the answer due?
    for (unit, segments, answered) in [
        (AckUnit::Segment, 2, Some(1)),
        (AckUnit::Largest, 2, None),
        (AckUnit::Mss, 2, Some(2)),
        (AckUnit::Segment, 3, Some(2)),
        (AckUnit::Mss, 1, Some(1)),
        (AckUnit::Mss, 0, None),
        (AckUnit::Segment, 0, None),
    ] {
        let mut talk =
            Talk::established(Config { ack_unit: unit, ack_segments: segments, ..Config::default() });
        talk.reads = false;
        let mut at = 1;
        let mut first = None;
        for (n, length) in [600, 500, 1000].into_iter().enumerate() {
            talk.hear(seg(ACK, at, 1, 60_000), &bytes(length));
            at += length as u32;
            if !talk.said().is_empty() {
                first.get_or_insert(n);
            }
        }
        // The largest unit is 1000 by the third: 2100 bytes are two of them.
        let expected = if unit == AckUnit::Largest { Some(2) } else { answered };
        assert_eq!(first, expected, "{unit:?} {segments}");
    }
}

#[test]
fn an_ack_can_be_due_by_bytes_whatever_the_segments() {
    let config = Config { ack_segments: 0, ack_bytes: Some(1050), ..Config::default() };
    let mut talk = Talk::established(config);
    talk.reads = false;
    for (at, length, answers) in [(1, 1000, 0), (1001, 49, 0), (1050, 1, 1), (1051, 1000, 0), (2051, 1000, 1)]
    {
        talk.hear(seg(ACK, at, 1, 60_000), &bytes(length));
        assert_eq!(talk.said().len(), answers, "{at}+{length}");
    }
}

#[test]
fn in_4_3bsd_reading_makes_an_ack_due() {
    let config = Config { mss: 1024, receive_buffer_bytes: 8192, ..Config::bsd43() };
    let mut talk = Talk::established_with(config, 60_000, options(1024));
    talk.reads = false;
    for n in 0..4 {
        talk.hear(seg(ACK, 1 + 1024 * n, 1, 60_000), &bytes(1024));
    }
    assert!(talk.said().is_empty(), "nobody has read");
    // Two segments' worth, or 35 % of 8192, whichever is less: 2048.
    talk.consume(2047);
    assert!(talk.said().is_empty());
    talk.consume(1);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 4097"]);
    // 35 % of a small buffer is less than two segments: 1433 of 4096.
    let config = Config { mss: 1024, receive_buffer_bytes: 4096, ..Config::bsd43() };
    let mut talk = Talk::established_with(config, 60_000, options(1024));
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1024));
    assert!(talk.said().is_empty());
    talk.hear(seg(ACK, 1025, 1, 60_000), &bytes(408));
    assert!(talk.said().is_empty());
    talk.hear(seg(ACK, 1433, 1, 60_000), &bytes(1));
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1434"]);
}

#[test]
fn in_4_3bsd_a_single_segment_waits_for_the_200_ms_tick() {
    let mut talk = Talk::established(Config::bsd43());
    talk.pass(ms(150));
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.pass(ms(200));
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1001"]);
    // The session began at a full second: heartbeats come at its fifths.
    let mut talk = Talk::established(Config::bsd43());
    talk.pass(ms(150));
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.pass(ms(49));
    assert!(talk.said().is_empty());
    talk.pass(ms(1));
    assert_eq!((talk.said().len(), talk.now), (1, at_ms(1200)));
}

// ---- Windows
// -------------------------------------------------------------------------------------------------------

#[test]
fn a_window_may_be_rounded_up_to_full_segments() {
    for (buffer, rounds, least, window) in [
        (2000, true, 0, 9140),
        (9140, true, 0, 9140),
        (9500, true, 0, 18_280),
        (9500, false, 0, 9500),
        (9500, true, 4, 36_560),
        (40_000, true, 4, 45_700),
    ] {
        let config = Config {
            mss: 9140,
            receive_buffer_bytes: buffer,
            window_round_to_mss: rounds,
            window_segments_min: least,
            window_advertisement: Offer::Room,
            ..Config::default()
        };
        let mut talk = Talk::listening(config);
        talk.hear(Header { options: options(9140), ..seg(SYN, 0, 0, 60_000) }, b"");
        talk.hear(seg(ACK, 1, 1, 60_000), b"");
        talk.hear(seg(ACK, 1, 1, 60_000), b"x");
        talk.pass(ms(100));
        let said = talk.said();
        let last = said.last().expect("the answer to the byte");
        assert!(last.contains(&format!("ack 2 win {window}")), "{buffer} {rounds}: {said:?}");
    }
}

#[test]
fn without_scaling_none_is_offered_and_none_is_accepted() {
    let shifted = Options { mss: Some(1000), window_shift: Some(3), ..Options::NONE };
    for (window_scaling, shift) in [(true, true), (false, false)] {
        let config = Config { window_scaling, ..Config::default() };
        let mut talk = Talk::listening(config);
        talk.hear(Header { options: shifted, ..seg(SYN, 0, 0, 1000) }, b"");
        assert_eq!(talk.said()[0].contains("shift"), shift);
        talk.hear(seg(ACK, 1, 1, 1000), b"");
        let info = talk.station.tcp.info(talk.id()).expect("it is open");
        assert_eq!(info.send_window_bytes, if shift { 8000 } else { 1000 });
    }
}

#[test]
fn the_peers_segments_may_be_rounded_down_to_clusters() {
    for (round, offered, expected) in
        [(None, 9140, 9140), (Some(1024), 9140, 8192), (Some(1024), 1460, 1024), (Some(1024), 536, 536)]
    {
        let config = Config { mss: 9140, mss_round_bytes: round, ..Config::default() };
        let talk = Talk::established_with(config, 60_000, options(offered));
        assert_eq!(talk.station.tcp.info(talk.id()).expect("it is open").mss, expected);
    }
}

#[test]
fn a_system_v_stream_offers_its_whole_window_until_that_much_is_queued() {
    let config = Config {
        mss: 1000,
        receive_buffer_bytes: 4000,
        window_advertisement: Offer::Whole,
        ..Config::default()
    };
    let mut talk = Talk::established(config);
    talk.reads = false;
    let mut windows = Vec::new();
    for n in 0..6 {
        talk.hear(seg(ACK, 1 + 1000 * n, 1, 60_000), &bytes(1000));
        talk.pass(ms(100));
        windows.extend(talk.said().last().and_then(|words| words.rsplit(' ').next()?.parse::<u32>().ok()));
    }
    // Beyond the buffer nothing more is offered, and what was offered is not taken back.
    assert_eq!(windows, [4000, 4000, 4000, 4000, 3000, 2000]);
    talk.consume(2000);
    assert_eq!(talk.said(), ["ACK 1+0 ack 6001 win 4000"]);
}

#[test]
fn small_reads_move_the_window_by_steps_or_with_every_ack() {
    for (offer, window) in [(Offer::Steps, 7900), (Offer::Room, 8000)] {
        let config = Config {
            mss: 1000,
            receive_buffer_bytes: 8000,
            window_advertisement: offer,
            ..Config::default()
        };
        let mut talk = Talk::established(config);
        talk.hear(seg(ACK, 1, 1, 60_000), &bytes(100));
        talk.pass(ms(40));
        assert_eq!(talk.said(), [format!("ACK 1+0 ack 101 win {window}")]);
    }
    // Less than a segment and a quarter of the buffer is no offer.
    let config = Config {
        mss: 1000,
        receive_buffer_bytes: 8000,
        window_advertisement: Offer::Room,
        ..Config::default()
    };
    let mut talk = Talk::established(config);
    talk.reads = false;
    (0..8).for_each(|n| talk.hear(seg(ACK, 1 + 1000 * n, 1, 60_000), &bytes(1000)));
    talk.said();
    talk.consume(900);
    talk.hear(seg(ACK, 8000, 1, 60_000), b"x");
    assert_eq!(talk.said(), ["ACK 1+0 ack 8001 win 0"]);
}

// ---- Nagle
// ---------------------------------------------------------------------------------------------------------

#[test]
fn each_nagle_variant_delays_the_segments_that_it_should() {
    // Writes one after the other, nothing is acknowledged: the lengths of the segments that leave.
    let cases: [(Nagle, &[usize], &[usize]); 10] = [
        (Nagle::Off, &[10, 10, 1000, 10], &[10, 10, 1000, 10]),
        (Nagle::Classic, &[10, 10, 10], &[10]),
        (Nagle::Classic, &[1000, 10, 10], &[1000]),
        (Nagle::Classic, &[10, 600, 600], &[10, 1000]),
        (Nagle::Minshall, &[1000, 10, 10], &[1000, 10]),
        (Nagle::Minshall, &[10, 10, 10], &[10]),
        (Nagle::Minshall, &[1500, 10], &[1000, 500]),
        (Nagle::Limit, &[10, 399, 1], &[10, 400]),
        (Nagle::Limit, &[400, 400, 399], &[400, 400]),
        (Nagle::Limit, &[1000, 1400, 10], &[1000, 1000, 400]),
    ];
    for (nagle, writes, expected) in cases {
        let mut talk = Talk::established(Config { nagle, nagle_limit_bytes: 400, ..Config::default() });
        writes.iter().for_each(|count| talk.write(&bytes(*count)));
        let sent: Vec<usize> = talk.frames.iter().map(|frame| frame.header().1.len()).collect();
        assert_eq!(sent, expected, "{nagle:?} {writes:?}");
    }
}

#[test]
fn a_partial_segment_is_sent_if_it_fills_enough_of_the_largest_window() {
    // The window admits 600 of 1000 bytes: 60 % of it all.
    for (percent, expected) in [(50, &[400, 600][..]), (60, &[400, 600]), (61, &[400])] {
        let config = Config { silly_window_percent: percent, ..Config::default() };
        let mut talk = Talk::established_with(config, 1000, options(2000));
        talk.write(&bytes(400));
        talk.write(&bytes(1000));
        let sent: Vec<usize> = talk.frames.iter().map(|frame| frame.header().1.len()).collect();
        assert_eq!(sent, expected, "{percent} %");
    }
}

// ---- The writer
// ----------------------------------------------------------------------------------------------------

#[test]
fn a_write_may_begin_below_the_mark_and_end_beyond_it() {
    let config = Config { send_buffer_bytes: 2000, write_overshoot_bytes: 5000, ..Config::default() };
    let mut talk = Talk::established_with(config, 1, options(1000));
    assert_eq!(talk.station.tcp.room(talk.id()), 7000);
    talk.write(&bytes(1999));
    assert_eq!(talk.station.tcp.room(talk.id()), 5001);
    talk.write(&bytes(1000));
    assert_eq!(talk.station.tcp.room(talk.id()), 0);
}

#[test]
fn the_send_mark_may_be_rounded_up_to_full_segments() {
    for (buffer, rounds, room) in [(2000, false, 2000), (2000, true, 9140), (9500, true, 18_280)] {
        let config =
            Config { mss: 9140, send_buffer_bytes: buffer, send_round_to_mss: rounds, ..Config::default() };
        let talk = Talk::established_with(config, 60_000, options(9140));
        assert_eq!(talk.station.tcp.room(talk.id()), room);
    }
}

#[test]
fn a_blocked_writer_is_woken_at_its_low_water_mark() {
    // Of a full buffer of 5000 bytes so much is acknowledged: is the writer woken?
    for (low, acknowledged, wakes) in [
        (None, 2499, false),
        (None, 2500, true),
        (Some(2048), 2047, false),
        (Some(2048), 2048, true),
        (Some(9140), 4999, false),
        (Some(9140), 5000, true),
    ] {
        let config = Config { send_buffer_bytes: 5000, send_low_water_bytes: low, ..Config::default() };
        let mut talk = Talk::established(config);
        talk.write(&bytes(5000));
        let id = talk.id();
        talk.station.tcp.writer(id).expect("it is open").wait_for_room();
        talk.hear(seg(ACK, 1, 1 + acknowledged, 60_000), b"");
        let told = talk.up.iter().filter(|said| *said == "writable").count();
        assert_eq!(told, usize::from(wakes), "{low:?} {acknowledged}");
        // Below the mark a write that does not fit is not begun, one that fits is.
        let writer = talk.station.tcp.writer(id).expect("it is open");
        let room = acknowledged as usize;
        assert_eq!(writer.room_for(room), room);
        assert_eq!(writer.room_for(9000), if wakes || low.is_none() { room } else { 0 });
    }
}
