//! When a queue pair gives up: the times that follow from the attributes of `ibv_modify_qp` (IBTA volume 1
//! §9.7.6.1.3, §9.7.5.2.8, §11.6.2).

use crate::pair::{ACK_TIMEOUT, DELAY, Pair, RoceTraits, arrives, is_lost, traits};
use kiban_base::Instant;
use kiban_rdma::rnic::{Access, Operation, Status, TaggedAddress};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::rnr_timer;
use std::time::Duration;

/// One operation of each kind on eight bytes of the peer.
fn operations(remote: TaggedAddress) -> [Operation; 4] {
    let atomic = Atomic::FetchAdd { add: 1, mask: 0 };
    [Operation::SEND, Operation::write(remote), Operation::read(remote), Operation::Atomic { remote, atomic }]
}

fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

#[test]
fn a_silent_peer_is_given_up_after_its_timeout_times_all_attempts() {
    for retries in 0..=7 {
        for timeout in [Duration::from_nanos(4096 << 1), Duration::from_nanos(4096 << 14)] {
            for which in 0..4 {
                let traits = RoceTraits { retries, ack_timeout: Some(timeout), ..traits() };
                let mut pair = Pair::new(traits);
                let sge = pair.hosts[0].element(0, 8);
                let operation = operations(pair.at(1, 0))[which].clone();
                pair.hosts[0].post(1, operation.clone(), sge);
                pair.run(|_, _| is_lost());
                assert_eq!(pair.hosts[0].results(), [(1, Status::Lost)]);
                let attempts = u32::from(retries) + 1;
                assert_eq!(pair.now, at(timeout * attempts), "{operation:?}, {retries} retries");
                assert_eq!(pair.sent.len(), attempts as usize);
            }
        }
    }
}

#[test]
fn the_time_begins_anew_with_every_acknowledgement() {
    let mut pair = Pair::new(RoceTraits { retries: 2, ..traits() });
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 8));
    (1..=3).for_each(|id| pair.hosts[0].post(id, Operation::write(remote), sge));
    // The first attempt of every packet is lost; then the first packet and its acknowledgement arrive.
    let mut seen = 0;
    pair.run(|from, packet| {
        seen += usize::from(from == 0);
        let is_first = packet.bth.psn == traits().first_psn_out;
        if from == 1 || seen > 3 && is_first { arrives() } else { is_lost() }
    });
    let expected = [(1, Status::Success), (2, Status::Lost), (3, Status::Flushed)];
    assert_eq!(pair.hosts[0].results(), expected);
    assert_eq!(pair.now, at(ACK_TIMEOUT + 2 * DELAY + 3 * ACK_TIMEOUT));
}

#[test]
fn a_peer_without_receives_is_given_up_after_the_pauses_that_it_asked_for() {
    for rnr_retries in 0..7 {
        for code in [1, 12, 31, 0] {
            let traits = RoceTraits { rnr_retries, rnr_timer: code, ack_timeout: None, ..traits() };
            let mut pair = Pair::new(traits);
            let sge = pair.hosts[0].element(0, 8);
            pair.hosts[0].post(1, Operation::SEND, sge);
            pair.run_cleanly();
            assert_eq!(pair.hosts[0].results(), [(1, Status::ReceiverNotReady)]);
            let pauses = rnr_timer(code) * u32::from(rnr_retries);
            let trips = 2 * DELAY * (u32::from(rnr_retries) + 1);
            assert_eq!(pair.now, at(pauses + trips), "code {code}, {rnr_retries} retries");
        }
    }
}

#[test]
fn seven_rnr_retries_have_no_end() {
    let mut pair = Pair::new(RoceTraits { rnr_retries: 7, ..traits() });
    let sge = pair.hosts[0].element(0, 8);
    pair.hosts[0].post(1, Operation::SEND, sge);
    while pair.hosts[1].nic.counters().rnr_naks_out < 100 {
        pair.send(&mut |_, _| arrives());
        assert!(pair.step(), "the requester goes on");
    }
    let target = pair.hosts[1].element(0, 8);
    pair.hosts[1].receive(9, target);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
}

#[test]
fn a_refused_access_fails_after_one_round_trip_and_without_retries() {
    for which in 1..4 {
        let mut pair = Pair::with_access(traits(), Access::LOCAL);
        let sge = pair.hosts[0].element(0, 8);
        let operation = operations(pair.at(1, 0))[which].clone();
        pair.hosts[0].post(1, operation.clone(), sge);
        pair.hosts[0].post(2, operation.clone(), sge);
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
        assert_eq!(pair.now, at(2 * DELAY), "{operation:?}");
        assert_eq!(pair.hosts[0].nic.counters().packets_retransmitted, 0);
    }
}

/// The responder fails with its NAK (IBTA volume 1 §9.9.3.1), so nobody repeats it.
#[test]
fn a_refusal_that_is_lost_looks_like_a_silent_peer() {
    let mut pair = Pair::with_access(RoceTraits { retries: 3, ..traits() }, Access::LOCAL);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 8));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.run(|from, _| if from == 1 { is_lost() } else { arrives() });
    assert_eq!(pair.hosts[0].results(), [(1, Status::Lost)]);
    assert_eq!(pair.now, at(4 * ACK_TIMEOUT));
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 4);
}
