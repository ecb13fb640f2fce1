//! The parameters of association requests and answers, and the ways in which associations fail.

use kiban_base::Malformed;
use kiban_osi::acse::{Abort, Associate, AssociateAnswer, Authentication, EntityName};
use kiban_osi::presentation::{self, PAbort, Refuser};
use kiban_osi::session::{self, AbortReason, Units};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::transport::Disconnected;
use kiban_osi::wire::acse::{ABSTRACT_SYNTAX, AbortSource, AssociateDiagnostic};
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::presentation::{BER, ContextDefinition, Pdv};
use kiban_osi::{RequestError, Selectors};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio_rustls::TlsConnector;

/// TLS settings for an association that this end initiates.
#[derive(Clone)]
pub struct Tls {
    /// See [`secure::connector`](crate::secure::connector).
    pub connector: TlsConnector,
    /// The name for which the peer's certificate must be issued.
    pub name: ServerName<'static>,
}

/// Parameters of an association that this end initiates.
#[derive(Clone)]
pub struct Parameters {
    /// Settings of the layers.
    pub stack: StackConfig,
    /// The selectors of this end.
    pub calling: Selectors,
    /// The peer's selectors.
    pub called: Selectors,
    /// The application context name.
    pub application_context: Oid,
    /// The proposed presentation contexts, including ACSE's.
    pub contexts: Vec<ContextDefinition>,
    /// The proposed session functional units.
    pub units: Units,
    /// The calling AP title, AE qualifier and other parts of the name.
    pub calling_name: EntityName,
    /// The called AP title, AE qualifier and other parts of the name.
    pub called_name: EntityName,
    /// The caller's authentication value.
    pub authentication: Option<Authentication>,
    /// User information of the A-ASSOCIATE.
    pub user_information: Vec<Pdv>,
    /// The time limit for establishing the association.
    pub timeout: Duration,
    /// TLS settings; `None` connects without TLS.
    pub tls: Option<Tls>,
}

impl Parameters {
    /// Builds parameters for these abstract syntaxes, all encoded in BER, and for the session functional
    /// units kernel and duplex. ACSE's own context has the identifier 1; the others have 3, 5, 7 and so on.
    pub fn new(application_context: Oid, abstract_syntaxes: &[Oid]) -> Parameters {
        let all = std::iter::once(&ABSTRACT_SYNTAX).chain(abstract_syntaxes);
        let contexts = (1..).step_by(2).zip(all).map(|(id, syntax)| ContextDefinition {
            id,
            abstract_syntax: *syntax,
            transfer_syntaxes: vec![BER],
        });
        Parameters {
            stack: StackConfig::default(),
            calling: Selectors::default(),
            called: Selectors::default(),
            application_context,
            contexts: contexts.collect(),
            units: Units::DUPLEX,
            calling_name: EntityName::default(),
            called_name: EntityName::default(),
            authentication: None,
            user_information: Vec::new(),
            timeout: Duration::from_secs(30),
            tls: None,
        }
    }

    /// Returns the proposed context identifier for an abstract syntax. Values in the user information need
    /// it.
    pub fn context(&self, abstract_syntax: Oid) -> Option<i64> {
        let context = self.contexts.iter().find(|context| context.abstract_syntax == abstract_syntax)?;
        Some(context.id)
    }

    /// Splits the parameters by layer; the session machine passes the transport selectors down.
    pub(super) fn into_stack_config(self) -> (StackConfig, Associate) {
        let mut stack = self.stack.clone();
        stack.session.transport_calling = self.calling.transport.clone();
        stack.session.transport_called = self.called.transport.clone();
        (stack, self.into_associate())
    }

    fn into_associate(self) -> Associate {
        Associate {
            called: self.called_name,
            calling: self.calling_name,
            authentication: self.authentication,
            user_information: self.user_information,
            ..Associate::new(self.application_context, self.calling, self.called, self.contexts, self.units)
        }
    }
}

/// Selects which of the peer's proposed contexts to accept.
#[derive(Clone, Default, Debug)]
pub enum AcceptedContexts {
    /// Accept all contexts that these layers support.
    #[default]
    All,
    /// Accept the contexts with these abstract syntaxes, and always ACSE's.
    Only(Vec<Oid>),
}

impl AcceptedContexts {
    fn has(&self, abstract_syntax: Oid) -> bool {
        match self {
            AcceptedContexts::All => true,
            AcceptedContexts::Only(syntaxes) => {
                abstract_syntax == ABSTRACT_SYNTAX || syntaxes.contains(&abstract_syntax)
            }
        }
    }
}

