//! The clocks of the operating system.
//!
//! Goal      the one place where real time becomes an [`Instant`]; cheap readings for measuring.
//! Time      [`Clock`] counts from its own creation on the monotone clock of the system and never goes back.
//! Ticks     [`ticks`] reads the cheapest counter there is, for the cost of one PDU in one layer;
//!           [`TickScale`] turns a difference of ticks into nanoseconds.
//! CPU time  of the process or the thread, from the scheduler's accounts; running threads included.
//! Place     [`pin_thread`] keeps the calling thread on one CPU, so that caches and counters stay the same.
//! Limits    an `Instant` holds 584 years; ticks are not ordered against the instructions around them.
//! Left out  the date is for records only ([`unix_seconds`]); no decision may depend on it.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use kiban_ground::Instant;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The monotone clock of the system, counted in nanoseconds from the creation of this value.
///
/// Copies agree with each other; two clocks created separately do not.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// On the monotone clock of the machine, which all processes share.
    origin: u64,
}

impl Clock {
    /// A clock that shows zero now.
    #[expect(clippy::new_without_default, reason = "reading a clock is an act, not a default")]
    pub fn new() -> Self {
        Self { origin: machine_nanos() }
    }

    /// The moment this clock shows. Later calls never show an earlier one.
    pub fn now(&self) -> Instant {
        self.at(machine_nanos())
    }

    /// What this clock shows when [`machine_nanos`] are `nanos`; zero for moments before its creation.
    pub fn at(&self, nanos: u64) -> Instant {
        Instant::from_nanos(nanos.saturating_sub(self.origin))
    }
}

/// The cheapest counter of the machine: the time stamp counter on x86-64, nanoseconds elsewhere.
///
/// It has the shape `fn() -> u64`, so that it can be lent to code that knows no clock. Only differences on one
/// CPU mean anything; see [`TickScale`] for their length.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86-64 processor, touches no memory, and Linux leaves it enabled in
        // user mode unless a process asks otherwise (PR_SET_TSC), which kiban does not.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        machine_nanos()
    }
}

/// The length of a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickScale {
    nanos_per_tick: f64,
    steady: bool,
}

impl TickScale {
    /// Measures the tick against the monotone clock; spins for about six milliseconds.
    ///
    /// Of three measurements the one with the tightest bracket counts: a pause between the two readings of a
    /// bracket (an interrupt, a stolen CPU) would be taken for time.
    pub fn calibrate() -> Self {
        const SPAN_NANOS: u64 = 2_000_000;
        let (_, nanos_per_tick) = (0..3)
            .map(|_| {
                let start = bracket();
                let mut end = bracket();
                while end.nanos - start.nanos < SPAN_NANOS {
                    std::hint::spin_loop();
                    end = bracket();
                }
                let span_ticks = end.ticks.wrapping_sub(start.ticks).max(1);
                (start.doubt + end.doubt, (end.nanos - start.nanos) as f64 / span_ticks as f64)
            })
            .min_by_key(|&(doubt, _)| doubt)
            .expect("three measurements were made");
        Self { nanos_per_tick, steady: ticks_are_steady() }
    }

    /// A known scale, for tests and for reading records made on another machine.
    pub const fn from_nanos_per_tick(nanos_per_tick: f64) -> Self {
        Self { nanos_per_tick, steady: true }
    }

    /// A difference of two [`ticks`] in nanoseconds. Fractions matter: one PDU may cost less than ten ticks.
    #[inline]
    pub fn nanos(self, ticks: u64) -> f64 {
        ticks as f64 * self.nanos_per_tick
    }

    /// The length of one tick in nanoseconds.
    pub const fn nanos_per_tick(self) -> f64 {
        self.nanos_per_tick
    }

    /// Whether the processor promises that the counter runs at one rate in all its power states.
    pub const fn is_steady(self) -> bool {
        self.steady
    }
}

/// One reading of both clocks: the ticks lie in the middle of two readings `doubt` nanoseconds apart.
struct Bracket {
    ticks: u64,
    nanos: u64,
    doubt: u64,
}

fn bracket() -> Bracket {
    let before = machine_nanos();
    let ticks = ticks();
    let after = machine_nanos();
    Bracket { ticks, nanos: before + (after - before) / 2, doubt: after - before }
}

/// Whether CPUID leaf 8000_0007h, EDX bit 8 (invariant TSC; AMD64 vol. 3 appendix E.4.6) is set.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID became a safe function after the oldest supported compiler")]
fn ticks_are_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    // SAFETY: CPUID exists on every x86-64 processor; leaf 8000_0000h tells which extended leaves exist.
    unsafe { __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & (1 << 8) != 0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_are_steady() -> bool {
    true
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// The monotone clock of the machine (CLOCK_MONOTONIC): the same for all processes, and never back.
pub fn machine_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // These clocks count from the start of the machine, the process or the thread: never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds since 1970-01-01 UTC, for the date on a record.
pub fn unix_seconds() -> u64 {
    unix_nanos() / 1_000_000_000
}

/// Nanoseconds since 1970-01-01 UTC, for the records of a capture.
#[expect(clippy::disallowed_methods, reason = "records carry the date; nothing is decided by it")]
pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The CPUs the calling thread may run on, in rising order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The number by which the system knows the calling thread.
pub fn thread_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Keeps the calling thread, and threads it starts from now on, on one CPU.
///
/// Fails when that CPU does not exist or is denied to this process.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run on CPU {cpu}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_at_zero_and_never_goes_back() {
        let clock = Clock::new();
        let copy = clock;
        let mut last = clock.now();
        assert!(last.as_nanos() < 1_000_000_000);
        for _ in 0..1_000 {
            let now = copy.now();
            assert!(now.as_nanos() >= last.as_nanos());
            last = now;
        }
    }

    #[test]
    fn ticks_agree_with_the_clock() {
        let scale = TickScale::calibrate();
        assert!(scale.nanos_per_tick() > 0.0);
        // An interruption between the two readings lengthens one of the spans: the best of several counts.
        let error_best = (0..20)
            .map(|_| {
                let start = bracket();
                let mut end = bracket();
                while end.nanos - start.nanos < 500_000 {
                    end = bracket();
                }
                let clock_nanos = (end.nanos - start.nanos) as f64;
                (scale.nanos(end.ticks - start.ticks) / clock_nanos - 1.0).abs()
            })
            .fold(f64::INFINITY, f64::min);
        assert!(error_best < 0.01, "ticks and clock differ by {error_best}");
    }

    #[test]
    fn cpu_time_grows_with_work_and_a_thread_is_part_of_its_process() {
        let (process, thread) = (process_cpu_nanos(), thread_cpu_nanos());
        let mut sum = 0u64;
        while thread_cpu_nanos() - thread < 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_nanos() - process >= 1_000_000);
    }

    #[test]
    fn a_pinned_thread_may_run_on_one_cpu_only() {
        // Each test runs in a thread of its own, so this pins nobody else.
        let cpu = allowed_cpus().expect("a thread may ask for its own CPUs")[0];
        pin_thread(cpu).expect("this CPU was allowed");
        assert_eq!(allowed_cpus().expect("a thread may ask for its own CPUs"), [cpu]);
        assert_eq!(pin_thread(1 << 20).expect_err("no such CPU").kind(), io::ErrorKind::InvalidInput);
    }
}
