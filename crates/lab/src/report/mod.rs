//! HTML reports: one self-contained file that loads nothing from the network.
//!
//! Purpose   text, tables and figures that are readable in light and dark mode, on wide and narrow screens,
//!           with a screen reader, and without scripts. The data of figures can be downloaded.
//! Structure  a [`Document`] contains [`Section`]s, which may be nested and contain [`Block`]s. This module
//!           does not depend on what a document contains.
//! Security  all text is escaped by [`escape::text`]. The page's Content Security Policy forbids every
//!           request and allows only its one style and its one script, by their hashes.
//! Determinism  the same document gives the same bytes.
//! Not implemented  templates: the page is written by one short function, and all escaping is in one place.

mod data;
mod document;
pub mod escape;
mod grid;
pub mod picture;

pub use data::{Data, number};
pub use document::{Block, Document, Section};
pub use grid::{Badge, Cell, Grid, Tone};
pub use picture::Picture;
