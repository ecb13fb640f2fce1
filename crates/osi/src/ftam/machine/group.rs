//! Groups of primitives, which are requested together and answered together (ISO 8571-3, grouping).
//!
//! Rules     in the transfer and management class, there are three kinds of group: (1) select or create,
//!           attributes, open; (2) close, attributes, deselect or delete; (3) select or create, attributes,
//!           deselect or delete. The transfer class lacks the third kind; the management class has only the
//!           third. In other classes, any order that the state table allows is valid.
//!
//! The threshold is the number of requests that must succeed for any of them to be performed. The responding
//! user applies it; the machine only transmits it.

use super::state::State;
use crate::wire::ftam::{FunctionalUnits, Kind, ServiceClass};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of primitives in a group, not counting F-BEGIN-GROUP and F-END-GROUP.
pub const GROUP_MAX: usize = 8;

/// The association's position in a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Group {
    /// Outside a group.
    #[default]
    None,
    /// The group is being requested.
    Requests {
        /// The requests so far.
        kinds: Vec<Kind>,
        /// The state after the group, if all of the requests succeed.
        regime: State,
    },
    /// The group has been requested, and responses are expected.
    Responses {
        /// The requests not yet answered.
        left: VecDeque<Kind>,
        /// Whether the response to the group has begun.
        has_begun: bool,
        /// Whether a response reported a failure.
        has_failed: bool,
    },
}

/// Returns whether a request of this kind may be in a group.
pub(super) const fn is_groupable(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SelectRequest
            | Kind::CreateRequest
            | Kind::ReadAttributesRequest
            | Kind::ChangeAttributesRequest
            | Kind::OpenRequest
            | Kind::CloseRequest
            | Kind::DeselectRequest
            | Kind::DeleteRequest
    )
}

/// Returns whether a request of this kind may occur only in a group.
pub(super) const fn must_be_grouped(class: ServiceClass, kind: Kind) -> bool {
    is_groupable(kind) && matches!(class, ServiceClass::TRANSFER | ServiceClass::TRANSFER_AND_MANAGEMENT)
}

/// Returns whether these requests are a valid group that begins in `state`.
pub(super) fn is_sequence(class: ServiceClass, state: State, kinds: &[Kind]) -> bool {
    let [first, between @ .., last] = kinds else { return class_is_free(class) && !kinds.is_empty() };
    if class_is_free(class) {
        return true;
    }
    let attributes = match between {
        [] => true,
        [one] => matches!(one, Kind::ReadAttributesRequest | Kind::ChangeAttributesRequest),
        [Kind::ReadAttributesRequest, Kind::ChangeAttributesRequest] => true,
        _ => false,
    };
    let ends = matches!(last, Kind::DeselectRequest | Kind::DeleteRequest);
    attributes
        && match first {
            Kind::SelectRequest | Kind::CreateRequest if state == State::Initialized => {
                (*last == Kind::OpenRequest && class != ServiceClass::MANAGEMENT)
                    || (ends && class != ServiceClass::TRANSFER)
            }
            Kind::CloseRequest => ends && state == State::DataTransferIdle,
            _ => false,
        }
}

const fn class_is_free(class: ServiceClass) -> bool {
    !matches!(
        class,
        ServiceClass::TRANSFER | ServiceClass::TRANSFER_AND_MANAGEMENT | ServiceClass::MANAGEMENT
    )
}

/// Returns the functional units that permit an FPDU of this kind: one of them must be negotiated. Empty for
/// FPDUs of the kernel.
pub(super) fn units_of(kind: Kind) -> FunctionalUnits {
    use FunctionalUnits as U;
    match kind {
        Kind::CreateRequest
        | Kind::CreateResponse
        | Kind::DeleteRequest
        | Kind::DeleteResponse
        | Kind::ReadAttributesRequest
        | Kind::ReadAttributesResponse => U::LIMITED_FILE_MANAGEMENT,
        Kind::ChangeAttributesRequest | Kind::ChangeAttributesResponse => U::ENHANCED_FILE_MANAGEMENT,
        Kind::OpenRequest
        | Kind::OpenResponse
        | Kind::CloseRequest
        | Kind::CloseResponse
        | Kind::DataEndRequest
        | Kind::TransferEndRequest
        | Kind::TransferEndResponse
        | Kind::CancelRequest
        | Kind::CancelResponse => U::READ | U::WRITE,
        Kind::BeginGroupRequest
        | Kind::BeginGroupResponse
        | Kind::EndGroupRequest
        | Kind::EndGroupResponse => U::GROUPING,
        Kind::RecoverRequest | Kind::RecoverResponse => U::RECOVERY,
        Kind::LocateRequest | Kind::LocateResponse | Kind::EraseRequest | Kind::EraseResponse => {
            U::FILE_ACCESS
        }
        Kind::ReadRequest => U::READ,
        Kind::WriteRequest => U::WRITE,
        Kind::RestartRequest | Kind::RestartResponse => U::RESTART_DATA_TRANSFER,
        _ => U::NONE,
    }
}
