//! Recognises a policer: a token bucket that drops packets above a rate and queues none.
//!
//! Method           after Flach et al., "An Internet-Wide Analysis of Traffic Policing" (SIGCOMM 2016): what
//!                  passes a policer drains its bucket, and a packet is lost if, and only if, the bucket is
//!                  empty. For each of several rates, the bytes that the bucket owes are computed before each
//!                  segment; at the right rate, these debts are equal at all losses, and greater than at most
//!                  segments that passed. The debt at losses is the depth of the bucket.
//! Look-alikes      random losses come at any debt. A queue drops packets at a constant backlog, too, but
//!                  delays those before them by the backlog's time, and delivers nothing faster than its
//!                  rate; the fewer packets it holds, the less its delay shows. An outage loses packets after
//!                  a silence as well.
//! Limits           needs [`LOSSES_MIN`] lost segments in [`EPISODES_MIN`] episodes.

use super::timeline::Timeline;
use super::waits::Account;
use crate::figures::{MILLISECOND, percentile};
use std::collections::BTreeMap;

/// Fewer lost segments do not show a rate.
const LOSSES_MIN: i64 = 8;
/// Losses at a single moment show no regularity.
const EPISODES_MIN: usize = 2;
/// The share of losses that have to happen at an empty bucket.
const EXPLAINED_MIN: f64 = 0.5;
/// The same if timers ended every other episode.
const EXPLAINED_TIMED_MIN: f64 = 0.8;
/// How much larger this share has to be than the share of segments that passed a bucket as empty, in standard
/// deviations of a share of as many random losses.
const DEVIATIONS_MIN: f64 = 4.5;
/// The same if nothing passes faster than the rate of the bucket, because it may be the rate of a link with a
/// queue of a few packets.
const DEVIATIONS_SLOW_MIN: f64 = 15.0;
/// After a silence in which the bucket was filled with so many segments, none is lost.
const REFILLED_SEGMENTS: f64 = 4.0;
/// By how much less a rate may explain the losses that is as good as the best one.
const AS_GOOD: f64 = 0.1;
/// The share of what passes that a bucket may waste, because it is full, for the mean rate to be its rate.
const WASTED_MAX: f64 = 0.0005;
/// How much faster than the rate of the bucket segments have to pass at times.
const BURST_MIN: f64 = 1.4;

/// A policer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policer {
    pub(crate) bits_per_second: f64,
    /// The depth of its bucket.
    pub(crate) bucket_bytes: f64,
    /// The segments that it dropped.
    pub(crate) segments: i64,
}

/// A segment that passed or was lost.
struct Event {
    at: u64,
    /// Bytes that passed.
    passed: f64,
    /// Segments that were lost: this one, or those just before it.
    lost: f64,
    /// Whether this segment shows a hole, so that the losses may have happened any time since the last one.
    is_hole: bool,
}

/// How well a rate explains the losses.
#[derive(Clone, Copy)]
struct Fit {
    /// Bytes per nanosecond.
    rate: f64,
    bucket_bytes: f64,
    /// The share of the losses, and of the segments that passed, at an empty bucket.
    lost: f64,
    passed: f64,
    /// Bytes that a full bucket did not take, after the first loss.
    wasted: f64,
    /// Segments at which losses happened or show.
    losses: usize,
}

impl Fit {
    fn contrast(&self) -> f64 {
        self.lost - self.passed
    }

    /// Returns by how many standard deviations the share of the losses exceeds that of random ones.
    fn deviations(&self) -> f64 {
        let spread = (self.passed * (1.0 - self.passed) / self.losses as f64).sqrt();
        self.contrast() / spread.max(1e-3)
    }
}

