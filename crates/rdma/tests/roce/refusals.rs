//! Requests that a responder must refuse: its memory stays as it is, and both queue pairs fail.

use crate::pair::{BASE, BYTES, Host, Pair, RoceTraits, attributes, parsed, pattern, traits};
use kiban_base::{Instant, Region};
use kiban_rdma::rnic::{
    self, Access, Data, Event, Operation, QpAttributes, QpState, ReceiveWork, SendWork, Sge, Status,
    TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::{
    AtomicEth, Bth, NakCode, Opcode, Operation as Op, PSN_MASK, Packet, Reth, Service, Syndrome,
};

const GUARD: u8 = 0x77;

/// Returns a pair in which host 1's memory is filled with [`GUARD`].
fn pair(access: Access) -> Pair {
    let pair = Pair::with_access(traits(), access);
    pair.hosts[1].fill(0, &vec![GUARD; BYTES]);
    pair
}

/// Asserts that host 1's memory is untouched.
fn assert_untouched(pair: &Pair, context: &str) {
    assert!(pair.hosts[1].bytes(0, BYTES).iter().all(|octet| *octet == GUARD), "{context}");
}

const WRITE_ONLY: Access = Access { local_write: true, remote_write: true, ..Access::NONE };
const READ_ONLY: Access = Access { local_write: true, remote_read: true, ..Access::NONE };
const ATOMIC_ONLY: Access = Access { local_write: true, remote_atomic: true, ..Access::NONE };

#[test]
fn no_access_without_a_valid_key_right_and_range() {
    let fetch_add = |remote| Operation::Atomic { remote, atomic: Atomic::FetchAdd { add: 1, mask: 0 } };
    let all = [("write", Operation::write as fn(TaggedAddress) -> Operation), ("read", Operation::read)];
    let end = BASE + BYTES as u64;
    let mut rows: Vec<(String, Access, u32, u64, u32, Operation)> = Vec::new();
    for (name, operation) in all {
        let add = |rows: &mut Vec<_>, what: &str, access, stag_change: u32, offset: u64, length| {
            rows.push((
                format!("{name}: {what}"),
                access,
                stag_change,
                offset,
                length,
                operation(TaggedAddress { stag: 0, offset }),
            ));
        };
        for length in [1, 1024, 5000] {
            add(&mut rows, "another key", Access::ALL, 1, BASE, length);
            add(&mut rows, "an unknown tag", Access::ALL, 1 << 20, BASE, length);
            add(&mut rows, "before the range", Access::ALL, 0, BASE - 1, length);
            add(&mut rows, "beyond the range", Access::ALL, 0, end - u64::from(length) + 1, length);
            add(&mut rows, "wrapping", Access::ALL, 0, u64::MAX - 3, length.max(8));
            let missing = if name == "write" { READ_ONLY } else { WRITE_ONLY };
            add(&mut rows, "without the right", missing, 0, BASE, length);
        }
    }
    for (what, access, change, offset) in [
        ("another key", Access::ALL, 1, BASE),
        ("beyond the range", Access::ALL, 0, end),
        ("without the right", WRITE_ONLY, 0, BASE),
        ("with reads only", READ_ONLY, 0, BASE),
    ] {
        let operation = fetch_add(TaggedAddress { stag: 0, offset });
        rows.push((format!("atomic: {what}"), access, change, offset, 8, operation));
    }
    for (context, access, change, offset, length, mut operation) in rows {
        let mut pair = pair(access);
        let named = TaggedAddress { stag: pair.hosts[1].stag ^ change, offset };
        match &mut operation {
            Operation::Write { remote, .. }
            | Operation::Read { remote, .. }
            | Operation::Atomic { remote, .. } => {
                *remote = named;
            }
            _ => {}
        }
        let sge = pair.hosts[0].element(0, length);
        pair.hosts[0].fill(0, &pattern(1, length as usize));
        pair.hosts[0].post(1, operation, sge);
        pair.hosts[0].post(2, Operation::SEND, sge);
        pair.run_cleanly();
        assert_untouched(&pair, &context);
        let expected = [(1, Status::RemoteAccess), (2, Status::Flushed)];
        assert_eq!(pair.hosts[0].results(), expected, "{context}");
        assert_eq!(pair.hosts[0].bytes(0, length as usize), pattern(1, length as usize), "{context}");
        for host in &mut pair.hosts {
            assert!(matches!(host.nic.query_qp(host.qp), Ok((_, QpState::Error, _))), "{context}");
            assert!(matches!(host.events()[..], [Event::QpFailed { .. }]), "{context}");
        }
    }
}

#[test]
fn a_queue_pairs_own_restrictions_count_beside_those_of_the_memory() {
    for (allowed, operation) in [
        (READ_ONLY, Operation::write as fn(TaggedAddress) -> Operation),
        (WRITE_ONLY, Operation::read as fn(TaggedAddress) -> Operation),
        (ATOMIC_ONLY, Operation::read as fn(TaggedAddress) -> Operation),
    ] {
        let mut pair = pair(Access::ALL);
        let qp = pair.hosts[1].qp;
        pair.hosts[1].nic.set_remote_access(qp, allowed).expect("a queue pair");
        let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 64));
        pair.hosts[0].post(1, operation(remote), sge);
        pair.run_cleanly();
        assert_untouched(&pair, "restricted queue pair");
        assert_eq!(pair.hosts[0].results(), [(1, Status::RemoteAccess)]);
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_both_sides() {
    for length in [101, 3000] {
        let mut pair = pair(Access::ALL);
        let sge = pair.hosts[1].element(0, 100);
        pair.hosts[1].receive(7, sge);
        let sge = pair.hosts[0].element(0, length);
        pair.hosts[0].post(1, Operation::SEND, sge);
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::RemoteRequest)]);
        assert_eq!(pair.hosts[1].results(), [(7, Status::LocalLength)]);
        assert_untouched(&pair, "too long");
    }
}

