//! Writes ropes to a socket: one gathering write for all pending data, without copying.

use kiban_base::RopeQueue;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Maximum number of parts in a gathering write.
const PARTS_MAX: usize = 256;

/// Writes once from the front of a queue, which must not be empty; returns the number of bytes written.
///
/// # Errors
/// The socket's error; [`io::ErrorKind::WriteZero`] if the socket accepts no bytes but reports no error.
pub(super) fn poll_write<S>(
    cx: &mut Context<'_>,
    socket: &mut S,
    outgoing: &mut RopeQueue,
) -> Poll<io::Result<usize>>
where
    S: AsyncWrite + Unpin,
{
    let mut parts = [IoSlice::new(&[]); PARTS_MAX];
    let mut count = 0;
    for (part, run) in parts.iter_mut().zip(outgoing.runs()) {
        *part = IoSlice::new(run);
        count += 1;
    }
    match ready!(Pin::new(socket).poll_write_vectored(cx, &parts[..count]))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        bytes => {
            outgoing.skip(bytes);
            Poll::Ready(Ok(bytes))
        }
    }
}
