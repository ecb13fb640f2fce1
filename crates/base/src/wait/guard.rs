//! Protection of receive queues that lose what arrives while no slot is free.
//!
//! Purpose   a thread that polls keeps its processor; a thread that sleeps has to get it back, which the
//!           operating system may delay by tens of milliseconds (Murayama et al. 2000, §4.1). On an
//!           unreliable level, what arrives meanwhile is lost once all slots are used.
//! Rule      while arrivals come closer to each other than the guard time, poll for that time before
//!           sleeping, as `hybrid` does. If they come farther apart, the slots outlast a stall even if the
//!           thread sleeps at once, so the ordinary plan applies. A level that short waits raise and long
//!           waits lower by at most one decides, so that the pauses between bursts do not end the protection.
//! Length    [`loss_guard`]: the shorter the queue, the longer the guard time, up to the paper's longest.
//! Limits    after a run of long waits, the first short ones are not protected. A thread that loses its
//!           processor while it polls shares it with others; polling then does not help, so the guard rests
//!           for as long as the back-off from spinning.

use core::time::Duration;

/// The longest stall that a queue must outlast. A stall is the time from an arrival until a sleeper runs.
const STALL_MAX: Duration = Duration::from_millis(45);
/// The longest polling time in the paper (table 3). It lost nothing with any of its buffers.
const GUARD_MAX: Duration = Duration::from_micros(300);
/// The highest level: after a run of short waits, this many long ones end the protection.
const LEVEL_MAX: f32 = 64.0;

/// Returns how long to poll before a sleep if arrivals are lost when all `slots` of a queue are used: slots
/// that are used up at most once per guard time outlast a stall.
pub fn loss_guard(slots: usize) -> Duration {
    let slots = u32::try_from(slots).unwrap_or(u32::MAX).max(1);
    (STALL_MAX / slots).min(GUARD_MAX)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    /// Zero if the queue loses nothing.
    length: Duration,
    level: f32,
}

impl Guard {
    /// Creates a guard that expects close arrivals until it has learned otherwise.
    pub(super) fn new() -> Guard {
        Guard { length: Duration::ZERO, level: LEVEL_MAX }
    }

    pub(super) fn set_length(&mut self, length: Duration) {
        self.length = length;
    }

    /// Returns how long a wait that begins now must poll.
    pub(super) fn length(&self) -> Duration {
        if self.level >= 1.0 { self.length } else { Duration::ZERO }
    }

    /// Records how long a wait took from its beginning to the arrival.
    pub(super) fn learn(&mut self, waited: Duration) {
        if !self.length.is_zero() {
            let change = 1.0 - waited.as_secs_f32() / self.length.as_secs_f32();
            self.level = (self.level + change.max(-1.0)).clamp(0.0, LEVEL_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(length: u64) -> Duration {
        Duration::from_micros(length)
    }

    #[test]
    fn shorter_queues_are_guarded_longer_up_to_the_papers_longest_polling_time() {
        for (slots, expected) in [(0, 300), (1, 300), (150, 300), (225, 200), (450, 100), (45_000, 1)] {
            assert_eq!(loss_guard(slots), micros(expected), "{slots}");
        }
    }

    fn guard() -> Guard {
        let mut guard = Guard::new();
        guard.set_length(micros(100));
        guard
    }

    /// Returns whether waits of these lengths, repeated many times, are guarded afterwards.
    fn guards(waits: &[u64]) -> bool {
        let mut guard = guard();
        (0..1000).for_each(|_| waits.iter().for_each(|&wait| guard.learn(micros(wait))));
        !guard.length().is_zero()
    }

    #[test]
    fn close_arrivals_are_guarded_and_distant_ones_are_not() {
        for (waits, expected) in [
            (&[90][..], true),
            (&[110], false),
            // Bursts: three short waits, then a pause.
            (&[10, 10, 10, 100_000], true),
            (&[10, 100_000], false),
        ] {
            assert_eq!(guards(waits), expected, "{waits:?}");
        }
        assert!(!guard().length().is_zero(), "without knowledge, arrivals may be close");
    }

    #[test]
    fn a_queue_that_loses_nothing_is_not_guarded() {
        let mut guard = Guard::new();
        guard.learn(micros(1));
        assert_eq!(guard.length(), Duration::ZERO);
    }
}
