//! The port edge: where the board meets a link or a cable.
//!
//! An ATM port holds the board's side of its circuits: encapsulation, InATMARP, loopback, segmentation, reassembly.
//! Committed cells wait until the line fetches them. A packet port is a bounded queue, of packets or of Ethernet frames.

use crate::bridge::{Bridging, FRAME_BYTES_MIN};
use crate::config::{AtmPortConfig, BridgePortConfig, EthernetPortConfig, HostPortConfig, IpPortConfig};
use crate::cut;
use crate::merge::Merge;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use kiban_ground::{Blocks, Context, Copies, Instant, Pdu, SLICES_MAX, SecureRng};
use kiban_stack::atm::{
    Arrival, Carried, Circuit, Encapsulation, EncapsulationCounters, InArp, InArpConfig, InArpDue, Inlet,
    Interval, Loopback, LoopbackDue, LoopbackVerdict, Outlet, Reassembly, Segmentation, TimedCell,
};
use kiban_stack::ethernet::{Due, Link};
use kiban_stack::ip::Prefix;
use kiban_wire::atm::{PTI_OAM_END_TO_END, VCI_F4_END_TO_END, VCI_F4_SEGMENT, Vc};
use kiban_wire::crc::Crc32Ethernet;
use kiban_wire::ethernet::{self, Mac};

/// Bytes of a frame's check sequence.
const FCS_BYTES: usize = 4;
/// In front of a packet in a frame with a VLAN's tag.
const TAGGED_HEADER_BYTES: usize = ethernet::HEADER_BYTES + 4;
/// Frames of a circuit's queue that TCP leaves for others: answers, pings, address resolution.
const FRAMES_RESERVED: usize = 8;

kiban_ground::counters! {
    /// What happened at a port.
    pub struct PortCounters {
        /// Packets for a neighbour that no circuit leads to.
        no_circuit,
        /// Packets that found the port's queue full.
        queue_full,
        /// Frames that carried neither IPv4 nor ATMARP.
        not_ip,
        /// Frames that carried none of Ethernet, on a circuit of a bridge.
        not_ethernet,
        /// Frames of Ethernet whose FCS was wrong.
        fcs_wrong,
        /// Packets that found no memory.
        starved,
        /// Packets that passed to or from the host ([`HostPortConfig`](crate::HostPortConfig)).
        passed,
        /// Packets of the host's that no route leads on, or for many.
        no_way,
    }
}

/// What a packet may take of its port's queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The room that was asked for: [`Port::room`].
    Granted,
    /// Half of the queue: for what nobody holds back, so that a flood of answers leaves the streams theirs.
    Half,
}

/// A port of a board.
pub(crate) enum Port {
    Atm(Box<AtmPort>),
    Packets(PacketPort),
    /// A path of the VI NIC.
    Vi(u32),
    /// Where the RDMA NIC's EFE endpoint is.
    Efe,
}

