//! The presentation machine.

use super::coding::{ContextSet, Fault};
use super::config::Config;
use super::counters::Counters;
use super::primitives::{Answer, Indication, PAbort, Request};
use super::state::{Cell, Event, State, cell};
use crate::wire::ber::{Asn1, Oid};
use crate::wire::presentation as wire;
use crate::wire::presentation::{AbortReason, Arp, ContextDefinition, ContextResult, Pdv};
use crate::{RequestError, session};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiban_base::Rope;

/// Maximum length of an abort's user data in bytes, over version 1 of the session protocol (X.225 §8.3.9).
const ABORT_BYTES_MAX_VERSION_1: usize = 9;

/// The presentation machine (PPM) of one connection.
#[derive(Clone, Debug)]
pub struct Presentation {
    pub(super) config: Config,
    pub(super) state: State,
    /// The contexts proposed (in STAI1, STAI2) or defined (in STAt0).
    pub(super) set: ContextSet,
    pub(super) proposed: Vec<ContextDefinition>,
    /// The result for each proposed context.
    pub(super) marks: Vec<ContextResult>,
    /// rl: a release has begun (§A.5.3.2).
    releasing: bool,
    /// cr: two releases have collided (§A.5.3.3).
    collided: bool,
    pub(super) abort_bytes_max: usize,
    pub(super) up: VecDeque<Indication>,
    pub(super) down: VecDeque<session::Request>,
    /// The counters.
    pub counters: Counters,
}

