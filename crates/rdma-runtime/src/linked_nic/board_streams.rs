//! A running board below an RDMA NIC: MPA over the board's TCP streams, accessed through shared memory.
//!
//! Purpose  provides the same operations as sockets, without a system call while both sides are awake.
//! Polling  a stream has no file, so the driver polls listeners and a limited number of streams per `drive`
//!          call. Before it sleeps, a driver arms the doorbells of the board and of all streams, and polls
//!          everything once more. Later events ring the doorbells.
//! File     one file serves all streams: the board wakes a sleeping driver through it, and it hangs up when
//!          the board ends.
//! Limits   `STREAMS` connections at a time; each listener reserves sixteen of them for incoming
//!          connections. Each poll takes one or two uncontended locks.
//! Failure  when a board ends, its streams and listeners end too, as when a network card is removed. Another
//!          board needs a new context.

use super::board::BoardLink;
use super::carrier::Transport;
use super::file::File;
use super::line::{Connection, ListenSocket, MpaListener};
use super::state::{ASK_EVERY, LinkedNic};
use crate::link::Address;
use kiban_base::Instant;
use kiban_rdma::iwarp::mpa;
use rustix::event::epoll::{self, EventFlags};
use std::io;
use std::net::SocketAddr;
use std::ops::Bound;

/// Maximum number of streams polled per `drive` call, unless a driver is about to sleep.
const LOOKS_MAX: usize = 64;

impl LinkedNic {
    /// Watches the board's file.
    pub(super) fn watch_board(&self) -> io::Result<()> {
        match &self.board {
            Some(link) => self.watch(link.board.file(), File::Board, EventFlags::IN),
            None => Ok(()),
        }
    }

    /// Begins to listen on the board. Returns the listener's number.
    pub(super) fn listen_on_board(&mut self, at: SocketAddr, config: mpa::Config) -> io::Result<u32> {
        let Some(link) = &self.board else { return Err(io::ErrorKind::Unsupported.into()) };
        let entrance = link.listen(at)?;
        self.listeners_opened += 1;
        self.listeners.insert(self.listeners_opened, MpaListener { entrance, config });
        Ok(self.listeners_opened)
    }

    /// Returns the listening address or an error; `None` until the board has answered.
    pub(crate) fn listening(&mut self, number: u32) -> Option<io::Result<Address>> {
        let Some(MpaListener { entrance: ListenSocket::Board(listener), .. }) =
            self.listeners.get_mut(&number)
        else {
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

    /// Returns whether the NIC was attached to a board that has ended.
    pub(crate) fn board_has_gone(&self) -> bool {
        self.board.as_ref().is_some_and(|link| link.has_gone)
    }

    /// Handles an event of the board's file.
    pub(super) fn hear_board(&mut self) {
        if self.board.as_ref().is_some_and(|link| link.board.is_gone()) {
            self.lose_board();
        }
    }

    /// Handles the loss of the board. Its streams report their loss separately.
    pub(super) fn lose_board(&mut self) {
        let Some(link) = &mut self.board else { return };
        link.has_gone = true;
        // epoll would keep reporting a file that has hung up. This fails if the file is no longer watched.
        let _ = epoll::delete(&self.epoll, link.board.file());
        (self.progress, self.more) = (true, true);
    }

    /// Polls the board's listeners and streams.
    pub(super) fn look_at_board(&mut self, now: Instant) {
        let Some(BoardLink { has_gone, looked_at, .. }) = &self.board else { return };
        let (has_gone, mut at) = (*has_gone, *looked_at);
        let mut from = 0;
        while let Some((&number, listener)) = self.listeners.range(from..).next().filter(|_| !has_gone) {
            from = number + 1;
            if matches!(&listener.entrance, ListenSocket::Board(listener) if listener.is_readable()) {
                self.accept_connections(number, now);
            }
        }
        // Before a driver sleeps, it must have polled all streams.
        let most = if self.armed || has_gone { usize::MAX } else { LOOKS_MAX };
        for _ in 0..self.connections.len().min(most) {
            let behind = (Bound::Excluded(at), Bound::Unbounded);
            let next = self.connections.range(behind).next().or_else(|| self.connections.first_key_value());
            let Some((&end, _)) = next else { break };
            at = end;
            self.look_at_stream(end, now);
        }
        let mut from = 0;
        while let Some((&number, _)) = self.closing_streams.range(from..).next() {
            from = number.saturating_add(1);
            self.drain_closing_stream(number);
        }
        if let Some(link) = &mut self.board {
            link.looked_at = at;
        }
    }

    fn look_at_stream(&mut self, end: u32, now: Instant) {
        let Some(Connection { transport: Transport::Board(stream), connected, blocked, .. }) =
            self.connections.get_mut(&end)
        else {
            return;
        };
        if !*connected {
            self.on_writable(end, now);
            // Data that arrived with the connection is read at the next poll.
            self.more |= self.connections.get(&end).is_some_and(|line| line.connected);
            return;
        }
        if *blocked && stream.has_room() {
            *blocked = false;
            self.nic.schedule(end);
        }
        if stream.is_readable() {
            let is_lost = stream.is_lost();
            self.read(end, is_lost, now);
        }
    }

    /// Arms the doorbells of the board and its streams before a driver sleeps, and schedules one last poll.
    pub(super) fn arm_board(&mut self) {
        let Some(link) = &self.board else { return };
        link.board.arm();
        let lines = self.connections.values().map(|line| &line.transport);
        for carrier in lines.chain(self.closing_streams.values()) {
            if let Transport::Board(stream) = carrier {
                stream.arm();
            }
        }
        self.drives = ASK_EVERY - 1;
    }

    /// If a driver sleeps or is about to sleep, arms a new stream and schedules a poll of it.
    pub(super) fn arm_new(&mut self, end: u32) {
        if let Some(Connection { transport: Transport::Board(stream), .. }) = self.connections.get(&end) {
            if self.armed {
                stream.arm();
            }
            self.more = true;
        }
    }
}
