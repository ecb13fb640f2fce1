//! Talks about timestamps (RFC 7323) and about what the receiver tells of holes (RFC 2018, RFC 2883).

use crate::common::ms;
use crate::common::talk::*;
use core::time::Duration;
use kiban_tcpip::tcp::{Config, State};
use kiban_tcpip::wire::tcp::{Header, Options, Timestamps};

/// The options of a modern peer, whose clock is at 100.
const MODERN: Options = Options {
    mss: Some(1000),
    sack_permitted: true,
    timestamps: Some(Timestamps { value: 100, echo: 0 }),
    ..Options::NONE
};

fn modern() -> Talk {
    let mut talk = Talk::listening(Config { tail_loss_probe: false, ..Config::default() });
    talk.hear(Header { options: MODERN, ..seg(SYN, 0, 0, 60_000) }, b"");
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460 sack-permitted echo 100"]);
    talk.hear(at(101, seg(ACK, 1, 1, 60_000)), b"");
    assert_eq!(talk.state(), Some(State::Established));
    talk.told();
    talk
}

/// Sets the peer's timestamp to `value`.
fn at(value: u32, header: Header) -> Header {
    let timestamps = Some(Timestamps { value, echo: 0 });
    Header { options: Options { timestamps, ..header.options }, ..header }
}

/// Returns a session with SACK and without timestamps.
fn with_sack() -> Talk {
    let options = Options { timestamps: None, ..MODERN };
    Talk::established_with(Config::default(), 60_000, options)
}

#[test]
fn an_option_that_one_side_declines_is_not_used() {
    for (timestamps, sack) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut talk = Talk::listening(Config { timestamps, sack, ..Config::default() });
        talk.hear(Header { options: MODERN, ..seg(SYN, 0, 0, 60_000) }, b"");
        let options = talk.frames[0].header().0.options;
        assert_eq!((options.timestamps.is_some(), options.sack_permitted), (timestamps, sack));
        talk.hear(at(101, seg(ACK, 1, 1, 60_000)), b"");
        let info = talk.station.tcp.info(talk.id()).unwrap();
        assert_eq!((info.timestamps, info.sack), (timestamps, sack));
        // RFC 6691: 1000 bytes were offered, and options are in them.
        assert_eq!(info.mss, if timestamps { 988 } else { 1000 });
    }
    // We offer, the peer's answer does not.
    let mut talk = Talk::opening(Config::default());
    talk.hear(
        Header { options: Options { mss: Some(1000), ..Options::NONE }, ..seg(SYN | ACK, 0, 1, 8000) },
        b"",
    );
    let info = talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!((info.timestamps, info.sack, info.mss), (false, false, 1000));
    assert!(talk.frames.last().unwrap().header().0.options == Options::NONE);
}

#[test]
fn every_segment_carries_our_timestamp_and_echoes_the_peers() {
    let mut talk = modern();
    talk.write(&bytes(2000));
    talk.pass(ms(7));
    talk.hear(at(200, seg(ACK, 1, 1977, 60_000)), b"question");
    talk.pass(ms(100));
    talk.finish().unwrap();
    talk.abort();
    let stamps: Vec<_> =
        talk.frames.iter().map(|frame| frame.header().0.options.timestamps.unwrap()).collect();
    let echoes: Vec<_> = stamps.iter().map(|stamps| stamps.echo).collect();
    // Data before the question, then what Nagle had held back and the acknowledgement, FIN, RST.
    assert_eq!(echoes, [101, 101, 200, 200, 200]);
    assert_eq!(stamps[2].value.wrapping_sub(stamps[0].value), 7, "a millisecond a tick");
    assert!(talk.frames[0].header().0.flags.has(ACK) && talk.frames[0].header().1.len() == 988);
}

#[test]
fn a_segment_without_timestamps_is_dropped_unless_it_is_a_reset() {
    let mut talk = modern();
    talk.hear(seg(ACK, 1, 1, 60_000), b"bare");
    assert_eq!((talk.told().len(), talk.said().len()), (0, 0));
    assert_eq!(talk.station.tcp.counters().without_timestamps, 1);
    talk.hear(seg(RST, 1, 0, 0), b"");
    assert_eq!(talk.told(), ["gone: Reset"]);
}

