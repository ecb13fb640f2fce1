//! Transmit path: encodes requests and responses as PPDUs.

use super::coding::{self, ContextSet};
use super::machine::{Presentation, refusal};
use super::primitives::{Accept, Connect, Refuse, Refuser};
use super::state::State;
use crate::wire::ber::Asn1;
use crate::wire::presentation as wire;
use crate::wire::presentation::{Aru, ContextDefinition, ContextResult, Pdv, ResultCode};
use crate::{RequestError, session};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::Rope;

impl Presentation {
    pub(super) fn connect(&mut self, connect: Connect) -> Result<session::Request, RequestError> {
        let Connect { session, calling, called, contexts, results: _, user_data } = connect;
        if contexts.len() > self.config.contexts_max {
            return Err(RequestError::Length);
        }
        let is_odd = |context: &ContextDefinition| context.id > 0 && context.id % 2 == 1;
        let is_new = |(place, context): (usize, &ContextDefinition)| {
            contexts[..place].iter().all(|other| other.id != context.id)
        };
        // §6.2.2.7: an initiator's context identifiers are odd and distinct.
        if !contexts.iter().all(|context| is_odd(context) && !context.transfer_syntaxes.is_empty())
            || !contexts.iter().enumerate().all(is_new)
        {
            return Err(RequestError::Value);
        }
        let set = ContextSet::proposed(&contexts);
        let user_data = set.embed(user_data, true)?;
        let parameters = wire::CpParameters {
            version: wire::Version::VERSION_1,
            calling_selector: coding::selector(&calling),
            called_selector: coding::selector(&called),
            contexts: (!contexts.is_empty()).then(|| contexts.clone()),
            default_context: None,
            requirements: None,
            session_requirements: None,
            user_data,
        };
        let cp = wire::Cp { mode: wire::ModeSelector::NORMAL, parameters: Some(parameters) };
        self.set = set;
        self.proposed = contexts;
        Ok(session::Request::Connect(Box::new(session::Connect { user_data: cp.to_rope(), ..session })))
    }

    pub(super) fn accept(&mut self, accept: Accept) -> Result<session::Request, RequestError> {
        let Accept { session, responding, mut results, user_data } = accept;
        self.settle(&mut results)?;
        let set = ContextSet::agreed(&self.proposed, &results).ok_or(RequestError::Value)?;
        let parameters = wire::CpaParameters {
            version: wire::Version::VERSION_1,
            responding_selector: coding::selector(&responding),
            results: (!results.is_empty()).then_some(results),
            requirements: None,
            session_requirements: None,
            user_data: set.embed(user_data, false)?,
        };
        let cpa = wire::Cpa { mode: wire::ModeSelector::NORMAL, parameters: Some(parameters) };
        self.set = set;
        let accept = session::Accept { user_data: cpa.to_rope(), ..session };
        Ok(session::Request::ConnectResponse(session::Answer::Accepted(Box::new(accept))))
    }

    pub(super) fn refuse(&mut self, refuse: Refuse) -> Result<session::Request, RequestError> {
        let Refuse { id, by, responding, mut results, user_data } = refuse;
        if by != Refuser::User {
            return Err(RequestError::Value);
        }
        if results.is_empty() {
            results = self.marks.clone();
        }
        self.settle(&mut results)?;
        let set = ContextSet::agreed(&self.proposed, &results).ok_or(RequestError::Value)?;
        let cpr = wire::Cpr {
            version: wire::Version::VERSION_1,
            responding_selector: coding::selector(&responding),
            results: (!results.is_empty()).then_some(results),
            default_result: None,
            reason: None,
            user_data: set.embed(user_data, false)?,
        };
        Ok(refusal(id, cpr))
    }

    /// Checks that the user's results match the proposal and the results that this machine determined.
    fn settle(&self, results: &mut [ContextResult]) -> Result<(), RequestError> {
        if results.len() != self.marks.len() {
            return Err(RequestError::Value);
        }
        for (result, mark) in results.iter_mut().zip(&self.marks) {
            // A user may reject an acceptable context, but must not change anything else, because the machine
            // selects transfer syntaxes (§6.2.6.1).
            if result.result == ResultCode::USER_REJECTION && mark.is_acceptance() {
                *result = ContextResult::USER_REJECTION;
            } else if result.result == mark.result {
                result.clone_from(mark);
            } else {
                return Err(RequestError::Value);
            }
        }
        Ok(())
    }

    pub(super) fn resynchronise(&self, user_data: Vec<Pdv>) -> Result<Rope, RequestError> {
        let user_data = self.set.embed(user_data, false)?;
        Ok(wire::Resynchronise { contexts: None, user_data }.to_rope())
    }

    pub(super) fn abort(&mut self, user_data: Vec<Pdv>) -> Result<Rope, RequestError> {
        let contexts = self.set.identifiers(&user_data);
        let is_proposal = self.state != State::T0;
        let user_data = self.set.embed(user_data, is_proposal)?;
        let contexts = user_data.is_some().then_some(contexts);
        let aru = wire::Abort::User(Aru { contexts, user_data }).to_rope();
        if aru.len() <= self.abort_bytes_max {
            return Ok(aru);
        }
        // §6.4.2.2, note: user data that the session service cannot carry is omitted.
        self.counters.abort_data_dropped += 1;
        Ok(wire::Abort::User(Aru { contexts: None, user_data: None }).to_rope())
    }
}
