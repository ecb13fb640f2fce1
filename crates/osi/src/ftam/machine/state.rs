//! The state table of the file protocol machine.
//!
//! Source    the service sequences of ISO 8571-3 and the procedures of ISO 8571-4 (clauses 8 to 10 for the
//!           basic protocol, and those of the bulk data protocol). The standard's own tables (ISO 8571-4
//!           annex A, replaced by amendment 4) were not available: states are named after the services, and a
//!           state that waits for a response is called "pending".
//! Roles     one table serves both roles, because its events say which side is the sender. The initiator
//!           requests all confirmed services except F-CANCEL and F-RESTART. F-DATA, F-DATA-END and F-CHECK
//!           come from the sender of the data, which in a read is the responder.
//! Choices   made where the available texts leave a question open:
//!           - F-RECOVER leads to the state "data transfer idle". The initiator then repeats the F-READ or
//!             F-WRITE request, with the number of the lost bulk transfer, and data continues after the
//!             recovery point.
//!           - If F-CANCEL or F-RESTART requests collide and use resynchronisation, the session layer decides
//!             which one prevails; the other side gets its indication. If both sides send F-CANCEL in a
//!             P-DATA, each answers the other's.

use super::super::Role;
use crate::wire::ftam::Kind;

/// The state of the association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum State {
    /// No FTAM regime.
    Closed,
    InitializePending,
    /// The FTAM regime is established; no file is selected.
    Initialized,
    TerminatePending,
    SelectPending,
    CreatePending,
    RecoverPending,
    /// A file is selected.
    Selected,
    DeselectPending,
    DeletePending,
    ReadAttributesPending,
    ChangeAttributesPending,
    OpenPending,
    /// The file is open; there is no transfer.
    DataTransferIdle,
    ClosePending,
    LocatePending,
    ErasePending,
    /// The responder is sending.
    Reading,
    /// The initiator is sending.
    Writing,
    /// The responder has sent all data.
    ReadEnded,
    /// The initiator has sent all data.
    WriteEnded,
    ReadTransferEndPending,
    WriteTransferEndPending,
    /// This end has requested a cancel.
    CancelRequested,
    /// The peer has requested a cancel.
    CancelIndicated,
    /// Both ends have requested a cancel in a P-DATA.
    CancelCollision,
    /// This end has requested a restart of a read.
    ReadRestartRequested,
    /// The peer has requested a restart of a read.
    ReadRestartIndicated,
    /// This end has requested a restart of a write.
    WriteRestartRequested,
    /// The peer has requested a restart of a write.
    WriteRestartIndicated,
}

impl State {
    /// All states.
    pub const ALL: [State; 30] = [
        State::Closed,
        State::InitializePending,
        State::Initialized,
        State::TerminatePending,
        State::SelectPending,
        State::CreatePending,
        State::RecoverPending,
        State::Selected,
        State::DeselectPending,
        State::DeletePending,
        State::ReadAttributesPending,
        State::ChangeAttributesPending,
        State::OpenPending,
        State::DataTransferIdle,
        State::ClosePending,
        State::LocatePending,
        State::ErasePending,
        State::Reading,
        State::Writing,
        State::ReadEnded,
        State::WriteEnded,
        State::ReadTransferEndPending,
        State::WriteTransferEndPending,
        State::CancelRequested,
        State::CancelIndicated,
        State::CancelCollision,
        State::ReadRestartRequested,
        State::ReadRestartIndicated,
        State::WriteRestartRequested,
        State::WriteRestartIndicated,
    ];

    /// Returns whether a bulk transfer is in progress, up to its response.
    pub const fn is_transfer(self) -> bool {
        self as u8 >= State::Reading as u8
    }
}

/// An item that one side sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// An FPDU.
    Pdu {
        /// The kind of FPDU.
        kind: Kind,
        /// Whether a response permits the state change that was requested.
        positive: bool,
    },
    /// A data element.
    Data,
    /// A checkpoint (F-CHECK request).
    Check,
    /// The response to a checkpoint.
    CheckResponse,
}

/// The contents of one cell in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The next state.
    To(State),
    /// The item crossed with one of this end's requests, and is ignored.
    Void,
    /// The item is not allowed here; its sender is in error.
    Error,
}

