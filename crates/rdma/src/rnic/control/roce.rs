//! The state of a queue pair that speaks RoCEv2: its requester and its responder.
//!
//! Packets    are numbered by PSNs and, at the requester, by positions: see `psn.rs`.
//! Requester  sends the messages of the send queue. What is in flight, and what of it is lost:
//!            `scoreboard.rs`.
//! Responder  executes requests. What it keeps until a missing packet arrives: `reorder.rs`.
//! Rate       `dcqcn.rs`.

use super::super::host::dmac::Cursor;
use super::super::work::Operation;
use super::dcqcn::Pacer;
use super::psn::{distance, psn_of};
use super::reorder::Reorder;
use super::scoreboard::Scoreboard;
use crate::wire::rdmap::Atomic;
use crate::wire::roce::{PSN_MASK, Service, Syndrome};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;
use kiban_base::Instant;

/// What a queue pair must know to receive from its peer: the attributes that `ibv_modify_qp` sets on the way
/// to RTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoceTraits {
    /// The transport service: reliable or unreliable connection.
    pub service: Service,
    /// The peer's queue pair number, 24 bits.
    pub peer: u32,
    /// The partition key in every packet.
    pub pkey: u16,
    /// The path MTU: the payload of a packet in bytes, 256 to 4096 (a power of two).
    pub path_mtu: usize,
    /// The PSN of the first packet that is expected, 24 bits.
    pub first_psn: u32,
    /// Maximum number of outstanding reads and atomics from the peer (`max_dest_rd_atomic`).
    pub ird: u16,
    /// The code of the time after which the peer may repeat a request for which no receive was posted
    /// (`min_rnr_timer`), 5 bits.
    pub rnr_timer: u8,
    /// How many packets are kept if an earlier one is missing, provided that the peer retransmits
    /// selectively. 0: this queue pair does not retransmit selectively either.
    pub reorder_max: u32,
}

impl RoceTraits {
    /// Returns whether requests are acknowledged.
    pub const fn is_reliable(&self) -> bool {
        !matches!(self.service, Service::Uc)
    }
}

/// How a queue pair sends: the attributes that `ibv_modify_qp` sets on the way to RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoceSending {
    /// The PSN of the first packet that is sent, 24 bits.
    pub first_psn: u32,
    /// Maximum number of outstanding reads and atomics to the peer (`max_rd_atomic`).
    pub ord: u16,
    /// How long the requester waits for an acknowledgement before it retransmits; `None`: without limit.
    pub ack_timeout: Option<Duration>,
    /// Maximum number of consecutive retransmissions without an acknowledgement (`retry_cnt`).
    pub retries: u8,
    /// Maximum number of consecutive retransmissions after an RNR NAK (`rnr_retry`); 7: without limit.
    pub rnr_retries: u8,
    /// Maximum number of packets in flight: requests without acknowledgement and expected responses. At
    /// least one message is always sent. The requester begins with this window, halves it when a packet is
    /// lost, and lets it grow again.
    pub window: u32,
}

/// The number of RNR retries that means "without limit".
pub(in super::super) const RNR_RETRIES_INFINITE: u8 = 7;

/// The mean number of packets between two losses is a moving average with this weight of the latest number,
/// which counts as at most so many windows.
const RUN_WEIGHT: u32 = 4;
const RUN_WINDOWS_MAX: u32 = 4;
/// The smallest window to which losses shrink it, in packets.
const WINDOW_MIN: u32 = 8;
/// The largest window in packets: less than half of the PSN space, so that PSNs can be compared (IBTA volume
/// 1 §9.7.7.1).
pub(in super::super) const WINDOW_MAX: u32 = 1 << 22;
/// A window of which more than this part was lost shrinks, if only what is lost is sent again. Less is taken
/// for errors of the links, which a smaller window would not prevent.
const LOSS_TOLERATED: u32 = 16;

