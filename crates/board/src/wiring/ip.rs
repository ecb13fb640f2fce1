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

use crate::edge::{DatagramInfo, Edge, Intercepted, InterceptedKind, NicDatagram};
use crate::shard::{Contents, Lent, Shard};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Pdu, SecureRng};
use kiban_tcpip::icmp::{self, Icmp, IcmpError};
use kiban_tcpip::ip::{Delivery, HeaderInfo, Hop, IcmpErrorKind, Ip, Packet, target_of};
use kiban_tcpip::tcp::{self, Indication, Segment, SessionId, Tcp};
use kiban_tcpip::udp::{self, Arrival, Udp};
use kiban_tcpip::wire::icmp::UNREACHABLE_PROTOCOL;
use kiban_tcpip::wire::tcp::Sequence;

/// The IP family of one board.
pub(crate) struct IpStack {
    pub(crate) ip: Ip,
    pub(crate) tcp: Tcp,
    pub(crate) udp: Udp,
    pub(crate) icmp: Icmp,
    pub(crate) from_tcp: tcp::Outbox,
    pub(crate) datagrams: VecDeque<udp::Datagram>,
    pub(crate) messages: VecDeque<icmp::Message>,
    /// Neighbour discovery and IGMP messages of the burst, for the port on which they arrived.
    pub(crate) discoveries: VecDeque<Delivery>,
    /// Next hops about which TCP has given negative advice.
    pub(crate) negative_advice: VecDeque<(usize, IpAddr)>,
    indications: VecDeque<icmp::Indication>,
    /// The shard, if the board is divided.
    pub(crate) shard: Option<Box<Shard>>,
}

impl IpStack {
    pub(crate) fn new(ip: Ip, tcp: Tcp, udp: Udp) -> IpStack {
        IpStack {
            ip,
            tcp,
            udp,
            icmp: Icmp::default(),
            from_tcp: tcp::Outbox::default(),
            datagrams: VecDeque::new(),
            messages: VecDeque::new(),
            discoveries: VecDeque::new(),
            negative_advice: VecDeque::new(),
            indications: VecDeque::new(),
            shard: None,
        }
    }

    /// Handles a packet that has arrived at a port, through the circuit or port of a TX queue.
    pub(crate) fn on_packet(
        &mut self,
        pdu: Pdu,
        (port, tx_queue): (usize, usize),
        edge: &mut Edge,
        cx: &mut Context<'_>,
    ) {
        match self.ip.arrive(pdu, port, cx) {
            Some(delivery) => self.deliver(delivery, tx_queue, edge, cx),
            None => self.report(cx),
        }
    }

    /// Delivers a packet for this board to its protocol, or hands it on to the shard that serves it.
    pub(crate) fn deliver(
        &mut self,
        delivery: Delivery,
        tx_queue: usize,
        edge: &mut Edge,
        cx: &mut Context<'_>,
    ) {
        match &mut self.shard {
            None => self.deliver_here(delivery, tx_queue, edge, cx),
            Some(shard) => {
                let ends = (&mut self.tcp, &self.udp);
                if let Some(delivery) = shard.keep(delivery, tx_queue, false, ends, cx) {
                    self.deliver_here(delivery, tx_queue, edge, cx);
                }
            }
        }
    }

    /// Delivers a packet that another shard has handed on after IP had processed it.
    pub(crate) fn deliver_handed(
        &mut self,
        mut delivery: Delivery,
        (tx_queue, lent): (usize, Lent),
        edge: &mut Edge,
        cx: &mut Context<'_>,
    ) {
        let Some(shard) = &mut self.shard else { return };
        shard.counters.handed_in += 1;
        let Some(pdu) = shard.take_over(delivery.pdu, lent, cx) else { return };
        delivery.pdu = pdu;
        let ends = (&mut self.tcp, &self.udp);
        if let Some(delivery) = shard.keep(delivery, tx_queue, true, ends, cx) {
            self.deliver_here(delivery, tx_queue, edge, cx);
        }
    }

