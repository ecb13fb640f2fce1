//! Every operation, over a wire that loses nothing.

use crate::pair::{BASE, Pair, RoceTraits, pattern, traits};
use kiban_rdma::rnic::{Access, Binding, Completion, Data, Kind, Operation, RequestError, SendWork, Status};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::{Opcode, Operation as Op, Service};

/// Lengths around the borders of packets.
const LENGTHS: [u32; 8] = [0, 1, 1023, 1024, 1025, 2048, 4097, 70_001];

fn operations(pair: &Pair, sender: usize) -> Vec<Op> {
    pair.sent
        .iter()
        .filter(|(from, ..)| *from == sender)
        .map(|(_, packet, _)| match packet.bth.opcode {
            Opcode::Transport(Service::Rc, operation) => operation,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn sends_of_every_length_arrive_in_posted_receives() {
    for length in LENGTHS {
        let mut pair = Pair::new(traits());
        let data = pattern(1, length as usize);
        pair.hosts[0].fill(0, &data);
        let target = pair.hosts[1].element(500, length);
        pair.hosts[1].receive(7, target);
        let source = pair.hosts[0].element(0, length);
        pair.hosts[0].post(1, Operation::SEND, source);
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(1, Status::Success)]);
        let [done] = pair.hosts[1].completions()[..] else { panic!("one completion") };
        assert_eq!((done.id, done.kind, done.bytes, done.qp), (7, Kind::Receive, length, 0x1001));
        assert_eq!(pair.hosts[1].bytes(500, length as usize), data);
    }
}

#[test]
fn writes_and_reads_of_every_length_move_exactly_their_bytes() {
    for length in LENGTHS {
        for is_read in [false, true] {
            let mut pair = Pair::new(traits());
            let (source, sink) = if is_read { (1, 0) } else { (0, 1) };
            let data = pattern(2, length as usize);
            let before = vec![0x5a; length as usize + 64];
            pair.hosts[source].fill(3, &data);
            pair.hosts[sink].fill(1000, &before);
            let (here, there) = if is_read { (1032, 3) } else { (3, 1032) };
            let remote = pair.at(1, there);
            let operation = if is_read { Operation::read(remote) } else { Operation::write(remote) };
            let sge = pair.hosts[0].element(here, length);
            pair.hosts[0].post(1, operation, sge);
            pair.run_cleanly();
            let [done] = pair.hosts[0].completions()[..] else { panic!("one completion") };
            let bytes = if is_read { length } else { 0 };
            assert_eq!((done.status, done.bytes), (Status::Success, bytes));
            let after = pair.hosts[sink].bytes(1000, before.len());
            assert_eq!(after[32..][..length as usize], data);
            assert!(after[..32].iter().chain(&after[32 + length as usize..]).all(|octet| *octet == 0x5a));
            assert!(pair.hosts[1].completions().is_empty());
        }
    }
}

#[test]
fn elements_are_gathered_and_scattered() {
    let mut pair = Pair::new(traits());
    let data = pattern(3, 5000);
    pair.hosts[0].fill(0, &data[..1700]);
    pair.hosts[0].fill(9000, &data[1700..]);
    let sges =
        [pair.hosts[0].element(0, 1700), pair.hosts[0].element(0, 0), pair.hosts[0].element(9000, 3300)];
    let remote = pair.at(1, 0);
    for (id, operation) in [(1, Operation::write(remote)), (2, Operation::read(remote))] {
        let work = SendWork::new(id, operation, Data::Elements(sges.into_iter().collect()));
        let qp = pair.hosts[0].qp;
        pair.hosts[0].nic.post_send(qp, work).expect("room");
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(id, Status::Success)]);
        assert_eq!(pair.hosts[1].bytes(0, 5000), data);
        // The read brings the same bytes back.
        pair.hosts[0].fill(0, &[0; 1700]);
        pair.hosts[0].fill(9000, &[0; 3300]);
    }
    let mut pair_again = Pair::new(traits());
    pair_again.hosts[1].fill(0, &data);
    let sges = [pair_again.hosts[0].element(0, 1700), pair_again.hosts[0].element(9000, 3300)];
    let work =
        SendWork::new(1, Operation::read(pair_again.at(1, 0)), Data::Elements(sges.into_iter().collect()));
    let qp = pair_again.hosts[0].qp;
    pair_again.hosts[0].nic.post_send(qp, work).expect("room");
    pair_again.run_cleanly();
    assert_eq!(pair_again.hosts[0].bytes(0, 1700), data[..1700]);
    assert_eq!(pair_again.hosts[0].bytes(9000, 3300), data[1700..]);
}

