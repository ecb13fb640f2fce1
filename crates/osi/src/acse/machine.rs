//! The association control machine.

use super::counters::Counters;
use super::primitives::{Abort, Associate, AssociateAnswer, Authentication, EntityName, Indication, Request};
use super::state::{Cell, Event, State, cell};
use crate::wire::acse as wire;
use crate::wire::acse::{
    AbortDiagnostic, AbortSource, Apdu, AssociateDiagnostic, AssociateResult, ProviderDiagnostic,
    Requirements,
};
use crate::wire::ber::{Asn1, External};
use crate::wire::presentation::{ContextDefinition, Pdv};
use crate::{RequestError, presentation};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The association control machine (ACPM) of one association.
#[derive(Clone, Debug, Default)]
pub struct Acse {
    state: State,
    /// The identifier of ACSE's own context, set while an association exists.
    context: i64,
    /// p2: whether this end initiated the association.
    is_initiator: bool,
    /// Whether the authentication functional unit is proposed or selected.
    authenticates: bool,
    up: VecDeque<Indication>,
    down: VecDeque<presentation::Request>,
    /// The counters.
    pub counters: Counters,
}

impl Acse {
    /// Creates a machine without an association.
    pub fn new() -> Acse {
        Acse::default()
    }

    /// Returns the machine's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the next indication or confirmation.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// Returns the next request to the presentation service.
    pub fn poll_down(&mut self) -> Option<presentation::Request> {
        self.down.pop_front()
    }

    /// Accepts a request or response.
    ///
    /// # Errors
    /// [`RequestError::State`] if the state table has no entry for the request; [`RequestError::Unit`] if
    /// authentication is used but was not proposed; [`RequestError::Value`] if ACSE's own context is missing
    /// or an answer contradicts itself.
    pub fn request(&mut self, request: Request) -> Result<(), RequestError> {
        let Cell::Go(next) = cell(self.state, event_of(&request)) else { return Err(RequestError::State) };
        let down = match request {
            Request::Associate(associate) => self.associate(associate)?,
            Request::AssociateResponse(answer) => self.answer(answer)?,
            Request::Release { reason, user_information } => {
                let apdu = Apdu::Rlrq(wire::Rlrq { reason, user_information: externals(&user_information) });
                presentation::Request::Release { user_data: self.carry(&apdu) }
            }
            Request::ReleaseResponse { accepted, reason, user_information } => {
                let apdu = Apdu::Rlre(wire::Rlre { reason, user_information: externals(&user_information) });
                presentation::Request::ReleaseResponse { accepted, user_data: self.carry(&apdu) }
            }
            Request::Abort(abort) => self.abort(abort)?,
        };
        self.down.push_back(down);
        self.state = next;
        Ok(())
    }

    /// Handles an indication or confirmation from the presentation service. Ignores those that do not concern
    /// ACSE.
    pub fn arrive(&mut self, below: presentation::Indication) {
        use presentation::Indication as Below;
        let decoded = match below {
            Below::Connect(connect) => self.on_connect(*connect),
            Below::ConnectConfirm(answer) => self.on_answer(answer),
            Below::Release { user_data } => match self.read(&user_data) {
                Some(Apdu::Rlrq(rlrq)) => {
                    let user_information = pdvs(rlrq.user_information);
                    Decoded::event(Event::Rlrq, Indication::Release { reason: rlrq.reason, user_information })
                }
                _ => Decoded::Malformed,
            },
            Below::ReleaseConfirm { accepted, user_data } => match self.read(&user_data) {
                Some(Apdu::Rlre(rlre)) => {
                    let event = if accepted { Event::RlreAccept } else { Event::RlreReject };
                    let user_information = pdvs(rlre.user_information);
                    Decoded::event(
                        event,
                        Indication::ReleaseConfirm { accepted, reason: rlre.reason, user_information },
                    )
                }
                _ => Decoded::Malformed,
            },
            Below::UAbort { user_data } => {
                Decoded::event(Event::Abrt, Indication::Abort(self.on_abort(user_data)))
            }
            Below::PAbort(abort) => Decoded::event(Event::PPabInd, Indication::PAbort(abort)),
            Below::Resynchronise { .. } => return self.on_resynchronise(false),
            _ => return,
        };
        match decoded {
            Decoded::Event(event, indication) => self.on_event(event, *indication),
            Decoded::Refused => {}
            Decoded::Malformed => {
                self.counters.malformed_in += 1;
                self.fail();
            }
        }
    }

