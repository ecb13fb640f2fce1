//! The effects of an FPDU other than the state change: on negotiated values, the docket, and the transfer's
//! checkpoints.

use super::change::is_positive;
use super::opening::Opening;
use super::protocol::{Machine, WINDOW_MAX, wants_synchronise};
use super::state::State;
use crate::ftam::{Docket, RequestError, Role, Transfer};
use crate::wire::ftam::{ContentsType, Document, InitializeResponse, Pdu, RecoveryMode, SelectAttributes};

impl Machine {
    /// Checks an FPDU's parameters against what was requested and negotiated.
    pub(super) fn fits(&self, own: bool, pdu: &Pdu) -> Result<(), RequestError> {
        match pdu {
            Pdu::InitializeResponse(response) if is_positive(pdu) => self.fits_proposal(response),
            Pdu::OpenResponse(response) if own && is_positive(pdu) => {
                self.contents_of(&response.contents_type).map(drop).ok_or(RequestError::Context)
            }
            Pdu::RecoverResponse(response) if is_positive(pdu) => {
                let proposed = self.opening.recover.as_ref().map_or(0, |recover| recover.recovery_point);
                // The responder may move the recovery point back, but not forward.
                let range = 0..=proposed.max(0);
                if range.contains(&response.recovery_point) { Ok(()) } else { Err(RequestError::Value) }
            }
            Pdu::RestartRequest(restart) => {
                let last = self.transfer_now().map_or(0, |transfer| transfer.checkpoint_last);
                let range = self.lowest..=last;
                if range.contains(&restart.checkpoint_identifier) {
                    Ok(())
                } else {
                    Err(RequestError::Checkpoint)
                }
            }
            Pdu::RestartResponse(restart) if restart.checkpoint_identifier != self.restart => {
                Err(RequestError::Checkpoint)
            }
            // A receiver must answer all checkpoints before it requests or accepts the end of the transfer.
            Pdu::TransferEndRequest(_) | Pdu::TransferEndResponse(_) => {
                let receives = matches!(
                    (self.state, self.role),
                    (State::ReadEnded, Role::Initiator) | (State::WriteTransferEndPending, Role::Responder)
                );
                let transfer = self.transfer_now();
                let open =
                    transfer.is_some_and(|transfer| transfer.checkpoint_answered < transfer.checkpoint_last);
                if own && receives && open { Err(RequestError::Checkpoint) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Checks that a response to F-INITIALIZE selects nothing that was not proposed.
    fn fits_proposal(&self, response: &InitializeResponse) -> Result<(), RequestError> {
        let Some(proposal) = &self.proposal else { return Err(RequestError::State) };
        let one_class = response.service_class.0.is_power_of_two();
        let fits = one_class
            && proposal.service_class.contains(response.service_class)
            && proposal.functional_units.contains(response.functional_units)
            && proposal.attribute_groups.contains(response.attribute_groups)
            && (1..=WINDOW_MAX.min(proposal.checkpoint_window)).contains(&response.checkpoint_window)
            && (self.synchronise || !wants_synchronise(response.functional_units));
        if fits { Ok(()) } else { Err(RequestError::Value) }
    }

    /// Applies the effects of an FPDU, after the state has changed.
    pub(super) fn effect(&mut self, pdu: &Pdu) {
        let positive = is_positive(pdu);
        match pdu {
            Pdu::InitializeResponse(response) if positive => self.settle(response),
            Pdu::InitializeResponse(_) | Pdu::UserAbort(_) | Pdu::ProviderAbort(_) => self.close(),
            Pdu::TerminateResponse(_) => {
                self.close();
                self.docket = None;
            }
            Pdu::SelectRequest(request) => self.opening.access = request.requested_access,
            Pdu::CreateRequest(request) => self.opening.access = request.requested_access,
            Pdu::SelectResponse(response) if positive => {
                self.opening.file = Some(response.attributes.clone())
            }
            Pdu::CreateResponse(response) if positive => {
                let pathname = response.initial_attributes.pathname.clone();
                self.opening.file = Some(SelectAttributes { pathname });
            }
            Pdu::OpenRequest(request) => {
                self.opening.activity = request.activity_identifier.as_ref().map(|id| id.0)
            }
            // In a group, an open request after a failed selection has no effect.
            Pdu::OpenResponse(response) if positive && self.state == State::DataTransferIdle => {
                self.opening.resume = 0;
                self.open(&response.contents_type, response.recovery_mode, 0);
            }
            Pdu::RecoverRequest(request) => self.opening.recover = Some((**request).clone()),
            Pdu::RecoverResponse(response) if positive => {
                let Some(recover) = self.opening.recover.take() else { return };
                self.opening.activity = Some(recover.activity_identifier.0);
                self.opening.access = recover.requested_access;
                self.opening.resume = response.recovery_point;
                self.open(
                    &response.contents_type,
                    RecoveryMode::AT_ANY_ACTIVE_CHECKPOINT,
                    recover.bulk_transfer_number.saturating_sub(1).max(0),
                );
            }
            Pdu::CloseResponse(_) => {
                self.docket = None;
                self.contents_context = None;
            }
            Pdu::ReadRequest(_) | Pdu::WriteRequest(_) => self.begin_transfer(pdu),
            Pdu::TransferEndResponse(_) | Pdu::CancelResponse(_) if self.state == State::DataTransferIdle => {
                self.end_transfer();
            }
            Pdu::RestartRequest(restart) => self.restart = restart.checkpoint_identifier,
            Pdu::RestartResponse(_) => {
                let (restart, base) = (self.restart, self.base);
                self.serial_next = base + restart;
                if let Some(transfer) = self.transfer() {
                    // X.225 §A.5: V(A) is set to the agreed serial number. The session layer accepts no more
                    // responses to earlier synchronisation points, and a response in transit is void.
                    transfer.checkpoint_last = restart;
                    transfer.checkpoint_answered = restart;
                }
            }
            _ => {}
        }
    }

    fn settle(&mut self, response: &InitializeResponse) {
        self.class = response.service_class;
        self.units = response.functional_units;
        self.window = response.checkpoint_window;
        self.synchronise &= wants_synchronise(response.functional_units);
        self.proposal = None;
        self.opening = Opening::default();
    }

    fn open(&mut self, contents_type: &ContentsType, recovery_mode: RecoveryMode, bulk_transfer_number: i64) {
        self.contents_context = self.contents_of(contents_type);
        self.docket = Some(Docket {
            activity: self.opening.activity,
            file: self.opening.file.clone(),
            access: self.opening.access,
            contents_type: contents_type.clone(),
            recovery_mode,
            bulk_transfer_number,
            transfer: None,
        });
    }

    fn begin_transfer(&mut self, request: &Pdu) {
        let resume = core::mem::take(&mut self.opening.resume);
        (self.lowest, self.base) = (resume, self.serial_next - resume);
        if let Some(docket) = &mut self.docket {
            docket.bulk_transfer_number = docket.bulk_transfer_number.saturating_add(1);
            docket.transfer = Some(Transfer {
                request: request.clone(),
                checkpoint_last: resume,
                checkpoint_answered: resume,
            });
        }
    }

    fn end_transfer(&mut self) {
        if let Some(docket) = &mut self.docket {
            docket.transfer = None;
        }
    }

    pub(super) fn transfer(&mut self) -> Option<&mut Transfer> {
        self.docket.as_mut()?.transfer.as_mut()
    }

    pub(super) fn transfer_now(&self) -> Option<&Transfer> {
        self.docket.as_ref()?.transfer.as_ref()
    }

    /// Returns the presentation context for contents with this contents type.
    fn contents_of(&self, contents_type: &ContentsType) -> Option<i64> {
        match contents_type {
            ContentsType::DocumentType(_) => self.context_of(Document::of(contents_type)?.abstract_syntax()),
            ContentsType::ConstraintSetAndAbstractSyntax(both) => {
                self.context_of(both.abstract_syntax_name.0)
            }
        }
    }
}