    /// Delivers a packet for this shard to its protocol.
    fn deliver_here(&mut self, delivery: Delivery, tx_queue: usize, edge: &mut Edge, cx: &mut Context<'_>) {
        match delivery.protocol {
            protocol::TCP => {
                let Delivery { source, target, pdu, brief, .. } = delivery;
                let segment = Segment { source, target, traffic_class: brief.traffic_class, pdu };
                self.tcp.arrive(segment, tx_queue, cx, &mut self.from_tcp);
                self.report_indications(edge, cx);
            }
            protocol::UDP => self.on_datagram(delivery, edge, cx),
            protocol::ICMP if delivery.target.is_ipv4() => self.on_message(delivery, edge, cx),
            protocol::ICMPV6 if delivery.target.is_ipv6() => self.on_message(delivery, edge, cx),
            protocol::IGMP if delivery.target.is_ipv4() => self.discoveries.push_back(delivery),
            _ => {
                self.ip.on_unknown_protocol(delivery);
                self.report(cx);
            }
        }
    }

    /// Handles a packet from a port whose address the host owns; `passage` is the other port of the pair.
    /// Packets that are not for a program of the board are added to `passing`; others are returned.
    pub(crate) fn forward(
        &mut self,
        mut pdu: Pdu,
        passage: Option<usize>,
        passing: &mut Vec<(usize, Option<IpAddr>, Pdu)>,
    ) -> Option<Pdu> {
        let Some(passage) = passage else { return Some(pdu) };
        // IP counts malformed packets.
        let Some(target) = target_of(&mut pdu) else { return Some(pdu) };
        if self.ip.is_ours(target) {
            return Some(pdu);
        }
        let hop =
            self.ip.route_to(target).filter(|(port, _)| *port == passage && !self.ip.is_for_many(target));
        passing.push((passage, hop.map(|(_, next)| next), pdu));
        None
    }

    fn on_datagram(&mut self, delivery: Delivery, edge: &mut Edge, cx: &mut Context<'_>) {
        let Delivery { source, target, protocol, pdu, brief } = delivery;
        match self.udp.arrive(source, target, pdu, cx) {
            Arrival::Data { socket, remote, pdu } if edge.is_of_nic(socket) => {
                let (local, traffic_class) = (target, brief.traffic_class);
                edge.on_nic_datagram(NicDatagram { socket, remote, local, traffic_class, pdu });
            }
            Arrival::Data { socket, remote, pdu } => {
                let HeaderInfo { traffic_class, hop_limit, .. } = brief;
                let info = DatagramInfo { remote, local: target, traffic_class, hop_limit };
                edge.on_datagram(socket, info, pdu, cx.memory);
            }
            Arrival::NoSocket { pdu } if edge.interceptor.is_some() && !brief.to_group => {
                let packet = Intercepted::datagram(source, target, pdu);
                packet.into_iter().for_each(|packet| edge.on_intercepted(packet, cx.memory));
            }
            // RFC 1122 §4.1.3.1, RFC 4443 §3.1.
            Arrival::NoSocket { pdu } => {
                let delivery = Delivery { source, target, protocol, pdu, brief };
                self.ip.request_error(IcmpErrorKind::port_unreachable(target.is_ipv4()), delivery);
                self.report(cx);
            }
            Arrival::Dropped => {}
        }
    }

    fn on_message(&mut self, delivery: Delivery, edge: &mut Edge, cx: &mut Context<'_>) {
        self.icmp.arrive(delivery, cx, &mut self.indications, &mut self.messages);
        while let Some(indications) = self.indications.pop_front() {
            match indications {
                icmp::Indication::EchoReply { source, identifier, sequence, bytes } => {
                    edge.on_reply(source, identifier, sequence, bytes);
                }
                icmp::Indication::EchoRequest { source, target, identifier, sequence, pdu } => {
                    let kind = InterceptedKind::Echo { local: target, remote: source, identifier, sequence };
                    edge.on_intercepted(Intercepted { kind, payload: pdu }, cx.memory);
                }
                icmp::Indication::Error(error) => self.on_icmp_error(error, edge, cx),
                icmp::Indication::Discovery(delivery) => self.discoveries.push_back(delivery),
            }
        }
    }

