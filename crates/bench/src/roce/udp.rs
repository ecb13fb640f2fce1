//! Bare UDP: a stream of trains, and round trips of single datagrams.

use super::streams::Setup;
use crate::rdma::{PATIENCE, Peer, WARM, answer, own_address};
use kiban_base::{Instant, Wait};
use kiban_lab::Trial;
use kiban_os::Clock;
use kiban_os::udp::{TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// Requested size of the receive buffer in bytes, as for the sockets of RoCEv2.
const QUEUE_BYTES: usize = 8 << 20;
/// A stream has ended if nothing has arrived for this long.
pub(super) const SILENCE: Duration = Duration::from_millis(60);
/// Number of polls between two looks at the clock.
const POLLS: usize = 1 << 8;

pub(super) fn open(address: std::net::IpAddr) -> UdpLink {
    let link = UdpLink::bind(SocketAddr::new(address, 0)).expect("the address is this host's");
    link.request_receive_buffer(QUEUE_BYTES);
    link.request_trains();
    link.forbid_fragments();
    link
}

/// A receiver that waits by a policy.
struct Receiver {
    link: UdpLink,
    /// The same socket, made blocking, for a receiver that sleeps.
    blocking: Option<UdpSocket>,
    clock: Clock,
    room: Vec<u8>,
}

impl Receiver {
    fn open(wait: Wait) -> Receiver {
        let link = open(own_address());
        let blocking = (wait != Wait::Poll).then(|| {
            let socket = UdpSocket::from(link.as_fd().try_clone_to_owned().expect("files"));
            socket.set_nonblocking(false).expect("a socket");
            socket
        });
        Receiver { link, blocking, clock: Clock::new(), room: vec![0; 1 << 16] }
    }

    /// Returns the number of bytes that one call receives, and the time; `None` after `patience`.
    fn next(&mut self, patience: Duration) -> Option<(usize, Instant)> {
        if let Some(socket) = &self.blocking {
            socket.set_read_timeout(Some(patience)).expect("a socket");
            let bytes = socket.recv(&mut self.room).ok()?;
            return Some((bytes, self.clock.now()));
        }
        let until = self.clock.now() + patience;
        loop {
            for _ in 0..POLLS {
                if let Some(train) = self.link.receive_train(&mut self.room).expect("a socket") {
                    return Some((train.bytes, self.clock.now()));
                }
            }
            if self.clock.now() >= until {
                return None;
            }
        }
    }
}

/// Receives a stream until it falls silent; answers with the bytes and the nanoseconds from the first to the
/// last.
pub(super) fn sink(wait: Wait) {
    let mut receiver = Receiver::open(wait);
    answer(receiver.link.local());
    let Some((_, first)) = receiver.next(PATIENCE) else { return answer("0 1") };
    let (mut bytes, mut last) = (0, first);
    while let Some((received, now)) = receiver.next(SILENCE) {
        bytes += received;
        last = now;
    }
    answer(format!("{bytes} {}", last.since(first).as_nanos().max(1)));
}

/// Streams datagrams of `datagram_bytes` in trains; returns how many bytes arrive per second.
pub(super) fn stream(trial: &Trial, peer: &mut Peer, datagram_bytes: usize, setup: &Setup) -> f64 {
    let to: SocketAddr = peer.ask(&format!("udp-sink {}", setup.wait.0)).parse().expect("an address");
    let link = open(setup.here);
    let count = (TRAIN_BYTES_MAX / datagram_bytes).min(TRAIN_MAX);
    let train = crate::noise::noise(3, count * datagram_bytes);
    let clock = trial.clock();
    let until = clock.now() + WARM + Duration::from_nanos(trial.span_nanos());
    while clock.now() < until {
        // Datagrams for which the receiver's socket has no room are lost.
        link.send_train(&train, datagram_bytes, to);
    }
    let said = peer.hear();
    let (bytes, nanos) = said.split_once(' ').expect("two numbers");
    let (bytes, nanos): (f64, f64) = (bytes.parse().expect("bytes"), nanos.parse().expect("nanoseconds"));
    bytes * 1e9 / nanos
}

/// Returns datagrams to their sender until an empty one arrives.
pub(super) fn echo(bytes: usize) {
    let link = open(own_address());
    answer(link.local());
    let (clock, mut room) = (Clock::new(), vec![0; bytes]);
    let mut until = clock.now() + PATIENCE;
    while clock.now() < until {
        for _ in 0..POLLS {
            match link.receive(&mut room) {
                Some((0, _)) => return,
                Some((received, from)) => {
                    link.send(&room[..received], from);
                    until = clock.now() + PATIENCE;
                }
                None => {}
            }
        }
    }
}

/// Exchanges datagrams, polling; returns half a round trip in microseconds.
pub(super) fn ping_pong(trial: &Trial, peer: &mut Peer, bytes: usize, setup: &Setup) -> f64 {
    let to: SocketAddr = peer.ask(&format!("udp-echo {bytes}")).parse().expect("an address");
    let link = open(setup.here);
    let (clock, packet, mut room) = (trial.clock(), vec![7; bytes], vec![0; bytes]);
    let turns = |room: &mut [u8], count: usize| {
        for _ in 0..count {
            assert!(link.send(&packet, to), "the socket takes it");
            let until = clock.now() + PATIENCE;
            while (0..POLLS).find_map(|_| link.receive(room)).is_none() {
                assert!(clock.now() < until, "the peer answers");
            }
        }
        count as f64
    };
    turns(&mut room, 200);
    let span = trial.measure(|| turns(&mut room, 100));
    link.send(&[], to);
    span.nanos_each() / 2e3
}
