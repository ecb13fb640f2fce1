//! `kiban lab summary`: prints statistics for each point.

use crate::output::note;
use clap::Args;
use kiban_lab::engine::store::write_atomically;
use kiban_lab::engine::{Manifest, Question, Report, questions};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the median, its confidence interval and the quartiles of each point.
///
/// The table has the names of the report; CSV, Parquet and JSON have those of plans and records. CSV and
/// Parquet have the same columns.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab summary map.lab\
        \n  kiban lab summary map.lab --csv > map.csv\
        \n  kiban lab summary map.lab --parquet map.parquet\
        \n  kiban lab summary map.lab --json > map.json\
        \n\nExit status: 0 if every trial has a record, 1 if some are missing, 2 for invalid arguments.")]
pub(super) struct Summary {
    /// Directory of a run or of merged shards.
    dir: PathBuf,
    /// Print JSON.
    #[arg(long, conflicts_with_all = ["csv", "parquet"])]
    json: bool,
    /// Print comma-separated values, one line for each point and metric.
    #[arg(long, conflicts_with = "parquet")]
    csv: bool,
    /// Write a Parquet file instead, one row for each point and metric. Replaces an earlier one, but no other
    /// file.
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

impl Summary {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (report, question) = read(&self.dir)?;
        for warning in report.warnings() {
            note!("kiban: {}: {warning}", self.dir.display());
        }
        let metrics = question.map_or(&[][..], |question| question.metrics());
        if self.json {
            super::output::json(&report.summary)?;
        } else if let Some(file) = &self.parquet {
            write_parquet(file, &report.summary.parquet(metrics))?;
            note!("wrote {}", file.display());
        } else if self.csv {
            crate::output::print(&report.summary.csv(metrics))?;
        } else {
            crate::output::print(&report.summary.table().to_string())?;
        }
        Ok(super::output::status(report.records == report.trials))
    }
}

/// Writes a Parquet file. A slip in its name must not cost records, or a device.
fn write_parquet(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let shown = file.display();
    if file == Path::new("-") {
        return Err(
            "Parquet cannot be written to standard output: name a file, such as map.parquet".to_owned()
        );
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("cannot write {shown}: there is no directory {}", folder.display()));
    }
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("cannot write {shown}: {error}")),
        Ok(found) => {
            let is_parquet = found.is_file()
                && is_parquet(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
            if !is_parquet {
                return Err(format!("{shown} exists and is not a Parquet file: choose another name"));
            }
        }
    }
    write_atomically(file, bytes).map_err(|error| error.to_string())
}

/// Returns whether a file begins as Parquet files do.
fn is_parquet(file: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    File::open(file)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"PAR1")
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
