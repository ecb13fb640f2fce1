//! How a measured case is judged: whether it is slow, and why.

use super::cause::{self, Cause, explain, is_lossy, is_slow, is_window_bound};
use crate::engine::Record;
use crate::net::trial::evidence::Evidence;

/// The measurements of a point.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) figure: f64,
    pub(super) evidence: Evidence,
}

impl Measured {
    pub(super) fn of(record: &Record) -> Option<Measured> {
        let evidence: Evidence = serde_json::from_value(record.evidence.clone()).ok()?;
        let figure = *record.metrics.get(evidence.pattern.metric())?;
        Some(Measured { figure, evidence })
    }
}

/// How the cells of a map are judged.
pub(super) struct Judge {
    /// Streams are slow below this rate.
    pub(super) slow_mbps: f64,
    /// Streams are predicted to be slow below this rate.
    pub(super) predicted_mbps: f64,
    /// Whether loss is a fault in this direction, of slow streams and others.
    pub(super) is_lossy: bool,
    /// Whether streams are compared with each other, not with a rate that the user chose.
    pub(super) is_relative: bool,
}

impl Judge {
    /// Returns whether a case is slow.
    pub(super) fn is_slow(&self, evidence: &Evidence) -> bool {
        is_slow(evidence, self.slow_mbps)
            || (self.is_lossy && is_lossy(evidence))
            || (self.is_relative && is_window_bound(evidence))
    }

    /// Returns why a case is slow; `None` if it is not, or has all that the path carries.
    pub(super) fn explanation(&self, evidence: &Evidence) -> Option<cause::Explanation> {
        let explanation = self.is_slow(evidence).then(|| explain(evidence))?;
        let is_full = self.is_relative && explanation.cause == Cause::PathFull;
        (!is_full).then_some(explanation)
    }
}
