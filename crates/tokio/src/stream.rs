//! Streams and listeners.

use super::attached::Attached;
use kiban_attach::Request;
use kiban_os::clock::machine_nanos;
use kiban_streams::board_gone_error;
use kiban_streams::known::{Accepted, Core, GIVEN_BACK, Shared, Slot};
use kiban_streams::shards::ShardListener;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP stream on the board.
///
/// Reading ends at the peer's FIN; shutdown sends one. Dropping the stream closes it; written data is still
/// sent.
pub struct Stream {
    attached: Arc<Attached>,
    shared: Arc<Shared>,
    at: Accepted,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} to {})", self.at.local, self.at.remote)
    }
}

impl Stream {
    pub(super) fn new(attached: Arc<Attached>, shared: Arc<Shared>, at: Accepted) -> Stream {
        Stream { attached, shared, at }
    }

    pub(super) fn set_local(&mut self, local: SocketAddr) {
        self.at.local = local;
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.at.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.at.remote
    }

    /// Sets TCP_NODELAY, that is, whether short segments are sent at once instead of waiting for ACKs (RFC
    /// 9293 §3.7.4).
    pub fn set_nodelay(&self, nodelay: bool) {
        self.shared.with(|core| core.request(Request::Nagle { slot: self.at.slot, is_on: !nodelay }));
    }

    /// Aborts the stream: the peer receives a reset.
    pub fn reset(mut self) {
        let slot = std::mem::replace(&mut self.at.slot, GIVEN_BACK);
        self.shared.with(|core| core.request(Request::Abort { slot }));
    }

    /// Spins until `look` returns a result or the time for spinning is over. In the latter case, `wait`
    /// registers the task's waker.
    fn look<T>(
        &self,
        mut look: impl FnMut(&mut Core) -> Option<io::Result<T>>,
        wait: impl FnOnce(&mut Slot),
    ) -> Poll<io::Result<T>> {
        let slot = self.at.slot;
        let began = machine_nanos();
        loop {
            if let Some(found) = self.shared.with(|core| look(core)) {
                return Poll::Ready(found);
            }
            if !self.attached.may_spin(began) {
                break;
            }
        }
        self.shared.with(|core| {
            // Arm the bell, then look once more, because the board rings the bell only for later events.
            core.client.arm(slot);
            match look(core) {
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
            |core| {
                let mut rest = &mut *target;
                core.read(slot, rest.len(), |bytes| {
                    let (front, back) = std::mem::take(&mut rest).split_at_mut(bytes.len());
                    bytes.copy_to(0, front);
                    rest = back;
                })
            },
            |state| state.reader = Some(cx.waker().clone()),
        );
        found.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let slot = self.at.slot;
        self.look(|core| core.write(slot, bytes.into()), |state| state.writer = Some(cx.waker().clone()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        runs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slot = self.at.slot;
        let is_empty = runs.iter().all(|run| run.is_empty());
        self.look(
            |core| match core.write_runs(slot, runs.iter().map(|run| (&**run).into())) {
                Ok(0) if !is_empty => None,
                written => Some(written),
            },
            |state| state.writer = Some(cx.waker().clone()),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Returns at once, because written data is always sent without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Sends a FIN after the data written so far.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let finished = self.shared.with(|core| core.client.finish(self.at.slot));
        Poll::Ready(finished.map_err(|_| board_gone_error()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.at.slot != GIVEN_BACK {
            self.shared.with(|core| core.give_up(self.at.slot));
        }
    }
}

/// A listener on the board.
pub struct Listener {
    attached: Arc<Attached>,
    parts: ShardListener,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

impl Listener {
    pub(super) fn new(attached: Arc<Attached>, parts: ShardListener) -> Listener {
        Listener { attached, parts }
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.parts.local_addr()
    }

    /// Accepts the next stream.
    ///
    /// # Errors
    /// If the board has exited.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let accepted = poll_until(|| self.parts.accept(), |waker| self.parts.register(waker));
        let (shared, at) = accepted.await?;
        Ok((Stream::new(self.attached.clone(), shared, at), at.remote))
    }
}

/// Waits until `look` returns a result. `register` stores the task's waker where the events are reported that
/// it waits for.
pub(super) async fn poll_until<T>(
    mut look: impl FnMut() -> Option<io::Result<T>>,
    register: impl Fn(&Waker),
) -> io::Result<T> {
    poll_fn(|cx: &mut Context<'_>| {
        // Look again after registering, because only later events are reported.
        let found = look().or_else(|| {
            register(cx.waker());
            look()
        });
        found.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
