//! Output of reproductions: tables, comma-separated points or one JSON object, and figures as SVG.

use crate::output::note;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::chart;
use kiban_lab::reproduce::osi_board::OsiBoard;
use kiban_lab::reproduce::overview;
use kiban_lab::reproduce::rdma_nic::RdmaNic;
use kiban_lab::reproduce::via_library::ViaLibrary;
use kiban_lab::reproduce::wide_area::WideArea;
use kiban_lab::reproduce::{Figure, Report};
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options common to the commands of all papers.
#[derive(Args)]
pub(super) struct Output {
    /// Print one JSON object instead of the tables.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the points of the figures and the cells of the maps as comma-separated values instead of the
    /// tables.
    #[arg(long)]
    csv: bool,
    /// Write the figures or maps into this directory, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print every value, and not only the verdict on each table and figure.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    full: bool,
    #[command(flatten)]
    strictness: Strictness,
}

/// The option for scripts that check the verdicts.
#[derive(Args)]
pub(super) struct Strictness {
    /// Exit with status 1 if a published value was missed.
    #[arg(long)]
    strict: bool,
}

impl Strictness {
    pub(super) fn status(&self, came_out: bool) -> ExitCode {
        if self.strict && !came_out { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// A figure or map: its name and its SVG.
type Picture = (&'static str, String);

/// The reproduced results of a paper.
pub(super) trait PaperResult: Serialize + Display {
    /// Returns each published value together with the reproduced one.
    fn report(&self) -> &Report;

    /// Returns the figures as SVG.
    fn pictures(&self) -> Vec<Picture> {
        self.report().figures.iter().map(|figure| (figure.name, chart::svg(figure))).collect()
    }

    /// Returns the points of the figures as comma-separated values.
    fn csv(&self) -> String {
        points(&self.report().figures)
    }
}

/// Returns the points of figures, each preceded by its name.
fn points(figures: &[Figure]) -> String {
    figures.iter().map(|figure| format!("# {}\n{}", figure.name, figure.csv())).collect()
}

impl PaperResult for Report {
    fn report(&self) -> &Report {
        self
    }
}

impl PaperResult for OsiBoard {
    fn report(&self) -> &Report {
        &self.report
    }
}

impl PaperResult for ViaLibrary {
    fn report(&self) -> &Report {
        &self.report
    }
}

impl PaperResult for RdmaNic {
    fn report(&self) -> &Report {
        &self.report
    }

    fn pictures(&self) -> Vec<Picture> {
        self.report.figures.iter().map(|figure| (figure.name, chart::svg_log_x(figure))).collect()
    }
}

impl PaperResult for WideArea {
    fn report(&self) -> &Report {
        &self.report
    }

    fn pictures(&self) -> Vec<Picture> {
        let maps = self.maps.iter().map(|map| (map.name, map.svg()));
        maps.chain(self.report.figures.iter().map(|figure| (figure.name, chart::svg(figure)))).collect()
    }

    fn csv(&self) -> String {
        format!("# maps\n{}{}", self.csv(), points(&self.report.figures))
    }
}

impl Output {
    /// Returns whether the output contains more than the verdicts or the figures' points.
    pub(super) fn shows_values(&self) -> bool {
        self.json || self.full
    }

    /// Writes the figures and prints the results.
    pub(super) fn put(&self, made: &impl PaperResult) -> Result<ExitCode, String> {
        let report = made.report();
        if let Some(folder) = &self.svg {
            write_pictures(report.paper, made.pictures(), folder)?;
        }
        if self.csv {
            crate::output::print(&made.csv())?;
        } else if self.shows_values() {
            self.print(made, || made.to_string())?;
        } else {
            crate::output::print(&overview::summary_table(&overview::places(report)).to_string())?;
            note!("every value: kiban reproduce {} --full", report.paper);
        }
        Ok(self.strictness.status(report.came_out()))
    }

    /// Prints one JSON object if --json is given, otherwise the tables.
    pub(super) fn print(
        &self,
        object: &impl Serialize,
        tables: impl FnOnce() -> String,
    ) -> Result<(), String> {
        crate::output::print(&if self.json { crate::output::json(object)? } else { tables() })
    }
}

/// Writes figures to a directory, creating it if it does not exist.
fn write_pictures(paper: &str, pictures: Vec<Picture>, folder: &Path) -> Result<(), String> {
    let say = |error: std::io::Error| format!("cannot write the figures to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(say)?;
    for (name, svg) in pictures {
        std::fs::write(folder.join(format!("{paper}-{name}.svg")), svg).map_err(say)?;
    }
    Ok(())
}

/// Returns a progress bar for points on standard error; it is hidden if standard error is not a terminal.
pub(super) fn bar(points: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {pos}/{len} points").expect("the template is well formed");
    ProgressBar::with_draw_target(Some(points), ProgressDrawTarget::stderr()).with_style(style)
}
