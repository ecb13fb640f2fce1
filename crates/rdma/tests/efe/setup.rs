//! Flow setup, and its failures.

use crate::pair::{A_WHILE, DELAY, Pair, SERVICE, peer};
use kiban_base::RngKey;
use kiban_rdma::efe::{Config, EndReason, Endpoint, Event, RequestError};
use kiban_rdma::wire::efe::{HEADER_BYTES, Header, Kind, Setup, reason};
use std::time::Duration;

fn header(kind: Kind) -> Header {
    Header {
        kind,
        flags: 0,
        credit: 64,
        payload_bytes: 0,
        flow: 0,
        key: 0,
        sequence: 0,
        acknowledged: 0,
        transmission: 0,
        echo: 0,
        held: 0,
    }
}

/// Builds a request as a forger would.
pub(crate) fn request(flow: u32, key: u32, service: u16) -> Vec<u8> {
    let setup = Setup { flow, key, service, segment_bytes: 1472, greeting: b"" };
    let mut frame = vec![0; HEADER_BYTES + setup.length()];
    Header { payload_bytes: setup.length() as u16, ..header(Kind::Ask) }.write(&mut frame);
    setup.write(&mut frame[HEADER_BYTES..]);
    frame
}

#[test]
fn a_request_and_an_answer_carry_both_greetings() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    pair.transfer(flows, 3);
    let kinds: Vec<_> = pair.log.iter().take(3).map(|(from, header, _)| (*from, header.kind)).collect();
    assert_eq!(kinds, [(0, Kind::Ask), (1, Kind::Accept), (0, Kind::Ack)], "three frames, none twice");
}

#[test]
fn losing_any_setup_frame_creates_the_flow_once() {
    for lost in [[0, 99], [1, 99], [2, 99], [0, 1], [1, 2], [2, 3]] {
        let mut pair = Pair::strangers(&Config::default());
        let mut frames = 0;
        pair.loses = Box::new(move |_, _| {
            frames += 1;
            lost.contains(&(frames - 1))
        });
        let asking = pair.ask();
        let mut flows = Vec::new();
        for _ in 0..20 {
            pair.run(Duration::from_millis(1));
            for event in pair.events(1) {
                if let Event::ConnectRequest { flow, .. } = event {
                    pair.ends[1].accept(flow, b"welcome", pair.now).expect("it was asked");
                    flows.push(flow);
                }
            }
        }
        assert_eq!(flows.len(), 1, "without {lost:?}: asked once");
        assert_eq!(pair.events(0), [Event::Connected { flow: asking, greeting: b"welcome".to_vec() }]);
        pair.transfer([asking, flows[0]], 10);
    }
}

#[test]
fn a_refusal_arrives_with_its_reason() {
    let mut pair = Pair::strangers(&Config::default());
    let flow = pair.ends[0].connect(peer(1), 9, b"", pair.now).expect("room");
    pair.run(A_WHILE);
    let refused = Event::Rejected { flow, reason: reason::NO_SERVICE, greeting: Vec::new() };
    assert_eq!((pair.events(0), pair.events(1)), (vec![refused], vec![]));

    // The host's accept is lost twice, but the request is reported to the host only once.
    let mut lose = 2;
    pair.loses = Box::new(move |from, _| {
        let loses = from == 1 && lose > 0;
        lose -= i32::from(loses);
        loses
    });
    let flow = pair.ask();
    pair.run(DELAY * 2);
    let [Event::ConnectRequest { flow: asked, .. }] = pair.events(1)[..] else {
        panic!("side 1 got a request")
    };
    pair.ends[1].reject(asked, b"not today", pair.now).expect("it was asked");
    assert_eq!(pair.ends[1].accept(asked, b"", pair.now), Err(RequestError::NotRequested));
    pair.run(Duration::from_millis(20));
    let refused = Event::Rejected { flow, reason: reason::HOST, greeting: b"not today".to_vec() };
    assert_eq!((pair.events(0), pair.events(1)), (vec![refused], vec![]));
    assert_eq!(pair.sent(1, Kind::Reject), 4, "no service, lost, lost, come");
    pair.run(Duration::from_secs(10));
    assert_eq!([pair.ends[0].flows(), pair.ends[1].flows()], [0, 0], "nothing is left of it");
}

#[test]
fn a_request_without_an_answer_times_out() {
    let config = Config::default();
    let mut pair = Pair::strangers(&config);
    pair.loses = Box::new(|_, _| true);
    let flow = pair.ask();
    pair.run(Duration::from_secs(10));
    assert_eq!(pair.events(0), [Event::Ended { flow, why: EndReason::NoAnswer }]);
    assert_eq!(pair.sent(0, Kind::Ask) as u32, 1 + config.resends_max);
    assert_eq!(pair.ends[0].flows(), 0);
}

#[test]
fn an_abandoned_request_leaves_nothing_behind() {
    let mut pair = Pair::strangers(&Config::default());
    let flow = pair.ask();
    pair.run(DELAY * 2);
    pair.ends[0].abort(flow, pair.now).expect("there is such a flow");
    let [Event::ConnectRequest { flow: asked, .. }] = pair.events(1)[..] else {
        panic!("side 1 got a request")
    };
    pair.ends[1].accept(asked, b"", pair.now).expect("it was asked");
    pair.run(A_WHILE);
    assert_eq!(pair.events(1), [Event::Ended { flow: asked, why: EndReason::PeerAborted }]);
    assert_eq!([pair.ends[0].flows(), pair.ends[1].flows()], [0, 0]);
}

