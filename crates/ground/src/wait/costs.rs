//! What waiting costs on a machine.

use core::time::Duration;

/// What one wait can cost. Measured by the driver (the real one does it once a process), or
/// chosen for a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// From the ring of the bell to the sleeper's next look: nobody's CPU time, but latency.
    pub wake: Duration,
    /// CPU time of the sleeper for falling asleep and waking up.
    pub sleep: Duration,
    /// CPU time of the ringer for waking a sleeper; nothing if nobody sleeps.
    pub ring: Duration,
    /// How late a timed sleep usually ends (its median).
    pub timer_late: Duration,
    /// How late a timed sleep seldom ends (its 90th percentile).
    pub timer_late_seldom: Duration,
    /// What a nanosecond of latency is worth, in nanoseconds of CPU time.
    pub price: f64,
}

impl Default for Costs {
    /// Two CPUs of a virtual machine of 2026 (EPYC, Linux 6.18), as measured by the project.
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
    /// The price of latency, in nanoseconds of CPU time.
    pub fn latency(&self, latency: Duration) -> u64 {
        (nanos(latency) as f64 * self.price) as u64
    }

    /// CPU time of both ends for one sleep, in nanoseconds.
    pub fn both_ends(&self) -> u64 {
        nanos(self.sleep) + nanos(self.ring)
    }

    /// What one sleep until the bell rings costs, in nanoseconds: CPU time of both ends, and the price of waking late.
    ///
    /// Who spins for as long as this before sleeping pays at most twice the optimum (Karlin, Manasse, McGeoch, Owicki:
    /// "Competitive randomized algorithms for nonuniform problems", 1994).
    pub fn block(&self) -> u64 {
        self.both_ends() + self.latency(self.wake)
    }
}

/// A length in nanoseconds. Lengths here are below 584 years.
pub(super) const fn nanos(length: Duration) -> u64 {
    length.as_secs() * 1_000_000_000 + length.subsec_nanos() as u64
}
