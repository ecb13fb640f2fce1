//! The header that Linux puts in front of packets on TUN, TAP and packet sockets: what is still to be done for them.
//!
//! Source    the Virtual I/O Device specification 1.2 §5.1.6, `struct virtio_net_hdr` in its legacy form, in the machine's byte order.
//! Out       TCP's checksum is left to the system (`NEEDS_CSUM`: the field holds the sum of the pseudo-header), and a segment
//!           with the note `cut` is cut by the system (`gso_type`).
//! In        what the system says it has verified, or has not yet written, is not verified again: the packet has never left
//!           this host, or a card has looked at it. Such a packet cannot go on to others: for who passes packets on, what is not yet
//!           written is written here ([`finish`]).

use super::LinkCounters;
use kiban_ground::{Pdu, SLICES_MAX, Sum};
use kiban_wire::numbers::protocol;
use kiban_wire::{checksum, ipv4, ipv6};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Where TCP's checksum stands in its header (RFC 9293 §3.1).
const TCP_CHECKSUM: usize = 16;

/// The header for a packet whose IP header stands `at` bytes from the front of its head. TCP's checksum field is changed if the
/// system is to fill it.
pub(super) fn describe(pdu: &mut Pdu, at: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let (total, cut, has_payload) = (pdu.len(), pdu.cut(), pdu.body_len() > 0);
    let head = pdu.head_mut();
    // A short one is summed sooner than it is described.
    if !has_payload || head.len() < at + ipv4::HEADER_BYTES {
        return header;
    }
    let ip = &head[at..];
    let (ip_bytes, pseudo, gso) = match ip[0] {
        0x45 if ip[9] == protocol::TCP && u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0 => {
            let address = |from: usize| Ipv4Addr::from(*ip[from..].first_chunk::<4>().expect("20 bytes"));
            let length = total - at - ipv4::HEADER_BYTES;
            let pseudo = checksum::pseudo_ipv4(address(12), address(16), protocol::TCP, length);
            (ipv4::HEADER_BYTES, pseudo, GSO_TCPV4)
        }
        0x60..=0x6f if ip.len() >= ipv6::HEADER_BYTES && ip[6] == protocol::TCP => {
            let address = |from: usize| Ipv6Addr::from(*ip[from..].first_chunk::<16>().expect("40 bytes"));
            let length = total - at - ipv6::HEADER_BYTES;
            let pseudo = checksum::pseudo_ipv6(address(8), address(24), protocol::TCP, length);
            (ipv6::HEADER_BYTES, pseudo, GSO_TCPV6)
        }
        _ => return header,
    };
    let tcp = at + ip_bytes;
    if head.len() < tcp + kiban_wire::tcp::HEADER_BYTES {
        return header;
    }
    let header_bytes = tcp + usize::from(head[tcp + 12] >> 4) * 4;
    // Not its complement: the system adds the rest and takes the complement then.
    let partial: u16 = !pseudo.checksum();
    head[tcp + TCP_CHECKSUM..][..2].copy_from_slice(&partial.to_be_bytes());
    header[0] = NEEDS_CSUM;
    if cut > 0 && total - header_bytes > cut {
        header[1] = gso;
        header[4..6].copy_from_slice(&(cut as u16).to_ne_bytes());
    }
    header[2..4].copy_from_slice(&(header_bytes as u16).to_ne_bytes());
    header[6..8].copy_from_slice(&(tcp as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&(TCP_CHECKSUM as u16).to_ne_bytes());
    header
}

/// A packet has come behind its header: it is counted, and knows its sums or is noted as verified.
pub(super) fn take(
    header: &[u8; HEADER_BYTES],
    mut pdu: Pdu,
    counters: &mut LinkCounters,
    into: &mut VecDeque<Pdu>,
) {
    counters.units_in += 1;
    counters.bytes_in += pdu.len() as u64;
    // The checksum is known to be right: written by the system behind us, looked at by a card, or formed of verified ones.
    if header[0] & (NEEDS_CSUM | DATA_VALID) != 0 || header[1] != GSO_NONE {
        pdu.set_verified();
    } else {
        pdu.sum_again();
    }
    into.push_back(pdu);
}

/// Writes the checksum that the system has left to others: the packet may go on, to whomever. What is to be cut as well stays as it is.
pub(super) fn finish(header: &mut [u8; HEADER_BYTES], pdu: &mut Pdu) {
    let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (start, field) = (word(6), word(6) + word(8));
    if header[0] & NEEDS_CSUM == 0 || header[1] != GSO_NONE || pdu.pull_up(field + 2).is_none() {
        return;
    }
    pdu.sum_again();
    write_checksum(pdu, start, field);
    header[0] &= !NEEDS_CSUM;
}

/// Writes the checksum of what begins at `start` of the head into its field, which holds the sum of the pseudo-header; the body's sums
/// are known.
pub(super) fn write_checksum(pdu: &mut Pdu, start: usize, field: usize) {
    let head = &pdu.head()[start..];
    let sum = Sum::of(head).then(head.len(), pdu.body_sum()).checksum();
    // RFC 768: none would be zero. In TCP both stand for the same.
    let sum = if sum == 0 { 0xffff } else { sum };
    pdu.head_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a packet behind its header, or behind none, from where it lies.
pub(super) fn write(file: impl AsFd, header: &[u8], pdu: &Pdu) -> Result<usize, Errno> {
    let mut parts = arrayvec::ArrayVec::<IoSlice<'_>, { SLICES_MAX + 3 }>::new();
    if !header.is_empty() {
        parts.push(IoSlice::new(header));
    }
    parts.extend(pdu.runs().map(IoSlice::new));
    rustix::io::writev(file, &parts)
}
