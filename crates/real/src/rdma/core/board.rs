//! A running board below an RDMA NIC: MPA on streams of its TCP, through shared memory.
//!
//! Goal      what sockets are to the core, without a system call while both sides are awake.
//! Look      a stream has no file: whoever drives looks at listeners and streams, some of them a drive. Who is about to sleep has
//!           armed the board's bell and those of all streams, and looks at every one once more: what comes later rings.
//! File      one for all, which the board wakes a sleeper by, and which hangs up when the board has gone.
//! Limits    `STREAMS` connections at once, of which a listener keeps sixteen for those who call; each look takes an
//!           uncontended lock or two.
//! End       a board that goes takes its streams and listeners along, as a card that is pulled: another is another context.

use super::carrier::Carrier;
use super::file::File;
use super::line::{Door, Entrance, Line};
use super::{ASK_EVERY, Core};
use crate::rdma::link::{Address, Lower};
use crate::streams::nonblocking::{Board, Stream};
use crate::streams::{Settings, gone};
use kiban_ground::Instant;
use kiban_stack::iwarp::mpa;
use rustix::event::epoll::{self, EventFlags};
use std::io;
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::Path;

/// Streams at once, ours and those that are kept for callers. A board has 1024 for all of its clients, where nothing else is said.
const STREAMS: usize = 128;
/// Room of a stream each way. Memory is taken when it is first used.
const ROOM_BYTES: usize = 256 << 10;
/// Streams that one drive looks at, while nobody is about to sleep.
const LOOKS_MAX: usize = 64;

/// The board, and where the last look at its streams stopped.
pub(super) struct BoardLink {
    board: Board,
    has_gone: bool,
    looked_at: u32,
}

impl BoardLink {
    /// The board that a lower layer needs, if it needs one.
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
            return Err(gone());
        }
        self.board.connect(from, to)
    }

    /// Begins to listen.
    fn listen(&self, at: SocketAddr) -> io::Result<Entrance> {
        if self.has_gone {
            return Err(gone());
        }
        self.board.begin_listen(at).map(Entrance::Board)
    }

    /// Whether it was rung since it was armed.
    pub(super) fn is_rung(&self) -> bool {
        !self.has_gone && !self.board.is_armed()
    }

    pub(super) fn disarm(&self) -> Option<u64> {
        self.board.disarm()
    }
}

impl Core {
    /// The board's file is watched.
    pub(super) fn watch_board(&self) -> io::Result<()> {
        match &self.board {
            Some(link) => self.watch(link.board.file(), File::Board, EventFlags::IN),
            None => Ok(()),
        }
    }

    /// Begins to listen on the board: the listener's number.
    pub(super) fn listen_on_board(&mut self, at: SocketAddr, config: mpa::Config) -> io::Result<u32> {
        let Some(link) = &self.board else { return Err(io::ErrorKind::Unsupported.into()) };
        let entrance = link.listen(at)?;
        self.doors_made += 1;
        self.doors.insert(self.doors_made, Door { entrance, config });
        Ok(self.doors_made)
    }

    /// Whether the board listens, and where; nothing before it has said so.
    pub(crate) fn listening(&mut self, number: u32) -> Option<io::Result<Address>> {
        let Some(Door { entrance: Entrance::Board(listener), .. }) = self.doors.get_mut(&number) else {
            return Some(Err(io::ErrorKind::Unsupported.into()));
        };
        match listener.is_listening() {
            Ok(false) => None,
            Ok(true) => Some(Ok(listener.local_addr().into())),
            Err(error) => {
                let message = format!("cannot listen on the board at {}: {error}", listener.local_addr());
                Some(Err(io::Error::new(error.kind(), message)))
            }
        }
    }

    /// Whether there was a board, and it has gone.
    pub(crate) fn board_has_gone(&self) -> bool {
        self.board.as_ref().is_some_and(|link| link.has_gone)
    }

    /// The board's file has something.
    pub(super) fn hear_board(&mut self) {
        if self.board.as_ref().is_some_and(|link| link.board.is_gone()) {
            self.lose_board();
        }
    }

    /// Its streams tell by themselves that they are lost.
    pub(super) fn lose_board(&mut self) {
        let Some(link) = &mut self.board else { return };
        link.has_gone = true;
        // A file that has hung up would be announced for ever. It is not watched any more when this was done before.
        let _ = epoll::delete(&self.epoll, link.board.file());
        (self.news, self.more) = (true, true);
    }

    /// Looks at what the board may have brought.
    pub(super) fn look_at_board(&mut self, now: Instant) {
        let Some(BoardLink { has_gone, looked_at, .. }) = &self.board else { return };
        let (has_gone, mut at) = (*has_gone, *looked_at);
        let mut from = 0;
        while let Some((&number, door)) = self.doors.range(from..).next().filter(|_| !has_gone) {
            from = number + 1;
            if matches!(&door.entrance, Entrance::Board(listener) if listener.has_news()) {
                self.open_door(number, now);
            }
        }
        // Who is about to sleep has to have looked at all.
        let most = if self.armed || has_gone { usize::MAX } else { LOOKS_MAX };
        for _ in 0..self.lines.len().min(most) {
            let behind = (Bound::Excluded(at), Bound::Unbounded);
            let next = self.lines.range(behind).next().or_else(|| self.lines.first_key_value());
            let Some((&end, _)) = next else { break };
            at = end;
            self.look_at_stream(end, now);
        }
        let mut from = 0;
        while let Some((&number, _)) = self.farewells.range(from..).next() {
            from = number.saturating_add(1);
            self.hear_farewell(number);
        }
        if let Some(link) = &mut self.board {
            link.looked_at = at;
        }
    }

    fn look_at_stream(&mut self, end: u32, now: Instant) {
        let Some(Line { carrier: Carrier::Board(stream), connected, blocked, .. }) = self.lines.get_mut(&end)
        else {
            return;
        };
        if !*connected {
            self.on_writable(end, now);
            // What came with its opening is read at the next look.
            self.more |= self.lines.get(&end).is_some_and(|line| line.connected);
            return;
        }
        if *blocked && stream.has_room() {
            *blocked = false;
            self.nic.stir(end);
        }
        if stream.has_news() {
            let is_lost = stream.is_lost();
            self.read(end, is_lost, now);
        }
    }

    /// A driver is about to sleep: the board rings when something moves, and all is looked at once more.
    pub(super) fn arm_board(&mut self) {
        let Some(link) = &self.board else { return };
        link.board.arm();
        let lines = self.lines.values().map(|line| &line.carrier);
        for carrier in lines.chain(self.farewells.values()) {
            if let Carrier::Board(stream) = carrier {
                stream.arm();
            }
        }
        self.asked = ASK_EVERY - 1;
    }

    /// A stream has come to be while a driver sleeps, or is about to: it is looked at once more, too.
    pub(super) fn arm_new(&mut self, end: u32) {
        if let Some(Line { carrier: Carrier::Board(stream), .. }) = self.lines.get(&end) {
            if self.armed {
                stream.arm();
            }
            self.more = true;
        }
    }
}
