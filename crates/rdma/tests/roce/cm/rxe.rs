//! Linux's rdma_rxe as the peer, replayed from captures.

use super::messages::{RPING, UCMATOSE, UDADDY, mads, message};
use kiban_base::{Instant, RngKey};
use kiban_rdma::roce::cm::{Accept, Cm, CmConfig, CmEvent, Connect, ConnectionId, Transmit};
use kiban_rdma::wire::roce::cm::{Message, Rep, Req};
use std::net::{IpAddr, SocketAddr};

const NOW: Instant = Instant::ZERO;

fn cm(ca_guid: u64) -> Cm {
    // Linux's codes: CMA_CM_RESPONSE_TIMEOUT and CMA_IBOE_PACKET_LIFETIME.
    let config = CmConfig { ca_guid, response_timeout: 20, packet_lifetime: 18, ..CmConfig::default() };
    Cm::new(config, RngKey::for_simulation(1))
}

/// The messages of one connection in a capture, in order.
struct Recorded {
    active: SocketAddr,
    passive: SocketAddr,
    req: Req,
    rep: Rep,
    /// RTU, DREQ and DREP, with their senders.
    rest: Vec<(SocketAddr, Message)>,
}

/// Returns the connections of a capture.
fn connections(file: &[u8]) -> Vec<Recorded> {
    let mads: Vec<_> = mads(file).iter().map(|(from, mad)| (*from, message(mad))).collect();
    let reps = mads.iter().filter_map(|(passive, sent)| match sent {
        Message::Rep(rep) => Some((*passive, *rep)),
        _ => None,
    });
    reps.map(|(passive, rep)| {
        let (active, req) = (mads.iter())
            .find_map(|(active, sent)| match sent {
                Message::Req(req) if req.local_comm_id == rep.remote_comm_id => Some((*active, *req)),
                _ => None,
            })
            .expect("the REQ of the REP");
        let ids = [rep.local_comm_id, rep.remote_comm_id];
        let rest = (mads.iter().copied())
            .filter(|(_, sent)| match sent {
                Message::Rtu(rtu) => ids.contains(&rtu.local_comm_id),
                Message::Dreq(dreq) => ids.contains(&dreq.local_comm_id),
                Message::Drep(drep) => ids.contains(&drep.local_comm_id),
                _ => false,
            })
            .collect();
        Recorded { active, passive, req, rep, rest }
    })
    .collect()
}

/// Replaces the communication id of the side that we play, wherever it is.
fn with_id(mut message: Message, theirs: u32, ours: u32) -> Message {
    let ids = match &mut message {
        Message::Rep(rep) => [&mut rep.local_comm_id, &mut rep.remote_comm_id],
        Message::Rtu(rtu) => [&mut rtu.local_comm_id, &mut rtu.remote_comm_id],
        Message::Dreq(dreq) => [&mut dreq.local_comm_id, &mut dreq.remote_comm_id],
        Message::Drep(drep) => [&mut drep.local_comm_id, &mut drep.remote_comm_id],
        _ => panic!("{message:?}"),
    };
    for id in ids {
        if *id == theirs {
            *id = ours;
        }
    }
    message
}

fn sent(cm: &mut Cm, to: SocketAddr, from: IpAddr) -> Message {
    sent_in(cm, to, from).1
}

/// The same, with the transaction id.
fn sent_in(cm: &mut Cm, to: SocketAddr, from: IpAddr) -> (u64, Message) {
    let Transmit { to: target, from: source, mad } = cm.poll_transmit().expect("a MAD");
    assert_eq!((target.ip(), target.port(), source), (to.ip(), 4791, from));
    assert_eq!(cm.poll_transmit(), None);
    let (header, message) = Message::read(&mad).expect("a valid MAD");
    (header.transaction, message)
}

/// Replays the rest of a connection: one side's messages arrive, and ours must be those of the other side.
fn play_rest(cm: &mut Cm, recorded: &Recorded, us: SocketAddr, connection: ConnectionId) {
    let them = if us == recorded.active { recorded.passive } else { recorded.active };
    let our_id = if us == recorded.active { recorded.req.local_comm_id } else { recorded.rep.local_comm_id };
    for (from, message) in &recorded.rest {
        let message = with_id(*message, our_id, connection.0);
        if *from == us {
            match message {
                Message::Rtu(_) => cm.confirm(connection, &[]).expect("connected"),
                Message::Dreq(_) => cm.disconnect(connection, &[], NOW).expect("established"),
                _ => {}
            }
            assert_eq!(sent(cm, them, us.ip()), message);
        } else {
            cm.take(*from, us.ip(), &message.mad(3), NOW).expect("valid");
        }
    }
}

fn events(cm: &mut Cm) -> Vec<&'static str> {
    std::iter::from_fn(|| cm.poll_event()).map(|event| super::pair::name(&event)).collect()
}

