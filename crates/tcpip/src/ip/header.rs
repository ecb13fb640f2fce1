//! IPv4 and IPv6 headers of unfragmented packets, and the minimum MTU of an IPv6 link.

use super::packet::HeaderInfo;
use crate::wire::ip::version;
use crate::wire::{ipv4, ipv6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use kiban_base::Pdu;

/// Minimum MTU of an IPv6 link, bytes (RFC 8200 §5).
pub(super) const MTU_MIN: u16 = 1280;

/// Returns the header of a whole packet with `payload_bytes` after it.
pub(super) fn header4(
    protocol: u8,
    payload_bytes: usize,
    source: Ipv4Addr,
    target: Ipv4Addr,
    brief: HeaderInfo,
) -> ipv4::Header<'static> {
    ipv4::Header {
        traffic_class: brief.traffic_class,
        total_bytes: (ipv4::HEADER_BYTES + payload_bytes).min(ipv4::PACKET_BYTES_MAX) as u16,
        identification: brief.identification,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: brief.hop_limit,
        protocol,
        source,
        target,
        options: &[],
    }
}

/// Returns the header of a whole packet with `payload_bytes` after it.
pub(super) fn header6(
    next_header: u8,
    payload_bytes: usize,
    source: Ipv6Addr,
    target: Ipv6Addr,
    brief: HeaderInfo,
) -> ipv6::Header {
    ipv6::Header {
        traffic_class: brief.traffic_class,
        flow_label: 0,
        payload_bytes: payload_bytes.min(usize::from(u16::MAX)) as u16,
        next_header,
        hop_limit: brief.hop_limit,
        source,
        target,
    }
}

/// Returns the destination address of a packet that has not been checked yet. Returns `None` if the packet is
/// shorter than its header.
pub fn target_of(pdu: &mut Pdu) -> Option<IpAddr> {
    pdu.pull_up(ipv4::HEADER_BYTES)?;
    if version(pdu.head()) == Some(6) {
        pdu.pull_up(ipv6::HEADER_BYTES)?;
        return Some(ipv6::Header::read_quoted(pdu.head()).ok()?.0.target.into());
    }
    Some(ipv4::target(pdu.head().first_chunk()?).into())
}
