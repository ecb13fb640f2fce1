//! An ATM port: the board's ends of its circuits.
//!
//! Receive path     reassemble frames and remove the encapsulation. Packets and bridged frames become events;
//!                  InATMARP and loopback cells are handled here.
//! Transmit path    find the neighbour's circuit, encapsulate, queue; cells are committed in the slots of the
//!                  line.
//! Limits           `frames_max` frames per circuit; TCP leaves some of this room for other protocols.

use super::counters::{PortCounters, QueueLimit};
use super::events::{AtmEvent, LinkEvent};
use super::fcs::{FCS_BYTES, put_fcs, take_fcs};
use super::sharing::{CellBurst, Division, Outgoing};
use crate::config::AtmPortConfig;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use kiban_atm::wire::atm::{PTI_OAM_END_TO_END, VCI_F4_END_TO_END, VCI_F4_SEGMENT, Vc};
use kiban_atm::{
    Arrival, Carried, Circuit, Encapsulation, EncapsulationCounters, InArp, InArpConfig, InArpDue, Interval,
    Loopback, LoopbackDue, LoopbackVerdict, Reassembly, RxCircuit, Segmentation, Service, TimedCell,
    TxCircuit,
};
use kiban_base::ethernet;
use kiban_base::{Context, Copies, Instant, Pdu, SecureRng};

/// Headroom for a frame with a VLAN tag.
const TAGGED_HEADER_BYTES: usize = ethernet::HEADER_BYTES + 4;
/// Number of entries in a circuit's queue that TCP leaves free for others: ICMP replies, pings, address
/// resolution.
const FRAMES_RESERVED: usize = 8;

/// An ATM port and its circuits.
pub(crate) struct AtmPort {
    pub(crate) segmentation: Segmentation,
    pub(super) reassembly: Reassembly,
    pub(super) inarp: InArp,
    pub(super) loopback: Loopback,
    circuits: Vec<End>,
    /// The OAM flows of virtual paths, numbered after the circuits.
    flows: usize,
    pub(super) encapsulated: EncapsulationCounters,
    pub(super) counters: PortCounters,
    pub(super) sent: Vec<TimedCell>,
    arrivals: Vec<Arrival>,
    events: Vec<AtmEvent>,
    /// Next hops that have no circuit, and that InATMARP cannot discover either.
    nobody: Vec<IpAddr>,
    /// How the port is divided, if the board is.
    division: Option<Division>,
}

/// The maximum number of unreachable next hops that an ATM port reports per burst. Others are reported when
/// their packets are retransmitted.
const NOBODY_MAX: usize = 64;

/// The board's end of a circuit.
#[derive(Clone, Copy)]
struct End {
    encapsulation: Encapsulation,
    frames_max: usize,
    /// `Some` if a bridge uses the circuit. The value says whether frames are sent with their FCS.
    bridged: Option<bool>,
    /// The longest Ethernet frame, without its FCS.
    frame_bytes_max: usize,
}

