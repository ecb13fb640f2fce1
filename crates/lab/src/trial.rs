//! One trial: what a sample may use while it runs.
//!
//! Goal      work per time, by the wall and by the CPU, measured the same way everywhere.
//! Shape     a sample prepares, calls [`Trial::measure`] on the part that counts, and returns one figure of
//!           the [`Span`] in the unit of its benchmark.
//! Limits    the clock is read between two calls of the work (about 30 ns): work shorter than some
//!           microseconds should be put into a loop by the caller.

use kiban_os::clock::{Clock, process_cpu_nanos};

/// Lent to a sample for one run.
#[derive(Debug)]
pub struct Trial {
    clock: Clock,
    span_nanos: u64,
    quick: bool,
}

impl Trial {
    pub(crate) fn new(clock: Clock, span_nanos: u64, quick: bool) -> Self {
        Self { clock, span_nanos, quick }
    }

    /// The clock, for samples that measure themselves.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How long a sample should run, in nanoseconds: longer than the grain of the machine's accounts.
    pub fn span_nanos(&self) -> u64 {
        self.span_nanos
    }

    /// Whether this run only shows that the benchmark works; its figures are not to be quoted.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Does the work again and again until the span of a sample is over.
    ///
    /// `work` returns how much it did: bytes, PDUs, operations.
    pub fn measure(&self, mut work: impl FnMut() -> f64) -> Span {
        let (clock, span_nanos) = (self.clock, self.span_nanos);
        self.measure_once(|| {
            let start = clock.now().as_nanos();
            let mut done = 0.0;
            loop {
                done += work();
                if clock.now().as_nanos() - start >= span_nanos {
                    return done;
                }
            }
        })
    }

    /// Does the work once, however long it takes.
    pub fn measure_once(&self, work: impl FnOnce() -> f64) -> Span {
        let cpu_start = process_cpu_nanos();
        let start = self.clock.now().as_nanos();
        let work = work();
        let wall_nanos = self.clock.now().as_nanos() - start;
        let cpu_nanos = process_cpu_nanos() - cpu_start;
        Span { work, wall_nanos, cpu_nanos }
    }
}

/// Work done, and what it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The amount of work: bytes, PDUs, operations.
    pub work: f64,
    /// Time on the wall.
    pub wall_nanos: u64,
    /// CPU time of all threads of this process.
    pub cpu_nanos: u64,
}

impl Span {
    /// Work per second of wall time.
    pub fn per_second(self) -> f64 {
        self.work * 1e9 / self.wall_nanos as f64
    }

    /// Work per second of CPU time.
    pub fn per_cpu_second(self) -> f64 {
        self.work * 1e9 / self.cpu_nanos as f64
    }

    /// Gigabits per second of wall time, if the work is counted in bytes.
    pub fn gbit_per_second(self) -> f64 {
        self.work * 8.0 / self.wall_nanos as f64
    }

    /// Gigabits per second of CPU time, if the work is counted in bytes.
    pub fn gbit_per_cpu_second(self) -> f64 {
        self.work * 8.0 / self.cpu_nanos as f64
    }

    /// Nanoseconds of wall time for one unit of work.
    pub fn nanos_each(self) -> f64 {
        self.wall_nanos as f64 / self.work
    }

    /// Nanoseconds of CPU time for one unit of work.
    pub fn cpu_nanos_each(self) -> f64 {
        self.cpu_nanos as f64 / self.work
    }

    /// CPUs kept busy: CPU time over wall time.
    pub fn cores(self) -> f64 {
        self.cpu_nanos as f64 / self.wall_nanos as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_gives_rates_and_costs() {
        let span = Span { work: 1_000.0, wall_nanos: 2_000, cpu_nanos: 1_000 };
        assert_eq!(span.per_second(), 5e8);
        assert_eq!(span.per_cpu_second(), 1e9);
        assert_eq!(span.gbit_per_second(), 4.0);
        assert_eq!(span.gbit_per_cpu_second(), 8.0);
        assert_eq!(span.nanos_each(), 2.0);
        assert_eq!(span.cpu_nanos_each(), 1.0);
        assert_eq!(span.cores(), 0.5);
    }

    #[test]
    fn work_is_repeated_until_the_span_is_over() {
        let trial = Trial::new(Clock::new(), 200_000, true);
        let mut calls = 0.0;
        let span = trial.measure(|| {
            calls += 1.0;
            3.0
        });
        assert!(span.wall_nanos >= 200_000);
        assert_eq!(span.work, 3.0 * calls);
        assert_eq!(trial.measure_once(|| 7.0).work, 7.0);
    }
}
