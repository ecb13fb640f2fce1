//! Figures of a phase: percentiles of delays, losses of each direction, and throughput.

use super::clocks::Clocks;
use super::phase::{Exchange, Observed};
use crate::remote::probes::{INTERVAL, Volume};
use crate::stats::{quantile, sorted};
use serde::Serialize;
use std::collections::BTreeSet;

/// Percentiles of delays, ms.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// The shortest.
    pub min_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Percentiles {
    /// Returns the percentiles of delays in ns; `None` if there are none.
    pub(in crate::net) fn of(delays: impl Iterator<Item = f64>) -> Option<Percentiles> {
        let delays = sorted(&delays.map(|delay| delay * 1e-6).collect::<Vec<_>>());
        let at = |part| quantile(&delays, part);
        Some(Percentiles {
            min_ms: at(0.0)?,
            p50_ms: at(0.5)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
            max_ms: at(1.0)?,
        })
    }

    pub(in crate::net) fn cells(&self) -> [String; 5] {
        [self.min_ms, self.p50_ms, self.p95_ms, self.p99_ms, self.max_ms].map(crate::table::readable)
    }
}

/// What happened to the datagrams of one direction.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Fate {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams lost in the network.
    pub lost: u64,
    /// The share of `sent`, percent.
    pub lost_percent: f64,
    /// Datagrams that arrived after one that had been sent later (RFC 4737 §3.3).
    pub reordered: u64,
    /// Copies beyond the first.
    pub duplicates: u64,
    /// Datagrams that the receiving host dropped because a socket buffer was full. They are not in `lost`.
    pub dropped_by_host: u64,
    /// One-way delays. Their uncertainty is that of the clocks.
    pub one_way: Option<Percentiles>,
    /// The mean difference of the delays of consecutive datagrams (RFC 5481 §4.1), ms.
    pub jitter_ms: Option<f64>,
}

impl Fate {
    fn new(sent: u64, arrived: u64, dropped_by_host: u64) -> Fate {
        // A host that drops datagrams must not look like a network that loses them.
        let lost = sent.saturating_sub(arrived).saturating_sub(dropped_by_host);
        let lost_percent = if sent > 0 { 100.0 * lost as f64 / sent as f64 } else { 0.0 };
        Fate { sent, lost, lost_percent, dropped_by_host, ..Fate::default() }
    }
}

impl Observed {
    /// Returns the fate of the probes and of the replies. Counts are of the whole phase, delays are of the
    /// window.
    pub(in crate::net) fn fates(&self, clocks: &Clocks) -> [Fate; 2] {
        let server = &self.server;
        let up = Fate {
            reordered: server.reordered,
            duplicates: server.duplicates,
            ..Fate::new(self.sent, server.distinct, server.dropped_here.unwrap_or(0))
        };
        let replies = (server.distinct + server.duplicates).saturating_sub(server.refused + server.unsent);
        let mut arrived = BTreeSet::new();
        let mut reordered = 0;
        for one in &self.exchanges {
            let is_late = arrived.last().is_some_and(|last| one.reply < *last);
            reordered += u64::from(arrived.insert(one.reply) && is_late);
        }
        let down = Fate {
            reordered,
            duplicates: (self.exchanges.len() - arrived.len()) as u64,
            ..Fate::new(replies, arrived.len() as u64, self.dropped_here)
        };
        let delays = |way: usize| self.in_window().map(move |one| clocks.one_way(one)[way]);
        let with_delays = |fate: Fate, way: usize| Fate {
            one_way: Percentiles::of(delays(way)),
            jitter_ms: jitter_ms(self.in_window().copied().collect(), |one| clocks.one_way(one)[way]),
            ..fate
        };
        [with_delays(up, 0), with_delays(down, 1)]
    }

    /// Returns the throughput of the load to the server and from it in the window, Mbit/s. The intervals of
    /// the server are those of its own clock.
    pub(in crate::net) fn throughput_mbps(&self, clocks: &Clocks) -> [f64; 2] {
        let offset = (clocks.offset + clocks.drift * (self.window.0 - clocks.origin) as f64) as i64;
        let (begin, end) = self.window;
        [mbps(&self.server.up, begin + offset, end + offset), mbps(&self.down, begin, end)]
    }
}

/// Returns the rate between two times, from the whole intervals that lie between them.
fn mbps(volume: &Volume, begin: i64, end: i64) -> f64 {
    let interval = INTERVAL.as_nanos() as i64;
    let since = |time: i64| (time - volume.begin as i64).max(0);
    let first = (since(begin) + interval - 1) / interval;
    let count = since(end) / interval - first;
    if count <= 0 {
        return 0.0;
    }
    // Intervals in which nothing arrived may be missing at the end.
    let bytes = volume.bytes.iter().skip(first as usize).take(count as usize).sum::<u64>();
    bytes as f64 * 8e-6 / (count * interval) as f64 * 1e9
}

