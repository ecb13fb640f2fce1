//! One direction of a cable: a port with a line rate, a delay, and seeded impairments.

use super::station::Frame;
use core::time::Duration;
use kiban_base::{Instant, SimRng};
use kiban_tcpip::wire::tcp::Flags;
use std::collections::BTreeMap;

/// The properties of a cable. Impairments are probabilities per frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nature {
    pub(crate) delay: Duration,
    /// The line rate, bit/s; zero for no limit.
    pub(crate) rate: u64,
    /// Number of frames that the port can hold; zero for no limit.
    pub(crate) port_frames: usize,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    pub(crate) reordering: f64,
    /// Maximum extra delay of a reordered frame.
    pub(crate) reordering_delay: Duration,
    pub(crate) corruption: f64,
    /// Marks of frames that are capable of ECN.
    pub(crate) marking: f64,
    /// Corruption that escapes the checksum; used only by the canary.
    pub(crate) treason: f64,
}

pub(crate) struct Cable {
    pub(crate) nature: Nature,
    chance: SimRng,
    flying: BTreeMap<(Instant, u64), Frame>,
    sent: u64,
    free_at: Instant,
    /// The time at which all frames queued at the port have been sent.
    leaving: Vec<Instant>,
    /// Payload bytes sent, for computing rates.
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    /// Numbers (from 1) of the frames with payload that are dropped deliberately.
    pub(crate) doomed: Vec<u64>,
    with_payload: u64,
}

impl Cable {
    pub(crate) fn new(nature: Nature, chance: SimRng) -> Cable {
        Cable {
            nature,
            chance,
            flying: BTreeMap::new(),
            sent: 0,
            free_at: Instant::ZERO,
            leaving: Vec::new(),
            frames: 0,
            lost: 0,
            doomed: Vec::new(),
            with_payload: 0,
        }
    }

    /// Returns the number of frames for which the port has room.
    pub(crate) fn room(&mut self, now: Instant) -> usize {
        self.leaving.retain(|moment| *moment > now);
        match self.nature.port_frames {
            0 => usize::MAX >> 1,
            limit => limit.saturating_sub(self.leaving.len()),
        }
    }

    /// Returns when the port has room again.
    pub(crate) fn room_at(&self) -> Instant {
        self.leaving.iter().copied().min().unwrap_or(Instant::NEVER)
    }

    pub(crate) fn send(&mut self, mut frame: Frame, now: Instant) {
        let nature = self.nature;
        self.frames += 1;
        let mut left = now;
        if let Some(rate) = core::num::NonZero::new(nature.rate) {
            // The Ethernet and IP headers of a frame count too.
            let bits = (frame.bytes.len() as u64 + 40) * 8;
            let took = Duration::from_nanos(bits * 1_000_000_000 / rate);
            self.free_at = self.free_at.max(now) + took;
            self.leaving.push(self.free_at);
            left = self.free_at;
        }
        let mut arrival = left + nature.delay;
        if !frame.header().1.is_empty() {
            self.with_payload += 1;
            if self.doomed.contains(&self.with_payload) {
                self.lost += 1;
                return;
            }
        }
        if self.chance.happens(nature.loss) {
            self.lost += 1;
            return;
        }
        let (header, payload) = frame.header();
        if frame.traffic_class & 0b11 != 0 {
            // RFC 3168 §6.1.1, §6.1.4: neither SYNs nor pure ACKs are capable of ECN.
            assert!(!payload.is_empty() && !header.flags.has(Flags::SYN), "{header:?}");
            if self.chance.happens(nature.marking) {
                frame.traffic_class |= 0b11;
            }
        }
        if self.chance.happens(nature.corruption) {
            let bit = self.chance.below(frame.bytes.len() as u64 * 8) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if self.chance.happens(nature.treason) && frame.bytes.len() > 60 {
            let last = frame.bytes.len() - 1;
            frame.bytes[last] ^= 1;
            frame.seal();
        }
        if self.chance.happens(nature.duplication) {
            let later = arrival + self.some(nature.reordering_delay);
            self.fly(frame.clone(), later);
        }
        if self.chance.happens(nature.reordering) {
            arrival += self.some(nature.reordering_delay);
        }
        self.fly(frame, arrival);
    }

    fn some(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.chance.below(most.as_nanos() as u64 + 1))
    }

    fn fly(&mut self, frame: Frame, arrival: Instant) {
        self.sent += 1;
        self.flying.insert((arrival, self.sent), frame);
    }

    /// Returns the next frame that has arrived.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Frame> {
        let first = self.flying.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(crate) fn next_arrival(&self) -> Instant {
        self.flying.first_key_value().map_or(Instant::NEVER, |(key, _)| key.0)
    }
}
