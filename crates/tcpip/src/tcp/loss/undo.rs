//! Detects that a reduction of the congestion window was spurious, so that it can be undone.
//!
//! Purpose          a delay spike or reordering looks like a loss: TCP retransmits and reduces its window,
//!                  although everything arrives. Once that is certain, the window before the reduction is
//!                  restored (RFC 4015, RFC 9438 §4.9).
//! Timestamps       the ACK of the first retransmitted byte echoes a timestamp from before the
//!                  retransmission: the original has arrived (Eifel, RFC 3522).
//! D-SACK           the peer reports every retransmission as a duplicate (RFC 3708).
//! F-RTO            after a timeout, only the first segment is retransmitted, then new data is sent. If the
//!                  peer next acknowledges data that was sent only once, before it reports new data, nothing
//!                  was lost (RFC 5682 §2.1, §3.1).
//! State            one episode per session, from the reduction until data is acknowledged that was sent
//!                  after the recovery. The previous window is forgotten with it.
//! Limits           retransmissions are matched with D-SACKs up to `RANGES_MAX` ranges, and only if no byte
//!                  was retransmitted twice.
//! Tests            the packet scripts `talks/undo`.

use super::scoreboard::Delivery;
use crate::tcp::congestion::PriorWindow;
use crate::wire::tcp::{SackBlock, Sequence};
use alloc::vec::Vec;
use kiban_base::Instant;

/// Maximum number of ranges of retransmitted bytes kept for comparison with D-SACKs.
const RANGES_MAX: usize = 64;

/// The progress of F-RTO (RFC 5682).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frto {
    Off,
    /// Step 2: the ACK of the retransmitted head is awaited.
    Head,
    /// Step 3: new data is sent, and the next ACK decides.
    NewData,
}

/// The facts about an acknowledgement that show whether the reduction was spurious.
pub(crate) struct Evidence<'a> {
    pub(crate) una: Sequence,
    pub(crate) snd_max: Sequence,
    /// Whether the cumulative acknowledgement advanced, and whether the ACK is a duplicate.
    pub(crate) advances: bool,
    pub(crate) duplicate: bool,
    pub(crate) sack: bool,
    pub(crate) delivery: &'a Delivery,
    /// Whether the ACK carries a D-SACK, and whether an earlier one did.
    pub(crate) dsack: bool,
    pub(crate) dsack_before: bool,
}

/// A reduction of the window and the recovery that follows.
#[derive(Debug)]
pub(crate) struct Episode {
    pub(crate) prior: PriorWindow,
    pub(crate) by_timeout: bool,
    /// First byte and time of the first retransmission, until its ACK has arrived.
    first: Option<(Sequence, Instant)>,
    began: bool,
    /// Ranges retransmitted and not reported as duplicates; `None` if D-SACKs can prove nothing.
    unreported: Option<Vec<(Sequence, Sequence)>>,
    frto: Frto,
    /// Highest byte sent at the timeout (RecoveryPoint of RFC 5682).
    recovery_point: Sequence,
    /// End of the data sent when the recovery ended.
    ends_at: Option<Sequence>,
}

impl Episode {
    /// Begins an episode; `snd_max` is the end of the data sent so far. F-RTO starts
    /// (`with_frto`) only after a timeout, and not while earlier data is being sent again.
    pub(crate) fn new(prior: PriorWindow, by_timeout: bool, snd_max: Sequence, with_frto: bool) -> Episode {
        Episode {
            prior,
            by_timeout,
            first: None,
            began: false,
            unreported: Some(Vec::new()),
            frto: if with_frto { Frto::Head } else { Frto::Off },
            recovery_point: snd_max,
            ends_at: None,
        }
    }

    /// Records a further timeout in the same recovery. RFC 5682 §2.1 step 1: F-RTO is not started again. RFC
    /// 3522 §3.2 step 2: the time of the first retransmission stays.
    pub(crate) fn on_further_timeout(&mut self) {
        self.frto = Frto::Off;
        self.by_timeout = true;
    }

    /// Records that the bytes from `start` to `end` were retransmitted.
    pub(crate) fn on_retransmit(&mut self, start: Sequence, end: Sequence, now: Instant) {
        if !core::mem::replace(&mut self.began, true) {
            self.first = Some((start, now));
        }
        let Some(ranges) = &mut self.unreported else { return };
        // RFC 3708 §3: of bytes retransmitted twice, a single D-SACK does not say which copy arrived.
        let is_twice = ranges.iter().any(|(from, to)| from.lt(end) && start.lt(*to));
        if is_twice || ranges.len() == RANGES_MAX {
            self.unreported = None;
        } else {
            ranges.push((start, end));
        }
    }

