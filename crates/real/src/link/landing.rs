//! Landing: where the system writes what arrives.
//!
//! Goal      a packet goes from the system into content pages with one read, whatever its length, without a copy of ours.
//! Head      the first bytes land in a buffer and go into the PDU's head: as many as the headers of the last segment with payload
//!           were long, since the next one's are nearly always the same. So payload lies in pages without gaps, and segments
//!           that follow each other can be merged. Payload that came into the buffer nevertheless is moved to the pages.
//! Pages     the rest lands in pages; what a packet leaves of its last page is the next one's.
//! Limits    a packet of 64 KB at most; without memory nothing is read.

use kiban_ground::{Memory, Page, Pdu, SLICES_MAX, Slice};
use kiban_wire::ethernet;
use kiban_wire::numbers::{ether_type, protocol};
use kiban_wire::{ipv4, ipv6, tcp};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSliceMut;

/// The longest packet with its frame, bytes.
const LONGEST_BYTES: usize = ipv4::PACKET_BYTES_MAX + 64;
/// What a link that is not said to have longer packets is expected to bring: those of 9 KB Ethernets, with their frames.
const LONG_BYTES: usize = 9216 + 64;
/// Bytes in front of a packet: a virtio header.
const FRONT_BYTES: usize = 16;
/// Bytes that land in the head at most.
const HEAD_BYTES_MAX: usize = 96;

/// Where the next packet lands.
pub(super) struct Landing {
    pages: VecDeque<Page>,
    block: Option<Pdu>,
    /// Bytes in front of an IP header.
    frame_bytes: usize,
    /// What lands in the head.
    head_bytes: usize,
    longest_bytes: usize,
}

/// Why nothing landed.
pub(super) enum Nothing {
    /// There is no memory for it.
    Starved,
    /// It came to this.
    System(Errno),
    /// It had fewer bytes than its front.
    Short,
}

impl Landing {
    /// A place for packets of up to `mtu_bytes`, or of any length, with `frame_bytes` in front of their IP header.
    pub(super) fn new(frame_bytes: usize, mtu_bytes: Option<usize>) -> Landing {
        let longest = |mtu_bytes: usize| (mtu_bytes + 64).clamp(LONG_BYTES, LONGEST_BYTES);
        Landing {
            pages: VecDeque::new(),
            block: None,
            frame_bytes,
            head_bytes: frame_bytes + ipv4::HEADER_BYTES + tcp::HEADER_BYTES,
            longest_bytes: mtu_bytes.map_or(LONGEST_BYTES, longest),
        }
    }

