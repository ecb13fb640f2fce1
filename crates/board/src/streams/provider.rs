//! The protocol that an attached program's streams are connected to: the board's TCP ([`Host`]), or a
//! protocol above it.

use super::tcp_info::{TCP_INFO_BYTES, tcp_info};
use crate::{Host, HostError, StreamId};
use core::net::SocketAddr;
use kiban_attach::EndReason;
use kiban_base::{Bytes, SharedBytes, Slice};
use kiban_tcpip::tcp::Owner;

/// Received bytes of a stream.
pub trait Chunk {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
}

impl Chunk for Slice {
    fn bytes(&self) -> &[u8] {
        Slice::bytes(self)
    }
}

impl Chunk for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The provider of the streams of an attached program ([`ClientStreams`](super::ClientStreams)). Its
/// completions are those of the board. A call for a stream that has ended does nothing; a completion reports
/// the end.
pub trait Provider {
    /// Received bytes.
    type Chunk: Chunk;

    /// Returns a new, unique owner, for a new client.
    fn new_owner(&mut self) -> Owner;
    /// Opens a stream for an owner; see [`Host::open_for`].
    ///
    /// # Errors
    /// Same as for [`Host::open_for`].
    fn open(
        &mut self,
        owner: Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, HostError>;
    /// Returns the other shard of the board to which a stream from a given local port belongs.
    fn other_shard(&mut self, _local: Option<SocketAddr>, _remote: SocketAddr) -> Option<u16> {
        None
    }
    /// Listens for an owner; see [`listen`](super::listen).
    ///
    /// # Errors
    /// Same as for [`listen`](super::listen).
    fn listen(&mut self, owner: Owner, local: SocketAddr) -> Result<(u32, SocketAddr), EndReason>;
    /// Stops listening.
    fn unlisten(&mut self, listener: u32);
    /// Returns the local address of an open stream.
    fn local(&mut self, stream: StreamId) -> Option<SocketAddr>;
    /// Returns the statistics of a stream in Linux's layout ([`tcp_info`]); `None` if it has
    /// ended, or if the protocol has none.
    fn statistics(&mut self, _stream: StreamId) -> Option<[u8; TCP_INFO_BYTES]> {
        None
    }
    /// Disables Nagle's algorithm, or enables the variant in the provider's settings.
    fn set_no_delay(&mut self, stream: StreamId, is_on: bool);
    /// Returns how many bytes a write would accept now.
    fn room(&mut self, stream: StreamId) -> usize;
    /// Writes bytes, and returns how many were accepted.
    fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize;
    /// Writes bytes that another process may change concurrently, and returns how many were accepted.
    fn write_shared(&mut self, stream: StreamId, bytes: SharedBytes<'_>) -> usize;
    /// Returns the number of bytes that can be read.
    fn readable(&mut self, stream: StreamId) -> usize;
    /// Returns the next received bytes.
    fn take(&mut self, stream: StreamId) -> Option<Self::Chunk>;
    /// Ends the sending direction.
    fn finish(&mut self, stream: StreamId);
    /// Called before [`Provider::finish`] and [`Provider::close`]: ends the protocol above TCP, if there is
    /// one. Returns whether TCP has taken all of that protocol's output; if not, the caller must ask again
    /// after the stream's next completion.
    fn drain(&mut self, _stream: StreamId) -> bool {
        true
    }
    /// Closes a stream. What was written is still sent, unless received data is unread: that resets the
    /// stream (RFC 9293 §3.6.1, SHLD-3).
    fn close(&mut self, stream: StreamId);
    /// Aborts a stream.
    fn abort(&mut self, stream: StreamId);
}

impl Provider for Host<'_> {
    type Chunk = Slice;

    fn new_owner(&mut self) -> Owner {
        Host::new_owner(self)
    }

    fn open(
        &mut self,
        owner: Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, HostError> {
        self.open_for(owner, local, remote)
    }

    fn other_shard(&mut self, local: Option<SocketAddr>, remote: SocketAddr) -> Option<u16> {
        self.other_shard_of(local.filter(|local| local.port() != 0)?, remote)
    }

    fn listen(&mut self, owner: Owner, local: SocketAddr) -> Result<(u32, SocketAddr), EndReason> {
        super::listen::listen(self, owner, local, false)
    }

    fn unlisten(&mut self, listener: u32) {
        let _ = Host::unlisten(self, listener);
    }

    fn local(&mut self, stream: StreamId) -> Option<SocketAddr> {
        self.info(stream).ok().map(|info| info.local)
    }

    fn statistics(&mut self, stream: StreamId) -> Option<[u8; TCP_INFO_BYTES]> {
        let info = self.info(stream).ok()?;
        Some(tcp_info(&info, self.now()))
    }

    fn set_no_delay(&mut self, stream: StreamId, is_on: bool) {
        let _ = Host::set_no_delay(self, stream, is_on);
    }

    fn room(&mut self, stream: StreamId) -> usize {
        Host::room(self, stream).unwrap_or(0)
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        Host::write(self, stream, bytes).unwrap_or(0)
    }

    fn write_shared(&mut self, stream: StreamId, bytes: SharedBytes<'_>) -> usize {
        Host::write_shared(self, stream, bytes).unwrap_or(0)
    }

    fn readable(&mut self, stream: StreamId) -> usize {
        Host::readable(self, stream).unwrap_or(0)
    }

    fn take(&mut self, stream: StreamId) -> Option<Slice> {
        Host::take(self, stream).ok().flatten()
    }

    fn finish(&mut self, stream: StreamId) {
        let _ = Host::finish(self, stream);
    }

    fn close(&mut self, stream: StreamId) {
        let _ = Host::close(self, stream);
    }

    fn abort(&mut self, stream: StreamId) {
        let _ = Host::abort(self, stream);
    }
}
