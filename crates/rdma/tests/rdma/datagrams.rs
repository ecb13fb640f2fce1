//! Datagrams between two NICs. Headers are built and parsed by hand, octet by octet.

use crate::fixture::pair::{Landing, Memory, Pair, Side, TRAITS, attributes};
use crate::fixture::station::{Host, NOW};
use kiban_base::SimRng;
use kiban_rdma::iwarp::mpa;
use kiban_rdma::nic::OpenError;
use kiban_rdma::rnic::{
    Access, Completion, Data, DatagramState, Event, GRH_BYTES, Kind, Notify, Operation, Outgoing,
    QpAttributes, QpState, ReceiveWork, RequestError, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::wire::datagram::Header;
use std::collections::VecDeque;

const QKEY: u32 = 0x1111_2222;
const GRH: [u8; GRH_BYTES] = [0x6e; GRH_BYTES];
const ONE: u32 = 0x01_0001;
const TWO: u32 = 0xff_fff2;

fn gid(n: u8) -> [u8; 16] {
    [n; 16]
}

/// Builds the 20 octets of a header.
fn front(flags: u8, destination: u32, source: u32, qkey: u32, immediate: u32) -> Vec<u8> {
    let mut bytes = vec![b'K', b'U', b'D', 0x10 | flags];
    for word in [destination, source, qkey, immediate] {
        bytes.extend(word.to_be_bytes());
    }
    bytes
}

fn to(qp: u32) -> Operation {
    Operation::Datagram { gid: gid(9), qp, qkey: QKEY, immediate: None }
}

/// Creates a side with a datagram queue pair that receives and sends.
fn side(seed: u64, name: u32) -> Side {
    with(seed, name, |_, attributes| attributes)
}

fn with(seed: u64, name: u32, change: impl Fn(&mut Side, QpAttributes) -> QpAttributes) -> Side {
    let mut side = Side::new(seed, 1458);
    let attributes = attributes(side.pd, side.cq);
    let attributes = change(&mut side, attributes);
    side.qp = side.nic.create_datagram_qp(attributes).expect("room");
    side.nic.set_qpn(side.qp, name).expect("there");
    side.nic.set_datagram_state(side.qp, true, true, QKEY).expect("there");
    side
}

fn next(side: &mut Side) -> Option<(Vec<u8>, Outgoing)> {
    let mut room = vec![0xa5; 7];
    side.nic.next_datagram(&mut room).map(|outgoing| (room, outgoing))
}

/// Delivers a datagram unchanged.
fn arrive(side: &mut Side, bytes: &[u8]) {
    let (header, used) = Header::read(bytes).expect("a datagram");
    side.nic.datagram(side.qp, &GRH, &header, &bytes[used..]);
}

fn only(side: &mut Side) -> Completion {
    let mut done = side.completions();
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|done| (done.id, done.status)).collect()
}

fn post(side: &mut Side, id: u64, operation: Operation, data: Data) -> Result<(), RequestError> {
    side.nic.post_send(side.qp, SendWork::new(id, operation, data))
}

#[test]
fn datagrams_go_both_ways_with_and_without_immediate_data() {
    let (mut one, mut two) = (side(1, ONE), side(2, TWO));
    one_way((&mut one, ONE), (&mut two, TWO));
    one_way((&mut two, TWO), (&mut one, ONE));
    assert!(next(&mut one).is_none() && next(&mut two).is_none());
}

