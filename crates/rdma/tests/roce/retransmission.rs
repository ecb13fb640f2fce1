//! Lost packets, one at a time: what is sent again, and when a queue pair gives up.

use crate::pair::{ACK_TIMEOUT, DELAY, Pair, RoceTraits, arrives, is_lost, pattern, traits};
use kiban_base::Instant;
use kiban_rdma::rnic::{Operation, QpState, Status};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::{Opcode, Operation as Op, PSN_MASK, Packet, Syndrome, rnr_timer};

/// Returns the operation of a packet.
fn operation(packet: &Packet) -> Op {
    match packet.bth.opcode {
        Opcode::Transport(_, operation) => operation,
        Opcode::Cnp | Opcode::SelectiveAck => panic!("no packet of the standard's reliable service"),
    }
}

/// Returns a fate that loses the `nth` packet of one sender, counted from zero.
fn loses(sender: usize, nth: usize) -> impl FnMut(usize, &Packet) -> Vec<std::time::Duration> {
    let mut seen = 0;
    move |from, _| {
        if from != sender {
            return arrives();
        }
        seen += 1;
        if seen == nth + 1 { is_lost() } else { arrives() }
    }
}

/// Returns the PSNs of a sender's packets, counted from its first PSN.
fn psns(pair: &Pair, sender: usize, first: u32) -> Vec<u32> {
    let own = pair.sent.iter().filter(|(from, ..)| *from == sender);
    own.map(|(_, packet, _)| packet.bth.psn.wrapping_sub(first) & PSN_MASK).collect()
}

#[test]
fn a_lost_packet_is_reported_once_and_everything_after_it_is_sent_again() {
    let mut pair = Pair::new(traits());
    let data = pattern(1, 6 * 1024);
    pair.hosts[0].fill(0, &data);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 6 * 1024));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.run(loses(0, 2));
    assert_eq!(psns(&pair, 0, traits().first_psn_out), [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]);
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[1].bytes(0, data.len()), data);
    let [one, two] = &pair.hosts;
    assert_eq!(two.nic.counters().sequence_naks_out, 1);
    assert_eq!(two.nic.counters().packets_out_of_order, 3);
    assert_eq!(one.nic.counters().sequence_naks_in, 1);
    assert_eq!(one.nic.counters().packets_retransmitted, 4);
    assert_eq!(one.nic.counters().ack_timeouts, 0);
}

#[test]
fn the_last_packet_and_a_lost_acknowledgement_wait_for_the_timer() {
    for (sender, nth, sent) in [(0, 1, vec![0, 1, 1]), (1, 0, vec![0, 1, 0, 1])] {
        let mut pair = Pair::new(traits());
        let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 2048));
        pair.hosts[0].post(1, Operation::write(remote), sge);
        pair.run(loses(sender, nth));
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
        assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 1);
        // No acknowledgement says that the first of the two packets has arrived.
        let expected = if sender == 0 { vec![0, 1, 0, 1] } else { sent };
        assert_eq!(psns(&pair, 0, traits().first_psn_out), expected);
        assert_eq!(pair.hosts[1].nic.counters().writes_in, 1, "no Write is executed twice");
    }
}

#[test]
fn a_read_is_requested_again_from_its_first_missing_byte() {
    let mut pair = Pair::new(traits());
    let data = pattern(2, 5 * 1024 + 10);
    pair.hosts[1].fill(0, &data);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, data.len() as u32));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.run(loses(1, 2));
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].bytes(0, data.len()), data);
    let requests: Vec<_> = pair
        .sent
        .iter()
        .filter_map(|(_, packet, _)| packet.reth.map(|reth| (packet.bth.psn, reth)))
        .collect();
    let first = traits().first_psn_out;
    let [(psn, whole), (psn_again, again)] = requests[..] else { panic!("{requests:?}") };
    assert_eq!((psn, whole.address, whole.length), (first, remote.offset, data.len() as u32));
    assert_eq!(psn_again, first + 2);
    assert_eq!((again.address, again.length), (remote.offset + 2048, data.len() as u32 - 2048));
    // The second response begins anew, in the middle of the range of PSNs.
    let responses: Vec<Op> =
        pair.sent.iter().filter(|(from, ..)| *from == 1).map(|(_, packet, _)| operation(packet)).collect();
    use Op::{ReadResponseFirst as First, ReadResponseLast as Last, ReadResponseMiddle as Middle};
    assert_eq!(responses, [First, Middle, Middle, Middle, Middle, Last, First, Middle, Middle, Last]);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 0, "the gap in the response was enough");
}

