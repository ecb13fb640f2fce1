//! The lines of writers that wait for memory: for a page where none was left, and for a share of memory where theirs is used up and they
//! have nothing under way whose acknowledgement would wake them.
//!
//! Pages     first come, first served: each is handed a page and told, as long as pages are there. Those who come by wait behind them.
//! Shares    the same once nobody waits for pages, as many as there is memory promised to nobody for, so that those who are told find it.
//! Passed    whoever may hold no more yet (its address has its share) makes way for those behind it.
//! Cost      [`LOOKS`] of the line for shares are looked at in a turn, and none while nobody has come to hold less since the last look.

use super::{Completion, Edge, StreamId};
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_ground::{Memory, Page};
use kiban_stack::tcp::Tcp;

/// Writers for whose shares is looked in a turn.
const LOOKS: usize = 64;
/// What one that is told is expected to take at least: a page, and what a holder is charged beside it.
const START_BYTES: u64 = 12 << 10;
/// When there are more to look at, the next turn comes after so long at the latest.
pub(crate) const NEXT_TURN: Duration = Duration::from_millis(1);

/// Writers that wait for memory.
#[derive(Default)]
pub(crate) struct PageLine {
    /// Those who may hold more, and found no page.
    for_pages: VecDeque<StreamId>,
    /// Those whose share of memory is used up.
    for_shares: VecDeque<StreamId>,
    /// The ledger's releases at the last turn, and how many of `for_shares` are to be looked at since.
    seen: u64,
    unseen: usize,
    /// Writes that found no page, and how long the line was then, themselves included, all together.
    pub(crate) waits: u64,
    pub(crate) waiters_met: u64,
}

impl PageLine {
    pub(crate) fn is_empty(&self) -> bool {
        self.for_pages.is_empty() && self.for_shares.is_empty()
    }

    /// Whether somebody stands here whom only a page is missing.
    pub(crate) fn wants_pages(&self) -> bool {
        !self.for_pages.is_empty()
    }

    /// Somebody waits whose share of memory is used up.
    pub(crate) fn push(&mut self, stream: StreamId) {
        self.for_shares.push_back(stream);
    }

    /// Somebody has found no page.
    pub(crate) fn push_for_page(&mut self, stream: StreamId) {
        self.for_pages.push_back(stream);
        self.waits += 1;
        self.waiters_met += self.for_pages.len() as u64;
    }

    /// Whether there is somebody to look at though nothing else happens.
    pub(crate) fn is_due(&self, tcp: &Tcp) -> bool {
        !self.for_shares.is_empty()
            && self.for_pages.is_empty()
            && (self.unseen > 0 || self.seen != tcp.releases())
            && tcp.free_bytes() >= START_BYTES
    }
}

impl Edge {
    /// Memory has come home: those who wait are given a page each and told. Whose peer takes nothing would keep it from the others,
    /// and is told when the peer has taken something, as who found no room.
    pub(crate) fn on_memory(&mut self, tcp: &Tcp, memory: &mut Memory) {
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

    /// The first in line is given a page and told, if it may hold more. Whoever may not makes way for others. Whether it was told.
    fn hand(&mut self, stream: StreamId, page: Page, tcp: &Tcp) -> bool {
        let Some(state) = self.stream(stream).filter(|state| state.may_write()) else { return false };
        if tcp.is_shut_out(state.session) {
            state.waits_for_page = false;
            return false;
        }
        if tcp.room(state.session) == 0 {
            // Acknowledgements of its own will wake it, or nothing but memory that others let go.
            state.waits_for_page = tcp.is_empty(state.session);
            if state.waits_for_page {
                self.page_line.push(stream);
            }
            return false;
        }
        state.waits_for_page = false;
        state.page = Some(page);
        state.wants_room = false;
        self.completions.push_back(Completion::Writable { stream });
        true
    }
}
