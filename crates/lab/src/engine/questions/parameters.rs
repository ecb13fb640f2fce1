//! Helpers with which questions describe and read their parameters.

use crate::engine::{Failure, Parameter, Point, Value};

/// Creates a parameter with a default.
pub(super) fn parameter(name: &'static str, what: &'static str, default: Value) -> Parameter {
    Parameter { name, what, default: Some(default) }
}

/// Reads an integer between `least` and `most`.
pub(super) fn within(point: &Point, name: &str, least: u64, most: u64) -> Result<u64, Failure> {
    let count = point.count(name).filter(|count| (least..=most).contains(count));
    count.ok_or_else(|| Failure::Impossible(format!("{name} must be between {least} and {most}")))
}

/// Reads a string that must be one of `words`.
pub(super) fn one_of<'a>(point: &'a Point, name: &str, words: &[&str]) -> Result<&'a str, Failure> {
    let word = point.word(name).filter(|word| words.contains(word));
    word.ok_or_else(|| Failure::Impossible(format!("{name} must be one of {}", words.join(", "))))
}
