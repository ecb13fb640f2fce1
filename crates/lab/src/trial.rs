//! One run of a sample, with the clock that measures it.
//!
//! Purpose   measure work per wall-clock time and per CPU time in the same way everywhere.
//! Use       a sample prepares its data, calls [`Trial::measure`] with the code to measure, and returns one
//!           result of the [`Span`] in the unit of its benchmark.
//! Limits    the clock is read after every call of the work. A reading takes about 30 ns, so work that takes
//!           less than a few microseconds should be repeated in a loop.

use kiban_os::clock::{Clock, process_cpu_nanos};

/// The context that a sample receives for one run.
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

    /// Returns the clock, for samples that measure time themselves.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns how long a sample should run, in nanoseconds.
    pub fn span_nanos(&self) -> u64 {
        self.span_nanos
    }

    /// Returns whether this is a quick run, which only checks that the benchmark works.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Repeats the work until [`Trial::span_nanos`] have passed.
    ///
    /// `work` returns the amount of work it did: bytes, PDUs, operations.
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

    /// Does the work once, whatever its duration.
    pub fn measure_once(&self, work: impl FnOnce() -> f64) -> Span {
        let cpu_start = process_cpu_nanos();
        let start = self.clock.now().as_nanos();
        let work = work();
        let wall_nanos = self.clock.now().as_nanos() - start;
        let cpu_nanos = process_cpu_nanos() - cpu_start;
        Span { work, wall_nanos, cpu_nanos }
    }
}

/// An amount of work, and the time it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The amount of work: bytes, PDUs, operations.
    pub work: f64,
    /// Wall-clock time.
    pub wall_nanos: u64,
    /// CPU time of all threads of this process.
    pub cpu_nanos: u64,
}

impl Span {
    /// Returns the work per second of wall time.
    pub fn per_second(self) -> f64 {
        self.work * 1e9 / self.wall_nanos as f64
    }

    /// Returns the work per second of CPU time.
    pub fn per_cpu_second(self) -> f64 {
        self.work * 1e9 / self.cpu_nanos as f64
    }

    /// Returns gigabits per second of wall time, if the work is counted in bytes.
    pub fn gbit_per_second(self) -> f64 {
        self.work * 8.0 / self.wall_nanos as f64
    }

    /// Returns gigabits per second of CPU time, if the work is counted in bytes.
    pub fn gbit_per_cpu_second(self) -> f64 {
        self.work * 8.0 / self.cpu_nanos as f64
    }

    /// Returns nanoseconds of wall time per unit of work.
    pub fn nanos_each(self) -> f64 {
        self.wall_nanos as f64 / self.work
    }

    /// Returns nanoseconds of CPU time per unit of work.
    pub fn cpu_nanos_each(self) -> f64 {
        self.cpu_nanos as f64 / self.work
    }

    /// Returns the number of busy CPUs: CPU time divided by wall time.
    pub fn cores(self) -> f64 {
        self.cpu_nanos as f64 / self.wall_nanos as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_computes_rates_and_costs() {
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
