//! PDUs: an exclusive head, a shared body, a short tail (papers \[1\] and \[5\]).
//!
//! Purpose   add and remove headers, split, join and retransmit without touching payload.
//! Head      writable bytes owned by this PDU; headers grow downwards into reserved room.
//! Body      a short list of [`Slice`]s: read-only, shared, each with its sum.
//! Tail      a few bytes after the body (AAL5 padding and trailer, a CRC).
//! Handle    a [`Pdu`] is a pointer to one pooled block. Queues move the pointer; dropping it returns the
//!           block and releases the body's pages.
//! Limits    [`HEAD_BYTES`], [`SLICES_MAX`], [`TAIL_BYTES`]; `Blocks::take` returns `None` when no block is
//!           free.
//!
//! ```text
//!   head                      body                              tail
//! ┌──────────┬───────────┐  ┌───────┬─────────┬──────┐  ┌─────────────────┐
//! │ room     │ headers   │  │ slice │ slice   │ …    │  │ padding trailer │
//! └──────────┴───────────┘  └───┬───┴────┬────┴──────┘  └─────────────────┘
//!        grows ◄── down       content pages
//! ```

use super::page::{Page, PagePool, Slice};
use super::slot_pool::{Slot, SlotPool};
use super::sum::Sum;
use arrayvec::ArrayVec;
use core::fmt;
use core::ptr::NonNull;

/// Size of the head in bytes, enough for Ethernet 14, IPv6 40, TCP 60, LLC/SNAP 8 and RDMA 20, with some to
/// spare.
pub const HEAD_BYTES: usize = 192;
/// Size of the tail in bytes, enough for AAL5 padding (47) and trailer (8).
pub const TAIL_BYTES: usize = 56;
/// Maximum number of slices in one body: enough for 64 KiB in pages of 4 KiB that are cut at both ends, plus
/// a few from small writes.
pub const SLICES_MAX: usize = 20;
/// Offset at which the first header of a new PDU ends; the room after it is for body bytes pulled into the
/// head.
const HEAD_END: usize = 128;

/// A body, or part of one: slices in order.
pub type Slices = ArrayVec<Slice, SLICES_MAX>;

struct Block {
    head_start: u16,
    head_end: u16,
    tail_length: u16,
    segment_bytes: u16,
    verified: bool,
    body_length: u32,
    head: [u8; HEAD_BYTES],
    body: Slices,
    tail: [u8; TAIL_BYTES],
}

/// A pool of PDU blocks. Only the owner takes blocks; any thread may return them.
pub struct PduPool {
    slots: SlotPool<Block>,
}

impl PduPool {
    /// Creates a pool of `capacity` PDUs.
    pub fn new(capacity: usize) -> PduPool {
        PduPool {
            slots: SlotPool::new(capacity, |_| Block {
                head_start: HEAD_END as u16,
                head_end: HEAD_END as u16,
                tail_length: 0,
                segment_bytes: 0,
                verified: false,
                body_length: 0,
                body: Slices::new_const(),
                tail: [0; TAIL_BYTES],
                head: [0; HEAD_BYTES],
            }),
        }
    }

    /// Takes an empty PDU, or returns `None` when no block is free.
    #[inline]
    pub fn take(&mut self) -> Option<Pdu> {
        let mut pdu = Pdu { block: self.slots.take()? };
        let block = pdu.block_mut();
        block.head_start = HEAD_END as u16;
        block.head_end = HEAD_END as u16;
        block.tail_length = 0;
        block.segment_bytes = 0;
        block.verified = false;
        Some(pdu)
    }

    /// Drops a PDU and returns its block directly to this pool, which is cheaper than an ordinary drop.
    #[inline]
    pub fn give(&mut self, mut pdu: Pdu) {
        let block = pdu.block_mut();
        block.body.clear();
        block.body_length = 0;
        let slot = pdu.block;
        core::mem::forget(pdu);
        // SAFETY: `pdu` was the only handle to the block and has been forgotten.
        unsafe { self.slots.give(slot) };
    }

    /// Makes the `n`-th take from now (1 means the next) fail once. Tests use this to inject pool exhaustion.
    pub fn fail_nth_take(&mut self, n: u64) {
        self.slots.fail_nth_take(n);
    }

