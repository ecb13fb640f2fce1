//! A peer that sends arbitrary messages with the ids of existing connections.

use super::messages::message;
use super::pair::{ADDRESSES, SERVICE, accept, connect, source, text};
use kiban_base::{Instant, RngKey, SimRng};
use kiban_rdma::roce::cm::{Cm, CmConfig, CmEvent, Connect, ConnectionId};
use kiban_rdma::wire::roce::MAD_BYTES;
use kiban_rdma::wire::roce::cm::{
    Message, PortSpace, Rej, RejectReason, RejectedMessage, Req, SidrRep, SidrStatus,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const LIMITS: [usize; 4] = [60, 20, 30, 40];

fn config() -> CmConfig {
    let [connections_max, requests_max, transmits_max, events_max] = LIMITS;
    CmConfig {
        connections_max,
        requests_max,
        transmits_max,
        events_max,
        // 4 ms, so that the peer sees many timeouts.
        response_timeout: 10,
        packet_lifetime: 5,
        ..CmConfig::default()
    }
}

/// The consumer does something, or nothing, with an event.
fn react(cm: &mut Cm, rng: &mut SimRng, event: &CmEvent, now: Instant, ids: &mut Vec<u32>) {
    let (CmEvent::ConnectRequest { connection, .. }
    | CmEvent::Connected { connection, .. }
    | CmEvent::Established { connection, .. }
    | CmEvent::Rejected { connection, .. }
    | CmEvent::Disconnected { connection, .. }
    | CmEvent::TimedOut { connection }
    | CmEvent::Unreachable { connection }
    | CmEvent::TimeWaitExit { connection }
    | CmEvent::ServiceRequest { connection, .. }
    | CmEvent::ServiceReply { connection, .. }) = event;
    ids.push(connection.0);
    call(cm, rng, *connection, now);
}

fn call(cm: &mut Cm, rng: &mut SimRng, id: ConnectionId, now: Instant) {
    let _ = match rng.below(10) {
        0..3 => cm.accept(id, &accept(), now),
        3..5 => cm.confirm(id, b""),
        5 => cm.disconnect(id, b"", now),
        6 => cm.abort(id, now),
        7 => cm.resolved(id, 1, 2, b"", now),
        8 => {
            cm.on_data(id);
            Ok(())
        }
        _ => Ok(()),
    };
}

/// The transaction id of each request, by its communication id.
type Transactions = BTreeMap<[u8; 4], [u8; 8]>;

/// Takes all MADs and remembers their transaction ids.
fn overhear(cm: &mut Cm, transactions: &mut Transactions) {
    while let Some(transmit) = cm.poll_transmit() {
        let [id, transaction] = [24..28, 8..16].map(|range| &transmit.mad[range]);
        transactions.insert(id.try_into().expect("an id"), transaction.try_into().expect("an id"));
    }
}

/// Returns a MAD of a valid type with arbitrary fields, which prefers the ids of existing connections.
fn mad(rng: &mut SimRng, ids: &[u32], transactions: &Transactions) -> Vec<u8> {
    let mut mad = [1, 7, 2, 3].to_vec();
    mad.resize_with(MAD_BYTES, || if rng.below(4) == 0 { rng.draw() as u8 } else { 0 });
    mad[17] = 0x10 + rng.below(10) as u8;
    mad[16] = 0;
    for at in [24, 28] {
        let id = match rng.below(4) {
            0 => rng.below(8) as u32,
            _ if ids.is_empty() => 0,
            _ => ids[ids.len() - 1 - rng.below(ids.len().min(16) as u64) as usize],
        };
        mad[at..at + 4].copy_from_slice(&id.to_be_bytes());
    }
    if mad[17] == 0x10 {
        mad[28..32].fill(0);
        mad[32..40].copy_from_slice(&SERVICE.to_be_bytes());
        mad[24 + 43] &= !6;
        mad[24 + 50] = 0x30;
    } else if mad[17] == 0x17 {
        mad[32..40].copy_from_slice(&PortSpace::Udp.service_id(0).to_be_bytes());
    } else if rng.below(2) == 0 {
        // The queue pair of a DREQ.
        mad[32..35].copy_from_slice(&[0, 0, 0x22]);
    }
    // A SIDR_REP has our id where other messages have the peer's.
    let at = if mad[17] == 0x18 { 24 } else { 28 };
    if let Some(transaction) = transactions.get(&mad[at..at + 4]) {
        mad[8..16].copy_from_slice(transaction);
    }
    mad
}

#[test]
fn whatever_a_peer_sends_limits_hold_and_others_are_served() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let mut rng = SimRng::from_seed(seed);
        let mut cm = Cm::new(config(), RngKey::for_simulation(seed));
        let mut good = Cm::new(config(), RngKey::for_simulation(seed ^ 0xff_0000));
        cm.listen(SERVICE).expect("free");
        cm.listen(PortSpace::Udp.service_id(0)).expect("free");
        let hostile: [SocketAddr; 2] = [(Ipv4Addr::new(192, 0, 2, 66), 1).into(), source(0)];
        let (mut now, mut ids, mut transactions) = (Instant::ZERO, Vec::new(), Transactions::new());
        for _ in 0..1500 {
            match rng.below(16) {
                0 => now += Duration::from_micros(rng.below(30_000)),
                1 if !ids.is_empty() => {
                    let id = ids[rng.below(ids.len() as u64) as usize];
                    call(&mut cm, &mut rng, ConnectionId(id), now);
                }
                2 => {
                    let connect = Connect { qpn: rng.below(30) as u32, ..connect() };
                    if let Ok(id) = cm.connect(ADDRESSES[1], hostile[0], &connect, now) {
                        ids.push(id.0);
                    }
                }
                3 => {
                    while let Some(event) = cm.poll_event() {
                        seen.insert(super::pair::name(&event));
                        react(&mut cm, &mut rng, &event, now, &mut ids);
                    }
                }
                4 => overhear(&mut cm, &mut transactions),
                _ => {
                    let before = cm.counters().mads_out;
                    let _ = cm.take(hostile[0], ADDRESSES[1], &mad(&mut rng, &ids, &transactions), now);
                    assert!(cm.counters().mads_out - before <= 2);
                }
            }
            cm.advance(now);
            assert!(cm.deadline().is_none_or(|deadline| deadline > now));
            assert!(cm.connections() <= LIMITS[0]);
        }
        while cm.poll_event().is_some() {}
        let transmits = std::iter::from_fn(|| cm.poll_transmit()).count();
        assert!(transmits <= LIMITS[2]);
        ids.iter().for_each(|id| _ = cm.abort(ConnectionId(*id), now));
        // The other peer connects, although the hostile one still knocks.
        good.connect(ADDRESSES[0], source(1), &connect(), now).expect("room");
        for _ in 0..40 {
            while let Some(transmit) = good.poll_transmit() {
                cm.take(source(0), ADDRESSES[1], &transmit.mad, now).expect("valid");
            }
            let _ = cm.take(hostile[0], ADDRESSES[1], &mad(&mut rng, &ids, &transactions), now);
            while let Some(event) = cm.poll_event() {
                if let CmEvent::ConnectRequest { connection, peer, .. } = event
                    && peer.ip() == ADDRESSES[0]
                {
                    cm.accept(connection, &accept(), now).expect("requested");
                }
            }
            while let Some(transmit) = cm.poll_transmit() {
                message(&transmit.mad);
                if transmit.to.ip() == ADDRESSES[0] {
                    good.take(source(1), ADDRESSES[0], &transmit.mad, now).expect("valid");
                }
            }
            now += Duration::from_millis(1);
            cm.advance(now);
            good.advance(now);
        }
        let Some(CmEvent::Connected { reply, .. }) = good.poll_event() else { panic!("seed {seed}") };
        assert_eq!(text(&reply.private_data), "welcome");
    }
    let expected = [
        "connected",
        "disconnected",
        "established",
        "exit",
        "rejected",
        "request",
        "service request",
        "timed out",
    ];
    assert!(expected.iter().all(|name| seen.contains(name)), "{seen:?}");
}

