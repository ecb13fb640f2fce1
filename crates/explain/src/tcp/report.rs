//! The explanation of a connection.

use super::connection::Connection;
use super::excerpt::{curves, steps};
use super::handshake;
use super::verdict::{Direction, direction};
use crate::cause::Cause;
use crate::figures::{millis, seconds};
use crate::finding::Finding;
use crate::report::{Explained, Limit, Summary};
use crate::waited::Waited;
use kiban_tcpip::wire::tcp::Flags;
use std::collections::BTreeSet;

/// Fewer round trips say nothing about the load.
const ROUND_TRIPS_MIN: usize = 3;

/// Explains a connection. The caller numbers it.
pub(crate) fn explain(connection: &Connection) -> Explained {
    let directions = [0, 1].map(|sender| direction(connection, sender));
    let (first, last) = (connection.packets.first(), connection.packets.last());
    let begin = first.map_or(0, |packet| packet.at);
    let mut findings: Vec<Finding> =
        directions.iter().flat_map(|direction| direction.findings.iter().cloned()).collect();
    findings.extend(handshake::find(connection));
    findings.extend(handshake::no_response(connection, &directions));
    let mut limits = limits(connection, !findings.is_empty());
    if findings.is_empty() && directions.iter().any(|direction| direction.may_hide_queue) {
        limits.push(Limit::Queue);
    }
    if limits.contains(&Limit::OneDirection) {
        findings.clear();
    }
    findings.sort_by(|one, other| other.lost_ms.total_cmp(&one.lost_ms));
    // An application that waits is normal, so it is the verdict only if nothing else is.
    let is_other = |finding: &Finding| finding.cause != Cause::SenderLimited && finding.lost_percent >= 15.0;
    let has_other = findings.iter().any(is_other);
    let is_demoted = |finding: &Finding| match finding.cause {
        Cause::SenderLimited => has_other || !is_main(&directions, finding),
        // Losses that cost little are only mentioned.
        Cause::Congestion => finding.lost_percent < 10.0,
        _ => false,
    };
    findings.sort_by_key(is_demoted);
    let mut findings = findings.into_iter();
    let verdict = findings.next();
    let main = usize::from(directions[1].account.bytes > directions[0].account.bytes);
    // The handshake measures both directions; without it, one of them may know only a part.
    let has_handshake = connection.syn.iter().all(Option::is_some);
    let measured = directions.iter().enumerate().filter(|(end, _)| has_handshake || *end == main);
    let trips = measured.filter_map(|(_, direction)| direction.timeline.known_round_trip());
    let rtt = trips.min();
    Explained {
        number: 0,
        ends: connection.ends.map(|end| end.to_string()),
        packets: connection.packets.len(),
        begin_s: seconds(begin),
        seconds: seconds(last.map_or(0, |packet| packet.at).saturating_sub(begin)),
        rtt_ms: rtt.map(millis),
        place: directions[main].timeline.place(main),
        shares_path_with: Vec::new(),
        roce: None,
        steps: steps(connection, verdict.as_ref()),
        curves: {
            let shown = verdict.as_ref().map_or(main, |finding| finding.sender);
            curves(&directions[shown].timeline, begin)
        },
        verdict,
        also: findings.collect(),
        limits,
        directions: directions.map(|direction| summary(&direction, rtt)),
    }
}

/// Returns what the capture does not show; `is_explained` if a cause was found.
fn limits(connection: &Connection, is_explained: bool) -> Vec<Limit> {
    let packets = &connection.packets;
    let has = |end: usize| packets.iter().any(|packet| packet.end == end);
    let is_handshake = packets.iter().all(|packet| packet.end == 0 && packet.flags.has(Flags::SYN));
    let limit = if !(is_handshake || has(0) && has(1)) {
        Some(Limit::OneDirection)
    } else if packets.iter().all(|packet| packet.bytes == 0) {
        (!is_explained).then_some(Limit::NoData)
    } else {
        connection.syn.iter().any(Option::is_none).then_some(Limit::Handshake)
    };
    limit.into_iter().collect()
}

/// Returns whether a finding concerns the direction that carried most bytes.
fn is_main(directions: &[Direction; 2], finding: &Finding) -> bool {
    directions[finding.sender].account.bytes * 2 >= directions[1 - finding.sender].account.bytes
}

/// Returns what was measured in a direction of a connection with the round trip `rtt`.
fn summary(direction: &Direction, rtt: Option<u64>) -> Summary {
    let Direction { timeline, account, .. } = direction;
    let waited: BTreeSet<Waited> = account.waits.iter().map(|wait| wait.waited).collect();
    let is_loaded = timeline.round_trips.len() >= ROUND_TRIPS_MIN && timeline.knows_load();
    // What was sent takes a round trip to be acknowledged, wherever it was captured.
    let rate = account.rate_over(account.duration().max(rtt.unwrap_or(0)));
    Summary {
        bytes: account.bytes.max(0) as u64,
        bits_per_second: rate.round(),
        segments: account.segments,
        mss: timeline.mss.max(0) as u64,
        retransmits: account.retransmissions,
        timeouts: account.timeouts,
        rtt_loaded_ms: rtt.filter(|_| is_loaded).map(|rtt| millis(timeline.round_trip(50).max(rtt))),
        waited_ms: waited.into_iter().map(|waited| (waited, millis(account.sum(waited)))).collect(),
    }
}