    /// Returns the number of PDUs in the pool, free or in use.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of free PDUs.
    pub fn available(&mut self) -> usize {
        self.slots.available()
    }
}

/// A protocol data unit: the only handle to its block.
pub struct Pdu {
    block: NonNull<Slot<Block>>,
}
// SAFETY: the handle is unique and the block's contents are `Send`.
unsafe impl Send for Pdu {}
// SAFETY: a shared handle only reads, and slices are `Sync`.
unsafe impl Sync for Pdu {}

impl Pdu {
    #[inline]
    fn block(&self) -> &Block {
        // SAFETY: the block is in use and this handle is the only one to it.
        unsafe { &*self.block.as_ref().value() }
    }

    #[inline]
    fn block_mut(&mut self) -> &mut Block {
        // SAFETY: the block is in use, this handle is the only one to it, and `self` is borrowed uniquely.
        unsafe { &mut *self.block.as_ref().value() }
    }

    /// Returns the number of bytes in head, body and tail together.
    #[inline]
    pub fn len(&self) -> usize {
        let block = self.block();
        (block.head_end - block.head_start) as usize + block.body_length as usize + block.tail_length as usize
    }

    /// Returns whether the PDU has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the head.
    #[inline]
    pub fn head(&self) -> &[u8] {
        let block = self.block();
        &block.head[block.head_start as usize..block.head_end as usize]
    }

    /// Returns the head for writing.
    #[inline]
    pub fn head_mut(&mut self) -> &mut [u8] {
        let block = self.block_mut();
        &mut block.head[block.head_start as usize..block.head_end as usize]
    }

    /// Prepends `count` bytes of header and returns them; the caller must write all of them.
    ///
    /// # Panics
    /// If the head has no room left. This is a bug, because the total length of a stack's headers is known in
    /// advance.
    #[inline]
    pub fn push_head(&mut self, count: usize) -> &mut [u8] {
        let block = self.block_mut();
        let start =
            (block.head_start as usize).checked_sub(count).expect("the stack's headers fit the head room");
        block.head_start = start as u16;
        &mut block.head[start..start + count]
    }

    /// Removes `count` bytes of header from the front of the head.
    ///
    /// # Panics
    /// If the head is shorter; [`Pdu::pull_up`] makes it longer.
    #[inline]
    pub fn pull_head(&mut self, count: usize) {
        let block = self.block_mut();
        assert!(count <= (block.head_end - block.head_start) as usize, "a header is taken off the head only");
        block.head_start += count as u16;
    }

    /// Appends bytes to the head (the first bytes of a received frame).
    ///
    /// # Panics
    /// If the bytes do not fit, or if the body is not empty.
    pub fn extend_head(&mut self, bytes: &[u8]) {
        let block = self.block_mut();
        assert!(block.body.is_empty(), "a head is extended before it has a body");
        let mut end = block.head_end as usize;
        if let excess @ 1.. = (end + bytes.len()).saturating_sub(HEAD_BYTES) {
            // Long headers use some of the reserved room in front.
            let start = block.head_start as usize - excess;
            block.head.copy_within(block.head_start as usize..end, start);
            block.head_start = start as u16;
            end -= excess;
        }
        block.head[end..end + bytes.len()].copy_from_slice(bytes);
        block.head_end = (end + bytes.len()) as u16;
    }

    /// Makes the first `count` bytes contiguous in the head, moving bytes from the body if needed. Returns
    /// how many bytes moved, or `None` if the PDU is too short or the head cannot hold them.
    pub fn pull_up(&mut self, count: usize) -> Option<usize> {
        let have = self.head().len();
        let want = count.saturating_sub(have);
        if want == 0 {
            return Some(0);
        }
        let block = self.block_mut();
        if have + want > HEAD_BYTES || want > block.body_length as usize {
            return None;
        }
        if block.head_end as usize + want > HEAD_BYTES {
            // Removed headers have left room in front: move the remaining bytes into it.
            let start = HEAD_BYTES - (have + want);
            block.head.copy_within(block.head_start as usize..block.head_end as usize, start);
            block.head_start = start as u16;
            block.head_end = (start + have) as u16;
        }
        let mut left = want;
        while left > 0 {
            let slice = &mut block.body[0];
            let part = slice.take_front(left.min(slice.len()));
            let end = block.head_end as usize;
            block.head[end..end + part.len()].copy_from_slice(part.bytes());
            block.head_end += part.len() as u16;
            left -= part.len();
            if slice.is_empty() {
                block.body.remove(0);
            }
        }
        block.body_length -= want as u32;
        Some(want)
    }

