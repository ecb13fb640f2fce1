//! Packets made by hand, right in every respect until an input spoils them.

use kiban_ground::Sum;
use kiban_wire::numbers::protocol;
use kiban_wire::{checksum, icmp, ipv4, tcp, udp};
use std::net::{Ipv4Addr, SocketAddrV4};

/// An IPv4 packet.
pub(crate) fn ip(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        traffic_class: 0,
        total_bytes: (ipv4::HEADER_BYTES + payload.len()) as u16,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol,
        source,
        target,
        options: &[],
    };
    let mut packet = vec![0; ipv4::HEADER_BYTES];
    header.write(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// A TCP packet with option bytes as they are: they are padded here with the end of the list.
pub(crate) fn tcp(
    ends: (SocketAddrV4, SocketAddrV4),
    header: &tcp::Header,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; header.length()];
    header.write(&mut bytes);
    bytes.extend_from_slice(&options[..options.len().min(60 - bytes.len())]);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes[12] = ((bytes.len() / 4) as u8) << 4;
    let head = bytes.len();
    bytes.extend_from_slice(payload);
    let (source, target) = (*ends.0.ip(), *ends.1.ip());
    let rest = checksum::pseudo_ipv4(source, target, protocol::TCP, bytes.len()).plus(Sum::of(payload));
    tcp::fill(&mut bytes[..head], rest);
    ip(source, target, protocol::TCP, &bytes)
}

pub(crate) fn udp(ends: (SocketAddrV4, SocketAddrV4), payload: &[u8]) -> Vec<u8> {
    let total = udp::HEADER_BYTES + payload.len();
    let mut bytes = vec![0; udp::HEADER_BYTES];
    udp::Header { source_port: ends.0.port(), target_port: ends.1.port(), total_bytes: total as u16 }
        .write(&mut bytes);
    let (source, target) = (*ends.0.ip(), *ends.1.ip());
    let rest = checksum::pseudo_ipv4(source, target, protocol::UDP, total).plus(Sum::of(payload));
    udp::fill(&mut bytes, rest);
    bytes.extend_from_slice(payload);
    ip(source, target, protocol::UDP, &bytes)
}

pub(crate) fn icmp(source: Ipv4Addr, target: Ipv4Addr, header: icmp::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; icmp::HEADER_BYTES];
    header.write(&mut bytes);
    icmp::fill(&mut bytes, Sum::of(payload));
    bytes.extend_from_slice(payload);
    ip(source, target, protocol::ICMP, &bytes)
}

/// Makes lengths and sums of an IPv4 packet fit what it carries, as far as it can be read: what is spoilt then is
/// deeper.
pub(crate) fn mend(packet: &mut [u8]) {
    if packet.len() < ipv4::HEADER_BYTES || packet.len() > ipv4::PACKET_BYTES_MAX {
        return;
    }
    packet[0] = 0x40 | (packet[0] & 0x0f).max(5);
    let head = usize::from(packet[0] & 0x0f) * 4;
    if head > packet.len() {
        return;
    }
    let total = packet.len();
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    packet[10..12].fill(0);
    let sum = Sum::of(&packet[..head]).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let (source, target, protocol) = (address(12), address(16), packet[9]);
    let (field, pseudo) = match protocol {
        protocol::TCP => (16, true),
        protocol::UDP => (6, true),
        protocol::ICMP => (2, false),
        _ => return,
    };
    let load = &mut packet[head..];
    if load.len() < field + 2 {
        return;
    }
    if protocol == protocol::UDP {
        let length = load.len() as u16;
        load[4..6].copy_from_slice(&length.to_be_bytes());
    }
    load[field..field + 2].fill(0);
    let mut sum = Sum::of(load);
    if pseudo {
        sum = sum.plus(checksum::pseudo_ipv4(source, target, protocol, load.len()));
    }
    load[field..field + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}
