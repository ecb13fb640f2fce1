//! Rejections, timeouts, the end of connections, and service id resolution.

use super::messages::message;
use super::pair::{
    ADDRESSES, DELAY, Pair, SERVICE, accept, arrives, config, connect, message_name, polite, rejection,
    source, text,
};
use kiban_base::Instant;
use kiban_rdma::roce::cm::{Cm, CmConfig, CmError, CmEvent, Connect, ConnectionId};
use kiban_rdma::wire::roce::MAD_BYTES;
use kiban_rdma::wire::roce::cm::{Message, PortSpace, RejectReason, Req, ServiceType, SidrStatus, timeout};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::time::Duration;

/// The time between two transmissions with the default configuration.
fn interval() -> Duration {
    timeout(18) + 2 * timeout(14)
}

/// A service of datagrams.
const DATAGRAMS: u64 = PortSpace::Udp.service_id(9);

fn ignore(_: usize, _: &mut Cm, _: &CmEvent, _: Instant) {}

#[test]
fn a_connection_takes_three_messages_and_its_end_two() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, polite(1));
    let expected = [(0, "REQ"), (1, "REP"), (0, "RTU"), (1, "DREQ"), (0, "DREP")];
    assert_eq!(pair.messages(), expected);
    assert_eq!(pair.names(0), ["connected", "disconnected", "exit"]);
    assert_eq!(pair.names(1), ["request", "established", "disconnected", "exit"]);
    let CmEvent::Established { private_data, .. } = &pair.events[1][1] else { panic!("established") };
    assert_eq!(text(private_data), "ready");
    let CmEvent::Disconnected { private_data, .. } = &pair.events[0][1] else { panic!("disconnected") };
    assert_eq!(text(private_data), "bye");
    pair.assert_empty();
}

/// Annex A14 of IBTA volume 1: what concerns requests of a target is zero, and a REP names the target in the
/// field of its EE context.
#[test]
fn an_xrc_initiator_and_a_target_connect() {
    let mut pair = Pair::new(1);
    let request = Connect { service: ServiceType::Extended, srq: true, ..connect() };
    pair.sides[0].connect(ADDRESSES[0], source(1), &request, pair.now).expect("room");
    pair.run(arrives, polite(0));
    assert_eq!(pair.messages(), [(0, "REQ"), (1, "REP"), (0, "RTU"), (0, "DREQ"), (1, "DREP")]);
    let (Message::Req(req), Message::Rep(rep)) = (pair.sent[0].2, pair.sent[1].2) else {
        panic!("a REQ and a REP")
    };
    assert_eq!((req.is_xrc(), req.extended_type, req.qpn, req.initiator_depth), (true, 1, 0x11, 1));
    assert_eq!((req.responder_resources, req.retry_count, req.rnr_retry_count, req.srq), (0, 0, 0, false));
    assert_eq!((rep.qpn, rep.ee_context, rep.initiator_depth, rep.srq), (0, 0x22, 0, true));
    let Message::Dreq(dreq) = pair.sent[3].2 else { panic!("a DREQ") };
    assert_eq!(dreq.remote_qpn, 0x22);
    let CmEvent::Connected { reply, .. } = &pair.events[0][0] else { panic!("a reply") };
    assert_eq!(reply.qpn, 0x22);
    pair.assert_empty();
}

#[test]
fn a_rejected_request_carries_reason_and_private_data() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, |_, cm, event, now| {
        if let CmEvent::ConnectRequest { connection, .. } = event {
            cm.reject(*connection, RejectReason::CONSUMER, b"no", now).expect("requested");
            let again = cm.accept(*connection, &accept(), now);
            assert_eq!(again, Err(CmError::WrongState));
        }
    });
    assert_eq!(pair.names(0), ["rejected"]);
    assert_eq!(rejection(&pair.events[0][0]), (RejectReason::CONSUMER, "no"));
    assert_eq!(pair.names(1), ["request"]);
    pair.assert_empty();
}

