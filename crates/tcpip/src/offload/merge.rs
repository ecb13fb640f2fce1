//! Merging: packets of one TCP stream that follow each other become one large segment.
//!
//! Goal      TCP runs once for a burst, not once a packet (what network cards call receive offload).
//! Which     IPv4 without options or fragments, TCP with nothing but ACK and PSH and no option but timestamps
//!           in their usual place, checksums right, the same headers but for length, identification, sequence
//!           and checksum, the next byte in order. Anything else goes up as it came, after what was collected
//!           before it: order is kept, and nothing is judged here that TCP would judge otherwise.
//! Payload   is referred to; slices that follow each other in memory become one.
//! Limits    a merged packet is as long as an IPv4 packet may be; what is collected goes up when the burst
//!           ends.

use crate::wire::tcp::Flags;
use crate::wire::{ipv4, tcp};
use kiban_base::Pdu;
use kiban_base::checksum;
use kiban_base::numbers::protocol;

/// IPv4 and TCP headers without options.
const HEAD_BYTES: usize = ipv4::HEADER_BYTES + tcp::HEADER_BYTES;
/// The same with timestamps (RFC 7323 appendix A).
const STAMPED_BYTES: usize = HEAD_BYTES + tcp::TIMESTAMPS_BYTES;

/// What is being collected.
#[derive(Debug, Default)]
pub struct Merge {
    collected: Option<Pdu>,
    /// The sequence number that follows it.
    next: u32,
    packets: usize,
}

impl Merge {
    /// A packet has arrived; what is complete goes to `up`.
    pub fn on_packet(&mut self, mut pdu: Pdu, mut up: impl FnMut(Pdu)) {
        if !may_merge(&pdu) {
            self.flush(&mut up);
            return up(pdu);
        }
        let (sequence, payload) = (word(pdu.head(), 24), pdu.body_len());
        if let Some(collected) = &mut self.collected
            && self.next == sequence
            && collected.len() + payload <= ipv4::PACKET_BYTES_MAX
            && follows(collected.head(), pdu.head())
        {
            let psh = pdu.head()[33] & Flags::PSH.0;
            if collected.adopt_body(&mut pdu) {
                collected.head_mut()[33] |= psh;
                self.next = sequence.wrapping_add(payload as u32);
                self.packets += 1;
                return;
            }
        }
        self.flush(&mut up);
        self.next = sequence.wrapping_add(payload as u32);
        self.packets = 1;
        self.collected = Some(pdu);
    }

    /// The burst is over: what is collected goes to `up`.
    pub fn flush(&mut self, up: &mut impl FnMut(Pdu)) {
        let Some(mut pdu) = self.collected.take() else { return };
        if self.packets > 1 {
            let total = pdu.len() as u16;
            let network = &mut pdu.head_mut()[..ipv4::HEADER_BYTES];
            network[2..4].copy_from_slice(&total.to_be_bytes());
            ipv4::fill(network);
        }
        // Every packet's checksum was right; a merged one has none of its own.
        pdu.set_verified();
        up(pdu);
    }
}

fn word(head: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Whether a packet is of the plain kind, and intact. Headers of a known length are summed and compared
/// without a loop.
#[inline]
fn may_merge(pdu: &Pdu) -> bool {
    let head = pdu.head();
    if let Ok(head) = <&[u8; HEAD_BYTES]>::try_from(head) {
        is_plain(head, 0x50, pdu)
    } else if let Ok(head) = <&[u8; STAMPED_BYTES]>::try_from(head) {
        head[HEAD_BYTES..HEAD_BYTES + 4] == tcp::TIMESTAMPS_ALONE && is_plain(head, 0x80, pdu)
    } else {
        false
    }
}

#[inline]
fn is_plain<const N: usize>(head: &[u8; N], words: u8, pdu: &Pdu) -> bool {
    let (network, transport) = head.split_at(ipv4::HEADER_BYTES);
    // With options it would be longer than what is here.
    let Ok((ip, _)) = ipv4::Header::read_quoted(network) else { return false };
    // Protocol, no fragment; header length; ACK and perhaps PSH; all of it and nothing behind it.
    if ip.protocol != protocol::TCP
        || ip.is_fragment()
        || head[32] != words
        || head[33] & !Flags::PSH.0 != Flags::ACK.0
        || pdu.body_len() == 0
        || usize::from(ip.total_bytes) != pdu.len()
    {
        return false;
    }
    let length = transport.len() + pdu.body_len();
    let pseudo = checksum::pseudo_ipv4(ip.source, ip.target, protocol::TCP, length);
    ipv4::verify(network).is_ok() && tcp::verify(transport, pseudo.plus(pdu.body_sum())).is_ok()
}

/// Whether two headers say the same but for length, identification, checksums, sequence and PSH.
#[inline]
fn follows(one: &[u8], other: &[u8]) -> bool {
    let (Some((one, stamps)), Some((other, other_stamps))) =
        (one.split_first_chunk::<HEAD_BYTES>(), other.split_first_chunk::<HEAD_BYTES>())
    else {
        return false;
    };
    // No timestamps, or the same: which of two values is echoed is TCP's to judge.
    let same_stamps = match (stamps.first_chunk::<{ tcp::TIMESTAMPS_BYTES }>(), other_stamps.first_chunk()) {
        (Some(one), Some(other)) => one == other,
        (one, other) => one.is_none() && other.is_none(),
    };
    same_stamps
        && one[1] == other[1]
        && one[6] == other[6]
        && one[8] == other[8]
        && one[12..24] == other[12..24]
        && one[28..32] == other[28..32]
        && one[34..36] == other[34..36]
}
