//! Paths that lose, duplicate, reorder and corrupt packets.

use crate::pair::{BASE, Impairment, Pair, pattern};
use kiban_vi::wire::fault;
use kiban_vi::{AddressSegment, Config, Event, Reliability, Status, ViState, Work};
use std::time::Duration;

const BAD: Impairment = Impairment { loss: 0.05, doubling: 0.05, reordering: 0.05, corruption: 0.02 };

#[test]
fn reliable_messages_arrive_once_and_in_order_on_a_bad_path() {
    for level in [Reliability::Delivery, Reliability::Reception] {
        for seed in 0..20 {
            let mut pair = Pair::connected(level, false, &Config::default());
            pair.rng = kiban_base::SimRng::from_seed(seed);
            pair.impairment = BAD;
            let bytes = pattern(40_000, seed);
            pair.fill(0, 0, &bytes);
            pair.fill(1, 100_000, &bytes);
            for n in 0..20u64 {
                let to = [pair.at(1, n * 2000, 2000)];
                pair.receive(1, n, &to);
            }
            let there =
                |pair: &Pair, offset| AddressSegment { address: BASE + offset, handle: pair.sides[1].handle };
            for n in 0..20u64 {
                let from = [pair.at(0, n * 2000, 2000)];
                pair.send(0, Work::send(3 * n, &from)).expect("connected");
                let (back, target) =
                    ([pair.at(0, 100_000 + n * 2000, 2000)], there(&pair, 100_000 + n * 2000));
                pair.send(0, Work::read(3 * n + 1, &back, target)).expect("connected");
                let target = there(&pair, 200_000 + n * 2000);
                pair.send(0, Work::write(3 * n + 2, &from, target)).expect("connected");
            }
            pair.run(Duration::from_secs(20));
            let events = pair.events(0);
            assert_eq!(pair.state(0), ViState::Connected, "{level:?} seed {seed}: {events:?}");
            for n in 0..60 {
                let done = pair.sent(0).unwrap_or_else(|| panic!("{level:?} seed {seed}: {n} is not done"));
                assert_eq!((done.cookie, done.status), (n, Status::OK), "{level:?} seed {seed}");
            }
            for n in 0..20 {
                let done = pair.received(1).expect("received");
                assert_eq!(
                    (done.cookie, done.status, done.length),
                    (n, Status::OK, 2000),
                    "{level:?} seed {seed}"
                );
            }
            assert!(pair.look(1, 0, 40_000) == bytes, "messages");
            assert!(pair.look(0, 100_000, 40_000) == bytes, "reads");
            assert!(pair.look(1, 200_000, 40_000) == bytes, "writes");
            assert!(pair.sides[0].nic.counters().retransmits > 0, "the path impaired packets");
        }
    }
}

#[test]
fn an_unreliable_message_arrives_whole_and_in_order_or_not_at_all() {
    let mut pair = Pair::connected(Reliability::Unreliable, false, &Config::default());
    pair.impairment = BAD;
    let (mut received, mut last) = (0, None);
    for n in 0..2000u32 {
        let bytes = pattern(3000, n.into());
        pair.fill(0, 0, &bytes);
        let (from, to) = ([pair.at(0, 0, 3000)], [pair.at(1, 0, 3000)]);
        let (_, _, _, is_empty) = pair.sides[1].nic.vi(pair.sides[1].vi).expect("there");
        if is_empty {
            pair.receive(1, 0, &to);
        }
        pair.send(0, Work::send(n.into(), &from).with_immediate(n)).expect("connected");
        pair.run(Duration::from_micros(100));
        assert_eq!(pair.sent(0).map(|done| done.status), Some(Status::OK));
        if let Some(done) = pair.received(1) {
            assert_eq!((done.status, done.length), (Status::OK, 3000));
            let number = done.immediate.expect("each has its number");
            assert!(last < Some(number), "{last:?} before {number}");
            last = Some(number);
            if number == n {
                assert!(pair.look(1, 0, 3000) == bytes);
            }
            received += 1;
        }
    }
    assert!((1000..1950).contains(&received), "{received} of 2000 came");
    assert_eq!(pair.state(0), ViState::Connected);
}

