//! Tests memory that is invalidated during a transfer, read responses that do not match their requests, and
//! unexpected messages.

use crate::fixture::pair::{Landing, Pair, Side, TRAITS, attributes};
use crate::fixture::stand::{
    ATOMIC_RESPONSE, LANDINGS, READ_RESPONSE, Slot, Stand, Un, WRITE, at, read, send, tagged, untagged,
};
use kiban_base::SharedBytes;
use kiban_rdma::rnic::{
    Access, Data, Event, Operation, PlacementBuffers, QpAttributes, QpState, Status, StreamTraits,
    TaggedAddress, Validation,
};
use kiban_rdma::wire::rdmap::{Atomic, AtomicResponse, Reason};

/// How a tag becomes invalid.
#[derive(Clone, Copy, Debug)]
enum Taken {
    Deregistered,
    InvalidatedHere,
    /// A Send with Invalidate on another connection in the same protection domain.
    InvalidatedByPeer,
}

const TAKEN: [Taken; 3] = [Taken::Deregistered, Taken::InvalidatedHere, Taken::InvalidatedByPeer];

impl Stand {
    fn take_back(&mut self, slot: Slot, taken: Taken) {
        let (stag, other) = (self.stag(slot), self.other_qp);
        let two = &mut self.pair.two;
        let own = std::mem::replace(&mut two.qp, other);
        match taken {
            Taken::Deregistered => drop(two.nic.deregister(stag).expect("registered")),
            Taken::InvalidatedHere => two.send(99, Operation::LocalInvalidate { stag }, Data::none()),
            Taken::InvalidatedByPeer => {
                two.receive(99, &[]);
                two.take(&crate::fixture::stand::invalidate(1, stag), Landing::Whole);
            }
        }
        // Both queue pairs are in the TX queue; ours has nothing to send.
        two.make();
        assert!(two.out.segments.is_empty());
        assert!(two.completions().iter().all(|done| (done.id, done.status) == (99, Status::Success)));
        two.qp = own;
    }

    /// Injects a segment whose payload arrives in two parts; the victim's memory is invalidated between them.
    fn inject_halves(&mut self, segment: &[u8], first: usize, direct: bool, slot: Slot, taken: Taken) {
        let qp = self.pair.two.qp;
        let judged = self.pair.two.nic.validate(qp, segment, segment.len()).expect("it is good so far");
        let Validation::Place(mut placement) = judged else { panic!("it has payload") };
        let payload = &segment[placement.header_bytes()..];
        for (n, part) in [&payload[..first], &payload[first..]].into_iter().enumerate() {
            if n == 1 {
                self.take_back(slot, taken);
            }
            let nic = &mut self.pair.two.nic;
            if direct {
                let mut places = PlacementBuffers::new();
                if nic.placement_buffers(qp, &placement, &mut places).is_err() {
                    assert!(places.is_empty(), "no place is told with a fault");
                    return;
                }
                let place = places.first().expect("a place");
                place.write(place.address(), SharedBytes::from(part)).expect("within");
                nic.on_placed(qp, &mut placement, part.len());
            } else if nic.place(qp, &mut placement, SharedBytes::from(part)).is_err() {
                return;
            }
        }
        panic!("the second part was taken");
    }
}

#[test]
fn a_write_stops_at_the_byte_where_its_memory_was_invalidated() {
    for taken in TAKEN {
        for direct in [false, true] {
            let mut stand = Stand::new(Landing::Whole);
            stand.post_receives();
            stand.peer_reads();
            let write = tagged(WRITE, true, stand.stag(Slot::Open), at(Slot::Open, 8), 64);
            stand.inject_halves(&write, 40, direct, Slot::Open, taken);
            let name = format!("{taken:?}, direct: {direct}");
            stand.assert_terminated(&name, &write, Reason::TAGGED_STAG, "bad_stag", Some(Status::Flushed));
            stand.assert_guard(&[(at(Slot::Open, 8), 40)], &name);
        }
        for landing in LANDINGS {
            let mut stand = Stand::new(landing);
            stand.post_receives();
            stand.peer_reads();
            let stag = stand.stag(Slot::Open);
            stand.inject(&tagged(WRITE, false, stag, at(Slot::Open, 8), 64));
            stand.take_back(Slot::Open, taken);
            let second = tagged(WRITE, true, stag, at(Slot::Open, 72), 64);
            stand.inject(&second);
            let name = format!("{taken:?}, between segments");
            stand.assert_terminated(&name, &second, Reason::TAGGED_STAG, "bad_stag", Some(Status::Flushed));
            stand.assert_guard(&[(at(Slot::Open, 8), 64)], &name);
        }
    }
}

