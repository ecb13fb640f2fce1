//! The host interface: errors and completions in every state, completion queues, unguessable steering tags.

use crate::fixture::pair::{Landing, Pair, Side, TRAITS, attributes};
use kiban_base::{Region, RngKey};
use kiban_rdma::rnic::{
    Access, Binding, Config, Data, Event, Notify, Operation, QpAttributes, QpState, ReceiveWork,
    RequestError, Rnic, SendWork, Sge, Status, StreamTraits, TaggedAddress,
};
use std::collections::BTreeSet;

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|done| (done.id, done.status)).collect()
}

fn post(side: &mut Side, id: u64, operation: Operation, data: Data) -> Result<(), RequestError> {
    side.nic.post_send(side.qp, SendWork::new(id, operation, data))
}

#[test]
fn rejected_work_leaves_no_trace() {
    let mut side = Side::new(1, 1458);
    let sge = Sge::default();
    let nowhere = TaggedAddress { stag: 1, offset: 0 };
    let elements = |count: usize| Data::Elements(std::iter::repeat_n(sge, count).collect());
    let inline = |count: usize| Data::Inline(std::iter::repeat_n(0, count).collect());
    assert_eq!(post(&mut side, 1, Operation::SEND, Data::none()), Err(RequestError::BadState(QpState::Idle)));
    let traits = StreamTraits { ord: 0, extensions: false, ..TRAITS };
    side.nic.connect(side.qp, traits).expect("idle");
    assert_eq!(side.nic.connect(side.qp, traits), Err(RequestError::BadState(QpState::Rts)));
    let write = Operation::Write { remote: nowhere, immediate: Some(1) };
    let rows = [
        (Operation::SEND, elements(9), RequestError::TooManyElements),
        (Operation::SEND, inline(257), RequestError::TooMuchInline),
        (Operation::read(nowhere), inline(1), RequestError::TooMuchInline),
        (Operation::read(nowhere), elements(1), RequestError::NotAgreed),
        (Operation::Immediate { data: 1 }, Data::none(), RequestError::NotAgreed),
        (write, Data::none(), RequestError::NotAgreed),
    ];
    for (operation, data, refusal) in rows {
        assert_eq!(post(&mut side, 1, operation.clone(), data), Err(refusal), "{operation:?}");
    }
    let receive = |id, count| ReceiveWork { id, sges: std::iter::repeat_n(sge, count).collect() };
    assert_eq!(side.nic.post_receive(side.qp, receive(1, 9)), Err(RequestError::TooManyElements));
    for id in 0..64 {
        post(&mut side, id, Operation::SEND, inline(256)).expect("room");
        side.nic.post_receive(side.qp, receive(100 + id, 8)).expect("room");
    }
    assert_eq!(post(&mut side, 64, Operation::SEND, Data::none()), Err(RequestError::Full));
    assert_eq!(side.nic.post_receive(side.qp, receive(1, 0)), Err(RequestError::Full));
    // Accepted work completes once, in order; rejected work never completes.
    side.nic.abort(side.qp).expect("there");
    let expected: Vec<_> = (0..64).chain(100..164).map(|id| (id, Status::Flushed)).collect();
    assert_eq!(statuses(&mut side), expected);
}

#[test]
fn posts_have_a_defined_outcome_in_every_state() {
    type StateChange = fn(&mut Side);
    let changes: [(StateChange, QpState, bool); 5] = [
        (|_| {}, QpState::Idle, false),
        (|side| side.nic.connect(side.qp, TRAITS).expect("idle"), QpState::Rts, true),
        (
            |side| {
                side.nic.connect(side.qp, TRAITS).expect("idle");
                side.nic.disconnect(side.qp).expect("connected");
            },
            QpState::Closing,
            true,
        ),
        (
            |side| {
                side.nic.connect(side.qp, TRAITS).expect("idle");
                side.nic.stream_fault(side.qp, kiban_rdma::wire::rdmap::Reason::MPA_CRC);
            },
            QpState::Terminate,
            true,
        ),
        (|side| side.nic.abort(side.qp).expect("there"), QpState::Error, true),
    ];
    for (change, state, takes) in changes {
        let mut side = Side::new(1, 1458);
        change(&mut side);
        assert_eq!(side.nic.query_qp(side.qp).expect("there").1, state);
        let sent = post(&mut side, 1, Operation::SEND, Data::none());
        assert_eq!(sent.is_ok(), takes, "{state:?}");
        side.receive(2, &[]);
        let events = statuses(&mut side);
        match state {
            QpState::Idle | QpState::Rts => assert_eq!(events, []),
            QpState::Closing => assert_eq!(events, [(1, Status::Flushed)]),
            _ => assert_eq!(events, [(1, Status::Flushed), (2, Status::Flushed)], "{state:?}"),
        }
        // A connected queue pair cannot be reset; one without a stream returns to its initial state.
        let resets = matches!(state, QpState::Idle | QpState::Error);
        assert_eq!(side.nic.reset(side.qp).is_ok(), resets, "{state:?}");
        side.nic.on_stream_closed(side.qp, true);
        let flushed = statuses(&mut side).len();
        let waited = match state {
            QpState::Rts => 2,
            QpState::Closing => 1,
            _ => 0,
        };
        assert_eq!(flushed, waited, "{state:?}: exactly once");
        if !resets {
            side.nic.reset(side.qp).expect("over");
        }
        side.nic.connect(side.qp, TRAITS).expect("as new");
    }
}

