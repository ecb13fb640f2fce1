//! The clocks of the operating system.
//!
//! Purpose          convert real time to [`Instant`]s, which happens only here; also provide cheap readings
//!                  for measurements.
//! Time             [`Clock`] counts from its creation on the system's monotonic clock and never goes back.
//! Ticks            [`ticks`] reads the cheapest counter available, to measure the cost of one PDU in a
//!                  single layer; [`TickScale`] converts a difference of ticks to nanoseconds.
//! CPU time         CPU time of the process or of the calling thread, from the scheduler's accounting;
//!                  running threads are included.
//! CPU              [`pin_thread`] keeps the calling thread on one CPU, so that its caches and tick counter
//!                  do not change.
//! Limits           an `Instant` holds 584 years; reading the tick counter is not ordered with the
//!                  instructions around it. The date ([`unix_seconds`]) is for records only; no decision may
//!                  depend on it.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use kiban_base::Instant;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The system's monotonic clock, in nanoseconds since the creation of this value.
///
/// Copies agree with each other; two clocks created separately do not.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Creation time, in nanoseconds of CLOCK_MONOTONIC, which all processes share.
    origin: u64,
}

impl Clock {
    /// Returns a clock that reads zero now.
    #[expect(clippy::new_without_default, reason = "a constructor that reads the clock is not a default")]
    pub fn new() -> Self {
        Self { origin: machine_nanos() }
    }

    /// Returns the current time. Later calls never return an earlier one.
    pub fn now(&self) -> Instant {
        self.at(machine_nanos())
    }

    /// Converts a reading of [`machine_nanos`] to this clock's time; zero for readings from before its
    /// creation.
    pub fn at(&self, nanos: u64) -> Instant {
        Instant::from_nanos(nanos.saturating_sub(self.origin))
    }
}

/// Reads the machine's cheapest counter: the time stamp counter on x86-64, nanoseconds elsewhere.
///
/// Its type is `fn() -> u64`, so that code without a clock can take the function as a parameter. Only
/// differences on one CPU are meaningful; [`TickScale`] converts them to nanoseconds.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86-64 processor, touches no memory, and Linux leaves it enabled in
        // user mode unless a process disables it (PR_SET_TSC), which kiban does not.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        machine_nanos()
    }
}

/// The length of one tick of [`ticks`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickScale {
    nanos_per_tick: f64,
    steady: bool,
}

impl TickScale {
    /// Measures the tick against the monotonic clock; spins for about six milliseconds.
    ///
    /// Of three measurements, the one with the tightest bracket is used: a pause between the two readings of
    /// a bracket (an interrupt, a stolen CPU) would otherwise count as elapsed time.
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
                (
                    start.uncertainty_nanos + end.uncertainty_nanos,
                    (end.nanos - start.nanos) as f64 / span_ticks as f64,
                )
            })
            .min_by_key(|&(doubt, _)| doubt)
            .expect("three measurements were made");
        Self { nanos_per_tick, steady: ticks_are_steady() }
    }

    /// Returns a scale with a known tick, for tests and for records made on another machine.
    pub const fn from_nanos_per_tick(nanos_per_tick: f64) -> Self {
        Self { nanos_per_tick, steady: true }
    }

    /// Converts a difference of two [`ticks`] to nanoseconds. Fractions matter: one PDU may cost fewer than
    /// ten ticks.
    #[inline]
    pub fn nanos(self, ticks: u64) -> f64 {
        ticks as f64 * self.nanos_per_tick
    }

    /// Returns the length of one tick in nanoseconds.
    pub const fn nanos_per_tick(self) -> f64 {
        self.nanos_per_tick
    }

    /// Returns whether the processor guarantees that the counter runs at one rate in all its power states.
    pub const fn is_steady(self) -> bool {
        self.steady
    }
}

/// One reading of both clocks. The ticks were read halfway between two clock readings `doubt` nanoseconds
/// apart.
struct Bracket {
    ticks: u64,
    nanos: u64,
    uncertainty_nanos: u64,
}

fn bracket() -> Bracket {
    let before = machine_nanos();
    let ticks = ticks();
    let after = machine_nanos();
    Bracket { ticks, nanos: before + (after - before) / 2, uncertainty_nanos: after - before }
}

/// Returns whether CPUID leaf 8000_0007h, EDX bit 8 (invariant TSC; AMD64 vol. 3 appendix E.4.6) is set.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID became a safe function after the oldest supported compiler")]
fn ticks_are_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    // SAFETY: CPUID exists on every x86-64 processor; leaf 8000_0000h reports which extended leaves exist.
    unsafe { __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & (1 << 8) != 0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks_are_steady() -> bool {
    true
}

/// Returns the CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Returns the CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Reads CLOCK_MONOTONIC in nanoseconds. It is the same for all processes and never goes back.
pub fn machine_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // These clocks start at zero with the machine, the process or the thread, so they are never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the seconds since 1970-01-01 UTC, to date a record.
pub fn unix_seconds() -> u64 {
    unix_nanos() / 1_000_000_000
}

/// Returns the nanoseconds since 1970-01-01 UTC, for capture records.
#[expect(clippy::disallowed_methods, reason = "the date is for records only; no decision depends on it")]
pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the CPUs that the calling thread may run on, in ascending order.
///
/// # Errors
/// The system refuses to report the thread's CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns the system's thread ID of the calling thread (gettid(2)).
pub fn thread_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Pins the calling thread, and threads that it starts from now on, to one CPU.
///
/// # Errors
/// The CPU does not exist, or this process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no such CPU: {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot pin the thread to CPU {cpu}: {error}")))
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
        // An interrupt between the two readings of a bracket distorts the result, so the best of several
        // attempts is used.
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
        // Each test runs in its own thread, so this does not pin other tests.
        let cpu = allowed_cpus().expect("a thread may ask for its own CPUs")[0];
        pin_thread(cpu).expect("this CPU was allowed");
        assert_eq!(allowed_cpus().expect("a thread may ask for its own CPUs"), [cpu]);
        assert_eq!(pin_thread(1 << 20).expect_err("no such CPU").kind(), io::ErrorKind::InvalidInput);
    }
}
