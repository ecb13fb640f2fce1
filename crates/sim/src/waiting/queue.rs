//! The receive queue: arrivals consume descriptors, and the process reposts them.
//!
//! Level     when no descriptor is left, the level of the VI Architecture decides (version 1.0; see
//!           `kiban_vi`): unreliable delivery drops the packet, reliable delivery breaks the connection (at
//!           once or after a timeout), and reliable reception holds the sender until a descriptor is posted.
//! Held      packets that could not be sent wait at their sender, in order, and are then sent back to back at
//!           the link's rate.

use super::Arrivals;
use kiban_base::{Instant, loss_guard};
use std::collections::VecDeque;
use std::time::Duration;

/// A packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number, from zero.
    pub number: u64,
    /// The time at which the packet was scheduled to be sent.
    pub wanted: Instant,
}

/// A receive queue, as a process sees it.
pub trait ReceiveQueue {
    /// Advances the time to `until`; packets that arrive before then are queued.
    fn advance(&mut self, until: Instant);
    /// Returns when the next packet arrives if the process does nothing in the meantime. Called only when all
    /// descriptors are posted.
    fn next(&mut self) -> Option<Instant>;
    /// Takes the next packet that has arrived; its descriptor then belongs to the process.
    fn take(&mut self) -> Option<Packet>;
    /// Returns how long the process should poll before a sleep so that a stall loses nothing; zero if a stall
    /// cannot lose anything.
    fn loss_guard(&self) -> Duration;
    /// Reposts a descriptor. The time has been advanced to `now`.
    fn post(&mut self, now: Instant);
}

/// The behaviour when no descriptor is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The packet is lost.
    Unreliable,
    /// The sender is held back. If this takes longer than `patience`, the connection is lost.
    Delivery {
        /// How long the sender retries; zero as in the VI Architecture.
        patience: Duration,
    },
    /// The sender is held until a descriptor is posted.
    Reception,
}

/// The posted descriptors, and the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Receive descriptors.
    pub descriptors: usize,
    /// The reliability level.
    pub level: Level,
    /// How long a packet occupies the link.
    pub pace: Duration,
}

/// A receive queue that only counts descriptors, and its sender.
#[derive(Clone, Debug)]
pub struct Posted {
    posting: Posting,
    arrivals: Arrivals,
    /// The packet that is to be sent next.
    next: Option<Packet>,
    link_free: Instant,
    free: usize,
    ready: VecDeque<Packet>,
    /// Since when the sender has been blocked, if it is.
    refused: Option<Instant>,
    lost: Vec<u64>,
    broken: Option<Instant>,
    held: Duration,
}

impl Posted {
    /// Creates a queue whose descriptors are all posted.
    pub fn new(posting: Posting, mut arrivals: Arrivals) -> Posted {
        assert!(posting.descriptors > 0, "a queue without descriptors receives nothing");
        let next = arrivals.next().map(|wanted| Packet { number: 0, wanted });
        Posted {
            posting,
            arrivals,
            next,
            link_free: Instant::ZERO,
            free: posting.descriptors,
            ready: VecDeque::with_capacity(posting.descriptors),
            refused: None,
            lost: Vec::new(),
            broken: None,
            held: Duration::ZERO,
        }
    }

    /// Returns the packets that were lost.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// Returns when the connection was lost.
    pub fn connection_lost_at(&self) -> Option<Instant> {
        self.broken
    }

    /// Returns how long the sender was held, in total.
    pub fn held(&self) -> Duration {
        self.held
    }

    fn arrives_at(&self) -> Option<Instant> {
        self.next.map(|packet| packet.wanted.max(self.link_free))
    }

    fn pass(&mut self, packet: Packet) {
        let next = self.arrivals.next();
        self.next = next.map(|wanted| Packet { number: packet.number + 1, wanted });
    }

    fn break_off(&mut self, at: Instant) {
        (self.broken, self.next, self.refused) = (Some(at), None, None);
    }
}

impl ReceiveQueue for Posted {
    fn advance(&mut self, until: Instant) {
        if let Some(since) = self.refused {
            if let Level::Delivery { patience } = self.posting.level
                && until >= since + patience
            {
                self.held += patience;
                self.break_off(since + patience);
            }
            return;
        }
        while let Some(packet) = self.next {
            let at = packet.wanted.max(self.link_free);
            if at > until {
                return;
            }
            self.link_free = at + self.posting.pace;
            if let Some(free) = self.free.checked_sub(1) {
                self.free = free;
                self.ready.push_back(packet);
                self.pass(packet);
                continue;
            }
            match self.posting.level {
                Level::Unreliable => {
                    self.lost.push(packet.number);
                    self.pass(packet);
                }
                Level::Delivery { patience: Duration::ZERO } => self.break_off(at),
                Level::Delivery { .. } | Level::Reception => {
                    self.refused = Some(at);
                    return self.advance(until);
                }
            }
        }
    }

    fn next(&mut self) -> Option<Instant> {
        self.arrives_at()
    }

    fn take(&mut self) -> Option<Packet> {
        self.ready.pop_front()
    }

    fn loss_guard(&self) -> Duration {
        match self.posting.level {
            Level::Unreliable => loss_guard(self.posting.descriptors),
            Level::Delivery { .. } | Level::Reception => Duration::ZERO,
        }
    }

    fn post(&mut self, now: Instant) {
        self.free += 1;
        if let Some(since) = self.refused.take() {
            self.held += now.since(since);
            // The packet is retransmitted as soon as the link is free, but not before now.
            self.link_free = self.link_free.max(now);
        }
    }
}
