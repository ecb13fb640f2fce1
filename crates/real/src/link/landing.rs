//! Landing: where the system writes what arrives.
//!
//! Goal      a packet goes from the system into content pages with one read, whatever its length, without a copy of ours.
//! Head      the first bytes land in a buffer and go into the PDU's head: the headers, as far as they are always there.
//! Pages     the rest lands in pages; what a packet leaves of its last page is the next one's.
//! Limits    a packet of 64 KB at most; without memory nothing is read.

use kiban_ground::{Memory, Page, Pdu, SLICES_MAX};
use kiban_wire::ipv4;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSliceMut;

/// The longest packet with its frame, bytes.
const LONGEST_BYTES: usize = ipv4::PACKET_BYTES_MAX + 64;
/// Bytes in front of a packet: a virtio header.
const FRONT_BYTES: usize = 16;
/// Bytes that land in the head at most.
const HEAD_BYTES_MAX: usize = 96;

/// Where the next packet lands.
#[derive(Default)]
pub(super) struct Landing {
    pages: VecDeque<Page>,
    block: Option<Pdu>,
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
    /// Calls `read` with places for `front` bytes, `head` bytes and a packet's rest: what landed. `read` says how many bytes it has
    /// written, front included.
    pub(super) fn land(
        &mut self,
        memory: &mut Memory,
        front: &mut [u8],
        head_bytes: usize,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Errno>,
    ) -> Result<Pdu, Nothing> {
        debug_assert!(front.len() <= FRONT_BYTES && head_bytes <= HEAD_BYTES_MAX);
        let mut pdu = self.block.take().or_else(|| memory.blocks.take()).ok_or(Nothing::Starved)?;
        let mut room: usize = self.pages.iter().map(Page::room).sum();
        while room < LONGEST_BYTES {
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
        places.push(IoSliceMut::new(&mut head[..head_bytes]));
        for page in self.pages.iter_mut().take(SLICES_MAX) {
            places.push(IoSliceMut::new(page.unwritten()));
        }
        let read = read(&mut places);
        drop(places);
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
        pdu.extend_head(&head[..length.min(head_bytes)]);
        let mut left = length.saturating_sub(head_bytes);
        while left > 0 {
            let page = self.pages.front_mut().expect("no more was read than there was room for");
            let slice = page.land(left.min(page.room()));
            left -= slice.len();
            if page.room() == 0 {
                self.pages.pop_front();
            }
            pdu.push_body(slice).expect("as many slices as pages");
        }
        Ok(pdu)
    }
}
