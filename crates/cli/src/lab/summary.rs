//! `kiban lab summary`.

use clap::Args;
use kiban_lab::engine::{Manifest, Report, questions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show medians, their confidence intervals and quartiles of each point.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban lab summary map.lab\n  kiban lab summary map.lab --json > map.json\n\nExit status: 0 when every trial has a record, 1 when some are missing."
)]
pub(super) struct Summary {
    /// The folder of a run, or of merged ones.
    dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Summary {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let report = read(&self.dir)?;
        for warning in report.warnings() {
            eprintln!("kiban: {}: {warning}", self.dir.display());
        }
        if self.json {
            super::json(&report.summary)?;
        } else {
            crate::print(&report.summary.table().to_string())?;
        }
        Ok(super::status(report.records == report.trials))
    }
}

/// What is to be said of a folder.
pub(super) fn read(dir: &Path) -> Result<Report, String> {
    let say = |error: kiban_lab::engine::StoreError| error.to_string();
    let manifest = Manifest::read(dir).map_err(say)?;
    let metrics = questions::find(&manifest.plan.question).map_or(&[][..], |question| question.metrics());
    let report = Report::of(dir, metrics).map_err(say)?;
    report.ok_or_else(|| format!("{} has no record yet: run the plan first ('kiban lab run')", dir.display()))
}