    /// Returns the body's slices.
    #[inline]
    pub fn body(&self) -> &[Slice] {
        &self.block().body
    }

    /// Returns the length of the body in bytes.
    #[inline]
    pub fn body_len(&self) -> usize {
        self.block().body_length as usize
    }

    /// Appends a slice to the body, joining it to the last slice if the two are contiguous in one page;
    /// returns the slice as the error if the body is full.
    ///
    /// # Errors
    /// Returns the slice if the body is full.
    #[inline]
    pub fn push_body(&mut self, slice: Slice) -> Result<(), Slice> {
        let block = self.block_mut();
        let length = slice.length_u32();
        let slice = match block.body.last_mut() {
            Some(last) => match last.join(slice) {
                Ok(()) => {
                    block.body_length += length;
                    return Ok(());
                }
                Err(slice) => slice,
            },
            None => slice,
        };
        match block.body.try_push(slice) {
            Ok(()) => {
                block.body_length += length;
                Ok(())
            }
            Err(full) => Err(full.element()),
        }
    }

    /// Appends a slice to the body without joining, so that a slice that ends at a segment boundary keeps its
    /// sum for later segmentation. Returns the slice as the error if the body is full.
    ///
    /// # Errors
    /// Returns the slice if the body is full.
    #[inline]
    pub fn push_body_unmerged(&mut self, slice: Slice) -> Result<(), Slice> {
        let block = self.block_mut();
        let length = slice.length_u32();
        match block.body.try_push(slice) {
            Ok(()) => {
                block.body_length += length;
                Ok(())
            }
            Err(full) => Err(full.element()),
        }
    }

    /// Moves the whole body of `other` to the end of this one and returns true. Does nothing and returns
    /// false if the slices of both might not fit.
    #[inline]
    pub fn adopt_body(&mut self, other: &mut Pdu) -> bool {
        if self.body().len() + other.body().len() > SLICES_MAX {
            return false;
        }
        for slice in other.drain_body() {
            self.push_body(slice).expect("the body has room for all slices");
        }
        true
    }

    /// Inserts a slice at the front of the body; returns it as the error if the body is full.
    ///
    /// # Errors
    /// Returns the slice if the body is full.
    pub fn push_front_body(&mut self, slice: Slice) -> Result<(), Slice> {
        let block = self.block_mut();
        let length = slice.length_u32();
        match block.body.try_insert(0, slice) {
            Ok(()) => {
                block.body_length += length;
                Ok(())
            }
            Err(full) => Err(full.element()),
        }
    }

    /// Copies the bytes of head and tail into a page and moves them to the body, so that the body can be
    /// retransmitted behind a new head. Returns how many bytes were copied, or `None` if no page is free, a
    /// page cannot hold them, or the body cannot hold two more slices.
    pub fn freeze(&mut self, pool: &mut PagePool) -> Option<usize> {
        let count = self.head().len() + self.tail().len();
        if count == 0 {
            return Some(0);
        }
        if self.body().len() + 2 > SLICES_MAX || count > pool.page_bytes() {
            return None;
        }
        let mut page = pool.take()?;
        let (head, tail) = (page.append(self.head()), page.append(self.tail()));
        let block = self.block_mut();
        (block.head_start, block.head_end, block.tail_length) = (HEAD_END as u16, HEAD_END as u16, 0);
        head.into_iter().for_each(|head| self.push_front_body(head).expect("the body has room"));
        tail.into_iter().for_each(|tail| self.push_body(tail).expect("the body has room"));
        Some(count)
    }

    /// Copies bytes to the end of the body, with their sums. They continue `page`, and more pages are taken
    /// as needed; the last one is left there. Returns `None` if memory is short, or if the body has too many
    /// slices.
    pub fn extend_body(
        &mut self,
        mut bytes: &[u8],
        pages: &mut PagePool,
        page: &mut Option<Page>,
    ) -> Option<()> {
        while !bytes.is_empty() {
            if page.as_ref().is_none_or(|page| page.room() == 0) {
                *page = pages.take();
            }
            let slice = page.as_mut()?.append(bytes)?;
            bytes = &bytes[slice.len()..];
            self.push_body(slice).ok()?;
        }
        Some(())
    }

