//! RoCEv2 over the board's UDP: datagrams to and from port 4791.
//!
//! Receive path     the board's UDP checks a datagram's checksum, and the endpoint its ICRC.
//! Transmit path    one datagram at a time, as far as its port has room. It is never fragmented, so over IPv4
//!                  it has identification 0, which the ICRC covers (IBTA §A17.3.2).
//! ECN              packets of connected queue pairs have the configured code point, others none; those that
//!                  arrive marked are counted, and the endpoint answers them.
//! Limits           a datagram that waits for room holds back those to other ports. Without packet memory a
//!                  datagram is lost; it is retransmitted after the acknowledgement timeout.

use crate::config::RoceConfig;
use crate::edge::RoceArrival;
use crate::port::QueueLimit;
use crate::stack::Stack;
use alloc::vec::Vec;
use core::net::SocketAddr;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Instant, RngKey};
use kiban_rdma::nic::{Nic, RocePort};
use kiban_rdma::roce::{Departure, Path};
use kiban_rdma::wire::roce::PORT;
use kiban_tcpip::ip::{Hop, Packet};
use kiban_tcpip::udp::{self, SocketId};

/// Limits of what is fetched from the endpoint at a time: one datagram, of any length.
const ONE_DATAGRAM: (usize, usize) = (1, u16::MAX as usize);
/// The ECN field, and its value "congestion experienced" (RFC 3168 §5).
const ECN_MASK: u8 = 0b11;
const CE: u8 = 0b11;

kiban_base::counters! {
    /// Counters of RoCEv2 on a board.
    pub struct RoceCounters {
        /// Datagrams that arrived with the ECN mark "congestion experienced".
        ce_marked,
        /// Datagrams lost here because there was no packet memory.
        no_memory,
    }
}

/// The NIC's RoCEv2 port, on a socket of the board's UDP.
pub(super) struct RoceWiring {
    pub(super) port: RocePort,
    socket: SocketId,
    traffic_class: u8,
    /// The datagram that was fetched last, and where it goes if it waits for room.
    datagram: Vec<u8>,
    waiting: Option<Departure>,
    joined: Vec<u8>,
    counters: RoceCounters,
}

impl RoceWiring {
    pub(super) fn new(config: &RoceConfig, socket: SocketId, key: RngKey) -> RoceWiring {
        RoceWiring {
            port: RocePort::new(config.nic.clone(), key),
            socket,
            traffic_class: config.traffic_class,
            datagram: Vec::new(),
            waiting: None,
            joined: Vec::new(),
            counters: RoceCounters::default(),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.port.deadline()
    }

    pub(super) fn counters(&self, see: &mut dyn FnMut(&'static str, &'static str, u64)) {
        let (endpoint, cm) = self.port.counters();
        endpoint.each(&mut |name, value| see("roce", name, value));
        self.counters.each(&mut |name, value| see("roce_port", name, value));
        cm.each(&mut |name, value| see("roce_cm", name, value));
    }

    /// Passes received datagrams to the NIC, and runs timers.
    pub(super) fn receive(&mut self, nic: &mut Nic, stack: &mut Stack) {
        while let Some(RoceArrival { remote, local, traffic_class, pdu }) = stack.edge.roce_arrival() {
            let is_marked = traffic_class & ECN_MASK == CE;
            self.counters.ce_marked += u64::from(is_marked);
            let path = Path { local: SocketAddr::new(local, PORT), remote };
            let mut runs = pdu.runs().filter(|run| !run.is_empty());
            match (runs.next(), runs.next()) {
                (Some(whole), None) => nic.take_roce(&mut self.port, path, whole, is_marked, stack.now),
                _ => {
                    self.joined.clear();
                    pdu.runs().for_each(|run| self.joined.extend_from_slice(run));
                    stack.copies.host_out_bytes += self.joined.len() as u64;
                    nic.take_roce(&mut self.port, path, &self.joined, is_marked, stack.now);
                }
            }
        }
        nic.pump_roce(&mut self.port, stack.now);
    }

    /// Sends the NIC's datagrams, as far as there is room.
    pub(super) fn send(&mut self, nic: &mut Nic, stack: &mut Stack) {
        stack.roce_waits = false;
        loop {
            let next = self
                .waiting
                .take()
                .or_else(|| nic.next_roce(&mut self.port, stack.now, ONE_DATAGRAM, &mut self.datagram));
            let Some(departure) = next else { return };
            if !stack.has_room_towards(departure.path.local.ip(), departure.path.remote.ip()) {
                self.waiting = Some(departure);
                stack.roce_waits = true;
                return;
            }
            self.send_datagram(&departure, stack);
        }
    }

    fn send_datagram(&mut self, departure: &Departure, stack: &mut Stack) {
        let Departure { path, is_ecn_capable, .. } = departure;
        let Ok(pdu) = stack.payload(&self.datagram) else {
            self.counters.no_memory += 1;
            return;
        };
        stack.unsettled = true;
        let Stack { memory, rng, copies, ip, ports, now, .. } = stack;
        let sent = ip.udp.send(self.socket, path.local.ip(), path.remote, pdu);
        let udp::Datagram { source, target, pdu } = sent.expect("a datagram of RoCEv2 is short enough");
        let packet = Packet {
            source,
            target,
            protocol: protocol::UDP,
            traffic_class: if *is_ecn_capable { self.traffic_class } else { self.traffic_class & !ECN_MASK },
            dont_fragment: true,
            pdu,
        };
        let cx = &mut Context { now: *now, memory, rng, copies };
        ip.ip.send(packet, cx, &mut |Hop { port, next, pdu }, cx: &mut Context<'_>| {
            ports[port].send(next, pdu, QueueLimit::Granted, cx);
        });
    }
}
