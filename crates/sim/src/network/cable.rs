//! One direction of a cable: carries packets or Ethernet frames between the packet ports of two boards.
//!
//! Purpose          models a path with a rate, a queue in front of it, a length and impairments, alike for IP
//!                  packets and frames.
//! Path             a packet that a board sends waits for those before it. (At most `packets_max` wait;
//!                  further ones are dropped and counted.) It then occupies the line for its transmission
//!                  time and travels for `delay`. Impairments apply on the way, so that a lost packet has
//!                  used its line time as well.
//! Copies           as with a real port, a packet leaves its board's memory when it is sent and enters the
//!                  other board's memory when it arrives: packets in transit hold no pages. If the receiver
//!                  has no memory, the packet is lost (`no_memory`).
//! Precision        times on the line are exact to a fraction of a nanosecond while the line is busy.
//! Back-pressure    only if configured ([`CableConfig::holds`]): otherwise a port does not learn that the
//!                  line is busy, because the tail-drop queue is in the cable, as in a router.
//! ECN              if configured, a board's packet that finds a long queue is marked (RFC 3168).
//! Middlebox        a function may watch, change or drop packets before they enter the queue: an analyser at
//!                  the sender, a policer, a firewall that removes options.
//! Not implemented  hubs: a cable joins two ports.

use crate::network::ecn::{self, EcnConfig};
use crate::network::tap::Tap;
use kiban_base::{Instant, Memory, Pdu, SimRng};
use kiban_board::impairment::{Impairment, ImpairmentConfig, ImpairmentCounters};
use kiban_board::pace::Pacer;
use kiban_capture::LINK_TYPE_ETHERNET;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes that each Ethernet frame takes on the line in addition to its content: preamble 8, FCS 4, gap 12
/// (IEEE 802.3 §3.1.1, §4.4.2).
pub const ETHERNET_FRAMING_BYTES: usize = 24;

kiban_base::counters! {
    /// Counters of one direction of a cable. Impairments are counted in [`ImpairmentCounters`].
    pub struct CableCounters {
        /// Packets that a board has sent, without those that a middlebox dropped.
        packets,
        /// Bytes of the packets sent.
        bytes,
        /// Packets dropped because the queue was full.
        queue_full,
        /// Packets lost on arrival because there was no memory.
        no_memory,
        /// Packets marked by ECN.
        ce_marked,
        /// Packets that a middlebox dropped.
        middlebox_dropped,
    }
}

/// Properties of one direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CableConfig {
    /// The line's rate, bit/s; at least 1.
    pub bits_per_second: u64,
    /// Propagation delay; [`delay_of`](crate::delay_of) converts a length in metres.
    pub delay: Duration,
    /// Maximum number of packets that wait for the line, not counting the one on the line.
    pub packets_max: usize,
    /// Whether a board's port is held while the queue is full, so that packets wait in the port instead of
    /// being dropped here.
    pub holds: bool,
    /// Bytes that each packet takes on the line in addition to its content, such as
    /// [`ETHERNET_FRAMING_BYTES`].
    pub framing_bytes: usize,
    /// The impairments.
    pub impairment: ImpairmentConfig,
    /// When packets that are capable of ECN are marked: by the number of packets that wait for the line.
    pub ecn: Option<EcnConfig>,
}

impl CableConfig {
    /// Returns a line for bare packets: no framing, a queue of 1000, no impairments.
    pub fn ip(bits_per_second: u64, delay: Duration) -> CableConfig {
        CableConfig {
            bits_per_second,
            delay,
            packets_max: 1000,
            holds: false,
            framing_bytes: 0,
            impairment: ImpairmentConfig::NONE,
            ecn: None,
        }
    }

    /// Returns a cLAN-like link as measured in paper \[4\]: 100 MB/s, 7 us host to host.
    pub fn clan() -> CableConfig {
        CableConfig { packets_max: 4, ..CableConfig::ip(800_000_000, Duration::from_micros(7)) }
    }

