//! Receive offload (LRO/GRO): merges consecutive packets of one TCP stream into one large segment.
//!
//! Purpose          TCP runs once per burst instead of once per packet.
//! Conditions       a packet is merged if it is IPv4 without options or fragmentation, has correct checksums,
//!                  and continues the stream without a gap. Its TCP header must have no flags but ACK and
//!                  PSH, and no options but timestamps in their usual layout. Its headers must equal the
//!                  previous ones except for length, identification, sequence number and checksum. Any other
//!                  packet is passed on unchanged, after everything collected before it, so that order is
//!                  kept and TCP processes every unusual segment itself.
//! Payload          the payload is referenced; slices that are contiguous in memory become one.
//! Limits           a merged packet is at most as long as the longest IPv4 packet; it is passed on at the end
//!                  of the burst.

use crate::wire::tcp::{Flags, Sequence};
use crate::wire::{ipv4, tcp};
use kiban_base::Pdu;
use kiban_base::checksum;
use kiban_base::numbers::protocol;

/// Length of IPv4 and TCP headers without options, bytes.
const HEAD_BYTES: usize = ipv4::HEADER_BYTES + tcp::HEADER_BYTES;
/// Length of IPv4 and TCP headers with the timestamps option (RFC 7323 appendix A), bytes.
const STAMPED_BYTES: usize = HEAD_BYTES + tcp::TIMESTAMPS_BYTES;

/// The packet being merged.
#[derive(Debug, Default)]
pub struct Merge {
    collected: Option<Pdu>,
    /// Sequence number following the last byte.
    next: Sequence,
    packets: usize,
}

impl Merge {
    /// Processes a packet that arrived, and passes complete packets to `up`.
    pub fn on_packet(&mut self, mut pdu: Pdu, mut up: impl FnMut(Pdu)) {
        if !may_merge(&pdu) {
            self.flush(&mut up);
            return up(pdu);
        }
        let transport = &pdu.head()[ipv4::HEADER_BYTES..];
        let (sequence, flags) = (tcp::sequence(transport), tcp::flags(transport));
        let payload = pdu.body_len();
        if let Some(collected) = &mut self.collected
            && self.next == sequence
            && collected.len() + payload <= ipv4::PACKET_BYTES_MAX
            && follows(collected.head(), pdu.head())
            && collected.adopt_body(&mut pdu)
        {
            let transport = &mut collected.head_mut()[ipv4::HEADER_BYTES..];
            tcp::set_flags(transport, tcp::flags(transport) | flags);
            self.next = sequence + payload as u32;
            self.packets += 1;
            return;
        }
        self.flush(&mut up);
        self.next = sequence + payload as u32;
        self.packets = 1;
        self.collected = Some(pdu);
    }

    /// Ends the burst: passes the collected packet to `up`.
    pub fn flush(&mut self, up: &mut impl FnMut(Pdu)) {
        let Some(mut pdu) = self.collected.take() else { return };
        if self.packets > 1 {
            let total = pdu.len() as u16;
            let network = &mut pdu.head_mut()[..ipv4::HEADER_BYTES];
            ipv4::set_total_bytes(network, total);
            ipv4::fill(network);
        }
        // Every packet's checksum was verified, but the merged packet's own checksum is not valid.
        pdu.set_verified();
        up(pdu);
    }
}

/// Returns whether a packet may be merged: it has a common header layout and correct checksums. Headers of a
/// known length are summed and compared without a loop.
#[inline]
fn may_merge(pdu: &Pdu) -> bool {
    let head = pdu.head();
    if let Ok(head) = <&[u8; HEAD_BYTES]>::try_from(head) {
        is_plain(head, pdu)
    } else if let Ok(head) = <&[u8; STAMPED_BYTES]>::try_from(head) {
        head[HEAD_BYTES..HEAD_BYTES + 4] == tcp::TIMESTAMPS_ALONE && is_plain(head, pdu)
    } else {
        false
    }
}

