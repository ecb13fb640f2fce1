//! How a client calls a board: by its name, with memory of its own making.

use super::{boards, greeting};
use crate::link::channel::{FRONT_BYTES, Half};
use kiban_board::streams::Layout;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long a board may take to answer who calls.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// What an attachment is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Streams at once.
    pub streams: usize,
    /// Bytes that each direction of a stream holds between client and board: a power of two. Who waits for room is woken when
    /// half of it is free.
    pub room_bytes: usize,
    /// How long who finds nothing looks on before it waits.
    pub spin: Duration,
}

impl Default for Settings {
    /// 64 streams of 256 KiB each way, and 20 us of looking on.
    fn default() -> Settings {
        Settings { streams: 64, room_bytes: 256 << 10, spin: Duration::from_micros(20) }
    }
}

impl Settings {
    /// Calls who is behind a door, and has to answer yet.
    pub(super) fn call(self, door: &Path) -> io::Result<(Half, Layout)> {
        let layout = Layout::new(FRONT_BYTES, self.streams, self.room_bytes).ok_or_else(|| {
            let message = "an attachment has 1 to 16384 streams of 4 KiB to 16 MiB, a power of two, each way";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let half = Half::call_at(door, &greeting(self.streams, self.room_bytes), memory_bytes(layout))?;
        Ok((half, layout))
    }
}

/// What a layout takes, in whole pages.
pub(super) fn memory_bytes(layout: Layout) -> usize {
    layout.bytes().next_multiple_of(4096)
}

/// The board that is meant; without a name the only one that takes clients.
pub(super) fn named(board: Option<&str>) -> io::Result<String> {
    board.map_or_else(only_board, |board| Ok(board.to_owned()))
}

/// Whether an error says that nobody is behind a door.
pub(super) fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Nobody is behind any of a board's doors.
pub(super) fn nobody(board: &str) -> io::Error {
    let message =
        format!("no board {board} takes clients: add a service of kind \"attach\" to its configuration");
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// A board that is there and says nothing.
pub(super) fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the board does not answer")
}

/// The name of the only board that takes clients.
fn only_board() -> io::Result<String> {
    match &boards("streams")[..] {
        [one] => Ok(one.clone()),
        [] => {
            let message = "no board takes clients: give one a service of kind \"attach\"";
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        many => {
            let message = format!(
                "several boards take clients, name one (board:NAME; a VI's device is board:NAME@ADDRESS:0): {}",
                many.join(", ")
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}
