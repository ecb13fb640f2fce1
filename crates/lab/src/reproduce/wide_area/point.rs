//! Points of the lecture's simulations, and what their rows show of the flows.

use crate::mix::{FlowOutcome, Outcome};

/// The flows whose loss is shown.
pub(super) const KINDS: [&str; 3] = ["mpeg2", "jpeg", "audio"];

/// A point of the simulations of policing and multiplexing.
pub(super) struct Point {
    /// The number of lectures, or the policed rate in Mbit/s.
    pub(super) x: f64,
    pub(super) outcome: Outcome,
}

/// Returns a flow of the lecture.
pub(super) fn flow<'a>(outcome: &'a Outcome, name: &str) -> &'a FlowOutcome {
    outcome.flow(name).expect("the lecture has it")
}

/// Formats a part in percent.
pub(super) fn percent(part: f64) -> String {
    match part {
        0.0 => "0".to_owned(),
        part if part < 0.001 => format!("{:.3}", part * 100.0),
        part => format!("{:.1}", part * 100.0),
    }
}

/// Formats a ratio of each kind of flow in percent.
pub(super) fn by_kind(outcome: &Outcome, part: fn(&FlowOutcome) -> f64) -> String {
    KINDS.map(|name| percent(part(flow(outcome, name)))).join(", ")
}

/// Returns the load offered by Waseda, Mbit/s.
pub(super) fn offered(outcome: &Outcome) -> f64 {
    outcome.flows.iter().filter(|flow| flow.from == "waseda").map(|flow| flow.offered_mbps).sum()
}
