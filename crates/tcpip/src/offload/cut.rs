//! Segmentation offload (TSO/GSO): cuts one large TCP segment into packets that fit the port's MTU.
//!
//! Purpose          TCP runs once for tens of kilobytes, while the link still gets packets that fit its MTU.
//! Method           the head of the large segment is an IPv4 header, or an IPv6 header without extension
//!                  headers, and a TCP header. The body is payload, of which each packet gets
//!                  [`Pdu::segment_bytes`]. Every packet gets a copy of the headers with its own length,
//!                  identification, sequence number and checksums. PSH and FIN are set only on the last
//!                  packet (RFC 9293 §3.9.1), CWR only on the first (RFC 3168 §6.1.2).
//! Payload          the payload is referenced, not copied; slices that end at packet boundaries keep their
//!                  checksums.

use crate::wire::ip::version;
use crate::wire::tcp::Flags;
use crate::wire::{ipv4, ipv6, tcp};
use core::ops::Range;
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Pdu, PduPool, Slice, Sum};

// Offsets of fields in the TCP header (RFC 9293 §3.1).
const SEQUENCE: Range<usize> = 4..8;
const FLAGS: usize = 13;
const TRANSPORT_CHECKSUM: Range<usize> = 16..18;

/// Cuts `whole` and passes the packets to `emit` in order. Returns false if PDU memory ran out; the rest is
/// then dropped, and TCP retransmits it.
///
/// # Panics
/// If the head of `whole` does not begin with the IP and TCP headers that the stack wrote.
pub fn cut(mut whole: Pdu, blocks: &mut PduPool, mut emit: impl FnMut(Pdu)) -> bool {
    let (size, total) = (whole.segment_bytes(), whole.body_len());
    let mut template = Template::of(whole.head());
    let mut slices = whole.drain_body();
    let mut front: Option<Slice> = None;
    let mut done = 0;
    while done < total {
        let Some(mut piece) = blocks.take() else { return false };
        let wanted = size.min(total - done);
        while piece.body_len() < wanted {
            let mut slice = front.take().or_else(|| slices.next()).expect("the body is as long as it says");
            let left = wanted - piece.body_len();
            if slice.len() > left {
                let part = slice.take_front(left);
                front = Some(slice);
                slice = part;
            }
            piece.push_body_unmerged(slice).expect("a piece has no more slices than the whole");
        }
        let payload = piece.body_sum();
        let head = piece.push_head(template.bytes);
        template.write(head, done, wanted, payload, done + wanted == total);
        done += wanted;
        emit(piece);
    }
    true
}

/// The headers of the large segment, with the partial checksums of the fields common to all packets.
struct Template {
    head: [u8; ipv4::HEADER_BYTES_MAX + tcp::HEADER_BYTES_MAX],
    bytes: usize,
    /// Length of the IP header.
    network_bytes: usize,
    is_ipv4: bool,
    sequence: u32,
    identification: u16,
    flags: u8,
    /// Partial checksums of the IPv4 header, and of the pseudo-header and TCP header, without the fields that
    /// differ.
    network: Sum,
    transport: Sum,
}

impl Template {
    fn of(head: &[u8]) -> Template {
        let bytes = head.len();
        let (identification, pseudo, network_bytes) = match ipv4::Header::read_quoted(head) {
            Ok((header, bytes)) => {
                let pseudo = checksum::pseudo_ipv4(header.source, header.target, protocol::TCP, 0);
                (header.identification, pseudo, bytes)
            }
            Err(_) => {
                let (header, bytes) = ipv6::Header::read_quoted(head).expect("IP has written it");
                (0, checksum::pseudo_ipv6(header.source, header.target, protocol::TCP, 0), bytes)
            }
        };
        let is_ipv4 = version(head) == Some(4);
        let mut copy = [0; ipv4::HEADER_BYTES_MAX + tcp::HEADER_BYTES_MAX];
        copy[..bytes].copy_from_slice(head);
        let (network, transport) = copy[..bytes].split_at_mut(network_bytes);
        if is_ipv4 {
            ipv4::set_total_bytes(network, 0);
            ipv4::set_identification(network, 0);
            ipv4::set_checksum(network, 0);
        }
        let sequence = u32::from_be_bytes(*transport[SEQUENCE].first_chunk().expect("four bytes"));
        let flags = transport[FLAGS];
        transport[SEQUENCE].fill(0);
        transport[FLAGS] = 0;
        transport[TRANSPORT_CHECKSUM].fill(0);
        let (network, transport) =
            (checksum::of_header(network), pseudo.plus(checksum::of_header(transport)));
        Template {
            head: copy,
            bytes,
            network_bytes,
            is_ipv4,
            sequence,
            identification,
            flags,
            network,
            transport,
        }
    }

    /// Writes the headers of one packet: `payload` bytes from offset `at`, whose sum is `sum`.
    #[inline]
    fn write(&mut self, head: &mut [u8], at: usize, payload: usize, sum: Sum, is_last: bool) {
        let network_bytes = self.network_bytes;
        let transport_bytes = self.bytes - network_bytes + payload;
        let sequence = self.sequence.wrapping_add(at as u32);
        let flags = if is_last { self.flags } else { self.flags & !(Flags::FIN | Flags::PSH).0 };
        let flags = if at == 0 { flags } else { flags & !Flags::CWR.0 };
        let words = [(sequence >> 16) as u16, sequence as u16, u16::from(flags)].map(Sum::from_word);
        let checksum = self.transport.plus(checksum::length(transport_bytes)).plus(sum);
        let checksum = words.into_iter().fold(checksum, Sum::plus).checksum();
        head.copy_from_slice(&self.head[..self.bytes]);
        let (network, transport) = head.split_at_mut(network_bytes);
        if self.is_ipv4 {
            let length = (self.bytes + payload) as u16;
            let words = [length, self.identification].map(Sum::from_word);
            let checksum = self.network.plus(words[0]).plus(words[1]).checksum();
            ipv4::set_total_bytes(network, length);
            ipv4::set_identification(network, self.identification);
            ipv4::set_checksum(network, checksum);
            self.identification = self.identification.wrapping_add(1);
        } else {
            ipv6::set_payload_bytes(network, transport_bytes as u16);
        }
        transport[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        transport[FLAGS] = flags;
        transport[TRANSPORT_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}
