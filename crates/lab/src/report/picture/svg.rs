//! A drawn figure, as an SVG element of a page or as a standalone SVG file.

use super::canvas;
use crate::report::data::Data;
use crate::report::escape::{slug, text};
use crate::table::fold;

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
        const LINE: f64 = 22.0;
        let lines = fold(&self.title, ((self.width - 24.0) / canvas::width("x", 15.0)) as usize);
        let title = 12.0 + LINE * lines.len() as f64;
        let (width, height, id) = (self.width, self.height + title, slug(&self.name));
        let lines = lines.iter().enumerate().map(|(number, line)| {
            let y = 23.0 + LINE * number as f64;
            format!("<text class=\"head\" x=\"12\" y=\"{y}\">{}</text>\n", text(line))
        });
        let lines: String = lines.collect();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" \
             role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
             <desc id=\"{id}-desc\">{}</desc>\n<style>\n{STYLE}</style>\n<path class=\"ground\" d=\"M0 \
             0H{width}V{height}H0z\"/>\n\
             {lines}<g transform=\"translate(0 {title})\">\n{}</g>\n</svg>\n",
            text(&self.title),
            text(&self.description),
            self.elements
        )
    }
}