#[test]
fn a_receive_stops_where_its_memory_was_invalidated_with_a_local_error() {
    // A peer can invalidate only memory that is exposed to peers.
    for taken in [Taken::Deregistered, Taken::InvalidatedHere] {
        for (direct, between) in [(false, false), (true, false), (false, true)] {
            let mut stand = Stand::new(if direct { Landing::Direct(5) } else { Landing::Whole });
            stand.post_receives();
            stand.peer_reads();
            let segment = send(!between, 1, 0, 50);
            if between {
                stand.inject(&segment);
                stand.take_back(Slot::Receive, taken);
                stand.inject(&send(true, 1, 50, 8));
            } else {
                stand.inject_halves(&segment, 40, direct, Slot::Receive, taken);
            }
            let name = format!("{taken:?}, direct: {direct}, between segments: {between}");
            let (reason, status) = (Reason::LOCAL_ERROR, Some(Status::LocalProtection));
            stand.assert_terminated(&name, &segment, reason, "local_errors", status);
            stand.assert_guard(&[(at(Slot::Receive, 0), if between { 50 } else { 40 })], &name);
        }
    }
}

#[test]
fn a_receive_with_memory_it_may_not_access_stores_no_byte() {
    for landing in LANDINGS {
        for slot in [Slot::Constant, Slot::Foreign, Slot::Deregistered, Slot::Invalidated] {
            let mut stand = Stand::new(landing);
            stand.peer_reads();
            for id in [20, 21] {
                stand.pair.two.receive(id, &[stand.sge(slot, 0, 100)]);
            }
            let segment = send(true, 1, 0, 8);
            stand.inject(&segment);
            let (reason, status) = (Reason::LOCAL_ERROR, Some(Status::LocalProtection));
            stand.assert_terminated(&format!("{slot:?}"), &segment, reason, "local_errors", status);
            stand.assert_guard(&[], "a receive");
        }
    }
}

/// Makes the victim read 100 bytes of the peer's memory into its receive memory, and sends the request.
fn reads(stand: &mut Stand) {
    let sink = stand.sge(Slot::Receive, 16, 100);
    let source = TaggedAddress { stag: 0x99, offset: 0x5000 };
    stand.pair.two.send(7, Operation::read(source), Data::one(sink));
    stand.pair.two.make();
    stand.pair.two.out.segments.clear();
}

#[test]
fn a_read_response_stops_where_its_sink_was_invalidated() {
    // A peer can invalidate only memory that is exposed to peers.
    for taken in [Taken::Deregistered, Taken::InvalidatedHere] {
        for (direct, between) in [(false, false), (true, false), (false, true)] {
            let mut stand = Stand::new(Landing::Whole);
            reads(&mut stand);
            let stag = stand.stag(Slot::Receive);
            let segment = tagged(READ_RESPONSE, false, stag, at(Slot::Receive, 16), 50);
            if between {
                stand.inject(&segment);
                stand.take_back(Slot::Receive, taken);
                stand.inject(&tagged(READ_RESPONSE, true, stag, at(Slot::Receive, 66), 50));
            } else {
                stand.inject_halves(&segment, 20, direct, Slot::Receive, taken);
            }
            let name = format!("{taken:?}, direct: {direct}, between segments: {between}");
            assert_eq!(stand.state(), QpState::Terminate, "{name}");
            let done: Vec<_> =
                stand.pair.two.completions().iter().map(|done| (done.id, done.status)).collect();
            assert_eq!(done, [(7, Status::LocalProtection)], "{name}");
            stand.assert_guard(&[(at(Slot::Receive, 16), if between { 50 } else { 20 })], &name);
        }
    }
}

