//! A stream, and a listener.

use super::attachment::{Core, Shared, Slot};
use super::{error, gone};
use crate::clock::machine_nanos;
use kiban_board::streams::{Ask, Read, Why};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that has come.
#[derive(Clone, Copy)]
pub(super) struct Accepted {
    pub(super) slot: u32,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// A TCP stream of the board's.
///
/// Reading ends at the peer's FIN; shutting down sends one. Who drops it reads no more, and what was written still leaves.
pub struct Stream {
    shared: Arc<Shared>,
    at: Accepted,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} to {})", self.at.local, self.at.remote)
    }
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, at: Accepted) -> Stream {
        Stream { shared, at }
    }

    pub(super) fn set_local(&mut self, local: SocketAddr) {
        self.at.local = local;
    }

    /// The board's end.
    pub fn local_addr(&self) -> SocketAddr {
        self.at.local
    }

    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.at.remote
    }

    /// Whether short segments leave at once, or may wait for acknowledgements (RFC 9293 §3.7.4).
    pub fn set_nodelay(&self, nodelay: bool) {
        self.shared.with(|core| core.ask(Ask::Nagle { slot: self.at.slot, is_on: !nodelay }));
    }

    /// Ends it at once: the peer is reset.
    pub fn reset(self) {
        self.shared.with(|core| core.ask(Ask::Abort { slot: self.at.slot }));
        // What dropping it would ask for has been done: only the share in the attachment goes.
        let mut own = std::mem::ManuallyDrop::new(self);
        own.at.slot = u32::MAX;
        drop(std::mem::ManuallyDrop::into_inner(own));
    }

    /// Looks for something until it is there or the time for looking is over; then `wait` says how it is waited for.
    fn look<T>(
        &self,
        mut look: impl FnMut(&mut Core) -> Option<io::Result<T>>,
        wait: impl FnOnce(&mut Slot),
    ) -> Poll<io::Result<T>> {
        let slot = self.at.slot;
        let until = self.shared.spins_until();
        loop {
            if let Some(found) = self.shared.with(|core| core.find(&mut look)) {
                return Poll::Ready(found);
            }
            if machine_nanos() >= until {
                break;
            }
            std::hint::spin_loop();
        }
        self.shared.with(|core| {
            // Armed, then looked once more: what comes from now on is told.
            core.client.arm(slot);
            match core.find(&mut look) {
                Some(found) => Poll::Ready(found),
                None => {
                    wait(&mut core.slots[slot as usize]);
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let slot = self.at.slot;
        let target = buffer.initialize_unfilled();
        let found = self.look(
            |core| match core.client.read(slot, target) {
                Ok(Read::Bytes(count)) => Some(Ok(count)),
                Ok(Read::End) => Some(Ok(0)),
                Ok(Read::Nothing) => match core.slots[slot as usize].ended {
                    None => None,
                    Some(Why::Closed) => Some(Ok(0)),
                    Some(why) => Some(Err(error(why))),
                },
                Err(_) => {
                    core.end();
                    Some(Err(gone()))
                }
            },
            |state| state.reader = Some(cx.waker().clone()),
        );
        found.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let slot = self.at.slot;
        self.look(
            |core| {
                if let Some(why) = core.slots[slot as usize].ended {
                    return Some(Err(error(why)));
                }
                match core.client.write(slot, bytes) {
                    Ok(0) if !bytes.is_empty() => None,
                    Ok(count) => Some(Ok(count)),
                    Err(_) => {
                        core.end();
                        Some(Err(gone()))
                    }
                }
            },
            |state| state.writer = Some(cx.waker().clone()),
        )
    }

    /// Everything leaves by itself.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// A FIN follows what has been written.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let finished = self.shared.with(|core| core.client.finish(self.at.slot));
        Poll::Ready(finished.map_err(|_| gone()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.at.slot != u32::MAX {
            self.shared.with(|core| core.give_up(self.at.slot));
        }
    }
}

/// A listener on the board.
pub struct Listener {
    shared: Arc<Shared>,
    number: u16,
    local: SocketAddr,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local)
    }
}

impl Listener {
    pub(super) fn new(shared: Arc<Shared>, number: u16, local: SocketAddr) -> Listener {
        Listener { shared, number, local }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next who has connected.
    ///
    /// # Errors
    /// The board has gone.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let arrived = |cx: &mut Context<'_>| {
            self.shared.with(|core| {
                let is_gone = core.is_gone;
                let Some(waiting) = core.listeners.get_mut(&self.number) else {
                    return Poll::Ready(Err(gone()));
                };
                match waiting.arrived.pop_front() {
                    Some(accepted) => {
                        core.offer();
                        Poll::Ready(Ok(accepted))
                    }
                    None if is_gone => Poll::Ready(Err(gone())),
                    None => {
                        waiting.waker = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
        };
        let accepted = poll_fn(arrived).await?;
        Ok((Stream::new(self.shared.clone(), accepted), accepted.remote))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.with(|core| {
            if let Some(waiting) = core.listeners.remove(&self.number) {
                core.ask(Ask::Unlisten { listener: self.number });
                waiting.arrived.into_iter().for_each(|accepted| core.give_up(accepted.slot));
            }
        });
    }
}
