//! A map of a sweep: message length on the horizontal axis, socket buffer on the vertical axis, and the
//! predicted boundary between fast and slow cells.
//!
//! Text      each cell has a shade, its value, and the letter of the cause if it is slow; `│` marks where the
//!           prediction changes.
//! SVG       the same cells as a heat map of a report; the same map always gives the same bytes.

use super::cause::Cause;
use crate::heat::{Best, bounds};
use crate::net::trial::evidence::Pattern;
use crate::report::picture::{Heat, Note, STEPS};
use crate::table::{Table, counted, part_of, readable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One cell.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cell {
    /// The figure: exchanges per second, or Mbit/s; `None` without a trial.
    pub figure: Option<f64>,
    /// Payload that arrived, Mbit/s.
    pub mbps: f64,
    /// Whether the cell is predicted to be slow.
    pub predicted_slow: bool,
    /// Why the cell is slow; `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The evidence for the cause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The evidence that the path carries no more, if the cell would be slow otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// The share of the segments of a stream that were lost, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_percent: Option<f64>,
    /// The rate of the slowest of several connections, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_mbps: Option<f64>,
    /// The rate of the connections in the opposite direction, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opposite_mbps: Option<f64>,
    /// Both figures of a slow cell without slow neighbours, which was measured again; the second one counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

/// A map.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Map {
    /// The settings that all cells share, in words.
    pub title: String,
    /// How the client wrote.
    pub pattern: Pattern,
    /// Connections at once.
    pub connections: u32,
    /// Connections in the opposite direction at the same time.
    pub opposite: u32,
    /// The rate below which a stream is slow, in words; `None` for exchanges, which are slow if they stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_below: Option<String>,
    /// Unit of the figures.
    pub unit: String,
    /// Message lengths, bytes.
    pub messages: Vec<u32>,
    /// Socket buffers, bytes; 0 is the system's default.
    pub buffers: Vec<u32>,
    /// Rows are buffers, columns are messages.
    pub cells: Vec<Vec<Cell>>,
}

/// Shades, by the fraction of the best value.
const SHADES: [(f64, char); 5] = [(0.5, '█'), (0.25, '▓'), (0.05, '▒'), (0.01, '░'), (0.0, '·')];

impl Map {
    /// Iterates over all cells, with buffer and message.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, &Cell)> {
        self.buffers.iter().zip(&self.cells).flat_map(|(buffer, row)| {
            self.messages.iter().zip(row).map(|(message, cell)| (*buffer, *message, cell))
        })
    }

    /// Returns the number of measured cells, how many of them are slow, and how many were predicted
    /// correctly.
    pub fn counts(&self) -> (usize, usize, usize) {
        let measured = self.iter().filter(|(.., cell)| cell.figure.is_some());
        measured.fold((0, 0, 0), |(all, slow, right), (.., cell)| {
            let is_slow = cell.cause.is_some();
            (all + 1, slow + usize::from(is_slow), right + usize::from(is_slow == cell.predicted_slow))
        })
    }

    /// Returns the threshold for a remark; empty for exchanges.
    pub(super) fn threshold(&self) -> String {
        self.slow_below.as_ref().map_or_else(String::new, |rate| format!(" (below {rate})"))
    }

    /// Returns the value to which a cell is compared. For exchanges, this is the best value for the same
    /// message length, because long messages take longer; for streams, it is the best value of the whole map.
    fn best(&self, column: usize) -> f64 {
        let figures = self
            .cells
            .iter()
            .flat_map(|row| row.iter().enumerate())
            .filter(|(at, _)| self.pattern.is_stream() || *at == column);
        figures.filter_map(|(_, cell)| cell.figure).fold(0.0, f64::max)
    }

    /// Returns a cell's value as a fraction of the value to which it is compared. Stalled exchanges count as
    /// zero, even if all cells with this message length stall.
    fn part(&self, cell: &Cell, column: usize) -> f64 {
        if !self.pattern.is_stream() && cell.cause.is_some() {
            return 0.0;
        }
        (cell.figure.unwrap_or(0.0) / self.best(column).max(1e-9)).clamp(0.0, 1.0)
    }

    fn text_of(&self, row: usize, column: usize) -> String {
        let cell = &self.cells[row][column];
        let Some(number) = cell.figure else { return "-  ".into() };
        let part = self.part(cell, column);
        let shade = SHADES.iter().find(|(least, _)| part >= *least).map_or('·', |(_, shade)| *shade);
        let letter = cell.cause.map_or(' ', Cause::letter);
        let next = self.cells[row].get(column + 1);
        let is_boundary = next.is_some_and(|next| next.predicted_slow != cell.predicted_slow);
        format!("{shade}{}{letter}{}", readable(number), if is_boundary { '│' } else { ' ' })
    }

    /// Returns the greatest factor by which the best comparable cell exceeds a slow one; `None` if no cell is
    /// slow.
    pub(super) fn slower(&self) -> Option<f64> {
        let rows = self.cells.iter().flat_map(|row| row.iter().enumerate());
        let slow = rows.filter(|(_, cell)| cell.cause.is_some());
        let factors = slow.filter_map(|(at, cell)| Some(self.best(at) / cell.figure?.max(1e-9)));
        factors.reduce(f64::max)
    }

    /// Returns the map as an SVG picture. It has the colour scale that the maps of the same measure among
    /// `all` share.
    pub fn svg(&self, all: &[Map]) -> String {
        let alike = || all.iter().filter(|map| map.unit == self.unit);
        let figures = alike().flat_map(Map::iter).filter_map(|(.., cell)| cell.figure);
        let steps = bounds(STEPS, figures, Best::High);
        let (count, slow, _) = self.counts();
        Heat {
            name: "map".into(),
            title: format!("{}, {}", self.title, self.unit),
            description: format!("{} slow{}.", part_of(slow, count, "cell"), self.threshold()),
            x: ("message, bytes".into(), self.messages.iter().map(u32::to_string).collect()),
            y: ("socket buffers, bytes".into(), self.buffers.iter().map(|buffer| head(*buffer)).collect()),
            unit: self.unit.clone(),
            cells: self.cells.iter().map(|row| row.iter().map(|cell| cell.figure).collect()).collect(),
            steps,
            maps: alike().count(),
            best: Best::High,
            outlines: Vec::new(),
            boundary: BOUNDARY.into(),
            notes: self.cells.iter().map(|row| row.iter().map(|cell| Some(cell.note())).collect()).collect(),
        }
        .picture()
        .standalone()
    }
}

