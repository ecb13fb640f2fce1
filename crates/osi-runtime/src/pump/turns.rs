//! The loop between an endpoint and its socket.

use super::end::End;
use crate::buffers::{BUFFER_BYTES, Buffer};
use crate::ropes::poll_write;
use kiban_base::{Instant, RopeQueue};
use kiban_os::Clock;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Size of a connection's first read, and of each read that follows a short one.
const READ_BYTES_MIN: usize = 4 << 10;
/// Maximum size of a read; a full read doubles the size of the next one.
const READ_BYTES_MAX: usize = BUFFER_BYTES;
/// Time limit for sending the last data of a connection, including a TLS session's own records.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of one attempt to write to and read from the socket.
enum Turn {
    /// Bytes were sent, and nothing was received.
    Sent,
    /// Bytes were received.
    Came(usize),
    /// The peer has closed its side of the stream.
    End,
}

/// Moves bytes until the endpoint has ended and everything has been sent. Notify `bell` to let the endpoint
/// do pending work.
///
/// # Errors
/// The socket's error; it has also been reported to [`End::ended`].
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
            let farewell = tokio::time::timeout(CLOSE_TIMEOUT, socket.shutdown()).await;
            return farewell.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        }
        let deadline = end.deadline();
        let listens = open && end.wants_bytes();
        if listens && buffer.is_none() {
            buffer = Buffer::take(read_bytes);
        }
        let turn = poll_fn(|cx| at_socket(cx, socket, end.outgoing(), listens.then(|| buffer.filling())));
        let patience = deadline.since(clock.now());
        let turn = tokio::select! {
            // What has arrived during slow work counts before a deadline that passed meanwhile.
            biased;
            turn = turn => turn,
            () = bell.notified() => continue,
            () = tokio::time::sleep(patience), if deadline != Instant::NEVER => continue,
        };
        match turn {
            Ok(Turn::Sent) => {}
            Ok(Turn::Came(bytes)) => {
                read_bytes = if bytes >= read_bytes {
                    (read_bytes * 2).min(READ_BYTES_MAX)
                } else {
                    READ_BYTES_MIN.max(bytes)
                };
                end.arrive(std::mem::take(&mut buffer).hand_on(), clock.now());
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

/// Writes and reads once. Becomes ready when any bytes have been sent or received.
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

/// Writes as much as the socket accepts; returns whether any byte was written.
pub(super) fn write<S>(cx: &mut Context<'_>, socket: &mut S, outgoing: &mut RopeQueue) -> io::Result<bool>
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
    // A TLS session may hold records back until it is flushed.
    match Pin::new(socket).poll_flush(cx)? {
        Poll::Ready(()) | Poll::Pending => Ok(sent),
    }
}
