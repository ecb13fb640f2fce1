//! A report as a self-contained HTML page ([`crate::report`]).
//!
//! Contents  warnings; figures; the question's explanation; a row for each point; how the page was made.
//! Limits    the page lists the first [`POINTS_MAX`] points; `summary.json` contains all of them.

use crate::engine::results::report::Report;
use crate::engine::results::summary::{Row, Summary};
use crate::report::{Badge, Block, Cell, Document, Grid, Section, Tone};
use crate::table::figure;

/// The maximum number of points that are listed.
const POINTS_MAX: usize = 2000;

impl Report {
    /// Returns the HTML page. `what` is the question as a sentence, and `command` is the command that creates
    /// the page.
    pub fn html(&self, what: &str, command: &str) -> String {
        document(self, what, command).html()
    }
}

fn document(report: &Report, what: &str, command: &str) -> Document {
    let Summary { question, version, environments, fixed, .. } = &report.summary;
    let mut blocks = Vec::new();
    let warnings = report.warnings();
    if !warnings.is_empty() {
        let badge = || Badge::new(Tone::Doubt, "note");
        blocks.push(Block::Badges(warnings.into_iter().map(|warning| (badge(), warning)).collect()));
    }
    if !fixed.0.is_empty() {
        blocks.push(Block::Paragraph(format!("Constant parameters: {fixed}.")));
    }
    let figures = report.figures.pictures.iter();
    let figures: Vec<Block> =
        figures.map(|picture| Block::Figure(picture.drawing.clone(), picture.remark.clone())).collect();
    let mut sections = Vec::new();
    if !figures.is_empty() {
        sections.push(Section { heading: "Figures".to_owned(), blocks: figures });
    }
    sections.extend(report.explanation.sections.iter().cloned());
    sections.push(Section { heading: "All points".to_owned(), blocks: vec![points(report)] });
    let time = if report.manifest.exact {
        "virtual time: the results are the same on every machine"
    } else {
        "real time"
    };
    let mut foot = vec![format!("kiban {version}, {time}. This page is one self-contained file.")];
    foot.extend(environments.iter().map(|environment| format!("Made on: {environment}.")));
    foot.push(format!("Made by: {command}."));
    let lead = format!("{what} {} of {} trials have a record.", report.records, report.trials);
    Document { title: question.clone(), lead, blocks, sections, foot }
}

fn points(report: &Report) -> Block {
    let Summary { varying, metrics, rows, .. } = &report.summary;
    let mut grid = Grid { caption: "Medians of each point".to_owned(), ..Grid::default() };
    let heads = varying.keys().chain(metrics).map(|name| (name.clone(), true));
    grid.columns = heads.collect();
    if grid.columns.is_empty() {
        return Block::Paragraph("No results.".to_owned());
    }
    for row in rows.iter().take(POINTS_MAX) {
        grid.row(cells(report, row));
    }
    if rows.iter().any(|row| row.count > 1) {
        grid.remarks.push(
            "The 95 % confidence interval is below the median; it requires at least six trials.".to_owned(),
        );
    }
    if rows.len() > POINTS_MAX {
        grid.remarks.push(format!(
            "The table has the first {POINTS_MAX} of {} points; summary.json has all of them.",
            rows.len()
        ));
    }
    Block::Collapsed(format!("A row for each of {} points", rows.len()), vec![Block::Grid(grid)])
}

fn cells(report: &Report, row: &Row) -> Vec<Cell> {
    let Summary { varying, metrics, .. } = &report.summary;
    let values = varying.keys().map(|name| row.point.get(name).map_or(String::new(), ToString::to_string));
    let medians = metrics.iter().map(|name| {
        let Some(spread) = row.metrics.get(name) else { return Cell::from("–") };
        let interval = spread.interval.map(|ends| format!("{} to {}", figure(ends.low), figure(ends.high)));
        Cell::from(figure(spread.median)).with_note(interval)
    });
    let mut cells: Vec<Cell> = values.map(Cell::from).chain(medians).collect();
    if let (true, Some(last)) = (row.disturbed > 0, cells.pop()) {
        let note = "foreign CPU load".to_owned();
        let note = last.note.clone().map_or(note.clone(), |interval| format!("{interval}; {note}"));
        cells.push(last.with_note(Some(note)));
    }
    cells
}