#[test]
fn a_lost_rejection_is_repeated() {
    let mut pair = Pair::new(1);
    pair.connect();
    let mut is_lost = false;
    pair.run(
        |side, message| {
            let is_rej = message_name(message) == "REJ";
            if is_rej && !std::mem::replace(&mut is_lost, true) { Vec::new() } else { arrives(side, message) }
        },
        |_, cm, event, now| {
            if let CmEvent::ConnectRequest { connection, .. } = event {
                cm.reject(*connection, RejectReason::CONSUMER, b"no", now).expect("requested");
            }
        },
    );
    assert_eq!(pair.messages(), [(0, "REQ"), (1, "REJ"), (0, "REQ"), (1, "REJ")]);
    assert_eq!(rejection(&pair.events[0][0]), (RejectReason::CONSUMER, "no"));
    assert_eq!(pair.names(1), ["request"]);
}

#[test]
fn the_active_side_can_reject_the_reply() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, |_, cm, event, now| match event {
        CmEvent::ConnectRequest { connection, .. } => {
            cm.accept(*connection, &accept(), now).expect("requested")
        }
        CmEvent::Connected { connection, .. } => {
            cm.reject(*connection, RejectReason::CONSUMER, b"changed my mind", now).expect("connected");
        }
        _ => {}
    });
    assert_eq!(pair.messages(), [(0, "REQ"), (1, "REP"), (0, "REJ")]);
    assert_eq!(rejection(&pair.events[1][1]), (RejectReason::CONSUMER, "changed my mind"));
    assert_eq!(pair.names(0), ["connected"]);
    pair.assert_empty();
}

#[test]
fn invalid_requests_are_rejected_without_an_event() {
    let change = |change: fn(&mut kiban_rdma::wire::roce::cm::Req)| {
        let mut pair = Pair::new(1);
        pair.connect();
        let mad = pair.sides[0].poll_transmit().expect("a REQ").mad;
        let Message::Req(mut req) = message(&mad) else { panic!("a REQ") };
        change(&mut req);
        let (header, _) = Message::read(&mad).expect("a REQ");
        pair.deliver(1, &Message::Req(req).mad(header.transaction));
        pair.run(arrives, ignore);
        assert_eq!(pair.names(1), [""; 0]);
        assert_eq!(pair.sides[1].connections(), 0);
        rejection(&pair.events[0][0]).0
    };
    assert_eq!(change(|req| req.service = ServiceType::Rd), RejectReason::INVALID_SERVICE_TYPE);
    assert_eq!(change(|req| req.service = ServiceType::Extended), RejectReason::INVALID_SERVICE_TYPE);
    let of_another_type = |req: &mut Req| (req.service, req.extended_type) = (ServiceType::Extended, 2);
    assert_eq!(change(of_another_type), RejectReason::INVALID_SERVICE_TYPE);
    assert_eq!(change(|req| req.mtu = 0), RejectReason::INVALID_MTU);
    assert_eq!(change(|req| req.mtu = 6), RejectReason::INVALID_MTU);
}

/// Returns the messages of a request for a service or, for datagrams, of its resolution, which nobody serves.
fn unserved(is_datagrams: bool) -> Pair {
    let mut pair = Pair::new(1);
    pair.sides[1].unlisten(SERVICE);
    if is_datagrams {
        pair.sides[0].resolve(ADDRESSES[0], source(1), DATAGRAMS, 0xffff, b"", pair.now).expect("room");
    } else {
        pair.connect();
    }
    pair.run(arrives, ignore);
    pair
}

#[test]
fn a_request_that_nobody_serves_is_repeated_after_short_pauses() {
    for (is_datagrams, request, answer) in [(false, "REQ", "REJ"), (true, "SIDR_REQ", "SIDR_REP")] {
        let pair = unserved(is_datagrams);
        assert_eq!(pair.messages(), [(0, request), (1, answer)].repeat(5));
        let round = 2 * DELAY;
        let times: Vec<Duration> =
            pair.sent.iter().step_by(2).map(|sent| sent.0.since(Instant::ZERO)).collect();
        let pauses = [0, 5, 10, 20, 40].map(Duration::from_millis);
        let expected = pauses
            .iter()
            .enumerate()
            .map(|(count, _)| round * count as u32 + pauses[..=count].iter().sum::<Duration>());
        assert_eq!(times, expected.collect::<Vec<_>>());
        match &pair.events[0][..] {
            [CmEvent::ServiceReply { reply, .. }] => assert_eq!(reply.status, SidrStatus::NOT_SUPPORTED),
            [rejected] => assert_eq!(rejection(rejected).0, RejectReason::INVALID_SERVICE_ID),
            other => panic!("{other:?}"),
        }
        assert_eq!((pair.names(1), pair.sides[1].counters().no_service), (vec![], 5));
        pair.assert_empty();
    }
}

