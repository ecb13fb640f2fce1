//! Non-blocking streams on a board, for drivers that have a wait set of their own, such as an RDMA NIC or a
//! VI NIC on a running board.
//!
//! Purpose          provide non-blocking calls and a file descriptor to wait on, as with sockets.
//! Waiting          arm the bells ([`Board::arm`], and [`Stream::arm`] for each stream), check everything
//!                  once more, wait until [`Board::file`] is readable, then [disarm](Board::disarm).
//!                  [`Board::is_gone`] drains the file after a wake-up.
//! Blocking         only attaching and [listening](Board::listen) block. They wait at most ten seconds for
//!                  the board's answer.

use super::call::{ATTACH_TIMEOUT, Attaching, Settings, is_no_listener, named, no_listener_error, wait_for};
use super::known::{Accepted, Core, GIVEN_BACK, Shared};
use super::shards::{ShardListener, Shards};
use super::{ClientService, board_gone_error, end_error};
use kiban_attach::{EndReason, Request};
use kiban_base::SharedBytes;
use kiban_os::clock::machine_nanos;
use kiban_os::unix::names::folders_of_boards;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// An attachment to a board in another process. Clones share the attachment.
#[derive(Clone)]
pub struct Board(Arc<Shards>);

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    /// Attaches to the board with this name or, without a name, to the only running board.
    ///
    /// # Errors
    /// If no board with that name accepts clients, if it belongs to another user, or if the settings are
    /// invalid.
    pub fn attach(board: Option<&str>, settings: Settings) -> io::Result<Board> {
        let board = named(ClientService::Streams, board)?;
        let mut why = no_listener_error(ClientService::Streams, &board);
        for folder in folders_of_boards() {
            let called = settings.call_board(&ClientService::Streams.path(&folder, &board));
            match called.and_then(Attaching::wait) {
                Err(error) if is_no_listener(&error) => {}
                Err(error) => why = io::Error::new(error.kind(), format!("board {board}: {error}")),
                attached => return attached.map(|shards| Board(Arc::new(shards))),
            }
        }
        Err(why)
    }

    /// Attaches to the board whose socket has this path. Ignores the spin setting.
    ///
    /// # Errors
    /// Same as for [`Board::attach`].
    pub fn attach_at(door: &Path, settings: Settings) -> io::Result<Board> {
        Ok(Board(Arc::new(settings.call(door)?.wait()?)))
    }

    /// Returns the attachment's state, for callers that wait in another way.
    pub(super) fn into_shards(self) -> Arc<Shards> {
        self.0
    }

    /// Starts to connect. `from` is a local address and port on the board; port 0 lets the board choose a
    /// port.
    ///
    /// # Errors
    /// If all streams of this attachment are in use, or the board has exited.
    pub fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<Stream> {
        let (shared, slot) = self.connect_on(None, from, to)?;
        let bound = from.filter(|from| from.port() != 0).map(|from| (self.clone(), from));
        Ok(Stream { shared, slot, local: None, remote: to, bound })
    }

    fn connect_on(
        &self,
        shard: Option<u16>,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<(Arc<Shared>, u32)> {
        self.0.connect(shard, from, to).unwrap_or_else(|| Err(end_error(EndReason::TooMany)))
    }

    /// Listens on an address of the board; the unspecified address means all of the board's addresses. With
    /// port 0, the board chooses a port, which [`Listener::local_addr`] returns.
    ///
    /// # Errors
    /// If the address is in use or is not one of the board's, or if the board has exited.
    pub fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let mut listener = self.start_listen(local)?;
        let until = machine_nanos() + ATTACH_TIMEOUT.as_nanos() as u64;
        loop {
            self.arm();
            match listener.is_listening() {
                Ok(false) => {}
                result => {
                    self.disarm();
                    return result.map(|_| listener);
                }
            }
            wait_for(self.file(), until)?;
            if self.is_gone() {
                return Err(board_gone_error());
            }
        }
    }

    /// Starts to listen without waiting: [`Listener::is_listening`] returns the result.
    ///
    /// # Errors
    /// If this attachment has too many listeners.
    pub fn start_listen(&self, local: SocketAddr) -> io::Result<Listener> {
        ShardListener::start(self.0.clone(), local).map(Listener)
    }

    /// Returns the file, which becomes readable when the board rings the bell or exits.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// Drains the file, and processes the board's indications. Returns whether the board has exited; if it
    /// has, its streams also return errors.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Arms the bell before the driver sleeps.
    pub fn arm(&self) {
        self.0.arm();
    }

    /// Returns whether the bell has stayed silent since it was armed.
    pub fn is_armed(&self) -> bool {
        self.0.is_armed()
    }

    /// Disarms the bell after a sleep. If the bell was rung, returns the time at which it was first rung.
    pub fn disarm(&self) -> Option<u64> {
        self.0.disarm()
    }
}

