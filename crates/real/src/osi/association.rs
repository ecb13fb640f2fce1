//! Associations for whatever stands on ACSE: MMS, X.400, X.500, CMIP, protocols of one's own.
//!
//! Goal      a program that knows presentation data values gets an association over RFC 1006, with or without TLS, and need
//!           not know the six layers below it.
//! Asks      [`Association::connect`] with [`Parameters`]: who calls whom, what the two want to do, which contexts.
//! Answers   [`Listener::accept`] gives an [`Arrival`]; [`Arrival::asked`] waits for its A-ASSOCIATE; [`Asked::accept`] or
//!           [`Asked::refuse`] answers. An arrival that says nothing holds up nobody else.
//! Uses      [`Association::send`] and [`Association::receive`], which may be called from different tasks: all methods take `&self`.
//! Ends      [`Association::release`] in order, [`Association::abort`] at once. One that is dropped is aborted.
//! Turn      protocol work is done by whoever calls; a task of the association's own moves bytes ([`pump`](super::pump)).
//! Limits    [`OUTGOING_BYTES_MAX`] wait to be sent, else [`Association::send`] waits; with [`INCOMING_BYTES_MAX`] that nobody has
//!           received, or [`INCOMING_COUNT_MAX`] indications, nothing more is read; one value is as long as [`TowerConfig`]
//!           lets a service data unit be.
//! Left out  presentation's context management; negotiation of application contexts.

mod driven;
mod listener;
mod parameters;
#[cfg(test)]
mod tests;

pub use listener::{Arrival, Asked, Listener};
pub use parameters::{Acceptance, Failure, Parameters, Tls, Wanted};

use super::pump::pump;
use super::socket;
use crate::Clock;
use driven::{Driven, Shared, State};
use kiban_board::osi::tower::{Request, TowerConfig};
use kiban_stack::osi::acse::{self, AssociateAnswer};
use kiban_stack::osi::presentation;
use kiban_wire::acse::{AbortSource, ReleaseRequestReason, ReleaseResponseReason};
use kiban_wire::ber::Oid;
use kiban_wire::presentation::Pdv;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How many bytes may wait to be sent before [`Association::send`] waits.
pub const OUTGOING_BYTES_MAX: usize = 256 << 10;
/// How many bytes may wait to be received before the peer is made to wait.
pub const INCOMING_BYTES_MAX: usize = 1 << 20;
/// How many indications may, likewise.
pub const INCOMING_COUNT_MAX: usize = 4096;

/// What the peer says on an association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// P-DATA: values, each with its context.
    Data(Vec<Pdv>),
    /// The peer wants to end the association: [`Association::answer_release`].
    ReleaseAsked {
        /// Why.
        reason: Option<ReleaseRequestReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// The release that was asked for here is granted: the association has ended.
    Released {
        /// What of it.
        reason: Option<ReleaseResponseReason>,
        /// The user's.
        user_information: Vec<Pdv>,
    },
    /// Anything else that presentation has: typed data, synchronisation points, tokens.
    Beside(Box<presentation::Indication>),
}

/// One end of an association.
#[derive(Debug)]
pub struct Association {
    shared: Arc<Shared>,
    peer: Option<SocketAddr>,
    answer: Option<Box<AssociateAnswer>>,
}

impl Association {
    /// Connects to a peer and asks it for an association.
    ///
    /// # Errors
    /// [`Failure`]; of several addresses of a host, that of the last one.
    pub async fn connect(host: &str, port: u16, parameters: Parameters) -> Result<Association, Failure> {
        let patience = parameters.timeout;
        let made = async {
            let socket = socket::connect(host, port).await?;
            let peer = socket.peer_addr().ok();
            let mut association = match &parameters.tls {
                None => Association::open(socket, parameters).await?,
                Some(Tls { connector, name }) => {
                    let socket = connector.connect(name.clone(), socket).await?;
                    Association::open(socket, parameters).await?
                }
            };
            association.peer = peer;
            Ok(association)
        };
        within(patience, made).await
    }