#[test]
fn a_service_that_listens_shortly_after_the_request_is_reached() {
    let mut pair = Pair::new(1);
    pair.sides[1].unlisten(SERVICE);
    let req = refused(&mut pair, false);
    pair.deliver(1, &req);
    let rej = pair.sides[1].poll_transmit().expect("a REJ").mad;
    pair.deliver(0, &rej);
    pair.sides[1].listen(SERVICE).expect("free");
    pair.run(arrives, polite(1));
    assert_eq!(pair.names(0), ["connected", "disconnected", "exit"]);
}

/// Requests a connection or resolves a service, of which the MAD is refused by the host. Returns the MAD.
fn refused(pair: &mut Pair, is_datagrams: bool) -> [u8; MAD_BYTES] {
    if is_datagrams {
        pair.sides[0].resolve(ADDRESSES[0], source(1), DATAGRAMS, 0xffff, b"", pair.now).expect("room");
    } else {
        pair.connect();
    }
    pair.sides[0].poll_transmit().expect("a request").mad
}

#[test]
fn an_icmp_error_ends_a_request_after_short_pauses() {
    for is_datagrams in [false, true] {
        let mut pair = Pair::new(1);
        let first = refused(&mut pair, is_datagrams);
        let cm = &mut pair.sides[0];
        let (mut now, mut sent) = (Instant::ZERO, vec![first]);
        while let Some(mad) = sent.last().copied()
            && sent.len() < 10
        {
            cm.on_port_unreachable(source(1), &mad, now);
            let Some(deadline) = cm.deadline() else { break };
            now = deadline;
            cm.advance(now);
            sent.push(cm.poll_transmit().expect("a repetition").mad);
        }
        assert_eq!((sent.len(), now.since(Instant::ZERO)), (5, Duration::from_millis(75)));
        assert_eq!(sent, [first; 5]);
        assert!(matches!(cm.poll_event(), Some(CmEvent::Unreachable { .. })));
        assert_eq!((cm.poll_event(), cm.poll_transmit(), cm.counters().stray_errors), (None, None, 0));
        pair.assert_empty();
    }
}

#[test]
fn an_icmp_error_that_quotes_something_else_has_no_effect() {
    let mut pair = Pair::new(1);
    let req = refused(&mut pair, false);
    let deadline = pair.sides[0].deadline();
    let changed = |at: usize| {
        let mut mad = req;
        mad[at] ^= 1;
        mad.to_vec()
    };
    let too_long = [&req[..], &[0]].concat();
    // The transaction id, the communication id, the service, and the last octet; too little; and too much.
    let forged =
        [changed(8), changed(24), changed(32), changed(255), req[..27].to_vec(), Vec::new(), too_long];
    for (number, quoted) in forged.iter().enumerate() {
        pair.sides[0].on_port_unreachable(source(1), quoted, pair.now);
        assert_eq!(pair.sides[0].counters().stray_errors, number as u64 + 1);
    }
    pair.sides[0].on_port_unreachable((Ipv4Addr::new(192, 0, 2, 3), 4791).into(), &req, pair.now);
    let cm = &mut pair.sides[0];
    assert_eq!((cm.deadline(), cm.poll_event(), cm.counters().stray_errors), (deadline, None, 8));
    // A router may quote only the beginning.
    cm.on_port_unreachable(source(1), &req[..28], pair.now);
    assert_eq!((cm.deadline(), cm.counters().stray_errors), (Some(pair.now + Duration::from_millis(5)), 8));
}

