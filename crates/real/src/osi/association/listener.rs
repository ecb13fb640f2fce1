//! The end that is asked.

use super::super::socket;
use super::{Acceptance, Association, Failure, within};
use kiban_board::osi::tower::TowerConfig;
use kiban_stack::osi::acse::{self, Associate, AssociateAnswer};
use kiban_wire::acse::{AssociateDiagnostic, AssociateResult, UserDiagnostic};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Whoever waits for associations at an address.
pub struct Listener {
    listener: TcpListener,
    tower: TowerConfig,
    tls: Option<TlsAcceptor>,
    timeout: Duration,
}

impl Listener {
    /// Listens; `timeout` is how long a peer may take from its connection to its A-ASSOCIATE.
    ///
    /// # Errors
    /// The system's: the address is in use, or not this host's, or the port needs a right.
    pub fn bind(
        address: SocketAddr,
        tower: TowerConfig,
        tls: Option<TlsAcceptor>,
        timeout: Duration,
    ) -> io::Result<Listener> {
        Ok(Listener { listener: socket::listen(address)?, tower, tls, timeout })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection: nothing of it has been read.
    ///
    /// # Errors
    /// The system's; those of one connection alone are passed over.
    pub async fn accept(&self) -> io::Result<Arrival> {
        Ok(self.arrival(socket::accept(&self.listener).await?))
    }

    /// The same, as long as it takes.
    pub(in super::super) async fn next(&self) -> Arrival {
        self.arrival(socket::next(&self.listener).await)
    }

    fn arrival(&self, (socket, peer): (TcpStream, SocketAddr)) -> Arrival {
        Arrival { socket, peer, tower: self.tower.clone(), tls: self.tls.clone(), timeout: self.timeout }
    }
}

/// A connection on which the peer has not asked yet.
pub struct Arrival {
    socket: TcpStream,
    peer: SocketAddr,
    tower: TowerConfig,
    tls: Option<TlsAcceptor>,
    timeout: Duration,
}

impl Arrival {
    /// Where the peer is.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for the peer's A-ASSOCIATE, as long as the listener's timeout says.
    ///
    /// # Errors
    /// [`Failure`]; the peer has been answered, and the connection is being closed.
    pub async fn asked(self) -> Result<Asked, Failure> {
        let Arrival { socket, peer, tower, tls, timeout } = self;
        let made = async {
            let mut association = match tls {
                None => Association::start(socket, &tower, false),
                Some(acceptor) => Association::start(acceptor.accept(socket).await?, &tower, false),
            };
            association.peer = Some(peer);
            match association.shared.told().await?.into_acse() {
                Ok(acse::Indication::Associate(associate)) => {
                    Ok(Asked { association, associate: Box::new(associate) })
                }
                other => Err(association.shared.failure_of(other.ok())),
            }
        };
        within(timeout, made).await
    }
}

/// An association that a peer asks for. One that is dropped is aborted.
#[derive(Debug)]
pub struct Asked {
    association: Association,
    associate: Box<Associate>,
}

impl Asked {
    /// What the peer asks for.
    pub fn associate(&self) -> &Associate {
        &self.associate
    }

    /// Grants it.
    ///
    /// # Errors
    /// [`Failure`]: the peer has gone, or the answer is none that can be given.
    pub fn accept(self, acceptance: Acceptance) -> Result<Association, Failure> {
        let answer = acse::Request::AssociateResponse(acceptance.answer(&self.associate));
        self.association.shared.request(answer.into())?;
        Ok(self.association)
    }

    /// Refuses it; waits until the answer is sent and the connection closed.
    pub async fn refuse(self, result: AssociateResult, why: UserDiagnostic) {
        let diagnostic = Some(AssociateDiagnostic::ServiceUser(why));
        let answer = AssociateAnswer { diagnostic, ..self.associate.refuse(result, |_| true) };
        let request = acse::Request::AssociateResponse(answer).into();
        if self.association.shared.request(request).is_ok() {
            self.association.closed().await;
        }
    }
}