#[inline]
fn is_plain<const N: usize>(head: &[u8; N], pdu: &Pdu) -> bool {
    let (network, transport) = head.split_at(ipv4::HEADER_BYTES);
    // With IP options the header would be longer than this.
    let Ok((ip, _)) = ipv4::Header::read_quoted(network) else { return false };
    // Require TCP, no fragmentation, the expected data offset, ACK and possibly PSH, some payload and exactly
    // the packet's length.
    if ip.protocol != protocol::TCP
        || ip.is_fragment()
        || tcp::header_bytes(transport) != transport.len()
        || tcp::flags(transport).without(Flags::PSH) != Flags::ACK
        || pdu.body_len() == 0
        || usize::from(ip.total_bytes) != pdu.len()
    {
        return false;
    }
    let length = transport.len() + pdu.body_len();
    let pseudo = checksum::pseudo_ipv4(ip.source, ip.target, protocol::TCP, length);
    ipv4::verify(network).is_ok() && tcp::verify(transport, pseudo.plus(pdu.body_sum())).is_ok()
}

/// Returns whether the headers of two packets that may be merged are equal except for length, identification,
/// checksums, sequence number and PSH.
#[inline]
fn follows(one: &[u8], other: &[u8]) -> bool {
    let (Some((network, transport, stamps)), Some((other_network, other_transport, other_stamps))) =
        (split(one), split(other))
    else {
        return false;
    };
    // Merge only if neither has timestamps or both have equal ones: if they differ, TCP must decide which of
    // the two values to echo.
    let same_stamps = match (stamps.first_chunk::<{ tcp::TIMESTAMPS_BYTES }>(), other_stamps.first_chunk()) {
        (Some(one), Some(other)) => one == other,
        (one, other) => one.is_none() && other.is_none(),
    };
    same_stamps
        && ipv4::may_be_joined(network, other_network)
        && tcp::may_be_joined(transport, other_transport)
}

/// Splits the headers of a packet: IPv4 without options, the fixed part of TCP, and TCP's options.
#[inline]
fn split(head: &[u8]) -> Option<(&[u8; ipv4::HEADER_BYTES], &[u8; tcp::HEADER_BYTES], &[u8])> {
    let (network, rest) = head.split_first_chunk()?;
    let (transport, options) = rest.split_first_chunk()?;
    Some((network, transport, options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use kiban_base::{PagePool, PduPool};

    /// Returns the packet number `n` of a stream, with `payload` bytes and a traffic class.
    fn packet(n: u32, class: u8, flags: Flags, pools: &mut (PduPool, PagePool)) -> Pdu {
        const PAYLOAD: usize = 100;
        let (source, target) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut pdu = pools.0.take().expect("a PDU");
        pdu.push_body(pools.1.take().expect("a page").append(&[n as u8; PAYLOAD]).expect("room"))
            .expect("room");
        let header = tcp::Header {
            source_port: 1,
            target_port: 2,
            sequence: Sequence(n * PAYLOAD as u32),
            acknowledgment: Sequence(7),
            flags,
            window: 1000,
            urgent: 0,
            options: tcp::Options::NONE,
        };
        header.write(pdu.push_head(tcp::HEADER_BYTES));
        let length = tcp::HEADER_BYTES + PAYLOAD;
        let pseudo = checksum::pseudo_ipv4(source, target, protocol::TCP, length);
        let sum = pseudo.plus(pdu.body_sum());
        tcp::fill(pdu.head_mut(), sum);
        let total = (ipv4::HEADER_BYTES + length) as u16;
        let network = ipv4::Header {
            traffic_class: class,
            total_bytes: total,
            identification: n as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: 64,
            protocol: protocol::TCP,
            source,
            target,
            options: &[],
        };
        network.write(pdu.push_head(ipv4::HEADER_BYTES));
        pdu
    }

    /// RFC 3168 §5.3 applies to merging as to reassembly: each mark reaches TCP.
    #[test]
    fn packets_with_different_marks_are_not_merged() {
        let mut pools = (PduPool::new(16), PagePool::new(16, 256));
        let mut merge = Merge::default();
        let mut lengths: Vec<usize> = Vec::new();
        for (n, class) in [2, 2, 3, 3, 2, 0].into_iter().enumerate() {
            let one = packet(n as u32, class, Flags::ACK, &mut pools);
            merge.on_packet(one, |pdu| lengths.push(pdu.body_len()));
        }
        let reduced = packet(6, 0, Flags::ACK | Flags::CWR, &mut pools);
        merge.on_packet(reduced, |pdu| lengths.push(pdu.body_len()));
        assert_eq!(lengths, [200, 200, 100, 100, 100]);
    }
}
