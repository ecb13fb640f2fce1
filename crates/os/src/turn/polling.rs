//! Polling when the processors are contended.
//!
//! Purpose          keep a busy-polling program responsive while other threads want its processor. A thread
//!                  that busy-polls uses up its time slice, so the scheduler then runs the others first, for
//!                  up to 4 ms each; during that time the program answers no peer. A thread that sleeps runs
//!                  as soon as it is woken.
//! Method           if a thread has waited for its processor for a millisecond or more, every poll of the
//!                  process that finds nothing (`Turn::poll`) sleeps until something arrives, for at most
//!                  `NAP`. This lasts `PAUSE` times as long as the thread has waited or, if it waits again
//!                  soon, at least twice as long as before.
//! Measure          the scheduler counts how long a thread has waited. It is asked when the tick counter has
//!                  jumped between two polls, and every ten milliseconds, because many short waits, for
//!                  threads of the kernel, do not count. Jumps alone do not count either: the program may
//!                  have computed or slept, or a hypervisor may have stopped the virtual processor.
//! Cost             a poll that finds nothing reads the tick counter. Asking the scheduler takes a few
//!                  microseconds.

use crate::clock::ticks;
use crate::wait::waited_for_processor;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest sleep in a poll.
pub(super) const NAP: Duration = Duration::from_micros(100);
/// About a millisecond in ticks. A jump of the counter by so much, or more, may mean that the thread waited
/// for its processor, and shorter waits do not count.
const JUMP_TICKS: u64 = if cfg!(target_arch = "x86_64") { 3_000_000 } else { 1_000_000 };
/// Time in ticks after which the scheduler is asked even without a jump.
const CHECK_TICKS: u64 = 10 * JUMP_TICKS;
/// Polls sleep for `PAUSE` times as many ticks as the thread has waited. A single wait for a thread that runs
/// rarely costs little, and those for a busy thread follow each other, so the times soon become long.
const PAUSE: u64 = 2;
/// A thread waits again soon, if it does so within this time, or that of the last pause: a busy thread wants
/// the processor back after a time slice of 3 to 6 ms.
const SOON_TICKS: u64 = 10 * JUMP_TICKS;
/// The longest such time: about a second, of which a busy thread then takes one time slice.
const PAUSE_TICKS_MAX: u64 = 1000 * JUMP_TICKS;

/// What a thread knows about its processor.
#[derive(Clone, Copy)]
struct Processor {
    /// The tick of the thread's last poll that found nothing.
    last: u64,
    /// The tick at which the scheduler was last asked; zero before the first time.
    asked: u64,
    /// For how long the thread had waited for its processor until then.
    waited: Duration,
}

thread_local! {
    static PROCESSOR: Cell<Processor> =
        const { Cell::new(Processor { last: 0, asked: 0, waited: Duration::ZERO }) };
}

