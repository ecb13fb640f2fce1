//! Shared by the tests of this folder.

use crate::common::hub::*;
use kiban_base::ethernet::{HEADER_BYTES, Header, Mac};
use kiban_base::numbers::ether_type;
use kiban_board::Completion;
use kiban_tcpip::wire::arp::{self};
use kiban_tcpip::wire::discovery::Message;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

pub(crate) fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn noise(length: usize) -> Vec<u8> {
    crate::common::packets::noise(length as u64, length)
}

pub(crate) fn arp_frame(target: Mac, packet: arp::Packet) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + arp::PACKET_BYTES];
    Header { target, source: packet.sender_mac, ether_type: ether_type::ARP }.write(&mut bytes);
    packet.write(&mut bytes[HEADER_BYTES..]);
    bytes
}

/// Returns the ARP packets among frames.
pub(crate) fn arps(frames: &[Vec<u8>]) -> Vec<(Mac, arp::Packet)> {
    let is_arp = |frame: &&Vec<u8>| frame[12..14] == [8, 6];
    let read = |frame: &Vec<u8>| {
        let (header, _) = Header::read(frame).unwrap();
        (header.target, arp::Packet::read(&frame[HEADER_BYTES..]).unwrap().0)
    };
    frames.iter().filter(is_arp).map(read).collect()
}

/// Returns the neighbour discovery messages among frames: source, destination, message.
pub(crate) fn discoveries(frames: &[Vec<u8>]) -> Vec<(Ipv6Addr, Ipv6Addr, Message)> {
    let read = |frame: &Vec<u8>| {
        let (header, length) = kiban_tcpip::wire::ipv6::Header::read(frame.get(HEADER_BYTES..)?).ok()?;
        let (message, _) = Message::read(&frame[HEADER_BYTES + length..]).ok()?;
        Some((header.source, header.target, message))
    };
    frames.iter().filter_map(read).collect()
}

/// Sends `bytes` over a stream to `remote` and back, then closes it.
pub(crate) fn stream_there_and_back(hub: &mut Hub, remote: SocketAddr, local: SocketAddr, bytes: &[u8]) {
    hub.boards[1].host().listen(local).unwrap();
    let near = hub.boards[0].host().open(remote).unwrap();
    hub.pass(second(1));
    assert!(hub.take_completions(0).contains(&Completion::Opened { stream: near }));
    let completions = hub.take_completions(1);
    let far = completions.iter().find_map(|completion| match completion {
        Completion::Accepted { stream, remote: peer, .. } => {
            assert_eq!(peer.is_ipv4(), remote.is_ipv4(), "the peer's true family");
            Some(*stream)
        }
        _ => None,
    });
    let far = far.expect("accepted");
    for (from, to) in [((0, near), (1, far)), ((1, far), (0, near))] {
        let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 65536]);
        for _ in 0..20_000 {
            sent += hub.boards[from.0].host().write(from.1, &bytes[sent..]).unwrap();
            hub.pass(Duration::from_millis(5));
            while let Ok(count @ 1..) = hub.boards[to.0].host().read(to.1, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
            }
            if got.len() == bytes.len() {
                break;
            }
        }
        assert!(got == bytes, "{} of {}", got.len(), bytes.len());
    }
    hub.boards[0].host().close(near).unwrap();
    hub.boards[1].host().close(far).unwrap();
    hub.pass(second(100));
}
