//! Reassembly of fragmented datagrams (RFC 791 §3.2, RFC 1122 §3.3.2, RFC 8200 §4.5).
//!
//! Purpose          deliver a datagram whole or not at all, for both families, whatever the order of its
//!                  fragments.
//! Payload          the payload is referenced, not copied. If a datagram has more slices than a PDU holds,
//!                  its payload is copied into fewer pages. Payload bytes in the heads of later fragments are
//!                  copied too.
//! Overlap          a fragment that overlaps another, or contradicts the end of the datagram, discards the
//!                  whole datagram; later fragments of it are dropped until its timeout (RFC 5722 §4, applied
//!                  to IPv4 as well). An exact duplicate is ignored.
//! ECN              the datagram is marked if any fragment is (RFC 3168 §5.3).
//! Limits           the bytes held, fragments held, datagrams, and fragments per datagram are limited; at a
//!                  limit the oldest datagram is evicted. A fragment is charged for the memory it actually
//!                  holds: the PDU and whole pages, since a fragment may occupy a whole page.
//! Timeout          an incomplete datagram is discarded after `timeout`. If its first fragment has arrived,
//!                  the sender gets a time exceeded error.

use super::config::ReassemblyConfig;
use super::counters::IpCounters;
use super::packet::HeaderInfo;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use kiban_base::{Context, Instant, Pdu};

/// The ECN bits of the traffic class, and their value "congestion experienced" (RFC 3168 §5).
const ECN_MASK: u8 = 0b11;
const CE: u8 = 0b11;
/// Bytes charged for a PDU without its body.
const PDU_BYTES: usize = 1024;
/// Maximum length of the headers in a first fragment that is quoted in an error. The head needs room for
/// further headers in front of them.
const QUOTED_HEADER_BYTES_MAX: usize = 64;

/// The fields that identify the datagram to which a fragment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// Zero for IPv6, where the protocol does not identify the datagram.
    pub(super) protocol: u8,
    pub(super) identification: u32,
}

/// A received fragment.
pub(super) struct Piece {
    pub(super) from: usize,
    pub(super) more: bool,
    /// All bytes before the payload in the first fragment; empty for other fragments.
    pub(super) header: Vec<u8>,
    pub(super) next_header: u8,
    pub(super) brief: HeaderInfo,
    pub(super) pdu: Pdu,
}

/// A reassembled datagram.
pub(super) struct Whole {
    pub(super) pdu: Pdu,
    pub(super) next_header: u8,
    pub(super) brief: HeaderInfo,
}

/// A datagram whose reassembly has timed out.
pub(super) struct Expired {
    pub(super) source: IpAddr,
    pub(super) target: IpAddr,
    /// The first fragment as received, to be quoted in a time exceeded error; `None` if it must not or cannot
    /// be quoted.
    pub(super) pdu: Option<Pdu>,
}

struct Part {
    from: usize,
    to: usize,
    more: bool,
    charge: usize,
    pdu: Pdu,
}

struct Datagram {
    key: Key,
    until: Instant,
    parts: Vec<Part>,
    /// Length of the datagram, once the last fragment has arrived.
    end: Option<usize>,
    header: Vec<u8>,
    next_header: u8,
    brief: HeaderInfo,
    /// Which of the four ECN codepoints the fragments have, one bit for each.
    ecn_seen: u8,
    given_up: bool,
}

impl Datagram {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.to - part.from).sum()
    }

    fn charge(&self) -> usize {
        self.parts.iter().map(|part| part.charge).sum()
    }
}

/// How a new fragment relates to those held.
enum Fit {
    New(usize),
    Duplicate,
    Contradiction,
}

/// The incomplete datagrams, oldest first.
pub(super) struct Reassembly {
    config: ReassemblyConfig,
    datagrams: VecDeque<Datagram>,
    held_bytes: usize,
    held_fragments: usize,
}

impl Reassembly {
    pub(super) fn new(config: ReassemblyConfig) -> Reassembly {
        Reassembly { config, datagrams: VecDeque::new(), held_bytes: 0, held_fragments: 0 }
    }

