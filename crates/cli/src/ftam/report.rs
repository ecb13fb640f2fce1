//! What a command has done, as lines of text or as one JSON object.

use super::attributes::FileAttributes;
use super::link::Peer;
use super::options::Association;
use crate::output::{json_line, note, print};
use kiban_lab::table::Table;
use kiban_os::text::{printable, printable_lines};
use kiban_osi::stack::meter::Task;
use kiban_osi_runtime::ftam::timing::Stopwatch;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// A completed transfer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TransferResult {
    /// Source.
    pub(super) from: String,
    /// Destination.
    pub(super) to: String,
    /// The number of content bytes, including those transferred in earlier attempts.
    pub(super) bytes: u64,
    /// Duration in seconds, excluding the time to connect; 0 for a copy of an earlier run.
    pub(super) seconds: f64,
    /// Whether the transfer resumed an earlier attempt.
    pub(super) resumed: bool,
    /// Whether the source was deleted afterwards.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleted: bool,
}

/// A change other than a transfer, or one that is planned.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Action {
    pub(super) action: &'static str,
    pub(super) name: String,
}

/// The result of a command.
#[derive(Default, Serialize)]
pub(super) struct Report {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) transfers: Vec<TransferResult>,
    /// Files that were not transferred because they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<String>,
    /// Files that `collect` left at the peer, because they may still be written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) actions: Vec<Action>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries: Option<Vec<FileAttributes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attributes: Option<FileAttributes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timing: Vec<Layer>,
    /// Whether the result is printed as one JSON object, not line by line.
    #[serde(skip)]
    json: bool,
    #[serde(skip)]
    quiet: bool,
    #[serde(skip)]
    shows_timing: bool,
}

/// Processing time of a layer.
#[derive(Serialize)]
struct Layer {
    task: &'static str,
    microseconds: f64,
    turns: u64,
}

impl Report {
    pub(super) fn new(association: &Association) -> Report {
        Report {
            json: association.json,
            quiet: association.quiet,
            shows_timing: association.timing,
            ..Report::default()
        }
    }

    /// Returns whether nothing was done.
    pub(super) fn is_empty(&self) -> bool {
        self.transfers.is_empty() && self.failures.is_empty()
    }

    /// Prints no lines, because standard output carries contents.
    pub(super) fn silence(&mut self) {
        self.quiet = true;
    }

    /// Adds a transfer, and prints its line.
    pub(super) fn transferred(&mut self, peer: &Peer, moved: TransferResult) {
        if !self.json && !self.quiet {
            let TransferResult { from, to, bytes, seconds, resumed, deleted } = &moved;
            let rate = *bytes as f64 / seconds.max(1e-9) / 1e6;
            let how = match *bytes {
                _ if *resumed => ", resumed".into(),
                // For small files, the rate would mainly reflect the protocol exchanges.
                ..1_000_000 => String::new(),
                _ => format!(", {rate:.1} MB/s"),
            };
            let deleted = if *deleted { ", deleted there" } else { "" };
            let (from, to) = (printable(from), printable(to));
            let time = match *seconds {
                0.0 => ", copied earlier".into(),
                seconds => format!(" in {seconds:.3} s{how}"),
            };
            let printed = peer.print(&format!("{from} -> {to}: {bytes} bytes{time}{deleted}\n"));
            self.failures.extend(printed.err());
        }
        self.transfers.push(moved);
    }

    /// Adds another change, and prints its line if `is_printed`.
    pub(super) fn acted(&mut self, action: &'static str, name: String, is_printed: bool) {
        if is_printed && !self.json && !self.quiet {
            self.failures.extend(print(&format!("{action} {}\n", printable(&name))).err());
        }
        self.actions.push(Action { action, name });
    }

    /// Adds a failure, which is printed at the end.
    pub(super) fn failed(&mut self, failure: String) {
        // A round of a collection may find the same obstacle twice.
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// Adds the time that an association spent in each layer.
    pub(super) fn timed(&mut self, stopwatch: Option<Stopwatch>) {
        if self.shows_timing
            && let Some(stopwatch) = stopwatch
        {
            self.timing = layers(&stopwatch);
        }
    }

    /// Prints the result.
    pub(super) fn finish(self) -> Result<ExitCode, String> {
        if self.json {
            print(&json_line(&self)?)?;
        } else {
            self.print_words()?;
        }
        for failure in &self.failures {
            note!("kiban: {}", printable_lines(failure));
        }
        Ok(if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print_words(&self) -> Result<(), String> {
        if let Some(attributes) = &self.attributes {
            print(&attributes.table(String::new()).to_string())?;
        }
        if !self.timing.is_empty() {
            let mut table = Table::new("Time of each task")
                .text_column("task")
                .number_column("us")
                .number_column("turns");
            for layer in &self.timing {
                table.row([layer.task.into(), format!("{:.1}", layer.microseconds), layer.turns.to_string()]);
            }
            print(&table.to_string())?;
        }
        Ok(())
    }
}

/// Returns a time in seconds, rounded up.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn layers(stopwatch: &Stopwatch) -> Vec<Layer> {
    let layer = |(task, spent, turns): (Task, Duration, u64)| Layer {
        task: task.name(),
        microseconds: spent.as_secs_f64() * 1e6,
        turns,
    };
    stopwatch.spent().map(layer).collect()
}
