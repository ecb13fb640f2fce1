//! Measures the cost of a sleep on this machine.
//!
//! Method           two threads run [`ROUNDS`] rounds. One sleeps on an eventfd; the other waits until the
//!                  first sleeps, then rings its bell. This measures the latency from the ring until the
//!                  sleeper looks, the sleeper's CPU time, and the duration of the ringer's call. Then
//!                  [`NAPS`] timed sleeps measure how late such sleeps end.
//! Statistics       disturbances only lengthen a measurement, so the lower quartile is used. The waiter
//!                  starts with these values and keeps updating them. Bounds exclude the extreme values of a
//!                  disturbed machine.
//! Once             the measurement runs once per process, before the first wait, and takes a few
//!                  milliseconds. Other threads wait for it. A child that was forked meanwhile does not
//!                  have that thread, so it measures again.
//! Limits           with only one CPU, no thread can spin for a peer, so nothing is measured; see
//!                  [`ONE_CPU`].

use super::sleepers::{self, EventSleeper, Sleeper, set_min_timer_slack};
use crate::clock::{Clock, TickScale, allowed_cpus, pin_thread, thread_cpu_nanos};
use kiban_base::{Bell, Costs};
use rustix::thread::{CpuSet, Pid, futex, sched_getaffinity};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: usize = 40;
const NAPS: usize = 15;

/// On one CPU, ringing is a context switch. Measurements gave 4 us for both directions, used for latency as
/// well as for CPU time.
const ONE_CPU: Costs = Costs {
    wake: Duration::from_micros(2),
    sleep: Duration::from_micros(2),
    ring: Duration::from_micros(2),
    timer_late: Duration::from_micros(10),
    timer_late_seldom: Duration::from_micros(60),
    price: 1.0,
};

/// The measured costs, and the length of a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibration {
    pub(super) costs: Costs,
    pub(super) scale: TickScale,
}

pub(super) fn calibration() -> &'static Calibration {
    static MEASURED: AtomicPtr<Calibration> = AtomicPtr::new(null_mut());
    /// The process in which a thread measures; 0 if none does. Not a lock, which would stay locked in a
    /// child.
    static MEASURED_BY: AtomicU32 = AtomicU32::new(0);
    const DONE: u32 = u32::MAX;
    let process = std::process::id();
    loop {
        // SAFETY: the pointer is null, or that of a box that was leaked below.
        if let Some(measured) = unsafe { MEASURED.load(Ordering::Acquire).as_ref() } {
            return measured;
        }
        match MEASURED_BY.load(Ordering::Acquire) {
            DONE => {}
            // This returns at once if the value has changed; if it fails, try again.
            by if by == process => drop(futex::wait(&MEASURED_BY, futex::Flags::PRIVATE, process, None)),
            by => {
                let claim = MEASURED_BY.compare_exchange(by, process, Ordering::Relaxed, Ordering::Relaxed);
                if claim.is_ok() {
                    MEASURED.store(Box::leak(Box::new(Calibration::measure())), Ordering::Release);
                    MEASURED_BY.store(DONE, Ordering::Release);
                    // This cannot fail.
                    let _ = futex::wake(&MEASURED_BY, futex::Flags::PRIVATE, i32::MAX as u32);
                }
            }
        }
    }
}

impl Calibration {
    fn measure() -> Calibration {
        let costs = match process_cpus()[..] {
            [first, second, ..] => measure([first, second]).unwrap_or_default(),
            _ => ONE_CPU,
        };
        Calibration { costs, scale: TickScale::calibrate() }
    }
}

/// Returns the CPUs that the process may use. They are taken from its first thread, since the calling thread
/// may be pinned to one.
fn process_cpus() -> Vec<usize> {
    let first = Pid::from_raw(std::process::id() as i32);
    let set = sched_getaffinity(first).unwrap_or_default();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    if cpus.len() > 1 { cpus } else { allowed_cpus().unwrap_or_default() }
}

/// Returns the cost of a sleep on this machine, measured once per process; see the top of `calibrate.rs`.
pub fn costs() -> Costs {
    calibration().costs
}

