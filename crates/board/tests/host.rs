//! The host edge: two boards, a cable, calls and completions.

mod common;

use common::{Pair, address, config, socket};
use kiban_base::Instant;
use kiban_board::{Completion, HostError, Reason, StreamId};
use kiban_tcpip::tcp::Refusal;
use std::net::SocketAddr;
use std::time::Duration;

/// Opens a stream from board 0 to board 1 and returns it as each board numbers it.
fn opened(pair: &mut Pair) -> (StreamId, StreamId) {
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let stream = pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [Completion::Opened { stream }]);
    let [Completion::Accepted { stream: accepted, remote, .. }] = pair.completions(1)[..] else {
        panic!("accepted")
    };
    assert_eq!(remote.ip(), address(0));
    (stream, accepted)
}

/// Writes `bytes` on one board and reads them on the other, as fast as both accept.
fn transfer(pair: &mut Pair, from: (usize, StreamId), to: (usize, StreamId), bytes: &[u8]) -> Vec<u8> {
    let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 10_000]);
    while got.len() < bytes.len() {
        let before = (sent, got.len());
        sent += pair.boards[from.0].host().write(from.1, &bytes[sent..]).unwrap();
        pair.run();
        loop {
            let count = pair.boards[to.0].host().read(to.1, &mut buffer).unwrap();
            if count == 0 {
                break;
            }
            got.extend_from_slice(&buffer[..count]);
        }
        pair.run();
        if before == (sent, got.len()) {
            let later = pair.now + Duration::from_secs(1);
            pair.run_until(later);
        }
    }
    got
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = kiban_base::SimRng::from_seed(length as u64);
    (0..length).map(|_| rng.draw() as u8).collect()
}

#[test]
fn a_stream_carries_bytes_both_ways_and_returns_all_memory() {
    let mut pair = Pair::new();
    let (near, far) = opened(&mut pair);
    let bytes = noise(3_000_000);
    assert!(transfer(&mut pair, (0, near), (1, far), &bytes) == bytes);
    assert!(transfer(&mut pair, (1, far), (0, near), &bytes) == bytes);
    pair.completions(0);
    pair.completions(1);
    pair.boards[0].host().finish(near).unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::PeerFinished { stream: far }]);
    pair.boards[1].host().close(far).unwrap();
    pair.run();
    assert!(pair.completions(0).contains(&Completion::Ended { stream: near, reason: Reason::Closed }));
    pair.boards[0].host().close(near).unwrap();
    pair.run_until(Instant::from_nanos(200_000_000_000));
    for board in &mut pair.boards {
        assert!(board.memory_mut().is_all_free(), "{board:?}");
        assert_eq!(board.sessions(), 0);
    }
}

#[test]
fn payload_is_copied_once_at_each_host_edge_and_nowhere_between() {
    let mut pair = Pair::new();
    let (near, far) = opened(&mut pair);
    let bytes = noise(1_000_000);
    assert!(transfer(&mut pair, (0, near), (1, far), &bytes) == bytes);
    let (sender, receiver) = (pair.boards[0].copies(), pair.boards[1].copies());
    assert_eq!((sender.host_in_bytes, receiver.host_out_bytes), (1_000_000, 1_000_000));
    for copies in [sender, receiver] {
        assert_eq!(copies.sar_in_bytes + copies.sar_out_bytes, 0);
        // Only a short remainder at the end of a write is copied to join it with other data.
        assert!(copies.gather_bytes < 256);
    }
    assert_eq!((sender.host_out_bytes, receiver.host_in_bytes), (0, 0));
}

#[test]
fn packets_to_the_boards_own_address_stay_inside() {
    let mut pair = Pair::new();
    pair.boards[0].host().listen(socket(0, 80)).unwrap();
    let near = pair.boards[0].host().open(socket(0, 80)).unwrap();
    pair.run();
    let completions = pair.completions(0);
    let far = completions.iter().find_map(|completion| match completion {
        Completion::Accepted { stream, remote, .. } if remote.ip() == address(0) => Some(*stream),
        _ => None,
    });
    let far = far.expect("accepted");
    assert!(completions.contains(&Completion::Opened { stream: near }));
    let bytes = noise(1_000_000);
    assert!(transfer(&mut pair, (0, near), (0, far), &bytes) == bytes);
    assert!(transfer(&mut pair, (0, far), (0, near), &bytes) == bytes);
    let mut host = pair.boards[0].host();
    host.ping(address(0), 1, 2, b"us").unwrap();
    pair.run();
    let reply = Completion::EchoReply { source: address(0), identifier: 1, sequence: 2, bytes: 2 };
    assert!(pair.completions(0).contains(&reply));
    // There is no listener on this port, so the board resets its own connection.
    let nobody = pair.boards[0].host().open(socket(0, 81)).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [Completion::Ended { stream: nobody, reason: Reason::Refused }]);
    for stream in [near, far, nobody] {
        pair.boards[0].host().close(stream).unwrap();
    }
    pair.run_until(Instant::from_nanos(200_000_000_000));
    assert_eq!(pair.packets, [0, 0]);
    assert!(pair.boards[0].memory_mut().is_all_free());
    assert!(pair.boards[0].counter("ip", "loopback") > 1000);
}