    /// Passes an ICMP error to the protocol whose packet it quotes.
    pub(crate) fn on_icmp_error(&mut self, mut error: IcmpError, edge: &mut Edge, cx: &mut Context<'_>) {
        if !self.ip.may_be_ours(error.source) {
            return self.icmp.on_implausible_error();
        }
        if let Some(shard) = &mut self.shard
            && error.protocol == protocol::UDP
            && matches!(error.kind, IcmpErrorKind::FragmentationNeeded { .. })
        {
            // Any shard may have sent the datagram, and must learn the path MTU.
            shard.broadcast(|| Some(Contents::IcmpError(error)));
        } else if let Some(shard) = &mut self.shard
            && let Some(to) = shard.of_error(&error)
            && !(error.protocol == protocol::TCP && self.tcp.has_connection(error.local(), error.remote()))
        {
            shard.send(to, Contents::IcmpError(error));
            if error.protocol == protocol::TCP {
                return;
            }
            // A socket of either shard may have sent the datagram.
        }
        if let IcmpErrorKind::FragmentationNeeded { mtu } = error.kind {
            // RFC 5927 §7, RFC 8201 §6: an error that a session rejects must not affect other sessions on the
            // same path.
            let is_lie = error.protocol == protocol::TCP
                && !self.tcp.is_icmp_plausible(error.local(), error.remote(), Sequence(error.sequence()));
            if is_lie {
                return;
            }
            match self.ip.on_too_long(error.target, error.packet_bytes, mtu, cx.now) {
                Some(mtu) => error.kind = IcmpErrorKind::FragmentationNeeded { mtu: mtu.into() },
                None => return,
            }
        }
        match error.protocol {
            protocol::TCP => {
                let (local, remote, sequence) = (error.local(), error.remote(), error.sequence());
                let kind = for_tcp(error.kind, error.target.is_ipv4());
                self.tcp.on_icmp(local, remote, Sequence(sequence), kind, cx, &mut self.from_tcp);
                self.report_indications(edge, cx);
            }
            protocol::UDP => {
                if let Some(socket) = self.udp.on_icmp_error(&error) {
                    edge.on_icmp_error(socket, &error);
                }
            }
            _ => {
                if let Some((identifier, sequence)) = error.echo_request() {
                    edge.on_echo_error(&error, identifier, sequence);
                }
            }
        }
    }

    /// Handles a packet that could not be delivered because its next hop did not answer.
    pub(crate) fn on_undelivered(&mut self, pdu: &Pdu, edge: &mut Edge, cx: &mut Context<'_>) {
        if let Some(error) = icmp::undelivered(pdu.head()) {
            self.on_icmp_error(error, edge, cx);
        }
    }

    /// Handles a next hop that does not answer. Connects through it fail (RFC 1122 §2.3.2.2). Unlike an ICMP
    /// error from a router, this cannot be forged.
    pub(crate) fn on_neighbour_failed(
        &mut self,
        port: usize,
        next: IpAddr,
        edge: &mut Edge,
        cx: &mut Context<'_>,
    ) {
        let IpStack { ip, tcp, from_tcp, .. } = self;
        let is_that_way = |source, target| ip.first_hop(source, target) == Some((port, next));
        tcp.on_next_hop_unreachable(is_that_way, cx, from_tcp);
        self.report_indications(edge, cx);
    }

    /// Sends the ICMP errors that IP has requested.
    fn report(&mut self, cx: &mut Context<'_>) {
        while let Some(complaint) = self.ip.poll_error_request() {
            self.icmp.report(complaint, cx, &mut self.messages);
        }
    }

