//! The parts of the stack, and how it settles a burst.

use crate::edge::{Edge, NEXT_TURN};
use crate::error::HostError;
use crate::port::{LinkEvent, PacketPort, Port, QueueLimit};
use crate::shard::Contents;
use crate::wiring::ip::IpStack;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use kiban_base::numbers::protocol;
use kiban_base::{Context, Copies, Instant, Memory, Pdu, SecureRng};
use kiban_tcpip::dhcp::Lease;
use kiban_tcpip::ip::{Hop, Ip, Packet, Prefix, Route};
use kiban_tcpip::tcp::SessionId;
use kiban_tcpip::udp::{self, SocketId};

/// Ports, the IP family and the host edge of a board.
pub(crate) struct Stack {
    pub(crate) memory: Memory,
    pub(crate) rng: SecureRng,
    pub(crate) copies: Copies,
    pub(crate) ip: IpStack,
    pub(crate) edge: Edge,
    pub(crate) ports: Vec<Port>,
    /// The first TX queue of each port: TX queues are numbered across all ports.
    pub(crate) tx_queues: Vec<usize>,
    /// Pairs of a host port and the port whose address the host has; packets are forwarded between the two.
    pub(crate) passages: Vec<(usize, usize)>,
    /// Packets to be forwarded in this burst, each with the port and the next hop.
    pub(crate) passing: Vec<(usize, Option<IpAddr>, Pdu)>,
    /// Frames for bridges in this burst, each with the port and the member it came from.
    pub(crate) bridging: Vec<(usize, usize, Pdu)>,
    pub(crate) rooms: Vec<usize>,
    /// Whether anything has happened since the last [`Stack::settle`].
    pub(crate) unsettled: bool,
    /// Whether a datagram of the RDMA NIC waits for room at its port.
    pub(crate) datagram_waits: bool,
    pub(crate) v6_only: bool,
    /// The number of owners assigned to clients so far.
    pub(crate) owners: u32,
    pub(crate) now: Instant,
}

