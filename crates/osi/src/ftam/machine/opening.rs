//! Information that the machine keeps about a file before it is open.

use crate::wire::ber::Oid;
use crate::wire::ftam::documents::abstract_syntax_of;
use crate::wire::ftam::{AccessRequest, ContentsTypeName, RecoverRequest, SelectAttributes};

/// Information about the file that is being selected and opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    pub(super) file: Option<SelectAttributes>,
    pub(super) access: AccessRequest,
    pub(super) activity: Option<i64>,
    pub(super) recover: Option<RecoverRequest>,
    /// The checkpoint from which the next transfer resumes; 0 is the beginning of the file.
    pub(super) resume: i64,
}

/// Returns the abstract syntax of an entry in the contents type list.
pub(super) fn syntax_of(name: &ContentsTypeName) -> Option<Oid> {
    match name {
        ContentsTypeName::Document(name) => abstract_syntax_of(name.0),
        ContentsTypeName::AbstractSyntax(name) => Some(name.0),
    }
}
