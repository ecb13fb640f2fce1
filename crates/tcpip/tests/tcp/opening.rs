//! Talks about how sessions begin and how they are refused (RFC 9293 §3.5, §3.10.7.1 to §3.10.7.3).

use crate::common::station::{Frame, Sizes, Station};
use crate::common::talk::*;
use crate::common::{at_ms, ms};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, Refusal, State, SynCookies};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, Sequence};

const SECOND: Duration = Duration::from_secs(1);

fn options(mss: u16, shift: Option<u8>) -> Options {
    Options { mss: Some(mss), window_shift: shift, ..Options::NONE }
}

#[test]
fn our_syn_offers_the_enabled_options_in_the_order_of_linux() {
    let rows: [(bool, bool, &str, &[u8]); 4] = [
        (false, false, "SYN 0+0 win 65535 mss 1460 shift 3", &[2, 4, 0x05, 0xb4, 1, 3, 3, 3]),
        (false, true, "SYN 0+0 win 65535 mss 1460 shift 3 sack-permitted", &[2, 4, 0x05, 0xb4, 1, 1, 4, 2]),
        (true, false, "SYN 0+0 win 65535 mss 1460 shift 3 echo 0", &[2, 4, 0x05, 0xb4, 1, 1, 8, 10]),
        (
            true,
            true,
            "SYN 0+0 win 65535 mss 1460 shift 3 sack-permitted echo 0",
            &[2, 4, 0x05, 0xb4, 4, 2, 8, 10],
        ),
    ];
    for (timestamps, sack, words, bytes) in rows {
        let mut talk = Talk::opening(Config { timestamps, sack, ..Config::default() });
        let frame = talk.frames[0].clone();
        assert_eq!(talk.said(), [words]);
        assert_eq!(frame.bytes[20..28], *bytes);
        assert_eq!(frame.bytes[frame.bytes.len() - 4..], [1, 3, 3, 3]);
        assert!(frame.is_intact());
    }
}

#[test]
fn three_segments_open_a_session_from_our_side() {
    let mut talk = Talk::opening(Config::default());
    talk.said();
    talk.hear(Header { options: options(1000, Some(2)), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    assert_eq!(talk.told(), ["opened"]);
    assert_eq!(talk.said(), ["ACK 1+0 ack 1 win 32768"]);
    let info = talk.station.tcp.info(talk.id()).unwrap();
    // RFC 7323 §2.2: the window of a SYN is not scaled.
    assert_eq!((info.mss, info.send_window_bytes), (1000, 8000));
    talk.hear(seg(ACK, 1, 1, 8000), b"");
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 32_000);
}

#[test]
fn three_segments_open_a_session_from_their_side() {
    let mut talk = Talk::listening(Config::default());
    talk.hear(Header { options: options(1000, Some(7)), ..seg(SYN, 0, 0, 8000) }, b"");
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460 shift 3"]);
    assert_eq!(talk.told(), [""; 0]);
    talk.hear(seg(ACK, 1, 1, 10), b"");
    assert_eq!(talk.told(), ["accepted"]);
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 1280);
    assert_eq!(talk.said(), [""; 0]);
}

#[test]
fn a_peer_without_window_scale_gets_none() {
    let mut talk = Talk::listening(Config::default());
    talk.hear(Header { options: options(1000, None), ..seg(SYN, 0, 0, 8000) }, b"");
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460"]);
    talk.hear(seg(ACK, 1, 1, 8000), b"");
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 8000);
    talk.hear(seg(ACK, 1, 1, 8000), &bytes(100));
    talk.pass(ms(50));
    assert_eq!(talk.said(), ["ACK 1+0 ack 101 win 65435"]);
}

#[test]
fn a_peer_without_mss_gets_536_bytes_and_a_tiny_mss_is_raised() {
    for (mss, expected) in [(None, 536), (Some(0), 64), (Some(1), 64), (Some(1000), 1000), (Some(9000), 1460)]
    {
        let mut talk = Talk::listening(Config::default());
        talk.hear(Header { options: Options { mss, ..Options::NONE }, ..seg(SYN, 0, 0, 8000) }, b"");
        talk.hear(seg(ACK, 1, 1, 8000), b"");
        assert_eq!(talk.station.tcp.info(talk.id()).unwrap().mss, expected);
    }
}

