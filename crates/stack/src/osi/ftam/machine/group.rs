//! Groups of primitives: asked for together, answered together (ISO 8571-3, grouping).
//!
//! Rules     in the transfer and management classes a group is one of three: select or create, attributes, open; close,
//!           attributes, deselect or delete; select or create, attributes, deselect or delete. The transfer class has not the
//!           third, the management class that alone. In other classes any order that the states allow will do.
//! Threshold how many must succeed for any to be done is for the user that answers: the machine carries it.

use super::state::State;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_wire::ftam::{FunctionalUnits, Kind, ServiceClass};

/// The most primitives in one group, without those that begin and end it.
pub const GROUP_MAX: usize = 8;

/// Where in a group the association is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Group {
    /// In none.
    #[default]
    None,
    /// It is being asked for.
    Requests {
        /// What has been asked.
        kinds: Vec<Kind>,
        /// Where that leads if all of it succeeds.
        regime: State,
    },
    /// It has been asked for, and is being answered.
    Responses {
        /// What has not been answered.
        left: VecDeque<Kind>,
        /// Whether the answer has begun.
        has_begun: bool,
    },
}

/// Whether a request of this kind can be in a group.
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

/// Whether a request of this kind must be in a group.
pub(super) const fn must_be_grouped(class: ServiceClass, kind: Kind) -> bool {
    is_groupable(kind) && matches!(class, ServiceClass::TRANSFER | ServiceClass::TRANSFER_AND_MANAGEMENT)
}

/// Whether a group that begins in `state` may be these.
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

/// The functional units of which one must be there for this kind of FPDU; none: it belongs to the kernel.
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