    /// Handles IP's timeouts, and reports expired datagrams.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        self.ip.settle(cx);
        self.report(cx);
    }

    /// Passes TCP's indications to the host edge; bytes that belong to no stream are consumed here.
    #[inline]
    pub(crate) fn report_indications(&mut self, edge: &mut Edge, cx: &mut Context<'_>) {
        while let Some(indication) = self.from_tcp.up.pop_front() {
            match indication {
                Indication::Opened { session, remote } | Indication::Accepted { session, remote, .. } => {
                    self.report_path(session, remote.ip(), cx);
                }
                Indication::NegativeAdvice { source, target } => {
                    self.negative_advice.extend(self.ip.first_hop(source, target));
                    continue;
                }
                _ => {}
            }
            let unwanted = edge.on_tcp(indication, cx.memory, cx.copies);
            if let Some((session, bytes)) = unwanted {
                self.tcp.consume(session, bytes, cx, &mut self.from_tcp);
            }
        }
    }

    /// Initialises a new session with the known properties of its path (MTU, round-trip time).
    fn report_path(&mut self, session: SessionId, remote: IpAddr, cx: &mut Context<'_>) {
        match self.ip.path_mtu(remote, cx.now) {
            0 => {}
            mtu => self.tcp.set_path_mtu(session, mtu.into(), cx, &mut self.from_tcp),
        }
    }

    /// Sends everything that waits for IP: ICMP messages, datagrams, segments.
    pub(crate) fn answer(&mut self, cx: &mut Context<'_>, mut hop: impl FnMut(Hop, &mut Context<'_>)) {
        while let Some(message) = self.messages.pop_front() {
            let protocol = message.protocol();
            let icmp::Message { source, target, pdu } = message;
            self.ip.send(
                Packet {
                    source,
                    target,
                    protocol,
                    traffic_class: 0,
                    dont_fragment: false,
                    hop_limit: 0,
                    pdu,
                },
                cx,
                &mut hop,
            );
        }
        while let Some(udp::Datagram { source, target, traffic_class, hop_limit, pdu }) =
            self.datagrams.pop_front()
        {
            let packet = Packet {
                source,
                target,
                protocol: protocol::UDP,
                traffic_class,
                dont_fragment: false,
                hop_limit,
                pdu,
            };
            self.ip.send(packet, cx, &mut hop);
        }
        while let Some(Segment { source, target, traffic_class, pdu }) = self.from_tcp.down.pop_front() {
            let packet = Packet {
                source,
                target,
                protocol: protocol::TCP,
                traffic_class,
                dont_fragment: false,
                hop_limit: 0,
                pdu,
            };
            self.ip.send(packet, cx, &mut hop);
        }
    }

    /// Lets sessions send pending segments: at most `rooms[tx_queue]` for each TX queue.
    pub(crate) fn settle(
        &mut self,
        rooms: &[usize],
        edge: &mut Edge,
        cx: &mut Context<'_>,
        hop: impl FnMut(Hop, &mut Context<'_>),
    ) {
        self.tcp.settle(rooms, cx, &mut self.from_tcp);
        self.answer(cx, hop);
        self.report_indications(edge, cx);
    }
}

/// Creates IP for the board's ports; no address is set yet.
pub(crate) fn new_ip_stack(config: &crate::BoardConfig, page_payload: f64, rng: &mut SecureRng) -> IpStack {
    let memory = &config.memory;
    let mut settings = config.ip.clone();
    let reassembly = &mut settings.reassembly;
    // Some datagrams are never completed, so limit fragments to a quarter of the memory.
    reassembly.bytes_max = reassembly.bytes_max.min(memory.receive_bytes / 4);
    reassembly.fragments_max = reassembly.fragments_max.min(memory.pdus / 4);
    let ip = Ip::new(settings, rng);
    let receive = (memory.receive_bytes as f64 * page_payload) as u64;
    let tcp = Tcp::new(config.tcp.clone(), memory.transmit_bytes as u64, receive, rng);
    IpStack::new(ip, tcp, Udp::new(config.udp_sockets_max))
}

/// Classifies an ICMP error for TCP (RFC 1122 §4.2.3.9; RFC 4443 §3.1).
fn for_tcp(kind: IcmpErrorKind, is_ipv4: bool) -> tcp::IcmpErrorClass {
    match kind {
        IcmpErrorKind::Unreachable { code: UNREACHABLE_PROTOCOL } if is_ipv4 => {
            tcp::IcmpErrorClass::ProtocolUnreachable
        }
        _ if kind == IcmpErrorKind::port_unreachable(is_ipv4) => tcp::IcmpErrorClass::PortUnreachable,
        IcmpErrorKind::Unreachable { .. } => tcp::IcmpErrorClass::Unreachable,
        IcmpErrorKind::FragmentationNeeded { mtu } => tcp::IcmpErrorClass::PacketTooBig { mtu },
        IcmpErrorKind::TimeExceeded { .. } => tcp::IcmpErrorClass::TimeExceeded,
        IcmpErrorKind::ParameterProblem { .. } => tcp::IcmpErrorClass::ParameterProblem,
    }
}
