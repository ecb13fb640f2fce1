//! The file protocol machine (ISO 8571-4): one association, either role.
//!
//! Down      an FPDU becomes one presentation data value, a group's FPDUs go in one P-DATA; a data element gets its header in
//!           front of the user's rope and goes alone in one P-DATA.
//! Up        FPDUs and data elements in any form and any number in a P-DATA; elements are taken off a rope when they are
//!           polled for, so that a long one with many of them costs no more than itself.
//! Checks    a checkpoint is a minor synchronisation point: its number is counted from where the transfer began. F-CANCEL and
//!           F-RESTART resynchronise. All of that when recovery or restart is among the functional units; else F-CANCEL is
//!           P-DATA.
//! Faults    of the peer: F-P-ABORT with the standard's diagnostic, and a counter.
//! Limits    [`GROUP_MAX`] primitives in a group; [`FPDUS_MAX`] FPDUs in a value; [`WINDOW_MAX`] checkpoints unanswered.
//! Left out  presentation context management (contexts are those of the association), overlapped access, FADU locking's
//!           semantics (the parameters pass), and the filestore management of amendment 1.

mod below_up;
mod effects;
mod group;
mod judge;
mod state;

use super::below::{self, Context, Form, Value};
use super::{Docket, Indication, Initialize, Misuse, Request, Role};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use effects::Opening;
pub use group::GROUP_MAX;
use group::Group;
use judge::{Change, is_positive};
use kiban_ground::Rope;
use kiban_wire::ber::{Asn1, Oid};
use kiban_wire::ftam::{
    DataElement, DiagnosticItem, DiagnosticType, Document, EntityReference, ErrorIdentifier, FunctionalUnits,
    InitializeRequest, InitializeResponse, Kind, Pdu, ProviderAbort, ServiceClass, oids,
};
pub use state::{Sends, State, Verdict, verdict};

/// The most FPDUs in one value.
pub const FPDUS_MAX: usize = 64;
/// The most checkpoints that may be unanswered.
pub const WINDOW_MAX: i64 = 16;

kiban_ground::counters! {
    /// What a machine saw.
    pub struct Counters {
        /// FPDUs that came.
        fpdus_in,
        /// FPDUs that were sent.
        fpdus_out,
        /// Data elements that came.
        elements_in,
        /// Data elements that were sent.
        elements_out,
        /// What crossed with a cancel.
        void_in,
        /// What came in a state that has no cell for it, or not at its place.
        misplaced_in,
        /// FPDUs and data elements that could not be read.
        malformed_in,
    }
}

/// How a machine is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which end it is.
    pub role: Role,
    /// Of a responder: the abstract syntaxes of contents for which it accepts presentation contexts.
    pub abstract_syntaxes: Vec<Oid>,
}

/// What waits to be polled.
#[derive(Debug)]
enum Up {
    Indication(Indication),
    /// Data elements, and whether they are structure.
    Elements(Rope),
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    role: Role,
    offered: Vec<Oid>,
    state: State,
    group: Group,
    counters: Counters,

    /// The contexts of the association; those that are proposed, before it is made.
    contexts: Vec<Context>,
    pci: i64,
    /// Whether session has minor synchronise and resynchronise.
    synchronise: bool,
    serial_next: i64,
    proposal: Option<InitializeRequest>,
    class: ServiceClass,
    units: FunctionalUnits,
    window: i64,

    opening: Opening,
    docket: Option<Docket>,
    contents_context: Option<i64>,
    /// The number of the synchronisation point that would be checkpoint 1 of the transfer.
    base: i64,
    /// The lowest checkpoint that this connection knows of in the transfer.
    lowest: i64,
    /// Where the restart that is under way leads.
    restart: i64,

    batch: Vec<Value>,
    up: VecDeque<Up>,
    down: VecDeque<below::Request>,
}

impl Machine {
    /// A machine without an association.
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
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    /// The state; in a group that is being asked for, the one before it.
    pub fn state(&self) -> State {
        self.state
    }

    /// The functional units that were negotiated.
    pub fn units(&self) -> FunctionalUnits {
        self.units
    }

    /// The service class that was negotiated.
    pub fn class(&self) -> ServiceClass {
        self.class
    }

    /// How many checkpoints may be unanswered.
    pub fn window(&self) -> i64 {
        self.window
    }

    /// Whether data of a document has a presentation context.
    pub fn has_context(&self, document: &Document) -> bool {
        self.context_of(document.abstract_syntax()).is_some()
    }

    /// What must be known to recover the open regime that is, or that was when the association was lost.
    pub fn docket(&self) -> Option<&Docket> {
        self.docket.as_ref()
    }

    /// What it saw.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a request or response from above.
    ///
    /// # Errors
    /// [`Misuse`]: nothing has changed.
    pub fn request(&mut self, request: Request) -> Result<(), Misuse> {
        match request {
            Request::Initialize(initialize) => self.initialize(*initialize),
            Request::Pdu(pdu) => self.send(pdu),
            Request::Data(element) => self.send_element(element),
            Request::Check => self.check(),
            Request::CheckResponse { checkpoint } => self.answer_check(checkpoint),
        }
    }

