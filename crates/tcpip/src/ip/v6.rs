//! IPv6 input and output, with extension headers (RFC 8200).
//!
//! Receive path     the chain of extension headers is walked in place, in the head: hop-by-hop options (only
//!                  as the first header), destination options, routing headers without segments left, and
//!                  fragment headers. TCP, UDP and ICMPv6 end the walk. Any other header is reported as
//!                  unknown, with a pointer to the next-header field that named it (§4).
//! Reassembly       a reassembled packet gets an IPv6 header and is walked again; a fragment header in it is
//!                  an error.
//! Transmit path    a datagram longer than the path MTU is fragmented (§4.5); TCP segments are not.
//! Limits           at most [`HEADERS_MAX`] headers, and [`OPTIONS_MAX`] options in each (RFC 8504 §5.3).

use super::fragment;
use super::header::header6;
use super::icmp_error::IcmpErrorKind;
use super::machine::Ip;
use super::packet::{Delivery, HeaderInfo, Hop, Packet};
use super::reassembly::{Key, Piece};
use crate::wire::ipv6::{HEADER_BYTES, Header};
use crate::wire::ipv6_extension::{self, Fragment, Unknown, Walk};
use crate::wire::{tcp, udp};
use core::net::{IpAddr, Ipv6Addr};
use kiban_base::numbers::protocol;
use kiban_base::{Context, Pdu};

/// Maximum number of extension headers in one packet.
const HEADERS_MAX: usize = 8;
/// Maximum number of options in one header, including padding.
const OPTIONS_MAX: usize = 8;
/// Offset of the payload length field in the IPv6 header. Reports of a fragment with an invalid length point
/// to it (§4.5).
const PAYLOAD_LENGTH_AT: u32 = 4;
/// Offset of the next header field in the IPv6 header.
const NEXT_HEADER_AT: usize = 6;

/// Codes of a parameter problem (RFC 4443 §3.4).
const WRONG_FIELD: u8 = 0;
const UNKNOWN_HEADER: u8 = 1;
const UNKNOWN_OPTION: u8 = 2;

/// The result of walking the chain of headers.
enum Verdict {
    /// Deliver the packet to this protocol, whose header is at this offset.
    Up(u8, usize),
    /// The packet is a fragment; its fragment header is at this offset.
    Fragment(Fragment, usize),
    /// Drop the packet silently; it has been counted.
    Drop,
    /// Drop the packet and send a parameter problem to its sender. With `group_too`, send it even if the
    /// packet was multicast.
    Report { code: u8, pointer: u32, group_too: bool },
}

impl Ip {
    pub(super) fn send6<F: FnMut(Hop, &mut Context<'_>)>(
        &mut self,
        packet: Packet,
        source: Ipv6Addr,
        target: Ipv6Addr,
        cx: &mut Context<'_>,
        hop: &mut F,
    ) {
        let Packet { protocol, traffic_class, hop_limit: wanted, mut pdu, .. } = packet;
        let Some(route) = self.routes.find_from(packet.target, packet.source) else {
            self.counters.no_route += 1;
            return;
        };
        let (port, next) = route.hop(packet.target);
        let mut limit = route.mtu_bytes;
        let is_segment = protocol == protocol::TCP;
        if !is_segment && let Some(path) = self.paths.get(packet.target, cx.now, self.config.path_mtu_age) {
            limit = limit.min(path.mtu.into());
        }
        let payload = pdu.len();
        let piece = if pdu.segment_bytes() > 0 { pdu.segment_bytes() + pdu.head().len() } else { payload }
            + HEADER_BYTES;
        if payload > usize::from(u16::MAX) || (piece > limit && (is_segment || packet.dont_fragment)) {
            self.counters.too_long += 1;
            return;
        }
        let asked = self.hop_limits.get(port).copied().unwrap_or(0);
        let usual = if asked == 0 { self.config.hop_limit } else { asked };
        let hop_limit = if wanted == 0 { usual } else { wanted };
        let brief = HeaderInfo { hop_limit, traffic_class, ..HeaderInfo::default() };
        if piece <= limit {
            header6(protocol, payload, source, target, brief).write(pdu.push_head(HEADER_BYTES));
            self.counters.packets_out += 1;
            return hop(Hop { port, next, pdu }, cx);
        }
        let front = HEADER_BYTES + ipv6_extension::HEADER_BYTES;
        let Some(pieces) = fragment::cut(pdu, limit.saturating_sub(front).max(8) & !7, cx.memory) else {
            self.counters.no_memory += 1;
            return;
        };
        self.counters.fragmented += 1;
        // RFC 7739 §5.2: random for each datagram, from a generator whose outputs cannot be predicted from
        // earlier ones.
        let identification = cx.rng.draw_u32();
        let (count, mut offset) = (pieces.len(), 0);
        for (at, mut pdu) in pieces.into_iter().enumerate() {
            let bytes = pdu.len();
            let fragment = Fragment {
                next_header: protocol,
                offset_bytes: offset as u16,
                more_fragments: at + 1 < count,
                identification,
            };
            fragment.write(pdu.push_head(ipv6_extension::HEADER_BYTES));
            header6(protocol::FRAGMENT, pdu.len(), source, target, brief).write(pdu.push_head(HEADER_BYTES));
            offset += bytes;
            self.counters.packets_out += 1;
            self.counters.fragments_out += 1;
            hop(Hop { port, next, pdu }, cx);
        }
    }

