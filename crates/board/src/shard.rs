//! Shards: one board divided into several stacks, each driven by a thread of its own.
//!
//! Shard            a [`Board`](crate::Board) with its own packet memory, timers, sessions and listeners, and
//!                  with the addresses of the whole board. Shards share nothing; they pass each other
//!                  [`Parcel`]s, which the driver carries through rings.
//! Flows            a keyed hash chooses the shard of a TCP connection or of a UDP flow ([`Steering`]). A
//!                  packet that arrives at another shard is handed on before anything else looks at it. A
//!                  connection that a shard opens has a local port that leads back to this shard.
//! Shard 0          gets everything that has no flow: ARP, neighbour discovery, DHCP, ICMP and fragments,
//!                  whose datagrams it passes on once they are whole. It also gets segments and datagrams
//!                  that the flow's own shard does not expect. Programs that use shard 0 only, and the NICs,
//!                  therefore work as on an undivided board; their packets take one step more.
//! Cells            a circuit of an ATM port belongs to one shard, which reassembles its frames; one shard
//!                  sends its packets (`port/sharing.rs`).
//! Neighbours       shard 0 resolves them. The other shards ask it, and it informs all of them.
//! Addresses, routes    that shard 0 learns or leases are passed to all shards.
//! Limits           the driver's rings are bounded; when one is full, parcels are dropped and counted there,
//!                  except changes of addresses and routes, and packets for an ATM port, which wait.
//! Memory           a packet that is handed on occupies memory of the shard at which it arrived, however long
//!                  it waits for a program that does not read. So that no program fills the memory of another
//!                  shard, a shard with less than half of its receive memory free marks the packets that it
//!                  hands on, and the other shard copies them into its own memory at once, or drops them
//!                  there. With less than a sixteenth free, it drops packets for other shards.

use crate::config::ShardConfig;
use crate::port::{CellBurst, LinkEvent, Outgoing};
use alloc::collections::VecDeque;
use core::net::{IpAddr, Ipv4Addr};
use kiban_base::ethernet::{self, HEADER_BYTES};
use kiban_base::numbers::{ether_type, protocol};
use kiban_base::{Context, Copies, Memory, Page, Pdu};
use kiban_tcpip::ethernet::Advertised;
use kiban_tcpip::icmp::IcmpError;
use kiban_tcpip::ip::Delivery;
use kiban_tcpip::steering::{PORTS_BYTES, Steering, flow_of};
use kiban_tcpip::tcp::Tcp;
use kiban_tcpip::udp::Udp;
use kiban_tcpip::wire::ip::version;
use kiban_tcpip::wire::{ipv4, ipv6};

/// Something that one shard passes to another.
#[derive(Debug)]
pub struct Parcel(pub(crate) Contents);

/// The contents of a parcel.
#[derive(Debug)]
pub(crate) enum Contents {
    /// A packet or frame that has arrived at a port, on this circuit if it is an ATM port.
    Unit { port: usize, circuit: u32, pdu: Pdu, lent: Lent },
    /// Cells of circuits of the other shard.
    Cells { port: usize, burst: CellBurst },
    /// An InATMARP packet, for shard 0.
    AtmArp { port: usize, circuit: u32, pdu: Pdu },
    /// A packet that IP has processed, and the TX queue to its sender.
    Delivery { delivery: Delivery, tx_queue: usize, lent: Lent },
    /// An ICMP error about a flow.
    IcmpError(IcmpError),
    /// Asks shard 0 to resolve a neighbour.
    Ask { port: usize, neighbour: IpAddr },
    /// Negative advice about a neighbour, for shard 0.
    NegativeAdvice { port: usize, neighbour: IpAddr },
    /// Information of shard 0 about a neighbour.
    Inform { port: usize, neighbour: IpAddr, word: Advertised },
    /// A change of addresses or routes at a port of shard 0.
    Event { port: usize, event: LinkEvent },
    /// A packet of this shard, for a circuit of an ATM port that the other shard sends.
    Outgoing { port: usize, outgoing: Outgoing },
    /// The shard that sends a circuit's packets has queued one.
    Credit { port: usize, circuit: u32 },
    /// A circuit has another peer, or none.
    Peer { port: usize, circuit: u32, peer: Option<Ipv4Addr> },
}

/// How long another shard may keep the memory of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lent {
    /// As long as it needs it.
    Freely,
    /// Until it has copied it: the memory is getting short.
    Briefly,
}

impl Parcel {
    /// Returns whether the parcel must not be dropped when a ring is full. Packets are retransmitted by the
    /// peers, and requests to resolve a neighbour are repeated.
    pub fn must_arrive(&self) -> bool {
        use Contents::{Credit, Event, Outgoing, Peer};
        matches!(self.0, Event { .. } | Outgoing { .. } | Credit { .. } | Peer { .. })
    }
}