#[test]
fn an_icmp_error_does_not_end_what_the_peer_has_answered() {
    let mut pair = Pair::new(1);
    let req = refused(&mut pair, false);
    pair.deliver(1, &req);
    let Some(CmEvent::ConnectRequest { connection, .. }) = pair.sides[1].poll_event() else { panic!("one") };
    // An MRA: the peer is there.
    pair.deliver(1, &req);
    let mra = pair.sides[1].poll_transmit().expect("an MRA").mad;
    pair.deliver(0, &mra);
    pair.sides[0].on_port_unreachable(source(1), &req, pair.now);
    pair.sides[1].accept(connection, &accept(), pair.now).expect("requested");
    let rep = pair.sides[1].poll_transmit().expect("a REP").mad;
    pair.deliver(0, &rep);
    pair.sides[0].on_port_unreachable(source(1), &req, pair.now);
    let Some(CmEvent::Connected { connection, .. }) = pair.sides[0].poll_event() else { panic!("a reply") };
    pair.sides[0].confirm(connection, b"").expect("connected");
    let rtu = pair.sides[0].poll_transmit().expect("an RTU").mad;
    for quoted in [req, rtu] {
        pair.sides[0].on_port_unreachable(source(1), &quoted, pair.now);
    }
    assert_eq!((pair.sides[0].poll_event(), pair.sides[0].counters().stray_errors), (None, 4));
    pair.deliver(1, &rtu);
    assert!(matches!(pair.sides[1].poll_event(), Some(CmEvent::Established { .. })));
}

#[test]
fn a_request_that_nobody_answers_is_sent_sixteen_times() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(|_, _| Vec::new(), ignore);
    let times: Vec<Instant> = pair.sent.iter().map(|(at, ..)| *at).collect();
    let expected: Vec<Instant> = (0..=16).map(|count| Instant::ZERO + interval() * count).collect();
    assert_eq!(times, expected);
    assert_eq!(pair.messages()[15..], [(0, "REQ"), (0, "REJ")]);
    assert_eq!(pair.names(0), ["timed out"]);
    pair.assert_empty();
}

#[test]
fn a_listener_that_never_answers_asks_for_time_once_and_learns_of_the_end() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, ignore);
    assert_eq!(pair.messages()[..4], [(0, "REQ"), (0, "REQ"), (1, "MRA"), (0, "REQ")]);
    let extended = pair.sent[3].0.since(pair.sent[2].0);
    assert_eq!(extended, DELAY + timeout(24) + 2 * timeout(14), "the MRA's time");
    let next = pair.sent[5].0.since(pair.sent[3].0);
    assert_eq!(next, interval(), "later MRAs extend nothing");
    assert_eq!(pair.names(0), ["timed out"]);
    assert_eq!(pair.names(1), ["request", "rejected"]);
    assert_eq!(rejection(&pair.events[1][1]), (RejectReason::TIMEOUT, ""));
    pair.assert_empty();
}

#[test]
fn a_reply_that_nobody_confirms_ends_with_a_timeout() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(
        |side, message| if side == 0 && message_name(message) == "RTU" { Vec::new() } else { vec![DELAY] },
        polite(2),
    );
    let reps = pair.messages().iter().filter(|sent| **sent == (1, "REP")).count();
    assert_eq!(reps, 16);
    assert_eq!(pair.names(1), ["request", "timed out"]);
    assert_eq!(pair.names(0), ["connected", "disconnected", "exit"]);
    pair.assert_empty();
}

#[test]
fn a_consumer_that_never_confirms_asks_the_peer_for_time() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, |_, cm, event, now| {
        if let CmEvent::ConnectRequest { connection, .. } = event {
            cm.accept(*connection, &accept(), now).expect("requested");
        }
    });
    assert_eq!(pair.messages()[..4], [(0, "REQ"), (1, "REP"), (1, "REP"), (0, "MRA")]);
    assert!(pair.sent[4].0.since(pair.sent[3].0) > timeout(24));
    assert_eq!(pair.names(0), ["connected", "rejected"]);
    assert_eq!(rejection(&pair.events[0][1]), (RejectReason::TIMEOUT, ""));
    assert_eq!(pair.names(1), ["request", "timed out"]);
    pair.assert_empty();
}

/// Connects, with the wire as it should be. Returns both ids.
fn established(pair: &mut Pair) -> [ConnectionId; 2] {
    let active = pair.connect();
    pair.run(arrives, polite(2));
    let CmEvent::ConnectRequest { connection: passive, .. } = pair.events[1][0] else { panic!("a request") };
    assert_eq!((pair.names(0), pair.names(1)), (vec!["connected"], vec!["request", "established"]));
    pair.sent.clear();
    [active, passive]
}

