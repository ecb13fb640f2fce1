//! The line of writers that wait for memory: no page was left, or none that their share of memory lets them hold, and they have
//! nothing under way whose acknowledgement would wake them.
//!
//! Order     first come, first served: each is handed a page and told. Whoever may hold no more yet (its address has its share) is passed
//!           over. Where no page was left, those who come by wait behind the line.
//! Told      as many as there is memory promised to nobody for, so that those who are told find it.
//! Cost      [`LOOKS`] of the line are looked at in a turn, and none while nobody has come to hold less since the last look.

use super::{Completion, Edge, StreamId};
use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_ground::Memory;
use kiban_stack::tcp::Tcp;

/// Writers that are looked at in a turn.
const LOOKS: usize = 64;
/// What one that is told is expected to take at least: a page, and what a holder is charged beside it.
const START_BYTES: u64 = 12 << 10;
/// When there are more to look at, the next turn comes after so long at the latest.
pub(crate) const NEXT_TURN: Duration = Duration::from_millis(1);

/// Writers that wait for memory.
#[derive(Default)]
pub(crate) struct PageLine {
    streams: VecDeque<StreamId>,
    /// Whether the line waits because no page is left.
    is_out_of_pages: bool,
    /// The ledger's releases at the last turn, and how many are to be looked at since.
    seen: u64,
    unseen: usize,
    /// Writes that found no page, and how long the line was then, themselves included, all together.
    pub(crate) waits: u64,
    pub(crate) waiters_met: u64,
}

impl PageLine {
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether somebody stands here whom only a page is missing.
    pub(crate) fn wants_pages(&self) -> bool {
        self.is_out_of_pages && !self.streams.is_empty()
    }

    /// Somebody waits whose share of memory is used up.
    pub(crate) fn push(&mut self, stream: StreamId) {
        self.streams.push_back(stream);
    }

    /// Somebody has found no page.
    pub(crate) fn push_for_page(&mut self, stream: StreamId) {
        self.is_out_of_pages = true;
        self.unseen = self.streams.len() + 1;
        self.push(stream);
        self.waits += 1;
        self.waiters_met += self.streams.len() as u64;
    }

    /// Whether there is somebody to look at though nothing else happens.
    pub(crate) fn is_due(&self, tcp: &Tcp) -> bool {
        !self.streams.is_empty()
            && !self.is_out_of_pages
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
        let line = &mut self.page_line;
        if line.seen != tcp.releases() {
            (line.seen, line.unseen) = (tcp.releases(), line.streams.len());
        }
        if line.is_out_of_pages {
            line.unseen = line.streams.len();
        }
        let looks = line.unseen.min(LOOKS);
        let mut free = tcp.free_bytes();
        let mut bound = VecDeque::new();
        for _ in 0..looks {
            if free < START_BYTES {
                break;
            }
            let Some(stream) = self.page_line.streams.pop_front() else { break };
            self.page_line.unseen -= 1;
            let Some(state) = self.stream(stream).filter(|state| state.may_write()) else { continue };
            if tcp.is_shut_out(state.session) {
                state.waits_for_page = false;
                continue;
            }
            if tcp.room(state.session) == 0 {
                bound.push_back(stream);
                continue;
            }
            let Some(page) = memory.transmit.take() else {
                self.page_line.streams.push_front(stream);
                self.page_line.is_out_of_pages = true;
                self.page_line.streams.append(&mut bound);
                return;
            };
            free -= START_BYTES;
            state.waits_for_page = false;
            state.page = Some(page);
            state.wants_room = false;
            self.completions.push_back(Completion::Writable { stream });
        }
        self.page_line.is_out_of_pages = false;
        // Those who may hold no more make way for others.
        self.page_line.streams.append(&mut bound);
    }
}
