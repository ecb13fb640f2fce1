//! The receiving half of a flow: received segments, in order, until the host takes them.
//!
//! Slots   a ring of slots, one for each frame of the window. The credit granted is the number of free slots,
//!         so nothing sent within the credit is dropped here. When the host takes a segment, the slot and the
//!         host's buffer swap their memory, so each segment is copied only once.
//! Direct  a segment that is next in order, while none waits, is offered to the host without a copy.
//! ACKs    an acknowledgement is sent after every second frame, after `ack_after`, and immediately if the
//!         sender requests it, if a frame is missing or a duplicate, or if a frame fills a gap.
//! Credit  new credit is sent when the sender may be waiting for it: after half a window has been freed, or
//!         if no credit was left.

use super::config::Config;
use super::counters::EfeCounters;
use crate::wire::efe::{HELD_LONG, HELD_NANOS, Header, flag};
use alloc::vec::Vec;
use kiban_base::Instant;

/// Takes a segment from a flow that is next in order. Returns whether it was taken.
pub(super) type Direct<'a> = Option<&'a mut dyn FnMut(&[u8]) -> bool>;

#[derive(Debug, Default)]
struct Slot {
    bytes: Vec<u8>,
    is_end: bool,
}

#[derive(Debug)]
pub(super) struct Receiver {
    slots: Vec<Slot>,
    /// The sequence number of the next segment for the host, and the first one that has not arrived.
    read: u32,
    rcv_nxt: u32,
    /// Bit n: `expected` + 1 + n has arrived.
    sack_map: u128,
    /// The end of the credit last granted: the first sequence number for which there is no room.
    credit_granted: u32,
    /// Frames since the last acknowledgement.
    unacked_frames: u32,
    pub(super) ack_now: bool,
    pub(super) ack_at: Instant,
    /// The number of the transmission that arrived last, and its arrival time.
    echo: Option<(u32, Instant)>,
    /// The peer's end has arrived in order, and the host has taken everything before it.
    pub(super) is_finished: bool,
    /// The number of the drain epoch in which this receiver last received something.
    pub(super) drain_epoch: u32,
}

impl Receiver {
    /// Creates the receiving half of a flow with a window of `window_frames`, a power of two.
    pub(super) fn new(initial: u32, window_frames: u32) -> Receiver {
        Receiver {
            slots: (0..window_frames).map(|_| Slot::default()).collect(),
            read: initial,
            rcv_nxt: initial,
            sack_map: 0,
            credit_granted: initial.wrapping_add(window_frames),
            unacked_frames: 0,
            ack_now: false,
            ack_at: Instant::NEVER,
            echo: None,
            is_finished: false,
            drain_epoch: 0,
        }
    }

    #[inline]
    fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    /// Returns the number of frames for which there is room, starting with `expected`.
    fn credit(&self) -> u32 {
        self.slots.len() as u32 - self.rcv_nxt.wrapping_sub(self.read)
    }

    /// Returns the number of segments that wait for the host.
    pub(super) fn readable(&self) -> usize {
        self.rcv_nxt.wrapping_sub(self.read) as usize
    }