#[test]
fn both_sides_may_disconnect_at_the_same_time() {
    let mut pair = Pair::new(1);
    let ids = established(&mut pair);
    for (cm, id) in pair.sides.iter_mut().zip(ids) {
        cm.disconnect(id, b"bye", pair.now).expect("established");
        assert_eq!(cm.disconnect(id, b"", pair.now), Err(CmError::WrongState));
    }
    pair.run(arrives, ignore);
    assert_eq!(pair.messages(), [(0, "DREQ"), (1, "DREQ"), (0, "DREP"), (1, "DREP")]);
    for side in [0, 1] {
        let count = pair.names(side).iter().filter(|name| **name == "disconnected").count();
        assert_eq!(count, 1, "side {side}");
    }
    pair.assert_empty();
}

#[test]
fn a_peer_that_is_gone_is_disconnected_in_the_end() {
    let mut pair = Pair::new(1);
    let [active, _] = established(&mut pair);
    pair.sides[0].disconnect(active, b"bye", pair.now).expect("established");
    pair.run(|_, _| Vec::new(), ignore);
    assert_eq!(pair.messages(), [(0, "DREQ"); 16]);
    assert_eq!(pair.names(0), ["connected", "disconnected", "exit"]);
    assert_eq!(pair.sides[0].connections(), 0);
}

#[test]
fn data_establishes_a_connection_whose_rtu_is_lost() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(
        |side, message| if message_name(message) == "RTU" { Vec::new() } else { arrives(side, message) },
        |_, cm, event, now| match event {
            CmEvent::ConnectRequest { connection, .. } => {
                cm.on_data(*connection);
                cm.accept(*connection, &accept(), now).expect("requested");
                cm.on_data(*connection);
                cm.on_data(*connection);
            }
            CmEvent::Connected { connection, .. } => cm.confirm(*connection, b"").expect("connected"),
            _ => {}
        },
    );
    assert_eq!(pair.messages(), [(0, "REQ"), (1, "REP"), (0, "RTU")]);
    assert_eq!(pair.names(1), ["request", "established"]);
}

#[test]
fn a_queue_pair_that_connects_again_ends_its_old_connection() {
    let mut pair = Pair::new(1);
    established(&mut pair);
    // The active side restarts, and its new state knows nothing of the connection.
    let mut restarted = Pair::new(2);
    std::mem::swap(&mut pair.sides[0], &mut restarted.sides[0]);
    pair.connect();
    pair.run(arrives, ignore);
    assert_eq!(pair.messages(), [(0, "REQ"), (1, "DREQ"), (1, "REJ"), (0, "DREP")]);
    assert_eq!(rejection(&pair.events[0][1]), (RejectReason::STALE_CONNECTION, ""));
    assert_eq!(pair.names(1), ["request", "established", "disconnected", "exit"]);
    pair.events = Default::default();
    // Now it works, with the same queue pair.
    established(&mut pair);
}

#[test]
fn a_reply_from_a_connected_queue_pair_is_stale() {
    let mut pair = Pair::new(1);
    established(&mut pair);
    let other = Connect { qpn: 0x33, ..connect() };
    pair.sides[0].connect(ADDRESSES[0], source(1), &other, pair.now).expect("room");
    pair.run(arrives, polite(2));
    assert_eq!(rejection(&pair.events[0][1]), (RejectReason::STALE_CONNECTION, ""));
    assert_eq!(pair.names(0)[2..], ["disconnected", "exit"]);
    assert_eq!(pair.sides[0].connections() + pair.sides[1].connections(), 0);
}

#[test]
fn late_messages_of_forgotten_connections_are_answered_as_the_standard_says() {
    let mut pair = Pair::new(1);
    pair.connect();
    pair.run(arrives, polite(0));
    let old: Vec<Message> = pair.sent.iter().map(|(.., message)| *message).collect();
    for (message, side, expected) in
        [(old[1], 0, Some(RejectReason::INVALID_COMM_ID)), (old[2], 1, None), (old[4], 0, None)]
    {
        pair.sent.clear();
        pair.deliver(side, &message.mad(1));
        pair.run(arrives, ignore);
        let reasons: Vec<RejectReason> = (pair.sent.iter())
            .filter_map(|(.., message)| if let Message::Rej(rej) = message { Some(rej.reason) } else { None })
            .collect();
        assert_eq!(reasons, expected.into_iter().collect::<Vec<_>>(), "{message:?}");
    }
    pair.sent.clear();
    pair.deliver(1, &old[3].mad(1));
    pair.run(arrives, ignore);
    assert_eq!(pair.messages(), [(1, "DREP")]);
    pair.assert_empty();
}

