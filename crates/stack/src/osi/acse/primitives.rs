//! The association service (X.217).

use alloc::boxed::Box;
use alloc::vec::Vec;

use kiban_wire::acse::{
    AbortDiagnostic, AbortSource, AeQualifier, ApTitle, AssociateDiagnostic, AssociateResult,
    AuthenticationValue, ReleaseRequestReason, ReleaseResponseReason,
};
use kiban_wire::ber::{GraphicString, Oid};
use kiban_wire::presentation::{ContextDefinition, ContextResult, Pdv};

use crate::osi::session::{self, Units};
use crate::osi::{Selectors, presentation};

/// Who one is: all of it may be left out.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EntityName {
    /// The application process.
    pub ap_title: Option<ApTitle>,
    /// Which entity of it.
    pub ae_qualifier: Option<AeQualifier>,
    /// Which run of the process.
    pub ap_invocation: Option<i64>,
    /// Which run of the entity.
    pub ae_invocation: Option<i64>,
}

/// The authentication functional unit's parameters: there if it is wanted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Authentication {
    /// How one proves who one is.
    pub mechanism: Option<Oid>,
    /// The proof.
    pub value: Option<AuthenticationValue>,
}

/// A-ASSOCIATE request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Associate {
    /// What presentation's P-CONNECT has; its user data are empty here. One of its contexts is ACSE's own
    /// ([`ABSTRACT_SYNTAX`](kiban_wire::acse::ABSTRACT_SYNTAX)).
    pub presentation: presentation::Connect,
    /// What the two want to do with each other.
    pub application_context: Oid,
    /// Who is called.
    pub called: EntityName,
    /// Who calls.
    pub calling: EntityName,
    /// With the authentication functional unit.
    pub authentication: Option<Authentication>,
    /// About the implementation.
    pub implementation: Option<GraphicString>,
    /// The user's.
    pub user_information: Vec<Pdv>,
}

impl Associate {
    /// A request of nobody in particular, without proof and user information; points are counted from 1.
    pub fn new(
        application_context: Oid,
        calling: Selectors,
        called: Selectors,
        contexts: Vec<ContextDefinition>,
        units: Units,
    ) -> Associate {
        Associate {
            presentation: presentation::Connect {
                session: session::Connect {
                    calling: calling.session,
                    called: called.session,
                    units,
                    initial_serial: units.has_any(Units::SYNCHRONISE).then_some(1),
                    ..session::Connect::default()
                },
                calling: calling.presentation,
                called: called.presentation,
                contexts,
                ..presentation::Connect::default()
            },
            application_context,
            called: EntityName::default(),
            calling: EntityName::default(),
            authentication: None,
            implementation: None,
            user_information: Vec::new(),
        }
    }

    /// The answer that grants what was asked, with these of session's units, and with those contexts that are wanted of those
    /// that can be had; who answers says no more.
    pub fn accept(&self, units: Units, is_wanted: impl Fn(&ContextDefinition) -> bool) -> AssociateAnswer {
        let asked = &self.presentation;
        let accept = presentation::Accept {
            session: session::Accept {
                id: asked.session.id.clone(),
                responding: asked.session.called.clone(),
                units,
                initial_serial: asked.session.initial_serial.filter(|_| units.has_any(Units::SYNCHRONISE)),
                ..session::Accept::default()
            },
            responding: asked.called.clone(),
            results: self.results(is_wanted),
            user_data: Vec::new(),
        };
        let answer = presentation::Answer::Accepted(Box::new(accept));
        AssociateAnswer::new(answer, Some(self.application_context), AssociateResult::ACCEPTED)
    }

    /// The answer that grants nothing: the user's.
    pub fn refuse(
        &self,
        result: AssociateResult,
        is_wanted: impl Fn(&ContextDefinition) -> bool,
    ) -> AssociateAnswer {
        let asked = &self.presentation;
        let refuse = presentation::Refuse {
            id: asked.session.id.clone(),
            by: presentation::Refuser::User,
            responding: asked.called.clone(),
            results: self.results(is_wanted),
            user_data: Vec::new(),
        };
        let answer = presentation::Answer::Refused(Box::new(refuse));
        AssociateAnswer::new(answer, Some(self.application_context), result)
    }

    fn results(&self, is_wanted: impl Fn(&ContextDefinition) -> bool) -> Vec<ContextResult> {
        let answer = |(context, result): (&ContextDefinition, &ContextResult)| {
            let refuse = result.is_acceptance() && !is_wanted(context);
            if refuse { ContextResult::USER_REJECTION } else { result.clone() }
        };
        self.presentation.contexts.iter().zip(&self.presentation.results).map(answer).collect()
    }
}

/// A-ASSOCIATE response and confirm, accepted or rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssociateAnswer {
    /// What presentation's P-CONNECT has, acceptance or refusal as `result`; its user data are empty here.
    pub presentation: presentation::Answer,
    /// What the two do with each other. `None` only in a confirm after presentation or session has refused.
    pub application_context: Option<Oid>,
    /// Yes or no.
    pub result: AssociateResult,
    /// Who says so, and why. In a response it is always the user.
    pub diagnostic: Option<AssociateDiagnostic>,
    /// Who answers.
    pub responding: EntityName,
    /// With the authentication functional unit, if it was asked for.
    pub authentication: Option<Authentication>,
    /// About the implementation.
    pub implementation: Option<GraphicString>,
    /// The user's.
    pub user_information: Vec<Pdv>,
}

impl AssociateAnswer {
    /// An answer of nobody in particular, without reason, proof and user information.
    pub fn new(
        presentation: presentation::Answer,
        application_context: Option<Oid>,
        result: AssociateResult,
    ) -> AssociateAnswer {
        AssociateAnswer {
            presentation,
            application_context,
            result,
            diagnostic: None,
            responding: EntityName::default(),
            authentication: None,
            implementation: None,
            user_information: Vec::new(),
        }
    }
}

/// A-ABORT request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abort {
    /// Who aborts. A request is always the user's.
    pub source: AbortSource,
    /// Why: only with the authentication functional unit.
    pub diagnostic: Option<AbortDiagnostic>,
    /// The user's.
    pub user_information: Vec<Pdv>,
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "two of them live for as long as an association is being made")]
pub enum Request {
    /// A-ASSOCIATE request.
    Associate(Associate),
    /// A-ASSOCIATE response.
    AssociateResponse(AssociateAnswer),
    /// A-RELEASE request.
    Release {
        /// Why.
        reason: Option<ReleaseRequestReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// A-RELEASE response.
    ReleaseResponse {
        /// Whether the association may end; only with session's negotiated release may it be false.
        accepted: bool,
        /// What of it.
        reason: Option<ReleaseResponseReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// A-ABORT request.
    Abort(Abort),
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "two of them live for as long as an association is being made")]
pub enum Indication {
    /// A-ASSOCIATE indication.
    Associate(Associate),
    /// A-ASSOCIATE confirm.
    AssociateConfirm(AssociateAnswer),
    /// A-RELEASE indication.
    Release {
        /// Why.
        reason: Option<ReleaseRequestReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// A-RELEASE confirm.
    ReleaseConfirm {
        /// Whether the association has ended.
        accepted: bool,
        /// What of it.
        reason: Option<ReleaseResponseReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// A-ABORT indication.
    Abort(Abort),
    /// A-P-ABORT indication.
    PAbort(presentation::PAbort),
}
