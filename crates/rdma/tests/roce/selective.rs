//! Selective retransmission between two ends of this implementation, and how they deal with others.

use crate::pair::{ACK_TIMEOUT, BYTES, DELAY, Fate, Pair, RoceTraits, arrives, is_lost, pattern, traits};
use kiban_base::Instant;
use kiban_rdma::rnic::{Operation, Status};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::{
    Aeth, Bth, Opcode, Operation as Op, PSN_MASK, Packet, SelectiveAck, Service, Syndrome,
};
use std::time::Duration;

/// Both hosts retransmit selectively.
fn selective() -> RoceTraits {
    RoceTraits { reorder_max: [64; 2], ..traits() }
}

/// Returns a fate that loses these packets of one sender, counted from zero.
fn loses(sender: usize, lost: &[usize]) -> impl FnMut(usize, &Packet) -> Fate {
    let mut seen = 0;
    move |from, _| {
        if from != sender {
            return arrives();
        }
        seen += 1;
        if lost.contains(&(seen - 1)) { is_lost() } else { arrives() }
    }
}

/// Returns the PSNs of host 0's packets, counted from its first PSN.
fn psns(pair: &Pair) -> Vec<u32> {
    let own = pair.sent.iter().filter(|(from, ..)| *from == 0);
    own.map(|(_, packet, _)| packet.bth.psn.wrapping_sub(traits().first_psn_out) & PSN_MASK).collect()
}

/// Posts a Write of `packets` packets at host 0, with data that [`check_write`] expects.
fn post_write(pair: &mut Pair, id: u64, packets: usize) {
    pair.hosts[0].fill(0, &pattern(id, packets * 1024));
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, packets as u32 * 1024));
    pair.hosts[0].post(id, Operation::write(remote), sge);
}

fn check_write(pair: &Pair, id: u64, packets: usize) {
    assert_eq!(pair.hosts[1].bytes(0, packets * 1024), pattern(id, packets * 1024));
}

#[test]
fn only_lost_packets_are_sent_again() {
    // Lost transmissions, and the positions sent after the first 20.
    let rows: [(&[usize], &[u32]); 5] = [
        (&[2], &[2]),
        (&[0], &[0]),
        (&[3, 4, 9], &[3, 4, 9]),
        // The retransmission of 3 is lost, too: that of 9 arrives after it.
        (&[3, 9, 20], &[3, 9, 3]),
        // Every second packet.
        (&[0, 2, 4, 6, 8, 10, 12, 14, 16, 18], &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
    ];
    for (lost, again) in rows {
        let mut pair = Pair::new(selective());
        post_write(&mut pair, 1, 20);
        pair.run(loses(0, lost));
        assert_eq!(psns(&pair)[20..], *again, "{lost:?}");
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
        check_write(&pair, 1, 20);
        let [one, two] = [0, 1].map(|host| *pair.hosts[host].nic.counters());
        assert_eq!(one.packets_retransmitted, again.len() as u64);
        assert_eq!((one.ack_timeouts, two.sequence_naks_out, two.packets_out_of_order), (0, 0, 0));
        assert_eq!((two.writes_in, one.selective_acks_in), (1, two.selective_acks_out));
        assert!(two.packets_kept > 0 && two.selective_acks_out > 0);
    }
}

#[test]
fn the_last_packet_waits_for_the_timer_and_the_others_for_its_acknowledgement() {
    // Without an answer, the requester does not know what the peer keeps.
    let mut pair = Pair::new(selective());
    post_write(&mut pair, 1, 20);
    pair.run_cleanly();
    post_write(&mut pair, 2, 20);
    pair.run(loses(0, &(10..20).collect::<Vec<_>>()));
    let again = core::iter::once(20).chain(30..40).collect::<Vec<_>>();
    assert_eq!(psns(&pair)[40..], again, "the first is acknowledged again");
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 1);
    check_write(&pair, 2, 20);
}

#[test]
fn lost_acknowledgements_cost_no_data() {
    // The first report of each gap is lost.
    let mut pair = Pair::new(RoceTraits { window: 400, reorder_max: [400; 2], ..traits() });
    post_write(&mut pair, 1, 250);
    let mut fate = loses(0, &[5, 200]);
    let mut reports = 0;
    pair.run(|from, packet| {
        reports += usize::from(packet.selective_ack.is_some());
        if packet.selective_ack.is_some() && reports == 1 { is_lost() } else { fate(from, packet) }
    });
    assert!(reports > 2);
    assert_eq!(psns(&pair).len(), 252);
    check_write(&pair, 1, 250);
}

