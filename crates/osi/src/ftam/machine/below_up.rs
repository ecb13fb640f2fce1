//! Receive path: validates and processes indications from the lower layers.

use super::change::{Change, is_positive};
use super::protocol::{FPDUS_MAX, Machine, Up, provider_abort, wants_synchronise};
use super::state::{Item, State, Verdict, verdict};
use crate::ftam::below::{Associate, AssociateResponse, Form, Indication as Below, Request as Down, Value};
use crate::ftam::{Indication, Initialize, RequestError, Role};
use crate::wire::ftam::{EntityReference, ErrorIdentifier, Kind, Pdu, oids};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The primitive that carried an FPDU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Data,
    Release,
    ReleaseConfirm,
    Resynchronise,
    ResynchroniseConfirm,
    AssociateConfirm,
}

impl Machine {
    /// Handles an indication or confirm from the lower layers.
    pub fn arrive(&mut self, below: Below) {
        match below {
            Below::Associate(associate) => self.on_associate(associate),
            _ if self.state == State::Closed => {}
            Below::AssociateConfirm(response) => self.on_associate_confirm(response),
            Below::Release(values) => self.on_carried(values, Carrier::Release),
            Below::ReleaseConfirm(values) => self.on_carried(values, Carrier::ReleaseConfirm),
            Below::Abort(values) => self.on_abort(&values),
            Below::ProviderAbort => self.on_lost(ErrorIdentifier::LOWER_LAYER_FAILURE),
            Below::Data(values) => self.on_data(values),
            Below::SyncMinor { serial } => self.on_check(serial),
            Below::SyncMinorConfirm { serial } => self.on_check_confirm(serial),
            Below::Resynchronise { serial, values } => {
                self.serial_next = i64::from(serial);
                self.on_carried(values, Carrier::Resynchronise);
            }
            Below::ResynchroniseConfirm { serial, values } => {
                self.serial_next = i64::from(serial);
                self.on_carried(values, Carrier::ResynchroniseConfirm);
            }
        }
    }

    fn on_associate(&mut self, associate: Associate) {
        let Associate { calling, called, contexts, synchronise, initial_serial, user_information } =
            associate;
        if self.role != Role::Responder || self.state != State::Closed {
            return;
        }
        let known = |syntax| syntax == oids::PCI || self.offered.contains(&syntax);
        self.contexts = contexts.into_iter().filter(|context| known(context.abstract_syntax)).collect();
        // Directory entries have two identifiers. An initiator that proposes both is to use the new one.
        if self.context_of(oids::NBS_DIRECTORY_ENTRY).is_some() {
            self.contexts.retain(|context| context.abstract_syntax != oids::NBS_DIRECTORY_ENTRY_OLD);
        }
        let pci = self.context_of(oids::PCI);
        let request = user_information.iter().find_map(|value| {
            let first = self.fpdus(value).ok()?.into_iter().next()?;
            if let (Pdu::InitializeRequest(request), true) = (first, Some(value.context) == pci) {
                Some(request)
            } else {
                None
            }
        });
        let (Some(pci), Some(request)) = (pci, request) else {
            self.counters.malformed_in += 1;
            let contexts = self.contexts.iter().map(|context| context.id).collect();
            let refused = AssociateResponse {
                accepted: false,
                contexts,
                synchronise: false,
                user_information: Vec::new(),
            };
            self.down.push_back(Down::AssociateResponse(refused));
            return;
        };
        self.pci = pci;
        self.serial_next = i64::from(initial_serial);
        self.synchronise = synchronise && wants_synchronise(request.functional_units);
        (self.docket, self.contents_context) = (None, None);
        self.counters.fpdus_in += 1;
        self.state = State::InitializePending;
        self.proposal = Some((*request).clone());
        let syntaxes =
            self.contexts.iter().map(|context| context.abstract_syntax).filter(|syntax| *syntax != oids::PCI);
        let initialize =
            Initialize { calling, called, abstract_syntaxes: syntaxes.collect(), request: *request };
        self.up.push_back(Up::Indication(Indication::Initialize(Box::new(initialize))));
    }

