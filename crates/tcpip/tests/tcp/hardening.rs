//! Scripts with off-path attackers: what they can learn, and what they cannot do (RFC 5961, RFC 6056, RFC
//! 5927, RFC 1337).

use crate::common::at_ms;
use crate::common::ms;
use crate::common::station::{Sizes, Station};
use crate::common::talk::*;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_tcpip::tcp::{Config, IcmpErrorClass, Refusal, State};
use kiban_tcpip::wire::tcp::{Header, Options, Sequence};

fn icmp(talk: &mut Talk, sequence: u32, trouble: IcmpErrorClass) {
    let (local, remote, now) = (talk.local(), talk.remote(), talk.now);
    let quoted: Sequence = talk.initial + sequence;
    talk.station.with(now, |tcp, cx, out| tcp.on_icmp(local, remote, quoted, trouble, cx, out));
    talk.settle();
}

#[test]
fn resets_for_unmatched_segments_are_rate_limited_per_board() {
    let sessions = 100;
    let mut talk = Talk::listening(Config { challenges_per_second: 200, ..Config::default() });
    for port in 0..sessions {
        talk.peer_port = 6000 + port;
        talk.hear(seg(SYN, 0, 0, 8000), b"");
        talk.initial = talk.frames.last().unwrap().header().0.sequence;
        talk.hear(seg(ACK, 1, 1, 8000), b"");
    }
    talk.frames.clear();
    let ask = |talk: &mut Talk| {
        for n in 0..10 * u32::from(sessions) {
            talk.peer_port = 6000 + (n % u32::from(sessions)) as u16;
            talk.hear(seg(SYN, 77, 0, 8000), b"");
        }
        core::mem::take(&mut talk.frames).len()
    };
    // From half of the setting to one and a half, drawn anew each second.
    let mut answered = Vec::new();
    for _ in 0..5 {
        answered.push(ask(&mut talk));
        talk.pass(ms(1000));
    }
    assert!(answered.iter().all(|count| (100..=300).contains(count)), "{answered:?}");
    assert!(answered.iter().any(|count| *count != answered[0]), "{answered:?}");
}

#[test]
fn ephemeral_ports_are_random_and_skip_those_in_use() {
    // RFC 6056 §3.3.1.
    let config = Config { sessions_max: 20_000, ..Config::default() };
    let mut station = Station::new(1, config, Sizes::default(), 7);
    let local = SocketAddr::new(station.address, 0);
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 1)), 80);
    let mut open = || {
        station.with(at_ms(1), |tcp, cx, _| {
            tcp.open(local, remote, 0, cx).map(|id| tcp.info(id).expect("just opened").local.port())
        })
    };
    let ports: Vec<u16> = (0..16_384).map(|_| open().expect("a port is free")).collect();
    assert_eq!(open(), Err(Refusal::TooMany), "all are in use");
    let rising = ports[..1000].windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((400..600).contains(&rising), "{rising} of 999 are above the one before");
    let mut all = ports;
    all.sort_unstable();
    assert!(all.into_iter().eq(49_152..=65_535), "each once");
}

#[test]
fn a_reset_in_time_wait_frees_the_4_tuple_only_if_enabled() {
    // RFC 1337 §3.
    for (resets_end_time_wait, left) in [(false, 1), (true, 0)] {
        let mut talk =
            Talk::established(Config { time_wait_accepts_rst: resets_end_time_wait, ..Config::default() });
        talk.finish().unwrap();
        talk.hear(seg(ACK | FIN, 1, 2, 60_000), b"");
        assert_eq!(talk.state(), Some(State::TimeWait));
        talk.hear(seg(RST, 2, 0, 0), b"");
        assert_eq!(talk.station.tcp.sessions(), left);
        assert_eq!(talk.station.tcp.counters().time_wait_resets_ignored, left as u64);
    }
}

#[test]
fn an_icmp_error_is_accepted_only_for_data_in_flight() {
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(500));
    for (sequence, believed) in [(0, false), (1, true), (500, true), (501, false), (0x9000_0000, false)] {
        let before = talk.station.tcp.counters().icmp_errors;
        icmp(&mut talk, sequence, IcmpErrorClass::PortUnreachable);
        assert_eq!(talk.station.tcp.counters().icmp_errors - before, u64::from(believed), "{sequence}");
    }
    // RFC 5927 §5.2: remembered, and no more.
    let info = talk.station.tcp.info(talk.id()).unwrap();
    assert_eq!((info.state, info.icmp_error), (State::Established, Some(IcmpErrorClass::PortUnreachable)));
    talk.hear(seg(ACK, 1, 501, 60_000), b"");
    icmp(&mut talk, 501, IcmpErrorClass::Unreachable);
    assert_eq!(talk.station.tcp.counters().icmp_errors_rejected, 4, "nothing is on its way");
    talk.peer_port = 9;
    icmp(&mut talk, 1, IcmpErrorClass::Unreachable);
    assert_eq!(talk.station.tcp.counters().icmp_errors_rejected, 5, "nobody");
}