#[test]
fn a_lost_response_is_noticed_by_the_acknowledgement_of_what_follows() {
    let mut pair = Pair::new(traits());
    pair.hosts[1].fill(0, &pattern(3, 100));
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 100));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.hosts[0].post(2, Operation::write(pair.at(1, 1000)), sge);
    pair.run(loses(1, 0));
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.hosts[0].bytes(0, 100), pattern(3, 100));
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 0);
    assert_eq!(pair.hosts[1].nic.counters().writes_in, 1, "no Write is executed twice");
}

#[test]
fn an_atomic_operation_whose_response_is_lost_is_answered_again_but_not_executed_again() {
    let mut pair = Pair::new(traits());
    let remote = pair.at(1, 0);
    for id in 0..4 {
        let sge = pair.hosts[0].element(8 * id, 8);
        let atomic = Atomic::FetchAdd { add: 1, mask: 0 };
        pair.hosts[0].post(id, Operation::Atomic { remote, atomic }, sge);
    }
    pair.run(loses(1, 1));
    assert!(pair.hosts[0].results().into_iter().eq((0..4).map(|id| (id, Status::Success))));
    for id in 0..4 {
        assert_eq!(pair.hosts[0].bytes(8 * id, 8), id.to_ne_bytes());
    }
    assert_eq!(pair.hosts[1].bytes(0, 8), 4_u64.to_ne_bytes());
    assert_eq!(pair.hosts[1].nic.counters().atomics_in, 4);
}

#[test]
fn a_peer_that_never_answers_is_given_up_after_the_agreed_retries() {
    let mut pair = Pair::new(RoceTraits { retries: 3, ..traits() });
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 10));
    for id in 1..=3 {
        pair.hosts[0].post(id, Operation::write(remote), sge);
    }
    pair.run(|_, _| is_lost());
    let expected = [(1, Status::Lost), (2, Status::Flushed), (3, Status::Flushed)];
    assert_eq!(pair.hosts[0].results(), expected);
    assert_eq!(pair.now, Instant::ZERO + 4 * ACK_TIMEOUT);
    assert_eq!(pair.hosts[0].nic.counters().packets_retransmitted, 9);
}

#[test]
fn progress_gives_back_all_retries() {
    let mut pair = Pair::new(RoceTraits { retries: 1, window: 1, ..traits() });
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 5000));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    // Every packet is lost once.
    let mut lost = std::collections::BTreeSet::new();
    pair.run(|from, packet| if from == 0 && lost.insert(packet.bth.psn) { is_lost() } else { arrives() });
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 5);
}

#[test]
fn without_a_timeout_a_requester_waits_for_ever() {
    let mut pair = Pair::new(RoceTraits { ack_timeout: None, ..traits() });
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 10));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.run(|_, _| is_lost());
    assert_eq!(pair.hosts[0].results(), []);
    assert_eq!(pair.now, Instant::ZERO);
}

#[test]
fn a_send_waits_for_a_receive_as_long_as_the_peer_says() {
    let mut pair = Pair::new(traits());
    let data = pattern(5, 1500);
    pair.hosts[0].fill(0, &data);
    let sge = pair.hosts[0].element(0, 1500);
    pair.hosts[0].post(1, Operation::SEND, sge);
    // The receive is posted when the request has been refused twice.
    let pause = rnr_timer(traits().rnr_timer);
    let mut refused = 0;
    let mut until = None;
    while until.is_none() {
        pair.send(&mut |_, _| arrives());
        refused = pair.hosts[1].nic.counters().rnr_naks_out;
        if refused == 2 {
            let target = pair.hosts[1].element(0, 1500);
            pair.hosts[1].receive(9, target);
            until = Some(pair.now);
        } else {
            pair.step();
        }
    }
    pair.run_cleanly();
    assert_eq!(refused, 2);
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[1].bytes(0, 1500), data);
    assert_eq!(pair.hosts[0].nic.counters().rnr_naks_in, 2);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 0, "the pause is no timeout");
    assert!(pair.now >= Instant::ZERO + 2 * pause + 6 * DELAY, "the requester kept to the pauses");
}

