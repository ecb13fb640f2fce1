//! The two directions of a network side by side: messages that this host sends, and messages that the server
//! sends.
//!
//! Cell      the figure and the letter of the cause in each direction; the pair is one-sided if only one of
//!           them is slow. Paper \[2\] found maps that differ with the direction.

use super::cause::Cause;
use super::map::{Cell, Map, head};
use crate::report::Grid as Sheet;
use crate::table::{Table, part_of, readable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One direction of a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Way {
    /// Exchanges per second, or Mbit/s; `None` without a trial.
    pub figure: Option<f64>,
    /// Why the cell is slow in this direction; `None` if it is not.
    pub cause: Option<Cause>,
}

impl Way {
    fn of(cell: &Cell) -> Way {
        Way { figure: cell.figure, cause: cell.cause }
    }

    fn words(&self) -> String {
        self.figure.map_or("-".to_owned(), readable)
            + &self.cause.map_or(String::new(), |cause| cause.letter().into())
    }
}

/// A cell in both directions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Bytes of the socket buffers; 0 is the system's default.
    pub buffer_bytes: u32,
    /// Messages to the server.
    pub to: Way,
    /// Messages from the server.
    pub from: Way,
}

impl Pair {
    /// Returns whether the cell was measured in both directions and is slow in only one.
    pub fn is_one_sided(&self) -> bool {
        self.to.figure.is_some()
            && self.from.figure.is_some()
            && self.to.cause.is_some() != self.from.cause.is_some()
    }
}

/// The cells of two maps that differ only in the direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Directions {
    /// The settings that all cells share, in words.
    pub title: String,
    /// Unit of the figures.
    pub unit: String,
    /// Row by row, in the order of the maps.
    pub pairs: Vec<Pair>,
}

impl Directions {
    /// Pairs each map with the map of the other direction, if there is one.
    pub(super) fn of(maps: &[Map]) -> Vec<Directions> {
        let back = |map: &Map| {
            let title = map.title.replacen(map.pattern.name(), map.pattern.reversed().name(), 1);
            maps.iter().find(|other| other.pattern == map.pattern.reversed() && other.title == title)
        };
        let forward = maps.iter().filter(|map| !map.pattern.is_back());
        forward
            .filter_map(|map| {
                let cells = map.iter().zip(back(map)?.iter());
                type At<'a> = (u32, u32, &'a Cell);
                let pair = |((buffer_bytes, message_bytes, to), (.., from)): (At<'_>, At<'_>)| Pair {
                    message_bytes,
                    buffer_bytes,
                    to: Way::of(to),
                    from: Way::of(from),
                };
                let pairs = cells.map(pair).collect();
                Some(Directions { title: map.title.clone(), unit: map.unit.clone(), pairs })
            })
            .collect()
    }

    fn one_sided(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.is_one_sided()).count()
    }

    /// Returns the pairs as a table of a report.
    pub(super) fn sheet(&self) -> Sheet {
        let title = format!("{}, {}: to the server / from the server", self.title, self.unit);
        let mut sheet = Sheet::new(&title, &["#buffers", "#message", "#to", "#from", "slow"]);
        for pair in &self.pairs {
            let words = match (pair.to.cause, pair.from.cause) {
                (None, None) => "",
                (Some(_), None) => "only to the server",
                (None, Some(_)) => "only from the server",
                (Some(_), Some(_)) => "in both directions",
            };
            let cells =
                [head(pair.buffer_bytes), pair.message_bytes.to_string(), pair.to.words(), pair.from.words()];
            sheet.row(cells.into_iter().chain([words.to_owned()]).map(Into::into));
        }
        sheet
    }
}

impl fmt::Display for Directions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{}: {} to the server / from the server", self.title, self.unit);
        let width =
            self.pairs.iter().take_while(|pair| pair.buffer_bytes == self.pairs[0].buffer_bytes).count();
        let messages = self.pairs.iter().take(width).map(|pair| pair.message_bytes.to_string());
        let table = Table::new(title).number_column("");
        let mut table = messages.fold(table, |table, message| table.number_column(&message));
        for row in self.pairs.chunks(width.max(1)) {
            let cells = row.iter().map(|pair| format!("{}/{}", pair.to.words(), pair.from.words()));
            table.row(std::iter::once(head(row[0].buffer_bytes)).chain(cells));
        }
        table.remark(format!(
            "{} slow in one direction only",
            part_of(self.one_sided(), self.pairs.len(), "cell")
        ));
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::trial::evidence::Pattern;

    fn map(pattern: Pattern, title: &str, figures: [(f64, Option<Cause>); 2]) -> Map {
        let cell = |(figure, cause)| Cell {
            figure: Some(figure),
            mbps: 0.0,
            predicted_slow: false,
            cause,
            ..Cell::default()
        };
        Map {
            title: title.into(),
            pattern,
            connections: 1,
            opposite: 0,
            slow_below: None,
            unit: "exchanges/s".into(),
            messages: vec![100, 1000],
            buffers: vec![0],
            cells: vec![figures.map(cell).into()],
        }
    }

    #[test]
    fn maps_of_both_directions_are_paired_by_their_other_settings() {
        let held = Some(Cause::NagleDelayedAck);
        let maps = [
            map(Pattern::WriteRead, "write-read, Nagle on", [(9000.0, None), (8000.0, None)]),
            map(Pattern::WriteReadBack, "write-read-back, Nagle off", [(1.0, None), (2.0, None)]),
            map(Pattern::WriteReadBack, "write-read-back, Nagle on", [(9100.0, None), (23.4, held)]),
        ];
        let both = Directions::of(&maps);
        assert_eq!(both.len(), 1, "the map with Nagle off has no partner");
        assert_eq!(both[0].pairs.iter().map(Pair::is_one_sided).collect::<Vec<_>>(), [false, true]);
        let text = both[0].to_string();
        assert!(text.contains("9000/9100") && text.contains("8000/23.4N"), "{text}");
        assert!(text.contains("1 of 2 cells is slow in one direction only"), "{text}");
        assert!(Directions::of(&maps[..2]).is_empty());
    }
}