/// Half of our communication id may be a port, which anyone can guess; the transaction id is random.
#[test]
fn only_a_peer_that_has_seen_a_request_can_answer_it() {
    let mut pair = super::pair::Pair::new(3);
    pair.connect();
    let req = pair.sides[0].poll_transmit().expect("a REQ").mad;
    let mut answer = |mad: &[u8]| {
        pair.deliver(0, mad);
        pair.sides[0].poll_event().is_some()
    };
    let mut rep = message(&req);
    let Message::Req(Req { local_comm_id, .. }) = rep else { panic!("a REQ") };
    let mut peer = super::pair::Pair::new(4);
    peer.deliver(1, &req);
    let Some(CmEvent::ConnectRequest { connection, .. }) = peer.sides[1].poll_event() else { panic!("one") };
    peer.sides[1].accept(connection, &accept(), peer.now).expect("requested");
    let genuine = peer.sides[1].poll_transmit().expect("a REP").mad;
    rep = message(&genuine);
    let rej = Message::Rej(Rej {
        local_comm_id: 0,
        remote_comm_id: local_comm_id,
        message: RejectedMessage::Req,
        information_bytes: 0,
        reason: RejectReason::CONSUMER,
        information: [0; 72],
        private_data: [0; Rej::PRIVATE_BYTES],
    });
    assert!(!answer(&rep.mad(1)) && !answer(&rej.mad(1)), "forged");
    assert!(answer(&genuine));
    // The same for the reply to a SIDR_REQ.
    let service = PortSpace::Udp.service_id(9);
    let cm = &mut pair.sides[0];
    let id = cm.resolve(ADDRESSES[0], source(1), service, 0xffff, b"", pair.now).expect("room");
    while cm.poll_transmit().is_some() {}
    let reply = SidrRep {
        request_id: id.0,
        status: SidrStatus::VALID,
        information_bytes: 0,
        qpn: 9,
        service_id: service,
        qkey: 1,
        information: [0; 72],
        private_data: [0; SidrRep::PRIVATE_BYTES],
    };
    pair.deliver(0, &Message::SidrRep(reply).mad(1));
    assert_eq!(pair.sides[0].poll_event(), None);
}