    /// Returns a copy that occupies memory of these pools only. Its body continues `page`, as with
    /// [`Pdu::extend_body`]. Returns `None` if memory is short, or if the copy has too many slices.
    pub fn copy(&self, pdus: &mut PduPool, pages: &mut PagePool, page: &mut Option<Page>) -> Option<Pdu> {
        let mut copy = pdus.take()?;
        copy.extend_head(self.head());
        self.body().iter().try_for_each(|slice| copy.extend_body(slice.bytes(), pages, page))?;
        copy.push_tail(self.tail().len()).copy_from_slice(self.tail());
        copy.set_segment_bytes(self.segment_bytes() as u16);
        if self.is_verified() {
            copy.set_verified();
        }
        Some(copy)
    }

    /// Removes and returns the body's slices; head and tail stay.
    #[inline]
    pub fn drain_body(&mut self) -> impl Iterator<Item = Slice> + '_ {
        let block = self.block_mut();
        block.body_length = 0;
        block.body.drain(..)
    }

    /// Drops the first `count` bytes of the body (for example, bytes already received).
    ///
    /// # Panics
    /// If the body is shorter.
    pub fn trim_front(&mut self, mut count: usize) {
        let block = self.block_mut();
        assert!(count <= block.body_length as usize, "a body is trimmed within its length");
        block.body_length -= count as u32;
        while count > 0 {
            let slice = &mut block.body[0];
            if slice.len() <= count {
                count -= slice.len();
                block.body.remove(0);
            } else {
                slice.skip(count);
                count = 0;
            }
        }
    }

    /// Keeps only the first `count` bytes of the body (for example, as many as the window or the IP length
    /// admits).
    pub fn truncate_body(&mut self, count: usize) {
        let block = self.block_mut();
        let mut excess = (block.body_length as usize).saturating_sub(count);
        block.body_length -= excess as u32;
        while excess > 0 {
            let slice = block.body.last_mut().expect("the body is as long as its slices");
            if slice.len() <= excess {
                excess -= slice.len();
                block.body.pop();
            } else {
                slice.truncate(slice.len() - excess);
                excess = 0;
            }
        }
    }

    /// Keeps only the first `count` bytes of head and body together and removes the tail, to strip link
    /// padding.
    pub fn truncate(&mut self, count: usize) {
        let head = self.head().len();
        self.truncate_body(count.saturating_sub(head));
        let block = self.block_mut();
        block.tail_length = 0;
        block.head_end = block.head_start + count.min(head) as u16;
    }

    /// Returns the tail.
    pub fn tail(&self) -> &[u8] {
        let block = self.block();
        &block.tail[..block.tail_length as usize]
    }

    /// Grows the tail by `count` zero bytes and returns the whole tail.
    ///
    /// # Panics
    /// If the tail would exceed [`TAIL_BYTES`].
    pub fn push_tail(&mut self, count: usize) -> &mut [u8] {
        let block = self.block_mut();
        let from = block.tail_length as usize;
        block.tail[from..from + count].fill(0);
        block.tail_length += count as u16;
        &mut block.tail[..from + count]
    }

    /// Recomputes the sums of the body's slices and clears the verified mark, for data from a link whose
    /// checksum status is not trusted.
    #[inline]
    pub fn recompute_sums(&mut self) {
        let block = self.block_mut();
        block.verified = false;
        block.body.iter_mut().for_each(Slice::recompute_sum);
    }

    /// Returns the sum of head and body; reads the head and uses the cached sums of the body's slices.
    pub fn sum(&self) -> Sum {
        let head = self.head();
        Sum::of(head).then(head.len(), self.body_sum())
    }

    /// Returns the sum of the body, computed from the cached sums of its slices.
    #[inline]
    pub fn body_sum(&self) -> Sum {
        let mut offset = 0;
        let mut sum = Sum::ZERO;
        for slice in self.body() {
            sum = sum.plus(slice.sum().at(offset));
            offset += slice.len();
        }
        sum
    }

    /// Returns the payload size at which a lower layer may segment this PDU, or zero if it must not be
    /// segmented.
    #[inline]
    pub fn segment_bytes(&self) -> usize {
        self.block().segment_bytes as usize
    }

    /// Sets the segment size for a lower layer that segments this PDU.
    pub fn set_segment_bytes(&mut self, bytes: u16) {
        self.block_mut().segment_bytes = bytes;
    }

    /// Marks the checksum of these bytes as already verified.
    pub fn set_verified(&mut self) {
        self.block_mut().verified = true;
    }

    /// Returns whether the checksum has already been verified.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.block().verified
    }

    /// Iterates over head, body and tail as runs of bytes, in order.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.head())
            .chain(self.body().iter().map(Slice::bytes))
            .chain(core::iter::once(self.tail()))
            .filter(|run| !run.is_empty())
    }
}

