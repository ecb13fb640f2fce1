//! A board behind an IP port takes any packets.
//!
//! Input     packets one behind the other: a byte that says what is mended (1: lengths and sums; 2: it is for the board,
//!           from a neighbour), a length of two bytes, the packet.
//! Promises  no panic; at most a few answers a packet, each right; memory comes home.

use crate::Features;
use crate::craft;
use crate::input::Input;
use crate::stand::{BOARD, PEER, Stand, check_sent, memory};
use kiban_board::{BoardConfig, IpPortConfig, PortConfig};
use kiban_wire::{icmp, tcp};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Packets that one packet may cause: an echo reply cut for a narrow port is the most.
const ANSWERS_MAX: usize = 8;

pub(crate) fn port() -> PortConfig {
    PortConfig::Ip(IpPortConfig {
        address: BOARD.into(),
        prefix: "10.0.0.0/24".parse().expect("a prefix"),
        mtu_bytes: 1500,
        packets_max: 64,
        cuts: false,
        merges: false,
        believe_sums: false,
    })
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let config = BoardConfig { memory: memory(), ports: vec![port()], ..BoardConfig::default() };
    let mut stand = Stand::new(&config);
    let mut host = stand.board.host();
    let listener = host.listen(SocketAddr::new(BOARD.into(), 80)).expect("nobody listens yet");
    let socket = host.bind(SocketAddr::new(BOARD.into(), 7)).expect("the port is free");
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let mode = input.byte();
        let length = usize::from(input.short() % 2048);
        let mut packet = input.take(length).to_vec();
        if mode & 2 != 0 && packet.len() >= 20 {
            packet[12..16].copy_from_slice(&PEER.octets());
            packet[16..20].copy_from_slice(&BOARD.octets());
        }
        if mode & 1 != 0 {
            craft::mend(&mut packet);
        }
        stand.packet(&packet);
        assert!(stand.sent.len() <= ANSWERS_MAX, "{} answers to one packet", stand.sent.len());
        for answer in stand.sent.drain(..) {
            let (ip, _) = check_sent(&answer);
            assert!(ip.target != BOARD && !ip.target.is_broadcast(), "an answer to {}", ip.target);
        }
        if mode & 4 != 0 {
            stand.pass(Duration::from_millis(u64::from(mode) * 10));
            stand.sent.clear();
        }
        let mut host = stand.board.host();
        while let Ok(Some(_)) = host.receive_from(socket, &mut [0; 2048]) {}
        stand.drain();
    }
    stand.show(features);
    let streams: Vec<_> = stand
        .completions
        .iter()
        .filter_map(|told| match told {
            kiban_board::Completion::Accepted { stream, .. } => Some(*stream),
            _ => None,
        })
        .collect();
    let mut host = stand.board.host();
    host.unlisten(listener).expect("it listens");
    host.unbind(socket).expect("it is bound");
    for stream in streams {
        host.abort(stream).expect("a stream stays until it is closed");
    }
    stand.drain();
    stand.finish();
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ends = |port| (SocketAddrV4::new(PEER, 1000), SocketAddrV4::new(BOARD, port));
    let segment = |flags, acknowledgment| tcp::Header {
        source_port: 1000,
        target_port: 80,
        sequence: tcp::Sequence(1),
        acknowledgment: tcp::Sequence(acknowledgment),
        flags,
        window: 1000,
        urgent: 0,
        options: tcp::Options::NONE,
    };
    let ping = icmp::Header::EchoRequest { identifier: 1, sequence: 2 };
    let trouble = icmp::Header::Unreachable { code: 4, next_hop_mtu: 576 };
    let syn = craft::tcp(ends(80), &segment(tcp::Flags::SYN, 0), &[2, 4, 5, 180], b"");
    let packets = [
        syn.clone(),
        craft::tcp(ends(80), &segment(tcp::Flags::ACK, 9), &[], b"data for nobody"),
        craft::tcp(ends(81), &segment(tcp::Flags::SYN, 0), &[], b""),
        craft::udp(ends(7), b"a datagram"),
        craft::udp(ends(9), b"a datagram for nobody"),
        craft::icmp(PEER, BOARD, ping, b"a ping"),
        craft::icmp(PEER, BOARD, trouble, &syn[..28]),
        craft::ip(PEER, BOARD, 99, b"an unknown protocol"),
    ];
    let framed =
        |mode: u8, packet: &Vec<u8>| [&[mode][..], &(packet.len() as u16).to_be_bytes(), packet].concat();
    let mut seeds: Vec<_> = packets.iter().map(|packet| framed(3, packet)).collect();
    seeds.push(packets.iter().flat_map(|packet| framed(0, packet)).collect());
    seeds
}
