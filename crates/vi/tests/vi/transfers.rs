//! Data transfer: messages, RDMA Writes and Reads, immediate data, at every reliability level.

use crate::pair::{BASE, PACKET_BYTES, Pair, attributes, pattern};
use kiban_base::Instant;
use kiban_vi::{
    AddressSegment, CompletionKind, Config, ConnectError, Event, Reliability, RequestError, Status, ViState,
    Work,
};
use std::time::Duration;

const LEVELS: [Reliability; 3] = [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception];
const A_WHILE: Duration = Duration::from_millis(5);

fn each_level(mut story: impl FnMut(Reliability, &mut Pair)) {
    for level in LEVELS {
        for loses_nothing in [true, false] {
            story(level, &mut Pair::connected(level, loses_nothing, &Config::default()));
        }
    }
}

#[test]
fn messages_of_every_length_arrive_once_and_in_order() {
    each_level(|level, pair| {
        let lengths = [0, 1, 8, PACKET_BYTES - 32, PACKET_BYTES - 31, 5000, 60_000];
        for (n, length) in lengths.into_iter().enumerate() {
            let bytes = pattern(length, n as u64);
            pair.fill(0, 0, &bytes);
            // The send has three segments, and the receive has two.
            let (a, b) = (length as u32 / 3, length as u32 / 2);
            let from = [
                pair.at(0, 0, a),
                pair.at(0, a.into(), a),
                pair.at(0, 2 * u64::from(a), length as u32 - 2 * a),
            ];
            let to = [pair.at(1, 1000, b), pair.at(1, 1000 + u64::from(b), 70_000)];
            pair.receive(1, 100 + n as u64, &to);
            pair.send(0, Work::send(n as u64, &from)).expect("connected");
            pair.run(A_WHILE);
            let sent = pair.sent(0).expect("the message has left");
            assert_eq!(
                (sent.cookie, sent.status, sent.length),
                (n as u64, Status::OK, length as u32),
                "{level:?}"
            );
            let received = pair.received(1).expect("the message has come");
            assert_eq!((received.cookie, received.length), (100 + n as u64, length as u32), "{level:?}");
            assert_eq!((received.kind, received.immediate), (CompletionKind::Receive, None));
            assert!(pair.look(1, 1000, length) == bytes, "{level:?}: {length} bytes differ");
        }
        assert_eq!((pair.sent(0), pair.received(1)), (None, None));
    });
}

#[test]
fn immediate_data_arrives_with_its_message() {
    each_level(|_, pair| {
        let to = [pair.at(1, 0, 8)];
        pair.receive(1, 1, &to);
        pair.send(0, Work::send(2, &[]).with_immediate(0xfeed_beef)).expect("connected");
        pair.run(A_WHILE);
        let received = pair.received(1).expect("it came");
        assert_eq!((received.immediate, received.length), (Some(0xfeed_beef), 0));
        assert_eq!(pair.sent(0).expect("it left").immediate, Some(0xfeed_beef));
    });
}

#[test]
fn a_write_consumes_a_descriptor_only_with_immediate_data() {
    each_level(|level, pair| {
        let bytes = pattern(9000, 3);
        pair.fill(0, 0, &bytes);
        let (from, to) = ([pair.at(0, 0, 9000)], [pair.at(1, 0, 0)]);
        let there = AddressSegment { address: BASE + 500, handle: pair.sides[1].handle };
        pair.receive(1, 7, &to);
        pair.send(0, Work::write(1, &from, there)).expect("connected");
        pair.run(A_WHILE);
        assert!(pair.look(1, 500, 9000) == bytes, "{level:?}");
        assert_eq!(pair.received(1), None);
        assert_eq!(
            pair.sent(0).map(|done| (done.kind, done.status)),
            Some((CompletionKind::Write, Status::OK))
        );
        pair.send(0, Work::write(2, &from, there).with_immediate(5)).expect("connected");
        pair.run(A_WHILE);
        let consumed = pair.received(1).expect("immediate data consumes a descriptor");
        assert_eq!(
            (consumed.cookie, consumed.kind, consumed.immediate),
            (7, CompletionKind::RemoteWrite, Some(5))
        );
        assert_eq!(consumed.length, 9000);
    });
}