/// Parameters of an accepted association.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// Which contexts to accept.
    pub contexts: AcceptedContexts,
    /// The session functional units to accept, out of those proposed.
    pub units: Units,
    /// The application context name; `None` repeats the proposed one.
    pub application_context: Option<Oid>,
    /// The responding AP title, AE qualifier and other parts of the name.
    pub name: EntityName,
    /// The responder's authentication value, if the peer asked for one.
    pub authentication: Option<Authentication>,
    /// User information of the answer.
    pub user_information: Vec<Pdv>,
}

impl Default for Acceptance {
    fn default() -> Acceptance {
        Acceptance {
            contexts: AcceptedContexts::All,
            units: session::OFFERED,
            application_context: None,
            name: EntityName::default(),
            authentication: None,
            user_information: Vec::new(),
        }
    }
}

impl Acceptance {
    /// Builds the answer to a request.
    pub(super) fn answer(self, proposal: &Associate) -> AssociateAnswer {
        let units = proposal.presentation.session.units.and(self.units).or(Units::DUPLEX);
        let granted = proposal.accept(units, |context| self.contexts.has(context.abstract_syntax));
        AssociateAnswer {
            application_context: self.application_context.or(granted.application_context),
            responding: self.name,
            authentication: self.authentication,
            user_information: self.user_information,
            ..granted
        }
    }
}

/// The reason why an association was not established, or has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The connection below failed.
    Io(Arc<io::Error>),
    /// The time limit expired.
    Timeout,
    /// The bytes received are not a TPKT: the peer does not speak RFC 1006.
    NotTpkt(Malformed),
    /// The peer refused the association.
    Refused(Box<AssociateAnswer>),
    /// The user or the ACSE machine at the other end aborted the association.
    Aborted(Box<Abort>),
    /// The transport connection was refused or ended, with this reason.
    Disconnected(Disconnected),
    /// A layer below ACSE, at either end, aborted the association.
    Broken(PAbort),
    /// The association had already ended.
    Over,
    /// The request is not allowed in this state, or has invalid parameters.
    InvalidRequest(RequestError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(Arc::new(error))
    }
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Failure {
        io::Error::from(kind).into()
    }
}

impl From<RequestError> for Failure {
    fn from(misuse: RequestError) -> Failure {
        Failure::InvalidRequest(misuse)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Io(error) => write!(f, "{error}"),
            Failure::Timeout => f.write_str("the peer did not answer in time"),
            Failure::NotTpkt(rule) => write!(f, "the peer does not speak RFC 1006 (TPKT: {rule:?})"),
            Failure::Refused(answer) => refused(f, answer),
            Failure::Aborted(abort) if abort.source == AbortSource::SERVICE_USER => {
                f.write_str("the peer aborted the association")
            }
            Failure::Aborted(_) => f.write_str("the peer's ACSE aborted the association: protocol error"),
            Failure::Disconnected(why) => {
                write!(f, "transport refused or ended the connection: {why}")
            }
            Failure::Broken(PAbort::Session(AbortReason::TransportDisconnect)) => {
                f.write_str("the peer refused or closed the transport connection: check the selector")
            }
            Failure::Broken(PAbort::Session(reason)) => {
                write!(f, "the session layer aborted the association: {reason:?}")
            }
            Failure::Broken(PAbort::Here { reason, .. }) => {
                write!(f, "the peer violated the presentation protocol: {reason:?}")
            }
            Failure::Broken(PAbort::Peer { reason, .. }) => {
                write!(f, "the peer's presentation layer aborted the association: {reason:?}")
            }
            Failure::Over => f.write_str("the association has ended"),
            Failure::InvalidRequest(misuse) => write!(f, "{misuse}"),
        }
    }
}

fn refused(f: &mut fmt::Formatter<'_>, answer: &AssociateAnswer) -> fmt::Result {
    if let presentation::Answer::Refused(refuse) = &answer.presentation {
        match refuse.by {
            Refuser::Session(reason) => return write!(f, "session refused the connection: {reason}"),
            Refuser::Provider(reason) => return write!(f, "presentation refused the connection: {reason:?}"),
            Refuser::User => {}
        }
    }
    f.write_str("the peer refused the association")?;
    match &answer.diagnostic {
        Some(AssociateDiagnostic::ServiceUser(diagnostic)) => write!(f, ": {diagnostic:?}"),
        Some(AssociateDiagnostic::ServiceProvider(diagnostic)) => write!(f, " (ACSE: {diagnostic:?})"),
        None => Ok(()),
    }
}

impl std::error::Error for Failure {}
