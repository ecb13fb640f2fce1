//! Cutting: one large TCP segment becomes packets of the port's size.
//!
//! Goal      TCP runs once for tens of kilobytes; the link still sees packets that fit (what network cards call
//!           segmentation offload).
//! How       the first 40 bytes and more of the large segment are IPv4 and TCP headers, the body is payload, the note
//!           `cut` says how much of it each packet takes. Every packet gets the headers again with its own length,
//!           identification, sequence number and checksums. PSH and FIN stand on the last (RFC 9293 §3.9.1).
//! Payload   is referred to, not copied; slices that end where segments end keep their sums.

use kiban_ground::{Blocks, Pdu, Slice};
use kiban_wire::numbers::protocol;
use kiban_wire::tcp::Flags;
use kiban_wire::{checksum, ipv4, tcp};

/// Where the sequence number and the flags stand in a TCP header (RFC 9293 §3.1).
const SEQUENCE: core::ops::Range<usize> = 4..8;
const FLAGS: usize = 13;

/// Cuts `whole` and hands the packets to `emit` in order. False when memory ran out: the rest is lost, and TCP will
/// send it again.
pub(crate) fn cut(mut whole: Pdu, blocks: &mut Blocks, mut emit: impl FnMut(Pdu)) -> bool {
    let size = whole.cut();
    let mut head = [0; ipv4::HEADER_BYTES + tcp::HEADER_BYTES_MAX];
    let head_bytes = whole.head().len();
    head[..head_bytes].copy_from_slice(whole.head());
    let head = &mut head[..head_bytes];
    let word = |at: usize, head: &[u8]| u16::from_be_bytes([head[at], head[at + 1]]);
    let (first, identification) = (sequence(head), word(4, head));
    let last_flags = head[ipv4::HEADER_BYTES + FLAGS];
    let pseudo = {
        let address = |at: usize| core::net::Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        checksum::pseudo_ipv4(address(12), address(16), protocol::TCP, 0)
    };
    let total = whole.body_len();
    let mut slices = whole.drain_body();
    let mut front: Option<Slice> = None;
    let (mut done, mut number) = (0, 0u16);
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
            piece.push_body(slice).expect("a piece has no more slices than the whole");
        }
        let (network, transport) = head.split_at_mut(ipv4::HEADER_BYTES);
        network[2..4].copy_from_slice(&((head_bytes + wanted) as u16).to_be_bytes());
        network[4..6].copy_from_slice(&identification.wrapping_add(number).to_be_bytes());
        ipv4::fill(network);
        transport[SEQUENCE].copy_from_slice(&first.wrapping_add(done as u32).to_be_bytes());
        done += wanted;
        number += 1;
        let kept = if done == total { last_flags } else { last_flags & !(Flags::FIN | Flags::PSH).0 };
        transport[FLAGS] = kept;
        let rest = pseudo.plus(checksum::length(transport.len() + wanted)).plus(piece.body_sum());
        tcp::fill(transport, rest);
        piece.push_head(head_bytes).copy_from_slice(head);
        emit(piece);
    }
    true
}

fn sequence(head: &[u8]) -> u32 {
    let at = ipv4::HEADER_BYTES + SEQUENCE.start;
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}
