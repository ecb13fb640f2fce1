//! A report as a self-contained HTML page ([`crate::report`]).
//!
//! Contents  the first screen: what was measured, the verdict in one sentence, what helps, one figure. Below
//!           it, folded: the question's explanation; the other figures; a row for each point.
//! Limits    the page lists the first [`POINTS_MAX`] points; `summary.json` contains all of them.

use crate::engine::point::Point;
use crate::engine::questions;
use crate::engine::results::figures;
use crate::engine::results::report::Report;
use crate::engine::results::summary::{Row, Summary};
use crate::engine::results::words::{capitalized, described, label, metric_label, shown};
use crate::report::{Badge, Block, Cell, Document, Grid, Section, Tone};
use crate::table::{counted, readable};

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
    let trials = format!("{} of {} trials have a record", report.records, report.trials);
    let is_exact = report.manifest.exact;
    let time = if is_exact { "virtual time: the same on every machine" } else { "real time" };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let (title, lead, facts) = match &report.explanation.verdict {
        Some(verdict) => {
            blocks.extend(verdict.blocks.iter().cloned());
            (verdict.title.clone(), verdict.sentence.clone(), verdict.facts.clone())
        }
        None => {
            let mut facts = vec![fact("Made with", format!("kiban {version}, {time}"))];
            facts.extend(environments.iter().map(|environment| fact("On", environment.clone())));
            if !fixed.0.is_empty() {
                facts.push(fact("Constant", described(question, fixed)));
            }
            (what.to_owned(), range(report).unwrap_or_else(|| format!("{trials}.")), facts)
        }
    };
    let figure = |picture: &figures::Picture| Block::Figure(picture.drawing.clone(), picture.remark.clone());
    let first = report.figures.first;
    blocks.extend(report.figures.pictures.get(first).map(figure));
    let others = report.figures.pictures.iter().enumerate().filter(|(place, _)| *place != first);
    let mut others: Vec<Block> = others.map(|(_, picture)| figure(picture)).collect();
    let zero = report.figures.zero.iter().map(|title| format!("{title}: 0 everywhere."));
    others.extend(zero.map(Block::Paragraph));
    let mut sections = report.explanation.sections.clone();
    if !others.is_empty() {
        sections.push(Section { heading: "More figures".to_owned(), blocks: others });
    }
    let count = report.summary.rows.len();
    sections
        .push(Section { heading: format!("All {}", counted(count, "point")), blocks: vec![points(report)] });
    let mut foot = vec![format!("{trials}. kiban {version}, {time}. This page is one self-contained file.")];
    if report.explanation.verdict.is_some() {
        foot.extend(environments.iter().map(|environment| format!("Made on: {environment}.")));
        if !fixed.0.is_empty() {
            foot.push(format!("Constant parameters: {}.", described(question, fixed)));
        }
    }
    foot.push(format!("Made by: {command}."));
    Document { title, lead, facts, is_folded: true, has_contents: false, blocks, sections, foot }
}

/// Returns the range of the first metric in a sentence; `None` without results.
fn range(report: &Report) -> Option<String> {
    let Summary { rows, metrics, question, .. } = &report.summary;
    let known = questions::find(question).map_or(&[][..], |question| question.metrics());
    let metric = known.iter().find(|metric| metrics.contains(metric.name))?;
    let medians =
        |row: &Row| Some((row.metrics.get(metric.name)?.median, described(question, &varying(report, row))));
    let mut medians: Vec<(f64, String)> = rows.iter().filter_map(medians).collect();
    medians.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (least, at_least) = medians.first()?;
    let (most, at_most) = medians.last()?;
    let what = capitalized(metric.what);
    let unit = metric.unit;
    if rows.len() == 1 {
        return Some(format!("{what}: {} {unit}.", readable(*least)));
    }
    Some(format!(
        "{what}: from {} {unit} ({at_least}) to {} {unit} ({at_most}).",
        readable(*least),
        readable(*most)
    ))
}

/// Returns the parameters of a row that vary.
fn varying(report: &Report, row: &Row) -> Point {
    let varying = &report.summary.varying;
    let kept = row.point.0.iter().filter(|(name, _)| varying.contains_key(*name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn points(report: &Report) -> Block {
    let Summary { varying, metrics, rows, .. } = &report.summary;
    let mut grid = Grid { caption: "Medians of each point".to_owned(), ..Grid::default() };
    let head = |name: &String| metric_label(&report.summary.question, name);
    let parameters = varying.keys().map(|name| capitalized(&label(name)));
    grid.columns = parameters.chain(metrics.iter().map(head)).map(|name| (name, true)).collect();
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
    Block::Grid(grid)
}

fn cells(report: &Report, row: &Row) -> Vec<Cell> {
    let Summary { varying, metrics, question, .. } = &report.summary;
    let values = varying
        .keys()
        .map(|name| row.point.get(name).map_or(String::new(), |value| shown(question, name, value)));
    let medians = metrics.iter().map(|name| {
        let Some(spread) = row.metrics.get(name) else { return Cell::from("–") };
        let interval =
            spread.interval.map(|ends| format!("{} to {}", readable(ends.low), readable(ends.high)));
        Cell::from(readable(spread.median)).with_note(interval)
    });
    let mut cells: Vec<Cell> = values.map(Cell::from).chain(medians).collect();
    if let (true, Some(last)) = (row.disturbed > 0, cells.pop()) {
        let note = "foreign CPU load".to_owned();
        let note = last.note.clone().map_or(note.clone(), |interval| format!("{interval}; {note}"));
        cells.push(last.with_note(Some(note)));
    }
    cells
}
