//! Receive buffers: where the system writes arriving packets.
//!
//! Purpose          a packet goes from the system into content pages with one read, whatever its length,
//!                  without another copy.
//! Head             the first bytes are read into a buffer and go into the PDU's head. Their number is the
//!                  header length of the last segment with payload, because the next segment's headers nearly
//!                  always have the same length. So payload is stored in pages without gaps, and consecutive
//!                  segments can be merged. Payload bytes that arrive in the header buffer are moved to the
//!                  pages.
//! Pages            the rest is read into pages; the next packet uses the rest of the last page.
//! Limits           packets of 64 KB at most; if there is no memory, nothing is read.

use kiban_base::ethernet;
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Memory, Page, Pdu, SLICES_MAX, Slice};
use kiban_tcpip::wire::ip::Front;
use kiban_tcpip::wire::{ipv4, tcp};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSliceMut;

/// The longest packet with its link header, in bytes.
const LONGEST_BYTES: usize = ipv4::PACKET_BYTES_MAX + 64;
/// Buffer size in bytes for a link that is not known to have a larger MTU: a 9 KB Ethernet packet with its
/// link header.
const LONG_BYTES: usize = 9216 + 64;
/// Bytes in front of a packet: a virtio header.
const FRONT_BYTES: usize = 16;
/// Maximum number of bytes read into the head.
const HEAD_BYTES_MAX: usize = 96;

/// Buffers for the next packet.
pub(super) struct ReceiveBuffers {
    pages: VecDeque<Page>,
    block: Option<Pdu>,
    /// Bytes in front of an IP header.
    frame_bytes: usize,
    /// Bytes to read into the head.
    head_bytes: usize,
    longest_bytes: usize,
}

/// Why no packet was read.
pub(super) enum ReadError {
    /// There is no memory for the packet.
    Starved,
    /// The system call failed.
    System(Errno),
    /// The packet was shorter than the bytes that precede it.
    Short,
}

impl ReceiveBuffers {
    /// Returns buffers for packets of up to `mtu_bytes`, or of any length, with `frame_bytes` in front of the
    /// IP header.
    pub(super) fn new(frame_bytes: usize, mtu_bytes: Option<usize>) -> ReceiveBuffers {
        let longest = |mtu_bytes: usize| (mtu_bytes + 64).clamp(LONG_BYTES, LONGEST_BYTES);
        ReceiveBuffers {
            pages: VecDeque::new(),
            block: None,
            frame_bytes,
            head_bytes: frame_bytes + ipv4::HEADER_BYTES + tcp::HEADER_BYTES,
            longest_bytes: mtu_bytes.map_or(LONGEST_BYTES, longest),
        }
    }

