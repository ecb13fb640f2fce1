//! Probes what a peer supports of OSI, layer by layer, with one short connection per question.
//!
//! Purpose          given only an address, find out what speaks there, and what is needed to talk to it.
//! Questions        TCP, TLS; RFC 1006; transport's class, sizes, selectors; session's versions and
//!                  functional units; the contexts that presentation accepts; the applications that ACSE
//!                  knows, and its reasons for refusal; FTAM's answer to F-INITIALIZE.
//! Operation        requests are built with the encoders of `wire`, not by the machines of `osi`: the peer's
//!                  answers are shown as they are, even where a machine would end the connection.
//! Side effects     an association that is accepted is aborted at once. No files are read or written.
//! Limits           [`Target::timeout`] for each question; a unit is at most a TPKT, an answer at most 1 MiB.
//!                  Questions that depend on an answer that never came are skipped.
//! Not implemented  X.400, whose RTSE needs session functional units that these layers lack.

mod line;
mod report;
mod target;
#[cfg(test)]
mod tests;
mod transport;
mod upper;

pub use report::{Finding, Report, Verdict};
pub use target::{Caller, Target};

use kiban_os::Clock;

/// Runs all questions.
pub async fn probe(target: &Target) -> Report {
    let mut report = Report::default();
    let clock = Clock::new();
    let begin = clock.now();
    let mut line = match line::Line::open(target).await {
        Ok(line) => line,
        Err(failure) => {
            report.add("TCP", "connection", Verdict::No, failure.words);
            return report;
        }
    };
    let millis = clock.now().since(begin).as_secs_f64() * 1e3;
    report.add("TCP", "connection", Verdict::Yes, format!("after {millis:.1} ms"));
    if target.tls.is_some() {
        match line.secure(target).await {
            Ok(words) => report.add("TLS", "handshake and certificate", Verdict::Yes, words),
            Err(words) => {
                report.add("TLS", "handshake and certificate", Verdict::No, words);
                return report;
            }
        }
    }
    if transport::ask(target, line, &mut report).await {
        upper::ask(target, &mut report).await;
    }
    report
}
