//! Handles input from ports: passes it to IP, to a bridge, or to the port that shares its address with the
//! host.

use super::machine::Stack;
use crate::bridge;
use crate::port::{AtmEvent, PacketPort, Port};
use alloc::collections::VecDeque;
use kiban_atm::TimedCell;
use kiban_base::{Context, Instant, Pdu};
use kiban_tcpip::dhcp::State;

impl Stack {
    /// Starts a burst.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.unsettled = true;
    }

    /// Cells have arrived at an ATM port.
    pub(crate) fn on_cells(&mut self, port: usize, cells: &[TimedCell]) {
        let passage = self.other_side(port);
        let Stack { memory, rng, copies, ip, edge, ports, tx_queues, passing, bridging, now, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        let Some(Port::Atm(atm)) = ports.get_mut(port) else { return };
        atm.on_cells(cells, cx);
        for event in atm.take_events() {
            match event {
                AtmEvent::Frame { circuit, pdu } => bridging.push((port, circuit as usize, pdu)),
                AtmEvent::Packet { circuit, pdu } => {
                    let Some(pdu) = ip.forward(pdu, passage, passing) else { continue };
                    ip.on_packet(pdu, tx_queues[port] + circuit as usize, edge, cx);
                }
                AtmEvent::Loopback { circuit, tag, round_trip } => {
                    edge.on_cell_loopback(port, circuit, tag, round_trip);
                }
            }
        }
        self.forward_host_packets();
    }

    /// Packets or frames have arrived at a port, which takes all of them.
    pub(crate) fn on_packets(&mut self, port: usize, packets: &mut VecDeque<Pdu>) {
        let passage = self.other_side(port);
        let Stack { memory, rng, copies, ip, edge, ports, tx_queues, passing, now, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        let Some(Port::Packets(place)) = ports.get_mut(port) else { return };
        if place.bridge.is_some() {
            return packets.drain(..).for_each(|pdu| bridge::forward(ports, port, 0, pdu, cx));
        }
        packets.retain(|frame| !place.is_pause(frame, cx.now));
        let PacketPort { believe_sums, merges, merge, link, .. } = place;
        if let Some(link) = link
            && link.dhcp().is_some_and(|client| client.state() != State::Bound)
        {
            link.set_other_nets(ip.ip.other_nets(port));
        }
        for mut pdu in packets.drain(..) {
            if !*believe_sums {
                pdu.recompute_sums();
            }
            if let Some(link) = link {
                match link.arrive(pdu, cx) {
                    Some(packet) => pdu = packet,
                    None => continue,
                }
            }
            let Some(pdu) = ip.forward(pdu, passage, passing) else { continue };
            let mut up = |pdu| ip.on_packet(pdu, tx_queues[port], edge, cx);
            if *merges {
                merge.on_packet(pdu, &mut up);
            } else {
                up(pdu);
            }
        }
        merge.flush(&mut |pdu| ip.on_packet(pdu, tx_queues[port], edge, cx));
        while let Some(delivery) = ip.discoveries.pop_front() {
            if let Some(link) = link {
                link.on_discovery(delivery, cx);
            }
        }
        self.forward_host_packets();
    }

    /// Forwards the frames of this burst that are for bridges, and the packets that are for the other port of
    /// a pair that shares its address with the host.
    fn forward_host_packets(&mut self) {
        let Stack { memory, rng, copies, ports, passing, bridging, now, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        for (port, circuit, pdu) in bridging.drain(..) {
            let member = |place: &mut Port| place.bridge()?.member(port, circuit as u32);
            let at = ports.iter_mut().enumerate().find_map(|(at, place)| Some((at, member(place)?)));
            if let Some((at, member)) = at {
                bridge::forward(ports, at, member, pdu, cx);
            }
        }
        for (port, next, pdu) in passing.drain(..) {
            ports[port].forward(next, pdu, cx);
        }
    }

    /// Returns the port paired with this one by a host port's configuration: for a host port, the port whose
    /// address the host has, and vice versa.
    fn other_side(&self, port: usize) -> Option<usize> {
        let (host, of) = *self.passages.iter().find(|(host, of)| port == *host || port == *of)?;
        Some(if port == host { of } else { host })
    }
}
