//! A mechanism as measured on this machine: alternately with and without it.

use crate::bench::Record;
use crate::table::{Table, figure};
use serde::Serialize;

/// CPU times with and without a mechanism.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Paired {
    /// Median CPU time per unit of work with the mechanism, nanoseconds.
    pub with_ns: f64,
    /// Median CPU time per unit of work without the mechanism, nanoseconds.
    pub without_ns: f64,
    /// Median of the paired ratios: without the mechanism to with it.
    pub ratio: f64,
    /// Whether the machine was so busy that disturbed rounds count.
    pub disturbed: bool,
}

impl Paired {
    /// Reads the record of a comparison whose sides are "without" and "with" the mechanism.
    pub(super) fn of(record: &Record) -> Paired {
        let [without, with] = &record.sides[..] else { unreachable!("two sides were compared") };
        Paired {
            with_ns: with.figures.median,
            without_ns: without.figures.median,
            ratio: record.ratio.expect("two sides were compared").median,
            disturbed: record.gave_up,
        }
    }

    /// Returns what follows the mechanism's name in a table: a mark if other processes disturbed it.
    pub(super) fn mark(&self, table: &mut Table) -> String {
        match self.disturbed {
            true => {
                format!(" {}", table.note("other processes disturbed the rounds: the quietest ones are used"))
            }
            false => String::new(),
        }
    }

    /// Returns the cells of the columns "with", "without" and "ratio".
    pub(super) fn cells(&self) -> [String; 3] {
        [figure(self.with_ns), figure(self.without_ns), format!("{:.2}", self.ratio)]
    }
}
