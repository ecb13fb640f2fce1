//! Transmit path: validates and executes requests; sends SPDUs, in segments if necessary.

use super::cause::Cause;
use super::config::{OFFERED, TSDU_BYTES_MIN};
use super::machine::Session;
use super::primitives::{Answer, ConnectionId, Request, SERIAL_MAX};
use super::state::{self, Event, Given, State, Verdict};
use crate::wire::session as wire;
use crate::wire::session::{
    Enclosed, Enclosure, RefuseReason, Resynchronisation, Spdu, TokenSetting, TokenSettings, Tokens,
    TsduSizes, Units, Versions,
};
use crate::{RequestError, Selector, transport};
use alloc::boxed::Box;
use kiban_base::{Instant, Rope};

/// Overhead of a data segment in bytes: the GIVE TOKENS, and the SI, LI and Enclosure Item of the data SPDU.
const DATA_SEGMENT_BYTES: usize = 7;
/// Overhead in bytes of a segment of other user data, apart from the SPDU's parameters: the GIVE TOKENS, the
/// SI and LI, the Enclosure Item, and the code and LI of the user data.
const SEGMENT_BYTES: usize = 2 + 4 + 3 + 4;
/// Maximum length of user data in bytes in version 1.
const VERSION_1_BYTES_MAX: usize = 512;
/// Maximum length of an ABORT's user data in bytes in version 1.
const VERSION_1_ABORT_BYTES_MAX: usize = 9;

impl Session {
    #[inline]
    pub(super) fn request_data(&mut self, ssdu: Rope, typed: bool) -> Result<(), RequestError> {
        if ssdu.is_empty() {
            return Err(RequestError::Length);
        }
        let event = if typed { Event::STdReq } else { Event::SDtReq };
        match state::verdict(self.state, event, &self.variables, &Given::default()) {
            Verdict::Go(..) => {
                self.send_data(ssdu, typed);
                Ok(())
            }
            Verdict::Invalid => Err(self.misuse(event)),
        }
    }

    pub(super) fn request_any(&mut self, request: Request, now: Instant) -> Result<(), RequestError> {
        let mut given = Given::default();
        let mut refuse_with = Ok(());
        let event = match &request {
            Request::Data(_) => return Err(RequestError::State),
            Request::TypedData(_) => {
                let Request::TypedData(ssdu) = request else { return Err(RequestError::State) };
                return self.request_data(ssdu, true);
            }
            Request::Connect(connect) => {
                check_id(&connect.id)?;
                check_selectors(&[&connect.calling, &connect.called])?;
                check_units(connect.units)?;
                check_serial(connect.initial_serial)?;
                if connect.user_data.len() > VERSION_1_BYTES_MAX && !self.config.versions.has(Versions::V2) {
                    return Err(RequestError::Length);
                }
                given.overflow = connect.user_data.len() > wire::EXTENDED_BYTES_MAX;
                Event::SConReq
            }
            Request::ConnectResponse(Answer::Accepted(accept)) => {
                check_id(&accept.id)?;
                check_selectors(&[&accept.responding])?;
                check_units(accept.units)?;
                check_serial(accept.initial_serial)?;
                refuse_with = self.check_length(&accept.user_data);
                Event::SConRspAccept
            }
            Request::ConnectResponse(Answer::Refused(refuse)) => {
                check_id(&refuse.id)?;
                let with_data = refuse.reason == RefuseReason::UserData;
                if !refuse.reason.is_user() || !with_data && !refuse.user_data.is_empty() {
                    return Err(RequestError::Value);
                }
                refuse_with = self.check_length(&refuse.user_data);
                Event::SConRspRefuse
            }
            Request::GiveTokens { tokens, user_data } => {
                if tokens.is_empty() {
                    return Err(RequestError::Value);
                }
                if !self.version_2 && !user_data.is_empty() {
                    return Err(RequestError::Length);
                }
                given.tokens = *tokens;
                Event::SGtReq
            }
            Request::PleaseTokens { tokens, user_data } => {
                if tokens.is_empty() {
                    return Err(RequestError::Value);
                }
                refuse_with = self.check_length(user_data);
                given.tokens = *tokens;
                Event::SPtReq
            }
            Request::SyncMinor { user_data, .. } => {
                refuse_with = self.check_length(user_data);
                if self.variables.vm > SERIAL_MAX {
                    refuse_with = Err(RequestError::Serial);
                }
                Event::SSynReq
            }
            Request::SyncMinorResponse { serial, user_data } => {
                refuse_with = self.check_length(user_data);
                given.serial = *serial;
                Event::SSynRsp
            }
            Request::Resynchronise { kind, serial, user_data, .. } => {
                refuse_with = self.check_length(user_data);
                given.kind = *kind;
                given.serial = match (kind, serial) {
                    (Resynchronisation::Abandon, _) => self.variables.vm,
                    (_, Some(serial)) => *serial,
                    (_, None) => return Err(RequestError::Value),
                };
                check_serial(Some(given.serial))?;
                Event::SRsynReq
            }
            Request::ResynchroniseResponse { serial, tokens, user_data } => {
                refuse_with = self.check_length(user_data);
                given.serial = serial.unwrap_or(self.resync_serial);
                check_serial(Some(given.serial))?;
                check_chosen(self.resync_tokens, *tokens)?;
                Event::SRsynRsp
            }
            Request::Release { user_data } => {
                refuse_with = self.check_length(user_data);
                // Table A.15 does not exclude a second request after a collision; it relies on the service
                // definition (X.215) for that.
                if self.variables.vcoll {
                    refuse_with = Err(RequestError::State);
                }
                Event::SRelReq
            }
            Request::ReleaseResponse { accepted, user_data } => {
                refuse_with = self.check_length(user_data);
                if *accepted { Event::SRelRspAccept } else { Event::SRelRspReject }
            }
            Request::Abort { user_data } => {
                if !self.version_2 && user_data.len() > VERSION_1_ABORT_BYTES_MAX {
                    return Err(RequestError::Length);
                }
                Event::SUabReq
            }
        };
        let Verdict::Go(actions, next) = state::verdict(self.state, event, &self.variables, &given) else {
            return Err(self.misuse(event));
        };
        refuse_with?;
        if let Request::ConnectResponse(Answer::Accepted(accept)) = &request {
            let proposal = self.connect.as_ref().expect("a CONNECT is being answered");
            check_chosen(proposal.tokens, accept.tokens)?;
        }
        let cause =
            Cause { serial: given.serial, tokens: given.tokens, request: Some(request), ..Cause::default() };
        self.act(actions, next, cause, now);
        Ok(())
    }

