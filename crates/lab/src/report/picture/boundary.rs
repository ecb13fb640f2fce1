//! A table of shaded cells with a line between those on either side of a boundary. A standalone SVG file.

use super::canvas::Canvas;
use crate::report::escape::text;
use std::fmt::Write as _;

const WIDE: usize = 60;
const HIGH: usize = 24;
const LEFT: usize = 76;
const TOP: usize = 48;

/// One cell.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundaryCell {
    /// Its text.
    pub words: String,
    /// The text that is shown when the pointer is over the cell.
    pub tooltip: Option<String>,
    /// The shade, from 0 (dark) to 1 (light).
    pub share: f64,
    /// The side of the boundary.
    pub is_beyond: bool,
}

/// A table with a boundary.
#[derive(Clone, PartialEq, Debug)]
pub struct Boundary {
    /// The title.
    pub title: String,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// Labels of the rows.
    pub rows: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Vec<BoundaryCell>>,
    /// The line below the table.
    pub remark: String,
}

impl Boundary {
    /// Returns a standalone SVG file.
    pub fn svg(&self) -> String {
        let (width, height) = (LEFT + WIDE * self.columns.len() + 8, TOP + HIGH * self.rows.len() + 28);
        let mut svg = Canvas::default();
        svg.add(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n<text x=\"8\" \
             y=\"16\">{}</text>",
            text(&self.title)
        ));
        for (column, label) in self.columns.iter().enumerate() {
            let (x, label) = (LEFT + WIDE * column + WIDE / 2, text(label));
            svg.add(format!("<text x=\"{x}\" y=\"40\" text-anchor=\"middle\">{label}</text>"));
        }
        for (row, label) in self.rows.iter().enumerate() {
            let (x, y, label) = (LEFT - 6, TOP + HIGH * row, text(label));
            svg.add(format!("<text x=\"{x}\" y=\"{}\" text-anchor=\"end\">{label}</text>", y + 16));
            for (column, BoundaryCell { words, tooltip, share, .. }) in self.cells[row].iter().enumerate() {
                let x = LEFT + WIDE * column;
                // The text is readable on light and dark cells.
                let (red, green, blue) = (150.0 + 90.0 * share, 40.0 + 200.0 * share, 40.0 + 180.0 * share);
                let ink = if *share < 0.35 { "white" } else { "black" };
                let title = tooltip.as_ref().map(|says| format!("<title>{}</title>", text(says)));
                svg.add(format!(
                    "<g>{}<rect x=\"{x}\" y=\"{y}\" width=\"{WIDE}\" height=\"{HIGH}\" \
                     fill=\"rgb({red:.0},{green:.0},{blue:.0})\"/><text x=\"{}\" y=\"{}\" \
                     text-anchor=\"middle\" fill=\"{ink}\">{}</text></g>",
                    title.unwrap_or_default(),
                    x + WIDE / 2,
                    y + 16,
                    text(words)
                ));
            }
        }
        let path = self.path();
        svg.add(format!("<path d=\"{path}\" stroke=\"#0072b2\" stroke-width=\"3\" fill=\"none\"/>"));
        svg.add(format!("<text x=\"8\" y=\"{}\">{}</text>\n</svg>", height - 8, text(&self.remark)));
        svg.0
    }

    /// Returns the boundary as SVG path data.
    fn path(&self) -> String {
        let mut path = String::new();
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let (x, y) = (LEFT + WIDE * column, TOP + HIGH * row);
                let differs = |other: &BoundaryCell| other.is_beyond != cell.is_beyond;
                if cells.get(column + 1).is_some_and(differs) {
                    let _ = write!(path, "M{} {y}v{HIGH}", x + WIDE);
                }
                let below = self.cells.get(row + 1).and_then(|below| below.get(column));
                if below.is_some_and(differs) {
                    let _ = write!(path, "M{x} {}h{WIDE}", y + HIGH);
                }
            }
        }
        path
    }
}
