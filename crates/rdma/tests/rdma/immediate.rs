//! Immediate data: with a Send between kiban peers, and after a Write.

use crate::fixture::pair::{Landing, Pair, Side, TRAITS};
use crate::fixture::stand::{LANDINGS, SEND, SEND_INVALIDATE, Slot, Stand, Un, untagged};
use kiban_rdma::rnic::{
    Access, Completion, Data, Event, Kind, Notify, Operation, QpState, RequestError, SendWork, Status,
    StreamTraits, TaggedAddress,
};
use kiban_rdma::wire::rdmap::Reason;

const SEND_IMMEDIATE: u8 = 0x4c;
const SEND_SOLICITED_IMMEDIATE: u8 = 0x4d;

fn own(segment_bytes: usize, landing: Landing) -> Pair {
    let mut pair = Pair::apart(segment_bytes, landing);
    for side in [&mut pair.one, &mut pair.two] {
        side.nic.set_peer_is_kiban(side.qp).expect("there");
        // The traits from the stream's setup do not override this declaration.
        side.nic.connect(side.qp, TRAITS).expect("idle");
        assert!(side.nic.query_qp(side.qp).expect("there").2.kiban);
    }
    pair
}

fn only(side: &mut Side) -> Completion {
    let mut done = side.completions();
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

#[test]
fn a_send_delivers_32_bits_of_immediate_data() {
    for landing in LANDINGS {
        for length in [0, 1, 100, 5000] {
            let mut pair = own(300, landing);
            let source = pair.one.pattern(5000, Access::LOCAL);
            let inbox = pair.two.memory(5000, Access::LOCAL);
            for (data, solicited) in [(0, false), (u32::MAX, true), (0x8000_0001, false)] {
                pair.two.nic.arm(pair.two.cq, Notify::Solicited).expect("there");
                pair.two.receive(2, &[inbox.sge(0, 5000)]);
                let operation = Operation::SendImmediate { data };
                let work = SendWork::new(1, operation, Data::one(source.sge(0, length)));
                pair.one.nic.post_send(pair.one.qp, SendWork { solicited, ..work }).expect("agreed");
                pair.run();
                let (sent, received) = (only(&mut pair.one), only(&mut pair.two));
                assert_eq!((sent.id, sent.status, sent.kind), (1, Status::Success, Kind::Send));
                assert_eq!(
                    (received.id, received.status, received.kind),
                    (2, Status::Success, Kind::Receive)
                );
                assert_eq!((received.bytes, received.immediate), (length, Some(u64::from(data))));
                assert_eq!(received.invalidated, None);
                assert_eq!(pair.two.nic.cq_event().is_some(), solicited);
            }
            assert_eq!(inbox.bytes()[..length as usize], source.bytes()[..length as usize]);
        }
    }
}

#[test]
fn send_immediate_data_uses_the_field_of_the_invalidated_stag() {
    let mut pair = own(1458, Landing::Whole);
    let inline = |bytes: &[u8]| Data::Inline(bytes.iter().copied().collect());
    pair.one.send(1, Operation::SendImmediate { data: 0x0102_0304 }, inline(b"abc"));
    let work = SendWork::new(2, Operation::SendImmediate { data: 5 }, inline(b""));
    pair.one.nic.post_send(pair.one.qp, SendWork { solicited: true, ..work }).expect("agreed");
    pair.one.make();
    let words = |ulp, msn| Un { ulp, msn, ..Un::default() };
    let expected = [
        untagged(SEND_IMMEDIATE, true, words(0x0102_0304, 1), b"abc"),
        untagged(SEND_SOLICITED_IMMEDIATE, true, words(5, 2), b""),
    ];
    assert_eq!(pair.one.out.segments, expected);
}

#[test]
fn send_immediate_data_needs_extensions_at_both_ends() {
    let mut pair = Pair::new(1458, Landing::Whole);
    let work = SendWork::new(1, Operation::SendImmediate { data: 1 }, Data::none());
    assert_eq!(pair.one.nic.post_send(pair.one.qp, work.clone()), Err(RequestError::NotAgreed));
    pair.one.nic.set_peer_is_kiban(pair.one.qp).expect("there");
    pair.one.nic.post_send(pair.one.qp, work.clone()).expect("agreed on this side");
    pair.two.receive(2, &[]);
    pair.run();
    assert_eq!(pair.two.nic.counters().bad_opcode, 1);
    assert_eq!(only(&mut pair.two).status, Status::Flushed);
    let events = Event::PeerTerminated { qp: pair.one.qp, reason: Reason::OPERATION_OPCODE };
    assert_eq!(pair.one.nic.event(), Some(events));
    // A reset clears the declaration.
    pair.one.completions();
    pair.one.nic.reset(pair.one.qp).expect("over");
    pair.one.nic.expect_stream(pair.one.qp, TRAITS).expect("as new");
    assert_eq!(pair.one.nic.post_send(pair.one.qp, work.clone()), Err(RequestError::NotAgreed));
    // The peer can also be declared a kiban NIC in advance, before a stream is expected.
    pair.one.nic.set_peer_is_kiban(pair.one.qp).expect("there");
    pair.one.nic.expect_stream(pair.one.qp, StreamTraits { extensions: false, ..TRAITS }).expect("idle");
    pair.one.nic.post_send(pair.one.qp, work).expect("expected");
    assert_eq!(pair.one.nic.set_peer_is_kiban(pair.one.qp ^ 0xffff), Err(RequestError::UnknownQp));
}

#[test]
fn all_segments_of_a_message_have_one_opcode() {
    for (first, then) in [(SEND_IMMEDIATE, SEND), (SEND, SEND_IMMEDIATE), (SEND_IMMEDIATE, SEND_INVALIDATE)] {
        for landing in LANDINGS {
            let mut stand = Stand::new(landing);
            let two = &mut stand.pair.two;
            two.nic.set_peer_is_kiban(two.qp).expect("there");
            stand.post_receives();
            stand.peer_reads();
            let words = Un { ulp: stand.stag(Slot::Open), msn: 1, ..Un::default() };
            stand.inject(&untagged(first, false, words, &[crate::fixture::stand::PAYLOAD; 8]));
            let wrong = untagged(then, true, Un { mo: 8, ..words }, &[1; 8]);
            stand.inject(&wrong);
            let status = Some(Status::Flushed);
            let name = format!("{first:#x}, then {then:#x}");
            stand.assert_terminated(&name, &wrong, Reason::OPERATION_OPCODE, "bad_opcode", status);
            stand.assert_guard(&[(crate::fixture::stand::at(Slot::Receive, 0), 8)], &name);
        }
    }
}

#[test]
fn a_write_delivers_64_bits_of_immediate_data_after_its_payload() {
    for landing in LANDINGS {
        for solicited in [false, true] {
            let mut pair = Pair::new(300, landing);
            let source = pair.one.pattern(5000, Access::LOCAL);
            let target = pair.two.memory(5000, Access::ALL);
            // Peers with a verbs interface fill the eight octets with the program's 32 bits and the length
            // of the Write.
            let data = 0xdead_beef_0000_0000 | 5000;
            let remote = TaggedAddress { stag: target.stag, offset: target.region.address() };
            let operation = Operation::Write { remote, immediate: Some(data) };
            let work = SendWork::new(1, operation, Data::one(source.sge(0, 5000)));
            pair.two.receive(2, &[]);
            pair.two.nic.arm(pair.two.cq, Notify::Solicited).expect("there");
            pair.one.nic.post_send(pair.one.qp, SendWork { solicited, ..work }).expect("agreed");
            pair.run();
            let (sent, events) = (only(&mut pair.one), only(&mut pair.two));
            assert_eq!((sent.id, sent.status, sent.kind), (1, Status::Success, Kind::Write));
            assert_eq!((events.id, events.status, events.kind), (2, Status::Success, Kind::ReceiveImmediate));
            assert_eq!((events.immediate, events.bytes), (Some(data), 0));
            assert_eq!(pair.two.nic.cq_event().is_some(), solicited);
            assert_eq!(target.bytes(), source.bytes());
            assert_eq!(pair.two.nic.query_qp(pair.two.qp).expect("there").1, QpState::Rts);
        }
    }
}
