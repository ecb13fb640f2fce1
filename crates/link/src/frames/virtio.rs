//! The virtio-net header that Linux puts in front of packets on TUN, TAP and packet sockets. It says which
//! offloaded work (checksum, segmentation) remains to be done.
//!
//! Source           the Virtual I/O Device specification 1.2 §5.1.6, `struct virtio_net_hdr` in its legacy
//!                  form, in the machine's byte order.
//! Transmit path    the kernel fills in the TCP checksum (`NEEDS_CSUM`: the field holds the sum of the
//!                  pseudo-header) and segments any packet marked `cut` (`gso_type`).
//! Receive path     a checksum that the kernel reports as verified, or as not filled in yet, is not checked
//!                  here, because a card has checked it, or the packet has never left this host.
//! Single packets   on a link without offloads, packets may be forwarded, recorded or have bits flipped, so
//!                  [`finish`] does what was left to the card: it cuts segments and fills in checksums.

use super::landing::headers_of;
use crate::LinkCounters;
use arrayvec::ArrayVec;
use kiban_base::ethernet;
use kiban_base::numbers::protocol;
use kiban_base::{Pdu, PduPool, SLICES_MAX, Sum};
use kiban_tcpip::offload;
use kiban_tcpip::wire::ip::Front;
use kiban_tcpip::wire::tcp::Flags;
use kiban_tcpip::wire::{ip, ipv4, ipv6, tcp};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// The longest link header, bytes: Ethernet.
const LINK_HEADER_BYTES_MAX: usize = ethernet::HEADER_BYTES;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Of the segments, only the first carries CWR (VIRTIO_NET_HDR_GSO_ECN).
const GSO_ECN: u8 = 0x80;
/// Offset of the checksum in a TCP header (RFC 9293 §3.1).
const TCP_CHECKSUM: usize = 16;

