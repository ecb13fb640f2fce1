//! `kiban lab report`: writes an HTML report on a run.

use crate::output::note;
use clap::Args;
use kiban_lab::engine::store::write_atomically;
use kiban_lab::engine::{Axes, Explanation, Question};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a report of a run, with maps and curves.
///
/// The report is one HTML file with all figures and their data; for a sweep of a real network it also has the
/// cause of each slow cell and the remedies that were tried. report.md, summary.json and one SVG per figure
/// are written into the subdirectory 'report'. The figures are also printed.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab report map.lab                          then open map.lab/report.html\
        \n  kiban lab report map.lab --html /srv/www/map.html --to /srv/www/map\
        \n  kiban lab report lab-HOST --axes message_bytes,buffer_bytes\
        \n\nExit status: 0 if every trial has a record, 1 if some are missing, 2 for invalid arguments.")]
pub(super) struct Report {
    /// Directory of a run, of merged shards, or of a sweep of a real network.
    dir: PathBuf,
    /// HTML file to write [default: DIR/report.html].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the other files [default: DIR/report].
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Parameters on a map's horizontal and vertical axis [default: the two with the most values].
    #[arg(long, value_name = "ACROSS,DOWN", value_delimiter = ',', num_args = 1)]
    axes: Vec<String>,
    /// Print the file names as JSON instead of the figures.
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let say = |error: kiban_lab::engine::StoreError| error.to_string();
        let (report, question) = super::summary::read(&self.dir)?;
        let axes = match &self.axes[..] {
            [] => None,
            [across, down] => Some(Axes::of(&report.summary, across, down)?),
            _ => return Err("a map has two axes: --axes ACROSS,DOWN".to_owned()),
        };
        let explanation = question
            .map_or(Ok(Explanation::default()), |question| question.explain(&self.dir))
            .map_err(say)?;
        let metrics = question.map_or(&[][..], |question| question.metrics());
        let report = report.explained(metrics, axes.as_ref(), explanation);
        let to = self.to.unwrap_or_else(|| self.dir.join("report"));
        let page = self.html.unwrap_or_else(|| self.dir.join("report.html"));
        let what = question.map_or("", Question::what);
        let html = report.html(what, &format!("kiban lab report {}", self.dir.display()));
        write_atomically(&page, html.as_bytes()).map_err(say)?;
        let mut files = vec![page.clone()];
        files.extend(report.write(&to).map_err(say)?);
        for warning in report.warnings() {
            note!("kiban: {}: {warning}", self.dir.display());
        }
        if self.json {
            super::output::json(&serde_json::json!({ "files": files }))?;
        } else {
            let texts = report.figures.pictures.iter().map(|picture| picture.text.clone() + "\n");
            let texts: String = texts.collect();
            let count = files.len() - 1;
            crate::output::print(&format!("{texts}{}; {}: {count} files\n", page.display(), to.display()))?;
        }
        Ok(super::output::status(report.records == report.trials))
    }
}
