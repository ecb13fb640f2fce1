//! Errors: every descriptor error, an empty receive queue, a lost connection, and rejected requests.

use crate::pair::{BASE, MEMORY_BYTES, Pair, attributes};
use kiban_vi::wire::fault;
use kiban_vi::{
    AddressSegment, Config, DataSegment, Event, MemoryAttributes, Reliability, RequestError, Status, ViState,
    Work,
};
use std::time::Duration;

const A_WHILE: Duration = Duration::from_millis(5);
const RELIABLE: [Reliability; 2] = [Reliability::Delivery, Reliability::Reception];

fn pair(level: Reliability) -> Pair {
    Pair::connected(level, true, &Config::default())
}

#[test]
fn an_empty_receive_queue_is_handled_as_the_reliability_level_requires() {
    let mut one = pair(Reliability::Unreliable);
    let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
    one.send(0, Work::send(1, &from)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(
        one.sent(0).map(|done| done.status),
        Some(Status::OK),
        "an unreliable sender does not learn of it"
    );
    one.receive(1, 1, &to);
    one.run(A_WHILE);
    assert_eq!((one.received(1), one.sides[1].nic.counters().no_descriptor), (None, 1));
    assert_eq!([one.state(0), one.state(1)], [ViState::Connected; 2]);

    let mut one = pair(Reliability::Delivery);
    one.send(0, Work::send(1, &from)).expect("connected");
    one.run(A_WHILE);
    assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2]);
    let vi = one.sides[1].vi;
    let events = one.events(1);
    assert_eq!(events[0], Event::ReceiveQueueEmpty { vi });
    assert_eq!(events[1], Event::ConnectionLost { vi, fault: fault::NO_RECEIVE_DESCRIPTOR });
    assert_eq!(
        one.events(0),
        [Event::ConnectionLost { vi: one.sides[0].vi, fault: fault::NO_RECEIVE_DESCRIPTOR }]
    );

    let mut one = pair(Reliability::Reception);
    (0..3).for_each(|n| one.send(0, Work::send(n, &from)).expect("connected"));
    one.run(Duration::from_secs(3));
    assert_eq!((one.sent(0), one.state(0)), (None, ViState::Connected), "the sender waits");
    // The sender probes at intervals, because the two ends must not exchange packets continuously.
    assert!(one.packets < 2500, "{} packets in three seconds", one.packets);
    for n in 0..3 {
        one.receive(1, n, &to);
        one.run(Duration::from_micros(50));
        assert_eq!(one.received(1).map(|done| done.cookie), Some(n), "a new descriptor is told at once");
    }
    one.run(A_WHILE);
    assert_eq!((0..3).filter_map(|_| one.sent(0)).filter(|done| done.status.is_ok()).count(), 3);
}

#[test]
fn reliable_delivery_waits_for_a_descriptor_and_then_gives_up() {
    let config = Config { dry_patience: Duration::from_millis(20), ..Config::default() };
    let mut one = Pair::connected(Reliability::Delivery, true, &config);
    let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
    one.send(0, Work::send(1, &from)).expect("connected");
    one.run(Duration::from_millis(15));
    assert_eq!(one.state(0), ViState::Connected);
    one.receive(1, 1, &to);
    // A message that the receiver sends immediately must not delay the announcement of the receiver's new
    // descriptor.
    let (back, there) = ([one.at(1, 64, 8)], [one.at(0, 64, 8)]);
    one.receive(0, 1, &there);
    one.send(1, Work::send(1, &back)).expect("connected");
    one.run(Duration::from_micros(100));
    assert!(one.received(1).is_some() && one.sent(0).is_some_and(|done| done.status.is_ok()));
    one.send(0, Work::send(2, &from)).expect("connected");
    one.run(Duration::from_millis(30));
    assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2]);
    assert_eq!(one.sent(0).map(|done| done.status), Some(Status::FLUSHED));
}