    /// Asks for an association on a stream of bytes that is there, whatever it is.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn open<S>(socket: S, parameters: Parameters) -> Result<Association, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let patience = parameters.timeout;
        let (tower, associate) = parameters.into_tower();
        let mut association = Association::start(socket, &tower, true);
        let request = acse::Request::Associate(associate);
        association.shared.request(request.into())?;
        let answer = within(patience, association.shared.told()).await?;
        match answer.into_acse() {
            Ok(acse::Indication::AssociateConfirm(answer)) => match answer.presentation {
                presentation::Answer::Accepted(_) => {
                    association.answer = Some(Box::new(answer));
                    Ok(association)
                }
                presentation::Answer::Refused(_) => Err(Failure::Refused(Box::new(answer))),
            },
            other => Err(association.shared.failure_of(other.ok())),
        }
    }

    /// The layers on a socket, and the task that moves its bytes.
    fn start<S>(mut socket: S, tower: &TowerConfig, calls: bool) -> Association
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::new(Shared::new(State::new(tower), Clock::new()));
        if !calls {
            shared.connected();
        }
        let mut driven = Driven::new(shared.clone());
        let task = shared.clone();
        tokio::spawn(async move {
            // The state has been told of whatever ends this.
            let _ = pump(&mut driven, &mut socket, &task.bell, &task.clock).await;
            task.close();
        });
        Association { shared, peer: None, answer: None }
    }

    /// Where the peer is, if that is an address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// What the peer has answered, at the end that asked.
    pub fn answer(&self) -> Option<&AssociateAnswer> {
        self.answer.as_deref()
    }

    /// The contexts that were agreed on: number, abstract syntax, transfer syntax.
    pub fn contexts(&self) -> Vec<(i64, Oid, Oid)> {
        self.shared.contexts()
    }

    /// The number of the context of an abstract syntax, if it was agreed on.
    pub fn context(&self, abstract_syntax: Oid) -> Option<i64> {
        self.contexts().into_iter().find(|context| context.1 == abstract_syntax).map(|context| context.0)
    }

    /// P-DATA: sends values. Waits while too much waits to be sent.
    ///
    /// # Errors
    /// [`Failure::Misuse`]: nothing was sent, and nothing has changed; else how the association ended.
    pub async fn send(&self, values: Vec<Pdv>) -> Result<(), Failure> {
        self.request(presentation::Request::Data(values)).await
    }

    /// Any other request to presentation: typed data, synchronisation points, tokens.
    ///
    /// # Errors
    /// As [`Association::send`].
    pub async fn request(&self, request: presentation::Request) -> Result<(), Failure> {
        self.shared.room().await?;
        self.shared.request(Request::Presentation(request))
    }

    /// What the peer says next. Whatever is under way when the future is dropped stays.
    ///
    /// # Errors
    /// How the association ended.
    pub async fn receive(&self) -> Result<Event, Failure> {
        match self.shared.told().await?.into_acse() {
            Err(presentation::Indication::Data(values)) => Ok(Event::Data(values)),
            Err(beside) => Ok(Event::Beside(Box::new(beside))),
            Ok(acse::Indication::Release { reason, user_information }) => {
                Ok(Event::ReleaseAsked { reason, user_information })
            }
            Ok(acse::Indication::ReleaseConfirm { reason, user_information, .. }) => {
                Ok(Event::Released { reason, user_information })
            }
            Ok(other) => Err(self.shared.failure_of(Some(other))),
        }
    }

    /// Asks the peer to end the association; its answer is received as [`Event::Released`], after what it still has to say.
    ///
    /// # Errors
    /// As [`Association::send`].
    pub fn begin_release(&self, user_information: Vec<Pdv>) -> Result<(), Failure> {
        let reason = Some(ReleaseRequestReason::NORMAL);
        self.shared.request(acse::Request::Release { reason, user_information }.into())
    }

    /// Ends the association in order, and waits for that. What the peer still says meanwhile is dropped: who wants it begins
    /// with [`Association::begin_release`].
    ///
    /// # Errors
    /// How it ended otherwise.
    pub async fn release(&self, user_information: Vec<Pdv>) -> Result<Vec<Pdv>, Failure> {
        self.begin_release(user_information)?;
        let mut asked = false;
        loop {
            match self.receive().await? {
                Event::Released { user_information, .. } => {
                    if asked {
                        // X.227 §7.2.3.5: both have asked; the responder answers when it has been answered.
                        let _ = self.answer_release(Vec::new());
                    }
                    return Ok(user_information);
                }
                Event::ReleaseAsked { .. } => asked = self.answer_release(Vec::new()).is_err(),
                Event::Data(_) | Event::Beside(_) => {}
            }
        }
    }

    /// Grants the release that the peer has asked for.
    ///
    /// # Errors
    /// As [`Association::send`].
    pub fn answer_release(&self, user_information: Vec<Pdv>) -> Result<(), Failure> {
        let reason = Some(ReleaseResponseReason::NORMAL);
        let response = acse::Request::ReleaseResponse { accepted: true, reason, user_information };
        self.shared.request(response.into())
    }

    /// Ends the association at once; what is under way may be lost.
    pub fn abort(&self, user_information: Vec<Pdv>) {
        let source = AbortSource::SERVICE_USER;
        let abort = acse::Abort { source, diagnostic: None, user_information };
        // Where there is no association any more, there is nothing to abort.
        let _ = self.shared.request(acse::Request::Abort(abort).into());
    }

    /// Waits until the connection below is closed: all that could be sent was.
    pub async fn closed(&self) {
        self.shared.closed().await;
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.abort(Vec::new());
    }
}

/// Does it in time, or fails.
async fn within<T>(patience: Duration, what: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(patience, what).await.unwrap_or(Err(Failure::Timeout))
}