    /// Reports a P-RESYNCHRONIZE that was requested (`is_own`) or indicated.
    pub fn on_resynchronise(&mut self, is_own: bool) {
        // EXTRN-1 and EXTRN-2. In other states, the presentation service never issues this primitive.
        let event = if is_own { Event::Extern2 } else { Event::Extern1 };
        if let Cell::Go(next) = cell(self.state, event) {
            self.state = next;
        }
    }

    fn on_event(&mut self, event: Event, indication: Indication) {
        let next = match cell(self.state, event) {
            Cell::Go(next) => next,
            Cell::Validate => State::Sta2,
            Cell::Collision if self.is_initiator => State::Sta6,
            Cell::Collision => State::Sta7,
            Cell::Invalid => {
                self.counters.unexpected_in += 1;
                // In the idle state, there is no association to abort.
                if event != Event::Abrt && event != Event::PPabInd {
                    self.fail();
                }
                return;
            }
        };
        self.up.push_back(indication);
        self.state = next;
    }

    /// Handles a protocol error by the peer (§7.3.3.4).
    fn fail(&mut self) {
        self.counters.aborts_out += 1;
        let diagnostic = self.authenticates.then_some(AbortDiagnostic::PROTOCOL_ERROR);
        let source = AbortSource::SERVICE_PROVIDER;
        let apdu = Apdu::Abrt(wire::Abrt { source, diagnostic, user_information: None });
        // Without ACSE's own context, the abort is sent without an APDU.
        let user_data = if self.context == Pdv::NO_CONTEXT { Vec::new() } else { self.carry(&apdu) };
        self.down.push_back(presentation::Request::Abort { user_data });
        if self.state != State::Sta0 {
            self.up.push_back(Indication::Abort(Abort { source, diagnostic, user_information: Vec::new() }));
        }
        self.state = State::Sta0;
    }

    /// Encodes an APDU as user data.
    fn carry(&self, apdu: &Apdu) -> Vec<Pdv> {
        [Pdv::single(self.context, apdu.to_rope())].into()
    }

    /// Decodes the APDU in user data, which must be the only value and in ACSE's context.
    fn read(&self, user_data: &[Pdv]) -> Option<Apdu> {
        let [pdv] = user_data else { return None };
        if pdv.context != self.context {
            return None;
        }
        let bytes = pdv.octets().clone().into_bytes();
        let (apdu, count) = Apdu::read(&bytes).ok()?;
        (count == bytes.len()).then_some(apdu)
    }
}

/// The result of decoding an indication from the presentation service.
enum Decoded {
    Event(Event, Box<Indication>),
    Malformed,
    /// The request has been refused; nothing is indicated to the user.
    Refused,
}

impl Decoded {
    fn event(event: Event, indication: Indication) -> Decoded {
        Decoded::Event(event, Box::new(indication))
    }
}

// Transmit path.
impl Acse {
    fn associate(&mut self, associate: Associate) -> Result<presentation::Request, RequestError> {
        let Associate { mut presentation, application_context, called, calling, authentication, .. } =
            associate;
        let context = own_context(&presentation.contexts).ok_or(RequestError::Value)?;
        self.context = context;
        self.is_initiator = true;
        self.authenticates = authentication.is_some();
        let Authentication { mechanism, value } = authentication.unwrap_or_default();
        let apdu = Apdu::Aarq(wire::Aarq {
            version: wire::Version::VERSION_1,
            application_context,
            called_ap_title: called.ap_title,
            called_ae_qualifier: called.ae_qualifier,
            called_ap_invocation: called.ap_invocation,
            called_ae_invocation: called.ae_invocation,
            calling_ap_title: calling.ap_title,
            calling_ae_qualifier: calling.ae_qualifier,
            calling_ap_invocation: calling.ap_invocation,
            calling_ae_invocation: calling.ae_invocation,
            requirements: self.authenticates.then_some(Requirements::AUTHENTICATION),
            mechanism,
            authentication: value,
            implementation: associate.implementation,
            user_information: externals(&associate.user_information),
        });
        presentation.user_data = self.carry(&apdu);
        Ok(presentation::Request::Connect(Box::new(presentation)))
    }

