//! The IP family: TCP, UDP and ICMP on IP.
//!
//! ```text
//!            host edge
//!      ▲ indications      │ requests
//!   ┌──┴──┐ ┌─────┐ ┌─────▼┐
//!   │ TCP │ │ UDP │ │ ICMP │
//!   └──▲──┘ └──▲──┘ └──▲───┘      up: `on_packet`, one packet to the end
//!      └───────┼───────┘ │        down: `answer`, `settle`, when the burst is over
//!           ┌──┴─────────▼┐
//!           │     IP      │
//!           └─────────────┘ hops: port, neighbour, packet
//! ```

use crate::edge::Edge;
use alloc::collections::VecDeque;
use kiban_ground::{Chance, Context, Pdu};
use kiban_stack::icmp::{self, Icmp};
use kiban_stack::ip::{Hop, Ip, Packet};
use kiban_stack::tcp::{self, Segment, Tcp};
use kiban_stack::udp::{self, Arrival, Udp};
use kiban_wire::numbers::protocol;

/// Bytes of a packet that an ICMP error may quote: the IP header without options and 8 bytes.
const QUOTE_BYTES: usize = 28;

/// The IP family of one board.
pub(crate) struct IpTower {
    pub(crate) ip: Ip,
    pub(crate) tcp: Tcp,
    pub(crate) udp: Udp,
    pub(crate) icmp: Icmp,
    pub(crate) from_tcp: tcp::Outbox,
    pub(crate) datagrams: VecDeque<udp::Datagram>,
    pub(crate) messages: VecDeque<icmp::Message>,
    replies: VecDeque<icmp::Indication>,
}

impl IpTower {
    pub(crate) fn new(ip: Ip, tcp: Tcp, udp: Udp) -> IpTower {
        IpTower {
            ip,
            tcp,
            udp,
            icmp: Icmp::default(),
            from_tcp: tcp::Outbox::default(),
            datagrams: VecDeque::new(),
            messages: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    /// A packet has arrived on a lane: up it goes.
    pub(crate) fn on_packet(&mut self, pdu: Pdu, lane: usize, edge: &mut Edge, cx: &mut Context<'_>) {
        let Some(Packet { source, target, protocol, pdu }) = self.ip.arrive(pdu, cx) else { return };
        match protocol {
            protocol::TCP => {
                self.tcp.arrive(Segment { source, target, pdu }, lane, cx, &mut self.from_tcp);
                self.tell(edge, cx);
            }
            protocol::UDP => match self.udp.arrive(source, target, pdu, cx) {
                Arrival::Data { socket, remote, pdu } => edge.on_datagram(socket, remote, pdu, cx.memory),
                Arrival::NoSocket { pdu } => self.refuse(source, target, pdu, cx),
                Arrival::Dropped => {}
            },
            protocol::ICMP => {
                self.icmp.arrive(source, target, pdu, cx, &mut self.replies, &mut self.messages);
                edge.on_replies(&mut self.replies);
            }
            _ => self.ip.on_unknown_protocol(),
        }
    }

    /// RFC 1122 §4.1.3.1: a datagram for nobody is answered with port unreachable, quoting its headers.
    fn refuse(
        &mut self,
        source: core::net::IpAddr,
        target: core::net::IpAddr,
        mut pdu: Pdu,
        cx: &mut Context<'_>,
    ) {
        let total = pdu.len() + kiban_wire::ipv4::HEADER_BYTES;
        let (core::net::IpAddr::V4(from), core::net::IpAddr::V4(to)) = (source, target) else { return };
        // The IP header was taken off; the quotation carries one that says the same.
        let header = kiban_wire::ipv4::Header {
            traffic_class: 0,
            total_bytes: total as u16,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset_bytes: 0,
            time_to_live: 1,
            protocol: protocol::UDP,
            source: from,
            target: to,
            options: &[],
        };
        header.write(pdu.push_head(kiban_wire::ipv4::HEADER_BYTES));
        let quoted = &pdu.head()[..QUOTE_BYTES.min(pdu.head().len())];
        self.icmp.port_unreachable(target, source, quoted, cx, &mut self.messages);
    }

    /// What TCP says goes to the host's edge; bytes that nobody wants are consumed at once.
    pub(crate) fn tell(&mut self, edge: &mut Edge, cx: &mut Context<'_>) {
        while let Some(indication) = self.from_tcp.up.pop_front() {
            let unwanted = edge.on_tcp(indication, &self.tcp, cx.memory, cx.copies);
            if let Some((session, bytes)) = unwanted {
                self.tcp.consume(session, bytes, cx, &mut self.from_tcp);
            }
        }
    }

    /// What waits for IP goes down: messages, datagrams, segments.
    pub(crate) fn answer(&mut self, cx: &mut Context<'_>, mut hop: impl FnMut(Hop, &mut Context<'_>)) {
        let mut send = |ip: &mut Ip, packet: Packet, cx: &mut Context<'_>| {
            if let Some(way) = ip.send(packet) {
                hop(way, cx);
            }
        };
        while let Some(icmp::Message { source, target, pdu }) = self.messages.pop_front() {
            send(&mut self.ip, Packet { source, target, protocol: protocol::ICMP, pdu }, cx);
        }
        while let Some(udp::Datagram { source, target, pdu }) = self.datagrams.pop_front() {
            send(&mut self.ip, Packet { source, target, protocol: protocol::UDP, pdu }, cx);
        }
        while let Some(Segment { source, target, pdu }) = self.from_tcp.down.pop_front() {
            send(&mut self.ip, Packet { source, target, protocol: protocol::TCP, pdu }, cx);
        }
    }

    /// Then what is owed goes down: sessions send, `rooms[lane]` segments of a lane at the most.
    pub(crate) fn settle(
        &mut self,
        rooms: &[usize],
        edge: &mut Edge,
        cx: &mut Context<'_>,
        hop: impl FnMut(Hop, &mut Context<'_>),
    ) {
        self.tcp.settle(rooms, cx, &mut self.from_tcp);
        self.answer(cx, hop);
        self.tell(edge, cx);
    }
}

/// IP over the board's ports, before any address is known.
pub(crate) fn tower(config: &crate::BoardConfig, page_payload: f64, chance: &mut Chance) -> IpTower {
    let ip = Ip::new(chance);
    let memory = &config.memory;
    let receive = (memory.receive_bytes as f64 * page_payload) as u64;
    let tcp = Tcp::new(config.tcp.clone(), memory.transmit_bytes as u64, receive, chance);
    IpTower::new(ip, tcp, Udp::new(config.udp_sockets_max))
}