    /// Returns the error for an event that the table does not allow.
    fn misuse(&self, event: Event) -> RequestError {
        let v = &self.variables;
        if self.state != State::Sta713 {
            return RequestError::State;
        }
        match event {
            Event::STdReq => RequestError::Unit,
            Event::SSynReq | Event::SSynRsp if !v.units.has(Units::MINOR_SYNCHRONISE) => RequestError::Unit,
            Event::SSynReq | Event::SGtReq | Event::SPtReq | Event::SRelReq => RequestError::Token,
            Event::SSynRsp => RequestError::Serial,
            Event::SRsynReq if !v.units.has(Units::RESYNCHRONISE) => RequestError::Unit,
            Event::SRsynReq if !v.units.has(Units::MINOR_SYNCHRONISE) => RequestError::Unit,
            Event::SRsynReq => RequestError::Serial,
            _ => RequestError::State,
        }
    }

    fn check_length(&self, user_data: &Rope) -> Result<(), RequestError> {
        let fits = self.version_2 || user_data.len() <= VERSION_1_BYTES_MAX;
        if fits { Ok(()) } else { Err(RequestError::Length) }
    }

    /// Builds the CONNECT to send; user data that does not fit is kept for later.
    pub(super) fn prepare_connect(&mut self, connect: super::Connect) {
        let mut user_data = connect.user_data;
        let overflow = user_data.len() > wire::EXTENDED_BYTES_MAX;
        let mut versions = self.config.versions;
        if user_data.len() > VERSION_1_BYTES_MAX {
            versions = Versions::V2;
        }
        if overflow {
            let rest = user_data.split_to(wire::EXTENDED_BYTES_MAX);
            self.overflow = core::mem::replace(&mut user_data, rest);
        }
        self.connect = Some(Box::new(wire::Connect {
            identifier: identifier(connect.id),
            extended_concatenation: false,
            tsdu_sizes: TsduSizes {
                initiator_bytes_max: wanted(self.config.tsdu_out_bytes_max),
                responder_bytes_max: wanted(self.config.tsdu_in_bytes_max),
            },
            versions,
            // X.225 §7.1.1 b 4: present if synchronisation is proposed.
            initial_serial: connect
                .units
                .has_any(Units::SYNCHRONISE)
                .then(|| connect.initial_serial.unwrap_or(1)),
            tokens: connect.tokens,
            units: connect.units,
            calling: connect.calling.bytes().to_vec(),
            called: connect.called.bytes().to_vec(),
            overflow,
            user_data,
        }));
    }

    #[inline]
    pub(super) fn send_data(&mut self, mut ssdu: Rope, typed: bool) {
        let bytes_max = match self.tsdu_bytes_max {
            0 => return self.send_data_part(ssdu, None, typed),
            limited => limited - DATA_SEGMENT_BYTES,
        };
        let mut begins = true;
        while ssdu.len() > bytes_max {
            let part = ssdu.split_to(bytes_max);
            self.send_data_part(part, Some(Enclosure { begins, ends: false }), typed);
            begins = false;
        }
        self.send_data_part(ssdu, Some(Enclosure { begins, ends: true }), typed);
    }

    #[inline]
    fn send_data_part(&mut self, data: Rope, enclosure: Option<Enclosure>, typed: bool) {
        let tsdu = match typed {
            false => wire::data(data, enclosure),
            true => Spdu::TypedData(Enclosed { enclosure, data }).into_rope(),
        };
        self.send_tsdu(tsdu);
    }

