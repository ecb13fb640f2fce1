//! Receive path: PPDUs become indications and confirmations.

use super::coding::{self, ContextSet, Fault};
use super::machine::{Presentation, refusal};
use super::primitives::{Accept, Answer, Connect, Indication, PAbort, Refuse, Refuser};
use super::state::State;
use crate::session;
use crate::wire::ber::{Asn1, Oid};
use crate::wire::presentation as wire;
use crate::wire::presentation::{
    AbortReason, ContextDefinition, ContextResult, Pdv, ProviderReason, ResultCode,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::{Malformed, Rope};

impl Presentation {
    /// Handles a CP PPDU.
    pub(super) fn on_connect(&mut self, connect: session::Connect) {
        let session::Connect { id, .. } = &connect;
        let id = id.clone();
        let cp = wire::Cp::read(&connect.user_data.clone().into_bytes());
        let parameters = match cp {
            Ok((wire::Cp { mode: wire::ModeSelector::NORMAL, parameters: Some(parameters) }, _)) => {
                parameters
            }
            Ok(_) | Err(_) => {
                self.counters.malformed_in += 1;
                return self.fail(AbortReason::UNRECOGNIZED_PPDU, None);
            }
        };
        let contexts = parameters.contexts.unwrap_or_default();
        let is_new = |(place, context): (usize, &ContextDefinition)| {
            contexts[..place].iter().all(|other| other.id != context.id)
        };
        if contexts.len() <= self.config.contexts_max && !contexts.iter().enumerate().all(is_new) {
            self.counters.malformed_in += 1;
            return self.fail(AbortReason::INVALID_PARAMETER, Some(wire::Event::CP));
        }
        let called = coding::to_selector(parameters.called_selector);
        let set = ContextSet::proposed(&contexts[..contexts.len().min(self.config.contexts_max)]);
        // p01, p02, p22: if one of them is false, the confirm at the peer carries this reason.
        let reason = if !parameters.version.contains(wire::Version::VERSION_1) {
            Some(ProviderReason::VERSION_NOT_SUPPORTED)
        } else if !self.config.attached.has(&called) {
            Some(ProviderReason::CALLED_ADDRESS_UNKNOWN)
        } else if parameters.default_context.is_some() {
            Some(ProviderReason::DEFAULT_CONTEXT_NOT_SUPPORTED)
        } else if contexts.len() > self.config.contexts_max {
            Some(ProviderReason::LOCAL_LIMIT_EXCEEDED)
        } else {
            None
        };
        let marks: Vec<_> = contexts.iter().map(|context| self.mark(context)).collect();
        let values = match set.extract(parameters.user_data) {
            Some(values) => values,
            None if reason.is_none() => {
                self.counters.contexts_in += 1;
                return self.fail(AbortReason::INVALID_PARAMETER, Some(wire::Event::CP));
            }
            None => Vec::new(),
        };
        let readable = |pdv: &Pdv| {
            let of = contexts.iter().zip(&marks).find(|(context, _)| context.id == pdv.context);
            of.is_none_or(|(_, mark)| mark.is_acceptance())
        };
        let reason = reason
            .or_else(|| (!values.iter().all(readable)).then_some(ProviderReason::USER_DATA_NOT_READABLE));
        if let Some(reason) = reason {
            self.counters.refusals_out += 1;
            let default_result = parameters.default_context.map(|_| ResultCode::PROVIDER_REJECTION);
            let cpr = wire::Cpr {
                version: wire::Version::VERSION_1,
                responding_selector: None,
                results: None,
                default_result,
                reason: Some(reason),
                user_data: None,
            };
            self.down.push_back(refusal(id, cpr));
            return;
        }
        self.set = set;
        self.proposed = contexts.clone();
        self.marks = marks.clone();
        self.up.push_back(Indication::Connect(Box::new(Connect {
            session: session::Connect { user_data: Rope::new(), ..connect },
            calling: coding::to_selector(parameters.calling_selector),
            called,
            contexts,
            results: marks,
            user_data: values,
        })));
        self.go(State::I2);
    }

    /// Returns whether a context is acceptable, and with which transfer syntax.
    fn mark(&self, context: &ContextDefinition) -> ContextResult {
        let has = |syntax: &&Oid| context.transfer_syntaxes.contains(syntax);
        match self.config.transfer_syntaxes.iter().find(has) {
            Some(syntax) => ContextResult::accepted(*syntax),
            None => ContextResult::provider_rejection(wire::ContextReason::TRANSFER_SYNTAXES_NOT_SUPPORTED),
        }
    }

    /// Converts an indication from the session service to one for the presentation user.
    pub(super) fn decode_indication(&mut self, below: session::Indication) -> Result<Indication, Fault> {
        use session::Indication as Below;
        Ok(match below {
            Below::Connect(_) => unreachable!("CP was validated"),
            Below::ConnectConfirm(session::Answer::Accepted(accept)) => self.on_accept(*accept)?,
            Below::ConnectConfirm(session::Answer::Refused(refuse)) => self.on_refuse(*refuse)?,
            Below::Data(rope) => {
                let values = self.set.decode(rope)?;
                if values.is_empty() {
                    return Err(Fault::Malformed);
                }
                Indication::Data(values)
            }
            Below::TypedData(rope) => Indication::TypedData(self.set.decode(rope)?),
            Below::GiveTokens { tokens, user_data } => {
                Indication::GiveTokens { tokens, user_data: self.set.decode(user_data)? }
            }
            Below::PleaseTokens { tokens, user_data } => {
                Indication::PleaseTokens { tokens, user_data: self.set.decode(user_data)? }
            }
            Below::SyncMinor { explicit, serial, user_data } => {
                Indication::SyncMinor { explicit, serial, user_data: self.set.decode(user_data)? }
            }
            Below::SyncMinorConfirm { serial, user_data } => {
                Indication::SyncMinorConfirm { serial, user_data: self.set.decode(user_data)? }
            }
            Below::Resynchronise { kind, serial, tokens, user_data } => {
                let user_data = self.on_resynchronise(user_data)?;
                Indication::Resynchronise { kind, serial, tokens, user_data }
            }
            Below::ResynchroniseConfirm { serial, tokens, user_data } => {
                let user_data = self.on_resynchronise(user_data)?;
                Indication::ResynchroniseConfirm { serial, tokens, user_data }
            }
            Below::Release { user_data } => Indication::Release { user_data: self.set.decode(user_data)? },
            Below::ReleaseConfirm { accepted, user_data } => {
                Indication::ReleaseConfirm { accepted, user_data: self.set.decode(user_data)? }
            }
            Below::UAbort { user_data } => self.on_abort(user_data)?,
            Below::PAbort { reason } => Indication::PAbort(PAbort::Session(reason)),
        })
    }

    /// Handles a CPA PPDU.
    fn on_accept(&mut self, accept: session::Accept) -> Result<Indication, Fault> {
        let (cpa, _) = wire::Cpa::read(&accept.user_data.clone().into_bytes())?;
        let parameters = cpa.parameters.ok_or(Malformed::ElementMissing)?;
        let results = parameters.results.unwrap_or_default();
        let set = ContextSet::agreed(&self.proposed, &results).ok_or(Fault::Context)?;
        let user_data = set.extract(parameters.user_data).ok_or(Fault::Context)?;
        self.set = set;
        Ok(Indication::ConnectConfirm(Answer::Accepted(Box::new(Accept {
            session: session::Accept { user_data: Rope::new(), ..accept },
            responding: coding::to_selector(parameters.responding_selector),
            results,
            user_data,
        }))))
    }

    /// Handles a CPR PPDU, or a refusal by the session service.
    fn on_refuse(&mut self, refuse: session::Refuse) -> Result<Indication, Fault> {
        let session::Refuse { id, reason, user_data } = refuse;
        if user_data.is_empty() {
            let by = Refuser::Session(reason);
            let (responding, results, user_data) = Default::default();
            return Ok(Indication::ConnectConfirm(Answer::Refused(Box::new(Refuse {
                id,
                by,
                responding,
                results,
                user_data,
            }))));
        }
        let (cpr, _) = wire::Cpr::read(&user_data.into_bytes())?;
        let results = cpr.results.unwrap_or_default();
        // §6.2.4: a CPR may omit the results; its values are then in the proposed contexts.
        let set = ContextSet::agreed(&self.proposed, &results)
            .unwrap_or_else(|| ContextSet::proposed(&self.proposed));
        Ok(Indication::ConnectConfirm(Answer::Refused(Box::new(Refuse {
            id,
            by: cpr.reason.map_or(Refuser::User, Refuser::Provider),
            responding: coding::to_selector(cpr.responding_selector),
            results,
            user_data: set.extract(cpr.user_data).ok_or(Fault::Context)?,
        }))))
    }

    /// Handles RS and RSA PPDUs.
    fn on_resynchronise(&self, user_data: Rope) -> Result<Vec<Pdv>, Fault> {
        if user_data.is_empty() {
            return Ok(Vec::new());
        }
        let (rs, _) = wire::Resynchronise::read(&user_data.into_bytes())?;
        self.set.extract(rs.user_data).ok_or(Fault::Context)
    }

    /// Handles ARU and ARP PPDUs.
    fn on_abort(&self, user_data: Rope) -> Result<Indication, Fault> {
        if user_data.is_empty() {
            return Ok(Indication::UAbort { user_data: Vec::new() });
        }
        match wire::Abort::read(&user_data.into_bytes())?.0 {
            wire::Abort::User(aru) => {
                let user_data = self.set.extract(aru.user_data).ok_or(Fault::Context)?;
                Ok(Indication::UAbort { user_data })
            }
            wire::Abort::Provider(arp) => {
                Ok(Indication::PAbort(PAbort::Peer { reason: arp.reason, event: arp.event }))
            }
        }
    }
}