    /// Returns the next segment for the host.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        (self.read != self.rcv_nxt).then(|| &self.slots[self.index(self.read)].bytes[..])
    }

    /// Takes the next segment. Returns whether there was one.
    pub(super) fn pop(&mut self, out: Option<&mut Vec<u8>>, config: &Config, now: Instant) -> bool {
        if self.read == self.rcv_nxt {
            return false;
        }
        if let Some(out) = out {
            let index = self.index(self.read);
            core::mem::swap(out, &mut self.slots[index].bytes);
        }
        self.read = self.read.wrapping_add(1);
        self.announce_credit(config, now);
        self.look_for_end();
        true
    }

    /// Announces new credit if the sender may be waiting for it.
    fn announce_credit(&mut self, config: &Config, now: Instant) {
        let limit = self.rcv_nxt.wrapping_add(self.credit());
        let more = limit.wrapping_sub(self.credit_granted);
        if self.credit_granted == self.rcv_nxt || more >= self.slots.len() as u32 / 2 {
            self.ack_now = true;
        } else if more > 0 && self.ack_at == Instant::NEVER {
            // This is soon enough even if the sender is waiting for less than half a window of credit.
            self.ack_at = now + config.ack_after.max(config.resend_after_min / 4);
        }
    }

    /// Takes the end of the flow if it is next in order.
    fn look_for_end(&mut self) {
        let index = self.index(self.read);
        if self.read != self.rcv_nxt && self.slots[index].is_end {
            self.slots[index].is_end = false;
            self.read = self.read.wrapping_add(1);
            self.is_finished = true;
        }
    }

    /// Takes a segment or an end, and offers it to `direct` if no segment is missing or waits. Returns
    /// whether it is new.
    #[expect(clippy::too_many_arguments, reason = "a frame, where it goes, and what all flows share")]
    pub(super) fn on_frame(
        &mut self,
        header: &Header,
        segment: &[u8],
        is_end: bool,
        direct: Direct<'_>,
        config: &Config,
        counters: &mut EfeCounters,
        now: Instant,
    ) -> bool {
        let ahead = header.sequence.wrapping_sub(self.rcv_nxt);
        let was_complete = self.sack_map == 0;
        if (ahead as i32) < 0 {
            counters.duplicates += 1;
            self.ack_now = true;
            return false;
        }
        if ahead >= self.credit() || self.is_finished {
            counters.sent_beyond_credit += 1;
            return false;
        }
        if ahead > 0 && self.sack_map & (1 << (ahead - 1)) != 0 {
            counters.duplicates += 1;
            self.ack_now = true;
            return false;
        }
        let is_next = self.read == self.rcv_nxt && ahead == 0 && was_complete && !is_end;
        let is_taken = is_next && direct.is_some_and(|take| take(segment));
        if !is_taken {
            let index = self.index(header.sequence);
            let slot = &mut self.slots[index];
            slot.bytes.clear();
            slot.bytes.extend_from_slice(segment);
            slot.is_end = is_end;
        }
        if is_taken {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.read = self.rcv_nxt;
        } else if ahead > 0 {
            self.sack_map |= 1 << (ahead - 1);
            counters.out_of_order += 1;
        } else {
            loop {
                self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
                let present = self.sack_map & 1 != 0;
                self.sack_map >>= 1;
                if !present {
                    break;
                }
            }
            self.look_for_end();
        }
        self.echo = Some((header.transmission, now));
        self.unacked_frames += 1;
        if self.unacked_frames >= 2 || header.has(flag::ACK_REQUEST) || !was_complete || self.sack_map != 0 {
            self.ack_now = true;
        } else if self.ack_at == Instant::NEVER {
            self.ack_at = now + config.ack_after;
        }
        if is_taken {
            self.announce_credit(config, now);
        }
        true
    }

    /// Makes a delayed acknowledgement due.
    pub(super) fn on_time(&mut self, now: Instant) {
        if now >= self.ack_at {
            self.ack_at = Instant::NEVER;
            self.ack_now = true;
        }
    }

    /// Fills in the acknowledgement fields of a frame, and clears the pending acknowledgement. Returns the
    /// bit map of out-of-order frames, which an acknowledgement frame carries.
    pub(super) fn fill_ack(&mut self, header: &mut Header, now: Instant) -> u128 {
        header.acknowledged = self.rcv_nxt;
        header.credit = self.credit() as u8;
        if let Some((transmission, came)) = self.echo {
            let held = now.since(came).as_nanos() as u64 / HELD_NANOS;
            header.flags |= flag::ECHO;
            header.echo = transmission;
            header.held = u16::try_from(held).unwrap_or(HELD_LONG);
        }
        self.credit_granted = self.rcv_nxt.wrapping_add(self.credit());
        // A frame with a segment carries no map: while a segment is missing, an acknowledgement frame
        // follows.
        (self.unacked_frames, self.ack_at) = (0, Instant::NEVER);
        self.sack_map
    }
}
