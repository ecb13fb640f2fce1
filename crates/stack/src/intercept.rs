//! Interception: connections, datagrams and pings to addresses of other hosts, as programs see them.

use crate::core::Handle;
use crate::interception::{Addresses, CHECK_INTERVAL, Handshake, Interception, PingInfo, Waiting};
use crate::stream::TcpStream;
use crate::table::{Table, host_error};
use crate::waiters::{self, poll_of};
use kiban_board::{Host, StreamId};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Returns the error of a request that is no longer there.
fn gave_up_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the peer has given up the connection")
}

/// Returns the error of a call after the interceptor has been dropped.
fn dropped_error() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the interceptor has been dropped")
}

impl Table {
    fn interception(&mut self) -> io::Result<&mut Interception> {
        self.check()?;
        self.interception.as_mut().ok_or_else(dropped_error)
    }

    /// Returns what is next for the program.
    fn next_waiting(&mut self, cx: &Context<'_>) -> io::Result<Option<Waiting>> {
        let interception = self.interception()?;
        let next = interception.waiting.pop_front();
        match &next {
            None => interception.waiters.add(cx),
            Some(Waiting::Ping(_)) => interception.pings -= 1,
            Some(_) => {}
        }
        Ok(next)
    }

    fn admit(&mut self, addresses: Addresses, host: &mut Host<'_>) -> io::Result<()> {
        if self.interception.is_none() {
            let _ = host.refuse(addresses.0, addresses.1);
        }
        let interception = self.interception()?;
        interception.undecided.remove(&addresses);
        host.admit(addresses.0, addresses.1).map_err(|_| gave_up_error())?;
        interception.handshakes.insert(addresses, Handshake::Pending(None));
        interception.deadline = interception.deadline.min(host.now() + CHECK_INTERVAL);
        Ok(())
    }

    /// Returns the stream of an admitted connection, or `None` if the task waits.
    fn admitted(&mut self, addresses: Addresses, cx: &Context<'_>) -> io::Result<Option<StreamId>> {
        self.check()?;
        let Table { interception, woken, .. } = self;
        let interception = interception.as_mut().ok_or_else(dropped_error)?;
        match interception.handshakes.get_mut(&addresses) {
            Some(Handshake::Done(stream)) => {
                let stream = *stream;
                interception.handshakes.remove(&addresses);
                Ok(Some(stream))
            }
            Some(Handshake::Pending(waker)) => {
                waiters::set(waker, cx, woken);
                Ok(None)
            }
            Some(Handshake::Failed) | None => Err(gave_up_error()),
        }
    }

    /// Forgets an admitted connection whose program does not wait for it any longer.
    fn abandon(&mut self, addresses: Addresses, host: &mut Host<'_>) {
        match self.interception.as_mut().and_then(|its| its.handshakes.remove(&addresses)) {
            Some(Handshake::Done(stream)) => self.abort(stream, host),
            Some(Handshake::Pending(waker)) => self.woken.extend(waker),
            Some(Handshake::Failed) | None => {}
        }
    }

    /// Forgets a request that the program has decided without a connection.
    fn decide(&mut self, addresses: Addresses) {
        if let Some(interception) = &mut self.interception {
            interception.undecided.remove(&addresses);
        }
    }

    fn end_interception(&mut self, host: &mut Host<'_>) {
        let Some(mut interception) = self.interception.take() else { return };
        interception.wake_all(&mut self.woken);
        for waiting in interception.waiting {
            if let Waiting::Request((local, remote)) = waiting {
                let _ = host.refuse(local, remote);
            }
        }
        for handshake in interception.handshakes.into_values() {
            if let Handshake::Done(stream) = handshake {
                self.abort(stream, host);
            }
        }
    }
}

/// Accepts connections, datagrams and pings to addresses of other hosts ([`Stack::intercept`]).
///
/// When it is dropped, further connections are refused, and flows receive no more datagrams. Accepted streams
/// stay open.
///
/// [`Stack::intercept`]: crate::Stack::intercept
pub struct Interceptor {
    handle: Arc<Handle>,
}

impl std::fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interceptor")
    }
}

impl Interceptor {
    pub(crate) fn new(handle: Arc<Handle>) -> Interceptor {
        Interceptor { handle }
    }

