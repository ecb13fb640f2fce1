//! The packets that a responder keeps because an earlier one is missing.
//!
//! Purpose    the peer sends again only what is missing.
//! Order      packets are kept as they arrived, and executed in the order of their PSNs when the gap is
//!            filled: an application sees the same as without losses. The standard would allow to place the
//!            data of a Write early (IBTA volume 1 §9.5: the order of writes within a message is not
//!            guaranteed). But programs poll the last byte of a Write, and take the rest for complete; this
//!            holds on all hardware, so it does here. Reads, atomics and Sends must not be executed early.
//! Peer       only a peer whose packets have the mark of selective retransmission is served this way; every
//!            other gets a NAK and sends everything again. See [`Reorder::on_request`].
//! Reports    selective acknowledgements say which packets are kept: for each new gap, and whenever the peer
//!            asks for an acknowledgement. Each covers a block of [`BLOCK_PACKETS`]. The latest packets are
//!            always reported first, because the requester takes those for lost that are not. A report waits
//!            for others to join it, in half a block; the other half repeats what earlier reports said,
//!            because these may be lost.
//! Limits     `span` packets after the missing one; later ones are dropped. At most `REPORTS_MAX` reports
//!            wait; what does not fit is reported at the next request for an acknowledgement.

use super::psn::distance;
use crate::wire::roce::{BLOCK_PACKETS, Operation, PSN_MASK, Packet, SelectiveAck};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of reports that wait.
const REPORTS_MAX: usize = 16;
/// The PSNs for which one report may wait.
const REPORT_PACKETS: i32 = BLOCK_PACKETS as i32 / 2;

/// A request that is not executed yet.
#[derive(Debug)]
pub(in super::super) struct Kept {
    pub(in super::super) operation: Operation,
    pub(in super::super) packet: Packet,
    pub(in super::super) payload: Vec<u8>,
}

/// The result of [`Reorder::keep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Keeping {
    /// It is kept; there is a new gap before it.
    AfterGap,
    /// It is kept.
    Kept,
    /// It had been kept before.
    Duplicate,
    /// It is dropped.
    TooFar,
}

/// The kept packets of a queue pair.
#[derive(Debug, Default)]
pub(in super::super) struct Reorder {
    /// Whether the peer retransmits selectively, and whether a request with the expected PSN has shown it.
    is_agreed: bool,
    is_certain: bool,
    /// How many packets after the missing one are kept.
    span: u32,
    /// Begins with the packet after the missing one.
    kept: VecDeque<Option<Box<Kept>>>,
    /// The first and last PSN that each report is for.
    reports: VecDeque<(u32, u32)>,
}

impl Reorder {
    pub(in super::super) fn new(span: u32) -> Reorder {
        Reorder { span, ..Reorder::default() }
    }

    /// Learns from the mark of a request, `ahead` of the expected one, whether the peer retransmits
    /// selectively. Only a request with the expected PSN proves it. Until the first of them, later ones
    /// count, too, because it may be lost. Otherwise, a forged packet with any PSN could make this queue pair
    /// answer a peer in a way that the peer does not understand.
    #[inline]
    pub(in super::super) fn on_request(&mut self, is_marked: bool, ahead: i32) {
        let is_marked = is_marked && self.span > 0;
        if ahead == 0 {
            if self.is_agreed && !is_marked {
                self.clear();
            }
            (self.is_agreed, self.is_certain) = (is_marked, true);
        } else if ahead > 0 && !self.is_certain {
            self.is_agreed |= is_marked;
        }
    }

