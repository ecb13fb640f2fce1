//! Tests work that is posted before its stream is established, and the queue pair number in completions.

use crate::fixture::pair::{Landing, Pair, Side, TRAITS, attributes};
use crate::fixture::station::{Host, NOW};
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::{CmEvent, OpenError};
use kiban_rdma::rnic::{
    Access, Config, Data, Event, Operation, QpAttributes, QpState, RequestError, SendWork, Sge, Status,
    StreamTraits, TaggedAddress,
};

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|done| (done.id, done.status)).collect()
}

fn post(side: &mut Side, id: u64, operation: Operation) -> Result<(), RequestError> {
    side.nic.post_send(side.qp, SendWork::new(id, operation, Data::none()))
}

#[test]
fn work_posted_before_the_stream_is_established_is_sent_in_order() {
    for landing in [Landing::Whole, Landing::Direct(5)] {
        let mut pair = Pair::apart(1458, landing);
        let source = pair.one.pattern(3000, Access::LOCAL);
        let (target, inbox) = (pair.two.memory(3000, Access::ALL), pair.two.memory(3000, Access::LOCAL));
        assert_eq!(post(&mut pair.one, 1, Operation::SEND), Err(RequestError::BadState(QpState::Idle)));
        pair.one.nic.expect_stream(pair.one.qp, TRAITS).expect("idle");
        assert_eq!(pair.one.nic.query_qp(pair.one.qp).expect("there").1, QpState::Idle);
        let remote = TaggedAddress { stag: target.stag, offset: target.region.address() };
        pair.one.send(1, Operation::write(remote), Data::one(source.sge(0, 3000)));
        pair.one.send(2, Operation::SEND, Data::one(source.sge(0, 3000)));
        pair.one.make();
        assert!(pair.one.out.segments.is_empty(), "nothing leaves");
        assert_eq!(statuses(&mut pair.one), [], "nothing is told");
        pair.two.receive(9, &[inbox.sge(0, 3000)]);
        for side in [&mut pair.one, &mut pair.two] {
            side.nic.connect(side.qp, TRAITS).expect("idle");
        }
        pair.run();
        assert_eq!(statuses(&mut pair.one), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(statuses(&mut pair.two), [(9, Status::Success)]);
        assert_eq!((target.bytes(), inbox.bytes()), (source.bytes(), source.bytes()));
        assert_eq!(
            pair.one.nic.expect_stream(pair.one.qp, TRAITS),
            Err(RequestError::BadState(QpState::Rts))
        );
    }
}

#[test]
fn early_posts_are_validated_and_bounded_by_the_expected_attributes() {
    let mut side = Side::new(1, 1458);
    let nowhere = TaggedAddress { stag: 1, offset: 0 };
    side.nic.expect_stream(side.qp, StreamTraits { ord: 0, extensions: false, ..TRAITS }).expect("idle");
    for operation in [Operation::read(nowhere), Operation::Immediate { data: 1 }] {
        assert_eq!(post(&mut side, 1, operation), Err(RequestError::NotAgreed));
    }
    side.nic.expect_stream(side.qp, TRAITS).expect("still idle");
    for operation in [Operation::read(nowhere), Operation::Immediate { data: 1 }] {
        assert_eq!(post(&mut side, 1, operation), Ok(()));
    }
    let depth = Config::default().ord_max;
    side.nic.expect_stream(side.qp, StreamTraits { ord: u16::MAX, ..TRAITS }).expect("still idle");
    assert_eq!(side.nic.query_qp(side.qp).expect("there").2.ord, depth, "the NIC's own bound holds");
    (2..64).for_each(|id| assert_eq!(post(&mut side, id, Operation::SEND), Ok(())));
    assert_eq!(post(&mut side, 64, Operation::SEND), Err(RequestError::Full));
}

#[test]
fn early_work_that_the_stream_does_not_support_fails_in_order() {
    let nowhere = TaggedAddress { stag: 1, offset: 0 };
    for operation in [Operation::read(nowhere), Operation::Immediate { data: 1 }] {
        let mut pair = Pair::apart(1458, Landing::Whole);
        pair.one.nic.expect_stream(pair.one.qp, TRAITS).expect("idle");
        pair.two.receive(9, &[]);
        post(&mut pair.one, 1, Operation::SEND).expect("expected");
        post(&mut pair.one, 2, operation).expect("expected");
        post(&mut pair.one, 3, Operation::SEND).expect("expected");
        let traits = StreamTraits { ord: 0, extensions: false, ..TRAITS };
        for side in [&mut pair.one, &mut pair.two] {
            side.nic.connect(side.qp, traits).expect("idle");
        }
        // The first segment is sent and confirmed before the next work request is examined.
        assert!(pair.one.nic.next_segment(pair.one.qp, &mut pair.one.out));
        pair.one.nic.confirm(pair.one.qp, 1);
        pair.run();
        let events = [(1, Status::Success), (2, Status::LocalOperation), (3, Status::Flushed)];
        assert_eq!(statuses(&mut pair.one), events);
        assert_eq!(statuses(&mut pair.two), [(9, Status::Success)]);
        assert!(matches!(pair.two.nic.event(), Some(Event::PeerTerminated { .. })));
    }
}

#[test]
fn a_stream_that_is_never_established_fails_the_oldest_work() {
    for shared in [false, true] {
        let mut side = Side::new(1, 1458);
        let srq = side.nic.create_srq(side.pd, 4, 0).expect("room");
        let attributes = QpAttributes { srq: shared.then_some(srq), ..attributes(side.pd, side.cq) };
        side.qp = side.nic.create_qp(attributes).expect("room");
        assert_eq!(side.nic.give_up(side.qp), Err(RequestError::BadState(QpState::Idle)), "none is expected");
        side.nic.expect_stream(side.qp, TRAITS).expect("idle");
        (1..=3).for_each(|id| post(&mut side, id, Operation::SEND).expect("expected"));
        if !shared {
            side.receive(11, &[]);
        }
        side.nic.give_up(side.qp).expect("expecting");
        let mut events = vec![(1, Status::Lost), (2, Status::Flushed), (3, Status::Flushed)];
        events.extend((!shared).then_some((11, Status::Flushed)));
        assert_eq!(statuses(&mut side), events);
        assert_eq!(side.nic.event(), Some(Event::QpFailed { qp: side.qp, reason: None }));
        assert_eq!(side.nic.event(), shared.then_some(Event::LastReceive { qp: side.qp }));
        assert_eq!(side.nic.query_qp(side.qp).expect("there").1, QpState::Error);
        assert_eq!(side.nic.connect(side.qp, TRAITS), Err(RequestError::BadState(QpState::Error)));
        assert_eq!(side.nic.give_up(side.qp), Err(RequestError::BadState(QpState::Error)));
        // Work posted now is flushed, as in any queue pair in error.
        post(&mut side, 4, Operation::SEND).expect("over");
        assert_eq!(statuses(&mut side), [(4, Status::Flushed)]);
    }
}

#[test]
fn without_posted_work_only_the_event_is_reported() {
    let mut side = Side::new(1, 1458);
    side.nic.expect_stream(side.qp, TRAITS).expect("idle");
    side.nic.give_up(side.qp).expect("expecting");
    assert_eq!(statuses(&mut side), []);
    assert_eq!(side.nic.event(), Some(Event::QpFailed { qp: side.qp, reason: None }));
}

#[test]
fn abort_flushes_waiting_work_and_reset_discards_it() {
    let mut side = Side::new(1, 1458);
    side.nic.expect_stream(side.qp, TRAITS).expect("idle");
    post(&mut side, 1, Operation::SEND).expect("expected");
    side.receive(2, &[]);
    side.nic.abort(side.qp).expect("there");
    assert_eq!(statuses(&mut side), [(1, Status::Flushed), (2, Status::Flushed)]);
    side.nic.reset(side.qp).expect("over");
    side.nic.expect_stream(side.qp, TRAITS).expect("as new");
    post(&mut side, 3, Operation::SEND).expect("expected");
    side.nic.reset(side.qp).expect("idle");
    assert_eq!(post(&mut side, 4, Operation::SEND), Err(RequestError::BadState(QpState::Idle)), "undone");
    side.nic.connect(side.qp, TRAITS).expect("as new");
    side.make();
    assert!(side.out.segments.is_empty() && statuses(&mut side).is_empty(), "it is forgotten");
}

#[test]
fn queue_pairs_that_expect_a_connection_can_connect_and_accept() {
    let config = mpa::Config { extensions: true, ..mpa::Config::default() };
    let mut one = Host::initiator(1, &config, (4, 4), b"");
    let mut two = Host::responder(2, &config);
    for host in [&mut one, &mut two] {
        host.nic.core.expect_stream(host.qp, TRAITS).expect("idle, also with a connection on its way");
        host.send(1, Operation::SEND, Data::Inline((0..100).collect()));
        let (inbox, stag) = host.memory(0x1000, 100);
        host.receive(2, Some(Sge { stag, address: inbox.address(), length: 100 }));
    }
    let again = one.nic.open(&config, one.qp, (4, 4), b"", NOW);
    assert_eq!(again, Err(OpenError::InUse), "one connection at a time");
    two.push(&one.pull());
    two.asked();
    two.accept((4, 4), b"");
    for _ in 0..3 {
        one.push(&two.pull());
        two.push(&one.pull());
    }
    for host in [&mut one, &mut two] {
        let events: Vec<_> = host.completions().iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events.iter().all(|(_, status)| *status == Status::Success), "{events:?}");
    }
}

