//! Memory protection: every segment that violates a memory protection rule ends its stream with the
//! Terminate that the standards require, and changes no byte that it is not allowed to change.

use crate::fixture::rows::{Row, check, row};
use crate::fixture::stand::{
    LANDINGS, READ_REQUEST, READ_RESPONSE, SLOT, Slot, Stand, Un, WRITE, add_one, at, invalidate, read,
    read_to, tagged, untagged,
};
use kiban_rdma::rnic::{QpState, Status, TaggedAddress};
use kiban_rdma::wire::rdmap::Reason;

fn write(stag: u32, offset: u64, payload: usize) -> Vec<Vec<u8>> {
    vec![tagged(WRITE, true, stag, offset, payload)]
}

#[test]
fn a_write_changes_only_memory_it_may_access() {
    const OPEN: Slot = Slot::Open;
    check(&[
        row(
            "a tag that names nothing",
            |s| write(s.stag(OPEN) ^ 0x100, at(OPEN, 0), 8),
            Reason::TAGGED_STAG,
            "bad_stag",
        ),
        row("another key", |s| write(s.stag(OPEN) ^ 1, at(OPEN, 0), 8), Reason::TAGGED_STAG, "bad_stag"),
        row("tag zero", |_| write(0, at(OPEN, 0), 8), Reason::TAGGED_STAG, "bad_stag"),
        row("tag of all ones", |_| write(u32::MAX, at(OPEN, 0), 1), Reason::TAGGED_STAG, "bad_stag"),
        row(
            "deregistered",
            |s| write(s.stag(Slot::Deregistered), at(Slot::Deregistered, 0), 8),
            Reason::TAGGED_STAG,
            "bad_stag",
        ),
        row(
            "invalidated by its owner",
            |s| write(s.stag(Slot::Invalidated), at(Slot::Invalidated, 0), 8),
            Reason::TAGGED_STAG,
            "bad_stag",
        ),
        Row {
            receive: Status::Success,
            ..row(
                "invalidated by the peer itself",
                |s| {
                    let stag = s.stag(OPEN);
                    vec![invalidate(1, stag), tagged(WRITE, true, stag, at(OPEN, 0), 8)]
                },
                Reason::TAGGED_STAG,
                "bad_stag",
            )
        },
        row(
            "another domain's",
            |s| write(s.stag(Slot::Foreign), at(Slot::Foreign, 0), 8),
            Reason::TAGGED_STREAM,
            "bad_stream",
        ),
        row(
            "another queue pair's window",
            |s| write(s.others_window, at(Slot::Windowed, 0x40), 8),
            Reason::TAGGED_STREAM,
            "bad_stream",
        ),
        row(
            "beyond another queue pair's window",
            |s| write(s.others_window, at(Slot::Windowed, 0), 8),
            Reason::TAGGED_STREAM,
            "bad_stream",
        ),
        row(
            "before a window",
            |s| write(s.window, at(Slot::Windowed, 0x3f), 1),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row(
            "behind a window, still in its region",
            |s| write(s.window, at(Slot::Windowed, 0xbf), 2),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row(
            "the region behind a window",
            |s| write(s.stag(Slot::Windowed), at(Slot::Windowed, 0x40), 8),
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "for reading only",
            |s| write(s.stag(Slot::ReadOnly), at(Slot::ReadOnly, 0), 8),
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "for its owner only",
            |s| write(s.stag(Slot::Local), at(Slot::Local, 0), 8),
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "for nobody to write",
            |s| write(s.stag(Slot::Constant), at(Slot::Constant, 0), 8),
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "a byte before",
            |s| write(s.stag(OPEN), at(OPEN, 0) - 1, 1),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row(
            "from a byte before",
            |s| write(s.stag(OPEN), at(OPEN, 0) - 1, 16),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row("a byte behind", |s| write(s.stag(OPEN), at(OPEN, SLOT), 1), Reason::TAGGED_BOUNDS, "bad_bounds"),
        row(
            "to a byte behind",
            |s| write(s.stag(OPEN), at(OPEN, SLOT - 15), 16),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row(
            "all of it and a byte",
            |s| write(s.stag(OPEN), at(OPEN, 0), SLOT as usize + 1),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row("at zero", |s| write(s.stag(OPEN), 0, 8), Reason::TAGGED_BOUNDS, "bad_bounds"),
        row(
            "at the end of all",
            |s| write(s.stag(OPEN), u64::MAX - 8, 8),
            Reason::TAGGED_BOUNDS,
            "bad_bounds",
        ),
        row(
            "around the end of all",
            |s| write(s.stag(OPEN), u64::MAX - 3, 8),
            Reason::TAGGED_WRAP,
            "bad_wrap",
        ),
        row(
            "back into it around the end of all",
            |s| write(s.stag(OPEN), u64::MAX, 1400),
            Reason::TAGGED_WRAP,
            "bad_wrap",
        ),
        Row {
            placed: &[(OPEN, 0, 100)],
            ..row(
                "the second segment of a message goes astray",
                |s| {
                    let stag = s.stag(OPEN);
                    vec![
                        tagged(WRITE, false, stag, at(OPEN, 0), 100),
                        tagged(WRITE, true, stag, at(OPEN, SLOT - 8), 9),
                    ]
                },
                Reason::TAGGED_BOUNDS,
                "bad_bounds",
            )
        },
    ]);
}

#[test]
fn reads_need_remote_read_access() {
    const OPEN: Slot = Slot::Open;
    check(&[
        row(
            "no such tag",
            |s| vec![read(1, s.stag(OPEN) ^ 0x8000, at(OPEN, 0), 8)],
            Reason::REMOTE_STAG,
            "bad_stag",
        ),
        row(
            "deregistered",
            |s| vec![read(1, s.stag(Slot::Deregistered), at(Slot::Deregistered, 0), 8)],
            Reason::REMOTE_STAG,
            "bad_stag",
        ),
        row(
            "invalidated",
            |s| vec![read(1, s.stag(Slot::Invalidated), at(Slot::Invalidated, 0), 8)],
            Reason::REMOTE_STAG,
            "bad_stag",
        ),
        row(
            "another domain's",
            |s| vec![read(1, s.stag(Slot::Foreign), at(Slot::Foreign, 0), 8)],
            Reason::REMOTE_STREAM,
            "bad_stream",
        ),
        row(
            "another queue pair's window",
            |s| vec![read(1, s.others_window, at(Slot::Windowed, 0x40), 8)],
            Reason::REMOTE_STREAM,
            "bad_stream",
        ),
        row(
            "for writing only",
            |s| vec![read(1, s.stag(Slot::WriteOnly), at(Slot::WriteOnly, 0), 8)],
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "for its owner only",
            |s| vec![read(1, s.stag(Slot::Local), at(Slot::Local, 0), 8)],
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "a byte before",
            |s| vec![read(1, s.stag(OPEN), at(OPEN, 0) - 1, 2)],
            Reason::REMOTE_BOUNDS,
            "bad_bounds",
        ),
        row(
            "a byte behind",
            |s| vec![read(1, s.stag(OPEN), at(OPEN, 1), SLOT as u32)],
            Reason::REMOTE_BOUNDS,
            "bad_bounds",
        ),
        row(
            "four gigabytes",
            |s| vec![read(1, s.stag(OPEN), at(OPEN, 0), u32::MAX)],
            Reason::REMOTE_BOUNDS,
            "bad_bounds",
        ),
        row(
            "a source that wraps",
            |s| vec![read(1, s.stag(OPEN), u64::MAX - 3, 8)],
            Reason::REMOTE_WRAP,
            "bad_wrap",
        ),
        row(
            "a sink that wraps",
            |s| {
                let source = TaggedAddress { stag: s.stag(OPEN), offset: at(OPEN, 0) };
                vec![read_to(1, u64::MAX - 3, source, 8)]
            },
            Reason::REMOTE_WRAP,
            "bad_wrap",
        ),
        row(
            "number two is first",
            |s| vec![read(2, s.stag(OPEN), at(OPEN, 0), 8)],
            Reason::UNTAGGED_SEQUENCE,
            "bad_sequence",
        ),
        row(
            "number zero",
            |s| vec![read(0, s.stag(OPEN), at(OPEN, 0), 8)],
            Reason::UNTAGGED_SEQUENCE,
            "bad_sequence",
        ),
        row(
            "the same twice",
            |s| vec![read(1, s.stag(OPEN), at(OPEN, 0), 8), read(1, s.stag(OPEN), at(OPEN, 0), 8)],
            Reason::UNTAGGED_SEQUENCE,
            "bad_sequence",
        ),
        row(
            "more than agreed",
            |s| (1..=5).map(|msn| read(msn, s.stag(OPEN), at(OPEN, 0), 8)).collect(),
            Reason::UNTAGGED_NO_BUFFER,
            "no_buffer",
        ),
        row(
            "more than agreed, and without bytes",
            |_| (1..=5).map(|msn| read(msn, 0, 0, 0)).collect(),
            Reason::UNTAGGED_NO_BUFFER,
            "no_buffer",
        ),
        row(
            "a byte too short",
            |_| vec![untagged(READ_REQUEST, true, Un { queue: 1, msn: 1, ..Un::default() }, &[0; 27])],
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
        row(
            "a byte too long",
            |_| vec![untagged(READ_REQUEST, true, Un { queue: 1, msn: 1, ..Un::default() }, &[0; 29])],
            Reason::UNTAGGED_TOO_LONG,
            "too_long",
        ),
        row(
            "not from its beginning",
            |_| vec![untagged(READ_REQUEST, true, Un { queue: 1, msn: 1, mo: 4, ulp: 0 }, &[0; 28])],
            Reason::UNTAGGED_OFFSET,
            "bad_offset",
        ),
    ]);
}

#[test]
fn atomics_need_aligned_memory_with_atomic_access() {
    const OPEN: Slot = Slot::Open;
    check(&[
        row(
            "no such tag",
            |s| vec![add_one(1, s.stag(OPEN) ^ 0x100, at(OPEN, 0))],
            Reason::REMOTE_STAG,
            "bad_stag",
        ),
        row(
            "for reading only",
            |s| vec![add_one(1, s.stag(Slot::ReadOnly), at(Slot::ReadOnly, 0))],
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "for writing only",
            |s| vec![add_one(1, s.stag(Slot::WriteOnly), at(Slot::WriteOnly, 0))],
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "through a window that does not say so",
            |s| vec![add_one(1, s.window, at(Slot::Windowed, 0x40))],
            Reason::REMOTE_ACCESS,
            "bad_access",
        ),
        row(
            "another domain's",
            |s| vec![add_one(1, s.stag(Slot::Foreign), at(Slot::Foreign, 0))],
            Reason::REMOTE_STREAM,
            "bad_stream",
        ),
        row(
            "not aligned",
            |s| vec![add_one(1, s.stag(OPEN), at(OPEN, 4))],
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
        row(
            "eight bytes behind",
            |s| vec![add_one(1, s.stag(OPEN), at(OPEN, SLOT))],
            Reason::REMOTE_BOUNDS,
            "bad_bounds",
        ),
        row(
            "eight bytes before",
            |s| vec![add_one(1, s.stag(OPEN), at(OPEN, 0) - 8)],
            Reason::REMOTE_BOUNDS,
            "bad_bounds",
        ),
        row(
            "no operation that there is",
            |s| {
                let mut segment = add_one(1, s.stag(OPEN), at(OPEN, 0));
                segment[21] = 7;
                vec![segment]
            },
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
        row(
            "cut short",
            |s| {
                let mut segment = add_one(1, s.stag(OPEN), at(OPEN, 0));
                segment.pop();
                vec![segment]
            },
            Reason::OPERATION_STREAM,
            "bad_length",
        ),
    ]);
}

#[test]
fn peers_invalidate_only_what_they_may() {
    const REASON: Reason = Reason::REMOTE_NOT_INVALIDATED;
    check(&[
        row("no such tag", |s| vec![invalidate(1, s.stag(Slot::Open) ^ 0x100)], REASON, "bad_invalidate"),
        row("another key", |s| vec![invalidate(1, s.stag(Slot::Open) ^ 1)], REASON, "bad_invalidate"),
        row("zero", |_| vec![invalidate(1, 0)], REASON, "bad_invalidate"),
        row("another domain's", |s| vec![invalidate(1, s.stag(Slot::Foreign))], REASON, "bad_invalidate"),
        row("a window of the domain", |s| vec![invalidate(1, s.window)], REASON, "bad_invalidate"),
        row(
            "another queue pair's window",
            |s| vec![invalidate(1, s.others_window)],
            REASON,
            "bad_invalidate",
        ),
        row(
            "a region with windows",
            |s| vec![invalidate(1, s.stag(Slot::Windowed))],
            REASON,
            "bad_invalidate",
        ),
        Row {
            receive: Status::Success,
            ..row(
                "twice",
                |s| vec![invalidate(1, s.stag(Slot::Open)), invalidate(2, s.stag(Slot::Open))],
                REASON,
                "bad_invalidate",
            )
        },
    ]);
}

#[test]
fn zero_length_operations_do_not_check_the_tag() {
    for landing in LANDINGS {
        let mut stand = Stand::new(landing);
        for stag in [0, 0x1234_5678, stand.stag(Slot::Foreign), stand.stag(Slot::Deregistered)] {
            stand.inject(&tagged(WRITE, true, stag, u64::MAX, 0));
        }
        stand.inject(&read(1, 0xdead_beef, u64::MAX, 0));
        assert_eq!(stand.state(), QpState::Rts);
        stand.pair.two.make();
        // The response to the read is empty and contains the sink tag and offset from the request.
        assert_eq!(
            stand.pair.two.out.segments.pop_front(),
            Some(tagged(READ_RESPONSE, true, 0x77, 0x1000, 0))
        );
        stand.assert_guard(&[], "no bytes");
    }
}
