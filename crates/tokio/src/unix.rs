//! Async Unix-socket listeners and peers, and other files.

use kiban_os::unix::{Listener, Peer};
use rustix::net::SendFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Pause before the next accept when the system is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Registers a [`Listener`], a [`Peer`] or a file with the runtime.
fn register<T: AsRawFd>(file: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: a [`Listener`], a [`Peer`] or a file owns one descriptor, always returns the same one, and
    // keeps it open until it is dropped.
    Ok(unsafe { AsyncFd::register(file) }?)
}

/// Registers a file with the runtime, for example a device.
///
/// # Errors
/// If the runtime cannot register it.
///
/// # Panics
/// If called outside a tokio runtime.
pub fn register_file(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(file)
}

/// A listener that is registered with a runtime.
pub struct AsyncListener(AsyncFd<Listener>);

impl AsyncListener {
    /// Registers a listener with the runtime.
    ///
    /// # Errors
    /// If the runtime cannot register it.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn new(listener: Listener) -> io::Result<AsyncListener> {
        register(listener).map(AsyncListener)
    }

    /// Waits for the next peer.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn accept(&self) -> io::Result<AsyncPeer> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.get_inner().accept().and_then(|peer| peer.map(register).transpose()) {
                Ok(Some(peer)) => return Ok(AsyncPeer(peer)),
                Ok(None) => ready.clear_ready(),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// An accepted peer that is registered with a runtime.
pub struct AsyncPeer(AsyncFd<Peer>);

impl AsFd for AsyncPeer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl AsyncRead for AsyncPeer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = into.initialize_unfilled();
            if let Ok(received) = ready.try_io(|peer| peer.get_ref().receive(room)) {
                return Poll::Ready(received.map(|length| into.advance(length)));
            }
        }
    }
}

impl AsyncWrite for AsyncPeer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(sent) = ready.try_io(|peer| Ok(rustix::net::send(peer.get_ref(), bytes, flags)?)) {
                return Poll::Ready(sent);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
