//! Unreliable connections: nothing is acknowledged, and a message with a gap is dropped whole.

use crate::pair::{Pair, RoceTraits, arrives, is_lost, pattern, traits};
use kiban_rdma::rnic::{Data, Operation, RequestError, SendWork, Status};
use kiban_rdma::wire::roce::Service;

fn pair() -> Pair {
    Pair::new(RoceTraits { service: Service::Uc, ..traits() })
}

#[test]
fn messages_complete_when_they_are_sent() {
    let mut pair = pair();
    let data = pattern(1, 3000);
    pair.hosts[0].fill(0, &data);
    let sge = pair.hosts[1].element(0, 3000);
    pair.hosts[1].receive(5, sge);
    let sge = pair.hosts[0].element(0, 3000);
    pair.hosts[0].post(1, Operation::SEND, sge);
    let remote = pair.at(1, 10_000);
    pair.hosts[0].post(2, Operation::write(remote), sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.hosts[1].results(), [(5, Status::Success)]);
    assert_eq!(pair.hosts[1].bytes(0, 3000), data);
    assert_eq!(pair.hosts[1].bytes(10_000, 3000), data);
    assert!(pair.sent.iter().all(|(from, ..)| *from == 0), "the responder stays silent");
    assert_eq!(pair.hosts[0].nic.packet_deadline(pair.hosts[0].qp), None);
}

#[test]
fn a_message_with_a_gap_is_dropped_and_its_receive_takes_the_next_one() {
    // Three Sends of three packets each: in turn, each packet of the second is lost.
    for lost in 3..6 {
        let mut pair = pair();
        for id in [1, 2] {
            let sge = pair.hosts[1].element(id * 10_000, 4000);
            pair.hosts[1].receive(id, sge);
        }
        for id in 1..=3 {
            pair.hosts[0].fill(id * 4000, &pattern(id, 3000));
            let sge = pair.hosts[0].element(id * 4000, 3000);
            pair.hosts[0].post(id, Operation::SEND, sge);
        }
        let mut seen = 0;
        pair.run(|_, _| {
            seen += 1;
            if seen == lost + 1 { is_lost() } else { arrives() }
        });
        assert!(pair.hosts[0].results().iter().map(|(_, status)| *status).eq([Status::Success; 3]));
        assert_eq!(pair.hosts[1].results(), [(1, Status::Success), (2, Status::Success)], "packet {lost}");
        assert_eq!(pair.hosts[1].bytes(10_000, 3000), pattern(1, 3000));
        assert_eq!(pair.hosts[1].bytes(20_000, 3000), pattern(3, 3000));
    }
}

#[test]
fn a_send_without_a_receive_is_dropped() {
    let mut pair = pair();
    let sge = pair.hosts[0].element(0, 100);
    pair.hosts[0].post(1, Operation::SEND, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[1].nic.counters().no_buffer, 1);
    let sge = pair.hosts[1].element(0, 100);
    pair.hosts[1].receive(2, sge);
    let sge = pair.hosts[0].element(0, 100);
    pair.hosts[0].post(3, Operation::SEND, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[1].results(), [(2, Status::Success)]);
}

#[test]
fn reads_and_atomics_fail_at_the_requester() {
    let mut pair = pair();
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 8));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::LocalOperation)]);
    assert!(pair.sent.is_empty());
}

#[test]
fn a_send_that_invalidates_is_refused() {
    let mut pair = pair();
    let sge = pair.hosts[0].element(0, 8);
    let (nic, qp) = (&mut pair.hosts[0].nic, pair.hosts[0].qp);
    let work = SendWork::new(1, Operation::Send { invalidate: Some(7) }, Data::one(sge));
    assert_eq!(nic.post_send(qp, work), Err(RequestError::NotAgreed));
}

/// IBTA volume 1 §9.8.3: an unreliable responder acknowledges nothing, whatever the peer asks for.
#[test]
fn a_request_for_an_acknowledgement_is_ignored() {
    let mut pair = pair();
    let sge = pair.hosts[0].element(0, 100);
    let remote = pair.at(1, 0x1000);
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.send(&mut |_, _| is_lost());
    let (_, mut packet, payload) = pair.sent.pop().expect("the Write");
    packet.bth.ack_request = true;
    pair.deliver(1, &packet, &payload);
    assert_eq!(pair.hosts[1].nic.counters().writes_in, 1);
    pair.run_cleanly();
    assert!(pair.sent.is_empty(), "{:?}", pair.sent);
}
