//! The set of contexts, and the encoding of user data in these contexts (§8.4).

use alloc::vec::Vec;

use crate::wire::ber::Oid;
use crate::wire::presentation::{
    ContextDefinition, ContextIdentifier, ContextResult, Pdv, PdvValue, UserData,
};
use kiban_base::{Malformed, Rope};

use crate::{RequestError, Selector};

/// The reason why received data cannot be processed.
pub(super) enum Fault {
    /// Not a valid PPDU.
    Malformed,
    /// A value is in a context that does not exist, or the results do not match the proposal.
    Context,
}

impl From<Malformed> for Fault {
    fn from(_rule: Malformed) -> Fault {
        Fault::Malformed
    }
}

/// Contexts that are proposed or defined, each with its identifier, abstract syntax and transfer syntax.
#[derive(Clone, Default, Debug)]
pub(super) struct ContextSet {
    contexts: Vec<(i64, Oid, Oid)>,
}

impl ContextSet {
    /// Returns the set of all proposed contexts, each with its first transfer syntax.
    pub(super) fn proposed(contexts: &[ContextDefinition]) -> ContextSet {
        let of = |context: &ContextDefinition| {
            let transfer_syntax = context.transfer_syntaxes.first().copied().unwrap_or(super::BER);
            (context.id, context.abstract_syntax, transfer_syntax)
        };
        ContextSet { contexts: contexts.iter().map(of).collect() }
    }

    /// Returns the accepted contexts, or `None` if the results do not match the proposal: their number
    /// differs, or a transfer syntax was not proposed.
    pub(super) fn agreed(proposed: &[ContextDefinition], results: &[ContextResult]) -> Option<ContextSet> {
        if proposed.len() != results.len() {
            return None;
        }
        let mut contexts = Vec::new();
        for (context, result) in proposed.iter().zip(results).filter(|(_, result)| result.is_acceptance()) {
            // A result without a transfer syntax is valid only if one syntax was proposed.
            let transfer_syntax = match (result.transfer_syntax, &context.transfer_syntaxes[..]) {
                (Some(syntax), known) if known.contains(&syntax) => syntax,
                (None, &[only]) => only,
                _ => return None,
            };
            contexts.push((context.id, context.abstract_syntax, transfer_syntax));
        }
        Some(ContextSet { contexts })
    }

    pub(super) fn contexts(&self) -> &[(i64, Oid, Oid)] {
        &self.contexts
    }

    /// Returns the context list for an ARU, which gives the transfer syntax of each context that the values
    /// use.
    pub(super) fn identifiers(&self, values: &[Pdv]) -> Vec<ContextIdentifier> {
        let used = self.contexts.iter().filter(|(id, ..)| values.iter().any(|pdv| pdv.context == *id));
        used.map(|&(id, _, transfer_syntax)| ContextIdentifier { id, transfer_syntax }).collect()
    }

    /// Returns the context of values that do not name one: the only context in the set, or none if the set is
    /// empty.
    fn sole(&self) -> Option<i64> {
        match self.contexts[..] {
            [] => Some(Pdv::NO_CONTEXT),
            [(id, ..)] => Some(id),
            _ => None,
        }
    }

    fn has(&self, pdv: &Pdv) -> bool {
        self.contexts.iter().any(|(id, ..)| *id == pdv.context)
    }

    /// Encodes user data that makes up the whole user data of a session primitive.
    pub(super) fn encode(&self, values: Vec<Pdv>) -> Result<Rope, RequestError> {
        Ok(match self.embed(values, false)? {
            None => Rope::new(),
            // §8.4.1.4 c: only the contents octets are sent.
            Some(UserData::Simple(rope)) => rope,
            Some(full) => full.into_rope(),
        })
    }

    /// Encodes user data that is an element of a PPDU. In a CP, it is simply encoded only if no context is
    /// proposed (§8.4.2.3).
    pub(super) fn embed(
        &self,
        values: Vec<Pdv>,
        is_proposal: bool,
    ) -> Result<Option<UserData>, RequestError> {
        if values.is_empty() {
            return Ok(None);
        }
        let sole = self.sole().filter(|&sole| !is_proposal || sole == Pdv::NO_CONTEXT);
        match sole {
            Some(sole) => {
                let mut joined = Rope::new();
                for pdv in values {
                    if pdv.context != sole || matches!(pdv.value, PdvValue::Arbitrary { unused: 1.., .. }) {
                        return Err(RequestError::Value);
                    }
                    joined.append(pdv.into_octets());
                }
                Ok(Some(UserData::Simple(joined)))
            }
            None if values.iter().all(|pdv| self.has(pdv)) => Ok(Some(UserData::Full(values))),
            None => Err(RequestError::Value),
        }
    }

    /// Decodes values that make up the whole user data of a session primitive.
    pub(super) fn decode(&self, rope: Rope) -> Result<Vec<Pdv>, Fault> {
        if rope.is_empty() {
            return Ok(Vec::new());
        }
        let Some(sole) = self.sole() else {
            return self.extract(Some(UserData::from_rope(rope)?)).ok_or(Fault::Context);
        };
        // Some peers use full encoding where they should use simple encoding; this is accepted if the values
        // name the only context.
        match UserData::from_rope(rope.clone()) {
            Ok(UserData::Full(values)) if values.iter().all(|pdv| pdv.context == sole) => Ok(values),
            _ => Ok([Pdv::octet_aligned(sole, rope)].into()),
        }
    }

    /// Returns the values in user data that is an element of a PPDU, or `None` if a context does not exist.
    pub(super) fn extract(&self, data: Option<UserData>) -> Option<Vec<Pdv>> {
        match data {
            None => Some(Vec::new()),
            Some(UserData::Full(values)) => values.iter().all(|pdv| self.has(pdv)).then_some(values),
            Some(UserData::Simple(rope)) => self.sole().map(|sole| [Pdv::octet_aligned(sole, rope)].into()),
        }
    }
}

pub(super) fn selector(selector: &Selector) -> Option<Vec<u8>> {
    (!selector.is_empty()).then(|| selector.bytes().to_vec())
}

pub(super) fn to_selector(bytes: Option<Vec<u8>>) -> Selector {
    bytes.map_or(Selector::NONE, Selector::from)
}
