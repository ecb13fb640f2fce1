//! A board behind an IP port, fed with arbitrary packets of both families.
//!
//! Input     a sequence of packets. Each has a byte of corrections (1: lengths and checksums; 2: addressed to
//!           the board, from a neighbour), a length of two bytes, and the packet itself.
//! Checks    nothing panics. A packet causes at most a few answers, each correct, and all memory is freed.

use crate::features::Features;
use crate::input::Input;
use crate::tcpip::craft;
use crate::tcpip::stand::{BOARD, BOARD6, PEER, PEER6, Stand, check_sent, memory};
use kiban_board::{BoardConfig, IpPortConfig, PortAddress, PortConfig};
use kiban_tcpip::wire::{icmp, icmpv6, tcp};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Maximum number of packets that one packet may cause: an echo reply that is fragmented for a small MTU.
const ANSWERS_MAX: usize = 8;

/// The board's IPv6 address on that port.
pub(crate) fn address6() -> PortAddress {
    PortAddress { port: 0, address: BOARD6.into(), prefix: "fd00::/64".parse().expect("a prefix") }
}

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
    let config = BoardConfig {
        memory: memory(),
        ports: vec![port()],
        addresses: vec![address6()],
        v6_only: false,
        ..BoardConfig::default()
    };
    let mut stand = Stand::new(&config);
    let mut host = stand.board.host();
    let listener =
        host.listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80)).expect("there is no listener yet");
    let socket = host.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7)).expect("the port is free");
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let mode = input.byte();
        let length = usize::from(input.short() % 2048);
        let mut packet = input.take(length).to_vec();
        if mode & 2 != 0 {
            for_the_board(&mut packet);
        }
        if mode & 1 != 0 {
            craft::mend(&mut packet);
        }
        stand.packet(&packet);
        assert!(stand.sent.len() <= ANSWERS_MAX, "{} answers to one packet", stand.sent.len());
        for answer in stand.sent.drain(..) {
            let target = check_sent(&answer).0.target;
            let is_ours = target == IpAddr::from(BOARD) || target == IpAddr::from(BOARD6);
            let is_all = matches!(target, IpAddr::V4(target) if target.is_broadcast());
            assert!(!is_ours && !is_all && !target.is_multicast(), "an answer to {target}");
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
    stand.board.host().unbind(socket).expect("it is bound");
    stand.give_up(listener);
    stand.finish();
}

/// Overwrites a packet's addresses, so that it is sent from a neighbour to the board.
pub(crate) fn for_the_board(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(6) if packet.len() >= 40 => {
            packet[8..24].copy_from_slice(&PEER6.octets());
            packet[24..40].copy_from_slice(&BOARD6.octets());
        }
        Some(_) if packet.len() >= 20 => {
            packet[12..16].copy_from_slice(&PEER.octets());
            packet[16..20].copy_from_slice(&BOARD.octets());
        }
        _ => {}
    }
}

/// Packets of both families that a board should accept.
pub(crate) fn packets() -> Vec<Vec<u8>> {
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
    let mut packets = Vec::new();
    for (peer, board) in [(PEER.into(), BOARD.into()), (IpAddr::from(PEER6), IpAddr::from(BOARD6))] {
        let ends = |port| (SocketAddr::new(peer, 1000), SocketAddr::new(board, port));
        packets.extend([
            craft::tcp(ends(80), &segment(tcp::Flags::SYN, 0), &[2, 4, 5, 180], b""),
            craft::tcp(ends(80), &segment(tcp::Flags::ACK, 9), &[], b"data for nobody"),
            craft::tcp(ends(81), &segment(tcp::Flags::SYN, 0), &[], b""),
            craft::udp(ends(7), b"a datagram"),
            craft::udp(ends(9), b"a datagram for nobody"),
            craft::ip(peer, board, 99, b"an unknown protocol"),
        ]);
    }
    let (syn, syn6) = (packets[0].clone(), packets[6].clone());
    let ping = icmp::Header::EchoRequest { identifier: 1, sequence: 2 };
    let trouble = icmp::Header::Unreachable { code: 4, next_hop_mtu: 576 };
    packets.push(craft::icmp(PEER.into(), BOARD.into(), ping, b"a ping"));
    packets.push(craft::icmp(PEER.into(), BOARD.into(), trouble, &syn[..28]));
    let ping = icmpv6::Header::EchoRequest { identifier: 1, sequence: 2 };
    packets.push(craft::icmpv6(PEER6, BOARD6, ping, b"a ping"));
    packets.push(craft::icmpv6(PEER6, BOARD6, icmpv6::Header::TooLong { mtu: 1280 }, &syn6));
    packets.push(craft::behind_options(&syn6, 3));
    packets.push(craft::behind_options(&syn6, 9));
    let long = packets[packets.len() - 4].clone();
    packets.extend(craft::fragments(&long, 8));
    packets.extend(craft::fragments(&packets[3].clone(), 8));
    packets
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let packets = packets();
    let framed =
        |mode: u8, packet: &Vec<u8>| [&[mode][..], &(packet.len() as u16).to_be_bytes(), packet].concat();
    let mut seeds: Vec<_> = packets.iter().map(|packet| framed(3, packet)).collect();
    seeds.push(packets.iter().flat_map(|packet| framed(0, packet)).collect());
    seeds
}
