//! The host edge: the calls that applications make.
//!
//! Purpose          streams, datagrams and pings for the layer above the board, with at most one copy of the
//!                  payload.
//! Transmit path    `write` copies into content pages and computes the checksum at the same time (paper
//!                  \[1\]: during the DMA from the host); slices end where segments will end. It accepts as
//!                  much as fits and returns how much.
//! Receive path     `read` copies out of the pages into which cells were reassembled; `take` returns a page's
//!                  slice without a copy. Both open the window.
//! Errors           a call on an object that does not exist, or no longer exists, returns the reason
//!                  ([`HostError`]) and changes nothing.

use crate::board::Board;
use crate::edge::{Completion, Consumer, StreamId, Upper};
use crate::error::HostError;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;
use kiban_base::{Instant, SharedBytes, Slice};
use kiban_tcpip::tcp;
use kiban_vi as vi;

/// The board as its host sees it, for one call.
pub struct Host<'a> {
    pub(crate) board: &'a mut Board,
    pub(crate) consumer: Consumer,
}

impl Board {
    /// Returns the view of a board's only program, at the time of the last input. Call [`Board::poll`]
    /// afterwards.
    pub fn host(&mut self) -> Host<'_> {
        self.host_for(Consumer::default())
    }

    /// Returns the view of a consumer: it gets the completions for the streams and sockets that it opens and
    /// for the pings that it sends.
    pub fn host_for(&mut self, consumer: Consumer) -> Host<'_> {
        self.announced = false;
        Host { board: self, consumer }
    }

    /// Returns the view of one program among several.
    pub fn host_of(&mut self, program: usize) -> Host<'_> {
        self.host_for(Consumer { program: program as u32, ..Consumer::default() })
    }

    /// Returns the next completion and its consumer.
    pub fn completion(&mut self) -> Option<(Consumer, Completion)> {
        self.announced = false;
        self.stack.edge.completion()
    }
}

