//! The data of a figure as a table, for the text alternative and for download.

use super::escape;
use serde_json::Value;

/// A table of values with headings.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Data {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows, with one cell for each column.
    pub rows: Vec<Vec<Value>>,
}

/// Rounds to at most three digits after the decimal point; returns null if `value` is not finite.
pub fn number(value: f64) -> Value {
    let rounded = (value * 1e3).round() / 1e3;
    match rounded {
        // Avoid negative zero.
        0.0 => Value::from(0),
        _ if rounded.fract() == 0.0 && rounded.abs() < 9e15 => Value::from(rounded as i64),
        _ => serde_json::Number::from_f64(rounded).map_or(Value::Null, Value::Number),
    }
}

/// Returns the text of a cell.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "no data".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Data {
    /// Returns comma-separated values with a heading line.
    pub fn csv(&self) -> String {
        let line = |fields: Vec<String>| fields.join(",") + "\n";
        let mut text = line(self.head.iter().map(|name| escape::field(name)).collect());
        for row in &self.rows {
            let field = |value: &Value| match value {
                Value::Null => String::new(),
                Value::String(text) => escape::field(text),
                other => other.to_string(),
            };
            text.push_str(&line(row.iter().map(field).collect()));
        }
        text
    }

    /// Returns one JSON object with `columns` and `rows`.
    pub fn json(&self) -> String {
        serde_json::json!({ "columns": self.head, "rows": self.rows }).to_string() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_exported_as_csv_and_json() {
        let data = Data {
            head: vec!["x, bytes".into(), "=y".into()],
            rows: vec![vec![number(8.0), number(63.612_345)], vec![Value::from("a\"b"), Value::Null]],
        };
        assert_eq!(data.csv(), "\"x, bytes\",'=y\n8,63.612\n\"a\"\"b\",\n");
        let back: Value = serde_json::from_str(&data.json()).expect("one object");
        assert_eq!(back["rows"][0][1], 63.612);
        assert_eq!(back["rows"][1][1], Value::Null);
    }

    #[test]
    fn numbers_are_rounded() {
        for (given, expected) in [
            (1.0, "1"),
            (-0.0001, "0"),
            (0.1 + 0.2, "0.3"),
            (f64::NAN, "no data"),
            (1e15, "1000000000000000"),
        ] {
            assert_eq!(shown(&number(given)), expected);
        }
    }
}