fn one_way((from, source): (&mut Side, u32), (into, destination): (&mut Side, u32)) {
    let rows = [(None, false, 0u8), (None, true, 1), (Some(0), false, 2), (Some(0xfeed_0001), true, 3)];
    let memory = from.pattern(4096, Access::NONE);
    for (immediate, solicited, flags) in rows {
        for length in [0u32, 1, 1000, 4096] {
            let inbox = into.memory(5000, Access::LOCAL);
            into.nic.arm(into.cq, Notify::Solicited).expect("there");
            into.receive(2, &[inbox.sge(0, 50), inbox.sge(100, 4086)]);
            let operation = Operation::Datagram { gid: gid(9), qp: destination, qkey: QKEY, immediate };
            let half = length / 2;
            let halves = [memory.sge(0, half), memory.sge(u64::from(half), length - half)];
            let work = SendWork::new(1, operation, Data::Elements(halves.into_iter().collect()));
            from.nic.post_send(from.qp, SendWork { solicited, ..work }).expect("it sends");
            let (bytes, outgoing) = next(from).expect("one");
            let (header, _) = Header::read(&bytes).expect("a datagram");
            assert_eq!(outgoing, Outgoing { from: from.qp, gid: gid(9), header });
            let payload = &memory.bytes()[..length as usize];
            let words = front(flags, destination, source, QKEY, immediate.unwrap_or(0));
            assert!(bytes == [&words, payload].concat(), "{immediate:?}, {length} bytes");
            assert_eq!(only(from), due(1, Status::Success, Kind::Send, source));
            arrive(into, &bytes);
            let expected = Completion {
                bytes: 40 + length,
                immediate: immediate.map(u64::from),
                source: Some(source),
                ..due(2, Status::Success, Kind::Receive, destination)
            };
            assert_eq!(only(into), expected);
            assert_eq!(into.nic.cq_event().is_some(), solicited);
            let here = inbox.bytes();
            let message = [&GRH[..], payload].concat();
            let (first, second) = message.split_at(message.len().min(50));
            assert!(here[..first.len()] == *first && here[100..100 + second.len()] == *second);
        }
    }
}

#[test]
fn inline_data_is_copied_at_posting_and_unsignalled_success_is_not_reported() {
    let mut one = side(1, ONE);
    let work = SendWork::new(1, to(TWO), Data::Inline((0..100).collect()));
    one.nic.post_send(one.qp, SendWork { signalled: false, ..work }).expect("it sends");
    let (bytes, _) = next(&mut one).expect("one");
    assert_eq!(bytes[20..], (0..100).collect::<Vec<u8>>());
    assert_eq!(statuses(&mut one), []);
    let too_much = Data::Inline(std::iter::repeat_n(0, 257).collect());
    assert_eq!(post(&mut one, 2, to(TWO), too_much), Err(RequestError::TooMuchInline));
}

#[test]
fn a_privileged_qkey_stands_for_the_senders_own() {
    let mut one = side(1, ONE);
    for (given, sent) in [(5, 5), (0x8000_0000, QKEY), (u32::MAX, QKEY), (0x7fff_ffff, 0x7fff_ffff)] {
        let operation = Operation::Datagram { gid: gid(1), qp: TWO, qkey: given, immediate: None };
        post(&mut one, 1, operation, Data::none()).expect("it sends");
        let (bytes, _) = next(&mut one).expect("one");
        assert_eq!(bytes, front(0, TWO, ONE, sent, 0));
    }
    // The Q_Key in effect at the time of sending is used.
    let operation = Operation::Datagram { gid: gid(1), qp: TWO, qkey: 1 << 31, immediate: None };
    post(&mut one, 1, operation, Data::none()).expect("it sends");
    one.nic.set_datagram_state(one.qp, true, true, 77).expect("there");
    assert_eq!(next(&mut one).expect("one").0, front(0, TWO, ONE, 77, 0));
}

#[test]
fn a_rejected_datagram_is_counted_and_keeps_the_receive() {
    for shared in [false, true] {
        let mut srq = 0;
        let mut two = Side::new(2, 1458);
        if shared {
            srq = two.nic.create_srq(two.pd, 4, 1).expect("room");
        }
        let attributes = QpAttributes { srq: shared.then_some(srq), ..attributes(two.pd, two.cq) };
        two.qp = two.nic.create_datagram_qp(attributes).expect("room");
        two.nic.set_qpn(two.qp, TWO).expect("24 bits");
        let inbox = two.memory(100, Access::LOCAL);
        let words = |qkey| front(0, TWO, ONE, qkey, 0);
        let with_bytes = |count: usize| [words(QKEY), vec![7; count]].concat();
        let unready = |side: &Side| side.nic.counters().datagrams_unready;
        // The queue pair does not receive, does not receive yet, does not exist, or is for streams.
        two.nic.set_datagram_state(two.qp, false, true, QKEY).expect("there");
        arrive(&mut two, &with_bytes(1));
        two.nic.set_datagram_state(two.qp, true, false, QKEY).expect("there");
        let (header, _) = Header::read(&words(QKEY)).expect("a datagram");
        two.nic.datagram(two.qp ^ 0xffff, &GRH, &header, &[]);
        let stream = two.nic.create_qp(crate::fixture::pair::attributes(two.pd, two.cq)).expect("room");
        two.nic.connect(stream, TRAITS).expect("idle");
        two.nic.datagram(stream, &GRH, &header, &[]);
        assert_eq!(unready(&two), 3);
        arrive(&mut two, &with_bytes(1));
        assert_eq!(two.nic.counters().datagrams_without_receive, 1);
        let work = ReceiveWork { id: 5, sges: [inbox.sge(0, 60)].into_iter().collect() };
        if shared {
            two.nic.post_srq_receive(srq, work).expect("room");
        } else {
            two.nic.post_receive(two.qp, work).expect("room");
        }
        for qkey in [0, QKEY ^ 1, QKEY | 1 << 31] {
            arrive(&mut two, &words(qkey));
        }
        assert_eq!(two.nic.counters().bad_qkey, 3);
        arrive(&mut two, &with_bytes(21));
        assert_eq!(two.nic.counters().datagrams_too_long, 1);
        assert_eq!(statuses(&mut two), []);
        assert_eq!(two.nic.event(), None);
        assert_eq!(inbox.bytes(), [0; 100], "nothing of it is placed");
        arrive(&mut two, &with_bytes(20));
        assert_eq!(statuses(&mut two), [(5, Status::Success)]);
        assert_eq!(inbox.bytes(), [&GRH[..], &[7; 20], &[0; 40]].concat());
        assert_eq!(two.nic.event(), shared.then_some(Event::SrqLimit { srq }));
        assert_eq!(two.nic.counters().datagrams_in, 1);
        assert_eq!(two.nic.query_qp(two.qp).expect("there").1, QpState::Idle, "it goes on");
    }
}

