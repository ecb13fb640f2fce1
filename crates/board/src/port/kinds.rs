//! A port of any kind.

use super::atm::AtmPort;
use super::counters::{PortCounters, QueueLimit};
use super::packets::PacketPort;
use crate::bridge::Bridging;
use alloc::boxed::Box;
use core::net::IpAddr;
use kiban_base::{Context, Instant, Pdu};

/// A port of a board.
pub(crate) enum Port {
    Atm(Box<AtmPort>),
    Packets(PacketPort),
    /// A path of the VI NIC.
    Vi(u32),
    /// A port for the RDMA NIC's EFE endpoint.
    Efe,
}

impl Port {
    /// Returns the number of TX queues of the port: its circuits, or one.
    pub(crate) fn tx_queues(&self) -> usize {
        match self {
            Port::Atm(atm) => atm.circuits(),
            Port::Packets(_) => 1,
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Returns the TX queue that leads to a neighbour, or the first one if none is known.
    pub(crate) fn tx_queue_to(&self, next: IpAddr) -> usize {
        match self {
            Port::Atm(atm) => atm.circuit_to(next).map_or(0, |circuit| circuit.0 as usize),
            Port::Packets(_) | Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Returns how many segments TCP may pass to a TX queue now.
    pub(crate) fn room(&self, tx_queue: usize) -> usize {
        match self {
            Port::Atm(atm) => atm.room(tx_queue),
            Port::Packets(port) => port.room(),
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Handles TCP's negative advice about the next hop `next`. (A permanent circuit has only one peer, so
    /// ATM ports ignore the advice.)
    pub(crate) fn negative_advice(&mut self, next: IpAddr) {
        if let Port::Packets(PacketPort { link: Some(link), .. }) = self {
            link.negative_advice(next);
        }
    }

    /// Returns the number of waiting packets or frames.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Port::Atm(atm) => atm.waiting(),
            Port::Packets(port) => port.queue.len(),
            Port::Vi(_) | Port::Efe => 0,
        }
    }

    /// Sends a packet to a neighbour.
    pub(crate) fn send(&mut self, next: IpAddr, pdu: Pdu, claim: QueueLimit, cx: &mut Context<'_>) {
        match self {
            Port::Atm(atm) => atm.send(next, pdu, claim, cx),
            Port::Packets(port) => port.send(next, pdu, claim, cx),
            // No route leads through a NIC's port.
            Port::Vi(_) | Port::Efe => {}
        }
    }

    /// Forwards a packet to the host's network stack, or from it.
    pub(crate) fn forward(&mut self, next: Option<IpAddr>, pdu: Pdu, cx: &mut Context<'_>) {
        if let Some(counters) = self.port_counters() {
            match next {
                Some(_) => counters.host_packets += 1,
                None => counters.no_route += 1,
            }
        }
        if let Some(next) = next {
            self.send(next, pdu, QueueLimit::Granted, cx);
        }
    }

    /// Returns the bridge at this port.
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

    /// Handles timeouts.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Port::Atm(atm) = self {
            atm.segmentation.advance(cx.now, &mut atm.sent, cx.copies);
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Port::Atm(atm) => atm.inarp.deadline().min(atm.loopback.deadline()),
            Port::Packets(port) => {
                let link = port.link.as_ref().map_or(Instant::NEVER, |link| link.deadline());
                link.min(port.resumes_at())
            }
            // All paths of the VI NIC share one deadline, which the board gets from the NIC.
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
                    if let Some(dhcp) = link.dhcp() {
                        dhcp.counters().each(&mut |name, value| see("dhcp", name, value));
                    }
                    if let Some(guest) = link.guest_counters() {
                        guest.each(&mut |name, value| see("guest", name, value));
                    }
                }
                port.counters.each(&mut |name, value| see("port", name, value));
            }
            Port::Vi(_) | Port::Efe => {}
        }
    }
}
