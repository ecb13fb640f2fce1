//! IPv4 input and output (RFC 791, RFC 1122 §3.2).
//!
//! Options          only their lengths are checked; all are ignored, including router alert (RFC 2113). The
//!                  exception is source routes: a packet with one is dropped, because source routes let a
//!                  sender spoof its address and bypass filters (RFC 7126 §4.3, §4.4).
//! DF               the DF bit is set on TCP segments if `path_mtu_discovery` is on. Other datagrams are sent
//!                  without it, and are fragmented here if they exceed the path MTU.

use super::fragment;
use super::icmp_error::IcmpErrorKind;
use super::machine::Ip;
use super::packet::{Delivery, HeaderInfo, Hop, Packet};
use super::reassembly::{Key, Piece};
use crate::wire::ipv4::{self, HEADER_BYTES, Header};
use crate::wire::ipv4_options::{self, Walk};
use core::net::{IpAddr, Ipv4Addr};
use kiban_base::{Context, Pdu};
use kiban_base::{Malformed, numbers::protocol};

/// Minimum number of TCP bytes in a first fragment; with fewer, filters cannot see the flags (RFC 1858 §3.1).
const TCP_BYTES_MIN: usize = 16;

/// The result of checking the options of a packet.
enum OptionVerdict {
    Nothing,
    /// There is a source route.
    Elsewhere,
    /// An option is malformed. Holds the offset of the wrong byte in the header.
    Wrong(usize),
}

fn check_options(options: &[u8]) -> OptionVerdict {
    let mut walk = Walk::new(options);
    while let Some(item) = walk.next() {
        match item.map(|item| item.kind) {
            Ok(ipv4_options::LOOSE_SOURCE_ROUTE | ipv4_options::STRICT_SOURCE_ROUTE) => {
                return OptionVerdict::Elsewhere;
            }
            Ok(_) => {}
            Err(_) => return OptionVerdict::Wrong(HEADER_BYTES + walk.at()),
        }
    }
    OptionVerdict::Nothing
}

impl Ip {
    #[inline]
    pub(super) fn send4<F: FnMut(Hop, &mut Context<'_>)>(
        &mut self,
        packet: Packet,
        source: Ipv4Addr,
        target: Ipv4Addr,
        cx: &mut Context<'_>,
        hop: &mut F,
    ) {
        let Packet { protocol, traffic_class, hop_limit, mut pdu, .. } = packet;
        let Some(route) = self.routes.find_from(packet.target, packet.source) else {
            self.counters.no_route += 1;
            return;
        };
        let total = pdu.len() + HEADER_BYTES;
        let (port, next) = route.hop(packet.target);
        let mut limit = route.mtu_bytes;
        let is_segment = protocol == protocol::TCP;
        let must_stay_whole = is_segment || packet.dont_fragment;
        let mut dont_fragment = is_segment && self.config.path_mtu_discovery;
        if let Some(path) = self.paths.get(packet.target, cx.now, self.config.path_mtu_age) {
            // TCP is informed of a lower path MTU separately. A segment that is still too long is sent on
            // purpose, to probe the path.
            if !is_segment {
                limit = limit.min(path.mtu.into());
            }
            dont_fragment &= !path.locked;
        }
        dont_fragment |= packet.dont_fragment;
        // If a lower layer segments the PDU, check the size of one segment.
        let piece = if pdu.segment_bytes() > 0 {
            pdu.segment_bytes() + pdu.head().len() + HEADER_BYTES
        } else {
            total
        };
        if total > ipv4::PACKET_BYTES_MAX || (piece > limit && must_stay_whole) {
            self.counters.too_long += 1;
            return;
        }
        // RFC 6864 §4.1: a packet that cannot be fragmented needs no identification, and a global counter
        // would reveal our traffic volume to other hosts.
        let identification = if dont_fragment {
            0
        } else {
            let packets =
                if pdu.segment_bytes() > 0 { pdu.body_len().div_ceil(pdu.segment_bytes()).max(1) } else { 1 };
            self.identifications.take(source, target, protocol, packets as u16)
        };
        let whole = Header {
            traffic_class,
            total_bytes: total as u16,
            identification,
            dont_fragment,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: if hop_limit == 0 { self.config.hop_limit } else { hop_limit },
            protocol,
            source,
            target,
            options: &[],
        };
        if piece <= limit {
            whole.write(pdu.push_head(HEADER_BYTES));
            self.counters.packets_out += 1;
            return hop(Hop { port, next, pdu }, cx);
        }
        let Some(pieces) = fragment::cut(pdu, limit.saturating_sub(HEADER_BYTES).max(8) & !7, cx.memory)
        else {
            self.counters.no_memory += 1;
            return;
        };
        self.counters.fragmented += 1;
        let (count, mut offset) = (pieces.len(), 0);
        for (at, mut pdu) in pieces.into_iter().enumerate() {
            let bytes = pdu.len();
            let header = Header {
                total_bytes: (bytes + HEADER_BYTES) as u16,
                more_fragments: at + 1 < count,
                fragment_offset_bytes: offset as u16,
                ..whole
            };
            header.write(pdu.push_head(HEADER_BYTES));
            offset += bytes;
            self.counters.packets_out += 1;
            self.counters.fragments_out += 1;
            hop(Hop { port, next, pdu }, cx);
        }
    }

