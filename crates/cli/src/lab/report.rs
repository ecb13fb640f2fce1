//! `kiban lab report`.

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draw maps and curves of a run, and write a page about it.
///
/// report.md, summary.json and an SVG a figure go into the folder 'report' below the run's. The figures are printed as well.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban lab report map.lab\n  kiban lab report map.lab --to /srv/www/map\n\nExit status: 0 when every trial has a record, 1 when some are missing."
)]
pub(super) struct Report {
    /// The folder of a run, or of merged ones.
    dir: PathBuf,
    /// The folder for the files [default: DIR/report].
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Print the files' names as JSON in place of the figures.
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let report = super::summary::read(&self.dir)?;
        let to = self.to.unwrap_or_else(|| self.dir.join("report"));
        let files = report.write(&to).map_err(|error| error.to_string())?;
        for warning in report.warnings() {
            eprintln!("kiban: {}: {warning}", self.dir.display());
        }
        if self.json {
            super::json(&serde_json::json!({ "files": files }))?;
        } else {
            let texts = report.figures.pictures.iter().map(|picture| picture.text.clone() + "\n");
            let texts: String = texts.collect();
            crate::print(&format!("{texts}{}: {} files\n", to.display(), files.len()))?;
        }
        Ok(super::status(report.records == report.trials))
    }
}