impl Drop for Pdu {
    #[inline]
    fn drop(&mut self) {
        let block = self.block_mut();
        block.body.clear();
        block.body_length = 0;
        // SAFETY: this handle was the only one, and it is being dropped.
        unsafe { Slot::release(self.block) };
    }
}

impl fmt::Debug for Pdu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = self.tail().len();
        write!(
            f,
            "Pdu(head {}, body {} in {}, tail {tail})",
            self.head().len(),
            self.body_len(),
            self.body().len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes_of(pdu: &Pdu) -> Vec<u8> {
        pdu.runs().flatten().copied().collect()
    }

    fn pdu_of(blocks: &mut PduPool, pool: &mut PagePool, parts: &[Vec<u8>]) -> Pdu {
        let mut pdu = blocks.take().unwrap();
        for part in parts {
            let mut page = pool.take().unwrap();
            if let Some(slice) = page.append(part) {
                pdu.push_body(slice).unwrap();
            }
        }
        pdu
    }

    #[test]
    fn a_header_is_prepended_and_removed() {
        let mut blocks = PduPool::new(1);
        let mut pdu = blocks.take().unwrap();
        pdu.push_head(2).copy_from_slice(b"cd");
        pdu.push_head(2).copy_from_slice(b"ab");
        assert_eq!(pdu.head(), b"abcd");
        pdu.pull_head(1);
        assert_eq!(pdu.head(), b"bcd");
        assert!(blocks.take().is_none());
        drop(pdu);
        assert_eq!(blocks.available(), 1);
    }

    #[test]
    fn a_long_received_head_uses_the_headroom() {
        let mut blocks = PduPool::new(1);
        let mut pdu = blocks.take().unwrap();
        let bytes: Vec<u8> = (0..96).collect();
        pdu.extend_head(&bytes[..40]);
        pdu.extend_head(&bytes[40..]);
        assert_eq!(pdu.head(), &bytes[..]);
        pdu.push_head(HEAD_BYTES - 96)[0] = 7;
        assert_eq!((pdu.head().len(), pdu.head()[0]), (HEAD_BYTES, 7));
    }

    #[test]
    fn a_retransmission_shares_the_body_and_all_memory_is_freed() {
        let (mut blocks, mut pool) = (PduPool::new(4), PagePool::new(4, 64));
        let mut page = pool.take().unwrap();
        let kept = page.append(b"payload").unwrap();
        drop(page);
        for header in [b"1st", b"2nd"] {
            let mut pdu = blocks.take().unwrap();
            pdu.push_body(kept.clone()).unwrap();
            pdu.push_head(3).copy_from_slice(header);
            assert_eq!(&bytes_of(&pdu)[3..], b"payload");
        }
        assert_eq!(pool.available(), 3);
        drop(kept);
        assert_eq!((pool.available(), blocks.available()), (4, 4));
    }

    #[test]
    fn a_frozen_pdu_is_retransmitted_with_a_new_head() {
        let (mut blocks, mut pool) = (PduPool::new(2), PagePool::new(3, 64));
        let mut first = pdu_of(&mut blocks, &mut pool, &[b"payload".to_vec()]);
        first.push_head(3).copy_from_slice(b"ddp");
        first.push_tail(4).copy_from_slice(b"crc!");
        assert_eq!(first.freeze(&mut pool), Some(7));
        assert_eq!((first.head(), first.tail()), (&b""[..], &b""[..]));
        assert_eq!(first.sum(), Sum::of(b"ddppayloadcrc!"));
        let mut again = blocks.take().unwrap();
        first.body().iter().for_each(|slice| again.push_body(slice.clone()).unwrap());
        again.push_head(3).copy_from_slice(b"tcp");
        assert_eq!(bytes_of(&again), b"tcpddppayloadcrc!");
        drop((first, again));
        assert_eq!((pool.available(), blocks.available()), (3, 2));
        // If no page is free, the PDU is unchanged.
        let _all: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let mut stays = blocks.take().unwrap();
        stays.push_head(2).copy_from_slice(b"ab");
        assert_eq!((stays.freeze(&mut pool), stays.head()), (None, &b"ab"[..]));
    }

    #[test]
    fn contiguous_slices_are_joined() {
        let (mut blocks, mut pool) = (PduPool::new(1), PagePool::new(1, 64));
        let (mut pdu, mut page) = (blocks.take().unwrap(), pool.take().unwrap());
        for part in [&b"abc"[..], b"de", b"f"] {
            pdu.push_body(page.append(part).unwrap()).unwrap();
        }
        assert_eq!(pdu.body().len(), 1);
        assert_eq!(pdu.body_sum(), Sum::of(b"abcdef"));
    }

    #[test]
    fn a_pdu_given_to_a_pool_is_freed_at_once_or_returns_to_its_own_pool() {
        let (mut blocks, mut pool) = (PduPool::new(1), PagePool::new(1, 64));
        let (mut others, mut other_pool) = (PduPool::new(1), PagePool::new(1, 64));
        let slice = pool.take().unwrap().append(b"x").unwrap();
        let held = slice.clone();
        pool.give(slice);
        assert_eq!(pool.available(), 0, "another slice holds the page");
        pool.give(held);
        assert_eq!(pool.available(), 1);
        other_pool.give(pool.take().unwrap().append(b"x").unwrap());
        let pdu = blocks.take().unwrap();
        blocks.give(pdu);
        others.give(blocks.take().unwrap());
        assert_eq!((pool.available(), other_pool.available()), (1, 1));
        assert_eq!((blocks.available(), others.available()), (1, 1));
    }

    proptest! {
        #[test]
        fn a_body_behaves_like_a_vector(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec((0u8..4, 0usize..90), 0..8),
        ) {
            let (mut blocks, mut pool) = (PduPool::new(2), PagePool::new(16, 64));
            let mut pdu = pdu_of(&mut blocks, &mut pool, &parts);
            let mut model: Vec<u8> = parts.concat();
            let mut head = 0usize;
            for (what, count) in cuts {
                match what {
                    0 => {
                        let count = count.min(model.len() - head);
                        pdu.trim_front(count);
                        model.drain(head..head + count);
                    }
                    1 => {
                        let count = count.min(model.len() - head);
                        pdu.truncate_body(count);
                        model.truncate(head + count);
                    }
                    2 => {
                        let want = count.saturating_sub(head);
                        let fits = count <= model.len() && head + want <= HEAD_BYTES;
                        prop_assert_eq!(pdu.pull_up(count), fits.then_some(want));
                        if fits {
                            head += want;
                        }
                    }
                    _ => {
                        let count = count.min(head);
                        pdu.pull_head(count);
                        model.drain(..count);
                        head -= count;
                    }
                }
                prop_assert_eq!(bytes_of(&pdu), model.clone());
                prop_assert_eq!(pdu.sum().word() % 0xffff, Sum::of(&model).word() % 0xffff);
                prop_assert_eq!(pdu.body_len(), model.len() - head);
            }
            drop(pdu);
            prop_assert_eq!(pool.available(), 16);
        }

        #[test]
        fn any_range_of_a_slice_knows_its_sum(bytes in prop::collection::vec(any::<u8>(), 1..64), a in 0usize..64, b in 0usize..64) {
            let mut pool = PagePool::new(1, 64);
            let slice = pool.take().unwrap().append(&bytes).unwrap();
            let (from, to) = (a.min(b).min(bytes.len()), a.max(b).min(bytes.len()));
            let part = slice.range(from, to - from);
            prop_assert_eq!(part.bytes(), &bytes[from..to]);
            prop_assert_eq!(part.sum().word() % 0xffff, Sum::of(&bytes[from..to]).word() % 0xffff);
        }
    }
}
