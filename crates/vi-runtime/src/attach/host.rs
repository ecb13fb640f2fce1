//! A host attached to the board of another process ([`BoardHost`]).

use kiban_base::ring::{Consumer, Poisoned, Producer, Shape};
use kiban_base::{Bell, Instant, Region, Wait};
use kiban_os::channel::{Channel, FRONT_BYTES, NAME_BYTES_MAX, PendingChannel};
use kiban_os::clock::{Clock, machine_nanos};
use kiban_os::wait::{Sleeper, Waiting};
use kiban_vi::queues::{Control, ControlError, Host, Indication, PostError, done_shape, work_shape};
use kiban_vi::{DataSegment, Work};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

/// Maximum size of an arena in bytes.
pub const ARENA_BYTES_MAX: usize = 1 << 30;
/// How long a board may take to answer a host that attaches.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of the two rings.
const WORK_ENTRIES: usize = 256;
const DONE_ENTRIES: usize = 512;
/// Interval at which a spinning host checks whether the board still exists.
const RARE_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Returns the offsets of the work ring, the completion ring and the arena, and the shapes of the two rings
/// (slot size and number of slots).
pub(crate) fn layout() -> (usize, usize, usize, (Shape, Shape)) {
    let shapes = (work_shape(WORK_ENTRIES), done_shape(DONE_ENTRIES));
    let done = FRONT_BYTES + shapes.0.bytes().next_multiple_of(64);
    let arena = (done + shapes.1.bytes()).next_multiple_of(4096);
    (FRONT_BYTES, done, arena, shapes)
}

/// Returns the name at which a board listens if it serves hosts under `name`.
pub(crate) fn listener_name(name: &str) -> io::Result<Vec<u8>> {
    let listener = format!("board/{name}").into_bytes();
    if name.is_empty() || listener.len() > NAME_BYTES_MAX {
        let message = format!("a board's name must be 1 to {} bytes long", NAME_BYTES_MAX - "board/".len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(listener)
}

/// Why a host's call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostError {
    /// The board denied the request.
    Denied(ControlError),
    /// The entry could not be posted.
    Post(PostError),
    /// The timeout expired.
    Timeout,
    /// The board has exited.
    Gone,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Denied(denied) => denied.fmt(f),
            HostError::Post(error) => error.fmt(f),
            HostError::Timeout => f.write_str("timed out"),
            HostError::Gone => f.write_str("the board has exited: attach again when it is running"),
        }
    }
}

impl std::error::Error for HostError {}

impl From<PostError> for HostError {
    fn from(error: PostError) -> HostError {
        HostError::Post(error)
    }
}

impl From<Poisoned> for HostError {
    fn from(_: Poisoned) -> HostError {
        HostError::Gone
    }
}

/// A host attached to a board in another process.
pub struct BoardHost {
    queues: Host,
    pub(super) channel: Channel,
    arena: Region,
    waiting: Waiting,
    clock: Clock,
    around_at: Instant,
    cookie: u64,
    pending: VecDeque<Indication>,
    /// Number of indications taken since the board's bell was last rung to report free room.
    taken: usize,
}