#[test]
fn a_receive_into_foreign_memory_fails_both_sides() {
    let mut pair = pair(Access::ALL);
    let mut sge = pair.hosts[1].element(0, 100);
    sge.stag ^= 1;
    pair.hosts[1].receive(7, sge);
    let sge = pair.hosts[0].element(0, 50);
    pair.hosts[0].post(1, Operation::SEND, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.hosts[1].results(), [(7, Status::LocalProtection)]);
}

#[test]
fn memory_that_goes_while_a_peer_reads_it_ends_the_response() {
    let mut pair = pair(Access::ALL);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 4096));
    pair.hosts[0].post(1, Operation::read(remote), sge);
    pair.send(&mut |_, _| crate::pair::arrives());
    pair.step();
    let stag = pair.hosts[1].stag;
    pair.hosts[1].nic.deregister(stag).expect("registered");
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::RemoteAccess)]);
    assert_eq!(pair.hosts[1].nic.counters().reads_withdrawn, 1);
}

/// Returns a packet as host 0 would send it first.
fn forged(operation: Op, psn: u32) -> Packet {
    Packet::new(Bth {
        opcode: Opcode::Transport(Service::Rc, operation),
        solicited: false,
        migrated: true,
        pad: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination: 0x1001,
        ack_request: true,
        selective: false,
        psn,
    })
}

/// Returns the NAKs that host 1 sends.
fn answers(pair: &mut Pair) -> Vec<Syndrome> {
    let qp = pair.hosts[1].qp;
    let mut room = Vec::new();
    let mut answers = Vec::new();
    while pair.hosts[1].nic.next_packet(qp, pair.now, &mut room) {
        answers.extend(parsed(&room).0.aeth.map(|aeth| aeth.syndrome));
        room.clear();
    }
    answers
}