#[test]
fn segments_with_old_timestamps_are_answered_and_dropped() {
    // RFC 7323 §5.3: what stands behind the newest value is old, the same value is not.
    let mut talk = modern();
    talk.hear(at(500, seg(ACK, 1, 1, 60_000)), b"new");
    talk.pass(ms(50));
    talk.said();
    talk.hear(at(499, seg(ACK, 4, 1, 60_000)), b"old");
    assert_eq!(
        (talk.told(), talk.said()),
        (vec!["data 3".into()], vec!["ACK 1+0 ack 4 win 65532 echo 500".into()])
    );
    talk.hear(at(500, seg(ACK, 4, 1, 60_000)), b"same");
    assert_eq!(talk.told(), ["data 4"]);
    // A bare acknowledgement that another has overtaken is no news to the peer.
    talk.pass(ms(50));
    talk.said();
    talk.hear(at(499, seg(ACK, 8, 1, 60_000)), b"");
    assert_eq!((talk.said().len(), talk.station.tcp.counters().paws_rejected), (0, 2));
    // RFC 7323 §5.2: timestamps of resets are not checked.
    talk.hear(at(1, seg(RST, 8, 1, 0)), b"");
    assert_eq!(talk.told(), ["gone: Reset"]);
}

#[test]
fn after_24_idle_days_any_timestamp_is_accepted() {
    let mut talk = modern();
    talk.pass(Duration::from_secs(23 * 24 * 3600));
    talk.hear(at(99, seg(ACK, 1, 1, 60_000)), b"x");
    assert_eq!(talk.told(), [""; 0]);
    talk.pass(Duration::from_secs(2 * 24 * 3600));
    talk.hear(at(99, seg(ACK, 1, 1, 60_000)), b"x");
    assert_eq!(talk.told(), ["data 1"]);
    talk.pass(ms(50));
    assert!(talk.said().last().unwrap().ends_with("echo 99"));
}

#[test]
fn an_out_of_order_segment_does_not_move_the_echo_but_the_one_that_fills_the_hole_does() {
    // RFC 7323 §4.3, (B) and (C).
    let mut talk = modern();
    talk.hear(at(300, seg(ACK, 501, 1, 60_000)), &bytes(500));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1 win 65535 echo 101 sack 501..1001"]);
    talk.hear(at(301, seg(ACK, 1, 1, 60_000)), &bytes(500));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1001 win 65535 echo 301"]);
}

#[test]
fn an_echo_measures_where_our_own_timing_cannot() {
    let mut talk = modern();
    talk.write(&bytes(900));
    let value = talk.frames[0].header().0.options.timestamps.unwrap().value;
    // A retransmission: without timestamps, Karn's algorithm would take no RTT sample.
    talk.pass(ms(1100));
    assert!(talk.frames.len() > 1);
    let timestamps = Some(Timestamps { value: 110, echo: value });
    talk.hear(Header { options: Options { timestamps, ..Options::NONE }, ..seg(ACK, 1, 901, 60_000) }, b"");
    // The handshake took no time; seven eighths of that and one of this.
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().round_trip, Duration::from_micros(1_100_000 / 8));
}