    fn on_associate_confirm(&mut self, response: AssociateResponse) {
        if self.state != State::InitializePending || self.role != Role::Initiator {
            return self.misplaced(RequestError::State);
        }
        self.contexts.retain(|context| response.contexts.contains(&context.id));
        self.synchronise &= response.synchronise;
        let answer =
            response.user_information.iter().find_map(|value| self.fpdus(value).ok()?.into_iter().next());
        match answer {
            Some(pdu @ Pdu::InitializeResponse(_)) => {
                let positive = is_positive(&pdu);
                if !response.accepted && positive {
                    // A lower layer refused the association, although the FPDU accepts it.
                    return self.on_lost(ErrorIdentifier::ASSOCIATION_MANAGEMENT);
                }
                self.on_fpdu(pdu, Carrier::AssociateConfirm);
                if response.accepted && !positive {
                    // A negative response must accompany a refused association. If the peer has accepted the
                    // association nevertheless, abort it.
                    let value = self.value(&provider_abort(
                        ErrorIdentifier::NO_REASON,
                        EntityReference::INITIATING_FILE_PROTOCOL_MACHINE,
                        EntityReference::NO_CATEGORIZATION_POSSIBLE,
                    ));
                    self.down.push_back(Down::Abort(value));
                }
            }
            _ if response.accepted => self.misplaced(RequestError::Value),
            _ => self.on_lost(ErrorIdentifier::ASSOCIATION_MANAGEMENT),
        }
    }

    /// Decodes the FPDUs in a value in the context "FTAM PCI".
    fn fpdus(&self, value: &Value) -> Result<Vec<Pdu>, ErrorIdentifier> {
        let (Form::Single(rope) | Form::OctetAligned(rope)) = &value.form;
        let bytes = rope.clone().into_bytes();
        let mut pdus = Vec::new();
        Pdu::read_all(&bytes, FPDUS_MAX, &mut |pdu| pdus.push(pdu))
            .map_err(|_| ErrorIdentifier::CORRUPTION_ERROR)?;
        Ok(pdus)
    }

    fn on_data(&mut self, values: Vec<Value>) {
        for value in values {
            if self.state == State::Closed {
                return;
            }
            if value.context == self.pci {
                match self.fpdus(&value) {
                    Ok(pdus) => pdus.into_iter().for_each(|pdu| self.on_fpdu(pdu, Carrier::Data)),
                    Err(error) => {
                        self.counters.malformed_in += 1;
                        self.abort(error);
                    }
                }
            } else {
                self.on_contents(value);
            }
        }
    }

    fn on_contents(&mut self, value: Value) {
        match verdict(self.role, false, self.synchronise, self.state, Item::Data) {
            Verdict::To(_) => {
                let (Form::Single(rope) | Form::OctetAligned(rope)) = value.form;
                self.up.push_back(Up::Elements(rope));
            }
            Verdict::Void => self.counters.void_in += 1,
            Verdict::Error => self.misplaced(RequestError::State),
        }
    }

    /// Handles the FPDU carried by a primitive other than P-DATA, A-ASSOCIATE and A-ABORT. There must be
    /// exactly one.
    fn on_carried(&mut self, values: Vec<Value>, carrier: Carrier) {
        let pdus: Vec<_> = values.iter().map(|value| self.fpdus(value)).collect();
        let mut all = pdus.into_iter().flatten().flatten();
        match (all.next(), all.next()) {
            (Some(pdu), None) => self.on_fpdu(pdu, carrier),
            _ => {
                self.counters.malformed_in += 1;
                self.abort(ErrorIdentifier::CORRUPTION_ERROR);
            }
        }
    }

    fn on_fpdu(&mut self, pdu: Pdu, carrier: Carrier) {
        if self.state == State::Closed {
            return;
        }
        self.counters.fpdus_in += 1;
        if !self.carries(carrier, pdu.kind()) {
            return self.misplaced(RequestError::State);
        }
        let change = match self.check_fpdu(false, &pdu) {
            Ok(change) => change,
            Err(misuse) => return self.misplaced(misuse),
        };
        let Change::To(state, group) = change else {
            self.counters.void_in += 1;
            return;
        };
        if let Err(misuse) = self.fits(false, &pdu) {
            return self.misplaced(misuse);
        }
        if let Pdu::RestartRequest(restart) = &pdu {
            // The checkpoint number must correspond to the synchronisation point's serial number.
            if self.base + restart.checkpoint_identifier != self.serial_next {
                return self.misplaced(RequestError::Checkpoint);
            }
        }
        (self.state, self.group) = (state, group);
        self.effect(&pdu);
        self.up.push_back(Up::Indication(Indication::Pdu(pdu)));
    }

