//! TIME-WAIT: limits and reuse (RFC 9293 §3.4.2, §3.6.1).
//!
//! Limit            a configured number, but no more than a quarter of all sessions, so that sessions in
//!                  TIME-WAIT do not keep new ones out. Beyond the limit, the oldest session in TIME-WAIT
//!                  ends and is counted.
//! Reuse            a new SYN may reuse the 4-tuple early if it cannot be an old duplicate: by its timestamp
//!                  (RFC 6191), or else by a sequence number above all those that the peer used (RFC 9293
//!                  §3.10.7.4). Our new initial sequence number is also above all those that we used.

use super::listener::find_listener;
use super::time_wait::ISN_REUSE_GAP;
use crate::tcp::interface::indication::SessionId;
use crate::tcp::machine::Tcp;
use crate::tcp::segment::Outbox;
use crate::wire::tcp::{Flags, Header, Sequence};
use kiban_base::Context;

impl Tcp {
    /// Registers a session that has entered TIME-WAIT, and ends the oldest ones beyond the limit.
    pub(crate) fn on_time_wait(&mut self, id: SessionId, cx: &mut Context<'_>, out: &mut Outbox) {
        self.time_wait_queue.sessions.push_back(id);
        let most = self.config.time_wait_max.min(self.config.sessions_max / 4);
        while let Some(first) = self.time_wait_queue.sessions.front().copied() {
            let gone = self.table.get(first).is_none();
            if !gone && self.time_wait_queue.sessions.len() <= most {
                return;
            }
            self.time_wait_queue.sessions.pop_front();
            if !gone {
                self.counters.time_wait_overflow += 1;
                self.with(first.index, cx, out, |session, ctx| session.leave_time_wait(ctx));
            }
        }
    }

    /// Frees the 4-tuple of a session in TIME-WAIT if `syn` may reuse it. Returns the least initial sequence
    /// number for the new session.
    pub(crate) fn reuse_time_wait(
        &mut self,
        index: u32,
        syn: &Header,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Option<Sequence> {
        if !syn.flags.has(Flags::SYN) || syn.flags.has_any(Flags::ACK | Flags::RST) {
            return None;
        }
        let session = self.table.at(index)?;
        let least = session.time_wait_reusable_by(syn)?;
        let local = session.local;
        find_listener(&mut self.listeners, local)?;
        self.counters.time_wait_reused += 1;
        self.with(index, cx, out, |session, ctx| session.leave_time_wait(ctx));
        Some(least + ISN_REUSE_GAP)
    }
}