    /// Waits for the next connection, UDP flow or ping. Cancelling loses nothing.
    ///
    /// # Errors
    /// `NetworkDown`: the device has failed.
    pub async fn accept(&self) -> io::Result<Flow> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polls for the next connection, UDP flow or ping; see [`Interceptor::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Flow>> {
        let handle = || self.handle.clone();
        poll_of(self.handle.look(|table| table.next_waiting(cx))).map_ok(|next| match next {
            Waiting::Request(addresses) => {
                Flow::Tcp(TcpRequest { handle: handle(), addresses, is_decided: false })
            }
            Waiting::Flow(addresses) => Flow::Udp(UdpFlow { handle: handle(), addresses }),
            Waiting::Ping(info) => Flow::Ping(Ping { handle: handle(), info }),
        })
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.handle.call(|table, host| table.end_interception(host));
    }
}

/// What a peer sends to another host.
#[derive(Debug)]
pub enum Flow {
    /// A TCP connection whose SYN has not been answered.
    Tcp(TcpRequest),
    /// UDP datagrams between two addresses; the first one waits.
    Udp(UdpFlow),
    /// An ICMP echo request.
    Ping(Ping),
}

/// An intercepted TCP connection, before its SYN is answered. Dropping it refuses the connection.
pub struct TcpRequest {
    handle: Arc<Handle>,
    addresses: Addresses,
    is_decided: bool,
}

impl std::fmt::Debug for TcpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpRequest({} to {})", self.addresses.1, self.addresses.0)
    }
}

impl TcpRequest {
    /// Returns the destination: the address that the peer connects to.
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses.0
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.addresses.1
    }

    /// Answers the SYN, and waits for the end of the handshake. Cancelling aborts the connection.
    ///
    /// # Errors
    /// `ConnectionAborted`: the peer has reset the connection or does not complete the handshake, or no
    /// session is free; `NotConnected`: the interceptor has been dropped.
    pub async fn accept(mut self) -> io::Result<TcpStream> {
        let addresses = self.addresses;
        self.is_decided = true;
        self.handle.call(|table, host| table.admit(addresses, host))?;
        let waits = Admitted { handle: self.handle.clone(), addresses };
        let stream = poll_fn(|cx| poll_of(waits.handle.look(|table| table.admitted(addresses, cx)))).await?;
        Ok(TcpStream::new(self.handle.clone(), stream, addresses.0, addresses.1))
    }

    /// Refuses the connection: the peer gets a RST, which most systems report as *connection refused*.
    pub fn refuse(self) {}

    /// Leaves the SYN without an answer, so that the peer's attempt times out.
    pub fn ignore(mut self) {
        self.is_decided = true;
        self.handle.call(|table, host| {
            table.decide(self.addresses);
            host.ignore(self.addresses.0, self.addresses.1);
        });
    }
}

impl Drop for TcpRequest {
    fn drop(&mut self) {
        if !self.is_decided {
            // Without memory for the RST, the peer repeats its SYN.
            let _ = self.handle.call(|table, host| {
                table.decide(self.addresses);
                host.refuse(self.addresses.0, self.addresses.1)
            });
        }
    }
}

/// A program's wait for the handshake of an admitted connection.
struct Admitted {
    handle: Arc<Handle>,
    addresses: Addresses,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.handle.call(|table, host| table.abandon(self.addresses, host));
    }
}

/// UDP datagrams between a peer and an address of another host. They can be received until the flow is
/// dropped; a later datagram begins a new flow. The program decides when an idle flow ends (RFC 4787 REQ-5
/// recommends at least two minutes).
pub struct UdpFlow {
    handle: Arc<Handle>,
    addresses: Addresses,
}

impl std::fmt::Debug for UdpFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpFlow({} to {})", self.addresses.1, self.addresses.0)
    }
}

impl UdpFlow {
    /// Returns the destination: the address that the peer sends to.
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses.0
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.addresses.1
    }

    /// Receives the peer's next datagram. Cancelling loses no datagram.
    ///
    /// # Errors
    /// `NetworkDown`: the device has failed; `NotConnected`: the interceptor has been dropped.
    pub async fn recv(&self) -> io::Result<Vec<u8>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the peer's next datagram; see [`UdpFlow::recv`].
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let received = self.handle.look(|table| {
            let flow = table.interception()?.flows.get_mut(&self.addresses).ok_or_else(dropped_error)?;
            let datagram = flow.datagrams.pop_front();
            if datagram.is_none() {
                flow.waiters.add(cx);
            }
            Ok::<_, io::Error>(datagram)
        });
        poll_of(received)
    }

    /// Sends a datagram to the peer, from the destination's address.
    ///
    /// # Errors
    /// `InvalidInput`: it is too long; `OutOfMemory`: no packet memory is free.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.handle.call(|table, host| {
            table.check()?;
            host.send_from(self.addresses.0, self.addresses.1, bytes).map_err(host_error)
        })
    }

    /// Ends the flow, and reports to the peer that the port is unreachable (ICMP), which its system reports
    /// as *connection refused*.
    pub fn refuse(self) {
        // Without memory for the answer, the peer sees a loss.
        let _ = self.handle.call(|_, host| host.refuse_datagram(self.addresses.0, self.addresses.1));
    }
}

impl Drop for UdpFlow {
    fn drop(&mut self) {
        self.handle.look(|table| {
            let Table { interception, woken, .. } = table;
            if let Some(mut flow) = interception.as_mut().and_then(|its| its.flows.remove(&self.addresses)) {
                flow.waiters.wake(woken);
            }
        });
    }
}

/// An intercepted ICMP echo request.
pub struct Ping {
    handle: Arc<Handle>,
    info: PingInfo,
}

impl std::fmt::Debug for Ping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ping({} to {}, {})", self.info.remote, self.info.local, self.info.sequence)
    }
}

impl Ping {
    /// Returns the address that is pinged.
    pub fn local_addr(&self) -> IpAddr {
        self.info.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> IpAddr {
        self.info.remote
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.info.payload
    }

    /// Answers the request in the name of its destination. Without packet memory, the answer is lost.
    pub fn reply(self) {
        let PingInfo { local, remote, identifier, sequence, payload } = &self.info;
        let _ = self
            .handle
            .call(|_, host| host.reply_to_echo((*local, *remote), *identifier, *sequence, payload));
    }
}
