//! All hosts at once: do the paths share a bottleneck?
//!
//! Method    the sum of the rates of all hosts at once is compared with the rates of each alone. Paths
//!           without a common bottleneck keep their rates; those with one together carry what one carries.
//! Doubt     if one host alone carries nearly the whole sum, both answers look alike. If the processors of
//!           this host were busy, they may be the bottleneck, and the report says so.

use crate::engine::Failure;
use crate::load::{Meter, ProcMeter, Reading};
use crate::net::latency::{Clocks, LatencyRequest, PROBE_INTERVAL, Phase, round_trips, run_phase};
use crate::remote::client::Client;
use crate::table::readable;
use kiban_os::Clock;
use serde::Serialize;
use std::thread;

/// The hosts share a bottleneck if all at once carry less than the first part of the sum, and at most the
/// second multiple of what the best one carries alone. They do not share one above the third part.
const SHARED: (f64, f64, f64) = (0.8, 1.25, 0.85);
/// Both answers look alike if one host carries more than this part of the sum.
const DOMINANT: f64 = 0.8;
/// The share of the processors' time above which this host may be the bottleneck.
const BUSY: f64 = 0.9;

/// Whether paths share a bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// All at once carry what one carries alone.
    Bottleneck,
    /// Each keeps its rate.
    Nothing,
    /// Some of the paths share one, or a common link is partly the limit.
    Partly,
    /// One host carries nearly everything, so it cannot be told.
    Unknown,
}

impl Sharing {
    /// Compares the rates of each host alone with those of all at once.
    fn of(alone: &[f64], together: &[f64]) -> Sharing {
        let sum = |rates: &[f64]| rates.iter().sum::<f64>().max(1e-9);
        let best = alone.iter().copied().fold(0.0, f64::max);
        let part = sum(together) / sum(alone);
        if best > DOMINANT * sum(alone) {
            Sharing::Unknown
        } else if part < SHARED.0 && sum(together) <= SHARED.1 * best {
            Sharing::Bottleneck
        } else if part >= SHARED.2 {
            Sharing::Nothing
        } else {
            Sharing::Partly
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
    /// The rate of each host, Mbit/s.
    pub mbps: Vec<f64>,
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
        Direction {
            direction,
            sharing: Sharing::of(alone, &mbps),
            alone_sum_mbps: alone.iter().sum(),
            sum_mbps: mbps.iter().sum(),
            mbps,
            round_trip_ms,
            busy,
        }
    }

    /// Returns the conclusion about this direction in words.
    fn words(&self) -> String {
        let shared = match self.sharing {
            Sharing::Bottleneck => "the paths share a bottleneck",
            Sharing::Nothing => "the paths share no bottleneck",
            Sharing::Partly => "some of the paths share a bottleneck",
            Sharing::Unknown => {
                "it cannot be told whether the paths share a bottleneck, because one host has most of the traffic"
            }
        };
        format!("{} the hosts, {shared} ({})", self.direction, self.rates())
    }

    /// Returns the sums of the rates in words.
    fn rates(&self) -> String {
        let (sum, alone) = (readable(self.sum_mbps), readable(self.alone_sum_mbps));
        format!("{sum} Mbit/s at once; one at a time, {alone} in total")
    }

    /// Returns whether this host may be the bottleneck.
    fn doubts_this_host(&self) -> bool {
        self.busy && matches!(self.sharing, Sharing::Bottleneck | Sharing::Partly)
    }
}

/// The measurement of all hosts at once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Together {
    /// To the hosts, and from them; the hosts are in the order of the report.
    pub directions: [Direction; 2],
}

impl Together {
    /// Returns the conclusion in words.
    pub(super) fn words(&self) -> String {
        let busy = if self.directions.iter().any(Direction::doubts_this_host) {
            "; this host's processors were busy, so they may be that bottleneck"
        } else {
            ""
        };
        let [to, from] = &self.directions;
        if to.sharing == Sharing::Bottleneck && from.sharing == Sharing::Bottleneck {
            return format!(
                "the paths share a bottleneck in both directions (to the hosts, {}; from them, {}){busy}",
                to.rates(),
                from.rates()
            );
        }
        format!("{}; {}{busy}", to.words(), from.words())
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
        let observed: Vec<_> = thread::scope(|scope| {
            let phase = &phase;
            let threads: Vec<_> = clients
                .iter_mut()
                .map(|client| scope.spawn(move || run_phase(client, Clock::new(), phase)))
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

    #[test]
    fn rates_at_once_show_what_is_shared() {
        for (alone, together, expected) in [
            (&[94.0, 94.0, 93.0][..], &[40.0, 30.0, 24.0][..], Sharing::Bottleneck),
            (&[94.0, 94.0, 93.0], &[93.0, 92.0, 93.0], Sharing::Nothing),
            // Two of three share one.
            (&[94.0, 94.0, 93.0], &[47.0, 47.0, 93.0], Sharing::Partly),
            // The rate of a slow host is too small to be seen in the sum.
            (&[940.0, 9.0], &[931.0, 9.0], Sharing::Unknown),
            (&[940.0], &[940.0], Sharing::Unknown),
        ] {
            assert_eq!(Sharing::of(alone, together), expected, "{alone:?} {together:?}");
        }
    }

    #[test]
    fn the_words_name_what_is_shared_and_a_busy_host() {
        let way = |direction, together: [f64; 2], busy| {
            let rows = together.map(|mbps| (mbps, None)).to_vec();
            Direction::of(direction, &[90.0, 90.0], rows, busy)
        };
        let words = |from: [f64; 2], busy| {
            Together { directions: [way("to", [40.0, 50.0], busy), way("from", from, false)] }.words()
        };
        assert_eq!(
            words([45.0, 44.0], true),
            "the paths share a bottleneck in both directions (to the hosts, 90 Mbit/s at once; one at a time, 180 in \
             total; from them, 89 Mbit/s at once; one at a time, 180 in total); this host's processors were busy, so \
             they may be that bottleneck"
        );
        assert_eq!(
            words([90.0, 89.0], false),
            "to the hosts, the paths share a bottleneck (90 Mbit/s at once; one at a time, 180 in total); from the \
             hosts, the paths share no bottleneck (179 Mbit/s at once; one at a time, 180 in total)"
        );
    }
}
