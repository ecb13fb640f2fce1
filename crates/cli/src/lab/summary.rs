//! `kiban lab summary`: prints statistics for each point.

use crate::output::note;
use clap::Args;
use kiban_lab::engine::{Manifest, Question, Report, questions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the median, its confidence interval and the quartiles of each point.
///
/// The table has the names of the report; CSV and JSON have those of plans and records. For Parquet, use
/// write_parquet of the Python package: kiban.lab.read("map.lab").write_parquet("map.parquet").
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab summary map.lab\
        \n  kiban lab summary map.lab --csv > map.csv\
        \n  kiban lab summary map.lab --json > map.json\
        \n\nExit status: 0 if every trial has a record, 1 if some are missing, 2 for invalid arguments.")]
pub(super) struct Summary {
    /// Directory of a run or of merged shards.
    dir: PathBuf,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values, one line for each point and metric.
    #[arg(long)]
    csv: bool,
}

impl Summary {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (report, question) = read(&self.dir)?;
        for warning in report.warnings() {
            note!("kiban: {}: {warning}", self.dir.display());
        }
        if self.json {
            super::output::json(&report.summary)?;
        } else if self.csv {
            let metrics = question.map_or(&[][..], |question| question.metrics());
            crate::output::print(&report.summary.csv(metrics))?;
        } else {
            crate::output::print(&report.summary.table().to_string())?;
        }
        Ok(super::output::status(report.records == report.trials))
    }
}

/// Reads the report of the run in a directory, and looks up its question, if the question is known.
pub(super) fn read(dir: &Path) -> Result<(Report, Option<&'static dyn Question>), String> {
    let say = |error: kiban_lab::engine::StoreError| error.to_string();
    let manifest = Manifest::read(dir).map_err(say)?;
    let question = questions::find(&manifest.plan.question);
    let metrics = question.map_or(&[][..], |question| question.metrics());
    let report = Report::of(dir, metrics).map_err(say)?.ok_or_else(|| {
        let command = question.and_then(|question| question.own_command()).unwrap_or("kiban lab run PLAN");
        format!(
            "{} has no records yet: run some trials first ('{command} --out {}')",
            dir.display(),
            dir.display()
        )
    })?;
    Ok((report, question))
}
