//! Round-trip times, and how much of them the distance explains.
//!
//! Model     a message of N bytes over L metres at B bit/s takes T = L/c + 8N/B one way (paper \[2\], with c
//!           = 2.1e8 m/s in fibre). A round trip here carries N bytes each way: 2L/c + 16N/B.
//! Rate      B is the rate of the slowest link if both directions have the same rate. Otherwise, a fitted B
//!           is the harmonic mean of both, because a message travels in each. B is given, or is the slope of
//!           the shortest round-trip times over large message sizes. These exhaust the token bucket of a rate
//!           limiter, which small messages pass at the rate of the underlying link. Between the three largest
//!           sizes there are two slopes; if they differ by more than a quarter, B is not determined.
//! Bursts    if messages take less time than B implies, 16N/B is not subtracted.
//! Rest      the part of a round trip that the model does not explain: hosts, switches, queues. L cannot be
//!           measured here; if it is not given, the rest includes the propagation delay.

use super::session::Session;
use crate::engine::Failure;
use crate::net::trial::evidence::Pattern;
use crate::net::trial::setup::Setup;
use crate::net::trial::transactions::Line;
use crate::remote::protocol::Work;
use crate::stats::{quantile, sorted};
use crate::table::Table;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Light in fibre, m/s.
pub const METRES_PER_SECOND: f64 = 2.1e8;

/// Round-trip times for one message size, us.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Bytes in each direction.
    pub bytes: u32,
    /// The number of round trips.
    pub count: usize,
    /// The shortest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// 2L/c; `None` if the distance is not known.
    pub distance_us: Option<f64>,
    /// 16N/B; `None` if the rate is not known, or if bursts exceed it.
    pub sending_us: Option<f64>,
    /// The minimum round-trip time minus propagation and transmission.
    pub rest_us: f64,
}

/// Round-trip times to a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Delays {
    /// The host.
    pub host: String,
    /// The host's address.
    pub address: String,
    /// The host's kernel.
    pub kernel: String,
    /// The length of the fibre, km, if it was given.
    pub distance_km: Option<f64>,
    /// B, Mbit/s. A fitted rate is the harmonic mean of those of both directions.
    pub rate_mbps: Option<f64>,
    /// Whether the rate was to be fitted; otherwise it was given.
    pub is_fitted: bool,
    /// Whether messages of these sizes pass faster than at the fitted rate.
    pub is_burst: bool,
    /// One row per size.
    pub rows: Vec<Row>,
}

/// A request for a measurement of delays.
#[derive(Clone, PartialEq, Debug)]
pub struct DelayRequest {
    /// Message sizes, in bytes in each direction.
    pub sizes: Vec<u32>,
    /// The number of round trips of each size.
    pub count: u32,
    /// The length of the fibre, km.
    pub distance_km: Option<f64>,
    /// The rate of the slowest link, Mbit/s.
    pub rate_mbps: Option<f64>,
}

/// Round trips for warm-up, which are not counted.
const WARM_UP: usize = 5;

/// Message sizes, in bytes, from which B is fitted, together with those of the request.
const FIT_BYTES: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];
/// How many round trips of each of these sizes are made, and for how long. A size whose round trip would
/// take longer is left out.
const FIT: (u32, Duration) = (12, Duration::from_secs(5));

/// Measures round-trip times.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn measure(session: &Session, ask: &DelayRequest, progress: &dyn Fn()) -> Result<Delays, Failure> {
    let (welcome, _) = session.path()?;
    let most = Duration::from_secs(welcome.trial_seconds_max.into());
    let mut times = Vec::new();
    for bytes in &ask.sizes {
        times.push((*bytes, round_trips(session, *bytes, ask.count, most, progress)?));
    }
    let rate_mbps = match ask.rate_mbps {
        Some(given) => Some(given),
        None => {
            let mut minima = minima(&times);
            for bytes in FIT_BYTES {
                let expected_us = minima.last().map_or(0.0, |(last, us)| us * f64::from(bytes) / last);
                if expected_us < FIT.1.as_secs_f64() * 1e6 {
                    let times = round_trips(session, bytes, FIT.0, FIT.1, &|| ())?;
                    minima.extend(self::minima(&[(bytes, times)]));
                }
            }
            fit(minima)
        }
    };
    let address = session.with(|client, _| Ok(client.peer().ip().to_string()))?;
    Ok(sum_up(session.label(), address, welcome.kernel, ask, rate_mbps, &times))
}