#[test]
fn invalid_local_work_fails_alone_and_in_order() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let (memory, constant) = (pair.one.memory(100, Access::LOCAL), pair.one.memory(100, Access::NONE));
    let other_pd = pair.one.nic.create_pd().expect("room");
    let foreign = pair.one.nic.register(other_pd, Region::new(0x10_0000, 100), Access::ALL).expect("room");
    let window = pair.one.nic.allocate_window(pair.one.pd, false).expect("room");
    let target = pair.two.memory(100, Access::ALL);
    let place = TaggedAddress { stag: target.stag, offset: target.region.address() };
    let all = memory.sge(0, 100);
    let read = || Operation::read(place);
    let rows = [
        (Operation::SEND, Sge { stag: all.stag ^ 1, ..all }, Status::LocalProtection),
        (Operation::SEND, Sge { stag: foreign, ..all }, Status::LocalProtection),
        (Operation::SEND, Sge { stag: window, ..all }, Status::LocalProtection),
        (Operation::write(place), memory.sge(1, 100), Status::LocalProtection),
        (Operation::write(place), Sge { address: all.address - 1, ..all }, Status::LocalProtection),
        (Operation::write(place), Sge { address: u64::MAX - 3, ..all }, Status::LocalProtection),
        (read(), constant.sge(0, 1), Status::LocalProtection),
        (read(), memory.sge(100, 1), Status::LocalProtection),
        (Operation::LocalInvalidate { stag: foreign }, Sge::default(), Status::LocalProtection),
        (Operation::LocalInvalidate { stag: 1 }, Sge::default(), Status::LocalProtection),
        (Operation::Bind { window: all.stag, binding: None }, Sge::default(), Status::Bind),
    ];
    for (operation, sge, status) in rows {
        let name = format!("{operation:?} {sge:?}");
        let one = &mut pair.one;
        (one.qp, pair.two.qp) = (
            one.nic.create_qp(attributes(one.pd, one.cq)).expect("room"),
            pair.two.nic.create_qp(attributes(pair.two.pd, pair.two.cq)).expect("room"),
        );
        one.nic.connect(one.qp, TRAITS).expect("idle");
        pair.two.nic.connect(pair.two.qp, TRAITS).expect("idle");
        one.receive(9, &[]);
        one.send(1, Operation::write(place), Data::one(all));
        // Errors generate completions, signalled or not.
        let work = SendWork { signalled: false, ..SendWork::new(2, operation, Data::one(sge)) };
        one.nic.post_send(one.qp, work).expect("posted");
        one.send(3, Operation::write(place), Data::one(all));
        pair.run();
        let events = statuses(&mut pair.one);
        // The first request has been sent; whether the lower layer still holds it is not tested here.
        assert!(matches!(events[0], (1, Status::Success | Status::Flushed)), "{name}");
        assert_eq!(events[1..], [(2, status), (3, Status::Flushed), (9, Status::Flushed)], "{name}");
        assert!(statuses(&mut pair.two).is_empty(), "{name}");
    }
    assert_eq!(target.bytes(), vec![0; 100]);
}

