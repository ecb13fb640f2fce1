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
use crate::edge::NicDatagram;
use crate::stack::Stack;
use alloc::vec::Vec;
use core::net::SocketAddr;
use kiban_base::{Instant, RngKey};
use kiban_rdma::nic::{Nic, RocePort};
use kiban_rdma::roce::{Departure, Path};
use kiban_rdma::wire::roce::PORT;
use kiban_tcpip::udp::SocketId;

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

    /// Passes a datagram to the NIC, if it belongs to RoCEv2.
    pub(super) fn take(&mut self, datagram: &NicDatagram, nic: &mut Nic, stack: &mut Stack) {
        if self.socket == datagram.socket {
            let is_marked = datagram.traffic_class & ECN_MASK == CE;
            self.counters.ce_marked += u64::from(is_marked);
            let path = Path { local: SocketAddr::new(datagram.local, PORT), remote: datagram.remote };
            let bytes = datagram.bytes(&mut self.joined, &mut stack.copies);
            nic.take_roce(&mut self.port, path, bytes, is_marked, stack.now);
        }
    }

    /// Sends the NIC's datagrams, as far as there is room. Returns whether one waits for room.
    pub(super) fn send(&mut self, nic: &mut Nic, stack: &mut Stack) -> bool {
        loop {
            let next = self
                .waiting
                .take()
                .or_else(|| nic.next_roce(&mut self.port, stack.now, ONE_DATAGRAM, &mut self.datagram));
            let Some(departure) = next else { return false };
            if !stack.has_room_towards(departure.path.local.ip(), departure.path.remote.ip()) {
                self.waiting = Some(departure);
                return true;
            }
            self.send_datagram(&departure, stack);
        }
    }

    fn send_datagram(&mut self, departure: &Departure, stack: &mut Stack) {
        let Departure { path, is_ecn_capable, .. } = departure;
        let traffic_class = if *is_ecn_capable { self.traffic_class } else { self.traffic_class & !ECN_MASK };
        let way = (path.local.ip(), path.remote);
        if stack.send_nic_datagram(self.socket, way, &self.datagram, traffic_class, true).is_err() {
            self.counters.no_memory += 1;
        }
    }
}
