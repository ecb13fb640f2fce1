//! Progress: nothing that could continue is blocked, and completions stay in order.

use crate::fixture::pair::{Landing, Pair, Side, TRAITS, attributes};
use kiban_rdma::rnic::{
    Access, Data, Event, Operation, QpAttributes, QpState, ReceiveWork, SendWork, Sge, Status, TaggedAddress,
};

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|done| (done.id, done.status)).collect()
}

fn place(memory: &crate::fixture::pair::Memory) -> TaggedAddress {
    TaggedAddress { stag: memory.stag, offset: memory.region.address() }
}

#[test]
fn both_sides_can_read_more_elements_than_the_read_depth() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let mut sinks = Vec::new();
    let sources = [pair.one.pattern(600, Access::ALL), pair.two.pattern(600, Access::ALL)];
    for (side, source) in [(&mut pair.one, &sources[1]), (&mut pair.two, &sources[0])] {
        let sink = side.memory(600, Access::LOCAL);
        let elements: Vec<Sge> = (0..6).map(|n| sink.sge(n * 100, 100)).collect();
        side.send(1, Operation::read(place(source)), Data::Elements(elements.into_iter().collect()));
        sinks.push(sink);
    }
    // Both sides have used up their ORD when the other side's first request arrives.
    pair.run();
    for side in [&mut pair.one, &mut pair.two] {
        assert_eq!(statuses(side), [(1, Status::Success)], "neither waits for the other for ever");
    }
    assert_eq!((sinks[0].bytes(), sinks[1].bytes()), (sources[1].bytes(), sources[0].bytes()));
}

#[test]
fn sinks_are_invalidated_after_the_last_element() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let (sink, source) = (pair.one.memory(600, Access::LOCAL), pair.two.pattern(600, Access::ALL));
    let elements: Vec<Sge> = (0..6).map(|n| sink.sge(n * 100, 100)).collect();
    let read = Operation::Read { remote: place(&source), invalidate: true };
    pair.one.send(1, read, Data::Elements(elements.into_iter().collect()));
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(1, Status::Success)]);
    assert_eq!(sink.bytes(), source.bytes());
    pair.one.send(2, Operation::read(place(&source)), Data::one(sink.sge(0, 100)));
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(2, Status::LocalProtection)], "the tag is invalid now");
}

#[test]
fn work_behind_a_local_fence_starts_after_all_earlier_work() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let source = pair.one.pattern(100, Access::LOCAL);
    let target = pair.two.memory(100, Access::ALL);
    pair.two.receive(9, &[]);
    pair.one.send(1, Operation::write(place(&target)), Data::one(source.sge(0, 100)));
    let work = SendWork { local_fence: true, ..SendWork::new(2, Operation::SEND, Data::none()) };
    pair.one.nic.post_send(pair.one.qp, work).expect("posted");
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(statuses(&mut pair.two), [(9, Status::Success)]);
}

#[test]
fn work_posted_while_closing_is_flushed_after_earlier_work() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let source = pair.one.pattern(100, Access::LOCAL);
    let target = pair.two.memory(100, Access::ALL);
    pair.one.send(1, Operation::write(place(&target)), Data::one(source.sge(0, 100)));
    pair.one.nic.disconnect(pair.one.qp).expect("connected");
    pair.one.send(2, Operation::write(place(&target)), Data::one(source.sge(0, 100)));
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(1, Status::Success), (2, Status::Flushed)]);
    assert_eq!(pair.one.nic.counters().payload_out_bytes, 100, "the second never leaves");
}

#[test]
fn the_rejected_read_is_the_one_that_fails() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let sink = pair.one.memory(300, Access::LOCAL);
    let source = pair.two.pattern(100, Access::ALL);
    let bad = TaggedAddress { stag: source.stag ^ 0x100, ..place(&source) };
    pair.one.send(1, Operation::read(place(&source)), Data::one(sink.sge(0, 100)));
    pair.one.send(2, Operation::read(bad), Data::one(sink.sge(100, 100)));
    pair.one.send(3, Operation::read(place(&source)), Data::one(sink.sge(200, 100)));
    pair.run();
    assert_eq!(
        statuses(&mut pair.one),
        [(1, Status::Flushed), (2, Status::RemoteAccess), (3, Status::Flushed)]
    );
}

#[test]
fn a_completion_queue_overrun_fails_all_its_queue_pairs_at_once() {
    let mut side = Side::new(1, 1458);
    let cq = side.nic.create_cq(2).expect("room");
    let users: Vec<u32> = (0..2)
        .map(|_| {
            side.nic.create_qp(QpAttributes { send_cq: cq, ..attributes(side.pd, side.cq) }).expect("room")
        })
        .collect();
    users.iter().for_each(|&qp| side.nic.connect(qp, TRAITS).expect("idle"));
    side.nic.connect(side.qp, TRAITS).expect("idle");
    side.nic.abort(users[0]).expect("there");
    for id in 0..4 {
        // The queue pair is in error: posted work is flushed at once.
        side.nic.post_send(users[0], SendWork::new(id, Operation::SEND, Data::none())).expect("flushed");
    }
    assert_eq!(side.nic.event(), Some(Event::CqOverrun { cq }));
    assert!(matches!(side.nic.event(), Some(Event::QpFailed { qp, .. }) if qp == users[1]));
    assert_eq!(side.nic.event(), None, "told once");
    assert_eq!(side.nic.query_qp(users[1]).expect("there").1, QpState::Terminate);
    assert_eq!(side.nic.query_qp(side.qp).expect("there").1, QpState::Rts, "another queue's user goes on");
    let kept: Vec<u64> =
        std::iter::from_fn(|| side.nic.poll(cq).expect("there")).map(|done| done.id).collect();
    assert_eq!(kept, [0, 1], "what was in it stays");
    assert_eq!(side.nic.counters().completions_lost, 2);
}

#[test]
fn a_message_can_wait_for_its_receive() {
    for shared in [false, true] {
        let mut pair = Pair::apart(1458, Landing::Crumbs(3));
        let two = &mut pair.two;
        let srq = two.nic.create_srq(two.pd, 4, 0).expect("room");
        let traits = QpAttributes {
            waits_for_receives: true,
            srq: shared.then_some(srq),
            ..attributes(two.pd, two.cq)
        };
        two.qp = two.nic.create_qp(traits).expect("room");
        for side in [&mut pair.one, &mut pair.two] {
            side.nic.connect(side.qp, TRAITS).expect("idle");
        }
        let (source, target) = (pair.one.pattern(100, Access::NONE), pair.two.memory(300, Access::LOCAL));
        for id in 1..=3 {
            pair.one.send(id, Operation::SEND, Data::one(source.sge(0, 100)));
        }
        for id in 11..=13u64 {
            pair.run();
            assert!(pair.two.stalled && statuses(&mut pair.two).is_empty());
            assert_eq!(pair.two.nic.next_resumable(), None);
            let work = ReceiveWork { id, sges: [target.sge((id - 11) * 100, 100)].into_iter().collect() };
            if shared {
                pair.two.nic.post_srq_receive(srq, work).expect("room");
            } else {
                pair.two.nic.post_receive(pair.two.qp, work).expect("room");
            }
            assert_eq!(pair.two.nic.next_resumable(), Some(pair.two.qp));
            pair.run();
            assert_eq!(statuses(&mut pair.two), [(id, Status::Success)]);
        }
        assert_eq!(target.bytes(), [source.bytes(), source.bytes(), source.bytes()].concat());
    }
}
