//! Names at rest: sessions in TIME-WAIT (RFC 9293 §3.4.2, §3.6.1).
//!
//! Bound     so many may rest, and no more than a quarter of all sessions: who rests keeps nobody out. Beyond it the one that has
//!           rested longest goes, and is counted.
//! Reuse     a new SYN takes the name before the time is over if it cannot be an old one: by its timestamp (RFC 6191), or
//!           else by a sequence number behind all that were used (RFC 9293 §3.10.7.4). Our own number then stands behind
//!           all that we used, too.

use super::secret::Beginning;
use super::{Outbox, SessionId, Tcp};
use alloc::collections::VecDeque;
use kiban_ground::Context;
use kiban_wire::tcp::{Flags, Header, Sequence};

/// How far behind the numbers that were used a new connection of the same name begins (Linux: 65,535 + 2).
const APART: u32 = 65_537;

/// Who rests, the longest first. Some may have gone.
#[derive(Debug, Default)]
pub(super) struct Resting {
    line: VecDeque<SessionId>,
}

impl Tcp {
    /// A session has begun to rest.
    pub(super) fn on_rest(&mut self, id: SessionId, cx: &mut Context<'_>, out: &mut Outbox) {
        self.resting.line.push_back(id);
        let most = self.config.time_wait_max.min(self.config.sessions_max / 4);
        while let Some(first) = self.resting.line.front().copied() {
            let gone = self.table.get(first).is_none();
            if !gone && self.resting.line.len() <= most {
                return;
            }
            self.resting.line.pop_front();
            if !gone {
                self.counters.time_wait_cut += 1;
                self.with(first.index, cx, out, |session, desk| session.leave_name(desk));
            }
        }
    }

    /// Whether a SYN takes the name of a session at rest; where our numbers may begin then.
    pub(super) fn take_name(
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
        let least = session.yields_to(syn)?;
        let local = session.local;
        super::stranger::who_listens(&mut self.listeners, local)?;
        self.counters.time_wait_reused += 1;
        self.with(index, cx, out, |session, desk| session.leave_name(desk));
        Some(least + APART)
    }
}

/// Numbers that do not begin before `least`.
pub(super) fn behind(beginning: Beginning, least: Option<Sequence>) -> Beginning {
    let initial = least.map_or(beginning.initial, |least| beginning.initial.max(least));
    Beginning { initial, ..beginning }
}
