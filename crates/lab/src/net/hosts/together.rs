//! All hosts at once: do the paths share a bottleneck?
//!
//! Method    the rate of each host at once is compared with its rate alone. A host that falls behind shares a
//!           bottleneck. If all together carry what one carries alone, all share one.
//! Doubt     if one host alone carries nearly the whole sum, the others are too slow to make it fall behind.
//!           The bottleneck of all paths may be this host: its link, if all together carry what one does, or
//!           its processors, if they were busy.

use crate::engine::Failure;
use crate::load::{Meter, ProcMeter, Reading};
use crate::net::latency::{Clocks, LatencyRequest, PROBE_INTERVAL, Phase, StartLine, round_trips, run_phase};
use crate::remote::client::Client;
use crate::table::readable;
use kiban_os::Clock;
use serde::Serialize;
use std::thread;

/// A host falls behind if all at once leave it less than this part of its rate alone.
const KEPT: f64 = 0.7;
/// The bottleneck of all may be this host's link if all at once carry at most this multiple of the best host
/// alone.
const LIKE_ONE: f64 = 1.25;
/// Nothing can be told if one host carries more than this part of the sum, and none falls behind.
const DOMINANT: f64 = 0.8;
/// The most names in a sentence.
const NAMES_MAX: usize = 4;
/// The share of the processors' time above which this host may be the bottleneck.
const BUSY: f64 = 0.9;

/// Whether paths share a bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All hosts fall behind, or all at once carry what one carries alone.
    Bottleneck,
    /// No host falls behind.
    Nothing,
    /// Some hosts fall behind, and others do not.
    Partly,
    /// One host carries nearly everything, so it cannot be told.
    Unknown,
}

impl Sharing {
    /// Decides from the rates alone and at once, and from which hosts fall behind.
    fn of(alone: &[f64], at_once: &[f64], fell: &[bool]) -> Sharing {
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let best = alone.iter().copied().fold(0.0, f64::max);
        // One of the connections that share a bottleneck may keep its rate, and leave nothing to the others.
        let like_one = sum(at_once) <= LIKE_ONE * best && sum(at_once) < KEPT * sum(alone);
        if like_one || fell.iter().all(|fell| *fell) {
            Sharing::Bottleneck
        } else if fell.contains(&true) {
            Sharing::Partly
        } else if best > DOMINANT * sum(alone) {
            Sharing::Unknown
        } else {
            Sharing::Nothing
        }
    }
}

/// The rates of all hosts in one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Direction {
    /// `to` or `from` the hosts.
    pub direction: &'static str,
    /// Whether they share a bottleneck.
    pub sharing: Sharing,
    /// The sum of the rates of each host alone, Mbit/s.
    pub alone_sum_mbps: f64,
    /// The sum of the rates of all at once, Mbit/s.
    pub sum_mbps: f64,
    /// The rate of each host alone, Mbit/s.
    pub alone_mbps: Vec<f64>,
    /// The rate of each host at once, Mbit/s.
    pub mbps: Vec<f64>,
    /// Which hosts fall behind their rate alone.
    pub fell: Vec<bool>,
    /// The median round trip of each host, ms; `None` if no probe had a reply.
    pub round_trip_ms: Vec<Option<f64>>,
    /// Whether the processors of this host were busy, so that they may be the bottleneck.
    pub busy: bool,
}

impl Direction {
    pub(super) fn of(
        direction: &'static str,
        alone: &[f64],
        rows: Vec<(f64, Option<f64>)>,
        busy: bool,
    ) -> Direction {
        let (mbps, round_trip_ms): (Vec<f64>, _) = rows.into_iter().unzip();
        let fell: Vec<bool> =
            alone.iter().zip(&mbps).map(|(alone, at_once)| *at_once < KEPT * alone).collect();
        Direction {
            direction,
            sharing: Sharing::of(alone, &mbps, &fell),
            alone_sum_mbps: alone.iter().sum(),
            sum_mbps: mbps.iter().sum(),
            alone_mbps: alone.to_vec(),
            mbps,
            fell,
            round_trip_ms,
            busy,
        }
    }

