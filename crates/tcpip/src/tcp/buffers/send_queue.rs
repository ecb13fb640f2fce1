//! The send queue: bytes that the host has written and the peer has not acknowledged.
//!
//! Slices are kept in stream order and never copied: every transmission refers to them with a new head. One
//! *cursor* stores the position of the next new byte, and another the position of the next retransmission, so
//! that neither needs a search. The front slice is not cut when part of it is acknowledged; `skip` counts
//! those bytes, so that its checksum need not be computed again.

use alloc::collections::VecDeque;
use kiban_base::{PagePool, Pdu, Slice};

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Offset from the first unacknowledged byte.
    at: u32,
    slice: usize,
    within: u32,
}

/// The send queue of one session, from its first unacknowledged byte on.
#[derive(Debug, Default)]
pub(in crate::tcp) struct SendQueue {
    slices: VecDeque<Slice>,
    skip: u32,
    bytes: u32,
    /// The cursors for new data and for retransmissions.
    cursors: [Cursor; 2],
}

impl SendQueue {
    /// Returns the number of bytes queued, sent or not.
    #[inline]
    pub(in crate::tcp) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Appends a slice. Consecutive short writes within a page are joined into slices of up to `grain` bytes.
    #[inline]
    pub(in crate::tcp) fn push(&mut self, slice: Slice, grain: u32) {
        let length = slice.len() as u32;
        self.bytes += length;
        let slice = match self.slices.back_mut() {
            Some(last) if last.len() as u32 + length <= grain => match last.join(slice) {
                Ok(()) => return,
                Err(slice) => slice,
            },
            _ => slice,
        };
        self.slices.push_back(slice);
    }

    /// Removes the first `count` bytes, which the peer has acknowledged. Their pages return to `pool`, where
    /// the next write finds them while they are still in the CPU cache.
    pub(in crate::tcp) fn acknowledged(&mut self, count: u32, pool: &mut PagePool) {
        self.bytes -= count;
        let mut done = self.skip + count;
        let mut popped = 0;
        while let Some(front) = self.slices.front() {
            let length = front.len() as u32;
            if done < length {
                break;
            }
            done -= length;
            self.slices.pop_front().into_iter().for_each(|slice| pool.give(slice));
            popped += 1;
        }
        self.skip = done;
        for cursor in &mut self.cursors {
            if cursor.at > count {
                cursor.at -= count;
                cursor.slice -= popped;
            } else {
                *cursor = Cursor { at: 0, slice: 0, within: self.skip };
            }
        }
    }

    /// Appends up to `count` bytes to a PDU's body, from offset `from` (relative to the first unacknowledged
    /// byte). Returns the number of bytes appended, which is less than `count` if the body's slice list is
    /// full or the queue ends.
    pub(in crate::tcp) fn gather(&mut self, from: u32, count: u32, pdu: &mut Pdu) -> u32 {
        let [new, again] = self.cursors;
        let (which, mut cursor) = if from >= new.at { (0, new) } else { (1, again) };
        if from < cursor.at {
            cursor = Cursor { at: 0, slice: 0, within: self.skip };
        }
        let ahead = from - cursor.at;
        self.step(&mut cursor, ahead);
        let mut left = count.min(self.bytes - from);
        let wanted = left;
        while left > 0 {
            self.cross(&mut cursor);
            let slice = &self.slices[cursor.slice];
            let within = cursor.within;
            let take = (slice.len() as u32 - within).min(left);
            let part = if take as usize == slice.len() {
                slice.clone()
            } else {
                slice.range(within as usize, take as usize)
            };
            if pdu.push_body_unmerged(part).is_err() {
                break;
            }
            left -= take;
            cursor.at += take;
            cursor.within += take;
        }
        self.cursors[which] = cursor;
        wanted - left
    }

    /// Advances a cursor by `count` bytes. It may stop at the end of a slice, because the slice may still
    /// grow.
    fn step(&self, cursor: &mut Cursor, mut count: u32) {
        cursor.at += count;
        while count > 0 {
            self.cross(cursor);
            let take = (self.slices[cursor.slice].len() as u32 - cursor.within).min(count);
            cursor.within += take;
            count -= take;
        }
    }

    /// Moves a cursor from the end of a slice to the beginning of the next.
    #[inline]
    fn cross(&self, cursor: &mut Cursor) {
        while cursor.within == self.slices[cursor.slice].len() as u32 {
            cursor.slice += 1;
            cursor.within = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiban_base::{PagePool, PduPool};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_send_queue_behaves_like_a_vector(
            steps in prop::collection::vec((0u8..3, 0u32..300, 0u32..300), 1..60),
            grain in 1u32..200,
        ) {
            let (mut blocks, mut pool) = (PduPool::new(1), PagePool::new(200, 256));
            let mut queue = SendQueue::default();
            let mut model: Vec<u8> = Vec::new();
            let mut page = pool.take().unwrap();
            let mut written = 0u8;
            for (what, a, b) in steps {
                match what {
                    0 => {
                        let bytes: Vec<u8> = (0..a).map(|_| { written = written.wrapping_add(1); written }).collect();
                        let mut rest = &bytes[..];
                        while !rest.is_empty() {
                            if page.room() == 0 { page = pool.take().unwrap(); }
                            let slice = page.append(rest).unwrap();
                            rest = &rest[slice.len()..];
                            queue.push(slice, grain);
                        }
                        model.extend(bytes);
                    }
                    1 => {
                        let count = a.min(model.len() as u32);
                        queue.acknowledged(count, &mut pool);
                        model.drain(..count as usize);
                    }
                    _ => {
                        let from = a.min(model.len() as u32);
                        let mut pdu = blocks.take().unwrap();
                        let count = queue.gather(from, b, &mut pdu);
                        let got: Vec<u8> = pdu.runs().flatten().copied().collect();
                        let from = from as usize;
                        prop_assert_eq!(&got[..], &model[from..from + count as usize]);
                        prop_assert!(count == b.min((model.len() - from) as u32) || pdu.body().len() == kiban_base::SLICES_MAX);
                    }
                }
                prop_assert_eq!(queue.bytes() as usize, model.len());
            }
        }
    }
}
