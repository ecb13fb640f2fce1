//! How what was made again is put out: tables, points or one JSON object, and pictures beside.

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::chart;
use kiban_lab::reproduce::osi_board::OsiBoard;
use kiban_lab::reproduce::rdma_nic::RdmaNic;
use kiban_lab::reproduce::via_library::ViaLibrary;
use kiban_lab::reproduce::wide_area::WideArea;
use kiban_lab::reproduce::{Figure, Report};
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What all papers' commands take.
#[derive(Args)]
pub(super) struct Output {
    /// Print one JSON object instead of the tables.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the points of the figures and the cells of the maps as comma-separated values instead of the
    /// tables.
    #[arg(long)]
    pub(super) csv: bool,
    /// Write the figures or maps into this directory, one SVG each.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// A picture's name, and the picture.
type Picture = (&'static str, String);

/// What was made of a paper.
pub(super) trait Made: Serialize + Display {
    /// The published values, and what came out.
    fn report(&self) -> &Report;

    /// The figures, drawn.
    fn pictures(&self) -> Vec<Picture> {
        self.report().figures.iter().map(|figure| (figure.name, chart::svg(figure))).collect()
    }

    /// The figures' points.
    fn csv(&self) -> String {
        points(&self.report().figures)
    }
}

/// The points of figures, each below its name.
fn points(figures: &[Figure]) -> String {
    figures.iter().map(|figure| format!("# {}\n{}", figure.name, figure.csv())).collect()
}

impl Made for Report {
    fn report(&self) -> &Report {
        self
    }
}

impl Made for OsiBoard {
    fn report(&self) -> &Report {
        &self.report
    }
}

impl Made for ViaLibrary {
    fn report(&self) -> &Report {
        &self.report
    }
}

impl Made for RdmaNic {
    fn report(&self) -> &Report {
        &self.report
    }

    fn pictures(&self) -> Vec<Picture> {
        self.report.figures.iter().map(|figure| (figure.name, chart::svg_log_x(figure))).collect()
    }
}

impl Made for WideArea {
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
    /// Draws and prints: the exit status says whether it came out.
    pub(super) fn put(&self, made: &impl Made) -> Result<ExitCode, String> {
        let report = made.report();
        if let Some(folder) = &self.svg {
            write_pictures(report.paper, made.pictures(), folder)?;
        }
        if self.csv {
            crate::output::print(&made.csv())?;
        } else {
            self.print(made, || made.to_string())?;
        }
        Ok(if report.came_out() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Prints one JSON object, if that is wanted, or the tables.
    pub(super) fn print(
        &self,
        object: &impl Serialize,
        tables: impl FnOnce() -> String,
    ) -> Result<(), String> {
        crate::output::print(&if self.json { crate::output::json(object)? } else { tables() })
    }
}

/// Writes pictures, each by its name, into a folder.
fn write_pictures(paper: &str, pictures: Vec<Picture>, folder: &Path) -> Result<(), String> {
    let say = |error: std::io::Error| format!("cannot write the figures to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(say)?;
    for (name, svg) in pictures {
        std::fs::write(folder.join(format!("{paper}-{name}.svg")), svg).map_err(say)?;
    }
    Ok(())
}

/// Shows a bar of points on standard error, if that is a terminal.
pub(super) fn bar(points: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {pos}/{len} points").expect("the template is well formed");
    ProgressBar::with_draw_target(Some(points), ProgressDrawTarget::stderr()).with_style(style)
}
