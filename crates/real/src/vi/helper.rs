//! The helper: drives a NIC while the program is busy with other things.
//!
//! Goal      a peer is answered whatever the program does, at no cost while the program drives by itself.
//! Ticks     it looks now and then whether anybody has driven lately. If not, it drives: it sleeps on the links until
//!           something arrives or the NIC is due. The first call of the program sends it back to its ticks.

use super::{Core, Shared, lock};
use crate::wait::Waiting;
use kiban_ground::{Instant, Wait};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long nobody has driven before the helper does; also its tick.
const IDLE: Duration = Duration::from_millis(10);
/// The longest tick, while somebody else drives.
const TICK_MAX: Duration = Duration::from_millis(100);

/// The thread and the word that ends it.
pub(crate) struct Helper {
    shared: Weak<Shared>,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Helper> {
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let (its_end, its_shared) = (end.clone(), shared.clone());
        let thread =
            std::thread::Builder::new().name("kiban-vi".into()).spawn(move || help(&its_shared, &its_end))?;
        Ok(Helper { shared: Arc::downgrade(shared), end, thread: Some(thread) })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        *lock(&self.end.0) = true;
        self.end.1.notify_all();
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

fn help(shared: &Shared, end: &(Mutex<bool>, Condvar)) {
    let mut waiting: Option<Waiting> = None;
    let mut tick = IDLE;
    loop {
        let guard = lock(&end.0);
        if *guard {
            return;
        }
        let (guard, _) = end.1.wait_timeout(guard, tick).unwrap_or_else(std::sync::PoisonError::into_inner);
        if *guard {
            return;
        }
        drop(guard);
        let idle = shared.clock.now().since(Instant::from_nanos(shared.driven_at.load(Ordering::Relaxed)));
        if idle < IDLE {
            tick = IDLE;
            continue;
        }
        let Ok(_driver) = shared.driver.try_lock() else {
            tick = (tick * 2).min(TICK_MAX);
            continue;
        };
        tick = IDLE;
        shared.helper_drives.store(true, Ordering::Release);
        let waiting = waiting.get_or_insert_with(|| Waiting::new(Wait::Interrupt, shared.clock));
        // Until somebody takes over.
        let mut look = |_: &mut Core| (!shared.helper_drives.load(Ordering::Acquire)).then_some(());
        let _ = shared.drive_until(waiting, Instant::NEVER, &mut look);
        drop(_driver);
        shared.call_followers();
    }
}
