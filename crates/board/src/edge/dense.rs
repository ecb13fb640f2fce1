//! Pages that are not full: what waits for slow readers is moved together when memory runs short.
//!
//! Why       the peer chooses how long its segments are: one of 300 bytes holds a page of 4096 as long as nobody reads
//!           it. The ledger of windows counts bytes; a few such streams would hold every page, and the board would hear
//!           nobody any more.
//! When      less than a quarter of the pages is left. Until then nothing is copied.
//! What      of every stream the slices that fill less of a page than a full segment does, for so much the ledger counts
//!           on, in order, into pages that streams share. Each is looked at once: a stream remembers how many are dense.

use super::{Edge, Stream, StreamId};
use alloc::vec::Vec;
use kiban_ground::{Copies, Page, Pool};

/// Streams with slices that nobody has looked at, and the page that is being filled.
pub(crate) struct Loose {
    /// What a full segment fills of a page, on average.
    pub(crate) full_bytes: usize,
    streams: Vec<StreamId>,
    page: Option<Page>,
}

fn is_scarce(pool: &mut Pool) -> bool {
    pool.at_home() * 4 < pool.capacity()
}

impl Loose {
    pub(crate) fn new(full_bytes: usize) -> Loose {
        Loose { full_bytes, streams: Vec::new(), page: None }
    }

    /// Whether there is anything to do but to note who has something loose.
    #[inline]
    pub(crate) fn is_wanted(&self, pool: &mut Pool) -> bool {
        self.page.is_some() || is_scarce(pool)
    }

    /// The page that is being filled goes home: there is enough, or nobody is left.
    pub(crate) fn relax(&mut self) {
        self.page = None;
    }
}

impl Edge {
    /// Something that may not fill its page waits on a stream.
    pub(crate) fn on_loose(&mut self, id: StreamId, pool: &mut Pool, copies: &mut Copies) {
        if let Some(stream) = self.stream(id).filter(|stream| !stream.is_loose) {
            stream.is_loose = true;
            self.loose.streams.push(id);
            let known = self.streams_made();
            if self.loose.streams.len() > 2 * known {
                // Some have gone.
                let mut streams = core::mem::take(&mut self.loose.streams);
                streams.retain(|id| self.stream(*id).is_some());
                self.loose.streams = streams;
            }
        }
        if is_scarce(pool) {
            self.condense(pool, copies);
        } else {
            self.loose.relax();
        }
    }

    fn condense(&mut self, pool: &mut Pool, copies: &mut Copies) {
        let (streams, mut page) = (core::mem::take(&mut self.loose.streams), self.loose.page.take());
        let full = self.loose.full_bytes;
        for id in streams {
            let Some(stream) = self.stream(id) else { continue };
            stream.is_loose = !stream.condense(full, &mut page, pool, copies);
            if stream.is_loose {
                self.loose.streams.push(id);
            }
        }
        self.loose.page = page;
    }
}

impl Stream {
    /// Moves slices of less than `full` bytes together. False when there is no page to move them to.
    fn condense(
        &mut self,
        full: usize,
        page: &mut Option<Page>,
        pool: &mut Pool,
        copies: &mut Copies,
    ) -> bool {
        self.crumbs = None;
        // The last that was looked at may have room for more of its kind.
        let from = self.dense.saturating_sub(1).min(self.received.len());
        let mut rest = self.received.split_off(from).into_iter();
        while let Some(mut slice) = rest.next() {
            while slice.len() < full {
                if page.as_ref().is_none_or(|page| page.room() == 0) {
                    *page = pool.take();
                }
                let Some(moved) = page.as_mut().and_then(|page| page.append(slice.bytes())) else {
                    self.received.push_back(slice);
                    self.received.extend(rest);
                    return false;
                };
                copies.gather_bytes += moved.len() as u64;
                let all = moved.len() == slice.len();
                if !all {
                    slice.skip(moved.len());
                }
                let apart = match self.received.back_mut() {
                    Some(last) => last.join(moved).err(),
                    None => Some(moved),
                };
                self.received.extend(apart);
                if all {
                    break;
                }
            }
            if slice.len() >= full {
                self.received.push_back(slice);
            }
        }
        self.dense = self.received.len();
        true
    }
}
