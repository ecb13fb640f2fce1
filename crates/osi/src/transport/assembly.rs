//! Reassembly of a TSDU.

use alloc::vec::Vec;
use kiban_base::Rope;

/// Received pieces that are shorter than this are copied into one.
pub const GATHER_BYTES: usize = 128;

/// A TSDU that is being reassembled.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pieces: Rope,
    /// Short pieces that come after those in `pieces`.
    short: Vec<u8>,
}

impl Assembly {
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.short.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn add(&mut self, data: Rope) {
        if data.len() < GATHER_BYTES {
            data.runs().for_each(|run| self.short.extend_from_slice(run));
            return;
        }
        if !self.short.is_empty() {
            self.pieces.push(core::mem::take(&mut self.short).into());
        }
        self.pieces.append(data);
    }

    pub(super) fn finish(&mut self, last: Rope) -> Rope {
        self.add(last);
        if !self.short.is_empty() {
            self.pieces.push(core::mem::take(&mut self.short).into());
        }
        core::mem::take(&mut self.pieces)
    }
}
