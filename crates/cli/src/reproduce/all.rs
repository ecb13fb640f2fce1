//! `kiban reproduce all`: the five papers at once, in tables and as a page.

use clap::Args;
use kiban_lab::reproduce::overview::{self, Effort};
use kiban_lab::reproduce::page;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// All five papers: a verdict for every table and figure, what is left of each machine's weakness, and a page
/// for the browser.
///
/// The page holds everything (figures, values, constants, data to download), asks nobody for anything, and is
/// read in light and dark. What is measured on this machine stands apart at its end and is part of no
/// verdict; with --exact it is left out, and page and tables come out the same on every machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban reproduce all                         tables, and kiban-report.html\n  kiban reproduce all --html /tmp/papers.html  the page elsewhere\n  kiban reproduce all --quick --exact         seconds, and nothing that is measured\n  kiban reproduce all --json > papers.json    for programs\n\nThe page opens with any browser, from the disk."
)]
pub(crate) struct All {
    /// Print one JSON object in place of the tables.
    #[arg(long)]
    json: bool,
    /// Where to write the page.
    #[arg(long, value_name = "FILE", default_value = "kiban-report.html")]
    html: PathBuf,
    /// Write the page's figures into this folder as well, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Shorter runs and fewer points.
    #[arg(long)]
    quick: bool,
    /// Only what is exact: nothing is measured on this machine.
    #[arg(long)]
    exact: bool,
}

impl All {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let effort = if self.quick { Effort::quick() } else { Effort::full() };
        let effort = if self.exact { Effort { measured: None, ..effort } } else { effort };
        // Before minutes of work: whether the page can be written at all.
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
        eprintln!("the page: {}", self.html.display());
        Ok(if all.came_out() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// What makes the same page again.
    fn command(&self) -> String {
        let mut command = "kiban reproduce all".to_owned();
        for (given, name) in [(self.quick, " --quick"), (self.exact, " --exact")] {
            command += if given { name } else { "" };
        }
        command
    }
}

fn say(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written: {error}; name another place with --html or --svg", path.display())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| say(path, &error))
}
