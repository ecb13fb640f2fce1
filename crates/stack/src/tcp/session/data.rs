//! What payload and FIN do to the receiver: in order they go up at once, early data waits, an answer is owed.

use super::{DUPLICATES_MAX, Desk, Owed, Session};
use crate::tcp::state::State;
use crate::tcp::{Indication, TcpCounters};
use kiban_ground::Pdu;
use kiban_wire::tcp::{Flags, Sequence};

impl Session {
    /// Payload and FIN, trimmed to the window.
    pub(super) fn on_data(&mut self, sequence: Sequence, pdu: Pdu, flags: Flags, desk: &mut Desk<'_, '_>) {
        let begin = if sequence.lt(self.expected) { self.expected } else { sequence };
        let length = pdu.body_len() as u32;
        if flags.has(Flags::FIN) {
            self.fin_at = Some(begin + length);
        }
        if length > 0 && self.left {
            // RFC 1122 §4.2.2.13: data for a host that has closed is lost, and the peer is to know.
            return self.abort(desk);
        }
        if length > 0 {
            self.peer_segment = self.peer_segment.max(length.min(u32::from(desk.config.mss)));
            if begin == self.expected {
                self.on_in_order(pdu, length, desk);
            } else {
                self.on_early(begin, pdu, desk);
            }
        }
        if self.fin_at == Some(self.expected) {
            self.on_peer_finish(desk);
        } else if self.fin_at.is_some() {
            self.owed = Owed::Now;
        }
    }

    fn on_in_order(&mut self, pdu: Pdu, length: u32, desk: &mut Desk<'_, '_>) {
        self.take_in(length, desk);
        desk.up.push_back(Indication::Data { session: self.id, pdu });
        if !self.early.is_empty() {
            // A hole was filled: the sender wants to know (RFC 5681 §4.2).
            self.owed = Owed::Now;
            while let Some(slice) = self.early.take(self.expected) {
                self.take_in(slice.len() as u32, desk);
                desk.up.push_back(Indication::Piece { session: self.id, slice });
            }
        }
        self.owe_for(length, desk);
    }

    fn take_in(&mut self, length: u32, desk: &mut Desk<'_, '_>) {
        self.expected += length;
        self.duplicates = 0;
        self.held += length;
        self.pass_urgent();
        desk.counters.bytes_in += u64::from(length);
        self.tally.bytes_in += u64::from(length);
    }

    fn on_early(&mut self, mut begin: Sequence, mut pdu: Pdu, desk: &mut Desk<'_, '_>) {
        desk.counters.out_of_order += 1;
        self.tally.early += 1;
        // RFC 5681 §4.2: every early segment is answered at once, even if many came in one burst.
        self.owed = Owed::Now;
        self.duplicates = (self.duplicates + 1).min(DUPLICATES_MAX);
        for slice in pdu.drain_body() {
            let length = slice.len() as u32;
            if !self.early.insert(begin, slice) {
                desk.counters.early_dropped += 1;
            }
            begin += length;
        }
    }

    /// Whether anything waits behind a hole.
    pub(in crate::tcp) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Memory is short: what waits behind a hole goes; the peer still has it.
    pub(in crate::tcp) fn give_up_early(&mut self, counters: &mut TcpCounters) {
        counters.early_dropped += self.early.clear() as u64;
        self.early_listed = false;
    }

    fn on_peer_finish(&mut self, desk: &mut Desk<'_, '_>) {
        self.fin_at = None;
        self.early.clear();
        self.expected += 1;
        self.duplicates = 0;
        self.edge = if self.edge.lt(self.expected) { self.expected } else { self.edge };
        self.owed = Owed::Now;
        desk.up.push_back(Indication::Finished { session: self.id });
        self.state = self.state.on_peer_finish();
        if self.state == State::TimeWait {
            self.rest(desk);
        }
    }
}
