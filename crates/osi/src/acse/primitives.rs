//! Primitives of the association service (X.217).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::wire::acse::{
    AbortDiagnostic, AbortSource, AeQualifier, ApTitle, AssociateDiagnostic, AssociateResult,
    AuthenticationValue, ReleaseRequestReason, ReleaseResponseReason,
};
use crate::wire::ber::{GraphicString, Oid};
use crate::wire::presentation::{ContextDefinition, ContextResult, Pdv};

use crate::session::{self, Units};
use crate::{Selectors, presentation};

/// The name of an application entity; every part is optional.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EntityName {
    /// AP title: the application process.
    pub ap_title: Option<ApTitle>,
    /// AE qualifier: the entity within the process.
    pub ae_qualifier: Option<AeQualifier>,
    /// AP invocation identifier: distinguishes runs of the process.
    pub ap_invocation: Option<i64>,
    /// AE invocation identifier: distinguishes runs of the entity.
    pub ae_invocation: Option<i64>,
}

/// Parameters of the authentication functional unit. Including them proposes the unit.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Authentication {
    /// The authentication mechanism.
    pub mechanism: Option<Oid>,
    /// The authentication value.
    pub value: Option<AuthenticationValue>,
}

/// A-ASSOCIATE request and indication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Associate {
    /// The P-CONNECT parameters; their user data is empty here. One of the contexts is ACSE's own
    /// ([`ABSTRACT_SYNTAX`](crate::wire::acse::ABSTRACT_SYNTAX)).
    pub presentation: presentation::Connect,
    /// The application context name.
    pub application_context: Oid,
    /// The called entity.
    pub called: EntityName,
    /// The calling entity.
    pub calling: EntityName,
    /// Authentication, if its functional unit is proposed.
    pub authentication: Option<Authentication>,
    /// Implementation information.
    pub implementation: Option<GraphicString>,
    /// The user's information.
    pub user_information: Vec<Pdv>,
}

impl Associate {
    /// Builds a request without names, authentication or user information. Synchronisation point serial
    /// numbers begin with 1.
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

    /// Builds an accepting answer with these session functional units. It accepts the acceptable contexts for
    /// which `is_wanted` returns true; other parameters are absent.
    pub fn accept(&self, units: Units, is_wanted: impl Fn(&ContextDefinition) -> bool) -> AssociateAnswer {
        let proposal = &self.presentation;
        let accept = presentation::Accept {
            session: session::Accept {
                id: proposal.session.id.clone(),
                responding: proposal.session.called.clone(),
                units,
                initial_serial: proposal.session.initial_serial.filter(|_| units.has_any(Units::SYNCHRONISE)),
                ..session::Accept::default()
            },
            responding: proposal.called.clone(),
            results: self.results(is_wanted),
            user_data: Vec::new(),
        };
        let answer = presentation::Answer::Accepted(Box::new(accept));
        AssociateAnswer::new(answer, Some(self.application_context), AssociateResult::ACCEPTED)
    }

    /// Builds a rejecting answer on behalf of the user.
    pub fn refuse(
        &self,
        result: AssociateResult,
        is_wanted: impl Fn(&ContextDefinition) -> bool,
    ) -> AssociateAnswer {
        let proposal = &self.presentation;
        let refuse = presentation::Refuse {
            id: proposal.session.id.clone(),
            by: presentation::Refuser::User,
            responding: proposal.called.clone(),
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
    /// The P-CONNECT parameters, which accept or refuse as `result` does; their user data is empty here.
    pub presentation: presentation::Answer,
    /// The application context name. `None` only in a confirm after the presentation or session layer
    /// refused.
    pub application_context: Option<Oid>,
    /// Accepted or rejected.
    pub result: AssociateResult,
    /// The source and reason of the result. In a response the source is always the user.
    pub diagnostic: Option<AssociateDiagnostic>,
    /// The responding entity.
    pub responding: EntityName,
    /// Authentication, if its functional unit was proposed.
    pub authentication: Option<Authentication>,
    /// Implementation information.
    pub implementation: Option<GraphicString>,
    /// The user's information.
    pub user_information: Vec<Pdv>,
}

impl AssociateAnswer {
    /// Builds an answer without names, a diagnostic, authentication or user information.
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
    /// The source of the abort; always the user in a request.
    pub source: AbortSource,
    /// The diagnostic; present only with the authentication functional unit.
    pub diagnostic: Option<AbortDiagnostic>,
    /// The user's information.
    pub user_information: Vec<Pdv>,
}

/// Requests and responses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "at most two exist, and only while an association is being established"
)]
pub enum Request {
    /// A-ASSOCIATE request.
    Associate(Associate),
    /// A-ASSOCIATE response.
    AssociateResponse(AssociateAnswer),
    /// A-RELEASE request.
    Release {
        /// The reason.
        reason: Option<ReleaseRequestReason>,
        /// The user's information.
        user_information: Vec<Pdv>,
    },
    /// A-RELEASE response.
    ReleaseResponse {
        /// Whether the release is accepted; false is allowed only with the session layer's negotiated release
        /// functional unit.
        accepted: bool,
        /// The reason.
        reason: Option<ReleaseResponseReason>,
        /// The user's information.
        user_information: Vec<Pdv>,
    },
    /// A-ABORT request.
    Abort(Abort),
}

/// Indications and confirmations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "at most two exist, and only while an association is being established"
)]
pub enum Indication {
    /// A-ASSOCIATE indication.
    Associate(Associate),
    /// A-ASSOCIATE confirm.
    AssociateConfirm(AssociateAnswer),
    /// A-RELEASE indication.
    Release {
        /// The reason.
        reason: Option<ReleaseRequestReason>,
        /// The user's information.
        user_information: Vec<Pdv>,
    },
    /// A-RELEASE confirm.
    ReleaseConfirm {
        /// Whether the association has ended.
        accepted: bool,
        /// The reason.
        reason: Option<ReleaseResponseReason>,
        /// The user's information.
        user_information: Vec<Pdv>,
    },
    /// A-ABORT indication.
    Abort(Abort),
    /// A-P-ABORT indication.
    PAbort(presentation::PAbort),
}
