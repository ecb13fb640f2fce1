//! Jobs of an initiator, and the events that it reports about them.

use crate::ftam::RequestError;
use crate::ftam::filestore::{DiskError, Path};
use crate::wire::ftam::{ChangeAttributes, DiagnosticItem, Document, ReadAttributes};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A job for the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Fetch a file. If no document type is given, the type stored with the file is used.
    Get {
        /// The remote name.
        remote: String,
        /// The local path.
        local: Path,
        /// The document type.
        document: Option<Document>,
    },
    /// Store a file, replacing an existing one.
    Put {
        /// The local path.
        local: Path,
        /// The remote name.
        remote: String,
        /// The document type.
        document: Document,
    },
    /// Append to a file; the file is created if it does not exist.
    Append {
        /// The local path.
        local: Path,
        /// The remote name.
        remote: String,
        /// The document type.
        document: Document,
    },
    /// List a directory.
    List {
        /// The remote name.
        remote: String,
    },
    /// Read attributes.
    Stat {
        /// The remote name.
        remote: String,
    },
    /// Delete a file or directory.
    Remove {
        /// The remote name.
        remote: String,
    },
    /// Rename a file or directory.
    Rename {
        /// The remote name.
        remote: String,
        /// The new name.
        to: String,
    },
    /// Create a directory: F-CREATE of an NBS-9 file, as ISODE does.
    MakeDirectory {
        /// The remote name.
        remote: String,
    },
    /// Change attributes.
    Change {
        /// The remote name.
        remote: String,
        /// The new attribute values.
        attributes: Box<ChangeAttributes>,
    },
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success, without further results.
    Done,
    /// A file's attributes.
    Attributes(Box<ReadAttributes>),
    /// A directory's entries.
    Entries(Vec<ReadAttributes>),
}

/// The reason why a job failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Diagnostics from the responder, or from this end.
    pub diagnostics: Vec<DiagnosticItem>,
    /// The error returned by the local disk.
    pub local: Option<DiskError>,
    /// Whether this end cancelled the job.
    pub cancelled: bool,
    /// The request was not possible, usually because the responder does not offer a functional unit.
    pub misuse: Option<RequestError>,
    /// The key of the docket with which the job can be resumed.
    pub docket: Option<String>,
}

/// An event of the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The association is established.
    Connected,
    /// The association was refused.
    Refused(Failure),
    /// The job has ended.
    Ended(Result<Outcome, Failure>),
    /// The association was terminated, as requested.
    Closed,
    /// The association is lost.
    Lost,
}
