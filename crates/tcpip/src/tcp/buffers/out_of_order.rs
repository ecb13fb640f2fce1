//! Out-of-order data: bytes that arrived ahead of a gap.
//!
//! Data in order, the common case, bypasses this queue. Out-of-order data is kept as slices sorted by
//! sequence number, without overlap: if bytes arrive twice, the first copy is kept. All bytes lie within the
//! offered window, which bounds them. [`PIECES_MAX`] bounds the number of slices, because each holds a page.
//!
//! SACK reports (RFC 2018 §4, RFC 2883) list a pending D-SACK once, then the run that holds the latest
//! segment, then the runs reported earlier, most recent first. Every block describes bytes that are held:
//! runs are noted when they are stored and removed when they are freed. A run for which the list had no room
//! is added when there is room.

use crate::wire::tcp::{SACK_BLOCKS_MAX, SackBlock, SackBlocks, Sequence};
use alloc::collections::VecDeque;
use kiban_base::Slice;

/// Maximum number of out-of-order slices kept; further segments are dropped, and the peer retransmits them.
const PIECES_MAX: usize = 512;

/// The out-of-order queue of one session.
#[derive(Debug, Default)]
pub(in crate::tcp) struct OutOfOrder {
    pieces: VecDeque<(Sequence, Slice)>,
    /// The most recently extended runs, latest first.
    runs: SackBlocks,
    /// Whether some run is missing from `runs`.
    runs_missing: bool,
    /// A duplicate range that has not been reported yet (D-SACK).
    dsack: Option<SackBlock>,
}

impl OutOfOrder {
    #[inline]
    pub(in crate::tcp) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Stores those bytes of `slice` (which starts at `at`) that are not held yet. Returns whether all of
    /// them could be stored.
    pub(in crate::tcp) fn insert(&mut self, mut at: Sequence, mut slice: Slice) -> bool {
        let mut index = self.pieces.partition_point(|(start, _)| start.le(at));
        if index > 0 {
            let (start, before) = &self.pieces[index - 1];
            let end = *start + before.len() as u32;
            if at.lt(end) {
                let known = at.distance(end) as usize;
                self.on_duplicate(at, at + known.min(slice.len()) as u32);
                if known >= slice.len() {
                    self.note(at, at + slice.len() as u32);
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
                    if fresh > 0 && !self.store(&mut index, at, slice.range(0, fresh)) {
                        return false;
                    }
                    self.on_duplicate(start, end.min(known_end));
                    if end.le(known_end) {
                        self.note(at, end);
                        return true;
                    }
                    slice.skip(at.distance(known_end) as usize);
                    at = known_end;
                    index += 1;
                }
                _ => return self.store(&mut index, at, slice),
            }
        }
    }

    fn store(&mut self, index: &mut usize, at: Sequence, slice: Slice) -> bool {
        if self.pieces.len() >= PIECES_MAX {
            return false;
        }
        let end = at + slice.len() as u32;
        self.pieces.insert(*index, (at, slice));
        *index += 1;
        self.note(at, end);
        true
    }

    /// Records that bytes `left..right` are held, and moves their run to the front of the list.
    fn note(&mut self, left: Sequence, right: Sequence) {
        let mut run = SackBlock { left, right };
        let mut others = SackBlocks::new();
        for other in self.runs.as_slice() {
            if other.left.le(right) && left.le(other.right) {
                run = SackBlock { left: run.left.min(other.left), right: run.right.max(other.right) };
            } else {
                others.push(*other);
            }
        }
        // A run that is missing from the list may touch this one.
        while let Some(piece) = self.piece_before(run.right + 1)
            && run.right.lt(piece.right)
        {
            run.right = piece.right;
        }
        while let Some(piece) = self.piece_before(run.left)
            && run.left.le(piece.right)
        {
            run.left = piece.left;
        }
        self.runs = SackBlocks::new();
        self.runs.push(run);
        // Drop runs that the extended run now covers.
        let apart = |other: &&SackBlock| other.right.lt(run.left) || run.right.lt(other.left);
        for other in others.as_slice().iter().filter(apart) {
            self.runs_missing |= !self.runs.push(*other);
        }
        self.refill_runs();
    }

    /// Adds missing runs to the list while it has room, the lowest sequence number first.
    fn refill_runs(&mut self) {
        let room = |runs: &SackBlocks| runs.as_slice().len() < SACK_BLOCKS_MAX;
        if !self.runs_missing || !room(&self.runs) {
            return;
        }
        self.runs_missing = false;
        let mut pieces =
            self.pieces.iter().map(|(left, piece)| (*left, *left + piece.len() as u32)).peekable();
        while let Some((left, mut right)) = pieces.next() {
            while let Some((_, end)) = pieces.next_if(|(next, _)| *next == right) {
                right = end;
            }
            if self.runs.as_slice().iter().all(|run| run.left != left) {
                self.runs_missing |= !self.runs.push(SackBlock { left, right });
            }
        }
    }

    /// Returns the range of the last slice that begins before `place`.
    fn piece_before(&self, place: Sequence) -> Option<SackBlock> {
        let index = self.pieces.partition_point(|(start, _)| start.lt(place)).checked_sub(1)?;
        let (left, piece) = &self.pieces[index];
        Some(SackBlock { left: *left, right: *left + piece.len() as u32 })
    }

