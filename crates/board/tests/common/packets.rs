//! Hand-made packets and cells, correct in every field until a test modifies them.

use kiban_atm::TimedCell;
use kiban_atm::wire::aal5::{self, Trailer};
use kiban_atm::wire::atm::{Header as CellHeader, Interface, Vc};
use kiban_base::checksum;
use kiban_base::crc::Crc32Aal5;
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Instant, SimRng, Sum};
use kiban_tcpip::wire::{icmp, ipv4, tcp, udp};
use std::net::{IpAddr, SocketAddr};

/// Returns bytes that depend on position and seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = SimRng::from_seed(seed);
    (0..length).map(|_| rng.draw() as u8).collect()
}

/// Returns an IPv4 packet with options. The caller must have padded the options.
pub(crate) fn ip_with(
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(target)) = (source, target) else { panic!("IPv4 only") };
    let total = ipv4::HEADER_BYTES + options.len() + payload.len();
    let header = ipv4::Header {
        traffic_class: 0,
        total_bytes: total as u16,
        identification: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol,
        source,
        target,
        options,
    };
    let mut packet = vec![0; total - payload.len()];
    header.write(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

pub(crate) fn ip(source: IpAddr, target: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip_with(source, target, protocol, &[], payload)
}

/// Returns a datagram with its UDP header, without IP.
pub(crate) fn udp(source: SocketAddr, target: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let total = udp::HEADER_BYTES + payload.len();
    let mut datagram = vec![0; udp::HEADER_BYTES];
    udp::Header { source_port: source.port(), target_port: target.port(), total_bytes: total as u16 }
        .write(&mut datagram);
    let rest = checksum::pseudo(source.ip(), target.ip(), protocol::UDP, total).plus(Sum::of(payload));
    udp::fill(&mut datagram, rest);
    datagram.extend_from_slice(payload);
    datagram
}

pub(crate) fn udp_packet(source: SocketAddr, target: SocketAddr, payload: &[u8]) -> Vec<u8> {
    ip(source.ip(), target.ip(), protocol::UDP, &udp(source, target, payload))
}

/// Returns an ICMP message, without IP.
pub(crate) fn icmp(header: icmp::Header, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; icmp::HEADER_BYTES];
    header.write(&mut message);
    icmp::fill(&mut message, Sum::of(payload));
    message.extend_from_slice(payload);
    message
}

pub(crate) fn echo_packet(source: IpAddr, target: IpAddr, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let header = icmp::Header::EchoRequest { identifier: 1, sequence };
    ip(source, target, protocol::ICMP, &icmp(header, payload))
}

/// Writes the correct checksum into a TCP segment whose header has `header_bytes`.
pub(crate) fn sum_tcp(source: IpAddr, target: IpAddr, segment: &mut [u8]) {
    segment[16..18].fill(0);
    let sum = checksum::pseudo(source, target, protocol::TCP, segment.len()).plus(Sum::of(segment));
    segment[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// The fields of a crafted segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: tcp::Flags,
    pub(crate) window: u16,
}

/// Returns a TCP packet with the given option bytes. The caller must have padded them.
pub(crate) fn tcp_packet_with(
    source: SocketAddr,
    target: SocketAddr,
    segment: Segment,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header = tcp::Header {
        source_port: source.port(),
        target_port: target.port(),
        sequence: tcp::Sequence(segment.sequence),
        acknowledgment: tcp::Sequence(segment.acknowledgment),
        flags: segment.flags,
        window: segment.window,
        urgent: 0,
        options: tcp::Options::NONE,
    };
    let mut bytes = vec![0; tcp::HEADER_BYTES];
    header.write(&mut bytes);
    bytes[12] = (((tcp::HEADER_BYTES + options.len()) / 4) as u8) << 4;
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    sum_tcp(source.ip(), target.ip(), &mut bytes);
    ip(source.ip(), target.ip(), protocol::TCP, &bytes)
}

pub(crate) fn tcp_packet(
    source: SocketAddr,
    target: SocketAddr,
    segment: Segment,
    payload: &[u8],
) -> Vec<u8> {
    tcp_packet_with(source, target, segment, &[], payload)
}

/// Puts LLC/SNAP in front of a packet (RFC 2684 §5).
pub(crate) fn llc(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xaa, 0xaa, 3, 0, 0, 0];
    bytes.extend_from_slice(&ether_type.to_be_bytes());
    bytes.extend_from_slice(packet);
    bytes
}

pub(crate) fn llc_ip(packet: &[u8]) -> Vec<u8> {
    llc(ether_type::IPV4, packet)
}

/// Returns the bytes of a CPCS-PDU: payload, pad, trailer (I.363.5 §9.2.1).
pub(crate) fn cpcs(payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    bytes.resize(payload.len() + aal5::pad_bytes(payload.len()), 0);
    let mut trailer = [0; aal5::TRAILER_BYTES];
    Trailer { user_to_user: 0, length: payload.len() as u16, crc: 0 }.write(&mut trailer);
    bytes.extend_from_slice(&trailer[..4]);
    let crc = Crc32Aal5::of(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

/// Writes the correct CRC into a CPCS-PDU whose trailer was modified.
pub(crate) fn crc_again(cpcs: &mut [u8]) {
    let at = cpcs.len() - 4;
    let crc = Crc32Aal5::of(&cpcs[..at]);
    cpcs[at..].copy_from_slice(&crc.to_be_bytes());
}

/// Returns one cell at time zero.
pub(crate) fn cell(vc: Vc, last: bool, payload: &[u8]) -> TimedCell {
    let word = CellHeader::user(vc, last).to_word(Interface::Uni);
    TimedCell::new(Instant::ZERO, word, payload.try_into().expect("48 bytes"))
}

/// Returns a management cell.
pub(crate) fn management(vc: Vc, pti: u8, payload: [u8; 48]) -> TimedCell {
    let header = CellHeader { pti, ..CellHeader::user(vc, false) };
    TimedCell::new(Instant::ZERO, header.to_word(Interface::Uni), payload)
}

/// Returns the cells that carry a CPCS-PDU; the last one is marked.
pub(crate) fn cells_of(vc: Vc, cpcs: &[u8]) -> Vec<TimedCell> {
    let count = cpcs.len() / 48;
    cpcs.chunks(48).enumerate().map(|(at, payload)| cell(vc, at + 1 == count, payload)).collect()
}

/// Returns the cells of a whole frame.
pub(crate) fn frame(vc: Vc, payload: &[u8]) -> Vec<TimedCell> {
    cells_of(vc, &cpcs(payload))
}
