//! The user's handle for an association.

use super::driven::{Driven, Shared, State};
use super::event::Event;
use super::parameters::{Failure, Parameters, Tls};
use crate::pump::pump;
use crate::socket;
use kiban_os::Clock;
use kiban_osi::acse::{self, AssociateAnswer};
use kiban_osi::presentation;
use kiban_osi::stack::layers::{Request, StackConfig};
use kiban_osi::wire::acse::{AbortSource, ReleaseRequestReason, ReleaseResponseReason};
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::presentation::Pdv;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// One end of an association.
#[derive(Debug)]
pub struct Association {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Option<SocketAddr>,
    answer: Option<Box<AssociateAnswer>>,
}

impl Association {
    /// Connects to a peer and establishes an association.
    ///
    /// # Errors
    /// [`Failure`]. If the host has several addresses, it is the failure at the last one.
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

    /// Establishes an association, as initiator, on a connected stream of any kind.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn open<S>(socket: S, parameters: Parameters) -> Result<Association, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let patience = parameters.timeout;
        let (stack, associate) = parameters.into_stack_config();
        let mut association = Association::start(socket, &stack, true);
        let request = acse::Request::Associate(associate);
        association.shared.request(request.into())?;
        let answer = within(patience, association.shared.next_indication()).await?;
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

    /// Starts the layers on a socket, and starts the task that moves bytes.
    pub(super) fn start<S>(mut socket: S, stack: &StackConfig, calls: bool) -> Association
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::new(Shared::new(State::new(stack), Clock::new()));
        if !calls {
            shared.connected();
        }
        let mut driven = Driven::new(shared.clone());
        let task = shared.clone();
        tokio::spawn(async move {
            // An error is also stored in the shared state, as the reason for the end.
            let _ = pump(&mut driven, &mut socket, &task.pump_wake, &task.clock).await;
            task.close();
        });
        Association { shared, peer: None, answer: None }
    }

    /// Returns the peer's address, if it has one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the peer's answer to this end's request; `None` at the responder.
    pub fn answer(&self) -> Option<&AssociateAnswer> {
        self.answer.as_deref()
    }

    /// Returns the accepted contexts, each with its identifier, abstract syntax and transfer syntax.
    pub fn contexts(&self) -> Vec<(i64, Oid, Oid)> {
        self.shared.contexts()
    }

    /// Returns the identifier of the accepted context for an abstract syntax.
    pub fn context(&self, abstract_syntax: Oid) -> Option<i64> {
        self.contexts().into_iter().find(|context| context.1 == abstract_syntax).map(|context| context.0)
    }

    /// Sends values in a P-DATA. Waits while too much data is queued.
    ///
    /// # Errors
    /// [`Failure::InvalidRequest`] if the request is invalid; in this case, nothing was sent or changed.
    /// Otherwise, the failure that ended the association.
    pub async fn send(&self, values: Vec<Pdv>) -> Result<(), Failure> {
        self.request(presentation::Request::Data(values)).await
    }

    /// Issues any other presentation request: typed data, synchronisation points, tokens.
    ///
    /// # Errors
    /// See [`Association::send`].
    pub async fn request(&self, request: presentation::Request) -> Result<(), Failure> {
        self.shared.room().await?;
        self.shared.request(Request::Presentation(request))
    }

    /// Waits for the next indication. Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// The failure that ended the association.
    pub async fn receive(&self) -> Result<Event, Failure> {
        match self.shared.next_indication().await?.into_acse() {
            Err(presentation::Indication::Data(values)) => Ok(Event::Data(values)),
            Err(beside) => Ok(Event::Beside(Box::new(beside))),
            Ok(acse::Indication::Release { reason, user_information }) => {
                Ok(Event::ReleaseRequested { reason, user_information })
            }
            Ok(acse::Indication::ReleaseConfirm { reason, user_information, .. }) => {
                Ok(Event::Released { reason, user_information })
            }
            Ok(other) => Err(self.shared.failure_of(Some(other))),
        }
    }

    /// Requests release. The answer is received as [`Event::Released`], after all data that the peer sends
    /// before it.
    ///
    /// # Errors
    /// See [`Association::send`].
    pub fn begin_release(&self, user_information: Vec<Pdv>) -> Result<(), Failure> {
        let reason = Some(ReleaseRequestReason::NORMAL);
        self.shared.request(acse::Request::Release { reason, user_information }.into())
    }

    /// Releases the association and waits for the answer. Data that the peer sends in the meantime is
    /// dropped; to receive it, use [`Association::begin_release`].
    ///
    /// # Errors
    /// The failure, if the association ended in a different way.
    pub async fn release(&self, user_information: Vec<Pdv>) -> Result<Vec<Pdv>, Failure> {
        self.begin_release(user_information)?;
        let mut must_answer = false;
        loop {
            match self.receive().await? {
                Event::Released { user_information, .. } => {
                    if must_answer {
                        // X.227 §7.2.3.5: on a release collision, the association's responder answers after
                        // it has received its answer.
                        let _ = self.answer_release(Vec::new());
                    }
                    return Ok(user_information);
                }
                Event::ReleaseRequested { .. } => must_answer = self.answer_release(Vec::new()).is_err(),
                Event::Data(_) | Event::Beside(_) => {}
            }
        }
    }

    /// Accepts the release that the peer has requested.
    ///
    /// # Errors
    /// See [`Association::send`].
    pub fn answer_release(&self, user_information: Vec<Pdv>) -> Result<(), Failure> {
        let reason = Some(ReleaseResponseReason::NORMAL);
        let response = acse::Request::ReleaseResponse { accepted: true, reason, user_information };
        self.shared.request(response.into())
    }

    /// Aborts the association; data in transit may be lost.
    pub fn abort(&self, user_information: Vec<Pdv>) {
        let source = AbortSource::SERVICE_USER;
        let abort = acse::Abort { source, diagnostic: None, user_information };
        // This fails if the association has already ended, which is the intended result anyway.
        let _ = self.shared.request(acse::Request::Abort(abort).into());
    }

    /// Waits until all data that can be sent has been sent, and the connection below is closed.
    pub async fn closed(&self) {
        self.shared.closed().await;
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.abort(Vec::new());
    }
}

/// Runs a future with a time limit.
pub(super) async fn within<T>(
    patience: Duration,
    what: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience, what).await.unwrap_or(Err(Failure::Timeout))
}
