//! Blocking streams on a board, for programs with ordinary threads. The calls are those of std's `TcpStream`
//! and `TcpListener`.
//!
//! Waiting          one of the waiting threads of an attachment, the leader, sleeps on the attachment's file;
//!                  the others sleep on a condition variable. An indication that concerns a waiting thread
//!                  wakes it through its stream's waker, whichever thread has read the indication. When a
//!                  leader is done, another thread takes its place.
//! Spinning         a reader without data spins for [`Settings::spin`] before it sleeps.
//! Timeouts         as with sockets, a read or write that times out returns `WouldBlock`.
//! Locking          all streams of an attachment share one lock, or one for each shard of the board, which is
//!                  held while bytes are copied.

use super::call::Settings;
use super::known::{Accepted, Core, Shared};
use super::shards::{ShardListener, Shards};
use super::{EndReason, board_gone_error, end_error, nonblocking};
use kiban_attach::Request;
use kiban_os::clock::machine_nanos;
use kiban_os::lock;
use kiban_os::wait::{LONG, YieldLimiter, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

/// The longest sleep without a timeout; afterwards, a thread looks again.
const SLEEP: Duration = Duration::from_secs(3600);

/// The threads that wait for an attachment.
#[derive(Default)]
struct Sleepers {
    state: Mutex<SleepersState>,
    changed: Condvar,
}

#[derive(Default)]
struct SleepersState {
    /// Whether a thread sleeps on the attachment's file.
    has_leader: bool,
    /// The number of events so far. A thread sleeps only if there was none since it looked.
    events: u64,
}

impl Sleepers {
    fn notify(&self, leader_leaves: bool) {
        let mut state = lock(&self.state);
        state.events += 1;
        state.has_leader &= !leader_leaves;
        self.changed.notify_all();
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.notify(false);
    }
}

struct Attached {
    shards: Arc<Shards>,
    sleepers: Arc<Sleepers>,
    spin: Duration,
    offers: YieldLimiter,
}

/// An attachment to a board in another process. Clones share the attachment.
#[derive(Clone)]
pub struct Board(Arc<Attached>);

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
        Ok(Board::new(nonblocking::Board::attach(board, settings)?, settings))
    }

    /// Attaches to the board whose socket has this path.
    ///
    /// # Errors
    /// Same as for [`Board::attach`].
    pub fn attach_at(door: &Path, settings: Settings) -> io::Result<Board> {
        Ok(Board::new(nonblocking::Board::attach_at(door, settings)?, settings))
    }

    fn new(board: nonblocking::Board, settings: Settings) -> Board {
        let (sleepers, offers) = (Arc::default(), YieldLimiter::default());
        Board(Arc::new(Attached { shards: board.into_shards(), sleepers, spin: settings.spin, offers }))
    }

    /// Connects; the board's route determines the local address.
    ///
    /// # Errors
    /// If there is no listener or no route, if all streams of the attachment are in use, or, with `TimedOut`,
    /// if the peer does not answer in time.
    pub fn connect(&self, remote: SocketAddr, timeout: Duration) -> io::Result<Stream> {
        let begun = self.0.shards.connect(None, None, remote);
        let (shared, slot) = begun.unwrap_or_else(|| Err(end_error(EndReason::TooMany)))?;
        // From this point on, dropping the stream returns the slot.
        let at = Accepted { slot, local: remote, remote };
        let mut stream = StreamState::new(self.clone(), shared, at);
        let opened = self.0.wait(
            Some(after(timeout)),
            || stream.shared.with(|core| core.opened(slot)),
            |waker| stream.shared.with(|core| core.slots[slot as usize].reader = Some(waker.clone())),
        );
        stream.at.local = opened.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the peer does not answer"),
            _ => error,
        })?;
        Ok(Stream(Arc::new(stream)))
    }

    /// Listens on an address of the board; the unspecified address means all of them. If the port is 0, the
    /// board chooses one, which [`Listener::local_addr`] returns.
    ///
    /// # Errors
    /// If the address is in use or is not one of the board's, or if the board has exited.
    pub fn listen(&self, local: SocketAddr) -> io::Result<Listener> {
        let parts = std::cell::RefCell::new(ShardListener::start(self.0.shards.clone(), local)?);
        self.0.wait(None, || parts.borrow_mut().listening(), |waker| parts.borrow().register(waker))?;
        Ok(Listener { board: self.clone(), parts: parts.into_inner() })
    }
}

/// Returns the time after a duration, in nanoseconds of CLOCK_MONOTONIC.
fn after(timeout: Duration) -> u64 {
    machine_nanos().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns whether a read would return data, the end of the stream, or an error.
fn is_readable(core: &mut Core, slot: u32) -> bool {
    core.client.has_bytes(slot) || core.slots[slot as usize].ended.is_some()
}

/// Has a waker called when a read would return something.
fn await_bytes(core: &mut Core, slot: u32, waker: &Waker) {
    core.client.arm(slot);
    core.slots[slot as usize].reader = Some(waker.clone());
}

/// Gives up the lead when a thread has slept on the file.
struct Lead<'a>(&'a Attached);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.sleepers.notify(true);
    }
}