#[test]
fn a_window_shift_above_14_counts_as_14() {
    let mut talk = Talk::listening(Config::default());
    talk.hear(Header { options: options(1000, Some(200)), ..seg(SYN, 0, 0, 8000) }, b"");
    talk.hear(seg(ACK, 1, 1, 0xffff), b"");
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 0xffff << 14);
}

#[test]
fn data_right_behind_the_syn_ack_is_within_the_window_that_our_syn_offered() {
    let mut talk = Talk::opening(Config::default());
    talk.said();
    // One burst: the acknowledgement that would offer a window has not been sent yet.
    talk.arrive(Header { options: options(1000, None), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    talk.arrive(seg(ACK, 1, 1, 8000), b"hello");
    talk.settle();
    assert_eq!(talk.told(), ["opened", "data 5"]);
    assert_eq!(talk.got, b"hello");
}

#[test]
fn a_syn_is_retransmitted_with_back_off_and_times_out() {
    let mut talk = Talk::opening(Config { syn_retries: 3, ..Config::default() });
    let begin = talk.now;
    let mut at = Vec::new();
    while talk.station.tcp.sessions() > 0 {
        if !talk.said().is_empty() {
            at.push(talk.now.since(begin).as_millis());
        }
        talk.pass(ms(100));
    }
    assert_eq!(at, [0, 1000, 3000, 7000]);
    assert_eq!(talk.now.since(begin).as_secs(), 15);
    assert_eq!(talk.told(), ["doubtful 10.0.0.9", "gone: TimedOut"]);
    talk.check_home();
}

#[test]
fn after_a_lost_syn_data_begins_with_three_seconds_and_after_two_with_one_segment() {
    for (lost, in_first_flight) in [(1, 10), (2, 1)] {
        let mut talk = Talk::opening(Config::default());
        talk.pass(SECOND * if lost == 1 { 1 } else { 3 });
        assert_eq!(talk.said().len(), 1 + lost);
        talk.hear(Header { options: options(1000, None), ..seg(SYN | ACK, 0, 1, 60_000) }, b"");
        talk.said();
        talk.write(&bytes(20_000));
        // RFC 6928 §2.
        assert_eq!(talk.said().len(), in_first_flight, "after {lost} lost SYNs");
        // RFC 6298 §5.7.
        talk.pass(ms(2900));
        assert_eq!(talk.said().len(), 0);
        talk.pass(ms(200));
        assert_eq!(talk.said().len(), 1);
    }
}

#[test]
fn a_syn_ack_is_retransmitted_for_a_repeated_syn_and_by_the_timer() {
    let mut talk = Talk::listening(Config::default());
    let syn = Header { options: options(1000, None), ..seg(SYN, 0, 0, 8000) };
    talk.hear(syn, b"");
    talk.hear(syn, b"");
    talk.pass(ms(1100));
    assert_eq!(talk.said_briefly(), ["SYN ACK 0+0 ack 1"; 3]);
    assert_eq!(talk.station.tcp.sessions(), 1);
    talk.hear(seg(ACK, 1, 1, 8000), b"");
    assert_eq!(talk.told(), ["accepted"]);
}

#[test]
fn the_last_segment_of_the_handshake_may_carry_data_and_fin() {
    let mut talk = Talk::listening(Config::default());
    talk.hear(Header { options: options(1000, None), ..seg(SYN, 0, 0, 8000) }, b"");
    talk.said();
    talk.hear(seg(ACK | FIN, 1, 1, 8000), b"all");
    assert_eq!(talk.told(), ["accepted", "data 3", "finished"]);
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 5"]);
    assert_eq!(talk.state(), Some(State::CloseWait));
}

#[test]
fn both_sides_open_at_once() {
    // RFC 9293 §3.5, figure 8.
    let mut talk = Talk::opening(Config::default());
    talk.said();
    talk.hear(Header { options: options(1000, Some(2)), ..seg(SYN, 0, 0, 8000) }, b"");
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460 shift 3"]);
    assert_eq!(talk.state(), Some(State::SynReceived));
    talk.hear(Header { options: options(1000, Some(2)), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    assert_eq!(talk.told(), ["opened"]);
    assert_eq!(talk.state(), Some(State::Established));
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().send_window_bytes, 8000);
    // The peer missed ours and repeats its own: an acknowledgement, not another SYN.
    talk.said();
    talk.hear(Header { options: options(1000, Some(2)), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    assert_eq!(talk.said_briefly(), ["ACK 1+0 ack 1"]);
}

#[test]
fn answers_to_our_syn() {
    // RFC 9293 §3.10.7.3: flags, acknowledgment, then our response and the host's indication.
    let rows: [(Flags, u32, &[&str], &[&str]); 8] = [
        (RST | ACK, 1, &[], &["gone: Refused"]),
        (RST | ACK, 2, &[], &[]),
        (RST, 0, &[], &[]),
        (ACK, 1, &[], &[]),
        (ACK, 0, &["RST 0+0"], &[]),
        (ACK, 77, &["RST 77+0"], &[]),
        (SYN | ACK, 77, &["RST 77+0"], &[]),
        (FIN, 0, &[], &[]),
    ];
    for (flags, acknowledgment, said, told) in rows {
        let mut talk = Talk::opening(Config::default());
        talk.said();
        talk.hear(seg(flags, 0, acknowledgment, 8000), b"");
        assert_eq!((talk.said(), talk.told()), (own(said), own(told)), "{flags} {acknowledgment}");
    }
}

fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn unmatched_segments_are_answered_as_in_the_closed_state() {
    // RFC 9293 §3.10.7.1: with ACK <SEQ=SEG.ACK><CTL=RST>, without <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>.
    type Numbers = (Flags, u32, u32);
    let rows: [(Numbers, &[u8], Option<Numbers>); 7] = [
        ((SYN, 100, 0), b"", Some((RST | ACK, 0, 101))),
        ((SYN, 100, 0), b"abc", Some((RST | ACK, 0, 104))),
        ((FIN, 100, 0), b"abc", Some((RST | ACK, 0, 104))),
        ((Flags::NONE, 100, 0), b"", Some((RST | ACK, 0, 100))),
        ((ACK, 100, 500), b"abc", Some((RST, 500, 0))),
        ((RST, 100, 0), b"", None),
        ((RST | ACK, 100, 500), b"", None),
    ];
    for ((flags, sequence, acknowledgment), payload, expected) in rows {
        let mut talk = Talk::new(Config::default());
        let header = Header {
            sequence: Sequence(sequence),
            acknowledgment: Sequence(acknowledgment),
            ..seg(flags, 0, 0, 1000)
        };
        let frame = Frame::of(PEER_ADDRESS, talk.station.address, &header, payload);
        talk.station.arrive(&frame, talk.now);
        talk.settle();
        let answers: Vec<_> = talk.frames.iter().map(|frame| frame.header().0).collect();
        assert_eq!(answers.len(), usize::from(expected.is_some()), "{flags}");
        if let Some((flags, sequence, acknowledgment)) = expected {
            assert_eq!(answers[0].flags, flags);
            assert_eq!((answers[0].sequence.0, answers[0].acknowledgment.0), (sequence, acknowledgment));
            assert_eq!((answers[0].source_port, answers[0].target_port), (PORT, PEER_PORT));
        }
        talk.check_home();
    }
}

#[test]
fn a_listener_takes_only_a_syn() {
    // RFC 9293 §3.10.7.2.
    let rows: [(Flags, &[&str]); 5] =
        [(RST, &[]), (RST | SYN, &[]), (ACK, &["RST 77+0"]), (SYN | ACK, &["RST 77+0"]), (FIN, &[])];
    for (flags, said) in rows {
        let mut talk = Talk::listening(Config::default());
        talk.hear(seg(flags, 0, 77, 8000), b"");
        assert_eq!(talk.said(), own(said), "{flags}");
        assert_eq!(talk.station.tcp.sessions(), 0, "{flags}");
    }
}

#[test]
fn a_reset_silently_ends_a_half_open_session() {
    let mut talk = Talk::listening(Config { backlog: 1, ..Config::default() });
    for _ in 0..3 {
        talk.hear(seg(SYN, 0, 0, 8000), b"");
        talk.hear(seg(RST, 1, 0, 0), b"");
        assert_eq!(talk.station.tcp.sessions(), 0);
    }
    assert_eq!(talk.told(), [""; 0]);
    talk.check_home();
}

#[test]
fn a_half_open_session_refuses_a_wrong_acknowledgement_and_stays() {
    let mut talk = Talk::listening(Config::default());
    talk.hear(seg(SYN, 0, 0, 8000), b"");
    talk.said();
    for wrong in [0, 2, 0x8000_0000] {
        talk.hear(seg(ACK, 1, wrong, 8000), b"");
        assert_eq!(talk.said(), [format!("RST {}+0", wrong as i32)]);
    }
    talk.hear(seg(ACK, 1, 1, 8000), b"");
    assert_eq!(talk.told(), ["accepted"]);
}

#[test]
fn a_full_backlog_drops_requests_silently_and_frees_itself() {
    let mut talk = Talk::listening(Config { backlog: 3, syn_cookies: SynCookies::Off, ..Config::default() });
    let syn = |talk: &mut Talk, port| {
        talk.peer_port = port;
        talk.hear(seg(SYN, 0, 0, 8000), b"");
    };
    for port in 6000..6005 {
        syn(&mut talk, port);
    }
    assert_eq!(talk.station.tcp.sessions(), 3);
    assert_eq!(talk.station.tcp.counters().syns_dropped, 2);
    assert!(talk.frames.iter().all(|frame| frame.header().0.flags == SYN | ACK));
    talk.pass(SECOND * 200);
    assert_eq!(talk.station.tcp.sessions(), 0, "half-open sessions are given up");
    syn(&mut talk, 6010);
    assert_eq!(talk.station.tcp.sessions(), 1);
    assert_eq!(talk.told(), [""; 0]);
}

#[test]
fn the_session_table_is_bounded() {
    let mut talk = Talk::listening(Config { sessions_max: 2, ..Config::default() });
    let (local, now) = (talk.local(), talk.now);
    let free = SocketAddr::new(local.ip(), 0);
    let open = |talk: &mut Talk| {
        let remote = talk.remote();
        talk.station.with(now, |tcp, cx, _| tcp.open(free, remote, 0, cx))
    };
    assert!(open(&mut talk).is_ok() && open(&mut talk).is_ok());
    assert_eq!(open(&mut talk), Err(Refusal::TooMany));
    talk.hear(seg(SYN, 0, 0, 8000), b"");
    assert_eq!(talk.station.tcp.counters().syns_dropped, 1);
}

#[test]
fn a_listener_of_one_address_precedes_a_wildcard_listener() {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    let mut talk = Talk::new(Config::default());
    let local = talk.local();
    let general = talk.station.tcp.listen(any).unwrap();
    let special = talk.station.tcp.listen(local).unwrap();
    assert_eq!(talk.station.tcp.listen(any), Err(Refusal::AddressInUse));
    for (listener, expected) in [(special, "special"), (general, "general")] {
        talk.arrive(seg(SYN, 0, 0, 8000), b"");
        talk.settle();
        talk.initial = talk.frames.last().unwrap().header().0.sequence;
        talk.arrive(seg(ACK, 1, 1, 8000), b"");
        let accepted = talk.station.out.up.pop_front();
        match accepted {
            Some(kiban_tcpip::tcp::Indication::Accepted { listener: took, session, .. }) => {
                assert_eq!(took, listener, "{expected}");
                let now = talk.now;
                talk.station.with(now, |tcp, cx, out| tcp.abort(session, cx, out)).unwrap();
            }
            other => panic!("{other:?}"),
        }
        talk.settle();
        let now = talk.now;
        talk.station.with(now, |tcp, cx, out| tcp.unlisten(special, cx, out));
    }
}

#[test]
fn ports_are_chosen_from_the_dynamic_range_and_never_twice() {
    let mut station = Station::new(1, Config::default(), Sizes::default(), 7);
    let local = SocketAddr::new(station.address, 0);
    let remote = SocketAddr::new(PEER_ADDRESS, 80);
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..=16_384 {
        let opened = station.with(at_ms(1), |tcp, cx, _| tcp.open(local, remote, 0, cx));
        match opened {
            Ok(session) => {
                let port = station.tcp.info(session).unwrap().local.port();
                assert!(port >= 49_152 && seen.insert(port), "{port}");
            }
            Err(refusal) => assert_eq!((n, refusal), (16_384, Refusal::TooMany)),
        }
    }
    assert_eq!(seen.len(), 16_384);
}

#[test]
fn invalid_requests_fail_with_the_reason() {
    let mut talk = Talk::new(Config::default());
    let v6 = SocketAddr::new("::1".parse().unwrap(), 80);
    let (local, remote, now) = (talk.local(), talk.remote(), talk.now);
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80);
    for (local, remote, refusal) in [
        (local, v6, Refusal::BadAddress),
        (local, SocketAddr::new(remote.ip(), 0), Refusal::BadAddress),
        (local, nobody, Refusal::BadAddress),
        (local, "224.0.0.1:80".parse().unwrap(), Refusal::BadAddress),
    ] {
        let opened = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
        assert_eq!(opened, Err(refusal));
    }
    assert_eq!(talk.station.tcp.listen(SocketAddr::new(local.ip(), 0)), Err(Refusal::BadAddress));
    let first = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert!(first.is_ok());
    let again = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx));
    assert_eq!(again, Err(Refusal::AddressInUse));
    assert_eq!(Refusal::AddressInUse.to_string(), "that address and port are in use: choose another port");
}

#[test]
fn initial_sequence_numbers_advance_with_the_clock_and_differ_by_4_tuple() {
    let initial = |port, at| {
        let mut station = Station::new(1, Config::default(), Sizes::default(), 7);
        let local = SocketAddr::new(station.address, port);
        let remote = SocketAddr::new(PEER_ADDRESS, 80);
        station.with(at, |tcp, cx, _| tcp.open(local, remote, 0, cx)).unwrap();
        station.settle(10, at);
        let segment = station.out.down.pop_front().unwrap();
        crate::common::station::frames_of(segment)[0].header().0.sequence
    };
    // RFC 9293 §3.4.1: a step every 4 us.
    assert_eq!(initial(1000, at_ms(0)).distance(initial(1000, at_ms(4))), 1000);
    assert_ne!(initial(1000, at_ms(0)), initial(1001, at_ms(0)));
}

#[test]
fn identifiers_of_ended_sessions_are_invalid() {
    let mut talk = Talk::established(Config::default());
    let old = talk.id();
    talk.abort();
    let mut page = talk.station.memory.transmit.take().unwrap();
    let slice = page.append(b"x").unwrap();
    let (_, refusal) = talk.station.tcp.send(old, slice).unwrap_err();
    assert_eq!(refusal, Refusal::UnknownSession);
    assert_eq!(talk.station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert_eq!((talk.station.tcp.room(old), talk.station.tcp.info(old).is_none()), (0, true));
    let now = talk.now;
    let aborted = talk.station.with(now, |tcp, cx, out| tcp.abort(old, cx, out));
    assert_eq!(aborted, Err(Refusal::UnknownSession));
    // The place is used again: the old number still names nothing, and takes nothing from the new session.
    let (local, remote) = (talk.local(), talk.remote());
    let new = talk.station.with(now, |tcp, cx, _| tcp.open(local, remote, 0, cx)).unwrap();
    assert_eq!(new.index(), old.index());
    talk.station.with(now, |tcp, cx, out| tcp.consume(old, 1000, cx, out));
    assert_eq!(talk.station.tcp.finish(old), Err(Refusal::UnknownSession));
    assert!(talk.station.tcp.info(old).is_none() && talk.station.tcp.info(new).is_some());
}

#[test]
fn writes_beyond_the_buffer_or_after_the_shutdown_are_returned() {
    let mut talk =
        Talk::established(Config { send_buffer_bytes: 5000, floor_bytes: 1000, ..Config::default() });
    assert_eq!(talk.station.tcp.room(talk.id()), 5000);
    let mut pages: Vec<_> = (0..2).map(|_| talk.station.memory.transmit.take().unwrap()).collect();
    let big = pages[0].append(&bytes(3000)).unwrap();
    let small = pages[1].append(&bytes(2500)).unwrap();
    talk.station.tcp.send(talk.id(), big).unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), small).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::NoRoom));
    talk.finish().unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), slice).unwrap_err();
    assert_eq!((slice.len(), refusal), (2500, Refusal::Finished));
    drop((slice, pages));
    talk.abort();
    talk.check_home();
}

#[test]
fn data_and_a_shutdown_are_accepted_before_the_session_is_open() {
    let mut talk = Talk::opening(Config::default());
    talk.said();
    talk.write(b"early");
    talk.finish().unwrap();
    assert_eq!(talk.said(), [""; 0]);
    let mut page = talk.station.memory.transmit.take().unwrap();
    let (slice, refusal) = talk.station.tcp.send(talk.id(), page.append(b"x").unwrap()).unwrap_err();
    assert_eq!((slice.len(), refusal), (1, Refusal::Finished));
    talk.hear(Header { options: options(1000, None), ..seg(SYN | ACK, 0, 1, 8000) }, b"");
    assert_eq!(talk.said_briefly(), ["FIN PSH ACK 1+5 ack 1"]);
    assert_eq!(talk.state(), Some(State::FinWait1));
}
