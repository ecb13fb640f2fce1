//! Streams with slices that do not fill their pages.

use super::completion::StreamId;
use alloc::vec::Vec;
use kiban_base::{Page, PagePool};

/// Streams with slices that have not been examined, and the page that is being filled.
pub(crate) struct PartialPages {
    /// Average number of bytes that a full segment fills in a page.
    pub(crate) full_bytes: usize,
    pub(super) streams: Vec<StreamId>,
    pub(super) page: Option<Page>,
}

pub(super) fn is_scarce(pool: &mut PagePool) -> bool {
    pool.available() * 4 < pool.capacity()
}

impl PartialPages {
    pub(crate) fn new(full_bytes: usize) -> PartialPages {
        PartialPages { full_bytes, streams: Vec::new(), page: None }
    }

    /// Returns whether compaction is needed now.
    #[inline]
    pub(crate) fn needs_compaction(&self, pool: &mut PagePool) -> bool {
        self.page.is_some() || is_scarce(pool)
    }

    /// Releases the page that is being filled, because there is enough memory or no stream is left.
    pub(crate) fn release_page(&mut self) {
        self.page = None;
    }
}