/// A message of the requester that is not completely acknowledged. A WQE is one message, but for a long read,
/// which is several.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Message {
    pub(in super::super) wqe: u64,
    /// Whether the peer's response carries data: a read or an atomic operation.
    pub(in super::super) has_response: bool,
    /// The position of its first packet.
    pub(in super::super) first: u64,
    /// The position after its last packet.
    pub(in super::super) end: u64,
    /// The packet that takes one of the peer's receives, if any: the first of a Send, the last of a Write
    /// with immediate data.
    pub(in super::super) takes_receive_at: Option<u64>,
    /// Its send sequence number (SSN): messages are counted from 1.
    pub(in super::super) number: u64,
    /// The bytes of the WQE before it.
    pub(in super::super) offset: u32,
    /// Length in bytes.
    pub(in super::super) length: u32,
}

impl Message {
    /// Returns how many bytes of the WQE precede a position in it, and how many bytes of the message remain.
    #[inline]
    pub(in super::super) fn bytes_at(&self, position: u64, path_mtu: usize) -> (u32, u32) {
        let before = (position - self.first) as u32 * path_mtu as u32;
        (self.offset + before, self.length - before)
    }
}

/// How lost packets are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) enum Recovery {
    /// Everything from the first missing packet is sent again.
    #[default]
    GoBackN,
    /// The same, but selective retransmission is offered, and the peer has not answered yet.
    Offered,
    /// Only what is missing is sent again.
    Selective,
}

/// The requester: sends the messages of the send queue, and goes back when packets are lost.
#[derive(Debug, Default)]
pub(in super::super) struct Requester {
    /// The started messages that are not completely acknowledged, oldest first.
    pub(in super::super) messages: VecDeque<Message>,
    /// The positions at which those of them begin that await a response with data.
    pub(in super::super) unanswered: VecDeque<u64>,
    /// The number of messages started.
    pub(in super::super) started: u64,
    /// The peer has receives for messages up to this number; `None`: it does not say.
    pub(in super::super) credit_limit: Option<u64>,
    /// All packets before this position are acknowledged, and all responses before it have arrived.
    pub(in super::super) acked: u64,
    /// The next packet to be sent.
    pub(in super::super) next: u64,
    /// The position after the last packet that was ever sent.
    pub(in super::super) sent: u64,
    /// The position after the last started message.
    pub(in super::super) end: u64,
    /// How many packets may be in flight now, and how many were acknowledged since that number changed.
    pub(in super::super) window: u32,
    pub(in super::super) acked_in_window: u32,
    pub(in super::super) lost_in_window: u32,
    /// How many packets were acknowledged since the last loss, and their mean number between losses.
    pub(in super::super) run: u32,
    pub(in super::super) mean_run: Option<u32>,
    pub(in super::super) recovery: Recovery,
    /// What is in flight, unless the peer is known to retransmit everything.
    pub(in super::super) scoreboard: Scoreboard,
    /// How many packets after a missing one the peer keeps.
    pub(in super::super) peer_span: Option<u32>,
    /// Packets sent since the last that asked for an acknowledgement.
    pub(in super::super) unrequested: u32,
    /// A cache: a position, and where the data of its packet begins in the WQE's scatter/gather list.
    pub(in super::super) cursor: (u64, Cursor),
    /// The same cache for the data of responses.
    pub(in super::super) response_cursor: (u64, Cursor),
    /// The position to which the requester went back last, until it is acknowledged.
    pub(in super::super) went_back_to: Option<u64>,
    pub(in super::super) retries: u8,
    pub(in super::super) rnr_retries: u8,
    /// When the acknowledgement timer expires.
    pub(in super::super) ack_timer: Option<Instant>,
    /// The peer had no receive: nothing is sent before this time.
    pub(in super::super) held_until: Option<Instant>,
}

/// A response with data. `is_repeat`: the request is a duplicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Response {
    /// Bytes of local memory, of which `sent` have been sent. `psn` is that of the next packet. The key
    /// counts in protection domain `pd`.
    Read { psn: u32, pd: u32, rkey: u32, address: u64, length: u32, sent: u32, msn: u32, is_repeat: bool },
    /// The original value of eight bytes.
    Atomic { psn: u32, original: u64, msn: u32, is_repeat: bool },
}

