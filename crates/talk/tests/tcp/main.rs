//! TCP exchanges as packet scripts with placeholders: tables whose rows differ in a setting or a number, and
//! programs that drive an exchange in loops. A single exchange is a file in `talks/`.

mod attacks;
mod cookies;
mod cost;
mod flow;
mod hardening;
mod hostile;
mod loss;
mod opening;
mod options;
mod patience;
mod profiles;
mod recovery;
mod segments;
mod tuning;
mod urgent;

use kiban_talk::{Exchange, Report, Talk};
use std::time::Duration;

/// Runs a script, which must pass; `;` separates lines, too.
#[track_caller]
fn check(script: &str) -> Report {
    let text = script.replace(';', "\n");
    let talk = Talk::read("script", &text, &|_| None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = kiban_talk::run(&talk);
    assert!(report.failures.is_empty(), "{}\nin\n{text}", report.failures[0]);
    report
}

/// Begins an exchange with lines that must pass.
#[track_caller]
fn begin(script: &str) -> Exchange {
    let mut exchange = Exchange::new();
    run(&mut exchange, script);
    exchange
}

/// Runs lines of an exchange, which must pass; `;` separates lines, too.
#[track_caller]
fn run(exchange: &mut Exchange, script: &str) {
    exchange.run(&script.replace(';', "\n")).unwrap_or_else(|failure| panic!("{failure}"));
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns how many seeds a test runs: `KIBAN_TCP_SEEDS`, or as many as CI has time for.
fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("KIBAN_TCP_SEEDS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(usual)
}