#[test]
fn a_notification_request_gives_one_event_of_the_requested_kind() {
    // Rows: the requested notification, whether the message is solicited, and whether the host is notified.
    let rows = [
        (Notify::Any, false, true),
        (Notify::Any, true, true),
        (Notify::Solicited, false, false),
        (Notify::Solicited, true, true),
    ];
    for (notify, solicited, tells) in rows {
        let mut pair = Pair::new(1458, Landing::Whole);
        let send = |pair: &mut Pair| {
            pair.two.receive(9, &[]);
            let work = SendWork { solicited, ..SendWork::new(1, Operation::SEND, Data::none()) };
            pair.one.nic.post_send(pair.one.qp, work).expect("posted");
            pair.run();
        };
        send(&mut pair);
        assert_eq!(pair.two.nic.cq_event(), None, "nobody asked");
        // Completions added before the queue was armed are found by polling and raise no notification.
        pair.two.nic.arm(pair.two.cq, notify).expect("there");
        assert_eq!(pair.two.nic.cq_event(), None);
        assert_eq!(pair.two.completions().len(), 1);
        send(&mut pair);
        send(&mut pair);
        let expected = tells.then_some(pair.two.cq);
        assert_eq!(pair.two.nic.cq_event(), expected, "{notify:?}, solicited: {solicited}");
        assert_eq!(pair.two.nic.cq_event(), None, "one telling for one asking");
        // Errors are always solicited.
        pair.two.nic.arm(pair.two.cq, Notify::Solicited).expect("there");
        pair.two.receive(10, &[]);
        pair.two.nic.abort(pair.two.qp).expect("there");
        assert_eq!(pair.two.nic.cq_event(), Some(pair.two.cq));
    }
    // Arming for solicited completions does not weaken an earlier arming for any completion.
    let mut pair = Pair::new(1458, Landing::Whole);
    pair.two.nic.arm(pair.two.cq, Notify::Any).expect("there");
    pair.two.nic.arm(pair.two.cq, Notify::Solicited).expect("there");
    pair.two.receive(9, &[]);
    pair.one.send(1, Operation::SEND, Data::none());
    pair.run();
    assert_eq!(pair.two.nic.cq_event(), Some(pair.two.cq));
}

#[test]
fn a_shared_queue_reports_its_low_watermark_once() {
    let mut pair = Pair::apart(1458, Landing::Whole);
    let two = &mut pair.two;
    let srq = two.nic.create_srq(two.pd, 4, 2).expect("room");
    two.qp = two.nic.create_qp(QpAttributes { srq: Some(srq), ..attributes(two.pd, two.cq) }).expect("room");
    for id in 0..4 {
        let work = ReceiveWork { id, sges: [].into_iter().collect() };
        two.nic.post_srq_receive(srq, work).expect("room");
    }
    let fifth = ReceiveWork { id: 4, sges: [].into_iter().collect() };
    assert_eq!(two.nic.post_srq_receive(srq, fifth), Err(RequestError::Full));
    for side in [&mut pair.one, &mut pair.two] {
        side.nic.connect(side.qp, TRAITS).expect("idle");
    }
    let mut events = Vec::new();
    for id in 0..4 {
        pair.one.send(id, Operation::SEND, Data::none());
        pair.run();
        events.push(pair.two.nic.event());
    }
    assert_eq!(events, [None, None, Some(Event::SrqLimit { srq }), None]);
    assert_eq!(statuses(&mut pair.two), [0, 1, 2, 3].map(|id| (id, Status::Success)));
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let mut side = Side::new(1, 1458);
    let srq = side.nic.create_srq(side.pd, 4, 0).expect("room");
    let with_srq = QpAttributes { srq: Some(srq), ..attributes(side.pd, side.cq) };
    let qp = side.nic.create_qp(with_srq).expect("room");
    let memory = side.memory(10, Access::LOCAL);
    assert_eq!(side.nic.destroy_pd(side.pd), Err(RequestError::InUse));
    assert_eq!(side.nic.destroy_cq(side.cq), Err(RequestError::InUse));
    assert_eq!(side.nic.destroy_srq(srq), Err(RequestError::InUse));
    side.nic.destroy_qp(qp).expect("there");
    assert_eq!(side.nic.destroy_qp(qp), Err(RequestError::UnknownQp));
    side.nic.destroy_srq(srq).expect("it is unused");
    assert_eq!(side.nic.destroy_srq(srq), Err(RequestError::UnknownSrq));
    side.nic.destroy_qp(side.qp).expect("there");
    side.nic.destroy_cq(side.cq).expect("it is unused");
    assert_eq!(side.nic.poll(side.cq), Err(RequestError::UnknownCq));
    assert_eq!(side.nic.arm(side.cq, Notify::Any), Err(RequestError::UnknownCq));
    assert_eq!(side.nic.destroy_pd(side.pd), Err(RequestError::InUse), "its memory is there");
    side.nic.deregister(memory.stag).expect("registered");
    assert!(matches!(side.nic.deregister(memory.stag), Err(RequestError::UnknownStag)));
    side.nic.destroy_pd(side.pd).expect("nothing belongs to it");
    assert_eq!(side.nic.create_srq(side.pd, 1, 0), Err(RequestError::UnknownPd));
    assert_eq!(side.nic.in_use(), (0, 0));
}