    /// Calls `read` with places for `front` bytes and a packet: what landed. `read` says how many bytes it has written, front
    /// included.
    pub(super) fn land(
        &mut self,
        memory: &mut Memory,
        front: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Errno>,
    ) -> Result<Pdu, Nothing> {
        debug_assert!(front.len() <= FRONT_BYTES);
        let mut pdu = self.block.take().or_else(|| memory.blocks.take()).ok_or(Nothing::Starved)?;
        let mut room: usize = self.pages.iter().map(Page::room).sum();
        while room < self.longest_bytes {
            let Some(page) = memory.receive.take() else {
                self.block = Some(pdu);
                return Err(Nothing::Starved);
            };
            room += page.room();
            self.pages.push_back(page);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let front_bytes = front.len();
        let mut places = arrayvec::ArrayVec::<IoSliceMut<'_>, { SLICES_MAX + 2 }>::new();
        places.push(IoSliceMut::new(front));
        places.push(IoSliceMut::new(&mut head[..self.head_bytes]));
        // Two slices are left for payload that comes into the head.
        for page in self.pages.iter_mut().take(SLICES_MAX - 2) {
            places.push(IoSliceMut::new(page.unwritten()));
        }
        let most: usize = places.iter().map(|place| place.len()).sum();
        let read = read(&mut places);
        drop(places);
        if read == Ok(most) {
            // It may have been longer: whoever set the MTU did not say so.
            self.longest_bytes = LONGEST_BYTES;
        }
        let length = match read {
            Ok(length) => length.checked_sub(front_bytes).filter(|length| *length > 0),
            Err(error) => {
                self.block = Some(pdu);
                return Err(Nothing::System(error));
            }
        };
        let Some(length) = length else {
            self.block = Some(pdu);
            return Err(Nothing::Short);
        };
        let head = &head[..length.min(self.head_bytes)];
        let mut left = length - head.len();
        let headers = headers_of(head, self.frame_bytes).filter(|headers| *headers < length);
        let (head, payload) = head.split_at(headers.unwrap_or(head.len()).min(head.len()));
        pdu.extend_head(head);
        while left > 0 {
            let slice = {
                let page = self.page();
                page.land(left.min(page.room()))
            };
            left -= slice.len();
            pdu.push_body(slice).expect("as many slices as pages");
        }
        if let Some(headers) = headers.filter(|headers| *headers <= HEAD_BYTES_MAX) {
            self.head_bytes = headers;
        }
        if !payload.is_empty() {
            self.move_down(payload, &mut pdu, memory)?;
        }
        if self.pages.front().is_some_and(|page| page.room() == 0) {
            self.pages.pop_front();
        }
        Ok(pdu)
    }

    /// The page that is being filled.
    fn page(&mut self) -> &mut Page {
        if self.pages.front().is_some_and(|page| page.room() == 0) {
            self.pages.pop_front();
        }
        self.pages.front_mut().expect("no more was read than there was room for")
    }

    /// Payload that came into the head goes in front of the body.
    fn move_down(&mut self, mut payload: &[u8], pdu: &mut Pdu, memory: &mut Memory) -> Result<(), Nothing> {
        let mut parts = arrayvec::ArrayVec::<Slice, HEAD_BYTES_MAX>::new();
        while !payload.is_empty() {
            if self.pages.iter().all(|page| page.room() == 0) {
                self.pages.push_back(memory.receive.take().ok_or(Nothing::Starved)?);
            }
            let part = self.page().append(payload).expect("the page has room");
            payload = &payload[part.len()..];
            parts.push(part);
        }
        // Pages that are shorter than a header hold no packet anyway.
        parts.into_iter().rev().try_for_each(|part| pdu.push_front_body(part)).map_err(|_| Nothing::Starved)
    }
}

/// Bytes of a TCP segment's headers, the frame's among them; nothing for what is no whole segment or has its headers elsewhere.
fn headers_of(head: &[u8], frame_bytes: usize) -> Option<usize> {
    let (frame, ip) = head.split_at_checked(frame_bytes)?;
    let version = ip.first()? >> 4;
    if let Some(kind) = frame.get(ethernet::HEADER_BYTES - 2..ethernet::HEADER_BYTES) {
        let expected = if version == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        if kind != expected.to_be_bytes() {
            return None;
        }
    }
    let ip_bytes = match version {
        4 if ip.len() >= ipv4::HEADER_BYTES
            && ip[9] == protocol::TCP
            && u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0 =>
        {
            usize::from(ip[0] & 15) * 4
        }
        6 if ip.len() >= ipv6::HEADER_BYTES && ip[6] == protocol::TCP => ipv6::HEADER_BYTES,
        _ => return None,
    };
    let tcp_bytes = usize::from(ip.get(ip_bytes + 12)? >> 4) * 4;
    (tcp_bytes >= tcp::HEADER_BYTES).then_some(frame_bytes + ip_bytes + tcp_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_ground::{Blocks, Pool};
    use kiban_wire::tcp::TIMESTAMPS_BYTES;

    fn memory(page_bytes: usize) -> Memory {
        Memory {
            transmit: Pool::new(1, page_bytes),
            receive: Pool::new(256, page_bytes),
            blocks: Blocks::new(16),
        }
    }

    /// An IPv4 packet with a TCP segment, as far as landing looks at it.
    fn segment(option_bytes: usize, payload: &[u8]) -> Vec<u8> {
        let header_bytes = ipv4::HEADER_BYTES + tcp::HEADER_BYTES + option_bytes;
        let mut packet = vec![0; header_bytes];
        (packet[0], packet[9]) = (0x45, protocol::TCP);
        packet[32] = ((tcp::HEADER_BYTES + option_bytes) << 2) as u8;
        packet.extend_from_slice(payload);
        packet
    }

    fn land(landing: &mut Landing, memory: &mut Memory, packet: &[u8]) -> Pdu {
        let landed = landing.land(memory, &mut [], |places| {
            let mut rest = packet;
            for place in places {
                let count = rest.len().min(place.len());
                place[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
            }
            Ok(packet.len() - rest.len())
        });
        landed.unwrap_or_else(|_| panic!("there is memory"))
    }

    fn bytes_of(pdu: &Pdu) -> Vec<u8> {
        pdu.runs().flatten().copied().collect()
    }

    #[test]
    fn payload_of_segments_with_the_same_headers_lies_without_gaps() {
        let (mut landing, mut memory) = (Landing::new(0, Some(1500)), memory(4096));
        let payload = [7; 1000];
        let packet = segment(TIMESTAMPS_BYTES, &payload);
        // The first one's options are not expected.
        assert_eq!(bytes_of(&land(&mut landing, &mut memory, &packet)), packet);
        let mut first = land(&mut landing, &mut memory, &packet);
        let mut second = land(&mut landing, &mut memory, &packet);
        assert_eq!((first.head().len(), first.body_len()), (52, 1000));
        assert!(first.adopt_body(&mut second));
        assert_eq!((first.body().len(), first.body_len()), (1, 2000), "two bodies are one run");
    }

    #[test]
    fn payload_that_came_into_the_head_stands_in_front_of_the_body() {
        for page_bytes in [64, 100, 4096] {
            let (mut landing, mut memory) = (Landing::new(0, Some(600)), memory(page_bytes));
            let payload: Vec<u8> = (0..600).map(|n| n as u8).collect();
            land(&mut landing, &mut memory, &segment(40, &payload));
            // Longer, shorter, with hardly any payload, with none.
            for (option_bytes, payload_bytes) in [(40, 600), (0, 600), (40, 3), (0, 5), (40, 7), (12, 0)] {
                let packet = segment(option_bytes, &payload[..payload_bytes]);
                let pdu = land(&mut landing, &mut memory, &packet);
                assert_eq!(bytes_of(&pdu), packet, "pages of {page_bytes} bytes");
                if pdu.body_len() > 0 {
                    assert!(pdu.head().len() <= 40 + option_bytes, "no payload stays in the head");
                }
            }
        }
    }

    #[test]
    fn a_packet_that_fills_all_the_room_makes_room_for_longer_ones() {
        let (mut landing, mut memory) = (Landing::new(0, Some(1500)), memory(4096));
        let packet = segment(0, &[9; 60_000]);
        assert!(
            land(&mut landing, &mut memory, &packet).len() < packet.len(),
            "nobody has said that it is so long"
        );
        assert_eq!(bytes_of(&land(&mut landing, &mut memory, &packet)), packet);
    }
}
