//! Talks about which segments are taken and what the others get (RFC 9293 §3.10.7.4, RFC 5961), and about the
//! end.

use crate::common::ms;
use crate::common::talk::*;
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Reason, State};
use kiban_tcpip::wire::tcp::{Flags, Header, Options};

const WINDOW: u32 = 10_000;

fn config() -> Config {
    Config { receive_buffer_bytes: WINDOW, ..Config::default() }
}

/// A session whose next byte is 1001, so that there is something before it. The window ends at 1001 + 10,000.
fn talk() -> Talk {
    let mut talk = Talk::established(config());
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.pass(ms(50));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1001 win 10000"]);
    talk.told();
    talk
}

#[test]
fn the_table_of_acceptable_segments() {
    // RFC 9293 §3.4, table 6: where it begins, its length, how many bytes are taken now.
    let rows: [(u32, usize, usize, bool); 16] = [
        (1001, 0, 0, false),
        (1001, 100, 100, false),
        (1002, 0, 0, false),
        (1002, 100, 0, true),
        (1000, 0, 0, true),
        (1, 1000, 0, true),
        (900, 101, 0, true),
        (900, 102, 1, true),
        (900, 300, 199, true),
        (10_999, 1, 0, true),
        (11_000, 1, 0, true),
        (11_001, 1, 0, true),
        (11_001, 0, 0, false),
        (11_002, 0, 0, true),
        (0x7000_0000, 10, 0, true),
        (0x9000_0000, 10, 0, true),
    ];
    for (begin, length, taken, answered) in rows {
        let mut talk = talk();
        talk.hear(seg(ACK, begin, 1, 60_000), &bytes(length));
        assert_eq!(talk.got.len(), 1000 + taken, "{begin}+{length}");
        let expected = format!("ACK 1+0 ack {}", 1001 + taken);
        assert_eq!(talk.said_briefly(), vec![expected; usize::from(answered)], "{begin}+{length}");
    }
}

#[test]
fn a_segment_that_fills_the_window_and_more_is_trimmed_at_both_ends() {
    let mut talk = Talk::established(Config { receive_buffer_bytes: 500, mss: 400, ..Config::default() });
    talk.reads = false;
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(300));
    talk.said();
    let stream = bytes(900);
    talk.hear(seg(ACK | FIN, 101, 1, 60_000), &stream[100..900]);
    assert_eq!(talk.got, stream[..500]);
    // The FIN was beyond the window and was ignored.
    assert_eq!((talk.state(), talk.said()), (Some(State::Established), vec!["ACK 1+0 ack 501 win 0".into()]));
    assert_eq!(talk.station.tcp.counters().beyond_window_bytes, 401);
    assert_eq!(talk.station.tcp.counters().duplicate_bytes, 200);
}

#[test]
fn resets_end_a_session_only_at_the_exact_byte() {
    // RFC 5961 §3.2: exact: reset; in the window: challenge; outside: dropped silently.
    let rows: [(u32, bool, usize); 6] = [
        (1001, true, 0),
        (1002, false, 1),
        (11_000, false, 1),
        (1000, false, 0),
        (11_002, false, 0),
        (0x9000_0000, false, 0),
    ];
    for flags in [RST, RST | ACK] {
        for (sequence, ends, challenges) in rows {
            let mut talk = talk();
            talk.hear(seg(flags, sequence, 1, 0), b"");
            let told: Vec<String> = if ends { vec!["gone: Reset".into()] } else { vec![] };
            assert_eq!(talk.told(), told, "{flags} {sequence}");
            assert_eq!(talk.said_briefly(), vec!["ACK 1+0 ack 1001"; challenges], "{flags} {sequence}");
            if ends {
                talk.check_home();
            }
        }
    }
}

#[test]
fn a_syn_on_an_established_session_is_challenged_whatever_its_sequence_number() {
    // RFC 5961 §4.2.
    for (sequence, payload) in
        [(1001, 0), (1002, 0), (1000, 0), (0, 0), (0x9000_0000, 0), (900, 500), (1001, 100)]
    {
        for flags in [SYN, SYN | ACK] {
            let mut talk = talk();
            talk.hear(seg(flags, sequence, 1, 60_000), &bytes(payload));
            assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1001"], "{flags} {sequence}+{payload}");
            assert_eq!((talk.state(), talk.got.len()), (Some(State::Established), 1000));
        }
    }
}