impl Stack {
    /// Sends everything that is due after a burst: answers, as many segments as ports have room for, and
    /// packets that the links originate.
    pub(crate) fn settle(&mut self) {
        self.unsettled = false;
        let Stack { memory, rng, copies, ip, edge, ports, tx_queues, rooms, now, unsettled, .. } = self;
        let cx = &mut Context { now: *now, memory, rng, copies };
        // Frames that have been sent make room in the queues, and their memory is freed.
        ports.iter_mut().for_each(|port| port.advance(cx));
        if let Some(shard) = &mut ip.shard {
            for (port, place) in ports.iter_mut().enumerate() {
                let Port::Atm(atm) = place else { continue };
                atm.queue_outgoing(cx, &mut |to, circuit| shard.send(to, Contents::Credit { port, circuit }));
            }
        }
        edge.on_memory(&mut ip.tcp, cx.memory);
        ip.advance(cx);
        ip.answer(cx, |Hop { port, next, pdu }, cx| ports[port].send(next, pdu, QueueLimit::Half, cx));
        rooms.clear();
        rooms.extend(ports.iter().flat_map(|port| (0..port.tx_queues()).map(|tx_queue| port.room(tx_queue))));
        ip.settle(rooms, edge, cx, |Hop { port, next, pdu }, cx| {
            ports[port].send(next, pdu, QueueLimit::Granted, cx);
        });
        // Packets from the board to itself are delivered as if they had come from the port through which they
        // would have left.
        while let Some(delivery) = ip.ip.looped() {
            let route = ip.ip.route_to(delivery.source);
            let tx_queue = route.map_or(0, |(port, next)| tx_queues[port] + ports[port].tx_queue_to(next));
            ip.deliver(delivery, tx_queue, edge, cx);
            *unsettled = true;
        }
        while let Some((port, next)) = ip.negative_advice.pop_front() {
            ports[port].negative_advice(next);
            if let Some(shard) = ip.shard.as_mut().filter(|shard| shard.number != 0) {
                shard.send(0, Contents::NegativeAdvice { port, neighbour: next });
            }
        }
        for (index, port) in ports.iter_mut().enumerate() {
            let mut up = |event, cx: &mut Context<'_>| {
                // The delivery of these packets may allow segments to be sent, or end sessions.
                *unsettled = true;
                on_link_event(ip, edge, index, event, cx);
            };
            match port {
                Port::Atm(atm) => {
                    atm.settle(cx, &mut up);
                    if let Some(shard) = &mut ip.shard {
                        if shard.number == 0 {
                            atm.report_peers(&mut |circuit, peer| shard.tell_peer(index, circuit, peer));
                        }
                        for (to, outgoing) in atm.take_outgoing() {
                            shard.send_to_line(to, index, outgoing);
                        }
                    }
                }
                Port::Vi(_) | Port::Efe => {}
                Port::Packets(packets) => packets.settle(cx, &mut up),
            }
        }
    }

    /// Returns when the stack must be called even if nothing arrives.
    pub(crate) fn deadline(&self) -> Instant {
        let ports = self.ports.iter().map(Port::deadline).min().unwrap_or(Instant::NEVER);
        let line = match self.edge.page_line.is_due(&self.ip.tcp) {
            true => self.now + NEXT_TURN,
            false => Instant::NEVER,
        };
        self.ip.tcp.deadline().min(self.ip.ip.deadline()).min(ports).min(line)
    }

    /// Returns the next packet that a link can take, and its port.
    pub(crate) fn transmit(&mut self) -> Option<(usize, Pdu)> {
        for (port, place) in self.ports.iter_mut().enumerate() {
            if let Port::Packets(packets) = place
                && !packets.held
                && let Some(pdu) = packets.pop(self.now)
            {
                // The port's queue is now empty, so it has room for segments and datagrams that wait.
                self.unsettled |=
                    packets.is_empty() && (self.datagram_waits || self.ip.tcp.has_work(self.tx_queues[port]));
                return Some((port, pdu));
            }
        }
        None
    }

    /// Returns the TX queue for packets to `target`, or the first one if there is no route yet.
    pub(crate) fn tx_queue_to(&self, target: IpAddr) -> usize {
        let route = self.ip.ip.route_to(target);
        route.map_or(0, |(port, next)| self.tx_queues[port] + self.ports[port].tx_queue_to(next))
    }

    pub(crate) fn with_context<T>(&mut self, work: impl FnOnce(&mut IpStack, &mut Context<'_>) -> T) -> T {
        self.unsettled = true;
        let Stack { memory, rng, copies, ip, now, .. } = self;
        work(ip, &mut Context { now: *now, memory, rng, copies })
    }

    /// Returns whether the route from `source` to `target` has room for a packet; without a route it is lost
    /// anyway.
    pub(crate) fn has_room_towards(&self, source: IpAddr, target: IpAddr) -> bool {
        let hop = self.ip.ip.first_hop(source, target).filter(|_| !self.ip.ip.is_ours(target));
        hop.is_none_or(|(port, next)| {
            let port = &self.ports[port];
            port.room(port.tx_queue_to(next)) > 0
        })
    }

    /// Sends a datagram of the RDMA NIC, from our address to the peer's.
    ///
    /// # Errors
    /// As for [`Stack::payload`].
    pub(crate) fn send_nic_datagram(
        &mut self,
        socket: SocketId,
        (local, remote): (IpAddr, SocketAddr),
        bytes: &[u8],
        traffic_class: u8,
        dont_fragment: bool,
    ) -> Result<(), HostError> {
        let pdu = self.payload(bytes)?;
        self.unsettled = true;
        let Stack { memory, rng, copies, ip, ports, now, .. } = self;
        let sent = ip.udp.send(socket, local, remote, pdu);
        let udp::Datagram { source, target, pdu, .. } = sent.expect("a datagram of the NIC is short enough");
        let protocol = protocol::UDP;
        let packet = Packet { source, target, protocol, traffic_class, dont_fragment, hop_limit: 0, pdu };
        let cx = &mut Context { now: *now, memory, rng, copies };
        ip.ip.send(packet, cx, &mut |Hop { port, next, pdu }, cx: &mut Context<'_>| {
            ports[port].send(next, pdu, QueueLimit::Granted, cx);
        });
        Ok(())
    }

    /// Returns a PDU with `bytes` copied into content pages.
    ///
    /// # Errors
    /// `NoMemory`; `TooLong` if a PDU has too few slices for the bytes.
    pub(crate) fn payload(&mut self, bytes: &[u8]) -> Result<Pdu, HostError> {
        let Stack { memory, copies, .. } = self;
        let mut pdu = memory.pdus.take().ok_or(HostError::NoMemory)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let slice =
                memory.transmit.take().and_then(|mut page| page.append(rest)).ok_or(HostError::NoMemory)?;
            rest = &rest[slice.len()..];
            pdu.push_body(slice).map_err(|_| HostError::TooLong)?;
        }
        copies.host_in_bytes += bytes.len() as u64;
        Ok(pdu)
    }

    /// Makes a port listen to a group for one more socket, or one less.
    pub(crate) fn listen_to_group(&mut self, port: usize, group: IpAddr, listen: bool) {
        let Stack { ip, edge, ports, now, unsettled, .. } = self;
        *unsettled = true;
        // RFC 3810 §6: groups of scopes 0 and 1 are not reported.
        let is_reported = !matches!(group, IpAddr::V6(group) if group.octets()[1] & 0xf < 2);
        match &mut ports[port] {
            Port::Packets(PacketPort { link: Some(link), .. }) if is_reported => match listen {
                true => link.join(group, *now),
                false => link.leave(group, *now),
            },
            // Without a link, there is nobody to report to.
            _ => {
                let is_wanted = edge.memberships.iter().any(|known| (known.1, known.2) == (port, group));
                ip.ip.listen_to_group(port, group, is_wanted);
            }
        }
    }

    pub(crate) fn consume(&mut self, session: SessionId, bytes: u32) {
        self.with_context(|ip, cx| ip.tcp.consume(session, bytes, cx, &mut ip.from_tcp));
    }

    pub(crate) fn abort(&mut self, session: SessionId) {
        // Aborting fails only if the session has ended already.
        self.with_context(|ip, cx| ip.tcp.abort(session, cx, &mut ip.from_tcp).ok());
    }

    /// Sends a loopback cell and returns its tag. Returns `None` if there is no such circuit, and
    /// `Some(None)` if a loopback cell is already in flight there.
    pub(crate) fn cell_loopback(&mut self, port: usize, circuit: u32, pti: u8) -> Option<Option<u32>> {
        match self.ports.get_mut(port) {
            Some(Port::Atm(atm)) if atm.has(circuit) => Some(atm.ping(circuit, pti, &mut self.rng)),
            _ => None,
        }
    }
}

