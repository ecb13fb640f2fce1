//! A question's explanation of the results of a run, computed from the files in the run's folder.
//!
//! The report page shows it as notes at the cells of heat maps, and as sections after the figures.

use crate::engine::point::Point;
use crate::report::Section;
use crate::report::picture::Note;
use std::collections::BTreeMap;

/// The explanation of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explanation {
    /// Notes, keyed by the text form of their points.
    notes: BTreeMap<String, Note>,
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