#[test]
fn sack_blocks_are_newest_first_and_three_fit_beside_timestamps() {
    let rows: [(&[u32], &str); 5] = [
        (&[1], " sack 1001..2001"),
        (&[1, 3], " sack 3001..4001 sack 1001..2001"),
        (&[1, 3, 5], " sack 5001..6001 sack 3001..4001 sack 1001..2001"),
        (&[1, 3, 5, 7], " sack 7001..8001 sack 5001..6001 sack 3001..4001"),
        (&[1, 5, 3, 2], " sack 1001..4001 sack 5001..6001"),
    ];
    for (early, expected) in rows {
        let mut talk = modern();
        for n in early {
            talk.hear(at(110, seg(ACK, n * 1000 + 1, 1, 60_000)), &bytes(1000));
        }
        assert_eq!(*talk.said().last().unwrap(), format!("ACK 1+0 ack 1 win 65535 echo 101{expected}"));
        // The hole is filled up to the next one: delivered data is no longer reported.
        talk.hear(at(111, seg(ACK, 1, 1, 60_000)), &bytes(1000));
        let said = talk.said().pop().unwrap();
        assert!(!said.contains("sack 1001"), "{said}");
    }
    let mut talk = with_sack();
    for n in [1, 3, 5, 7, 9] {
        talk.hear(seg(ACK, n * 1000 + 1, 1, 60_000), &bytes(1000));
    }
    let said = talk.said().pop().unwrap();
    assert!(said.ends_with(" sack 9001..10001 sack 7001..8001 sack 5001..6001 sack 3001..4001"), "{said}");
}

#[test]
fn a_duplicate_is_reported_once_and_first() {
    // RFC 2883 §4: below the acknowledgement, inside a block, and both with the block around it.
    let mut talk = with_sack();
    let hear = |talk: &mut Talk, from: u32, length: usize| {
        talk.hear(seg(ACK, from, 1, 60_000), &bytes(length));
        talk.said()
            .pop()
            .map(|said| said.split("ack ").skip(1).collect::<Vec<_>>().join(""))
            .unwrap_or_default()
    };
    hear(&mut talk, 1, 1000);
    talk.pass(ms(50));
    talk.said();
    let words = |ack: u32, rest: &str| format!("{ack} win 65535 s{rest}");
    assert_eq!(hear(&mut talk, 501, 500), words(1001, "501..1001"));
    assert_eq!(hear(&mut talk, 2001, 1000), words(1001, "2001..3001"));
    assert_eq!(hear(&mut talk, 2001, 500), words(1001, "2001..2501 s2001..3001"));
    assert_eq!(hear(&mut talk, 4001, 1000), words(1001, "4001..5001 s2001..3001"));
    assert_eq!(hear(&mut talk, 2501, 1000), words(1001, "2501..3001 s2001..3501 s4001..5001"));
    // Partly new in order.
    assert_eq!(hear(&mut talk, 901, 200), "1101 win 65435 s901..1001 s2001..3501 s4001..5001");
}

#[test]
fn sack_blocks_share_a_data_segment_if_they_fit_and_go_alone_otherwise() {
    let mut talk = modern();
    talk.arrive(at(110, seg(ACK, 1001, 1, 60_000)), &bytes(1000));
    talk.write(b"short");
    // RFC 5681 §2: only a bare acknowledgement is a duplicate, so it follows.
    assert_eq!(
        talk.said(),
        [
            "PSH ACK 1+5 ack 1 win 65535 echo 101 sack 1001..2001",
            "ACK 6+0 ack 1 win 65535 echo 101 sack 1001..2001"
        ]
    );
    talk.arrive(at(111, seg(ACK, 3001, 6, 60_000)), &bytes(1000));
    talk.write(&bytes(988));
    assert_eq!(
        talk.said(),
        [
            "PSH ACK 6+988 ack 1 win 65535 echo 101",
            "ACK 994+0 ack 1 win 65535 echo 101 sack 3001..4001 sack 1001..2001"
        ]
    );
}

#[test]
fn discarded_out_of_order_data_is_not_reported() {
    let mut talk = with_sack();
    talk.hear(seg(ACK, 1001, 1, 60_000), &bytes(1000));
    // Less than an eighth of the pages is left: what waits behind holes goes first.
    let pages: Vec<_> = (0..900).map_while(|_| talk.station.memory.receive.take()).collect();
    talk.said();
    talk.hear(seg(ACK, 3001, 1, 60_000), &bytes(1000));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1 win 65535"]);
    assert!(talk.station.tcp.counters().out_of_order_dropped >= 2);
    drop(pages);
}

#[test]
fn without_sack_no_blocks_are_sent() {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 1001, 1, 60_000), &bytes(1000));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1 win 65535"]);
}