#[test]
fn an_invalid_send_stops_sending_but_not_receiving() {
    let unregistered = Data::one(Sge { stag: 1, address: 0, length: 1 });
    for (wrong, status) in [(unregistered, Status::LocalProtection), (Data::none(), Status::LocalLength)] {
        let mut one = side(1, ONE);
        let memory = one.pattern(4097, Access::LOCAL);
        let wrong = if status == Status::LocalLength { Data::one(memory.sge(0, 4097)) } else { wrong };
        one.receive(9, &[memory.sge(0, 100)]);
        post(&mut one, 1, to(TWO), Data::none()).expect("it sends");
        post(&mut one, 2, to(TWO), wrong).expect("judged when its turn comes");
        post(&mut one, 3, to(TWO), Data::none()).expect("it sends");
        assert!(next(&mut one).is_some());
        assert_eq!(next(&mut one), None);
        assert_eq!(statuses(&mut one), [(1, Status::Success), (2, status), (3, Status::Flushed)]);
        let state = DatagramState { receives: true, sends: true, stopped: true, qkey: QKEY };
        assert_eq!(one.nic.datagram_state(one.qp), Ok(state));
        assert_eq!(one.nic.event(), None, "the completion says it");
        post(&mut one, 4, to(TWO), Data::none()).expect("flushed");
        assert_eq!(statuses(&mut one), [(4, Status::Flushed)]);
        arrive(&mut one, &front(0, ONE, TWO, QKEY, 0));
        assert_eq!(statuses(&mut one), [(9, Status::Success)]);
        one.nic.set_datagram_state(one.qp, true, true, QKEY).expect("there");
        post(&mut one, 5, to(TWO), Data::none()).expect("it sends again");
        assert!(next(&mut one).is_some());
        assert_eq!(statuses(&mut one), [(5, Status::Success)]);
    }
}

#[test]
fn memory_deregistered_before_its_datagram_leaves_is_not_read() {
    let mut one = side(1, ONE);
    let memory = one.pattern(100, Access::LOCAL);
    post(&mut one, 1, to(TWO), Data::one(memory.sge(0, 100))).expect("it sends");
    one.nic.deregister(memory.stag).expect("registered");
    assert_eq!(next(&mut one), None);
    assert_eq!(statuses(&mut one), [(1, Status::LocalProtection)]);
}