    /// Checks a packet that arrived, and returns it without its headers if it is for an upper layer.
    /// `is_whole` is set if it was reassembled from fragments.
    pub(super) fn arrive6(
        &mut self,
        mut pdu: Pdu,
        port: usize,
        is_whole: bool,
        cx: &mut Context<'_>,
    ) -> Option<Delivery> {
        let Some(moved) = pdu.pull_up(HEADER_BYTES) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        let Ok((header, _)) = Header::read_quoted(pdu.head()) else {
            self.counters.malformed += 1;
            return None;
        };
        let total = HEADER_BYTES + usize::from(header.payload_bytes);
        if total > pdu.len() {
            self.counters.truncated += 1;
            return None;
        }
        let mut brief = HeaderInfo {
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
            identification: 0,
            in_fragments: is_whole,
            router_alert: false,
            to_group: header.target.is_multicast(),
            intercepted: !self.is_ours6(header.target) && self.intercepts(header.target.into()),
        };
        let is_for_us =
            self.is_ours6(header.target) || (brief.to_group && self.listens_to(port, header.target.into()));
        if !is_for_us && !brief.intercepted {
            self.counters.not_ours += 1;
            return None;
        }
        // An IPv4-mapped source address must not appear on the wire, because a dual-stack socket would
        // mistake the sender for an IPv4 host.
        let is_disguised = header.source.to_ipv4_mapped().is_some();
        if header.source.is_multicast()
            || header.source.is_loopback()
            || is_disguised
            || self.is_ours6(header.source)
        {
            self.counters.bad_source += 1;
            return None;
        }
        if total < pdu.len() {
            pdu.truncate(total);
        }
        let (source, target) = (IpAddr::V6(header.source), IpAddr::V6(header.target));
        match self.walk(&mut pdu, header.next_header, &mut brief, is_whole, cx) {
            Verdict::Up(protocol, at) => {
                // RFC 4862 §5.4.2: only neighbour discovery uses the unspecified source.
                if source.is_unspecified() && protocol != protocol::ICMPV6 {
                    self.counters.bad_source += 1;
                    return None;
                }
                // RFC 9293 §3.9.2.3: TCP does not use multicast.
                if brief.to_group && protocol == protocol::TCP {
                    self.counters.not_ours += 1;
                    return None;
                }
                pdu.pull_head(at);
                Some(Delivery { source, target, protocol, pdu, brief })
            }
            Verdict::Fragment(fragment, at) => {
                self.collect6(fragment, at, source, target, brief, pdu, port, cx)
            }
            Verdict::Drop => None,
            Verdict::Report { code, pointer, group_too } => {
                if !brief.to_group || group_too {
                    // RFC 4443 §2.2: an error about a multicast packet is sent from one of our unicast
                    // addresses.
                    let local = if brief.to_group { self.source_for(source) } else { Some(target) };
                    if let Some(local) = local {
                        let kind = IcmpErrorKind::ParameterProblem { code, pointer };
                        self.request_error_about(kind, source, local, pdu);
                    }
                }
                None
            }
        }
    }