#[test]
fn immediate_data_comes_with_the_last_packet() {
    for length in [0, 700, 3000] {
        let mut pair = Pair::new(traits());
        pair.hosts[0].fill(0, &pattern(4, length as usize));
        for id in [11, 12] {
            let sge = pair.hosts[1].element(100_000, 4096);
            pair.hosts[1].receive(id, sge);
        }
        let sge = pair.hosts[0].element(0, length);
        pair.hosts[0].post(1, Operation::SendImmediate { data: 0xdead_beef }, sge);
        let remote = pair.at(1, 0);
        pair.hosts[0].post(2, Operation::Write { remote, immediate: Some(0x1234_5678 << 32) }, sge);
        pair.run_cleanly();
        let done = |id, kind, immediate| Completion {
            id,
            kind,
            immediate: Some(immediate),
            bytes: length,
            status: Status::Success,
            qp: 0x1001,
            invalidated: None,
            source: None,
        };
        let expected = [
            done(11, Kind::Receive, 0xdead_beef),
            done(12, Kind::ReceiveImmediate, 0x1234_5678 << 32 | u64::from(length)),
        ];
        assert_eq!(pair.hosts[1].completions(), expected);
        assert_eq!(pair.hosts[1].bytes(0, length as usize), pattern(4, length as usize));
    }
}

#[test]
fn atomic_operations_return_the_value_before() {
    let mut pair = Pair::new(traits());
    pair.hosts[1].fill(64, &5_u64.to_ne_bytes());
    let remote = pair.at(1, 64);
    let swap =
        |compare, swap| Atomic::CompareSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX };
    let steps = [
        (Atomic::FetchAdd { add: 7, mask: 0 }, 5, 12),
        (swap(12, 100), 12, 100),
        (swap(12, 200), 100, 100),
        (Atomic::FetchAdd { add: u64::MAX, mask: 0 }, 100, 99),
    ];
    for (id, (atomic, original, after)) in (1..).zip(steps) {
        let sge = pair.hosts[0].element(8 * id, 8);
        pair.hosts[0].post(id, Operation::Atomic { remote, atomic }, sge);
        pair.run_cleanly();
        assert_eq!(pair.hosts[0].results(), [(id, Status::Success)]);
        assert_eq!(pair.hosts[0].bytes(8 * id, 8), u64::to_ne_bytes(original));
        assert_eq!(pair.hosts[1].bytes(64, 8), u64::to_ne_bytes(after));
    }
}

#[test]
fn a_send_may_invalidate_the_peers_window() {
    let mut pair = Pair::new(traits());
    let Pair { hosts: [_, two], .. } = &mut pair;
    let window = two.nic.allocate_window(two.pd, true).expect("room");
    let access = Access { remote_write: true, ..Access::NONE };
    let binding = Binding { region: two.stag, address: BASE, length: 4096, access };
    let bind = Operation::Bind { window, binding: Some(binding) };
    two.nic.post_send(two.qp, SendWork::new(1, bind, Data::none())).expect("room");
    let sge = two.element(8192, 64);
    two.receive(2, sge);
    pair.run_cleanly();
    assert_eq!(pair.hosts[1].results(), [(1, Status::Success)]);

    let remote = kiban_rdma::rnic::TaggedAddress { stag: window, offset: BASE };
    let sge = pair.hosts[0].element(0, 64);
    pair.hosts[0].post(1, Operation::write(remote), sge);
    pair.hosts[0].post(2, Operation::Send { invalidate: Some(window) }, sge);
    pair.hosts[0].post(3, Operation::write(remote), sge);
    pair.run_cleanly();
    let results = [(1, Status::Success), (2, Status::Success), (3, Status::RemoteAccess)];
    assert_eq!(pair.hosts[0].results(), results);
    assert_eq!(pair.hosts[1].completions()[0].invalidated, Some(window));
}