    /// Returns whether this primitive carries FPDUs of this kind.
    fn carries(&self, carrier: Carrier, kind: Kind) -> bool {
        let own = match kind {
            Kind::InitializeRequest | Kind::UserAbort | Kind::ProviderAbort => return false,
            Kind::InitializeResponse => Carrier::AssociateConfirm,
            Kind::TerminateRequest => Carrier::Release,
            Kind::TerminateResponse => Carrier::ReleaseConfirm,
            Kind::CancelRequest | Kind::RestartRequest if self.synchronise => Carrier::Resynchronise,
            Kind::CancelResponse | Kind::RestartResponse if self.synchronise => Carrier::ResynchroniseConfirm,
            _ => Carrier::Data,
        };
        own == carrier
    }

    fn on_check(&mut self, serial: u32) {
        if let Err(misuse) = self.may(false, Item::Check).and_then(|()| self.may_check()) {
            return self.misplaced(misuse);
        }
        let (serial, base, window) = (i64::from(serial), self.base, self.window);
        let Some(transfer) = self.transfer() else { return self.misplaced(RequestError::State) };
        let checkpoint = serial - base + 1;
        if checkpoint != transfer.checkpoint_last + 1 || checkpoint - transfer.checkpoint_answered > window {
            return self.misplaced(RequestError::Checkpoint);
        }
        transfer.checkpoint_last = checkpoint;
        self.serial_next = serial + 1;
        self.up.push_back(Up::Indication(Indication::Check { checkpoint }));
    }

    fn on_check_confirm(&mut self, serial: u32) {
        if let Err(misuse) = self.may(false, Item::CheckResponse).and_then(|()| self.may_check()) {
            return self.misplaced(misuse);
        }
        let checkpoint = i64::from(serial) - self.base + 1;
        let Some(transfer) = self.transfer() else { return self.misplaced(RequestError::State) };
        if checkpoint <= transfer.checkpoint_answered || checkpoint > transfer.checkpoint_last {
            return self.misplaced(RequestError::Checkpoint);
        }
        transfer.checkpoint_answered = checkpoint;
        self.up.push_back(Up::Indication(Indication::CheckConfirm { checkpoint }));
    }

    fn on_abort(&mut self, values: &[Value]) {
        let pdu = values.iter().find_map(|value| self.fpdus(value).ok()?.into_iter().next());
        match pdu {
            Some(pdu @ (Pdu::UserAbort(_) | Pdu::ProviderAbort(_))) => {
                self.counters.fpdus_in += 1;
                self.close();
                self.up.push_back(Up::Indication(Indication::Pdu(pdu)));
            }
            _ => self.on_lost(ErrorIdentifier::LOWER_LAYER_FAILURE),
        }
    }

    /// Handles the loss of the association without an FPDU from the peer.
    pub(super) fn on_lost(&mut self, error: ErrorIdentifier) {
        let observer = match self.role {
            Role::Initiator => EntityReference::INITIATING_FILE_PROTOCOL_MACHINE,
            Role::Responder => EntityReference::RESPONDING_FILE_PROTOCOL_MACHINE,
        };
        let source = EntityReference::SERVICE_SUPPORTING_THE_FILE_PROTOCOL_MACHINE;
        self.close();
        self.up.push_back(Up::Indication(Indication::Pdu(provider_abort(error, observer, source))));
    }

    /// Handles an FPDU that is not allowed in the current state: aborts the association.
    fn misplaced(&mut self, misuse: RequestError) {
        self.counters.misplaced_in += 1;
        self.abort(match misuse {
            RequestError::State => ErrorIdentifier::PROCEDURE_ERROR,
            RequestError::Unit => ErrorIdentifier::FUNCTIONAL_UNIT_ERROR,
            RequestError::Group => ErrorIdentifier::GROUPING_SEQUENCE,
            RequestError::Value => ErrorIdentifier::CONFLICTING_PARAMETERS,
            RequestError::Context => ErrorIdentifier::PROTOCOL_ERROR,
            RequestError::Checkpoint => ErrorIdentifier::CHECKPOINT_OUTSIDE_WINDOW,
        });
    }
}