/// Returns the effect of an item on `state`, at the side with this `role`. `own` says whether this side or
/// its peer sent the item; `resynchronise` says whether F-CANCEL is carried by resynchronisation.
pub fn verdict(role: Role, own: bool, resynchronise: bool, state: State, sends: Item) -> Verdict {
    use State as S;
    use Verdict::{Error, To};
    let by_initiator = (role == Role::Initiator) == own;
    let (kind, positive) = match sends {
        Item::Pdu { kind, positive } => (kind, positive),
        Item::Data | Item::Check | Item::CheckResponse => {
            return element(by_initiator, own, resynchronise, state, sends);
        }
    };
    match kind {
        Kind::UserAbort if state != S::Closed => return To(S::Closed),
        // F-P-ABORT is sent by the machine only, never by a user.
        Kind::ProviderAbort if state != S::Closed && !own => return To(S::Closed),
        Kind::CancelRequest => return cancel(by_initiator, own, resynchronise, state),
        Kind::CancelResponse => return cancelled(own, state),
        Kind::RestartRequest => return restart(by_initiator, own, resynchronise, state),
        Kind::RestartResponse => return restarted(own, state),
        // F-BEGIN-GROUP and F-END-GROUP do not change the state; groups are handled separately.
        Kind::BeginGroupRequest
        | Kind::BeginGroupResponse
        | Kind::EndGroupRequest
        | Kind::EndGroupResponse => {
            return Error;
        }
        _ => {}
    }
    // The peer sent these FPDUs before it received this end's cancel in a P-DATA.
    if crosses(own, resynchronise, state)
        && matches!(kind, Kind::DataEndRequest | Kind::TransferEndRequest | Kind::TransferEndResponse)
    {
        return Verdict::Void;
    }
    let (by_responder, then, negative) = (!by_initiator, positive, !positive);
    match (state, kind) {
        (S::Closed, Kind::InitializeRequest) if by_initiator => To(S::InitializePending),
        (S::InitializePending, Kind::InitializeResponse) if by_responder && then => To(S::Initialized),
        (S::InitializePending, Kind::InitializeResponse) if by_responder && negative => To(S::Closed),
        (S::Initialized, Kind::TerminateRequest) if by_initiator => To(S::TerminatePending),
        (S::TerminatePending, Kind::TerminateResponse) if by_responder => To(S::Closed),

        (S::Initialized, Kind::SelectRequest) if by_initiator => To(S::SelectPending),
        (S::SelectPending, Kind::SelectResponse) if by_responder => {
            To(if then { S::Selected } else { S::Initialized })
        }
        (S::Initialized, Kind::CreateRequest) if by_initiator => To(S::CreatePending),
        (S::CreatePending, Kind::CreateResponse) if by_responder => {
            To(if then { S::Selected } else { S::Initialized })
        }
        (S::Initialized, Kind::RecoverRequest) if by_initiator => To(S::RecoverPending),
        (S::RecoverPending, Kind::RecoverResponse) if by_responder => {
            To(if then { S::DataTransferIdle } else { S::Initialized })
        }

        (S::Selected, Kind::ReadAttributesRequest) if by_initiator => To(S::ReadAttributesPending),
        (S::ReadAttributesPending, Kind::ReadAttributesResponse) if by_responder => To(S::Selected),
        (S::Selected, Kind::ChangeAttributesRequest) if by_initiator => To(S::ChangeAttributesPending),
        (S::ChangeAttributesPending, Kind::ChangeAttributesResponse) if by_responder => To(S::Selected),
        // The selection ends, whatever the action result says.
        (S::Selected, Kind::DeselectRequest) if by_initiator => To(S::DeselectPending),
        (S::DeselectPending, Kind::DeselectResponse) if by_responder => To(S::Initialized),
        (S::Selected, Kind::DeleteRequest) if by_initiator => To(S::DeletePending),
        (S::DeletePending, Kind::DeleteResponse) if by_responder => To(S::Initialized),

        (S::Selected, Kind::OpenRequest) if by_initiator => To(S::OpenPending),
        (S::OpenPending, Kind::OpenResponse) if by_responder => {
            To(if then { S::DataTransferIdle } else { S::Selected })
        }
        (S::DataTransferIdle, Kind::CloseRequest) if by_initiator => To(S::ClosePending),
        (S::ClosePending, Kind::CloseResponse) if by_responder => To(S::Selected),
        (S::DataTransferIdle, Kind::LocateRequest) if by_initiator => To(S::LocatePending),
        (S::LocatePending, Kind::LocateResponse) if by_responder => To(S::DataTransferIdle),
        (S::DataTransferIdle, Kind::EraseRequest) if by_initiator => To(S::ErasePending),
        (S::ErasePending, Kind::EraseResponse) if by_responder => To(S::DataTransferIdle),

        (S::DataTransferIdle, Kind::ReadRequest) if by_initiator => To(S::Reading),
        (S::DataTransferIdle, Kind::WriteRequest) if by_initiator => To(S::Writing),
        (S::Reading, Kind::DataEndRequest) if by_responder => To(S::ReadEnded),
        (S::Writing, Kind::DataEndRequest) if by_initiator => To(S::WriteEnded),
        (S::ReadEnded, Kind::TransferEndRequest) if by_initiator => To(S::ReadTransferEndPending),
        (S::WriteEnded, Kind::TransferEndRequest) if by_initiator => To(S::WriteTransferEndPending),
        (S::ReadTransferEndPending | S::WriteTransferEndPending, Kind::TransferEndResponse)
            if by_responder =>
        {
            To(S::DataTransferIdle)
        }
        _ => Error,
    }
}

