//! Urgent data (RFC 9293 §3.8.5, RFC 6093): a mark in the stream. Urgent bytes are delivered in order.
//!
//! Mark             the mark points to the byte after the last urgent one in both directions (as RFC 6093 §4
//!                  clarified).
//! Receive path     whenever the mark advances, an indication tells the host how many bytes ahead it is
//!                  (MUST-32, MUST-33).
//! Transmit path    `mark_urgent` makes all queued data urgent. Segments carry the mark until it is
//!                  acknowledged; until then no segment exceeds the MSS, because the pointer is relative to
//!                  its own segment.

use crate::tcp::interface::indication::Indication;
use crate::tcp::session::tcb::{Session, SessionContext};
use crate::wire::tcp::{Flags, Header, Sequence};
use alloc::boxed::Box;

impl Session {
    /// Marks all currently queued data as urgent.
    pub(in crate::tcp) fn mark_urgent(&mut self) {
        let mark = self.snd_una + u32::from(!self.state.is_synchronised()) + self.send_queue.bytes();
        self.urgent.get_or_insert_with(Box::default).sent = Some(mark);
    }

    /// Returns whether segments carry an urgent mark.
    #[inline]
    pub(in crate::tcp::session) fn has_urgent(&self) -> bool {
        self.urgent.as_ref().is_some_and(|urgent| urgent.sent.is_some())
    }

    /// Adds URG to the flags of a segment at `at`, and returns them with the urgent pointer.
    #[inline]
    pub(in crate::tcp::session) fn urgent_at(&self, at: Sequence, flags: Flags) -> (Flags, u16) {
        match self.urgent.as_ref().and_then(|urgent| urgent.sent) {
            Some(mark) if at.lt(mark) && !flags.has_any(Flags::SYN | Flags::RST) => {
                // A mark beyond the range of the field is sent as 65,535.
                (flags | Flags::URG, at.distance(mark).min(0xffff) as u16)
            }
            _ => (flags, 0),
        }
    }

    /// Removes our mark once SND.UNA has reached it.
    #[inline]
    pub(in crate::tcp::session) fn forget_urgent(&mut self) {
        let una = self.snd_una;
        if let Some(urgent) = &mut self.urgent {
            urgent.sent = urgent.sent.filter(|mark| una.lt(*mark));
        }
    }

    /// Removes the peer's mark once RCV.NXT has reached it; otherwise it would compare as ahead again after
    /// half of the sequence space.
    #[inline]
    pub(in crate::tcp::session) fn pass_urgent(&mut self) {
        let expected = self.rcv_nxt;
        if let Some(urgent) = &mut self.urgent {
            urgent.heard = urgent.heard.filter(|mark| expected.lt(*mark));
        }
    }

    /// Processes URG (RFC 9293 §3.10.7.4, sixth), before the data of the segment.
    pub(in crate::tcp::session) fn on_urgent(&mut self, header: &Header, ctx: &mut SessionContext<'_, '_>) {
        let mark = header.sequence + u32::from(header.urgent);
        let urgent = self.urgent.get_or_insert_with(Box::default);
        if self.rcv_nxt.lt(mark) && urgent.heard.is_none_or(|heard| heard.lt(mark)) {
            urgent.heard = Some(mark);
            let bytes = self.rcv_nxt.distance(mark);
            ctx.up.push_back(Indication::Urgent { session: self.id, bytes });
        }
    }
}
