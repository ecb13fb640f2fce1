//! End-to-end credits: the requester sends no more than the peer has receives for (IBTA volume 1 §9.7.7.2).

use crate::pair::{DELAY, Pair, RoceTraits, arrives, traits};
use kiban_rdma::rnic::{Operation, Status};
use kiban_rdma::wire::roce::{Opcode, Operation as Op, Syndrome};

/// Takes all packets that host 0 can send now, and returns their operations.
fn burst(pair: &mut Pair) -> Vec<Op> {
    let before = pair.sent.len();
    pair.send(&mut |_, _| arrives());
    let new = pair.sent[before..].iter().filter(|(from, ..)| *from == 0);
    new.map(|(_, packet, _)| match packet.bth.opcode {
        Opcode::Transport(_, operation) => operation,
        other => panic!("{other:?}"),
    })
    .collect()
}

fn post_receive(pair: &mut Pair, id: u64) {
    let target = pair.hosts[1].element(0, 8192);
    pair.hosts[1].receive(id, target);
}

/// Returns a pair whose requester knows that the peer has no receive left.
fn without_credits() -> Pair {
    let mut pair = Pair::new(traits());
    post_receive(&mut pair, 0);
    let sge = pair.hosts[0].element(0, 10);
    pair.hosts[0].post(0, Operation::SEND, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(0, Status::Success)]);
    assert_eq!(pair.hosts[1].results(), [(0, Status::Success)]);
    let last = pair.sent.last().and_then(|(_, packet, _)| packet.aeth).expect("an acknowledgement");
    assert_eq!((last.syndrome, last.msn), (Syndrome::Ack(0), 1));
    pair
}

#[test]
fn many_sends_to_few_receives_are_refused_once() {
    for reorder_max in [[0; 2], [64; 2]] {
        let mut pair = Pair::new(RoceTraits { reorder_max, ..traits() });
        for id in 0..4 {
            post_receive(&mut pair, id);
        }
        for id in 0..100 {
            let sge = pair.hosts[0].element(0, 10);
            pair.hosts[0].post(id, Operation::SEND, sge);
        }
        let mut received = 0;
        loop {
            pair.send(&mut |_, _| arrives());
            if !pair.step() {
                break;
            }
            for (id, status) in pair.hosts[1].results() {
                assert_eq!(status, Status::Success);
                received += 1;
                post_receive(&mut pair, id);
            }
        }
        assert_eq!(received, 100);
        assert!(pair.hosts[0].results().into_iter().eq((0..100).map(|id| (id, Status::Success))));
        // The first burst leaves before the peer has said what it has.
        assert_eq!(pair.hosts[1].nic.counters().rnr_naks_out, 1);
    }
}

#[test]
fn without_credits_one_packet_is_sent_and_its_acknowledgement_lets_the_message_follow() {
    let mut pair = without_credits();
    let sge = pair.hosts[0].element(0, 3000);
    for id in 1..=2 {
        pair.hosts[0].post(id, Operation::SEND, sge);
    }
    post_receive(&mut pair, 1);
    assert_eq!(burst(&mut pair), [Op::SendFirst]);
    let (_, first, _) = pair.sent.last().expect("a packet");
    assert!(first.bth.ack_request);
    pair.step();
    assert_eq!(burst(&mut pair), [], "the answer is under way");
    pair.step();
    assert_eq!(burst(&mut pair), [Op::SendMiddle, Op::SendLast], "the next Send waits");
    post_receive(&mut pair, 2);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.hosts[1].nic.counters().rnr_naks_out, 0);
}

#[test]
fn without_credits_only_the_packet_that_takes_a_receive_waits() {
    let mut pair = without_credits();
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 3000));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.hosts[0].post(2, Operation::Write { remote, immediate: Some(7) }, sge);
    pair.hosts[0].post(3, Operation::read(remote), sge);
    post_receive(&mut pair, 2);
    use Op::{WriteFirst as First, WriteLast as Last, WriteMiddle as Middle};
    assert_eq!(burst(&mut pair), [First, Middle, Last, First, Middle]);
    let (_, before, _) = pair.sent.last().expect("a packet");
    assert!(before.bth.ack_request, "the rest waits for its acknowledgement");
    while burst(&mut pair).is_empty() {
        assert!(pair.step());
    }
    pair.run_cleanly();
    assert!(pair.hosts[0].results().into_iter().eq((1..=3).map(|id| (id, Status::Success))));
    assert!(pair.now.as_nanos() < 8 * DELAY.as_nanos() as u64, "no timer was needed");
}

#[test]
fn receives_that_come_later_are_noticed() {
    let mut pair = without_credits();
    for id in 1..=6 {
        let sge = pair.hosts[0].element(0, 10);
        pair.hosts[0].post(id, Operation::SEND, sge);
    }
    for id in 1..=6 {
        post_receive(&mut pair, id);
    }
    assert_eq!(burst(&mut pair), [Op::SendOnly]);
    pair.step();
    burst(&mut pair);
    pair.step();
    // Five are left. There is no code for five, so the acknowledgement says four (table 64).
    assert_eq!(burst(&mut pair).len(), 4);
    pair.run_cleanly();
    assert!(pair.hosts[0].results().into_iter().eq((1..=6).map(|id| (id, Status::Success))));
}
