//! Drain epochs: a receiver requests all its senders to pause for a moment at the same time.
//!
//! Purpose    delay-based flows share a queue fairly only if they agree on the path's round-trip time
//!            without queueing delay. A flow that began while other flows kept the queue filled has never
//!            measured that time.
//! Mechanism  a flag in every frame; a sender that sees it change pauses for `queue_delay_max`
//!            (`congestion.rs`).
//! Timing     one epoch every `breath_every`. When a flow begins or resumes, an extra epoch follows after
//!            `breath_after_join` and another soon after that, at no more than four times the normal rate.
//!            An epoch is skipped unless at least two flows have delivered something since the last one.
//! Limits     flows to different receivers do not pause at the same time, even if they share a queue.

use super::Config;
use kiban_base::Instant;

#[derive(Debug)]
pub(super) struct DrainEpochs {
    flag: bool,
    number: u32,
    /// The number of flows that have delivered anything since the last drain epoch.
    flows: u32,
    has_joined: bool,
    not_before: Instant,
    next_at: Instant,
}

impl DrainEpochs {
    pub(super) fn new() -> DrainEpochs {
        // A flow that has never delivered anything has epoch number 0. Start at 2, so that 0 is not the
        // previous epoch's number.
        DrainEpochs {
            flag: false,
            number: 2,
            flows: 0,
            has_joined: false,
            not_before: Instant::ZERO,
            next_at: Instant::NEVER,
        }
    }

    pub(super) fn flag(&self) -> bool {
        self.flag
    }

    /// Records that a flow has delivered something new. `seen` is the number of the epoch in which the flow
    /// last delivered something.
    #[inline]
    pub(super) fn on_busy(&mut self, seen: &mut u32, config: &Config, now: Instant) {
        if *seen != self.number {
            if seen.wrapping_add(1) != self.number {
                let soon = (now + config.breath_after_join).max(self.not_before);
                self.next_at = self.next_at.min(soon);
                self.has_joined = true;
            }
            *seen = self.number;
            self.flows += 1;
        }
        if now >= self.next_at {
            self.flag ^= self.flows >= 2;
            (self.number, self.flows) = (self.number.wrapping_add(1), 0);
            self.not_before = now + config.breath_every / 4;
            self.next_at = if core::mem::take(&mut self.has_joined) {
                self.not_before
            } else {
                now + config.breath_every
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_epochs_begin_only_if_several_flows_share_a_receiver() {
        let config = Config::default();
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut epochs = DrainEpochs::new();
        let (mut one, mut other) = (0, 0);
        epochs.on_busy(&mut one, &config, at(0));
        epochs.on_busy(&mut one, &config, at(1000));
        epochs.on_busy(&mut one, &config, at(26_000));
        assert!(!epochs.flag(), "alone");
        // Rows: the time of a delivery in microseconds, whether the other flow delivered, and the flag
        // afterwards.
        let rows = [
            (27_000, true, false),
            (27_500, false, false),
            (31_000, false, false),
            // A flow has joined, so this epoch follows the last one after a quarter of the period.
            (32_250, false, true),
            // And once more after that.
            (38_000, true, true),
            (38_500, false, false),
            (63_000, true, false),
            (63_500, false, true),
            // The other flow has stopped delivering.
            (88_500, false, true),
            (113_500, false, true),
        ];
        for (moment, of_other, flag) in rows {
            epochs.on_busy(if of_other { &mut other } else { &mut one }, &config, at(moment));
            assert_eq!(epochs.flag(), flag, "at {moment}");
        }
    }
}