    /// Processes a D-SACK. Returns whether every retransmission has now been reported as a duplicate. A block
    /// that is reported again changes nothing.
    pub(crate) fn on_duplicate_sack(&mut self, block: &SackBlock) -> bool {
        let Some(ranges) = self.unreported.as_mut().filter(|ranges| !ranges.is_empty()) else { return false };
        for (start, end) in core::mem::take(ranges) {
            if start.lt(block.left) {
                ranges.push((start, end.min(block.left)));
            }
            if block.right.lt(end) {
                ranges.push((start.max(block.right), end));
            }
        }
        let is_all = ranges.is_empty();
        if ranges.len() > RANGES_MAX {
            self.unreported = None;
        }
        is_all
    }

    /// Returns whether the ACK of the first retransmission acknowledges the original (RFC 3522 §3.2, steps 3
    /// to 5). `echoes_before` says whether the ACK echoes a timestamp from before a moment; `None` without
    /// timestamps.
    pub(crate) fn acks_original(
        &mut self,
        ack: &Evidence<'_>,
        echoes_before: impl Fn(Instant) -> Option<bool>,
    ) -> bool {
        let Some((_, sent_at)) = self.first.filter(|(start, _)| start.lt(ack.una)) else { return false };
        self.first = None;
        // Step 5: if all ACKs were lost, the ACK of the retransmission echoes an old timestamp, too. It then
        // acknowledges everything, and carries a D-SACK if the peer uses them.
        let is_certain = !ack.dsack && (ack.dsack_before || ack.una != ack.snd_max);
        match echoes_before(sent_at) {
            Some(true) => is_certain,
            Some(false) => {
                // The retransmission has arrived, not the original, so F-RTO need not probe.
                self.frto = Frto::Off;
                false
            }
            None => false,
        }
    }

    /// Advances F-RTO. Returns whether the timeout was spurious, once that is decided.
    pub(crate) fn frto_on_ack(&mut self, ack: &Evidence<'_>) -> Option<bool> {
        match self.frto {
            Frto::Off => None,
            Frto::Head => {
                if ack.advances {
                    // Step 2: an ACK of everything may answer the retransmission.
                    self.frto = if self.recovery_point.le(ack.una) { Frto::Off } else { Frto::NewData };
                } else if ack.duplicate && !ack.sack {
                    self.frto = Frto::Off;
                }
                None
            }
            Frto::NewData => {
                let is_original =
                    ack.delivery.lowest_first.is_some_and(|start| start.lt(self.recovery_point));
                let is_new = ack.delivery.rtt_sample.is_some_and(|(_, end)| self.recovery_point.lt(end));
                // Step 3a: new data has arrived, but not all of the old; or nothing has arrived.
                if is_new || (ack.duplicate && !is_original) {
                    self.frto = Frto::Off;
                    return Some(false);
                }
                is_original.then_some(true)
            }
        }
    }

    /// Returns how many bytes of new data may still be sent to decide whether the timeout was spurious (RFC
    /// 5682 §3.1, step 2b: two segments); `snd_nxt` is the end of the data sent.
    pub(crate) fn probe_room(&self, snd_nxt: Sequence, mss: u32) -> u32 {
        (2 * mss).saturating_sub(self.recovery_point.distance(snd_nxt))
    }

    /// Ends F-RTO if no new data could be sent.
    pub(crate) fn on_no_new_data(&mut self, snd_nxt: Sequence) {
        if snd_nxt == self.recovery_point {
            self.frto = Frto::Off;
        }
    }

    /// Returns whether F-RTO awaits the ACK that decides.
    pub(crate) fn probes(&self) -> bool {
        self.frto == Frto::NewData
    }

    /// Records that the recovery has ended; data up to `snd_max` has been sent.
    pub(crate) fn on_recovered(&mut self, snd_max: Sequence) {
        self.frto = Frto::Off;
        self.ends_at = Some(snd_max);
    }

    /// Returns whether the episode is over: data sent after the recovery is acknowledged up to `una`.
    pub(crate) fn is_over(&self, una: Sequence) -> bool {
        self.ends_at.is_some_and(|end| end.lt(una))
    }
}
