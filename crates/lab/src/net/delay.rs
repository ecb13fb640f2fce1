//! Round-trip times, and how much of them the distance explains.
//!
//! Model     a message of N bytes over L metres at B bit/s takes T = L/c + 8N/B one way (paper \[2\], with c
//!           = 2.1e8 m/s in fibre). A round trip here carries N bytes each way: 2L/c + 16N/B.
//! Rate      B is given, or is derived from the slope of the shortest round-trip times over their message
//!           sizes.
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
    /// 16N/B; `None` if the rate is not known.
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
    /// B, Mbit/s.
    pub rate_mbps: Option<f64>,
    /// Whether the rate was fitted; otherwise it was given.
    pub is_fitted: bool,
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

/// Measures round-trip times.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub fn measure(session: &Session, ask: &DelayRequest, progress: &dyn Fn()) -> Result<Delays, Failure> {
    let clock = session.clock();
    let (welcome, _) = session.path()?;
    let mut rows = Vec::new();
    let mut address = String::new();
    for bytes in &ask.sizes {
        let setup = Setup {
            pattern: Pattern::WriteRead,
            message_bytes: *bytes,
            buffer_bytes: None,
            no_delay: true,
            mss_bytes: None,
            congestion: None,
            seconds: 1.0,
        };
        let work = Work::Reply { message_bytes: *bytes, reply_bytes: *bytes };
        let most = Duration::from_secs(welcome.trial_seconds_max.into());
        let times = session.with(|client, _| {
            address = client.peer().ip().to_string();
            let data = client.begin(&setup.settings(), work, most)?;
            let mut line = Line::new(&data.stream, &setup, *bytes);
            let begin = clock.now();
            let mut times = Vec::new();
            // On a long path, stop after the time `most`, even if fewer round trips than requested were made.
            while times.len() < ask.count as usize + WARM_UP && clock.now().since(begin) < most {
                times.push(line.exchange(clock)?.as_secs_f64() * 1e6);
                progress();
            }
            drop(data);
            client.end()?;
            Ok(times)
        })?;
        rows.push((*bytes, sorted(times.get(WARM_UP..).unwrap_or(&times))));
    }
    Ok(sum_up(session.host(), address, welcome.kernel, ask, &rows))
}

fn sum_up(
    host: &str,
    address: String,
    kernel: String,
    ask: &DelayRequest,
    times: &[(u32, Vec<f64>)],
) -> Delays {
    let minima: Vec<(f64, f64)> =
        times.iter().filter_map(|(bytes, times)| Some((f64::from(*bytes), *times.first()?))).collect();
    let fitted =
        slope(&minima).filter(|us_per_byte| *us_per_byte > 0.0).map(|us_per_byte| 16.0 / us_per_byte);
    let rate_mbps = ask.rate_mbps.or(fitted);
    let distance_us = ask.distance_km.map(|km| 2.0 * km * 1e3 / METRES_PER_SECOND * 1e6);
    let rows = times.iter().map(|(bytes, times)| {
        let at = |part| quantile(times, part).unwrap_or(0.0);
        let sending_us = rate_mbps.map(|mbps| 16.0 * f64::from(*bytes) / mbps);
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
        is_fitted: ask.rate_mbps.is_none(),
        rows: rows.collect(),
    }
}

/// Returns the slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (points.len() > 1 && under > 0.0).then(|| over / under)
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{} ({}, {}): round trips, us", self.host, self.address, self.kernel);
        let heads = ["bytes", "trips", "min", "p50", "p90", "p99", "max", "2L/c", "16N/B", "rest"];
        let mut table = heads.iter().fold(Table::new(title), |table, head| table.number_column(head));
        let or_none = |figure: Option<f64>| figure.map_or("-".into(), |figure| format!("{figure:.1}"));
        for row in &self.rows {
            let cells = [row.min_us, row.p50_us, row.p90_us, row.p99_us, row.max_us];
            table.row(
                [row.bytes.to_string(), row.count.to_string()]
                    .into_iter()
                    .chain(cells.map(|cell| format!("{cell:.1}")))
                    .chain([
                        or_none(row.distance_us),
                        or_none(row.sending_us),
                        format!("{:.1}", row.rest_us),
                    ]),
            );
        }
        let rate = match (self.rate_mbps, self.is_fitted) {
            (Some(mbps), true) => format!("B fitted: {mbps:.1} Mbit/s"),
            (Some(mbps), false) => format!("B as given: {mbps:.1} Mbit/s"),
            (None, _) => "B unknown: round-trip times do not grow with the message size".into(),
        };
        let distance = self.distance_km.map_or_else(
            || "L unknown: give --distance KM to subtract the propagation delay from rest".into(),
            |km| format!("L as given: {km} km of fibre"),
        );
        table.remark(format!("{distance}; {rate}; rest = min - 2L/c - 16N/B"));
        if self.rows.iter().any(|row| row.rest_us < 0.0) {
            table.remark(
                "rest is negative: either the fibre is shorter than L, or B is not the rate of a single \
                 message; a rate limiter passes short bursts at the rate of the underlying link, so give \
                 that rate as --rate",
            );
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_and_rate_are_separated() {
        // A round trip of 10 ms (1050 km), a line of 100 Mbit/s, and 200 us in the hosts.
        let time = |bytes: u32| 10_000.0 + 16.0 * f64::from(bytes) / 100.0 + 200.0;
        let sizes = [100, 1000, 10_000];
        let times: Vec<_> =
            sizes.iter().map(|bytes| (*bytes, vec![time(*bytes), time(*bytes) + 50.0])).collect();
        let ask = DelayRequest { sizes: sizes.into(), count: 2, distance_km: Some(1050.0), rate_mbps: None };
        let delays = sum_up("h", "192.0.2.1".into(), "linux".into(), &ask, &times);
        assert!((delays.rate_mbps.expect("fitted") - 100.0).abs() < 1e-6 && delays.is_fitted);
        for row in &delays.rows {
            assert!((row.distance_us.expect("said") - 10_000.0).abs() < 1e-6);
            assert!((row.rest_us - 200.0).abs() < 1e-6, "{row:?}");
        }
        assert!(!delays.to_string().contains("is negative"));
        // The given distance is impossible: propagation alone would take longer than the measured round trip.
        let ask = DelayRequest { distance_km: Some(2000.0), ..ask };
        let delays = sum_up("h", String::new(), String::new(), &ask, &times);
        assert!(delays.to_string().contains("rest is negative"), "{delays}");
        let flat = [(1, vec![100.0]), (1000, vec![100.0])];
        let ask = DelayRequest { distance_km: None, ..ask };
        let delays = sum_up("h", String::new(), String::new(), &ask, &flat);
        assert_eq!((delays.rate_mbps, delays.rows[0].rest_us), (None, 100.0));
        assert!(delays.to_string().contains("L unknown"));
    }
}
