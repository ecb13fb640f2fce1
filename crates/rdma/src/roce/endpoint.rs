//! An endpoint: the UDP datagrams to and from the queue pairs of one NIC.
//!
//! Purpose    builds the datagrams of queue pairs, verifies those that arrive, and runs the timers of queue
//!            pairs.
//! Path       every connected queue pair has one: its own address and port, and its peer's. Packets from
//!            other addresses are dropped. Datagram queue pairs have none: each datagram says where it goes.
//! Trains     packets of one queue pair that have the same length form a train, which a driver sends with one
//!            system call. An IPv4 sender numbers them from zero in their identifications, as Linux does for
//!            UDP_SEGMENT; a single packet has identification 0 on a socket that is not connected and does
//!            not fragment.
//! Check      a packet with a wrong ICRC is dropped and counted. A socket does not show the identification of
//!            a packet: see [`crate::wire::roce::icrc`].
//! Time       [`Endpoint::deadline`], [`Endpoint::advance`].

use super::grh::grh;
use crate::rnic::Rnic;
use crate::wire::datagram;
use crate::wire::roce::icrc::{Icrc, Identifications};
use crate::wire::roce::{
    BTH_BYTES, Bth, Deth, GSI_QKEY, GSI_QPN, ICRC_BYTES, Opcode, Operation, PSN_MASK, Packet, Service,
};
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use kiban_base::Instant;

/// The default partition, with full membership.
const PKEY: u16 = 0xffff;

/// The addresses of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// This host's address and source port.
    pub local: SocketAddr,
    /// The peer's address and destination port.
    pub remote: SocketAddr,
}

/// A train of datagrams to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// The addresses.
    pub path: Path,
    /// The length of each datagram but the last, which may be shorter.
    pub each: usize,
}

kiban_base::counters! {
    /// Events counted by an endpoint.
    pub struct EndpointCounters {
        /// Datagrams sent.
        datagrams_out,
        /// Datagrams received whose ICRC is right.
        datagrams_in,
        /// Datagrams dropped because they are no RoCEv2 packets.
        malformed,
        /// Datagrams dropped because of their ICRC.
        bad_icrc,
        /// Packets dropped because no queue pair has the number.
        unknown_queue_pair,
        /// Packets dropped because they come from another address than that of the queue pair's peer.
        wrong_sender,
        /// Congestion notifications received.
        congestion_notifications,
    }
}

#[derive(Debug)]
struct Connection {
    path: Path,
    /// The earliest time at which a timer runs for it.
    armed: Instant,
}

/// The datagrams of a NIC.
#[derive(Debug, Default)]
pub struct Endpoint {
    connections: BTreeMap<u32, Connection>,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    /// A packet that was longer than its train: the first of the next one.
    held: Option<(u32, Vec<u8>)>,
    packet: Vec<u8>,
    identifications: Identifications,
    /// The PSN of the next datagram of a datagram queue pair, which receivers ignore.
    datagram_psn: u32,
    counters: EndpointCounters,
}

impl Endpoint {
    /// Returns the counters.
    pub fn counters(&self) -> &EndpointCounters {
        &self.counters
    }

    /// Sets the path of a connected queue pair.
    pub fn attach(&mut self, qp: u32, path: Path) {
        self.connections.insert(qp, Connection { path, armed: Instant::NEVER });
    }

    /// Forgets a queue pair.
    pub fn detach(&mut self, qp: u32) {
        self.connections.remove(&qp);
        self.held.take_if(|(held, _)| *held == qp);
    }

