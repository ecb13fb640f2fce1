//! Invalid messages: messages out of order or too long, unknown versions and operations, and Terminates.

use crate::fixture::rows::{Row, check, row};
use crate::fixture::stand::{
    ATOMIC_REQUEST, ATOMIC_RESPONSE, IMMEDIATE, LANDINGS, PAYLOAD, READ_REQUEST, READ_RESPONSE, SEND,
    SEND_INVALIDATE, Slot, Stand, TERMINATE, Un, WRITE, at, read, send, tagged, untagged,
};
use kiban_rdma::rnic::{Event, QpState, Status};
use kiban_rdma::wire::rdmap::Reason;

#[test]
fn messages_must_arrive_in_order_whole_and_within_their_buffers() {
    check(&[
        row("number two is first", |_| vec![send(true, 2, 0, 8)], Reason::UNTAGGED_SEQUENCE, "bad_sequence"),
        row("number zero", |_| vec![send(true, 0, 0, 8)], Reason::UNTAGGED_SEQUENCE, "bad_sequence"),
        row("not from its beginning", |_| vec![send(true, 1, 1, 8)], Reason::UNTAGGED_OFFSET, "bad_offset"),
        Row {
            placed: &[(Slot::Receive, 0, 8)],
            ..row(
                "a gap",
                |_| vec![send(false, 1, 0, 8), send(true, 1, 9, 8)],
                Reason::UNTAGGED_OFFSET,
                "bad_offset",
            )
        },
        Row {
            placed: &[(Slot::Receive, 0, 8)],
            ..row(
                "once more from its beginning",
                |_| vec![send(false, 1, 0, 8), send(false, 1, 0, 8)],
                Reason::UNTAGGED_OFFSET,
                "bad_offset",
            )
        },
        Row {
            placed: &[(Slot::Receive, 0, 8)],
            ..row(
                "the next before this one's end",
                |_| vec![send(false, 1, 0, 8), send(true, 2, 0, 8)],
                Reason::UNTAGGED_SEQUENCE,
                "bad_sequence",
            )
        },
        Row {
            placed: &[(Slot::Receive, 0, 8)],
            ..row(
                "another opcode in the middle",
                |s| {
                    let words = Un { ulp: s.stag(Slot::Open), queue: 0, msn: 1, mo: 8 };
                    vec![send(false, 1, 0, 8), untagged(SEND_INVALIDATE, true, words, &[0; 8])]
                },
                Reason::OPERATION_OPCODE,
                "bad_opcode",
            )
        },
        Row {
            receive: Status::LocalLength,
            ..row("a byte too long", |_| vec![send(true, 1, 0, 101)], Reason::UNTAGGED_TOO_LONG, "too_long")
        },
        Row {
            receive: Status::LocalLength,
            placed: &[(Slot::Receive, 0, 60), (Slot::Receive, 64, 40)],
            ..row(
                "a byte too long in its second segment",
                |_| vec![send(false, 1, 0, 100), send(true, 1, 100, 1)],
                Reason::UNTAGGED_TOO_LONG,
                "too_long",
            )
        },
        row(
            "immediate data of seven octets",
            |_| vec![untagged(IMMEDIATE, true, Un { msn: 1, ..Un::default() }, &[0; 7])],
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
        row(
            "immediate data of nine octets",
            |_| vec![untagged(IMMEDIATE, true, Un { msn: 1, ..Un::default() }, &[0; 9])],
            Reason::UNTAGGED_TOO_LONG,
            "too_long",
        ),
        row("a Send on the queue of reads", |_| queue(SEND, 1), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("a Send on the queue of last words", |_| queue(SEND, 2), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("a queue that there is not", |_| queue(SEND, 4), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("the last queue of all", |_| queue(SEND, u32::MAX), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("a read among the Sends", |_| queue(READ_REQUEST, 0), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("a last word among the Sends", |_| queue(TERMINATE, 0), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row("an atomic among the Sends", |_| queue(ATOMIC_REQUEST, 0), Reason::UNTAGGED_QUEUE, "bad_queue"),
        row(
            "an answer to no atomic",
            |_| vec![untagged(ATOMIC_RESPONSE, true, Un { queue: 3, msn: 1, ..Un::default() }, &[0; 12])],
            Reason::OPERATION_OPCODE,
            "bad_opcode",
        ),
        row(
            "an answer to no read",
            |s| vec![tagged(READ_RESPONSE, true, s.stag(Slot::Open), at(Slot::Open, 0), 8)],
            Reason::OPERATION_OPCODE,
            "bad_opcode",
        ),
        row(
            "a last word of three octets",
            |_| vec![untagged(TERMINATE, true, Un { queue: 2, msn: 1, ..Un::default() }, &[0; 3])],
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
    ]);
}

fn queue(octet: u8, queue: u32) -> Vec<Vec<u8>> {
    vec![untagged(octet, true, Un { queue, msn: 1, ..Un::default() }, &[0; 28])]
}

#[test]
fn other_ddp_and_rdmap_versions_are_rejected() {
    for landing in LANDINGS {
        for version in [0, 2, 3] {
            for (is_tagged, reason) in [(true, Reason::TAGGED_VERSION), (false, Reason::UNTAGGED_VERSION)] {
                let mut stand = Stand::new(landing);
                stand.post_receives();
                stand.peer_reads();
                let mut segment = if is_tagged {
                    tagged(WRITE, true, stand.stag(Slot::Open), at(Slot::Open, 0), 8)
                } else {
                    send(true, 1, 0, 8)
                };
                segment[0] = segment[0] & !3 | version;
                stand.inject(&segment);
                let name = format!("DDP version {version}");
                stand.assert_terminated(&name, &segment, reason, "bad_version", Some(Status::Flushed));
                stand.assert_guard(&[], &name);
            }
        }
    }
}

/// Returns the expected error for a segment whose ULP octet is `octet` (RFC 5040 §4.1, RFC 7306 §4), or
/// `None` if it is valid. The rest of the segment is taken from a Send or a Write.
fn verdict(octet: u8, is_tagged: bool, extensions: bool) -> Option<&'static [Reason]> {
    const OPCODE: &[Reason] = &[Reason::OPERATION_OPCODE];
    // For a known opcode on the wrong queue, both DDP and RDMAP define an error.
    const QUEUE: &[Reason] = &[Reason::UNTAGGED_QUEUE, Reason::OPERATION_OPCODE];
    if octet >> 6 != 1 {
        return Some(&[Reason::OPERATION_VERSION]);
    }
    match (octet & 15, is_tagged) {
        (8..=11, false) if !extensions => Some(OPCODE),
        (0, true) | (3 | 5, false) | (8 | 9, false) => None,
        (4 | 6, false) => Some(&[Reason::REMOTE_NOT_INVALIDATED]),
        (1 | 7 | 10 | 11, false) => Some(QUEUE),
        _ => Some(OPCODE),
    }
}

#[test]
fn every_rdmap_control_octet_has_its_verdict() {
    for extensions in [true, false] {
        for is_tagged in [true, false] {
            for octet in 0..=255u8 {
                let mut stand = Stand::new(LANDINGS[usize::from(octet) % LANDINGS.len()]);
                if !extensions {
                    stand.without_extensions();
                }
                stand.post_receives();
                let segment = if is_tagged {
                    tagged(octet, true, stand.stag(Slot::Open), at(Slot::Open, 0), 8)
                } else {
                    untagged(octet, true, Un { msn: 1, ..Un::default() }, &[PAYLOAD; 8])
                };
                stand.inject(&segment);
                let name = format!("octet {octet:#04x}, tagged: {is_tagged}, extensions: {extensions}");
                match (verdict(octet, is_tagged, extensions), stand.pair.two.nic.event()) {
                    (None, None) => {
                        let tells_only = octet & 15 >= 8;
                        let place = if is_tagged { at(Slot::Open, 0) } else { at(Slot::Receive, 0) };
                        stand.assert_guard(&[(place, if tells_only { 0 } else { 8 })], &name);
                        assert_eq!(stand.pair.two.completions().len(), usize::from(!is_tagged), "{name}");
                    }
                    (Some(reasons), Some(Event::QpFailed { reason: Some(reason), .. })) => {
                        assert!(reasons.contains(&reason), "{name}: {reason}");
                        // A Send whose invalidation fails has already been placed.
                        let placed = usize::from(reason == Reason::REMOTE_NOT_INVALIDATED) * 8;
                        stand.assert_guard(&[(at(Slot::Receive, 0), placed)], &name);
                    }
                    (expected, event) => panic!("{name}: {event:?}, not {expected:?}"),
                }
            }
        }
    }
}

#[test]
fn segments_shorter_than_their_headers_end_the_stream() {
    for landing in LANDINGS {
        for first in [0x81u8, 0xc1, 0x01, 0x41] {
            let header = if first & 0x80 != 0 { 14 } else { 18 };
            for length in 0..header {
                let mut stand = Stand::new(landing);
                stand.post_receives();
                stand.peer_reads();
                let mut segment = vec![0x40; length];
                segment.iter_mut().take(1).for_each(|octet| *octet = first);
                stand.inject(&segment);
                let name = format!("{length} octets");
                stand.assert_terminated(
                    &name,
                    &segment,
                    Reason::MPA_LENGTH,
                    "bad_length",
                    Some(Status::Flushed),
                );
                stand.assert_guard(&[], &name);
            }
        }
    }
}

#[test]
fn a_terminate_is_accepted_in_any_form_and_cut_anywhere() {
    let header = send(true, 1, 0, 0);
    let request = read(1, 1, 2, 3)[18..].to_vec();
    let attached = [&100u16.to_be_bytes()[..], &header, &request].concat();
    let rfc = [&[0x12, 0x03, 0xe0, 0x00][..], &attached].concat();
    let siw = [&[0x21, 0x03, 0x07, 0x00][..], &attached].concat();
    for landing in LANDINGS {
        for word in [&rfc, &siw] {
            for cut in 0..=word.len() {
                let mut stand = Stand::new(landing);
                stand.post_receives();
                stand.inject(&untagged(
                    TERMINATE,
                    true,
                    Un { queue: 2, msn: 1, ..Un::default() },
                    &word[..cut],
                ));
                let (qp, two) = (stand.pair.two.qp, &mut stand.pair.two);
                let expected = if cut < 4 {
                    Event::QpFailed { qp, reason: Some(Reason::OPERATION_STREAM) }
                } else {
                    Event::PeerTerminated { qp, reason: Reason::UNTAGGED_SEQUENCE }
                };
                assert_eq!(two.nic.event(), Some(expected), "{cut} octets");
                two.make();
                assert_eq!(two.out.segments.len(), usize::from(cut < 4), "{cut} octets");
                let done: Vec<_> = two.completions().iter().map(|done| (done.id, done.status)).collect();
                assert_eq!(done, [(20, Status::Flushed), (21, Status::Flushed)]);
                stand.assert_guard(&[], "a last word");
            }
        }
    }
}

#[test]
fn any_terminate_control_field_ends_the_stream_safely() {
    for [first, code, flags] in
        (0..=255u8).flat_map(|first| [[first, 0, 0], [first, 0xff, 0x80], [3, first, first]])
    {
        let mut stand = Stand::new(LANDINGS[0]);
        stand.peer_reads();
        stand.post_receives();
        let word = [first, code, flags, 0xff, 0xff, 0xff];
        stand.inject(&untagged(TERMINATE, true, Un { queue: 2, msn: 1, ..Un::default() }, &word));
        assert_eq!(stand.state(), QpState::Error);
        assert!(matches!(stand.pair.two.nic.event(), Some(Event::PeerTerminated { .. })));
        stand.pair.two.make();
        assert!(stand.pair.two.out.segments.is_empty());
        assert_eq!(stand.pair.two.completions().len(), 2);
    }
}
