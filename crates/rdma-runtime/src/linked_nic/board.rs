//! The attachment of an RDMA NIC to a running board.
//!
//! Limits  [`STREAMS`] connections at a time; each listener reserves sixteen of them for incoming
//!         connections.

use super::line::ListenSocket;
use crate::link::Lower;
use kiban_streams::nonblocking::{Board, Stream};
use kiban_streams::{Settings, board_gone_error};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Maximum number of streams, including those reserved for incoming connections. By default, a board has
/// 1024 streams for all its clients.
const STREAMS: usize = 128;
/// Buffer size of a stream per direction. Memory is allocated on first use.
const ROOM_BYTES: usize = 256 << 10;

/// The board, and the end at which the last poll of the board's streams stopped.
pub(super) struct BoardLink {
    pub(super) board: Board,
    pub(super) has_gone: bool,
    pub(super) looked_at: u32,
}

impl BoardLink {
    /// Attaches to the board that a lower layer names, or returns `None` if the layer needs no board.
    pub(super) fn attach(lower: &Lower) -> io::Result<Option<BoardLink>> {
        let Lower::Board { name } = lower else { return Ok(None) };
        let settings = Settings { streams: STREAMS, room_bytes: ROOM_BYTES, ..Settings::default() };
        let board = match name {
            Some(path) if path.contains('/') => Board::attach_at(Path::new(path), settings),
            name => Board::attach(name.as_deref(), settings),
        };
        Ok(Some(BoardLink { board: board?, has_gone: false, looked_at: 0 }))
    }

    /// Begins to connect.
    pub(super) fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<Stream> {
        if self.has_gone {
            return Err(board_gone_error());
        }
        self.board.connect(from, to)
    }

    /// Begins to listen.
    pub(super) fn listen(&self, at: SocketAddr) -> io::Result<ListenSocket> {
        if self.has_gone {
            return Err(board_gone_error());
        }
        self.board.start_listen(at).map(ListenSocket::Board)
    }

    /// Returns whether the board has rung since it was armed.
    pub(super) fn is_rung(&self) -> bool {
        !self.has_gone && !self.board.is_armed()
    }

    pub(super) fn disarm(&self) -> Option<u64> {
        self.board.disarm()
    }
}
