//! Words for parameters, metrics and values: the same in tables, pictures and pages.
//!
//! `message, bytes` stands for `message_bytes`, and values have the words of
//! [`Question::words`](crate::engine::Question::words).

use crate::engine::point::{Point, Value};
use crate::engine::question::Metric;
use crate::engine::questions;

/// Returns the unit for values up to `most`, and what a value is multiplied by to get one in that unit.
pub(crate) fn people_unit(unit: &str, most: f64) -> (&str, f64) {
    match unit {
        "us" if most >= 10_000.0 => ("ms", 1e-3),
        "us" => ("µs", 1.0),
        other => (other, 1.0),
    }
}

/// Returns a text with its first letter in upper case.
pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the name of a parameter for people: `message, bytes` for `message_bytes`.
pub(crate) fn label(name: &str) -> String {
    const UNITS: [(&str, &str); 6] = [
        ("_bytes", "bytes"),
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_mbps", "Mbit/s"),
        ("_km", "km"),
        ("_kb", "KB"),
    ];
    let found = UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (plain, unit) = found.unwrap_or((name, ""));
    with_unit(&plain.replace('_', " "), unit)
}

/// Returns a name with its unit, if it has one.
pub(crate) fn with_unit(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// Returns the name of a metric of the question for people, with its unit.
pub(crate) fn metric_label(question: &str, name: &str) -> String {
    let metrics = questions::find(question).map_or(&[][..], |question| question.metrics());
    let metric = metrics.iter().find(|metric| metric.name == name);
    metric.map_or(name.to_owned(), |Metric { what, unit, .. }| with_unit(&capitalized(what), unit))
}

/// Returns the words of the question for the value of a parameter, if it has any.
pub(crate) fn words(question: &str, name: &str, value: &Value) -> Option<String> {
    questions::find(question)?.words(name, value)
}

/// Returns the value of a parameter for people.
pub(crate) fn shown(question: &str, name: &str, value: &Value) -> String {
    words(question, name, value).unwrap_or_else(|| value.to_string())
}

/// Returns a point in words: `Nagle on; message, bytes: 1000`.
pub(crate) fn described(question: &str, point: &Point) -> String {
    let described = |(name, value): (&String, &Value)| match (value, words(question, name, value)) {
        (Value::Word(_) | Value::Flag(_), Some(phrase)) => phrase,
        (_, words) => format!("{}: {}", label(name), words.unwrap_or_else(|| value.to_string())),
    };
    point.0.iter().map(described).collect::<Vec<_>>().join("; ")
}
