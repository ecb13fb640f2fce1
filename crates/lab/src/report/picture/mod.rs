//! Figures as SVG, inside a page or as standalone files.
//!
//! Purpose   figures that are readable in light and dark mode, in which no information depends on colour
//!           alone. The same figure always gives the same bytes.
//! Kinds     [`Lines`], [`Heat`], [`Sequence`], [`Stacked`], [`Bars`]; each is converted into a [`Picture`].
//! Tooltips  are `<title>` elements, which browsers show without a script; the page's script shows them
//!           without delay.
//! Accessibility  every figure has a title and a description for screen readers, and its data as a table.
//! Limits    sizes are fixed; a page scrolls a figure that is wider than the window.

mod axis;
mod bars;
mod heat;
mod lines;
mod sequence;
mod stacked;

pub use axis::Scale;
pub use bars::Bars;
pub use heat::{Heat, Note, Outline};
pub use lines::{Line, Lines, Mark};
pub use sequence::{Arrow, Direction, Sequence};
pub use stacked::Stacked;

use super::data::Data;
use super::escape::{slug, text};
use std::fmt::Write as _;

/// Colours, weights and fonts, for light and dark.
pub(super) const STYLE: &str = include_str!("picture.css");

/// The number of colours for curves.
const COLOURS: usize = 7;

/// A drawn figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    /// The figure's name, usable as a file name.
    pub name: String,
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub description: String,
    /// The data as a table.
    pub data: Data,
    width: f64,
    height: f64,
    /// The SVG elements.
    elements: String,
}

impl Picture {
    /// Returns an SVG element that uses the style of the page. `id` must be unique in the page.
    pub(super) fn element(&self, id: &str) -> String {
        let Picture { width, height, .. } = self;
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n<desc \
             id=\"{id}-desc\">{}</desc>\n\
             {}</svg>\n",
            text(&self.title),
            text(&self.description),
            self.elements
        )
    }

    /// Returns a standalone SVG file with title and style.
    pub fn standalone(&self) -> String {
        const TITLE: f64 = 34.0;
        let (width, height, id) = (self.width, self.height + TITLE, slug(&self.name));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" \
             role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
             <desc id=\"{id}-desc\">{}</desc>\n<style>\n{STYLE}</style>\n<path class=\"ground\" d=\"M0 \
             0H{width}V{height}H0z\"/>\n\
             <text class=\"head\" x=\"12\" y=\"23\">{}</text>\n<g transform=\"translate(0 \
             {TITLE})\">\n{}</g>\n</svg>\n",
            text(&self.title),
            text(&self.description),
            text(&self.title),
            self.elements
        )
    }
}

/// A list of SVG elements.
#[derive(Default)]
struct Canvas(String);

impl Canvas {
    fn add(&mut self, line: impl AsRef<str>) {
        writeln!(self.0, "{}", line.as_ref()).expect("writing to a string succeeds");
    }

    /// Adds text at a position; `class` may contain several classes.
    fn words(&mut self, x: f64, y: f64, class: &str, words: &str) {
        self.add(format!("<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>", at(x), at(y), text(words)));
    }

    /// Adds an element with a tooltip: the start tag without its end, and the text.
    fn place(&mut self, element: &str, says: &str) {
        let name = element.trim_start_matches('<').split(' ').next().unwrap_or_default();
        self.add(format!("{element}><title>{}</title></{name}>", text(says)));
    }
}

/// Formats a coordinate with at most one decimal.
fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Formats a value with at least three significant digits, without trailing zeros.
fn value(value: f64) -> String {
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
fn width(words: &str, size: f64) -> f64 {
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
