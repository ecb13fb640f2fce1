//! When the operating system keeps a process from running, and for how long.
//!
//! Waking    another process runs in the kernel and does not yield the processor until it is done (the Linux
//!           kernel was not preemptible before 2.6), or it has a higher priority. Only a process that slept
//!           is affected.
//! Running   the process's time slice ends, or a process of higher priority becomes ready; modelled as a
//!           constant hazard rate over the running time.

use super::Outcome;
use super::arrivals::{exponential, uniform};
use kiban_base::SimRng;
use std::time::Duration;

/// A kind of stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// When it happens.
    pub when: StallTiming,
    /// How long it takes.
    pub length: StallLength,
}

/// When a stall happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StallTiming {
    /// Stalls the process at each wake-up, with this probability.
    Waking(f64),
    /// Stalls the process at every n-th wake-up.
    EveryWaking(u64),
    /// Stalls the process while it runs (works or spins), after an exponentially distributed running time.
    Running {
        /// The mean running time between two stalls.
        mean: Duration,
    },
}

/// How long a stall takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StallLength {
    /// A constant length.
    Fixed(Duration),
    /// A random time between two values.
    Uniform {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// An exponentially distributed time, truncated.
    Exponential {
        /// The mean before truncation.
        mean: Duration,
        /// The longest.
        most: Duration,
    },
}

impl StallLength {
    fn draw(&self, rng: &mut SimRng) -> Duration {
        match *self {
            StallLength::Fixed(length) => length,
            StallLength::Uniform { least, most } => uniform(least, most, rng),
            StallLength::Exponential { mean, most } => exponential(mean, rng).min(most),
        }
    }

    /// Returns the longest possible stall.
    pub fn max(&self) -> Duration {
        match *self {
            StallLength::Fixed(most)
            | StallLength::Uniform { most, .. }
            | StallLength::Exponential { most, .. } => most,
        }
    }
}

/// The stalls of one run.
#[derive(Clone, Debug)]
pub(super) struct Stalls {
    rng: SimRng,
    waking: Vec<(f64, StallLength)>,
    /// Stalls at every n-th wake-up: the period, the wake-ups left until the next stall, and its length.
    counted: Vec<(u64, u64, StallLength)>,
    running: Vec<Hazard>,
}

#[derive(Clone, Copy, Debug)]
struct Hazard {
    mean: Duration,
    length: StallLength,
    /// Running time until the next stall.
    left: Duration,
}

impl Stalls {
    pub(super) fn new(stalls: &[Stall], mut rng: SimRng) -> Stalls {
        let (mut waking, mut counted, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for &Stall { when, length } in stalls {
            match when {
                StallTiming::Waking(probability) => waking.push((probability, length)),
                StallTiming::EveryWaking(times) => counted.push((times, times, length)),
                StallTiming::Running { mean } => {
                    running.push(Hazard { mean, length, left: exponential(mean, &mut rng) });
                }
            }
        }
        Stalls { rng, waking, counted, running }
    }

    /// Returns the additional time that a wake-up takes.
    pub(super) fn wake(&mut self, outcome: &mut Outcome) -> Duration {
        let mut all = Duration::ZERO;
        for (every, left, length) in &mut self.counted {
            *left -= 1;
            if *left == 0 {
                *left = *every;
                let length = length.draw(&mut self.rng);
                outcome.stall(length);
                all += length;
            }
        }
        for (probability, length) in &self.waking {
            if self.rng.happens(*probability) {
                let length = length.draw(&mut self.rng);
                outcome.stall(length);
                all += length;
            }
        }
        all
    }

    /// Lets the process run for `wanted`. Returns how long it ran until it finished or was stalled, and the
    /// stall, if any.
    pub(super) fn run(&mut self, wanted: Duration, outcome: &mut Outcome) -> (Duration, Duration) {
        let Some(first) = self.running.iter().map(|hazard| hazard.left).min() else {
            return (wanted, Duration::ZERO);
        };
        let ran = first.min(wanted);
        let mut lost = Duration::ZERO;
        for hazard in &mut self.running {
            hazard.left -= ran;
            if hazard.left.is_zero() && lost.is_zero() {
                lost = hazard.length.draw(&mut self.rng);
                hazard.left = exponential(hazard.mean, &mut self.rng).max(Duration::from_nanos(1));
                outcome.stall(lost);
            }
        }
        (ran, lost)
    }
}
