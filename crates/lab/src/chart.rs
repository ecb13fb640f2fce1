//! A figure as SVG: line charts of [`crate::report::picture`], each as a file of its own.

use crate::report::picture::Scale;
use crate::reproduce::Figure;

/// Draws a figure.
pub fn svg(figure: &Figure) -> String {
    figure.lines(Scale::Linear, Scale::Linear).picture().standalone()
}

/// Draws a figure whose curves span decades: both axes are logarithmic, and all figures positive.
pub fn svg_log(figure: &Figure) -> String {
    figure.lines(Scale::Decades, Scale::Decades).picture().standalone()
}

/// Draws a figure whose places double: its horizontal axis is logarithmic.
pub fn svg_log_x(figure: &Figure) -> String {
    figure.lines(Scale::Doublings, Scale::Linear).picture().standalone()
}