impl BoardHost {
    /// Attaches to the board that serves hosts under this name, with an arena of `arena_bytes` bytes.
    ///
    /// # Errors
    /// No board of this user has that name, it does not answer, the arena is too large, or a system call
    /// fails.
    pub fn attach(name: &str, arena_bytes: usize, wait: Wait) -> io::Result<BoardHost> {
        if arena_bytes > ARENA_BYTES_MAX {
            let message = format!("the arena is too large: the maximum is {ARENA_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (work, done, arena, shapes) = layout();
        let bytes = (arena + arena_bytes).next_multiple_of(4096);
        let mut half = PendingChannel::connect(&listener_name(name)?, &[], bytes)?;
        let channel = loop {
            if let Some(channel) = half.complete(bytes..=bytes)? {
                break channel;
            }
            // The board answers the next time it is driven. At the latest, its helper thread drives it.
            let mut files = [rustix::event::PollFd::new(&half, rustix::event::PollFlags::IN)];
            let patience = kiban_os::wait::timespec(ATTACH_TIMEOUT);
            match rustix::event::poll(&mut files, Some(&patience)) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the board does not answer")),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let clock = Clock::new();
        let region = channel.region();
        let memory =
            region.part(region.address() + arena as u64, arena_bytes).expect("the memory is so long");
        Ok(BoardHost {
            queues: Host::new(Producer::new(region, work, shapes.0), Consumer::new(region, done, shapes.1)),
            arena: memory.with_address(0),
            channel,
            waiting: Waiting::new(wait, clock),
            clock,
            around_at: Instant::ZERO,
            cookie: 0,
            pending: VecDeque::new(),
            taken: 0,
        })
    }

    /// Returns the memory that host and board share; its first byte has address 0.
    pub fn arena(&self) -> &Region {
        &self.arena
    }

    /// Posts a descriptor to a VI's send queue.
    ///
    /// # Errors
    /// [`PostError`] if the ring is full, the descriptor is too long, or the board has ended.
    pub fn send(&mut self, vi: u32, work: &Work<'_>) -> Result<(), PostError> {
        self.queues.send(vi, work)?;
        self.channel.ring(machine_nanos);
        Ok(())
    }

    /// Posts a descriptor to a VI's receive queue.
    ///
    /// # Errors
    /// Same as for [`BoardHost::send`].
    pub fn receive(&mut self, vi: u32, cookie: u64, segments: &[DataSegment]) -> Result<(), PostError> {
        self.queues.receive(vi, cookie, segments)?;
        self.channel.ring(machine_nanos);
        Ok(())
    }

    /// Sends a control request and waits for the reply; returns the requested number, or zero if there is
    /// none.
    ///
    /// # Errors
    /// [`HostError`] if the board denies the request or has ended, or the timeout expires.
    pub fn control(&mut self, control: &Control, timeout: Duration) -> Result<u32, HostError> {
        self.cookie += 1;
        let own = self.cookie | 1 << 63;
        let deadline = self.clock.now() + timeout;
        // A full ring has room again as soon as the board has taken some entries; the board then rings the
        // host's bell.
        self.wait(deadline, |queues| match queues.post_control(own, control) {
            Err(PostError::Full) => None,
            posted => Some(posted.map_err(HostError::from)),
        })?;
        self.channel.ring(machine_nanos);
        loop {
            match self.next(deadline)? {
                Indication::Reply { cookie, result } if cookie == own => {
                    return result.map_err(HostError::Denied);
                }
                other => self.pending.push_back(other),
            }
        }
    }

    /// Returns the next indication from the board without waiting.
    ///
    /// # Errors
    /// [`HostError::Gone`] if the board violated the ring's protocol.
    pub fn poll(&mut self) -> Result<Option<Indication>, HostError> {
        if let Some(indication) = self.pending.pop_front() {
            return Ok(Some(indication));
        }
        let indication = self.queues.next_indication()?;
        if indication.is_some() {
            self.note_taken();
        }
        Ok(indication)
    }

    /// Rings the board's bell to report free room in the completion ring. This is done each time a quarter of
    /// the ring's entries has been taken.
    fn note_taken(&mut self) {
        self.taken += 1;
        if self.taken >= DONE_ENTRIES / 4 {
            self.taken = 0;
            self.channel.ring(machine_nanos);
        }
    }

    /// Waits for the next indication from the board.
    ///
    /// # Errors
    /// [`HostError`] if the board has ended or the timeout expires.
    pub fn next_indication(&mut self, timeout: Duration) -> Result<Indication, HostError> {
        if let Some(indication) = self.pending.pop_front() {
            return Ok(indication);
        }
        self.next(if timeout == Duration::MAX { Instant::NEVER } else { self.clock.now() + timeout })
    }

    fn next(&mut self, deadline: Instant) -> Result<Indication, HostError> {
        let indication =
            self.wait(deadline, |queues| queues.next_indication().map_err(HostError::from).transpose())?;
        self.note_taken();
        Ok(indication)
    }

    /// Waits until `look` finds something in the rings, the board has ended, or the deadline is reached.
    fn wait<T>(
        &mut self,
        deadline: Instant,
        mut look: impl FnMut(&mut Host) -> Option<Result<T, HostError>>,
    ) -> Result<T, HostError> {
        let BoardHost { queues, channel, waiting, clock, around_at, .. } = self;
        let gone = Cell::new(false);
        let sleeper = OnChannel { channel, gone: &gone };
        let look = || {
            if let found @ Some(_) = look(queues) {
                return found;
            }
            let now = clock.now();
            if now >= *around_at {
                *around_at = now + RARE_CHECK_INTERVAL;
                gone.set(channel.is_gone());
            }
            gone.get().then_some(Err(HostError::Gone))
        };
        waiting.wait(channel.own_bell(), &sleeper, deadline, look).unwrap_or(Err(HostError::Timeout))
    }
}

/// Sleeps on a channel's socket and reads the bytes that woke it.
struct OnChannel<'a> {
    channel: &'a Channel,
    gone: &'a Cell<bool>,
}

impl Sleeper for OnChannel<'_> {
    fn sleep(&self, _: &Bell, timeout: Option<Duration>) {
        let socket = self.channel.socket();
        let mut files = [rustix::event::PollFd::from_borrowed_fd(socket, rustix::event::PollFlags::IN)];
        // An error only ends the sleep early.
        let _ = rustix::event::poll(&mut files, timeout.map(kiban_os::wait::timespec).as_ref());
        self.gone.set(self.channel.is_gone());
    }

    fn wake(&self, _: &Bell) {
        // The board wakes the host through the channel.
    }
}

impl fmt::Debug for BoardHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoardHost({:?})", self.arena)
    }
}