    /// Returns whether packets after a missing one are kept.
    #[inline]
    pub(in super::super) fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    /// Returns whether no packet is kept.
    #[inline]
    pub(in super::super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Keeps the packet that is `ahead` of the missing one, at least 1. `make` makes it.
    pub(in super::super) fn keep(&mut self, ahead: u32, make: impl FnOnce() -> Kept) -> Keeping {
        if ahead > self.span {
            return Keeping::TooFar;
        }
        let index = ahead as usize - 1;
        let is_after_gap = index > self.kept.len() || self.kept.is_empty();
        if index >= self.kept.len() {
            self.kept.resize_with(index + 1, || None);
        }
        match &mut self.kept[index] {
            Some(_) => return Keeping::Duplicate,
            place => *place = Some(Box::new(make())),
        }
        if is_after_gap { Keeping::AfterGap } else { Keeping::Kept }
    }

    /// Records that the expected PSN has moved on by `psns`. Returns the packet that is expected now.
    #[inline]
    pub(in super::super) fn advance(&mut self, psns: u32) -> Option<Box<Kept>> {
        if self.kept.is_empty() {
            return None;
        }
        let passed = (psns as usize).min(self.kept.len());
        let next = self.kept.drain(..passed).next_back().flatten();
        // The last places may be those of a read that its request covers.
        next.filter(|_| passed == psns as usize)
    }

    /// Makes sure that the packet with a PSN is reported, and the latest.
    pub(in super::super) fn report(&mut self, expected: u32, psn: u32) {
        self.add_report(expected.wrapping_add(self.kept.len() as u32) & PSN_MASK);
        self.add_report(psn);
    }

    fn add_report(&mut self, psn: u32) {
        for (first, last) in &mut self.reports {
            if distance(*first, psn) >= 0 && distance(*first, psn) < REPORT_PACKETS {
                *last = if distance(*last, psn) > 0 { psn } else { *last };
                return;
            }
        }
        if self.reports.len() < REPORTS_MAX {
            self.reports.push_back((psn, psn));
        }
    }

    /// Makes sure that what follows the expected PSN is reported.
    pub(in super::super) fn report_first(&mut self, expected: u32) {
        let end = (self.kept.len() as u32).min(BLOCK_PACKETS - 1);
        self.report(expected, expected.wrapping_add(end) & PSN_MASK);
    }

    /// Returns whether there is something to report.
    #[inline]
    pub(in super::super) fn has_report(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Returns the next report, while `expected` is missing.
    pub(in super::super) fn next_report(&mut self, expected: u32) -> Option<SelectiveAck> {
        let (_, last) = self.reports.pop_front()?;
        let is_kept = |psn| {
            let ahead = usize::try_from(distance(expected, psn)).ok().and_then(|ahead| ahead.checked_sub(1));
            ahead.and_then(|index| self.kept.get(index)).is_some_and(Option::is_some)
        };
        Some(SelectiveAck::new(last, self.span, is_kept))
    }

    /// Forgets everything, because the queue pair has failed.
    pub(in super::super) fn clear(&mut self) {
        self.kept.clear();
        self.reports.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::roce::{Bth, Opcode, Service};

    fn packet(psn: u32) -> Kept {
        let opcode = Opcode::Transport(Service::Rc, Operation::SendOnly);
        let packet = Packet::new(Bth::new(opcode, 0xffff, 1, psn));
        Kept { operation: Operation::SendOnly, packet, payload: Vec::new() }
    }

    #[test]
    fn packets_come_out_in_order_once_the_gap_is_filled() {
        let mut reorder = Reorder::new(8);
        // PSN 0xfffffe is missing.
        let expected = 0xff_fffe;
        let psn = |ahead: u32| (expected + ahead) & PSN_MASK;
        for (ahead, keeping) in [
            (2, Keeping::AfterGap),
            (3, Keeping::Kept),
            (3, Keeping::Duplicate),
            (6, Keeping::AfterGap),
            (1, Keeping::Kept),
            (8, Keeping::AfterGap),
            (9, Keeping::TooFar),
        ] {
            assert_eq!(reorder.keep(ahead, || packet(psn(ahead))), keeping, "{ahead}");
        }
        // The latest is 8. The second joins it; the third is before it.
        reorder.report(expected, psn(8));
        reorder.report(expected, psn(2));
        for (last, arrived) in [(8, [1, 2, 3, 6, 8].as_slice()), (2, &[1, 2])] {
            let report = reorder.next_report(expected).expect("a report");
            let first = psn(last).wrapping_sub(255) & PSN_MASK;
            assert_eq!((report.first, report.span), (first, 8));
            let arrived = arrived.iter().map(|ahead| 255 - last + ahead);
            assert!(report.arrived().eq(arrived), "{report:?}");
        }
        reorder.report_first(expected);
        assert_eq!(reorder.next_report(expected).map(|report| report.arrived().count()), Some(5));
        assert!(!reorder.has_report());
        let psns: Vec<_> =
            core::iter::from_fn(|| reorder.advance(1).map(|kept| kept.packet.bth.psn)).collect();
        assert_eq!(psns, [psn(1), psn(2), psn(3)]);
        // 4 was missing and has come. A read at 5 covers 5 and 6.
        assert!(reorder.advance(1).is_none());
        assert!(reorder.advance(2).is_none());
        assert_eq!(reorder.advance(1).map(|kept| kept.packet.bth.psn), Some(psn(8)));
        assert!(reorder.advance(1).is_none() && reorder.is_empty());
    }
}