    /// Returns the number of incomplete datagrams, including discarded ones that have not timed out.
    pub(super) fn len(&self) -> usize {
        self.datagrams.len()
    }

    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        self.datagrams.front().map_or(Instant::NEVER, |oldest| oldest.until)
    }

    /// Adds a fragment. Returns the datagram if it is complete now.
    pub(super) fn add(
        &mut self,
        key: Key,
        piece: Piece,
        cx: &mut Context<'_>,
        counters: &mut IpCounters,
    ) -> Option<Whole> {
        let charge = PDU_BYTES + piece.pdu.body().len() * cx.memory.receive.page_bytes();
        let mut at = match self.datagrams.iter().position(|datagram| datagram.key == key) {
            Some(at) => at,
            None => {
                if self.config.datagrams_max == 0 {
                    return None;
                }
                while self.datagrams.len() >= self.config.datagrams_max {
                    self.evict(counters);
                }
                self.datagrams.push_back(Datagram {
                    key,
                    until: cx.now + self.config.timeout,
                    parts: Vec::new(),
                    end: None,
                    header: Vec::new(),
                    next_header: piece.next_header,
                    brief: piece.brief,
                    ecn_seen: 0,
                    given_up: false,
                });
                self.datagrams.len() - 1
            }
        };
        if self.datagrams[at].given_up {
            counters.fragments_late += 1;
            return None;
        }
        let (from, to) = (piece.from, piece.from + piece.pdu.len());
        let place = match fit(&self.datagrams[at], from, to, piece.more) {
            Fit::New(place) => place,
            Fit::Duplicate => {
                counters.fragments_duplicate += 1;
                return None;
            }
            Fit::Contradiction => {
                counters.fragments_overlapping += 1;
                self.give_up(at);
                return None;
            }
        };
        if self.datagrams[at].parts.len() >= self.config.fragments_of_one_max {
            counters.fragments_too_many += 1;
            self.give_up(at);
            return None;
        }
        while self.held_bytes + charge > self.config.bytes_max
            || self.held_fragments >= self.config.fragments_max
        {
            if at == 0 {
                // This datagram alone exceeds the limit, or it is itself the oldest.
                counters.reassembly_evicted += 1;
                self.give_up(0);
                return None;
            }
            self.evict(counters);
            at -= 1;
        }
        self.held_bytes += charge;
        self.held_fragments += 1;
        let datagram = &mut self.datagrams[at];
        if !piece.more {
            datagram.end = Some(to);
        }
        if from == 0 {
            (datagram.header, datagram.next_header, datagram.brief) =
                (piece.header, piece.next_header, piece.brief);
        }
        datagram.ecn_seen |= 1 << (piece.brief.traffic_class & ECN_MASK);
        datagram.parts.insert(place, Part { from, to, more: piece.more, charge, pdu: piece.pdu });
        if datagram.end != Some(datagram.bytes()) {
            return None;
        }
        let mut datagram = self.take(at);
        if datagram.ecn_seen & 1 << CE != 0 {
            // RFC 3168 §5.3: a mark on a fragment must not get lost. If another fragment was not capable of
            // ECN, the sender would not learn of the congestion, so the datagram is dropped.
            if datagram.ecn_seen & 1 != 0 {
                counters.fragments_ecn_mixed += 1;
                return None;
            }
            datagram.brief.traffic_class |= CE;
        }
        let brief = HeaderInfo { in_fragments: true, ..datagram.brief };
        match join(datagram.parts, cx) {
            Some(pdu) => {
                counters.reassembled += 1;
                Some(Whole { pdu, next_header: datagram.next_header, brief })
            }
            None => {
                counters.no_memory += 1;
                None
            }
        }
    }

    /// Removes and returns the next datagram that has timed out.
    pub(super) fn expired(&mut self, cx: &mut Context<'_>, counters: &mut IpCounters) -> Option<Expired> {
        if self.deadline() > cx.now {
            return None;
        }
        let Datagram { key, mut parts, header, given_up, .. } = self.take(0);
        counters.reassembly_timeouts += u64::from(!given_up);
        let has_first = !header.is_empty() && header.len() <= QUOTED_HEADER_BYTES_MAX && !parts.is_empty();
        let pdu = has_first.then(|| parts.swap_remove(0).pdu).and_then(|mut pdu| {
            pdu.freeze(&mut cx.memory.receive)?;
            pdu.push_head(header.len()).copy_from_slice(&header);
            Some(pdu)
        });
        Some(Expired { source: key.source, target: key.target, pdu })
    }

    fn take(&mut self, at: usize) -> Datagram {
        let datagram = self.datagrams.remove(at).expect("the caller has found it");
        self.held_bytes -= datagram.charge();
        self.held_fragments -= datagram.parts.len();
        datagram
    }

    /// Discards the oldest datagram to make room.
    fn evict(&mut self, counters: &mut IpCounters) {
        if !self.datagrams.is_empty() && !self.take(0).given_up {
            counters.reassembly_evicted += 1;
        }
    }

    /// Frees the fragments of a datagram. The entry stays, so that later fragments do not start a new
    /// datagram.
    fn give_up(&mut self, at: usize) {
        let datagram = &mut self.datagrams[at];
        self.held_bytes -= datagram.charge();
        self.held_fragments -= datagram.parts.len();
        datagram.parts = Vec::new();
        datagram.header = Vec::new();
        datagram.given_up = true;
    }
}

