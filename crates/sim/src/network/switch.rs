//! An Ethernet switch: store and forward, with a queue per port.
//!
//! Purpose          models a plain switch: frames wait for their output port, and are dropped if too many
//!                  wait.
//! Path             a frame that has arrived completely goes to the port of its destination (learned from
//!                  source addresses, IEEE 802.1D §7.8), or to all others if that is unknown or a group
//!                  address. Each port is a [`Cable`], with a bounded queue, a rate, a length and
//!                  impairments.
//! Time             a frame arrives at the far end of its output port after its transmission time at `rate`
//!                  and after `delay`; the look-up takes no time.
//! Limits           the switch learns `addresses_max` addresses; frames for others are flooded. Entries do
//!                  not age.
//! Not implemented  spanning trees, VLANs, pause frames, and buffer memory shared among ports.

use crate::network::cable::{Cable, CableConfig, CableCounters};
use kiban_base::ethernet::{Header, Mac};
use kiban_base::{Instant, SimRng};
use kiban_capture as capture;
use std::collections::BTreeMap;

kiban_base::counters! {
    /// Counters of a switch. Frames that found a queue full are counted by its port.
    pub struct SwitchCounters {
        /// Frames that arrived.
        frames,
        /// Frames flooded to all other ports.
        flooded,
        /// Frames whose destination is behind the port on which they arrived.
        filtered,
        /// Frames without a complete header.
        malformed,
    }
}

/// Maximum number of addresses that a switch learns.
const ADDRESSES_MAX: usize = 4096;

/// A switch.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<Cable>,
    addresses: BTreeMap<Mac, usize>,
    counters: SwitchCounters,
}

impl Switch {
    /// Returns a switch with a port for each of `ports`: the line to its far end, and the queue in front of
    /// it.
    pub fn new(ports: &[CableConfig], seed: u64) -> Switch {
        let rng = SimRng::from_seed(seed);
        let port = |(number, config): (usize, &CableConfig)| {
            Cable::new(*config, capture::LINK_TYPE_ETHERNET, rng.fork(number as u64))
        };
        Switch {
            ports: ports.iter().enumerate().map(port).collect(),
            addresses: BTreeMap::new(),
            counters: SwitchCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// Returns the line and the queue of a port.
    pub fn port(&self, port: usize) -> &Cable {
        &self.ports[port]
    }

    /// Returns the line and the queue of a port, to be changed.
    pub fn port_mut(&mut self, port: usize) -> &mut Cable {
        &mut self.ports[port]
    }

    /// Returns the sum of all ports' counters.
    pub fn port_counters(&self) -> CableCounters {
        let mut sum = CableCounters::default();
        for port in &self.ports {
            let one = port.counters();
            sum.packets += one.packets;
            sum.bytes += one.bytes;
            sum.queue_full += one.queue_full;
        }
        sum
    }

    /// Handles a frame that has arrived completely at a port.
    pub fn arrive(&mut self, port: usize, frame: Vec<u8>, now: Instant) {
        self.counters.frames += 1;
        let Ok((header, _)) = Header::read(&frame) else {
            self.counters.malformed += 1;
            return;
        };
        if !header.source.is_group()
            && (self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&header.source))
        {
            self.addresses.insert(header.source, port);
        }
        match self.addresses.get(&header.target) {
            Some(&out) if out == port => self.counters.filtered += 1,
            Some(&out) => self.ports[out].send_bytes(frame, now),
            None => {
                self.counters.flooded += 1;
                for out in (0..self.ports.len()).filter(|out| *out != port) {
                    self.ports[out].send_bytes(frame.clone(), now);
                }
            }
        }
    }

    /// Returns when the next frame arrives at the far end of a port.
    pub fn next_arrival(&self) -> Instant {
        self.ports.iter().map(Cable::next_arrival).min().unwrap_or(Instant::NEVER)
    }

    /// Returns a frame that has arrived at the far end of a port by `now`, and the port's number.
    pub fn leave(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.ports.iter_mut().enumerate().find_map(|(port, line)| Some((port, line.arrive_bytes(now)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn frame(target: u8, source: u8, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; bytes];
        let mac = |last| Mac([2, 0, 0, 0, 0, last]);
        Header { target: mac(target), source: mac(source), ether_type: 0x88b5 }.write(&mut frame);
        frame
    }

    fn switch(frames_max: usize) -> Switch {
        let port = CableConfig {
            packets_max: frames_max,
            ..CableConfig::ethernet(10_000_000_000, Duration::from_micros(1))
        };
        Switch::new(&[port; 3], 1)
    }

    #[test]
    fn a_switch_learns_where_stations_are() {
        let (mut switch, now) = (switch(8), Instant::ZERO);
        let later = Instant::from_nanos(1_000_000);
        let ports = |switch: &mut Switch, port, target, source| {
            switch.arrive(port, frame(target, source, 60), now);
            let mut ports = Vec::new();
            while let Some((port, _)) = switch.leave(later) {
                ports.push(port);
            }
            ports
        };
        assert_eq!(ports(&mut switch, 0, 2, 1), [1, 2], "nobody knows 2 yet");
        assert_eq!(ports(&mut switch, 2, 1, 2), [0]);
        assert_eq!(ports(&mut switch, 0, 2, 1), [2]);
        assert_eq!(ports(&mut switch, 2, 2, 3), [0; 0], "it has seen that one");
        assert_eq!(ports(&mut switch, 1, 0xff, 4), [0, 2]);
    }

    #[test]
    fn a_frame_is_stored_whole_and_a_full_queue_drops_at_its_tail() {
        let (mut switch, now) = (switch(2), Instant::ZERO);
        switch.arrive(1, frame(9, 1, 60), now);
        while switch.leave(Instant::from_nanos(100_000)).is_some() {}
        let now = Instant::from_nanos(100_000);
        for n in 0..5 {
            switch.arrive(0, frame(1, 2, 1226 + n), now);
        }
        // One frame is on the line, two wait, and two are dropped. A frame of 1250 bytes occupies the line
        // for a microsecond and takes another microsecond to propagate.
        assert_eq!(switch.port(1).counters().queue_full, 2);
        assert_eq!(switch.next_arrival(), now + Duration::from_micros(2));
        assert_eq!(switch.leave(now + Duration::from_nanos(1999)), None);
        let mut lengths = Vec::new();
        while let Some((port, bytes)) = switch.leave(now + Duration::from_micros(10)) {
            lengths.push((port, bytes.len()));
        }
        assert_eq!(lengths, [(1, 1226), (1, 1227), (1, 1228)]);
    }
}