/// Makes round trips with `bytes` in each direction, and returns their times in us, sorted.
fn round_trips(
    session: &Session,
    bytes: u32,
    count: u32,
    most: Duration,
    progress: &dyn Fn(),
) -> Result<Vec<f64>, Failure> {
    let clock = session.clock();
    let setup = Setup { no_delay: true, ..Setup::new(Pattern::WriteRead, bytes) };
    let work = Work::Reply { message_bytes: bytes, reply_bytes: bytes };
    session.with(|client, _| {
        let longest = Duration::from_secs(client.welcome().trial_seconds_max.into());
        let data = client.begin(&setup.settings(), work, longest)?;
        let mut line = Line::new(&data.stream, &setup, bytes);
        let begin = clock.now();
        let mut times = Vec::new();
        // On a long path, stop after the time `most`, even if fewer round trips than requested were made.
        while times.len() < count as usize + WARM_UP && clock.now().since(begin) < most {
            times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
            progress();
        }
        drop(data);
        client.end()?;
        Ok(sorted(if times.len() > WARM_UP { &times[WARM_UP..] } else { &times }))
    })
}

/// Returns the shortest round-trip time of each size, as (bytes, us).
fn minima(times: &[(u32, Vec<f64>)]) -> Vec<(f64, f64)> {
    times.iter().filter_map(|(bytes, times)| Some((f64::from(*bytes), *times.first()?))).collect()
}

/// Returns B in Mbit/s, if the shortest round trips of the three largest sizes grow in proportion to the
/// size.
fn fit(mut minima: Vec<(f64, f64)>) -> Option<f64> {
    minima.sort_by(|one, other| one.0.total_cmp(&other.0));
    minima.dedup_by_key(|point| point.0);
    let [.., small, medium, large] = minima[..] else { return None };
    let slope = |one: (f64, f64), other: (f64, f64)| (other.1 - one.1) / (other.0 - one.0);
    let (first, second) = (slope(small, medium), slope(medium, large));
    let agree = first.min(second) > 0.0 && first.max(second) < 1.25 * first.min(second);
    agree.then(|| 16.0 / second)
}

fn sum_up(
    host: &str,
    address: String,
    kernel: String,
    ask: &DelayRequest,
    rate_mbps: Option<f64>,
    times: &[(u32, Vec<f64>)],
) -> Delays {
    let is_fitted = ask.rate_mbps.is_none();
    let is_burst = is_fitted && rate_mbps.is_some_and(|mbps| is_burst(&minima(times), mbps));
    let distance_us = ask.distance_km.map(|km| 2.0 * km * 1e3 / METRES_PER_SECOND * 1e6);
    let rows = times.iter().map(|(bytes, times)| {
        let at = |part| quantile(times, part).unwrap_or(0.0);
        let sending_us = rate_mbps.filter(|_| !is_burst).map(|mbps| 16.0 * f64::from(*bytes) / mbps);
        Row {
            bytes: *bytes,
            count: times.len(),
            min_us: at(0.0),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: at(1.0),
            distance_us,
            sending_us,
            rest_us: at(0.0) - distance_us.unwrap_or(0.0) - sending_us.unwrap_or(0.0),
        }
    });
    Delays {
        host: host.to_owned(),
        address,
        kernel,
        distance_km: ask.distance_km,
        rate_mbps,
        is_fitted,
        is_burst,
        rows: rows.collect(),
    }
}

