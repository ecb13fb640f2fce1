//! The file protocol machine: handles requests and received values, and returns its outputs when polled.

use super::change::{Change, is_positive};
use super::config::Config;
use super::counters::Counters;
use super::group::Group;
use super::opening::{Opening, syntax_of};
use super::state::{Item, State, Verdict, verdict};
use crate::ftam::below::{self, Context, Form, Value};
use crate::ftam::{Docket, Indication, Initialize, Request, RequestError, Role};
use crate::wire::ber::{Asn1, Oid};
use crate::wire::ftam::{
    DataElement, DiagnosticItem, DiagnosticType, Document, EntityReference, ErrorIdentifier, FunctionalUnits,
    InitializeRequest, InitializeResponse, Kind, Pdu, ProviderAbort, ServiceClass, oids,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::Rope;

/// Maximum number of FPDUs in one value.
pub const FPDUS_MAX: usize = 64;
/// Maximum number of unanswered checkpoints.
pub const WINDOW_MAX: i64 = 16;

/// An item waiting to be polled.
#[derive(Debug)]
pub(super) enum Up {
    Indication(Indication),
    /// Encoded data elements.
    Elements(Rope),
}

/// The file protocol machine of one association.
#[derive(Debug)]
pub struct Machine {
    pub(super) role: Role,
    pub(super) offered: Vec<Oid>,
    pub(super) state: State,
    pub(super) group: Group,
    pub(super) counters: Counters,

    /// The presentation contexts of the association; before it is established, the proposed contexts.
    pub(super) contexts: Vec<Context>,
    pub(super) pci: i64,
    /// Whether the session layer provides minor synchronisation and resynchronisation.
    pub(super) synchronise: bool,
    pub(super) serial_next: i64,
    pub(super) proposal: Option<InitializeRequest>,
    pub(super) class: ServiceClass,
    pub(super) units: FunctionalUnits,
    pub(super) window: i64,

    pub(super) opening: Opening,
    pub(super) docket: Option<Docket>,
    pub(super) contents_context: Option<i64>,
    /// The serial number of the synchronisation point that corresponds to the transfer's checkpoint 1.
    pub(super) base: i64,
    /// The lowest checkpoint of the transfer that the session connection can still return to.
    pub(super) lowest: i64,
    /// The checkpoint from which the restart in progress continues.
    pub(super) restart: i64,

    batch: Vec<Value>,
    /// On the user's side of a machine on a board: requests for the board.
    pub(super) requests: Option<VecDeque<Request>>,
    pub(super) up: VecDeque<Up>,
    pub(super) down: VecDeque<below::Request>,
}

impl Machine {
    /// Creates a machine without an association.
    pub fn new(config: Config) -> Machine {
        Machine {
            role: config.role,
            offered: config.abstract_syntaxes,
            state: State::Closed,
            group: Group::None,
            counters: Counters::default(),
            contexts: Vec::new(),
            pci: 1,
            synchronise: false,
            serial_next: 1,
            proposal: None,
            class: ServiceClass::NONE,
            units: FunctionalUnits::NONE,
            window: 1,
            opening: Opening::default(),
            docket: None,
            contents_context: None,
            base: 1,
            lowest: 0,
            restart: 0,
            batch: Vec::new(),
            requests: None,
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    /// Returns the state; while a group is being requested, the state before the group.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the negotiated functional units.
    pub fn units(&self) -> FunctionalUnits {
        self.units
    }

    /// Returns the negotiated service class.
    pub fn class(&self) -> ServiceClass {
        self.class
    }

    /// Returns the maximum number of unanswered checkpoints.
    pub fn window(&self) -> i64 {
        self.window
    }

    /// Returns whether there is a presentation context for a document's data.
    pub fn has_context(&self, document: &Document) -> bool {
        self.context_of(document.abstract_syntax()).is_some()
    }

    /// Returns the data needed to recover the open regime: the current one, or the one that was lost.
    pub fn docket(&self) -> Option<&Docket> {
        self.docket.as_ref()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Accepts a request or response.
    ///
    /// # Errors
    /// [`RequestError`]; a rejected request changes nothing.
    pub fn request(&mut self, request: Request) -> Result<(), RequestError> {
        if self.requests.is_none() {
            return self.execute(request);
        }
        match &request {
            Request::Data(element) => {
                self.may_send(element)?;
            }
            request => self.execute(request.clone())?,
        }
        // The board's side sends what the layers below are to send.
        self.down.clear();
        self.requests.get_or_insert_default().push_back(request);
        Ok(())
    }

    fn execute(&mut self, request: Request) -> Result<(), RequestError> {
        match request {
            Request::Initialize(initialize) => self.initialize(*initialize),
            Request::Pdu(pdu) => self.send(pdu),
            Request::Data(element) => self.send_element(element),
            Request::Check => self.check(),
            Request::CheckResponse { checkpoint } => self.answer_check(checkpoint),
        }
    }

    /// Returns the next indication or confirm.
    pub fn poll_up(&mut self) -> Option<Indication> {
        loop {
            match self.up.front_mut()? {
                Up::Elements(rope) if rope.is_empty() => drop(self.up.pop_front()),
                Up::Elements(rope) => match DataElement::read(rope) {
                    Ok(element) => {
                        self.counters.elements_in += 1;
                        return Some(Indication::Data(element));
                    }
                    Err(_) => {
                        self.counters.malformed_in += 1;
                        self.up.pop_front();
                        if self.state != State::Closed {
                            // Everything received after the malformed element is discarded as well.
                            self.up.clear();
                            self.abort(ErrorIdentifier::BAD_DATA_ELEMENT_TYPE);
                        }
                    }
                },
                Up::Indication(_) => match self.up.pop_front() {
                    Some(Up::Indication(indication)) => return Some(indication),
                    _ => unreachable!("it was looked at"),
                },
            }
        }
    }

    /// Returns the next request to the lower layers.
    pub fn poll_down(&mut self) -> Option<below::Request> {
        self.down.pop_front()
    }

    fn initialize(&mut self, initialize: Initialize) -> Result<(), RequestError> {
        let Initialize { calling, called, abstract_syntaxes, request } = initialize;
        let pdu = Pdu::InitializeRequest(Box::new(request.clone()));
        let Change::To(state, _) = self.check_fpdu(true, &pdu)? else { return Err(RequestError::State) };
        if !(1..=WINDOW_MAX).contains(&request.checkpoint_window) {
            return Err(RequestError::Value);
        }
        let listed = request.contents_type_list.iter().flat_map(|list| &list.0).filter_map(syntax_of);
        let mut syntaxes = alloc::vec![oids::PCI];
        for syntax in listed.chain(abstract_syntaxes) {
            if !syntaxes.contains(&syntax) {
                syntaxes.push(syntax);
            }
        }
        let odd = (1..).step_by(2);
        self.contexts =
            odd.zip(syntaxes).map(|(id, abstract_syntax)| Context { id, abstract_syntax }).collect();
        (self.pci, self.serial_next, self.docket, self.contents_context) = (1, 1, None, None);
        self.synchronise = wants_synchronise(request.functional_units);
        let associate = below::Associate {
            calling,
            called,
            contexts: self.contexts.clone(),
            synchronise: self.synchronise,
            initial_serial: 1,
            user_information: alloc::vec![self.value(&pdu)],
        };
        self.state = state;
        self.proposal = Some(request);
        self.counters.fpdus_out += 1;
        self.down.push_back(below::Request::Associate(associate));
        Ok(())
    }

    fn send(&mut self, pdu: Pdu) -> Result<(), RequestError> {
        let kind = pdu.kind();
        if kind == Kind::InitializeRequest {
            // F-INITIALIZE needs addresses, so it must be requested with `Request::Initialize`.
            return Err(RequestError::Value);
        }
        let Change::To(state, group) = self.check_fpdu(true, &pdu)? else { return Err(RequestError::State) };
        self.fits(true, &pdu)?;
        let was = core::mem::replace(&mut self.state, state);
        self.group = group;
        self.counters.fpdus_out += 1;
        let value = self.value(&pdu);
        // The token is sent before the FPDU, since the peer may need it as soon as it receives the FPDU.
        let has_read = was == State::ReadTransferEndPending && kind == Kind::TransferEndResponse;
        if self.synchronise && (has_read || kind == Kind::ReadRequest) {
            self.down.push_back(below::Request::GiveToken);
        }
        match &pdu {
            Pdu::InitializeResponse(response) => self.answer_association(value, is_positive(&pdu), response),
            Pdu::TerminateRequest(_) => self.down.push_back(below::Request::Release(value)),
            Pdu::TerminateResponse(_) => self.down.push_back(below::Request::ReleaseResponse(value)),
            Pdu::UserAbort(_) => self.down.push_back(below::Request::Abort(value)),
            Pdu::CancelRequest(_) if self.synchronise => {
                self.down.push_back(below::Request::Resynchronise(below::Resynchronise::Abandon, value));
            }
            Pdu::RestartRequest(restart) => {
                let serial = (self.base + restart.checkpoint_identifier) as u32;
                let reads = state == State::ReadRestartRequested;
                let token = if reads { Role::Responder } else { Role::Initiator };
                let how = below::Resynchronise::Restart { serial, token };
                self.down.push_back(below::Request::Resynchronise(how, value));
            }
            Pdu::CancelResponse(_) | Pdu::RestartResponse(_) if self.synchronise => {
                self.down.push_back(below::Request::ResynchroniseResponse(value));
            }
            _ if self.group == Group::None && self.batch.is_empty() => {
                self.down.push_back(below::Request::Data(alloc::vec![value]));
            }
            _ => {
                self.batch.push(value);
                if matches!(kind, Kind::EndGroupRequest | Kind::EndGroupResponse) {
                    self.down.push_back(below::Request::Data(core::mem::take(&mut self.batch)));
                }
            }
        }
        self.effect(&pdu);
        Ok(())
    }

    fn send_element(&mut self, element: DataElement) -> Result<(), RequestError> {
        let context = self.may_send(&element)?;
        self.down.push_back(below::Request::Data(alloc::vec![Value {
            context,
            form: Form::Single(element.into_rope())
        }]));
        Ok(())
    }

    /// Checks whether a data element may be sent now. Returns its presentation context.
    fn may_send(&mut self, element: &DataElement) -> Result<i64, RequestError> {
        self.may(true, Item::Data)?;
        let context =
            if element.is_structure() { self.context_of(oids::FADU) } else { self.contents_context };
        self.counters.elements_out += u64::from(context.is_some());
        context.ok_or(RequestError::Context)
    }

    fn check(&mut self) -> Result<(), RequestError> {
        self.may(true, Item::Check)?;
        self.may_check()?;
        let window = self.window;
        let transfer = self.transfer().ok_or(RequestError::State)?;
        if transfer.checkpoint_last - transfer.checkpoint_answered >= window {
            return Err(RequestError::Checkpoint);
        }
        transfer.checkpoint_last += 1;
        self.serial_next += 1;
        self.down.push_back(below::Request::SyncMinor);
        Ok(())
    }

    fn answer_check(&mut self, checkpoint: i64) -> Result<(), RequestError> {
        self.may(true, Item::CheckResponse)?;
        self.may_check()?;
        let transfer = self.transfer().ok_or(RequestError::State)?;
        if checkpoint <= transfer.checkpoint_answered || checkpoint > transfer.checkpoint_last {
            return Err(RequestError::Checkpoint);
        }
        transfer.checkpoint_answered = checkpoint;
        let serial = (self.base + checkpoint - 1) as u32;
        self.down.push_back(below::Request::SyncMinorResponse { serial });
        Ok(())
    }

    /// Checks that the negotiated functional units include checkpoints.
    pub(super) fn may_check(&self) -> Result<(), RequestError> {
        if self.synchronise { Ok(()) } else { Err(RequestError::Unit) }
    }

    pub(super) fn may(&self, own: bool, sends: Item) -> Result<(), RequestError> {
        match verdict(self.role, own, self.synchronise, self.state, sends) {
            Verdict::To(_) => Ok(()),
            Verdict::Void | Verdict::Error => Err(RequestError::State),
        }
    }

    fn answer_association(&mut self, value: Value, accepted: bool, response: &InitializeResponse) {
        self.synchronise &= wants_synchronise(response.functional_units);
        self.down.push_back(below::Request::AssociateResponse(below::AssociateResponse {
            accepted,
            contexts: self.contexts.iter().map(|context| context.id).collect(),
            synchronise: self.synchronise,
            user_information: alloc::vec![value],
        }));
    }

    /// Aborts the association after a protocol error by the peer.
    pub(super) fn abort(&mut self, error: ErrorIdentifier) {
        let machine = match self.role {
            Role::Initiator => EntityReference::INITIATING_FILE_PROTOCOL_MACHINE,
            Role::Responder => EntityReference::RESPONDING_FILE_PROTOCOL_MACHINE,
        };
        let peer = match self.role {
            Role::Initiator => EntityReference::RESPONDING_FILE_PROTOCOL_MACHINE,
            Role::Responder => EntityReference::INITIATING_FILE_PROTOCOL_MACHINE,
        };
        let pdu = provider_abort(error, machine, peer);
        self.counters.fpdus_out += 1;
        let value = self.value(&pdu);
        self.down.push_back(below::Request::Abort(value));
        self.close();
        self.up.push_back(Up::Indication(Indication::Pdu(pdu)));
    }

    /// Resets the machine after the association has ended. The docket is kept.
    pub(super) fn close(&mut self) {
        (self.state, self.group) = (State::Closed, Group::None);
        self.batch.clear();
        self.proposal = None;
        (self.class, self.units, self.synchronise) = (ServiceClass::NONE, FunctionalUnits::NONE, false);
    }

    pub(super) fn value(&self, pdu: &Pdu) -> Value {
        Value { context: self.pci, form: Form::Single(pdu.to_rope()) }
    }

    pub(super) fn context_of(&self, syntax: Oid) -> Option<i64> {
        self.contexts.iter().find(|context| context.abstract_syntax == syntax).map(|context| context.id)
    }
}

/// Returns whether these functional units need synchronisation points, as recovery and restart do.
pub(super) fn wants_synchronise(units: FunctionalUnits) -> bool {
    (units & (FunctionalUnits::RECOVERY | FunctionalUnits::RESTART_DATA_TRANSFER)) != FunctionalUnits::NONE
}

pub(super) fn provider_abort(
    error: ErrorIdentifier,
    observer: EntityReference,
    source: EntityReference,
) -> Pdu {
    let item = DiagnosticItem::new(DiagnosticType::PERMANENT, error, observer, source);
    Pdu::ProviderAbort(Box::new(ProviderAbort {
        action_result: crate::wire::ftam::ActionResult::PERMANENT_ERROR,
        diagnostic: Some(item.into()),
    }))
}