    /// The next indication or confirm.
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
                            // What came behind it is not believed either.
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

    /// The next request to the services below.
    pub fn poll_down(&mut self) -> Option<below::Request> {
        self.down.pop_front()
    }

    fn initialize(&mut self, initialize: Initialize) -> Result<(), Misuse> {
        let Initialize { calling, called, abstract_syntaxes, request } = initialize;
        let pdu = Pdu::InitializeRequest(Box::new(request.clone()));
        let Change::To(state, _) = self.judge(true, &pdu)? else { return Err(Misuse::State) };
        if !(1..=WINDOW_MAX).contains(&request.checkpoint_window) {
            return Err(Misuse::Value);
        }
        let listed =
            request.contents_type_list.iter().flat_map(|list| &list.0).filter_map(effects::syntax_of);
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

    fn send(&mut self, pdu: Pdu) -> Result<(), Misuse> {
        let kind = pdu.kind();
        if kind == Kind::InitializeRequest {
            // It needs addresses.
            return Err(Misuse::Value);
        }
        let Change::To(state, group) = self.judge(true, &pdu)? else { return Err(Misuse::State) };
        self.fits(true, &pdu)?;
        let was = core::mem::replace(&mut self.state, state);
        self.group = group;
        self.counters.fpdus_out += 1;
        let value = self.value(&pdu);
        // Before the FPDU: whoever hears it may need the token at once.
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

    fn send_element(&mut self, element: DataElement) -> Result<(), Misuse> {
        self.may(true, Sends::Data)?;
        let context =
            if element.is_structure() { self.context_of(oids::FADU) } else { self.contents_context };
        let context = context.ok_or(Misuse::Context)?;
        self.counters.elements_out += 1;
        self.down.push_back(below::Request::Data(alloc::vec![Value {
            context,
            form: Form::Single(element.into_rope())
        }]));
        Ok(())
    }

    fn check(&mut self) -> Result<(), Misuse> {
        self.may(true, Sends::Check)?;
        self.may_check()?;
        let window = self.window;
        let transfer = self.transfer().ok_or(Misuse::State)?;
        if transfer.checkpoint_last - transfer.checkpoint_answered >= window {
            return Err(Misuse::Checkpoint);
        }
        transfer.checkpoint_last += 1;
        self.serial_next += 1;
        self.down.push_back(below::Request::SyncMinor);
        Ok(())
    }

    fn answer_check(&mut self, checkpoint: i64) -> Result<(), Misuse> {
        self.may(true, Sends::CheckResponse)?;
        self.may_check()?;
        let transfer = self.transfer().ok_or(Misuse::State)?;
        if checkpoint <= transfer.checkpoint_answered || checkpoint > transfer.checkpoint_last {
            return Err(Misuse::Checkpoint);
        }
        transfer.checkpoint_answered = checkpoint;
        let serial = (self.base + checkpoint - 1) as u32;
        self.down.push_back(below::Request::SyncMinorResponse { serial });
        Ok(())
    }

    /// Whether checkpoints are among the functional units.
    fn may_check(&self) -> Result<(), Misuse> {
        if self.synchronise { Ok(()) } else { Err(Misuse::Unit) }
    }

    fn may(&self, own: bool, sends: Sends) -> Result<(), Misuse> {
        match verdict(self.role, own, self.synchronise, self.state, sends) {
            Verdict::To(_) => Ok(()),
            Verdict::Void | Verdict::Error => Err(Misuse::State),
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

    /// Ends the association: the peer broke a rule.
    fn abort(&mut self, error: ErrorIdentifier) {
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

    /// There is no association any more. The docket stays.
    fn close(&mut self) {
        (self.state, self.group) = (State::Closed, Group::None);
        self.batch.clear();
        self.proposal = None;
        (self.class, self.units, self.synchronise) = (ServiceClass::NONE, FunctionalUnits::NONE, false);
    }

    fn value(&self, pdu: &Pdu) -> Value {
        Value { context: self.pci, form: Form::Single(pdu.to_rope()) }
    }

    fn context_of(&self, syntax: Oid) -> Option<i64> {
        self.contexts.iter().find(|context| context.abstract_syntax == syntax).map(|context| context.id)
    }
}

/// Recovery and restart need synchronisation points.
fn wants_synchronise(units: FunctionalUnits) -> bool {
    (units & (FunctionalUnits::RECOVERY | FunctionalUnits::RESTART_DATA_TRANSFER)) != FunctionalUnits::NONE
}

fn provider_abort(error: ErrorIdentifier, observer: EntityReference, source: EntityReference) -> Pdu {
    let item = DiagnosticItem::new(DiagnosticType::PERMANENT, error, observer, source);
    Pdu::ProviderAbort(Box::new(ProviderAbort {
        action_result: kiban_wire::ftam::ActionResult::PERMANENT_ERROR,
        diagnostic: Some(item.into()),
    }))
}
