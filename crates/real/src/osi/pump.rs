//! The pump: bytes of one connection between a socket and whatever speaks a protocol on it.
//!
//! Goal      one gathering write for all that waits, whose payload is referred to; one read for all that has come, into memory
//!           that is handed up as it is.
//! Turn      what stands above works; then the socket takes what it takes and gives what it has; then again.
//! Reading   room begins small and grows as long as reads fill it, so that thousands of silent connections cost little.
//! Limits    nothing is read while [`End::wants_bytes`] says no. How much waits to be sent is for the end to bound.

use bytes::Bytes;
use kiban_ground::{Instant, RopeQueue};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use super::buffers::{BUFFER_BYTES, Buffer};
use super::ropes::poll_write;
use crate::Clock;

/// The first read of a connection asks for so many bytes, and one after a short read,
const READ_BYTES_MIN: usize = 4 << 10;
/// and one after a full one for twice as many as that, but never for more.
const READ_BYTES_MAX: usize = BUFFER_BYTES;
/// At the end of a connection, the last words may take so long: a TLS session has some of its own.
const FAREWELL: Duration = Duration::from_secs(30);

/// One end of a connection: what is pumped.
pub trait End {
    /// Bytes have come.
    fn receive(&mut self, bytes: Bytes, now: Instant);
    /// No more will come: the peer has closed its side, or the connection is broken (`Err`).
    fn ended(&mut self, how: io::Result<()>, now: Instant);
    /// Does what there is to do now, timers included; files are read and written here.
    fn work(&mut self, now: Instant);
    /// What is to be sent. The pump takes from its front.
    fn outgoing(&mut self) -> &mut RopeQueue;
    /// Whether more bytes may come.
    fn wants_bytes(&self) -> bool;
    /// When there is something to do though nothing comes.
    fn deadline(&self) -> Option<Instant>;
    /// Whether the connection is to be closed as soon as all is sent.
    fn is_over(&self) -> bool;
}

/// What a turn at the socket brought.
enum Turn {
    /// Some bytes left, and nothing came.
    Sent,
    /// Bytes came.
    Came(usize),
    /// The stream is at its end.
    End,
}

/// Pumps until the end says that it is over and all has been sent. Whoever rings the bell has it work.
///
/// # Errors
/// What the socket says; the end has been told of it ([`End::ended`]).
pub async fn pump<S>(end: &mut impl End, socket: &mut S, bell: &Notify, clock: &Clock) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Buffer::default();
    let mut read_bytes = READ_BYTES_MIN;
    let mut open = true;
    loop {
        end.work(clock.now());
        if end.is_over() && end.outgoing().is_empty() {
            let farewell = tokio::time::timeout(FAREWELL, socket.shutdown()).await;
            return farewell.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        }
        let deadline = end.deadline();
        let listens = open && end.wants_bytes();
        if listens && buffer.is_none() {
            buffer = Buffer::take(read_bytes);
        }
        let turn = poll_fn(|cx| at_socket(cx, socket, end.outgoing(), listens.then(|| buffer.filling())));
        let patience = deadline.map_or(Duration::MAX, |deadline| deadline.since(clock.now()));
        let turn = tokio::select! {
            turn = turn => turn,
            () = bell.notified() => continue,
            () = tokio::time::sleep(patience), if deadline.is_some() => continue,
        };
        match turn {
            Ok(Turn::Sent) => {}
            Ok(Turn::Came(bytes)) => {
                read_bytes = if bytes >= read_bytes {
                    (read_bytes * 2).min(READ_BYTES_MAX)
                } else {
                    READ_BYTES_MIN.max(bytes)
                };
                end.receive(std::mem::take(&mut buffer).hand_on(), clock.now());
            }
            Ok(Turn::End) => {
                open = false;
                end.ended(Ok(()), clock.now());
            }
            Err(error) => {
                let kind = error.kind();
                end.ended(Err(error), clock.now());
                end.work(clock.now());
                return Err(kind.into());
            }
        }
    }
}

/// Writes and reads once. Ready when anything has moved.
fn at_socket<S>(
    cx: &mut Context<'_>,
    socket: &mut S,
    outgoing: &mut RopeQueue,
    buffer: Option<&mut Vec<u8>>,
) -> Poll<io::Result<Turn>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let sent = write(cx, socket, outgoing)?;
    if let Some(buffer) = buffer {
        match tokio_util::io::poll_read_buf(Pin::new(socket), cx, buffer)? {
            Poll::Ready(0) => return Poll::Ready(Ok(Turn::End)),
            Poll::Ready(bytes) => return Poll::Ready(Ok(Turn::Came(bytes))),
            Poll::Pending => {}
        }
    }
    if sent { Poll::Ready(Ok(Turn::Sent)) } else { Poll::Pending }
}

/// Writes as much as the socket takes: whether any byte left.
fn write<S>(cx: &mut Context<'_>, socket: &mut S, outgoing: &mut RopeQueue) -> io::Result<bool>
where
    S: AsyncWrite + Unpin,
{
    let mut sent = false;
    while !outgoing.is_empty() {
        match poll_write(cx, socket, outgoing)? {
            Poll::Pending => return Ok(sent),
            Poll::Ready(_) => sent = true,
        }
    }
    // A TLS session holds records back until it is told.
    match Pin::new(socket).poll_flush(cx)? {
        Poll::Ready(()) | Poll::Pending => Ok(sent),
    }
}

#[cfg(test)]
mod tests;
