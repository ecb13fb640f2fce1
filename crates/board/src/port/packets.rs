//! A port for IP packets or Ethernet frames: a bounded queue.
//!
//! Cut and merge    cuts large TCP segments into packets (TSO), and merges packets of a stream that arrive in
//!                  one burst (LRO), if configured.
//! Pauses           frames of a priority that the other end has paused stay in the queue, and others overtake
//!                  them.
//! Limits           `packets_max` packets, as counted on the line. Paused frames use the room of others.

use super::counters::{PortCounters, QueueLimit};
use super::events::LinkEvent;
use super::pause::Pauses;
use crate::bridge::Bridging;
use crate::config::{BridgePortConfig, EthernetPortConfig, HostPortConfig, IpPortConfig};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use kiban_base::ethernet::Mac;
use kiban_base::{Context, Instant, Pdu, PduPool, SLICES_MAX, SecureRng};
use kiban_tcpip::ethernet::{Link, Output};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::offload::{self, Merge};

/// A port for IP packets: a bounded queue, with or without an Ethernet link below it.
pub(crate) struct PacketPort {
    packets_max: usize,
    cuts: bool,
    pub(crate) merges: bool,
    pub(crate) believe_sums: bool,
    /// Whether the link accepts no packets at present.
    pub(crate) held: bool,
    pub(super) queue: VecDeque<Pdu>,
    /// The approximate number of packets that the queue will become on the line. A large segment counts as
    /// the packets into which it will be cut.
    waiting: usize,
    /// The number of packets into which the longest segment will be cut.
    segment_packets: usize,
    pub(crate) merge: Merge,
    pub(crate) link: Option<Box<Link>>,
    /// The bridge that forwards frames, instead of IP.
    pub(crate) bridge: Option<Box<Bridging>>,
    /// The longest IPv6 packet, in bytes: the link's MTU, or the one that a router advertised.
    mtu6_bytes: usize,
    /// Priority-based flow control, if the port obeys it.
    pauses: Option<Box<Pauses>>,
    pub(super) counters: PortCounters,
}

/// Maximum number of packets into which a segment is cut. A segment has at most this number of slices, and no
/// slice is longer than a packet.
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
            pauses: None,
            counters: PortCounters::default(),
        }
    }

    /// Creates a host port: the host's interface to another port ([`HostPortConfig`]).
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

    /// Creates the port for a bridge's link.
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
            pauses: config.pfc_bits_per_second.map(|rate| Box::new(Pauses::new(rate))),
            link: Some(Box::new(Link::new(config.link.clone(), rng))),
            counters: PortCounters::default(),
        }
    }

    fn has_room(&self, claim: QueueLimit) -> bool {
        let most = self.packets_max;
        self.queue.len() < if claim == QueueLimit::Half { most.div_ceil(2) } else { most }
    }

    /// Returns how many segments fit, counting a large segment as the packets into which it will be cut.
    /// Segments in the queue can no longer be reordered among streams, so TX queues are shared evenly only
    /// while the queue is short.
    pub(super) fn room(&self) -> usize {
        let packets = self.packets_max.saturating_sub(self.waiting.max(self.queue.len()));
        let each = if self.cuts { PIECES_MAX } else { self.segment_packets };
        // An empty queue accepts one segment, even if the segment becomes more packets than the queue may
        // hold.
        (packets / each).max(usize::from(self.queue.is_empty()))
    }

    pub(super) fn send(&mut self, next: IpAddr, pdu: Pdu, claim: QueueLimit, cx: &mut Context<'_>) {
        match &mut self.link {
            None => self.queue(None, pdu, claim, &mut cx.memory.pdus),
            Some(link) => {
                if let Some((mac, pdu)) = link.resolve(next, pdu, cx) {
                    self.queue(Some(mac), pdu, claim, &mut cx.memory.pdus);
                }
            }
        }
    }

    /// Adds an Ethernet header if the port has frames, and queues the packet for the link.
    pub(crate) fn queue(&mut self, mac: Option<Mac>, mut pdu: Pdu, claim: QueueLimit, blocks: &mut PduPool) {
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
        if self.cuts && pdu.segment_bytes() > 0 {
            let mut emit = |mut piece: Pdu| {
                frame(&mut piece);
                *waiting += packets_of(&piece);
                queue.push_back(piece);
            };
            if !offload::cut(pdu, blocks, &mut emit) {
                counters.no_memory += 1;
            }
        } else {
            frame(&mut pdu);
            *waiting += packets_of(&pdu);
            queue.push_back(pdu);
        }
    }

    /// Sends pending ARP and neighbour discovery packets, and passes events for IP to `up`.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, up: &mut dyn FnMut(LinkEvent, &mut Context<'_>)) {
        let Some(mut link) = self.link.take() else { return };
        let mut ready = Vec::new();
        let mtu6_bytes = &mut self.mtu6_bytes;
        link.settle(cx, &mut |due, cx| match due {
            Output::Frame(pdu) => ready.push((None, pdu)),
            Output::Packet { mac, pdu } => ready.push((Some(mac), pdu)),
            Output::Undelivered(pdu) => up(LinkEvent::Undelivered(pdu), cx),
            Output::NextHopUnreachable(next) => up(LinkEvent::NeighbourFailed(next), cx),
            Output::Address(address, is_ours) => up(LinkEvent::Address(address, is_ours), cx),
            Output::Deprecated(address, deprecated) => up(LinkEvent::Deprecated(address, deprecated), cx),
            Output::Group(group, listen) => up(LinkEvent::Group(group, listen), cx),
            Output::Route(prefix, gateway, exists) => {
                up(LinkEvent::Route { prefix, gateway, exists, mtu_bytes: *mtu6_bytes }, cx);
            }
            Output::Lease(lease, is_ours) => up(LinkEvent::Lease(lease, is_ours), cx),
            Output::Mtu(mtu_bytes) => {
                *mtu6_bytes = mtu_bytes;
                up(LinkEvent::Mtu(mtu_bytes), cx);
            }
            Output::HopLimit(hop_limit) => up(LinkEvent::HopLimit(hop_limit), cx),
            Output::Ask(neighbour) => up(LinkEvent::Ask(neighbour), cx),
            Output::Inform(neighbour, word) => up(LinkEvent::Inform(neighbour, word), cx),
        });
        self.link = Some(link);
        for (mac, pdu) in ready {
            self.queue(mac, pdu, QueueLimit::Granted, &mut cx.memory.pdus);
        }
    }

    /// Takes a frame if it is one of flow control. Returns whether it is.
    pub(crate) fn is_pause(&mut self, frame: &Pdu, now: Instant) -> bool {
        let is_pause = self.pauses.as_mut().is_some_and(|pauses| pauses.take(frame, now));
        self.counters.pauses += u64::from(is_pause);
        is_pause
    }

    /// Returns the next packet that may be sent now.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Pdu> {
        let at = match &mut self.pauses {
            None => 0,
            Some(pauses) => pauses.first_free(&self.queue, now)?,
        };
        let pdu = self.queue.remove(at)?;
        self.waiting -= packets_of(&pdu);
        Some(pdu)
    }

    /// Returns when a paused frame may be sent, if only such frames wait.
    pub(super) fn resumes_at(&self) -> Instant {
        self.pauses.as_ref().map_or(Instant::NEVER, |pauses| pauses.resumes_at())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Returns the approximate number of packets that a PDU becomes on the line: headers are counted as payload.
fn packets_of(pdu: &Pdu) -> usize {
    if pdu.segment_bytes() > 0 { pdu.len().div_ceil(pdu.segment_bytes()) } else { 1 }
}
