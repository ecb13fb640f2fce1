//! Segments that no correct peer sends must not cause a panic or affect other sessions. They may use only
//! bounded memory, all of it free at the end.

use crate::common::cable::Nature;
use crate::common::peer::*;
use crate::common::station::Frame;
use crate::common::world::{Role, SERVER_PORT, World};
use crate::common::{ms, seeds};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use kiban_base::SimRng;
use kiban_tcpip::tcp::{Config, Nagle, State};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, Sequence};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));

fn pick<T: Copy>(chance: &mut SimRng, choices: &[T]) -> T {
    choices[chance.below(choices.len() as u64) as usize]
}

fn garbage(chance: &mut SimRng, most: u64) -> Vec<u8> {
    (0..chance.below(most + 1)).map(|_| chance.draw() as u8).collect()
}

/// Returns a malformed frame, from pure noise to almost valid.
fn nonsense(chance: &mut SimRng, source: IpAddr, target: IpAddr, ports: (u16, u16)) -> Frame {
    let mut frame = Frame { source, target, bytes: garbage(chance, 200) };
    if frame.bytes.len() >= 20 && chance.happens(0.9) {
        frame.bytes[0..2].copy_from_slice(&ports.0.to_be_bytes());
        frame.bytes[2..4].copy_from_slice(&ports.1.to_be_bytes());
        if chance.happens(0.7) {
            // The header length is possible for the segment, but the bytes there are not an option list.
            frame.bytes[12] = (5 + chance.below(11) as u8) << 4;
        }
        if chance.happens(0.9) {
            frame.seal();
        }
    }
    frame
}

#[test]
fn random_segments_do_not_affect_other_sessions() {
    for seed in 0..seeds(10) {
        let mut chance = SimRng::from_seed(seed).fork(5);
        let mut world = World::plain(Nature { delay: ms(5), loss: 0.01, ..Nature::default() }, seed);
        world.frames_max = 1 << 40;
        for _ in 0..3 {
            world.converse(Role::eager(100_000), Role::eager(100_000));
        }
        let mut more = true;
        while more {
            more = world.step().unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            if world.now > crate::common::at_ms(10_000) {
                break;
            }
            for side in 0..2 {
                let target = world.stations[side].address;
                // A blind attacker knows the addresses and ports of the others, but not their sequence
                // numbers.
                let source = pick(&mut chance, &[STRANGER, world.stations[1 - side].address]);
                let client = 20_000 + chance.below(3) as u16;
                let server = pick(&mut chance, &[SERVER_PORT, 81]);
                let ports = if side == 1 { (client, server) } else { (server, client) };
                for _ in 0..chance.below(4) {
                    let frame = nonsense(&mut chance, source, target, ports);
                    world.stations[side].arrive(&frame, world.now);
                }
            }
        }
        for apps in &world.apps {
            assert!(apps.iter().all(|app| app.complete_at.is_some()), "seed {seed}");
        }
        world.stations.iter_mut().for_each(|station| {
            let counters = station.tcp.counters();
            assert!(counters.checksum_errors > 0 && counters.malformed > 0, "{counters:?}");
        });
    }
}

/// Returns a segment from a peer that has a session and breaks every rule.
fn malice(chance: &mut SimRng, talk: &Peer) -> (Header, Vec<u8>) {
    let near = |chance: &mut SimRng, around: u32| match chance.below(8) {
        0 => chance.draw() as u32,
        1 => around.wrapping_add(0x8000_0000).wrapping_add(chance.below(5) as u32).wrapping_sub(2),
        2 => around,
        _ => around.wrapping_add(chance.below(6000) as u32).wrapping_sub(3000),
    };
    let info = talk.session.and_then(|session| talk.station.tcp.info(session));
    let around = talk.got.len() as u32 + 1 + pick(chance, &[0, 0, 0, 1460, 65_535, 262_144]);
    let sent = info.map_or(1, |info| info.outstanding_bytes) + chance.below(3000) as u32;
    let flags = match chance.below(10) {
        0..=5 => ACK,
        6 => ACK | FIN,
        7 => pick(chance, &[RST, RST | ACK]),
        8 => pick(chance, &[SYN, SYN | ACK, SYN | FIN, SYN | FIN | RST]),
        _ => Flags(chance.draw() as u8),
    };
    let window = pick(chance, &[0, 0, 1, 100, 1000, 8000, 60_000, 65_535]);
    let mut options = Options::NONE;
    if flags.has(SYN) || chance.happens(0.05) {
        options.mss = chance.happens(0.8).then(|| pick(chance, &[0, 1, 64, 536, 1460, 65_535]));
        options.window_shift = chance.happens(0.5).then(|| chance.below(20) as u8);
    }
    let header = Header {
        urgent: chance.draw() as u16,
        options,
        ..seg(flags, near(chance, around), near(chance, sent), window)
    };
    let most = if chance.happens(0.5) { 0 } else { 1400 };
    (header, garbage(chance, most))
}

