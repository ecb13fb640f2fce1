//! A list of SVG elements, and how numbers and texts are written in them.

use crate::report::escape::text;
use std::fmt::Write as _;

/// A list of SVG elements.
#[derive(Default)]
pub(super) struct Canvas(pub(super) String);

impl Canvas {
    pub(super) fn add(&mut self, line: impl AsRef<str>) {
        writeln!(self.0, "{}", line.as_ref()).expect("writing to a string succeeds");
    }

    /// Adds text at a position; `class` may contain several classes.
    pub(super) fn words(&mut self, x: f64, y: f64, class: &str, words: &str) {
        self.add(format!("<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>", at(x), at(y), text(words)));
    }

    /// Adds an element with a tooltip: the start tag without its end, and the text.
    pub(super) fn place(&mut self, element: &str, says: &str) {
        let name = element.trim_start_matches('<').split(' ').next().unwrap_or_default();
        self.add(format!("{element}><title>{}</title></{name}>", text(says)));
    }
}

/// Formats a coordinate with at most one decimal.
pub(super) fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Formats a value with at least three significant digits, without trailing zeros.
pub(super) fn value(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns the approximate width of a text in the figures' font.
pub(super) fn width(words: &str, size: f64) -> f64 {
    words.chars().count() as f64 * size * 0.56
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_coordinates_have_a_tenth() {
        for (given, expected) in [
            (0.0, "0"),
            (133.44, "133.4"),
            (1.5, "1.5"),
            (0.0123, "0.0123"),
            (20.0, "20"),
            (65_536.0, "65536"),
        ] {
            assert_eq!(value(given), expected);
        }
        for (given, expected) in [(1.0, "1"), (1.25, "1.2"), (0.06, "0.1")] {
            assert_eq!(at(given), expected);
        }
    }
}
