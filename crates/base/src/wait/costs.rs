//! The costs of waiting on a machine.

use core::time::Duration;

/// The costs of one wait, measured by the driver (the real one measures them once per process) or chosen for
/// a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Latency from the ring of the bell to the sleeper's next poll. It uses no CPU time.
    pub wake: Duration,
    /// CPU time of the sleeper for falling asleep and waking up.
    pub sleep: Duration,
    /// CPU time that the ringer spends to wake a sleeper. It is spent only if there is a sleeper.
    pub ring: Duration,
    /// Median lateness of a timed sleep.
    pub timer_late: Duration,
    /// 90th percentile of how late a timed sleep ends.
    pub timer_late_seldom: Duration,
    /// The price of one nanosecond of latency, in nanoseconds of CPU time.
    pub price: f64,
}

impl Default for Costs {
    /// Returns the costs that the project measured in 2026 on two CPUs of a virtual machine (EPYC, Linux
    /// 6.18).
    fn default() -> Self {
        Costs {
            wake: Duration::from_micros(20),
            sleep: Duration::from_micros(9),
            ring: Duration::from_micros(7),
            timer_late: Duration::from_micros(25),
            timer_late_seldom: Duration::from_micros(60),
            price: 1.0,
        }
    }
}

impl Costs {
    /// Returns the price of `latency`, in nanoseconds of CPU time.
    pub fn latency(&self, latency: Duration) -> u64 {
        (nanos(latency) as f64 * self.price) as u64
    }

    /// Returns the CPU time of both ends for one sleep, in nanoseconds.
    pub fn both_ends(&self) -> u64 {
        nanos(self.sleep) + nanos(self.ring)
    }

    /// Returns the cost of one sleep until the bell rings, in nanoseconds: CPU time of both ends, and the
    /// price of the wake-up latency.
    ///
    /// Spinning for as long as this before sleeping costs at most twice the optimum (Karlin, Manasse,
    /// McGeoch, Owicki: "Competitive randomized algorithms for nonuniform problems", 1994).
    pub fn block(&self) -> u64 {
        self.both_ends() + self.latency(self.wake)
    }
}

/// Returns a duration in nanoseconds, which must be below 584 years.
pub(super) const fn nanos(length: Duration) -> u64 {
    length.as_secs() * 1_000_000_000 + length.subsec_nanos() as u64
}
