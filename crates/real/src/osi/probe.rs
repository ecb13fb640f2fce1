//! What a peer supports of OSI, layer by layer: questions, each on a short connection of its own.
//!
//! Goal      who has an address and nothing else learns what speaks there, and what it would take to speak with it.
//! Asks      TCP, TLS; RFC 1006; transport's class, sizes, selectors; session's versions and units; which contexts presentation
//!           takes; which applications ACSE knows, and why it refuses; what FTAM answers to F-INITIALIZE.
//! How       what is sent is built by hand with the formats of `wire`, not by the machines of `stack`: a peer's answer is to be seen
//!           as it is, also where a machine would end the conversation.
//! Careful   an association that is granted is aborted at once. Nothing is read or written but the answers.
//! Limits    each question has [`Target::timeout`]; a unit is at most a TPKT, an answer at most 1 MiB. A peer that
//!           is silent is not asked the questions that depend on an answer.
//! Left out  X.400, whose RTSE wants units of session that these layers do not have.

mod line;
#[cfg(test)]
mod tests;
mod transport;
mod upper;

use crate::Clock;
use kiban_stack::osi::Selectors;
use serde::Serialize;
use std::time::Duration;

/// Whom to ask, and how.
#[derive(Clone)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// TLS, if it is to be spoken.
    pub tls: Option<super::association::Tls>,
    /// Called selectors, where the peer wants some.
    pub called: Selectors,
    /// As whom FTAM is asked.
    pub caller: Caller,
    /// How long one question may take.
    pub timeout: Duration,
}

/// A user of FTAM's; without a name, nobody.
#[derive(Clone, Default)]
pub struct Caller {
    /// The initiator identity.
    pub user: Option<String>,
    /// The filestore password.
    pub password: Option<String>,
}

/// What came of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// Neither.
    Unclear,
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Which layer it is about.
    pub layer: &'static str,
    /// What was asked.
    pub question: String,
    /// Whether it is so.
    pub verdict: Verdict,
    /// What the peer said, in words.
    pub answer: String,
}

/// All answers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Whether the peer speaks TPKT (RFC 1006) at all.
    pub tpkt: bool,
    /// The answers, from the lowest layer up.
    pub findings: Vec<Finding>,
}

impl Report {
    fn say(
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

/// Asks everything.
pub async fn probe(target: &Target) -> Report {
    let mut report = Report::default();
    let clock = Clock::new();
    let begin = clock.now();
    let mut line = match line::Line::open(target).await {
        Ok(line) => line,
        Err(failure) => {
            report.say("TCP", "is there a connection", Verdict::No, failure.words);
            return report;
        }
    };
    let millis = clock.now().since(begin).as_secs_f64() * 1e3;
    report.say("TCP", "is there a connection", Verdict::Yes, format!("after {millis:.1} ms"));
    if target.tls.is_some() {
        match line.secure(target).await {
            Ok(words) => report.say("TLS", "is it spoken, and trusted", Verdict::Yes, words),
            Err(words) => {
                report.say("TLS", "is it spoken, and trusted", Verdict::No, words);
                return report;
            }
        }
    }
    if transport::ask(target, line, &mut report).await {
        upper::ask(target, &mut report).await;
    }
    report
}
