//! Exchanges of messages and replies: how they are timed, by the client or the server, and their statistics.
//!
//! Warm-up   the first exchanges are not measured, because a receiver acknowledges immediately at the start
//!           of a connection (quick ACK).
//! Stalls    an exchange that took [`STALL`] longer than a round trip plus the transmission time at the
//!           path's rate has waited for a timer.

use crate::stats::{quantile, sorted};
use kiban_measure::TcpInfo;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The warm-up, which is not measured, ends after this time or this number of exchanges.
pub(crate) const WARM_UP: (Duration, u64) = (Duration::from_millis(150), 40);
/// An exchange that takes this much longer than necessary has waited for a timer.
const STALL: Duration = Duration::from_millis(20);
/// The fewest exchanges that are measured.
pub(crate) const EXCHANGES_MIN: u64 = 5;

/// Statistics of exchanges of messages and replies.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Exchanges {
    /// The number of exchanges in the measured time.
    pub count: u64,
    /// The number of exchanges during the warm-up.
    pub warm_up: u64,
    /// The median duration, us.
    pub p50_us: f64,
    /// The longest duration, us.
    pub max_us: f64,
    /// Exchanges that took 20 ms longer than necessary, because they waited for a timer.
    pub stalls: u64,
    /// The median duration of the stalled exchanges, ms.
    pub stall_ms: f64,
    /// The fraction of the time spent in stalled exchanges.
    pub stalled_part: f64,
}

impl Exchanges {
    /// Returns the statistics of the durations of exchanges, each of which would take `needed_us` without
    /// waiting for a timer.
    pub(crate) fn of(times_us: &[f64], warm_up: u64, needed_us: f64) -> Exchanges {
        let sorted = sorted(times_us);
        let stall_us = needed_us + STALL.as_secs_f64() * 1e6;
        let stalled = &sorted[sorted.partition_point(|time| *time < stall_us)..];
        let all: f64 = sorted.iter().sum();
        Exchanges {
            count: sorted.len() as u64,
            warm_up,
            p50_us: quantile(&sorted, 0.5).unwrap_or(0.0),
            max_us: sorted.last().copied().unwrap_or(0.0),
            stalls: stalled.len() as u64,
            stall_ms: quantile(stalled, 0.5).unwrap_or(0.0) * 1e-3,
            stalled_part: if all > 0.0 { stalled.iter().sum::<f64>() / all } else { 0.0 },
        }
    }
}

/// Exchanges that the server started, as it measured them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The state of the connection in the server's kernel after the warm-up.
    pub info_before: TcpInfo,
    /// The measured time, s.
    pub seconds: f64,
    /// The exchanges.
    pub exchanges: Exchanges,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_exchanges_that_took_much_longer_than_necessary() {
        let times = [10_000.0, 29_000.0, 51_000.0, 53_000.0, 10_000.0];
        let exchanges = Exchanges::of(&times, 3, 10_100.0);
        assert_eq!((exchanges.count, exchanges.stalls, exchanges.warm_up), (5, 2, 3));
        assert!((exchanges.stall_ms - 52.0).abs() < 1e-9);
        assert!((exchanges.stalled_part - 104.0 / 153.0).abs() < 1e-9);
        // If an exchange needs 35 ms, there was no stall.
        assert_eq!(Exchanges::of(&times, 3, 35_000.0).stalls, 0);
        assert_eq!(Exchanges::of(&[], 0, 10_100.0).stalled_part, 0.0);
    }
}