    #[inline]
    fn send_tsdu(&mut self, tsdu: Rope) {
        self.counters.tsdus_out += 1;
        self.down.push_back(transport::Request::Data(tsdu));
    }

    /// Sends an SPDU without segmenting it.
    pub(super) fn send(&mut self, spdu: Spdu) {
        let joined = spdu.needs_give_tokens();
        let rope = spdu.into_rope();
        self.send_tsdu(if joined { wire::with_give_tokens(rope) } else { rope });
    }

    /// Sends an SPDU with user data, in as many segments as needed (§7.37). `make` builds each segment from a
    /// part of the data; only the first segment contains the parameters.
    pub(super) fn send_enclosed(
        &mut self,
        mut user_data: Rope,
        make: &mut dyn FnMut(Enclosed, bool) -> Spdu,
    ) {
        let parameters = make(Enclosed::default(), true).into_rope().len();
        let spdu_bytes_max = match self.tsdu_bytes_max {
            0 => wire::PARAMETERS_BYTES_MAX,
            limited => limited,
        };
        let room = spdu_bytes_max.saturating_sub(parameters + SEGMENT_BYTES).max(1);
        if !self.version_2 || user_data.len() <= room {
            return self.send(make(Enclosed::whole(user_data), true));
        }
        let first = user_data.split_to(room);
        let enclosure = Some(Enclosure { begins: true, ends: false });
        self.send(make(Enclosed { enclosure, data: first }, true));
        loop {
            let count = user_data.len().min(spdu_bytes_max - SEGMENT_BYTES);
            let data = user_data.split_to(count);
            let ends = user_data.is_empty();
            self.send(make(Enclosed { enclosure: Some(Enclosure { begins: false, ends }), data }, false));
            if ends {
                return;
            }
        }
    }

    /// Sends the rest of a CONNECT's user data in CONNECT DATA OVERFLOW SPDUs.
    pub(super) fn send_overflow(&mut self) {
        let bytes_max = match self.tsdu_bytes_max {
            0 => wire::PARAMETERS_BYTES_MAX,
            limited => limited,
        } - SEGMENT_BYTES;
        let mut rest = core::mem::take(&mut self.overflow);
        loop {
            let data = rest.split_to(rest.len().min(bytes_max));
            let ends = rest.is_empty();
            let enclosure = Some(Enclosure { begins: false, ends });
            self.send(Spdu::ConnectDataOverflow(Enclosed { enclosure, data }));
            if ends {
                return;
            }
        }
    }
}

/// Returns the TSDU size to propose for a configured maximum.
pub(super) fn wanted(bytes_max: u16) -> u16 {
    if bytes_max == 0 { 0 } else { bytes_max.max(TSDU_BYTES_MIN) }
}

pub(super) fn identifier(id: ConnectionId) -> wire::Identifier {
    wire::Identifier {
        user_reference: id.user_reference,
        common_reference: id.common_reference,
        additional: id.additional,
    }
}

fn check_id(id: &ConnectionId) -> Result<(), RequestError> {
    let fits = id.user_reference.len() <= wire::REFERENCE_BYTES_MAX
        && id.common_reference.len() <= wire::REFERENCE_BYTES_MAX
        && id.additional.len() <= wire::ADDITIONAL_BYTES_MAX;
    if fits { Ok(()) } else { Err(RequestError::Length) }
}

fn check_selectors(selectors: &[&Selector]) -> Result<(), RequestError> {
    let fits = selectors.iter().all(|selector| selector.len() <= wire::SELECTOR_BYTES_MAX);
    if fits { Ok(()) } else { Err(RequestError::Length) }
}

fn check_units(units: Units) -> Result<(), RequestError> {
    if OFFERED.has(units) && units.has(Units::DUPLEX) { Ok(()) } else { Err(RequestError::Unit) }
}

fn check_serial(serial: Option<u32>) -> Result<(), RequestError> {
    if serial.is_some_and(|serial| serial > SERIAL_MAX) { Err(RequestError::Serial) } else { Ok(()) }
}

/// Checks that this end assigns every token whose assignment was left to it. Only the minor token can be
/// available.
fn check_chosen(proposal: TokenSettings, answer: TokenSettings) -> Result<(), RequestError> {
    if proposal.minor == TokenSetting::AcceptorChooses && answer.minor == TokenSetting::AcceptorChooses {
        Err(RequestError::Value)
    } else {
        Ok(())
    }
}

/// Returns the proposed token sides, with the answer's choices where the choice was left to the acceptor.
pub(super) fn settled(proposal: TokenSettings, answer: TokenSettings) -> TokenSettings {
    let settle = |proposal, answer| match proposal {
        TokenSetting::AcceptorChooses => answer,
        settled => settled,
    };
    TokenSettings {
        data: settle(proposal.data, answer.data),
        minor: settle(proposal.minor, answer.minor),
        major: settle(proposal.major, answer.major),
        release: settle(proposal.release, answer.release),
    }
}

/// Returns whether the set contains the minor token, the only token that can be available.
pub(super) fn owned_tokens(tokens: Tokens) -> bool {
    tokens.has(Tokens::MINOR)
}