#[test]
fn an_aborted_connection_causes_no_events_and_the_peer_learns_of_it() {
    for at in ["request sent", "request", "connected", "established"] {
        let mut pair = Pair::new(1);
        let id = pair.connect();
        let abort = |cm: &mut Cm, id, now| {
            cm.abort(id, now).expect("known");
            assert_eq!(cm.abort(id, now), Err(CmError::UnknownConnection));
        };
        if at == "request sent" {
            abort(&mut pair.sides[0], id, pair.now);
        }
        let mut polite = polite(2);
        let mut aborted = None;
        pair.run(arrives, |side, cm, event, now| {
            assert_ne!(aborted, Some(side), "{at}: no event after the abort");
            match event {
                CmEvent::ConnectRequest { connection, .. }
                | CmEvent::Connected { connection, .. }
                | CmEvent::Established { connection, .. }
                    if super::pair::name(event) == at =>
                {
                    abort(cm, *connection, now);
                    aborted = Some(side);
                }
                // The REJ has arrived already.
                _ if at == "request sent" => {}
                _ => polite(side, cm, event, now),
            }
        });
        if at == "request sent" {
            assert_eq!(pair.names(1), ["request", "rejected"]);
        }
        let other = pair.names(aborted.map_or(1, |side| 1 - side));
        assert!(other.contains(&"rejected") || other.contains(&"disconnected"), "{at}: {other:?}");
        pair.assert_empty();
    }
}

#[test]
fn a_service_resolves_to_a_queue_pair_over_a_bad_wire() {
    let service = DATAGRAMS;
    for (is_served, lost) in [(true, ""), (true, "SIDR_REQ"), (true, "SIDR_REP"), (false, "")] {
        let mut pair = Pair::new(1);
        pair.sides[1].listen(service).expect("free");
        pair.sides[0].resolve(ADDRESSES[0], source(1), service, 0xffff, b"who", pair.now).expect("room");
        let mut is_lost = false;
        pair.run(
            |side, message| {
                let is_hit = message_name(message) == lost && !std::mem::replace(&mut is_lost, true);
                if is_hit { Vec::new() } else { vec![DELAY; 1 + side] }
            },
            |_, cm, event, now| {
                if let CmEvent::ServiceRequest { connection, request, .. } = event {
                    assert_eq!(text(&request.private_data), "who");
                    match is_served {
                        true => cm.resolved(*connection, 0x44, 0x0123_4567, b"me", now),
                        false => cm.refuse(*connection, SidrStatus::REJECTED, b"not me", now),
                    }
                    .expect("requested");
                }
            },
        );
        assert_eq!((pair.names(0), pair.names(1)), (vec!["service reply"], vec!["service request"]));
        let CmEvent::ServiceReply { reply, .. } = &pair.events[0][0] else { panic!("a reply") };
        let got = (reply.status, reply.qpn, reply.qkey, text(&reply.private_data));
        let refused = (SidrStatus::REJECTED, 0, 0, "not me");
        assert_eq!(got, if is_served { (SidrStatus::VALID, 0x44, 0x0123_4567, "me") } else { refused });
        pair.assert_empty();
    }
}

/// Linux repeats a SIDR_REQ after 4.3 s (`CMA_CM_RESPONSE_TIMEOUT` in cma.c).
#[test]
fn a_lost_reply_to_a_resolution_is_repeated() {
    let mut pair = Pair::with([CmConfig { response_timeout: 20, ..config(0) }, config(1)], 1);
    pair.sides[1].listen(DATAGRAMS).expect("free");
    pair.sides[0].resolve(ADDRESSES[0], source(1), DATAGRAMS, 0xffff, b"", pair.now).expect("room");
    let mut is_lost = false;
    pair.run(
        |side, message| {
            let is_reply = message_name(message) == "SIDR_REP";
            if is_reply && !std::mem::replace(&mut is_lost, true) {
                Vec::new()
            } else {
                arrives(side, message)
            }
        },
        |_, cm, event, now| {
            if let CmEvent::ServiceRequest { connection, .. } = event {
                cm.resolved(*connection, 0x44, 0x0123_4567, b"", now).expect("requested");
            }
        },
    );
    let expected = [(0, "SIDR_REQ"), (1, "SIDR_REP"), (0, "SIDR_REQ"), (1, "SIDR_REP")];
    assert_eq!(pair.messages(), expected);
    assert_eq!((pair.names(0), pair.names(1)), (vec!["service reply"], vec!["service request"]));
    pair.assert_empty();
}