#[test]
fn nothing_after_a_missing_packet_takes_effect_before_it() {
    let mut pair = Pair::new(selective());
    let before = pattern(9, 100);
    pair.hosts[1].fill(4096, &before);
    let target = pair.hosts[1].element(8192, 1024);
    pair.hosts[1].receive(7, target);
    post_write(&mut pair, 1, 3);
    let sink = pair.hosts[0].element(BYTES as u64 / 2, 100);
    pair.hosts[0].post(2, Operation::read(pair.at(1, 4096)), sink);
    let (remote, atomic) = (pair.at(1, 16384), Atomic::FetchAdd { add: 5, mask: 0 });
    let old = pair.hosts[0].element(BYTES as u64 / 2 + 1024, 8);
    pair.hosts[0].post(3, Operation::Atomic { remote, atomic }, old);
    let sge = pair.hosts[0].element(0, 10);
    pair.hosts[0].post(4, Operation::SEND, sge);
    pair.hosts[0].post(5, Operation::write(pair.at(1, 4096)), sge);
    // The first packet is lost; everything else has arrived when the report of the gap leaves.
    pair.send(&mut loses(0, &[0]));
    pair.step();
    let two = &mut pair.hosts[1];
    assert_eq!(two.nic.counters().packets_kept, 6);
    assert_eq!(two.nic.counters().atomics_in + two.nic.counters().reads_in, 0);
    assert!(two.bytes(0, 3 * 1024).iter().all(|byte| *byte == 0), "no byte of the Write is there");
    assert_eq!((two.bytes(4096, 100), two.bytes(16384, 8)), (before.clone(), vec![0; 8]));
    assert!(two.completions().is_empty());
    pair.run_cleanly();
    assert!(pair.hosts[0].results().into_iter().eq((1..=5).map(|id| (id, Status::Success))));
    assert_eq!(pair.hosts[1].results(), [(7, Status::Success)]);
    assert_eq!(pair.hosts[0].bytes(BYTES as u64 / 2, 100), before, "the read came before the last Write");
    assert_eq!(pair.hosts[1].bytes(16384, 8), 5_u64.to_ne_bytes());
    assert_eq!(psns(&pair), [0, 1, 2, 3, 4, 5, 6, 0]);
    check_write(&pair, 1, 3);
}

#[test]
fn only_the_missing_parts_of_a_response_are_requested_again() {
    let mut pair = Pair::new(selective());
    let data = pattern(2, 20 * 1024 + 10);
    pair.hosts[1].fill(0, &data);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, data.len() as u32));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.run(loses(1, &[3, 4, 9]));
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].bytes(0, data.len()), data);
    let requests: Vec<_> = pair
        .sent
        .iter()
        .filter_map(|(_, packet, _)| packet.reth)
        .map(|reth| (reth.address - remote.offset, reth.length))
        .collect();
    assert_eq!(requests, [(0, data.len() as u32), (3 * 1024, 2 * 1024), (9 * 1024, 1024)]);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 0);
}

#[test]
fn the_last_packet_of_a_response_waits_for_the_timer() {
    let mut pair = Pair::new(selective());
    let data = pattern(2, 5 * 1024);
    pair.hosts[1].fill(0, &data);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, data.len() as u32));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.run(loses(1, &[4]));
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].bytes(0, data.len()), data);
    assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, 1);
    assert!(pair.now < Instant::ZERO + ACK_TIMEOUT + 10 * DELAY);
}

