//! Compaction of partly filled pages: when memory runs short, data that waits for slow readers is packed into
//! fewer pages.
//!
//! Problem          the peer chooses the length of its segments, and a segment of 300 bytes holds a page of
//!                  4096 until it is read. The window ledger counts bytes, so a few such streams could hold
//!                  every page, and the board could not receive anything.
//! Trigger          less than a quarter of the pages is free. Until then nothing is copied.
//! Method           in every stream, some slices fill less of a page than a full segment does (which is what
//!                  the ledger assumes). These are moved, in order, into pages that streams share. Each slice
//!                  is examined once: a stream remembers how many of its slices are dense.

use super::completion::StreamId;
use super::partial_pages::is_scarce;
use super::stream::Stream;
use super::table::Edge;
use kiban_base::{Copies, Page, PagePool};

impl Edge {
    /// Records that a stream holds a slice that may not fill its page.
    pub(crate) fn on_loose(&mut self, id: StreamId, pool: &mut PagePool, copies: &mut Copies) {
        if let Some(stream) = self.stream(id).filter(|stream| !stream.is_loose) {
            stream.is_loose = true;
            self.loose.streams.push(id);
            let known = self.streams_made();
            if self.loose.streams.len() > 2 * known {
                // Some of the listed streams may have been closed in the meantime.
                let mut streams = core::mem::take(&mut self.loose.streams);
                streams.retain(|id| self.stream(*id).is_some());
                self.loose.streams = streams;
            }
        }
        if is_scarce(pool) {
            self.condense(pool, copies);
        } else {
            self.loose.release_page();
        }
    }

    fn condense(&mut self, pool: &mut PagePool, copies: &mut Copies) {
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
    /// Packs slices of less than `full` bytes into shared pages. Returns false if no page is free to receive
    /// them.
    fn condense(
        &mut self,
        full: usize,
        page: &mut Option<Page>,
        pool: &mut PagePool,
        copies: &mut Copies,
    ) -> bool {
        self.crumbs = None;
        // Start with the last dense slice, because its page may have room for more.
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
