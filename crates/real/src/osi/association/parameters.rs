//! What is asked for, what is answered, and what can go wrong.

use kiban_board::osi::tower::TowerConfig;
use kiban_stack::osi::acse::{Abort, Associate, AssociateAnswer, Authentication, EntityName};
use kiban_stack::osi::presentation::{self, PAbort, Refuser};
use kiban_stack::osi::session::{self, AbortReason, Units};
use kiban_stack::osi::transport::Disconnected;
use kiban_stack::osi::{Misuse, Selectors};
use kiban_wire::Malformed;
use kiban_wire::acse::{ABSTRACT_SYNTAX, AbortSource, AssociateDiagnostic};
use kiban_wire::ber::Oid;
use kiban_wire::presentation::{BER, ContextDefinition, Pdv};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio_rustls::TlsConnector;

/// TLS under an association that is asked for.
#[derive(Clone)]
pub struct Tls {
    /// See [`secure::connector`](crate::osi::secure::connector).
    pub connector: TlsConnector,
    /// The name that the peer's certificate has to bear.
    pub name: ServerName<'static>,
}

/// An association that is asked for.
#[derive(Clone)]
pub struct Parameters {
    /// How the layers are set.
    pub tower: TowerConfig,
    /// The selectors of this end.
    pub calling: Selectors,
    /// The peer's.
    pub called: Selectors,
    /// What the two want to do with each other.
    pub application_context: Oid,
    /// The contexts that are wanted, ACSE's among them.
    pub contexts: Vec<ContextDefinition>,
    /// Session's functional units.
    pub units: Units,
    /// Who calls.
    pub calling_name: EntityName,
    /// Who is called.
    pub called_name: EntityName,
    /// How the caller proves who it is.
    pub authentication: Option<Authentication>,
    /// The user's.
    pub user_information: Vec<Pdv>,
    /// How long it may take until the association is there.
    pub timeout: Duration,
    /// TLS, if there is to be any.
    pub tls: Option<Tls>,
}

impl Parameters {
    /// An association for values of these abstract syntaxes, all in BER, with session's kernel and duplex. ACSE's own context has
    /// the number 1; the others are 3, 5, 7 and so on.
    pub fn new(application_context: Oid, abstract_syntaxes: &[Oid]) -> Parameters {
        let all = std::iter::once(&ABSTRACT_SYNTAX).chain(abstract_syntaxes);
        let contexts = (1..).step_by(2).zip(all).map(|(id, syntax)| ContextDefinition {
            id,
            abstract_syntax: *syntax,
            transfer_syntaxes: vec![BER],
        });
        Parameters {
            tower: TowerConfig::default(),
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

    /// The number of the context that is asked for an abstract syntax: values of the user information name it.
    pub fn context(&self, abstract_syntax: Oid) -> Option<i64> {
        let context = self.contexts.iter().find(|context| context.abstract_syntax == abstract_syntax)?;
        Some(context.id)
    }

    /// Selectors of transport are the session machine's to say.
    pub(super) fn into_tower(self) -> (TowerConfig, Associate) {
        let mut tower = self.tower.clone();
        tower.session.transport_calling = self.calling.transport.clone();
        tower.session.transport_called = self.called.transport.clone();
        (tower, self.into_associate())
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

/// Which contexts are wanted of those that the peer asks for.
#[derive(Clone, Default, Debug)]
pub enum Wanted {
    /// All that can be had.
    #[default]
    All,
    /// Those of these abstract syntaxes; ACSE's always.
    Only(Vec<Oid>),
}

impl Wanted {
    fn has(&self, abstract_syntax: Oid) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Only(syntaxes) => {
                abstract_syntax == ABSTRACT_SYNTAX || syntaxes.contains(&abstract_syntax)
            }
        }
    }
}

/// An association that is granted.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// Which contexts are wanted.
    pub contexts: Wanted,
    /// Session's functional units that are wanted, of those that the peer asks for.
    pub units: Units,
    /// What the two do with each other; `None`: what was asked for.
    pub application_context: Option<Oid>,
    /// Who answers.
    pub name: EntityName,
    /// How the answerer proves who it is, if the peer asked for that.
    pub authentication: Option<Authentication>,
    /// The user's.
    pub user_information: Vec<Pdv>,
}

impl Default for Acceptance {
    fn default() -> Acceptance {
        Acceptance {
            contexts: Wanted::All,
            units: session::OFFERED,
            application_context: None,
            name: EntityName::default(),
            authentication: None,
            user_information: Vec::new(),
        }
    }
}

impl Acceptance {
    /// The answer to what was asked.
    pub(super) fn answer(self, asked: &Associate) -> AssociateAnswer {
        let units = asked.presentation.session.units.and(self.units).or(Units::DUPLEX);
        let granted = asked.accept(units, |context| self.contexts.has(context.abstract_syntax));
        AssociateAnswer {
            application_context: self.application_context.or(granted.application_context),
            responding: self.name,
            authentication: self.authentication,
            user_information: self.user_information,
            ..granted
        }
    }
}

/// Why there is no association, or no more.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The connection below.
    Io(Arc<io::Error>),
    /// It took too long.
    Timeout,
    /// What came is no TPKT: the peer does not speak RFC 1006.
    NotTpkt(Malformed),
    /// The peer does not want the association.
    Refused(Box<AssociateAnswer>),
    /// The peer, or its machine, has aborted it.
    Aborted(Box<Abort>),
    /// Transport has refused its connection, or ended it, and said why.
    Disconnected(Disconnected),
    /// The layers below have.
    Broken(PAbort),
    /// It has ended before.
    Over,
    /// It cannot be asked for now, or not so.
    Misuse(Misuse),
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

impl From<Misuse> for Failure {
    fn from(misuse: Misuse) -> Failure {
        Failure::Misuse(misuse)
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
            Failure::Aborted(_) => {
                f.write_str("ACSE aborted the association: a rule of its protocol was broken")
            }
            Failure::Disconnected(why) => {
                write!(f, "transport refused the connection or ended it: {why}")
            }
            Failure::Broken(PAbort::Session(AbortReason::TransportDisconnect)) => {
                f.write_str("the peer refused the transport connection or closed it: is the selector right?")
            }
            Failure::Broken(PAbort::Session(reason)) => write!(f, "session aborted: {reason:?}"),
            Failure::Broken(PAbort::Here { reason, .. }) => {
                write!(f, "the peer broke a rule of presentation: {reason:?}")
            }
            Failure::Broken(PAbort::Peer { reason, .. }) => {
                write!(f, "the peer's presentation aborted: {reason:?}")
            }
            Failure::Over => f.write_str("the association has ended"),
            Failure::Misuse(misuse) => write!(f, "{misuse}"),
        }
    }
}

fn refused(f: &mut fmt::Formatter<'_>, answer: &AssociateAnswer) -> fmt::Result {
    if let presentation::Answer::Refused(refuse) = &answer.presentation {
        match refuse.by {
            Refuser::Session(reason) => return write!(f, "session refused the connection: {reason:?}"),
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