#[test]
fn a_peer_that_violates_every_rule_is_survived() {
    for seed in 0..seeds(150) {
        let mut chance = SimRng::from_seed(seed).fork(6);
        let config = Config {
            receive_buffer_bytes: pick(&mut chance, &[1000, 8000, 65_535, 256 << 10, 1 << 30]),
            segment_bytes_max: pick(&mut chance, &[1460, 60_000]),
            send_buffer_bytes: pick(&mut chance, &[2000, 256 << 10]),
            nagle: if chance.happens(0.5) { Nagle::Classic } else { Nagle::Off },
            rto_retries: 3,
            ..Config::default()
        };
        let mut talk = if chance.happens(0.7) { Peer::listening(config) } else { Peer::opening(config) };
        talk.reads = chance.happens(0.6);
        if chance.happens(0.9) {
            let options =
                Options { mss: Some(1000), window_shift: Some(chance.below(15) as u8), ..Options::NONE };
            let flags = if talk.session.is_some() { SYN | ACK } else { SYN };
            talk.hear(Header { options, ..seg(flags, 0, 1, 8000) }, b"");
            talk.hear(seg(ACK, 1, 1, 8000), b"");
        }
        for _ in 0..300 {
            let (header, payload) = malice(&mut chance, &talk);
            talk.arrive(header, &payload);
            match chance.below(30) {
                0 => talk.pass(ms(chance.below(3000))),
                1 => talk.pass(ms(chance.below(50))),
                2..=4 => {
                    if let Some(session) = talk.session {
                        let count = talk.station.tcp.room(session).min(chance.below(4000) as usize);
                        talk.write(&bytes(count));
                    }
                }
                5 if talk.state().is_some() => drop(talk.finish()),
                6 if talk.state().is_some() => talk.consume(chance.below(100_000) as usize),
                7 if chance.happens(0.1) && talk.state().is_some() => talk.abort(),
                8..=20 => talk.settle(),
                _ => {}
            }
            // Every arrival may be answered; a settle sends no more than the windows allow and a few
            // acknowledgements.
            assert!(talk.frames.len() < 400, "seed {seed}: {} frames", talk.frames.len());
            talk.frames.clear();
            if talk.state().is_none() {
                talk.session = None;
            }
        }
        // Abort everything: memory is freed whatever happened.
        talk.settle();
        talk.pass(Duration::from_secs(2000));
        if let Some(State::Established | State::FinWait2 | State::CloseWait) = talk.state() {
            talk.abort();
        }
        talk.pass(Duration::from_secs(2000));
        talk.settle();
        if talk.station.tcp.sessions() == 0 {
            talk.check_home();
        } else {
            // Sessions that get no further events are still open. They hold no memory but their own state.
            assert!(talk.station.tcp.infos().all(|info| info.state != State::SynReceived), "seed {seed}");
        }
    }
}

#[test]
fn small_segments_ahead_of_a_hole_are_bounded() {
    let mut talk = Peer::established(Config { receive_buffer_bytes: 1 << 20, ..Config::default() });
    let before = talk.station.memory.receive.available();
    for n in 0..60_000u32 {
        talk.hear(seg(ACK, 2 + (n * 7919 % 30_000) * 2, 1, 60_000), b"x");
        talk.frames.clear();
    }
    assert!(before - talk.station.memory.receive.available() <= 512);
    talk.abort();
    talk.check_home();
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_no_more() {
    let mut talk = Peer::listening(Config::default());
    let server = talk.local();
    for n in 0..50_000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n / 60_000));
        let header = Header { source_port: (n % 60_000) as u16 + 1, ..seg(SYN, n, 0, 1000) };
        let frame = Frame::of(source, server.ip(), &header, b"");
        assert!(talk.station.arrive(&frame, talk.now));
        if n % 100 == 0 {
            talk.settle();
            talk.frames.clear();
        }
    }
    assert_eq!(talk.station.tcp.sessions(), 128);
    talk.pass(Duration::from_secs(300));
    talk.check_home();
}

#[test]
fn options_of_every_shape() {
    // Tries every pair of bytes with a third that gives the length: the options are decoded or rejected,
    // without a panic or a damaged session.
    let mut talk = Peer::established(Config::default());
    let (target, now) = (talk.station.address, talk.now);
    for kind in 0..=255u8 {
        for length in [0, 1, 2, 3, 4, 5, 10, 18, 34, 39, 40, 41, 255] {
            let mut bytes = vec![0u8; 60];
            let header =
                Header { sequence: PEER + 1, acknowledgment: talk.initial + 1, ..seg(ACK, 0, 0, 60_000) };
            header.write(&mut bytes);
            bytes[12] = 0xf0;
            bytes[20] = kind;
            bytes[21] = length;
            let mut frame = Frame { source: PEER_ADDRESS, target, bytes };
            frame.seal();
            assert!(talk.station.arrive(&frame, now));
        }
    }
    talk.settle();
    assert_eq!(talk.state(), Some(State::Established));
    assert!(talk.station.tcp.counters().malformed > 0);
}

#[test]
fn a_session_with_oneself_does_not_hang() {
    // A SYN whose source is its target (the "LAND" attack).
    let mut talk = Peer::listening(Config::default());
    let local = talk.local();
    let header = Header { source_port: PORT, sequence: Sequence(77), ..seg(SYN, 0, 0, 1000) };
    let frame = Frame::of(local.ip(), local.ip(), &header, b"");
    assert!(talk.station.arrive(&frame, talk.now));
    let mut turns = 0;
    loop {
        talk.settle();
        let frames = core::mem::take(&mut talk.frames);
        if frames.is_empty() || turns == 100 {
            break;
        }
        turns += 1;
        for frame in frames {
            talk.station.arrive(&frame, talk.now);
        }
    }
    assert!(turns < 100, "it quarrels with itself");
    assert_eq!(SocketAddr::new(local.ip(), PORT), local);
}

#[test]
fn two_ends_that_disagree_about_everything_do_not_loop() {
    // An attacker has injected bytes: each side acknowledges data that the other never sent. RFC 5961 §7:
    // challenge ACKs are rate-limited.
    let mut talk = Peer::established(Config::default());
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(500));
    talk.said();
    let mut answers = 0;
    for _ in 0..1000 {
        // The peer, which never sent the 500 bytes, answers every acknowledgement with its own.
        talk.hear(seg(ACK, 1, 400, 60_000), b"");
        answers += talk.said().len();
        talk.pass(ms(1));
    }
    assert!(answers <= 20, "{answers} answers in a second");
}