impl Port {
    /// How many lanes lead through the port: its circuits, or one.
    pub(crate) fn lanes(&self) -> usize {
        match self {
            Port::Atm(atm) => atm.circuits.len(),
            Port::Packets(_) => 1,
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// The lane that leads to a neighbour, as far as it is known.
    pub(crate) fn lane_to(&self, next: IpAddr) -> usize {
        match self {
            Port::Atm(atm) => atm.circuit_to(next).map_or(0, |circuit| circuit.0 as usize),
            Port::Packets(_) | Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Segments that TCP may hand down to a lane now.
    pub(crate) fn room(&self, lane: usize) -> usize {
        match self {
            Port::Atm(atm) => atm.room(lane),
            Port::Packets(port) => port.room(),
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Packets by way of `next` seem to get nowhere. (A permanent circuit has no other way.)
    pub(crate) fn doubt(&mut self, next: IpAddr) {
        if let Port::Packets(PacketPort { link: Some(link), .. }) = self {
            link.doubt(next);
        }
    }

    /// Packets or frames that wait.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Port::Atm(atm) => atm.waiting(),
            Port::Packets(port) => port.queue.len(),
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// A packet leaves for a neighbour.
    pub(crate) fn send(&mut self, next: IpAddr, pdu: Pdu, claim: Claim, cx: &mut Context<'_>) {
        match self {
            Port::Atm(atm) => atm.send(next, pdu, claim, cx),
            Port::Packets(port) => port.send(next, pdu, claim, cx),
            // No route leads there.
            Port::Vi(_) | Port::Efe => {}
        }
    }

    /// A packet passes to the host, or comes from it.
    pub(crate) fn pass(&mut self, next: Option<IpAddr>, pdu: Pdu, cx: &mut Context<'_>) {
        if let Some(counters) = self.port_counters() {
            match next {
                Some(_) => counters.passed += 1,
                None => counters.no_way += 1,
            }
        }
        if let Some(next) = next {
            self.send(next, pdu, Claim::Granted, cx);
        }
    }

    /// The bridge at this port.
    pub(crate) fn bridge(&mut self) -> Option<&mut Bridging> {
        match self {
            Port::Packets(port) => port.bridge.as_deref_mut(),
            Port::Atm(_) | Port::Vi(_) | Port::Efe => None,
        }
    }

    fn port_counters(&mut self) -> Option<&mut PortCounters> {
        match self {
            Port::Atm(atm) => Some(&mut atm.counters),
            Port::Packets(port) => Some(&mut port.counters),
            Port::Vi(_) | Port::Efe => None,
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Port::Atm(atm) = self {
            atm.segmentation.advance(cx.now, &mut atm.sent, cx.copies);
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Port::Atm(atm) => atm.inarp.deadline().min(atm.loopback.deadline()),
            Port::Packets(port) => port.link.as_ref().map_or(Instant::NEVER, |link| link.deadline()),
            // The NIC has one for all its paths.
            Port::Vi(_) | Port::Efe => Instant::NEVER,
        }
    }

    pub(crate) fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        match self {
            Port::Atm(atm) => {
                atm.segmentation.counters().each(&mut |name, value| see("segmentation", name, value));
                atm.reassembly.counters().each(&mut |name, value| see("reassembly", name, value));
                atm.encapsulated.each(&mut |name, value| see("encapsulation", name, value));
                atm.inarp.counters().each(&mut |name, value| see("inarp", name, value));
                atm.loopback.counters().each(&mut |name, value| see("loopback", name, value));
                atm.counters.each(&mut |name, value| see("port", name, value));
            }
            Port::Packets(port) => {
                if let Some(bridge) = &port.bridge {
                    bridge.counters.each(&mut |name, value| see("bridge", name, value));
                }
                if let Some(link) = &port.link {
                    link.counters().each(&mut |name, value| see("ethernet", name, value));
                }
                port.counters.each(&mut |name, value| see("port", name, value));
            }
            Port::Vi(_) | Port::Efe => {}
        }
    }
}

/// An ATM port and its circuits.
pub(crate) struct AtmPort {
    pub(crate) segmentation: Segmentation,
    reassembly: Reassembly,
    inarp: InArp,
    loopback: Loopback,
    circuits: Vec<End>,
    /// The OAM flows of paths: numbered behind the circuits.
    flows: usize,
    encapsulated: EncapsulationCounters,
    counters: PortCounters,
    sent: Vec<TimedCell>,
    arrivals: Vec<Arrival>,
    news: Vec<News>,
    /// Next hops for which no circuit was found, and none may be.
    nobody: Vec<IpAddr>,
}

/// Next hops that an ATM port tells IP of at once; those beyond are tried again.
const NOBODY_MAX: usize = 64;

/// What an ATM port has for those above.
pub(crate) enum News {
    /// An IP packet, and the circuit on which it came.
    Packet { circuit: u32, pdu: Pdu },
    /// A frame for a bridge, whole, without FCS.
    Frame { circuit: u32, pdu: Pdu },
    /// A loopback cell of ours came back.
    Loopback { circuit: u32, tag: u32, round_trip: Duration },
}

/// The board's end of a circuit.
#[derive(Clone, Copy)]
struct End {
    encapsulation: Encapsulation,
    frames_max: usize,
    /// A bridge has it; whether frames are sent with their FCS.
    bridged: Option<bool>,
    /// The longest frame of Ethernet, without its FCS.
    frame_bytes_max: usize,
}

impl AtmPort {
    pub(crate) fn new(config: &AtmPortConfig, bridged: &[(u32, bool)]) -> AtmPort {
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
            news: Vec::new(),
            nobody: Vec::new(),
        };
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
                Outlet {
                    vc: end.vc,
                    frames_max: end.frames_max,
                    low_priority: false,
                    contract: end.contract,
                },
            );
            // With LLC/SNAP the first cell holds exactly the headers of a TCP segment without options.
            let bytes_max = match bridged {
                None => config.mtu_bytes,
                Some(_) => frame_bytes_max + FCS_BYTES,
            };
            let inlet = Inlet {
                vc: end.vc,
                frame_bytes_max: bytes_max + encapsulation.header_bytes(carried),
                head_cells: u8::from(end.llc_snap || bridged.is_some()),
            };
            port.reassembly.open(circuit, inlet);
            port.loopback.open(circuit);
            match end.peer {
                _ if bridged.is_some() => {}
                Some(IpAddr::V4(peer)) => port.inarp.open_fixed(circuit, peer),
                _ => port.inarp.open(circuit, Instant::ZERO),
            }
        }
        let mut paths: Vec<u16> = config.circuits.iter().map(|end| end.vc.vpi).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().for_each(|vpi| port.open_flows(vpi));
        port
    }

    /// Opens the two OAM flows of a path, which ends here where its circuits do (I.610 §5: F4).
    fn open_flows(&mut self, vpi: u16) {
        for vci in [VCI_F4_SEGMENT, VCI_F4_END_TO_END] {
            let flow = Circuit((self.circuits.len() + self.flows) as u32);
            let vc = Vc::new(vpi, vci);
            let outlet = Outlet { vc, frames_max: 0, low_priority: false, contract: None };
            self.segmentation.open(flow, outlet);
            self.reassembly.open_oam(flow, vc);
            self.loopback.open(flow);
            self.flows += 1;
        }
    }

    fn room(&self, circuit: usize) -> usize {
        let reserved = FRAMES_RESERVED.min(self.circuits[circuit].frames_max / 2);
        self.segmentation.room(Circuit(circuit as u32)).saturating_sub(reserved)
    }

    /// Frames that wait, on all circuits.
    fn waiting(&self) -> usize {
        let waits = |(circuit, end): (usize, &End)| {
            end.frames_max.saturating_sub(self.segmentation.room(Circuit(circuit as u32)))
        };
        self.circuits.iter().enumerate().map(waits).sum()
    }

    /// Who is at the other end of each circuit, as far as it is known.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Option<IpAddr>> + '_ {
        (0..self.circuits.len()).map(|circuit| self.inarp.peer(Circuit(circuit as u32)).map(IpAddr::V4))
    }

    fn circuit_to(&self, next: IpAddr) -> Option<Circuit> {
        match next {
            IpAddr::V4(next) => self.inarp.circuit_of(next),
            IpAddr::V6(_) => None,
        }
    }

    /// Cells have arrived: what they brought is news.
    pub(crate) fn on_cells(&mut self, cells: &[TimedCell], cx: &mut Context<'_>) {
        let mut arrivals = core::mem::take(&mut self.arrivals);
        self.reassembly.cells(cells, cx, &mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Frame { circuit, pdu, .. } => self.on_frame(circuit, pdu, cx),
                Arrival::Oam { circuit, header, payload, .. } => {
                    // What says segment or end to end is its VCI.
                    let is_flow = circuit.0 as usize >= self.circuits.len();
                    let pti = if is_flow { PTI_OAM_END_TO_END } else { header.pti };
                    let verdict = self.loopback.on_cell(circuit, pti, &payload, cx.now);
                    if let LoopbackVerdict::Returned { tag, round_trip } = verdict {
                        self.news.push(News::Loopback { circuit: circuit.0, tag, round_trip });
                    }
                }
            }
        }
        self.arrivals = arrivals;
    }

    /// What is for those above, in the order in which it came.
    pub(crate) fn news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.news.drain(..)
    }