#[test]
fn a_queue_pair_can_be_reused_after_a_failed_connection() {
    let config = mpa::Config::default();
    let mut one = Host::initiator(1, &config, (4, 4), b"");
    one.nic.core.expect_stream(one.qp, TRAITS).expect("idle");
    one.send(1, Operation::SEND, Data::none());
    one.nic.on_stream_closed(one.end, false);
    assert!(matches!(one.nic.poll(), Some(CmEvent::Failed { .. })));
    assert_eq!(one.completions(), [], "the connection manager's caller decides");
    one.nic.core.give_up(one.qp).expect("expecting");
    assert_eq!(one.completions()[0].status, Status::Lost);
    assert_eq!(one.nic.open(&config, one.qp, (4, 4), b"", NOW), Err(OpenError::InUse), "it is over");
    one.nic.reset(one.qp).expect("over");
    one.nic.core.expect_stream(one.qp, TRAITS).expect("as new");
    assert!(one.nic.open(&config, one.qp, (4, 4), b"", NOW).is_ok());
}

#[test]
fn completions_carry_the_qpn_and_events_the_number() {
    const NAME: u32 = 0x00ab_cdef;
    let mut pair = Pair::new(1458, Landing::Whole);
    for side in [&mut pair.one, &mut pair.two] {
        side.nic.set_qpn(side.qp, NAME).expect("there");
    }
    assert_eq!(pair.one.nic.set_qpn(pair.one.qp ^ 0xffff, 1), Err(RequestError::UnknownQp));
    pair.two.receive(2, &[]);
    pair.two.receive(3, &[]);
    post(&mut pair.one, 1, Operation::SEND).expect("room");
    pair.run();
    let names = |side: &mut Side| -> Vec<u32> { side.completions().iter().map(|done| done.qp).collect() };
    assert_eq!((names(&mut pair.one), names(&mut pair.two)), (vec![NAME], vec![NAME]));
    // The queue holds work that fails, work that is flushed, and work posted after the error.
    let bad = Data::one(Sge { stag: 1, address: 0, length: 1 });
    pair.one.send(4, Operation::SEND, bad);
    pair.one.receive(5, &[]);
    pair.one.make();
    pair.one.send(6, Operation::SEND, Data::none());
    pair.one.receive(7, &[]);
    assert_eq!(names(&mut pair.one), [NAME; 4]);
    assert!(matches!(pair.one.nic.event(), Some(Event::QpFailed { qp, .. }) if qp == pair.one.qp));
    pair.two.nic.abort(pair.two.qp).expect("there");
    assert_eq!(names(&mut pair.two), [NAME]);
    pair.two.nic.reset(pair.two.qp).expect("over");
    pair.two.nic.abort(pair.two.qp).expect("there");
    pair.two.receive(8, &[]);
    assert_eq!(names(&mut pair.two), [NAME], "also after a reset");
}
