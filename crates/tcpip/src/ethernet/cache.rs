//! The neighbour cache: MAC addresses and reachability of IPv4 and IPv6 neighbours (RFC 826, RFC 4861 §7.3).
//!
//! ```text
//!              a packet             an answer                30 s (±50 %)
//!   (nothing) ─────────► INCOMPLETE ────────► REACHABLE ───────────────► STALE
//!       ▲                   │ 3 tries             ▲                        │ a packet
//!       │◄──────────────────┘                     │ an answer              ▼
//!       │           3 tries                       ├───────────────────── DELAY
//!       └────────────────────────────────────── PROBE ◄───────────────────┘ 5 s
//! ```
//!
//! Purpose          send at most one solicitation per second and neighbour, however many packets wait for the
//!                  answer (RFC 1122 §2.3.2.1), and notice a neighbour that has moved or gone.
//! Updates          only an answer to our own solicitation makes a neighbour reachable. Another message may
//!                  change the MAC address of an existing entry, but then the entry becomes stale and is
//!                  probed when next used. ARP entries have the same states.
//! Limits           there are at most `neighbours_max` entries. The least recently used one is evicted, but
//!                  unreachable ones go first. At most `queue_max` packets wait per neighbour; beyond that,
//!                  the neighbour's oldest packet is dropped. At most `queued_max` packets wait in all;
//!                  beyond that, the new packet is dropped.

use super::config::NeighbourConfig;
use super::counters::EthernetCounters;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use kiban_base::ethernet::Mac;
use kiban_base::{Instant, Pdu, SecureRng};

/// Reachability of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The neighbour is being resolved; its MAC address is unknown.
    Incomplete,
    /// It has answered recently.
    Reachable,
    /// The MAC address is known but has not been confirmed recently.
    Stale,
    /// The stale entry is in use again; the neighbour is probed after a delay.
    Delay,
    /// Being probed.
    Probe,
}

struct Neighbour {
    /// Not valid while `reach` is `Incomplete`.
    mac: Mac,
    reach: Reach,
    /// When the state ends, or the next solicitation is due.
    until: Instant,
    tries: u8,
    is_router: bool,
    used: Instant,
    queue: VecDeque<Pdu>,
}

/// The result of resolving a next hop.
pub(super) enum Resolved {
    /// The MAC address is known.
    Known(Mac, Pdu),
    /// The packet was queued. If `ask` is set, a solicitation must be sent now.
    Waits { ask: bool },
}

/// A timer event of the cache.
pub(super) enum CacheEvent {
    /// Send a solicitation for a neighbour by broadcast or multicast, or by unicast if a MAC address is
    /// given.
    Ask(IpAddr, Option<Mac>),
    /// A neighbour did not answer and was removed; `queue` holds the packets that waited for it. If
    /// `was_known` is set, its MAC address was known, so the neighbour may have moved; the next packet to it
    /// starts a new resolution.
    Gone { neighbour: IpAddr, was_router: bool, was_known: bool, queue: VecDeque<Pdu> },
}

/// Information about a neighbour's MAC address, from a received message.
#[derive(Clone, Copy, Debug)]
pub struct Advertised {
    pub(super) mac: Option<Mac>,
    /// Whether the message answers one of our solicitations.
    pub(super) solicited: bool,
    /// Whether the message overrides the cached MAC address.
    pub(super) overrides: bool,
    /// The router flag, if the message carries one.
    pub(super) router: Option<bool>,
    /// Whether to create an entry if there is none, because the neighbour is communicating with us.
    pub(super) learn: bool,
}

/// The result of an update.
#[derive(Default)]
pub(super) struct Learned {
    /// Packets that can leave now.
    pub(super) queue: VecDeque<Pdu>,
    /// The neighbour was a router and no longer is.
    pub(super) no_router: bool,
}

/// The neighbours of one link.
pub(super) struct Cache {
    known: BTreeMap<IpAddr, Neighbour>,
    queued: usize,
    /// No entry's timer is due before this time.
    next: Instant,
    /// Base of the randomised time for which an answer keeps a neighbour reachable.
    pub(super) reachable: Duration,
    pub(super) retransmit: Duration,
}