    fn on_frame(&mut self, circuit: Circuit, mut pdu: Pdu, cx: &mut Context<'_>) {
        let End { encapsulation, bridged, .. } = self.circuits[circuit.0 as usize];
        let carried = encapsulation.pull(&mut pdu, cx.copies, &mut self.encapsulated);
        if bridged.is_some() {
            match carried {
                Ok(Carried::Bridged { with_fcs }) if !with_fcs || take_fcs(&mut pdu) => {
                    self.news.push(News::Frame { circuit: circuit.0, pdu });
                }
                Ok(Carried::Bridged { .. }) => self.counters.fcs_wrong += 1,
                Ok(_) => self.counters.not_ethernet += 1,
                Err(_) => {}
            }
            return;
        }
        match carried {
            Ok(Carried::Ipv4) => self.news.push(News::Packet { circuit: circuit.0, pdu }),
            Ok(Carried::AtmArp) => {
                let whole = pdu.len();
                if let Some(moved) = pdu.pull_up(whole.min(kiban_wire::atmarp::PACKET_BYTES_MAX)) {
                    cx.copies.header_bytes += moved as u64;
                    self.inarp.on_packet(circuit, pdu.head(), cx.now);
                }
            }
            Ok(_) => self.counters.not_ip += 1,
            Err(_) => {}
        }
    }

