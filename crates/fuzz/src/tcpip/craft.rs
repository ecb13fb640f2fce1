//! Builds packets that are correct in every field until an input modifies them.

use kiban_base::Sum;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_tcpip::wire::ipv6_extension::{self, Fragment};
use kiban_tcpip::wire::{icmp, icmpv6, ipv4, ipv6, tcp, udp};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Returns an IP packet of the addresses' family.
pub(crate) fn ip(source: IpAddr, target: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet;
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            packet = vec![0; ipv4::HEADER_BYTES];
            ipv4::Header {
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
            }
            .write(&mut packet);
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            packet = vec![0; ipv6::HEADER_BYTES];
            ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: payload.len() as u16,
                next_header: protocol,
                hop_limit: 255,
                source,
                target,
            }
            .write(&mut packet);
        }
        _ => panic!("two families"),
    }
    packet.extend_from_slice(payload);
    packet
}

/// Returns a TCP packet with the given option bytes, padded with end-of-list.
pub(crate) fn tcp(
    ends: (SocketAddr, SocketAddr),
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
    let (source, target) = (ends.0.ip(), ends.1.ip());
    let rest = checksum::pseudo(source, target, protocol::TCP, bytes.len()).plus(Sum::of(payload));
    tcp::fill(&mut bytes[..head], rest);
    ip(source, target, protocol::TCP, &bytes)
}

pub(crate) fn udp(ends: (SocketAddr, SocketAddr), payload: &[u8]) -> Vec<u8> {
    let total = udp::HEADER_BYTES + payload.len();
    let mut bytes = vec![0; udp::HEADER_BYTES];
    udp::Header { source_port: ends.0.port(), target_port: ends.1.port(), total_bytes: total as u16 }
        .write(&mut bytes);
    let (source, target) = (ends.0.ip(), ends.1.ip());
    let rest = checksum::pseudo(source, target, protocol::UDP, total).plus(Sum::of(payload));
    udp::fill(&mut bytes, rest);
    bytes.extend_from_slice(payload);
    ip(source, target, protocol::UDP, &bytes)
}

pub(crate) fn icmp(source: IpAddr, target: IpAddr, header: icmp::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; icmp::HEADER_BYTES];
    header.write(&mut bytes);
    icmp::fill(&mut bytes, Sum::of(payload));
    bytes.extend_from_slice(payload);
    ip(source, target, protocol::ICMP, &bytes)
}

pub(crate) fn icmpv6(source: Ipv6Addr, target: Ipv6Addr, header: icmpv6::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; icmpv6::HEADER_BYTES];
    header.write(&mut bytes);
    bytes.extend_from_slice(payload);
    let mut packet = ip(source.into(), target.into(), protocol::ICMPV6, &bytes);
    mend(&mut packet);
    packet
}

/// Splits a packet into fragments of `bytes` of payload (rounded up to whole units), in order.
pub(crate) fn fragments(packet: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let unit = bytes.next_multiple_of(8).max(8);
    let is_ipv4 = packet[0] >> 4 == 4;
    let (head, load) = packet.split_at(if is_ipv4 { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES });
    let count = load.len().div_ceil(unit);
    load.chunks(unit)
        .enumerate()
        .map(|(number, piece)| {
            let (offset_bytes, more_fragments) = ((number * unit) as u16, number + 1 < count);
            let mut fragment = head.to_vec();
            if is_ipv4 {
                let word = (offset_bytes / 8) | (u16::from(more_fragments) << 13);
                fragment[6..8].copy_from_slice(&word.to_be_bytes());
            } else {
                fragment[6] = protocol::FRAGMENT;
                let mut bytes = [0; ipv6_extension::HEADER_BYTES];
                Fragment { next_header: head[6], offset_bytes, more_fragments, identification: 9 }
                    .write(&mut bytes);
                fragment.extend_from_slice(&bytes);
            }
            fragment.extend_from_slice(piece);
            mend(&mut fragment);
            fragment
        })
        .collect()
}

/// Returns an IPv6 packet with `count` destination options headers before its payload.
pub(crate) fn behind_options(packet: &[u8], count: usize) -> Vec<u8> {
    let (head, load) = packet.split_at(ipv6::HEADER_BYTES);
    let mut longer = head.to_vec();
    let mut next = head[6];
    let mut chain = Vec::new();
    for _ in 0..count {
        // A destination options header that contains only padding.
        chain.splice(0..0, [next, 0, 1, 4, 0, 0, 0, 0]);
        next = protocol::DESTINATION_OPTIONS;
    }
    longer[6] = next;
    longer.extend(chain);
    longer.extend_from_slice(load);
    mend(&mut longer);
    longer
}

/// Corrects the lengths and checksums of a packet as far as it can be parsed, so that inputs reach deeper
/// layers.
pub(crate) fn mend(packet: &mut [u8]) {
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        mend6(packet);
    } else {
        mend4(packet);
    }
}

fn mend4(packet: &mut [u8]) {
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
    let is_fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    let address = |at: usize| IpAddr::from(*packet[at..].first_chunk::<4>().expect("a header is there"));
    let (source, target, protocol) = (address(12), address(16), packet[9]);
    if !is_fragment {
        mend_load(&mut packet[head..], source, target, protocol);
    }
}

fn mend6(packet: &mut [u8]) {
    if packet.len() < ipv6::HEADER_BYTES || packet.len() > ipv6::HEADER_BYTES + 0xffff {
        return;
    }
    let payload = (packet.len() - ipv6::HEADER_BYTES) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    let address = |at: usize| IpAddr::from(*packet[at..].first_chunk::<16>().expect("a header is there"));
    let (source, target) = (address(8), address(24));
    let (mut next, mut at) = (packet[6], ipv6::HEADER_BYTES);
    while let Some(extension) = packet.get(at..).filter(|rest| rest.len() >= 8) {
        let length = match next {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                (usize::from(extension[1]) + 1) * 8
            }
            protocol::FRAGMENT if extension[2] == 0 && extension[3] & 0xf9 == 0 => 8,
            protocol::FRAGMENT => return,
            _ => return mend_load(&mut packet[at..], source, target, next),
        };
        (next, at) = (extension[0], at + length);
    }
}

fn mend_load(load: &mut [u8], source: IpAddr, target: IpAddr, protocol: u8) {
    let (field, pseudo) = match protocol {
        protocol::TCP => (16, true),
        protocol::UDP => (6, true),
        protocol::ICMP => (2, false),
        protocol::ICMPV6 => (2, true),
        _ => return,
    };
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
        sum = sum.plus(checksum::pseudo(source, target, protocol, load.len()));
    }
    load[field..field + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}