#[test]
fn a_read_returns_remote_memory_and_consumes_no_descriptor() {
    for level in [Reliability::Delivery, Reliability::Reception] {
        for loses_nothing in [true, false] {
            let mut pair = Pair::connected(level, loses_nothing, &Config::default());
            let bytes = pattern(20_000, 9);
            pair.fill(1, 100, &bytes);
            let there = AddressSegment { address: BASE + 100, handle: pair.sides[1].handle };
            // Post more RDMA Reads than may be outstanding.
            for n in 0..40u64 {
                let to = [pair.at(0, n * 500, 500)];
                let from = AddressSegment { address: there.address + n * 500, ..there };
                pair.send(0, Work::read(n, &to, from)).expect("connected");
            }
            pair.run(A_WHILE);
            for n in 0..40 {
                let done = pair.sent(0).expect("the read is done");
                assert_eq!(
                    (done.cookie, done.kind, done.status, done.length),
                    (n, CompletionKind::Read, Status::OK, 500)
                );
            }
            assert!(pair.look(0, 0, 20_000) == bytes);
            assert_eq!(pair.received(1), None);
        }
    }
}

#[test]
fn only_a_fenced_message_waits_for_reads() {
    for fenced in [false, true] {
        let mut pair = Pair::connected(Reliability::Reception, true, &Config::default());
        let (big, small) = ([pair.at(0, 0, 100_000)], [pair.at(0, 0, 4)]);
        let to = [pair.at(1, 200_000, 4)];
        pair.receive(1, 1, &to);
        let there = AddressSegment { address: BASE, handle: pair.sides[1].handle };
        pair.send(0, Work::read(1, &big, there)).expect("connected");
        let message = Work::send(2, &small);
        pair.send(0, if fenced { message.fenced() } else { message }).expect("connected");
        // After a single one-way delay, a message sent without a fence has arrived together with the read
        // request.
        pair.run(Duration::from_micros(15));
        assert_eq!(pair.received(1).is_some(), !fenced);
        assert_eq!(pair.sent(0), None, "descriptors are dequeued in the order of posting");
        pair.run(A_WHILE);
        assert_eq!([pair.sent(0), pair.sent(0)].map(|done| done.map(|done| done.cookie)), [Some(1), Some(2)]);
    }
}

#[test]
fn a_completion_queue_names_the_vi_of_each_descriptor() {
    let mut pair = Pair::strangers(Reliability::Reception, true, &Config::default());
    let nic = &mut pair.sides[1].nic;
    let queue = nic.create_queue(3).expect("room");
    assert_eq!(nic.destroy_queue(queue + 1), Err(RequestError::UnknownQueue));
    let vi = nic.create_vi(attributes(Reliability::Reception, pair.sides[1].tag), Some(queue), Some(queue));
    pair.sides[1].vi = vi.expect("room");
    assert_eq!(pair.sides[1].nic.destroy_queue(queue), Err(RequestError::InUse));
    pair.connect();
    let segment = [pair.at(1, 0, 8)];
    (0..4).for_each(|n| pair.receive(1, n, &segment));
    let from = [pair.at(0, 0, 8)];
    (0..4).for_each(|n| pair.send(0, Work::send(n, &from)).expect("connected"));
    pair.run(A_WHILE);
    let vi = pair.sides[1].vi;
    for _ in 0..3 {
        assert_eq!(pair.sides[1].nic.queue_done(queue), Ok(Some((vi, true))));
    }
    // The fourth completion was lost, which raises an event. The descriptor itself is not lost.
    assert_eq!(pair.sides[1].nic.queue_done(queue), Ok(None));
    assert!(pair.events(1).contains(&Event::CompletionQueueFull { queue }));
    assert_eq!((0..4).filter_map(|_| pair.received(1)).count(), 4);
}

