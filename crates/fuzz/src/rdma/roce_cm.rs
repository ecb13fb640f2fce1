//! RoCEv2's communication management: the decoder, and the state machine with a hostile peer.
//!
//! Input     of the machine: a sequence of MADs with the ids of connections, calls by the consumer, and time
//!           steps.
//! Checks    one MAD causes at most two, every sent MAD can be read, tables and queues keep their limits,
//!           and the next deadline is not in the past. At the end, everything can be aborted, and no state
//!           is left.

use crate::features::Features;
use crate::input::Input;
use crate::key::key;
use kiban_base::Instant;
use kiban_rdma::roce::cm::{Accept, Cm, CmConfig, CmError, CmEvent, Connect, ConnectionId};
use kiban_rdma::wire::roce::cm::{
    Drep, Dreq, IpCm, Message, Mra, PortSpace, PrimaryPath, Rej, RejectReason, RejectedMessage, Rep, Req,
    Rtu, ServiceType, SidrRep, SidrReq, SidrStatus,
};
use kiban_rdma::wire::roce::{MAD_BYTES, PORT};
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

pub(crate) fn decoder(bytes: &[u8], features: &mut Features<'_>) {
    match Message::read(bytes) {
        Err(rule) => features.show(rule.name()),
        Ok((header, message)) => {
            let again = message.mad(header.transaction);
            let (same, written) = Message::read(&again).expect("written");
            assert_eq!((same.transaction, written), (header.transaction, message));
            features.show(discriminant(&message));
            if let Message::Req(req) = message {
                features.show(IpCm::read(&req.private_data).map_err(|rule| rule.name()).map(|(ip, _)| {
                    let mut again = [0xa5; IpCm::BYTES];
                    assert_eq!(ip.write(&mut again), IpCm::BYTES);
                    assert_eq!(IpCm::read(&again), Ok((ip, IpCm::BYTES)));
                    ip.source.is_ipv4()
                }));
            }
        }
    }
}

/// Returns a message of each type.
pub(crate) fn decoder_seeds() -> Vec<Vec<u8>> {
    (0..9).map(|kind| message(kind, [1, 2], 3).mad(4).to_vec()).chain([vec![0; MAD_BYTES]]).collect()
}

const SERVICE: u64 = PortSpace::Tcp.service_id(1);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const CONNECTIONS_MAX: usize = 12;
const TRANSMITS_MAX: usize = 16;
const EVENTS_MAX: usize = 16;
/// Maximum number of steps in one input.
const STEPS_MAX: usize = 400;

fn peer(number: u8) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 2 + number % 2), PORT).into()
}

/// Returns a message of a kind, with these communication ids. `variant` chooses among the other fields.
fn message(kind: u8, [local_comm_id, remote_comm_id]: [u32; 2], variant: u8) -> Message {
    let number = u32::from(variant % 4);
    let service_id = if variant & 0x80 == 0 { SERVICE } else { SERVICE + 1 };
    let message = match variant % 3 {
        0 => RejectedMessage::Req,
        1 => RejectedMessage::Rep,
        _ => RejectedMessage::Other,
    };
    match kind % 9 {
        0 => Message::Req(Req {
            local_comm_id,
            service_id,
            ca_guid: 1,
            qkey: 0,
            qpn: number,
            responder_resources: variant,
            initiator_depth: 1,
            remote_response_timeout: variant,
            service: if variant & 0x40 == 0 { ServiceType::Rc } else { ServiceType::Extended },
            flow_control: false,
            psn: 5,
            local_response_timeout: variant,
            retry_count: 7,
            pkey: 0xffff,
            mtu: if variant & 0x20 == 0 { 3 } else { 9 },
            rdc_exists: false,
            rnr_retry_count: 7,
            max_cm_retries: variant & 0xf,
            srq: false,
            extended_type: (variant & 0x10) >> 4,
            path: PrimaryPath {
                local_lid: 0,
                remote_lid: 0,
                local_gid: Ipv6Addr::UNSPECIFIED,
                remote_gid: Ipv6Addr::UNSPECIFIED,
                flow_label: 0,
                packet_rate: 0,
                traffic_class: 0,
                hop_limit: 64,
                sl: 0,
                is_subnet_local: false,
                ack_timeout: variant & 0x1f,
            },
            private_data: [0; Req::PRIVATE_BYTES],
        }),
        1 => Message::Rep(Rep {
            local_comm_id,
            remote_comm_id,
            qkey: 0,
            qpn: number,
            ee_context: number ^ 1,
            psn: 1,
            responder_resources: 1,
            initiator_depth: 1,
            target_ack_delay: 0,
            failover: 0,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            ca_guid: 1,
            private_data: [0; Rep::PRIVATE_BYTES],
        }),
        2 => Message::Rtu(Rtu { local_comm_id, remote_comm_id, private_data: [0; Rtu::PRIVATE_BYTES] }),
        3 => Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: number,
            private_data: [0; Dreq::PRIVATE_BYTES],
        }),
        4 => Message::Drep(Drep { local_comm_id, remote_comm_id, private_data: [0; Drep::PRIVATE_BYTES] }),
        5 => Message::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            message,
            information_bytes: 0,
            reason: RejectReason(variant.into()),
            information: [0; 72],
            private_data: [0; Rej::PRIVATE_BYTES],
        }),
        6 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            message,
            service_timeout: variant & 0x1f,
            private_data: [0; Mra::PRIVATE_BYTES],
        }),
        7 => Message::SidrReq(SidrReq {
            request_id: local_comm_id,
            pkey: 0xffff,
            service_id,
            private_data: [0; SidrReq::PRIVATE_BYTES],
        }),
        _ => Message::SidrRep(SidrRep {
            request_id: remote_comm_id,
            status: SidrStatus(variant & 7),
            information_bytes: 0,
            qpn: number,
            service_id,
            qkey: 1,
            information: [0; 72],
            private_data: [0; SidrRep::PRIVATE_BYTES],
        }),
    }
}