/// Returns the header for a packet whose IP header starts at offset `at` of the packet's head. If the system
/// is to fill in TCP's checksum, prepares the checksum field.
pub(super) fn describe(pdu: &mut Pdu, at: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let (total, cut, has_payload) = (pdu.len(), pdu.segment_bytes(), pdu.body_len() > 0);
    let head = pdu.head_mut();
    // Computing the checksum of a short packet is cheaper than describing the offload.
    if !has_payload || head.len() < at + ipv4::HEADER_BYTES {
        return header;
    }
    let Ok(front) = Front::read(&head[at..]) else { return header };
    let gso = match (front.source, front.header_bytes) {
        (IpAddr::V4(_), ipv4::HEADER_BYTES) => GSO_TCPV4,
        (IpAddr::V6(_), _) => GSO_TCPV6,
        _ => return header,
    };
    if front.protocol != protocol::TCP || front.is_fragment {
        return header;
    }
    let tcp = at + front.header_bytes;
    if head.len() < tcp + tcp::HEADER_BYTES {
        return header;
    }
    let header_bytes = tcp + usize::from(head[tcp + 12] >> 4) * 4;
    // This sum is not complemented, because the system adds the segment's own sum and then complements the
    // result.
    let partial: u16 = !front.pseudo(total - tcp).checksum();
    head[tcp + TCP_CHECKSUM..][..2].copy_from_slice(&partial.to_be_bytes());
    header[0] = NEEDS_CSUM;
    if cut > 0 && total - header_bytes > cut {
        header[1] = if tcp::flags(&head[tcp..]).has(Flags::CWR) { gso | GSO_ECN } else { gso };
        header[4..6].copy_from_slice(&(cut as u16).to_ne_bytes());
    }
    header[2..4].copy_from_slice(&(header_bytes as u16).to_ne_bytes());
    header[6..8].copy_from_slice(&(tcp as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&(TCP_CHECKSUM as u16).to_ne_bytes());
    header
}

/// Takes a packet that followed a virtio header. Counts the packet, and computes its sums or marks it as
/// verified.
pub(super) fn take(
    header: &[u8; HEADER_BYTES],
    mut pdu: Pdu,
    counters: &mut LinkCounters,
    into: &mut VecDeque<Pdu>,
) {
    counters.units_in += 1;
    counters.bytes_in += pdu.len() as u64;
    // The packet is known to be intact: it comes from this host's kernel, a card verified its checksum, or it
    // was merged from verified segments.
    if header[0] & (NEEDS_CSUM | DATA_VALID) != 0 || header[1] != GSO_NONE {
        pdu.set_verified();
    } else {
        pdu.recompute_sums();
    }
    into.push_back(pdu);
}

/// Does the work that the system has left to the card, for a frame whose IP header starts at offset `at`:
/// cuts a TCP segment into frames, or fills in a checksum. The resulting frames' checksums are not marked as
/// verified.
pub(super) fn finish(
    header: &[u8; HEADER_BYTES],
    mut pdu: Pdu,
    at: usize,
    blocks: &mut PduPool,
    counters: &mut LinkCounters,
    into: &mut VecDeque<Pdu>,
) {
    const NOTHING_LEFT: [u8; HEADER_BYTES] = [0; HEADER_BYTES];
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    if header[1] != GSO_NONE {
        if !pull_headers(&mut pdu, at) || word(4) == 0 {
            counters.malformed += 1;
            blocks.give(pdu);
            return;
        }
        let frame =
            ArrayVec::<u8, LINK_HEADER_BYTES_MAX>::try_from(&pdu.head()[..at]).expect("a link header");
        pdu.pull_head(at);
        pdu.set_segment_bytes(word(4));
        pdu.recompute_sums();
        let emit = |mut piece: Pdu| {
            piece.push_head(at).copy_from_slice(&frame);
            take(&NOTHING_LEFT, piece, counters, into);
        };
        if !offload::cut(pdu, blocks, emit) {
            counters.no_memory += 1;
        }
        return;
    }
    let (start, field) = (usize::from(word(6)), usize::from(word(6)) + usize::from(word(8)));
    if header[0] & NEEDS_CSUM != 0 && pdu.pull_up(field + 2).is_some() {
        pdu.recompute_sums();
        write_checksum(&mut pdu, start, field);
    }
    take(&NOTHING_LEFT, pdu, counters, into);
}

/// Pulls the link header and the IP and TCP headers of a segment into the head. Returns whether the head now
/// holds exactly these, so that [`offload::cut`] can cut the segment.
fn pull_headers(pdu: &mut Pdu, at: usize) -> bool {
    let packet = pdu.head().get(at..).unwrap_or_default();
    let network_bytes = match ip::version(packet) {
        Some(4) => ipv4::header_bytes(packet),
        _ => ipv6::HEADER_BYTES,
    };
    if pdu.pull_up(at + network_bytes + tcp::HEADER_BYTES).is_none() {
        return false;
    }
    let Some(bytes) = headers_of(pdu.head(), at) else { return false };
    pdu.pull_up(bytes).is_some() && pdu.head().len() == bytes
}

/// Computes the checksum from offset `start` of the head and writes it into its field, which holds the sum of
/// the pseudo-header; the body's sums are known.
pub(super) fn write_checksum(pdu: &mut Pdu, start: usize, field: usize) {
    let head = &pdu.head()[start..];
    let sum = Sum::of(head).then(head.len(), pdu.body_sum()).checksum();
    // RFC 768: zero would mean no checksum. In TCP both values are equivalent.
    let sum = if sum == 0 { 0xffff } else { sum };
    pdu.head_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a packet without copying it. If there is a header, it is written first.
pub(super) fn write(file: impl AsFd, header: &[u8], pdu: &Pdu) -> Result<usize, Errno> {
    let mut parts = ArrayVec::<IoSlice<'_>, { SLICES_MAX + 3 }>::new();
    if !header.is_empty() {
        parts.push(IoSlice::new(header));
    }
    parts.extend(pdu.runs().map(IoSlice::new));
    rustix::io::writev(file, &parts)
}
