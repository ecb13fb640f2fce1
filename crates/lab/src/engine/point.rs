//! A point of a sweep: the parameter values of a trial.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// One parameter's value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A boolean.
    Flag(bool),
    /// An unsigned integer, for example bytes or sessions.
    Count(u64),
    /// A floating-point number.
    Figure(f64),
    /// A string.
    Word(String),
}

impl Value {
    /// Compares values of a parameter: false before true, numbers by size, strings alphabetically.
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

/// Parameter values, sorted by the names of the parameters, so that equal points have equal texts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub BTreeMap<String, Value>);

impl Point {
    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns an integer; `None` if there is no such parameter, or it has another type.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// Returns a number, which may be an integer in the plan; `None` if there is no such parameter, or it has
    /// another type.
    pub fn figure(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Count(count) => Some(*count as f64),
            Value::Figure(figure) => Some(*figure),
            _ => None,
        }
    }

    /// Returns a string; `None` if there is no such parameter, or it has another type.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns a boolean; `None` if there is no such parameter, or it has another type.
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
    fn a_point_round_trips_in_any_order() {
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
