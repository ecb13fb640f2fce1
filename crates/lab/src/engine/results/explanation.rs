//! A question's explanation of the results of a run, computed from the files in the run's folder.
//!
//! The report page begins with the verdict, and shows the rest as notes at the cells of heat maps, and as
//! sections after the figures.

use crate::engine::point::Point;
use crate::report::picture::Note;
use crate::report::{Block, Section};
use std::collections::BTreeMap;

/// What the first screen of a report says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// The title of the report.
    pub title: String,
    /// The verdict, in one sentence with figures.
    pub sentence: String,
    /// Names and values: what was measured, where, when and how.
    pub facts: Vec<(String, String)>,
    /// What helps.
    pub blocks: Vec<Block>,
}

/// The explanation of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explanation {
    /// Notes, keyed by the text form of their points.
    notes: BTreeMap<String, Note>,
    /// The verdict; `None` if the question only has figures.
    pub verdict: Option<Verdict>,
    /// The name of the boundary between cells whose notes differ in `is_beyond`.
    pub boundary: String,
    /// Sections that the report shows after the figures.
    pub sections: Vec<Section>,
}

impl Explanation {
    /// Adds a note to a point.
    pub fn note(&mut self, point: &Point, note: Note) {
        self.notes.insert(point.to_string(), note);
    }

    /// Returns the note of a point.
    pub fn of(&self, point: &Point) -> Option<&Note> {
        self.notes.get(&point.to_string())
    }
}