impl Response {
    /// Returns the PSN of its next packet.
    pub(in super::super) const fn psn(&self) -> u32 {
        match *self {
            Response::Read { psn, .. } | Response::Atomic { psn, .. } => psn,
        }
    }

    /// Returns whether its request is a duplicate.
    pub(in super::super) const fn is_repeat(&self) -> bool {
        match *self {
            Response::Read { is_repeat, .. } | Response::Atomic { is_repeat, .. } => is_repeat,
        }
    }
}

/// The message that is partly received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) enum Receiving {
    #[default]
    Nothing,
    /// A Send, which goes to the receive in `Qp::rq`.
    Send,
    /// A Write, of which `placed` bytes are in place.
    Write { rkey: u32, address: u64, length: u32, placed: u32 },
}

/// A negative acknowledgement to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Refusal {
    pub(in super::super) psn: u32,
    pub(in super::super) syndrome: Syndrome,
    /// Whether the queue pair fails once it is sent.
    pub(in super::super) is_fatal: bool,
}

/// The responder: executes requests in the order of their PSNs.
#[derive(Debug, Default)]
pub(in super::super) struct Responder {
    /// The PSN of the next request.
    pub(in super::super) expected: u32,
    /// The number of messages completed, 24 bits on the wire.
    pub(in super::super) msn: u32,
    pub(in super::super) receiving: Receiving,
    /// A negative acknowledgement for the expected PSN was sent: later requests are dropped in silence.
    pub(in super::super) has_refused: bool,
    /// Responses to be sent, in the order of their PSNs.
    pub(in super::super) responses: VecDeque<Response>,
    /// A negative acknowledgement to be sent after them.
    pub(in super::super) refusal: Option<Refusal>,
    /// The PSN to acknowledge after the responses, with all requests before it: that of a Send or Write. A
    /// read or an atomic operation is acknowledged by its response alone.
    pub(in super::super) ack: Option<u32>,
    /// The PSNs and original values of the last atomic operations, to answer duplicates.
    pub(in super::super) atomics: VecDeque<(u32, u64)>,
    /// What has arrived after a missing packet.
    pub(in super::super) reorder: Reorder,
}

/// A queue pair's state beside its queues.
#[derive(Debug)]
pub(in super::super) struct Roce {
    pub(in super::super) traits: RoceTraits,
    pub(in super::super) sending: RoceSending,
    pub(in super::super) requester: Requester,
    pub(in super::super) responder: Responder,
    /// The last packet was a response, so the send queue is next.
    pub(in super::super) requester_turn: bool,
    /// Limits the rate of requests and responses while the network reports congestion.
    pub(in super::super) pacer: Option<Box<Pacer>>,
}

impl Roce {
    pub(in super::super) fn new(traits: RoceTraits) -> Roce {
        let (expected, reorder) = (traits.first_psn & PSN_MASK, Reorder::new(traits.reorder_max));
        let responder = Responder { expected, reorder, ..Responder::default() };
        let (sending, requester) = (RoceSending::default(), Requester::default());
        // An acknowledgement leaves behind the request that answers a message: the shorter packet ends a
        // train.
        Roce { traits, sending, requester, responder, requester_turn: true, pacer: None }
    }