#[test]
fn a_kept_send_without_a_receive_is_refused_when_its_turn_comes() {
    let mut pair = Pair::new(selective());
    for id in 1..=4 {
        let sge = pair.hosts[0].element(0, 10);
        pair.hosts[0].post(id, Operation::SEND, sge);
    }
    let target = pair.hosts[1].element(0, 100);
    pair.hosts[1].receive(11, target);
    // The first of four Sends is lost. One receive is there; the others come later.
    let mut fate = loses(0, &[0]);
    while pair.hosts[1].nic.counters().rnr_naks_out == 0 {
        pair.send(&mut fate);
        pair.step();
    }
    for id in 12..=14 {
        pair.hosts[1].receive(id, target);
    }
    pair.run(&mut fate);
    assert!(pair.hosts[0].results().into_iter().eq((1..=4).map(|id| (id, Status::Success))));
    assert!(pair.hosts[1].results().into_iter().eq((11..=14).map(|id| (id, Status::Success))));
    // The second Send was refused, and what had been kept after it was dropped.
    assert_eq!(psns(&pair), [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn kept_packets_that_were_dropped_after_all_are_sent_again() {
    // As above, but the RNR NAK is lost: nothing tells the requester that what was reported is gone.
    let mut pair = Pair::new(selective());
    for id in 1..=4 {
        let sge = pair.hosts[0].element(0, 10);
        pair.hosts[0].post(id, Operation::SEND, sge);
    }
    let target = pair.hosts[1].element(0, 100);
    pair.hosts[1].receive(11, target);
    let mut loses_first = loses(0, &[0]);
    let mut fate = |from: usize, packet: &Packet| {
        let is_refusal = packet.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::RnrNak(_)));
        if is_refusal { is_lost() } else { loses_first(from, packet) }
    };
    while pair.hosts[1].nic.counters().rnr_naks_out == 0 {
        pair.send(&mut fate);
        pair.step();
    }
    for id in 12..=14 {
        pair.hosts[1].receive(id, target);
    }
    pair.run(&mut fate);
    assert!(pair.hosts[0].results().into_iter().eq((1..=4).map(|id| (id, Status::Success))));
    assert!(pair.hosts[1].results().into_iter().eq((11..=14).map(|id| (id, Status::Success))));
}

#[test]
fn a_response_that_is_lost_before_a_refusal_is_requested_again() {
    for reorder_max in [[0; 2], [64; 2]] {
        let mut pair = Pair::new(RoceTraits { reorder_max, ..traits() });
        let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 100));
        pair.hosts[0].post(1, Operation::read(remote), sge);
        pair.hosts[0].post(2, Operation::SEND, sge);
        let mut fate = loses(1, &[0]);
        while pair.hosts[1].nic.counters().rnr_naks_out == 0 {
            pair.send(&mut fate);
            pair.step();
        }
        let target = pair.hosts[1].element(4096, 100);
        pair.hosts[1].receive(3, target);
        pair.run(&mut fate);
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success), (2, Status::Success)], "{reorder_max:?}");
        assert_eq!(pair.hosts[1].results(), [(3, Status::Success)]);
    }
}

#[test]
fn a_responder_keeps_no_more_than_its_limit_and_the_requester_respects_it() {
    let mut pair = Pair::new(RoceTraits { reorder_max: [64, 5], ..selective() });
    post_write(&mut pair, 1, 20);
    pair.run(loses(0, &[3]));
    let two = *pair.hosts[1].nic.counters();
    assert_eq!((two.packets_kept, two.packets_out_of_order), (5, 11), "the limit was not known");
    check_write(&pair, 1, 20);
    // Now it is.
    post_write(&mut pair, 2, 40);
    let mut sent = 0;
    pair.run(|from, _| {
        sent += usize::from(from == 0);
        if from == 0 && sent == 10 { is_lost() } else { arrives() }
    });
    assert_eq!(pair.hosts[1].nic.counters().packets_out_of_order, two.packets_out_of_order);
    assert!(pair.hosts[0].results().into_iter().eq((1..=2).map(|id| (id, Status::Success))));
    check_write(&pair, 2, 40);
}

#[test]
fn others_get_no_mark_after_their_first_answer_and_nothing_unknown() {
    for reorder_max in [[64, 0], [0, 64]] {
        let mut pair = Pair::new(RoceTraits { reorder_max, ..traits() });
        for id in 1..=3 {
            post_write(&mut pair, id, 20);
            pair.run(loses(0, &[7]));
            assert_eq!(pair.hosts[0].results(), [(id, Status::Success)]);
            check_write(&pair, id, 20);
        }
        assert!(pair.sent.iter().all(|(_, packet, _)| packet.bth.opcode != Opcode::SelectiveAck));
        let answered = pair.sent.iter().position(|(from, ..)| *from == 1).expect("an answer");
        for (number, (from, packet, _)) in pair.sent.iter().enumerate() {
            let offers = *from == 0 && reorder_max[0] > 0 && number < answered;
            assert_eq!(packet.bth.selective, offers, "packet {number}");
        }
        assert_eq!(pair.hosts[1].nic.counters().sequence_naks_out, 3, "everything is sent again");
    }
}