impl Cache {
    pub(super) fn new(config: &NeighbourConfig) -> Cache {
        Cache {
            known: BTreeMap::new(),
            queued: 0,
            next: Instant::NEVER,
            reachable: config.reachable,
            retransmit: config.retransmit,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn reach(&self, neighbour: IpAddr) -> Option<Reach> {
        self.known.get(&neighbour).map(|known| known.reach)
    }

    /// Returns what other shards would be informed about: the MAC address, the reachability, and whether the
    /// neighbour is a router.
    pub(super) fn state(&self, neighbour: IpAddr) -> Option<(Mac, Reach, bool)> {
        self.known.get(&neighbour).map(|known| (known.mac, known.reach, known.is_router))
    }

    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        self.next
    }

    fn make_room(&mut self, config: &NeighbourConfig, counters: &mut EthernetCounters) {
        while self.known.len() >= config.neighbours_max.max(1) {
            let rank = |(_, known): &(&IpAddr, &Neighbour)| (known.reach == Reach::Reachable, known.used);
            let Some(oldest) = self.known.iter().min_by_key(rank).map(|(address, _)| *address) else {
                return;
            };
            if let Some(gone) = self.known.remove(&oldest) {
                self.queued -= gone.queue.len();
                counters.unresolved_discards += gone.queue.len() as u64;
                counters.neighbours_evicted += 1;
            }
        }
    }

    /// Resolves the next hop of a packet, or queues the packet until it is resolved.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        next: IpAddr,
        pdu: Pdu,
        now: Instant,
        config: &NeighbourConfig,
        counters: &mut EthernetCounters,
    ) -> Resolved {
        match self.look_up(next, now, config, counters) {
            Ok(mac) => Resolved::Known(mac, pdu),
            Err(ask) => {
                self.wait(next, pdu, config, counters);
                Resolved::Waits { ask }
            }
        }
    }

    /// Returns the MAC address of a neighbour that is to be used now. If it is unknown, the error says
    /// whether a solicitation must be sent now.
    #[inline]
    pub(super) fn look_up(
        &mut self,
        next: IpAddr,
        now: Instant,
        config: &NeighbourConfig,
        counters: &mut EthernetCounters,
    ) -> Result<Mac, bool> {
        if let Some(known) = self.known.get_mut(&next) {
            known.used = now;
            if known.reach == Reach::Incomplete {
                return Err(false);
            }
            if known.reach == Reach::Stale {
                known.reach = Reach::Delay;
                known.until = now + config.delay;
                self.next = self.next.min(known.until);
            }
            return Ok(known.mac);
        }
        self.make_room(config, counters);
        let until = now + self.retransmit;
        let neighbour = Neighbour {
            mac: Mac::default(),
            reach: Reach::Incomplete,
            until,
            tries: 1,
            is_router: false,
            used: now,
            queue: VecDeque::new(),
        };
        self.known.insert(next, neighbour);
        self.next = self.next.min(until);
        Err(true)
    }

    fn wait(&mut self, next: IpAddr, pdu: Pdu, config: &NeighbourConfig, counters: &mut EthernetCounters) {
        let Some(known) = self.known.get_mut(&next) else { return };
        // RFC 4861 §7.2.2: if the queue is full, the new packet replaces the oldest.
        if known.queue.len() >= config.queue_max.max(1) {
            known.queue.pop_front();
            self.queued -= 1;
            counters.unresolved_discards += 1;
        }
        if self.queued >= config.queued_max {
            counters.unresolved_discards += 1;
            return;
        }
        self.queued += 1;
        known.queue.push_back(pdu);
    }

    /// Handles negative advice from an upper layer (RFC 1122 §3.3.1.4): makes the entry stale, so that the
    /// neighbour is probed when next used.
    pub(super) fn negative_advice(&mut self, neighbour: IpAddr) {
        if let Some(known) = self.known.get_mut(&neighbour)
            && known.reach == Reach::Reachable
        {
            (known.reach, known.until) = (Reach::Stale, Instant::NEVER);
        }
    }

