//! The helper: drives a machine while the program is busy with other things.
//!
//! Goal      a peer is answered whatever the program does, at no cost while the program drives by itself.
//! Ticks     it looks now and then whether anybody has driven lately. If not, it drives: it sleeps on the doors until
//!           something arrives or the machine is due. The first call of the program sends it back to its ticks.

use super::{Machine, Place, Shared, lock};
use crate::wait::Waiting;
use kiban_ground::{Instant, Wait};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// When the helper drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helping {
    /// How long nobody has driven before the helper does; also its tick.
    pub(crate) idle: Duration,
    /// The longest tick, while somebody else drives.
    pub(crate) tick_max: Duration,
    /// Whether only who looks for something drives: a program that posts, and finds what was there, may never look again.
    pub(crate) alert: bool,
}

impl Helping {
    /// For programs that work and wait by the turn alone.
    pub(crate) const SELDOM: Helping =
        Helping { idle: Duration::from_millis(10), tick_max: Duration::from_millis(100), alert: false };
    /// For programs that also wait beside it: on files that the turn signals, on memory that peers write to.
    pub(crate) const ALERT: Helping =
        Helping { idle: Duration::from_micros(50), tick_max: Duration::from_millis(4), alert: true };
}

/// The word that ends the thread.
#[derive(Default)]
struct End {
    /// Looked at wherever the thread may be.
    ends: AtomicBool,
    lock: Mutex<()>,
    called: Condvar,
}

/// The thread and the word that ends it.
pub(super) struct Helper<M: Machine, Q: Place> {
    shared: Weak<Shared<M, Q>>,
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl<M: Machine, Q: Place> Helper<M, Q> {
    pub(super) fn start(name: &str, shared: &Arc<Shared<M, Q>>) -> io::Result<Helper<M, Q>> {
        let end = Arc::new(End::default());
        let (its_end, its_shared) = (end.clone(), shared.clone());
        let builder = std::thread::Builder::new().name(name.into());
        let thread = builder.spawn(move || help(&its_shared, &its_end))?;
        Ok(Helper { shared: Arc::downgrade(shared), end, thread: Some(thread) })
    }
}

impl<M: Machine, Q: Place> Drop for Helper<M, Q> {
    fn drop(&mut self) {
        self.end.ends.store(true, Ordering::Release);
        *lock(&self.end.lock) = ();
        self.end.called.notify_all();
        if let Some(shared) = self.shared.upgrade() {
            shared.helper_drives.store(false, Ordering::Release);
            shared.doors.wake();
        }
        if let Some(thread) = self.thread.take() {
            // A helper that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn help<M: Machine, Q: Place>(shared: &Shared<M, Q>, end: &End) {
    let mut waiting: Option<Waiting> = None;
    let Helping { idle: idle_min, tick_max, .. } = shared.helping;
    let mut tick = idle_min;
    loop {
        let guard = lock(&end.lock);
        if end.ends.load(Ordering::Acquire) {
            return;
        }
        let (guard, _) =
            end.called.wait_timeout(guard, tick).unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(guard);
        if end.ends.load(Ordering::Acquire) {
            return;
        }
        let idle = shared.clock.now().since(Instant::from_nanos(shared.driven_at.load(Ordering::Relaxed)));
        // Whoever copies a long message holds the lock for longer than a tick.
        if idle < tick || matches!(shared.held.try_lock(), Err(TryLockError::WouldBlock)) {
            tick = if shared.helping.alert { (tick * 2).min(tick_max) } else { idle_min };
            continue;
        }
        let Ok(driver) = shared.driver.try_lock() else {
            tick = (tick * 2).min(tick_max);
            continue;
        };
        tick = idle_min;
        shared.helper_drives.store(true, Ordering::Release);
        let waiting = waiting.get_or_insert_with(|| Waiting::new(Wait::Interrupt, shared.clock));
        // Until somebody takes over.
        let mut look = |_: &mut M| {
            let ends = end.ends.load(Ordering::Acquire);
            (ends || !shared.helper_drives.load(Ordering::Acquire)).then_some(())
        };
        let _ = shared.drive_until(waiting, Instant::NEVER, None, &mut look);
        drop(driver);
        shared.call_followers();
    }
}
