//! Renders a [`Figure`] as a standalone SVG line chart with [`crate::report::picture`].

use crate::report::picture::Scale;
use crate::reproduce::Figure;

/// Draws a figure with linear axes.
pub fn svg(figure: &Figure) -> String {
    figure.lines(Scale::Linear, Scale::Linear).picture().standalone()
}

/// Draws a figure with logarithmic axes in decades; all values must be positive.
pub fn svg_log(figure: &Figure) -> String {
    figure.lines(Scale::Decades, Scale::Decades).picture().standalone()
}

/// Draws a figure whose horizontal axis is logarithmic in powers of two.
pub fn svg_log_x(figure: &Figure) -> String {
    figure.lines(Scale::Doublings, Scale::Linear).picture().standalone()
}