#[test]
fn opcodes_follow_the_place_of_a_packet_in_its_message() {
    let mut pair = Pair::new(traits());
    let remote = pair.at(1, 0);
    for (id, length) in [(1, 1024), (2, 3000)] {
        let sge = pair.hosts[0].element(0, length);
        pair.hosts[0].post(id, Operation::write(remote), sge);
        pair.hosts[0].post(id + 2, Operation::read(remote), sge);
    }
    pair.run_cleanly();
    let requests =
        [Op::WriteOnly, Op::ReadRequest, Op::WriteFirst, Op::WriteMiddle, Op::WriteLast, Op::ReadRequest];
    assert_eq!(operations(&pair, 0), requests);
    let responses: Vec<Op> =
        operations(&pair, 1).into_iter().filter(|operation| *operation != Op::Acknowledge).collect();
    let expected =
        [Op::ReadResponseOnly, Op::ReadResponseFirst, Op::ReadResponseMiddle, Op::ReadResponseLast];
    assert_eq!(responses, expected);
}

#[test]
fn reads_beyond_the_ord_wait_for_earlier_ones() {
    let mut pair = Pair::new(RoceTraits { ord: 2, ird: 2, ..traits() });
    let remote = pair.at(1, 0);
    for id in 1..=9 {
        let sge = pair.hosts[0].element(id * 2000, 2000);
        pair.hosts[0].post(id, Operation::read(remote), sge);
    }
    let mut outstanding = 0;
    pair.run(|_, packet| {
        match packet.bth.opcode {
            Opcode::Transport(_, Op::ReadRequest) => outstanding += 1,
            Opcode::Transport(_, Op::ReadResponseLast) => outstanding -= 1,
            _ => {}
        }
        assert!(outstanding <= 2, "more reads than the agreed maximum");
        crate::pair::arrives()
    });
    assert!(pair.hosts[0].results().iter().map(|(_, status)| *status).eq([Status::Success; 9]));
}

#[test]
fn an_operation_that_rocev2_does_not_have_is_refused_at_the_post() {
    let mut pair = Pair::new(traits());
    let (qp, remote) = (pair.hosts[0].qp, pair.at(1, 0));
    let masked = Atomic::FetchAdd { add: 1, mask: 1 << 31 };
    for operation in [
        Operation::Immediate { data: 1 },
        Operation::Read { remote, invalidate: true },
        Operation::Atomic { remote, atomic: masked },
    ] {
        let sge = pair.hosts[0].element(0, 8);
        let work = SendWork::new(1, operation, Data::one(sge));
        assert_eq!(pair.hosts[0].nic.post_send(qp, work), Err(RequestError::NotAgreed));
    }
}

#[test]
fn a_long_read_is_requested_in_pieces_that_fit_into_the_window() {
    for (ord, window) in [(1, 8), (4, 8), (4, 1), (2, 64)] {
        let mut pair = Pair::new(RoceTraits { ord, window, ..traits() });
        let data = pattern(7, 70_001);
        pair.hosts[1].fill(5, &data);
        let (remote, sge) = (pair.at(1, 5), pair.hosts[0].element(100, 70_001));
        pair.hosts[0].post(1, Operation::read(remote), sge);
        pair.hosts[0].post(2, Operation::write(pair.at(1, 200_000)), pair.hosts[0].element(0, 10));
        let mut outstanding = 0;
        pair.run(|_, packet| {
            match packet.bth.opcode {
                Opcode::Transport(_, Op::ReadRequest) => outstanding += 1,
                Opcode::Transport(_, Op::ReadResponseLast | Op::ReadResponseOnly) => outstanding -= 1,
                _ => {}
            }
            assert!(outstanding <= ord, "more reads than the agreed maximum");
            crate::pair::arrives()
        });
        let done = pair.hosts[0].completions();
        assert_eq!(done.iter().map(|done| (done.id, done.bytes)).collect::<Vec<_>>(), [(1, 70_001), (2, 0)]);
        assert_eq!(pair.hosts[0].bytes(100, data.len()), data);
        let requests: Vec<_> = pair.sent.iter().filter_map(|(_, packet, _)| packet.reth).collect();
        let reads = &requests[..requests.len() - 1];
        assert!(reads.iter().all(|read| read.length <= 1024 * (window / 2).max(1)), "{reads:?}");
        assert_eq!(reads.iter().map(|read| read.length).sum::<u32>(), 70_001);
    }
}
