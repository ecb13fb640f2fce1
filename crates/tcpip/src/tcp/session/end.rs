//! The end of a session: TIME-WAIT and CLOSED.

use super::tcb::{Desk, Owed, Session};
use crate::tcp::indication::{Indication, Reason};
use crate::tcp::loss::scoreboard::Scoreboard;
use crate::tcp::receive::Early;
use crate::tcp::send::SendQueue;
use crate::tcp::state::State;
use crate::wire::tcp::{Header, Sequence};
use kiban_base::Instant;

impl Session {
    /// Enters TIME-WAIT.
    pub(in crate::tcp) fn rest(&mut self, desk: &mut Desk<'_, '_>) {
        self.stop_timers();
        self.resend_at = desk.cx.now + desk.config.time_wait;
        // TIME-WAIT keeps only the 4-tuple.
        (self.early, self.queue, self.board) =
            (Early::default(), SendQueue::default(), Scoreboard::default());
        self.commit(desk);
        desk.up.push_back(Indication::Gone { session: self.id, reason: Reason::Closed });
    }

    /// Returns whether a SYN may reuse the 4-tuple of this session in TIME-WAIT; if so, the highest sequence
    /// number that we used.
    pub(in crate::tcp) fn yields_to(&self, syn: &Header) -> Option<Sequence> {
        let newer = match (&self.stamps, syn.options.timestamps) {
            (Some(stamps), Some(theirs)) if stamps.is_last(theirs.value) => self.expected.lt(syn.sequence),
            (Some(stamps), Some(theirs)) => stamps.is_behind_last(theirs.value),
            // RFC 6191 §2: without timestamps on both sides, only the sequence number decides.
            _ => self.expected.lt(syn.sequence),
        };
        (self.state == State::TimeWait && newer).then_some(self.max)
    }

    /// Leaves TIME-WAIT early and frees the 4-tuple.
    pub(in crate::tcp) fn leave_name(&mut self, desk: &mut Desk<'_, '_>) {
        self.end(Reason::Closed, desk);
    }

    /// Ends the session and reports that once.
    pub(in crate::tcp) fn end(&mut self, reason: Reason, desk: &mut Desk<'_, '_>) {
        let told = self.state == State::TimeWait;
        self.state = State::Closed;
        (self.owed, self.duplicates) = (Owed::Nothing, 0);
        self.stop_timers();
        (self.ack_at, self.watch.at) = (Instant::NEVER, Instant::NEVER);
        desk.send_share.change(self.queue.bytes(), 0, self.claim);
        self.queue = SendQueue::default();
        self.board = Scoreboard::default();
        self.early.clear();
        self.commit(desk);
        if !told {
            // A connection that was never accepted ends without an indication to the host.
            if self.listener.is_none() {
                desk.up.push_back(Indication::Gone { session: self.id, reason });
            }
        }
    }
}
