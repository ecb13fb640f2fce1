//! What is said of messages between two ends in real time: round trips and streams, of VI and of RDMA alike.

use crate::stats::quantile;
use serde::Serialize;
use std::time::Duration;

/// Round trips.
#[derive(Clone, Debug, Serialize)]
pub struct PingPong {
    /// Bytes of a message.
    pub bytes: u32,
    /// Round trips that count.
    pub count: u64,
    /// Of one round trip, microseconds.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
    /// The same.
    pub p999_us: f64,
    /// The shortest.
    pub min_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Processor time of this process by wall time, percent.
    pub cpu_percent: f64,
}

impl PingPong {
    /// Of round trips that took so many nanoseconds each, in any order.
    pub fn of(bytes: u32, mut nanos: Vec<f64>, cpu_percent: f64) -> PingPong {
        nanos.sort_by(f64::total_cmp);
        let at = |share| quantile(&nanos, share).unwrap_or(0.0) / 1e3;
        PingPong {
            bytes,
            count: nanos.len() as u64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            min_us: at(0.0),
            max_us: at(1.0),
            cpu_percent,
        }
    }
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages sent.
    pub count: u64,
    /// Messages that did not arrive.
    pub lost: u64,
    /// From the first to the last.
    pub seconds: f64,
    /// Bytes that arrived by that time, 10^6 a second.
    pub mbytes_per_second: f64,
    /// Messages a second.
    pub messages_per_second: f64,
    /// Processor time of this process by wall time, percent.
    pub cpu_percent: f64,
}

impl Stream {
    /// Of `count` messages, of which `arrived` did, in so much time.
    pub fn of(bytes: u32, count: u64, arrived: u64, time: Duration, cpu_percent: f64) -> Stream {
        let seconds = time.as_secs_f64().max(1e-9);
        Stream {
            bytes,
            count,
            lost: count - arrived.min(count),
            seconds,
            mbytes_per_second: arrived as f64 * f64::from(bytes) / seconds / 1e6,
            messages_per_second: arrived as f64 / seconds,
            cpu_percent,
        }
    }
}