    /// Returns whether RoCEv2 has an operation. RFC 7306's immediate data without a Write, its masked
    /// atomics, and a read that invalidates are iWARP's alone. Unreliable queue pairs have no Send that
    /// invalidates (IBTA volume 1 §9.2, table 38).
    pub(in super::super) fn has(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Send { invalidate: Some(_) } => self.traits.is_reliable(),
            Operation::Immediate { .. } | Operation::Read { invalidate: true, .. } => false,
            Operation::Atomic { atomic: Atomic::FetchAdd { mask, .. }, .. } => *mask == 0,
            Operation::Atomic { atomic: Atomic::CompareSwap { swap_mask, compare_mask, .. }, .. } => {
                (*swap_mask, *compare_mask) == (u64::MAX, u64::MAX)
            }
            _ => true,
        }
    }

    /// Returns whether the rate allows a packet with payload now.
    #[inline]
    pub(in super::super) fn rate_allows(&self, now: Instant) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.may_send(now))
    }

    /// Counts a packet of `bytes` that leaves now.
    #[inline]
    pub(in super::super) fn pace(&mut self, bytes: usize, now: Instant) {
        self.pacer.take_if(|pacer| !pacer.on_sent(bytes, now));
    }

    /// Returns the earliest time at which the queue pair has something to do without a packet from the peer.
    pub(in super::super) fn deadline(&self) -> Option<Instant> {
        let pause = self.pacer.as_ref().and_then(|pacer| pacer.deadline());
        [self.requester.deadline(), pause].into_iter().flatten().min()
    }

    /// Forgets all work, because the queue pair has failed. A negative acknowledgement is still sent.
    pub(in super::super) fn clear(&mut self) {
        let Requester { acked, sent, window, .. } = self.requester;
        self.requester = Requester { acked, sent, next: sent, end: sent, window, ..Requester::default() };
        self.responder.responses.clear();
        self.responder.receiving = Receiving::Nothing;
        self.responder.ack = None;
        self.responder.reorder.clear();
    }
}

impl Requester {
    /// Returns the position of a PSN, unless it comes before the oldest that is not acknowledged.
    #[inline]
    pub(in super::super) fn position(&self, first_psn: u32, psn: u32) -> Option<u64> {
        let ahead = distance(psn_of(first_psn, self.acked), psn);
        Some(self.acked + u64::try_from(ahead).ok()?)
    }

    /// Returns the message to which a position belongs.
    #[inline]
    pub(in super::super) fn message_at(&self, position: u64) -> Option<&Message> {
        let index = self.messages.partition_point(|message| message.end <= position);
        self.messages.get(index).filter(|message| message.first <= position)
    }

    /// Returns how many reads and atomics before a position await a response with data.
    pub(in super::super) fn outstanding_before(&self, position: u64) -> usize {
        self.unanswered.partition_point(|&first| first < position)
    }

    /// Returns whether the window allows another packet.
    #[inline]
    pub(in super::super) fn has_room(&self) -> bool {
        let has_span = match (self.recovery, self.peer_span) {
            (Recovery::Selective, Some(span)) => {
                self.next.saturating_sub(self.scoreboard.executed()) <= u64::from(span)
            }
            _ => true,
        };
        self.next == self.acked || self.next - self.acked < u64::from(self.window) && has_span
    }

    /// Records the credits of an acknowledgement (IBTA volume 1 §9.7.7.2.5): with MSN `msn`, the peer had
    /// completed so many messages, and had posted `receives`.
    #[inline]
    pub(in super::super) fn on_credits(&mut self, msn: u32, receives: Option<u32>) {
        let completed = self.messages.front().map_or(self.started, |message| message.number - 1);
        let ahead = distance(completed as u32 & PSN_MASK, msn);
        let completed = completed.saturating_add_signed(ahead.into());
        self.credit_limit = receives.map(|receives| completed + u64::from(receives));
    }

    /// Returns whether the peer's credits allow the packet of a message at a position. The packet that takes
    /// a receive may always be sent alone, when everything before it is acknowledged. Once it is acknowledged
    /// itself, the rest of its message may follow.
    #[inline]
    pub(in super::super) fn has_credit(&self, message: &Message, position: u64) -> bool {
        match (self.credit_limit, message.takes_receive_at) {
            (Some(limit), Some(taker)) if message.number > limit => {
                position < taker || self.acked > taker || self.acked == taker && position == taker
            }
            _ => true,
        }
    }

    /// Halves the window after a loss, but not to less than half of what usually arrives between two losses.
    /// If too long a window is the reason of the losses, about as many packets arrive between them as it has.
    pub(in super::super) fn shrink_window(&mut self, most: u32) {
        let run = core::mem::take(&mut self.run).min(self.window.saturating_mul(RUN_WINDOWS_MAX));
        let mean = self.mean_run.map_or(run, |mean| mean - mean / RUN_WEIGHT + run / RUN_WEIGHT);
        self.mean_run = Some(mean);
        let least = (mean / 2).min(self.window);
        self.window = (self.window / 2).max(least).max(WINDOW_MIN).min(most);
        (self.acked_in_window, self.lost_in_window) = (0, 0);
    }