    /// Calls `read` with buffers for `front` bytes and a packet, and returns the packet. `read` returns the
    /// number of bytes it has written, including the front.
    pub(super) fn read_packet(
        &mut self,
        memory: &mut Memory,
        front: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Errno>,
    ) -> Result<Pdu, ReadError> {
        debug_assert!(front.len() <= FRONT_BYTES);
        let mut pdu = self.block.take().or_else(|| memory.pdus.take()).ok_or(ReadError::Starved)?;
        let mut room: usize = self.pages.iter().map(Page::room).sum();
        while room < self.longest_bytes {
            let Some(page) = memory.receive.take() else {
                self.block = Some(pdu);
                return Err(ReadError::Starved);
            };
            room += page.room();
            self.pages.push_back(page);
        }
        let mut head = [0; HEAD_BYTES_MAX];
        let front_bytes = front.len();
        let mut buffers = arrayvec::ArrayVec::<IoSliceMut<'_>, { SLICES_MAX + 2 }>::new();
        buffers.push(IoSliceMut::new(front));
        buffers.push(IoSliceMut::new(&mut head[..self.head_bytes]));
        // Reserve two slices for payload bytes that arrive in the header buffer.
        for page in self.pages.iter_mut().take(SLICES_MAX - 2) {
            buffers.push(IoSliceMut::new(page.unwritten()));
        }
        let most: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let read = read(&mut buffers);
        drop(buffers);
        if read == Ok(most) {
            // The buffers are full, so the packet may have been longer: the MTU may have been raised in the
            // meantime.
            self.longest_bytes = LONGEST_BYTES;
        }
        let length = match read {
            Ok(length) => length.checked_sub(front_bytes).filter(|length| *length > 0),
            Err(error) => {
                self.block = Some(pdu);
                return Err(ReadError::System(error));
            }
        };
        let Some(length) = length else {
            self.block = Some(pdu);
            return Err(ReadError::Short);
        };
        let head = &head[..length.min(self.head_bytes)];
        let mut left = length - head.len();
        let headers = headers_of(head, self.frame_bytes).filter(|headers| *headers < length);
        let (head, payload) = head.split_at(headers.unwrap_or(head.len()).min(head.len()));
        pdu.extend_head(head);
        while left > 0 {
            let slice = {
                let page = self.page();
                page.commit(left.min(page.room()))
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

    /// Returns the page that is being filled.
    fn page(&mut self) -> &mut Page {
        if self.pages.front().is_some_and(|page| page.room() == 0) {
            self.pages.pop_front();
        }
        self.pages.front_mut().expect("no more was read than there was room for")
    }

    /// Moves payload bytes that arrived in the header buffer to the front of the body.
    fn move_down(&mut self, mut payload: &[u8], pdu: &mut Pdu, memory: &mut Memory) -> Result<(), ReadError> {
        let mut parts = arrayvec::ArrayVec::<Slice, HEAD_BYTES_MAX>::new();
        while !payload.is_empty() {
            if self.pages.iter().all(|page| page.room() == 0) {
                self.pages.push_back(memory.receive.take().ok_or(ReadError::Starved)?);
            }
            let part = self.page().append(payload).expect("the page has room");
            payload = &payload[part.len()..];
            parts.push(part);
        }
        // Pages that are shorter than a header cannot hold a packet anyway.
        parts.into_iter().rev().try_for_each(|part| pdu.push_front_body(part)).map_err(|_| ReadError::Starved)
    }
}

/// Returns the length of a TCP segment's headers, including the link header. Returns `None` if the packet is
/// not a complete segment, or if its headers are elsewhere.
pub(super) fn headers_of(head: &[u8], frame_bytes: usize) -> Option<usize> {
    let (frame, ip) = head.split_at_checked(frame_bytes)?;
    let front = Front::read(ip).ok()?;
    if let Some(kind) = frame.get(ethernet::HEADER_BYTES - 2..ethernet::HEADER_BYTES) {
        let expected = if front.source.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
        if kind != expected.to_be_bytes() {
            return None;
        }
    }
    if front.protocol != protocol::TCP || front.is_fragment {
        return None;
    }
    let ip_bytes = front.header_bytes;
    let tcp_bytes = usize::from(ip.get(ip_bytes + 12)? >> 4) * 4;
    (tcp_bytes >= tcp::HEADER_BYTES).then_some(frame_bytes + ip_bytes + tcp_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_base::{PagePool, PduPool};
    use kiban_tcpip::wire::tcp::TIMESTAMPS_BYTES;

    fn memory(page_bytes: usize) -> Memory {
        Memory {
            transmit: PagePool::new(1, page_bytes),
            receive: PagePool::new(256, page_bytes),
            pdus: PduPool::new(16),
        }
    }

    /// Builds an IPv4 packet with a TCP segment. It sets only the fields that this file reads.
    fn segment(option_bytes: usize, payload: &[u8]) -> Vec<u8> {
        let header_bytes = ipv4::HEADER_BYTES + tcp::HEADER_BYTES + option_bytes;
        let mut packet = vec![0; header_bytes];
        (packet[0], packet[9]) = (0x45, protocol::TCP);
        packet[2..4].copy_from_slice(&((header_bytes + payload.len()) as u16).to_be_bytes());
        packet[32] = ((tcp::HEADER_BYTES + option_bytes) << 2) as u8;
        packet.extend_from_slice(payload);
        packet
    }

    fn land(landing: &mut ReceiveBuffers, memory: &mut Memory, packet: &[u8]) -> Pdu {
        let landed = landing.read_packet(memory, &mut [], |buffers| {
            let mut rest = packet;
            for buffer in buffers {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
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
    fn payload_of_segments_with_equal_headers_is_contiguous() {
        let (mut landing, mut memory) = (ReceiveBuffers::new(0, Some(1500)), memory(4096));
        let payload = [7; 1000];
        let packet = segment(TIMESTAMPS_BYTES, &payload);
        // The buffers expect headers without options at first, so part of these headers is read as payload.
        assert_eq!(bytes_of(&land(&mut landing, &mut memory, &packet)), packet);
        let mut first = land(&mut landing, &mut memory, &packet);
        let mut second = land(&mut landing, &mut memory, &packet);
        assert_eq!((first.head().len(), first.body_len()), (52, 1000));
        assert!(first.adopt_body(&mut second));
        assert_eq!((first.body().len(), first.body_len()), (1, 2000), "two bodies are one run");
    }

    #[test]
    fn payload_in_the_head_is_moved_in_front_of_the_body() {
        for page_bytes in [64, 100, 4096] {
            let (mut landing, mut memory) = (ReceiveBuffers::new(0, Some(600)), memory(page_bytes));
            let payload: Vec<u8> = (0..600).map(|n| n as u8).collect();
            land(&mut landing, &mut memory, &segment(40, &payload));
            // Headers that are as long as expected, shorter, and longer; packets with hardly any payload, or
            // none.
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
    fn a_packet_that_fills_the_buffer_enlarges_the_next_one() {
        let (mut landing, mut memory) = (ReceiveBuffers::new(0, Some(1500)), memory(4096));
        let packet = segment(0, &[9; 60_000]);
        assert!(
            land(&mut landing, &mut memory, &packet).len() < packet.len(),
            "the buffer is sized for the MTU"
        );
        assert_eq!(bytes_of(&land(&mut landing, &mut memory, &packet)), packet);
    }
}
