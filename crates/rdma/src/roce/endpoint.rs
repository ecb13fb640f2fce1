//! An endpoint: the UDP datagrams to and from the queue pairs of one NIC.
//!
//! Purpose    builds the datagrams of queue pairs, verifies those that arrive, and runs the timers of queue
//!            pairs.
//! Path       every connected queue pair has one: its own address and port, and its peer's. Packets from
//!            other addresses are dropped, and so are those from other ports if the peer has its own port.
//!            Datagram queue pairs have none: each work request names its destination.
//! Trains     packets of one queue pair that have the same length form a train, which a driver sends with one
//!            system call. An IPv4 sender numbers them from zero in their identifications, as Linux does for
//!            UDP_SEGMENT; a single packet has identification 0 on a socket that is not connected and does
//!            not fragment.
//! Check      a packet with a wrong ICRC is dropped and counted. A socket does not show the identification of
//!            a packet: see [`crate::wire::roce::icrc`].
//! Congestion datagrams of connected queue pairs carry ECT(0). If one arrives marked (CE), its sender gets a
//!            congestion notification packet (CNP, IBTA §A17.9.3), at most one per queue pair and
//!            [`CNP_INTERVAL`]; a CNP makes a queue pair send more slowly ([`Rnic::on_congestion`]). Over
//!            RoCEv2, the mark is in the IP header: FECN is neither set nor read, and BECN is set in CNPs.
//! Time       [`Endpoint::deadline`], [`Endpoint::advance`].

use super::grh::grh;
use crate::rnic::{CNP_INTERVAL, Outgoing, Rnic, RoceTraits, StreamAction};
use crate::wire::datagram;
use crate::wire::roce::icrc::{Icrc, Identifications};
use crate::wire::roce::{
    BTH_BYTES, Bth, Deth, GSI_QKEY, GSI_QPN, ICRC_BYTES, MULTICAST_QPN, Opcode, Operation, PORT, PSN_MASK,
    Packet, Service, pad,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
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
    /// Whether the datagrams carry ECT(0) (RFC 3168 §5): routers may mark them instead of dropping them.
    pub is_ecn_capable: bool,
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
        /// Datagrams to datagram queue pairs and to the connection manager that were dropped because they
        /// are for another partition.
        wrong_partition,
        /// Packets dropped because no queue pair has the number.
        unknown_queue_pair,
        /// Packets dropped because they come from another address than that of the queue pair's peer, or
        /// from another port.
        wrong_sender,
        /// Datagrams that arrived with a congestion mark.
        congestion_marks,
        /// Congestion notifications sent.
        congestion_notifications_out,
        /// Congestion notifications received.
        congestion_notifications,
    }
}

#[derive(Debug)]
struct Connection {
    path: Path,
    /// The earliest time at which a timer runs for it.
    armed: Instant,
    /// Before this time, no further congestion notification is sent.
    quiet_until: Instant,
}

impl Connection {
    /// Returns whether a packet from `sender` is from the peer. If the peer receives at RoCEv2's port, it may
    /// send from any (IBTA §A17.3.1). Otherwise, it is of this implementation and sends from the port at
    /// which it receives, which no other program can have.
    fn is_from_peer(&self, sender: SocketAddr) -> bool {
        let peer = self.path.remote;
        sender.ip() == peer.ip() && (peer.port() == PORT || sender.port() == peer.port())
    }
}