/// Adds the address and the routes of a DHCP lease, or removes them. A configured route to the same prefix
/// takes precedence.
fn on_lease(ip: &mut Ip, port: usize, lease: &Lease, is_ours: bool) {
    let source = IpAddr::from(lease.address);
    let host = lease.router.filter(|router| !lease.prefix.contains((*router).into()));
    let routes = [
        Some((lease.prefix, None)),
        // A router outside a subnet of one address is a neighbour.
        host.map(|router| (Prefix::new(router.into(), 32), None)),
        lease.router.map(|router| (Prefix::new(IpAddr::from([0; 4]), 0), Some(router.into()))),
    ];
    for (prefix, gateway) in routes.into_iter().flatten() {
        if is_ours {
            let route = Route { prefix, port, gateway, source, mtu_bytes: lease.mtu_bytes };
            ip.add_route_unless_known(route);
        } else {
            // A configured route to the same router has no leased source, and stays.
            ip.remove_leased_route(port, prefix, gateway, source);
        }
    }
    if is_ours {
        ip.add_address(port, source);
    } else {
        ip.remove_address(source);
    }
}

/// Handles an event from a link, on behalf of IP.
pub(super) fn on_link_event(
    ip_stack: &mut IpStack,
    edge: &mut Edge,
    port: usize,
    event: LinkEvent,
    cx: &mut Context<'_>,
) {
    if let Some(shard) = &mut ip_stack.shard {
        shard.broadcast(|| Some(Contents::Event { port, event: event.shared()? }));
    }
    let ip = &mut ip_stack.ip;
    match event {
        LinkEvent::Undelivered(pdu) => ip_stack.on_undelivered(&pdu, edge, cx),
        LinkEvent::NeighbourFailed(next) => ip_stack.on_neighbour_failed(port, next, edge, cx),
        LinkEvent::Address(address, true) => ip.add_address(port, address.into()),
        LinkEvent::Address(address, false) => ip.remove_address(address.into()),
        LinkEvent::Deprecated(address, deprecated) => ip.deprecate(address, deprecated),
        LinkEvent::Group(group, listen) => ip.listen_to_group(port, group, listen),
        LinkEvent::Route { prefix, gateway, exists: false, .. } => ip.remove_route(port, prefix, gateway),
        LinkEvent::Route { prefix, gateway, mtu_bytes, .. } => {
            let source = core::net::Ipv6Addr::UNSPECIFIED.into();
            ip.add_route(Route { prefix, port, gateway, source, mtu_bytes });
        }
        LinkEvent::Lease(lease, is_ours) => on_lease(ip, port, &lease, is_ours),
        LinkEvent::Mtu(mtu_bytes) => ip.set_mtu6(port, mtu_bytes),
        LinkEvent::HopLimit(hop_limit) => ip.set_hop_limit6(port, hop_limit),
        LinkEvent::Ask(neighbour) => {
            ip_stack.shard.iter_mut().for_each(|shard| shard.send(0, Contents::Ask { port, neighbour }));
        }
        LinkEvent::Inform(neighbour, word) => {
            let inform = || Some(Contents::Inform { port, neighbour, word });
            ip_stack.shard.iter_mut().for_each(|shard| shard.broadcast(inform));
        }
    }
}
