//! TCP exchanges as packet scripts with placeholders: tables whose rows differ in a setting or a number. A
//! single exchange is a file in `talks/`.

mod cookies;
mod flow;
mod hardening;
mod loss;
mod opening;
mod options;
mod patience;
mod profiles;
mod recovery;
mod segments;
mod urgent;

use kiban_talk::{Report, Talk};

/// Runs a script, which must pass; `;` separates lines, too.
#[track_caller]
fn check(script: &str) -> Report {
    let text = script.replace(';', "\n");
    let talk = Talk::read("script", &text, &|_| None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = kiban_talk::run(&talk);
    assert!(report.failure.is_none(), "{}\nin\n{text}", report.failure.expect("it failed"));
    report
}
