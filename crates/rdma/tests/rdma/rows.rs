//! Tables of segments that a peer must not send.

use crate::stand::{LANDINGS, Slot, Stand, at};
use kiban_rdma::rnic::{QpState, Status};
use kiban_rdma::wire::rdmap::Reason;

/// A test case: the segments that a peer sends, of which only the last is invalid; the expected Terminate
/// reason and counter; and the bytes that the earlier segments place.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) segments: fn(&Stand) -> Vec<Vec<u8>>,
    pub(crate) reason: Reason,
    pub(crate) counter: &'static str,
    pub(crate) placed: &'static [(Slot, u64, usize)],
    pub(crate) receive: Status,
}

pub(crate) const fn row(
    name: &'static str,
    segments: fn(&Stand) -> Vec<Vec<u8>>,
    reason: Reason,
    counter: &'static str,
) -> Row {
    Row { name, segments, reason, counter, placed: &[], receive: Status::Flushed }
}

pub(crate) fn check(rows: &[Row]) {
    for landing in LANDINGS {
        for row in rows {
            let mut stand = Stand::new(landing);
            stand.post_receives();
            stand.peer_reads();
            let segments = (row.segments)(&stand);
            let (wrong, good) = segments.split_last().expect("one at least");
            for segment in good {
                stand.inject(segment);
                assert_eq!(stand.state(), QpState::Rts, "{}: it goes wrong too early", row.name);
            }
            stand.inject(wrong);
            stand.assert_terminated(row.name, wrong, row.reason, row.counter, Some(row.receive));
            let placed: Vec<_> =
                row.placed.iter().map(|&(slot, offset, count)| (at(slot, offset), count)).collect();
            stand.assert_guard(&placed, row.name);
        }
    }
}
