//! Maps filestore errors to diagnostics, and builds the responses to failed requests.

use super::super::filestore::{DiskError, LockError, PathError};
use crate::wire::ftam::{
    ActionResult, ChangeAttributesResponse, CloseResponse, ContentsType, CreateResponse, DeleteResponse,
    DeselectResponse, Diagnostic, DiagnosticItem, DiagnosticType, EntityReference, ErrorIdentifier,
    OpenContentsType, OpenResponse, Pdu, ReadAttributesResponse, RecoverResponse, SelectResponse,
    StateResult, oids,
};
use alloc::boxed::Box;

/// Maps a disk error to the error identifier and type of a diagnostic.
pub(in super::super) fn kind_of_failure(disk_error: DiskError) -> (ErrorIdentifier, DiagnosticType) {
    use DiagnosticType as T;
    use ErrorIdentifier as E;
    match disk_error {
        DiskError::NotThere => (E::FILE_NON_EXISTENT, T::PERMANENT),
        DiskError::Exists => (E::FILE_EXISTS, T::PERMANENT),
        DiskError::Denied => (E::LOCAL_SECURITY, T::PERMANENT),
        DiskError::Full => (E::LOCAL_FAILURE_SPACE, T::TRANSIENT),
        DiskError::Busy => (E::FILE_BUSY, T::TRANSIENT),
        DiskError::Changed => (E::LOCAL_FAILURE_DATA, T::TRANSIENT),
        // Both cases return the same error, so that a peer does not learn which files exist outside the
        // filestore.
        DiskError::Outside | DiskError::NotADirectory => (E::FILENAME_NOT_FOUND, T::PERMANENT),
        DiskError::NotAFile => (E::FILE_NOT_AVAILABLE, T::PERMANENT),
        DiskError::NotEmpty => (E::FILE_CANNOT_BE_DELETED, T::PERMANENT),
        DiskError::Long => (E::SELECTION_BAD_ATTRIBUTE_VALUE, T::PERMANENT),
        DiskError::TooMany => (E::RESOURCES, T::TRANSIENT),
        DiskError::Unable => (E::OPERATION_NOT_AVAILABLE, T::PERMANENT),
        DiskError::Failed => (E::LOCAL_FAILURE_DEVICE, T::PERMANENT),
    }
}

/// Builds a diagnostic of the filestore.
pub(in super::super) fn item_of(error: ErrorIdentifier, kind: DiagnosticType) -> DiagnosticItem {
    let here = EntityReference::RESPONDING_FILE_SERVICE_USER;
    let source = match error.0 {
        // These errors are caused by the initiator's request.
        3000..=3999 | 1000..=1999 => EntityReference::INITIATING_FILE_SERVICE_USER,
        _ => here,
    };
    DiagnosticItem::new(kind, error, here, source)
}

pub(super) fn bad_name(name: PathError) -> DiagnosticItem {
    use alloc::string::ToString;
    item_of(ErrorIdentifier::FILENAME_NOT_FOUND, DiagnosticType::PERMANENT).with_details(&name.to_string())
}

pub(super) fn refused(refused: LockError) -> DiagnosticItem {
    match refused {
        LockError::Conflict => item_of(ErrorIdentifier::FILE_BUSY, DiagnosticType::TRANSIENT),
        LockError::TooMany => item_of(ErrorIdentifier::RESOURCES, DiagnosticType::TRANSIENT),
    }
}

pub(super) fn permanent(error: ErrorIdentifier) -> DiagnosticItem {
    item_of(error, DiagnosticType::PERMANENT)
}

/// Returns whether a response reports success, both in its state result and in its action result.
pub(super) fn succeeded(answer: &Pdu) -> bool {
    answer.state_result().unwrap_or(StateResult::SUCCESS) == StateResult::SUCCESS
        && answer.action_result().unwrap_or(ActionResult::SUCCESS) == ActionResult::SUCCESS
}

/// Returns the action result for a diagnostic; action results and diagnostic types have the same numbers.
pub(super) fn result_of(item: &DiagnosticItem) -> ActionResult {
    ActionResult(item.diagnostic_type.0)
}

/// Builds the response to a failed request; the first diagnostic determines the result.
pub(super) fn failed(request: &Pdu, diagnostic: Diagnostic) -> Pdu {
    let action_result = diagnostic.0.first().map_or(ActionResult::PERMANENT_ERROR, result_of);
    let diagnostic = Some(diagnostic);
    let (state_result, shared_ase_information) = (StateResult::FAILURE, None);
    match request {
        Pdu::SelectRequest(request) => Pdu::SelectResponse(Box::new(SelectResponse {
            state_result,
            action_result,
            diagnostic,
            ..SelectResponse::new(request.attributes.clone())
        })),
        Pdu::CreateRequest(request) => Pdu::CreateResponse(Box::new(CreateResponse {
            state_result,
            action_result,
            diagnostic,
            ..CreateResponse::new(request.initial_attributes.clone())
        })),
        Pdu::OpenRequest(request) => {
            let contents_type = match &request.contents_type {
                OpenContentsType::Proposed(contents_type) => contents_type.clone(),
                OpenContentsType::Unknown(_) => ContentsType::document(oids::FTAM_3, None),
            };
            Pdu::OpenResponse(Box::new(OpenResponse {
                state_result,
                action_result,
                diagnostic,
                ..OpenResponse::new(contents_type)
            }))
        }
        Pdu::RecoverRequest(_) => Pdu::RecoverResponse(Box::new(RecoverResponse {
            state_result,
            action_result,
            diagnostic,
            ..RecoverResponse::new(ContentsType::document(oids::FTAM_3, None), 0)
        })),
        Pdu::ReadAttributesRequest(_) => {
            let attributes = None;
            Pdu::ReadAttributesResponse(Box::new(ReadAttributesResponse {
                action_result,
                attributes,
                diagnostic,
            }))
        }
        Pdu::ChangeAttributesRequest(_) => {
            let attributes = None;
            Pdu::ChangeAttributesResponse(Box::new(ChangeAttributesResponse {
                action_result,
                attributes,
                diagnostic,
            }))
        }
        Pdu::CloseRequest(_) => {
            Pdu::CloseResponse(Box::new(CloseResponse { action_result, shared_ase_information, diagnostic }))
        }
        Pdu::DeleteRequest(_) => Pdu::DeleteResponse(Box::new(DeleteResponse {
            action_result,
            shared_ase_information,
            charging: None,
            diagnostic,
        })),
        _ => Pdu::DeselectResponse(Box::new(DeselectResponse {
            action_result,
            charging: None,
            shared_ase_information,
            diagnostic,
        })),
    }
}
