//! Polling when the processors are contended.
//!
//! Purpose          keep a busy-polling program responsive while other threads want its processor. A thread
//!                  that busy-polls uses up its time slice, so the scheduler then runs the others first, for
//!                  up to 4 ms each; during that time the program answers no peer. A thread that sleeps runs
//!                  as soon as it is woken.
//! Method           if a thread's processor is taken away for a millisecond or more between two polls that
//!                  find nothing, and the thread does not sleep meanwhile, every poll of the process that
//!                  finds nothing (`Turn::poll`) sleeps until something arrives, for at most `NAP`. This
//!                  lasts `PAUSE` times as long as the loss or, if the processor is lost again soon, at least
//!                  twice as long as before.
//! Cost             a poll that finds nothing reads the tick counter. Only if the counter has jumped does it
//!                  make a system call.

use crate::clock::ticks;
use crate::wait::{Switches, switches};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest sleep in a poll.
pub(super) const NAP: Duration = Duration::from_micros(100);
/// Jump of the tick counter that may mean that the processor was lost: about a millisecond.
const JUMP_TICKS: u64 = if cfg!(target_arch = "x86_64") { 3_000_000 } else { 1_000_000 };
/// Polls sleep for `PAUSE` times as many ticks as the processor was lost.
const PAUSE: u64 = 16;
/// The longest such time: about ten seconds.
const PAUSE_TICKS_MAX: u64 = 10_000 * JUMP_TICKS;

/// What a thread knows about its processor.
#[derive(Clone, Copy)]
struct Processor {
    /// The tick of the thread's last poll that found nothing.
    last: u64,
    /// The thread's context switches when the counter last jumped.
    switches: Switches,
}

thread_local! {
    static PROCESSOR: Cell<Processor> =
        const { Cell::new(Processor { last: 0, switches: Switches { voluntary: 0, involuntary: 0 } }) };
}

impl Processor {
    /// Records a poll that found nothing. Returns for how many ticks the thread has lost its processor since
    /// the last one.
    #[inline]
    fn lost(&mut self, tick: u64, switches: impl FnOnce() -> Switches) -> Option<u64> {
        let first = self.last == 0;
        let gap = tick.wrapping_sub(std::mem::replace(&mut self.last, tick));
        if gap < JUMP_TICKS {
            return None;
        }
        let before = std::mem::replace(&mut self.switches, switches());
        // The program may also have computed, or slept: then the gap does not tell how long others ran.
        let was_taken = self.switches.involuntary > before.involuntary;
        (!first && was_taken && self.switches.voluntary == before.voluntary).then_some(gap)
    }
}

/// Whether the polls of a process sleep.
#[derive(Default)]
pub(super) struct Contention {
    /// Polls sleep until this tick.
    pause_end: AtomicU64,
    /// The length of the last such time.
    pause: AtomicU64,
}

impl Contention {
    /// Records that a thread lost its processor.
    #[cold]
    fn on_lost(&self, tick: u64, gap: u64) {
        let (before, end) = (self.pause.load(Relaxed), self.pause_end.load(Relaxed));
        if tick < end {
            return;
        }
        // If the processor was lost soon after the last pause, the same threads still want it.
        let is_soon = (tick - gap).saturating_sub(end) < before;
        let pause = (PAUSE * gap).max(if is_soon { 2 * before } else { 0 }).min(PAUSE_TICKS_MAX);
        self.pause.store(pause, Relaxed);
        self.pause_end.store(tick + pause, Relaxed);
    }

    /// Records a poll that found nothing. Returns whether the thread should sleep.
    #[inline]
    pub(super) fn on_idle(&self) -> bool {
        let tick = ticks();
        let lost = PROCESSOR.with(|known| {
            let mut now = known.get();
            let lost = now.lost(tick, switches);
            known.set(now);
            lost
        });
        if let Some(gap) = lost {
            self.on_lost(tick, gap);
        }
        tick < self.pause_end.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_jump_of_the_counter_with_an_involuntary_switch() {
        let mut processor = Processor { last: 0, switches: Switches::default() };
        // Ticks since the last poll, voluntary and involuntary switches so far, and the loss.
        for (at, (gap, (voluntary, involuntary), lost)) in [
            (5 * JUMP_TICKS, (3, 7), None), // the first poll, of a thread that was switched away before
            (100, (3, 8), None),            // without a jump, the switches are not counted
            (2 * JUMP_TICKS, (3, 7), None), // the program computed
            (4 * JUMP_TICKS, (3, 9), Some(4 * JUMP_TICKS)),
            (4 * JUMP_TICKS, (3, 9), None),
            (900 * JUMP_TICKS, (4, 10), None), // the program slept, and others ran before or after
            (4 * JUMP_TICKS, (4, 11), Some(4 * JUMP_TICKS)),
        ]
        .into_iter()
        .enumerate()
        {
            let tick = processor.last + gap;
            assert_eq!(processor.lost(tick, || Switches { voluntary, involuntary }), lost, "poll {at}");
        }
    }

    #[test]
    fn pauses_are_sixteen_times_as_long_as_a_loss_and_grow() {
        let contention = Contention::default();
        let mut tick = 100_000 * JUMP_TICKS;
        // Ticks since the end of the last pause, the loss, and the pause.
        for (since, gap, pause) in
            [(500, 4, 64), (10, 4, 128), (10, 1, 256), (-5, 4, 256), (900, 2, 32), (5, 5000, 10_000)]
        {
            tick = tick.saturating_add_signed(since * JUMP_TICKS as i64);
            contention.on_lost(tick, gap * JUMP_TICKS);
            assert_eq!(contention.pause.load(Relaxed), pause * JUMP_TICKS);
            tick = contention.pause_end.load(Relaxed);
        }
    }
}