impl Host<'_> {
    /// Returns the next completion, for a board with one consumer ([`Board::completion`] also returns the
    /// consumer).
    pub fn completion(&mut self) -> Option<Completion> {
        self.board.stack.edge.completion().map(|(_, completion)| completion)
    }

    /// Returns the consumer of this view. While a completion is being handled, this is the completion's
    /// consumer.
    pub fn consumer(&self) -> Consumer {
        self.consumer
    }

    /// Returns the view of a service within a program.
    pub fn for_service(&mut self, service: u32) -> Host<'_> {
        let consumer = Consumer { service, client: 0, ..self.consumer };
        Host { board: self.board, consumer }
    }

    /// Returns the view of a client of a service.
    pub fn for_client(&mut self, client: u32) -> Host<'_> {
        let consumer = Consumer { client, ..self.consumer };
        Host { board: self.board, consumer }
    }

    /// Returns the board's VI NIC, or `None` without a port for it. Its calls happen at the time of the last
    /// input ([`Host::now`]).
    pub fn vi(&mut self) -> Option<&mut vi::Nic> {
        let Board { stack, vi, .. } = &mut *self.board;
        let nic = vi.as_deref_mut()?;
        stack.unsettled = true;
        stack.edge.vi_used_by(self.consumer);
        Some(nic)
    }

    /// Returns the time of the last input.
    pub fn now(&self) -> Instant {
        self.board.stack.now
    }

    /// Returns whether `address` is one of the board's.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.board.stack.ip.ip.is_ours(address)
    }

    /// Returns the board's addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.board.stack.ip.ip.addresses()
    }

    /// Listens on `local`; an unspecified address means every address of the board. Returns the listener's
    /// number.
    ///
    /// # Errors
    /// [`HostError::Tcp`]: another listener has the address and port, or the port is zero.
    pub fn listen(&mut self, local: SocketAddr) -> Result<u32, HostError> {
        self.listen_with(local, self.board.stack.v6_only)
    }

    /// Like [`listen`](Self::listen); `v6_only` sets whether the unspecified IPv6 address accepts only IPv6.
    /// IPv4 peers are reported with their IPv4 address.
    ///
    /// # Errors
    /// Same as for [`listen`](Self::listen).
    pub fn listen_with(&mut self, local: SocketAddr, v6_only: bool) -> Result<u32, HostError> {
        self.listen_for(tcp::Owner::BOARD, local, v6_only)
    }

    /// Listens for an owner, whose streams share one allotment of memory and sessions.
    ///
    /// # Errors
    /// Same as for [`listen`](Self::listen).
    pub fn listen_for(
        &mut self,
        owner: tcp::Owner,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<u32, HostError> {
        self.board.stack.listen(Upper::Host(self.consumer), owner, local, v6_only)
    }

    /// Returns a new, unique owner, for a new client.
    pub fn new_owner(&mut self) -> tcp::Owner {
        self.board.stack.owners += 1;
        tcp::Owner::client(self.board.stack.owners)
    }

    /// Stops listening. Streams that the listener accepted stay open.
    ///
    /// # Errors
    /// [`HostError::UnknownListener`].
    pub fn unlisten(&mut self, listener: u32) -> Result<(), HostError> {
        self.board.stack.unlisten(listener)
    }

    /// Opens a stream to `remote`. The result is a [`Completion::Opened`] or [`Completion::Ended`].
    ///
    /// # Errors
    /// [`HostError::NoRoute`]; [`HostError::Tcp`]: the address of `remote` is multicast or its port zero, or
    /// no session or port is free. Later failures are reported by [`Completion::Ended`].
    pub fn open(&mut self, remote: SocketAddr) -> Result<StreamId, HostError> {
        self.open_for(tcp::Owner::BOARD, None, remote)
    }

    /// Opens a stream for an owner, whose streams share one allotment of memory and sessions; `local` has the
    /// same meaning as for [`open_from`](Self::open_from).
    ///
    /// # Errors
    /// Same as for [`open_from`](Self::open_from). The owner's share of sessions may be used up, too.
    pub fn open_for(
        &mut self,
        owner: tcp::Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, HostError> {
        self.board.stack.open(Upper::Host(self.consumer), owner, local, remote)
    }

    /// Returns the shard that must open a stream from a given port, if that is another one than this. With an
    /// unspecified address, the route determines the address.
    pub fn other_shard_of(&self, mut local: SocketAddr, remote: SocketAddr) -> Option<u16> {
        let shard = self.board.stack.ip.shard.as_ref()?;
        if local.ip().is_unspecified() {
            local.set_ip(self.source_for(remote.ip())?);
        }
        let its = shard.steering.of_flow(local, remote);
        (its != shard.number).then_some(its as u16)
    }

    /// Opens a stream from an address of this board and a port. With an unspecified address, the route
    /// determines the address; with port 0, a free port is chosen (RFC 9293 §3.9.1.1, MUST-43). The program
    /// that intercepts ([`intercept`](Self::intercept)) may open streams from any address.
    ///
    /// # Errors
    /// Same as for [`open`](Self::open); [`HostError::Tcp`] also if `local` is not an address of this board,
    /// or the connection already exists.
    pub fn open_from(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<StreamId, HostError> {
        self.open_for(tcp::Owner::BOARD, Some(local), remote)
    }

    /// Opens a stream like [`open_for`](Self::open_for), with TCP Fast Open (RFC 7413). If the server has
    /// granted a cookie before, the result is `true`: the SYN waits for the first [`write`](Self::write) and
    /// carries its data, if memory is free for it. The server may receive this data twice (§6.1). Otherwise
    /// the SYN leaves at once and requests a cookie.
    ///
    /// # Errors
    /// Same as for [`open_for`](Self::open_for).
    pub fn open_fast(
        &mut self,
        owner: tcp::Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(StreamId, bool), HostError> {
        self.board.stack.open_fast(Upper::Host(self.consumer), owner, local, remote)
    }

    /// Opens a stream like [`open`](Self::open), with its first data (TCP Fast Open, RFC 7413). If the server
    /// has granted a cookie before, the data leaves in the SYN; otherwise a cookie is requested, and the data
    /// follows the handshake. The server may receive data in a SYN twice (§6.1), so a request must be
    /// idempotent. Returns the stream, and how much of `bytes` was taken; if that is not all,
    /// [`Completion::Writable`] follows.
    ///
    /// # Errors
    /// Same as for [`open_from`](Self::open_from).
    pub fn open_with_data(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        bytes: &[u8],
    ) -> Result<(StreamId, usize), HostError> {
        self.board.stack.open_with_data(Upper::Host(self.consumer), local, remote, bytes)
    }

    /// Sets how many connections of a listener may be pending whose data has arrived in the SYN (RFC 7413
    /// §5.1); with zero, it accepts none. The default is `tcp.fast_open_pending_max`.
    ///
    /// # Errors
    /// [`HostError::UnknownListener`].
    pub fn set_fast_open(&mut self, listener: u32, pending_max: u32) -> Result<(), HostError> {
        let known = self.board.stack.ip.tcp.set_fast_open(listener, pending_max);
        if known { Ok(()) } else { Err(HostError::UnknownListener) }
    }

    /// Returns whether resources are divided among peer addresses first, and then among sessions
    /// (`tcp.fairness`).
    pub fn shares_by_address(&self) -> bool {
        self.board.stack.ip.tcp.shares_by_address()
    }

    /// Writes as much of `bytes` as there is room for, and returns how much. After a partial write,
    /// [`Completion::Writable`] follows.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::NotOpen`] before the stream is open, unless its SYN waits
    /// for data ([`open_fast`](Self::open_fast)), and after it has ended; [`HostError::Tcp`] after
    /// [`finish`](Self::finish).
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, HostError> {
        self.board.stack.write(id, bytes)
    }

    /// Writes bytes that another process may change concurrently. Each byte is read once.
    ///
    /// # Errors
    /// Same as for [`write`](Self::write).
    pub fn write_shared(&mut self, id: StreamId, bytes: SharedBytes<'_>) -> Result<usize, HostError> {
        self.board.stack.write_shared(id, bytes)
    }

    /// Lets `source` write at most `most` bytes into the board's pages, for example with one system call, so
    /// that they are copied only once. `source` gets parts of pages, fills them from the front of the first,
    /// and returns the number of bytes. The result is `None`, without a call of `source`, if there is no
    /// room; [`Completion::Writable`] then follows.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::NotOpen`] before the stream is open and after it has ended;
    /// [`HostError::Tcp`] after [`finish`](Self::finish). An error of `source` is returned inside, and
    /// changes nothing.
    pub fn write_from<E>(
        &mut self,
        id: StreamId,
        most: usize,
        source: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<Option<Result<usize, E>>, HostError> {
        self.board.stack.write_from(id, most, source)
    }

    /// Returns how many bytes a `write` would accept now, if pages are free.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn room(&mut self, id: StreamId) -> Result<usize, HostError> {
        let session = self.board.stack.session(id)?;
        Ok(self.board.stack.ip.tcp.room(session))
    }

    /// Returns the number of bytes that can be read.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn readable(&mut self, id: StreamId) -> Result<usize, HostError> {
        Ok(self.board.stack.edge.stream(id).ok_or(HostError::UnknownStream)?.received_bytes)
    }

    /// Copies received bytes into `target` and returns how many; zero if there are none now.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn read(&mut self, id: StreamId, target: &mut [u8]) -> Result<usize, HostError> {
        self.board.stack.read(id, target)
    }

    /// Returns the next received bytes as a slice of the board's page; dropping the slice frees it.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn take(&mut self, id: StreamId) -> Result<Option<Slice>, HostError> {
        self.board.stack.take(id)
    }

    /// Returns the received bytes as slices of the board's pages. They stay until they are consumed.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn received(&mut self, id: StreamId) -> Result<impl Iterator<Item = &Slice>, HostError> {
        self.board.stack.received(id)
    }

    /// Consumes received bytes without copying them, at most as many as there are.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn consume(&mut self, id: StreamId, count: usize) -> Result<(), HostError> {
        self.board.stack.consume_received(id, count)
    }

    /// Returns the number of bytes from the next one to be read up to and including the last urgent one that
    /// the peer has announced (RFC 9293 §3.8.5); zero if there is none ahead.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn urgent_ahead(&mut self, id: StreamId) -> Result<usize, HostError> {
        Ok(self.board.stack.edge.stream(id).ok_or(HostError::UnknownStream)?.urgent_ahead)
    }

    /// Marks everything written so far as urgent: segments carry the mark until it is acknowledged (RFC 9293
    /// §3.8.5).
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended or sending is finished.
    pub fn send_urgent(&mut self, id: StreamId) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        self.board.stack.unsettled = true;
        Ok(self.board.stack.ip.tcp.send_urgent(session)?)
    }

    /// Sends a FIN after the data written so far; reading continues.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if TCP's session no longer exists.
    pub fn finish(&mut self, id: StreamId) -> Result<(), HostError> {
        self.board.stack.finish(id)
    }

    /// Closes a stream, and frees its number. Written data is still sent, and data that arrives afterwards
    /// causes a reset. If the stream is not open yet, or received data has not been read, it is aborted (RFC
    /// 9293 §3.10.4; §3.6.1, SHLD-3).
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if TCP's session no longer exists.
    pub fn close(&mut self, id: StreamId) -> Result<(), HostError> {
        self.board.stack.close(id)
    }

    /// Aborts a stream, which resets the peer.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`].
    pub fn abort(&mut self, id: StreamId) -> Result<(), HostError> {
        self.board.stack.abort_stream(id)
    }

    /// Sets a stream's timeouts: when keep-alives are sent (RFC 9293 §3.8.4; `None` means none), and how long
    /// data may stay unacknowledged (§3.8.3; `None` means TCP's setting).
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_timeouts(
        &mut self,
        id: StreamId,
        keep_alive: Option<tcp::KeepAlive>,
        user_timeout: Option<Duration>,
    ) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        self.board.stack.unsettled = true;
        Ok(self.board.stack.ip.tcp.set_timeouts(session, keep_alive, user_timeout)?)
    }

    /// Sets which short segments of a stream are delayed, overriding TCP's settings (RFC 9293 §3.7.4).
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_nagle(&mut self, id: StreamId, nagle: tcp::Nagle) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        self.board.stack.unsettled = true;
        Ok(self.board.stack.ip.tcp.set_nagle(session, nagle)?)
    }

    /// Disables Nagle's algorithm for a stream (`TCP_NODELAY`), or enables the variant in TCP's settings.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_no_delay(&mut self, id: StreamId, is_on: bool) -> Result<(), HostError> {
        let usual = match self.board.stack.ip.tcp.config().nagle {
            tcp::Nagle::Off => tcp::Nagle::Minshall,
            usual => usual,
        };
        self.set_nagle(id, if is_on { tcp::Nagle::Off } else { usual })
    }

    /// Sets whether a stream's acknowledgements are not delayed, until it sends data soon after data has
    /// arrived (Linux: `TCP_QUICKACK`). A pending acknowledgement is sent now.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_quick_ack(&mut self, id: StreamId, is_on: bool) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        self.board.stack.unsettled = true;
        Ok(self.board.stack.ip.tcp.set_quick_ack(session, is_on)?)
    }

    /// Sets the differentiated services codepoint of a stream's packets from now on; only the low six bits
    /// count (RFC 9293 §3.9.2, RFC 2474 §3).
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_dscp(&mut self, id: StreamId, dscp: u8) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        Ok(self.board.stack.ip.tcp.set_dscp(session, dscp)?)
    }

    /// Sets the differentiated services codepoint of the connections that a listener accepts from now on,
    /// from the SYN-ACK on.
    ///
    /// # Errors
    /// [`HostError::UnknownListener`].
    pub fn set_listener_dscp(&mut self, listener: u32, dscp: u8) -> Result<(), HostError> {
        let known = self.board.stack.ip.tcp.set_listener_dscp(listener, dscp);
        if known { Ok(()) } else { Err(HostError::UnknownListener) }
    }

    /// Sets how many bytes of a stream may be queued and unsent before it takes no more (Linux:
    /// `TCP_NOTSENT_LOWAT`); `None` means that only the send buffer limits them. A raised limit takes effect
    /// with the next write or acknowledgement.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_unsent_bytes_max(&mut self, id: StreamId, most: Option<NonZeroU32>) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        Ok(self.board.stack.ip.tcp.set_unsent_bytes_max(session, most)?)
    }

    /// Sets the highest rate at which a stream's data leaves, bytes per second; `None` means no limit.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::Tcp`] if the stream has ended.
    pub fn set_pacing_rate_max(&mut self, id: StreamId, rate: Option<NonZeroU64>) -> Result<(), HostError> {
        let session = self.board.stack.session(id)?;
        self.board.stack.unsettled = true;
        Ok(self.board.stack.ip.tcp.set_pacing_rate_max(session, rate)?)
    }

    /// Returns the congestion control algorithm of the board's TCP.
    pub fn congestion_control(&self) -> tcp::CongestionControl {
        self.board.stack.ip.tcp.config().congestion
    }

    /// Returns TCP's state of a live stream at the time of the last input.
    ///
    /// # Errors
    /// [`HostError::UnknownStream`]; [`HostError::NotOpen`] if the stream has ended.
    pub fn info(&mut self, id: StreamId) -> Result<tcp::Info, HostError> {
        let session = self.board.stack.session(id)?;
        let now = self.board.stack.now;
        self.board.stack.ip.tcp.info(session).map(|info| info.until(now)).ok_or(HostError::NotOpen)
    }
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}
