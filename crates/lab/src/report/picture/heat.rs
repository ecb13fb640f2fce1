//! Heat maps: a value for each combination of two parameters, shown as a colour and as a number.
//!
//! Colours   seven steps of viridis, which is readable for the colour-blind and in greyscale. The caller
//!           gives the boundaries of the steps, so that they can coincide with meaningful limits, and which
//!           values are good: the best ones are yellow, whether they are high or low.
//! Size      as wide as a page; cells become wider if there are few of them, up to a limit.
//! Outlines  drawn around named regions.
//! Boundary  a line between cells on either side of a boundary that the notes give.
//! Notes     a note is a mark next to the value of a cell, and a tooltip.

use super::canvas::{Canvas, at, width};
use super::svg::Picture;
use crate::heat::{Best, rounded, sharing};
use crate::report::data::{Data, number};
use crate::table::readable;
use std::fmt::Write as _;
use std::ops::Range;

/// The width of a page, which a map fills.
const PAGE: f64 = 1072.0;
/// The least width of a cell, the greatest to which it is stretched, and the height. Long texts widen a cell.
const ACROSS: f64 = 50.0;
const ACROSS_MAX: f64 = 150.0;
const DOWN: f64 = 27.0;
const TOP: f64 = 62.0;
/// The width of a line in the legend, with the spaces around it and its text.
const SAMPLE: f64 = 44.0;
/// The number of colours.
pub(crate) const STEPS: usize = 7;

/// A named region.
#[derive(Clone, PartialEq, Debug)]
pub struct Outline {
    /// The columns of the region.
    pub columns: Range<usize>,
    /// The rows of the region.
    pub rows: Range<usize>,
    /// The name of the region.
    pub name: String,
}

/// A note about one cell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Note {
    /// One or two characters next to the value; empty if the cell is as expected.
    pub mark: String,
    /// The text of the tooltip.
    pub words: String,
    /// Whether the cell is beyond the boundary.
    pub is_beyond: bool,
}

/// A heat map.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The name and the values of the horizontal axis.
    pub x: (String, Vec<String>),
    /// The name and the values of the vertical axis.
    pub y: (String, Vec<String>),
    /// The quantity and its unit.
    pub unit: String,
    /// Rows of values; `None` means no data.
    pub cells: Vec<Vec<Option<f64>>>,
    /// The lower bounds of the colour steps, ascending, at most seven. Smaller values have the first colour.
    pub steps: Vec<f64>,
    /// The number of maps that have these steps, so that equal colours mean equal values.
    pub maps: usize,
    /// Which values are good.
    pub best: Best,
    /// Outlined regions.
    pub outlines: Vec<Outline>,
    /// The name of the boundary.
    pub boundary: String,
    /// Rows of notes; empty, or as many as there are cells.
    pub notes: Vec<Vec<Option<Note>>>,
}

impl Heat {
    fn step(&self, cell: f64) -> usize {
        let count = self.steps.iter().take(STEPS).filter(|begin| cell >= **begin).count();
        let last = self.steps.len().clamp(1, STEPS) - 1;
        // With fewer steps than colours, spread the steps over the whole palette.
        let step = count.saturating_sub(1) * (STEPS - 1) / last.max(1);
        if self.best == Best::High { step } else { STEPS - 1 - step }
    }

    /// Returns the note of a cell.
    fn note(&self, row: usize, column: usize) -> Option<&Note> {
        self.notes.get(row)?.get(column)?.as_ref()
    }

    /// Returns the text of a cell.
    fn words(&self, row: usize, column: usize, most: f64) -> Option<String> {
        let shown = shown(self.cells[row][column]?, most);
        let mark = self.note(row, column).map(|note| note.mark.as_str()).filter(|mark| !mark.is_empty());
        Some(mark.map_or(shown.clone(), |mark| format!("{shown} {mark}")))
    }