#[test]
fn an_unreachable_port_or_protocol_refuses_a_connection_being_opened() {
    let rows = [
        (IcmpErrorClass::PortUnreachable, true),
        (IcmpErrorClass::ProtocolUnreachable, true),
        (IcmpErrorClass::Unreachable, false),
        (IcmpErrorClass::TimeExceeded, false),
        (IcmpErrorClass::ParameterProblem, false),
    ];
    for (trouble, ends) in rows {
        let mut talk = Talk::opening(Config::default());
        icmp(&mut talk, 1, trouble);
        assert_eq!(talk.told().len(), 0, "not the number of our SYN");
        icmp(&mut talk, 0, trouble);
        assert_eq!(talk.told(), vec!["gone: Refused"; usize::from(ends)], "{trouble:?}");
    }
}

#[test]
fn an_open_fails_after_three_unreachable_syns() {
    for (syn_troubles, ends) in [(3, true), (4, false)] {
        let mut talk = Talk::opening(Config { syn_unreachable_max: syn_troubles, ..Config::default() });
        // Several reports about one SYN count as one.
        for silence in [1000, 2000, 4000] {
            assert_eq!(talk.told().len(), 0);
            for _ in 0..10 {
                icmp(&mut talk, 0, IcmpErrorClass::Unreachable);
            }
            talk.pass(ms(silence));
        }
        let (told, sessions) = (talk.told(), talk.station.tcp.sessions());
        // The third timeout has occurred meanwhile.
        assert_eq!(told, [if ends { "gone: Unreachable" } else { "doubtful 10.0.0.9" }]);
        assert_eq!(sessions, usize::from(!ends));
        assert_eq!(talk.station.tcp.counters().connects_unreachable, u64::from(ends));
        // It can still be made where it was not ended.
        if !ends {
            talk.hear(seg(SYN | ACK, 0, 1, 8000), b"");
            icmp(&mut talk, 1, IcmpErrorClass::Unreachable);
            assert_eq!(talk.told(), ["opened"]);
        }
    }
}

#[test]
fn an_unreachable_next_hop_fails_only_opens_through_it() {
    let nobody = |talk: &mut Talk, is_that_way: bool| {
        let (local, remote, now) = (talk.local().ip(), talk.remote().ip(), talk.now);
        talk.station.with(now, |tcp, cx, out| {
            let is_it = |source, target| is_that_way && (source, target) == (local, remote);
            tcp.on_next_hop_unreachable(is_it, cx, out);
        });
        talk.settle();
    };
    let mut talk = Talk::opening(Config::default());
    nobody(&mut talk, false);
    assert_eq!(talk.told().len(), 0, "another way");
    nobody(&mut talk, true);
    assert_eq!((talk.told(), talk.station.tcp.sessions()), (vec!["gone: Unreachable".into()], 0));
    talk.check_home();
    // RFC 1122 §4.2.3.9: one that has been made goes on, and so does one that a peer makes.
    let mut talk = Talk::established(Config::default());
    talk.write(&bytes(500));
    nobody(&mut talk, true);
    let mut passive = Talk::listening(Config::default());
    passive.hear(seg(SYN, 0, 0, 8000), b"");
    nobody(&mut passive, true);
    assert_eq!((talk.told().len(), talk.state()), (0, Some(State::Established)));
    assert_eq!(passive.station.tcp.sessions(), 1);
}

#[test]
fn a_packet_too_big_retransmits_in_smaller_segments() {
    let mut talk =
        Talk::established_with(Config::default(), 60_000, Options { mss: Some(1460), ..Options::NONE });
    talk.write(&bytes(2920));
    assert_eq!(talk.said_briefly().len(), 2);
    // An MTU larger than the segments has no effect.
    icmp(&mut talk, 1, IcmpErrorClass::PacketTooBig { mtu: 1500 });
    assert_eq!(talk.said_briefly().len(), 0);
    icmp(&mut talk, 1, IcmpErrorClass::PacketTooBig { mtu: 1040 });
    assert_eq!(
        talk.said_briefly(),
        ["ACK 1+1000 ack 1", "ACK 1001+460 ack 1", "ACK 1461+1000 ack 1", "PSH ACK 2461+460 ack 1"]
    );
    // RFC 5927 §7: not below a floor, whatever is reported.
    icmp(&mut talk, 1, IcmpErrorClass::PacketTooBig { mtu: 68 });
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().mss, 512);
    assert_eq!(talk.station.tcp.counters().mss_lowered, 2);
    assert_eq!(talk.said_briefly()[0], "ACK 1+512 ack 1");
    talk.hear(seg(ACK, 1, 2921, 60_000), b"");
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.said().len(), 0);
}

#[test]
fn a_peer_of_small_segments_is_not_sent_larger_ones_by_the_floor() {
    let mut talk =
        Talk::established_with(Config::default(), 60_000, Options { mss: Some(300), ..Options::NONE });
    talk.write(&bytes(300));
    icmp(&mut talk, 1, IcmpErrorClass::PacketTooBig { mtu: 100 });
    assert_eq!(talk.station.tcp.info(talk.id()).unwrap().mss, 300);
}

#[test]
fn blind_data_with_a_guessed_acknowledgement_is_dropped() {
    // RFC 5961 §5: of 2^32 acknowledgements, a window's worth is taken.
    let mut talk = Talk::established(Config::default());
    for n in 0..64u32 {
        let acknowledgment = 60_002u32.wrapping_add(n << 26);
        talk.hear(Header { ..seg(ACK, 1, acknowledgment, 60_000) }, b"evil");
    }
    assert_eq!(talk.got.len(), 0);
}