#[test]
fn a_message_that_is_too_long_is_a_length_error() {
    let mut one = pair(Reliability::Unreliable);
    let (from, to) = ([one.at(0, 0, 5000)], [one.at(1, 0, 4000)]);
    one.receive(1, 1, &to);
    one.receive(1, 2, &to);
    one.send(0, Work::send(1, &from)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(one.received(1).map(|done| done.status), Some(Status::LENGTH.and(Status::PARTIAL)));
    assert_eq!([one.state(0), one.state(1)], [ViState::Connected; 2]);
    let short = [one.at(0, 0, 4000)];
    one.send(0, Work::send(2, &short)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(one.received(1).map(|done| (done.cookie, done.status)), Some((2, Status::OK)));

    for level in RELIABLE {
        let mut one = pair(level);
        let short = [one.at(1, 0, 10)];
        let long = [one.at(0, 0, 11)];
        one.receive(1, 1, &short);
        one.receive(1, 2, &short);
        one.send(0, Work::send(1, &long)).expect("connected");
        one.run(A_WHILE);
        assert_eq!(one.received(1).map(|done| done.status), Some(Status::LENGTH));
        assert_eq!(one.received(1).map(|done| done.status), Some(Status::FLUSHED));
        assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2], "{level:?}");
        let shown = if level == Reliability::Reception { Status::REMOTE_DESCRIPTOR } else { Status::OK };
        assert_eq!(one.sent(0).map(|done| done.status), Some(shown), "reception shows it where it happened");
    }
}

#[test]
fn an_invalid_descriptor_reports_its_error() {
    for level in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let (far, most) = (u64::from(u32::MAX), 1 << 17);
        type Row = (&'static str, fn(&Pair) -> Vec<DataSegment>, Status);
        let rows: [Row; 5] = [
            ("too many segments", |one| vec![one.at(0, 0, 1); 253], Status::FORMAT),
            ("longer than the VI's longest", |one| vec![one.at(0, 0, (1 << 17) + 1)], Status::LENGTH),
            ("beyond its memory", |one| vec![one.at(0, MEMORY_BYTES as u64 - 1, 2)], Status::PROTECTION),
            (
                "before its memory",
                |one| vec![DataSegment { address: BASE - 1, ..one.at(0, 0, 2) }],
                Status::PROTECTION,
            ),
            (
                "of no memory",
                |_| vec![DataSegment { address: BASE, handle: 0x1234, length: 1 }],
                Status::PROTECTION,
            ),
        ];
        assert!(far > most);
        for (what, segments, status) in rows {
            let mut one = pair(level);
            let segments = segments(&one);
            let to = [one.at(1, 0, 1)];
            one.receive(1, 9, &to);
            one.send(0, Work::send(1, &segments)).expect("connected");
            one.run(A_WHILE);
            assert_eq!(one.sent(0).map(|done| done.status), Some(status), "{level:?}: {what}");
            let after = if level == Reliability::Unreliable { ViState::Connected } else { ViState::Error };
            assert_eq!([one.state(0), one.state(1)], [after; 2], "{level:?}: {what}");
            let there = one.received(1).map(|done| done.status);
            assert_eq!(there, (after == ViState::Error).then_some(Status::FLUSHED), "{level:?}: {what}");
        }
    }
}