    /// Takes a datagram. `find` returns the NIC's number of the queue pair that has a number on the wire.
    /// Returns the MAD if it is one for the connection manager, which is not a queue pair of the NIC.
    pub fn take<'a>(
        &mut self,
        core: &mut Rnic,
        find: impl FnOnce(u32) -> Option<u32>,
        path: Path,
        bytes: &'a [u8],
        now: Instant,
    ) -> Option<&'a [u8]> {
        let Ok((packet, payload)) = Packet::read(bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        if !self.is_intact(&path, bytes) {
            self.counters.bad_icrc += 1;
            return None;
        }
        self.counters.datagrams_in += 1;
        let payload = &bytes[payload];
        let Opcode::Transport(service, _) = packet.bth.opcode else {
            self.counters.congestion_notifications += 1;
            return None;
        };
        if packet.bth.destination == GSI_QPN {
            let is_management =
                packet.deth.is_some_and(|deth| (deth.qkey, deth.source) == (GSI_QKEY, GSI_QPN));
            return is_management.then_some(payload);
        }
        let Some(qp) = find(packet.bth.destination) else {
            self.counters.unknown_queue_pair += 1;
            return None;
        };
        if service == Service::Ud {
            let deth = packet.deth?;
            let header = datagram::Header {
                destination: packet.bth.destination,
                source: deth.source,
                qkey: deth.qkey,
                solicited: packet.bth.solicited,
                immediate: packet.immediate,
            };
            let grh = grh(path.remote, path.local, bytes.len());
            core.datagram(qp, &grh, &header, payload);
            return None;
        }
        match self.connections.get(&qp) {
            Some(connection) if connection.path.remote.ip() == path.remote.ip() => {
                core.packet(qp, &packet, payload, now);
                self.arm(core, qp);
            }
            _ => self.counters.wrong_sender += 1,
        }
        None
    }

    /// Verifies the ICRC of a datagram that arrived on this path.
    fn is_intact(&mut self, path: &Path, bytes: &[u8]) -> bool {
        let Some((covered, received)) = bytes.split_last_chunk::<ICRC_BYTES>() else { return false };
        let mut icrc = Icrc::new(path.remote, path.local, bytes.len(), 0);
        icrc.headers(covered);
        let computed = icrc.octets();
        computed == *received
            || path.local.is_ipv4() && self.identifications.solve(*received, computed, bytes.len()).is_some()
    }

    /// Writes the next train into `train` (its old contents are lost): at most `datagrams_max` datagrams and
    /// `bytes_max`. Queue pairs take turns.
    pub fn next_train(
        &mut self,
        core: &mut Rnic,
        now: Instant,
        (datagrams_max, bytes_max): (usize, usize),
        train: &mut Vec<u8>,
    ) -> Option<Departure> {
        train.clear();
        let qp = match self.held.take() {
            Some((qp, packet)) => {
                self.packet = packet;
                qp
            }
            None => self.next_sender(core, now)?,
        };
        let path = self.connections.get(&qp)?.path;
        let each = self.packet.len() + ICRC_BYTES;
        let mut datagrams = 0;
        loop {
            let datagram_bytes = self.packet.len() + ICRC_BYTES;
            if datagrams > 0 && datagram_bytes > each {
                self.held = Some((qp, mem::take(&mut self.packet)));
                break;
            }
            seal(&path, datagrams, &self.packet, train);
            datagrams += 1;
            if usize::from(datagrams) >= datagrams_max
                || train.len() + each > bytes_max
                || datagram_bytes < each
            {
                core.requeue(qp);
                break;
            }
            if !core.next_packet(qp, now, &mut self.packet) {
                break;
            }
        }
        self.counters.datagrams_out += u64::from(datagrams);
        self.arm(core, qp);
        Some(Departure { path, each })
    }

    /// Takes the next packet of any connected queue pair, and returns the queue pair.
    fn next_sender(&mut self, core: &mut Rnic, now: Instant) -> Option<u32> {
        while let Some(qp) = core.pop_packet_tx_queue() {
            if self.connections.contains_key(&qp) && core.next_packet(qp, now, &mut self.packet) {
                return Some(qp);
            }
        }
        None
    }

    /// Writes the next datagram of a datagram queue pair into `room` (its old contents are lost). `path`
    /// returns the path from a queue pair, which has this number in the NIC, to the queue pair with a number
    /// at an address; without a path, the datagram is lost.
    pub fn next_datagram(
        &mut self,
        core: &mut Rnic,
        path: impl Fn(u32, IpAddr, u32) -> Option<Path>,
        room: &mut Vec<u8>,
    ) -> Option<Departure> {
        while let Some(outgoing) = core.next_datagram(&mut self.packet) {
            let Ok((header, at)) = datagram::Header::read(&self.packet) else { continue };
            let to = Ipv6Addr::from(outgoing.gid).to_canonical();
            let found = path(outgoing.from, to, header.destination);
            let Some(path) = found.filter(|path| path.local.is_ipv4() == to.is_ipv4()) else { continue };
            let payload = mem::take(&mut self.packet);
            self.datagram(&path, &header, &payload[at..], room);
            self.packet = payload;
            return Some(Departure { path, each: room.len() });
        }
        None
    }

    /// Writes a MAD of the connection manager into `room` (its old contents are lost), as one datagram.
    pub fn management(&mut self, path: &Path, mad: &[u8], room: &mut Vec<u8>) {
        let header = datagram::Header {
            destination: GSI_QPN,
            source: GSI_QPN,
            qkey: GSI_QKEY,
            solicited: false,
            immediate: None,
        };
        self.datagram(path, &header, mad, room);
    }

    /// Writes a datagram into `room`.
    fn datagram(&mut self, path: &Path, header: &datagram::Header, payload: &[u8], room: &mut Vec<u8>) {
        let operation =
            if header.immediate.is_some() { Operation::SendOnlyImmediate } else { Operation::SendOnly };
        let mut packet = Packet::new(Bth {
            opcode: Opcode::Transport(Service::Ud, operation),
            solicited: header.solicited,
            migrated: true,
            pad: (payload.len().wrapping_neg() % 4) as u8,
            pkey: PKEY,
            fecn: false,
            becn: false,
            destination: header.destination,
            ack_request: false,
            psn: self.datagram_psn & PSN_MASK,
        });
        packet.deth = Some(Deth { qkey: header.qkey, source: header.source });
        packet.immediate = header.immediate;
        self.datagram_psn = self.datagram_psn.wrapping_add(1);
        let mut whole = alloc::vec![0; packet.length()];
        packet.write(&mut whole);
        whole.extend_from_slice(payload);
        whole.resize(whole.len() + usize::from(packet.bth.pad), 0);
        room.clear();
        seal(path, 0, &whole, room);
        self.counters.datagrams_out += 1;
    }

    // ---- time

    /// Returns the time of the next [`Endpoint::advance`].
    pub fn deadline(&self) -> Instant {
        self.timers.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Runs the timers that have expired.
    pub fn advance(&mut self, core: &mut Rnic, now: Instant) {
        while let Some(&Reverse((at, qp))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(connection) = self.connections.get_mut(&qp).filter(|known| known.armed == at) else {
                continue;
            };
            connection.armed = Instant::NEVER;
            if core.packet_deadline(qp).is_some_and(|deadline| deadline <= now) {
                core.on_packet_timer(qp, now);
            }
            self.arm(core, qp);
        }
    }

    /// Makes sure that a timer runs when a queue pair needs it. A timer that runs too early is set again when
    /// it expires, so that acknowledgements, which move the deadline, cost nothing.
    fn arm(&mut self, core: &Rnic, qp: u32) {
        if let Some(deadline) = core.packet_deadline(qp)
            && let Some(connection) = self.connections.get_mut(&qp)
            && deadline < connection.armed
        {
            connection.armed = deadline;
            self.timers.push(Reverse((deadline, qp)));
        }
    }
}

/// Appends a packet and its ICRC to a train. `number` counts the train's packets from zero.
fn seal(path: &Path, number: u16, packet: &[u8], train: &mut Vec<u8>) {
    debug_assert!(packet.len() >= BTH_BYTES, "a packet begins with a BTH");
    let mut icrc = Icrc::new(path.local, path.remote, packet.len() + ICRC_BYTES, number);
    icrc.headers(packet);
    train.extend_from_slice(packet);
    train.extend_from_slice(&icrc.octets());
}