fn fit(datagram: &Datagram, from: usize, to: usize, more: bool) -> Fit {
    let parts = &datagram.parts;
    let place = parts.partition_point(|part| part.from < from);
    if let Some(same) = parts.get(place)
        && (same.from, same.to, same.more) == (from, to, more)
    {
        return Fit::Duplicate;
    }
    let overlaps =
        (place > 0 && parts[place - 1].to > from) || parts.get(place).is_some_and(|part| part.from < to);
    let contradicts = match datagram.end {
        Some(end) => !more || to >= end,
        None => !more && parts.last().is_some_and(|last| last.to > from),
    };
    if overlaps || contradicts { Fit::Contradiction } else { Fit::New(place) }
}

/// Joins all parts, in order, into one PDU. Returns `None` if memory ran out.
fn join(parts: Vec<Part>, cx: &mut Context<'_>) -> Option<Pdu> {
    let mut parts = parts.into_iter().map(|part| part.pdu);
    let mut whole = parts.next().expect("a whole datagram has a part");
    if !whole.tail().is_empty() {
        cx.copies.gather_bytes += whole.freeze(&mut cx.memory.receive)? as u64;
    }
    while let Some(mut part) = parts.next() {
        if part.head().len() + part.tail().len() > 0 {
            cx.copies.gather_bytes += part.freeze(&mut cx.memory.receive)? as u64;
        }
        if !whole.adopt_body(&mut part) {
            return gather(whole, core::iter::once(part).chain(parts), cx);
        }
    }
    Some(whole)
}

/// Copies all parts into full pages, because they have more slices than a PDU holds.
fn gather(mut whole: Pdu, rest: impl Iterator<Item = Pdu>, cx: &mut Context<'_>) -> Option<Pdu> {
    let mut pages = Vec::new();
    let mut page = cx.memory.receive.take()?;
    let body: Vec<_> = whole.drain_body().collect();
    let mut copy = |mut bytes: &[u8]| -> Option<()> {
        cx.copies.gather_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if page.room() == 0 {
                page = cx.memory.receive.take()?;
            }
            let slice = page.append(bytes)?;
            bytes = &bytes[slice.len()..];
            pages.push(slice);
        }
        Some(())
    };
    for slice in body {
        copy(slice.bytes())?;
    }
    for part in rest {
        for run in part.runs() {
            copy(run)?;
        }
    }
    for slice in pages {
        whole.push_body(slice).ok()?;
    }
    Some(whole)
}