    /// Returns the conclusion about this direction in words.
    fn words(&self, names: &[&str]) -> String {
        let (way, sum) = (self.direction, readable(self.sum_mbps));
        match self.sharing {
            Sharing::Bottleneck => {
                let own = if self.may_be_this_host() { ", which may be this host's own link" } else { "" };
                let alone = readable(self.alone_sum_mbps);
                format!(
                    "{way} the hosts, all paths share a bottleneck of about {sum} Mbit/s{own} (one at a time, {alone} \
                     in total)"
                )
            }
            Sharing::Partly => {
                let fell = || (0..self.fell.len()).filter(|number| self.fell[*number]);
                let share = if fell().count() == 1 {
                    "shares a bottleneck with another host"
                } else {
                    "share bottlenecks, with each other or with other hosts"
                };
                format!("{way} the hosts, {} {share}", self.listed(fell(), names))
            }
            Sharing::Nothing => {
                format!("{way} the hosts, no paths share a bottleneck ({sum} Mbit/s at once)")
            }
            Sharing::Unknown => format!(
                "{way} the hosts, it cannot be told whether paths share a bottleneck, because one host has most of \
                 the traffic"
            ),
        }
    }

    /// Returns hosts with their rates alone and at once.
    fn listed(&self, numbers: impl Iterator<Item = usize>, names: &[&str]) -> String {
        let numbers: Vec<usize> = numbers.collect();
        let one = |number: &usize| {
            let rates = [&self.alone_mbps, &self.mbps].map(|rates| readable(rates[*number]));
            format!("{} ({} Mbit/s alone, {} at once)", names[*number], rates[0], rates[1])
        };
        let mut words: Vec<String> = numbers.iter().take(NAMES_MAX).map(one).collect();
        if numbers.len() > NAMES_MAX {
            words.push(format!("{} more", numbers.len() - NAMES_MAX));
        }
        let last = words.pop().unwrap_or_default();
        if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
    }

    /// Returns whether the bottleneck of all may be this host's link.
    fn may_be_this_host(&self) -> bool {
        let best = self.alone_mbps.iter().copied().fold(0.0, f64::max);
        self.sharing == Sharing::Bottleneck && self.sum_mbps <= LIKE_ONE * best
    }

    /// Returns whether this host's processors may be the bottleneck.
    fn doubts_processors(&self) -> bool {
        self.busy && self.sharing == Sharing::Bottleneck
    }
}

/// The measurement of all hosts at once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Together {
    /// To the hosts, and from them; the hosts are in the order of the report.
    pub directions: [Direction; 2],
}

impl Together {
    /// Returns the conclusions in words; `names` are those of the hosts.
    pub(super) fn words(&self, names: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = self.directions.iter().map(|way| way.words(names)).collect();
        if self.directions.iter().any(Direction::doubts_processors) {
            words.push("this host's processors were busy, so they may be that bottleneck".to_owned());
        }
        words
    }

    /// Returns what to do.
    pub(super) fn advice(&self) -> Option<&'static str> {
        self.directions.iter().any(Direction::may_be_this_host).then_some(
            "to tell this host's link from a common link behind it, compare the rate with that of its interface \
             (ethtool), or run this command on another host",
        )
    }
}

/// Loads all hosts at once, first to them and then from them. `alone` are the rates of each host alone, to it
/// and from it, Mbit/s.
///
/// # Errors
/// Returns the number of the host that failed, and the cause.
pub fn together(
    clients: &mut [Client],
    request: &LatencyRequest,
    alone: &[[f64; 2]],
    progress: &dyn Fn(&'static str),
) -> Result<Together, (usize, Failure)> {
    let mut direction = |way: usize, name: &'static str| {
        progress(name);
        let connections = if way == 0 { [request.connections, 0] } else { [0, request.connections] };
        let length = request.length;
        let phase = Phase { connections, length, interval: PROBE_INTERVAL, octets: 0, settled: None };
        let mut meter = ProcMeter::new(Clock::new());
        let before = meter.read();
        let line = StartLine::new(clients.len());
        let observed: Vec<_> = thread::scope(|scope| {
            let phase = &phase;
            let threads: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    let place = Some(line.place());
                    scope.spawn(move || run_phase(client, Clock::new(), phase, place))
                })
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join().expect("a phase does not panic"));
            ends.collect()
        });
        let is_busy = before.zip(meter.read()).is_some_and(|(before, after)| is_busy(before, after));
        let mut rows = Vec::new();
        for (number, observed) in observed.into_iter().enumerate() {
            let observed = observed.map_err(|failure| (number, failure))?;
            let rate = Clocks::of(&observed.exchanges).map(|clocks| observed.throughput_mbps(&clocks)[way]);
            rows.push((rate.unwrap_or(0.0), round_trips(&observed).map(|times| times.p50_ms)));
        }
        let alone: Vec<f64> = alone.iter().map(|rates| rates[way]).collect();
        Ok(Direction::of(if way == 0 { "to" } else { "from" }, &alone, rows, is_busy))
    };
    Ok(Together {
        directions: [direction(0, "all at once: upload")?, direction(1, "all at once: download")?],
    })
}

