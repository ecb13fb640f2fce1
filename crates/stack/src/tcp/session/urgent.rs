//! Urgent data (RFC 9293 §3.8.5, RFC 6093): a mark in the stream, not a stream of its own. Bytes stay in line.
//!
//! Mark      stands behind the last urgent byte, both ways (RFC 6093 §4 settled that).
//! Up        the host is told how many bytes ahead the mark stands, whenever it moves on (MUST-32, MUST-33).
//! Down      what is queued when the host says so is urgent. Until it is acknowledged, segments carry the mark; large ones
//!           are not made meanwhile, for a mark counts from its own segment.

use super::{Desk, Session};
use crate::tcp::Indication;
use alloc::boxed::Box;
use kiban_wire::tcp::{Flags, Header, Sequence};

/// The marks of a session that has any.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    /// SND.UP.
    sent: Option<Sequence>,
    /// RCV.UP.
    heard: Option<Sequence>,
}

#[cfg(test)]
impl Urgent {
    pub(super) fn heard_at(mark: Sequence) -> Urgent {
        Urgent { sent: None, heard: Some(mark) }
    }

    pub(super) fn heard(&self) -> Option<Sequence> {
        self.heard
    }
}

impl Session {
    /// All that is queued now is urgent.
    pub(in crate::tcp) fn mark_urgent(&mut self) {
        let mark = self.una + u32::from(!self.state.is_synchronised()) + self.queue.bytes();
        self.urgent.get_or_insert_with(Box::default).sent = Some(mark);
    }

    /// Whether segments carry a mark.
    #[inline]
    pub(super) fn has_urgent(&self) -> bool {
        self.urgent.as_ref().is_some_and(|urgent| urgent.sent.is_some())
    }

    /// What a segment at `at` says of it: the flag and the pointer.
    #[inline]
    pub(super) fn urgent_at(&self, at: Sequence, flags: Flags) -> (Flags, u16) {
        match self.urgent.as_ref().and_then(|urgent| urgent.sent) {
            Some(mark) if at.lt(mark) && !flags.has_any(Flags::SYN | Flags::RST) => {
                // Farther than the field can say: as far as it can.
                (flags | Flags::URG, at.distance(mark).min(0xffff) as u16)
            }
            _ => (flags, 0),
        }
    }

    /// Bytes before `una` have been acknowledged.
    #[inline]
    pub(super) fn forget_urgent(&mut self) {
        let una = self.una;
        if let Some(urgent) = &mut self.urgent {
            urgent.sent = urgent.sent.filter(|mark| una.lt(*mark));
        }
    }

    /// Bytes before `expected` have come up: a mark among them is passed, and half the numbers later would seem to lie ahead.
    #[inline]
    pub(super) fn pass_urgent(&mut self) {
        let expected = self.expected;
        if let Some(urgent) = &mut self.urgent {
            urgent.heard = urgent.heard.filter(|mark| expected.lt(*mark));
        }
    }

    /// RFC 9293 §3.10.7.4, sixth. The data of the segment has not been taken yet.
    pub(super) fn hear_urgent(&mut self, header: &Header, desk: &mut Desk<'_, '_>) {
        let mark = header.sequence + u32::from(header.urgent);
        let urgent = self.urgent.get_or_insert_with(Box::default);
        if self.expected.lt(mark) && urgent.heard.is_none_or(|heard| heard.lt(mark)) {
            urgent.heard = Some(mark);
            let bytes = self.expected.distance(mark);
            desk.up.push_back(Indication::Urgent { session: self.id, bytes });
        }
    }
}
