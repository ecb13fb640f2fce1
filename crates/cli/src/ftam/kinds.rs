//! Document types, kinds of progress, and limits that several commands share.

use clap::ValueEnum;
use kiban_osi::wire::ftam::{BinaryParameters, Document, StringSignificance, TextParameters};

/// Maximum depth of nested directories in recursive commands.
pub(super) const DEPTH_MAX: usize = 32;

/// How the progress of a transfer is shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Progress {
    /// A progress bar, if standard error is a terminal.
    Bar,
    /// A line of JSON, at most ten times a second: the file, its transferred bytes, its size or null.
    Json,
}

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Kind {
    /// FTAM-3: unstructured bytes.
    Binary,
    /// FTAM-1: text; line endings are converted to each host's.
    Text,
    /// FTAM-2: text; each line is a record.
    Sequential,
}

impl Kind {
    pub(crate) fn document(self) -> Document {
        match self {
            Kind::Binary => Document::UnstructuredBinary(BinaryParameters::NONE),
            // As in ISODE and most profiles: GeneralString (universal class number 27), in which string
            // boundaries are not significant.
            Kind::Text => Document::UnstructuredText(TextParameters {
                universal_class_number: Some(27),
                string_significance: Some(StringSignificance::NOT_SIGNIFICANT),
                ..TextParameters::NONE
            }),
            Kind::Sequential => Document::SequentialText(TextParameters::NONE),
        }
    }
}