#[test]
fn our_listener_answers_rxe_as_rxe_did() {
    for (file, count) in [(RPING, 1), (UCMATOSE, 2)] {
        let recordings = connections(file);
        assert_eq!(recordings.len(), count);
        for recorded in recordings {
            let mut cm = cm(recorded.rep.ca_guid);
            cm.listen(recorded.req.service_id).expect("free");
            let us = recorded.passive;
            cm.take(recorded.active, us.ip(), &Message::Req(recorded.req).mad(2), NOW).expect("valid");
            let Some(CmEvent::ConnectRequest { connection, peer, local, request }) = cm.poll_event() else {
                panic!("a request");
            };
            assert_eq!((peer.ip(), local, *request), (recorded.active.ip(), us.ip(), recorded.req));
            let rep = recorded.rep;
            let accept = Accept {
                qpn: rep.qpn,
                psn: rep.psn,
                responder_resources: rep.responder_resources,
                initiator_depth: rep.initiator_depth,
                target_ack_delay: rep.target_ack_delay,
                flow_control: rep.flow_control,
                rnr_retry_count: rep.rnr_retry_count,
                srq: rep.srq,
                private_data: rep.private_data.to_vec(),
            };
            cm.accept(connection, &accept, NOW).expect("requested");
            let expected = with_id(Message::Rep(rep), rep.local_comm_id, connection.0);
            assert_eq!(sent(&mut cm, recorded.active, us.ip()), expected);
            play_rest(&mut cm, &recorded, us, connection);
            assert_eq!(events(&mut cm), ["established", "disconnected"]);
        }
    }
}

#[test]
fn our_request_and_the_rest_are_those_of_rxe() {
    for file in [RPING, UCMATOSE] {
        for recorded in connections(file) {
            let mut cm = cm(recorded.req.ca_guid);
            let (us, req) = (recorded.active, recorded.req);
            let connect = Connect {
                service_id: req.service_id,
                qpn: req.qpn,
                psn: req.psn,
                service: req.service,
                responder_resources: req.responder_resources,
                initiator_depth: req.initiator_depth,
                flow_control: req.flow_control,
                srq: req.srq,
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                pkey: req.pkey,
                mtu: req.mtu,
                ack_timeout: req.path.ack_timeout,
                flow_label: req.path.flow_label,
                traffic_class: req.path.traffic_class,
                hop_limit: req.path.hop_limit,
                private_data: req.private_data.to_vec(),
            };
            let connection = cm.connect(us.ip(), recorded.passive, &connect, NOW).expect("room");
            let expected = Req { local_comm_id: connection.0, ..req };
            let (transaction, request) = sent_in(&mut cm, recorded.passive, us.ip());
            assert_eq!(request, Message::Req(expected));
            let rep = with_id(Message::Rep(recorded.rep), req.local_comm_id, connection.0);
            cm.take(recorded.passive, us.ip(), &rep.mad(transaction), NOW).expect("valid");
            let Some(CmEvent::Connected { reply, .. }) = cm.poll_event() else { panic!("a reply") };
            assert_eq!(Message::Rep(*reply), rep);
            play_rest(&mut cm, &recorded, us, connection);
            assert_eq!(events(&mut cm), ["disconnected"]);
        }
    }
}

#[test]
fn services_resolve_between_rxe_and_us() {
    let mads = mads(UDADDY);
    let [(active, Message::SidrReq(request)), (passive, Message::SidrRep(reply))] =
        [0, 1].map(|at| (mads[at].0, message(&mads[at].1)))
    else {
        panic!("a request and a reply");
    };
    let mut server = cm(1);
    server.listen(request.service_id).expect("free");
    server.take(active, passive.ip(), &mads[0].1, NOW).expect("valid");
    let Some(CmEvent::ServiceRequest { connection, .. }) = server.poll_event() else { panic!("a request") };
    server.resolved(connection, reply.qpn, reply.qkey, &[], NOW).expect("requested");
    // The transaction id is the same, too.
    assert_eq!(server.poll_transmit().expect("a reply").mad, mads[1].1[..]);

    let mut client = cm(1);
    let ours = client
        .resolve(active.ip(), passive, request.service_id, request.pkey, &request.private_data, NOW)
        .expect("room");
    let expected = kiban_rdma::wire::roce::cm::SidrReq { request_id: ours.0, ..request };
    let (transaction, resolution) = sent_in(&mut client, passive, active.ip());
    assert_eq!(resolution, Message::SidrReq(expected));
    let reply = kiban_rdma::wire::roce::cm::SidrRep { request_id: ours.0, ..reply };
    client.take(passive, active.ip(), &Message::SidrRep(reply).mad(transaction), NOW).expect("valid");
    let Some(CmEvent::ServiceReply { reply: got, .. }) = client.poll_event() else { panic!("a reply") };
    assert_eq!((*got, client.connections()), (reply, 0));
}