kiban_base::counters! {
    /// Counters of a shard.
    pub struct ShardCounters {
        /// Packets and frames handed on to the shard of their flow.
        handed_on,
        /// Packets and frames without a flow, handed on to shard 0.
        handed_to_first,
        /// Segments and datagrams of the shard's flows for which the shard has no session, listener or
        /// socket, handed on to shard 0.
        unexpected,
        /// Packets and frames that other shards have handed on.
        handed_in,
        /// Packets passed to the shard that sends the packets of their circuit of an ATM port.
        to_line,
        /// Cells handed on to the shard of their circuit, or, if they are management cells, to shard 0.
        cells_handed_on,
        /// Cells that other shards have handed on.
        cells_handed_in,
        /// Cells dropped instead of being handed on, because the other shards had not taken 64 earlier
        /// bursts.
        cells_dropped,
        /// Messages about neighbours, addresses, routes and credits sent to other shards.
        messages_out,
        /// Messages about neighbours, addresses, routes and credits from other shards.
        messages_in,
        /// Packets dropped instead of being handed on, because the shard had less than a sixteenth of its
        /// receive memory free, or instead of being copied into this shard's memory.
        memory_short,
        /// Packets from shards whose memory was getting short, copied into this shard's memory.
        handed_in_copied,
    }
}

/// One shard's side of the division.
pub(crate) struct Shard {
    pub(crate) number: usize,
    pub(crate) steering: Steering,
    pub(crate) counters: ShardCounters,
    outbox: VecDeque<(usize, Parcel)>,
    /// The page into which packets of other shards are copied.
    page: Option<Page>,
}

impl Shard {
    pub(crate) fn new(config: &ShardConfig) -> Shard {
        let ShardConfig { number, steering } = *config;
        Shard { number, steering, counters: ShardCounters::default(), outbox: VecDeque::new(), page: None }
    }

    /// Returns the next parcel for another shard.
    pub(crate) fn pop(&mut self) -> Option<(usize, Parcel)> {
        self.outbox.pop_front()
    }

    /// Queues a message for another shard.
    pub(crate) fn send(&mut self, to: usize, contents: Contents) {
        self.counters.messages_out += 1;
        self.outbox.push_back((to, Parcel(contents)));
    }

    /// Passes the peer of a circuit to the other shards.
    pub(crate) fn tell_peer(&mut self, port: usize, circuit: u32, peer: Option<Ipv4Addr>) {
        self.broadcast(|| Some(Contents::Peer { port, circuit, peer }));
    }

    /// Passes a packet of this shard to the shard that sends the packets of its circuit.
    pub(crate) fn send_to_line(&mut self, to: usize, port: usize, outgoing: Outgoing) {
        self.counters.to_line += 1;
        self.send(to, Contents::Outgoing { port, outgoing });
    }

    /// Hands on cells to the shard of their circuits.
    pub(crate) fn hand_cells(&mut self, to: usize, port: usize, burst: CellBurst) {
        self.counters.cells_handed_on += burst.cells.len() as u64;
        self.outbox.push_back((to, Parcel(Contents::Cells { port, burst })));
    }

    /// Queues a message of shard 0, if there is one, for all others.
    pub(crate) fn broadcast(&mut self, make: impl Fn() -> Option<Contents>) {
        if self.number == 0 {
            for to in 1..self.steering.shards() {
                let Some(contents) = make() else { return };
                self.send(to, contents);
            }
        }
    }

    /// Keeps the packets or frames of a burst that belong here, and hands on the others.
    pub(crate) fn steer(
        &mut self,
        port: usize,
        units: &mut VecDeque<Pdu>,
        are_frames: bool,
        cx: &mut Context<'_>,
    ) {
        for _ in 0..units.len() {
            let mut pdu = units.pop_front().expect("the burst is that long");
            let flow = if are_frames {
                self.of_frame(&mut pdu, cx.copies)
            } else {
                self.of_packet(&mut pdu, cx.copies)
            };
            units.extend(self.keep_unit((port, 0), flow, pdu, cx));
        }
    }

    /// Returns a packet from a circuit if it belongs here, and hands it on otherwise.
    pub(crate) fn steer_packet(
        &mut self,
        place: (usize, u32),
        mut pdu: Pdu,
        cx: &mut Context<'_>,
    ) -> Option<Pdu> {
        let flow = self.of_packet(&mut pdu, cx.copies);
        self.keep_unit(place, flow, pdu, cx)
    }

    /// Returns a packet or frame if its flow belongs here, and hands it on otherwise.
    fn keep_unit(
        &mut self,
        (port, circuit): (usize, u32),
        flow: Option<usize>,
        pdu: Pdu,
        cx: &mut Context<'_>,
    ) -> Option<Pdu> {
        let to = flow.unwrap_or(0);
        if to == self.number {
            return Some(pdu);
        }
        let lent = self.lend(cx)?;
        match flow {
            Some(_) => self.counters.handed_on += 1,
            None => self.counters.handed_to_first += 1,
        }
        self.outbox.push_back((to, Parcel(Contents::Unit { port, circuit, pdu, lent })));
        None
    }

