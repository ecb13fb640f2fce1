//! Pings that have not been answered, and the clients that wait for their results.

use crate::requests::Answer;
use kiban_base::Instant;
use tokio::sync::oneshot;

/// A ping: what identifies its reply, when it times out, and its client.
struct Ping<K> {
    key: K,
    until: Instant,
    sender: oneshot::Sender<Answer>,
}

/// Pings that have not been answered.
pub(crate) struct Pings<K>(Vec<Ping<K>>);

impl<K> Default for Pings<K> {
    fn default() -> Pings<K> {
        Pings(Vec::new())
    }
}

impl<K> Pings<K> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a ping that has been sent.
    pub(crate) fn add(&mut self, key: K, until: Instant, sender: oneshot::Sender<Answer>) {
        self.0.push(Ping { key, until, sender });
    }

    /// Answers the ping for which `is_it` holds, if there is one.
    pub(crate) fn answer(&mut self, is_it: impl Fn(&K) -> bool, answer: impl FnOnce(&K) -> Answer) {
        if let Some(index) = self.0.iter().position(|ping| is_it(&ping.key)) {
            self.remove(index, answer);
        }
    }

    /// Returns when the next ping times out.
    pub(crate) fn deadline(&self) -> Instant {
        self.0.iter().map(|ping| ping.until).min().unwrap_or(Instant::NEVER)
    }

    /// Answers the pings that have timed out.
    pub(crate) fn expire(&mut self, now: Instant, answer: impl Fn(&K) -> Answer) {
        while let Some(index) = self.0.iter().position(|ping| ping.until <= now) {
            self.remove(index, &answer);
        }
    }

    fn remove(&mut self, index: usize, answer: impl FnOnce(&K) -> Answer) {
        let Ping { key, sender, .. } = self.0.swap_remove(index);
        // The client may have disconnected.
        drop(sender.send(answer(&key)));
    }
}
