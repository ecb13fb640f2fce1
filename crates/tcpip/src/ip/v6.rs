//! IPv6: its header and extension headers on the way down and up (RFC 8200).
//!
//! Chain     hop-by-hop options (first only), destination options, routing headers that ask for nothing any
//!           more, and fragment headers are walked in place, in the head; TCP, UDP and ICMPv6 end the walk.
//!           Anything else is reported with the byte that named it (§4). At most [`HEADERS_MAX`] headers and
//!           [`OPTIONS_MAX`] options in each are walked (RFC 8504 §5.3).
//! Fragments the whole, with an IPv6 header of its own in front, is walked once more; a fragment header in it
//! breaks
//!           a rule.
//! Down      a datagram longer than the way is cut here (§4.5); TCP's segments are not.

use super::fragment;
use super::header::header6;
use super::machine::Ip;
use super::packet::{Brief, Delivery, Hop, Packet};
use super::reassembly::{Key, Piece};
use super::trouble::TroubleKind;
use crate::wire::ipv6::{HEADER_BYTES, Header};
use crate::wire::ipv6_extension::{self, Fragment, Unknown, Walk};
use crate::wire::{tcp, udp};
use core::net::{IpAddr, Ipv6Addr};
use kiban_base::numbers::protocol;
use kiban_base::{Context, Pdu};

/// Extension headers of one packet at most.
const HEADERS_MAX: usize = 8;
/// Options of one header at most, padding included.
const OPTIONS_MAX: usize = 8;
/// Where the header keeps its payload length: what a pointer says about a fragment of a wrong length.
const PAYLOAD_LENGTH_AT: u32 = 4;
/// Where the header names the next.
const NEXT_HEADER_AT: usize = 6;

/// Codes of a parameter problem (RFC 4443 §3.4).
const WRONG_FIELD: u8 = 0;
const UNKNOWN_HEADER: u8 = 1;
const UNKNOWN_OPTION: u8 = 2;

/// What the chain of headers says about a packet.
enum Verdict {
    /// Up to this protocol, whose header stands so many bytes from the front.
    Up(u8, usize),
    /// A fragment, whose header stands there.
    Fragment(Fragment, usize),
    /// Nobody hears of it; it has been counted.
    Drop,
    /// Its sender hears of it.
    Complain { code: u8, pointer: u32, group_too: bool },
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
        let Packet { protocol, traffic_class, mut pdu, .. } = packet;
        let Some(route) = self.routes.find_from(packet.target, packet.source) else {
            self.counters.unreachable += 1;
            return;
        };
        let (port, next) = route.hop(packet.target);
        let mut limit = route.mtu_bytes;
        let is_segment = protocol == protocol::TCP;
        if !is_segment && let Some(path) = self.paths.get(packet.target, cx.now, self.config.path_mtu_age) {
            limit = limit.min(path.mtu.into());
        }
        let payload = pdu.len();
        let piece = if pdu.cut() > 0 { pdu.cut() + pdu.head().len() } else { payload } + HEADER_BYTES;
        if payload > usize::from(u16::MAX) || (piece > limit && is_segment) {
            self.counters.too_long += 1;
            return;
        }
        let asked = self.hop_limits.get(port).copied().unwrap_or(0);
        let hop_limit = if asked == 0 { self.config.hop_limit } else { asked };
        let brief = Brief { hop_limit, traffic_class, ..Brief::default() };
        if piece <= limit {
            header6(protocol, payload, source, target, brief).write(pdu.push_head(HEADER_BYTES));
            self.counters.packets_out += 1;
            return hop(Hop { port, next, pdu }, cx);
        }
        let front = HEADER_BYTES + ipv6_extension::HEADER_BYTES;
        let Some(pieces) = fragment::cut(pdu, limit.saturating_sub(front).max(8) & !7, cx.memory) else {
            self.counters.starved += 1;
            return;
        };
        self.counters.fragmented += 1;
        // RFC 7739 §5.2: drawn for each datagram, by a generator whose outputs do not tell the next.
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