    fn answer(&mut self, answer: AssociateAnswer) -> Result<presentation::Request, RequestError> {
        let AssociateAnswer {
            mut presentation, application_context, result, responding, authentication, ..
        } = answer;
        if authentication.is_some() && !self.authenticates {
            return Err(RequestError::Unit);
        }
        let selected = authentication.is_some();
        let Authentication { mechanism, value } = authentication.unwrap_or_default();
        let default = AssociateDiagnostic::ServiceUser(wire::UserDiagnostic::NULL);
        let diagnostic = answer.diagnostic.unwrap_or(default);
        if matches!(diagnostic, AssociateDiagnostic::ServiceProvider(_)) {
            return Err(RequestError::Value);
        }
        let apdu = Apdu::Aare(wire::Aare {
            version: wire::Version::VERSION_1,
            application_context: application_context.ok_or(RequestError::Value)?,
            result,
            diagnostic,
            responding_ap_title: responding.ap_title,
            responding_ae_qualifier: responding.ae_qualifier,
            responding_ap_invocation: responding.ap_invocation,
            responding_ae_invocation: responding.ae_invocation,
            requirements: selected.then_some(Requirements::AUTHENTICATION),
            mechanism,
            authentication: value,
            implementation: answer.implementation,
            user_information: externals(&answer.user_information),
        });
        let user_data = self.carry(&apdu);
        let is_accepted = result == AssociateResult::ACCEPTED;
        match &mut presentation {
            presentation::Answer::Accepted(accept) if is_accepted => accept.user_data = user_data,
            presentation::Answer::Refused(refuse) if !is_accepted => refuse.user_data = user_data,
            _ => return Err(RequestError::Value),
        }
        self.authenticates = selected;
        Ok(presentation::Request::ConnectResponse(presentation))
    }

    fn abort(&self, abort: Abort) -> Result<presentation::Request, RequestError> {
        if abort.diagnostic.is_some() && !self.authenticates {
            return Err(RequestError::Unit);
        }
        let apdu = Apdu::Abrt(wire::Abrt {
            source: AbortSource::SERVICE_USER,
            diagnostic: abort.diagnostic,
            user_information: externals(&abort.user_information),
        });
        Ok(presentation::Request::Abort { user_data: self.carry(&apdu) })
    }
}

// Receive path.
impl Acse {
    /// Handles a P-CONNECT indication, which carries AARQ.
    fn on_connect(&mut self, mut connect: presentation::Connect) -> Decoded {
        let user_data = core::mem::take(&mut connect.user_data);
        self.is_initiator = false;
        self.context = own_context(&connect.contexts).unwrap_or(Pdv::NO_CONTEXT);
        let Some(Apdu::Aarq(aarq)) = self.read(&user_data) else { return Decoded::Malformed };
        if self.state == State::Sta0 && !aarq.version.contains(wire::Version::VERSION_1) {
            return self.refuse(connect, aarq);
        }
        // Functional units that are not supported are removed (§7.1.3.2).
        self.authenticates =
            aarq.requirements.is_some_and(|units| units.contains(Requirements::AUTHENTICATION));
        let authentication = Authentication { mechanism: aarq.mechanism, value: aarq.authentication };
        let indication = Indication::Associate(Associate {
            presentation: connect,
            application_context: aarq.application_context,
            called: EntityName {
                ap_title: aarq.called_ap_title,
                ae_qualifier: aarq.called_ae_qualifier,
                ap_invocation: aarq.called_ap_invocation,
                ae_invocation: aarq.called_ae_invocation,
            },
            calling: EntityName {
                ap_title: aarq.calling_ap_title,
                ae_qualifier: aarq.calling_ae_qualifier,
                ap_invocation: aarq.calling_ap_invocation,
                ae_invocation: aarq.calling_ae_invocation,
            },
            authentication: self.authenticates.then_some(authentication),
            implementation: aarq.implementation,
            user_information: pdvs(aarq.user_information),
        });
        Decoded::event(Event::Aarq, indication)
    }

    /// Refuses a request that shares no version with this end: sends AARE- with the provider as its source
    /// (§7.1.3.2), and indicates nothing.
    fn refuse(&mut self, connect: presentation::Connect, aarq: wire::Aarq) -> Decoded {
        self.counters.refusals_out += 1;
        let apdu = Apdu::Aare(wire::Aare {
            version: wire::Version::VERSION_1,
            application_context: aarq.application_context,
            result: AssociateResult::REJECTED_PERMANENT,
            diagnostic: AssociateDiagnostic::ServiceProvider(ProviderDiagnostic::NO_COMMON_ACSE_VERSION),
            responding_ap_title: None,
            responding_ae_qualifier: None,
            responding_ap_invocation: None,
            responding_ae_invocation: None,
            requirements: None,
            mechanism: None,
            authentication: None,
            implementation: None,
            user_information: None,
        });
        let refuse = presentation::Refuse {
            id: connect.session.id,
            by: presentation::Refuser::User,
            responding: connect.called,
            results: Vec::new(),
            user_data: self.carry(&apdu),
        };
        self.down.push_back(presentation::Request::ConnectResponse(presentation::Answer::Refused(Box::new(
            refuse,
        ))));
        Decoded::Refused
    }

