//! Heat maps: a value for each combination of two parameters, shown as a colour and as a number.
//!
//! Colours   seven steps of viridis, which is readable for the colour-blind and in greyscale. The caller
//!           gives the boundaries of the steps, so that they can coincide with meaningful limits.
//! Outlines  drawn around named regions.
//! Notes     a note is a mark next to the value of a cell, and a tooltip.

use super::canvas::{Canvas, at, value, width};
use super::svg::Picture;
use crate::report::data::{Data, number};
use std::ops::Range;

/// Width and height of a cell; the width grows with long texts.
const ACROSS: f64 = 50.0;
const DOWN: f64 = 27.0;
const TOP: f64 = 62.0;
/// Colour steps.
const STEPS: usize = 7;

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
    /// Outlined regions.
    pub outlines: Vec<Outline>,
    /// Rows of notes; empty, or as many as there are cells.
    pub notes: Vec<Vec<Option<Note>>>,
}

impl Heat {
    fn step(&self, cell: f64) -> usize {
        let count = self.steps.iter().take(STEPS).filter(|begin| cell >= **begin).count();
        let last = self.steps.len().clamp(1, STEPS) - 1;
        // With fewer steps than colours, spread the steps over the whole palette.
        count.saturating_sub(1) * (STEPS - 1) / last.max(1)
    }

    /// Returns the note of a cell.
    fn note(&self, row: usize, column: usize) -> Option<&Note> {
        self.notes.get(row)?.get(column)?.as_ref()
    }

    /// Returns the text of a cell.
    fn words(&self, row: usize, column: usize) -> Option<String> {
        let shown = format!("{:.1}", self.cells[row][column]?);
        let mark = self.note(row, column).map(|note| note.mark.as_str()).filter(|mark| !mark.is_empty());
        Some(mark.map_or(shown.clone(), |mark| format!("{shown} {mark}")))
    }

    /// Draws the figure.
    pub fn picture(self) -> Picture {
        let left = self.y.1.iter().map(|place| width(place, 12.0)).fold(30.0, f64::max) + 22.0;
        let (columns, rows) = (self.x.1.len(), self.y.1.len());
        let words = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let words = words.filter_map(|(row, column)| self.words(row, column));
        let across = words.map(|words| width(&words, 11.0) + 6.0).fold(ACROSS, f64::max);
        let legend = self.steps.iter().take(STEPS).map(|begin| step_width(*begin)).sum::<f64>();
        let wide =
            (left + across * columns as f64 + 10.0).max(left + legend + width(&self.unit, 11.0)).max(560.0);
        let high = TOP + DOWN * rows as f64 + 56.0;
        let mut canvas = Canvas::default();
        canvas.words(8.0, 18.0, "", &format!("{}, across", self.x.0));
        canvas.words(8.0, 36.0, "", &format!("{}, down", self.y.0));
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
                let shown = cell.map_or("no data".to_owned(), |cell| format!("{cell:.1}"));
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
                if let Some(words) = self.words(row, column) {
                    let place = (x + across / 2.0, y + DOWN * 0.65);
                    canvas.words(place.0, place.1, &format!("small mid on{colour}"), &words);
                }
            }
        }
        for Outline { columns, rows, .. } in &self.outlines {
            let (x, y) = (left + across * columns.start as f64, TOP + DOWN * rows.start as f64);
            let (width, height) = (across * columns.len() as f64, DOWN * rows.len() as f64);
            let path = format!("d=\"M{} {}h{}v{}h-{}z\"", at(x), at(y), at(width), at(height), at(width));
            canvas.add(format!("<path class=\"halo\" {path}/>\n<path class=\"outline\" {path}/>"));
        }
        self.legend(&mut canvas, left, high - 34.0);
        let data = self.data();
        let Heat { name, title, description, .. } = self;
        Picture { name, title, description, data, width: wide, height: high, elements: canvas.0 }
    }

    fn legend(&self, canvas: &mut Canvas, left: f64, top: f64) {
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
        canvas.words(x, top + 11.0, "small soft", &self.unit);
        let mut x = left;
        for outline in &self.outlines {
            canvas.add(format!("<path class=\"outline\" d=\"M{} {}h24\"/>", at(x), at(top + 26.0)));
            canvas.words(x + 30.0, top + 30.0, "small soft", &outline.name);
            x += 44.0 + width(&outline.name, 11.0);
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

/// Returns the legend of a step.
fn step_words(begin: f64) -> String {
    format!("from {}", value(begin))
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
            outlines: vec![Outline { columns: 0..1, rows: 0..2, name: "slow".into() }],
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
        let note = |mark: &str| Some(Note { mark: mark.into(), words: "it <waits>".into() });
        let notes = vec![vec![note("N"), None], vec![note("N"), note("")]];
        let elements = Heat { notes, ..example() }.picture().elements;
        assert!(elements.contains("message: 100\nbuffer: 2000\nit &lt;waits&gt;</title>"), "{elements}");
        assert_eq!(
            (elements.matches("it &lt;waits&gt;").count(), elements.matches(">1.5 N</text>").count()),
            (3, 1)
        );
        // A cell without data has no mark, and a cell without a mark shows only its value.
        assert!(!elements.contains("no data N") && elements.contains(">60.0</text>"), "{elements}");
    }

    #[test]
    fn long_texts_and_legends_fit() {
        let plain = example().picture();
        let notes = vec![vec![Some(Note { mark: "N".into(), words: String::new() }), None], vec![None, None]];
        let cells = vec![vec![Some(47_995.2), Some(1.0)], vec![None, None]];
        let steps = (0..7).map(|step| f64::from(step) * 12_345.6).collect();
        let wide = Heat { notes, cells, steps, ..example() }.picture();
        assert!(wide.width > plain.width, "{} {}", wide.width, plain.width);
        assert!(wide.elements.contains(">47995.2 N</text>") && !wide.elements.contains("width=\"49\""));
        assert!(plain.elements.contains("width=\"49\""));
    }

    #[test]
    fn fewer_steps_are_spread_over_all_colours() {
        let heat = Heat { steps: vec![0.0, 10.0, 40.0], ..example() };
        assert_eq!([-1.0, 5.0, 10.0, 39.9, 40.0].map(|cell| heat.step(cell)), [0, 0, 3, 3, 6]);
        let one = Heat { steps: vec![0.0], ..example() };
        assert_eq!(one.step(7.0), 0);
    }
}
