//! Waits in real time by spinning or sleeping, as its [`Waiter`] decides.

use super::calibrate::{Calibration, calibration};
use super::offers::{LONG, OFFER, YieldLimiter};
use super::sleepers::{Doorbell, Sleeper, set_min_timer_slack};
use crate::clock::{Clock, TickScale, ticks};
use kiban_base::{Costs, Evidence, Instant, Report, Step, Wait, Waiter};
use rustix::fs::{Mode, OFlags};
use std::time::Duration;

/// A jump of the tick counter inside the spin loop longer than this is examined. An interrupt takes less; a
/// switch to another thread and back takes more.
const JUMP: Duration = Duration::from_micros(5);

/// A waiter in real time, with the estimates that it has learned.
#[derive(Debug)]
pub struct Waiting {
    clock: Clock,
    waiter: Waiter,
    ticks_per_nano: f64,
    jump_ticks: u64,
    long_ticks: u64,
    offer_ticks: u64,
    offers: YieldLimiter,
    switches: u64,
}

impl Waiting {
    /// Returns a waiter that uses the costs of sleeping on this machine; the first one in a process measures
    /// them (a few ms).
    pub fn new(wait: Wait, clock: Clock) -> Waiting {
        Self::with_costs(wait, clock, calibration().costs)
    }

    /// Returns a waiter with costs given by the caller, for example with a different price of latency.
    pub fn with_costs(wait: Wait, clock: Clock, costs: Costs) -> Waiting {
        let Calibration { scale, .. } = calibration();
        Self::with_scale(wait, clock, costs, *scale)
    }

    /// Returns a waiter that always sleeps ([`Wait::Interrupt`]). It measures nothing, because a measurement
    /// takes seconds while other programs use all processors. The costs in its report are assumed.
    pub fn sleeping(clock: Clock) -> Waiting {
        // Only spinning needs the length of a tick.
        Self::with_scale(Wait::Interrupt, clock, Costs::default(), TickScale::from_nanos_per_tick(1.0))
    }

    fn with_scale(wait: Wait, clock: Clock, costs: Costs, scale: TickScale) -> Waiting {
        let ticks_per_nano = 1.0 / scale.nanos_per_tick();
        let in_ticks = |length: Duration| (length.as_nanos() as f64 * ticks_per_nano) as u64;
        Waiting {
            clock,
            waiter: Waiter::new(wait, costs),
            ticks_per_nano,
            jump_ticks: in_ticks(JUMP),
            long_ticks: in_ticks(LONG),
            offer_ticks: in_ticks(OFFER),
            offers: YieldLimiter::default(),
            switches: switched_away(),
        }
    }

    /// Returns statistics of the waits so far.
    pub fn report(&self) -> &Report {
        self.waiter.report()
    }

    /// Returns the state of the decision code, for inspection.
    pub fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Sets how long the adaptive policy polls before a sleep while arrivals come that close to each other
    /// ([`Waiter::set_guard`]).
    pub fn set_guard(&mut self, guard: Duration) {
        self.waiter.set_guard(guard);
    }

