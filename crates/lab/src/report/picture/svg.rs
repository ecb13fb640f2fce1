//! A drawn figure, as an SVG element of a page or as a standalone SVG file.

use crate::report::data::Data;
use crate::report::escape::{slug, text};

/// Colours, weights and fonts, for light and dark.
pub(in crate::report) const STYLE: &str = include_str!("picture.css");

/// The number of colours for curves.
pub(super) const COLOURS: usize = 7;

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
    pub(super) width: f64,
    pub(super) height: f64,
    /// The SVG elements.
    pub(super) elements: String,
}

impl Picture {
    /// Returns an SVG element that uses the style of the page. `id` must be unique in the page.
    pub(in crate::report) fn element(&self, id: &str) -> String {
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