    /// Returns the boundary as SVG path data: the sides between cells that have data and differ.
    fn path(&self, (left, top): (f64, f64), across: f64) -> String {
        let is_beyond = |row: usize, column: usize| self.note(row, column).map(|note| note.is_beyond);
        let differs =
            |one: Option<bool>, other: Option<bool>| one.is_some() && other.is_some() && one != other;
        let mut path = String::new();
        for row in 0..self.y.1.len() {
            for column in 0..self.x.1.len() {
                let (x, y) = (left + across * column as f64, top + DOWN * row as f64);
                let cell = is_beyond(row, column);
                if differs(cell, is_beyond(row, column + 1)) {
                    let _ = write!(path, "M{} {}v{DOWN}", at(x + across), at(y));
                }
                if differs(cell, is_beyond(row + 1, column)) {
                    let _ = write!(path, "M{} {}h{}", at(x), at(y + DOWN), at(across));
                }
            }
        }
        path
    }

    /// Draws the figure.
    pub fn picture(self) -> Picture {
        let left = self.y.1.iter().map(|place| width(place, 12.0)).fold(30.0, f64::max) + 22.0;
        let (columns, rows) = (self.x.1.len(), self.y.1.len());
        let words = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let most = self.cells.iter().flatten().flatten().fold(0.0, |most: f64, cell| most.max(cell.abs()));
        let words = words.filter_map(|(row, column)| self.words(row, column, most));
        let heads = self.x.1.iter().map(|place| width(place, 12.0) + 8.0);
        let across = words.map(|words| width(&words, 12.0) + 6.0).chain(heads).fold(ACROSS, f64::max);
        let stretched = ((PAGE - left - 10.0) / columns.max(1) as f64).min(ACROSS_MAX).floor();
        let across = across.max(stretched);
        let legend = self.steps.iter().take(STEPS).map(|begin| step_width(*begin)).sum::<f64>();
        let legend = left + legend + width(&self.legend_unit(), 11.0) + 10.0;
        let path = self.path((left, TOP), across);
        let below = self.below(!path.is_empty());
        let below_width = below.iter().map(|(_, words)| SAMPLE + width(words, 11.0)).sum::<f64>();
        let wide = (left + across * columns as f64 + 10.0).max(legend).max(left + below_width).max(560.0);
        let rows_below = if below.is_empty() { 0.0 } else { 22.0 };
        let high = TOP + DOWN * rows as f64 + 34.0 + rows_below;
        let mut canvas = Canvas::default();
        canvas.words(8.0, 18.0, "", &format!("across: {}", self.x.0));
        canvas.words(8.0, 36.0, "", &format!("down: {}", self.y.0));
        for (column, place) in self.x.1.iter().enumerate() {
            canvas.words(left + across * (column as f64 + 0.5), TOP - 8.0, "soft mid", place);
        }
        for (row, place) in self.y.1.iter().enumerate() {
            canvas.words(left - 8.0, TOP + DOWN * (row as f64 + 0.65), "soft end", place);
        }
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let (x, y) = (left + across * column as f64, TOP + DOWN * row as f64);
                let colour = cell.map_or("x".to_owned(), |cell| self.step(cell).to_string());
                let shown = cell.map_or("no data".to_owned(), |cell| shown(cell, most));
                let element = format!(
                    "<rect class=\"cell v h{colour}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
                    at(x + 0.5),
                    at(y + 0.5),
                    at(across - 1.0),
                    at(DOWN - 1.0)
                );
                let (x_name, y_name) = (&self.x.0, &self.y.0);
                let [x_place, y_place] = [&self.x.1[column], &self.y.1[row]];
                let mut says = format!("{shown} {}\n{x_name}: {x_place}\n{y_name}: {y_place}", self.unit);
                if let Some(note) = self.note(row, column) {
                    says += &format!("\n{}", note.words);
                }
                canvas.place(&element, &says);
                if let Some(words) = self.words(row, column, most) {
                    let place = (x + across / 2.0, y + DOWN * 0.65);
                    canvas.words(place.0, place.1, &format!("mid on{colour}"), &words);
                }
            }
        }
        for Outline { columns, rows, .. } in &self.outlines {
            let (x, y) = (left + across * columns.start as f64, TOP + DOWN * rows.start as f64);
            let (width, height) = (across * columns.len() as f64, DOWN * rows.len() as f64);
            let path = format!("d=\"M{} {}h{}v{}h-{}z\"", at(x), at(y), at(width), at(height), at(width));
            canvas.add(format!("<path class=\"halo\" {path}/>\n<path class=\"outline\" {path}/>"));
        }
        if !path.is_empty() {
            canvas
                .add(format!("<path class=\"halo\" d=\"{path}\"/>\n<path class=\"boundary\" d=\"{path}\"/>"));
        }
        self.legend(&mut canvas, left, TOP + DOWN * rows as f64 + 12.0, &below);
        let data = self.data();
        let Heat { name, title, description, .. } = self;
        Picture { name, title, description, data, width: wide, height: high, elements: canvas.0 }
    }

    fn legend_unit(&self) -> String {
        let best = if self.best == Best::High { "more" } else { "less" };
        format!("{}; {best} is better", self.unit)
    }

    /// Returns the second row of the legend: texts, after a line of a class if they explain one.
    fn below(&self, has_boundary: bool) -> Vec<(Option<&'static str>, String)> {
        let outlines = self.outlines.iter().map(|outline| (Some("outline"), outline.name.clone()));
        let boundary = has_boundary.then(|| (Some("boundary"), self.boundary.clone()));
        outlines.chain(boundary).chain(sharing(self.maps).map(|words| (None, words))).collect()
    }

    fn legend(&self, canvas: &mut Canvas, left: f64, top: f64, below: &[(Option<&str>, String)]) {
        let mut x = left;
        for begin in self.steps.iter().take(STEPS) {
            let words = step_words(*begin);
            canvas.add(format!(
                "<path class=\"h{}\" d=\"M{} {}h14v14h-14z\"/>",
                self.step(*begin),
                at(x),
                at(top)
            ));
            canvas.words(x + 19.0, top + 11.0, "small soft", &words);
            x += step_width(*begin);
        }
        canvas.words(x, top + 11.0, "small soft", &self.legend_unit());
        let mut x = left;
        for (class, words) in below {
            if let Some(class) = class {
                canvas.add(format!("<path class=\"{class}\" d=\"M{} {}h24\"/>", at(x), at(top + 28.0)));
                x += 30.0;
            }
            canvas.words(x, top + 32.0, "small soft", words);
            x += 14.0 + width(words, 11.0);
        }
    }

    fn data(&self) -> Data {
        let mut head = vec![format!("{} \\ {}", self.y.0, self.x.0)];
        head.extend(self.x.1.iter().cloned());
        let rows = self.y.1.iter().zip(&self.cells).map(|(place, cells)| {
            let place = place.parse().map_or(place.as_str().into(), number);
            let cells = cells.iter().map(|cell| cell.map_or(serde_json::Value::Null, number));
            std::iter::once(place).chain(cells).collect()
        });
        Data { rows: rows.collect(), head }
    }
}