#[test]
fn half_open_requests_hold_bounded_memory_for_a_bounded_time() {
    let config = Config { asked_max: 8, ..Config::default() };
    let mut pair = Pair::strangers(&config);
    for n in 0..1000 {
        let (now, end) = (pair.now, &mut pair.ends[1]);
        end.arrive(peer(7), &request(n, n, SERVICE), now);
        end.arrive(peer(7), &request(n, n, SERVICE), now);
    }
    assert_eq!(pair.ends[1].flows(), 8);
    assert_eq!(pair.ends[1].counters().requests_dropped, 2 * 992);
    let asked: Vec<_> = pair.events(1);
    assert_eq!(asked.len(), 8, "asked once each");
    // Half of the requests are accepted, but their peers never confirm.
    for event in &asked[..4] {
        let Event::ConnectRequest { flow, .. } = event else { panic!("{event:?}") };
        pair.ends[1].accept(*flow, b"", pair.now).expect("it was asked");
    }
    pair.run(config.asked_for + Duration::from_secs(1));
    assert_eq!(pair.ends[1].flows(), 0);
    assert!(pair.sent(1, Kind::Accept) <= 4 * 5, "who never asked is not answered for long");
    let ended = pair.events(1);
    assert_eq!(ended.len(), 4, "the host is told of those that it accepted");
    assert!(ended.iter().all(|event| matches!(event, Event::Ended { why: EndReason::NoAnswer, .. })));
    pair.connect();
}

#[test]
fn an_old_request_creates_nothing_that_lasts() {
    let (mut pair, flows) = Pair::connected(&Config::default());
    let old = pair.log[0].2.clone();
    pair.ends[1].arrive(peer(0), &old, pair.now);
    pair.run(A_WHILE);
    assert!(pair.events(1).is_empty(), "the flow is known");
    for (end, flow) in pair.ends.iter_mut().zip(flows) {
        end.finish(flow).expect("open");
    }
    pair.run(Duration::from_secs(2));
    assert_eq!([pair.ends[0].flows(), pair.ends[1].flows()], [0, 0]);
    pair.events(1);
    pair.ends[1].arrive(peer(0), &old, pair.now);
    let [Event::ConnectRequest { flow, .. }] = pair.events(1)[..] else { panic!("it looks like a new one") };
    pair.ends[1].accept(flow, b"", pair.now).expect("it was asked");
    pair.run(A_WHILE);
    assert_eq!(
        pair.events(1),
        [Event::Ended { flow, why: EndReason::PeerAborted }],
        "its asker knows better"
    );
    assert_eq!(pair.ends[1].flows(), 0);
}

#[test]
fn simultaneous_connects_are_two_flows() {
    let mut pair = Pair::strangers(&Config::default());
    let asking = [0, 1].map(|side| {
        pair.ends[side].connect(peer(1 - side), SERVICE, b"", pair.now).expect("room for a flow")
    });
    pair.run(DELAY * 2);
    let accepted = [0, 1].map(|side| {
        let [Event::ConnectRequest { flow, .. }] = pair.events(side)[..] else {
            panic!("side {side} got a request")
        };
        pair.ends[side].accept(flow, b"", pair.now).expect("it was asked");
        flow
    });
    pair.run(A_WHILE);
    pair.transfer([asking[0], accepted[1]], 100);
    pair.transfer([accepted[0], asking[1]], 100);
}

#[test]
fn the_smaller_segment_size_is_used_and_invalid_calls_are_rejected() {
    let ends = [
        Endpoint::new(Config { segment_bytes: 1472, ..Config::default() }, RngKey::for_simulation(1)),
        Endpoint::new(Config { segment_bytes: 500, ..Config::default() }, RngKey::for_simulation(2)),
    ];
    let mut pair = Pair::strangers(&Config::default());
    pair.ends = ends;
    pair.ends[1].listen(SERVICE);
    let now = pair.now;
    assert_eq!(pair.ends[0].connect(peer(1), SERVICE, &[0; 1025], now), Err(RequestError::Greeting));
    let flow = pair.ask();
    assert_eq!(pair.ends[0].send(flow, b"x", now), Err(RequestError::NotConnected));
    pair.ends[0].abort(flow, now).expect("there is such a flow");
    pair.run(A_WHILE);
    let _ = pair.events(1);
    let flows = pair.connect();
    assert_eq!(pair.ends.each_ref().map(|end| end.config().segment_bytes), [1472, 500]);
    for (end, flow) in pair.ends.iter_mut().zip(flows) {
        assert_eq!(end.segment_bytes(flow), Some(500));
        assert_eq!(end.send(flow, &[0; 501], now), Err(RequestError::TooLong));
        assert_eq!(end.send(flow ^ 1 << 30, b"x", now), Err(RequestError::UnknownFlow));
    }
    for _ in 0..64 {
        pair.send(0, flows[0], &[7; 500]);
    }
    assert_eq!(pair.ends[0].send(flows[0], b"x", pair.now), Err(RequestError::Full));
    pair.ends[0].finish(flows[0]).expect("open");
    assert_eq!(pair.ends[0].finish(flows[0]), Err(RequestError::Finished));
    assert_eq!(pair.ends[0].send(flows[0], b"x", pair.now), Err(RequestError::Finished));
    pair.run(A_WHILE);
    assert_eq!(pair.read_all(1, flows[1]).len(), 64);
}