#[test]
fn a_receive_with_invalid_memory_ends_the_queue_pair() {
    for shared in [false, true] {
        let mut srq = 0;
        let mut two = Side::new(2, 1458);
        if shared {
            srq = two.nic.create_srq(two.pd, 4, 0).expect("room");
        }
        let attributes = QpAttributes { srq: shared.then_some(srq), ..attributes(two.pd, two.cq) };
        two.qp = two.nic.create_datagram_qp(attributes).expect("room");
        two.nic.set_qpn(two.qp, TWO).expect("24 bits");
        two.nic.set_datagram_state(two.qp, true, true, QKEY).expect("there");
        let constant = two.memory(100, Access::NONE);
        for id in [5, 6] {
            let work = ReceiveWork { id, sges: [constant.sge(0, 60)].into_iter().collect() };
            if shared {
                two.nic.post_srq_receive(srq, work).expect("room");
            } else {
                two.nic.post_receive(two.qp, work).expect("room");
            }
        }
        post(&mut two, 1, to(ONE), Data::none()).expect("it sends");
        arrive(&mut two, &front(0, TWO, ONE, QKEY, 0));
        let mut events = vec![(5, Status::LocalProtection), (1, Status::Flushed)];
        events.extend((!shared).then_some((6, Status::Flushed)));
        assert_eq!(statuses(&mut two), events);
        assert_eq!(constant.bytes(), [0; 100]);
        assert_eq!(two.nic.event(), Some(Event::QpFailed { qp: two.qp, reason: None }));
        assert_eq!(two.nic.event(), shared.then_some(Event::LastReceive { qp: two.qp }));
        assert_eq!(two.nic.query_qp(two.qp).expect("there").1, QpState::Error);
        assert_eq!(next(&mut two), None);
        let refused = two.nic.set_datagram_state(two.qp, true, true, QKEY);
        assert_eq!(refused, Err(RequestError::BadState(QpState::Error)));
        // In error, everything is flushed and nothing is accepted. A reset restores the initial state, but
        // keeps the queue pair's number and kind.
        post(&mut two, 2, to(ONE), Data::none()).expect("flushed");
        assert_eq!(statuses(&mut two), [(2, Status::Flushed)]);
        arrive(&mut two, &front(0, TWO, ONE, QKEY, 0));
        assert_eq!(two.nic.counters().datagrams_unready, 1);
        two.nic.reset(two.qp).expect("over");
        assert_eq!(two.nic.datagram_state(two.qp), Ok(DatagramState::default()));
        two.nic.set_datagram_state(two.qp, true, true, QKEY).expect("as new");
        post(&mut two, 3, to(ONE), Data::none()).expect("it sends");
        assert_eq!(next(&mut two).expect("one").0, front(0, ONE, TWO, QKEY, 0));
    }
}

#[test]
fn abort_flushes_in_order_and_reset_and_destroy_discard() {
    let mut one = side(1, ONE);
    for id in 1..=3 {
        post(&mut one, id, to(TWO), Data::none()).expect("it sends");
        one.receive(10 + id, &[]);
    }
    one.nic.abort(one.qp).expect("there");
    let expected: Vec<_> = (1..=3).chain(11..=13).map(|id| (id, Status::Flushed)).collect();
    assert_eq!(statuses(&mut one), expected);
    assert_eq!(next(&mut one), None);
    one.nic.reset(one.qp).expect("over");
    one.nic.set_datagram_state(one.qp, true, true, QKEY).expect("as new");
    post(&mut one, 4, to(TWO), Data::none()).expect("it sends");
    one.nic.reset(one.qp).expect("idle");
    assert_eq!((next(&mut one), statuses(&mut one)), (None, vec![]));
    one.nic.set_datagram_state(one.qp, true, true, QKEY).expect("as new");
    post(&mut one, 5, to(TWO), Data::none()).expect("it sends");
    one.nic.destroy_qp(one.qp).expect("there");
    assert_eq!((next(&mut one), statuses(&mut one)), (None, vec![]));
    one.nic.destroy_cq(one.cq).expect_err("the other queue pair of the side uses it");
}