impl Attached {
    /// Waits until `look` returns a result. `register` arms bells and stores the waker of what is waited for.
    ///
    /// # Errors
    /// The errors of `look`; `WouldBlock` once the deadline (CLOCK_MONOTONIC, in nanoseconds) is over.
    fn wait<T>(
        &self,
        deadline: Option<u64>,
        mut look: impl FnMut() -> Option<io::Result<T>>,
        mut register: impl FnMut(&Waker),
    ) -> io::Result<T> {
        let began = machine_nanos();
        loop {
            if let Some(found) = look() {
                return found;
            }
            let now = machine_nanos();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let spun = Duration::from_nanos(now - began);
            if spun >= self.spin {
                break;
            }
            if spun >= LONG {
                self.offers.yield_if_due();
            }
            std::hint::spin_loop();
        }
        let waker = Waker::from(self.sleepers.clone());
        loop {
            let seen = lock(&self.sleepers.state).events;
            // Arm and register before looking, because later events alone are reported.
            register(&waker);
            if let Some(found) = look() {
                return found;
            }
            let now = machine_nanos();
            let left = deadline.map_or(SLEEP, |end| Duration::from_nanos(end.saturating_sub(now)));
            if left.is_zero() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let mut state = lock(&self.sleepers.state);
            if state.events != seen {
                continue;
            }
            if state.has_leader {
                // A poisoned lock means that another thread has panicked; look again.
                drop(self.sleepers.changed.wait_timeout(state, left));
                continue;
            }
            state.has_leader = true;
            drop(state);
            let lead = Lead(self);
            self.shards.arm();
            // Indications that arrived before the bells were armed do not ring them. Process those of all
            // channels, because they may concern other threads.
            self.shards.process_indications();
            let found = look();
            if found.is_none() {
                let file = PollFd::from_borrowed_fd(self.shards.file(), PollFlags::IN);
                // An error or a signal only shortens the sleep.
                let _ = poll(&mut [file], Some(&timespec(left)));
            }
            self.shards.disarm();
            self.shards.is_gone();
            drop(lead);
            if let Some(found) = found {
                return found;
            }
        }
    }
}

/// A TCP stream on the board. Clones are the same stream, and the last one closes it; data already written is
/// still sent.
#[derive(Clone)]
pub struct Stream(Arc<StreamState>);

struct StreamState {
    board: Board,
    shared: Arc<Shared>,
    at: Accepted,
    /// Bytes that were peeked at and not read yet.
    peeked: Mutex<Vec<u8>>,
    /// How long a read and a write may wait; `None` is forever.
    timeouts: Mutex<[Option<Duration>; 2]>,
    is_nonblocking: AtomicBool,
}

impl StreamState {
    fn new(board: Board, shared: Arc<Shared>, at: Accepted) -> StreamState {
        let (peeked, timeouts) = (Mutex::default(), Mutex::default());
        StreamState { board, shared, at, peeked, timeouts, is_nonblocking: AtomicBool::new(false) }
    }

    /// Returns the deadline of a read (0) or a write (1).
    fn deadline(&self, of: usize) -> Option<u64> {
        if self.is_nonblocking.load(Ordering::Relaxed) {
            Some(0)
        } else {
            lock(&self.timeouts)[of].map(after)
        }
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.shared.with(|core| core.give_up(self.at.slot));
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} to {})", self.0.at.local, self.0.at.remote)
    }
}

