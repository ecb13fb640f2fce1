//! The wiring of the file protocol: FTAM's machine on a tower.
//!
//! Goal      what the machine asks becomes primitives of ACSE and of presentation, and the other way round, on one page.
//! Adds      what files do not decide: ACSE's context beside FTAM's, BER as every transfer syntax, session's functional units
//!           and where the token for minor synchronisation is at first.
//! Turns     [`Files::settle`] carries until nothing moves. The user of the file service is asked in between by whoever
//!           holds this: it is the one that reads and writes files.

use super::meter::{Meter, Task};
use super::tower::{Request, Told, Tower, TowerConfig};
use alloc::vec::Vec;
use kiban_ground::Instant;
use kiban_stack::osi::ftam::below::{self, Form, Value};
use kiban_stack::osi::ftam::{Machine, Role};
use kiban_stack::osi::session::{Resynchronisation, TokenSetting, TokenSettings, Tokens, Units};
use kiban_stack::osi::{Selectors, acse, network, presentation};
use kiban_wire::acse::{ABSTRACT_SYNTAX, AbortSource, AssociateDiagnostic, AssociateResult, UserDiagnostic};
use kiban_wire::ftam::oids::APPLICATION_CONTEXT;
use kiban_wire::presentation::{BER, ContextDefinition, Pdv, PdvValue};

/// FTAM's machine and what it stands on.
#[derive(Debug)]
pub struct Files {
    machine: Machine,
    tower: Tower,
    /// What came with the A-ASSOCIATE indication, until it is answered.
    asked: Option<acse::Associate>,
    /// The number of ACSE's context.
    acse_context: i64,
    /// This end asked for the association.
    initiates: bool,
    crossed: u64,
}

impl Files {
    /// Without an association.
    pub fn new(machine: Machine, tower: &TowerConfig) -> Files {
        Files {
            machine,
            tower: Tower::new(tower),
            asked: None,
            acse_context: 0,
            initiates: false,
            crossed: 0,
        }
    }

    /// The file protocol's machine: ask it, poll it, and then [`settle`](Files::settle).
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// The layers below, to look at.
    pub fn tower(&self) -> &Tower {
        &self.tower
    }

    /// The network says.
    pub fn network(&mut self, indication: network::Indication, now: Instant, meter: &mut impl Meter) {
        self.tower.network(indication, now, meter);
        self.settle(now, meter);
    }

    /// The longest TSDU that is taken from now on.
    pub fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        self.tower.set_tsdu_bytes_max(bytes);
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant, meter: &mut impl Meter) {
        self.tower.timeout(now, meter);
        self.settle(now, meter);
    }

    /// When there is something to do though nobody asks.
    pub fn deadline(&self) -> Option<Instant> {
        self.tower.deadline()
    }

    /// What the network is asked next.
    pub fn poll_network(&mut self) -> Option<network::Request> {
        self.tower.poll_network()
    }

    /// Requests that met the end of the association on their way.
    pub fn crossed(&self) -> u64 {
        self.crossed + self.tower.crossed()
    }

    /// Carries what machine and tower have for each other, until nothing moves.
    pub fn settle(&mut self, now: Instant, meter: &mut impl Meter) {
        loop {
            let mut moved = false;
            while let Some(request) = self.machine.poll_down() {
                meter.turn_to(
                    Task::Ftam,
                    if let below::Request::Data(values) = &request { bytes_of(values) } else { 0 },
                );
                let request = self.lower(request);
                self.crossed += u64::from(self.tower.request(request, now, meter).is_err());
                moved = true;
            }
            while let Some(told) = self.tower.poll() {
                if let Some(indication) = self.raise(told) {
                    let bytes =
                        if let below::Indication::Data(values) = &indication { bytes_of(values) } else { 0 };
                    meter.turn_to(Task::Ftam, bytes);
                    self.machine.indicate(indication);
                }
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// What the machine asks, in the tower's words.
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

    /// Where the token for minor points is to be, in the words of whoever asks.
    fn tokens(&self, holder: Role) -> TokenSettings {
        let here = self.initiates == (holder == Role::Initiator);
        let minor = if here { TokenSetting::Requestor } else { TokenSetting::Acceptor };
        TokenSettings { minor, ..TokenSettings::default() }
    }

    fn associate(&mut self, associate: below::Associate) -> acse::Request {
        let below::Associate { calling, called, contexts, synchronise, initial_serial, user_information } =
            associate;
        self.initiates = true;
        // X.226 §6.2.2: numbers of the initiator's are odd.
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
        let asked = self.asked.take().expect("only an association that was asked for is answered");
        let below::AssociateResponse { accepted, contexts, synchronise, user_information } = response;
        let is_wanted =
            |context: &ContextDefinition| context.id == self.acse_context || contexts.contains(&context.id);
        let mut answer = if accepted {
            asked.accept(units(synchronise), is_wanted)
        } else {
            asked.refuse(AssociateResult::REJECTED_PERMANENT, is_wanted)
        };
        // Who speaks FTAM under another name is answered as any other. Who is refused is told if the name may be why.
        if !accepted && asked.application_context != APPLICATION_CONTEXT {
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

    /// What the tower tells, in the machine's words. Nothing, for what files do not know.
    fn raise(&mut self, told: Told) -> Option<below::Indication> {
        use presentation::Indication as P;
        Some(match told {
            Told::Acse(indication) => self.raise_acse(*indication),
            Told::Presentation(P::Data(data)) => below::Indication::Data(values(data)),
            Told::Presentation(P::SyncMinor { serial, .. }) => below::Indication::SyncMinor { serial },
            Told::Presentation(P::SyncMinorConfirm { serial, .. }) => {
                below::Indication::SyncMinorConfirm { serial }
            }
            Told::Presentation(P::Resynchronise { serial, user_data, .. }) => {
                below::Indication::Resynchronise { serial, values: values(user_data) }
            }
            Told::Presentation(P::ResynchroniseConfirm { serial, user_data, .. }) => {
                below::Indication::ResynchroniseConfirm { serial, values: values(user_data) }
            }
            // Tokens are where the file protocol expects them; ACSE takes the rest.
            Told::Presentation(_) => return None,
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
        self.asked = Some(associate);
        indication
    }

    fn on_answer(&mut self, answer: acse::AssociateAnswer) -> below::Indication {
        let (accepted, contexts, synchronise) = match answer.presentation {
            presentation::Answer::Accepted(accept) => {
                let (_, _, presentation, _) = self.tower.layers();
                let contexts = presentation.contexts().iter().map(|&(id, ..)| id).collect();
                (
                    answer.result == AssociateResult::ACCEPTED,
                    contexts,
                    accept.session.units.has(Units::SYNCHRONISE),
                )
            }
            presentation::Answer::Refused(_) => (false, Vec::new(), false),
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
            // Of values of BER no octet is cut: whatever says otherwise will not be read.
            PdvValue::OctetAligned(octets) | PdvValue::Arbitrary { octets, .. } => Form::OctetAligned(octets),
        },
    };
    pdvs.into_iter().map(value).collect()
}