/// Formats a value with the digits that all cells of the map have; `most` is the largest size of a value.
fn shown(cell: f64, most: f64) -> String {
    match cell.abs() {
        size if size >= 9_999.5 => readable(cell),
        size if size >= 999.5 => format!("{cell:.0}"),
        _ if most < 1.0 => rounded(cell, 3),
        _ if most < 10.0 => rounded(cell, 2),
        _ => rounded(cell, 1),
    }
}

/// Returns the legend of a step.
fn step_words(begin: f64) -> String {
    format!("from {}", readable(begin))
}

/// Returns the width of a step in the legend.
fn step_width(begin: f64) -> f64 {
    19.0 + width(&step_words(begin), 11.0) + 14.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Heat {
        Heat {
            name: "map".into(),
            title: "map".into(),
            description: "d".into(),
            x: ("message".into(), vec!["100".into(), "<500>".into()]),
            y: ("buffer".into(), vec!["2000".into(), "\"4000".into()]),
            unit: "Mbit/s".into(),
            cells: vec![vec![Some(1.5), Some(11.0)], vec![None, Some(60.0)]],
            steps: vec![0.0, 2.6, 10.0, 20.0, 30.0, 40.0, 50.0],
            maps: 1,
            best: Best::High,
            outlines: vec![Outline { columns: 0..1, rows: 0..2, name: "slow".into() }],
            boundary: "the rule".into(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn every_cell_is_one_rectangle_with_its_value() {
        let picture = example().picture();
        assert_eq!(picture.elements.matches("<rect").count(), 4);
        for class in ["h0", "h2", "hx", "h6"] {
            assert_eq!(picture.elements.matches(&format!("cell v {class}\"")).count(), 1, "{class}");
        }
        assert!(picture.elements.contains("11.0 Mbit/s\nmessage: &lt;500&gt;\nbuffer: 2000"));
        assert!(picture.elements.contains("no data Mbit/s\nmessage: 100\nbuffer: &quot;4000"));
        assert_eq!(picture.data.csv(), "buffer \\ message,100,<500>\n2000,1.5,11\n\"\"\"4000\",,60\n");
    }

    #[test]
    fn a_note_is_a_mark_in_its_cell_and_a_tooltip() {
        let note =
            |mark: &str| Some(Note { mark: mark.into(), words: "it <waits>".into(), is_beyond: mark == "N" });
        let notes = vec![vec![note("N"), None], vec![note("N"), note("")]];
        let elements = Heat { notes, ..example() }.picture().elements;
        assert!(elements.contains("message: 100\nbuffer: 2000\nit &lt;waits&gt;</title>"), "{elements}");
        assert_eq!(
            (elements.matches("it &lt;waits&gt;").count(), elements.matches(">1.5 N</text>").count()),
            (3, 1)
        );
        // A cell without data has no mark, and a cell without a mark shows only its value.
        assert!(!elements.contains("no data N") && elements.contains(">60.0</text>"), "{elements}");
        // The boundary runs between the two notes that differ, in the second row.
        assert_eq!(elements.matches("class=\"boundary\"").count(), 2, "{elements}");
        assert!(elements.contains("v27\"/>") && elements.contains(">the rule</text>"), "{elements}");
    }

    #[test]
    fn long_texts_and_legends_fit() {
        let many = |mark: &str| Heat {
            x: ("message".into(), vec!["1".into(); 24]),
            cells: vec![vec![Some(1.5); 24]; 2],
            notes: vec![vec![Some(Note { mark: mark.into(), ..Note::default() }); 24]; 2],
            ..example()
        };
        let (short, long) = (many("N").picture(), many("NNNNNNNN").picture());
        assert!(short.width > PAGE && long.width > short.width, "{} {}", short.width, long.width);
        let note = Note { mark: "N".into(), ..Note::default() };
        let notes = vec![vec![Some(note), None], vec![None, None]];
        let cells = vec![vec![Some(47_995.2), Some(1.0)], vec![None, None]];
        let steps = (0..7).map(|step| f64::from(step) * 12_345.6).collect();
        let wide = Heat { notes, cells, steps, ..example() }.picture();
        assert!(wide.elements.contains(">48 k N</text>"), "{}", wide.elements);
    }

    #[test]
    fn a_small_value_is_not_shown_as_zero() {
        let cells = vec![vec![Some(0.0172), Some(0.0)], vec![None, Some(60.0)]];
        let elements = Heat { cells, ..example() }.picture().elements;
        assert!(elements.contains(">0.0172</text>") && elements.contains(">0.0</text>"), "{elements}");
    }

    #[test]
    fn the_legend_says_that_maps_share_a_scale() {
        let legend = |maps: usize| Heat { maps, ..example() }.picture().elements;
        assert!(!legend(1).contains("one scale"));
        assert!(legend(2).contains(">one scale for all 2 maps of this measure</text>"));
    }

    #[test]
    fn fewer_steps_are_spread_over_all_colours() {
        let heat = Heat { steps: vec![0.0, 10.0, 40.0], ..example() };
        assert_eq!([-1.0, 5.0, 10.0, 39.9, 40.0].map(|cell| heat.step(cell)), [0, 0, 3, 3, 6]);
        let one = Heat { steps: vec![0.0], ..example() };
        assert_eq!(one.step(7.0), 0);
        // The best values have the last colour.
        let low = Heat { best: Best::Low, ..heat };
        assert_eq!([5.0, 10.0, 40.0].map(|cell| low.step(cell)), [6, 3, 0]);
    }
}
