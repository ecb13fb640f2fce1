//! Tests every operation with every way of placing payload.

use crate::fixture::pair::{Landing, Pair};
use kiban_rdma::rnic::{
    Access, Binding, Data, Kind, Operation, QpState, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Atomic;

const LANDINGS: [Landing; 4] =
    [Landing::Whole, Landing::Crumbs(1), Landing::Crumbs(700), Landing::Direct(1000)];

fn statuses(side: &mut crate::fixture::pair::Side) -> Vec<(u64, Status, Kind, u32)> {
    side.completions().iter().map(|done| (done.id, done.status, done.kind, done.bytes)).collect()
}

#[test]
fn writes_and_reads_of_any_size_arrive_whole() {
    for landing in LANDINGS {
        for length in [0u32, 1, 7, 1444, 1445, 5000] {
            let mut pair = Pair::new(1458, landing);
            let source = pair.one.pattern(6000, Access::LOCAL);
            let target = pair.two.memory(6000, Access::ALL);
            let place = |at| TaggedAddress { stag: target.stag, offset: target.region.address() + at };
            pair.one.send(1, Operation::write(place(3)), Data::one(source.sge(5, length)));
            pair.run();
            assert_eq!(statuses(&mut pair.one), [(1, Status::Success, Kind::Write, 0)]);
            let mut expected = vec![0; 6000];
            let end = length as usize;
            expected[3..3 + end].copy_from_slice(&source.bytes()[5..5 + end]);
            assert!(target.bytes() == expected, "{landing:?}: a write of {length}");
            // Read the data back into empty memory.
            let back = pair.one.memory(6000, Access::LOCAL);
            pair.one.send(2, Operation::read(place(3)), Data::one(back.sge(9, length)));
            pair.run();
            assert_eq!(statuses(&mut pair.one), [(2, Status::Success, Kind::Read, length)]);
            let mut expected = vec![0; 6000];
            expected[9..9 + end].copy_from_slice(&source.bytes()[5..5 + end]);
            assert!(back.bytes() == expected, "{landing:?}: a read of {length}");
            assert!(statuses(&mut pair.two).is_empty(), "the peer's host hears nothing");
        }
    }
}

#[test]
fn sends_fill_the_elements_of_receives_in_order() {
    for landing in LANDINGS {
        let mut pair = Pair::new(200, landing);
        let source = pair.one.pattern(4000, Access::NONE);
        let target = pair.two.memory(4000, Access::LOCAL);
        for (id, sges) in [
            (10, vec![target.sge(0, 100), target.sge(200, 0), target.sge(300, 901)]),
            (11, vec![target.sge(2000, 1000)]),
            (12, vec![]),
        ] {
            pair.two.receive(id, &sges);
        }
        let elements = [source.sge(1000, 3), source.sge(0, 998)];
        pair.one.send(1, Operation::SEND, Data::Elements(elements.into_iter().collect()));
        pair.one.send(2, Operation::SEND, Data::Inline((0..77).collect()));
        pair.one.send(3, Operation::SEND, Data::none());
        pair.run();
        assert_eq!(
            statuses(&mut pair.two),
            [
                (10, Status::Success, Kind::Receive, 1001),
                (11, Status::Success, Kind::Receive, 77),
                (12, Status::Success, Kind::Receive, 0)
            ]
        );
        assert_eq!(statuses(&mut pair.one).len(), 3);
        let (sent, got) = (source.bytes(), target.bytes());
        let message = [&sent[1000..1003], &sent[..998]].concat();
        assert_eq!([&got[..100], &got[300..1201]].concat(), message, "{landing:?}");
        assert_eq!(got[2000..2077], (0..77).collect::<Vec<u8>>()[..]);
        assert!(got[100..300].iter().chain(&got[1201..2000]).chain(&got[2077..]).all(|&byte| byte == 0));
    }
}

#[test]
fn completions_follow_the_posting_order() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let memory = pair.one.memory(4096, Access::LOCAL);
    let target = pair.two.pattern(4096, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    pair.two.receive(9, &[]);
    pair.one.send(1, Operation::read(place), Data::one(memory.sge(0, 4096)));
    pair.one.send(2, Operation::write(place), Data::one(memory.sge(0, 8)));
    pair.one.send(3, Operation::SEND, Data::none());
    pair.one.make();
    assert!(statuses(&mut pair.one).is_empty(), "the write has left, but the read before it is not answered");
    pair.run();
    let order: Vec<u64> = statuses(&mut pair.one).iter().map(|done| done.0).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn fences_delay_work_and_unsignalled_work_does_not_complete() {
    for (fence, local_fence) in [(true, false), (false, true)] {
        let mut pair = Pair::new(1458, Landing::Whole);
        let memory = pair.one.memory(4096, Access::LOCAL);
        let target = pair.two.pattern(4096, Access::ALL);
        let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
        pair.one.send(1, Operation::read(place), Data::one(memory.sge(0, 100)));
        // The write sends the data that was read. Without the fence, it would send the old contents.
        let back = TaggedAddress { offset: place.offset + 2000, ..place };
        let work = SendWork {
            fence,
            local_fence,
            signalled: false,
            ..SendWork::new(2, Operation::write(back), Data::one(memory.sge(0, 100)))
        };
        pair.one.nic.post_send(pair.one.qp, work).expect("posted");
        pair.one.make();
        assert_eq!(pair.one.out.segments.len(), 1, "the fence holds");
        pair.run();
        assert_eq!(statuses(&mut pair.one), [(1, Status::Success, Kind::Read, 100)]);
        assert_eq!(target.bytes()[2000..2100], target.bytes()[..100]);
    }
}

#[test]
fn outstanding_reads_stay_within_the_negotiated_depth() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let memory = pair.one.memory(8192, Access::LOCAL);
    let target = pair.two.pattern(8192, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    let elements: Vec<Sge> = (0..6).map(|at| memory.sge(at * 1000, 500)).collect();
    pair.one.send(1, Operation::read(place), Data::Elements(elements.into_iter().collect()));
    pair.one.make();
    assert_eq!(pair.one.out.segments.len(), 4, "as many as ORD");
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(1, Status::Success, Kind::Read, 3000)]);
    let (got, source) = (memory.bytes(), target.bytes());
    for at in 0..6 {
        assert_eq!(got[at * 1000..at * 1000 + 500], source[at * 500..at * 500 + 500], "element {at}");
        assert!(got[at * 1000 + 500..at * 1000 + 1000].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn immediate_data_and_atomics_work_if_negotiated() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let memory = pair.one.memory(64, Access::LOCAL);
    let target = pair.two.memory(64, Access::ALL);
    target.fill(&[5u64.to_ne_bytes(), [0; 8]].concat());
    let place = |at| TaggedAddress { stag: target.stag, offset: target.region.address() + at };
    pair.two.receive(9, &[]);
    pair.two.receive(10, &[]);
    pair.one.send(
        1,
        Operation::Atomic { remote: place(0), atomic: Atomic::FetchAdd { add: 4, mask: 0 } },
        Data::one(memory.sge(0, 8)),
    );
    let swap = Atomic::CompareSwap { swap: 77, swap_mask: u64::MAX, compare: 9, compare_mask: u64::MAX };
    pair.one.send(2, Operation::Atomic { remote: place(0), atomic: swap }, Data::one(memory.sge(8, 8)));
    pair.one.send(3, Operation::Immediate { data: 0x1234 }, Data::none());
    // With a fence, this sends the data from the first read.
    let write = Operation::Write { remote: place(8), immediate: Some(7) };
    let work = SendWork { fence: true, ..SendWork::new(4, write, Data::one(memory.sge(0, 8))) };
    pair.one.nic.post_send(pair.one.qp, work).expect("posted");
    pair.run();
    let ids: Vec<(u64, Status)> = pair.one.completions().iter().map(|done| (done.id, done.status)).collect();
    assert_eq!(ids, [1, 2, 3, 4].map(|id| (id, Status::Success)));
    let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
    assert_eq!((word(&memory.bytes(), 0), word(&memory.bytes(), 8)), (5, 9));
    assert_eq!((word(&target.bytes(), 0), word(&target.bytes(), 8)), (77, 5));
    let events: Vec<Option<u64>> = pair.two.completions().iter().map(|done| done.immediate).collect();
    assert_eq!(events, [Some(0x1234), Some(7)]);
}

#[test]
fn memory_is_registered_and_invalidated_by_work_requests() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let stag = pair.two.nic.allocate(pair.two.pd, 4).expect("room");
    let fresh = stag ^ 0x5a;
    let blocks: Vec<_> = (0..3).map(|_| kiban_base::Region::new(0, 100)).collect();
    let register =
        Operation::Register { stag: fresh, address: 0x7000, blocks: blocks.clone(), access: Access::ALL };
    pair.two.send(1, register, Data::none());
    pair.run();
    assert_eq!(statuses(&mut pair.two), [(1, Status::Success, Kind::Register, 0)]);
    let source = pair.one.pattern(250, Access::NONE);
    pair.one.send(
        2,
        Operation::write(TaggedAddress { stag: fresh, offset: 0x7019 }),
        Data::one(source.sge(0, 250)),
    );
    pair.run();
    let all: Vec<u8> = blocks.iter().flat_map(|block| block.read(0, 100).expect("within")).collect();
    assert_eq!(all[25..275], source.bytes()[..]);
    // The peer invalidates the tag, which is then no longer valid.
    pair.two.receive(5, &[]);
    pair.one.send(3, Operation::Send { invalidate: Some(fresh) }, Data::none());
    pair.run();
    assert_eq!(pair.two.completions()[0].invalidated, Some(fresh));
    pair.one.send(
        4,
        Operation::write(TaggedAddress { stag: fresh, offset: 0x7000 }),
        Data::one(source.sge(0, 1)),
    );
    pair.run();
    assert_eq!(pair.two.nic.counters().bad_stag, 1);
    assert_eq!(blocks[0].read(0, 1), Some(vec![0]));
}

#[test]
fn a_window_gives_access_to_its_range_only_while_bound() {
    for type_2 in [false, true] {
        let mut pair = Pair::new(1458, Landing::Whole);
        let region =
            pair.two.pattern(1000, Access { remote_read: false, remote_write: false, ..Access::ALL });
        let window = pair.two.nic.allocate_window(pair.two.pd, type_2).expect("room");
        let bind = |address: u64, length| {
            let access = Access { remote_read: true, ..Access::NONE };
            let binding = Binding { region: region.stag, address: 0x10_0000 + address, length, access };
            Operation::Bind { window, binding: Some(binding) }
        };
        pair.two.send(1, bind(100, 50), Data::none());
        pair.run();
        assert_eq!(statuses(&mut pair.two)[0].1, Status::Success);
        assert!(pair.two.nic.deregister(region.stag).is_err(), "a window looks at it");
        let back = pair.one.memory(50, Access::LOCAL);
        let place = |at: u64| TaggedAddress { stag: window, offset: 0x10_0000 + at };
        pair.one.send(2, Operation::read(place(100)), Data::one(back.sge(0, 50)));
        pair.run();
        assert_eq!(statuses(&mut pair.one)[0].1, Status::Success);
        assert_eq!(back.bytes(), region.bytes()[100..150]);
        pair.one.send(3, Operation::read(place(99)), Data::one(back.sge(0, 50)));
        pair.run();
        assert_eq!(statuses(&mut pair.one)[0].1, Status::RemoteAccess);
        assert_eq!(pair.two.nic.counters().bad_bounds, 1);
    }
}

#[test]
fn posted_work_is_sent_before_an_orderly_close() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let source = pair.one.pattern(5000, Access::NONE);
    let target = pair.two.memory(5000, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    pair.two.receive(9, &[]);
    pair.one.send(1, Operation::write(place), Data::one(source.sge(0, 5000)));
    pair.one.nic.disconnect(pair.one.qp).expect("connected");
    pair.run();
    assert_eq!(statuses(&mut pair.one), [(1, Status::Success, Kind::Write, 0)]);
    assert_eq!(target.bytes(), source.bytes());
    assert_eq!(statuses(&mut pair.two), [(9, Status::Flushed, Kind::Receive, 0)]);
    for side in [&mut pair.one, &mut pair.two] {
        assert_eq!(side.nic.query_qp(side.qp).expect("there").1, QpState::Error);
        assert_eq!(side.nic.event(), None);
    }
}

#[test]
fn a_peer_can_invalidate_only_remotely_accessible_memory() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let own = pair.two.memory(64, Access::LOCAL);
    pair.two.receive(1, &[]);
    pair.one.send(1, Operation::Send { invalidate: Some(own.stag) }, Data::none());
    pair.run();
    assert_eq!(pair.two.nic.counters().bad_invalidate, 1);
    assert!(pair.two.nic.deregister(own.stag).is_ok(), "the tag still names it");
}

#[test]
fn windows_end_with_the_queue_pair_that_bound_them() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let region = pair.two.memory(64, Access::ALL);
    let window = pair.two.nic.allocate_window(pair.two.pd, true).expect("room");
    let access = Access { remote_read: true, ..Access::NONE };
    let binding = Binding { region: region.stag, address: region.region.address(), length: 64, access };
    pair.two.send(1, Operation::Bind { window, binding: Some(binding) }, Data::none());
    pair.run();
    assert!(pair.two.nic.deregister(region.stag).is_err(), "a window looks at it");
    pair.two.nic.abort(pair.two.qp).expect("there");
    pair.two.nic.reset(pair.two.qp).expect("over");
    assert!(pair.two.nic.deregister(region.stag).is_ok());
    assert!(pair.two.nic.deregister(window).is_ok());
}