    /// Returns an Ethernet line: preamble, FCS and gap take line time.
    pub fn ethernet(bits_per_second: u64, delay: Duration) -> CableConfig {
        CableConfig { framing_bytes: ETHERNET_FRAMING_BYTES, ..CableConfig::ip(bits_per_second, delay) }
    }
}

/// Handles a packet that a board has sent, before it enters the queue, and may change it. Returns whether the
/// packet goes on; if not, it is dropped and counted.
pub type Middlebox = Box<dyn FnMut(Instant, &mut Vec<u8>) -> bool>;

/// One direction of a cable in a world.
pub struct Cable {
    config: CableConfig,
    link_type: u32,
    pace: Pacer,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    impairment: Impairment,
    marking: SimRng,
    tap: Option<Tap>,
    middlebox: Option<Middlebox>,
    counters: CableCounters,
}

impl Cable {
    /// Returns a cable; `link_type` is the link type of its captures.
    pub(crate) fn new(config: CableConfig, link_type: u32, rng: SimRng) -> Cable {
        Cable {
            config,
            link_type,
            pace: Pacer::default(),
            under_way: VecDeque::new(),
            marking: rng.fork(1),
            impairment: Impairment::new(config.impairment, rng),
            tap: None,
            middlebox: None,
            counters: CableCounters::default(),
        }
    }

    /// Returns the current properties.
    pub fn config(&self) -> &CableConfig {
        &self.config
    }

    /// Changes the properties for packets sent from now on, for example for a path change or an outage.
    pub fn set_config(&mut self, config: CableConfig) {
        self.config = config;
        self.impairment.set(config.impairment);
    }

    /// Puts a tap on the cable, which records arrivals. Captures of IP ports contain raw IP packets; captures
    /// of Ethernet ports contain frames.
    ///
    /// # Panics
    /// If the tap has been used on a line or cable of another link type.
    pub fn set_tap(&mut self, mut tap: Tap) {
        tap.begin(self.link_type);
        self.tap = Some(tap);
    }

    /// Removes and returns the tap.
    pub fn take_tap(&mut self) -> Option<Tap> {
        self.tap.take()
    }

