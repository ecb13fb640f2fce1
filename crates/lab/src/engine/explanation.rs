//! What a question says of a run beyond its figures: why points are as they are, and what follows.
//!
//! Shown     on the page of a report: notes at the cells of maps, sections behind the figures.
//! From      what the run's folder has, like everything that is said of a run.

use super::point::Point;
use crate::report::Section;
use crate::report::picture::Note;
use std::collections::BTreeMap;

/// What is said of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explanation {
    /// By the points' texts.
    notes: BTreeMap<String, Note>,
    /// What stands behind the figures.
    pub sections: Vec<Section>,
}

impl Explanation {
    /// Says something of a point.
    pub fn note(&mut self, point: &Point, note: Note) {
        self.notes.insert(point.to_string(), note);
    }

    /// What is said of a point.
    pub fn of(&self, point: &Point) -> Option<&Note> {
        self.notes.get(&point.to_string())
    }
}