/// The name of the boundary, for legends.
pub(crate) const BOUNDARY: &str = "the predicted boundary of slow cells; letters: causes";

impl Cell {
    /// Returns the note of the cell in a picture: the letter of the cause, and a tooltip.
    pub(super) fn note(&self) -> Note {
        let predicted = if self.predicted_slow { "predicted to be slow" } else { "not predicted to be slow" };
        let (mark, words) = match self.cause {
            Some(cause) => {
                let words = format!("slow: {}\n{}\n{predicted}", cause.words(), self.because);
                (cause.letter().to_string(), words)
            }
            None => {
                let full =
                    self.full.as_ref().map_or(String::new(), |full| format!(": the path is full\n{full}"));
                (String::new(), format!("not slow{full}; {predicted}"))
            }
        };
        let samples: Vec<String> = self.samples.iter().map(|figure| readable(*figure)).collect();
        let words = match samples.is_empty() {
            true => words,
            false => format!("{words}\nmeasured again: {}", samples.join(", then ")),
        };
        Note { mark, words, is_beyond: self.predicted_slow }
    }
}

pub(super) fn head(buffer: u32) -> String {
    if buffer == 0 { "system".into() } else { buffer.to_string() }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{}: {}, buffers down, message across, bytes", self.title, self.unit);
        let table = Table::new(title).number_column("");
        let mut table =
            self.messages.iter().fold(table, |table, message| table.number_column(&format!("{message}  ")));
        for (row, buffer) in self.buffers.iter().enumerate() {
            let cells = (0..self.messages.len()).map(|column| self.text_of(row, column));
            table.row(std::iter::once(head(*buffer)).chain(cells));
        }
        let (all, slow, right) = self.counts();
        table.remark(format!(
            "{} slow{}; │ is the predicted boundary, which is right for {right} of {}; best {}",
            part_of(slow, all, "cell"),
            self.threshold(),
            counted(all, "cell"),
            readable((0..self.messages.len()).map(|column| self.best(column)).fold(0.0, f64::max))
        ));
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Map {
        let cell = |number, predicted_slow, cause| Cell {
            figure: number,
            mbps: 0.0,
            predicted_slow,
            cause,
            because: "a < b".into(),
            ..Cell::default()
        };
        Map {
            title: "Nagle on".into(),
            pattern: Pattern::WriteWriteRead,
            connections: 1,
            opposite: 0,
            slow_below: None,
            unit: "exchanges/s".into(),
            messages: vec![1000, 2000],
            buffers: vec![2000, 0],
            cells: vec![
                vec![cell(Some(9996.0), false, None), cell(Some(5000.0), false, None)],
                vec![cell(Some(23.4), true, Some(Cause::NagleDelayedAck)), cell(None, false, None)],
            ],
        }
    }

    #[test]
    fn a_map_shows_shades_causes_and_the_boundary() {
        let text = map().to_string();
        assert!(text.contains("·23.4N│"), "{text}");
        assert!(text.contains("█9996  "), "{text}");
        assert!(text.contains("system"), "{text}");
        assert!(text.contains("1 of 3 cells is slow") && text.contains("right for 3 of 3"), "{text}");
    }

    #[test]
    fn a_message_that_stalls_everywhere_is_not_shown_as_fast() {
        let mut map = map();
        map.cells[0][0].cause = Some(Cause::NagleDelayedAck);
        assert!(map.to_string().contains("·9996N"), "{map}");
        map.pattern = Pattern::Stream;
        assert!(map.to_string().contains("█9996N"), "{map}");
    }

    #[test]
    fn a_picture_is_deterministic_and_has_every_cell_and_the_boundary() {
        let svg = map().svg(&[map()]);
        assert_eq!(svg.matches("<rect").count(), 4);
        // A boundary passes above the slow cell and to its right; there is one more in the legend.
        assert_eq!(svg.matches("class=\"boundary\"").count(), 2, "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains(">system</text>") && svg.contains(">23.4 N</text>"));
        assert_eq!(svg, map().svg(&[map()]));
    }

    #[test]
    fn equal_colours_mean_equal_values_in_both_directions() {
        let of = |pattern, figures: [f64; 4]| {
            let mut map = Map { pattern, unit: "Mbit/s".into(), ..map() };
            map.cells.iter_mut().flatten().zip(figures).for_each(|(cell, figure)| cell.figure = Some(figure));
            map
        };
        let there = of(Pattern::Stream, [100.0, 60.0, 40.0, 30.0]);
        let back = of(Pattern::StreamBack, [900.0, 60.0, 700.0, 800.0]);
        let class = |map: &Map, all: &[Map]| {
            let svg = map.svg(all);
            let cell = svg.lines().find(|line| line.contains("<title>60.0 Mbit/s")).expect("a cell of 60");
            cell.split('"').nth(1).expect("a class").to_owned()
        };
        let all = [there.clone(), map(), back.clone()];
        assert_ne!(class(&there, std::slice::from_ref(&there)), class(&back, std::slice::from_ref(&back)));
        assert_eq!(class(&there, &all), class(&back, &all));
        assert!(there.svg(&all).contains("one scale for all 2 maps of this measure"));
    }
}