#[test]
fn a_service_without_listener_or_peer_does_not_resolve() {
    for (is_connected, expected) in [(true, "service reply"), (false, "timed out")] {
        let mut pair = Pair::new(1);
        pair.sides[0].resolve(ADDRESSES[0], source(1), 77, 0xffff, b"", pair.now).expect("room");
        pair.run(|_, _| if is_connected { vec![DELAY] } else { Vec::new() }, ignore);
        assert_eq!(pair.names(0), [expected]);
        if let CmEvent::ServiceReply { reply, .. } = &pair.events[0][0] {
            assert_eq!(reply.status, SidrStatus::NOT_SUPPORTED);
        }
        pair.assert_empty();
    }
}

#[test]
fn calls_with_invalid_arguments_fail() {
    let mut pair = Pair::new(1);
    let now = pair.now;
    let cm = &mut pair.sides[1];
    let mut attempt = |change: fn(&mut Connect)| {
        let mut connect = connect();
        change(&mut connect);
        cm.connect(ADDRESSES[1], source(0), &connect, now).expect_err("an invalid argument")
    };
    assert_eq!(attempt(|connect| connect.private_data = vec![0; 93]), CmError::PrivateData);
    assert_eq!(attempt(|connect| connect.mtu = 0), CmError::Parameter);
    assert_eq!(attempt(|connect| connect.service = ServiceType::Rd), CmError::Parameter);
    assert_eq!(attempt(|connect| connect.qpn = 1 << 24), CmError::Parameter);
    assert_eq!(cm.listen(SERVICE), Err(CmError::InUse));
    cm.unlisten(SERVICE);
    assert_eq!(cm.listen(SERVICE), Ok(()));
    let unknown = ConnectionId(1);
    assert_eq!(cm.accept(unknown, &accept(), now), Err(CmError::UnknownConnection));
    assert_eq!(cm.confirm(unknown, b""), Err(CmError::UnknownConnection));
    assert_eq!(cm.disconnect(unknown, b"", now), Err(CmError::UnknownConnection));
    assert_eq!(cm.abort(unknown, now), Err(CmError::UnknownConnection));
    assert_eq!((cm.connections(), cm.poll_transmit()), (0, None));
}

/// A peer's port and flow label vary from packet to packet; the scope of a link-local address does not.
#[test]
fn an_ipv6_peer_is_its_address_and_scope() {
    let [local, peer] = [1, 2].map(|last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last));
    let mut pair = Pair::new(1);
    let [one, two] = &mut pair.sides;
    one.connect(local.into(), SocketAddrV6::new(peer, 0, 0, 7).into(), &connect(), pair.now).expect("room");
    let req = one.poll_transmit().expect("a REQ");
    assert_eq!(req.to, SocketAddrV6::new(peer, 4791, 0, 7).into());
    let Message::Req(read) = message(&req.mad) else { panic!("a REQ") };
    assert_eq!((read.path.local_gid, read.path.remote_gid), (local, peer));
    two.take(SocketAddrV6::new(local, 50_000, 9, 3).into(), peer.into(), &req.mad, pair.now).expect("valid");
    let Some(CmEvent::ConnectRequest { connection, .. }) = two.poll_event() else { panic!("a request") };
    two.accept(connection, &accept(), pair.now).expect("requested");
    let rep = two.poll_transmit().expect("a REP");
    assert_eq!((rep.to, rep.from), (SocketAddrV6::new(local, 4791, 0, 3).into(), peer.into()));
    for (scope, expected) in [(8, 0), (7, 1)] {
        let from = SocketAddrV6::new(peer, 50_001, 4, scope).into();
        one.take(from, local.into(), &rep.mad, pair.now).expect("valid");
        assert_eq!(std::iter::from_fn(|| one.poll_event()).count(), expected, "scope {scope}");
    }
}
