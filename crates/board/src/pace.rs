//! A pacer: the rate of a line for packets, and the queue in front of it.
//!
//! Goal      compute when a packet sent now will have been transmitted, exact to a fraction of a nanosecond
//!           while the line is busy.
//! Queue     packets wait in order; a packet that finds the queue full is rejected. The queue limit counts
//!           packets, as in a router.
//! Left out  the packets themselves. Only times are kept here, so that the simulator's lines and real links
//!           can keep packets in their own form.

use alloc::collections::VecDeque;
use core::time::Duration;
use kiban_base::Instant;

/// A line for packets. The rate and the queue limit are arguments of each call, because they may change.
#[derive(Debug, Default)]
pub struct Pacer {
    /// When the line will have sent its queue, with the remaining fraction of a nanosecond in parts of the
    /// rate.
    free_at: Instant,
    rest: u128,
    /// When the transmission of each waiting packet starts.
    waiting: VecDeque<Instant>,
}

impl Pacer {
    /// Returns when the last bit of a packet that takes `bytes` on the line will have been sent, if the
    /// packet is sent now. Returns `None` if `packets_max` packets wait already. A rate of 0 bit/s counts as
    /// 1.
    pub fn admit(
        &mut self,
        bytes: usize,
        bits_per_second: u64,
        packets_max: usize,
        now: Instant,
    ) -> Option<Instant> {
        self.advance_to(now);
        if self.free_at <= now {
            (self.free_at, self.rest) = (now, 0);
        } else if self.waiting.len() < packets_max {
            self.waiting.push_back(self.free_at);
        } else {
            return None;
        }
        let rate = u128::from(bits_per_second.max(1));
        let parts = bytes as u128 * 8_000_000_000 + self.rest;
        self.rest = parts % rate;
        self.free_at += Duration::from_nanos((parts / rate) as u64);
        Some(self.free_at)
    }

    /// Returns when there is room for another packet.
    pub fn room_at(&mut self, packets_max: usize, now: Instant) -> Instant {
        let is_full = self.waiting(now) >= packets_max;
        if is_full { self.waiting.front().map_or(now, |&at| at) } else { now }
    }

    /// Returns the number of packets that wait for the line, not counting the one on it.
    pub fn waiting(&mut self, now: Instant) -> usize {
        self.advance_to(now);
        self.waiting.len()
    }

    /// Removes packets whose transmission has started.
    fn advance_to(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|start| *start <= now) {
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_sequence_and_the_queue_is_bounded() {
        let mut pace = Pacer::default();
        let at = Instant::from_nanos;
        // 125 bytes at 3 kbit/s take a third of a second.
        let left: [_; 4] = core::array::from_fn(|_| pace.admit(125, 3000, 2, at(0)));
        assert_eq!(left, [Some(at(333_333_333)), Some(at(666_666_666)), Some(at(1_000_000_000)), None]);
        assert_eq!(pace.waiting(at(0)), 2);
        assert_eq!(pace.room_at(2, at(0)), at(333_333_333));
        assert_eq!(pace.room_at(2, at(400_000_000)), at(400_000_000));
        // After the line has been idle, the packet starts at once.
        assert_eq!(pace.admit(1, 8_000_000_000, 0, at(2_000_000_000)), Some(at(2_000_000_001)));
    }
}
