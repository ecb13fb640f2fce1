//! From records to a report: summary, figures, explanation, page.

mod columns;
pub mod explanation;
pub mod figures;
pub(crate) mod page;
pub mod report;
pub mod summary;
pub(crate) mod words;
