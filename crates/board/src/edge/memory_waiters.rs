//! The queues of writers that wait for memory.

use super::completion::StreamId;
use alloc::collections::VecDeque;
use kiban_tcpip::tcp::Tcp;

/// The minimum memory that a woken writer is assumed to use: a page, and the overhead charged per session
/// that holds data.
pub(super) const START_BYTES: u64 = 12 << 10;

/// Writers that wait for memory.
#[derive(Default)]
pub(crate) struct MemoryWaiters {
    /// Writers that are within their share of memory but found no free page.
    pub(super) for_pages: VecDeque<StreamId>,
    /// Writers whose share of memory is used up.
    pub(super) for_shares: VecDeque<StreamId>,
    /// The ledger's count of releases at the last examination. `unseen` is the number of entries of
    /// `for_shares` that have not been examined since then.
    pub(super) seen: u64,
    pub(super) unseen: usize,
    /// The number of writes that found no page. `waiters_met` is the sum of the queue lengths at those times,
    /// including the writers themselves.
    pub(crate) waits: u64,
    pub(crate) waiters_met: u64,
}

impl MemoryWaiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.for_pages.is_empty() && self.for_shares.is_empty()
    }

    /// Returns whether a writer waits only for a page.
    pub(crate) fn wants_pages(&self) -> bool {
        !self.for_pages.is_empty()
    }

    /// Queues a writer whose share of memory is used up.
    pub(crate) fn push(&mut self, stream: StreamId) {
        self.for_shares.push_back(stream);
    }

    /// Queues a writer that found no page.
    pub(crate) fn push_for_page(&mut self, stream: StreamId) {
        self.for_pages.push_back(stream);
        self.waits += 1;
        self.waiters_met += self.for_pages.len() as u64;
    }

    /// Returns whether there are writers to examine even if nothing else happens.
    pub(crate) fn is_due(&self, tcp: &Tcp) -> bool {
        !self.for_shares.is_empty()
            && self.for_pages.is_empty()
            && (self.unseen > 0 || self.seen != tcp.releases())
            && tcp.free_bytes() >= START_BYTES
    }
}
