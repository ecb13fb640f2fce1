//! Figures as SVG, inside a page or as standalone files.
//!
//! Purpose   figures that are readable in light and dark mode, in which no information depends on colour
//!           alone. The same figure always gives the same bytes.
//! Kinds     [`Lines`], [`Heat`], [`Sequence`], [`Stacked`], [`Bars`]; each is converted into a [`Picture`].
//! Tooltips  are `<title>` elements, which browsers show without a script; the page's script shows them
//!           without delay.
//! Libraries  Observable Plot and Vega-Lite draw only where JavaScript runs, so that neither the program
//!           nor a page without scripts could draw; plotters' SVG has no titles, descriptions or dark mode.
//! Accessibility  every figure has a title and a description for screen readers, and its data as a table.
//! Limits    sizes are fixed; a page scrolls a figure that is wider than the window.

mod axis;
mod bars;
mod canvas;
mod heat;
mod lines;
mod sequence;
mod stacked;
mod svg;

pub use axis::Scale;
pub use bars::Bars;
pub(crate) use heat::STEPS;
pub use heat::{Heat, Note, Outline};
pub use lines::{Line, Lines, Mark};
pub use sequence::{Arrow, Direction, Sequence};
pub use stacked::Stacked;
pub use svg::Picture;
pub(super) use svg::STYLE;