#[test]
fn memory_of_another_protection_tag_is_not_accessible() {
    let mut one = pair(Reliability::Reception);
    let other = one.sides[0].nic.create_tag().expect("room");
    let handle = one.sides[0].handle;
    let mine = one.sides[0].nic.memory_attributes(handle).expect("registered");
    one.sides[0]
        .nic
        .set_memory_attributes(handle, MemoryAttributes { tag: other, ..mine })
        .expect("registered");
    let from = [one.at(0, 0, 1)];
    one.send(0, Work::send(1, &from)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(one.sent(0).map(|done| done.status), Some(Status::PROTECTION));
    assert_eq!(one.sides[0].nic.destroy_tag(other), Err(RequestError::InUse));
    one.sides[0].nic.deregister(handle).expect("registered");
    assert_eq!(one.sides[0].nic.deregister(handle).map(|_| ()), Err(RequestError::UnknownMemory));
    assert_eq!(one.sides[0].nic.destroy_tag(other), Ok(()));
    assert_eq!(one.sides[0].nic.destroy_tag(other), Err(RequestError::UnknownTag));
}

#[test]
fn memory_deregistered_during_a_message_ends_it_with_the_bytes_moved() {
    let mut one = pair(Reliability::Reception);
    let (from, to) = ([one.at(0, 0, 100_000)], [one.at(1, 0, 100_000)]);
    one.receive(1, 1, &to);
    one.send(0, Work::send(1, &from)).expect("connected");
    // The receiver's memory is deregistered while the first packets are in transit.
    one.run(Duration::from_micros(5));
    let handle = one.sides[1].handle;
    one.sides[1].nic.deregister(handle).expect("registered");
    one.run(A_WHILE);
    assert_eq!(one.received(1).map(|done| done.status), Some(Status::PROTECTION));
    assert_eq!(one.sent(0).map(|done| done.status), Some(Status::REMOTE_DESCRIPTOR));
    assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2]);
}

#[test]
fn memory_without_remote_access_is_not_touched() {
    for write in [true, false] {
        type Row = (&'static str, fn(&mut Pair) -> AddressSegment);
        let rows: [Row; 5] = [
            ("no such memory", |_| AddressSegment { address: BASE, handle: 0x77 }),
            ("beyond the memory", |one| AddressSegment {
                address: BASE + MEMORY_BYTES as u64 - 7,
                handle: one.sides[1].handle,
            }),
            ("at the end of all addresses", |one| AddressSegment {
                address: u64::MAX - 3,
                handle: one.sides[1].handle,
            }),
            ("memory that does not allow it", |one| {
                let (handle, tag) = (one.sides[1].handle, one.sides[1].tag);
                let none = MemoryAttributes { tag, rdma_write: false, rdma_read: false };
                one.sides[1].nic.set_memory_attributes(handle, none).expect("registered");
                AddressSegment { address: BASE, handle }
            }),
            ("memory of another tag", |one| {
                let handle = one.sides[1].handle;
                let tag = one.sides[1].nic.create_tag().expect("room");
                let other = MemoryAttributes { tag, rdma_write: true, rdma_read: true };
                one.sides[1].nic.set_memory_attributes(handle, other).expect("registered");
                AddressSegment { address: BASE, handle }
            }),
        ];
        for (what, place) in rows {
            let mut one = pair(Reliability::Reception);
            let place = place(&mut one);
            one.fill(0, 0, &[0xaa; 8]);
            let own = [one.at(0, 0, 8)];
            let work = if write { Work::write(1, &own, place) } else { Work::read(1, &own, place) };
            one.send(0, work).expect("connected");
            one.run(A_WHILE);
            assert_eq!(one.sent(0).map(|done| done.status), Some(Status::RDMA_PROTECTION), "{what}");
            assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2], "{what}");
            let vi = one.sides[1].vi;
            assert_eq!(one.events(1)[0], Event::RdmaProtection { vi, write }, "{what}");
            assert_eq!(one.look(1, MEMORY_BYTES as u64 - 7, 7), [0; 7], "{what}");
            assert_eq!(one.look(1, 0, 8), [0; 8], "{what}");
        }
    }
}

