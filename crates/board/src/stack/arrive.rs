//! Handles input from ports: passes it to IP, to a bridge, or to the port that shares its address with the
//! host.

use super::machine::{Stack, on_link_event};
use crate::bridge;
use crate::port::{AtmEvent, CellBurst, PacketPort, Port};
use crate::shard::{Contents, Parcel};
use alloc::collections::VecDeque;
use kiban_atm::TimedCell;
use kiban_base::{Context, Instant, Pdu};
use kiban_tcpip::dhcp::State;
use kiban_tcpip::ethernet::Link;

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
        if let Some(shard) = &mut ip.shard {
            let dropped = atm.take_foreign(&mut |to, burst| shard.hand_cells(to, port, burst));
            shard.counters.cells_dropped += dropped;
        }
        for event in atm.take_events() {
            match event {
                AtmEvent::Frame { circuit, pdu } => bridging.push((port, circuit as usize, pdu)),
                AtmEvent::Packet { circuit, pdu } => {
                    let steered = match &mut ip.shard {
                        Some(shard) => shard.steer_packet((port, circuit), pdu, cx),
                        None => Some(pdu),
                    };
                    let Some(pdu) = steered else { continue };
                    let Some(pdu) = ip.forward(pdu, passage, passing) else { continue };
                    ip.on_packet(pdu, (port, tx_queues[port] + circuit as usize), edge, cx);
                }
                AtmEvent::AtmArp { circuit, pdu } => {
                    if let Some(shard) = &mut ip.shard {
                        shard.send(0, Contents::AtmArp { port, circuit, pdu });
                    }
                }
                AtmEvent::Loopback { circuit, tag, round_trip } => {
                    edge.on_cell_loopback(port, circuit, tag, round_trip);
                }
            }
        }
        // A circuit has no neighbours to discover and no groups; what came from it must not reach a link.
        ip.discoveries.clear();
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
        if let Some(shard) = &mut ip.shard {
            shard.steer(port, packets, place.link.is_some(), cx);
        }
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
            let mut up = |pdu| ip.on_packet(pdu, (port, tx_queues[port]), edge, cx);
            if *merges {
                merge.on_packet(pdu, &mut up);
            } else {
                up(pdu);
            }
        }
        merge.flush(&mut |pdu| ip.on_packet(pdu, (port, tx_queues[port]), edge, cx));
        while let Some(delivery) = ip.discoveries.pop_front() {
            if let Some(link) = link {
                link.on_discovery(delivery, cx);
            }
        }
        self.forward_host_packets();
    }

    /// Other shards have passed on parcels; all of them are taken.
    pub(crate) fn on_parcels(&mut self, parcels: &mut VecDeque<Parcel>) {
        // The units for one port are one burst.
        let (mut at, mut burst) = (0, VecDeque::new());
        for Parcel(contents) in parcels.drain(..) {
            match contents {
                Contents::Unit { port, circuit, pdu, lent } => {
                    let Stack { memory, rng, copies, ip, now, .. } = self;
                    let cx = &mut Context { now: *now, memory, rng, copies };
                    let Some(shard) = &mut ip.shard else { continue };
                    shard.counters.handed_in += 1;
                    let Some(pdu) = shard.take_over(pdu, lent, cx) else { continue };
                    if let Some(Port::Atm(_)) = self.ports.get(port) {
                        self.on_circuit_packet(port, circuit, pdu);
                        continue;
                    }
                    if port != at && !burst.is_empty() {
                        self.on_packets(at, &mut burst);
                    }
                    at = port;
                    burst.push_back(pdu);
                }
                Contents::Cells { port, burst: CellBurst { cells, .. } } => {
                    let count = cells.len() as u64;
                    self.ip.shard.iter_mut().for_each(|shard| shard.counters.cells_handed_in += count);
                    self.on_cells(port, &cells);
                }
                contents => self.on_message(contents),
            }
        }
        if !burst.is_empty() {
            self.on_packets(at, &mut burst);
        }
    }

    /// Handles a packet that another shard has reassembled.
    fn on_circuit_packet(&mut self, port: usize, circuit: u32, pdu: Pdu) {
        let Stack { memory, rng, copies, ip, edge, tx_queues, now, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        ip.on_packet(pdu, (port, tx_queues[port] + circuit as usize), edge, cx);
        ip.discoveries.clear();
    }

    /// Handles a parcel other than a unit or cells.
    fn on_message(&mut self, contents: Contents) {
        let Stack { memory, rng, copies, ip, edge, ports, now, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        let is_packet = matches!(contents, Contents::Delivery { .. } | Contents::Outgoing { .. });
        if let (Some(shard), false) = (&mut ip.shard, is_packet) {
            shard.counters.messages_in += 1;
        }
        match contents {
            // The caller takes units and cells.
            Contents::Unit { .. } | Contents::Cells { .. } => {}
            Contents::AtmArp { port, circuit, pdu } => {
                if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.on_handed_inarp(circuit, pdu, cx);
                }
            }
            Contents::Delivery { delivery, tx_queue, lent } => {
                ip.deliver_handed(delivery, (tx_queue, lent), edge, cx);
            }
            Contents::IcmpError(error) => ip.on_icmp_error(error, edge, cx),
            Contents::Event { port, event } => on_link_event(ip, edge, port, event, cx),
            Contents::Ask { port, neighbour } => {
                if let Some(link) = link_of(ports, port) {
                    link.ask(neighbour, cx);
                } else if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.on_ask(cx.now);
                }
            }
            Contents::Outgoing { port, outgoing } => {
                if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.on_outgoing(outgoing);
                }
            }
            Contents::Credit { port, circuit } => {
                if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.on_credit(circuit);
                }
            }
            Contents::Peer { port, circuit, peer } => {
                if let Some(Port::Atm(atm)) = ports.get_mut(port) {
                    atm.set_peer(circuit, peer);
                }
            }
            Contents::NegativeAdvice { port, neighbour } => {
                if let Some(link) = link_of(ports, port) {
                    link.negative_advice(neighbour);
                }
            }
            Contents::Inform { port, neighbour, word } => {
                if let Some(link) = link_of(ports, port) {
                    link.inform(neighbour, word, cx);
                }
            }
        }
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

/// Returns the Ethernet link of a port.
fn link_of(ports: &mut [Port], port: usize) -> Option<&mut Link> {
    match ports.get_mut(port)? {
        Port::Packets(PacketPort { link, .. }) => link.as_deref_mut(),
        Port::Atm(_) | Port::Vi(_) | Port::Efe => None,
    }
}