#[test]
fn an_unreliable_write_with_a_hole_is_not_announced() {
    let mut pair = Pair::connected(Reliability::Unreliable, false, &Config::default());
    let to = [pair.at(1, 0, 0)];
    pair.receive(1, 9, &to);
    let there = AddressSegment { address: BASE + 500, handle: pair.sides[1].handle };
    for missing in [Some(0), Some(1), Some(2), None] {
        // The message has three packets, of which the last carries immediate data.
        let from = [pair.at(0, 0, 2900)];
        pair.send(0, Work::write(1, &from, there).with_immediate(7)).expect("connected");
        pair.run(Duration::from_micros(1));
        assert_eq!(pair.sides[1].arriving.len(), 3);
        missing.into_iter().for_each(|packet| drop(pair.sides[1].arriving.remove(packet)));
        pair.run(Duration::from_micros(100));
        let announced = pair.received(1).map(|done| (done.status, done.length, done.immediate));
        let whole = missing.is_none().then_some((Status::OK, 2900, Some(7)));
        assert_eq!(announced, whole, "without packet {missing:?}");
        assert_eq!(pair.state(1), ViState::Connected);
    }
}

#[test]
fn connections_are_established_on_a_bad_path() {
    for seed in 0..50 {
        let mut pair = Pair::strangers(Reliability::Delivery, false, &Config::default());
        pair.rng = kiban_base::SimRng::from_seed(seed);
        pair.impairment = Impairment { loss: 0.3, doubling: 0.3, reordering: 0.2, corruption: 0.1 };
        pair.sides[1].nic.listen(b"port").expect("room");
        pair.ask(Duration::from_secs(5)).expect("idle");
        let mut accepted = 0;
        for _ in 0..100 {
            pair.run(Duration::from_millis(10));
            if let Some(request) = pair.sides[1].nic.request_at(b"port") {
                let (vi, now) = (pair.sides[1].vi, pair.now);
                pair.sides[1].nic.accept(request.number, vi, now).expect("idle and alike");
                accepted += 1;
            }
        }
        assert_eq!(accepted, 1, "seed {seed}: a request that comes twice is one");
        assert_eq!([pair.state(0), pair.state(1)], [ViState::Connected; 2], "seed {seed}");
    }
}

#[test]
fn a_peer_that_falls_silent_is_given_up_within_its_time() {
    for (level, busy) in
        [(Reliability::Reception, true), (Reliability::Reception, false), (Reliability::Unreliable, false)]
    {
        let mut pair = Pair::connected(level, false, &Config::default());
        pair.impairment.loss = 1.0;
        if busy {
            let from = [pair.at(0, 0, 8)];
            pair.send(0, Work::send(1, &from)).expect("connected");
        }
        pair.run(Duration::from_secs(2));
        assert_eq!(pair.state(0), ViState::Error, "{level:?} busy {busy}");
        let vi = pair.sides[0].vi;
        assert_eq!(pair.events(0), [Event::ConnectionLost { vi, fault: fault::TRANSPORT }]);
        let shown = busy.then_some(Status::TRANSPORT);
        assert_eq!(pair.sent(0).map(|done| done.status), shown, "what was under way says why");
    }
}

#[test]
fn a_peer_without_descriptors_that_falls_silent_is_given_up_too() {
    let mut pair = Pair::connected(Reliability::Reception, false, &Config::default());
    let from = [pair.at(0, 0, 8)];
    pair.send(0, Work::send(1, &from)).expect("connected");
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.state(0), ViState::Connected, "it says again and again that it is dry");
    pair.impairment.loss = 1.0;
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.state(0), ViState::Error);
    assert_eq!(pair.sent(0).map(|done| done.status), Some(Status::TRANSPORT));
}

#[test]
fn an_idle_connection_lives_as_long_as_both_ends() {
    for level in [Reliability::Unreliable, Reliability::Reception] {
        let mut pair = Pair::connected(level, false, &Config::default());
        let before = pair.packets;
        pair.run(Duration::from_secs(60));
        assert_eq!([pair.state(0), pair.state(1)], [ViState::Connected; 2]);
        assert!(pair.packets - before < 1000, "{} signs of life in a minute", pair.packets - before);
    }
}

#[test]
fn a_lost_disconnect_is_repeated() {
    let mut pair = Pair::connected(Reliability::Delivery, false, &Config::default());
    let from = [pair.at(0, 0, 8)];
    // The receiver breaks the connection, and all its packets are lost.
    pair.send(0, Work::send(1, &from)).expect("connected");
    pair.run(Duration::from_micros(12));
    pair.sides[0].arriving.clear();
    assert_eq!([pair.state(0), pair.state(1)], [ViState::Connected, ViState::Error]);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.state(0), ViState::Error);
    assert_eq!(
        pair.events(0),
        [Event::ConnectionLost { vi: pair.sides[0].vi, fault: fault::NO_RECEIVE_DESCRIPTOR }]
    );
}