impl AtmPort {
    /// Creates a port. `shard` is the shard's number and the number of shards, if the board is divided.
    pub(crate) fn new(
        config: &AtmPortConfig,
        bridged: &[(u32, bool)],
        shard: Option<(usize, usize)>,
    ) -> AtmPort {
        let IpAddr::V4(own) = config.address else { panic!("Classical IP (RFC 2225) has IPv4 addresses") };
        let mut port = AtmPort {
            segmentation: Segmentation::new(Interval::of_line(config.line_bits_per_second), config.interface),
            reassembly: Reassembly::new(config.interface),
            inarp: InArp::new(InArpConfig::new(own)),
            loopback: Loopback::new([0xff; 16]),
            circuits: Vec::new(),
            flows: 0,
            encapsulated: EncapsulationCounters::default(),
            counters: PortCounters::default(),
            sent: Vec::new(),
            arrivals: Vec::new(),
            events: Vec::new(),
            nobody: Vec::new(),
            division: shard.map(|shard| Division::new(config, shard)),
        };
        let is_first = port.division.as_ref().is_none_or(|division| division.number == 0);
        if !is_first {
            port.reassembly.set_management_foreign();
        }
        for (index, end) in config.circuits.iter().enumerate() {
            let circuit = Circuit(index as u32);
            let bridged = bridged.iter().find(|its| its.0 == circuit.0).map(|its| its.1);
            let carried = bridged.map_or(Carried::Ipv4, |with_fcs| Carried::Bridged { with_fcs });
            let encapsulation =
                if end.llc_snap { Encapsulation::LlcSnap } else { Encapsulation::VcMux(carried) };
            let frame_bytes_max = config.mtu_bytes + TAGGED_HEADER_BYTES;
            port.circuits.push(End { encapsulation, frames_max: end.frames_max, bridged, frame_bytes_max });
            port.segmentation.open(
                circuit,
                TxCircuit {
                    vc: end.vc,
                    frames_max: end.frames_max,
                    low_priority: false,
                    contract: end.contract,
                    service: end.service,
                },
            );
            // With LLC/SNAP the first cell holds exactly the headers of a TCP segment without options.
            let bytes_max = match bridged {
                None => config.mtu_bytes,
                Some(_) => frame_bytes_max + FCS_BYTES,
            };
            let inlet = RxCircuit {
                vc: end.vc,
                frame_bytes_max: bytes_max + encapsulation.header_bytes(carried),
                head_cells: u8::from(end.llc_snap || bridged.is_some()),
            };
            match &port.division {
                Some(division) if division.is_foreign(index) => port.reassembly.open_foreign(circuit, end.vc),
                _ => port.reassembly.open(circuit, inlet),
            }
            port.loopback.open(circuit);
            match end.peer {
                _ if bridged.is_some() => {}
                Some(IpAddr::V4(peer)) => port.inarp.open_fixed(circuit, peer),
                // Shard 0 asks.
                _ if !is_first => {}
                _ => port.inarp.open(circuit, Instant::ZERO),
            }
        }
        let mut paths: Vec<u16> = config.circuits.iter().map(|end| end.vc.vpi).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().for_each(|vpi| port.open_flows(vpi));
        port
    }

    /// Opens the two F4 OAM flows of a path, which ends at the board as its circuits do (I.610 §5).
    fn open_flows(&mut self, vpi: u16) {
        for vci in [VCI_F4_SEGMENT, VCI_F4_END_TO_END] {
            let flow = Circuit((self.circuits.len() + self.flows) as u32);
            let vc = Vc::new(vpi, vci);
            let outlet = TxCircuit {
                vc,
                frames_max: 0,
                low_priority: false,
                contract: None,
                service: Service::default(),
            };
            self.segmentation.open(flow, outlet);
            self.reassembly.open_oam(flow, vc);
            self.loopback.open(flow);
            self.flows += 1;
        }
    }

    pub(super) fn room(&self, circuit: usize) -> usize {
        let credits = self.division.as_ref().and_then(|division| division.credits(circuit));
        let (room, most) = credits.unwrap_or_else(|| {
            (self.segmentation.room(Circuit(circuit as u32)), self.circuits[circuit].frames_max)
        });
        room.saturating_sub(FRAMES_RESERVED.min(most / 2))
    }

    /// Returns the number of circuits.
    pub(super) fn circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Returns the number of waiting frames, on all circuits.
    pub(super) fn waiting(&self) -> usize {
        let waits = |(circuit, end): (usize, &End)| {
            end.frames_max.saturating_sub(self.segmentation.room(Circuit(circuit as u32)))
        };
        let handed = self.division.as_ref().map_or(0, |division| division.waiting_count);
        self.circuits.iter().enumerate().map(waits).sum::<usize>() + handed
    }

