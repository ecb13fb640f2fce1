//! When an acknowledgement is due (RFC 9293 §3.8.6.3, RFC 1122 §4.2.3.2 and §4.2.3.3).
//!
//! Arrival          in-order bytes are counted. Once there are enough, an acknowledgement is due at once;
//!                  before that it is delayed until more arrives, until data carries it, or until the
//!                  delayed-ACK timer fires.
//! Reading          consuming data moves the right edge of the window. Once it has moved far enough, a window
//!                  update is due. In 4.3BSD this is the only source of acknowledgements: none is due before
//!                  the host has read.

use super::tcb::{Desk, Owed, Session};
use crate::tcp::config::AckUnit;

impl Session {
    /// Records `length` bytes that arrived in order, and makes an acknowledgement due at once or delayed.
    pub(super) fn owe_for(&mut self, length: u32, desk: &mut Desk<'_, '_>) {
        let config = desk.config;
        self.unanswered += length;
        self.unanswered_segments += 1;
        let enough = match config.ack_unit {
            AckUnit::Largest => self.unanswered >= config.ack_segments.saturating_mul(self.peer_segment),
            AckUnit::Mss => self.unanswered >= config.ack_segments.saturating_mul(self.mss),
            AckUnit::Segment => self.unanswered_segments >= config.ack_segments,
        };
        let enough = enough && config.ack_segments > 0
            || config.ack_bytes.is_some_and(|bytes| self.unanswered >= bytes);
        if enough {
            self.owed = Owed::Now;
        } else if self.owed == Owed::Nothing {
            self.owed = Owed::Later;
            self.ack_at = config.ack_due(desk.cx.now);
        }
    }

    /// Records that the host has consumed `count` bytes, which may make a window update due.
    pub(in crate::tcp) fn consume(&mut self, count: u32, desk: &mut Desk<'_, '_>) {
        self.held = self.held.saturating_sub(count);
        self.tune(count, desk);
        let config = desk.config;
        let most = self.window_most(desk);
        let share = (u64::from(most) * u64::from(config.update_percent) / 100) as u32;
        let step = config.update_segments.saturating_mul(self.peer_segment.max(self.mss)).min(share);
        if self.state.receives() && self.edge.distance(self.right_edge(most, config)) >= step {
            self.owed = Owed::Now;
        }
        self.commit(desk);
    }
}
