//! A stopwatch for the tasks of the board: how long each layer works.
//!
//! Goal      paper \[5\]'s figure 3 of whatever runs here: time per task, measured where it passes.
//! How       the wiring says which task it turns to; what has passed since is the one's before.
//! Costs     a reading of the clock a turn, some tens of nanoseconds; a stopwatch that is off reads none.

use crate::Clock;
use kiban_board::osi::meter::{Meter, Task};
use kiban_ground::Instant;
use std::time::Duration;

/// Measures while it is on.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    clock: Option<Clock>,
    at: Task,
    since: Instant,
    spent: [Duration; Task::ALL.len()],
    turns: [u64; Task::ALL.len()],
}

impl Stopwatch {
    /// A stopwatch that measures.
    pub fn on() -> Stopwatch {
        Stopwatch { clock: Some(Clock::new()), ..Stopwatch::off() }
    }

    /// One that does not.
    pub fn off() -> Stopwatch {
        Stopwatch {
            clock: None,
            at: Task::Host,
            since: Instant::ZERO,
            spent: [Duration::ZERO; Task::ALL.len()],
            turns: [0; Task::ALL.len()],
        }
    }

    /// The host begins to work.
    pub fn begin(&mut self) {
        if let Some(clock) = &self.clock {
            self.since = clock.now();
            self.at = Task::Host;
        }
    }

    /// How long each task has worked, and how often it was turned to.
    pub fn spent(&self) -> impl Iterator<Item = (Task, Duration, u64)> + '_ {
        Task::ALL.iter().zip(self.spent).zip(self.turns).map(|((&task, spent), turns)| (task, spent, turns))
    }

    fn stop(&mut self) {
        if let Some(clock) = &self.clock {
            let now = clock.now();
            self.spent[self.at as usize] += now.since(self.since);
            self.since = now;
        }
    }
}

impl Meter for Stopwatch {
    fn turn_to(&mut self, task: Task, _bytes: usize) {
        if self.clock.is_some() && self.at != task {
            self.stop();
            self.at = task;
            self.turns[task as usize] += 1;
        }
    }

    fn rest(&mut self) {
        self.stop();
    }
}
