//! The end of a session: TIME-WAIT and CLOSED.

use super::tcb::{PendingAck, Session, SessionContext};
use crate::tcp::buffers::out_of_order::OutOfOrder;
use crate::tcp::buffers::send_queue::SendQueue;
use crate::tcp::interface::indication::{Indication, Reason};
use crate::tcp::loss::scoreboard::Scoreboard;
use crate::tcp::state::State;
use crate::wire::tcp::{Header, Sequence};
use kiban_base::Instant;

impl Session {
    /// Enters TIME-WAIT.
    pub(in crate::tcp) fn enter_time_wait(&mut self, ctx: &mut SessionContext<'_, '_>) {
        self.stop_timers();
        self.rto_deadline = ctx.cx.now + ctx.config.time_wait;
        // TIME-WAIT keeps only the 4-tuple.
        (self.out_of_order, self.send_queue, self.scoreboard) =
            (OutOfOrder::default(), SendQueue::default(), Scoreboard::default());
        self.commit(ctx);
        ctx.up.push_back(Indication::Gone { session: self.id, reason: Reason::Closed });
    }

    /// Returns whether a SYN may reuse the 4-tuple of this session in TIME-WAIT; if so, the highest sequence
    /// number that we used.
    pub(in crate::tcp) fn time_wait_reusable_by(&self, syn: &Header) -> Option<Sequence> {
        let newer = match (&self.timestamps, syn.options.timestamps) {
            (Some(stamps), Some(theirs)) if stamps.is_last(theirs.value) => self.rcv_nxt.lt(syn.sequence),
            (Some(stamps), Some(theirs)) => stamps.is_behind_last(theirs.value),
            // RFC 6191 §2: without timestamps on both sides, only the sequence number decides.
            _ => self.rcv_nxt.lt(syn.sequence),
        };
        (self.state == State::TimeWait && newer).then_some(self.snd_max)
    }

    /// Leaves TIME-WAIT early and frees the 4-tuple.
    pub(in crate::tcp) fn leave_time_wait(&mut self, ctx: &mut SessionContext<'_, '_>) {
        self.end(Reason::Closed, ctx);
    }

    /// Ends the session and reports its end once.
    pub(in crate::tcp) fn end(&mut self, reason: Reason, ctx: &mut SessionContext<'_, '_>) {
        let told = self.state == State::TimeWait;
        self.state = State::Closed;
        (self.pending_ack, self.dup_acks_due) = (PendingAck::None, 0);
        self.stop_timers();
        (self.delayed_ack_deadline, self.watch.deadline) = (Instant::NEVER, Instant::NEVER);
        ctx.send_share.change(self.send_queue.bytes(), 0, self.claim);
        self.send_queue = SendQueue::default();
        self.scoreboard = Scoreboard::default();
        self.out_of_order.clear();
        self.commit(ctx);
        if !told {
            // A connection that was never accepted ends without an indication to the host.
            if self.listener.is_none() {
                ctx.up.push_back(Indication::Gone { session: self.id, reason });
            }
        }
    }
}