#[test]
fn a_peer_without_receives_is_given_up_after_the_agreed_retries() {
    let mut pair = Pair::new(RoceTraits { rnr_retries: 2, ..traits() });
    let sge = pair.hosts[0].element(0, 10);
    pair.hosts[0].post(1, Operation::SEND, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::ReceiverNotReady)]);
    assert_eq!(pair.hosts[1].nic.counters().rnr_naks_out, 3);
    let naks = pair.sent.iter().filter(|(_, packet, _)| {
        packet.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::RnrNak(traits().rnr_timer))
    });
    assert_eq!(naks.count(), 3);
}

#[test]
fn one_acknowledgement_stands_for_many_requests() {
    let mut pair = Pair::new(traits());
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 10));
    for id in 0..20 {
        pair.hosts[0].post(id, Operation::write(remote), sge);
    }
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results().len(), 20);
    let acknowledgements = pair.sent.iter().filter(|(from, ..)| *from == 1).count();
    assert!(acknowledgements < 3, "{acknowledgements} acknowledgements of requests that came together");
}

#[test]
fn only_responses_acknowledge_reads_and_atomics() {
    // If a response is lost, an acknowledgement with its PSN takes its place. rdma_rxe then fails the queue
    // pair.
    let fetch_add = |remote| Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } };
    for (read, length) in [(true, 3000), (false, 8)] {
        let mut pair = Pair::new(traits());
        let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, length));
        pair.hosts[0].post(1, Operation::write(remote), sge);
        pair.hosts[0].post(2, if read { Operation::read(remote) } else { fetch_add(remote) }, sge);
        // Whatever the requester asks for: rdma_rxe asks for an acknowledgement of its reads.
        pair.send(&mut |_, _| is_lost());
        let requests: Vec<_> =
            pair.sent.iter().map(|(_, packet, payload)| (*packet, payload.clone())).collect();
        for (mut packet, payload) in requests {
            packet.bth.ack_request = true;
            pair.deliver(1, &packet, &payload);
        }
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
        let acknowledged =
            pair.sent.iter().any(|(from, packet, _)| *from == 1 && operation(packet) == Op::Acknowledge);
        assert!(!acknowledged, "the response acknowledges the Write, too");
    }
}

#[test]
fn a_duplicate_is_not_acknowledged_with_the_psn_of_a_later_read() {
    let mut pair = Pair::new(traits());
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 3000));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.hosts[0].post(2, Operation::read(remote), sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    // The last packet of the Write comes again.
    let (_, packet, payload) = pair.sent[2].clone();
    assert_eq!(operation(&packet), Op::WriteLast);
    let sent = pair.sent.len();
    pair.deliver(1, &packet, &payload);
    pair.send(&mut |_, _| is_lost());
    let [(1, answer, _)] = &pair.sent[sent..] else { panic!("one answer") };
    assert_eq!((operation(answer), answer.bth.psn), (Op::Acknowledge, packet.bth.psn));
}

#[test]
fn a_late_duplicate_of_a_read_does_no_harm_after_its_memory_was_withdrawn() {
    for reorder_max in [[0; 2], [64; 2]] {
        let mut pair = Pair::new(RoceTraits { reorder_max, ..traits() });
        let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 3000));
        pair.hosts[0].post(1, Operation::read(remote), sge);
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
        // The request comes again. The read is complete, so its program may deregister the memory before the
        // duplicate is answered.
        let (_, packet, _) = pair.sent[0].clone();
        pair.deliver(1, &packet, &[]);
        let stag = pair.hosts[1].stag;
        pair.hosts[1].nic.deregister(stag).expect("it is registered");
        let sent = pair.sent.len();
        pair.run_cleanly();
        assert_eq!(pair.sent.len(), sent, "nothing is answered");
        for host in &mut pair.hosts {
            assert!(matches!(host.nic.query_qp(host.qp), Ok((_, QpState::Rts, _))), "{reorder_max:?}");
            assert_eq!((host.events(), host.results()), (vec![], vec![]));
        }
    }
}