#[test]
fn the_state_decides_when_work_is_accepted_and_sent() {
    let mut one = Side::new(1, 1458);
    one.qp = one.nic.create_datagram_qp(attributes(one.pd, one.cq)).expect("room");
    let inbox = one.memory(100, Access::LOCAL);
    // Receives may be posted at once.
    one.receive(9, &[inbox.sge(0, 100)]);
    let idle = Err(RequestError::BadState(QpState::Idle));
    assert_eq!(post(&mut one, 1, to(TWO), Data::none()), idle);
    one.nic.set_qpn(one.qp, 1 << 24).expect_err("24 bits");
    one.nic.set_qpn(one.qp, ONE).expect("24 bits");
    one.nic.set_datagram_state(one.qp, true, false, QKEY).expect("there");
    assert_eq!(post(&mut one, 1, to(TWO), Data::none()), idle);
    one.nic.set_datagram_state(one.qp, true, true, QKEY).expect("there");
    assert_eq!(post(&mut one, 1, to(1 << 24), Data::none()), Err(RequestError::BadNumber));
    post(&mut one, 1, to(TWO), Data::none()).expect("it sends");
    // Posted work waits while sending is disabled.
    one.nic.set_datagram_state(one.qp, true, false, QKEY).expect("there");
    assert_eq!((next(&mut one), statuses(&mut one)), (None, vec![]));
    one.nic.set_datagram_state(one.qp, true, true, QKEY).expect("there");
    assert!(next(&mut one).is_some());
    assert_eq!(statuses(&mut one), [(1, Status::Success)]);
    for id in 0..64 {
        post(&mut one, id, to(TWO), Data::none()).expect("room");
    }
    assert_eq!(post(&mut one, 64, to(TWO), Data::none()), Err(RequestError::Full));
}

#[test]
fn a_queue_pair_carries_datagrams_or_a_stream_not_both() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let one = &mut pair.one;
    assert_eq!(post(one, 1, to(TWO), Data::none()), Err(RequestError::OtherKind));
    assert_eq!(one.nic.set_datagram_state(one.qp, true, true, 1), Err(RequestError::OtherKind));
    assert_eq!(one.nic.datagram_state(one.qp), Err(RequestError::OtherKind));
    assert_eq!(one.nic.datagram_state(one.qp ^ 0xffff), Err(RequestError::UnknownQp));
    let mut one = side(1, ONE);
    let nowhere = TaggedAddress { stag: 1, offset: 0 };
    for operation in [
        Operation::SEND,
        Operation::SendImmediate { data: 1 },
        Operation::Immediate { data: 1 },
        Operation::write(nowhere),
        Operation::read(nowhere),
        Operation::LocalInvalidate { stag: 1 },
        Operation::Bind { window: 1, binding: None },
    ] {
        assert_eq!(post(&mut one, 1, operation, Data::none()), Err(RequestError::OtherKind));
    }
    assert_eq!(one.nic.connect(one.qp, TRAITS), Err(RequestError::OtherKind));
    assert_eq!(one.nic.expect_stream(one.qp, TRAITS), Err(RequestError::OtherKind));
    assert_eq!(one.nic.disconnect(one.qp), Err(RequestError::BadState(QpState::Idle)));
    assert_eq!(one.nic.give_up(one.qp), Err(RequestError::BadState(QpState::Idle)));
    let segment = crate::fixture::stand::send(true, 1, 0, 0);
    assert!(one.nic.validate(one.qp, &segment, segment.len()).is_err(), "it has no stream");
    assert_eq!(one.nic.query_qp(one.qp).expect("there").1, QpState::Idle);
    // The connection manager rejects datagram queue pairs.
    let config = mpa::Config::default();
    let mut host = Host::initiator(1, &config, (4, 4), b"");
    let qp = host.nic.core.create_datagram_qp(attributes(host.pd, host.cq)).expect("room");
    assert_eq!(host.nic.open(&config, qp, (4, 4), b"", NOW), Err(OpenError::InUse));
}

#[test]
fn queue_pairs_take_turns() {
    let mut one = side(1, 1);
    let other = one.nic.create_datagram_qp(attributes(one.pd, one.cq)).expect("room");
    one.nic.set_qpn(other, 2).expect("24 bits");
    one.nic.set_datagram_state(other, false, true, QKEY).expect("there");
    for id in 0..3 {
        post(&mut one, id, to(TWO), Data::none()).expect("it sends");
    }
    for id in 10..13 {
        one.nic.post_send(other, SendWork::new(id, to(TWO), Data::none())).expect("it sends");
    }
    while next(&mut one).is_some() {}
    let events: Vec<u64> = one.completions().iter().map(|done| done.id).collect();
    assert_eq!(events, [0, 10, 1, 11, 2, 12]);
}

#[test]
fn a_completion_queue_overrun_fails_its_queue_pairs() {
    let mut one = with(1, ONE, |side, attributes| {
        let cq = side.nic.create_cq(1).expect("room");
        side.cq = cq;
        QpAttributes { send_cq: cq, receive_cq: cq, ..attributes }
    });
    for id in 0..3 {
        post(&mut one, id, to(TWO), Data::none()).expect("it sends");
    }
    assert!(next(&mut one).is_some() && next(&mut one).is_some());
    assert_eq!(one.nic.event(), Some(Event::CqOverrun { cq: one.cq }));
    assert_eq!(one.nic.event(), Some(Event::QpFailed { qp: one.qp, reason: None }));
    assert_eq!(next(&mut one), None);
    assert_eq!(statuses(&mut one), [(0, Status::Success)], "what was in it stays");
}