fn counts(cm: &Cm) -> Vec<u64> {
    let mut counts = Vec::new();
    cm.counters().each(&mut |_, count| counts.push(count));
    counts
}

struct World {
    cm: Cm,
    now: Instant,
    /// Every id that the machine has reported.
    ids: Vec<u32>,
    /// The transaction ids of its requests, by the id.
    transactions: BTreeMap<u32, u64>,
}

impl World {
    fn id(&self, choice: u8) -> u32 {
        let index = usize::from(choice).checked_rem(self.ids.len());
        index.map_or(0, |index| self.ids[self.ids.len() - 1 - index])
    }

    fn step(&mut self, input: &mut Input<'_>, features: &mut Features<'_>) {
        let kind = input.byte();
        let choice = input.byte();
        let connection = ConnectionId(self.id(choice));
        let (cm, now) = (&mut self.cm, self.now);
        let outcome = match kind % 16 {
            0 => {
                let service = if choice & 0x80 == 0 { ServiceType::Rc } else { ServiceType::Extended };
                let qpn = (choice % 4).into();
                let connect = Connect { service_id: SERVICE, qpn, service, ..Connect::default() };
                cm.connect(LOCAL, peer(choice), &connect, now).map(|id| self.ids.push(id.0))
            }
            1 => cm.resolve(LOCAL, peer(choice), SERVICE, 0xffff, &[], now).map(|id| self.ids.push(id.0)),
            2 => cm.accept(connection, &Accept { qpn: (input.byte() % 4).into(), ..Accept::default() }, now),
            3 => cm.confirm(connection, &[]),
            4 => cm.disconnect(connection, &[], now),
            5 => match input.byte() % 4 {
                0 => cm.abort(connection, now),
                1 => cm.reject(connection, RejectReason::CONSUMER, &[], now),
                2 => cm.resolved(connection, 1, 2, &[], now),
                _ => cm.refuse(connection, SidrStatus::REJECTED, &[], now),
            },
            6 => {
                cm.on_data(connection);
                Ok(())
            }
            7 => {
                self.now += Duration::from_micros(1 << (choice % 28));
                self.cm.advance(self.now);
                Ok(())
            }
            8 => {
                self.drain(features);
                Ok(())
            }
            _ => {
                let (theirs, ours, variant) = (input.byte(), self.id(input.byte()), input.byte());
                let ids = [u32::from(theirs % 8), if theirs & 0x80 == 0 { ours } else { 0 }];
                let message = message(kind >> 4, ids, variant);
                let before = counts(&self.cm);
                let mads_out = self.cm.counters().mads_out;
                // Hostile peers know the transaction ids; the ids in `theirs` belong to no request.
                let transaction = self.transactions.get(&ours).copied().unwrap_or(1);
                self.cm.take(peer(choice), LOCAL, &message.mad(transaction), self.now).expect("a valid MAD");
                assert!(self.cm.counters().mads_out - mads_out <= 2);
                let after = counts(&self.cm);
                let changed: Vec<bool> = before.iter().zip(&after).map(|(one, two)| one != two).collect();
                features.show((discriminant(&message), changed, variant % 3));
                Ok(())
            }
        };
        if kind % 16 < 2 {
            self.take_mads(features);
        }
        features.show((kind % 16, outcome.err().map(|error: CmError| error.to_string())));
    }