#[test]
fn a_forged_mark_does_not_change_how_others_are_answered() {
    // Host 0 is of another implementation. Before its first packet and after it, a forged one has the mark.
    for begins_forged in [true, false] {
        let mut pair = Pair::new(RoceTraits { reorder_max: [0, 64], ..traits() });
        let mut id = 0;
        let mut write = |pair: &mut Pair, fate: &mut dyn FnMut(usize, &Packet) -> Fate| {
            id += 1;
            post_write(pair, id, 4);
            pair.run(|from, packet| fate(from, packet));
            assert_eq!(pair.hosts[0].results(), [(id, Status::Success)]);
            check_write(pair, id, 4);
        };
        if !begins_forged {
            write(&mut pair, &mut |_, _| arrives());
        }
        for ahead in [-9_i32, 9, 20_000] {
            let opcode = Opcode::Transport(Service::Rc, Op::SendOnly);
            let psn = traits().first_psn_out.wrapping_add_signed(4 + ahead) & PSN_MASK;
            let bth = Bth { selective: true, ack_request: true, ..Bth::new(opcode, 0xffff, 0x1001, psn) };
            pair.deliver(1, &Packet::new(bth), &[]);
        }
        pair.send(&mut |_, _| is_lost());
        let timeouts = pair.hosts[0].nic.counters().ack_timeouts;
        write(&mut pair, &mut |_, _| arrives());
        assert_eq!(pair.hosts[0].nic.counters().ack_timeouts, timeouts, "a gap is refused at once");
        // The acknowledgement is lost: duplicates are acknowledged again.
        let mut lost = 0;
        write(&mut pair, &mut |from, _| {
            lost += usize::from(from == 1);
            if from == 1 && lost == 1 { is_lost() } else { arrives() }
        });
        let last = pair.sent.iter().rfind(|(from, ..)| *from == 1).expect("an answer");
        assert!(!last.1.bth.selective && last.1.selective_ack.is_none(), "{last:?}");
    }
}

#[test]
fn a_peer_that_never_answers_is_given_up_after_the_agreed_retries() {
    // With an answer to the first Write, and without.
    for answers in [0, 1] {
        let mut pair = Pair::new(RoceTraits { retries: 3, ..selective() });
        post_write(&mut pair, 1, 2);
        if answers > 0 {
            pair.run_cleanly();
            assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
            post_write(&mut pair, 2, 2);
        }
        let start = pair.now;
        pair.run(|_, _| is_lost());
        assert_eq!(pair.hosts[0].results(), [(1 + answers, Status::Lost)]);
        assert_eq!(pair.now.since(start), 4 * ACK_TIMEOUT);
    }
}

#[test]
fn a_report_that_nobody_may_send_is_dropped() {
    let report = |psn: u32, selective: bool| {
        let bth = Bth { selective, ..Bth::new(Opcode::SelectiveAck, 0xffff, 0x1000, psn & PSN_MASK) };
        let mut packet = Packet::new(bth);
        packet.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: 0 });
        packet.selective_ack = Some(SelectiveAck::new(psn, 64, |_| true));
        packet
    };
    let first = traits().first_psn_out;
    // A requester that goes back, one that has sent less, and a report without the mark.
    let rows = [([0, 0], first, true), ([64, 64], first + 5, true), ([64, 64], first, false)];
    for (reorder_max, psn, selective) in rows {
        let mut pair = Pair::new(RoceTraits { reorder_max, ..traits() });
        post_write(&mut pair, 1, 4);
        pair.send(&mut |_, _| is_lost());
        pair.deliver(0, &report(psn, selective), &[]);
        assert_eq!(pair.hosts[0].nic.counters().packets_malformed, 1, "{reorder_max:?} {psn:#x} {selective}");
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
        check_write(&pair, 1, 4);
    }
}

#[test]
fn a_window_of_which_little_is_lost_stays_open() {
    // One packet in 32 is lost for a long time, then every second.
    let mut pair = Pair::new(RoceTraits { ack_timeout: Some(Duration::from_millis(10)), ..selective() });
    let in_flight = |pair: &mut Pair, every: usize| {
        for id in 0..200 {
            post_write(pair, id, 16);
        }
        let (mut seen, mut most) = (0, 0);
        let mut outstanding = 0_i64;
        pair.run(|from, packet| {
            if from == 0 {
                seen += 1;
                outstanding += 1;
                most = most.max(outstanding);
                return if seen % every == 0 { is_lost() } else { arrives() };
            }
            outstanding = if packet.aeth.is_some() { 0 } else { outstanding };
            arrives()
        });
        assert_eq!(pair.hosts[0].results().len(), 200);
        (most, pair.now)
    };
    let (open, _) = in_flight(&mut pair, 32);
    assert!(open >= 64, "{open} packets in a burst");
    let before = pair.hosts[0].nic.counters().packets_retransmitted;
    in_flight(&mut pair, 2);
    let after = pair.hosts[0].nic.counters().packets_retransmitted;
    assert!(after - before < 2 * 3200, "{} retransmissions of 3200 packets", after - before);
}