#[test]
fn packets_that_break_the_order_of_a_message_are_invalid_requests() {
    let psn = traits().first_psn_out;
    let stag = |pair: &Pair, length| Some(Reth { address: BASE, rkey: pair.hosts[1].stag, length });
    // Packets as (operation, payload length, RETH length); the last of each row is the invalid one.
    type Row = &'static [(Op, usize, u32)];
    let rows: [Row; 12] = [
        &[(Op::WriteMiddle, 1024, 0)],
        &[(Op::WriteLast, 10, 0)],
        &[(Op::SendMiddle, 1024, 0)],
        &[(Op::WriteFirst, 1024, 3000), (Op::SendMiddle, 1024, 0)],
        &[(Op::WriteFirst, 1024, 3000), (Op::WriteFirst, 1024, 3000)],
        &[(Op::WriteFirst, 1024, 3000), (Op::WriteOnly, 10, 10)],
        &[(Op::WriteFirst, 1024, 3000), (Op::ReadRequest, 0, 10)],
        &[(Op::WriteFirst, 1024, 3000), (Op::WriteLast, 100, 0)],
        &[(Op::WriteFirst, 1024, 1500), (Op::WriteMiddle, 1024, 0)],
        &[(Op::WriteFirst, 1000, 3000)],
        &[(Op::WriteOnly, 100, 200)],
        &[(Op::WriteOnly, 1025, 1025)],
    ];
    for row in rows {
        let mut pair = pair(Access::ALL);
        for (at, &(operation, payload, length)) in row.iter().enumerate() {
            let mut packet = forged(operation, psn + at as u32);
            if packet.bth.opcode.headers().rdma {
                packet.reth = stag(&pair, length);
            }
            pair.deliver(1, &packet, &vec![GUARD; payload]);
        }
        let answered = answers(&mut pair);
        assert_eq!(answered.last(), Some(&Syndrome::Nak(NakCode::InvalidRequest)), "{row:?}: {answered:?}");
        let host = &pair.hosts[1];
        assert!(matches!(host.nic.query_qp(host.qp), Ok((_, QpState::Error, _))), "{row:?}");
        assert_untouched(&pair, "invalid request");
    }
}

#[test]
fn a_misaligned_atomic_operation_is_an_invalid_request() {
    let mut pair = pair(Access::ALL);
    let mut packet = forged(Op::FetchAdd, traits().first_psn_out);
    let rkey = pair.hosts[1].stag;
    packet.atomic = Some(AtomicEth { address: BASE + 4, rkey, swap_or_add: 1, compare: 0 });
    pair.deliver(1, &packet, &[]);
    assert_eq!(answers(&mut pair), [Syndrome::Nak(NakCode::InvalidRequest)]);
    assert_untouched(&pair, "misaligned");
}

#[test]
fn more_reads_than_agreed_are_an_invalid_request() {
    let mut pair = Pair::new(RoceTraits { ird: 3, ..traits() });
    let rkey = pair.hosts[1].stag;
    for at in 0..4 {
        let mut packet = forged(Op::ReadRequest, traits().first_psn_out + at);
        packet.reth = Some(Reth { address: BASE, rkey, length: 8 });
        pair.deliver(1, &packet, &[]);
    }
    let refused = Syndrome::Nak(NakCode::InvalidRequest);
    let answered = answers(&mut pair);
    assert_eq!((answered.len(), answered.last()), (4, Some(&refused)), "three responses come first");
}

#[test]
fn duplicates_take_no_place_of_the_reads_that_are_agreed() {
    // Duplicates of reads of no bytes need no key, and half of all PSNs make one.
    for (reorder_max, duplicates) in [([0; 2], 8), ([64; 2], 40)] {
        let mut pair = Pair::new(RoceTraits { ird: 3, reorder_max, ..traits() });
        let rkey = pair.hosts[1].stag;
        let mut read = |psn: u32, length| {
            let mut packet = forged(Op::ReadRequest, psn & PSN_MASK);
            packet.bth.selective = reorder_max[1] > 0;
            packet.reth = Some(Reth { address: BASE, rkey, length });
            pair.deliver(1, &packet, &[]);
        };
        let first = traits().first_psn_out;
        read(first, 8);
        (0..duplicates).for_each(|at| read(first - 1000 + at, 0));
        read(first + 1, 8);
        read(first + 2, 8);
        let answers = answers(&mut pair);
        assert!(answers.iter().all(|answer| matches!(answer, Syndrome::Ack(_))), "{answers:?}");
        assert_eq!(pair.hosts[1].nic.counters().reads_in, 3);
    }
}

