//! The question of a sweep: how fast are messages on a TCP connection over a real network?
//!
//! Trial     depends on the pattern: [exchanges](crate::net::transactions) per second, or a
//!           [stream](crate::net::stream) in Mbit/s.
//! Session   a trial needs a session with the host. Without one, the question only describes itself, which is
//!           enough to read records.

use super::session::Session;
use crate::engine::{
    Explanation, Failure, Metric, Metrics, Parameter, Point, Question, StoreError, Time, Value,
};
use crate::heat::Best;
use crate::net::diagnosis::findings::Findings;
use crate::net::trial::evidence::Evidence;
use crate::net::trial::setup::{PARAMETERS, QUESTION, SYSTEM, Setup};
use crate::net::trial::task::Task;
use crate::net::trial::together::run_together;
use crate::table::counted;
use std::path::Path;
use std::sync::Arc;

/// The question.
pub struct Network(Option<Arc<Session>>);

impl Network {
    /// The question without a session, which can describe itself but cannot run trials.
    pub const DESCRIPTION: Network = Network(None);

    /// Returns the question with a session for its trials.
    pub fn with(session: Arc<Session>) -> Network {
        Network(Some(session))
    }
}

const METRICS: [Metric; 8] = [
    Metric {
        name: "transactions_per_second",
        what: "exchanges of a message and its reply",
        unit: "exchanges/s",
        best: Best::High,
    },
    Metric { name: "mbps", what: "throughput of the payload", unit: "Mbit/s", best: Best::High },
    Metric {
        name: "slowest_mbps",
        what: "throughput of the slowest connection",
        unit: "Mbit/s",
        best: Best::High,
    },
    Metric {
        name: "opposite_mbps",
        what: "throughput in the opposite direction at the same time",
        unit: "Mbit/s",
        best: Best::High,
    },
    Metric { name: "p50_us", what: "median duration of an exchange", unit: "us", best: Best::Low },
    Metric { name: "max_us", what: "duration of the longest exchange", unit: "us", best: Best::Low },
    Metric {
        name: "stalled_part",
        what: "share of the time spent waiting for a timer, 0 to 1",
        unit: "",
        best: Best::Low,
    },
    Metric { name: "sent_again", what: "retransmitted segments", unit: "segments", best: Best::Low },
];

impl Question for Network {
    fn name(&self) -> &'static str {
        QUESTION
    }

    fn what(&self) -> &'static str {
        "How fast are messages on a TCP connection over a real network?"
    }

    fn time(&self) -> Time {
        Time::Real
    }

    fn parameters(&self) -> &[Parameter] {
        &PARAMETERS
    }

    fn metrics(&self) -> &[Metric] {
        &METRICS
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        Setup::of(point).map(drop)
    }

    fn trial(&self, point: &Point, _seed: u64) -> Result<Metrics, Failure> {
        let setup = Setup::of(point)?;
        let Some(session) = &self.0 else {
            return Err(Failure::Impossible(format!(
                "this question needs a session with a host: use {ASKED_BY}"
            )));
        };
        let clock = session.clock();
        let (evidence, _) =
            session.with_others(setup.connections + setup.opposite - 1, |client, others, path| {
                run_together(Task { client, path, setup: &setup, clock, captured: false }, others)
            })?;
        Ok(metrics(&evidence))
    }

    fn own_command(&self) -> Option<&'static str> {
        Some(ASKED_BY)
    }

    fn words(&self, name: &str, value: &Value) -> Option<String> {
        match (name, value) {
            ("buffer_bytes", Value::Count(0)) => Some(SYSTEM.to_owned()),
            ("mss_bytes", Value::Count(0)) => Some("of the path".to_owned()),
            ("pattern", Value::Word(pattern)) => Some(pattern.clone()),
            ("connections", Value::Count(count)) => Some(counted(*count, "connection")),
            ("opposite", Value::Count(0)) => Some("none in the opposite direction".to_owned()),
            ("opposite", Value::Count(count)) => Some(format!("{count} in the opposite direction")),
            ("no_delay", Value::Flag(no_delay)) => {
                Some(format!("Nagle {}", if *no_delay { "off" } else { "on" }))
            }
            _ => None,
        }
    }

    fn explain(&self, dir: &Path) -> Result<Explanation, StoreError> {
        Ok(Findings::of(dir)?.map_or_else(Explanation::default, |findings| findings.explanation()))
    }
}

const ASKED_BY: &str = "kiban lab sweep HOST";

/// Returns the metrics of a record.
fn metrics(evidence: &Evidence) -> Metrics {
    let mut figures = vec![("mbps", evidence.total_mbps())];
    figures.extend(evidence.slowest_mbps().map(|mbps| ("slowest_mbps", mbps)));
    figures.extend(evidence.opposite_mbps().map(|mbps| ("opposite_mbps", mbps)));
    match &evidence.exchanges {
        None => figures.push(("sent_again", evidence.retransmits() as f64)),
        Some(exchanges) => figures.extend([
            ("transactions_per_second", evidence.total_mbps() / (f64::from(evidence.message_bytes) * 8e-6)),
            ("p50_us", exchanges.p50_us),
            ("max_us", exchanges.max_us),
            ("stalled_part", exchanges.stalled_part),
        ]),
    }
    Metrics::of(&figures, serde_json::to_value(evidence).expect("plain values"))
}
