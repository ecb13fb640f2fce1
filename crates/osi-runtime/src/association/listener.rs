//! The responder's side of association establishment: listening, accepting, refusing.

use super::handle::{Association, within};
use super::parameters::{Acceptance, Failure};
use crate::socket;
use kiban_osi::acse::{self, Associate, AssociateAnswer};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::acse::{AssociateDiagnostic, AssociateResult, UserDiagnostic};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Listens for associations at an address.
pub struct Listener {
    listener: TcpListener,
    stack: StackConfig,
    tls: Option<TlsAcceptor>,
    timeout: Duration,
}

impl Listener {
    /// Listens at an address. `timeout` limits the time between a peer's connection and its A-ASSOCIATE.
    ///
    /// # Errors
    /// The system's error, for example if the address is in use or not local, or the port requires a
    /// privilege.
    pub fn bind(
        address: SocketAddr,
        stack: StackConfig,
        tls: Option<TlsAcceptor>,
        timeout: Duration,
    ) -> io::Result<Listener> {
        Ok(Listener { listener: socket::listen(address)?, stack, tls, timeout })
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts the next connection, without reading from it.
    ///
    /// # Errors
    /// The system's error; errors that concern only a single connection are skipped.
    pub async fn accept(&self) -> io::Result<IncomingConnection> {
        Ok(self.arrival(socket::accept(&self.listener).await?))
    }

    /// Accepts the next connection; retries after errors.
    pub(in super::super) async fn next(&self) -> IncomingConnection {
        self.arrival(socket::next(&self.listener).await)
    }

    fn arrival(&self, (socket, peer): (TcpStream, SocketAddr)) -> IncomingConnection {
        IncomingConnection {
            socket,
            peer,
            stack: self.stack.clone(),
            tls: self.tls.clone(),
            timeout: self.timeout,
        }
    }
}

/// A connection whose A-ASSOCIATE has not been received yet.
pub struct IncomingConnection {
    socket: TcpStream,
    peer: SocketAddr,
    stack: StackConfig,
    tls: Option<TlsAcceptor>,
    timeout: Duration,
}

impl IncomingConnection {
    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for the peer's A-ASSOCIATE, no longer than the listener's timeout.
    ///
    /// # Errors
    /// [`Failure`]. The peer has then already been answered, and the connection is being closed.
    pub async fn request(self) -> Result<AssociateRequest, Failure> {
        let IncomingConnection { socket, peer, stack, tls, timeout } = self;
        let made = async {
            let mut association = match tls {
                None => Association::start(socket, &stack, false),
                Some(acceptor) => Association::start(acceptor.accept(socket).await?, &stack, false),
            };
            association.peer = Some(peer);
            match association.shared.next_indication().await?.into_acse() {
                Ok(acse::Indication::Associate(associate)) => {
                    Ok(AssociateRequest { association, associate: Box::new(associate) })
                }
                other => Err(association.shared.failure_of(other.ok())),
            }
        };
        within(timeout, made).await
    }
}

/// A peer's request for an association. Dropping it aborts the association.
#[derive(Debug)]
pub struct AssociateRequest {
    association: Association,
    associate: Box<Associate>,
}

impl AssociateRequest {
    /// Returns the peer's request.
    pub fn associate(&self) -> &Associate {
        &self.associate
    }

    /// Accepts the association.
    ///
    /// # Errors
    /// [`Failure`]: the peer has closed the connection, or the protocol does not allow this answer.
    pub fn accept(self, acceptance: Acceptance) -> Result<Association, Failure> {
        let answer = acse::Request::AssociateResponse(acceptance.answer(&self.associate));
        self.association.shared.request(answer.into())?;
        Ok(self.association)
    }

    /// Refuses the association; waits until the answer has been sent and the connection is closed.
    pub async fn refuse(self, result: AssociateResult, why: UserDiagnostic) {
        let diagnostic = Some(AssociateDiagnostic::ServiceUser(why));
        let answer = AssociateAnswer { diagnostic, ..self.associate.refuse(result, |_| true) };
        let request = acse::Request::AssociateResponse(answer).into();
        if self.association.shared.request(request).is_ok() {
            self.association.closed().await;
        }
    }
}