/// A TCP stream on the board. Dropping the stream closes it, but data already written is still sent.
pub struct Stream {
    shared: Arc<Shared>,
    slot: u32,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    /// Until the stream is connected: the board and the local address, if a port was given. The stream may
    /// belong to another shard.
    bound: Option<(Board, SocketAddr)>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream(to {})", self.remote)
    }
}

impl Stream {
    /// Returns whether the stream is connected.
    ///
    /// # Errors
    /// If the connection failed.
    pub fn is_connected(&mut self) -> io::Result<bool> {
        if self.local.is_some() {
            return Ok(true);
        }
        let slot = self.slot;
        if let Some((board, from)) = &self.bound
            && let Some(shard) = self.shared.with(|core| core.slots[slot as usize].other_shard)
        {
            let (shared, slot) = board.connect_on(Some(shard), Some(*from), self.remote)?;
            let old = std::mem::replace(&mut self.shared, shared);
            old.with(|core| core.give_up(std::mem::replace(&mut self.slot, slot)));
            return Ok(false);
        }
        self.local = self.shared.with(|core| core.opened(slot)).transpose()?;
        if self.local.is_some() {
            self.bound = None;
        }
        Ok(self.local.is_some())
    }

    /// Returns the local address, once the stream is connected.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Reads up to `most` bytes, and passes them to `take` in runs. Returns the number of bytes. The result
    /// is zero at the end of the stream, and `None` if no data is available yet.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn read(&self, most: usize, take: impl FnMut(SharedBytes<'_>)) -> io::Result<Option<usize>> {
        self.shared.with(|core| core.read(self.slot, most, take)).transpose()
    }

    /// Writes as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn write(&self, bytes: SharedBytes<'_>) -> io::Result<usize> {
        self.write_runs([bytes])
    }

    /// Writes as many bytes from several runs as there is room for, and returns their number.
    ///
    /// # Errors
    /// Same as for [`Stream::write`].
    pub fn write_runs<'a>(&self, runs: impl IntoIterator<Item = SharedBytes<'a>>) -> io::Result<usize> {
        self.shared.with(|core| core.write_runs(self.slot, runs))
    }

    /// Returns whether a read would return data, the end of the stream, or an error.
    pub fn is_readable(&self) -> bool {
        self.shared.with(|core| core.client.has_bytes(self.slot) || self.is_over(core))
    }

    /// Returns whether a write would accept data or return an error.
    pub fn has_room(&self) -> bool {
        self.shared.with(|core| core.client.has_room(self.slot) || self.is_over(core))
    }

    /// Returns whether the peer has sent a FIN, even if not all data has been read.
    pub fn has_ended(&self) -> bool {
        self.shared.with(|core| core.client.has_ended(self.slot))
    }

    /// Returns whether the stream ended in any way other than an orderly close, even if earlier data has not
    /// been read.
    pub fn is_lost(&self) -> bool {
        self.shared.with(|core| {
            core.is_gone || core.slots[self.slot as usize].ended.is_some_and(|why| why != EndReason::Closed)
        })
    }

    /// Returns whether the board has taken all written data.
    pub fn is_drained(&self) -> bool {
        self.shared.with(|core| core.client.is_drained(self.slot))
    }

    fn is_over(&self, core: &Core) -> bool {
        core.is_gone || core.slots[self.slot as usize].ended.is_some()
    }

    /// Arms the stream's bell. The board rings it when data has arrived, when half of the transmit buffer is
    /// free, and when the stream ends.
    pub fn arm(&self) {
        self.shared.with(|core| core.client.arm(self.slot));
    }

    /// Sends a FIN after the data written so far.
    pub fn finish(&self) {
        self.shared.with(|core| {
            if core.client.finish(self.slot).is_err() {
                core.end();
            }
        });
    }

    /// Aborts the stream: the peer receives a reset.
    pub fn abort(mut self) {
        let slot = std::mem::replace(&mut self.slot, GIVEN_BACK);
        self.shared.with(|core| core.request(Request::Abort { slot }));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.slot != GIVEN_BACK {
            self.shared.with(|core| core.give_up(self.slot));
        }
    }
}

/// A listener on the board.
pub struct Listener(ShardListener);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

impl Listener {
    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns whether the board is listening. From then on, [`Listener::local_addr`] returns the port that
    /// the board chose.
    ///
    /// # Errors
    /// If the address is in use, or the board has exited.
    pub fn is_listening(&mut self) -> io::Result<bool> {
        Ok(self.0.listening().transpose()?.is_some())
    }

    /// Returns the next stream, if a peer has connected.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let stream = |(shared, Accepted { slot, local, remote })| Stream {
            shared,
            slot,
            local: Some(local),
            remote,
            bound: None,
        };
        Ok(self.0.accept().transpose()?.map(stream))
    }

    /// Returns whether [`Listener::accept`] would return a stream or an error.
    pub fn is_readable(&self) -> bool {
        self.0.is_readable()
    }
}