    /// Returns the peer of each circuit, as far as it is known.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Option<IpAddr>> + '_ {
        (0..self.circuits.len()).map(|circuit| self.inarp.peer(Circuit(circuit as u32)).map(IpAddr::V4))
    }

    pub(super) fn circuit_to(&self, next: IpAddr) -> Option<Circuit> {
        match next {
            IpAddr::V4(next) => self.inarp.circuit_of(next),
            IpAddr::V6(_) => None,
        }
    }

    /// Handles received cells; completed frames and replies become events.
    pub(crate) fn on_cells(&mut self, cells: &[TimedCell], cx: &mut Context<'_>) {
        let mut arrivals = core::mem::take(&mut self.arrivals);
        self.reassembly.cells(cells, cx, &mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Frame { circuit, pdu, .. } => self.on_frame(circuit, pdu, cx),
                Arrival::Oam { circuit, header, payload, .. } => {
                    // The VCI of a flow cell distinguishes segment from end-to-end flows.
                    let is_flow = circuit.0 as usize >= self.circuits.len();
                    let pti = if is_flow { PTI_OAM_END_TO_END } else { header.pti };
                    let verdict = self.loopback.arrive(circuit, pti, &payload, cx.now);
                    if let LoopbackVerdict::Returned { tag, round_trip } = verdict {
                        self.events.push(AtmEvent::Loopback { circuit: circuit.0, tag, round_trip });
                    }
                }
                Arrival::Foreign { circuit, is_management, cells: places } => {
                    let division = self.division.as_mut().expect("only a divided board has foreign cells");
                    division.hand_on(circuit.0 as usize, is_management, &cells[places]);
                }
            }
        }
        self.arrivals = arrivals;
    }

    /// Takes the events, in order of arrival.
    pub(crate) fn take_events(&mut self) -> impl Iterator<Item = AtmEvent> + '_ {
        self.events.drain(..)
    }

    fn on_frame(&mut self, circuit: Circuit, mut pdu: Pdu, cx: &mut Context<'_>) {
        let End { encapsulation, bridged, .. } = self.circuits[circuit.0 as usize];
        let carried = encapsulation.pull(&mut pdu, cx.copies, &mut self.encapsulated);
        if bridged.is_some() {
            match carried {
                Ok(Carried::Bridged { with_fcs }) if !with_fcs || take_fcs(&mut pdu) => {
                    self.events.push(AtmEvent::Frame { circuit: circuit.0, pdu });
                }
                Ok(Carried::Bridged { .. }) => self.counters.fcs_errors += 1,
                Ok(_) => self.counters.not_ethernet += 1,
                Err(_) => {}
            }
            return;
        }
        match carried {
            Ok(Carried::Ipv4) => self.events.push(AtmEvent::Packet { circuit: circuit.0, pdu }),
            Ok(Carried::AtmArp) => match &self.division {
                Some(division) if division.number != 0 => {
                    self.events.push(AtmEvent::AtmArp { circuit: circuit.0, pdu });
                }
                _ => self.on_inarp(circuit, pdu, cx),
            },
            Ok(_) => self.counters.not_ip += 1,
            Err(_) => {}
        }
    }

    /// Handles an InATMARP packet.
    fn on_inarp(&mut self, circuit: Circuit, mut pdu: Pdu, cx: &mut Context<'_>) {
        let whole = pdu.len();
        if let Some(moved) = pdu.pull_up(whole.min(kiban_atm::wire::atmarp::PACKET_BYTES_MAX)) {
            cx.copies.header_bytes += moved as u64;
            self.inarp.arrive(circuit, pdu.head(), cx.now);
        }
    }

    /// Handles an InATMARP packet that has arrived at another shard.
    pub(crate) fn on_handed_inarp(&mut self, circuit: u32, pdu: Pdu, cx: &mut Context<'_>) {
        if self.has(circuit) {
            self.on_inarp(Circuit(circuit), pdu, cx);
        }
    }

    /// Sends a frame on a circuit of a bridge. Returns false if it is too long.
    pub(crate) fn send_frame(&mut self, circuit: Circuit, mut pdu: Pdu, cx: &mut Context<'_>) -> bool {
        let End { encapsulation, bridged, frame_bytes_max, .. } = self.circuits[circuit.0 as usize];
        let Some(with_fcs) = bridged else { return true };
        if pdu.len() > frame_bytes_max {
            return false;
        }
        if with_fcs && !put_fcs(&mut pdu, cx) {
            self.counters.no_memory += 1;
            return true;
        }
        if encapsulation.push(Carried::Bridged { with_fcs }, &mut pdu).is_err() {
            self.counters.not_ethernet += 1;
        } else if self.segmentation.send(circuit, pdu, cx.now).is_err() {
            self.counters.queue_full += 1;
        }
        true
    }

    pub(super) fn send(&mut self, next: IpAddr, pdu: Pdu, claim: QueueLimit, cx: &mut Context<'_>) {
        let Some(circuit) = self.circuit_to(next) else {
            self.counters.no_circuit += 1;
            self.inarp.restart_requests(cx.now);
            // The next hop may be the peer of a circuit that InATMARP is still resolving.
            if !self.inarp.is_requesting() && self.nobody.len() < NOBODY_MAX && !self.nobody.contains(&next) {
                self.nobody.push(next);
            }
            return;
        };
        let frames_max = self.circuits[circuit.0 as usize].frames_max;
        if let Some(division) = &mut self.division
            && let Some((_, most)) = division.credits(circuit.0 as usize)
        {
            let least = if claim == QueueLimit::Half { most / 2 } else { 0 };
            if !division.pass(circuit.0, Carried::Ipv4, pdu, least) {
                self.counters.queue_full += 1;
            }
            return;
        }
        if claim == QueueLimit::Half && self.segmentation.room(circuit) <= frames_max / 2 {
            self.counters.queue_full += 1;
            return;
        }
        self.queue(circuit, Carried::Ipv4, pdu, cx);
    }

    /// Queues a packet on a circuit.
    fn queue(&mut self, circuit: Circuit, carried: Carried, mut pdu: Pdu, cx: &mut Context<'_>) {
        let encapsulation = self.circuits[circuit.0 as usize].encapsulation;
        if encapsulation.push(carried, &mut pdu).is_err() {
            self.counters.not_ip += 1;
            return;
        }
        if self.segmentation.send(circuit, pdu, cx.now).is_err() {
            self.counters.queue_full += 1;
        }
    }

    /// Takes the packets for other shards, and these shards.
    pub(crate) fn take_outgoing(&mut self) -> impl Iterator<Item = (usize, Outgoing)> + '_ {
        self.division.iter_mut().flat_map(Division::take_outgoing)
    }

    /// Passes the cells for other shards to `hand_on`, each burst with its shard. Returns the number of cells
    /// for which there is no room.
    pub(crate) fn take_foreign(&mut self, hand_on: &mut dyn FnMut(usize, CellBurst)) -> u64 {
        self.division.as_mut().map_or(0, |division| division.take_foreign(hand_on))
    }

    /// Another shard has queued a packet.
    pub(crate) fn on_credit(&mut self, circuit: u32) {
        self.division.iter_mut().for_each(|division| division.on_credit(circuit));
    }

    /// Keeps a packet of another shard until its circuit has room.
    pub(crate) fn on_outgoing(&mut self, outgoing: Outgoing) {
        if let Some(division) = &mut self.division {
            division.on_outgoing(outgoing);
        }
    }

    /// Returns whether packets of other shards wait for room.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.division.as_ref().is_some_and(|division| division.waiting_count > 0)
    }

    /// Queues packets of other shards, and returns their credits: to which shard, for which circuit.
    pub(crate) fn queue_outgoing(&mut self, cx: &mut Context<'_>, credit: &mut dyn FnMut(usize, u32)) {
        let Some(division) = self.division.as_mut().filter(|division| division.waiting_count > 0) else {
            return;
        };
        division.is_larger = !division.is_larger;
        let extra = usize::from(division.is_larger);
        for number in 0..self.circuits.len() {
            for _ in 0..(self.room(number) + extra) / 2 {
                let waiting = self.division.as_mut().and_then(|division| division.pop_waiting(number));
                let Some(Outgoing { from, circuit, carried, pdu }) = waiting else { break };
                self.queue(Circuit(circuit), carried, pdu, cx);
                credit(from, circuit);
            }
        }
    }

    /// Learns from shard 0 which peer a circuit has.
    pub(crate) fn set_peer(&mut self, circuit: u32, peer: Option<Ipv4Addr>) {
        match peer {
            Some(peer) => self.inarp.open_fixed(Circuit(circuit), peer),
            None => self.inarp.close(Circuit(circuit)),
        }
    }

    /// Reports the peers of circuits that have changed since the last call.
    pub(crate) fn report_peers(&mut self, report: &mut dyn FnMut(u32, Option<Ipv4Addr>)) {
        let AtmPort { inarp, circuits, division: Some(division), .. } = self else { return };
        for number in 0..circuits.len() {
            let peer = inarp.peer(Circuit(number as u32));
            if division.is_news(number, peer) {
                report(number as u32, peer);
            }
        }
    }

    /// Another shard looks for a peer.
    pub(crate) fn on_ask(&mut self, now: Instant) {
        self.inarp.restart_requests(now);
    }

    /// Sends pending InATMARP packets and loopback cells, and passes events for IP to `up`.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, up: &mut dyn FnMut(LinkEvent, &mut Context<'_>)) {
        for next in core::mem::take(&mut self.nobody) {
            let is_asked = self.division.as_ref().is_some_and(|division| division.number != 0);
            up(if is_asked { LinkEvent::Ask(next) } else { LinkEvent::NeighbourFailed(next) }, cx);
        }
        let AtmPort { segmentation, inarp, loopback, circuits, counters, division, .. } = self;
        let now = cx.now;
        inarp.settle(now, &mut |due| {
            let InArpDue::Packet { circuit, bytes } = due else { return };
            let Some(mut pdu) = cx.memory.pdus.take() else {
                counters.no_memory += 1;
                return;
            };
            pdu.push_head(bytes.len()).copy_from_slice(bytes);
            if let Some(division) = division
                && division.credits(circuit.0 as usize).is_some()
            {
                if !division.pass(circuit.0, Carried::AtmArp, pdu, 0) {
                    counters.queue_full += 1;
                }
                return;
            }
            if circuits[circuit.0 as usize].encapsulation.push(Carried::AtmArp, &mut pdu).is_ok()
                && segmentation.send(circuit, pdu, now).is_err()
            {
                counters.queue_full += 1;
            }
        });
        loopback.settle(now, &mut |due| {
            let LoopbackDue::Cell { circuit, pti, payload } = due else { return };
            let pti = if circuit.0 as usize >= circuits.len() { 0 } else { pti };
            if segmentation.send_management(circuit, pti, payload, now).is_err() {
                counters.queue_full += 1;
            }
        });
    }

    /// Moves the cells of all slots that start before `until` to `out`.
    pub(crate) fn cells(&mut self, until: Instant, copies: &mut Copies, out: &mut Vec<TimedCell>) {
        out.append(&mut self.sent);
        self.segmentation.advance(until, out, copies);
    }

    /// Returns when the next frame will have been sent, whether or not its cells are committed.
    pub(crate) fn next_end(&self) -> Instant {
        let committed = self.sent.iter().find(|cell| cell.is_end()).map(|cell| cell.at);
        committed.unwrap_or_else(|| self.segmentation.next_end())
    }

    pub(crate) fn has(&self, circuit: u32) -> bool {
        (circuit as usize) < self.circuits.len()
    }

    pub(crate) fn ping(&mut self, circuit: u32, pti: u8, rng: &mut SecureRng) -> Option<u32> {
        self.loopback.ping(Circuit(circuit), pti, rng)
    }
}