    /// Handles a P-CONNECT confirm, which carries AARE, or a refusal by the presentation or session layer.
    fn on_answer(&mut self, mut answer: presentation::Answer) -> Decoded {
        let (user_data, is_accepted) = match &mut answer {
            presentation::Answer::Accepted(accept) => (core::mem::take(&mut accept.user_data), true),
            presentation::Answer::Refused(refuse) => {
                if refuse.by != presentation::Refuser::User {
                    return Decoded::event(Event::PConCnfReject, refused_below(answer));
                }
                (core::mem::take(&mut refuse.user_data), false)
            }
        };
        let Some(Apdu::Aare(aare)) = self.read(&user_data) else { return Decoded::Malformed };
        // §7.1.3.4: the two results must agree.
        if is_accepted != (aare.result == AssociateResult::ACCEPTED) {
            return Decoded::Malformed;
        }
        let has_unit = aare.requirements.is_some_and(|units| units.contains(Requirements::AUTHENTICATION));
        self.authenticates &= has_unit;
        let authentication = Authentication { mechanism: aare.mechanism, value: aare.authentication };
        let event = if is_accepted { Event::AareAccept } else { Event::AareReject };
        let confirm = AssociateAnswer {
            presentation: answer,
            application_context: Some(aare.application_context),
            result: aare.result,
            diagnostic: Some(aare.diagnostic),
            responding: EntityName {
                ap_title: aare.responding_ap_title,
                ae_qualifier: aare.responding_ae_qualifier,
                ap_invocation: aare.responding_ap_invocation,
                ae_invocation: aare.responding_ae_invocation,
            },
            authentication: self.authenticates.then_some(authentication),
            implementation: aare.implementation,
            user_information: pdvs(aare.user_information),
        };
        Decoded::event(event, Indication::AssociateConfirm(confirm))
    }

    /// Handles a P-U-ABORT indication, which carries ABRT or, over version 1 of session, no APDU (§7.3.3.2).
    fn on_abort(&self, user_data: Vec<Pdv>) -> Abort {
        match self.read(&user_data) {
            Some(Apdu::Abrt(abrt)) => Abort {
                source: abrt.source,
                diagnostic: abrt.diagnostic.filter(|_| self.authenticates),
                user_information: pdvs(abrt.user_information),
            },
            _ => Abort { source: AbortSource::SERVICE_USER, diagnostic: None, user_information: user_data },
        }
    }
}

/// Handles a refusal by the presentation or session layer, without an APDU from the peer's ACSE (§7.1.3.4).
fn refused_below(answer: presentation::Answer) -> Indication {
    let presentation::Answer::Refused(refuse) = &answer else { unreachable!("it is a refusal") };
    use crate::wire::presentation::ProviderReason;
    // §7.1.3.4: "rejected (permanent)", unless the presentation layer's reason is transient (X.226 §6.2.4.9).
    let is_transient = matches!(
        refuse.by,
        presentation::Refuser::Provider(
            ProviderReason::NOT_SPECIFIED
                | ProviderReason::TEMPORARY_CONGESTION
                | ProviderReason::NO_PSAP_AVAILABLE
        )
    );
    let result =
        if is_transient { AssociateResult::REJECTED_TRANSIENT } else { AssociateResult::REJECTED_PERMANENT };
    Indication::AssociateConfirm(AssociateAnswer::new(answer, None, result))
}

/// Returns the identifier of ACSE's own context.
fn own_context(contexts: &[ContextDefinition]) -> Option<i64> {
    contexts.iter().find(|context| context.abstract_syntax == wire::ABSTRACT_SYNTAX).map(|context| context.id)
}

fn externals(values: &[Pdv]) -> Option<Vec<External>> {
    (!values.is_empty()).then(|| values.iter().map(External::from).collect())
}

fn pdvs(externals: Option<Vec<External>>) -> Vec<Pdv> {
    externals.unwrap_or_default().into_iter().map(Pdv::from).collect()
}

/// Returns the state table event that corresponds to a request.
fn event_of(request: &Request) -> Event {
    match request {
        Request::Associate(_) => Event::AAscReq,
        Request::AssociateResponse(answer) if answer.result == AssociateResult::ACCEPTED => {
            Event::AAscRspAccept
        }
        Request::AssociateResponse(_) => Event::AAscRspReject,
        Request::Release { .. } => Event::ARlsReq,
        Request::ReleaseResponse { accepted: true, .. } => Event::ARlsRspAccept,
        Request::ReleaseResponse { accepted: false, .. } => Event::ARlsRspReject,
        Request::Abort(_) => Event::AAbrReq,
    }
}
