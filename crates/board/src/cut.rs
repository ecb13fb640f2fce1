//! Cutting: one large TCP segment becomes packets of the port's size.
//!
//! Goal      TCP runs once for tens of kilobytes; the link still sees packets that fit (what network cards call
//!           segmentation offload).
//! How       the first 40 bytes and more of the large segment are IPv4 and TCP headers, the body is payload, the note
//!           `cut` says how much of it each packet takes. Every packet gets the headers again with its own length,
//!           identification, sequence number and checksums. PSH and FIN stand on the last (RFC 9293 §3.9.1).
//! Payload   is referred to, not copied; slices that end where segments end keep their sums.

use core::net::Ipv4Addr;
use core::ops::Range;
use kiban_ground::{Blocks, Pdu, Slice, Sum};
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::Flags;
use kiban_wire::{checksum, ipv4, tcp};

// Where fields stand, from the IPv4 header's first byte (RFC 791 §3.1, RFC 9293 §3.1).
const LENGTH_AND_IDENTIFICATION: Range<usize> = 2..6;
const NETWORK_CHECKSUM: Range<usize> = 10..12;
const SEQUENCE: Range<usize> = 24..28;
const FLAGS: usize = 33;
const TRANSPORT_CHECKSUM: Range<usize> = 36..38;

/// Cuts `whole` and hands the packets to `emit` in order. False when memory ran out: the rest is lost, and TCP will
/// send it again.
pub(crate) fn cut(mut whole: Pdu, blocks: &mut Blocks, mut emit: impl FnMut(Pdu)) -> bool {
    let (size, total) = (whole.cut(), whole.body_len());
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
            piece.push_body_apart(slice).expect("a piece has no more slices than the whole");
        }
        let payload = piece.body_sum();
        let head = piece.push_head(template.bytes);
        template.write(head, done, wanted, payload, done + wanted == total);
        done += wanted;
        emit(piece);
    }
    true
}

/// The headers of the whole, with the sums of what every packet has in common.
struct Template {
    head: [u8; ipv4::HEADER_BYTES + tcp::HEADER_BYTES_MAX],
    bytes: usize,
    sequence: u32,
    identification: u16,
    flags: u8,
    /// Sums of the IPv4 header and of pseudo-header and TCP header, without what differs.
    network: Sum,
    transport: Sum,
}

impl Template {
    fn of(head: &[u8]) -> Template {
        let bytes = head.len();
        let mut copy = [0; ipv4::HEADER_BYTES + tcp::HEADER_BYTES_MAX];
        copy[..bytes].copy_from_slice(head);
        let head = &mut copy[..bytes];
        let identification = u16::from_be_bytes([head[4], head[5]]);
        let sequence = u32::from_be_bytes([head[24], head[25], head[26], head[27]]);
        let flags = head[FLAGS];
        head[LENGTH_AND_IDENTIFICATION].fill(0);
        head[NETWORK_CHECKSUM].fill(0);
        head[SEQUENCE].fill(0);
        head[FLAGS] = 0;
        head[TRANSPORT_CHECKSUM].fill(0);
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        let pseudo = checksum::pseudo_ipv4(address(12), address(16), protocol::TCP, 0);
        let (network, transport) = head.split_at(ipv4::HEADER_BYTES);
        let (network, transport) =
            (checksum::of_header(network), pseudo.plus(checksum::of_header(transport)));
        Template { head: copy, bytes, sequence, identification, flags, network, transport }
    }

    /// Writes the headers of a packet: `payload` bytes from `at` on, whose sum is known.
    #[inline]
    fn write(&mut self, head: &mut [u8], at: usize, payload: usize, sum: Sum, is_last: bool) {
        let length = (self.bytes + payload) as u16;
        let sequence = self.sequence.wrapping_add(at as u32);
        let flags = if is_last { self.flags } else { self.flags & !(Flags::FIN | Flags::PSH).0 };
        let words = [length, self.identification].map(Sum::from_word);
        let network = self.network.plus(words[0]).plus(words[1]).checksum();
        let words = [(sequence >> 16) as u16, sequence as u16, u16::from(flags)].map(Sum::from_word);
        let transport_bytes = self.bytes - ipv4::HEADER_BYTES + payload;
        let transport = self.transport.plus(checksum::length(transport_bytes)).plus(sum);
        let transport = words.into_iter().fold(transport, Sum::plus).checksum();
        head.copy_from_slice(&self.head[..self.bytes]);
        head[2..4].copy_from_slice(&length.to_be_bytes());
        head[4..6].copy_from_slice(&self.identification.to_be_bytes());
        head[NETWORK_CHECKSUM].copy_from_slice(&network.to_be_bytes());
        head[SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        head[FLAGS] = flags;
        head[TRANSPORT_CHECKSUM].copy_from_slice(&transport.to_be_bytes());
        self.identification = self.identification.wrapping_add(1);
    }
}