/// The datagrams of a NIC.
#[derive(Debug, Default)]
pub struct Endpoint {
    connections: BTreeMap<u32, Connection>,
    /// One for each queue pair that is armed.
    timers: BTreeSet<(Instant, u32)>,
    /// Queue pairs that have ended, or sent everything before an orderly end, and are still attached.
    ended: BTreeSet<u32>,
    /// A packet that was longer than its train: the first of the next one.
    held: Option<(u32, Vec<u8>)>,
    /// Queue pairs whose peers are due a congestion notification; `quiet_until` limits their rate.
    notifying: BTreeSet<u32>,
    /// Room for the payload of a datagram.
    payload: Vec<u8>,
    identifications: Identifications,
    /// The IPv4 identification that the next packet probably has.
    next_identification: u16,
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
        self.detach(qp);
        self.connections.insert(qp, Connection { path, armed: Instant::NEVER, quiet_until: Instant::ZERO });
    }

    /// Forgets a queue pair.
    pub fn detach(&mut self, qp: u32) {
        if let Some(connection) = self.connections.remove(&qp) {
            self.timers.remove(&(connection.armed, qp));
        }
        self.ended.remove(&qp);
        self.held.take_if(|(held, _)| *held == qp);
        self.notifying.remove(&qp);
    }

    /// Returns the next attached queue pair that has ended, or has sent everything before an orderly end:
    /// [`Rnic::stream_action`] tells which.
    pub fn next_ended(&mut self) -> Option<u32> {
        self.ended.pop_first()
    }

    /// Notes the end of a queue pair that has no packet to send.
    fn note_end(&mut self, core: &Rnic, qp: u32) {
        if self.connections.contains_key(&qp) && core.stream_action(qp) != StreamAction::Open {
            self.ended.insert(qp);
        }
    }

    /// Takes a datagram; `is_marked` says whether it carries a congestion mark (CE). `find` maps a queue pair
    /// number on the wire to the NIC's. Returns the MAD of a datagram to queue pair 1, which belongs to the
    /// connection manager.
    pub fn take<'a>(
        &mut self,
        core: &mut Rnic,
        find: impl FnOnce(u32) -> Option<u32>,
        path: Path,
        bytes: &'a [u8],
        is_marked: bool,
        now: Instant,
    ) -> Option<&'a [u8]> {
        let (packet, payload) = self.read(&path, bytes)?;
        self.counters.congestion_marks += u64::from(is_marked);
        if packet.bth.destination == GSI_QPN {
            let is_management =
                packet.deth.is_some_and(|deth| (deth.qkey, deth.source) == (GSI_QKEY, GSI_QPN));
            return is_management.then_some(payload);
        }
        let Some(qp) = find(packet.bth.destination) else {
            self.counters.unknown_queue_pair += 1;
            return None;
        };
        if matches!(packet.bth.opcode, Opcode::Transport(Service::Ud, _)) {
            deliver(core, qp, &path, &packet, payload);
            return None;
        }
        let connection = self.connections.get_mut(&qp);
        let Some(connection) = connection.filter(|connection| connection.is_from_peer(path.remote)) else {
            self.counters.wrong_sender += 1;
            return None;
        };
        if packet.bth.opcode == Opcode::Cnp {
            self.counters.congestion_notifications += 1;
            core.on_congestion(qp, now);
            return None;
        }
        if is_marked && connection.quiet_until <= now {
            connection.quiet_until = now + CNP_INTERVAL;
            self.notifying.insert(qp);
        }
        core.packet(qp, &packet, payload, now);
        self.arm(core, qp);
        None
    }

    /// Takes a datagram that was sent to a multicast group, which is the local address of `path`. Each of
    /// `qps`, the NIC's numbers of the queue pairs that are attached to the group, receives a copy.
    pub fn take_multicast(&mut self, core: &mut Rnic, qps: &[u32], path: Path, bytes: &[u8]) {
        let Some((packet, payload)) = self.read(&path, bytes) else { return };
        // Only datagrams can be sent to a group.
        if packet.bth.destination != MULTICAST_QPN || packet.deth.is_none() {
            self.counters.unknown_queue_pair += 1;
            return;
        }
        for qp in qps {
            deliver(core, *qp, &path, &packet, payload);
        }
    }

    /// Decodes a datagram and verifies its ICRC. Returns the headers and the payload.
    fn read<'a>(&mut self, path: &Path, bytes: &'a [u8]) -> Option<(Packet, &'a [u8])> {
        let Ok((packet, payload)) = Packet::read(bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        if !self.is_intact(path, bytes) {
            self.counters.bad_icrc += 1;
            return None;
        }
        // IBTA volume 1 §10.9.3. The highest bit is the membership type. Connected queue pairs check their
        // own.
        if packet.deth.is_some() && (packet.bth.pkey ^ PKEY) << 1 != 0 {
            self.counters.wrong_partition += 1;
            return None;
        }
        self.counters.datagrams_in += 1;
        Some((packet, &bytes[payload]))
    }

    /// Verifies the ICRC of a datagram that arrived on this path.
    fn is_intact(&mut self, path: &Path, bytes: &[u8]) -> bool {
        let Some((covered, received)) = bytes.split_last_chunk::<ICRC_BYTES>() else { return false };
        // The packets of a train are numbered, so the next one probably follows the last.
        let expected = self.next_identification;
        let mut icrc = Icrc::new(path.remote, path.local, bytes.len(), expected);
        icrc.headers(covered);
        let computed = icrc.octets();
        if path.local.is_ipv6() {
            return computed == *received;
        }
        // The CRC is linear: the solution is the difference from what was expected.
        let difference = self.identifications.solve(*received, computed, bytes.len());
        if let Some(difference) = difference {
            self.next_identification = (expected ^ difference).wrapping_add(1);
        }
        difference.is_some()
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
        while let Some(qp) = self.notifying.pop_first() {
            if let (Some(connection), Some(traits)) = (self.connections.get(&qp), core.roce_traits(qp)) {
                let path = connection.path;
                notification(&path, &traits, train);
                self.counters.datagrams_out += 1;
                self.counters.congestion_notifications_out += 1;
                return Some(Departure { path, each: train.len(), is_ecn_capable: false });
            }
        }
        let qp = match self.held.take() {
            Some((qp, packet)) => {
                train.extend_from_slice(&packet);
                qp
            }
            None => self.next_sender(core, now, train)?,
        };
        let path = self.connections.get(&qp)?.path;
        let each = train.len() + ICRC_BYTES;
        let (mut datagrams, mut start) = (0, 0);
        loop {
            // A packet without its ICRC stands at the end of the train.
            let datagram_bytes = train.len() - start + ICRC_BYTES;
            if datagrams > 0 && datagram_bytes > each {
                self.held = Some((qp, train.split_off(start)));
                break;
            }
            seal(&path, datagrams, train, start);
            (datagrams, start) = (datagrams + 1, train.len());
            if usize::from(datagrams) >= datagrams_max || start + each > bytes_max || datagram_bytes < each {
                core.requeue(qp);
                break;
            }
            if !core.next_packet(qp, now, train) {
                self.note_end(core, qp);
                break;
            }
        }
        self.counters.datagrams_out += u64::from(datagrams);
        self.arm(core, qp);
        Some(Departure { path, each, is_ecn_capable: true })
    }

    /// Appends the next packet of any connected queue pair to `train`, and returns the queue pair.
    fn next_sender(&mut self, core: &mut Rnic, now: Instant, train: &mut Vec<u8>) -> Option<u32> {
        while let Some(qp) = core.pop_packet_tx_queue() {
            if self.connections.contains_key(&qp) && core.next_packet(qp, now, train) {
                return Some(qp);
            }
            self.note_end(core, qp);
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
        let mut payload = mem::take(&mut self.payload);
        let mut departure = None;
        while departure.is_none()
            && let Some(Outgoing { from, gid, header }) = core.next_datagram(&mut payload)
        {
            let to = Ipv6Addr::from(gid).to_canonical();
            let found = path(from, to, header.destination);
            departure = found.filter(|path| path.local.is_ipv4() == to.is_ipv4()).map(|path| {
                self.datagram(&path, &header, &payload[datagram::HEADER_BYTES..], room);
                Departure { path, each: room.len(), is_ecn_capable: false }
            });
        }
        self.payload = payload;
        departure
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
        let opcode = Opcode::Transport(Service::Ud, operation);
        let mut packet = Packet::new(Bth {
            solicited: header.solicited,
            pad: pad(payload.len()),
            ..Bth::new(opcode, PKEY, header.destination, self.datagram_psn & PSN_MASK)
        });
        packet.deth = Some(Deth { qkey: header.qkey, source: header.source });
        packet.immediate = header.immediate;
        self.datagram_psn = self.datagram_psn.wrapping_add(1);
        room.clear();
        packet.append_to(room);
        room.extend_from_slice(payload);
        room.resize(room.len() + usize::from(packet.bth.pad), 0);
        seal(path, 0, room, 0);
        self.counters.datagrams_out += 1;
    }

    // ---- time

    /// Returns the time of the next [`Endpoint::advance`].
    pub fn deadline(&self) -> Instant {
        self.timers.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// Runs the timers that have expired.
    pub fn advance(&mut self, core: &mut Rnic, now: Instant) {
        while let Some(&(at, qp)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let Some(connection) = self.connections.get_mut(&qp) else { continue };
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
            self.timers.remove(&(connection.armed, qp));
            connection.armed = deadline;
            self.timers.insert((deadline, qp));
        }
    }
}

/// Writes a congestion notification packet into the empty `room`.
fn notification(path: &Path, traits: &RoceTraits, room: &mut Vec<u8>) {
    let bth = Bth::new(Opcode::Cnp, traits.pkey, traits.peer, 0);
    Packet::new(Bth { becn: true, migrated: false, ..bth }).append_to(room);
    seal(path, 0, room, 0);
}

/// Passes a datagram to a queue pair.
fn deliver(core: &mut Rnic, qp: u32, path: &Path, packet: &Packet, payload: &[u8]) {
    let Some(Deth { qkey, source }) = packet.deth else { return };
    let Bth { destination, solicited, .. } = packet.bth;
    let header = datagram::Header { destination, source, qkey, solicited, immediate: packet.immediate };
    let grh = grh(path.remote.ip(), path.local.ip(), payload.len());
    core.datagram(qp, &grh, &header, payload);
}

/// Appends its ICRC to a packet, which begins at `start` of a train and ends it. `number` counts the train's
/// packets from zero.
fn seal(path: &Path, number: u16, train: &mut Vec<u8>, start: usize) {
    let packet = &train[start..];
    debug_assert!(packet.len() >= BTH_BYTES, "a packet begins with a BTH");
    let mut icrc = Icrc::new(path.local, path.remote, packet.len() + ICRC_BYTES, number);
    icrc.headers(packet);
    train.extend_from_slice(&icrc.octets());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rnic::{Config, Data, Operation as Work, QpAttributes, RoceSending, RoceTraits, SendWork};
    use crate::wire::roce::{Aeth, Service, Syndrome};
    use core::net::Ipv4Addr;
    use core::time::Duration;
    use kiban_base::RngKey;

    #[test]
    fn datagrams_of_other_partitions_are_dropped() {
        let end = |octet| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), PORT));
        let (there, here) = (Path { local: end(1), remote: end(2) }, Path { local: end(2), remote: end(1) });
        let mut nic = Rnic::new(Config::default(), RngKey::for_simulation(1));
        let (mut endpoint, mut datagram) = (Endpoint::default(), Vec::new());
        for (pkey, is_taken) in [(0xffff_u16, true), (0x7fff, true), (0xfffe, false), (0x1234, false)] {
            endpoint.management(&there, &[7; 256], &mut datagram);
            datagram[2..4].copy_from_slice(&pkey.to_be_bytes());
            datagram.truncate(datagram.len() - ICRC_BYTES);
            seal(&there, 0, &mut datagram, 0);
            let mad = endpoint.take(&mut nic, |_| None, here, &datagram, false, Instant::ZERO);
            assert_eq!(mad.is_some(), is_taken, "{pkey:#x}");
        }
        assert_eq!((endpoint.counters().wrong_partition, endpoint.counters().bad_icrc), (2, 0));
    }

    #[test]
    fn a_peer_that_never_has_a_receive_leaves_one_timer() {
        const OWN: u32 = 16;
        const PEER: u32 = 17;
        let mut nic = Rnic::new(Config::default(), RngKey::for_simulation(1));
        let pd = nic.create_pd().expect("room");
        let cq = nic.create_cq(16).expect("room");
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: 1,
            receive_work_max: 1,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 8,
            signal_all: true,
            waits_for_receives: false,
        };
        let qp = nic.create_qp(attributes).expect("room");
        let traits = RoceTraits {
            service: Service::Rc,
            peer: PEER,
            pkey: PKEY,
            path_mtu: 256,
            first_psn: 0,
            ird: 1,
            rnr_timer: 1,
            reorder_max: 0,
        };
        let sending = RoceSending {
            ack_timeout: Some(Duration::from_secs(8000)),
            rnr_retries: 7,
            window: 8,
            ..RoceSending::default()
        };
        nic.set_qpn(qp, OWN).expect("there");
        nic.connect_roce(qp, traits).expect("idle");
        nic.start_roce(qp, sending).expect("it receives");
        let data = Data::Inline([1].into_iter().collect());
        nic.post_send(qp, SendWork::new(1, Work::SEND, data)).expect("room");
        let end = |octet| SocketAddr::from((Ipv4Addr::new(192, 0, 2, octet), 4791));
        let path = Path { local: end(1), remote: end(2) };
        let mut endpoint = Endpoint::default();
        endpoint.attach(qp, path);
        let opcode = Opcode::Transport(Service::Rc, Operation::Acknowledge);
        let mut packet = Packet::new(Bth::new(opcode, PKEY, OWN, 0));
        packet.aeth = Some(Aeth { syndrome: Syndrome::RnrNak(1), msn: 0 });
        let mut nak = Vec::new();
        packet.append_to(&mut nak);
        seal(&Path { local: path.remote, remote: path.local }, 0, &mut nak, 0);
        let (mut now, mut train) = (Instant::ZERO, Vec::new());
        for _ in 0..50 {
            let sent = endpoint.next_train(&mut nic, now, (1, 4096), &mut train);
            assert!(sent.is_some(), "it tries again");
            endpoint.take(&mut nic, |_| Some(qp), path, &nak, false, now);
            now = endpoint.deadline();
            endpoint.advance(&mut nic, now);
            assert!(endpoint.timers.len() <= 1);
        }
    }
}
