//! Attaches a client to a board, given the board's name or the path of its socket.

use super::{ClientService, boards, greeting};
use kiban_attach::Layout;
use kiban_os::channel::{Channel, FRONT_BYTES, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::unix::names::left_out;
use kiban_os::wait::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// How long a new client waits for the board's answer.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of an attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Limit of concurrent streams.
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
    pub fn call_board(self, door: &Path) -> io::Result<(PendingChannel, Layout)> {
        self.call_by(PendingChannel::connect_to_board, door)
    }

    /// Connects to a board's socket at an explicit path. Does not wait for the board's answer.
    ///
    /// # Errors
    /// If the settings are invalid, or no board listens at the socket.
    pub fn call(self, door: &Path) -> io::Result<(PendingChannel, Layout)> {
        self.call_by(PendingChannel::connect_at, door)
    }

    fn call_by(
        self,
        call: fn(&Path, &[u8], usize) -> io::Result<PendingChannel>,
        door: &Path,
    ) -> io::Result<(PendingChannel, Layout)> {
        let layout = Layout::new(FRONT_BYTES, self.streams, self.room_bytes).ok_or_else(|| {
            let message =
                "invalid settings: use 1 to 16384 streams, with buffers of 4 KiB to 16 MiB (a power of two)";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let half = call(door, &greeting(self.streams, self.room_bytes), memory_bytes(layout))?;
        Ok((half, layout))
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