    /// A frame leaves on a circuit of a bridge. False: it is too long.
    pub(crate) fn send_frame(&mut self, circuit: Circuit, mut pdu: Pdu, cx: &mut Context<'_>) -> bool {
        let End { encapsulation, bridged, frame_bytes_max, .. } = self.circuits[circuit.0 as usize];
        let Some(with_fcs) = bridged else { return true };
        if pdu.len() > frame_bytes_max {
            return false;
        }
        if with_fcs && !put_fcs(&mut pdu, cx) {
            self.counters.starved += 1;
            return true;
        }
        if encapsulation.push(Carried::Bridged { with_fcs }, &mut pdu).is_err() {
            self.counters.not_ethernet += 1;
        } else if self.segmentation.send(circuit, pdu, cx.now).is_err() {
            self.counters.queue_full += 1;
        }
        true
    }

    fn send(&mut self, next: IpAddr, mut pdu: Pdu, claim: Claim, cx: &mut Context<'_>) {
        let Some(circuit) = self.circuit_to(next) else {
            self.counters.no_circuit += 1;
            self.inarp.ask_again(cx.now);
            // Those who are being asked may be it.
            if !self.inarp.is_asking() && self.nobody.len() < NOBODY_MAX && !self.nobody.contains(&next) {
                self.nobody.push(next);
            }
            return;
        };
        let End { encapsulation, frames_max, .. } = self.circuits[circuit.0 as usize];
        if claim == Claim::Half && self.segmentation.room(circuit) <= frames_max / 2 {
            self.counters.queue_full += 1;
            return;
        }
        if encapsulation.push(Carried::Ipv4, &mut pdu).is_err() {
            self.counters.not_ip += 1;
            return;
        }
        if self.segmentation.send(circuit, pdu, cx.now).is_err() {
            self.counters.queue_full += 1;
        }
    }

