//! The packets and the curves that a person looks at to believe a verdict.

use crate::finding::Finding;

/// The number of packets at each end of an excerpt.
const STEPS_EACH: usize = 7;
/// The number of points of a curve.
const POINTS_MAX: usize = 80;

/// A packet of an excerpt.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Step {
    /// The number of the packet in the file.
    pub packet: u32,
    /// Time since the previous packet of the excerpt, milliseconds.
    pub after_ms: f64,
    /// The end that sent it: 0 the client, 1 the server.
    pub from: usize,
    /// Its contents, in a few words.
    pub what: String,
    /// Why the time before it is long, if it is.
    pub wait: Option<String>,
}

/// The curves of a time-sequence graph: seconds since the first packet, and bytes.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// The highest byte that was sent.
    pub sent: Vec<(f64, f64)>,
    /// The highest byte that was acknowledged.
    pub acknowledged: Vec<(f64, f64)>,
    /// The right edge of the window.
    pub window: Vec<(f64, f64)>,
    /// Bytes in flight, as the sender sees them.
    pub in_flight: Vec<(f64, f64)>,
    /// The size of the window.
    pub window_size: Vec<(f64, f64)>,
}

/// Returns the packets around the first evidence of a finding, of `count` packets, or the first packets.
/// `place` returns the number, the time and the end of one, and `words` its contents.
pub(crate) fn excerpt(
    count: usize,
    place: impl Fn(usize) -> (u32, u64, usize),
    finding: Option<&Finding>,
    wait_min: u64,
    words: impl Fn(usize) -> String,
) -> Vec<Step> {
    let index = |number: &u32| (0..count).find(|at| place(*at).0 == *number);
    let evidence = finding.and_then(|finding| finding.evidence.iter().find(|piece| piece.lost_ms > 0.0));
    let evidence = evidence.or_else(|| finding.and_then(|finding| finding.evidence.first()));
    let shown: Vec<usize> = evidence.iter().flat_map(|piece| &piece.packets).filter_map(index).collect();
    let longest = evidence.map_or(0, |piece| (piece.lost_ms * 1e6) as u64);
    let from = shown.iter().min().copied().unwrap_or(0).saturating_sub(1);
    let to = shown.iter().max().map_or(2 * STEPS_EACH, |last| last + 2).min(count);
    let mut steps: Vec<Step> = Vec::new();
    for at in from..to {
        let is_left_out = at >= from + STEPS_EACH && at + STEPS_EACH < to;
        if is_left_out {
            continue;
        }
        let (packet, when, end) = place(at);
        let skipped = at == to - STEPS_EACH.min(to) && to - from > 2 * STEPS_EACH;
        let before = if skipped { from + STEPS_EACH - 1 } else { at.saturating_sub(1) };
        let nanos = if steps.is_empty() { 0 } else { when - place(before).1 };
        // Other waits, such as the round trip, are not what the evidence shows.
        let is_shown = shown.contains(&at) && nanos >= longest / 2;
        let cause = finding.filter(|_| is_shown).map(|finding| finding.cause.words());
        let cause = if skipped { Some("") } else { cause };
        let wait = cause.filter(|_| nanos >= wait_min && !steps.is_empty()).map(|cause| match skipped {
            true => format!("{} packets not shown", to - from - 2 * STEPS_EACH),
            false => cause.to_owned(),
        });
        let after_ms = nanos as f64 / 1e6;
        steps.push(Step { packet, after_ms, from: end, what: words(at), wait });
    }
    steps
}

/// Keeps the points that a picture can show: those after the longest pauses, and some of the others.
pub(crate) fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let mut pauses: Vec<usize> = (1..points.len()).collect();
    pauses.sort_by(|one, other| {
        let pause = |at: &usize| points[*at].0 - points[at - 1].0;
        pause(other).total_cmp(&pause(one))
    });
    let long = pauses.iter().take(POINTS_MAX / 4).flat_map(|at| [at - 1, *at]);
    let even = (0..POINTS_MAX / 2).map(|part| part * (points.len() - 1) / (POINTS_MAX / 2 - 1));
    let mut kept: Vec<usize> = long.chain(even).collect();
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().map(|at| points[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_ends_and_its_longest_pause() {
        let points: Vec<(f64, f64)> =
            (0..10_000).map(|at| (f64::from(at) + if at > 5000 { 500.0 } else { 0.0 }, 0.0)).collect();
        let thinned = thin(points.clone());
        assert!(thinned.len() <= POINTS_MAX, "{}", thinned.len());
        assert_eq!((thinned.first(), thinned.last()), (points.first(), points.last()));
        assert!(thinned.contains(&points[5000]) && thinned.contains(&points[5001]));
    }
}