// ---- worlds

const AREA: usize = 300_000;

/// One RNIC core in a random simulation, and its expected state.
struct Half {
    side: Side,
    qps: [Model; 2],
    srq: u32,
    source: Memory,
    sink: Memory,
    sink_model: Vec<u8>,
    sink_used: usize,
    /// Expected completions.
    due: Vec<Completion>,
    next_id: u64,
}

struct Model {
    number: u32,
    name: u32,
    state: DatagramState,
    /// Each posted send with the expected bytes, or the expected error.
    sends: VecDeque<(SendWork, Result<Vec<u8>, Status>)>,
    /// The identifier and the buffer (ranges of the sink) of each posted receive.
    receives: VecDeque<(u64, Vec<(usize, usize)>)>,
}

fn due(id: u64, status: Status, kind: Kind, qp: u32) -> Completion {
    Completion { id, status, kind, bytes: 0, qp, immediate: None, invalidated: None, source: None }
}

impl Half {
    fn new(seed: u64) -> Half {
        let mut side = Side::new(seed, 1458);
        let srq = side.nic.create_srq(side.pd, 64, 0).expect("room");
        let qps = [None, Some(srq)].map(|srq| {
            let attributes = QpAttributes { srq, ..attributes(side.pd, side.cq) };
            let number = side.nic.create_datagram_qp(attributes).expect("room");
            let name = (seed as u32 & 0xff) << 16 | u32::from(srq.is_some());
            side.nic.set_qpn(number, name).expect("24 bits");
            let state = DatagramState::default();
            Model { number, name, state, sends: VecDeque::new(), receives: VecDeque::new() }
        });
        let source = side.pattern(5000, Access::NONE);
        let sink = side.memory(AREA, Access::LOCAL);
        let sink_model = vec![0; AREA];
        Half { side, qps, srq, source, sink, sink_model, sink_used: 0, due: Vec::new(), next_id: 0 }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn set_state(&mut self, rng: &mut SimRng) {
        let qp = &mut self.qps[rng.below(2) as usize];
        let state = DatagramState {
            receives: rng.happens(0.9),
            sends: rng.happens(0.9),
            stopped: false,
            qkey: key(rng),
        };
        self.side
            .nic
            .set_datagram_state(qp.number, state.receives, state.sends, state.qkey)
            .expect("it is not over");
        qp.state = state;
    }

    /// Aborts and resets a queue pair: all its work is flushed.
    fn end(&mut self, rng: &mut SimRng) {
        let at = rng.below(2) as usize;
        let qp = &mut self.qps[at];
        self.side.nic.abort(qp.number).expect("there");
        let flushed = |id, kind| due(id, Status::Flushed, kind, qp.name);
        self.due.extend(qp.sends.drain(..).map(|(work, _)| flushed(work.id, Kind::Send)));
        // Receives of the shared queue belong to no queue pair and are not flushed.
        if at == 0 {
            self.due.extend(qp.receives.drain(..).map(|(id, _)| flushed(id, Kind::Receive)));
        }
        self.side.nic.reset(qp.number).expect("over");
        qp.state = DatagramState { receives: true, sends: true, stopped: false, qkey: 40 };
        self.side.nic.set_datagram_state(qp.number, true, true, 40).expect("as new");
    }

    fn post_receive(&mut self, rng: &mut SimRng) {
        // A receive that is too short for every datagram blocks the receives after it until all are flushed.
        let room = if rng.happens(0.05) { 39 } else { [60, 500, 4136, 5000][rng.below(4) as usize] };
        if self.sink_used + room > AREA {
            return;
        }
        let (mut places, mut left) = (Vec::new(), room);
        for _ in 0..rng.below(3) {
            let part = rng.below(left as u64 + 1) as usize;
            places.push((self.sink_used + room - left, part));
            left -= part;
        }
        places.push((self.sink_used + room - left, left));
        self.sink_used += room;
        let sges = places.iter().map(|&(at, length)| self.sink.sge(at as u64, length as u32)).collect();
        let id = self.id();
        let shared = rng.happens(0.5);
        let qp = &mut self.qps[usize::from(shared)];
        let work = ReceiveWork { id, sges };
        if qp.receives.len() >= 64 {
            return;
        }
        if shared {
            self.side.nic.post_srq_receive(self.srq, work).expect("room");
        } else {
            self.side.nic.post_receive(qp.number, work).expect("room");
        }
        qp.receives.push_back((id, places));
    }

    fn post_send(&mut self, peer: [u32; 2], rng: &mut SimRng) {
        let id = self.id();
        let all = self.source.bytes();
        let (data, bytes) = match rng.below(20) {
            0 => (Data::one(Sge { stag: 3, address: 0, length: 9 }), Err(Status::LocalProtection)),
            1 => (Data::one(self.source.sge(0, 4097)), Err(Status::LocalLength)),
            2..6 => {
                let length = rng.below(257) as usize;
                (Data::Inline(all[..length].iter().copied().collect()), Ok(all[..length].to_vec()))
            }
            _ => {
                let length = [10, 10, 400, 4096][rng.below(4) as usize];
                let (mut sges, mut bytes) = (Vec::new(), Vec::new());
                for _ in 0..rng.below(4) {
                    let part = rng.below((length - bytes.len()) as u64 + 1) as usize;
                    let at = rng.below((all.len() - part + 1) as u64) as usize;
                    sges.push(self.source.sge(at as u64, part as u32));
                    bytes.extend_from_slice(&all[at..at + part]);
                }
                (Data::Elements(sges.into_iter().collect()), Ok(bytes))
            }
        };
        let operation = Operation::Datagram {
            gid: gid(rng.below(256) as u8),
            qp: peer[rng.below(2) as usize],
            qkey: if rng.happens(0.2) { 1 << 31 } else { key(rng) },
            immediate: rng.happens(0.4).then(|| rng.draw() as u32),
        };
        let (signalled, solicited) = (rng.happens(0.7), rng.happens(0.3));
        let work = SendWork { signalled, solicited, ..SendWork::new(id, operation, data) };
        let qp = &mut self.qps[rng.below(2) as usize];
        let posted = self.side.nic.post_send(qp.number, work.clone());
        if qp.sends.len() >= 64 {
            assert_eq!(posted, Err(RequestError::Full));
        } else if qp.state.stopped {
            assert_eq!(posted, Ok(()));
            self.due.push(due(id, Status::Flushed, Kind::Send, qp.name));
        } else if !qp.state.sends {
            assert_eq!(posted, Err(RequestError::BadState(QpState::Idle)));
        } else {
            assert_eq!(posted, Ok(()));
            qp.sends.push_back((work, bytes));
        }
    }

    /// Sends datagrams and compares them with the model. The order between queue pairs is not specified.
    fn make(&mut self, air: &mut Vec<Vec<u8>>, most: u64) {
        for _ in 0..most {
            let made = next(&mut self.side);
            // Invalid work has stopped its queue.
            let events = self.side.completions();
            for qp in &mut self.qps {
                let its = |done: &&Completion| done.qp == qp.name && done.kind == Kind::Send;
                let wrong = events
                    .iter()
                    .filter(its)
                    .find(|done| matches!(done.status, Status::LocalProtection | Status::LocalLength));
                let Some(wrong) = wrong else { continue };
                let (work, bytes) = qp.sends.pop_front().expect("posted");
                assert_eq!((work.id, bytes), (wrong.id, Err(wrong.status)));
                let rest = qp.sends.drain(..).map(|(work, _)| (work.id, Status::Flushed));
                let expected: Vec<_> = [(wrong.id, wrong.status)].into_iter().chain(rest).collect();
                let flushed: Vec<_> = events.iter().filter(its).map(|done| (done.id, done.status)).collect();
                assert_eq!(flushed, expected);
                qp.state.stopped = true;
            }
            let Some((bytes, outgoing)) = made else {
                let waits = self.qps.iter().any(|qp| leaves(&qp.state) && !qp.sends.is_empty());
                assert!(!waits, "it could have left");
                return;
            };
            let qp = self.qps.iter_mut().find(|qp| qp.number == outgoing.from).expect("one of them");
            assert!(leaves(&qp.state));
            let (work, payload) = qp.sends.pop_front().expect("posted");
            let Operation::Datagram { gid, qp: peer, qkey, immediate } = work.operation else { panic!() };
            let qkey = if qkey >> 31 == 1 { qp.state.qkey } else { qkey };
            let flags = u8::from(work.solicited) | u8::from(immediate.is_some()) << 1;
            let words = front(flags, peer, qp.name, qkey, immediate.unwrap_or(0));
            assert_eq!(outgoing.gid, gid);
            assert!(bytes == [words, payload.expect("nothing is wrong with it")].concat());
            let success: Vec<_> =
                events.iter().filter(|done| done.status == Status::Success).copied().collect();
            let expected = due(work.id, Status::Success, Kind::Send, qp.name);
            assert_eq!(success, if work.signalled { vec![expected] } else { vec![] });
            air.push(bytes);
        }
    }

    fn arrive(&mut self, bytes: &[u8]) {
        let (header, used) = Header::read(bytes).expect("a datagram");
        let payload = &bytes[used..];
        let Some(qp) = self.qps.iter_mut().find(|qp| qp.name == header.destination) else { return };
        self.side.nic.datagram(qp.number, &GRH, &header, payload);
        let needed = GRH.len() + payload.len();
        let fits = |receive: &(u64, Vec<(usize, usize)>)| {
            receive.1.iter().map(|&(_, length)| length).sum::<usize>() >= needed
        };
        if !qp.state.receives || qp.state.qkey != header.qkey || !qp.receives.front().is_some_and(fits) {
            return;
        }
        let (id, places) = qp.receives.pop_front().expect("one");
        let mut rest = &[&GRH[..], payload].concat()[..];
        for (at, length) in places {
            let (now, later) = rest.split_at(rest.len().min(length));
            self.sink_model[at..at + now.len()].copy_from_slice(now);
            rest = later;
        }
        self.due.push(Completion {
            bytes: needed as u32,
            immediate: header.immediate.map(u64::from),
            source: Some(header.source),
            ..due(id, Status::Success, Kind::Receive, qp.name)
        });
    }

    fn check(&mut self, name: &str) {
        assert_eq!(self.side.completions(), std::mem::take(&mut self.due), "{name}");
        assert_eq!(self.side.nic.event(), None, "{name}");
        for qp in &self.qps {
            assert_eq!(self.side.nic.datagram_state(qp.number), Ok(qp.state), "{name}");
        }
    }
}

/// Draws one of two Q_Keys.
fn key(rng: &mut SimRng) -> u32 {
    40 + u32::from(rng.happens(0.15))
}

fn leaves(state: &DatagramState) -> bool {
    state.sends && !state.stopped
}

/// Runs a world; returns the number of datagrams received.
fn world(seed: u64) -> u64 {
    let mut rng = SimRng::from_seed(seed);
    let mut halves = [Half::new(2 * seed + 1), Half::new(2 * seed + 2)];
    let name = format!("seed {seed}");
    let mut air: [Vec<Vec<u8>>; 2] = Default::default();
    for half in &mut halves {
        (0..2).for_each(|_| half.set_state(&mut rng));
    }
    for _ in 0..300 {
        let at = rng.below(2) as usize;
        let peer = [0, 1].map(|n: usize| halves[1 - at].qps[n].name);
        let half = &mut halves[at];
        match rng.below(20) {
            0 if rng.happens(0.3) => half.end(&mut rng),
            0 => half.set_state(&mut rng),
            1..6 => half.post_receive(&mut rng),
            6..12 => half.post_send(peer, &mut rng),
            12..16 => half.make(&mut air[at], 1 + rng.below(3)),
            _ => {
                // A datagram is reordered, lost or duplicated.
                let count = air[1 - at].len() as u64;
                if count > 0 {
                    let which = rng.below(count) as usize;
                    let bytes = air[1 - at][which].clone();
                    if !rng.happens(0.1) {
                        air[1 - at].swap_remove(which);
                    }
                    if !rng.happens(0.1) {
                        half.arrive(&bytes);
                    }
                }
            }
        }
        halves[at].check(&name);
    }
    for half in &halves {
        assert!(half.sink_used < AREA - 5000, "{name}: receives could be posted to the end");
        assert!(half.sink.bytes() == half.sink_model, "{name}: what was received");
    }
    halves.iter().map(|half| half.side.nic.counters().datagrams_in).sum()
}

#[test]
fn a_hundred_worlds_end_as_the_model_predicts() {
    let taken: u64 = (0..100).map(world).sum();
    assert!(taken > 500, "only {taken} datagrams were taken: the worlds show nothing");
}
