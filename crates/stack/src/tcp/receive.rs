//! The receive side's memory: bytes that arrived ahead of a hole.
//!
//! In order is the common case and never comes here. What arrives early waits as slices sorted by sequence number,
//! without overlap: of bytes that arrive twice the first copy stays. Bytes lie within the window that was offered,
//! so the window bounds them; the number of pieces is bounded by [`PIECES_MAX`], because each holds a page.

use alloc::collections::VecDeque;
use kiban_ground::Slice;
use kiban_wire::tcp::Sequence;

/// Pieces that may wait behind holes; a peer that sends crumbs is sent back to retransmission.
const PIECES_MAX: usize = 512;

/// What arrived ahead of a hole.
#[derive(Debug, Default)]
pub(super) struct Early {
    pieces: VecDeque<(Sequence, Slice)>,
}

impl Early {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Keeps the part of `slice`, which starts at `at`, that is not here yet. Whether all of it could be kept.
    pub(super) fn insert(&mut self, mut at: Sequence, mut slice: Slice) -> bool {
        let mut index = self.pieces.partition_point(|(start, _)| start.le(at));
        if index > 0 {
            let (start, before) = &self.pieces[index - 1];
            let end = *start + before.len() as u32;
            if at.lt(end) {
                let known = at.distance(end) as usize;
                if known >= slice.len() {
                    return true;
                }
                slice.skip(known);
                at = end;
            }
        }
        loop {
            let next = self.pieces.get(index).map(|(start, piece)| (*start, *start + piece.len() as u32));
            let end = at + slice.len() as u32;
            match next {
                Some((start, known_end)) if start.lt(end) => {
                    let fresh = at.distance(start) as usize;
                    if fresh > 0 && !self.place(&mut index, at, slice.range(0, fresh)) {
                        return false;
                    }
                    if end.le(known_end) {
                        return true;
                    }
                    slice.skip(at.distance(known_end) as usize);
                    at = known_end;
                    index += 1;
                }
                _ => return self.place(&mut index, at, slice),
            }
        }
    }

    fn place(&mut self, index: &mut usize, at: Sequence, slice: Slice) -> bool {
        if self.pieces.len() >= PIECES_MAX {
            return false;
        }
        self.pieces.insert(*index, (at, slice));
        *index += 1;
        true
    }

    /// The next slice in order at `next`, if it has arrived; what is older is dropped.
    pub(super) fn take(&mut self, next: Sequence) -> Option<Slice> {
        while let Some((start, _)) = self.pieces.front() {
            if !start.le(next) {
                return None;
            }
            let (start, mut slice) = self.pieces.pop_front().expect("there is a front");
            let old = start.distance(next) as usize;
            if old < slice.len() {
                slice.skip(old);
                return Some(slice);
            }
        }
        None
    }

    /// Gives everything up: how many pieces.
    pub(super) fn clear(&mut self) -> usize {
        let pieces = self.pieces.len();
        self.pieces.clear();
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiban_ground::Pool;
    use proptest::prelude::*;

    proptest! {
        /// Pieces of one stream in any order, overlapping in any way, come out as the stream.
        #[test]
        fn early_pieces_come_out_in_order_and_once(
            start in any::<u32>(),
            pieces in prop::collection::vec((0usize..200, 1usize..60), 1..30),
        ) {
            let stream: Vec<u8> = (0..260u32).map(|n| (n * 7 + n / 256) as u8).collect();
            let mut pool = Pool::new(64, 64);
            let mut early = Early::default();
            let (mut next, mut out, mut have) = (0usize, Vec::new(), alloc::vec![false; 260]);
            for (from, length) in pieces {
                let slice = pool.take().unwrap().append(&stream[from..from + length]).unwrap();
                have[from..from + length].fill(true);
                prop_assert!(early.insert(Sequence(start.wrapping_add(from as u32)), slice));
                while let Some(slice) = early.take(Sequence(start.wrapping_add(next as u32))) {
                    out.extend_from_slice(slice.bytes());
                    next += slice.len();
                }
                let reach = have.iter().position(|byte| !byte).unwrap_or(260);
                prop_assert_eq!(next, reach, "everything contiguous has come out");
            }
            prop_assert_eq!(&out[..], &stream[..next]);
            drop(early);
            prop_assert_eq!(pool.at_home(), 64);
        }
    }
}
