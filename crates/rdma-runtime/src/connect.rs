//! Connection management: listen, accept, connect, reject, private data, disconnect.

use super::device::Device;
use super::linked_nic::{LinkedNic, Route};
use super::queues::Qp;
use super::{Address, ConnectError, Context, CrcUse, Error, MpaConfig, Queue};
use kiban_rdma::hif::{Answer, Request};
use kiban_rdma::nic::{self, OpenError};
use kiban_streams::board_gone_error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a board to confirm a listener.
const LISTENS: Duration = Duration::from_secs(10);

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Private data of the request or reply. At most 508 bytes; Linux's soft-iWARP accepts 252.
    pub private_data: Vec<u8>,
    /// Maximum number of outstanding reads and atomics from the peer (IRD).
    pub responder_resources: u16,
    /// Maximum number of outstanding reads and atomics to the peer (ORD).
    pub initiator_depth: u16,
    /// Whether frames carry a CRC.
    pub crc: CrcUse,
    /// Whether to request immediate data and atomics (RFC 7306). They are never sent to a peer that does not
    /// support them.
    pub extensions: bool,
    /// For listeners: the maximum number of connections not yet accepted from the socket. A board has its
    /// own limit.
    pub backlog: u32,
    /// All other MPA settings.
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

    /// Returns the address for the NIC of a board, if that NIC can follow these options.
    fn on_board(&self, address: Address) -> Result<SocketAddr, Error> {
        let refused = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message).into());
        match address {
            Address::Ethernet { .. } => refused("the NIC of a board needs an address in the form IP:PORT"),
            Address::Ip(_) if self.crc != CrcUse::Off => {
                refused("the NIC of a board requests no CRC; it sends one if the peer requests it")
            }
            Address::Ip(address) => Ok(address),
        }
    }
}

#[derive(Debug)]
struct EndInner {
    context: Context,
    end: u32,
    /// Keeps the queue pair alive as long as the connection.
    _qp: Option<Qp>,
}

impl Drop for EndInner {
    fn drop(&mut self) {
        self.context.turn.work(|device, now| device.release(self.end, now));
    }
}

/// A connection. Clones share it. When the last clone is dropped, the connection is aborted, unless
/// [`Connection::disconnect`] was called: then posted work is still sent, as long as the queue pair exists.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<EndInner>,
    private_data: Vec<u8>,
}

impl Connection {
    /// Returns the private data in the peer's reply. It is empty on the accepting side.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the addresses of both ends, ours first; `None` over EFE.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.inner.context.turn.read(|device| device.addresses(self.inner.end))
    }

    /// Begins an orderly close: posted work is still sent, then the connection ends. Does not wait for the
    /// end.
    pub fn disconnect(&self) {
        let end = self.inner.end;
        let own = |core: &mut LinkedNic, _| match core.nic.qp_of(end) {
            Some(qp) => core.nic.core.disconnect(qp).map(|()| 0),
            None => Ok(0),
        };
        let request = || Request::Disconnect { end };
        // This fails if the connection has ended already.
        let _ = self.inner.context.control(own, request, |_, _| {});
    }

    /// Waits until either side has ended the connection.
    ///
    /// # Errors
    /// The timeout expired.
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<(), Error> {
        let end = self.inner.end;
        let look = |device: &mut Device| {
            device.end_state(end).is_none_or(|state| state.gone || state.failed.is_some()).then_some(())
        };
        Ok(self.inner.context.turn.wait(Queue::Control, None, timeout, look)?)
    }

    /// Returns whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.wait_disconnected(Duration::ZERO).is_ok()
    }
}