impl Processor {
    /// Records a poll that found nothing. Returns for how many ticks the thread has waited for its processor,
    /// if that is more than a few.
    #[inline]
    fn lost(&mut self, tick: u64, waited: impl FnOnce() -> Option<Duration>) -> Option<u64> {
        let gap = tick.wrapping_sub(std::mem::replace(&mut self.last, tick));
        if gap < JUMP_TICKS && tick.wrapping_sub(self.asked) < CHECK_TICKS {
            return None;
        }
        let is_first = std::mem::replace(&mut self.asked, tick) == 0;
        let waited = waited()?;
        let lost = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        let lost = lost.as_micros() as u64 * JUMP_TICKS / 1000;
        (!is_first && lost >= JUMP_TICKS).then_some(lost)
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
    /// Records that a thread has waited for its processor.
    #[cold]
    fn on_lost(&self, tick: u64, lost: u64) {
        let (before, end) = (self.pause.load(Relaxed), self.pause_end.load(Relaxed));
        if tick < end {
            return;
        }
        // Soon after the last pause, the same threads still want it.
        let is_soon = (tick - lost).saturating_sub(end) < before.max(SOON_TICKS);
        let pause = (PAUSE * lost).max(if is_soon { 2 * before } else { 0 }).min(PAUSE_TICKS_MAX);
        self.pause.store(pause, Relaxed);
        self.pause_end.store(tick + pause, Relaxed);
    }

    /// Records a poll that found nothing. Returns whether the thread should sleep.
    #[inline]
    pub(super) fn on_idle(&self) -> bool {
        let tick = ticks();
        let lost = PROCESSOR.with(|known| {
            let mut now = known.get();
            let lost = now.lost(tick, waited_for_processor);
            known.set(now);
            lost
        });
        if let Some(lost) = lost {
            self.on_lost(tick, lost);
        }
        tick < self.pause_end.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_loss_is_a_wait_for_the_processor_of_a_millisecond() {
        let mut processor = Processor { last: 0, asked: 0, waited: Duration::ZERO };
        // Milliseconds since the last poll, those that the thread has waited so far (if the scheduler is
        // asked, and answers), and the loss.
        for (at, (gap, waited, lost)) in [
            (500.0, Some(Some(30.0)), None), // the first poll, of a thread that has waited before
            (0.1, None, None),
            (2.0, Some(Some(30.0)), None), // the program has computed
            (4.0, Some(Some(33.0)), Some(3.0)),
            (4.0, Some(Some(33.9)), None), // it has computed, and waited briefly
            (900.0, Some(Some(36.0)), Some(2.1)), // it has slept, and then waited
            (0.9, None, None),
            (0.9, None, None),
            (8.5, Some(Some(36.5)), None),
            (0.5, None, None),
            (50.0, Some(None), None), // a system that does not tell
            (50.0, Some(Some(38.0)), Some(1.5)),
        ]
        .into_iter()
        .enumerate()
        {
            let tick = processor.last + (gap * JUMP_TICKS as f64) as u64;
            let mut is_asked = false;
            let found = processor.lost(tick, || {
                is_asked = true;
                waited.flatten().map(|waited: f64| Duration::from_micros((waited * 1000.0).round() as u64))
            });
            let found = found.map(|ticks| ticks as f64 / JUMP_TICKS as f64);
            assert_eq!((found, is_asked), (lost, waited.is_some()), "poll {at}");
        }
    }

    #[test]
    fn short_waits_do_not_add_up() {
        let mut processor = Processor { last: 0, asked: 0, waited: Duration::ZERO };
        // A thread of the kernel takes 5 % of the processor, in pieces of 50 us.
        let (mut tick, mut asked) = (JUMP_TICKS, 0);
        for piece in 0..10_000 {
            tick += JUMP_TICKS;
            let waited = || {
                asked += 1;
                Some(Duration::from_micros(50 * piece))
            };
            tick -= 1;
            assert_eq!(processor.lost(tick, waited), None, "piece {piece}");
        }
        assert!((900..=1001).contains(&asked), "{asked}");
    }

    #[test]
    fn the_scheduler_tells_how_long_a_thread_has_waited() {
        let before = waited_for_processor().expect("Linux tells");
        // More busy threads than processors.
        let (ends, count) =
            (AtomicBool::new(false), std::thread::available_parallelism().map_or(1, usize::from));
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    while !ends.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while waited_for_processor().expect("as before") == before {
                std::hint::spin_loop();
            }
            ends.store(true, Relaxed);
        });
    }

    #[test]
    fn pauses_are_twice_as_long_as_a_loss_and_grow() {
        let contention = Contention::default();
        let mut tick = 100_000 * JUMP_TICKS;
        // Ticks since the end of the last pause, the loss, and the pause.
        for (since, lost, pause) in
            [(500, 4, 8), (9, 4, 16), (15, 1, 32), (-5, 4, 32), (900, 2, 4), (5, 700, 1000), (900, 3, 1000)]
        {
            tick = tick.saturating_add_signed(since * JUMP_TICKS as i64);
            contention.on_lost(tick, lost * JUMP_TICKS);
            assert_eq!(contention.pause.load(Relaxed), pause * JUMP_TICKS);
            tick = contention.pause_end.load(Relaxed);
        }
    }
}