#[test]
fn windows_are_bound_only_to_regions_that_allow_it() {
    let binding = |region, address, length, access| Some(Binding { region, address, length, access });
    let writes = Access { remote_write: true, ..Access::NONE };
    let reads = Access { remote_read: true, ..Access::NONE };
    for type_2 in [false, true] {
        let mut side = Side::new(1, 1458);
        let other_pd = side.nic.create_pd().expect("room");
        let foreign = side.nic.register(other_pd, Region::new(0x10_0000, 100), Access::ALL).expect("room");
        let open = side.memory(100, Access::ALL);
        let unbound = side.memory(100, Access { bind: false, ..Access::ALL });
        let constant = side.memory(100, Access { bind: true, ..Access::NONE });
        let other_window = side.nic.allocate_window(side.pd, type_2).expect("room");
        let at = open.region.address();
        let rows = [
            ("all of it", binding(open.stag, at, 100, writes), Status::Success),
            ("a byte beyond", binding(open.stag, at, 101, writes), Status::Bind),
            ("a byte before", binding(open.stag, at - 1, 2, writes), Status::Bind),
            ("around the end of all", binding(open.stag, u64::MAX - 3, 8, writes), Status::Bind),
            ("no such region", binding(open.stag ^ 1, at, 8, reads), Status::Bind),
            ("another domain's", binding(foreign, at, 8, reads), Status::Bind),
            ("not for windows", binding(unbound.stag, at, 8, reads), Status::Bind),
            ("writes to what is not written", binding(constant.stag, at, 8, writes), Status::Bind),
            ("reads of what is only read", binding(constant.stag, at, 8, reads), Status::Success),
            ("a window of a window", binding(other_window, at, 8, reads), Status::Bind),
        ];
        for (name, binding, status) in rows {
            side.qp = side.nic.create_qp(attributes(side.pd, side.cq)).expect("room");
            side.nic.connect(side.qp, TRAITS).expect("idle");
            let window = side.nic.allocate_window(side.pd, type_2).expect("room");
            side.send(1, Operation::Bind { window, binding }, Data::none());
            side.make();
            assert_eq!(statuses(&mut side), [(1, status)], "{name}, type 2: {type_2}");
            let region = binding.map_or(0, |binding| binding.region);
            if status == Status::Success {
                assert!(matches!(side.nic.deregister(region), Err(RequestError::InUse)), "{name}");
                // A type 2 window can be bound again only after it was invalidated.
                side.send(2, Operation::Bind { window, binding }, Data::none());
                side.make();
                let again = if type_2 { Status::Bind } else { Status::Success };
                assert_eq!(statuses(&mut side), [(2, again)], "{name}, type 2: {type_2}");
            }
            side.nic.deregister(window).expect("allocated");
        }
        side.nic.deregister(open.stag).expect("no window looks at it any more");
    }
}

#[test]
fn tags_cannot_be_guessed_from_other_tags() {
    const COUNT: usize = 10_000;
    let tags = |seed| {
        let mut nic = Rnic::new(Config::default(), RngKey::for_simulation(seed));
        let pd = nic.create_pd().expect("room");
        let region = Region::new(0, 1);
        let tags: Vec<u32> =
            (0..COUNT).map(|_| nic.register(pd, region.clone(), Access::ALL).expect("room")).collect();
        (nic, pd, tags)
    };
    let (mut nic, pd, ours) = tags(1);
    let (_, _, theirs) = tags(2);
    assert!(!ours.contains(&0));
    let indexes: BTreeSet<u32> = ours.iter().map(|tag| tag >> 8).collect();
    let keys: BTreeSet<u32> = ours.iter().map(|tag| tag & 0xff).collect();
    assert_eq!((indexes.len(), keys.len()), (COUNT, 256), "both parts vary");
    // Among 10,000 random 32-bit differences, the probability that any two are equal is 1 %; five equal
    // pairs are practically impossible.
    let steps: BTreeSet<u32> = ours.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() >= COUNT - 6, "{} steps: a progression", steps.len());
    let rising = ours.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((COUNT * 48 / 100..COUNT * 52 / 100).contains(&rising), "{rising} rise");
    for bit in 0..32 {
        let set = ours.iter().filter(|&tag| tag >> bit & 1 == 1).count();
        assert!((COUNT * 47 / 100..COUNT * 53 / 100).contains(&set), "bit {bit} is set in {set}");
    }
    let shared = theirs.iter().filter(|tag| ours.contains(tag)).count();
    assert!(shared <= 2, "two NICs share {shared} tags");
    // A freed tag is not reused soon, not even with another key.
    let gone: BTreeSet<u32> = ours[..1000].iter().map(|tag| tag >> 8).collect();
    ours[..1000].iter().for_each(|&tag| drop(nic.deregister(tag).expect("registered")));
    let fresh: Vec<u32> =
        (0..1000).map(|_| nic.register(pd, Region::new(0, 1), Access::ALL).expect("room")).collect();
    // The expected number of matches is one in 16: 1,000 tags are drawn from 2^24, of which 1,000 would
    // match.
    assert!(fresh.iter().filter(|&tag| gone.contains(&(tag >> 8))).count() <= 1);
}
