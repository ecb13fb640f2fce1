//! The least work that RoCEv2 requires of both ends, without a NIC: how much of a bare stream's throughput
//! any implementation can reach on this machine.
//!
//! Sender     copies each packet's payload behind its headers, appends a CRC over both, and sends the packets
//!            of a message in trains. The first packet of a Write has an RETH, so it is longer than those
//!            that follow and is sent on its own. At most [`WINDOW_BYTES`] are unacknowledged.
//! Receiver   checks the CRC of each packet, copies its payload to its destination, and acknowledges every
//!            message with one datagram.
//! Left out   keys, queues, completions, timers, retransmission, congestion control.

use super::streams::Setup;
use super::udp::{SILENCE, open};
use crate::rdma::{PATIENCE, Peer, RING_BYTES, WARM, answer, own_address};
use kiban_base::Instant;
use kiban_base::crc::Crc32Ethernet;
use kiban_lab::Trial;
use kiban_os::Clock;
use kiban_os::udp::{TRAIN_BYTES_MAX, TRAIN_MAX, UdpLink};
use std::net::SocketAddr;
use std::time::Duration;

const BTH_BYTES: usize = 12;
const RETH_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// As many bytes as a queue pair may have in flight.
const WINDOW_BYTES: u64 = 256 << 10;
const MESSAGE_BYTES: usize = 64 << 10;
/// Number of polls between two looks at the clock.
const POLLS: usize = 1 << 8;

fn seal(train: &mut Vec<u8>, start: usize) {
    let mut crc = Crc32Ethernet::new();
    crc.update(&train[start..]);
    train.extend_from_slice(&crc.value().to_le_bytes());
}

/// Polls `next` until it returns something, for at most `patience`.
fn poll<T>(clock: &Clock, patience: Duration, mut next: impl FnMut() -> Option<T>) -> Option<T> {
    let until = clock.now() + patience;
    loop {
        if let Some(found) = (0..POLLS).find_map(|_| next()) {
            return Some(found);
        }
        if clock.now() >= until {
            return None;
        }
    }
}

/// Receives messages, of which packets carry `path_mtu` bytes, until it falls silent.
pub(super) fn sink(path_mtu: usize) {
    let link = open(own_address());
    answer(link.local());
    let (clock, mut room, mut ring) = (Clock::new(), vec![0; 1 << 16], vec![0; RING_BYTES]);
    let (mut at, mut placed, mut patience) = (0, 0u64, PATIENCE);
    while let Some(train) = poll(&clock, patience, || link.receive_train(&mut room).expect("a socket")) {
        for packet in room[..train.bytes].chunks(train.each) {
            let (covered, crc) = packet.split_at(packet.len() - CRC_BYTES);
            let mut computed = Crc32Ethernet::new();
            computed.update(covered);
            assert_eq!(computed.value().to_le_bytes(), crc, "the packet is intact");
            ring[at..at + path_mtu].copy_from_slice(&covered[covered.len() - path_mtu..]);
            at = (at + path_mtu) % RING_BYTES;
            placed += path_mtu as u64;
            if placed.is_multiple_of(MESSAGE_BYTES as u64) {
                link.send(&placed.to_be_bytes(), train.from);
            }
        }
        patience = SILENCE;
    }
}

struct Sender<'a> {
    link: UdpLink,
    to: SocketAddr,
    clock: &'a Clock,
    train: Vec<u8>,
    sent: u64,
    placed: u64,
}

impl Sender<'_> {
    /// Waits until at most `bytes` await their acknowledgement.
    fn wait(&mut self, bytes: u64) {
        let mut room = [0; 8];
        while self.sent - self.placed > bytes {
            let acknowledged = poll(self.clock, PATIENCE, || self.link.receive(&mut room));
            assert!(acknowledged.is_some(), "a window fits into the receiver's socket");
            self.placed = u64::from_be_bytes(room);
        }
    }

    fn flush(&mut self, each: usize) {
        while self.link.send_train(&self.train, each, self.to) != kiban_os::udp::SendResult::All {}
        self.train.clear();
    }

    fn send(&mut self, message: &[u8], path_mtu: usize) {
        self.wait(WINDOW_BYTES - message.len() as u64);
        let each = BTH_BYTES + path_mtu + CRC_BYTES;
        let train_packets = (TRAIN_BYTES_MAX / each).min(TRAIN_MAX);
        for (number, payload) in message.chunks(path_mtu).enumerate() {
            let start = self.train.len();
            let headers_bytes = if number == 0 { BTH_BYTES + RETH_BYTES } else { BTH_BYTES };
            self.train.resize(start + headers_bytes, number as u8);
            self.train.extend_from_slice(payload);
            seal(&mut self.train, start);
            if number == 0 {
                self.flush(self.train.len());
            } else if number % train_packets == 0 {
                self.flush(each);
            }
        }
        if !self.train.is_empty() {
            self.flush(each);
        }
        self.sent += message.len() as u64;
    }
}

/// Sends messages of 64 KiB; returns the payload in bytes that arrives per second.
pub(super) fn stream(trial: &Trial, peer: &mut Peer, setup: &Setup) -> f64 {
    let to = peer.ask(&format!("roce-minimum-sink {}", setup.path_mtu)).parse().expect("an address");
    let (clock, ring) = (trial.clock(), crate::noise::noise(2, RING_BYTES));
    let mut sender =
        Sender { link: open(setup.here), to, clock: &clock, train: Vec::new(), sent: 0, placed: 0 };
    let mut send_until = |until: Instant| {
        for message in ring.chunks_exact(MESSAGE_BYTES).cycle() {
            if clock.now() >= until {
                break;
            }
            sender.send(message, setup.path_mtu);
        }
        sender.wait(0);
        sender.placed
    };
    let before = send_until(clock.now() + WARM);
    let begun = clock.now();
    let after = send_until(begun + Duration::from_nanos(trial.span_nanos()));
    (after - before) as f64 * 1e9 / clock.now().since(begun).as_nanos() as f64
}