#[test]
fn simultaneous_peer_requests_connect_once() {
    for loses_nothing in [true, false] {
        for later in [Duration::ZERO, Duration::from_millis(100)] {
            let mut pair = Pair::strangers(Reliability::Delivery, loses_nothing, &Config::default());
            let until = Instant::from_nanos(1_000_000_000);
            let names: [(&[u8], &[u8]); 2] = [(b"one", b"two"), (b"two", b"one")];
            for (side, names) in names.into_iter().enumerate() {
                let now = pair.now;
                let one = &mut pair.sides[side];
                one.nic.request(one.vi, one.path, names, true, now, until).expect("idle");
                pair.run(later);
            }
            pair.run(Duration::from_millis(200));
            assert_eq!([pair.state(0), pair.state(1)], [ViState::Connected; 2], "{loses_nothing} {later:?}");
            let vis = [pair.sides[0].vi, pair.sides[1].vi];
            for (side, vi) in vis.into_iter().enumerate() {
                assert!(matches!(pair.sides[side].nic.outcome(vi), Ok(Some(Ok(_)))));
            }
            let (to, from) = ([pair.at(1, 0, 4)], [pair.at(0, 0, 4)]);
            pair.receive(1, 1, &to);
            pair.send(0, Work::send(1, &from)).expect("connected");
            pair.run(A_WHILE);
            assert!(pair.received(1).is_some());
        }
    }
}

#[test]
fn a_failed_request_reports_its_reason() {
    let mut pair = Pair::strangers(Reliability::Delivery, true, &Config::default());
    let vi = pair.sides[0].vi;
    pair.ask(A_WHILE).expect("idle");
    assert_eq!(pair.state(0), ViState::ConnectPending);
    pair.run(A_WHILE);
    assert_eq!(pair.sides[0].nic.outcome(vi), Ok(Some(Err(ConnectError::NoMatch))));
    pair.sides[1].nic.listen(b"port").expect("room");
    pair.ask(A_WHILE).expect("idle again");
    pair.run(A_WHILE * 2);
    assert_eq!(pair.sides[0].nic.outcome(vi), Ok(Some(Err(ConnectError::Timeout))));
    let late = pair.sides[1].nic.request_at(b"port").expect("it had come");
    pair.sides[1].nic.reject(late.number).expect("it waits");
    assert_eq!(pair.sides[1].nic.reject(late.number), Err(RequestError::UnknownRequest));
    pair.ask(A_WHILE).expect("idle again");
    pair.run(A_WHILE / 2);
    let request = pair.sides[1].nic.request_at(b"port").expect("it came");
    let (other, tag, now) = (pair.sides[1].vi, pair.sides[1].tag, pair.now);
    let nic = &mut pair.sides[1].nic;
    nic.set_vi(other, attributes(Reliability::Reception, tag)).expect("idle");
    assert_eq!(nic.accept(request.number, other, now), Err(RequestError::Reliability));
    let mut unlike = attributes(Reliability::Delivery, tag);
    unlike.transfer_bytes_max -= 1;
    nic.set_vi(other, unlike).expect("idle");
    assert_eq!(nic.accept(request.number, other, now), Err(RequestError::TransferBytes));
    nic.set_vi(other, kiban_vi::ViAttributes { qos: 1, ..attributes(Reliability::Delivery, tag) })
        .expect("idle");
    assert_eq!(nic.accept(request.number, other, now), Err(RequestError::Qos));
    nic.reject(request.number).expect("it waits");
    pair.run(A_WHILE / 4);
    assert_eq!(pair.sides[0].nic.outcome(vi), Ok(Some(Err(ConnectError::Rejected))));
    assert_eq!(pair.state(0), ViState::Idle);
}
