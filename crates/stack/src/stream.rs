//! Streams and listeners.

use crate::core::Handle;
use crate::table::{Accepted, host_error};
use crate::waiters::poll_of;
use kiban_board::StreamId;
use kiban_tcpip::tcp;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP stream.
///
/// Reading returns 0 bytes after the peer's FIN; `shutdown` sends one. Dropping the stream closes it; written
/// data is still sent. [`tokio::io::split`] separates the directions for two tasks.
///
/// # Errors
/// Reading and writing fail with `ConnectionReset` or `TimedOut`: the peer does not acknowledge data, or
/// keeps its window closed while packet memory is short ([`tcp::Config::stuck_timeout`]). Writing also fails
/// with `BrokenPipe` after `shutdown`, or if the connection has been closed by both sides.
pub struct TcpStream {
    handle: Arc<Handle>,
    id: Option<StreamId>,
    local: SocketAddr,
    remote: SocketAddr,
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpStream({} to {})", self.local, self.remote)
    }
}

impl TcpStream {
    pub(crate) fn new(handle: Arc<Handle>, id: StreamId, local: SocketAddr, remote: SocketAddr) -> TcpStream {
        TcpStream { handle, id: Some(id), local, remote }
    }

    fn id(&self) -> StreamId {
        self.id.expect("only `reset` and `drop` take the number")
    }

    /// Returns the local address; for an intercepted stream, the address that the peer has connected to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Sets TCP_NODELAY, that is, whether short segments are sent at once instead of waiting for
    /// acknowledgements (RFC 9293 §3.7.4).
    ///
    /// # Errors
    /// The stream has ended.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.handle.call(|_, host| host.set_no_delay(self.id(), nodelay)).map_err(host_error)
    }

    /// Returns TCP's state: round-trip time, windows, retransmitted bytes and more.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn info(&self) -> io::Result<tcp::Info> {
        self.handle.call(|_, host| host.info(self.id())).map_err(host_error)
    }

    /// Aborts the stream: the peer receives a RST, and data that has not been sent is dropped.
    pub fn reset(mut self) {
        if let Some(id) = self.id.take() {
            self.handle.call(|table, host| table.abort(id, host));
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let id = self.id();
        let target = into.initialize_unfilled();
        let read = self.handle.call(|table, host| table.read(id, target, cx, host));
        poll_of(read).map_ok(|count| into.advance(count))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let id = self.id();
        poll_of(self.handle.call(|table, host| table.write(id, &mut std::iter::once(bytes), cx, host)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        runs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let id = self.id();
        let runs = &mut runs.iter().map(|run| &**run);
        poll_of(self.handle.call(|table, host| table.write(id, runs, cx, host)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Returns at once, because written data is always sent without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Sends a FIN after the data written so far. Does not wait for its acknowledgement.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let id = self.id();
        Poll::Ready(self.handle.call(|table, host| table.finish(id, host)))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.handle.call(|table, host| table.close(id, host));
        }
    }
}

/// A TCP listener. Dropping it resets the connections that have not been accepted; accepted ones stay open.
pub struct TcpListener {
    handle: Arc<Handle>,
    number: u32,
    local: SocketAddr,
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpListener({})", self.local)
    }
}

impl TcpListener {
    pub(crate) fn new(handle: Arc<Handle>, number: u32, local: SocketAddr) -> TcpListener {
        TcpListener { handle, number, local }
    }

    /// Returns the local address, with the port that the stack has chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts the next connection. Returns it and the peer's address. Cancelling loses no connection.
    ///
    /// # Errors
    /// `NetworkDown`: the device has failed.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polls for the next connection; see [`TcpListener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.handle.look(|table| table.accept(self.number, cx));
        poll_of(accepted).map_ok(|Accepted { stream, local, remote }| {
            (TcpStream::new(self.handle.clone(), stream, local, remote), remote)
        })
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.handle.call(|table, host| table.unlisten(self.number, host));
    }
}