/// Returns the policer that explains the losses of a direction, if one does. It counts the `header_bytes` of
/// each packet, too.
pub(crate) fn find(timeline: &Timeline, account: &Account, header_bytes: i64) -> Option<Policer> {
    let (sends, mss) = (&timeline.sends, timeline.mss);
    // A hole may be several segments long.
    let segments_of = |bytes: i64| (bytes + mss - 1) / mss;
    let segments: i64 = account.losses.iter().map(|loss| segments_of(loss.bytes)).sum();
    if segments < LOSSES_MIN || account.flight_max < 8 * mss {
        return None;
    }
    // At the sender, the lost segments themselves are captured; behind the policer, those after the holes.
    let mut lost: BTreeMap<usize, (i64, i64, bool)> = BTreeMap::new();
    for loss in &account.losses {
        let entry = lost.entry(loss.send).or_insert((0, 0, loss.is_hole));
        entry.0 += segments_of(loss.bytes);
        entry.1 += loss.bytes;
        entry.2 &= loss.is_hole;
    }
    let events: Vec<Event> = sends
        .iter()
        .enumerate()
        .map(|(index, send)| {
            let (lost, bytes, is_hole) = lost.get(&index).copied().unwrap_or((0, 0, true));
            // The network card cuts a large segment, of which a part may have passed.
            let passed = if is_hole { send.bytes() } else { (send.bytes() - bytes).max(0) };
            Event { at: send.at, passed: passed as f64, lost: lost as f64, is_hole }
        })
        .collect();
    let (first, last) = (*lost.keys().next()?, *lost.keys().next_back()?);
    let episodes = account.episodes(timeline);
    let nanos = sends[last].at - sends[first].at;
    if episodes < EPISODES_MIN || nanos == 0 {
        return None;
    }
    let between: f64 = events[first..last].iter().map(|event| event.passed).sum();
    let (fit, lowest) = best(&events, between / nanos as f64, mss as f64)?;
    // A bucket that never was refilled is no rate.
    if between < fit.bucket_bytes {
        return None;
    }
    // An outage loses segments whatever the bucket holds, and timers end it.
    let is_timed = account.timeouts as usize * 2 >= episodes;
    let least = if is_timed { EXPLAINED_TIMED_MIN } else { EXPLAINED_MIN };
    let is_explained = fit.lost >= least && fit.deviations() >= DEVIATIONS_MIN;
    if !is_explained
        || is_queue(timeline, account, &fit)
        || refilled(&events, fit.rate, mss as f64) * 2 >= episodes
    {
        return None;
    }
    // The bucket was empty at the first loss and at the last one, so its rate is the mean in between, unless
    // it was full for some time. The fit alone prefers a rate that is a little too high.
    let mean = self::fit(&events, between / nanos as f64, mss as f64);
    let found = if mean.wasted <= between * WASTED_MAX { mean } else { lowest };
    let packets = (mss + header_bytes) as f64 / mss as f64;
    Some(Policer {
        bits_per_second: found.rate * packets * 8e9,
        bucket_bytes: found.bucket_bytes * packets,
        segments,
    })
}

/// Returns the rate that explains the losses best, and the lowest that explains them nearly as well: a
/// sender that ignores losses keeps the bucket empty, and then higher rates explain them, too. The bucket
/// passes `mean` between losses, or more if it was full for some time.
fn best(events: &[Event], mean: f64, mss: f64) -> Option<(Fit, Fit)> {
    let best_of = |rates: &mut dyn Iterator<Item = f64>| {
        rates
            .map(|rate| fit(events, rate, mss))
            .max_by(|one, other| one.contrast().total_cmp(&other.contrast()))
    };
    let rates = || (0..50).map(|step| mean * 0.85 * 1.025f64.powi(step));
    let coarse = best_of(&mut rates())?;
    let fine = best_of(&mut (-8..=8).map(|step| coarse.rate * 1.003f64.powi(step)))?;
    let is_as_good = |fit: &Fit| fit.contrast() >= fine.contrast() - AS_GOOD;
    let lowest = rates().map(|rate| fit(events, rate, mss)).find(is_as_good);
    Some((fine, lowest.unwrap_or(fine)))
}