/// Returns `None` if the system provides no eventfd or no thread.
fn measure(cpus: [usize; 2]) -> Option<Costs> {
    let (bell, sleeper) = (Bell::new(), EventSleeper::new().ok()?);
    let (clock, rung) = (Clock::new(), AtomicU64::new(0));
    let (seen, calls) = std::thread::scope(|scope| {
        let start = |cpu, work: fn(&Measurement<'_>) -> [Vec<u64>; 2], place| {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                // Use two CPUs, because the scheduler might otherwise put both threads on the same one. If
                // pinning fails, measure anyway.
                let _ = pin_thread(cpu);
                work(&place)
            })
        };
        let place = Measurement { bell: &bell, sleeper: &sleeper, clock, rung: &rung };
        let ringer = start(cpus[0], ring, place).ok()?;
        // If the sleeper's thread cannot be started, the ringer returns without waking any thread.
        let slept = start(cpus[1], sleep, place).ok().and_then(|slept| slept.join().ok());
        Some((slept?, ringer.join().ok()?))
    })?;
    let [mut wakes, mut cpu_times] = seen;
    let [mut calls, _] = calls;
    let (late, late_seldom) = naps(&clock);
    Some(Costs {
        wake: usual(&mut wakes)?,
        sleep: usual(&mut cpu_times)?,
        ring: usual(&mut calls)?,
        timer_late: late,
        timer_late_seldom: late_seldom,
        price: Costs::default().price,
    })
}

/// State shared by both threads.
#[derive(Clone, Copy)]
struct Measurement<'a> {
    bell: &'a Bell,
    sleeper: &'a EventSleeper,
    clock: Clock,
    /// The number of rounds rung so far.
    rung: &'a AtomicU64,
}

/// Runs the sleeper: returns the latency and the CPU time of each sleep, in nanoseconds.
fn sleep(place: &Measurement<'_>) -> [Vec<u64>; 2] {
    let (mut wakes, mut cpu_times) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for round in 1..=ROUNDS as u64 {
        let (cpu_before, mut rung) = (thread_cpu_nanos(), None);
        while place.rung.load(Ordering::Acquire) < round {
            place.bell.arm();
            if place.rung.load(Ordering::Acquire) < round {
                place.sleeper.sleep(place.bell, None);
            }
            rung = place.bell.disarm();
        }
        if let Some(at) = rung {
            wakes.push(place.clock.now().since(place.clock.at(at)).as_nanos() as u64);
            cpu_times.push(thread_cpu_nanos() - cpu_before);
        }
    }
    [wakes, cpu_times]
}

/// Runs the ringer: returns the length of each ringing call, in nanoseconds.
fn ring(place: &Measurement<'_>) -> [Vec<u64>; 2] {
    let mut calls = Vec::with_capacity(ROUNDS);
    let spin_until = |enough: &dyn Fn() -> bool, length| {
        let until = place.clock.now() + length;
        while !enough() && place.clock.now() < until {
            std::hint::spin_loop();
        }
    };
    for round in 1..=ROUNDS as u64 {
        // Only a thread that really sleeps shows the cost of a wake-up, so give the sleeper a little time
        // after arming.
        spin_until(&|| place.bell.is_armed(), Duration::from_millis(2));
        spin_until(&|| false, Duration::from_micros(40));
        let before = place.clock.now();
        place.rung.store(round, Ordering::Release);
        sleepers::ring(place.sleeper, place.bell);
        calls.push(place.clock.now().since(before).as_nanos() as u64);
    }
    [calls, Vec::new()]
}

/// Measures how late timed sleeps end. Returns the usual and the unusual lateness. A third of the sleeps end
/// earlier than the first value, and two thirds earlier than the second; the rest may be disturbed.
fn naps(clock: &Clock) -> (Duration, Duration) {
    let fallback = Costs::default();
    let Ok(sleeper) = EventSleeper::new() else {
        return (fallback.timer_late, fallback.timer_late_seldom);
    };
    let bell = Bell::new();
    set_min_timer_slack();
    let mut late: Vec<u64> = (0..NAPS)
        .map(|_| {
            let until = clock.now() + Duration::from_micros(100);
            bell.arm();
            sleeper.sleep(&bell, Some(until.since(clock.now())));
            bell.disarm();
            clock.now().since(until).as_nanos() as u64
        })
        .collect();
    late.sort_unstable();
    (bounded(late[NAPS / 3]), bounded(late[NAPS * 2 / 3]))
}

/// Returns the lower quartile: disturbances only lengthen a measurement.
fn usual(nanos: &mut [u64]) -> Option<Duration> {
    nanos.sort_unstable();
    nanos.get(nanos.len() / 4).map(|&nanos| bounded(nanos))
}

/// Clamps a measurement to the range from 0.5 us to 500 us. No machine wakes a thread in less time, and a
/// longer time means that the machine was disturbed.
fn bounded(nanos: u64) -> Duration {
    Duration::from_nanos(nanos.clamp(500, 500_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_costs_something_and_less_than_a_millisecond() {
        let costs = costs();
        for length in [costs.wake, costs.sleep, costs.ring, costs.timer_late, costs.timer_late_seldom] {
            assert!(length >= Duration::from_nanos(500) && length <= Duration::from_micros(500), "{costs:?}");
        }
        assert!(costs.timer_late <= costs.timer_late_seldom, "{costs:?}");
        assert_eq!(super::costs(), costs, "it is measured once");
    }
}
