//! How each queue of a turn waits, and what it has learnt.
//!
//! Purpose          a policy for all queues, for one queue, or for one call; and statistics that can be read
//!                  during a wait.
//! Limits           only one thread at a time waits at a spot: the driver.

use super::machine::Place;
use crate::clock::Clock;
use crate::lock;
use crate::wait::Waiting;
use kiban_base::{Report, Wait};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(super) struct Places<Q> {
    policy: Wait,
    of: HashMap<Q, Wait>,
    waiting: HashMap<Q, Arc<Spot>>,
    /// For calls with a policy of their own: the last such policy of each queue, and its history.
    once: HashMap<Q, (Wait, Arc<Spot>)>,
}

impl<Q> Default for Places<Q> {
    fn default() -> Places<Q> {
        Places { policy: Wait::default(), of: HashMap::new(), waiting: HashMap::new(), once: HashMap::new() }
    }
}

/// The waiter of a queue, and its statistics after the last wait, which can be read during a wait.
pub(super) struct Spot {
    waiting: Mutex<Waiting>,
    report: Mutex<Report>,
}

impl Spot {
    fn new(wait: Wait, clock: Clock) -> Arc<Spot> {
        Arc::new(Spot { waiting: Mutex::new(Waiting::new(wait, clock)), report: Mutex::default() })
    }

    /// Runs one wait, then copies its statistics.
    pub(super) fn wait<T>(&self, wait: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = lock(&self.waiting);
        let done = wait(&mut waiting);
        *lock(&self.report) = *waiting.report();
        done
    }

    pub(super) fn report(&self) -> Report {
        *lock(&self.report)
    }
}

impl<Q: Place> Places<Q> {
    /// Sets the waiting policy of queues without one of their own.
    pub(super) fn set_wait(&mut self, wait: Wait) {
        self.policy = wait;
        self.waiting.clear();
    }

    /// Sets the waiting policy of one queue.
    pub(super) fn set_queue_wait(&mut self, queue: Q, wait: Wait) {
        self.of.insert(queue, wait);
        self.waiting.remove(&queue);
    }

    /// Returns the waiting policy of a queue.
    pub(super) fn policy(&self, queue: Q) -> Wait {
        self.of.get(&queue).copied().unwrap_or(self.policy)
    }

    /// Returns the waiter of a queue, if a thread has waited for it.
    pub(super) fn known(&self, queue: Q) -> Option<Arc<Spot>> {
        self.waiting.get(&queue).cloned()
    }

    /// Returns the waiter of a queue, or of its calls with the policy `once`; creates it on first use.
    pub(super) fn spot(&mut self, queue: Q, once: Option<Wait>, clock: Clock) -> Arc<Spot> {
        match once {
            None => {
                let wait = self.policy(queue);
                self.waiting.entry(queue).or_insert_with(|| Spot::new(wait, clock)).clone()
            }
            Some(wait) => {
                let entry = self.once.entry(queue).or_insert_with(|| (wait, Spot::new(wait, clock)));
                if entry.0 != wait {
                    *entry = (wait, Spot::new(wait, clock));
                }
                entry.1.clone()
            }
        }
    }

    pub(super) fn forget(&mut self, queue: Q) {
        self.of.remove(&queue);
        self.waiting.remove(&queue);
        self.once.remove(&queue);
    }
}