    /// Updates the cache with information about `neighbour` (RFC 4861 §7.2.3, §7.2.5, appendix C; RFC 826).
    pub(super) fn update(
        &mut self,
        neighbour: IpAddr,
        word: Advertised,
        now: Instant,
        config: &NeighbourConfig,
        rng: &mut SecureRng,
        counters: &mut EthernetCounters,
    ) -> Learned {
        let reachable = now + self.reachable.mul_f64(0.5 + rng.unit());
        if !self.known.contains_key(&neighbour) {
            let (Some(mac), true) = (word.mac, word.learn) else { return Learned::default() };
            self.make_room(config, counters);
            let known = Neighbour {
                mac,
                reach: Reach::Stale,
                until: Instant::NEVER,
                tries: 0,
                is_router: word.router == Some(true),
                used: now,
                queue: VecDeque::new(),
            };
            self.known.insert(neighbour, known);
            return Learned::default();
        }
        let known = self.known.get_mut(&neighbour).expect("it is there");
        let was_router = known.is_router;
        let mut learned = Learned::default();
        if known.reach == Reach::Incomplete {
            let Some(mac) = word.mac else { return learned };
            known.mac = mac;
            known.is_router = word.router.unwrap_or(was_router);
            (known.reach, known.until) =
                if word.solicited { (Reach::Reachable, reachable) } else { (Reach::Stale, Instant::NEVER) };
            learned.queue = core::mem::take(&mut known.queue);
            self.queued -= learned.queue.len();
        } else {
            let moved = word.mac.is_some_and(|mac| mac != known.mac);
            if moved && !word.overrides {
                // RFC 4861 §7.2.5: another MAC address without the override flag does not replace the cached
                // one.
                if known.reach == Reach::Reachable {
                    (known.reach, known.until) = (Reach::Stale, Instant::NEVER);
                }
                return learned;
            }
            if let Some(mac) = word.mac.filter(|_| moved) {
                counters.neighbours_moved += 1;
                known.mac = mac;
            }
            if word.solicited {
                (known.reach, known.until) = (Reach::Reachable, reachable);
            } else if moved {
                (known.reach, known.until) = (Reach::Stale, Instant::NEVER);
            }
            known.is_router = word.router.unwrap_or(was_router);
        }
        known.tries = 0;
        self.next = self.next.min(known.until);
        learned.no_router = was_router && !known.is_router;
        learned
    }

    /// Handles the timers that are due at `now`.
    pub(super) fn expire(&mut self, now: Instant, config: &NeighbourConfig) -> Vec<CacheEvent> {
        let mut passed = Vec::new();
        if self.next > now {
            return passed;
        }
        let due: Vec<IpAddr> =
            self.known.iter().filter(|(_, known)| known.until <= now).map(|(address, _)| *address).collect();
        for address in due {
            let Some(known) = self.known.get_mut(&address) else { continue };
            let most = match known.reach {
                Reach::Reachable => {
                    (known.reach, known.until) = (Reach::Stale, Instant::NEVER);
                    continue;
                }
                Reach::Stale => {
                    known.until = Instant::NEVER;
                    continue;
                }
                Reach::Delay => {
                    (known.reach, known.tries) = (Reach::Probe, 0);
                    config.unicast_solicits
                }
                Reach::Probe => config.unicast_solicits,
                Reach::Incomplete => config.multicast_solicits,
            };
            if known.tries >= most {
                let gone = self.known.remove(&address).expect("it is there");
                self.queued -= gone.queue.len();
                passed.push(CacheEvent::Gone {
                    neighbour: address,
                    was_router: gone.is_router,
                    was_known: gone.reach != Reach::Incomplete,
                    queue: gone.queue,
                });
            } else {
                known.tries += 1;
                known.until = now + self.retransmit;
                let itself = (known.reach == Reach::Probe).then_some(known.mac);
                passed.push(CacheEvent::Ask(address, itself));
            }
        }
        self.next = self.known.values().map(|known| known.until).min().unwrap_or(Instant::NEVER);
        passed
    }
}
