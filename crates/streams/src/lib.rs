//! Streams on a running board for other programs on this host, through shared memory ([`kiban_attach`]).
//!
//! Socket           `NAME.streams` in the user's socket directory ([`kiban_os::unix::names`]). It is a Unix
//!                  socket over which the board passes a memfd of the requested length to the client.
//! Shards           to a board that is divided into shards, a client has such a channel for each shard, all
//!                  over the same socket ([`shards`]).
//! Access           only the user who runs the board, and root, have access. Root's clients search the
//!                  directories of all users, which may contain anything. Therefore, [`names::call`] checks
//!                  each socket before it connects, and the number of files examined is limited.
//!
//! ```no_run
//! use kiban_base::SharedBytes;
//! use kiban_streams::{Settings, nonblocking::Board};
//!
//! // The board that runs here, if there is only one. No call blocks.
//! let board = Board::attach(None, Settings::default())?;
//! let mut stream = board.connect(None, "10.0.0.2:7".parse().expect("an address"))?;
//! while !stream.is_connected()? {
//!     board.arm();
//!     // Sleep until `board.file()` is readable, then:
//!     board.disarm();
//! }
//! let written = stream.write(SharedBytes::from(&b"ping"[..]))?;
//! # let _ = written;
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod blocking;
pub mod call;
pub mod datagrams;
mod greeting;
pub mod known;
pub mod nonblocking;
pub mod shards;

pub use call::Settings;
pub use greeting::{Answer, Greeting, TOKEN_BYTES};
pub use kiban_attach::EndReason;

use kiban_os::unix::names::{self, folders_of_boards};
use rustix::net::SocketType;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum length of a board's name in bytes.
pub const NAME_BYTES_MAX: usize = 32;
/// Maximum number of files examined in one directory.
const FILES_MAX: usize = 1 << 14;

/// Returns whether a string is a valid name for a board or for an item in its configuration.
pub fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(good)
}

/// Returns whether a process listens on a socket file. (A killed board leaves its file behind.)
///
/// # Errors
/// If the socket cannot be trusted ([`names::call`]).
pub fn has_listener(path: &Path) -> io::Result<bool> {
    let kind = match path.extension() {
        Some(end) if end == "sockets" => SocketType::SEQPACKET,
        _ => SocketType::STREAM,
    };
    match names::call(path, kind, false) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // If the listener's backlog is full, the listener is still alive.
        Err(error) => Ok(error.kind() == io::ErrorKind::WouldBlock),
    }
}

/// Returns the names of boards that listen at a socket with the file extension `end`, sorted.
pub fn boards(end: &str) -> Vec<String> {
    let mut names = Vec::new();
    for folder in folders_of_boards() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let paths = entries.take(FILES_MAX).filter_map(|entry| Some(entry.ok()?.path()));
        for path in paths.filter(|path| path.extension().is_some_and(|its| its == end)) {
            let name = path.file_stem().and_then(|stem| stem.to_str()).filter(|name| is_name(name));
            names.extend(name.filter(|_| has_listener(&path).unwrap_or(false)).map(str::to_owned));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// A service of a board to which programs attach through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientService {
    /// The board's TCP: streams.
    Streams,
    /// The board's OSI stack: associations, one on each stream.
    Osi,
    /// The board's RDMA NIC.
    Rdma,
}

impl ClientService {
    /// Returns the service's kind in a board's configuration.
    pub const fn kind(self) -> &'static str {
        match self {
            ClientService::Streams => "attach",
            ClientService::Osi => "osi",
            ClientService::Rdma => "rdma",
        }
    }

    /// Returns the file extension of the service's socket.
    pub const fn extension(self) -> &'static str {
        match self {
            ClientService::Streams => "streams",
            ClientService::Osi => "osi",
            ClientService::Rdma => "rdma",
        }
    }

    /// Returns the path of a board's socket for this service, in one of the socket directories
    /// ([`kiban_os::unix::names`]).
    pub fn path(self, folder: &Path, board: &str) -> PathBuf {
        folder.join(format!("{board}.{}", self.extension()))
    }
}

/// Returns the path of a board's socket for unmodified programs.
pub fn run_socket_path(folder: &Path, board: &str) -> PathBuf {
    folder.join(format!("{board}.sockets"))
}

/// Converts the reason for a stream's end to an I/O error.
pub fn end_error(why: EndReason) -> io::Error {
    let kind = match why {
        EndReason::Closed => io::ErrorKind::BrokenPipe,
        EndReason::Refused => io::ErrorKind::ConnectionRefused,
        EndReason::Reset => io::ErrorKind::ConnectionReset,
        EndReason::TimedOut => io::ErrorKind::TimedOut,
        EndReason::Aborted => io::ErrorKind::ConnectionAborted,
        EndReason::NoRoute => io::ErrorKind::NetworkUnreachable,
        EndReason::BadAddress => io::ErrorKind::AddrNotAvailable,
        EndReason::InUse => io::ErrorKind::AddrInUse,
        EndReason::TooMany => io::ErrorKind::OutOfMemory,
        EndReason::Unreachable => io::ErrorKind::HostUnreachable,
    };
    io::Error::new(kind, why)
}

/// Returns the error for a board that has exited or has corrupted the shared memory.
pub fn board_gone_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the board has exited: attach again")
}