impl Qp {
    /// Connects to a listener.
    ///
    /// # Errors
    /// There is no listener at the address, the peer rejects, or the timeout expired.
    pub fn connect(&self, to: Address, options: &Connect, timeout: Duration) -> Result<Connection, Error> {
        let (context, qp) = (self.context().clone(), self.number());
        let end = match context.with_board(|nic| nic.transport()) {
            None => context.own(|core, now| {
                let (route, depths) = (Route { to, from: None }, options.depths());
                let opened = core.connect(route, &options.config(), qp, depths, &options.private_data, now);
                Ok::<u32, Error>(opened??)
            })?,
            Some(transport) => {
                let remote = options.on_board(to)?;
                let (depths, private_data) = (options.depths(), options.private_data.clone());
                match context.ask(&Request::Connect { transport, remote, qp, depths, private_data })? {
                    Answer::Number(end) => end,
                    _ => return Err(OpenError::Gone.into()),
                }
            }
        };
        let inner = EndInner { context: context.clone(), end, _qp: Some(self.clone()) };
        let connected = context.turn.wait(Queue::Control, None, timeout, |device| {
            let state = device.end_state(end)?;
            match (state.failed.take(), state.connected.take()) {
                (Some(error), _) => Some(Err(error)),
                (None, Some(private_data)) => Some(Ok(private_data)),
                (None, None) if state.gone => Some(Err(ConnectError::Lost)),
                (None, None) => None,
            }
        });
        let private_data = connected?.map_err(Error::Connect)?;
        Ok(Connection { inner: Arc::new(inner), private_data })
    }
}

/// A listener: accepts connection requests until it is dropped.
#[derive(Debug)]
pub struct Listener {
    context: Context,
    number: u32,
    address: Address,
}

impl Listener {
    pub(super) fn new(context: &Context, at: Address, options: &Connect) -> Result<Listener, Error> {
        let mut listener = Listener { context: context.clone(), number: 0, address: at };
        if let Some(transport) = context.with_board(|nic| nic.transport()) {
            let local = options.on_board(at)?;
            if let Answer::Listening { listener: number, local } =
                context.ask(&Request::Listen { transport, local })?
            {
                (listener.number, listener.address) = (number, local.into());
            }
            return Ok(listener);
        }
        let (number, address) = context.own(|core, _| core.listen(at, options.config(), options.backlog))?;
        listener.number = number;
        listener.address = match address {
            Some(address) => address,
            None => context.turn.wait(Queue::Control, None, LISTENS, |device| match device {
                Device::Own(core) => core.listening(number),
                Device::Board(_) => None,
            })??,
        };
        Ok(listener)
    }

    /// Returns the listening address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// The timeout expired, or the underlying board has ended.
    pub fn request(&self, timeout: Duration) -> Result<ConnectionRequest, Error> {
        let found = self.context.turn.wait(Queue::Control, None, timeout, |device| {
            let request = device.request(self.number).map(Ok);
            request.or_else(|| device.board_has_gone().then(|| Err(board_gone_error())))
        });
        let (request, from) = found??;
        let inner = EndInner { context: self.context.clone(), end: request.end, _qp: None };
        Ok(ConnectionRequest { inner, request, from })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.context.turn.work(|device, now| device.unlisten(self.number, now));
    }
}

/// A connection request. Dropping it without an answer aborts its connection.
#[derive(Debug)]
pub struct ConnectionRequest {
    inner: EndInner,
    request: nic::Request,
    from: Option<SocketAddr>,
}

impl ConnectionRequest {
    /// Returns the peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Returns the peer's address; `None` over EFE.
    pub fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Returns the maximum number of reads that the peer wants to have outstanding, and the maximum that it
    /// accepts.
    pub fn depths(&self) -> (u16, u16) {
        self.request.depths
    }

    /// Returns whether the peer supports RFC 7306.
    pub fn extensions(&self) -> bool {
        self.request.extensions
    }

    /// Accepts the request on a queue pair that is not connected. Post its receives first.
    ///
    /// # Errors
    /// The peer has left, or the private data is too long.
    pub fn accept(self, qp: &Qp, options: &Connect) -> Result<Connection, Error> {
        let (end, number) = (self.inner.end, qp.number());
        let context = self.inner.context.clone();
        let depths = options.depths();
        context.control(
            |core, now| core.accept(end, number, depths, &options.private_data, now).map(|()| 0),
            || Request::Accept { end, qp: number, depths, private_data: options.private_data.clone() },
            |_, _| {},
        )?;
        let mut inner = self.inner;
        inner._qp = Some(qp.clone());
        Ok(Connection { inner: Arc::new(inner), private_data: Vec::new() })
    }

    /// Rejects the request with private data.
    ///
    /// # Errors
    /// The private data is too long, or the peer has left.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        let context = self.inner.context.clone();
        let end = self.inner.end;
        context.control(
            |core, now| core.reject(end, private_data, now).map(|()| 0),
            || Request::Reject { end, private_data: private_data.to_vec() },
            |_, _| {},
        )?;
        Ok(())
    }
}
