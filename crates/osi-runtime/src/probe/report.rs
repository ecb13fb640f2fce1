//! The report of a probe.

use serde::Serialize;

/// The verdict on a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The peer supports it.
    Yes,
    /// The peer does not support the feature.
    No,
    /// The answer does not show whether the peer supports the feature.
    Unclear,
}

/// One question and its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The layer to which the question refers.
    pub layer: &'static str,
    /// The question.
    pub question: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The peer's answer, in words.
    pub answer: String,
}

/// All findings of a probe.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Whether the peer uses TPKTs (RFC 1006) at all.
    pub tpkt: bool,
    /// The answers, from the lowest layer up.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(super) fn add(
        &mut self,
        layer: &'static str,
        question: impl Into<String>,
        verdict: Verdict,
        answer: impl Into<String>,
    ) {
        let (question, answer) = (question.into(), answer.into());
        self.findings.push(Finding { layer, question, verdict, answer });
    }
}
