//! An Ethernet switch: store and forward, a queue for each port, nothing known of what hangs on it.
//!
//! Goal      what a plain switch does to frames: they wait for others, and are dropped where too many wait.
//! Way       a frame that has arrived whole goes to the port of its target (learned from sources, IEEE 802.1D §7.8), to all
//!           others when that is not known or a group. Each port is a [`Cable`]: a queue with a bound, a rate, a length, harm.
//! Time      what leaves by a port arrives at its far end `rate` and `delay` later; looking up takes no time.
//! Limits    `addresses_max` addresses; one that finds no place is flooded. Entries do not age.
//! Left out  spanning trees, VLANs, pause frames, memory that ports share.

use crate::cable::{Cable, CableConfig, CableCounters};
use kiban_ground::{Instant, SimRng};
use kiban_wire::capture;
use kiban_wire::ethernet::{Header, Mac};
use std::collections::BTreeMap;

kiban_ground::counters! {
    /// What happened in a switch. What found a queue full is counted by its port.
    pub struct SwitchCounters {
        /// Frames that arrived.
        frames,
        /// Frames that went to all ports but their own.
        flooded,
        /// Frames for a station behind the port that they came from.
        filtered,
        /// Frames without a whole header.
        malformed,
    }
}

/// Addresses that a switch learns at most.
const ADDRESSES_MAX: usize = 4096;

/// A switch, as a value.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<Cable>,
    addresses: BTreeMap<Mac, usize>,
    counters: SwitchCounters,
}

impl Switch {
    /// A switch with a port for each of `ports`: the line to its far end, and the queue in front of it.
    pub fn new(ports: &[CableConfig], seed: u64) -> Switch {
        let chance = SimRng::from_seed(seed);
        let port = |(number, config): (usize, &CableConfig)| {
            Cable::new(*config, capture::LINK_TYPE_ETHERNET, chance.fork(number as u64))
        };
        Switch {
            ports: ports.iter().enumerate().map(port).collect(),
            addresses: BTreeMap::new(),
            counters: SwitchCounters::default(),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// The line and the queue of a port.
    pub fn port(&self, port: usize) -> &Cable {
        &self.ports[port]
    }

    /// The same, to change it.
    pub fn port_mut(&mut self, port: usize) -> &mut Cable {
        &mut self.ports[port]
    }

    /// What has happened at all ports.
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

    /// A frame has arrived whole at a port.
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

    /// When the next frame arrives at the far end of a port.
    pub fn next_arrival(&self) -> Instant {
        self.ports.iter().map(Cable::next_arrival).min().unwrap_or(Instant::NEVER)
    }

    /// A frame that has arrived at the far end of a port by `now`, and which port.
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
        // One on the line, two wait, two too many. 1250 bytes take a microsecond, and the way another.
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
