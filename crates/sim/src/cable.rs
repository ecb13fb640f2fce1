//! One direction of a cable: packets, or Ethernet frames, under way between two boards' packet ports.
//!
//! Goal      what a path does to packets: a rate, a queue in front of it, a length, harm. The same for IP packets and frames.
//! Way       a packet that a board sends waits for those before it (`packets_max`; what finds the queue full is dropped
//!           and counted), takes its bits' time on the line, travels `delay`, and meets harm on the way, so that a lost packet has
//!           taken its time as well.
//! Copies    a packet leaves its board's memory when it is sent and enters the other's when it arrives, as with a real
//!           port: what is long under way keeps nobody's pages. A receiver without memory loses it (`starved`).
//! Exact     the time on the line is kept to the fraction of a nanosecond while the line is busy.
//! Left out  a port is never told that the line is busy: the queue stands here, as in a router, and drops at its tail. A cable
//!           has two ends: a hub is not built.

use crate::tap::Tap;
use kiban_board::harm::{Harm, HarmCounters, Harmful};
use kiban_board::pace::Pace;
use kiban_ground::{Instant, Memory, Pdu, SimRng};
use std::collections::VecDeque;
use std::time::Duration;

/// What an Ethernet frame takes on the line beside its bytes: preamble 8, FCS 4, gap 12 (IEEE 802.3 §3.1.1, §4.4.2).
pub const ETHERNET_FRAMING_BYTES: usize = 24;

kiban_ground::counters! {
    /// What happened on one direction of a cable. What harm did is in [`HarmCounters`].
    pub struct CableCounters {
        /// Packets that a board has sent.
        packets,
        /// Their bytes.
        bytes,
        /// Packets that found the queue full.
        queue_full,
        /// Packets that arrived where there was no memory for them.
        starved,
    }
}

/// What a cable is like, in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CableConfig {
    /// The line's rate, bit/s; at least 1.
    pub bits_per_second: u64,
    /// How long a packet travels: see [`delay_of`](crate::delay_of) for a length in metres.
    pub delay: Duration,
    /// Packets that wait for the line at most, the one on the line not counted.
    pub packets_max: usize,
    /// Bytes that each packet takes on the line beside its own: [`ETHERNET_FRAMING_BYTES`].
    pub framing_bytes: usize,
    /// What it does to packets.
    pub harm: Harm,
}

impl CableConfig {
    /// A line for bare packets: nothing beside their bytes, a queue of 1000, no harm.
    pub fn ip(bits_per_second: u64, delay: Duration) -> CableConfig {
        CableConfig { bits_per_second, delay, packets_max: 1000, framing_bytes: 0, harm: Harm::NONE }
    }

    /// A cLAN-like link as paper \[4\] found it: 100 MB/s, 7 us from host to host.
    pub fn clan() -> CableConfig {
        CableConfig { packets_max: 4, ..CableConfig::ip(800_000_000, Duration::from_micros(7)) }
    }

    /// The same for Ethernet: preamble, FCS and gap take their time.
    pub fn ethernet(bits_per_second: u64, delay: Duration) -> CableConfig {
        CableConfig { framing_bytes: ETHERNET_FRAMING_BYTES, ..CableConfig::ip(bits_per_second, delay) }
    }
}

/// One direction of a cable at work.
#[derive(Debug)]
pub struct Cable {
    config: CableConfig,
    link_type: u32,
    pace: Pace,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    harm: Harmful,
    tap: Option<Tap>,
    counters: CableCounters,
}

impl Cable {
    /// A cable; `link_type` is what captures of it say.
    pub(crate) fn new(config: CableConfig, link_type: u32, chance: SimRng) -> Cable {
        Cable {
            config,
            link_type,
            pace: Pace::default(),
            under_way: VecDeque::new(),
            harm: Harmful::new(config.harm, chance),
            tap: None,
            counters: CableCounters::default(),
        }
    }

    /// What it is like now.
    pub fn config(&self) -> &CableConfig {
        &self.config
    }

