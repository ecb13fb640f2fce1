//! An Ethernet switch: store and forward, with a queue per port.
//!
//! Purpose          models a switch: frames wait for their output port, and are dropped if too many wait.
//! Path             a frame that has arrived completely goes to the port of its destination (learned from
//!                  source addresses, IEEE 802.1D §7.8), or to all others if that is unknown or a group
//!                  address. Each port is a [`Cable`], with a bounded queue, a rate, a length and
//!                  impairments.
//! Time             a frame arrives at the far end of its output port after its transmission time at `rate`
//!                  and after `delay`; the look-up takes no time.
//! Congestion       if configured, packets are marked while the queue of their output port is long
//!                  ([`EcnConfig`]), and senders are paused ([`PfcConfig`]). Pauses do not wait in a queue.
//! Limits           the switch learns `addresses_max` addresses; frames for others are flooded. Entries do
//!                  not age.
//! Not implemented  spanning trees, VLANs, obeying pauses, and buffer memory shared among ports.

use crate::network::cable::{Cable, CableConfig, CableCounters};
use crate::network::ecn::{self, EcnConfig};
use crate::network::pfc::{Pfc, PfcConfig};
use kiban_base::ethernet::{Header, Mac};
use kiban_base::numbers::ether_type;
use kiban_base::{Instant, SimRng};
use kiban_capture as capture;
use kiban_tcpip::wire::pfc;
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
        /// Packets marked because of a long queue (ECN).
        ce_marked,
        /// Requests to pause a sender (PFC).
        pauses,
        /// MAC control frames received, which are ignored.
        control_ignored,
    }
}

/// Maximum number of addresses that a switch learns.
const ADDRESSES_MAX: usize = 4096;

/// A switch.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<Cable>,
    addresses: BTreeMap<Mac, usize>,
    ecn: Option<EcnConfig>,
    pfc: Option<Pfc>,
    rng: SimRng,
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
            ecn: None,
            pfc: None,
            rng: rng.fork(u64::MAX),
            counters: SwitchCounters::default(),
        }
    }

    /// Makes the queues of all ports mark packets.
    pub fn with_ecn(mut self, ecn: EcnConfig) -> Switch {
        self.ecn = Some(ecn);
        self
    }

    /// Makes the switch pause senders.
    pub fn with_pfc(mut self, pfc: PfcConfig) -> Switch {
        self.pfc = Some(Pfc::new(pfc, self.ports.iter().map(|port| port.config().bits_per_second)));
        self
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
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
        if header.ether_type == ether_type::MAC_CONTROL {
            self.counters.control_ignored += 1;
            return;
        }
        if !header.source.is_group()
            && (self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&header.source))
        {
            self.addresses.insert(header.source, port);
        }
        match self.addresses.get(&header.target) {
            Some(&out) if out == port => self.counters.filtered += 1,
            Some(&out) => self.forward(port, out, frame, now),
            None => {
                self.counters.flooded += 1;
                for out in (0..self.ports.len()).filter(|out| *out != port) {
                    self.forward(port, out, frame.clone(), now);
                }
            }
        }
        self.advance(now);
    }

    /// Queues a frame that came through port `from` at port `out`.
    fn forward(&mut self, from: usize, out: usize, mut frame: Vec<u8>, now: Instant) {
        let waiting = self.ports[out].waiting(now);
        if self.ecn.is_some_and(|ecn| ecn.marks(waiting, &mut self.rng)) {
            self.counters.ce_marked += u64::from(ecn::mark(&mut frame));
        }
        let priority = ecn::traffic_class(&frame).map_or(0, pfc::priority);
        let bytes = frame.len();
        let left = self.ports[out].send_bytes(frame, now);
        if let (Some(left), Some(pfc)) = (left, &mut self.pfc) {
            pfc.add(from, priority, bytes, left);
        }
    }

    /// Pauses and resumes senders.
    pub fn advance(&mut self, now: Instant) {
        let Some(pfc) = &mut self.pfc else { return };
        for request in pfc.advance(now) {
            self.counters.pauses += u64::from(request.pauses);
            self.ports[request.port].send_express(request.frame, now);
        }
    }

    /// Returns when the next frame arrives at the far end of a port.
    pub fn next_arrival(&self) -> Instant {
        self.ports.iter().map(Cable::next_arrival).min().unwrap_or(Instant::NEVER)
    }

    /// Returns when the next frame arrives at the far end of a port, or [`Switch::advance`] is due.
    pub fn deadline(&self) -> Instant {
        self.next_arrival().min(self.pfc.as_ref().map_or(Instant::NEVER, Pfc::deadline))
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