#[test]
fn invalid_host_calls_return_a_reason() {
    let mut pair = Pair::new();
    let (near, far) = opened(&mut pair);
    let mut host = pair.boards[0].host();
    assert_eq!(host.open("192.0.2.1:80".parse().unwrap()), Err(HostError::NoRoute));
    assert_eq!(host.unlisten(99), Err(HostError::UnknownListener));
    // RFC 9293 §3.9.2.3, MUST-46: a connect to a broadcast or multicast address is refused, and so is a
    // source address that is not the board's.
    for many in ["10.0.0.255:80", "255.255.255.255:80", "224.0.0.1:80"] {
        let opened = host.open_from(SocketAddr::new(address(0), 0), many.parse().unwrap());
        assert_eq!(opened, Err(HostError::Tcp(Refusal::BadAddress)), "{many}");
    }
    assert_eq!(host.open_from(socket(1, 0), socket(1, 80)), Err(HostError::Tcp(Refusal::BadAddress)));
    // If the source address is unspecified, the board uses the source address of the route.
    let any = "0.0.0.0:5555".parse().unwrap();
    let other = host.open_from(any, socket(1, 80)).unwrap();
    assert_eq!(host.info(other).unwrap().local, socket(0, 5555));
    host.abort(other).unwrap();
    assert_eq!(host.open_from(any, "192.0.2.1:80".parse().unwrap()), Err(HostError::NoRoute));
    host.finish(near).unwrap();
    assert!(matches!(host.write(near, b"late"), Err(HostError::Tcp(_))));
    host.close(near).unwrap();
    assert_eq!(host.close(near), Err(HostError::UnknownStream), "a double close");
    assert_eq!(host.write(near, b"x"), Err(HostError::UnknownStream));
    assert_eq!(host.read(near, &mut [0; 4]), Err(HostError::UnknownStream));
    // The stream's number is reused, but the old handle stays invalid because its generation differs.
    pair.boards[1].host().close(far).unwrap();
    pair.run();
    pair.run_until(Instant::from_nanos(100_000_000_000));
    let again = pair.boards[0].host().open(socket(1, 80)).unwrap();
    assert_eq!(again.index(), near.index());
    assert_eq!(pair.boards[0].host().write(near, b"x"), Err(HostError::UnknownStream));
    for message in [HostError::UnknownStream, HostError::NoRoute, HostError::NoMemory] {
        assert!(message.to_string().contains(':') || message.to_string().len() > 20, "says what to do");
    }
}

#[test]
fn a_short_write_is_followed_by_a_writable_completion() {
    let mut pair = Pair::new();
    let (near, far) = opened(&mut pair);
    let bytes = noise(1 << 20);
    let first = pair.boards[0].host().write(near, &bytes).unwrap();
    assert!(first < bytes.len());
    pair.run();
    let mut buffer = vec![0; 1 << 20];
    while pair.boards[1].host().read(far, &mut buffer).unwrap() > 0 {
        pair.run();
    }
    assert!(pair.completions(0).contains(&Completion::Writable { stream: near }));
}

#[test]
fn small_unread_segments_share_pages() {
    let mut pair = Pair::new();
    let (near, far) = opened(&mut pair);
    let before = pair.boards[1].memory_mut().receive.available();
    for _ in 0..200 {
        pair.boards[0].host().write(near, b"crumb").unwrap();
        pair.run();
        let later = pair.now + Duration::from_millis(100);
        pair.run_until(later);
    }
    assert_eq!(pair.boards[1].host().readable(far).unwrap(), 1000);
    assert!(before - pair.boards[1].memory_mut().receive.available() <= 2);
}

