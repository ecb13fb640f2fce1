//! Output of the `kiban lab` commands.

use crate::output::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Prints a value as JSON.
pub(super) fn json(object: &impl Serialize) -> Result<(), String> {
    crate::output::print(&crate::output::json(object)?)
}

/// Returns a progress bar for trials on standard error; it is hidden if standard error is not a terminal.
pub(super) fn bar(trials: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} trials, {eta} to go {msg}");
    let style = style.expect("the template is well formed");
    ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr()).with_style(style)
}

/// Returns the exit status, which is success if every trial has a record.
pub(super) fn status(whole: bool) -> ExitCode {
    if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells on standard error where the records of a finished run are, and how to see them.
pub(super) fn tell_next(folder: &Path) {
    let folder = folder.display();
    note!("records in {folder}; next: kiban lab report {folder}");
}