    /// Walks the chain of headers. Everything before the offset in the verdict is then contiguous in the
    /// head.
    fn walk(
        &mut self,
        pdu: &mut Pdu,
        first: u8,
        brief: &mut HeaderInfo,
        is_whole: bool,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let (mut next, mut at, mut named_at) = (first, HEADER_BYTES, NEXT_HEADER_AT);
        for _ in 0..=HEADERS_MAX {
            match next {
                protocol::TCP | protocol::UDP | protocol::ICMPV6 => return Verdict::Up(next, at),
                protocol::NOTHING => {
                    self.counters.no_upper_layer_header += 1;
                    return Verdict::Drop;
                }
                protocol::FRAGMENT => {
                    if is_whole {
                        self.counters.extension_headers_invalid += 1;
                        return Verdict::Drop;
                    }
                    let Some(moved) = pdu.pull_up(at + ipv6_extension::HEADER_BYTES) else {
                        self.counters.malformed += 1;
                        return Verdict::Drop;
                    };
                    cx.copies.header_bytes += moved as u64;
                    let Ok((fragment, length)) = Fragment::read(&pdu.head()[at..]) else {
                        self.counters.malformed += 1;
                        return Verdict::Drop;
                    };
                    if fragment.more_fragments || fragment.offset_bytes > 0 {
                        return Verdict::Fragment(fragment, at);
                    }
                    // RFC 6946 §4: an atomic fragment is processed on its own, whatever other fragments have
                    // the same identification.
                    self.counters.fragments_atomic += 1;
                    brief.in_fragments = true;
                    (next, named_at, at) = (fragment.next_header, at, at + length);
                }
                protocol::HOP_BY_HOP if at != HEADER_BYTES => {
                    self.counters.extension_headers_invalid += 1;
                    return parameter_problem(UNKNOWN_HEADER, named_at, false);
                }
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                    let end = match self.pull_extension(pdu, at, cx) {
                        Some(length) => at + length,
                        None => return Verdict::Drop,
                    };
                    let extension = &pdu.head()[at..end];
                    if next == protocol::ROUTING {
                        // RFC 8200 §4.4, RFC 5095: a routing header with segments left is rejected, whatever
                        // its type.
                        if extension[3] != 0 {
                            self.counters.source_routed += 1;
                            return parameter_problem(WRONG_FIELD, at + 2, false);
                        }
                    } else if let Some(verdict) = check_options(extension, at) {
                        self.counters.options_unknown += 1;
                        return verdict;
                    } else if next == protocol::HOP_BY_HOP {
                        brief.router_alert = Walk::new(extension)
                            .flatten()
                            .any(|item| item.kind == ipv6_extension::ROUTER_ALERT && item.data == [0, 0]);
                    }
                    (next, named_at, at) = (extension[0], at, end);
                }
                _ => {
                    self.counters.unknown_protocol += 1;
                    return parameter_problem(UNKNOWN_HEADER, named_at, false);
                }
            }
        }
        self.counters.extension_headers_invalid += 1;
        Verdict::Drop
    }

    /// Moves the extension header at `at` into the head. Returns its length, or `None` if the packet is too
    /// short or the header too long for the head.
    fn pull_extension(&mut self, pdu: &mut Pdu, at: usize, cx: &mut Context<'_>) -> Option<usize> {
        let Some(moved) = pdu.pull_up(at + 2) else {
            self.counters.malformed += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        let length = ipv6_extension::length(&pdu.head()[at..]).ok()?;
        if at + length > pdu.len() {
            self.counters.malformed += 1;
            return None;
        }
        let Some(moved) = pdu.pull_up(at + length) else {
            // The header is longer than the head holds; RFC 8504 §5.3 permits such a limit.
            self.counters.extension_headers_invalid += 1;
            return None;
        };
        cx.copies.header_bytes += moved as u64;
        Some(length)
    }

    #[allow(clippy::too_many_arguments)]
    fn collect6(
        &mut self,
        fragment: Fragment,
        at: usize,
        source: IpAddr,
        target: IpAddr,
        brief: HeaderInfo,
        mut pdu: Pdu,
        port: usize,
        cx: &mut Context<'_>,
    ) -> Option<Delivery> {
        self.counters.fragments_in += 1;
        let front = at + ipv6_extension::HEADER_BYTES;
        let (from, bytes, more) =
            (usize::from(fragment.offset_bytes), pdu.len() - front, fragment.more_fragments);
        // RFC 8200 §4.5: both errors are reported, with a pointer to the invalid field.
        let pointer = if more && !bytes.is_multiple_of(8) {
            self.counters.fragments_malformed += 1;
            Some(PAYLOAD_LENGTH_AT)
        } else if from + bytes > usize::from(u16::MAX) {
            self.counters.fragments_beyond_max += 1;
            Some(at as u32 + 2)
        } else {
            None
        };
        if let Some(pointer) = pointer {
            if !brief.to_group {
                let kind = IcmpErrorKind::ParameterProblem { code: WRONG_FIELD, pointer };
                self.request_error_about(kind, source, target, pdu);
            }
            return None;
        }
        if bytes == 0 {
            self.counters.fragments_malformed += 1;
            return None;
        }
        // RFC 7112 §5: the first fragment must contain all headers up to and including the transport header.
        let transport_bytes = match fragment.next_header {
            protocol::TCP => tcp::HEADER_BYTES,
            protocol::UDP | protocol::ICMPV6 => udp::HEADER_BYTES,
            _ => 0,
        };
        if from == 0 && bytes < transport_bytes {
            self.counters.fragments_tiny += 1;
            return None;
        }
        let header = if from == 0 { pdu.head()[..front].to_vec() } else { Default::default() };
        pdu.pull_head(front);
        let key = Key { source, target, protocol: 0, identification: fragment.identification };
        let piece = Piece { from, more, header, next_header: fragment.next_header, brief, pdu };
        let mut whole = self.reassembly.add(key, piece, cx, &mut self.counters)?;
        let (IpAddr::V6(source), IpAddr::V6(target)) = (source, target) else { return None };
        let front = header6(whole.next_header, whole.pdu.len(), source, target, whole.brief);
        front.write(whole.pdu.push_head(HEADER_BYTES));
        self.arrive6(whole.pdu, port, true, cx)
    }
}

fn parameter_problem(code: u8, pointer: usize, group_too: bool) -> Verdict {
    Verdict::Report { code, pointer: pointer as u32, group_too }
}

/// Checks the options of an extension header at offset `at` of the packet. Returns a verdict if the packet
/// must be dropped.
fn check_options(extension: &[u8], at: usize) -> Option<Verdict> {
    let mut walk = Walk::new(extension);
    let mut count = 0;
    while let Some(item) = walk.next() {
        count += 1;
        let Ok(item) = item else { return Some(parameter_problem(WRONG_FIELD, at + walk.at(), false)) };
        if count > OPTIONS_MAX {
            return Some(Verdict::Drop);
        }
        if matches!(item.kind, ipv6_extension::PAD_MORE | ipv6_extension::ROUTER_ALERT) {
            continue;
        }
        match item.unknown() {
            Unknown::Skip => {}
            Unknown::Discard => return Some(Verdict::Drop),
            Unknown::Report => return Some(parameter_problem(UNKNOWN_OPTION, at + item.at, true)),
            Unknown::ReportUnlessGroup => {
                return Some(parameter_problem(UNKNOWN_OPTION, at + item.at, false));
            }
        }
    }
    None
}