    /// Records that bytes arrived that were already held or delivered.
    pub(in crate::tcp) fn on_duplicate(&mut self, left: Sequence, right: Sequence) {
        let again = self.dsack.get_or_insert(SackBlock { left, right: left });
        // A segment consists of several slices. Of two duplicate segments between two acknowledgements only
        // the first is reported.
        if again.right == left {
            again.right = right;
        }
    }

    /// Returns whether there are no SACK blocks to send.
    #[inline]
    pub(in crate::tcp) fn has_no_sack_blocks(&self) -> bool {
        self.runs.is_empty() && self.dsack.is_none()
    }

    /// Returns at most `most` SACK blocks for an acknowledgement up to `expected`. A D-SACK is reported only
    /// once.
    pub(in crate::tcp) fn sack_blocks(&mut self, expected: Sequence, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        if most > 0 {
            self.dsack.take().into_iter().for_each(|again| {
                blocks.push(again);
            });
        }
        let runs = self.runs.as_slice().iter().filter(|run| expected.lt(run.left));
        for run in runs.take(most - blocks.as_slice().len()) {
            blocks.push(*run);
        }
        blocks
    }

    /// Removes and returns the slice that continues the stream at `next`, if it has arrived. Older slices are
    /// dropped.
    pub(in crate::tcp) fn take(&mut self, next: Sequence) -> Option<Slice> {
        let slice = self.take_piece(next);
        if slice.is_none() {
            let runs = core::mem::take(&mut self.runs);
            for run in runs.as_slice().iter().filter(|run| next.lt(run.left)) {
                self.runs.push(*run);
            }
            self.refill_runs();
        }
        slice
    }

    fn take_piece(&mut self, next: Sequence) -> Option<Slice> {
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

    /// Frees all slices and returns their number.
    pub(in crate::tcp) fn clear(&mut self) -> usize {
        let pieces = self.pieces.len();
        self.pieces.clear();
        (self.runs, self.runs_missing) = (SackBlocks::new(), false);
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiban_base::PagePool;
    use proptest::prelude::*;

    proptest! {
        /// Pieces of one stream, in any order and with any overlap, are returned in order.
        #[test]
        fn out_of_order_data_is_delivered_in_order_and_once(
            start in any::<u32>(),
            pieces in prop::collection::vec((0usize..200, 1usize..60), 1..30),
        ) {
            let stream: Vec<u8> = (0..260u32).map(|n| (n * 7 + n / 256) as u8).collect();
            let mut pool = PagePool::new(64, 64);
            let mut early = OutOfOrder::default();
            let (mut next, mut out, mut have) = (0usize, Vec::new(), alloc::vec![false; 260]);
            for (from, length) in pieces {
                let slice = pool.take().unwrap().append(&stream[from..from + length]).unwrap();
                have[from..from + length].fill(true);
                let at = Sequence(start.wrapping_add(from as u32));
                prop_assert!(early.insert(at, slice));
                // RFC 2018 §4: the first block contains the latest piece, every block covers only received
                // bytes, and no two blocks are adjacent.
                let runs = early.runs.as_slice();
                prop_assert!(runs[0].left.le(at) && (at + length as u32).le(runs[0].right));
                for (n, run) in runs.iter().enumerate() {
                    let place = |edge: Sequence| edge.0.wrapping_sub(start) as usize;
                    let (left, right) = (place(run.left), place(run.right));
                    if right <= next {
                        continue;
                    }
                    prop_assert!(have[left..right].iter().all(|byte| *byte));
                    prop_assert!(left <= next || !have[left - 1], "it begins behind a hole");
                    prop_assert!(right == 260 || !have[right], "it ends before a hole");
                    prop_assert!(runs[..n].iter().all(|other| other.right.lt(run.left) || run.right.lt(other.left)));
                }
                while let Some(slice) = early.take(Sequence(start.wrapping_add(next as u32))) {
                    out.extend_from_slice(slice.bytes());
                    next += slice.len();
                }
                let reach = have.iter().position(|byte| !byte).unwrap_or(260);
                prop_assert_eq!(next, reach, "everything contiguous has come out");
                let expected = Sequence(start.wrapping_add(next as u32));
                early.dsack = None;
                let report = early.sack_blocks(expected, 4);
                prop_assert!(report.as_slice().iter().all(|block| expected.lt(block.left)));
                // All runs are reported, up to the limit, each at its full length.
                let mut runs = Vec::new();
                for at in next + 1..260 {
                    if have[at] && !have[at - 1] {
                        let end = (at..260).find(|end| !have[*end]).unwrap_or(260);
                        runs.push((at, end));
                    }
                }
                let at = |place: Sequence| Sequence(start).distance(place) as usize;
                let told: Vec<_> = report.as_slice().iter().map(|run| (at(run.left), at(run.right))).collect();
                prop_assert_eq!(told.len(), runs.len().min(4));
                prop_assert!(told.iter().all(|run| runs.contains(run)), "{:?} of {:?}", told, runs);
            }
            prop_assert_eq!(&out[..], &stream[..next]);
            drop(early);
            prop_assert_eq!(pool.available(), 64);
        }
    }
}
