//! `kiban talk`: runs packet scripts against a board.

use clap::Args;
use kiban_lab::table::counted;
use kiban_talk::{Failure, Report};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Directory of the scripts in the source tree.
const SCRIPTS: &str = "talks";

/// Run packet scripts (talks) against a board.
///
/// A script says what the peer sends and what the host does, and what the board must send and report, and
/// when. It runs in virtual time against a real board, so it is fast and always gives the same result.
/// docs/talks.md describes the grammar; the scripts are in the folder talks. Both are in kiban's source
/// tree; elsewhere, name a path.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban talk                                   every script under talks\
        \n  kiban talk talks/nagle                       the scripts of one topic\
        \n  kiban talk talks/zero-window/probe.talk --trace\
        \n                                               the whole conversation, as a script\
        \n  kiban talk new.talk --pcap /tmp/new.pcap     a capture for Wireshark\
        \n  kiban talk --json | jq '.talks[] | select(.outcome == \"failed\")'\
        \n\nExit status: 0 if no script failed, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Talk {
    /// Scripts, and directories that are searched for *.talk.
    #[arg(default_value = SCRIPTS)]
    paths: Vec<PathBuf>,
    /// Print the whole conversation of every script, in the scripts' own notation.
    #[arg(long, conflicts_with = "json")]
    trace: bool,
    /// Print one JSON object {"talks": [...]}.
    #[arg(long)]
    json: bool,
    /// Write a capture: a file for one script, a directory of files for several. Existing files are
    /// overwritten.
    #[arg(long, value_name = "PATH")]
    pcap: Option<PathBuf>,
}

impl Talk {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        if self.paths == [Path::new(SCRIPTS)] && !self.paths[0].exists() {
            return Err(format!(
                "there is no directory {SCRIPTS} here: the scripts are in kiban's source tree; run kiban \
                 there, or name files or directories with *.talk"
            ));
        }
        let files = kiban_talk::find(&self.paths)?;
        if files.is_empty() {
            return Err("no packet scripts found: name files, or directories with *.talk".into());
        }
        let (mut passed, mut skipped, mut failed) = (0, 0, 0);
        let colours = crate::output::has_colours(&std::io::stdout()) && !self.json && !self.trace;
        let mut objects = Vec::new();
        let mut text = String::new();
        for file in &files {
            // A script with a syntax error counts as failed.
            let read = kiban_talk::load(file);
            let report = read.as_ref().ok().map(kiban_talk::run);
            let (outcome, words) = match (&read, &report) {
                (Ok(_), Some(Report { waits_for: Some(feature), .. })) => {
                    ("skipped", format!("waits for {feature}"))
                }
                (Ok(_), Some(Report { failures, .. })) if !failures.is_empty() => {
                    let tell: fn(&Failure) -> String =
                        if colours { Failure::coloured } else { Failure::to_string };
                    ("failed", failures.iter().map(tell).collect::<Vec<_>>().join("\n"))
                }
                (Ok(_), _) => ("passed", String::new()),
                (Err(error), _) => ("failed", error.clone()),
            };
            match outcome {
                "skipped" => skipped += 1,
                "failed" => failed += 1,
                _ => passed += 1,
            }
            if let (Some(path), Some(report)) = (&self.pcap, &report) {
                write_capture(path, file, files.len() > 1, &report.capture)?;
            }
            if self.json {
                objects.push(serde_json::json!({
                    "file": file.display().to_string(),
                    "story": read.as_ref().map_or("", |talk| talk.head.as_str()),
                    "outcome": outcome,
                    "message": words,
                    "virtual_seconds": report.as_ref().map(|report| report.lasted.as_secs_f64()),
                    "trace": report.as_ref().map(|report| report.trace.lines().collect::<Vec<_>>()),
                }));
                continue;
            }
            if let (true, Some(report)) = (self.trace, &report) {
                text += &format!("# {}\n{}\n", file.display(), report.trace);
            }
            // With --trace, all other output is printed as comments, so that the whole output is itself a
            // valid script.
            let mark = if self.trace { "# " } else { "" };
            if outcome == "skipped" {
                text += &format!("{mark}{} {words}\n", file.display());
            } else if outcome == "failed" {
                words.lines().for_each(|line| text += &format!("{mark}{line}\n"));
                text += "\n";
            }
        }
        if self.json {
            text = crate::output::json(&serde_json::json!({ "talks": objects }))?;
        } else {
            let mark = if self.trace { "# " } else { "" };
            text += &format!(
                "{mark}{}: {passed} passed, {skipped} skipped, {failed} failed\n",
                counted(files.len(), "script")
            );
        }
        crate::output::print(&text)?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes the capture for one script to the file `path`, or into the directory `path` under the script's
/// topic and name. Existing files are overwritten.
fn write_capture(path: &Path, file: &Path, many: bool, capture: &[u8]) -> Result<(), String> {
    let target = if many || path.is_dir() {
        if path.is_file() {
            return Err(format!(
                "{} is a file, and the captures of several scripts need a directory: name a directory, or \
                 one script",
                path.display()
            ));
        }
        std::fs::create_dir_all(path)
            .map_err(|error| format!("cannot create the directory {}: {error}", path.display()))?;
        let topic = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        path.join(format!("{topic}-{name}.pcap"))
    } else {
        path.to_path_buf()
    };
    std::fs::write(&target, capture)
        .map_err(|error| format!("cannot write the capture to {}: {error}", target.display()))
}