    /// What it is like for packets that are sent from now on: a path that changes, an hour without light.
    pub fn set_config(&mut self, config: CableConfig) {
        self.config = config;
        self.harm.set(config.harm);
    }

    /// Puts a tap on the cable: it sees what arrives. Captures of IP ports have raw IP packets, those of Ethernet ports
    /// frames.
    ///
    /// # Panics
    /// When the tap has begun on a line of another kind.
    pub fn set_tap(&mut self, mut tap: Tap) {
        tap.begin(self.link_type);
        self.tap = Some(tap);
    }

    /// Takes the tap off.
    pub fn take_tap(&mut self) -> Option<Tap> {
        self.tap.take()
    }

    /// What has happened so far.
    pub fn counters(&self) -> &CableCounters {
        &self.counters
    }

    /// What harm has done to packets.
    pub fn harm_counters(&self) -> &HarmCounters {
        self.harm.counters()
    }

    /// A board sends a packet.
    pub(crate) fn send(&mut self, pdu: &Pdu, now: Instant) {
        let Some(at) = self.admit(pdu.len(), now) else { return };
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.runs().for_each(|run| bytes.extend_from_slice(run));
        self.travel(at, bytes);
    }

    /// A board sends a packet that its link fetched.
    pub(crate) fn send_bytes(&mut self, bytes: Vec<u8>, now: Instant) {
        if let Some(at) = self.admit(bytes.len(), now) {
            self.travel(at, bytes);
        }
    }

    /// When the queue has room, for links that fetch no more than fits.
    pub(crate) fn room_at(&mut self, now: Instant) -> Instant {
        self.pace.room_at(self.config.packets_max, now)
    }

    /// Packets that wait for the line, the one on it not counted.
    pub(crate) fn waiting(&mut self, now: Instant) -> usize {
        self.pace.waiting(now)
    }

    /// When a packet will arrive; nothing when it found the queue full.
    fn admit(&mut self, length: usize, now: Instant) -> Option<Instant> {
        let CableConfig { bits_per_second, packets_max, framing_bytes, delay, .. } = self.config;
        self.counters.packets += 1;
        self.counters.bytes += length as u64;
        let left = self.pace.admit(length + framing_bytes, bits_per_second, packets_max, now);
        self.counters.queue_full += u64::from(left.is_none());
        Some(left? + delay)
    }

    fn travel(&mut self, at: Instant, bytes: Vec<u8>) {
        let Cable { under_way, harm, .. } = self;
        harm.meet(at, bytes, &mut |at, bytes| {
            // What was held back stands behind those that overtook it.
            let place = match under_way.back() {
                Some(last) if last.0 > at => under_way.partition_point(|packet| packet.0 <= at),
                _ => under_way.len(),
            };
            under_way.insert(place, (at, bytes));
        });
    }

    /// When the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Instant {
        self.under_way.front().map_or(Instant::NEVER, |packet| packet.0)
    }

    /// What has arrived by `now`, as bytes.
    pub(crate) fn arrive_bytes(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_arrival() > now {
            return None;
        }
        let (at, bytes) = self.under_way.pop_front()?;
        if let Some(tap) = &mut self.tap {
            tap.see_packet(at, &bytes);
        }
        Some(bytes)
    }

    /// What has arrived by `now` enters a board's memory.
    pub(crate) fn arrive(&mut self, now: Instant, memory: &mut Memory, out: &mut VecDeque<Pdu>) {
        while let Some(bytes) = self.arrive_bytes(now) {
            match lay_down(&bytes, memory) {
                Some(pdu) => out.push_back(pdu),
                None => self.counters.starved += 1,
            }
        }
    }
}

/// A PDU of what has arrived, in receive pages of its own; nothing when there are none.
fn lay_down(bytes: &[u8], memory: &mut Memory) -> Option<Pdu> {
    let mut pdu = memory.blocks.take()?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let slice = memory.receive.take()?.append(rest)?;
        rest = &rest[slice.len()..];
        pdu.push_body(slice).ok()?;
    }
    Some(pdu)
}
