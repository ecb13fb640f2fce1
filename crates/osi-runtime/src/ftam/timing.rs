//! A stopwatch for the board's tasks, which measures how much time each layer takes.
//!
//! Purpose    measures the time per task on any running association, as in figure 3 of paper \[5\]
//!            (docs/reproduce-osi-board.md).
//! Operation  the wiring reports each task that it switches to; the time until the next switch is charged to
//!            that task.
//! Cost       one clock reading per switch, which takes some tens of nanoseconds; no cost if the stopwatch is
//!            off.

use kiban_base::Instant;
use kiban_os::Clock;
use kiban_osi::stack::meter::{Meter, Task};
use std::time::Duration;

/// Measures the time per task while it is on.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    clock: Option<Clock>,
    at: Task,
    since: Instant,
    spent: [Duration; Task::ALL.len()],
    turns: [u64; Task::ALL.len()],
}

impl Stopwatch {
    /// Creates a stopwatch that measures.
    pub fn on() -> Stopwatch {
        Stopwatch { clock: Some(Clock::new()), ..Stopwatch::off() }
    }

    /// Creates a stopwatch that measures nothing.
    pub fn off() -> Stopwatch {
        Stopwatch {
            clock: None,
            at: Task::Host,
            since: Instant::ZERO,
            spent: [Duration::ZERO; Task::ALL.len()],
            turns: [0; Task::ALL.len()],
        }
    }

    /// Starts a period of work, which begins with the host task.
    pub fn begin(&mut self) {
        if let Some(clock) = &self.clock {
            self.since = clock.now();
            self.at = Task::Host;
        }
    }

    /// Returns the time that each task has taken, and the number of times that the wiring switched to it.
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
