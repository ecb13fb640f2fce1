//! One cell of the throughput map of paper \[2\]: a stream between two workstations of 1995 on an ATM switch.
//!
//! Method    [`Experiment`], as in `kiban reproduce wide-area-atm`, with any MTU and duration.
//! Distance  the hosts can be any length of fibre apart, which the paper planned to examine (§5): its map was
//!           measured in one room. A window of w bytes carries at most w per round trip.
//! Limits    the seed has no effect, because the set-up contains nothing random.

use super::parameters::{one_of, parameter, within};
use crate::engine::{Failure, Metric, Metrics, Parameter, Point, Question, Time, Value};
use crate::heat::Best;
use crate::reproduce::wide_area::delay::METRES_PER_SECOND;
use crate::reproduce::wide_area::hosts::Experiment;
use crate::reproduce::wide_area::map::experiment;
use kiban_tcpip::tcp::{Config, PROFILES};
use std::time::Duration;

/// The longest fibre: to the antipodes and back.
const KILOMETRES_MAX: f64 = 40_000.0;

pub(super) struct WideArea {
    parameters: Vec<Parameter>,
}

impl WideArea {
    pub(super) fn new() -> WideArea {
        let parameters = vec![
            parameter("message_bytes", "length of every write", Value::Count(4000)),
            parameter("buffer_bytes", "send and receive buffers of both hosts", Value::Count(8000)),
            parameter("profile", "TCP profile: modern, bsd43 or solaris23", Value::Word("solaris23".into())),
            parameter("mtu_bytes", "longest IP packet", Value::Count(9180)),
            parameter("kilometres", "length of the fibre between the hosts", Value::Figure(0.0)),
            parameter(
                "milliseconds",
                "virtual time of the measurement, which begins after 0.5 s",
                Value::Count(2000),
            ),
        ];
        WideArea { parameters }
    }
}

struct Cell {
    experiment: Experiment,
    interval: Duration,
}

impl Cell {
    fn of(point: &Point) -> Result<Cell, Failure> {
        let message_bytes = within(point, "message_bytes", 1, 1 << 20)?;
        let buffer_bytes = within(point, "buffer_bytes", 500, 1 << 18)?;
        let mtu_bytes = within(point, "mtu_bytes", 576, 9180)?;
        let milliseconds = within(point, "milliseconds", 1, 3_600_000)?;
        let kilometres = point.figure("kilometres").filter(|km| (0.0..=KILOMETRES_MAX).contains(km));
        let kilometres = kilometres.ok_or_else(|| {
            Failure::Impossible(format!("kilometres must be a number from 0 to {KILOMETRES_MAX}"))
        })?;
        let profile = one_of(point, "profile", &PROFILES)?;
        let tcp = Config::profile(profile).expect("it is one of the profiles");
        let cell = experiment(&tcp, buffer_bytes as u32, message_bytes as usize);
        let propagation = Duration::from_secs_f64(kilometres * 1e3 / METRES_PER_SECOND);
        let experiment =
            Experiment { mtu_bytes: mtu_bytes as usize, delay: cell.delay + propagation, ..cell };
        Ok(Cell { experiment, interval: Duration::from_millis(milliseconds) })
    }
}

impl Question for WideArea {
    fn name(&self) -> &'static str {
        "wide-area-atm"
    }

    fn what(&self) -> &'static str {
        "How fast is a TCP stream between two workstations of 1995 on an ATM switch?"
    }

    fn time(&self) -> Time {
        Time::Virtual
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn metrics(&self) -> &[Metric] {
        &[
            Metric { name: "mbps", what: "goodput", unit: "Mbit/s", best: Best::High },
            Metric {
                name: "waits_per_second",
                what: "delayed ACKs of the receiver per second",
                unit: "1/s",
                best: Best::Low,
            },
        ]
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        Cell::of(point).map(drop)
    }

    fn trial(&self, point: &Point, _seed: u64) -> Result<Metrics, Failure> {
        let Cell { experiment, interval } = Cell::of(point)?;
        let outcome = experiment.run(interval, 0);
        let waits = outcome.waits as f64 / interval.as_secs_f64();
        let figures = [("mbps", outcome.mbps), ("waits_per_second", waits)];
        Ok(Metrics::of(&figures, serde_json::Value::Null))
    }
}
