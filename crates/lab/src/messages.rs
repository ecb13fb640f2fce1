//! Results of real-time message benchmarks of VI and RDMA: round trips and streams.

use crate::stats::quantile;
use serde::Serialize;
use std::time::Duration;

/// The result of a round-trip (ping-pong) measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PingPong {
    /// Bytes per message.
    pub bytes: u32,
    /// Round trips measured, without the warm-up.
    pub count: u64,
    /// Median round-trip time, microseconds.
    pub p50_us: f64,
    /// 99th percentile of the round-trip time, microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the round-trip time, microseconds.
    pub p999_us: f64,
    /// Shortest round-trip time, microseconds.
    pub min_us: f64,
    /// Longest round-trip time, microseconds.
    pub max_us: f64,
    /// CPU time of this process divided by wall time, percent.
    pub cpu_percent: f64,
}

impl PingPong {
    /// Summarizes round-trip times in nanoseconds, in any order.
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

/// The result of a one-way stream measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// Bytes per message.
    pub bytes: u32,
    /// Messages sent.
    pub count: u64,
    /// Messages that did not arrive.
    pub lost: u64,
    /// Duration of the stream, seconds.
    pub seconds: f64,
    /// Throughput of the messages that arrived, 10^6 bytes per second.
    pub mbytes_per_second: f64,
    /// Messages that arrived per second.
    pub messages_per_second: f64,
    /// CPU time of this process divided by wall time, percent.
    pub cpu_percent: f64,
}

impl Stream {
    /// Summarizes a stream that lasted `time`, in which `count` messages were sent and `arrived` of them were
    /// received.
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
