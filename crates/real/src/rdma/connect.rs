//! The connection manager: listen, accept, connect, reject, private data, disconnect.

use super::core::Way;
use super::queues::Qp;
use super::{Address, ConnectError, Context, CrcUse, Error, MpaConfig, Queue};
use crate::streams::gone;
use kiban_stack::iwarp::nic::Request;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a board may take to say whether it listens.
const LISTENS: Duration = Duration::from_secs(10);

/// How connections are made.
#[derive(Clone, Debug)]
pub struct Connect {
    /// What the peer is told with the request, or the answer. At most 508 bytes; soft-iWARP of Linux takes 252.
    pub private_data: Vec<u8>,
    /// Reads and atomics of the peer's under way, at most (IRD).
    pub responder_resources: u16,
    /// Reads and atomics of ours under way, at most (ORD).
    pub initiator_depth: u16,
    /// Whether frames carry a CRC.
    pub crc: CrcUse,
    /// Whether immediate data and atomics (RFC 7306) are asked for; a peer that does not know them is safe from them.
    pub extensions: bool,
    /// Requests that wait for their sockets to be taken, at most; for listeners. A board has a bound of its own.
    pub backlog: u32,
    /// Everything else about MPA.
    pub mpa: MpaConfig,
}

impl Default for Connect {
    fn default() -> Connect {
        Connect {
            private_data: Vec::new(),
            responder_resources: 16,
            initiator_depth: 16,
            crc: CrcUse::Off,
            extensions: false,
            backlog: 1024,
            mpa: MpaConfig::default(),
        }
    }
}

impl Connect {
    fn config(&self) -> MpaConfig {
        MpaConfig { crc: self.crc, extensions: self.extensions, ..self.mpa.clone() }
    }

    fn depths(&self) -> (u16, u16) {
        (self.responder_resources, self.initiator_depth)
    }
}

#[derive(Debug)]
struct EndInner {
    context: Context,
    end: u32,
    /// Kept until the connection is.
    _qp: Option<Qp>,
}

impl Drop for EndInner {
    fn drop(&mut self) {
        self.context.turn.work(|core, now| core.release(self.end, now));
    }
}

/// A connection. Clones are the same; it is cut when the last goes. One that was ended before ([`Connection::disconnect`])
/// still brings what was posted, for as long as its queue pair lives.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<EndInner>,
    private_data: Vec<u8>,
}

impl Connection {
    /// What the peer said when it accepted; empty on the side that accepted.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The addresses of both ends, ours first; none over EFE.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.inner.context.turn.read(|core| core.addresses(self.inner.end))
    }

    /// No more is posted: what is there still goes, then the connection ends in order. Does not wait for that.
    pub fn disconnect(&self) {
        self.inner.context.turn.work(|core, _| {
            if let Some(qp) = core.nic.qp_of(self.inner.end) {
                // One that is over needs no end.
                let _ = core.nic.core.disconnect(qp);
            }
        });
    }

    /// Waits until the connection is over, by whoever ended it.
    ///
    /// # Errors
    /// The time is over.
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<(), Error> {
        let end = self.inner.end;
        let look = |core: &mut super::Core| {
            core.stories.get(&end).is_none_or(|story| story.gone || story.failed.is_some()).then_some(())
        };
        Ok(self.inner.context.turn.wait(Queue::Control, None, timeout, look)?)
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.wait_disconnected(Duration::ZERO).is_ok()
    }
}

impl Qp {
    /// Connects to a listener.
    ///
    /// # Errors
    /// Nobody listens there, the peer refuses, or the time is over.
    pub fn connect(&self, to: Address, options: &Connect, timeout: Duration) -> Result<Connection, Error> {
        let (context, qp) = (self.context().clone(), self.number());
        let config = options.config();
        let end = context.turn.work(|core, now| {
            core.connect(Way { to, from: None }, &config, qp, options.depths(), &options.private_data, now)
        })??;
        let inner = EndInner { context: context.clone(), end, _qp: Some(self.clone()) };
        let connected = context.turn.wait(Queue::Control, None, timeout, |core| {
            let story = core.stories.get_mut(&end)?;
            match (story.failed.take(), story.connected.take()) {
                (Some(error), _) => Some(Err(error)),
                (None, Some(private_data)) => Some(Ok(private_data)),
                (None, None) if story.gone => Some(Err(ConnectError::Lost)),
                (None, None) => None,
            }
        });
        let private_data = connected?.map_err(Error::Connect)?;
        Ok(Connection { inner: Arc::new(inner), private_data })
    }
}

/// A listener: requests to connect come to it until it is dropped.
#[derive(Debug)]
pub struct Listener {
    context: Context,
    number: u32,
    address: Address,
}

impl Listener {
    pub(super) fn new(context: &Context, at: Address, options: &Connect) -> Result<Listener, Error> {
        let (number, address) =
            context.turn.work(|core, _| core.listen(at, options.config(), options.backlog))?;
        let mut listener = Listener { context: context.clone(), number, address: at };
        listener.address = match address {
            Some(address) => address,
            None => context.turn.wait(Queue::Control, None, LISTENS, |core| core.listening(number))??,
        };
        Ok(listener)
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// The time is over, or the board below has gone.
    pub fn request(&self, timeout: Duration) -> Result<ConnectionRequest, Error> {
        let found = self.context.turn.wait(Queue::Control, None, timeout, |core| {
            let request = core.request(self.number).map(Ok);
            request.or_else(|| core.board_has_gone().then(|| Err(gone())))
        });
        let (request, from) = found??;
        let inner = EndInner { context: self.context.clone(), end: request.end, _qp: None };
        Ok(ConnectionRequest { inner, request, from })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.context.turn.work(|core, now| core.unlisten(self.number, now));
    }
}

/// A request to connect. Dropped without an answer, its connection is cut.
#[derive(Debug)]
pub struct ConnectionRequest {
    inner: EndInner,
    request: Request,
    from: Option<SocketAddr>,
}

impl ConnectionRequest {
    /// What the peer says.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Who asks; not known over EFE.
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Reads that the peer wants under way, and takes, at most.
    pub fn depths(&self) -> (u16, u16) {
        self.request.depths
    }

    /// Whether the peer knows RFC 7306.
    pub fn extensions(&self) -> bool {
        self.request.extensions
    }

    /// Accepts for a queue pair that is not connected. Post its receives before.
    ///
    /// # Errors
    /// The peer has gone, or the private data is too long.
    pub fn accept(self, qp: &Qp, options: &Connect) -> Result<Connection, Error> {
        let (end, number) = (self.inner.end, qp.number());
        let context = self.inner.context.clone();
        context
            .turn
            .work(|core, now| core.accept(end, number, options.depths(), &options.private_data, now))?;
        let mut inner = self.inner;
        inner._qp = Some(qp.clone());
        Ok(Connection { inner: Arc::new(inner), private_data: Vec::new() })
    }

    /// Refuses, with something to say.
    ///
    /// # Errors
    /// The private data is too long, or the peer has gone.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        let context = self.inner.context.clone();
        context.turn.work(|core, now| core.reject(self.inner.end, private_data, now))?;
        Ok(())
    }
}