#[test]
fn a_vi_without_rdma_access_rejects_it_whatever_its_memory_allows() {
    let mut one = Pair::strangers(Reliability::Delivery, true, &Config::default());
    let (vi, tag) = (one.sides[1].vi, one.sides[1].tag);
    let closed = kiban_vi::ViAttributes { rdma_write: false, ..attributes(Reliability::Delivery, tag) };
    one.sides[1].nic.set_vi(vi, closed).expect("idle");
    one.connect();
    let own = [one.at(0, 0, 8)];
    let there = AddressSegment { address: BASE, handle: one.sides[1].handle };
    one.send(0, Work::write(1, &own, there)).expect("connected");
    one.run(A_WHILE);
    assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2]);
    let mut unreliable = attributes(Reliability::Unreliable, tag);
    unreliable.rdma_read = true;
    assert_eq!(one.sides[1].nic.create_vi(unreliable, None, None), Err(RequestError::RdmaRead));
}

#[test]
fn an_unreliable_read_is_a_format_error() {
    let mut one = pair(Reliability::Unreliable);
    let own = [one.at(0, 0, 8)];
    let there = AddressSegment { address: BASE, handle: one.sides[1].handle };
    one.send(0, Work::read(1, &own, there)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(one.sent(0).map(|done| done.status), Some(Status::FORMAT));
    assert_eq!(one.state(0), ViState::Connected);
}

#[test]
fn a_disconnect_flushes_both_ends_in_the_order_of_posting() {
    let mut one = pair(Reliability::Reception);
    let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
    let there = [one.at(1, 0, 8)];
    (0..5).for_each(|n| one.receive(0, n, &to));
    (0..5).for_each(|n| one.send(1, Work::send(n, &there)).expect("connected"));
    let vi = one.sides[0].vi;
    one.sides[0].nic.disconnect(vi).expect("connected");
    assert_eq!(one.state(0), ViState::Idle);
    one.run(A_WHILE);
    assert_eq!(one.state(1), ViState::Error);
    for n in 0..5 {
        let (here, there) = (one.received(0).expect("flushed"), one.sent(1).expect("flushed"));
        assert_eq!((here.cookie, here.status), (n, Status::FLUSHED));
        assert_eq!((there.cookie, there.status), (n, Status::FLUSHED));
    }
    // In the error state, descriptors are flushed as soon as they are posted. A send is rejected only in the
    // idle state.
    one.send(1, Work::send(6, &from)).expect("a VI in error takes descriptors");
    assert_eq!(one.sent(1).map(|done| done.status), Some(Status::FLUSHED));
    assert_eq!(one.send(0, Work::send(6, &from)), Err(RequestError::BadState(ViState::Idle)));
    let other = one.sides[1].vi;
    assert_eq!(one.sides[1].nic.destroy_vi(other), Err(RequestError::BadState(ViState::Error)));
    one.sides[1].nic.disconnect(other).expect("in error");
    assert_eq!(one.sides[1].nic.destroy_vi(other), Ok(()));
    assert_eq!(one.sides[1].nic.destroy_vi(other), Err(RequestError::UnknownVi));
    let segment = [one.at(0, 0, 8)];
    one.receive(0, 9, &segment);
    assert_eq!(one.sides[0].nic.destroy_vi(vi), Err(RequestError::InUse));
}

#[test]
fn a_vi_can_reconnect_after_a_broken_connection() {
    let mut one = pair(Reliability::Delivery);
    for round in 0..3 {
        let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
        one.send(0, Work::send(round, &from)).expect("connected");
        one.run(A_WHILE);
        assert_eq!([one.state(0), one.state(1)], [ViState::Error; 2]);
        for side in 0..2 {
            let vi = one.sides[side].vi;
            one.sides[side].nic.disconnect(vi).expect("in error");
            while one.sent(side).is_some() || one.received(side).is_some() {}
        }
        one.connect();
        one.receive(1, 1, &to);
        one.send(0, Work::send(1, &from)).expect("connected");
        one.run(A_WHILE);
        assert_eq!(one.received(1).map(|done| done.status), Some(Status::OK));
        one.sent(0).expect("it left");
    }
}

#[test]
fn an_invalid_descriptor_completes_in_order() {
    for level in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let mut one = pair(level);
        let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
        one.receive(1, 1, &to);
        one.send(0, Work::send(1, &from)).expect("connected");
        one.run(A_WHILE);
        let side = &mut one.sides[0];
        let faulty = Work::send(2, &from);
        side.nic.post_failed_send(side.vi, faulty, Status::FORMAT).expect("connected, with room");
        one.run(A_WHILE);
        let done: Vec<_> =
            (0..2).filter_map(|_| one.sent(0)).map(|done| (done.cookie, done.status)).collect();
        assert_eq!(done, [(1, Status::OK), (2, Status::FORMAT)], "{level:?}");
        let after = if level == Reliability::Unreliable { ViState::Connected } else { ViState::Error };
        assert_eq!(one.state(0), after, "{level:?}");
        let side = &mut one.sides[1];
        side.nic.post_failed_receive(side.vi, 3, &to, Status::FORMAT).expect("room");
        one.run(A_WHILE);
        assert_eq!(one.received(1).map(|done| (done.cookie, done.status)), Some((1, Status::OK)));
        let shown = if level == Reliability::Unreliable { Status::FORMAT } else { Status::FLUSHED };
        assert_eq!(one.received(1).map(|done| (done.cookie, done.status)), Some((3, shown)), "{level:?}");
    }
}

