//! Queues of writers that wait for memory. A writer waits for a page if none was free. It waits for a share
//! of memory if its own is used up and it has nothing in flight whose ACK would wake it.
//!
//! Pages            writers are served in the order of arrival: as long as there are free pages, each writer
//!                  is given one and woken. New writers queue behind them.
//! Shares           writers are also served in the order of arrival, once no writer waits for pages. Only as
//!                  many writers are woken as the unpromised memory can serve.
//! Skipping         a writer that may not hold more memory yet (its address has used up its share) is skipped
//!                  in favour of those behind it.
//! Cost             [`LOOKS`] entries of the share queue are examined per turn, and none if no memory has
//!                  been released since the last examination.

use super::completion::{Completion, StreamId};
use super::memory_waiters::START_BYTES;
use super::table::Edge;
use core::time::Duration;
use kiban_base::{Memory, Page};
use kiban_tcpip::tcp::Tcp;

/// Entries of the share queue that are examined per turn.
const LOOKS: usize = 64;
/// If there are more entries to examine, the next turn comes after this time at the latest.
pub(crate) const NEXT_TURN: Duration = Duration::from_millis(1);

impl Edge {
    /// Called when memory has been released: gives each waiting writer a page and wakes it. A writer whose
    /// peer acknowledges nothing would keep the page from others. Like a writer without room, it is therefore
    /// woken only when its peer has acknowledged something.
    pub(crate) fn on_memory(&mut self, tcp: &mut Tcp, memory: &mut Memory) {
        if self.page_line.is_empty() {
            return;
        }
        while !self.page_line.for_pages.is_empty() {
            let Some(page) = memory.transmit.take() else { return };
            let stream = self.page_line.for_pages.pop_front().expect("the line is not empty");
            self.hand(stream, page, tcp);
        }
        let line = &mut self.page_line;
        if line.seen != tcp.releases() {
            (line.seen, line.unseen) = (tcp.releases(), line.for_shares.len());
        }
        let looks = line.unseen.min(LOOKS);
        let mut free = tcp.free_bytes();
        for _ in 0..looks {
            if free < START_BYTES {
                break;
            }
            let Some(page) = memory.transmit.take() else { break };
            let Some(stream) = self.page_line.for_shares.pop_front() else { break };
            self.page_line.unseen -= 1;
            if self.hand(stream, page, tcp) {
                free -= START_BYTES;
            }
        }
    }

    /// Gives the first writer a page and wakes it, if it may hold more memory; otherwise moves on to the next
    /// writer. Returns whether it was woken.
    fn hand(&mut self, stream: StreamId, page: Page, tcp: &mut Tcp) -> bool {
        let Some(state) = self.stream(stream).filter(|state| state.may_write()) else { return false };
        if tcp.is_window_closed(state.session) {
            state.waits_for_page = false;
            return false;
        }
        if tcp.room(state.session) == 0 {
            // ACKs will wake this writer. If it had nothing in flight, only memory released by others could
            // wake it.
            state.waits_for_page = tcp.is_empty(state.session);
            if state.waits_for_page {
                self.page_line.push(stream);
            }
            return false;
        }
        state.waits_for_page = false;
        let upper = state.upper;
        state.page = Some(page);
        tcp.cancel_wait(state.session);
        self.push_completion(upper, Completion::Writable { stream });
        true
    }
}