    /// Pays what address resolution and loopback owe; what is for IP goes to `up`.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, up: &mut dyn FnMut(LinkNews, &mut Context<'_>)) {
        for next in core::mem::take(&mut self.nobody) {
            up(LinkNews::Nobody(next), cx);
        }
        let AtmPort { segmentation, inarp, loopback, circuits, counters, .. } = self;
        let now = cx.now;
        inarp.settle(now, &mut |due| {
            let InArpDue::Packet { circuit, bytes } = due else { return };
            let Some(mut pdu) = cx.memory.blocks.take() else {
                counters.starved += 1;
                return;
            };
            pdu.push_head(bytes.len()).copy_from_slice(bytes);
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

    /// The cells of all slots that start before `until` go to `out`.
    pub(crate) fn cells(&mut self, until: Instant, copies: &mut Copies, out: &mut Vec<TimedCell>) {
        out.append(&mut self.sent);
        self.segmentation.advance(until, out, copies);
    }

    /// When the next frame has left, committed already or not.
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

/// Takes the FCS off a frame; whether it was right.
fn take_fcs(pdu: &mut Pdu) -> bool {
    let Some(length) = pdu.len().checked_sub(FCS_BYTES) else { return false };
    let (mut crc, mut said, mut left) = (Crc32Ethernet::new(), [0; FCS_BYTES], length);
    for run in pdu.runs() {
        let (frame, fcs) = run.split_at(run.len().min(left));
        crc.update(frame);
        left -= frame.len();
        for byte in fcs {
            said.rotate_left(1);
            said[FCS_BYTES - 1] = *byte;
        }
    }
    pdu.truncate(length);
    crc.value().to_le_bytes() == said
}

/// Puts the FCS behind a frame, which is padded before (RFC 2684 §5.2: a frame with its FCS has its padding). False: there is no
/// memory.
fn put_fcs(pdu: &mut Pdu, cx: &mut Context<'_>) -> bool {
    let missing = FRAME_BYTES_MIN.saturating_sub(pdu.len());
    if missing > 0 {
        pdu.push_tail(missing);
    }
    let mut crc = Crc32Ethernet::new();
    pdu.runs().for_each(|run| crc.update(run));
    let fcs = pdu.push_tail(FCS_BYTES);
    let at = fcs.len() - FCS_BYTES;
    fcs[at..].copy_from_slice(&crc.value().to_le_bytes());
    // The tail is AAL5's.
    match pdu.freeze(&mut cx.memory.transmit) {
        Some(bytes) => {
            cx.copies.header_bytes += bytes as u64;
            true
        }
        None => false,
    }
}

/// A port for IP packets: a bounded queue, with an Ethernet link below it or none.
pub(crate) struct PacketPort {
    packets_max: usize,
    cuts: bool,
    pub(crate) merges: bool,
    pub(crate) believe_sums: bool,
    /// Whether the link takes nothing now.
    pub(crate) held: bool,
    queue: VecDeque<Pdu>,
    /// Packets that the queue becomes on the line, segments that go whole being cut there.
    waiting: usize,
    /// Packets that the longest segment becomes there.
    segment_packets: usize,
    pub(crate) merge: Merge,
    pub(crate) link: Option<Box<Link>>,
    /// What passes frames on, in place of IP.
    pub(crate) bridge: Option<Box<Bridging>>,
    /// The longest IPv6 packet, bytes: that of the link, or what a router asked for.
    mtu6_bytes: usize,
    counters: PortCounters,
}

/// Packets that one segment becomes at most: it has no more slices, and none is longer than a packet.
const PIECES_MAX: usize = SLICES_MAX;

impl PacketPort {
    pub(crate) fn ip(config: &IpPortConfig, segment_packets: usize) -> PacketPort {
        let IpPortConfig { packets_max, cuts, merges, believe_sums, mtu_bytes, .. } = *config;
        PacketPort {
            packets_max,
            cuts,
            merges,
            believe_sums,
            held: false,
            queue: VecDeque::with_capacity(packets_max),
            waiting: 0,
            segment_packets,
            merge: Merge::default(),
            link: None,
            bridge: None,
            mtu6_bytes: mtu_bytes,
            counters: PortCounters::default(),
        }
    }

    /// The host's side of another port.
    pub(crate) fn host(config: &HostPortConfig, mtu_bytes: usize) -> PacketPort {
        let (address, prefix) = (IpAddr::from([0; 4]), Prefix::new(IpAddr::from([0; 4]), 32));
        let packets_max = config.packets_max;
        let whole = IpPortConfig {
            address,
            prefix,
            mtu_bytes,
            packets_max,
            cuts: false,
            merges: false,
            believe_sums: true,
        };
        PacketPort::ip(&whole, 1)
    }

    /// The link of a bridge.
    pub(crate) fn bridge(config: &BridgePortConfig) -> PacketPort {
        let host = HostPortConfig { of: 0, packets_max: config.packets_max };
        PacketPort { bridge: Some(Box::new(Bridging::new(config))), ..PacketPort::host(&host, 0) }
    }

    pub(crate) fn ethernet(
        config: &EthernetPortConfig,
        segment_packets: usize,
        rng: &mut SecureRng,
    ) -> PacketPort {
        let EthernetPortConfig { packets_max, cuts, merges, believe_sums, .. } = *config;
        PacketPort {
            packets_max,
            cuts,
            merges,
            believe_sums,
            held: false,
            queue: VecDeque::with_capacity(packets_max),
            waiting: 0,
            segment_packets,
            merge: Merge::default(),
            bridge: None,
            mtu6_bytes: config.link.mtu_bytes,
            link: Some(Box::new(Link::new(config.link.clone(), rng))),
            counters: PortCounters::default(),
        }
    }

    fn has_room(&self, claim: Claim) -> bool {
        let most = self.packets_max;
        self.queue.len() < if claim == Claim::Half { most.div_ceil(2) } else { most }
    }

    /// Segments that fit, cut or not. One that goes whole is counted as the packets that somebody behind the link cuts it into:
    /// what stands in the queue is in nobody's turn any more, so that a lane is shared evenly only as far as the queue is short.
    fn room(&self) -> usize {
        let packets = self.packets_max.saturating_sub(self.waiting.max(self.queue.len()));
        let each = if self.cuts { PIECES_MAX } else { self.segment_packets };
        // However short the queue is, an empty one takes a segment.
        (packets / each).max(usize::from(self.queue.is_empty()))
    }

    fn send(&mut self, next: IpAddr, pdu: Pdu, claim: Claim, cx: &mut Context<'_>) {
        match &mut self.link {
            None => self.queue(None, pdu, claim, &mut cx.memory.blocks),
            Some(link) => {
                if let Some((mac, pdu)) = link.resolve(next, pdu, cx) {
                    self.queue(Some(mac), pdu, claim, &mut cx.memory.blocks);
                }
            }
        }
    }

    /// A packet gets its frame, if the port has frames, and waits for the link.
    pub(crate) fn queue(&mut self, mac: Option<Mac>, mut pdu: Pdu, claim: Claim, blocks: &mut Blocks) {
        if !self.has_room(claim) {
            self.counters.queue_full += 1;
            return;
        }
        let PacketPort { queue, waiting, link, counters, .. } = self;
        let link = link.as_deref();
        let frame = |pdu: &mut Pdu| {
            if let (Some(link), Some(mac)) = (link, mac) {
                link.push_header(mac, pdu);
            }
        };
        if self.cuts && pdu.cut() > 0 {
            let mut emit = |mut piece: Pdu| {
                frame(&mut piece);
                *waiting += packets_of(&piece);
                queue.push_back(piece);
            };
            if !cut::cut(pdu, blocks, &mut emit) {
                counters.starved += 1;
            }
        } else {
            frame(&mut pdu);
            *waiting += packets_of(&pdu);
            queue.push_back(pdu);
        }
    }

    /// What the link owes leaves; what is for IP goes to `up`.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, up: &mut dyn FnMut(LinkNews, &mut Context<'_>)) {
        let Some(mut link) = self.link.take() else { return };
        let mut ready = Vec::new();
        let mtu6_bytes = &mut self.mtu6_bytes;
        link.settle(cx, &mut |due, cx| match due {
            Due::Frame(pdu) => ready.push((None, pdu)),
            Due::Packet { mac, pdu } => ready.push((Some(mac), pdu)),
            Due::Undelivered(pdu) => up(LinkNews::Undelivered(pdu), cx),
            Due::Nobody(next) => up(LinkNews::Nobody(next), cx),
            Due::Address(address, is_ours) => up(LinkNews::Address(address, is_ours), cx),
            Due::Deprecated(address, deprecated) => up(LinkNews::Deprecated(address, deprecated), cx),
            Due::Group(group, listen) => up(LinkNews::Group(group, listen), cx),
            Due::Route(prefix, gateway, exists) => {
                up(LinkNews::Route { prefix, gateway, exists, mtu_bytes: *mtu6_bytes }, cx);
            }
            Due::Mtu(mtu_bytes) => {
                *mtu6_bytes = mtu_bytes;
                up(LinkNews::Mtu(mtu_bytes), cx);
            }
            Due::HopLimit(hop_limit) => up(LinkNews::HopLimit(hop_limit), cx),
        });
        self.link = Some(link);
        for (mac, pdu) in ready {
            self.queue(mac, pdu, Claim::Granted, &mut cx.memory.blocks);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Pdu> {
        let pdu = self.queue.pop_front()?;
        self.waiting -= packets_of(&pdu);
        Some(pdu)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Packets that a PDU becomes on the line, more or less: its headers are not told from its payload.
fn packets_of(pdu: &Pdu) -> usize {
    if pdu.cut() > 0 { pdu.len().div_ceil(pdu.cut()) } else { 1 }
}

/// What a link has for IP: [`Due`] without what leaves through the port itself.
pub(crate) enum LinkNews {
    Undelivered(Pdu),
    Nobody(IpAddr),
    Address(Ipv6Addr, bool),
    Deprecated(Ipv6Addr, bool),
    Group(Ipv6Addr, bool),
    Route { prefix: Prefix, gateway: Option<IpAddr>, exists: bool, mtu_bytes: usize },
    Mtu(usize),
    HopLimit(u8),
}
