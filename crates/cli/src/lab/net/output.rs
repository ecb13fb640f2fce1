//! Output of measurements of networks.

use crate::osi::peer::Host;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Returns a progress indicator without an end on standard error; with `quiet`, a hidden one.
pub(super) fn spinner(quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("it is well formed");
    let bar = ProgressBar::with_draw_target(None, target).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Prints one JSON object if `json` is true, otherwise the tables.
pub(in crate::lab) fn put(
    json: bool,
    made: &(impl serde::Serialize + std::fmt::Display),
) -> Result<(), String> {
    crate::output::print(&if json { crate::output::json(made)? } else { made.to_string() })
}

/// Writes files to a directory, creating it if it does not exist.
pub(super) fn write(folder: &std::path::Path, files: &[(String, Vec<u8>)]) -> Result<(), String> {
    let say = |error: std::io::Error| {
        format!("cannot write to {} ({error}): free some space, or use another directory", folder.display())
    };
    std::fs::create_dir_all(folder).map_err(say)?;
    files.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes)).map_err(say)
}

/// Returns a function that completes a subcommand of `kiban lab` and its options with the host.
pub(super) fn command(host: &Host) -> impl Fn(&str) -> String {
    move |rest| format!("kiban lab {rest} {host}")
}
