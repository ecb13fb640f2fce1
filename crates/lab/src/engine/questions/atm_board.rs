//! One point of figures 6 and 7 of paper \[1\]: the throughput of concurrent sessions on one board, by number
//! of sessions and window.
//!
//! Method    as in `kiban reproduce atm-board`: the board of 1995 with its modelled processor and memory, or
//!           today's kiban without these limits.
//! Stalled sessions  points where some sessions transfer nothing are also measured, and the result includes
//!           the number of sessions that transfer data. The paper has no values for such points.

use super::parameters::{one_of, parameter, within};
use crate::engine::{Failure, Metric, Metrics, Parameter, Point, Question, Time, Value};
use crate::heat::Best;
use crate::reproduce::atm_board::config_1995;
use crate::reproduce::flow::{Interval, measure};
use kiban_sim::Plan;
use kiban_sim::cost::BOARD_1995;
use std::time::Duration;

const BOARDS: [&str; 2] = ["1995", "today"];

pub(super) struct AtmBoard {
    parameters: Vec<Parameter>,
}

impl AtmBoard {
    pub(super) fn new() -> AtmBoard {
        let parameters = vec![
            parameter("sessions", "concurrent streams, all in one direction", Value::Count(1)),
            parameter("window_kib", "TCP window of each stream", Value::Count(16)),
            parameter("board", "1995 (modelled) or today", Value::Word("1995".into())),
            parameter("settle_milliseconds", "virtual time before the measurement", Value::Count(1500)),
            parameter("milliseconds", "virtual time of the measurement", Value::Count(1000)),
        ];
        AtmBoard { parameters }
    }
}

struct Parameters {
    plan: Plan,
    sessions: usize,
    interval: Interval,
}

impl Parameters {
    fn of(point: &Point) -> Result<Parameters, Failure> {
        let sessions = within(point, "sessions", 1, 1000)? as usize;
        let window_bytes = (within(point, "window_kib", 1, 16 << 10)? as u32) << 10;
        let plan = match one_of(point, "board", &BOARDS)? {
            "1995" => BOARD_1995.plan(&config_1995(), window_bytes),
            _ => Plan::with_window(window_bytes),
        };
        let interval = Interval {
            settle: Duration::from_millis(within(point, "settle_milliseconds", 0, 3_600_000)?),
            span: Duration::from_millis(within(point, "milliseconds", 1, 3_600_000)?),
        };
        Ok(Parameters { plan, sessions, interval })
    }
}

impl Question for AtmBoard {
    fn name(&self) -> &'static str {
        "atm-board"
    }

    fn what(&self) -> &'static str {
        "What is the total throughput of sessions that share an ATM board and its memory?"
    }

    fn time(&self) -> Time {
        Time::Virtual
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn metrics(&self) -> &[Metric] {
        &[
            Metric { name: "mbps", what: "goodput of all sessions", unit: "Mbit/s", best: Best::High },
            Metric {
                name: "moving",
                what: "sessions that transferred any data",
                unit: "sessions",
                best: Best::High,
            },
            Metric {
                name: "busy_sender",
                what: "utilization of the sending board's processor, 0 to 1",
                unit: "",
                best: Best::Low,
            },
            Metric {
                name: "busy_receiver",
                what: "utilization of the receiving board's processor, 0 to 1",
                unit: "",
                best: Best::Low,
            },
        ]
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        Parameters::of(point).map(drop)
    }

    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure> {
        let Parameters { plan, sessions, interval } = Parameters::of(point)?;
        let flow = measure(&Plan { seed, ..plan }, sessions, interval);
        let [sender, receiver] = flow.busy;
        let figures = [
            ("mbps", flow.mbps),
            ("moving", flow.active_streams as f64),
            ("busy_sender", sender),
            ("busy_receiver", receiver),
        ];
        let evidence = serde_json::json!({
            "writes_that_found_no_page": flow.page_waits.0,
            "writers_in_line": flow.page_waits.1,
        });
        Ok(Metrics::of(&figures, evidence))
    }
}
