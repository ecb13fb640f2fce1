//! A board's streams for drivers that sleep by themselves: the RDMA NIC and the VI NIC on a running board.
//!
//! Goal      what sockets are to such a driver: calls that never wait, and a file to sleep on.
//! Sleep     as with any memory that two processes share: arm ([`Board::arm`], and [`Stream::arm`] for each stream), look at all
//!           once more, sleep on [`Board::file`], [disarm](Board::disarm). A file that woke is emptied by [`Board::is_gone`].
//! Waiting   only to attach, and to [listen](Board::listen): both end with the board's word, or after ten seconds.

use super::call::{PATIENCE, Settings, is_nobody, memory_bytes, named, nobody, silent};
use super::known::{Accepted, Core, GIVEN_BACK, Shared};
use super::{door, error, folders, gone};
use crate::clock::machine_nanos;
use crate::wait::timespec;
use kiban_board::streams::{Ask, Why};
use kiban_ground::SharedBytes;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A board of another process, whose streams are used from here. Clones are the same attachment.
#[derive(Clone)]
pub struct Board(Arc<Shared>);

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    /// Attaches to a board by its name; without a name to the only one that runs.
    ///
    /// # Errors
    /// No board of that name takes clients, or it is another user's; settings that no board takes.
    pub fn attach(board: Option<&str>, settings: Settings) -> io::Result<Board> {
        let board = named(board)?;
        let mut why = nobody(&board);
        for folder in folders() {
            match Board::attach_at(&door(&folder, &board), settings) {
                Err(error) if is_nobody(&error) => {}
                Err(error) => why = io::Error::new(error.kind(), format!("board {board}: {error}")),
                attached => return attached,
            }
        }
        Err(why)
    }

    /// The same by the path of the board's door. Nobody spins here: of the settings, that is left aside.
    ///
    /// # Errors
    /// As [`Board::attach`].
    pub fn attach_at(door: &Path, settings: Settings) -> io::Result<Board> {
        let (mut half, layout) = settings.call(door)?;
        let bytes = memory_bytes(layout);
        let until = machine_nanos() + PATIENCE.as_nanos() as u64;
        loop {
            if let Some(channel) = half.complete(bytes..=bytes)? {
                return Ok(Board(Arc::new(Shared::new(channel, layout))));
            }
            wait_for(half.as_fd(), until)?;
        }
    }

    /// Begins to connect; `from`: an address and port of the board's, port 0 standing for any.
    ///
    /// # Errors
    /// All streams of this attachment are in use, or the board has gone.
    pub fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<Stream> {
        let slot = self.0.with(|core| core.connect(from, to)).unwrap_or_else(|| Err(error(Why::TooMany)))?;
        Ok(Stream { shared: self.0.clone(), slot, local: None, remote: to })
    }

    /// Listens on an address of the board's; an unspecified one stands for all. Port 0: the board chooses one, which
    /// [`Listener::local_addr`] says.
    ///
    /// # Errors
    /// It is taken, or not the board's; or the board has gone.
    pub fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let mut listener = self.begin_listen(local)?;
        let until = machine_nanos() + PATIENCE.as_nanos() as u64;
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
                return Err(gone());
            }
        }
    }

    /// The same without waiting: [`Listener::is_listening`] says how it went.
    ///
    /// # Errors
    /// This attachment has too many listeners.
    pub fn begin_listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let number = self.0.with(|core| core.listen(local))?;
        Ok(Listener { shared: self.0.clone(), number, local })
    }

    /// What becomes readable when the board rings, and hangs up when it has gone.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.channel.socket()
    }

    /// Takes what woke us, and hears what the board tells. Whether it has gone: then its streams say so.
    pub fn is_gone(&self) -> bool {
        let hung_up = self.0.channel.is_gone();
        self.0.with(|core| {
            // Though nothing was told there may be room for what is asked.
            core.hear();
            if hung_up && !core.is_gone {
                core.end();
            }
            core.is_gone
        })
    }

    /// About to sleep.
    pub fn arm(&self) {
        self.0.channel.own_bell().arm();
    }

    /// Whether nobody has rung since.
    pub fn is_armed(&self) -> bool {
        self.0.channel.own_bell().is_armed()
    }

    /// Awake; when it was rung first.
    pub fn disarm(&self) -> Option<u64> {
        self.0.channel.own_bell().disarm()
    }
}