#[test]
fn a_packet_for_another_service_or_partition_is_dropped() {
    let mut pair = pair(Access::ALL);
    let rkey = pair.hosts[1].stag;
    for change in 0..2 {
        let mut packet = forged(Op::WriteOnly, traits().first_psn_out);
        packet.reth = Some(Reth { address: BASE, rkey, length: 4 });
        match change {
            0 => packet.bth.opcode = Opcode::Transport(Service::Uc, Op::WriteOnly),
            _ => packet.bth.pkey = 0x7ffe,
        }
        pair.deliver(1, &packet, &[1, 2, 3, 4]);
    }
    assert_eq!(answers(&mut pair), []);
    assert_untouched(&pair, "dropped");
    assert_eq!(pair.hosts[1].nic.counters().packets_malformed, 2);
    // A packet from a limited member of the same partition is accepted.
    let mut packet = forged(Op::WriteOnly, traits().first_psn_out);
    packet.bth.pkey = 0x7fff;
    packet.reth = Some(Reth { address: BASE, rkey, length: 4 });
    pair.deliver(1, &packet, &[1, 2, 3, 4]);
    assert_eq!(pair.hosts[1].bytes(0, 4), [1, 2, 3, 4]);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_changes_nothing() {
    let mut pair = pair(Access::ALL);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 10));
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.send(&mut |_, _| crate::pair::is_lost());
    for ahead in [1, 5, 0x7f_ffff] {
        for syndrome in [Syndrome::Ack(31), Syndrome::Nak(NakCode::RemoteAccess), Syndrome::RnrNak(1)] {
            let mut packet = forged(Op::Acknowledge, traits().first_psn_out.wrapping_add(ahead) & 0xff_ffff);
            packet.aeth = Some(kiban_rdma::wire::roce::Aeth { syndrome, msn: 0 });
            pair.deliver(0, &packet, &[]);
        }
    }
    assert_eq!(pair.hosts[0].results(), []);
    assert_eq!(pair.hosts[0].nic.counters().packets_malformed, 9);
    pair.run_cleanly();
    assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
}

#[test]
fn a_response_of_the_wrong_length_places_nothing() {
    let mut pair = pair(Access::ALL);
    let (remote, sge) = (pair.at(1, 0), pair.hosts[0].element(0, 2048));
    pair.hosts[0].fill(0, &[GUARD; 4096]);
    let qp = pair.hosts[0].qp;
    let work = SendWork::new(1, Operation::read(remote), Data::one(sge));
    pair.hosts[0].nic.post_send(qp, work).expect("room");
    pair.send(&mut |_, _| crate::pair::is_lost());
    for (operation, length) in
        [(Op::ReadResponseFirst, 1000), (Op::ReadResponseOnly, 1024), (Op::ReadResponseFirst, 2048)]
    {
        let mut packet = forged(operation, traits().first_psn_out);
        packet.aeth = Some(kiban_rdma::wire::roce::Aeth { syndrome: Syndrome::Ack(31), msn: 1 });
        pair.deliver(0, &packet, &vec![1; length]);
    }
    assert!(pair.hosts[0].bytes(0, 4096).iter().all(|octet| *octet == GUARD));
    assert_eq!(pair.hosts[0].nic.counters().packets_malformed, 3);
}

/// IBTA volume 1 §9.7.6: a message has at most 2^31 octets, however long the receive is.
#[test]
fn a_send_that_never_ends_is_refused() {
    const ELEMENT_BYTES: u32 = 128 << 20;
    const PATH_MTU: usize = 4096;
    let mut pair = Pair::new(RoceTraits { path_mtu: PATH_MTU, ..traits() });
    let Host { nic, pd, cq, .. } = &mut pair.hosts[1];
    let qp = nic.create_qp(QpAttributes { receive_sges_max: 32, ..attributes(*pd, *cq) }).expect("room");
    let stag = nic.register(*pd, Region::new(BASE, ELEMENT_BYTES as usize), Access::ALL).expect("room");
    let receiving = rnic::RoceTraits {
        service: Service::Rc,
        peer: 7,
        pkey: 0xffff,
        path_mtu: PATH_MTU,
        first_psn: 0,
        ird: 1,
        rnr_timer: 1,
        reorder_max: 0,
    };
    nic.set_qpn(qp, 0x2000).expect("a queue pair");
    nic.connect_roce(qp, receiving).expect("an idle queue pair");
    // The elements share the memory: together they have 2^32 octets.
    let sges = [Sge { stag, address: BASE, length: ELEMENT_BYTES }; 32];
    nic.post_receive(qp, ReceiveWork { id: 1, sges: sges.into_iter().collect() }).expect("room");
    let payload = [1; PATH_MTU];
    let mut take = |psn| {
        let operation = if psn == 0 { Op::SendFirst } else { Op::SendMiddle };
        let packet = forged(operation, psn);
        nic.packet(qp, &packet, &payload, Instant::ZERO);
        nic.poll(*cq).expect("there").map(|done| done.status)
    };
    let packets = (1 << 31) / PATH_MTU as u32;
    assert!((0..packets).all(|psn| take(psn).is_none()), "it fits");
    assert_eq!(take(packets), Some(Status::LocalLength));
}
