//! What a sleep costs on this machine.
//!
//! How       two threads, [`ROUNDS`] times: one sleeps on an eventfd; the other waits until it sleeps, rings, and both
//!           say what they saw: from the ring to the look, the CPU time of the sleeper, the length of the ringer's
//!           call. Then [`NAPS`] timed sleeps: how late they end.
//! Usual     a disturbance makes things longer, so the lower quartile counts. The waiter learns on from where this
//!           leaves it: bounds keep a wild machine from a wild result.
//! Once      a process, before the first wait: some milliseconds.
//! Limits    with one CPU to run on nobody can spin for a peer, and there is nothing to measure: [`ONE_CPU`].

use crate::clock::{Clock, TickScale, allowed_cpus, pin_thread, thread_cpu_nanos};
use crate::wait::{EventSleeper, Sleeper, wake_on_time};
use kiban_ground::{Bell, Costs};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: usize = 40;
const NAPS: usize = 15;

/// On one CPU ringing is switching: measured as 4 us for both ways, latency and CPU time alike.
const ONE_CPU: Costs = Costs {
    wake: Duration::from_micros(2),
    sleep: Duration::from_micros(2),
    ring: Duration::from_micros(2),
    timer_late: Duration::from_micros(10),
    timer_late_seldom: Duration::from_micros(60),
    price: 1.0,
};

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibration {
    pub(crate) costs: Costs,
    pub(crate) scale: TickScale,
}

pub(crate) fn calibration() -> &'static Calibration {
    static ONCE: OnceLock<Calibration> = OnceLock::new();
    ONCE.get_or_init(|| {
        let costs = match process_cpus()[..] {
            [first, second, ..] => measure([first, second]).unwrap_or_default(),
            _ => ONE_CPU,
        };
        Calibration { costs, scale: TickScale::calibrate() }
    })
}

/// The CPUs that the process may use, and not only a calling thread that was pinned to one: those of its first thread.
fn process_cpus() -> Vec<usize> {
    let first = Pid::from_raw(std::process::id() as i32);
    let set = sched_getaffinity(first).unwrap_or_default();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    if cpus.len() > 1 { cpus } else { allowed_cpus().unwrap_or_default() }
}

/// What a sleep costs on this machine, measured once a process; see the top of `calibrate.rs`.
pub fn costs() -> Costs {
    calibration().costs
}

/// None if the system refuses an eventfd or a thread.
fn measure(cpus: [usize; 2]) -> Option<Costs> {
    let (bell, sleeper) = (Bell::new(), EventSleeper::new().ok()?);
    let (clock, rung) = (Clock::new(), AtomicU64::new(0));
    let (seen, calls) = std::thread::scope(|scope| {
        let start = |cpu, work: fn(&Place<'_>) -> [Vec<u64>; 2], place| {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                // Side by side, else the scheduler may put both on one CPU. Where it is refused, so be it.
                let _ = pin_thread(cpu);
                work(&place)
            })
        };
        let place = Place { bell: &bell, sleeper: &sleeper, clock, rung: &rung };
        let ringer = start(cpus[0], ring, place).ok()?;
        // Without a sleeper the ringer rings for nobody, and ends.
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

/// What both threads see.
#[derive(Clone, Copy)]
struct Place<'a> {
    bell: &'a Bell,
    sleeper: &'a EventSleeper,
    clock: Clock,
    /// The rounds that have been rung.
    rung: &'a AtomicU64,
}

/// The sleeper: the latency and the CPU time of each sleep.
fn sleep(place: &Place<'_>) -> [Vec<u64>; 2] {
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

/// The ringer: the length of each call.
fn ring(place: &Place<'_>) -> [Vec<u64>; 2] {
    let mut calls = Vec::with_capacity(ROUNDS);
    let spin_until = |enough: &dyn Fn() -> bool, length| {
        let until = place.clock.now() + length;
        while !enough() && place.clock.now() < until {
            std::hint::spin_loop();
        }
    };
    for round in 1..=ROUNDS as u64 {
        // Only who has gone to sleep shows what waking costs: the sleeper is given a little time after arming.
        spin_until(&|| place.bell.is_armed(), Duration::from_millis(2));
        spin_until(&|| false, Duration::from_micros(40));
        let before = place.clock.now();
        place.rung.store(round, Ordering::Release);
        crate::wait::ring(place.sleeper, place.bell);
        calls.push(place.clock.now().since(before).as_nanos() as u64);
    }
    [calls, Vec::new()]
}

/// How late timed sleeps end: usually, and seldom (two thirds stay below: disturbances count among the rest).
fn naps(clock: &Clock) -> (Duration, Duration) {
    let fallback = Costs::default();
    let Ok(sleeper) = EventSleeper::new() else {
        return (fallback.timer_late, fallback.timer_late_seldom);
    };
    let bell = Bell::new();
    wake_on_time();
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

/// The lower quartile: disturbances only make things longer.
fn usual(nanos: &mut [u64]) -> Option<Duration> {
    nanos.sort_unstable();
    nanos.get(nanos.len() / 4).map(|&nanos| bounded(nanos))
}

/// No machine wakes a thread faster than a microsecond; one that takes longer than half a millisecond was disturbed.
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