/// Returns whether the processors of this host were busy between two readings.
fn is_busy(before: Reading, after: Reading) -> bool {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let wall = after.wall_nanos.saturating_sub(before.wall_nanos) as f64 * cores as f64;
    after.busy_nanos.saturating_sub(before.busy_nanos) as f64 > BUSY * wall
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(direction: &'static str, alone: &[f64], together: &[f64], busy: bool) -> Direction {
        Direction::of(direction, alone, together.iter().map(|mbps| (*mbps, None)).collect(), busy)
    }

    #[test]
    fn rates_at_once_show_what_is_shared() {
        for (alone, together, expected) in [
            (&[94.0, 94.0, 93.0][..], &[40.0, 30.0, 24.0][..], Sharing::Bottleneck),
            (&[94.0, 94.0, 93.0], &[93.0, 92.0, 93.0], Sharing::Nothing),
            // One keeps its rate, and leaves nothing to the other.
            (&[19.1, 19.1], &[17.5, 1.6], Sharing::Bottleneck),
            // All share a link that is faster than each of the others.
            (&[38.0, 38.0, 38.0, 38.0], &[15.0, 14.0, 15.0, 14.0], Sharing::Bottleneck),
            // Two of three share one.
            (&[94.0, 94.0, 93.0], &[47.0, 47.0, 93.0], Sharing::Partly),
            // The sum hides two hosts behind a slow link, of which one takes everything.
            (&[38.2, 38.2, 7.7, 7.7], &[38.0, 38.1, 7.7, 0.6], Sharing::Partly),
            // The rate of a slow host is too small to be seen in that of the other.
            (&[940.0, 9.0], &[931.0, 9.0], Sharing::Unknown),
            (&[940.0, 9.0], &[931.0, 3.0], Sharing::Partly),
        ] {
            assert_eq!(way("to", alone, together, false).sharing, expected, "{alone:?} {together:?}");
        }
    }

    #[test]
    fn the_words_name_the_hosts_that_fall_behind_and_doubts_about_this_host() {
        let names = ["n1", "n2", "n3"];
        let together = |to: &[f64], from: &[f64], busy| Together {
            directions: [way("to", &[90.0; 3], to, busy), way("from", &[90.0; 3], from, busy)],
        };
        let one = together(&[40.0, 30.0, 24.0], &[90.0, 44.0, 46.0], true);
        assert_eq!(
            one.words(&names),
            [
                "to the hosts, all paths share a bottleneck of about 94 Mbit/s, which may be this host's own link (one \
                 at a time, 270 in total)",
                "from the hosts, n2 (90 Mbit/s alone, 44 at once) and n3 (90 Mbit/s alone, 46 at once) share \
                 bottlenecks, with each other or with other hosts",
                "this host's processors were busy, so they may be that bottleneck",
            ]
        );
        assert!(one.advice().is_some());
        let other = together(&[90.0, 90.0, 6.0], &[50.0, 50.0, 50.0], false);
        assert_eq!(
            other.words(&names),
            [
                "to the hosts, n3 (90 Mbit/s alone, 6 at once) shares a bottleneck with another host",
                "from the hosts, all paths share a bottleneck of about 150 Mbit/s (one at a time, 270 in total)",
            ]
        );
        assert_eq!(other.advice(), None);
    }
}
