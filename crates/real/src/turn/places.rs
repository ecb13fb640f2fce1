//! Places: how each queue of a turn waits, and what it has learnt.
//!
//! Goal      a policy for all, or for one queue, or for one call; and a report that can be read while somebody waits.
//! Limits    one waits at a spot at a time: the driver.

use super::{Place, lock};
use crate::clock::Clock;
use crate::wait::Waiting;
use kiban_ground::{Report, Wait};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(super) struct Places<Q> {
    policy: Wait,
    of: HashMap<Q, Wait>,
    waiting: HashMap<Q, Arc<Spot>>,
    /// Where calls wait that name a policy of their own: the last such policy of each queue, and what it has learnt.
    once: HashMap<Q, (Wait, Arc<Spot>)>,
}

impl<Q> Default for Places<Q> {
    fn default() -> Places<Q> {
        Places { policy: Wait::default(), of: HashMap::new(), waiting: HashMap::new(), once: HashMap::new() }
    }
}

/// A waiting place, and its report after the last wait: it can be read while somebody waits.
pub(super) struct Spot {
    waiting: Mutex<Waiting>,
    report: Mutex<Report>,
}

impl Spot {
    fn new(wait: Wait, clock: Clock) -> Arc<Spot> {
        Arc::new(Spot { waiting: Mutex::new(Waiting::new(wait, clock)), report: Mutex::default() })
    }

    /// Waits here.
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
    /// How queues wait that have no policy of their own.
    pub(super) fn set_wait(&mut self, wait: Wait) {
        self.policy = wait;
        self.waiting.clear();
    }

    /// How one queue waits.
    pub(super) fn set_queue_wait(&mut self, queue: Q, wait: Wait) {
        self.of.insert(queue, wait);
        self.waiting.remove(&queue);
    }

    /// How a queue waits.
    pub(super) fn policy(&self, queue: Q) -> Wait {
        self.of.get(&queue).copied().unwrap_or(self.policy)
    }

    /// The waiting place of a queue, if anybody has waited there.
    pub(super) fn known(&self, queue: Q) -> Option<Arc<Spot>> {
        self.waiting.get(&queue).cloned()
    }

    /// The waiting place of a queue, or of calls that name a policy of their own.
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
