//! Attaches a client to a board, given the board's name or the path of its socket.

use super::greeting::{Answer, Greeting, TOKEN_BYTES};
use super::known::Shared;
use super::shards::Shards;
use super::{ClientService, boards};
use kiban_attach::Layout;
use kiban_os::channel::{Channel, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::unix::names::left_out;
use kiban_os::wait::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a new client waits for the board's answer.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of an attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Limit of concurrent streams. On a board that is divided into shards, each shard has room for more than
    /// its even part, so there may be more in all.
    pub streams: usize,
    /// Buffer size of each direction of a stream between client and board, in bytes: a power of two. A writer
    /// that waits for room wakes when half of the buffer is free.
    pub room_bytes: usize,
    /// How long a reader without data spins before it sleeps.
    pub spin: Duration,
}

impl Default for Settings {
    /// The defaults are 64 streams with 256 KiB in each direction, and 20 us of spinning.
    fn default() -> Settings {
        Settings { streams: 64, room_bytes: 256 << 10, spin: Duration::from_micros(20) }
    }
}

impl Settings {
    /// Connects to a board's socket in one of the users' directories, with the checks made by
    /// [`kiban_os::unix::names::call`]. Does not wait for the board's answer.
    ///
    /// # Errors
    /// If the settings are invalid, or no board listens at the socket.
    pub fn call_board(self, door: &Path) -> io::Result<Attaching> {
        Attaching::start(self, PendingChannel::connect_to_board, door)
    }

    /// Connects to a board's socket at an explicit path. Does not wait for the board's answer.
    ///
    /// # Errors
    /// If the settings are invalid, or no board listens at the socket.
    pub fn call(self, door: &Path) -> io::Result<Attaching> {
        Attaching::start(self, PendingChannel::connect_at, door)
    }
}

/// A function that connects to a board's socket.
type Call = fn(&Path, &[u8], usize) -> io::Result<PendingChannel>;

/// An attachment that is being set up: one channel after the other.
pub struct Attaching {
    greeting: Greeting,
    call: Call,
    door: PathBuf,
    /// The channel for whose answer this waits.
    half: PendingChannel,
    memory_bytes: usize,
    channels: Vec<Arc<Shared>>,
}

impl Attaching {
    fn start(settings: Settings, call: Call, door: &Path) -> io::Result<Attaching> {
        let Settings { streams, room_bytes, .. } = settings;
        let greeting = Greeting { streams, room_bytes, further: None };
        let layout = greeting.layout(1).ok_or_else(|| {
            let message =
                "invalid settings: use 1 to 16384 streams, with buffers of 4 KiB to 16 MiB (a power of two)";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let memory_bytes = memory_bytes(layout);
        let half = call(door, &greeting.to_bytes(), memory_bytes)?;
        Ok(Attaching { greeting, call, door: door.into(), half, memory_bytes, channels: Vec::new() })
    }

    /// Returns the attachment once the board has answered for all channels. Otherwise, wait until
    /// [`Attaching::file`], which differs each time, is readable.
    ///
    /// # Errors
    /// If the board refuses or exits.
    pub fn complete(&mut self) -> io::Result<Option<Shards>> {
        loop {
            let bytes = self.memory_bytes;
            let Some(channel) = self.half.complete(bytes..=bytes)? else { return Ok(None) };
            let answer = Answer::from_bytes(channel.answer())?;
            let shards = answer.map_or(1, |answer| answer.shards.into());
            let layout = self.greeting.layout(shards).expect("a part of a layout that is within the limits");
            self.channels.push(Arc::new(Shared::new(channel, layout, shards)));
            let token = answer.map_or([0; TOKEN_BYTES], |answer| answer.token);
            if self.channels.len() >= shards {
                return Shards::new(std::mem::take(&mut self.channels), token[0].into()).map(Some);
            }
            let greeting = Greeting { further: Some((self.channels.len() as u16, token)), ..self.greeting };
            self.memory_bytes = memory_bytes(layout);
            self.half = (self.call)(&self.door, &greeting.to_bytes(), self.memory_bytes)?;
        }
    }

    /// Returns the file that is readable once the board has answered.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.half.as_fd()
    }

    /// Waits until the board has answered.
    ///
    /// # Errors
    /// If the board refuses, or does not answer within [`ATTACH_TIMEOUT`].
    pub(crate) fn wait(mut self) -> io::Result<Shards> {
        let until = machine_nanos() + ATTACH_TIMEOUT.as_nanos() as u64;
        loop {
            if let Some(shards) = self.complete()? {
                return Ok(shards);
            }
            wait_for(self.file(), until)?;
        }
    }
}

/// Waits until a board has answered a call for `bytes` of memory.
///
/// # Errors
/// If the board refuses, or does not answer within [`ATTACH_TIMEOUT`].
pub fn complete(mut half: PendingChannel, bytes: usize) -> io::Result<Channel> {
    let until = machine_nanos() + ATTACH_TIMEOUT.as_nanos() as u64;
    loop {
        if let Some(channel) = half.complete(bytes..=bytes)? {
            return Ok(channel);
        }
        wait_for(half.as_fd(), until)?;
    }
}

/// Waits until a file is readable, or until the given time (CLOCK_MONOTONIC, in nanoseconds).
pub(crate) fn wait_for(file: BorrowedFd<'_>, until: u64) -> io::Result<()> {
    let left = timespec(Duration::from_nanos(until.saturating_sub(machine_nanos())));
    match poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&left)) {
        Ok(0) => Err(no_answer_error()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the number of bytes of memory that a layout needs, rounded up to whole pages.
pub fn memory_bytes(layout: Layout) -> usize {
    layout.bytes().next_multiple_of(4096)
}

/// Returns the given name or, if there is none, the name of the only board that accepts clients.
///
/// # Errors
/// If no name is given, and no board or several boards accept clients.
pub fn named(service: ClientService, board: Option<&str>) -> io::Result<String> {
    board.map_or_else(|| only_board(service), |board| Ok(board.to_owned()))
}

/// Returns whether an error means that no process listens at a socket.
pub fn is_no_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Returns the error for a board without a listener at any of its sockets.
pub fn no_listener_error(service: ClientService, board: &str) -> io::Error {
    let message = format!(
        "no board {board} accepts {}: add a service of kind \"{}\" to its configuration{}",
        clients(service),
        service.kind(),
        left_out()
    );
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// Returns the error for a board that does not answer.
pub fn no_answer_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the board does not answer")
}

/// Returns the word for a service's clients in messages.
const fn clients(service: ClientService) -> &'static str {
    match service {
        ClientService::Streams => "clients",
        ClientService::Osi => "users of its OSI stack",
        ClientService::Rdma => "users of its RDMA NIC",
    }
}

/// Returns the name of the only board that accepts clients.
fn only_board(service: ClientService) -> io::Result<String> {
    match &boards(service.extension())[..] {
        [one] => Ok(one.clone()),
        [] => {
            let message = format!(
                "no board accepts {}: give one a service of kind \"{}\"{}",
                clients(service),
                service.kind(),
                left_out()
            );
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        many => {
            let message = format!(
                "several boards accept clients: choose one as board:NAME, or for a VI as board:NAME@ADDRESS:0: {}",
                many.join(", ")
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}
