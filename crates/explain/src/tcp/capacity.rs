//! How much of the time a direction used all of its path.
//!
//! Purpose   tell a path that is full, whose losses cost nothing, from one whose losses keep it empty.
//! Method    bytes that arrived are counted, by acknowledgements and SACK, in intervals of two round trips.
//!           The rate that one interval in ten exceeded is the rate of the path; what the others lack was
//!           not used.
//! Limits    a sender whose window losses keep equally small all the time looks as if the path were full.

use super::timeline::Timeline;
use crate::figures::{MILLISECOND, percentile};

/// Fewer intervals show no steady rate.
const INTERVALS_MIN: u64 = 10;
/// The shortest interval: acknowledgements come in groups.
const INTERVAL_MIN: u64 = 50 * MILLISECOND;

/// The use of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) bits_per_second: f64,
    /// The share of what the path could have carried, percent.
    pub(crate) percent: f64,
}

/// Returns how much of the path a direction used; `None` if it was too short.
pub(crate) fn find(timeline: &Timeline) -> Option<Use> {
    let acks = &timeline.acks;
    let (begin, end) = (timeline.sends.first()?.at, acks.last()?.captured);
    let width = (2 * timeline.round_trip(50)).max(INTERVAL_MIN);
    let count = end.saturating_sub(begin) / width;
    // With fewer acknowledgements than intervals, a path is not full.
    if count < INTERVALS_MIN || count > acks.len() as u64 {
        return None;
    }
    // Between two acknowledgements, bytes arrived one after the other.
    let delivered = |at: u64| {
        let next = acks.partition_point(|ack| ack.captured <= at).clamp(1, acks.len() - 1);
        let (one, other) = (&acks[next - 1], &acks[next]);
        let share = at.saturating_sub(one.captured) as f64 / (other.captured - one.captured).max(1) as f64;
        one.delivered as f64 + (other.delivered - one.delivered) as f64 * share.min(1.0)
    };
    let of = |number: u64| delivered(begin + (number + 1) * width) - delivered(begin + number * width);
    let bytes: Vec<u64> = (0..count).map(|number| of(number).max(0.0) as u64).collect();
    let most = percentile(bytes.clone(), 90)?.max(1);
    let used: u64 = bytes.iter().map(|bytes| (*bytes).min(most)).sum();
    Some(Use {
        bits_per_second: most as f64 * 8e9 / width as f64,
        percent: used as f64 * 100.0 / (count * most) as f64,
    })
}