/// Messages from another address, with another communication id or queue pair, do not belong to a connection.
#[test]
fn only_the_peer_that_knows_both_ids_can_end_a_connection() {
    let mut pair = super::pair::Pair::new(3);
    let active = pair.connect();
    pair.run(super::pair::arrives, super::pair::polite(2));
    let CmEvent::ConnectRequest { connection: passive, .. } = pair.events[1][0] else { panic!("a request") };
    let dreq = |local_comm_id, remote_comm_id, remote_qpn| {
        let private_data = [0; 220];
        let dreq =
            kiban_rdma::wire::roce::cm::Dreq { local_comm_id, remote_comm_id, remote_qpn, private_data };
        Message::Dreq(dreq).mad(1)
    };
    let stranger = (Ipv4Addr::new(192, 0, 2, 66), 4791).into();
    for (from, mad) in [
        (stranger, dreq(active.0, passive.0, 0x22)),
        (source(0), dreq(active.0 ^ 1, passive.0, 0x22)),
        (source(0), dreq(active.0, passive.0 ^ 1, 0x22)),
        (source(0), dreq(active.0, passive.0, 0x23)),
    ] {
        pair.sides[1].take(from, ADDRESSES[1], &mad, pair.now).expect("valid");
        assert_eq!(pair.sides[1].poll_event(), None);
    }
    pair.deliver(1, &dreq(active.0, passive.0, 0x22));
    assert!(matches!(pair.sides[1].poll_event(), Some(CmEvent::Disconnected { .. })));
}