    /// `is_whole`: it was put together from fragments.
    pub(super) fn arrive6(&mut self, mut pdu: Pdu, is_whole: bool, cx: &mut Context<'_>) -> Option<Delivery> {
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
        let mut brief = Brief {
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
            identification: 0,
            in_fragments: is_whole,
            to_group: header.target.is_multicast(),
        };
        let is_for_us = self.is_ours6(header.target) || (brief.to_group && self.listens_to(header.target));
        if !is_for_us {
            self.counters.not_ours += 1;
            return None;
        }
        // An IPv4 address in IPv6's clothes comes from no wire: a dual socket would take it for what it is
        // not.
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
                // RFC 4862 §5.4.2: only neighbour discovery speaks before it has an address.
                if source.is_unspecified() && protocol != protocol::ICMPV6 {
                    self.counters.bad_source += 1;
                    return None;
                }
                // RFC 9293 §3.9.2.3: a stream has two ends.
                if brief.to_group && protocol == protocol::TCP {
                    self.counters.not_ours += 1;
                    return None;
                }
                pdu.pull_head(at);
                Some(Delivery { source, target, protocol, pdu, brief })
            }
            Verdict::Fragment(fragment, at) => self.collect6(fragment, at, source, target, brief, pdu, cx),
            Verdict::Drop => None,
            Verdict::Complain { code, pointer, group_too } => {
                if !brief.to_group || group_too {
                    // RFC 4443 §2.2: a group is no source; the report of one comes from an address of ours.
                    let local = if brief.to_group { self.source_for(source) } else { Some(target) };
                    if let Some(local) = local {
                        let kind = TroubleKind::ParameterProblem { code, pointer };
                        self.complain_of(kind, source, local, pdu);
                    }
                }
                None
            }
        }
    }

    /// Walks the chain of headers. What stands before the verdict's place is in the head.
    fn walk(
        &mut self,
        pdu: &mut Pdu,
        first: u8,
        brief: &mut Brief,
        is_whole: bool,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let (mut next, mut at, mut named_at) = (first, HEADER_BYTES, NEXT_HEADER_AT);
        for _ in 0..=HEADERS_MAX {
            match next {
                protocol::TCP | protocol::UDP | protocol::ICMPV6 => return Verdict::Up(next, at),
                protocol::NOTHING => {
                    self.counters.nothing_inside += 1;
                    return Verdict::Drop;
                }
                protocol::FRAGMENT => {
                    if is_whole {
                        self.counters.headers_refused += 1;
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
                    // RFC 6946 §4: the only fragment is whole by itself, whatever else has its
                    // identification.
                    self.counters.fragments_atomic += 1;
                    brief.in_fragments = true;
                    (next, named_at, at) = (fragment.next_header, at, at + length);
                }
                protocol::HOP_BY_HOP if at != HEADER_BYTES => {
                    self.counters.headers_refused += 1;
                    return complain(UNKNOWN_HEADER, named_at, false);
                }
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                    let end = match self.pull_extension(pdu, at, cx) {
                        Some(length) => at + length,
                        None => return Verdict::Drop,
                    };
                    let extension = &pdu.head()[at..end];
                    if next == protocol::ROUTING {
                        // RFC 8200 §4.4, RFC 5095: with segments left it is to be refused, of whatever type.
                        if extension[3] != 0 {
                            self.counters.source_routed += 1;
                            return complain(WRONG_FIELD, at + 2, false);
                        }
                    } else if let Some(verdict) = judge_options(extension, at) {
                        self.counters.options_refused += 1;
                        return verdict;
                    }
                    (next, named_at, at) = (extension[0], at, end);
                }
                _ => {
                    self.counters.unknown_protocol += 1;
                    return complain(UNKNOWN_HEADER, named_at, false);
                }
            }
        }
        self.counters.headers_refused += 1;
        Verdict::Drop
    }

    /// Brings the extension header at `at` into the head: its length, or nothing when it is not all there or
    /// too long.
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
            // Longer than a head: RFC 8504 §5.3 lets a host have such a limit.
            self.counters.headers_refused += 1;
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
        brief: Brief,
        mut pdu: Pdu,
        cx: &mut Context<'_>,
    ) -> Option<Delivery> {
        self.counters.fragments_in += 1;
        let front = at + ipv6_extension::HEADER_BYTES;
        let (from, bytes, more) =
            (usize::from(fragment.offset_bytes), pdu.len() - front, fragment.more_fragments);
        // RFC 8200 §4.5: both are reported, pointing at the field that is wrong.
        let pointer = if more && !bytes.is_multiple_of(8) {
            self.counters.fragments_malformed += 1;
            Some(PAYLOAD_LENGTH_AT)
        } else if from + bytes > usize::from(u16::MAX) {
            self.counters.fragments_beyond += 1;
            Some(at as u32 + 2)
        } else {
            None
        };
        if let Some(pointer) = pointer {
            if !brief.to_group {
                let kind = TroubleKind::ParameterProblem { code: WRONG_FIELD, pointer };
                self.complain_of(kind, source, target, pdu);
            }
            return None;
        }
        if bytes == 0 {
            self.counters.fragments_malformed += 1;
            return None;
        }
        // RFC 7112 §5: the first fragment has all headers, the transport's among them.
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
        self.arrive6(whole.pdu, true, cx)
    }
}

fn complain(code: u8, pointer: usize, group_too: bool) -> Verdict {
    Verdict::Complain { code, pointer: pointer as u32, group_too }
}

/// What an options header that stands `at` so many bytes does to its packet: nothing, or a verdict.
fn judge_options(extension: &[u8], at: usize) -> Option<Verdict> {
    let mut walk = Walk::new(extension);
    let mut count = 0;
    while let Some(item) = walk.next() {
        count += 1;
        let Ok(item) = item else { return Some(complain(WRONG_FIELD, at + walk.at(), false)) };
        if count > OPTIONS_MAX {
            return Some(Verdict::Drop);
        }
        if matches!(item.kind, ipv6_extension::PAD_MORE | ipv6_extension::ROUTER_ALERT) {
            continue;
        }
        match item.unknown() {
            Unknown::Skip => {}
            Unknown::Discard => return Some(Verdict::Drop),
            Unknown::Report => return Some(complain(UNKNOWN_OPTION, at + item.at, true)),
            Unknown::ReportUnlessGroup => return Some(complain(UNKNOWN_OPTION, at + item.at, false)),
        }
    }
    None
}
