//! The wiring between the FTAM machine and the layers below it.
//!
//! Purpose    keeps in one file all conversions between the machine's requests and indications, and the
//!            primitives of ACSE and presentation.
//! Additions  the wiring adds what the file protocol leaves open: ACSE's context next to FTAM's, BER as the
//!            only transfer syntax, the session functional units, and the initial side of the
//!            synchronise-minor token.
//! Steps      `Files::step` moves one item. Between steps, the owner lets the user of the file service run,
//!            which reads and writes files.

use super::layers::{Indication, Request, Stack, StackConfig};
use super::meter::{Meter, Task};
use crate::ftam::below;
use crate::ftam::below::{Form, Value};
use crate::ftam::{Machine, Role};
use crate::session::{Resynchronisation, TokenSetting, TokenSettings, Tokens, Units};
use crate::wire::acse::{ABSTRACT_SYNTAX, AbortSource, AssociateDiagnostic, AssociateResult, UserDiagnostic};
use crate::wire::ftam::oids::APPLICATION_CONTEXT;
use crate::wire::presentation::{BER, ContextDefinition, Pdv, PdvValue};
use crate::{Selectors, acse, network, presentation};
use alloc::vec::Vec;
use kiban_base::Instant;

/// FTAM's machine and the layers below it.
#[derive(Debug)]
pub struct Files {
    machine: Machine,
    stack: Stack,
    /// The A-ASSOCIATE indication, until it is answered.
    associate: Option<acse::Associate>,
    /// The identifier of ACSE's context.
    acse_context: i64,
    /// Whether this end initiates the association.
    initiates: bool,
    crossed: u64,
    refused: Option<presentation::Refuser>,
}

impl Files {
    /// Creates the wiring without an association.
    pub fn new(machine: Machine, stack: &StackConfig) -> Files {
        Files {
            machine,
            stack: Stack::new(stack),
            associate: None,
            acse_context: 0,
            initiates: false,
            crossed: 0,
            refused: None,
        }
    }

    /// Returns the file protocol machine. Call [`settle`](Files::settle) after using it.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Returns the layers below, for inspection.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Accepts an indication from the network; [`Files::settle`] carries it up.
    pub fn arrive(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        self.stack.arrive(indication, now, meter);
    }