/// Returns whether the peer may have sent this item before it received this end's cancel. If
/// resynchronisation is used, the session layer discards such data.
const fn crosses(own: bool, resynchronise: bool, state: State) -> bool {
    !own && !resynchronise && matches!(state, State::CancelRequested)
}

fn element(by_initiator: bool, own: bool, resynchronise: bool, state: State, sends: Item) -> Verdict {
    use State as S;
    if crosses(own, resynchronise, state) {
        return Verdict::Void;
    }
    let stays = match sends {
        Item::CheckResponse => match state {
            S::Reading | S::ReadEnded => by_initiator,
            // The end of data may arrive before the responses to earlier checkpoints.
            S::Writing | S::WriteEnded | S::WriteTransferEndPending => !by_initiator,
            _ => false,
        },
        _ => match state {
            S::Reading => !by_initiator,
            S::Writing => by_initiator,
            _ => false,
        },
    };
    if stays { Verdict::To(state) } else { Verdict::Error }
}

fn cancel(by_initiator: bool, own: bool, resynchronise: bool, state: State) -> Verdict {
    use State as S;
    let to = Verdict::To(if own { S::CancelRequested } else { S::CancelIndicated });
    match state {
        S::Reading | S::Writing | S::ReadEnded | S::WriteEnded => to,
        // After the initiator requests the end of the transfer, it waits for the response, which may be in
        // transit.
        S::ReadTransferEndPending | S::WriteTransferEndPending if !by_initiator => to,
        // Either the peer sent its request before it received this end's, or the peer's request prevailed in
        // the session layer.
        S::CancelRequested if !own => {
            Verdict::To(if resynchronise { S::CancelIndicated } else { S::CancelCollision })
        }
        S::ReadRestartRequested | S::WriteRestartRequested if !own && resynchronise => {
            Verdict::To(S::CancelIndicated)
        }
        _ => Verdict::Error,
    }
}

fn cancelled(own: bool, state: State) -> Verdict {
    use State as S;
    match (state, own) {
        (S::CancelRequested, false) | (S::CancelIndicated, true) => Verdict::To(S::DataTransferIdle),
        (S::CancelCollision, false) => Verdict::To(S::CancelIndicated),
        (S::CancelCollision, true) => Verdict::To(S::CancelRequested),
        _ => Verdict::Error,
    }
}

fn restart(by_initiator: bool, own: bool, resynchronise: bool, state: State) -> Verdict {
    use State as S;
    if !resynchronise {
        return Verdict::Error;
    }
    match state {
        S::Reading | S::ReadEnded => {
            Verdict::To(if own { S::ReadRestartRequested } else { S::ReadRestartIndicated })
        }
        S::Writing | S::WriteEnded => {
            Verdict::To(if own { S::WriteRestartRequested } else { S::WriteRestartIndicated })
        }
        // The receiver has not answered the request to end the transfer, so it may still ask for the data to
        // be resent.
        S::WriteTransferEndPending if !by_initiator => {
            Verdict::To(if own { S::WriteRestartRequested } else { S::WriteRestartIndicated })
        }
        // The sender requested the restart before it received this end's request to end the transfer.
        S::ReadTransferEndPending if !own && !by_initiator => Verdict::To(S::ReadRestartIndicated),
        S::ReadRestartRequested if !own => Verdict::To(S::ReadRestartIndicated),
        S::WriteRestartRequested if !own => Verdict::To(S::WriteRestartIndicated),
        _ => Verdict::Error,
    }
}

fn restarted(own: bool, state: State) -> Verdict {
    use State as S;
    match (state, own) {
        (S::ReadRestartRequested, false) | (S::ReadRestartIndicated, true) => Verdict::To(S::Reading),
        (S::WriteRestartRequested, false) | (S::WriteRestartIndicated, true) => Verdict::To(S::Writing),
        _ => Verdict::Error,
    }
}
