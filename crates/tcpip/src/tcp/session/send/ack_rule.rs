//! When an acknowledgement is due (RFC 9293 §3.8.6.3, RFC 1122 §4.2.3.2 and §4.2.3.3).
//!
//! Arrival          in-order bytes are counted. Once there are enough, an acknowledgement is due immediately.
//!                  Until then it is delayed until more data arrives, until outgoing data carries it, or
//!                  until the delayed-ACK timer fires.
//!                  The host can switch the delay off (`TCP_QUICKACK`); as in Linux, sending data soon after
//!                  data has arrived switches it on again: answers can carry acknowledgements.
//! Reading          consuming data moves the right edge of the window. Once it has moved far enough, a window
//!                  update is due. In 4.3BSD this is the only source of acknowledgements: none is due before
//!                  the host has read.

use crate::tcp::config::AckUnit;
use crate::tcp::session::tcb::{PendingAck, Session, SessionContext};
use crate::wire::tcp::Flags;

/// No peer lowers its MSS further; the value is Linux's.
const MSS_MIN: u32 = 88;

impl Session {
    /// Records `length` bytes that arrived in order, and schedules an acknowledgement, immediate or delayed.
    pub(in crate::tcp::session) fn schedule_ack(&mut self, length: u32, ctx: &mut SessionContext<'_, '_>) {
        let config = ctx.config;
        self.unacked_bytes += length;
        self.unacked_segments += 1;
        let enough = match config.ack_unit {
            AckUnit::Largest => self.unacked_bytes >= config.ack_segments.saturating_mul(self.rcv_mss),
            AckUnit::Mss => self.unacked_bytes >= config.ack_segments.saturating_mul(self.mss),
            AckUnit::Segment => self.unacked_segments >= config.ack_segments,
        };
        let enough = self.quick_ack
            || enough && config.ack_segments > 0
            || config.ack_bytes.is_some_and(|bytes| self.unacked_bytes >= bytes);
        if enough {
            self.pending_ack = PendingAck::Immediate;
        } else if self.pending_ack == PendingAck::None {
            self.pending_ack = PendingAck::Delayed;
            self.delayed_ack_deadline = config.ack_due(ctx.cx.now);
        }
    }

    /// Estimates the size of the peer's full segments from one of `length` bytes: the largest so far, or the
    /// size of two in a row that do not end a write (PSH), because the peer has lowered its MSS. Segments
    /// shorter than [`MSS_MIN`] are short writes.
    pub(in crate::tcp::session) fn measure_segment(&mut self, length: u32, flags: Flags) {
        let is_repeated = length == self.last_segment_bytes && !flags.has(Flags::PSH);
        if length > self.rcv_mss || (is_repeated && length >= MSS_MIN) {
            self.rcv_mss = length;
        }
        self.last_segment_bytes = if flags.has(Flags::PSH) { 0 } else { length };
    }

    /// Records that the host has consumed `count` bytes, and schedules a window update if one is due.
    pub(in crate::tcp) fn consume(&mut self, count: u32, ctx: &mut SessionContext<'_, '_>) {
        self.unread_bytes = self.unread_bytes.saturating_sub(count);
        self.tune(count, ctx);
        let config = ctx.config;
        let most = self.window_most(ctx);
        let share = (u64::from(most) * u64::from(config.update_percent) / 100) as u32;
        let step = config.update_segments.saturating_mul(self.rcv_mss.max(self.mss)).min(share);
        if self.state.receives() && self.rcv_adv.distance(self.right_edge(most, config)) >= step {
            self.pending_ack = PendingAck::Immediate;
        }
        self.commit(ctx);
    }
}