    /// Sets the maximum length of a received TSDU in bytes.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.stack.set_tsdu_bytes_max(bytes);
    }

    /// Handles expired timers, and moves data between the machine and the layers until no layer has output.
    pub fn settle(&mut self, now: Instant, meter: &mut impl Meter) {
        self.expire(now);
        while self.step(now, meter) {}
    }

    /// Returns when [`Files::settle`] must be called even without input.
    pub fn deadline(&self) -> Instant {
        self.stack.deadline()
    }

    /// Returns the next request to the network.
    pub fn poll_network(&mut self) -> Option<network::Request> {
        self.stack.poll_network()
    }

    /// Returns which layer of the peer refused the association, if one did.
    pub fn refused(&self) -> Option<presentation::Refuser> {
        self.refused
    }

    /// Returns the number of requests that were dropped because they crossed with the end of the association
    /// on the way.
    pub fn crossed(&self) -> u64 {
        self.crossed + self.stack.crossed()
    }

    /// Handles timers that have expired.
    pub(super) fn expire(&mut self, now: Instant) {
        self.stack.expire(now);
    }

    /// Moves data within the lower layers if they have output. Otherwise, passes one request down or, if
    /// there is none, passes indications up. Returns true if anything was moved.
    pub(super) fn step(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        if self.stack.step(now, meter) {
            return true;
        }
        if let Some(request) = self.machine.poll_down() {
            let bytes = if let below::Request::Data(values) = &request { bytes_of(values) } else { 0 };
            meter.turn_to(Task::Ftam, bytes);
            let request = self.lower(request);
            self.crossed += u64::from(self.stack.request(request, meter).is_err());
            return true;
        }
        let mut moved = false;
        while let Some(indication) = self.stack.poll() {
            if let Some(indication) = self.raise(indication) {
                let bytes =
                    if let below::Indication::Data(values) = &indication { bytes_of(values) } else { 0 };
                meter.turn_to(Task::Ftam, bytes);
                self.machine.arrive(indication);
            }
            moved = true;
        }
        moved
    }

    /// Converts a request from the machine to one for the lower layers.
    fn lower(&mut self, request: below::Request) -> Request {
        use presentation::Request as P;
        match request {
            below::Request::Associate(associate) => self.associate(associate).into(),
            below::Request::AssociateResponse(response) => self.answer(response).into(),
            below::Request::Release(value) => {
                acse::Request::Release { reason: None, user_information: pdvs([value]) }.into()
            }
            below::Request::ReleaseResponse(value) => acse::Request::ReleaseResponse {
                accepted: true,
                reason: None,
                user_information: pdvs([value]),
            }
            .into(),
            below::Request::Abort(value) => acse::Request::Abort(acse::Abort {
                source: AbortSource::SERVICE_USER,
                diagnostic: None,
                user_information: pdvs([value]),
            })
            .into(),
            below::Request::Data(values) => Request::Presentation(P::Data(pdvs(values))),
            below::Request::SyncMinor => {
                Request::Presentation(P::SyncMinor { explicit: true, user_data: Vec::new() })
            }
            below::Request::SyncMinorResponse { serial } => {
                Request::Presentation(P::SyncMinorResponse { serial, user_data: Vec::new() })
            }
            below::Request::Resynchronise(how, value) => {
                let (kind, serial, token) = match how {
                    below::Resynchronise::Abandon => (Resynchronisation::Abandon, None, Role::Initiator),
                    below::Resynchronise::Restart { serial, token } => {
                        (Resynchronisation::Restart, Some(serial), token)
                    }
                };
                Request::Presentation(P::Resynchronise {
                    kind,
                    serial,
                    tokens: self.tokens(token),
                    user_data: pdvs([value]),
                })
            }
            below::Request::ResynchroniseResponse(value) => Request::Presentation(P::ResynchroniseResponse {
                serial: None,
                tokens: TokenSettings::default(),
                user_data: pdvs([value]),
            }),
            below::Request::GiveToken => {
                Request::Presentation(P::GiveTokens { tokens: Tokens::MINOR, user_data: Vec::new() })
            }
        }
    }

    /// Returns the initial side of the synchronise-minor token, seen from this end.
    fn tokens(&self, holder: Role) -> TokenSettings {
        let here = self.initiates == (holder == Role::Initiator);
        let minor = if here { TokenSetting::Requestor } else { TokenSetting::Acceptor };
        TokenSettings { minor, ..TokenSettings::default() }
    }

    fn associate(&mut self, associate: below::Associate) -> acse::Request {
        let below::Associate { calling, called, contexts, synchronise, initial_serial, user_information } =
            associate;
        self.initiates = true;
        // X.226 §6.2.2: the initiator's context identifiers are odd.
        self.acse_context = contexts.iter().map(|context| context.id).max().unwrap_or(-1) + 2;
        let define = |id: i64, abstract_syntax| ContextDefinition {
            id,
            abstract_syntax,
            transfer_syntaxes: alloc::vec![BER],
        };
        let mut definitions: Vec<_> =
            contexts.iter().map(|context| define(context.id, context.abstract_syntax)).collect();
        definitions.push(define(self.acse_context, ABSTRACT_SYNTAX));
        let mut request =
            acse::Associate::new(APPLICATION_CONTEXT, calling, called, definitions, units(synchronise));
        request.presentation.session.initial_serial = synchronise.then_some(initial_serial);
        acse::Request::Associate(acse::Associate { user_information: pdvs(user_information), ..request })
    }

    fn answer(&mut self, response: below::AssociateResponse) -> acse::Request {
        let associate = self.associate.take().expect("an association was requested");
        let below::AssociateResponse { accepted, contexts, synchronise, user_information } = response;
        let is_wanted =
            |context: &ContextDefinition| context.id == self.acse_context || contexts.contains(&context.id);
        let mut answer = if accepted {
            associate.accept(units(synchronise), is_wanted)
        } else {
            associate.refuse(AssociateResult::REJECTED_PERMANENT, is_wanted)
        };
        // A peer that proposes a different application context is not refused for that. But if the
        // association is refused for another reason, the diagnostic says that the application context may be
        // the cause.
        if !accepted && associate.application_context != APPLICATION_CONTEXT {
            let not_supported = UserDiagnostic::APPLICATION_CONTEXT_NAME_NOT_SUPPORTED;
            answer.application_context = Some(APPLICATION_CONTEXT);
            answer.diagnostic = Some(AssociateDiagnostic::ServiceUser(not_supported));
        }
        let user_information = pdvs(user_information);
        acse::Request::AssociateResponse(acse::AssociateAnswer { user_information, ..answer })
    }

    fn raise_acse(&mut self, indication: acse::Indication) -> below::Indication {
        match indication {
            acse::Indication::Associate(associate) => self.on_associate(associate),
            acse::Indication::AssociateConfirm(answer) => self.on_answer(answer),
            acse::Indication::Release { user_information, .. } => {
                below::Indication::Release(values(user_information))
            }
            acse::Indication::ReleaseConfirm { user_information, .. } => {
                below::Indication::ReleaseConfirm(values(user_information))
            }
            acse::Indication::Abort(abort) => below::Indication::Abort(values(abort.user_information)),
            acse::Indication::PAbort(_) => below::Indication::ProviderAbort,
        }
    }

    /// Converts an indication from the stack to one for the machine, or returns `None` if the file protocol
    /// does not need it.
    fn raise(&mut self, indication: Indication) -> Option<below::Indication> {
        use presentation::Indication as P;
        Some(match indication {
            Indication::Acse(indication) => self.raise_acse(*indication),
            Indication::Presentation(P::Data(data)) => below::Indication::Data(values(data)),
            Indication::Presentation(P::SyncMinor { serial, .. }) => below::Indication::SyncMinor { serial },
            Indication::Presentation(P::SyncMinorConfirm { serial, .. }) => {
                below::Indication::SyncMinorConfirm { serial }
            }
            Indication::Presentation(P::Resynchronise { serial, user_data, .. }) => {
                below::Indication::Resynchronise { serial, values: values(user_data) }
            }
            Indication::Presentation(P::ResynchroniseConfirm { serial, user_data, .. }) => {
                below::Indication::ResynchroniseConfirm { serial, values: values(user_data) }
            }
            // Token indications need no action, because the protocol determines who holds the token; ACSE
            // handles the other indications.
            Indication::Presentation(_) => return None,
        })
    }

    fn on_associate(&mut self, associate: acse::Associate) -> below::Indication {
        self.initiates = false;
        let presentation = &associate.presentation;
        let contexts: Vec<_> = (presentation.contexts.iter().zip(&presentation.results))
            .filter(|(_, result)| result.is_acceptance())
            .map(|(context, _)| below::Context { id: context.id, abstract_syntax: context.abstract_syntax })
            .collect();
        let acse = contexts.iter().find(|context| context.abstract_syntax == ABSTRACT_SYNTAX);
        self.acse_context = acse.map_or(0, |context| context.id);
        let selectors = |presentation: &_, session: &_| Selectors {
            presentation: Clone::clone(presentation),
            session: Clone::clone(session),
            ..Selectors::default()
        };
        let indication = below::Indication::Associate(below::Associate {
            calling: selectors(&presentation.calling, &presentation.session.calling),
            called: selectors(&presentation.called, &presentation.session.called),
            contexts,
            synchronise: presentation.session.units.has(Units::SYNCHRONISE),
            initial_serial: presentation.session.initial_serial.unwrap_or(1),
            user_information: values(associate.user_information.clone()),
        });
        self.associate = Some(associate);
        indication
    }

    fn on_answer(&mut self, answer: acse::AssociateAnswer) -> below::Indication {
        let (accepted, contexts, synchronise) = match answer.presentation {
            presentation::Answer::Accepted(accept) => {
                let (_, _, presentation, _) = self.stack.layers();
                let contexts = presentation.contexts().iter().map(|&(id, ..)| id).collect();
                (
                    answer.result == AssociateResult::ACCEPTED,
                    contexts,
                    accept.session.units.has(Units::SYNCHRONISE),
                )
            }
            presentation::Answer::Refused(refuse) => {
                self.refused = Some(refuse.by);
                (false, Vec::new(), false)
            }
        };
        let user_information = values(answer.user_information);
        below::Indication::AssociateConfirm(below::AssociateResponse {
            accepted,
            contexts,
            synchronise,
            user_information,
        })
    }
}

