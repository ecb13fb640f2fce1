//! Payload and FIN at the receiver: data in order is delivered at once, out-of-order data is queued, and an
//! acknowledgement becomes due.

use super::tcb::{Desk, Owed, Session};
use crate::tcp::counters::TcpCounters;
use crate::tcp::indication::Indication;
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Sequence};
use kiban_base::Pdu;

/// Most duplicate ACKs sent per burst: as many as the peer needs to detect a loss (RFC 5681 §3.2).
const DUPLICATES_MAX: u8 = 3;

impl Session {
    /// Processes payload and FIN; both are already trimmed to the window.
    pub(super) fn on_data(&mut self, sequence: Sequence, pdu: Pdu, flags: Flags, desk: &mut Desk<'_, '_>) {
        let begin = if sequence.lt(self.expected) { self.expected } else { sequence };
        let length = pdu.body_len() as u32;
        if flags.has(Flags::FIN) {
            self.fin_at = Some(begin + length);
        }
        if length > 0 && self.left {
            // RFC 1122 §4.2.2.13: data that arrives after the host has closed is lost, so reset the
            // connection.
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
            // A gap was filled: acknowledge at once (RFC 5681 §4.2).
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
        // RFC 5681 §4.2: every out-of-order segment causes an immediate ACK, even if many came in one burst.
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

    /// Returns whether out-of-order data is queued.
    pub(in crate::tcp) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Frees out-of-order data because memory is short; the peer still has it and retransmits it.
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
