//! When the operating system keeps a process from running, and for how long.
//!
//! Waking    somebody else is in the kernel, which gives the processor away only when it is done (Linux
//!           before 2.6 could not be preempted there), or has a better claim. Only who has slept can meet
//!           this.
//! Running   the process's time is up, or somebody with a better claim comes: a hazard of the time that it
//!           runs.

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
    /// When the process is to wake up, with this probability each time.
    Waking(f64),
    /// When the process is to wake up for every so many times.
    EveryWaking(u64),
    /// While the process runs (works or spins), after exponential times of running.
    Running {
        /// The mean.
        mean: Duration,
    },
}

/// How long a stall takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StallLength {
    /// Always as long.
    Fixed(Duration),
    /// Anything between two.
    Uniform {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// Exponential, cut off.
    Exponential {
        /// The mean, were it not cut off.
        mean: Duration,
        /// The longest.
        most: Duration,
    },
}

impl StallLength {
    fn draw(&self, chance: &mut SimRng) -> Duration {
        match *self {
            StallLength::Fixed(length) => length,
            StallLength::Uniform { least, most } => uniform(least, most, chance),
            StallLength::Exponential { mean, most } => exponential(mean, chance).min(most),
        }
    }

    /// The longest that can happen.
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
    chance: SimRng,
    waking: Vec<(f64, StallLength)>,
    /// Every so many times, how many are left, and for how long.
    counted: Vec<(u64, u64, StallLength)>,
    running: Vec<Hazard>,
}

#[derive(Clone, Copy, Debug)]
struct Hazard {
    mean: Duration,
    length: StallLength,
    /// Running time until the next.
    left: Duration,
}

impl Stalls {
    pub(super) fn new(stalls: &[Stall], mut chance: SimRng) -> Stalls {
        let (mut waking, mut counted, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for &Stall { when, length } in stalls {
            match when {
                StallTiming::Waking(probability) => waking.push((probability, length)),
                StallTiming::EveryWaking(times) => counted.push((times, times, length)),
                StallTiming::Running { mean } => {
                    running.push(Hazard { mean, length, left: exponential(mean, &mut chance) });
                }
            }
        }
        Stalls { chance, waking, counted, running }
    }

    /// What waking up takes in addition.
    pub(super) fn wake(&mut self, outcome: &mut Outcome) -> Duration {
        let mut all = Duration::ZERO;
        for (every, left, length) in &mut self.counted {
            *left -= 1;
            if *left == 0 {
                *left = *every;
                let length = length.draw(&mut self.chance);
                outcome.stall(length);
                all += length;
            }
        }
        for (probability, length) in &self.waking {
            if self.chance.happens(*probability) {
                let length = length.draw(&mut self.chance);
                outcome.stall(length);
                all += length;
            }
        }
        all
    }

    /// The process wants to run for a time: how long it ran until it was through or was stalled, and the
    /// stall.
    pub(super) fn run(&mut self, wanted: Duration, outcome: &mut Outcome) -> (Duration, Duration) {
        let Some(first) = self.running.iter().map(|hazard| hazard.left).min() else {
            return (wanted, Duration::ZERO);
        };
        let ran = first.min(wanted);
        let mut lost = Duration::ZERO;
        for hazard in &mut self.running {
            hazard.left -= ran;
            if hazard.left.is_zero() && lost.is_zero() {
                lost = hazard.length.draw(&mut self.chance);
                hazard.left = exponential(hazard.mean, &mut self.chance).max(Duration::from_nanos(1));
                outcome.stall(lost);
            }
        }
        (ran, lost)
    }
}