impl Presentation {
    /// Creates a machine without a connection.
    pub fn new(config: Config) -> Presentation {
        Presentation {
            config,
            state: State::I0,
            set: ContextSet::default(),
            proposed: Vec::new(),
            marks: Vec::new(),
            releasing: false,
            collided: false,
            abort_bytes_max: usize::MAX,
            up: VecDeque::new(),
            down: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Returns the machine's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the defined context set: the identifier, abstract syntax and transfer syntax of each context.
    pub fn contexts(&self) -> &[(i64, Oid, Oid)] {
        self.set.contexts()
    }

    /// Reports the selected session version. Version 1 can carry little user data with an abort.
    pub fn on_session_version(&mut self, version: u8) {
        self.abort_bytes_max = if version == 1 { ABORT_BYTES_MAX_VERSION_1 } else { usize::MAX };
    }

    /// Returns the next indication or confirmation.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.up.pop_front()
    }

    /// Returns the next request to the session service.
    pub fn poll_down(&mut self) -> Option<session::Request> {
        self.down.pop_front()
    }

    /// Accepts a request or response.
    ///
    /// # Errors
    /// [`RequestError::State`] if the state table has no entry for the request; [`RequestError::Value`] for
    /// values in contexts that do not exist, for missing values, and for answers that do not match the
    /// request; [`RequestError::Length`] for too many contexts.
    pub fn request(&mut self, request: Request) -> Result<(), RequestError> {
        let event = event_of(&request);
        let next = match cell(self.state, event) {
            Cell::Go(_, next) => next,
            Cell::Released if self.collided => State::T0,
            Cell::Released => State::I0,
            Cell::Invalid | Cell::Validate => return Err(RequestError::State),
        };
        let down = match request {
            Request::Connect(connect) => self.connect(*connect)?,
            Request::ConnectResponse(Answer::Accepted(accept)) => self.accept(*accept)?,
            Request::ConnectResponse(Answer::Refused(refuse)) => self.refuse(*refuse)?,
            Request::Data(values) => session::Request::Data(self.some(values)?),
            Request::TypedData(values) => session::Request::TypedData(self.some(values)?),
            Request::GiveTokens { tokens, user_data } => {
                session::Request::GiveTokens { tokens, user_data: self.set.encode(user_data)? }
            }
            Request::PleaseTokens { tokens, user_data } => {
                session::Request::PleaseTokens { tokens, user_data: self.set.encode(user_data)? }
            }
            Request::SyncMinor { explicit, user_data } => {
                session::Request::SyncMinor { explicit, user_data: self.set.encode(user_data)? }
            }
            Request::SyncMinorResponse { serial, user_data } => {
                session::Request::SyncMinorResponse { serial, user_data: self.set.encode(user_data)? }
            }
            Request::Resynchronise { kind, serial, tokens, user_data } => {
                let user_data = self.resynchronise(user_data)?;
                session::Request::Resynchronise { kind, serial, tokens, user_data }
            }
            Request::ResynchroniseResponse { serial, tokens, user_data } => {
                let user_data = self.resynchronise(user_data)?;
                session::Request::ResynchroniseResponse { serial, tokens, user_data }
            }
            Request::Release { user_data } => {
                session::Request::Release { user_data: self.set.encode(user_data)? }
            }
            Request::ReleaseResponse { accepted, user_data } => {
                session::Request::ReleaseResponse { accepted, user_data: self.set.encode(user_data)? }
            }
            Request::Abort { user_data } => session::Request::Abort { user_data: self.abort(user_data)? },
        };
        self.down.push_back(down);
        self.note(event);
        self.go(next);
        Ok(())
    }

    /// Handles an indication or confirmation from the session service.
    pub fn arrive(&mut self, below: session::Indication) {
        let (event, blame) = match event_below(&below) {
            Ok(known) => known,
            Err((reason, blame)) => {
                self.counters.malformed_in += 1;
                return self.fail(reason, blame);
            }
        };
        let next = match cell(self.state, event) {
            Cell::Invalid => {
                self.counters.unexpected_in += 1;
                let is_primitive = blame.is_some_and(|blame| blame.0 >= wire::Event::S_RELEASE_INDICATION.0);
                let reason = match is_primitive {
                    true => AbortReason::UNEXPECTED_SESSION_PRIMITIVE,
                    false => AbortReason::UNEXPECTED_PPDU,
                };
                return self.fail(reason, blame);
            }
            Cell::Validate => {
                let session::Indication::Connect(connect) = below else {
                    unreachable!("only CP is validated")
                };
                return self.on_connect(*connect);
            }
            Cell::Go(_, next) => next,
            Cell::Released if self.collided => State::T0,
            Cell::Released => State::I0,
        };
        match self.decode_indication(below) {
            Ok(indication) => {
                self.up.push_back(indication);
                self.note(event);
                self.go(next);
            }
            Err(fault) => {
                match fault {
                    Fault::Malformed => self.counters.malformed_in += 1,
                    Fault::Context => self.counters.contexts_in += 1,
                }
                // §6.4.4.3: an invalid value, or one in a context that does not exist.
                self.fail(AbortReason::INVALID_PARAMETER, blame);
            }
        }
    }

    /// Updates the variables rl and cr (§A.5.3) after an event.
    fn note(&mut self, event: Event) {
        match event {
            // Specific actions [08] and [07].
            Event::PRelReq | Event::SRelInd => {
                self.collided |= self.releasing;
                self.releasing = true;
            }
            // Executes specific action [02], which the standard applies at the start of a connection, and
            // after a release that collided or was rejected.
            Event::PRelRspAccept | Event::SRelCnfAccept | Event::PRelRspReject | Event::SRelCnfReject => {
                self.releasing = false;
                self.collided = false;
            }
            // Resynchronisation cancels a release in progress (X.215 §13.3), as if it had not been requested.
            Event::PRsynReq | Event::Rs => {
                self.releasing = false;
                self.collided = false;
            }
            _ => {}
        }
    }

    pub(super) fn go(&mut self, next: State) {
        self.state = next;
        if next == State::I0 {
            self.set = ContextSet::default();
            self.proposed.clear();
            self.marks.clear();
            self.releasing = false;
            self.collided = false;
        }
    }

    /// Handles an error by the peer or the session layer: sends ARP and indicates P-P-ABORT (§A.4.1.2). Does
    /// nothing if there is no connection.
    pub(super) fn fail(&mut self, reason: AbortReason, event: Option<wire::Event>) {
        let was_idle = self.state == State::I0;
        self.counters.aborts_out += 1;
        let ends_session = [wire::Event::ARU, wire::Event::ARP, wire::Event::CPR].map(Some).contains(&event);
        if !ends_session && event != Some(wire::Event::S_RELEASE_CONFIRM) {
            let arp = wire::Abort::Provider(Arp { reason: Some(reason), event });
            self.down.push_back(session::Request::Abort { user_data: arp.to_rope() });
        }
        if !was_idle {
            self.up.push_back(Indication::PAbort(PAbort::Here { reason, event }));
        }
        self.go(State::I0);
    }

    fn some(&self, values: Vec<Pdv>) -> Result<Rope, RequestError> {
        if values.is_empty() { Err(RequestError::Value) } else { self.set.encode(values) }
    }
}

/// Builds the S-CONNECT response that carries CPR.
pub(super) fn refusal(id: session::ConnectionId, cpr: wire::Cpr) -> session::Request {
    let reason = session::RefuseReason::UserData;
    let refuse = session::Refuse { id, reason, user_data: cpr.to_rope() };
    session::Request::ConnectResponse(session::Answer::Refused(Box::new(refuse)))
}

/// Returns the state table event that corresponds to a request.
fn event_of(request: &Request) -> Event {
    match request {
        Request::Connect(_) => Event::PConReq,
        Request::ConnectResponse(Answer::Accepted(_)) => Event::PConRspAccept,
        Request::ConnectResponse(Answer::Refused(_)) => Event::PConRspReject,
        Request::Data(_) => Event::PDtReq,
        Request::TypedData(_) => Event::PTdReq,
        Request::GiveTokens { .. } => Event::PGtReq,
        Request::PleaseTokens { .. } => Event::PPtReq,
        Request::SyncMinor { .. } => Event::PSynMinorReq,
        Request::SyncMinorResponse { .. } => Event::PSynMinorRsp,
        Request::Resynchronise { .. } => Event::PRsynReq,
        Request::ResynchroniseResponse { .. } => Event::PRsynRsp,
        Request::Release { .. } => Event::PRelReq,
        Request::ReleaseResponse { accepted: true, .. } => Event::PRelRspAccept,
        Request::ReleaseResponse { accepted: false, .. } => Event::PRelRspReject,
        Request::Abort { .. } => Event::PUabReq,
    }
}

/// A state table event and its name in an ARP; for an invalid PPDU, the reason and the event that the ARP
/// reports.
type EventResult = Result<(Event, Option<wire::Event>), (AbortReason, Option<wire::Event>)>;

/// Returns the state table event that corresponds to an indication.
fn event_below(below: &session::Indication) -> EventResult {
    use session::Indication as Below;
    use wire::Event as Blame;
    let (event, blame) = match below {
        Below::Connect(_) => (Event::Cp, Blame::CP),
        Below::ConnectConfirm(session::Answer::Accepted(_)) => (Event::Cpa, Blame::CPA),
        Below::ConnectConfirm(session::Answer::Refused(refuse)) if refuse.user_data.is_empty() => {
            return Ok((Event::SConCnfReject, Some(Blame::CPR)));
        }
        Below::ConnectConfirm(session::Answer::Refused(_)) => (Event::Cpr, Blame::CPR),
        Below::Data(_) => (Event::Td, Blame::TD),
        // §8.2: AC and ACA are sent as typed data and have their own tags.
        Below::TypedData(rope) => match rope.first_run().first() {
            Some(0xa0) => (Event::Ac, Blame::AC),
            Some(0xa1) => (Event::Aca, Blame::ACA),
            _ => (Event::Ttd, Blame::TTD),
        },
        Below::GiveTokens { .. } => (Event::SGtInd, Blame::S_TOKEN_GIVE_INDICATION),
        Below::PleaseTokens { .. } => (Event::SPtInd, Blame::S_TOKEN_PLEASE_INDICATION),
        Below::SyncMinor { .. } => (Event::SSynMinorInd, Blame::S_SYNC_MINOR_INDICATION),
        Below::SyncMinorConfirm { .. } => (Event::SSynMinorCnf, Blame::S_SYNC_MINOR_CONFIRM),
        Below::Resynchronise { .. } => (Event::Rs, Blame::RS),
        Below::ResynchroniseConfirm { .. } => (Event::Rsa, Blame::RSA),
        Below::Release { .. } => (Event::SRelInd, Blame::S_RELEASE_INDICATION),
        Below::ReleaseConfirm { accepted: true, .. } => (Event::SRelCnfAccept, Blame::S_RELEASE_CONFIRM),
        Below::ReleaseConfirm { accepted: false, .. } => (Event::SRelCnfReject, Blame::S_RELEASE_CONFIRM),
        Below::UAbort { user_data } => match user_data.first_run().first() {
            None | Some(0xa0) => (Event::Aru, Blame::ARU),
            Some(0x30) => (Event::Arp, Blame::ARP),
            Some(_) => return Err((AbortReason::UNRECOGNIZED_PPDU, Some(Blame::ARU))),
        },
        Below::PAbort { .. } => return Ok((Event::SPabInd, Some(Blame::ARP))),
    };
    Ok((event, Some(blame)))
}
