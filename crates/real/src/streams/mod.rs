//! A running board's streams for other programs of this host, through memory that both see ([`kiban_board::streams`]).
//!
//! ```no_run
//! # async fn story() -> std::io::Result<()> {
//! use kiban_real::streams::Attachment;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let board = Attachment::attach(Some("lab")).await?;
//! let mut stream = board.connect("10.9.0.1:7".parse().expect("an address")).await?;
//! stream.write_all(b"hello").await?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Where     `$XDG_RUNTIME_DIR/kiban/NAME.streams`, or `/run/kiban/NAME.streams` where that is not set: a Unix socket, over which
//!           the client hands the board a memfd of its own making.
//! Who       the user who runs the board, and root.

mod attachment;
mod call;
mod known;
pub mod nonblocking;
mod stream;

pub use attachment::Attachment;
pub use call::Settings;
pub use kiban_board::streams::Why;
pub use stream::{Listener, Stream};

use crate::link::channel::FRONT_BYTES;
use kiban_board::streams::Layout;
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where sockets of this user's boards are: the place for new ones first.
pub fn folders() -> Vec<PathBuf> {
    let run = PathBuf::from("/run/kiban");
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("kiban"));
    own.into_iter().chain([run]).collect()
}

/// What boards have there by names that end so, with what killed ones have left behind.
fn files(end: &str) -> Vec<PathBuf> {
    let entries = folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|its| its == end)).collect()
}

/// Whether somebody is behind such a file: what a board that was killed leaves is one, too.
pub fn lives(path: &Path) -> bool {
    // The door for sockets is of another type, and says so.
    let is_other = |error: io::Error| error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error());
    UnixStream::connect(path).map_or_else(is_other, |_| true)
}

/// The names of boards that answer at such a file, in order.
pub fn boards(end: &str) -> Vec<String> {
    let name = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut names: Vec<String> = files(end).into_iter().filter(|path| lives(path)).filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// The door for streams of a board, in one of the [`folders`].
pub fn door(folder: &Path, board: &str) -> PathBuf {
    folder.join(format!("{board}.streams"))
}

/// The door for sockets of a board, for programs that know nothing of it.
pub fn sockets_door(folder: &Path, board: &str) -> PathBuf {
    folder.join(format!("{board}.sockets"))
}

/// What a client says first: how its memory is laid out, as two numbers.
pub fn greeting(slots: usize, room: usize) -> Vec<u8> {
    [(slots as u32).to_be_bytes(), (room as u32).to_be_bytes()].concat()
}

/// The layout that a client has said.
///
/// # Errors
/// It is not understood, or beyond the bounds.
pub fn understand(greeting: &[u8]) -> io::Result<Layout> {
    let (words, rest) = greeting.as_chunks::<4>();
    let layout = match (words, rest) {
        ([slots, room], []) => {
            Layout::new(FRONT_BYTES, u32::from_be_bytes(*slots) as usize, u32::from_be_bytes(*room) as usize)
        }
        _ => None,
    };
    layout.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a client of this version"))
}

/// An end of a stream, as an error of the system's.
pub(crate) fn error(why: Why) -> io::Error {
    let kind = match why {
        Why::Closed => io::ErrorKind::BrokenPipe,
        Why::Refused => io::ErrorKind::ConnectionRefused,
        Why::Reset => io::ErrorKind::ConnectionReset,
        Why::TimedOut => io::ErrorKind::TimedOut,
        Why::Aborted => io::ErrorKind::ConnectionAborted,
        Why::NoRoute => io::ErrorKind::NetworkUnreachable,
        Why::BadAddress => io::ErrorKind::AddrNotAvailable,
        Why::InUse => io::ErrorKind::AddrInUse,
        Why::TooMany => io::ErrorKind::OutOfMemory,
        Why::Unreachable => io::ErrorKind::HostUnreachable,
    };
    io::Error::new(kind, why)
}

/// The board has gone, or broke what both share.
pub(crate) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the board has gone: attach again")
}
