//! Finds out what OSI features a peer supports, layer by layer, with one short connection per question.
//!
//! Purpose          given only an address, finds out which protocols the peer speaks, and what it requires.
//! Questions        TCP, TLS; RFC 1006; transport classes, sizes and selectors; session versions and
//!                  functional units; which presentation contexts are accepted; which applications ACSE
//!                  accepts, and why it refuses others; the response to F-INITIALIZE.
//! Operation        requests are built with the encoders of `wire`, without the machines in `osi`, so that
//!                  the peer's answers are shown even where a machine would end the connection.
//! Side effects     an association that is accepted is aborted at once. No files are read or written.
//! Limits           [`Target::timeout`] for each question; each request fits into one TPKT, and an answer has
//!                  at most 1 MiB. A question that depends on an earlier answer is skipped if that answer was
//!                  not received.
//! Not implemented  X.400, whose RTSE needs session functional units that these layers do not support.

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

/// Asks all questions, and returns a report.
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
