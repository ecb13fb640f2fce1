//! The wait policy of each queue of a turn, and the state that the policy has learned.
//!
//! Purpose          provide a policy for all queues, for one queue, or for one call, and statistics that can
//!                  be read during a wait.
//! Limits           only one thread at a time waits with a queue's waiter: the driver.

use super::machine::QueueKey;
use crate::clock::Clock;
use crate::lock;
use crate::wait::Waiting;
use kiban_base::{Report, Wait};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(super) struct QueueWaiters<Q> {
    policy: Wait,
    of: HashMap<Q, Wait>,
    waiting: HashMap<Q, Arc<QueueWaiter>>,
    /// Used by calls with a policy of their own: the last such policy of each queue, and the queue's history
    /// under it.
    once: HashMap<Q, (Wait, Arc<QueueWaiter>)>,
}

impl<Q> Default for QueueWaiters<Q> {
    fn default() -> QueueWaiters<Q> {
        QueueWaiters {
            policy: Wait::default(),
            of: HashMap::new(),
            waiting: HashMap::new(),
            once: HashMap::new(),
        }
    }
}

/// The waiter of a queue, and the waiter's statistics after the last wait. The statistics can be read during
/// a wait.
pub(super) struct QueueWaiter {
    waiting: Mutex<Waiting>,
    report: Mutex<Report>,
}

impl QueueWaiter {
    fn new(wait: Wait, clock: Clock) -> Arc<QueueWaiter> {
        Arc::new(QueueWaiter { waiting: Mutex::new(Waiting::new(wait, clock)), report: Mutex::default() })
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

impl<Q: QueueKey> QueueWaiters<Q> {
    /// Sets the waiting policy of queues that do not have their own.
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
    pub(super) fn known(&self, queue: Q) -> Option<Arc<QueueWaiter>> {
        self.waiting.get(&queue).cloned()
    }

    /// Returns the waiter of a queue, or the waiter for calls with the policy `once`. The waiter is created
    /// on first use.
    pub(super) fn waiter(&mut self, queue: Q, once: Option<Wait>, clock: Clock) -> Arc<QueueWaiter> {
        match once {
            None => {
                let wait = self.policy(queue);
                self.waiting.entry(queue).or_insert_with(|| QueueWaiter::new(wait, clock)).clone()
            }
            Some(wait) => {
                let entry = self.once.entry(queue).or_insert_with(|| (wait, QueueWaiter::new(wait, clock)));
                if entry.0 != wait {
                    *entry = (wait, QueueWaiter::new(wait, clock));
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
