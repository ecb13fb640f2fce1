//! `kiban reproduce all`: reproduces all five papers, as tables and as an HTML report.

use crate::output::note;
use clap::Args;
use kiban_lab::reproduce::overview::{self, Effort};
use kiban_lab::reproduce::page;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reproduce all five papers, and write an HTML report.
///
/// The tables show a verdict for every published table and figure, and whether each weakness remains.
/// The report is a single HTML file with all figures, values, constants and data; it loads nothing from the
/// network. Measurements of this machine are at its end and do not affect the verdicts. With --exact they are
/// omitted, so that tables and report are the same on every machine.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban reproduce all                         tables, and kiban-report.html\
        \n  kiban reproduce all --html /tmp/papers.html write the report elsewhere\
        \n  kiban reproduce all --quick --exact         a few seconds, no measurements\
        \n  kiban reproduce all --json > papers.json    for scripts\
        \n\nExit status: 0; with --strict, 1 if a value was missed; 2 for invalid arguments.")]
pub(crate) struct All {
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
    /// HTML file to write.
    #[arg(long, value_name = "FILE", default_value = "kiban-report.html")]
    html: PathBuf,
    /// Also write the figures into this directory, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Use shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Omit measurements of this machine; all other results are exact.
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    strictness: super::output::Strictness,
}

impl All {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::quick() } else { Effort::full() };
        let effort = if self.exact { Effort { measured: None, ..effort } } else { effort };
        // Check that the report can be written before spending minutes on the work.
        write(&self.html, "")?;
        let bar = super::output::bar(effort.points());
        let all = overview::make(&effort, &|| bar.inc(1));
        bar.finish_and_clear();
        let document = page::document(&all, &self.command());
        write(&self.html, &document.html())?;
        if let Some(folder) = &self.svg {
            std::fs::create_dir_all(folder).map_err(|error| say(folder, &error))?;
            for picture in document.pictures() {
                write(&folder.join(format!("{}.svg", picture.name)), &picture.standalone())?;
            }
        }
        crate::output::print(&if self.json { crate::output::json(&all)? } else { all.to_string() })?;
        note!("report: {}", self.html.display());
        Ok(self.strictness.status(all.came_out()))
    }

    /// Returns the command that produces the same report.
    fn command(&self) -> String {
        let mut command = "kiban reproduce all".to_owned();
        for (given, name) in [(self.quick, " --quick"), (self.exact, " --exact")] {
            command += if given { name } else { "" };
        }
        command
    }
}

fn say(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}; choose another path with --html or --svg", path.display())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| say(path, &error))
}
