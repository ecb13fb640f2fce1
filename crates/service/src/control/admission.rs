//! Admits a limited number of clients at a time; an idle client is disconnected to admit a new one.
//!
//! Order     Clients that have never sent a request are disconnected first, then clients that are idle
//!           between requests or have not read their answer. In each group, the client that has waited
//!           longest goes first. A client whose request is being executed is never disconnected.
//! Timeouts  The caller passes a timeout to each wait for a client.

use kiban_os::lock;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The admitted clients.
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
    /// When the client became idle; `None` while its request is being executed.
    waits_since: Option<Instant>,
    /// When the slot is dropped, this sender is dropped too, which wakes the client's task.
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

    /// Takes a slot for a new client. If none is free, disconnects an idle client. Returns `None` if the
    /// board is executing a request of every client.
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
    /// Waits until `caller`, which reads from or writes to the client, is complete.
    ///
    /// # Errors
    /// The client's I/O error; or the operation took longer than `patience`; or the client was disconnected
    /// to admit another one.
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
                let message = format!("the client sent no request, or did not read the answer, within \
                    {seconds} s");
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

    /// Returns whether a client has been disconnected to admit another one.
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
        // The client that has never sent a request is disconnected, rather than the client that came first or
        // the one that has been idle longest.
        let mut other = admission.take().expect("an idle client is evicted");
        assert!(has_gone(&silent) && !has_gone(&between) && !has_gone(&answered));
        let evicted = silent.wait_for(long, std::future::pending::<io::Result<()>>()).await;
        assert!(evicted.is_err());
        other.wait_for(long, async { Ok(()) }).await.expect("a request was sent");
        // Now only the client that is idle between two requests can be disconnected.
        let last = admission.take().expect("an idle client is evicted");
        assert!(has_gone(&between) && !has_gone(&other));
        last.set(None);
        assert!(admission.take().is_none(), "all clients are being answered");
        drop(last);
        assert!(admission.take().is_some(), "a slot is free");
    }
}