    /// Takes all MADs.
    fn take_mads(&mut self, features: &mut Features<'_>) {
        let mut transmits = 0;
        while let Some(transmit) = self.cm.poll_transmit() {
            let (header, message) = Message::read(&transmit.mad).expect("a valid MAD");
            if let Message::Req(Req { local_comm_id: id, .. })
            | Message::SidrReq(SidrReq { request_id: id, .. }) = message
            {
                self.transactions.insert(id, header.transaction);
            }
            features.show(("sent", discriminant(&message)));
            transmits += 1;
        }
        assert!(transmits <= TRANSMITS_MAX);
    }

    /// Takes all MADs and events.
    fn drain(&mut self, features: &mut Features<'_>) {
        self.take_mads(features);
        let mut events = 0;
        while let Some(event) = self.cm.poll_event() {
            features.show(("event", discriminant(&event)));
            let (CmEvent::ConnectRequest { connection, .. }
            | CmEvent::Connected { connection, .. }
            | CmEvent::Established { connection, .. }
            | CmEvent::Rejected { connection, .. }
            | CmEvent::Disconnected { connection, .. }
            | CmEvent::TimedOut { connection }
            | CmEvent::TimeWaitExit { connection }
            | CmEvent::ServiceRequest { connection, .. }
            | CmEvent::Unreachable { connection }
            | CmEvent::ServiceReply { connection, .. }) = event;
            self.ids.retain(|id| *id != connection.0);
            self.ids.push(connection.0);
            events += 1;
        }
        // Own connections add up to three each: a table of them fits between two calls of this function, and
        // every step can begin another.
        assert!(events <= EVENTS_MAX + 3 * (CONNECTIONS_MAX + STEPS_MAX));
    }
}

pub(crate) fn machine(bytes: &[u8], features: &mut Features<'_>) {
    let config = CmConfig {
        ca_guid: 2,
        connections_max: CONNECTIONS_MAX,
        requests_max: 6,
        requests_per_peer_max: 4,
        transmits_max: TRANSMITS_MAX,
        events_max: EVENTS_MAX,
        response_timeout: 8,
        packet_lifetime: 4,
        ..CmConfig::default()
    };
    let mut world = World {
        cm: Cm::new(config, key(1)),
        now: Instant::ZERO,
        ids: Vec::new(),
        transactions: BTreeMap::new(),
    };
    world.cm.listen(SERVICE).expect("free");
    let mut input = Input::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input, features);
        assert!(world.cm.connections() <= CONNECTIONS_MAX);
        assert!(world.cm.deadline().is_none_or(|deadline| deadline >= world.now));
    }
    world.drain(features);
    // Every connection has been reported, so all can be aborted; then time removes what remains.
    for id in world.ids.clone() {
        let _ = world.cm.abort(ConnectionId(id), world.now);
    }
    for _ in 0..1000 {
        let Some(deadline) = world.cm.deadline() else { break };
        world.now = deadline;
        world.cm.advance(deadline);
        assert!(world.cm.deadline().is_none_or(|next| next > deadline));
        while world.cm.poll_transmit().is_some() {}
    }
    assert_eq!(world.cm.connections(), 0, "nothing is left");
}

/// Returns a connection that a peer requests and ends, one that we request, and a resolution each way.
pub(crate) fn machine_seeds() -> Vec<Vec<u8>> {
    let passive = [0x09, 0, 5, 0, 1, 8, 0, 2, 0, 1, 0x29, 0, 5, 0, 0, 8, 0, 0x39, 0, 5, 0, 1, 7, 25];
    let active = [0, 1, 0x19, 1, 5, 0, 2, 8, 0, 3, 0, 4, 0, 0x49, 1, 5, 0, 0, 7, 25];
    let xrc_passive = [0x09, 0, 5, 0, 0x51, 8, 0, 2, 0, 1, 0x29, 0, 5, 0, 0, 8, 0, 4, 0];
    let xrc_active = [0, 0x81, 0x19, 1, 5, 0, 2, 8, 0, 3, 0, 4, 0];
    let resolutions = [0x79, 0, 5, 0, 1, 8, 0, 5, 0, 2, 1, 0, 0x89, 0, 5, 0, 1];
    vec![passive.to_vec(), active.to_vec(), xrc_passive.to_vec(), xrc_active.to_vec(), resolutions.to_vec()]
}