#[test]
fn an_unreliable_sender_continues_after_a_fault_that_was_dequeued_at_once() {
    let mut one = pair(Reliability::Unreliable);
    let (from, to) = ([one.at(0, 0, 8)], [one.at(1, 0, 8)]);
    one.receive(1, 1, &to);
    let side = &mut one.sides[0];
    side.nic.post_failed_send(side.vi, Work::send(1, &from), Status::FORMAT).expect("connected, with room");
    assert_eq!(one.sent(0).map(|done| done.status), Some(Status::FORMAT));
    one.send(0, Work::send(2, &from)).expect("connected");
    one.run(A_WHILE);
    assert_eq!(one.sent(0).map(|done| (done.cookie, done.status)), Some((2, Status::OK)));
    assert_eq!(one.received(1).map(|done| done.status), Some(Status::OK));
}

#[test]
fn closing_a_path_ends_its_connections() {
    let mut one = pair(Reliability::Reception);
    let to = [one.at(0, 0, 8)];
    one.receive(0, 1, &to);
    let path = one.sides[0].path;
    one.sides[0].nic.close_path(path);
    assert_eq!(one.state(0), ViState::Error);
    assert_eq!(one.received(0).map(|done| done.status), Some(Status::FLUSHED));
    let vi = one.sides[0].vi;
    assert_eq!(one.events(0), [Event::ConnectionLost { vi, fault: fault::TRANSPORT }]);
}

#[test]
fn unknown_numbers_are_rejected() {
    let mut one = pair(Reliability::Delivery);
    let nic = &mut one.sides[0].nic;
    assert_eq!(nic.send_done(99), Err(RequestError::UnknownVi));
    assert_eq!(nic.post_send(99, Work::send(1, &[])), Err(RequestError::UnknownVi));
    assert_eq!(nic.queue_done(99), Err(RequestError::UnknownQueue));
    assert_eq!(nic.disconnect(0), Err(RequestError::UnknownVi));
    assert_eq!(nic.listen(&[0; 65]), Err(RequestError::BadAddress));
    let tag = one.sides[0].tag;
    let wrong = kiban_vi::ViAttributes { tag: tag ^ 1, ..attributes(Reliability::Delivery, tag) };
    assert_eq!(one.sides[0].nic.create_vi(wrong, None, None), Err(RequestError::UnknownTag));
    let small = Config { descriptors_max: 2, ..Config::default() };
    let mut one = Pair::connected(Reliability::Delivery, true, &small);
    let (vi, segment) = (one.sides[0].vi, [one.at(0, 0, 1)]);
    one.receive(0, 1, &segment);
    one.receive(0, 2, &segment);
    assert_eq!(one.sides[0].nic.post_receive(vi, 3, &segment), Err(RequestError::TooMany));
}
