//! Off-path attackers: what they can learn, and what they cannot do (RFC 5961, RFC 6056, RFC
//! 5927, RFC 1337).

use crate::common::at_ms;
use crate::common::ms;
use crate::common::peer::*;
use crate::common::station::{Sizes, Station};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use kiban_tcpip::tcp::{Config, IcmpErrorClass, Refusal, State};
use kiban_tcpip::wire::tcp::Sequence;

fn icmp(talk: &mut Peer, sequence: u32, trouble: IcmpErrorClass) {
    let (local, remote, now) = (talk.local(), talk.remote(), talk.now);
    let quoted: Sequence = talk.initial + sequence;
    talk.station.with(now, |tcp, cx, out| tcp.on_icmp(local, remote, quoted, trouble, cx, out));
    talk.settle();
}

#[test]
fn resets_for_unmatched_segments_are_rate_limited_per_board() {
    let sessions = 100;
    let mut talk = Peer::listening(Config { challenges_per_second: 200, ..Config::default() });
    for port in 0..sessions {
        talk.peer_port = 6000 + port;
        talk.hear(seg(SYN, 0, 0, 8000), b"");
        talk.initial = talk.frames.last().unwrap().header().0.sequence;
        talk.hear(seg(ACK, 1, 1, 8000), b"");
    }
    talk.frames.clear();
    let ask = |talk: &mut Peer| {
        for n in 0..10 * u32::from(sessions) {
            talk.peer_port = 6000 + (n % u32::from(sessions)) as u16;
            talk.hear(seg(SYN, 77, 0, 8000), b"");
        }
        core::mem::take(&mut talk.frames).len()
    };
    // The limit is between half and one and a half times the setting, redrawn each second.
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
fn an_icmp_error_is_accepted_only_for_data_in_flight() {
    let mut talk = Peer::established(Config::default());
    talk.write(&bytes(500));
    for (sequence, believed) in [(0, false), (1, true), (500, true), (501, false), (0x9000_0000, false)] {
        let before = talk.station.tcp.counters().icmp_errors;
        icmp(&mut talk, sequence, IcmpErrorClass::PortUnreachable);
        assert_eq!(talk.station.tcp.counters().icmp_errors - before, u64::from(believed), "{sequence}");
    }
    // RFC 5927 §5.2: the error is only recorded.
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
fn an_unreachable_next_hop_fails_only_opens_through_it() {
    let nobody = |talk: &mut Peer, is_that_way: bool| {
        let (local, remote, now) = (talk.local().ip(), talk.remote().ip(), talk.now);
        talk.station.with(now, |tcp, cx, out| {
            let is_it = |source, target| is_that_way && (source, target) == (local, remote);
            tcp.on_next_hop_unreachable(is_it, cx, out);
        });
        talk.settle();
    };
    let mut talk = Peer::opening(Config::default());
    nobody(&mut talk, false);
    assert_eq!(talk.told().len(), 0, "another way");
    nobody(&mut talk, true);
    assert_eq!((talk.told(), talk.station.tcp.sessions()), (vec!["gone: Unreachable".into()], 0));
    talk.check_home();
    // RFC 1122 §4.2.3.9: an established connection continues, and so does a connection that a peer is
    // opening.
    let mut talk = Peer::established(Config::default());
    talk.write(&bytes(500));
    nobody(&mut talk, true);
    let mut passive = Peer::listening(Config::default());
    passive.hear(seg(SYN, 0, 0, 8000), b"");
    nobody(&mut passive, true);
    assert_eq!((talk.told().len(), talk.state()), (0, Some(State::Established)));
    assert_eq!(passive.station.tcp.sessions(), 1);
}