fn units(synchronise: bool) -> Units {
    if synchronise { Units::DUPLEX.or(Units::SYNCHRONISE) } else { Units::DUPLEX }
}

fn bytes_of(values: &[Value]) -> usize {
    let length = |value: &Value| match &value.form {
        Form::Single(rope) | Form::OctetAligned(rope) => rope.len(),
    };
    values.iter().map(length).sum()
}

fn pdvs(values: impl IntoIterator<Item = Value>) -> Vec<Pdv> {
    let pdv = |Value { context, form }| Pdv {
        context,
        transfer_syntax: None,
        value: match form {
            Form::Single(rope) => PdvValue::Single(rope),
            Form::OctetAligned(rope) => PdvValue::OctetAligned(rope),
        },
    };
    values.into_iter().map(pdv).collect()
}

fn values(pdvs: Vec<Pdv>) -> Vec<Value> {
    let value = |pdv: Pdv| Value {
        context: pdv.context,
        form: match pdv.value {
            PdvValue::Single(rope) => Form::Single(rope),
            // BER values consist of whole octets; decoding later rejects a value that does not.
            PdvValue::OctetAligned(octets) | PdvValue::Arbitrary { octets, .. } => Form::OctetAligned(octets),
        },
    };
    pdvs.into_iter().map(value).collect()
}
