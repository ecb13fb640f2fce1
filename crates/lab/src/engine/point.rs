//! A point of a sweep: what a trial is made with.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// One parameter's value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A count: bytes, sessions.
    Count(u64),
    /// A figure.
    Figure(f64),
    /// A name.
    Word(String),
}

impl Value {
    /// The order of a parameter's values: no before yes, numbers by size, words by the alphabet.
    pub fn order(&self, other: &Value) -> Ordering {
        let number = |value: &Value| match value {
            Value::Count(count) => Some(*count as f64),
            Value::Figure(figure) => Some(*figure),
            Value::Flag(_) | Value::Word(_) => None,
        };
        let kind = |value: &Value| match value {
            Value::Flag(_) => 0,
            Value::Count(_) | Value::Figure(_) => 1,
            Value::Word(_) => 2,
        };
        match (self, other) {
            (Value::Count(one), Value::Count(other)) => one.cmp(other),
            (Value::Flag(one), Value::Flag(other)) => one.cmp(other),
            (Value::Word(one), Value::Word(other)) => one.cmp(other),
            _ => match (number(self), number(other)) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                _ => kind(self).cmp(&kind(other)),
            },
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => flag.fmt(f),
            Value::Count(count) => count.fmt(f),
            Value::Figure(figure) => figure.fmt(f),
            Value::Word(word) => word.fmt(f),
        }
    }
}

/// Values by the names of their parameters, in the order of the names: the same point is the same text.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub BTreeMap<String, Value>);

impl Point {
    /// A parameter's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A count; none if there is no such parameter, or it is something else.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// A figure; a count is one too.
    pub fn figure(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Count(count) => Some(*count as f64),
            Value::Figure(figure) => Some(*figure),
            _ => None,
        }
    }

    /// A name.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Yes or no.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Point {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(values: I) -> Point {
        Point(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            let gap = if place > 0 { " " } else { "" };
            write!(f, "{gap}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_read_as_it_was_written_whatever_the_order() {
        let values = [
            ("message", Value::Count(4000)),
            ("delay_ms", Value::Figure(0.5)),
            ("nodelay", Value::Flag(true)),
            ("profile", Value::Word("modern".into())),
        ];
        let point: Point = values.clone().into_iter().collect();
        assert_eq!(point, values.into_iter().rev().collect());
        let text = serde_json::to_string(&point).expect("plain values");
        assert_eq!(text, r#"{"delay_ms":0.5,"message":4000,"nodelay":true,"profile":"modern"}"#);
        assert_eq!(serde_json::from_str::<Point>(&text).expect("as written"), point);
        assert_eq!((point.count("message"), point.figure("message")), (Some(4000), Some(4000.0)));
        assert_eq!((point.count("delay_ms"), point.figure("delay_ms")), (None, Some(0.5)));
        assert_eq!(
            (point.word("profile"), point.flag("nodelay"), point.word("x")),
            (Some("modern"), Some(true), None)
        );
        assert_eq!(point.to_string(), "delay_ms=0.5 message=4000 nodelay=true profile=modern");
    }

    #[test]
    fn values_have_an_order() {
        let values = [
            Value::Flag(false),
            Value::Flag(true),
            Value::Figure(-1.5),
            Value::Count(2),
            Value::Figure(2.5),
            Value::Count(10),
            Value::Word("a".into()),
            Value::Word("b".into()),
        ];
        for (place, one) in values.iter().enumerate() {
            for (other_place, other) in values.iter().enumerate() {
                assert_eq!(one.order(other), place.cmp(&other_place), "{one} {other}");
            }
        }
    }
}
