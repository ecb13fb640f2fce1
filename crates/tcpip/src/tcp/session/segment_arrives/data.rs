//! Payload and FIN at the receiver: in-order data is delivered at once, out-of-order data is queued, and an
//! acknowledgement is scheduled.

use crate::tcp::counters::TcpCounters;
use crate::tcp::interface::indication::Indication;
use crate::tcp::session::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::state::State;
use crate::wire::tcp::{Flags, Sequence};
use kiban_base::Pdu;

/// Maximum number of duplicate ACKs sent per burst: as many as the peer needs to detect a loss (RFC 5681
/// §3.2).
const DUPLICATES_MAX: u8 = 3;

impl Session {
    /// Processes payload and FIN; both are already trimmed to the window.
    pub(in crate::tcp::session) fn on_data(
        &mut self,
        sequence: Sequence,
        pdu: Pdu,
        flags: Flags,
        ctx: &mut SessionContext<'_, '_>,
    ) {
        let begin = if sequence.lt(self.rcv_nxt) { self.rcv_nxt } else { sequence };
        let length = pdu.body_len() as u32;
        if flags.has(Flags::FIN) {
            self.peer_fin_seq = Some(begin + length);
        }
        if length > 0 && self.host_closed {
            // RFC 1122 §4.2.2.13: data that arrives after the host has closed is lost, so reset the
            // connection.
            return self.abort(ctx);
        }
        if length > 0 {
            self.measure_segment(length.min(u32::from(ctx.config.mss)), flags);
            if begin == self.rcv_nxt {
                self.on_in_order(pdu, length, ctx);
            } else {
                self.on_out_of_order(begin, pdu, ctx);
            }
        }
        if self.peer_fin_seq == Some(self.rcv_nxt) {
            self.on_peer_finish(ctx);
        } else if self.peer_fin_seq.is_some() {
            self.pending_ack = PendingAck::Immediate;
        }
    }

    fn on_in_order(&mut self, pdu: Pdu, length: u32, ctx: &mut SessionContext<'_, '_>) {
        self.advance_rcv_nxt(length, ctx);
        ctx.up.push_back(Indication::Data { session: self.id, pdu });
        if !self.out_of_order.is_empty() {
            // A gap was filled: acknowledge at once (RFC 5681 §4.2).
            self.pending_ack = PendingAck::Immediate;
            while let Some(slice) = self.out_of_order.take(self.rcv_nxt) {
                self.advance_rcv_nxt(slice.len() as u32, ctx);
                ctx.up.push_back(Indication::Piece { session: self.id, slice });
            }
        }
        self.schedule_ack(length, ctx);
    }

    fn advance_rcv_nxt(&mut self, length: u32, ctx: &mut SessionContext<'_, '_>) {
        self.rcv_nxt += length;
        self.dup_acks_due = 0;
        self.unread_bytes += length;
        self.pass_urgent();
        ctx.counters.bytes_in += u64::from(length);
        self.tally.bytes_in += u64::from(length);
    }

    fn on_out_of_order(&mut self, mut begin: Sequence, mut pdu: Pdu, ctx: &mut SessionContext<'_, '_>) {
        ctx.counters.out_of_order += 1;
        self.tally.early += 1;
        // RFC 5681 §4.2: every out-of-order segment causes an immediate ACK, even if many came in one burst.
        self.pending_ack = PendingAck::Immediate;
        self.dup_acks_due = (self.dup_acks_due + 1).min(DUPLICATES_MAX);
        for slice in pdu.drain_body() {
            let length = slice.len() as u32;
            if !self.out_of_order.insert(begin, slice) {
                ctx.counters.out_of_order_dropped += 1;
            }
            begin += length;
        }
    }

    /// Returns whether out-of-order data is queued.
    pub(in crate::tcp) fn has_out_of_order(&self) -> bool {
        !self.out_of_order.is_empty()
    }

    /// Frees out-of-order data because memory is short; the peer still has it and retransmits it.
    pub(in crate::tcp) fn drop_out_of_order(&mut self, counters: &mut TcpCounters) {
        counters.out_of_order_dropped += self.out_of_order.clear() as u64;
        self.out_of_order_listed = false;
    }

    fn on_peer_finish(&mut self, ctx: &mut SessionContext<'_, '_>) {
        self.peer_fin_seq = None;
        self.out_of_order.clear();
        self.rcv_nxt += 1;
        self.dup_acks_due = 0;
        self.rcv_adv = if self.rcv_adv.lt(self.rcv_nxt) { self.rcv_nxt } else { self.rcv_adv };
        self.pending_ack = PendingAck::Immediate;
        ctx.up.push_back(Indication::Finished { session: self.id });
        self.state = self.state.on_peer_finish();
        if self.state == State::TimeWait {
            self.enter_time_wait(ctx);
        }
    }
}