#[test]
fn a_read_response_must_match_its_request_exactly() {
    let answer = |s: &Stand, last, offset: u64, count| {
        tagged(READ_RESPONSE, last, s.stag(Slot::Receive), at(Slot::Receive, offset), count)
    };
    type Segments<'a> = &'a dyn Fn(&Stand) -> Vec<Vec<u8>>;
    let rows: [(&str, Segments<'_>, Reason, usize, Status); 11] = [
        (
            "another tag of the same domain",
            &|s| vec![tagged(READ_RESPONSE, true, s.stag(Slot::Open), at(Slot::Open, 0), 100)],
            Reason::TAGGED_STAG,
            0,
            Status::Flushed,
        ),
        ("a byte before", &|s| vec![answer(s, true, 15, 100)], Reason::TAGGED_BOUNDS, 0, Status::Flushed),
        ("a byte behind", &|s| vec![answer(s, true, 17, 99)], Reason::TAGGED_BOUNDS, 0, Status::Flushed),
        ("a byte too long", &|s| vec![answer(s, true, 16, 101)], Reason::TAGGED_BOUNDS, 0, Status::Flushed),
        (
            "too long, not the last",
            &|s| vec![answer(s, false, 16, 101)],
            Reason::TAGGED_BOUNDS,
            0,
            Status::Flushed,
        ),
        ("the last too early", &|s| vec![answer(s, true, 16, 99)], Reason::TAGGED_BOUNDS, 0, Status::Flushed),
        (
            "the last without bytes",
            &|s| vec![answer(s, true, 16, 0)],
            Reason::TAGGED_BOUNDS,
            0,
            Status::Flushed,
        ),
        (
            "all, but not the last",
            &|s| vec![answer(s, false, 16, 100)],
            Reason::TAGGED_BOUNDS,
            0,
            Status::Flushed,
        ),
        (
            "the same part twice",
            &|s| vec![answer(s, false, 16, 50), answer(s, true, 16, 50)],
            Reason::TAGGED_BOUNDS,
            50,
            Status::Flushed,
        ),
        (
            "a part left out",
            &|s| vec![answer(s, false, 16, 50), answer(s, true, 67, 49)],
            Reason::TAGGED_BOUNDS,
            50,
            Status::Flushed,
        ),
        (
            "once more when it is answered",
            &|s| vec![answer(s, true, 16, 100), answer(s, true, 16, 100)],
            Reason::OPERATION_OPCODE,
            100,
            Status::Success,
        ),
    ];
    for landing in LANDINGS {
        for (name, segments, reason, placed, status) in &rows {
            let mut stand = Stand::new(landing);
            reads(&mut stand);
            for segment in segments(&stand) {
                assert_eq!(stand.state(), QpState::Rts, "{name}");
                stand.inject(&segment);
            }
            let qp = stand.pair.two.qp;
            let event = stand.pair.two.nic.event();
            assert_eq!(event, Some(Event::QpFailed { qp, reason: Some(*reason) }), "{name}");
            let done: Vec<_> =
                stand.pair.two.completions().iter().map(|done| (done.id, done.status)).collect();
            assert_eq!(done, [(7, *status)], "{name}");
            stand.assert_guard(&[(at(Slot::Receive, 16), *placed)], name);
        }
    }
}

#[test]
fn an_atomic_response_must_match_the_oldest_request() {
    let answer = |identifier| {
        let bytes = AtomicResponse { identifier, original: 0xeeee_eeee_eeee_eeee }.bytes();
        untagged(ATOMIC_RESPONSE, true, Un { queue: 3, msn: 1, ..Un::default() }, &bytes)
    };
    let read_answer = |s: &Stand| tagged(READ_RESPONSE, true, s.stag(Slot::Receive), at(Slot::Receive, 0), 8);
    for (wrong, name) in [(true, "another number"), (false, "a read's answer")] {
        let mut stand = Stand::new(Landing::Whole);
        let remote = TaggedAddress { stag: 0x99, offset: 0x5000 };
        let atomic = Atomic::FetchAdd { add: 1, mask: 0 };
        let sge = stand.sge(Slot::Receive, 0, 8);
        stand.pair.two.send(7, Operation::Atomic { remote, atomic }, Data::one(sge));
        stand.pair.two.make();
        stand.inject(&if wrong { answer(1) } else { read_answer(&stand) });
        let event = stand.pair.two.nic.event();
        assert!(
            matches!(event, Some(Event::QpFailed { reason: Some(Reason::OPERATION_OPCODE), .. })),
            "{name}: {event:?}"
        );
        stand.assert_guard(&[], name);
    }
}

#[test]
fn a_message_without_a_receive_ends_the_stream() {
    for landing in LANDINGS {
        for shared in [false, true] {
            let mut stand = Stand::new(landing);
            if shared {
                let two = &mut stand.pair.two;
                let srq = two.nic.create_srq(two.pd, 4, 0).expect("room");
                let traits = QpAttributes { srq: Some(srq), ..attributes(two.pd, two.cq) };
                two.qp = two.nic.create_qp(traits).expect("room");
                two.nic.connect(two.qp, TRAITS).expect("idle");
            }
            stand.peer_reads();
            let segment = send(true, 1, 0, 8);
            stand.inject(&segment);
            stand.assert_terminated("no receive", &segment, Reason::UNTAGGED_NO_BUFFER, "no_buffer", None);
            stand.assert_guard(&[], "no receive");
        }
    }
}

#[test]
fn without_negotiated_reads_none_are_sent_or_answered() {
    let mut stand = Stand::new(Landing::Whole);
    let two = &mut stand.pair.two;
    two.qp = two.nic.create_qp(attributes(two.pd, two.cq)).expect("room");
    two.nic.connect(two.qp, StreamTraits { ird: 0, ord: 0, ..TRAITS }).expect("idle");
    let work = kiban_rdma::rnic::SendWork::new(
        1,
        Operation::read(TaggedAddress { stag: 1, offset: 0 }),
        Data::none(),
    );
    assert!(two.nic.post_send(two.qp, work).is_err());
    stand.peer_reads();
    let segment = read(1, stand.stag(Slot::Open), at(Slot::Open, 0), 8);
    stand.inject(&segment);
    stand.assert_terminated("IRD 0", &segment, Reason::UNTAGGED_NO_BUFFER, "no_buffer", None);
}

#[test]
fn memory_can_be_invalidated_while_a_peer_reads_it() {
    for taken in [true, false] {
        let mut pair = Pair::new(200, Landing::Whole);
        let source = pair.two.pattern(1000, Access::ALL);
        let sink = pair.one.memory(1000, Access::LOCAL);
        let place = TaggedAddress { stag: source.stag, offset: source.region.address() };
        pair.one.send(1, Operation::read(place), Data::one(sink.sge(0, 1000)));
        pair.one.make();
        let request = pair.one.out.segments.pop_front().expect("a request");
        pair.two.take(&request, Landing::Whole);
        // Two segments are sent, then the memory is invalidated.
        let two = &mut pair.two;
        (0..2).for_each(|_| assert!(two.nic.next_segment(two.qp, &mut two.out)));
        if taken {
            two.nic.deregister(source.stag).expect("registered");
        }
        pair.run();
        let statuses = |side: &mut Side| -> Vec<_> {
            side.completions().iter().map(|done| (done.id, done.status)).collect()
        };
        let expected = if taken { Status::RemoteAccess } else { Status::Success };
        assert_eq!(statuses(&mut pair.one), [(1, expected)]);
        let here = if taken { 2 * (200 - 14) } else { 1000 };
        assert_eq!(sink.bytes()[..here], source.bytes()[..here]);
        assert!(sink.bytes()[here..].iter().all(|&byte| byte == 0), "no byte after it was taken back");
        assert_eq!(pair.two.nic.counters().reads_withdrawn, u64::from(taken));
    }
}
