//! Every table and queue has a limit.

use super::messages::message;
use super::pair::{ADDRESSES, Pair, SERVICE, accept, config, connect, source};
use kiban_base::Instant;
use kiban_rdma::roce::cm::{CmConfig, CmError, CmEvent};
use kiban_rdma::wire::roce::cm::{Message, PrimaryPath, Rej, RejectReason, RejectedMessage, Req};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Returns the REQ of a peer's connection.
fn request(number: u32) -> Req {
    let mut pair = Pair::new(1);
    pair.connect();
    let mad = pair.sides[0].poll_transmit().expect("a REQ").mad;
    let Message::Req(req) = message(&mad) else { panic!("a REQ") };
    Req { local_comm_id: number, qpn: number, ..req }
}

fn peer(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0000 + number), 1).into()
}

fn pair(change: impl FnOnce(&mut CmConfig)) -> Pair {
    let mut changed = config(1);
    change(&mut changed);
    Pair::with([config(0), changed], 1)
}

fn take(pair: &mut Pair, from: SocketAddr, req: Req) {
    pair.sides[1].take(from, ADDRESSES[1], &Message::Req(req).mad(1), pair.now).expect("valid");
}

#[test]
fn requests_have_a_limit_in_all_and_per_address_and_the_excess_is_dropped_in_silence() {
    let mut pair = pair(|config| (config.requests_max, config.requests_per_peer_max) = (10, 4));
    for number in 1..=20 {
        take(&mut pair, peer(1), request(number));
    }
    assert_eq!((pair.sides[1].connections(), pair.sides[1].counters().requests_dropped), (4, 16));
    for number in 2..=20 {
        take(&mut pair, peer(number), request(number));
    }
    assert_eq!((pair.sides[1].connections(), pair.sides[1].counters().requests_dropped), (10, 29));
    assert_eq!(pair.sides[1].poll_transmit(), None);
    // Whatever ends a request makes room.
    let Some(CmEvent::ConnectRequest { connection, .. }) = pair.sides[1].poll_event() else { panic!("one") };
    pair.sides[1].accept(connection, &accept(), pair.now).expect("requested");
    take(&mut pair, peer(1), request(30));
    assert_eq!(pair.sides[1].connections(), 10);
    pair.sides[1].on_data(connection);
    take(&mut pair, peer(1), request(30));
    assert_eq!(pair.sides[1].connections(), 11);
}

#[test]
fn connections_have_a_limit_and_those_in_time_wait_make_room() {
    let mut pair = pair(|config| config.connections_max = 3);
    let [one, two] = &mut pair.sides;
    for qpn in 1..=3 {
        let connect = kiban_rdma::roce::cm::Connect { qpn, ..connect() };
        two.connect(ADDRESSES[1], source(0), &connect, Instant::ZERO).expect("room");
    }
    assert_eq!(two.connect(ADDRESSES[1], source(0), &connect(), Instant::ZERO), Err(CmError::TooMany));
    let resolution = two.resolve(ADDRESSES[1], source(0), 1, 0, &[], Instant::ZERO);
    assert_eq!((resolution, one.connections()), (Err(CmError::TooMany), 0));
    take(&mut pair, peer(1), request(1));
    assert_eq!(pair.sides[1].counters().requests_dropped, 1);

    let mut pair = self::pair(|config| config.connections_max = 3);
    for number in 1..=10 {
        take(&mut pair, peer(number), request(number));
        let Some(CmEvent::ConnectRequest { connection, .. }) = pair.sides[1].poll_event() else {
            panic!("one")
        };
        pair.sides[1].abort(connection, pair.now).expect("known");
    }
    assert_eq!((pair.sides[1].connections(), pair.sides[1].counters().time_waits_evicted), (3, 7));
}

/// Peers request connections and give up, and request services that do not exist, while the caller takes
/// neither events nor MADs.
#[test]
fn queues_have_a_limit() {
    let mut pair = pair(|config| (config.events_max, config.transmits_max) = (20, 10));
    for number in 1..=1000 {
        take(&mut pair, peer(number), request(number));
        let rej = Rej {
            local_comm_id: number,
            remote_comm_id: 0,
            message: RejectedMessage::Req,
            information_bytes: 0,
            reason: RejectReason::TIMEOUT,
            information: [0; 72],
            private_data: [0; Rej::PRIVATE_BYTES],
        };
        let mad = Message::Rej(rej).mad(1);
        pair.sides[1].take(peer(number), ADDRESSES[1], &mad, pair.now).expect("valid");
        take(&mut pair, peer(number), Req { service_id: SERVICE + 1, ..request(number + 2000) });
    }
    let events = std::iter::from_fn(|| pair.sides[1].poll_event()).count();
    let transmits = std::iter::from_fn(|| pair.sides[1].poll_transmit()).count();
    assert_eq!((events, transmits, pair.sides[1].counters().transmits_dropped), (20, 10, 990));
}

#[test]
fn services_have_a_limit() {
    let mut pair = pair(|config| config.services_max = 2);
    assert_eq!(pair.sides[1].listen(SERVICE + 1), Ok(()));
    assert_eq!(pair.sides[1].listen(SERVICE + 2), Err(CmError::TooMany));
}

/// A peer asks for 2.4 hours between two of sixteen REPs, and for TimeWait.
#[test]
fn a_peers_times_have_a_limit() {
    let mut pair = pair(|_| {});
    let path = PrimaryPath { ack_timeout: 31, ..request(1).path };
    take(&mut pair, peer(1), Req { local_response_timeout: 31, path, ..request(1) });
    let Some(CmEvent::ConnectRequest { connection, .. }) = pair.sides[1].poll_event() else { panic!("one") };
    pair.sides[1].accept(connection, &accept(), Instant::ZERO).expect("requested");
    let mut now = Instant::ZERO;
    while pair.sides[1].poll_event().is_none() {
        now = pair.sides[1].deadline().expect("a timer");
        pair.sides[1].advance(now);
    }
    let waited = now.since(Instant::ZERO);
    assert!(waited > Duration::from_secs(120) && waited < Duration::from_secs(123), "{waited:?}");
    let sent = std::iter::from_fn(|| pair.sides[1].poll_transmit()).count();
    assert_eq!(sent, 17, "sixteen REPs and a REJ");
    assert_eq!(pair.sides[1].deadline(), Some(now + Duration::from_secs(120)));
}