/// Computes what a bucket that is filled at `rate` owes at each segment.
fn fit(events: &[Event], rate: f64, mss: f64) -> Fit {
    let (mut debt, mut at) = (0.0f64, events.first().map_or(0, |event| event.at));
    let (mut at_losses, mut at_passes) = (Vec::new(), Vec::new());
    let mut wasted = 0.0;
    for event in events {
        let before = debt;
        debt -= rate * (event.at - at) as f64;
        if !at_losses.is_empty() {
            wasted += (-debt).max(0.0);
        }
        debt = debt.max(0.0);
        at = event.at;
        if event.lost > 0.0 {
            at_losses.push((if event.is_hole { before } else { debt + event.passed }, event.lost));
        } else {
            at_passes.push(debt);
        }
        debt += event.passed;
    }
    at_losses.sort_by(|one, other| one.0.total_cmp(&other.0));
    let whole: f64 = at_losses.iter().map(|(_, lost)| lost).sum();
    let mut rest = whole / 2.0;
    let middle = at_losses.iter().find(|(_, lost)| {
        rest -= lost;
        rest <= 0.0
    });
    let bucket_bytes = middle.map_or(0.0, |(debt, _)| *debt);
    let band = (3.0 * mss).max(bucket_bytes * 0.15);
    let is_empty = |debt: f64| (debt - bucket_bytes).abs() <= band;
    let lost: f64 = at_losses.iter().filter(|(debt, _)| is_empty(*debt)).map(|(_, lost)| lost).sum();
    let passed = at_passes.iter().filter(|debt| **debt >= bucket_bytes - band).count();
    let passed = passed as f64 / at_passes.len().max(1) as f64;
    Fit { rate, bucket_bytes, lost: lost / whole, passed, wasted, losses: at_losses.len() }
}

/// Returns how many segments were lost after a silence in which the bucket was filled: no policer drops them.
fn refilled(events: &[Event], rate: f64, mss: f64) -> usize {
    let is_refilled = |pair: &&[Event]| {
        let silence = (pair[1].at - pair[0].at) as f64;
        // Of a large segment that the network card cuts, a part passes.
        let filled = silence * rate - pair[1].passed;
        pair[1].lost > 0.0 && !pair[1].is_hole && filled > REFILLED_SEGMENTS * mss
    };
    events.windows(2).filter(is_refilled).count()
}

/// Returns whether the losses are those of a queue as deep as the bucket.
fn is_queue(timeline: &Timeline, account: &Account, fit: &Fit) -> bool {
    let peak = timeline.mss as f64 / timeline.packet_time(5).max(1) as f64 / fit.rate;
    let trips = &timeline.round_trips;
    let before = account.losses.iter().filter_map(|loss| {
        // At the sender, the round trips of what was sent before it; elsewhere, those that ended before it.
        let begin =
            |(at, trip): &(u64, u64)| if timeline.is_at_sender { at.saturating_sub(*trip) } else { *at };
        let place = trips.partition_point(|one| begin(one) <= timeline.sends[loss.send].at);
        // A full queue delays all segments; a single one may be acknowledged late for another reason.
        trips[place.saturating_sub(3)..place].iter().map(|(_, trip)| *trip).min()
    });
    let median = percentile(before.collect(), 50);
    let grown = median.map(|median| median.saturating_sub(timeline.shortest_round_trip()));
    let delay = (fit.bucket_bytes / fit.rate) as u64;
    let is_slow = peak < BURST_MIN;
    match grown {
        // The round trip is known exactly, so that a policer is found if the sender paces its segments, too.
        Some(grown) if timeline.knows_load() && delay >= 4 * MILLISECOND => match is_slow {
            true => grown > delay / 5 || fit.deviations() < DEVIATIONS_SLOW_MIN,
            false => grown > delay / 3,
        },
        Some(grown) => is_slow || grown > delay / 3 + 4 * MILLISECOND,
        None => is_slow,
    }
}