    /// Calls `look` until it finds something, or until `deadline` passes ([`Instant::NEVER`]: no deadline).
    ///
    /// A thread that makes something visible to `look` must ring `bell` through the same kind of `sleeper`.
    /// The deadline is a time of this value's clock. After the deadline, `look` is called at least once more.
    #[inline]
    pub fn wait<T, B: Doorbell>(
        &mut self,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            self.waiter.at_once();
            return Some(found);
        }
        self.wait_long(bell, sleeper, deadline, look)
    }

    fn wait_long<T, B: Doorbell>(
        &mut self,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut now = self.clock.now();
        self.waiter.begin(now);
        loop {
            let (found, evidence) = match self.waiter.step(now) {
                Step::Spin { until } => (self.spin(now, until.min(deadline), &mut look), Evidence::Spinning),
                Step::Sleep { until } => self.sleep(now, until.min(deadline), bell, sleeper, &mut look),
            };
            now = self.clock.now();
            if found.is_some() {
                self.waiter.on_arrival(now, evidence);
                return found;
            }
            if now >= deadline {
                self.waiter.on_timeout(now);
                return None;
            }
        }
    }

    /// Calls `look` repeatedly, until a deadline or until the thread loses its core.
    fn spin<T>(&mut self, now: Instant, until: Instant, look: &mut impl FnMut() -> Option<T>) -> Option<T> {
        let start = ticks();
        let length = (until.since(now).as_nanos() as f64 * self.ticks_per_nano) as u64;
        let mut last = start;
        let mut offered = false;
        let mut offer_at = if self.waiter.policy() == Wait::Adaptive { u64::MAX } else { self.long_ticks };
        loop {
            let found = look();
            let spun = last.wrapping_sub(start);
            if found.is_none() && spun >= offer_at {
                offer_at = spun + self.offer_ticks;
                if self.offers.yield_if_due() {
                    offered = true;
                    last = ticks();
                }
            } else if found.is_none() {
                std::hint::spin_loop();
            }
            let tick = ticks();
            let passed = tick.wrapping_sub(last);
            last = tick;
            if passed > self.jump_ticks && offered {
                // The thread gave up the core itself through the offer, so count involuntary switches only
                // from here on.
                offered = false;
                self.switches = switched_away();
            }
            // After the core was lost, a look usually finds something, so check this before `found`.
            else if passed > self.jump_ticks && self.core_was_taken() {
                let lost = Duration::from_nanos((passed as f64 / self.ticks_per_nano) as u64);
                self.waiter.on_preempted(self.clock.now(), lost);
                return found.or_else(look);
            }
            if found.is_some() {
                return found;
            }
            if tick.wrapping_sub(start) >= length {
                return look();
            }
        }
    }

    /// Returns whether the thread was switched away involuntarily since the last call.
    #[cold]
    fn core_was_taken(&mut self) -> bool {
        let before = std::mem::replace(&mut self.switches, switched_away());
        self.switches > before
    }

    fn sleep<T, B: Doorbell>(
        &mut self,
        now: Instant,
        until: Instant,
        bell: &B,
        sleeper: &impl Sleeper<B>,
        look: &mut impl FnMut() -> Option<T>,
    ) -> (Option<T>, Evidence) {
        bell.arm();
        if let found @ Some(_) = look() {
            bell.disarm();
            return (found, Evidence::Spinning);
        }
        let timeout = (until != Instant::NEVER).then(|| until.since(now));
        if timeout.is_some() {
            set_min_timer_slack();
        }
        sleeper.sleep(bell, timeout);
        let evidence = bell.disarm().map_or(Evidence::Unrung, |at| Evidence::Rung { at: self.clock.at(at) });
        let found = look();
        // Switches up to this point belong to the sleep, not to spinning.
        self.switches = switched_away();
        (found, evidence)
    }
}

/// Returns the number of involuntary context switches of the calling thread.
pub fn switched_away() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage writes a whole `rusage` to a location that is large enough, and a structure of
    // integers is valid whatever it holds; the call fails only for an unknown `who` or a bad address.
    let usage = unsafe {
        let result = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        debug_assert_eq!(result, 0);
        usage.assume_init()
    };
    usage.ru_nivcsw as u64
}

/// Returns for how long the calling thread has waited for a processor since it began. `None`: the system
/// does not tell. Takes a few microseconds.
pub fn waited_for_processor() -> Option<Duration> {
    // The second number, in nanoseconds (Linux's Documentation/scheduler/sched-stats.rst).
    // Not through the C library, whose calls a preloaded library may replace.
    let file = rustix::fs::open("/proc/thread-self/schedstat", OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 64];
    let length = rustix::io::read(file, &mut text).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}