    fn of_packet(&self, pdu: &mut Pdu, copies: &mut Copies) -> Option<usize> {
        pull_up_headers(pdu, 0, copies)?;
        self.steering.of_packet(pdu.head())
    }

    /// Returns how long another shard may keep the memory of a packet of this one. Returns `None`, and counts
    /// the packet, if it must not be handed on.
    fn lend(&mut self, cx: &mut Context<'_>) -> Option<Lent> {
        let Memory { receive, pdus, .. } = &mut cx.memory;
        let (pages, blocks) = (receive.available(), pdus.available());
        let has = |part: usize| pages >= receive.capacity() / part && blocks >= pdus.capacity() / part;
        match (has(2), has(16)) {
            (true, _) => Some(Lent::Freely),
            (false, true) => Some(Lent::Briefly),
            (false, false) => {
                self.counters.memory_short += 1;
                None
            }
        }
    }

    /// Takes over a packet of another shard: copies it into this shard's memory, unless it is lent freely.
    /// Returns `None`, and counts the packet, if there is no memory.
    pub(crate) fn take_over(&mut self, pdu: Pdu, lent: Lent, cx: &mut Context<'_>) -> Option<Pdu> {
        if lent == Lent::Freely {
            self.page = None;
            return Some(pdu);
        }
        let copy = pdu.copy(&mut cx.memory.pdus, &mut cx.memory.receive, &mut self.page);
        match &copy {
            Some(copy) => {
                cx.copies.gather_bytes += copy.body_len() as u64;
                self.counters.handed_in_copied += 1;
            }
            None => self.counters.memory_short += 1,
        }
        copy
    }

    fn of_frame(&self, pdu: &mut Pdu, copies: &mut Copies) -> Option<usize> {
        copies.header_bytes += pdu.pull_up(HEADER_BYTES)? as u64;
        let (header, _) = ethernet::Header::read(pdu.head()).ok()?;
        let is_ip = matches!(header.ether_type, ether_type::IPV4 | ether_type::IPV6);
        if !is_ip || header.target.is_group() {
            return None;
        }
        pull_up_headers(pdu, HEADER_BYTES, copies)?;
        self.steering.of_packet(&pdu.head()[HEADER_BYTES..])
    }

    /// Returns a packet that IP has processed if this shard serves it; otherwise hands it on. `is_handed`
    /// says whether another shard has handed it on after IP had processed it.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        mut delivery: Delivery,
        tx_queue: usize,
        is_handed: bool,
        (tcp, udp): (&mut Tcp, &Udp),
        cx: &mut Context<'_>,
    ) -> Option<Delivery> {
        if !matches!(delivery.protocol, protocol::TCP | protocol::UDP) {
            return Some(delivery);
        }
        // TCP and UDP count a packet without a whole header.
        let Some(moved) = delivery.pdu.pull_up(PORTS_BYTES) else { return Some(delivery) };
        cx.copies.header_bytes += moved as u64;
        let Some((remote, local)) = flow_of(&delivery) else { return Some(delivery) };
        if self.number == 0 {
            // Fragments, and packets with extension headers, are only now known to have a flow.
            let to = if is_handed { 0 } else { self.steering.of_flow(remote, local) };
            if to == 0 {
                return Some(delivery);
            }
            let lent = self.lend(cx)?;
            self.counters.handed_on += 1;
            self.hand(to, delivery, tx_queue, lent);
            return None;
        }
        let is_expected = match delivery.protocol {
            protocol::TCP => tcp.expects(local, remote),
            _ => udp.has_socket(local),
        };
        if is_expected {
            return Some(delivery);
        }
        let lent = self.lend(cx)?;
        self.counters.unexpected += 1;
        self.hand(0, delivery, tx_queue, lent);
        None
    }

    fn hand(&mut self, to: usize, delivery: Delivery, tx_queue: usize, lent: Lent) {
        self.outbox.push_back((to, Parcel(Contents::Delivery { delivery, tx_queue, lent })));
    }

    /// Returns the other shard that an ICMP error about a flow concerns.
    pub(crate) fn of_error(&self, error: &IcmpError) -> Option<usize> {
        let has_flow = matches!(error.protocol, protocol::TCP | protocol::UDP);
        let to = has_flow.then(|| self.steering.of_flow(error.local(), error.remote()))?;
        (self.number == 0 && to != 0).then_some(to)
    }
}

/// Makes the IP header that begins at `at`, and the ports behind it, contiguous. Returns `None` if the packet
/// is too short.
fn pull_up_headers(pdu: &mut Pdu, at: usize, copies: &mut Copies) -> Option<()> {
    copies.header_bytes += pdu.pull_up(at + ipv4::HEADER_BYTES)? as u64;
    let header_bytes = match version(&pdu.head()[at..]) {
        Some(6) => ipv6::HEADER_BYTES,
        _ => usize::from(pdu.head()[at] & 0x0f) * 4,
    };
    copies.header_bytes += pdu.pull_up(at + header_bytes + PORTS_BYTES)? as u64;
    Some(())
}