impl Stream {
    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.at.local
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.at.remote
    }

    /// Sets TCP_NODELAY, that is, whether short segments are sent at once instead of waiting for ACKs (RFC
    /// 9293 §3.7.4).
    pub fn set_nodelay(&self, nodelay: bool) {
        let slot = self.0.at.slot;
        self.0.shared.with(|core| core.request(Request::Nagle { slot, is_on: !nodelay }));
    }

    /// Sets how long a read may wait; `None` is forever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        lock(&self.0.timeouts)[0] = timeout;
    }

    /// Sets how long a write may wait; `None` is forever.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        lock(&self.0.timeouts)[1] = timeout;
    }

    /// Sets whether reads and writes return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, is_nonblocking: bool) {
        self.0.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
    }

    /// Ends the sending direction, the receiving direction, or both. The board has no half-close of the
    /// receiving direction, so only the sending direction is affected.
    pub fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Read {
            self.0.shared.with(|core| {
                if core.client.finish(self.0.at.slot).is_err() {
                    core.end();
                }
            });
        }
    }

    /// Reads like [`Read::read`], but the bytes can be read again.
    ///
    /// # Errors
    /// Same as for reading.
    pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        let mut peeked = lock(&self.0.peeked);
        if peeked.is_empty() {
            let mut bytes = vec![0; room.len()];
            let count = self.receive(&mut bytes)?;
            bytes.truncate(count);
            *peeked = bytes;
        }
        let count = peeked.len().min(room.len());
        room[..count].copy_from_slice(&peeked[..count]);
        Ok(count)
    }

    /// Waits for at most `timeout` until a read would return data, the end of the stream, or an error.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn readable(&self, timeout: Duration) -> io::Result<bool> {
        let slot = self.0.at.slot;
        if !lock(&self.0.peeked).is_empty() {
            return Ok(true);
        }
        let readable = self.0.board.0.wait(
            Some(after(timeout)),
            || {
                self.0.shared.with(|core| match (is_readable(core, slot), core.is_gone) {
                    (true, _) => Some(Ok(true)),
                    (false, true) => Some(Err(board_gone_error())),
                    (false, false) => None,
                })
            },
            |waker| self.0.shared.with(|core| await_bytes(core, slot, waker)),
        );
        match readable {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            result => result,
        }
    }

    fn receive(&self, mut room: &mut [u8]) -> io::Result<usize> {
        if room.is_empty() {
            return Ok(0);
        }
        let slot = self.0.at.slot;
        self.0.board.0.wait(
            self.0.deadline(0),
            || {
                self.0.shared.with(|core| {
                    core.read(slot, room.len(), |bytes| {
                        let (front, rest) = std::mem::take(&mut room).split_at_mut(bytes.len());
                        bytes.copy_to(0, front);
                        room = rest;
                    })
                })
            },
            |waker| self.0.shared.with(|core| await_bytes(core, slot, waker)),
        )
    }

    /// Returns the statistics of the board's connection, in the layout of Linux's `struct tcp_info`.
    ///
    /// # Errors
    /// `NotConnected` if the connection has ended.
    pub fn tcp_info(&self) -> io::Result<Vec<u8>> {
        let slot = self.0.at.slot;
        self.0.shared.with(|core| core.query_statistics(slot));
        self.0.board.0.wait(
            Some(after(super::call::ATTACH_TIMEOUT)),
            || self.0.shared.with(|core| core.statistics(slot)),
            |waker| self.0.shared.with(|core| core.slots[slot as usize].reader = Some(waker.clone())),
        )
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut peeked = lock(&self.0.peeked);
        if peeked.is_empty() {
            drop(peeked);
            return self.receive(room);
        }
        let count = peeked.len().min(room.len());
        room[..count].copy_from_slice(&peeked[..count]);
        peeked.drain(..count);
        Ok(count)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let slot = self.0.at.slot;
        self.0.board.0.wait(
            self.0.deadline(1),
            || self.0.shared.with(|core| core.write(slot, bytes.into())),
            |waker| {
                self.0.shared.with(|core| {
                    core.client.arm(slot);
                    core.slots[slot as usize].writer = Some(waker.clone());
                });
            },
        )
    }

    /// Returns at once, because written data is always sent without a flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listener on the board.
pub struct Listener {
    board: Board,
    parts: ShardListener,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.local_addr())
    }
}

impl Listener {
    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.parts.local_addr()
    }

    /// Returns the next stream, if a peer has connected.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = self.parts.accept().transpose()?;
        Ok(accepted.map(|(shared, at)| Stream(Arc::new(StreamState::new(self.board.clone(), shared, at)))))
    }

    /// Waits for at most `timeout` until a peer has connected, or until one of these streams can be read or
    /// has ended. Returns whether each of the streams and, at the end, the listener is ready. The streams
    /// must belong to the listener's attachment.
    ///
    /// # Errors
    /// If the board has exited.
    pub fn ready(&self, streams: &[&Stream], timeout: Duration) -> io::Result<Vec<bool>> {
        // Peeking takes these locks before the attachment's, so they are not taken inside.
        let peeked: Vec<bool> = streams.iter().map(|stream| !lock(&stream.0.peeked).is_empty()).collect();
        let look = || {
            if self.board.0.shards.channels().iter().any(|shared| shared.with(|core| core.is_gone)) {
                return Some(Err(board_gone_error()));
            }
            let is_ready = |(stream, peeked): (&&Stream, &bool)| {
                *peeked || stream.0.shared.with(|core| is_readable(core, stream.0.at.slot))
            };
            let mut ready: Vec<bool> = streams.iter().zip(&peeked).map(is_ready).collect();
            ready.push(self.parts.is_readable());
            ready.contains(&true).then_some(Ok(ready))
        };
        let register = |waker: &Waker| {
            for stream in streams {
                stream.0.shared.with(|core| await_bytes(core, stream.0.at.slot, waker));
            }
            self.parts.register(waker);
        };
        match self.board.0.wait(Some(after(timeout)), look, register) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(vec![false; streams.len() + 1]),
            result => result,
        }
    }
}
