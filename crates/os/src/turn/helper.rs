//! The helper: a thread that drives a machine while the program does something else.
//!
//! Purpose          answer peers while the program does other things, at no cost while the program drives the
//!                  machine itself.
//! Polling          the helper checks at intervals whether another thread has driven recently. If not, it
//!                  drives: it sleeps on the wait set until something arrives or the machine's deadline
//!                  passes. The program's next call makes it return to polling.

use super::machine::{HelperPolicy, Machine, QueueKey};
use super::shared::Shared;
use crate::wait::Waiting;
use crate::{Flag, ignore_poison, lock, try_lock};
use kiban_base::{Instant, Wait};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;

/// The stop flag of the thread, and a condition variable to interrupt its wait.
#[derive(Default)]
struct End {
    /// Set while a request to stop is pending. It is checked at every point at which the thread may be.
    ends: Flag,
    lock: Mutex<()>,
    called: Condvar,
}

/// The thread and its stop flag.
pub(super) struct Helper<M: Machine, Q: QueueKey> {
    shared: Weak<Shared<M, Q>>,
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl<M: Machine, Q: QueueKey> Helper<M, Q> {
    pub(super) fn start(name: &str, shared: &Arc<Shared<M, Q>>) -> io::Result<Helper<M, Q>> {
        let end = Arc::new(End::default());
        let (its_end, its_shared) = (end.clone(), shared.clone());
        let builder = std::thread::Builder::new().name(name.into());
        let thread = builder.spawn(move || help(&its_shared, &its_end))?;
        Ok(Helper { shared: Arc::downgrade(shared), end, thread: Some(thread) })
    }
}

impl<M: Machine, Q: QueueKey> Drop for Helper<M, Q> {
    fn drop(&mut self) {
        self.end.ends.set(true);
        *lock(&self.end.lock) = ();
        self.end.called.notify_all();
        if let Some(shared) = self.shared.upgrade() {
            shared.helper_drives.set(false);
            shared.wait_set.ring();
        }
        if let Some(thread) = self.thread.take() {
            // The result is ignored: the helper may have panicked.
            let _ = thread.join();
        }
    }
}

fn help<M: Machine, Q: QueueKey>(shared: &Shared<M, Q>, end: &End) {
    let mut waiting: Option<Waiting> = None;
    let HelperPolicy { idle: idle_min, tick_max, .. } = shared.helping;
    let mut tick = idle_min;
    loop {
        let guard = lock(&end.lock);
        if end.ends.get() {
            return;
        }
        let (guard, _) = ignore_poison(end.called.wait_timeout(guard, tick));
        drop(guard);
        if end.ends.get() {
            return;
        }
        let idle = shared.clock.now().since(Instant::from_nanos(shared.driven_at.load(Ordering::Relaxed)));
        // A thread that copies a long message may hold the lock for longer than a polling interval.
        if idle < tick || try_lock(&shared.held).is_none() {
            tick = if shared.helping.alert { (tick * 2).min(tick_max) } else { idle_min };
            continue;
        }
        let Some(driver) = try_lock(&shared.driver) else {
            tick = (tick * 2).min(tick_max);
            continue;
        };
        tick = idle_min;
        shared.helper_drives.set(true);
        let waiting = waiting.get_or_insert_with(|| Waiting::new(Wait::Interrupt, shared.clock));
        // Returns once another thread drives.
        let mut look = |_: &mut M| {
            let ends = end.ends.get();
            (ends || !shared.helper_drives.get()).then_some(())
        };
        let _ = shared.drive_until(waiting, Instant::NEVER, None, &mut look);
        shared.stop_driving(driver);
    }
}
