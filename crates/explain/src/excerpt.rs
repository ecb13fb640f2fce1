//! The packets and the curves that a person looks at to believe a verdict.

use crate::finding::Finding;
use crate::tcp::connection::{Connection, Packet};
use crate::tcp::timeline::{MILLISECOND, Timeline};
use kiban_tcpip::wire::tcp::Flags;

/// The number of packets at each end of an excerpt.
const STEPS_EACH: usize = 7;
/// The number of points of a curve.
const POINTS_MAX: usize = 80;
/// A wait of this length is marked.
const WAIT_MIN: u64 = 20 * MILLISECOND;

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

/// Returns the packets around the first evidence of a finding, or the first packets.
pub(crate) fn steps(connection: &Connection, finding: Option<&Finding>) -> Vec<Step> {
    let packets = &connection.packets;
    let place = |at: usize| (packets[at].number, packets[at].at, packets[at].end);
    excerpt(packets.len(), place, finding, WAIT_MIN, |at| words(connection, &packets[at]))
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

/// Returns the contents of a packet, with sequence numbers relative to the SYN.
fn words(connection: &Connection, packet: &Packet) -> String {
    let start = |end: usize| {
        let syn = connection.syn[end].map(|syn| syn.sequence);
        syn.or_else(|| connection.packets.iter().find(|packet| packet.end == end).map(|one| one.sequence))
    };
    let flags = packet.flags.without(Flags::ACK.with(Flags::PSH));
    let name = if flags == Flags::NONE { String::new() } else { format!("{flags} ") };
    let sequence = start(packet.end).map_or(0, |start| packet.sequence.0.wrapping_sub(start.0));
    let acknowledged = start(1 - packet.end).map_or(0, |start| packet.acknowledgment.0.wrapping_sub(start.0));
    // RFC 7323 §2.2: the window of a SYN is not scaled.
    let is_scaled = !packet.flags.has(Flags::SYN);
    let shift = connection.shift(packet.end).filter(|_| is_scaled).unwrap_or(0);
    let window = u64::from(packet.window) << shift;
    if packet.bytes > 0 {
        format!("{name}{} bytes from {sequence}", packet.bytes)
    } else if packet.flags.has(Flags::ACK) {
        format!("{name}ACK {acknowledged}, window {window}")
    } else {
        name.trim_end().to_owned()
    }
}

/// Returns the curves of a direction, thinned out.
pub(crate) fn curves(timeline: &Timeline, begin: u64) -> Curves {
    let seconds = |at: u64| at.saturating_sub(begin) as f64 * 1e-9;
    let mut highest = 0;
    let sent: Vec<(f64, f64)> = timeline
        .sends
        .iter()
        .map(|send| {
            highest = highest.max(send.end);
            (seconds(send.at), highest as f64)
        })
        .collect();
    let acks = || timeline.acks.iter();
    let windows = || acks().filter(|_| timeline.knows_windows);
    let mut arrived = acks().peekable();
    let (mut acknowledged, mut highest) = (0, 0);
    let mut in_flight = Vec::new();
    for send in &timeline.sends {
        while let Some(ack) = arrived.next_if(|ack| ack.at <= send.at) {
            acknowledged = acknowledged.max(ack.acknowledged);
        }
        highest = highest.max(send.end);
        in_flight.push((seconds(send.at), (highest - acknowledged).max(0) as f64));
    }
    Curves {
        in_flight: thin(in_flight),
        window_size: thin(windows().map(|ack| (seconds(ack.at), ack.window as f64)).collect()),
        sent: thin(sent),
        acknowledged: thin(acks().map(|ack| (seconds(ack.captured), ack.acknowledged as f64)).collect()),
        window: thin(
            windows().map(|ack| (seconds(ack.captured), (ack.acknowledged + ack.window) as f64)).collect(),
        ),
    }
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