/// Returns the mean difference of the delays of datagrams that were sent one after the other, ms.
fn jitter_ms(mut exchanges: Vec<Exchange>, delay: impl Fn(&Exchange) -> f64) -> Option<f64> {
    exchanges.sort_by_key(|one| one.number);
    let pairs = exchanges.windows(2).filter(|pair| pair[1].number == pair[0].number + 1);
    let differences: Vec<f64> = pairs.map(|pair| (delay(&pair[1]) - delay(&pair[0])).abs() * 1e-6).collect();
    (!differences.is_empty()).then(|| differences.iter().sum::<f64>() / differences.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::probes::ProbeOutcome;

    const CLOCKS: Clocks = Clocks { origin: 0, offset: 0.0, uncertainty: 0.0, drift: 0.0 };

    /// Returns an observation of probes every 10 ms of which these numbers had replies, in this order.
    fn observed(sent: u64, server: ProbeOutcome, replies: &[(u32, u64)]) -> Observed {
        let exchanges = replies.iter().map(|(number, reply)| {
            let departure = i64::from(*number) * 10_000_000;
            let server_arrival = departure + 1_000_000 + i64::from(number % 2) * 500_000;
            let arrival = server_arrival + 2_000_000;
            Exchange {
                number: *number,
                departure,
                server_arrival,
                server_departure: server_arrival,
                arrival,
                reply: *reply,
                tos: [0; 2],
            }
        });
        Observed {
            exchanges: exchanges.collect(),
            window: (0, i64::MAX),
            sent,
            server,
            ..Observed::default()
        }
    }

    #[test]
    fn losses_belong_to_the_direction_in_which_they_happened() {
        // Of ten probes, two were lost, and one of the eight replies. Two replies changed places.
        let server = ProbeOutcome { distinct: 8, ..ProbeOutcome::default() };
        let replies = [(0, 1), (1, 2), (3, 4), (2, 3), (5, 5), (6, 6), (7, 7)];
        let [up, down] = observed(10, server.clone(), &replies).fates(&CLOCKS);
        assert_eq!((up.sent, up.lost, up.reordered), (10, 2, 0));
        assert_eq!((down.sent, down.lost, down.reordered, down.duplicates), (8, 1, 1, 0));
        assert_eq!((up.lost_percent, down.lost_percent), (20.0, 12.5));
        // Delays of 1 and 1.5 ms to the server, 2 ms back.
        let (up, down) = (up.one_way.expect("some"), down.one_way.expect("some"));
        assert_eq!((up.min_ms, up.max_ms, down.min_ms, down.max_ms), (1.0, 1.5, 2.0, 2.0));
        // A reply that arrives twice is a duplicate, not reordered.
        let twice = [(0, 1), (1, 2), (2, 3), (1, 2)];
        let [_, down] = observed(3, ProbeOutcome { distinct: 3, ..server }, &twice).fates(&CLOCKS);
        assert_eq!((down.lost, down.duplicates, down.reordered), (0, 1, 0));
    }

    #[test]
    fn what_hosts_drop_or_refuse_is_not_a_loss_of_the_network() {
        let server = ProbeOutcome { distinct: 8, dropped_here: Some(2), ..ProbeOutcome::default() };
        let replies: Vec<_> = (0..8).map(|number| (number, u64::from(number) + 1)).collect();
        let [up, down] = observed(10, server, &replies).fates(&CLOCKS);
        assert_eq!((up.lost, up.dropped_by_host, down.lost), (0, 2, 0));
        let server = ProbeOutcome { distinct: 10, refused: 1, unsent: 1, ..ProbeOutcome::default() };
        let [up, down] = observed(10, server, &replies).fates(&CLOCKS);
        assert_eq!((up.lost, down.sent, down.lost), (0, 8, 0));
    }

    #[test]
    fn jitter_is_of_consecutive_datagrams_only() {
        let server = ProbeOutcome { distinct: 4, ..ProbeOutcome::default() };
        let [up, down] = observed(4, server, &[(0, 1), (1, 2), (3, 3), (5, 4)]).fates(&CLOCKS);
        assert_eq!((up.jitter_ms, down.jitter_ms), (Some(0.5), Some(0.0)));
    }

    #[test]
    fn throughput_is_that_of_the_window() {
        let volume = Volume { begin: 1_000_000_000, bytes: vec![1_000_000; 20] };
        // 1 MB in 100 ms is 80 Mbit/s.
        // Windows that begin and end with an interval, or in the middle of one.
        for (begin, end) in [(1_000, 3_000), (1_050, 2_950), (1_000, 2_090)] {
            assert_eq!(mbps(&volume, begin * 1_000_000, end * 1_000_000), 80.0, "{begin} to {end} ms");
        }
        // In the second half, nothing arrived.
        assert_eq!(mbps(&volume, 1_000_000_000, 5_000_000_000), 40.0);
        assert_eq!(mbps(&volume, 5_000_000_000, 6_000_000_000), 0.0);
    }
}
