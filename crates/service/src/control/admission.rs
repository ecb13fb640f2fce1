//! Admission of clients: a limited number at a time; an idle client is disconnected to admit a new one.
//!
//! Rule      first the client that has waited longest without sending any request; then the one that has sent
//!           requests before and has been idle, or has not read its answer, for the longest time. Clients
//!           that are being answered are never disconnected.
//! Timeouts  are passed with each wait for a client.

use kiban_os::lock;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The clients that are admitted, up to a limit.
pub(super) struct Admission {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    number: u64,
    slots: Vec<Slot>,
}

struct Slot {
    number: u64,
    has_asked: bool,
    /// Since when the client has been idle; `None` while it is being answered.
    waits_since: Option<Instant>,
    /// Dropped with the slot, which notifies the client's task.
    _notify: oneshot::Sender<()>,
}

/// The slot of one client; dropping it frees the slot.
pub(super) struct Admitted {
    admission: Arc<Admission>,
    number: u64,
    gone: oneshot::Receiver<()>,
}

impl Admission {
    pub(super) fn new(most: usize) -> Arc<Admission> {
        Arc::new(Admission { most, taken: Mutex::default() })
    }

    /// Takes a slot for a new client, which may disconnect an idle one; `None` if all clients are being
    /// answered.
    pub(super) fn take(self: &Arc<Admission>) -> Option<Admitted> {
        let mut taken = lock(&self.taken);
        if taken.slots.len() >= self.most {
            let silent = taken.slots.iter().enumerate();
            let silent = silent.filter_map(|(at, slot)| Some((slot.has_asked, slot.waits_since?, at)));
            let (_, _, at) = silent.min()?;
            taken.slots.swap_remove(at);
        }
        taken.number += 1;
        let number = taken.number;
        let (notify, gone) = oneshot::channel();
        let waits_since = Some(Instant::now());
        taken.slots.push(Slot { number, has_asked: false, waits_since, _notify: notify });
        Some(Admitted { admission: self.clone(), number, gone })
    }
}

impl Admitted {
    /// Waits for an action of the client.
    ///
    /// # Errors
    /// The client took longer than `patience`, was disconnected for another one, or its own I/O error.
    pub(super) async fn wait_for<T>(
        &mut self,
        patience: Duration,
        caller: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        self.set(Some(Instant::now()));
        let done = tokio::select! {
            _ = &mut self.gone => Err(io::Error::other("disconnected for another client")),
            done = timeout(patience, caller) => done.unwrap_or_else(|_| {
                let seconds = patience.as_secs();
                let message = format!("no request, or answer not read, within {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }),
        };
        self.set(None);
        done
    }

    fn set(&self, waits_since: Option<Instant>) {
        let mut taken = lock(&self.admission.taken);
        if let Some(slot) = taken.slots.iter_mut().find(|slot| slot.number == self.number) {
            slot.has_asked |= waits_since.is_none();
            slot.waits_since = waits_since;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut taken = lock(&self.admission.taken);
        taken.slots.retain(|slot| slot.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a client has lost its slot.
    fn has_gone(admitted: &Admitted) -> bool {
        let taken = lock(&admitted.admission.taken);
        !taken.slots.iter().any(|slot| slot.number == admitted.number)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn clients_without_a_request_are_evicted_first_and_clients_being_answered_never() {
        let long = Duration::from_secs(60);
        let admission = Admission::new(3);
        let mut answered = admission.take().expect("a slot");
        answered.wait_for(long, async { Ok(()) }).await.expect("a request was sent");
        let mut between = admission.take().expect("a slot");
        between.wait_for(long, async { Ok(()) }).await.expect("a request was sent");
        between.set(Some(Instant::now()));
        let mut silent = admission.take().expect("a slot");
        // The client that has never sent a request goes, not the first or the one that has been idle longest.
        let mut other = admission.take().expect("an idle client is evicted");
        assert!(has_gone(&silent) && !has_gone(&between) && !has_gone(&answered));
        let evicted = silent.wait_for(long, std::future::pending::<io::Result<()>>()).await;
        assert!(evicted.is_err());
        other.wait_for(long, async { Ok(()) }).await.expect("a request was sent");
        // Now only the client between two requests can go.
        let last = admission.take().expect("an idle client is evicted");
        assert!(has_gone(&between) && !has_gone(&other));
        last.set(None);
        assert!(admission.take().is_none(), "all clients are being answered");
        drop(last);
        assert!(admission.take().is_some(), "a slot is free");
    }
}