    #[inline]
    pub(super) fn arrive4(&mut self, mut pdu: Pdu, port: usize, cx: &mut Context<'_>) -> Option<Delivery> {
        let Some(moved) = pdu.pull_up(ipv4::header_bytes(pdu.head())) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        let (header, length) = match Header::read_quoted(pdu.head()) {
            Ok(read) => read,
            Err(Malformed::FragmentRange) => {
                self.counters.fragments_beyond_max += 1;
                return None;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return None;
            }
        };
        if ipv4::verify(&pdu.head()[..length]).is_err() {
            self.counters.checksum_errors += 1;
            return None;
        }
        let total = usize::from(header.total_bytes);
        if total > pdu.len() {
            self.counters.truncated += 1;
            return None;
        }
        let mut brief = HeaderInfo {
            traffic_class: header.traffic_class,
            hop_limit: header.time_to_live,
            identification: header.identification,
            in_fragments: header.is_fragment(),
            router_alert: false,
            to_group: false,
            intercepted: false,
        };
        let protocol = header.protocol;
        let (source, target) = (IpAddr::V4(header.source), IpAddr::V4(header.target));
        if !self.own4.contains(&header.target) {
            // RFC 1122 §3.3.6, §4.2.3.10: broadcast and multicast are accepted for UDP only, and for IGMP.
            let is_for_group = target.is_multicast() && self.listens_to(port, target);
            let is_for_all = is_for_group || self.is_broadcast(header.target);
            brief.intercepted = self.intercepts(target);
            brief.to_group = is_for_all && matches!(protocol, protocol::UDP | protocol::IGMP);
            if !brief.intercepted && !brief.to_group {
                self.counters.not_ours += 1;
                return None;
            }
        }
        // RFC 1122 §3.2.1.3: a source must not be multicast, broadcast, unspecified or loopback. It must not
        // be one of our own addresses either, since packets from them never leave the host. An IGMP querier
        // may have no address (RFC 4541 §2.1.1).
        if header.source.is_multicast()
            || header.source.is_loopback()
            || self.is_broadcast(header.source)
            || (header.source == Ipv4Addr::UNSPECIFIED && protocol != protocol::IGMP)
            || self.own4.contains(&header.source)
        {
            self.counters.bad_source += 1;
            return None;
        }
        let fragment = header
            .is_fragment()
            .then_some((usize::from(header.fragment_offset_bytes), header.more_fragments));
        let wish = if length > HEADER_BYTES { check_options(header.options) } else { OptionVerdict::Nothing };
        if total < pdu.len() {
            pdu.truncate(total);
        }
        match wish {
            OptionVerdict::Nothing => {}
            OptionVerdict::Elsewhere => {
                self.counters.source_routed += 1;
                return None;
            }
            OptionVerdict::Wrong(at) => {
                self.counters.options_malformed += 1;
                if fragment.is_none_or(|(offset, _)| offset == 0) && !brief.to_group {
                    let kind = IcmpErrorKind::ParameterProblem { code: 0, pointer: at as u32 };
                    self.request_error_about(kind, source, target, pdu);
                }
                return None;
            }
        }
        if let Some((from, more)) = fragment {
            let key = Key { source, target, protocol, identification: brief.identification.into() };
            return self.collect4(key, from, more, length, brief, pdu, cx);
        }
        pdu.pull_head(length);
        Some(Delivery { source, target, protocol, pdu, brief })
    }

    #[allow(clippy::too_many_arguments)]
    fn collect4(
        &mut self,
        key: Key,
        from: usize,
        more: bool,
        header_bytes: usize,
        brief: HeaderInfo,
        mut pdu: Pdu,
        cx: &mut Context<'_>,
    ) -> Option<Delivery> {
        self.counters.fragments_in += 1;
        let bytes = pdu.len() - header_bytes;
        if bytes == 0 || (more && !bytes.is_multiple_of(8)) {
            self.counters.fragments_malformed += 1;
            return None;
        }
        // RFC 1858 §3.1, §3.2 and RFC 3128: the TCP flags must be in the first fragment, and a later fragment
        // must not overwrite them.
        if key.protocol == protocol::TCP && (from == 8 || (from == 0 && bytes < TCP_BYTES_MIN)) {
            self.counters.fragments_tiny += 1;
            return None;
        }
        let header = if from == 0 { pdu.head()[..header_bytes].to_vec() } else { Default::default() };
        pdu.pull_head(header_bytes);
        let piece = Piece { from, more, header, next_header: key.protocol, brief, pdu };
        let whole = self.reassembly.add(key, piece, cx, &mut self.counters)?;
        let Key { source, target, protocol, .. } = key;
        Some(Delivery { source, target, protocol, pdu: whole.pdu, brief: whole.brief })
    }
}
