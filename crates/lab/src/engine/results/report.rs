//! The report of a run: an HTML page, Markdown, SVG figures and a JSON summary.
//!
//! Page      [`Report::html`] returns one self-contained page, which includes the question's explanation.
//! Files     `report.md`, `summary.json` and one SVG per figure. Each is written atomically, and the same
//!           records give the same bytes.

use crate::engine::question::Metric;
use crate::engine::records::store::{Manifest, Records, pretty, write_atomically};
use crate::engine::records::store_error::StoreError;
use crate::engine::results::explanation::Explanation;
use crate::engine::results::figures::{Axes, Figures, draw};
use crate::engine::results::summary::Summary;
use crate::table::counted;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The report of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The plan and the version of kiban.
    pub manifest: Manifest,
    /// The number of trials in the plan, or in its shard.
    pub trials: u64,
    /// The number of trials that have a record.
    pub records: u64,
    /// Lines that were skipped, with the reason.
    pub broken: Vec<String>,
    /// The statistics of all points.
    pub summary: Summary,
    /// The figures.
    pub figures: Figures,
    /// The question's explanation of the results.
    pub explanation: Explanation,
}

impl Report {
    /// Builds the report of a run from its folder; returns `None` if the run has no records. `metrics` are
    /// the question's metrics, or empty if the question is not known.
    ///
    /// # Errors
    /// The folder is not a run folder, or cannot be read.
    pub fn of(dir: &Path, metrics: &[Metric]) -> Result<Option<Report>, StoreError> {
        let manifest = Manifest::read(dir)?;
        let records = Records::read(dir, &manifest)?;
        let broken = records.broken.iter().map(|broken| format!("line {}: {}", broken.line, broken.why));
        let broken = broken.collect();
        let count = records.lines.len() as u64;
        let Some(summary) = Summary::of(records.in_order(&manifest)) else { return Ok(None) };
        let explanation = Explanation::default();
        let figures = draw(&summary, metrics, None, &explanation);
        let trials = manifest.shard.count(manifest.plan.trials());
        Ok(Some(Report { manifest, trials, records: count, broken, summary, figures, explanation }))
    }

    /// Adds the question's explanation and redraws the figures, with other axes if `axes` is given.
    #[must_use]
    pub fn explained(self, metrics: &[Metric], axes: Option<&Axes>, explanation: Explanation) -> Report {
        let figures = draw(&self.summary, metrics, axes, &explanation);
        Report { figures, explanation, ..self }
    }

    /// Writes the files into a folder; returns their paths, the page first.
    ///
    /// # Errors
    /// Returns [`StoreError::Write`] if a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
        std::fs::create_dir_all(dir).map_err(|error| StoreError::Write(dir.to_owned(), error))?;
        let page = (dir.join("report.md"), self.markdown().into_bytes());
        let summary = (dir.join("summary.json"), pretty(&self.summary));
        let pictures = self.figures.pictures.iter();
        let pictures =
            pictures.map(|picture| (dir.join(format!("{}.svg", picture.name)), picture.svg().into_bytes()));
        let files: Vec<(PathBuf, Vec<u8>)> = [page, summary].into_iter().chain(pictures).collect();
        files.iter().try_for_each(|(path, bytes)| write_atomically(path, bytes))?;
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }

    /// Returns whether every trial has a record.
    pub fn is_complete(&self) -> bool {
        self.records >= self.trials
    }

    /// Returns the warnings that qualify the results, including one about an incomplete run.
    pub fn warnings(&self) -> Vec<String> {
        let (records, trials) = (self.records, self.trials);
        let missing = format!("{records} of {trials} trials have a record: the run is incomplete");
        (!self.is_complete()).then_some(missing).into_iter().chain(self.faults()).collect()
    }

    /// Returns the warnings, apart from the one about an incomplete run.
    pub fn faults(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.broken.is_empty() {
            let lines = counted(self.broken.len(), "line");
            warnings.push(format!("{lines} skipped: {}", self.broken.join("; ")));
        }
        let disturbed = self.summary.disturbed();
        if disturbed > 0 {
            let trials = counted(disturbed, "trial");
            warnings.push(format!("{trials} disturbed by other processes in every attempt"));
        }
        if self.figures.left_out > 0 {
            let figures = counted(self.figures.left_out, "figure");
            warnings.push(format!("{figures} omitted because there are too many"));
        }
        warnings
    }

    /// Returns the report as Markdown.
    pub fn markdown(&self) -> String {
        let Summary { question, version, .. } = &self.summary;
        let time = if self.manifest.exact { "virtual time, exact" } else { "real time" };
        let trials = counted(self.records, "trial");
        let mut text = format!("# {question}\n\nkiban {version}, {time}, {trials}.\n");
        let mut add = |line: String| writeln!(text, "{line}").expect("writing to a string succeeds");
        for environment in &self.summary.environments {
            add(format!("\nMade on: {environment}"));
        }
        for warning in self.warnings() {
            add(format!("\n**{warning}**"));
        }
        for picture in &self.figures.pictures {
            add(format!("\n## {}\n\n![{}]({}.svg)\n", picture.title, picture.title, picture.name));
            add(format!("```text\n{}```", picture.text));
        }
        add(format!("\n## All points\n\n```text\n{}```", self.summary.table()));
        text
    }
}
