//! How a measured case is judged: whether it is slow, and why.

use super::cause::{Cause, Explanation, explain, is_lossy, is_slow, is_system_bound};
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

/// What there is to say about a case that is below its threshold.
pub(super) enum Judged {
    /// It is slow.
    Slow(Explanation),
    /// It has all that the path carries; the evidence for that.
    Full(String),
}

/// How the cells of a map are judged.
pub(super) struct Judge {
    /// Streams are slow below this rate.
    pub(super) slow_mbps: f64,
    /// The rate of the best stream in this direction.
    pub(super) best_mbps: f64,
    /// Streams are predicted to be slow below this rate.
    pub(super) predicted_mbps: f64,
    /// Whether loss is a fault in this direction, of slow streams and others.
    pub(super) is_lossy: bool,
    /// Whether streams are compared with each other, not with a rate that the user chose.
    pub(super) is_relative: bool,
}

impl Judge {
    /// Returns what there is to say about a case; `None` if it is not slow.
    pub(super) fn verdict(&self, evidence: &Evidence) -> Option<Judged> {
        let is_slow = is_slow(evidence, self.slow_mbps)
            || (self.is_lossy && is_lossy(evidence))
            || (self.is_relative && is_system_bound(evidence));
        let explanation = is_slow.then(|| explain(evidence, self.best_mbps))?;
        let is_full = self.is_relative && explanation.cause == Cause::PathFull;
        Some(if is_full { Judged::Full(explanation.because) } else { Judged::Slow(explanation) })
    }

    /// Returns why a case is slow; `None` if it is not, or has all that the path carries.
    pub(super) fn explanation(&self, evidence: &Evidence) -> Option<Explanation> {
        match self.verdict(evidence) {
            Some(Judged::Slow(explanation)) => Some(explanation),
            Some(Judged::Full(_)) | None => None,
        }
    }
}