    /// Lets the window grow by an eighth after a whole window was acknowledged, if little of it was lost.
    #[inline]
    pub(in super::super) fn grow_window(&mut self, acked: u64, most: u32) {
        let acked = u32::try_from(acked).unwrap_or(u32::MAX);
        self.acked_in_window = self.acked_in_window.saturating_add(acked);
        self.run = self.run.saturating_add(acked);
        if self.acked_in_window < self.window {
            return;
        }
        if self.lost_in_window > self.acked_in_window / LOSS_TOLERATED {
            return self.shrink_window(most);
        }
        self.window = (self.window + self.window / 8 + 1).min(most);
        (self.acked_in_window, self.lost_in_window) = (0, 0);
    }

    /// Returns the positions of the next packet to be sent again: those of one packet or, for a read, of the
    /// part of its response that is missing.
    pub(in super::super) fn next_lost(&mut self) -> Option<Range<u64>> {
        let first = self.scoreboard.next_lost()?;
        let message = *self.message_at(first)?;
        let end = if message.has_response { self.scoreboard.lost_run(message.end)? } else { first + 1 };
        Some(first..end)
    }

    /// Sends everything from a position on anew, because the peer drops what follows a request without a
    /// receive. Earlier positions may be among what is sent anew already: the scoreboard has none left out.
    pub(in super::super) fn restart_at(&mut self, position: u64) {
        self.next = self.next.min(position);
        self.scoreboard.truncate(position);
    }

    /// Takes the first packet that is not acknowledged for lost, or what is missing of its response.
    pub(in super::super) fn lose_first(&mut self) {
        let response = self.message_at(self.acked).filter(|message| message.has_response);
        let end = response.map_or(self.acked + 1, |message| message.end);
        self.scoreboard.lose(self.acked..end);
    }

    /// Learns from the first answer whether the peer retransmits selectively.
    #[inline]
    pub(in super::super) fn on_answer(&mut self, is_selective: bool) {
        if self.recovery == Recovery::Offered {
            if is_selective {
                // What is not sent again yet is found lost in due course.
                (self.recovery, self.next) = (Recovery::Selective, self.sent);
            } else {
                (self.recovery, self.scoreboard) = (Recovery::GoBackN, Scoreboard::default());
            }
        }
    }

    /// Returns the earliest time at which the requester has something to do without a packet from the peer.
    pub(in super::super) fn deadline(&self) -> Option<Instant> {
        [self.ack_timer, self.held_until].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_refusal_before_anything_is_sent_anew_leaves_no_gap() {
        let mut requester = Requester { next: 4, sent: 4, end: 4, ..Requester::default() };
        requester.scoreboard.on_sent(0..4, false, Instant::ZERO);
        // A stale RNR NAK of position 1 comes before the one of position 3, which acknowledges 1 and 2.
        requester.scoreboard.on_executed(1, Instant::ZERO);
        requester.restart_at(1);
        requester.scoreboard.on_executed(3, Instant::ZERO);
        requester.restart_at(3);
        requester.scoreboard.on_sent(requester.next..4, false, Instant::ZERO);
        requester.scoreboard.on_executed(4, Instant::ZERO);
        assert_eq!(requester.scoreboard.settle(), 4, "everything is done");
    }

    #[test]
    fn a_position_survives_the_wrap_of_its_psn() {
        let requester = Requester { acked: 0x0300_0000 - 2, ..Requester::default() };
        let first = 0xff_fff0;
        for ahead in 0..1000 {
            let position = requester.acked + ahead;
            assert_eq!(requester.position(first, psn_of(first, position)), Some(position));
        }
        assert_eq!(requester.position(first, psn_of(first, requester.acked - 1)), None);
    }
}