/// Waits until a file can be read, or a moment of the machine's, in nanoseconds, has come.
fn wait_for(file: BorrowedFd<'_>, until: u64) -> io::Result<()> {
    let left = timespec(Duration::from_nanos(until.saturating_sub(machine_nanos())));
    match poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&left)) {
        Ok(0) => Err(silent()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A TCP stream of the board's. Who drops it reads no more, and what was written still leaves.
pub struct Stream {
    shared: Arc<Shared>,
    slot: u32,
    local: Option<SocketAddr>,
    remote: SocketAddr,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream(to {})", self.remote)
    }
}

impl Stream {
    /// Whether it has connected.
    ///
    /// # Errors
    /// It never will.
    pub fn is_connected(&mut self) -> io::Result<bool> {
        if self.local.is_none() {
            self.local = self.shared.with(|core| core.opened(self.slot)).transpose()?;
        }
        Ok(self.local.is_some())
    }

    /// The board's end, once it is connected.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Reads up to `most` bytes, which `take` is given in runs: how many; `None`: nothing is here now, and zero: the peer has
    /// ended.
    ///
    /// # Errors
    /// The stream is lost.
    pub fn read(&self, most: usize, take: impl FnMut(SharedBytes<'_>)) -> io::Result<Option<usize>> {
        self.shared.with(|core| core.read(self.slot, most, take)).transpose()
    }

    /// Writes as much as there is room for: how many bytes.
    ///
    /// # Errors
    /// The stream is lost.
    pub fn write(&self, bytes: SharedBytes<'_>) -> io::Result<usize> {
        self.write_runs([bytes])
    }

    /// The same of several runs of bytes.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub fn write_runs<'a>(&self, runs: impl IntoIterator<Item = SharedBytes<'a>>) -> io::Result<usize> {
        self.shared.with(|core| core.write_runs(self.slot, runs))
    }

    /// Whether reading would come to something: bytes, the end, a loss.
    pub fn has_news(&self) -> bool {
        self.shared.with(|core| core.client.has_bytes(self.slot) || self.is_over(core))
    }

    /// Whether writing would come to something: there is room, or a loss is to be told.
    pub fn has_room(&self) -> bool {
        self.shared.with(|core| core.client.has_room(self.slot) || self.is_over(core))
    }

    /// Whether the peer sends no more, though not all may have been read.
    pub fn has_ended(&self) -> bool {
        self.shared.with(|core| core.client.has_ended(self.slot))
    }

    /// Whether it did not end in order, though not all that came before may have been read.
    pub fn is_lost(&self) -> bool {
        self.shared.with(|core| {
            core.is_gone || core.slots[self.slot as usize].ended.is_some_and(|why| why != Why::Closed)
        })
    }

    /// Whether all that was written has been taken by the board.
    pub fn is_taken(&self) -> bool {
        self.shared.with(|core| core.client.is_taken(self.slot))
    }

    fn is_over(&self, core: &Core) -> bool {
        core.is_gone || core.slots[self.slot as usize].ended.is_some()
    }

    /// About to wait for this stream: the board rings when something has come, when half of the room for what leaves is free, or at its end.
    pub fn arm(&self) {
        self.shared.with(|core| core.client.arm(self.slot));
    }

    /// Sends no more: what is written still goes, then the end.
    pub fn finish(&self) {
        self.shared.with(|core| {
            if core.client.finish(self.slot).is_err() {
                core.end();
            }
        });
    }

    /// Ends it at once: the peer is reset.
    pub fn abort(mut self) {
        let slot = std::mem::replace(&mut self.slot, GIVEN_BACK);
        self.shared.with(|core| core.ask(Ask::Abort { slot }));
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
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether the board has said that it listens; from then on the address has the port that it chose.
    ///
    /// # Errors
    /// It does not, since the address is taken; or the board has gone.
    pub fn is_listening(&mut self) -> io::Result<bool> {
        let said = self.shared.with(|core| core.listening(self.number)).transpose()?;
        self.local = said.unwrap_or(self.local);
        Ok(said.is_some())
    }

    /// The next who has connected, if somebody has.
    ///
    /// # Errors
    /// The board has gone.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = self.shared.with(|core| core.accept(self.number)).transpose()?;
        Ok(accepted.map(|Accepted { slot, local, remote }| Stream {
            shared: self.shared.clone(),
            slot,
            local: Some(local),
            remote,
        }))
    }

    /// Whether taking would come to something.
    pub fn has_news(&self) -> bool {
        self.shared.with(|core| {
            let arrived = core.listeners.get(&self.number).is_some_and(|waiting| !waiting.arrived.is_empty());
            arrived || core.is_gone
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.with(|core| core.unlisten(self.number));
    }
}