#[test]
fn pings_and_datagrams_are_sent_and_received() {
    let mut pair = Pair::new();
    pair.boards[0].host().ping(address(1), 7, 1, &noise(1400)).unwrap();
    pair.run();
    let source = address(1);
    assert_eq!(
        pair.completions(0),
        [Completion::EchoReply { source, identifier: 7, sequence: 1, bytes: 1400 }]
    );
    let there = pair.boards[1].host().bind(socket(1, 53)).unwrap();
    let here = pair.boards[0].host().bind(socket(0, 5353)).unwrap();
    pair.boards[0].host().send_to(here, socket(1, 53), b"question").unwrap();
    pair.run();
    assert_eq!(pair.completions(1), [Completion::Datagram { socket: there }]);
    let mut buffer = [0; 100];
    let got = pair.boards[1].host().receive_from(there, &mut buffer).unwrap();
    assert_eq!(got, Some((socket(0, 5353), 8)));
    assert_eq!(&buffer[..8], b"question");
    // Port 54 is not bound, so the sender gets an ICMP error.
    pair.boards[0].host().send_to(here, socket(1, 54), b"hello").unwrap();
    pair.run();
    assert_eq!(
        (pair.boards[1].counter("udp", "no_socket"), pair.boards[0].counter("icmp", "errors_in")),
        (1, 1)
    );
    let too_long = vec![0; 65508];
    assert_eq!(pair.boards[0].host().send_to(here, socket(1, 53), &too_long), Err(HostError::TooLong));
    pair.boards[0].host().unbind(here).unwrap();
    assert!(matches!(pair.boards[0].host().send_to(here, socket(1, 53), b"x"), Err(HostError::Udp(_))));
}

#[test]
fn a_closed_port_refuses_and_a_reset_ends_the_stream() {
    let mut pair = Pair::new();
    let stream = pair.boards[0].host().open(socket(1, 81)).unwrap();
    pair.run();
    assert_eq!(pair.completions(0), [Completion::Ended { stream, reason: Reason::Refused }]);
    let (_, far) = opened(&mut pair);
    pair.boards[1].host().abort(far).unwrap();
    pair.run();
    assert!(matches!(pair.completions(0)[..], [Completion::Ended { reason: Reason::Reset, .. }]));
}

#[test]
fn sixty_streams_share_scarce_memory() {
    // The boards have at most 4 MiB in each direction and the streams ask for 15 MiB in all, so there is
    // hardly enough for the floors of sixty sessions. No line limits the rate here, so a stream's rate
    // depends on its share of memory, and the shares settle slowly: the smallest stream gets at least half as
    // much as the largest. (On a line it gets nine tenths, see sim/tests/network/worlds.rs.)
    for (memory_bytes, part) in [(4 << 20, 0.5), (1 << 20, 0.5)] {
        let got = sixty_greedy_streams(memory_bytes);
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(*least as f64 >= *most as f64 * part, "least {least}, most {most}: {got:?}");
    }
}

/// Returns the number of bytes that each of sixty streams moved in 400 ms.
fn sixty_greedy_streams(memory_bytes: usize) -> Vec<usize> {
    let mut configs = [config(0), config(1)];
    for config in &mut configs {
        config.memory.transmit_bytes = memory_bytes;
        config.memory.receive_bytes = memory_bytes;
    }
    let mut pair = Pair::of(configs);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let streams: Vec<_> = (0..60).map(|_| pair.boards[0].host().open(socket(1, 80)).unwrap()).collect();
    pair.run();
    let accepted: Vec<_> =
        pair.completions(1)
            .into_iter()
            .filter_map(|completion| {
                if let Completion::Accepted { stream, .. } = completion { Some(stream) } else { None }
            })
            .collect();
    assert_eq!(accepted.len(), 60);
    let bytes = noise(1 << 20);
    let mut got = vec![0; 60];
    let mut buffer = vec![0; 64 << 10];
    for stream in &streams {
        pair.boards[0].host().write(*stream, &bytes).unwrap();
    }
    for _round in 0..4000 {
        let later = pair.now + Duration::from_micros(100);
        pair.run_until(later);
        // Write to each stream that is reported writable.
        for completion in pair.completions(0) {
            if let Completion::Writable { stream } = completion {
                pair.boards[0].host().write(stream, &bytes).unwrap();
            }
        }
        for (stream, got) in accepted.iter().zip(&mut got) {
            *got += pair.boards[1].host().read(*stream, &mut buffer).unwrap();
        }
    }
    got
}