#[test]
fn a_restarted_peer_resets_the_old_session() {
    // RFC 9293 §3.5.1, figure 9: SYN, challenge, reset, and the name is free.
    let mut talk = talk();
    talk.hear(seg(SYN, 0x5000_0000, 0, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1001"]);
    talk.hear(seg(RST, 1001, 0, 0), b"");
    assert_eq!(talk.told(), ["gone: Reset"]);
    talk.check_home();
}

#[test]
fn acknowledgements_of_the_future_and_of_the_distant_past_are_challenged() {
    // RFC 5961 §5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT; the data goes with it.
    let mut talk = talk();
    talk.write(&bytes(1000));
    talk.hear(seg(ACK, 1001, 1001, 60_000), b"");
    talk.said();
    for (acknowledgment, taken) in [
        (1002, false),
        (5000, false),
        (0x4000_0000, false),
        (0x9000_0000, false),
        (0u32.wrapping_sub(60_000), false),
    ] {
        talk.hear(seg(ACK, 1001, acknowledgment, 60_000), b"x");
        assert_eq!(talk.said_briefly(), ["ACK 1001+0 ack 1001"], "{acknowledgment}");
        assert_eq!(talk.got.len() > 1000, taken, "{acknowledgment}");
    }
    // An old acknowledgement within the window is no harm, and its data counts.
    talk.hear(seg(ACK, 1001, 500, 60_000), b"x");
    assert_eq!(talk.got.len(), 1001);
}

#[test]
fn an_old_acknowledgement_does_not_change_the_window() {
    let mut talk = talk();
    talk.write(&bytes(1000));
    talk.hear(seg(ACK, 1001, 1001, 60_000), b"");
    talk.hear(seg(ACK, 1001, 1, 5), b"");
    talk.hear(seg(ACK, 1001, 500, 5), b"x");
    talk.hear(seg(ACK, 1002, 500, 5), b"x");
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 60_000);
}

#[test]
fn segments_without_ack_are_dropped() {
    let mut talk = talk();
    talk.hear(seg(Flags::NONE, 1001, 0, 60_000), b"x");
    talk.hear(seg(FIN, 1001, 0, 60_000), b"x");
    assert_eq!((talk.got.len(), talk.said().len()), (1000, 0));
    assert_eq!(talk.station.tcp.counters().without_ack, 2);
}

#[test]
fn out_of_order_segments_are_delivered_in_order_with_one_ack() {
    let mut talk = Talk::established(Config::default());
    let stream = bytes(5000);
    let hear = |talk: &mut Talk, from: usize, to: usize| {
        talk.hear(seg(ACK, 1 + from as u32, 1, 60_000), &stream[from..to]);
    };
    hear(&mut talk, 1000, 2000);
    hear(&mut talk, 3000, 4000);
    hear(&mut talk, 1500, 3500);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1"; 3], "RFC 5681 §4.2: at once, each");
    assert_eq!(talk.told(), [""; 0]);
    hear(&mut talk, 0, 1200);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 4001"]);
    assert_eq!(talk.got, stream[..4000]);
}

#[test]
fn up_to_three_duplicate_acks_are_sent_for_one_burst() {
    // RFC 5681 §4.2 wants a duplicate for each; three are what fast retransmit needs.
    for (early, acknowledgements) in [(1, 1), (2, 2), (3, 3), (10, 3)] {
        let mut talk = Talk::established(Config::default());
        let stream = bytes(20_000);
        for n in 0..early {
            talk.arrive(seg(ACK, 1001 + 1000 * n, 1, 60_000), &stream[1000..2000]);
        }
        talk.settle();
        assert_eq!(talk.said_briefly(), vec!["ACK 1+0 ack 1"; acknowledgements]);
        // The hole is filled: one is enough.
        talk.arrive(seg(ACK, 1, 1, 60_000), &stream[..1000]);
        talk.settle();
        assert_eq!(talk.said_briefly(), [format!("ACK 1+0 ack {}", 1001 + 1000 * early)]);
    }
}

#[test]
fn out_of_order_data_is_freed_when_a_session_ends() {
    let mut talk = talk();
    talk.hear(seg(ACK, 2001, 1, 60_000), &bytes(1000));
    talk.hear(seg(RST, 1001, 0, 0), b"");
    talk.check_home();
}

#[test]
fn a_segment_with_a_wrong_checksum_or_header_is_counted_and_dropped() {
    use crate::common::station::Frame;
    let mut talk = talk();
    let header = Header { sequence: PEER + 1001, acknowledgment: talk.initial + 1, ..seg(ACK, 0, 0, 60_000) };
    let good = Frame::of(PEER_ADDRESS, talk.station.address, &header, b"hello");
    for bit in 0..good.bytes.len() * 8 {
        let mut bad = good.clone();
        bad.bytes[bit / 8] ^= 1 << (bit % 8);
        talk.station.arrive(&bad, talk.now);
        talk.settle();
    }
    let mut short = good.clone();
    short.bytes[12] = 0x40;
    short.seal();
    talk.station.arrive(&short, talk.now);
    let mut long = good.clone();
    long.bytes[12] = 0xf0;
    long.seal();
    talk.station.arrive(&long, talk.now);
    talk.station.arrive(&Frame { bytes: good.bytes[..19].to_vec(), ..good }, talk.now);
    talk.settle();
    let counters = talk.station.tcp.counters();
    assert_eq!((counters.checksum_errors + counters.malformed, talk.got.len()), (25 * 8 + 3, 1000));
    assert_eq!(talk.said().len(), 0);
}

// ---- The end
// ------------------------------------------------------------------------------------------------------

#[test]
fn closing_first_leads_to_time_wait_of_2_msl() {
    let mut talk = talk();
    talk.finish().unwrap();
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+0 ack 1001"]);
    assert_eq!(talk.state(), Some(State::FinWait1));
    talk.hear(seg(ACK, 1001, 2, 60_000), b"");
    assert_eq!(talk.state(), Some(State::FinWait2));
    talk.pass(Duration::from_secs(500));
    assert_eq!(talk.said().len(), 0, "nothing is left to say until the peer finishes");
    talk.hear(seg(ACK | FIN, 1001, 2, 60_000), b"last");
    assert_eq!(talk.said_briefly(), ["ACK 2+0 ack 1006"]);
    assert_eq!(talk.told(), ["data 4", "finished", "gone: Closed"]);
    assert_eq!(talk.state(), Some(State::TimeWait));
    talk.pass(Duration::from_secs(59));
    // RFC 9293 §3.10.7.4: the FIN again is acknowledged again and the wait starts again.
    talk.hear(seg(ACK | FIN, 1005, 2, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 2+0 ack 1006"]);
    talk.pass(Duration::from_secs(59));
    assert_eq!(talk.state(), Some(State::TimeWait));
    // Other old segments are acknowledged and prolong nothing.
    talk.hear(seg(ACK, 1001, 2, 60_000), b"last");
    assert_eq!(talk.said_briefly(), ["ACK 2+0 ack 1006"]);
    talk.pass(Duration::from_secs(2));
    assert_eq!((talk.state(), talk.told().len(), talk.said().len()), (None, 0, 0));
    talk.check_home();
}

#[test]
fn data_can_be_sent_after_the_peers_fin() {
    let mut talk = talk();
    talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1002"]);
    assert_eq!((talk.told(), talk.state()), (vec!["finished".into()], Some(State::CloseWait)));
    talk.write(b"more");
    talk.hear(seg(ACK, 1002, 5, 60_000), b"");
    talk.finish().unwrap();
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+4 ack 1002", "FIN PSH ACK 5+0 ack 1002"]);
    assert_eq!(talk.state(), Some(State::LastAck));
    talk.hear(seg(ACK, 1002, 6, 60_000), b"");
    assert_eq!(talk.told(), ["sent 4", "gone: Closed"]);
    talk.check_home();
}

#[test]
fn both_close_at_once() {
    // RFC 9293 §3.6, figure 13.
    let mut talk = talk();
    talk.finish().unwrap();
    talk.said();
    talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 2+0 ack 1002"]);
    assert_eq!(talk.state(), Some(State::Closing));
    talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
    assert_eq!(talk.said_briefly(), ["ACK 2+0 ack 1002"], "the FIN again");
    talk.hear(seg(ACK, 1002, 2, 60_000), b"");
    assert_eq!(talk.state(), Some(State::TimeWait));
    assert_eq!(talk.told(), ["finished", "gone: Closed"]);
    talk.pass(Duration::from_secs(61));
    talk.check_home();
}

#[test]
fn a_fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    let mut talk = talk();
    talk.finish().unwrap();
    talk.said();
    talk.hear(seg(ACK | FIN, 1001, 2, 60_000), b"");
    assert_eq!((talk.state(), talk.said_briefly()), (Some(State::TimeWait), vec!["ACK 2+0 ack 1002".into()]));
    assert_eq!(talk.told(), ["finished", "gone: Closed"]);
}

#[test]
fn a_fin_waits_behind_data_and_behind_a_hole() {
    let mut talk = Talk::established(Config::default());
    let stream = bytes(3000);
    talk.hear(seg(ACK | FIN, 2001, 1, 60_000), &stream[2000..]);
    talk.hear(seg(ACK, 1001, 1, 60_000), &stream[1000..2000]);
    assert_eq!(
        (talk.state(), talk.said_briefly()),
        (Some(State::Established), vec!["ACK 1+0 ack 1".into(); 2])
    );
    talk.hear(seg(ACK, 1, 1, 60_000), &stream[..1000]);
    assert_eq!(
        (talk.state(), talk.said_briefly()),
        (Some(State::CloseWait), vec!["ACK 1+0 ack 3002".into()])
    );
    assert_eq!(talk.got, stream);
    assert_eq!(talk.told().last().unwrap(), "finished");
}

#[test]
fn a_fin_without_data_ahead_of_a_hole_is_kept() {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    assert_eq!(
        (talk.state(), talk.told()),
        (Some(State::CloseWait), vec!["data 1000".into(), "finished".into()])
    );
}

#[test]
fn a_fin_in_every_state() {
    // After the peer's FIN has been taken, another one only gets its acknowledgement again.
    let closed_by_peer = |talk: &mut Talk| talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
    type Way = fn(&mut Talk);
    let ways: [(Way, State); 4] = [
        (|_| {}, State::CloseWait),
        (|talk| talk.finish().unwrap(), State::LastAck),
        (
            |talk| {
                talk.finish().unwrap();
                talk.hear(seg(ACK, 1002, 1, 60_000), b"");
            },
            State::LastAck,
        ),
        (|talk| talk.write(b"x"), State::CloseWait),
    ];
    for (way, state) in ways {
        let mut talk = talk();
        closed_by_peer(&mut talk);
        way(&mut talk);
        assert_eq!(talk.state(), Some(state));
        talk.told();
        talk.said();
        closed_by_peer(&mut talk);
        assert_eq!((talk.state(), talk.told().len()), (Some(state), 0));
        assert_eq!(talk.said_briefly().len(), 1);
        // Data after a FIN is dropped.
        talk.hear(seg(ACK, 1002, 1, 60_000), b"late");
        assert_eq!((talk.told().len(), talk.station.tcp.counters().data_after_fin), (0, 1));
    }
}

#[test]
fn our_fin_is_retransmitted_until_it_is_acknowledged() {
    let mut talk = talk();
    talk.write(b"bye");
    talk.finish().unwrap();
    assert_eq!(talk.said_briefly(), ["PSH ACK 1+3 ack 1001", "FIN PSH ACK 4+0 ack 1001"]);
    talk.pass(ms(250));
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+3 ack 1001"], "both in one the second time");
    talk.hear(seg(ACK, 1001, 4, 60_000), b"");
    talk.said();
    talk.pass(Duration::from_secs(10));
    assert!(talk.said_briefly().iter().all(|words| words == "FIN PSH ACK 4+0 ack 1001"));
    talk.hear(seg(ACK, 1001, 5, 60_000), b"");
    assert_eq!(talk.state(), Some(State::FinWait2));
}

#[test]
fn an_abort_sends_a_reset_in_every_synchronized_state() {
    // RFC 9293 §3.10.5.
    type Way = fn(&mut Talk);
    let ways: [(Way, Option<&str>); 6] = [
        (|_| {}, Some("RST ACK 1+0 ack 1001")),
        (|talk| talk.finish().unwrap(), Some("RST ACK 2+0 ack 1001")),
        (
            |talk| {
                talk.finish().unwrap();
                talk.hear(seg(ACK, 1001, 2, 60_000), b"");
            },
            Some("RST ACK 2+0 ack 1001"),
        ),
        (|talk| talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b""), Some("RST ACK 1+0 ack 1002")),
        (|talk| talk.write(&bytes(3000)), Some("RST ACK 3001+0 ack 1001")),
        (
            |talk| {
                talk.finish().unwrap();
                talk.hear(seg(ACK | FIN, 1001, 2, 60_000), b"");
            },
            None,
        ),
    ];
    for (n, (way, expected)) in ways.into_iter().enumerate() {
        let mut talk = talk();
        way(&mut talk);
        talk.said();
        talk.told();
        talk.abort();
        assert_eq!(talk.said_briefly(), expected.map(String::from).into_iter().collect::<Vec<_>>(), "{n}");
        let gone = format!("gone: {:?}", Reason::Aborted);
        assert_eq!(talk.told(), if expected.is_some() { vec![gone] } else { vec![] }, "{n}");
        talk.check_home();
    }
    // LAST-ACK and CLOSING: the peer expects no data.
    for closing in [false, true] {
        let mut talk = talk();
        if closing {
            talk.finish().unwrap();
        }
        talk.hear(seg(ACK | FIN, 1001, 1, 60_000), b"");
        if !closing {
            talk.finish().unwrap();
        }
        talk.said();
        talk.told();
        talk.abort();
        assert_eq!((talk.said().len(), talk.told()), (0, vec!["gone: Aborted".into()]));
        talk.check_home();
    }
    let mut talk = Talk::opening(Config::default());
    talk.said();
    talk.abort();
    assert_eq!((talk.said().len(), talk.told()), (0, vec!["gone: Aborted".into()]));
    let mut talk = Talk::opening(Config::default());
    talk.hear(Header { options: Options::NONE, ..seg(SYN, 0, 0, 8000) }, b"");
    talk.said();
    talk.abort();
    assert_eq!(talk.said_briefly(), ["RST ACK 1+0 ack 1"]);
}