/// Returns whether messages pass faster than at the rate: a whole round trip takes less time than the
/// transmission alone, or the shortest round trips of the smallest and the largest message differ by less
/// than half of what the rate implies.
fn is_burst(minima: &[(f64, f64)], mbps: f64) -> bool {
    let at = |point: Option<&(f64, f64)>| point.copied().unwrap_or_default();
    let (smallest, largest) = (at(minima.first().filter(|_| minima.len() > 1)), at(minima.last()));
    let sending_us = |bytes: f64| 16.0 * bytes / mbps;
    minima.iter().any(|(bytes, us)| *us < sending_us(*bytes))
        || largest.1 - smallest.1 < 0.5 * sending_us(largest.0 - smallest.0)
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{} ({}, {}): round trips, us", self.host, self.address, self.kernel);
        // What is unknown has no column.
        let propagation = self.rows.iter().any(|row| row.distance_us.is_some()).then_some("2L/c");
        let transmission = self.rows.iter().any(|row| row.sending_us.is_some()).then_some("16N/B");
        let known: Vec<&str> = propagation.into_iter().chain(transmission).collect();
        let heads = ["bytes", "trips", "min", "p50", "p90", "p99", "max"];
        let rest = (!known.is_empty()).then_some("rest");
        let heads = heads.iter().chain(&known).chain(&rest);
        let mut table = heads.fold(Table::new(title), |table, head| table.number_column(head));
        for row in &self.rows {
            let cells = [row.min_us, row.p50_us, row.p90_us, row.p99_us, row.max_us];
            let known = row.distance_us.into_iter().chain(row.sending_us);
            let cells = cells.into_iter().chain(known).chain(rest.map(|_| row.rest_us));
            table.row(
                [row.bytes.to_string(), row.count.to_string()]
                    .into_iter()
                    .chain(cells.map(|cell| format!("{cell:.1}"))),
            );
        }
        match (self.rate_mbps, self.is_fitted) {
            (Some(mbps), true) => {
                table.remark(format!(
                    "B = {mbps:.1} Mbit/s (fitted), the harmonic mean of the rates of both directions: the slower one has {:.1} \
                     to {mbps:.1} Mbit/s",
                    mbps / 2.0
                ))
            }
            (Some(mbps), false) => table.remark(format!("B = {mbps:.1} Mbit/s, as given")),
            (None, _) => table.remark(
                "the rate of the slowest link cannot be determined, because round trips do not grow in \
                 proportion to the message size: to subtract the transmission time, give --rate MBPS",
            ),
        };
        if self.is_burst {
            table.remark(
                "messages of these sizes pass faster than at B, as through a rate limiter that lets short \
                 bursts pass; their transmission time is not subtracted",
            );
        }
        match self.distance_km {
            Some(km) => table.remark(format!("L = {km} km of fibre, as given")),
            None => table.remark("to subtract the propagation delay, give --distance KM"),
        };
        if !known.is_empty() {
            table.remark(format!("rest = min - {}", known.join(" - ")));
        }
        if self.rows.iter().any(|row| row.rest_us < 0.0) {
            let length = propagation.map(|_| "the fibre is shorter than L");
            let rate = transmission.map(|_| {
                "a single message passes faster than at B, as through a rate limiter that lets short bursts pass"
            });
            let causes: Vec<&str> = length.into_iter().chain(rate).collect();
            table.remark(format!("rest is negative: {}", causes.join(", or ")));
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u32; 3] = [100, 1000, 10_000];

    fn delays(ask: &DelayRequest, rate_mbps: Option<f64>, time: impl Fn(u32) -> f64) -> Delays {
        let times: Vec<_> =
            SIZES.iter().map(|bytes| (*bytes, vec![time(*bytes), time(*bytes) + 50.0])).collect();
        sum_up("h", "192.0.2.1".into(), "linux".into(), ask, rate_mbps, &times)
    }

    #[test]
    fn distance_and_rate_are_separated() {
        // A round trip of 10 ms (1050 km), a line of 100 Mbit/s, and 200 us in the hosts.
        let time = |bytes: u32| 10_000.0 + 16.0 * f64::from(bytes) / 100.0 + 200.0;
        let ask = DelayRequest { sizes: SIZES.into(), count: 2, distance_km: Some(1050.0), rate_mbps: None };
        let known = delays(&ask, Some(100.0), time);
        assert!(known.is_fitted && !known.is_burst);
        for row in &known.rows {
            assert!((row.distance_us.expect("said") - 10_000.0).abs() < 1e-6);
            assert!((row.rest_us - 200.0).abs() < 1e-6, "{row:?}");
        }
        let text = known.to_string();
        assert!(text.contains("rest = min - 2L/c - 16N/B") && !text.contains("is negative"), "{text}");
        // The given distance is impossible: propagation alone would take longer than the measured round trip.
        let far = DelayRequest { distance_km: Some(2000.0), ..ask.clone() };
        let text = delays(&far, Some(100.0), time).to_string();
        assert!(text.contains("rest is negative"), "{text}");
        // Without a distance and a rate, the table mentions neither L nor B, and has no rest.
        let unknown = delays(&DelayRequest { distance_km: None, ..ask }, None, |_| 100.0);
        let text = unknown.to_string();
        assert!(text.contains("--distance KM") && text.contains("cannot be determined"), "{text}");
        assert!(["L/c", "N/B", "rest", "L ="].iter().all(|words| !text.contains(words)), "{text}");
    }

    #[test]
    fn messages_that_pass_a_rate_limiter_in_a_burst_have_no_transmission_time() {
        let ask = DelayRequest { sizes: SIZES.into(), count: 2, distance_km: None, rate_mbps: None };
        let burst = delays(&ask, Some(100.0), |bytes| 60.0 + 16.0 * f64::from(bytes) / 40_000.0);
        assert!(
            burst.is_burst && burst.rows.iter().all(|row| row.sending_us.is_none() && row.rest_us >= 0.0)
        );
        let text = burst.to_string();
        assert!(
            text.contains("B = 100.0 Mbit/s (fitted), the harmonic mean")
                && text.contains("pass faster than at B"),
            "{text}"
        );
    }

    #[test]
    fn the_rate_is_fitted_to_sizes_that_exhaust_a_token_bucket() {
        let minima = |bucket: f64, mbps: f64| -> Vec<(f64, f64)> {
            let sizes = [1.0, 9000.0, 65_536.0, 262_144.0, 1_048_576.0];
            sizes.map(|bytes: f64| (bytes, 60.0 + 16.0 * (bytes - bucket).max(0.0) / mbps)).into()
        };
        for (bucket, expected) in
            [(0.0, Some(100.0)), (32_768.0, Some(100.0)), (150_000.0, None), (500_000.0, None)]
        {
            let rate = fit(minima(bucket, 100.0));
            assert_eq!(rate.map(f64::round), expected, "{bucket}");
        }
        // 20 Mbit/s to the host and 100 from it are 33.3 on average.
        let uneven = [65_536.0, 262_144.0, 1_048_576.0]
            .map(|bytes: f64| (bytes, 60.0 + 8.0 * bytes * (1.0 / 20.0 + 1.0 / 100.0)));
        assert_eq!(fit(uneven.into()).map(|mbps| (mbps * 10.0).round()), Some(333.0));
        // Shorter round trips of longer messages are noise.
        assert_eq!(fit(vec![(1.0, 60.0), (1000.0, 50.0), (9000.0, 70.0)]), None);
        assert_eq!(fit(vec![(1.0, 60.0), (9000.0, 70.0)]), None);
    }
}