    /// Puts a middlebox in front of the cable's queue, in place of the previous one.
    pub fn set_middlebox(&mut self, middlebox: Middlebox) {
        self.middlebox = Some(middlebox);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &CableCounters {
        &self.counters
    }

    /// Returns the counters of impairments.
    pub fn impairment_counters(&self) -> &ImpairmentCounters {
        self.impairment.counters()
    }

    /// Sends a board's packet.
    pub(crate) fn send(&mut self, pdu: &Pdu, now: Instant) {
        let marks = self.config.ecn.is_some_and(|ecn| {
            let waiting = self.pace.waiting(now);
            ecn.marks(waiting, &mut self.marking)
        });
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.runs().for_each(|run| bytes.extend_from_slice(run));
        if self.middlebox.as_mut().is_some_and(|middlebox| !middlebox(now, &mut bytes)) {
            self.counters.middlebox_dropped += 1;
            return;
        }
        let Some(at) = self.admit(bytes.len(), now) else { return };
        if marks {
            let is_frame = self.link_type == LINK_TYPE_ETHERNET;
            let is_marked = if is_frame { ecn::mark(&mut bytes) } else { ecn::mark_bare(&mut bytes) };
            self.counters.ce_marked += u64::from(is_marked);
        }
        self.travel(at, bytes);
    }

    /// Sends a packet that the cable has fetched from a board. Returns when it will have left the queue and
    /// the sender; `None` if the queue is full.
    pub(crate) fn send_bytes(&mut self, bytes: Vec<u8>, now: Instant) -> Option<Instant> {
        let at = self.admit(bytes.len(), now)?;
        let delay = self.config.delay;
        self.travel(at, bytes);
        Some(Instant::ZERO + at.since(Instant::ZERO + delay))
    }

    /// Sends a frame of flow control, which does not wait for those in the queue. Its time on the line is not
    /// taken from theirs.
    pub(crate) fn send_express(&mut self, bytes: Vec<u8>, now: Instant) {
        let CableConfig { bits_per_second, framing_bytes, delay, .. } = self.config;
        self.counters.packets += 1;
        self.counters.bytes += bytes.len() as u64;
        let bits = 8 * (bytes.len() + framing_bytes) as u128;
        let nanos = bits * 1_000_000_000 / u128::from(bits_per_second.max(1));
        self.travel(now + Duration::from_nanos(nanos as u64) + delay, bytes);
    }

    /// Returns whether the sending port must be held.
    pub(crate) fn must_hold(&mut self, now: Instant) -> bool {
        self.config.holds && self.room_at(now) > now
    }

    /// Returns when the queue will have room again, for cables that fetch no more packets than fit.
    pub(crate) fn room_at(&mut self, now: Instant) -> Instant {
        self.pace.room_at(self.config.packets_max, now)
    }

    /// Returns the number of packets that wait for the line, not counting the one on it.
    pub(crate) fn waiting(&mut self, now: Instant) -> usize {
        self.pace.waiting(now)
    }

    /// Returns when a packet will arrive; `None` if the queue is full.
    fn admit(&mut self, length: usize, now: Instant) -> Option<Instant> {
        let CableConfig { bits_per_second, packets_max, framing_bytes, delay, .. } = self.config;
        self.counters.packets += 1;
        self.counters.bytes += length as u64;
        let left = self.pace.admit(length + framing_bytes, bits_per_second, packets_max, now);
        self.counters.queue_full += u64::from(left.is_none());
        Some(left? + delay)
    }

    fn travel(&mut self, at: Instant, bytes: Vec<u8>) {
        let Cable { under_way, impairment, .. } = self;
        impairment.apply_to_packet(at, bytes, &mut |at, bytes| {
            // A packet that was held back arrives after those that overtook it.
            let place = match under_way.back() {
                Some(last) if last.0 > at => under_way.partition_point(|packet| packet.0 <= at),
                _ => under_way.len(),
            };
            under_way.insert(place, (at, bytes));
        });
    }

    /// Returns when the next packet arrives.
    pub(crate) fn next_arrival(&self) -> Instant {
        self.under_way.front().map_or(Instant::NEVER, |packet| packet.0)
    }

    /// Returns the next packet that has arrived by `now`, as bytes.
    pub(crate) fn arrive_bytes(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_arrival() > now {
            return None;
        }
        let (at, bytes) = self.under_way.pop_front()?;
        if let Some(tap) = &mut self.tap {
            tap.record_packet(at, &bytes);
        }
        Some(bytes)
    }

    /// Moves packets that have arrived by `now` into a board's memory.
    pub(crate) fn arrive(&mut self, now: Instant, memory: &mut Memory, out: &mut VecDeque<Pdu>) {
        while let Some(bytes) = self.arrive_bytes(now) {
            self.lay_down(&bytes, memory, out);
        }
    }

    /// Copies a packet that has arrived into a board's memory. Without memory, it is lost.
    pub(crate) fn lay_down(&mut self, bytes: &[u8], memory: &mut Memory, out: &mut VecDeque<Pdu>) {
        match lay_down(bytes, memory) {
            Some(pdu) => out.push_back(pdu),
            None => self.counters.no_memory += 1,
        }
    }
}

/// Copies an arrived packet into receive pages; `None` if there are none.
fn lay_down(bytes: &[u8], memory: &mut Memory) -> Option<Pdu> {
    let mut pdu = memory.pdus.take()?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let slice = memory.receive.take()?.append(rest)?;
        rest = &rest[slice.len()..];
        pdu.push_body(slice).ok()?;
    }
    Some(pdu)
}

impl std::fmt::Debug for Cable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cable { config, counters, under_way, .. } = self;
        let mut line = f.debug_struct("Cable");
        line.field("config", config).field("counters", counters).field("under_way", &under_way.len()).finish()
    }
}
